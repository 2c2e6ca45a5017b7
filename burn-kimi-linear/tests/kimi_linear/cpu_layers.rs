//! The kernels of the CPU backend around delta attention, convolution, gated norm and SwiGLU, against the same from primitive operations in `f64`.

use burn::module::Param;
use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_kimi_linear::{GatedRmsNormConfig, ShortConvolutionConfig, swiglu};

use crate::closeness::{assert_close, values};
use crate::draws::normal;

/// The inputs in `dtype`, with gradients.
fn inputs<const D: usize, const N: usize>(data: &[TensorData; N], dtype: DType) -> [Tensor<D>; N] {
    let device = Device::flex().autodiff();
    std::array::from_fn(|i| {
        let exact = Tensor::<D>::from_data(data[i].clone(), (&device, DType::F32));
        exact.cast(dtype).detach().require_grad()
    })
}

/// An output and the gradients that a loss on it gives, as numbers.
fn results<const D: usize, const N: usize>(
    data: &[TensorData; N],
    dtype: DType,
    run: impl Fn([Tensor<D>; N]) -> Tensor<D>,
) -> Vec<Vec<f64>> {
    let inputs = inputs::<D, N>(data, dtype);
    let y = run(inputs.clone());
    assert_eq!(y.dtype(), dtype);
    let weights = (0..y.shape().num_elements()).map(|i| (i as f64 * 0.7).sin());
    let weights = TensorData::new(weights.collect::<Vec<_>>(), y.shape());
    let weights = Tensor::<D>::from_data(weights, (&y.device(), DType::F64));
    let loss = (y.clone().cast(DType::F64) * weights).sum();
    let gradients = loss.backward();
    let mut results = vec![values(y)];
    results.extend(inputs.map(|x| values(x.grad(&gradients).expect("every input takes part"))));
    results
}

/// Kernels store `f32` and `bf16`; `f64` goes through primitive operations.
#[track_caller]
fn assert_agrees<const D: usize, const N: usize>(
    what: &str,
    data: &[TensorData; N],
    run: impl Fn([Tensor<D>; N]) -> Tensor<D>,
) {
    let want = results(data, DType::F64, &run);
    for (dtype, tolerance) in [(DType::F32, 2e-6), (DType::BF16, 2e-2)] {
        let got = results(data, dtype, &run);
        for (index, (got, want)) in got.iter().zip(&want).enumerate() {
            assert_close(
                &format!("{what} {dtype:?} result {index}"),
                got,
                want,
                tolerance,
            );
        }
    }
}

fn convolution(
    batch: usize,
    tokens: usize,
    channels: usize,
    taps: usize,
    silu: bool,
) -> impl Fn([Tensor<3>; 3]) -> Tensor<3> {
    move |[x, weight, window]| {
        assert_eq!(x.dims(), [batch, tokens, channels]);
        let mut layer = ShortConvolutionConfig::new(channels)
            .with_kernel_size(taps)
            .init(&x.device());
        layer.weight = Param::from_tensor(weight);
        let window = (taps > 1).then_some(window);
        match silu {
            true => layer.forward_silu(x, window).0,
            false => layer.forward(x, window).0,
        }
    }
}

/// Five taps are more than the kernel keeps in registers; 70 channels are more than one task has, and no whole registers.
#[test]
fn convolution_agrees_with_primitive_operations() {
    for (batch, tokens, channels, taps) in [
        (2, 9, 3, 4),
        (1, 1, 16, 4),
        (3, 2, 70, 4),
        (2, 40, 130, 3),
        (1, 5, 8, 2),
        (2, 6, 9, 5),
    ] {
        let data = [
            normal([batch, tokens, channels], 1.5),
            normal([channels, 1, taps], 0.7),
            normal([batch, taps - 1, channels], 1.0),
        ];
        for silu in [false, true] {
            let what = format!("B{batch} T{tokens} C{channels} W{taps} silu {silu}");
            assert_agrees(
                &what,
                &data,
                convolution(batch, tokens, channels, taps, silu),
            );
        }
    }
}

#[test]
fn gated_norm_agrees_with_primitive_operations() {
    for shape in [[2, 3, 2, 5], [1, 70, 2, 16], [1, 1, 1, 2], [2, 5, 3, 130]] {
        let data = [normal(shape, 2.0), normal(shape, 3.0)];
        let weight = normal([shape[3]], 1.0);
        assert_agrees(&format!("{shape:?}"), &data, |[x, gate]: [Tensor<4>; 2]| {
            let mut layer = GatedRmsNormConfig::new(shape[3]).init(&x.device());
            let gamma = Tensor::<1>::from_data(weight.clone(), (&x.device(), DType::F32));
            layer.norm.gamma = Param::from_tensor(gamma.cast(x.dtype()).detach());
            layer.forward(x, gate)
        });
    }
}

