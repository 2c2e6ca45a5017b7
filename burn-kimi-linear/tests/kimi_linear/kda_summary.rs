//! The affine summary of a run of tokens, and context parallelism on top of it.

use burn::tensor::{DType, Device, Tensor};
use burn_kimi_linear::KdaState;
use burn_kimi_linear::kda::{KdaPart, kda_context_parallel, kda_summary};

use crate::closeness::{assert_close, values};
use crate::engines::engines;
use crate::kda_cases::{Gates, Keys, Tensors, inputs};
use crate::kda_oracle::Dims;

const TOKENS: usize = 50;

fn tensors(device: &Device) -> Tensors {
    let dims = Dims {
        batch: 2,
        tokens: TOKENS,
        heads: 2,
        group: 2,
        key: 8,
        value: 12,
    };
    let gates = Gates::Random { strength: 0.3 };
    Tensors::new(
        &inputs(dims, gates, Keys::Random, 1.0, 3),
        device,
        DType::F32,
    )
}

#[test]
fn a_summary_takes_any_state_to_where_the_tokens_take_it() {
    for engine in engines() {
        let x = tensors(&engine.device);
        let (_, want) = x.run(&engine.options());
        let part = |from: usize, count: usize| {
            let cut = |x: &Tensor<4>| x.clone().narrow(1, from, count);
            let beta = x.beta.clone().narrow(1, from, count);
            kda_summary(cut(&x.k), cut(&x.v), cut(&x.g), beta, &engine.options())
        };
        let state = || KdaState::from_key_value(x.state.clone());
        let whole = part(0, TOKENS).apply(state()).into_key_value();
        assert_close(engine.name, &values(whole), &values(want.clone()), 1e-5);
        for at in [1, 17, 32, 49] {
            let joined = part(0, at).then(&part(at, TOKENS - at));
            let joined = joined.apply(state()).into_key_value();
            assert_close(engine.name, &values(joined), &values(want.clone()), 1e-5);
        }
    }
}

/// Two parts and three, forward and backward, with several heads: a reported fault gave wrong gradients only behind the first part.
#[test]
fn parts_on_their_own_equal_one_pass_forward_and_backward() {
    for engine in engines() {
        let device = engine.device.clone().autodiff();
        let run = |cuts: &[usize]| {
            let x = tensors(&device);
            let x = Tensors {
                q: x.q.require_grad(),
                k: x.k.require_grad(),
                v: x.v.require_grad(),
                g: x.g.require_grad(),
                beta: x.beta.require_grad(),
                state: x.state.require_grad(),
            };
            let ends = cuts.iter().copied().chain([TOKENS]);
            let starts = std::iter::once(0).chain(cuts.iter().copied());
            let parts = starts.zip(ends).map(|(start, end)| {
                let cut = |x: &Tensor<4>| x.clone().narrow(1, start, end - start);
                KdaPart {
                    q: cut(&x.q),
                    k: cut(&x.k),
                    v: cut(&x.v),
                    g: cut(&x.g),
                    beta: x.beta.clone().narrow(1, start, end - start),
                }
            });
            let state = Some(KdaState::from_key_value(x.state.clone()));
            let (o, state) = kda_context_parallel(parts.collect(), state, &engine.options());
            let (o, state) = (Tensor::cat(o, 1), state.into_key_value());
            let grads = (o.clone().square().sum() + state.clone().square().sum()).backward();
            [
                values(o),
                values(state),
                values(x.q.grad(&grads).unwrap()),
                values(x.k.grad(&grads).unwrap()),
                values(x.v.grad(&grads).unwrap()),
                values(x.g.grad(&grads).unwrap()),
                values(x.beta.grad(&grads).unwrap()),
                values(x.state.grad(&grads).unwrap()),
            ]
        };
        let want = run(&[]);
        for cuts in [&[25][..], &[16], &[10, 33]] {
            for (part, (got, want)) in run(cuts).iter().zip(&want).enumerate() {
                let what = format!("{} cut at {cuts:?}: result {part}", engine.name);
                assert_close(&what, got, want, 2e-5);
            }
        }
    }
}
