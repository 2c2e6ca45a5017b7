use burn::tensor::{Device, Tensor};
use burn_kimi_linear::{ShortConvolution, ShortConvolutionConfig};

use crate::closeness::{assert_close, values};
use crate::draws::normal_on;

const CHANNELS: usize = 3;
const KERNEL: usize = 4;

fn layer() -> ShortConvolution {
    ShortConvolutionConfig::new(CHANNELS).init(&Device::flex())
}

fn random(shape: [usize; 3]) -> Tensor<3> {
    normal_on(shape, &Device::flex())
}

#[test]
fn matches_its_formula() {
    let (layer, x, window) = (
        layer(),
        random([2, 6, CHANNELS]),
        random([2, KERNEL - 1, CHANNELS]),
    );
    let (y, next) = layer.forward(x.clone(), Some(window.clone()));
    let weight = values(layer.weight.val());
    let (x, window) = (values(x), values(window));
    let input = |b: usize, t: isize, c: usize| match t {
        t if t < 0 => {
            window[(b * (KERNEL - 1) + (t + KERNEL as isize - 1) as usize) * CHANNELS + c]
        }
        t => x[(b * 6 + t as usize) * CHANNELS + c],
    };
    let mut want = Vec::new();
    for b in 0..2 {
        for t in 0..6 {
            for c in 0..CHANNELS {
                let tap = |j: usize| weight[c * KERNEL + j] * input(b, (t + j) as isize - 3, c);
                want.push((0..KERNEL).map(tap).sum());
            }
        }
    }
    assert_close("y", &values(y), &want, 1e-6);
    let last: Vec<f64> = (0..2)
        .flat_map(|b| (3..6).flat_map(move |t| (0..CHANNELS).map(move |c| (b, t, c))))
        .map(|(b, t, c)| input(b, t, c))
        .collect();
    assert_close("window", &values(next), &last, 0.0);
}

#[test]
fn token_by_token_equals_one_pass() {
    let (layer, x) = (layer(), random([2, 7, CHANNELS]));
    let (want, want_window) = layer.forward(x.clone(), None);
    let mut window = None;
    let mut outputs = Vec::new();
    for t in 0..7 {
        let (y, next) = layer.forward(x.clone().narrow(1, t, 1), window);
        outputs.push(y);
        window = Some(next);
    }
    assert_eq!(Tensor::cat(outputs, 1).into_data(), want.into_data());
    assert_eq!(window.unwrap().into_data(), want_window.into_data());
}

/// Fewer tokens than the window holds: the older entries move up instead of being lost.
#[test]
fn a_short_input_keeps_older_entries() {
    let (layer, window) = (layer(), random([1, KERNEL - 1, CHANNELS]));
    for tokens in 0..KERNEL - 1 {
        let x = random([1, tokens, CHANNELS]);
        let (y, next) = layer.forward(x.clone(), Some(window.clone()));
        assert_eq!(y.dims(), [1, tokens, CHANNELS]);
        let kept = window.clone().narrow(1, tokens, KERNEL - 1 - tokens);
        let want = if tokens == 0 {
            kept
        } else {
            Tensor::cat(vec![kept, x], 1)
        };
        assert_eq!(next.into_data(), want.into_data());
    }
}

#[test]
#[should_panic(expected = "assert_shape!(window, [batch, past, channels])")]
fn a_window_of_another_size_is_refused() {
    layer().forward(
        random([1, 2, CHANNELS]),
        Some(random([1, KERNEL, CHANNELS])),
    );
}