/// The gradient of the weight is a sum over all rows, more than one task has.
#[test]
fn gradient_of_the_norms_weight_agrees_with_primitive_operations() {
    let shape = [2, 50, 3, 20];
    let (x, gate, weight) = (normal(shape, 2.0), normal(shape, 1.0), normal([20], 1.0));
    let gradient = |dtype: DType| {
        let device = Device::flex().autodiff();
        let wide = |data: &TensorData| {
            Tensor::<4>::from_data(data.clone(), (&device, DType::F32)).cast(dtype)
        };
        let gamma = Tensor::<1>::from_data(weight.clone(), (&device, DType::F32));
        let gamma = gamma.cast(dtype).detach().require_grad();
        let mut layer = GatedRmsNormConfig::new(20).init(&device);
        layer.norm.gamma = Param::from_tensor(gamma.clone());
        let y = layer.forward(wide(&x), wide(&gate));
        let gradients = (y.clone() * y).sum().backward();
        values(gamma.grad(&gradients).expect("the weight takes part"))
    };
    let (got, want) = (gradient(DType::F32), gradient(DType::F64));
    assert_close("weight", &got, &want, 2e-6);
}

#[test]
fn swiglu_agrees_with_primitive_operations() {
    for shape in [[1, 1, 1], [2, 3, 5], [3, 100, 130]] {
        let data = [normal(shape, 4.0), normal(shape, 1.0)];
        assert_agrees(
            &format!("{shape:?}"),
            &data,
            |[gate, up]: [Tensor<3>; 2]| swiglu(gate, up),
        );
    }
}

/// Inputs far beyond where `exp` leaves `f32` are 0 or themselves, and so are their slopes.
#[test]
fn gates_saturate_without_nan() {
    let data = [
        TensorData::from([[[-1e4f32, -200.0, 200.0, 1e4]]]),
        TensorData::from([[[1.0f32, 1.0, 1.0, 1.0]]]),
    ];
    let [gate, up] = inputs::<3, 2>(&data, DType::F32);
    let y = swiglu(gate.clone(), up);
    let gradients = y.clone().sum().backward();
    assert_eq!(values(y), [0.0, 0.0, 200.0, 1e4]);
    let slope = values(gate.grad(&gradients).expect("the gate takes part"));
    assert_eq!(slope, [0.0, 0.0, 1.0, 1.0]);
}

/// Views come in as they are: swapped axes, and a part of a larger tensor with NaN around it.
#[test]
fn views_are_read_by_their_strides() {
    let device = Device::flex();
    let whole = Tensor::<3>::from_data(normal([2, 8, 6], 1.0), &device);
    let framed =
        Tensor::full([2, 10, 9], f32::NAN, &device).slice_assign([0..2, 1..9, 2..8], whole.clone());
    let part = framed.slice([0..2, 1..9, 2..8]);
    let turned = whole.clone().swap_dims(1, 2);
    let layer = ShortConvolutionConfig::new(6).init(&device);
    let want = layer.forward_silu(whole.clone(), None);
    let got = layer.forward_silu(part.clone(), None);
    assert_eq!(got.0.into_data(), want.0.into_data());
    assert_eq!(got.1.into_data(), want.1.into_data());
    assert_eq!(
        swiglu(part.clone(), part).into_data(),
        swiglu(whole.clone(), whole).into_data()
    );
    let plain = Tensor::<3>::from_data(turned.clone().into_data(), &device);
    assert_eq!(
        swiglu(turned.clone(), turned).into_data(),
        swiglu(plain.clone(), plain).into_data()
    );
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let data = [
        normal([3, 50, 200], 1.0),
        normal([200, 1, 4], 1.0),
        normal([3, 3, 200], 1.0),
    ];
    let norm = [normal([3, 50, 4, 50], 1.0), normal([3, 50, 4, 50], 1.0)];
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.expect("threads").install(|| {
            let mut all = results(&data, DType::F32, convolution(3, 50, 200, 4, true));
            all.extend(results(&norm, DType::F32, |[x, gate]: [Tensor<4>; 2]| {
                let layer = GatedRmsNormConfig::new(50).init(&x.device());
                swiglu(layer.forward(x, gate.clone()), gate)
            }));
            all
        })
    };
    let one = run(1);
    for threads in [2, 3, 8] {
        assert!(run(threads) == one, "{threads} threads");
    }
}
