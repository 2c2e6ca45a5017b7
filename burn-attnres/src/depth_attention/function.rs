//! The public functions: they check, choose the precision, and call the definition.

use burn::tensor::{DType, Tensor};
use burn_kimi_kernels::precision::compute_dtype;

use super::reference;

/// One depth-attention read: mixes `sources` into `h`, token by token.
///
/// ```text
/// k_i = gamma * v_i / sqrt(mean(v_i^2) + eps)      the key: RMSNorm over the d features
/// z_i = <query, k_i>                               no 1/sqrt(d), no temperature
/// p   = softmax(z_1 .. z_n)                        over the n sources
/// h   = sum_i p_i v_i                              the values are the sources, not normalised
/// ```
///
/// Source: Kimi Team, "Attention Residuals", [arXiv 2603.15031](https://arxiv.org/abs/2603.15031), equations 1 to 4.
///
/// # Shapes
///
/// - `sources`: `n >= 1` tensors `[batch, tokens, d]`, views and slices included
/// - `query`, `gamma`: `[d]`
/// - returns `h`: `[batch, tokens, d]`, in the dtype of the sources
///
/// # Precision
///
/// Norm, logits, softmax and mix are computed in f32 for f16, bf16 and f32 sources, and in f64 for f64 sources;
/// `query` and `gamma` may have any float dtype. The result is rounded once.
///
/// With one source `h` equals it bit for bit, and the gradients of `query` and `gamma` are exactly zero.
/// A source that is zero for some token is an ordinary source with logit 0, provided that `eps > 0`.
///
/// # Panics
///
/// If `sources` is empty; if a shape, dtype or device differs from what is described here (the message names
/// the tensor); if `eps` is negative or not finite.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use burn_attnres::depth_attention;
///
/// let device = Device::default();
/// // One token, d = 4. The query looks at the first feature.
/// let v0 = Tensor::<3>::from_data([[[2.0, 0.0, 0.0, 0.0]]], &device);
/// let v1 = Tensor::<3>::from_data([[[0.0, 1.0, 0.0, 0.0]]], &device);
/// let query = Tensor::<1>::from_data([1.0, 0.0, 0.0, 0.0], &device);
/// let gamma = Tensor::<1>::ones([4], &device);
///
/// // The keys are (2,0,0,0) and (0,2,0,0), the logits 2 and 0, the weights 0.8808 and 0.1192.
/// let h = depth_attention(&[v0, v1], query, gamma, 1e-6);
/// let h: Vec<f32> = h.into_data().try_to_vec().unwrap();
/// assert!((h[0] - 1.7616).abs() < 1e-4 && (h[1] - 0.1192).abs() < 1e-4);
/// ```
pub fn depth_attention(
    sources: &[Tensor<3>],
    query: Tensor<1>,
    gamma: Tensor<1>,
    eps: f64,
) -> Tensor<3> {
    depth_attention_with_weights(sources, query, gamma, eps).0
}

/// As [`depth_attention`], and also returns the depth weights `p` as `[n, batch, tokens]`.
///
/// The weights of a token are positive and sum to 1 over the sources. They are differentiable and keep the
/// precision they were computed in: f32, or f64 for f64 sources.
///
/// # Panics
///
/// As [`depth_attention`].
pub fn depth_attention_with_weights(
    sources: &[Tensor<3>],
    query: Tensor<1>,
    gamma: Tensor<1>,
    eps: f64,
) -> (Tensor<3>, Tensor<3>) {
    check(sources, &query, &gamma, eps);
    let storage = sources[0].dtype();
    let compute = compute_dtype(storage);

    if let [source] = sources {
        let [batch, tokens, _] = source.dims();
        let weights = Tensor::ones([1, batch, tokens], (&source.device(), compute));
        return (read_only_source(source.clone(), query, gamma), weights);
    }

    let u = query.cast(compute) * gamma.cast(compute);
    #[cfg(feature = "flex")]
    if burn_kimi_kernels::cpu::serves(&sources[0]) {
        return kernel(sources, u, eps);
    }
    let sources = sources.iter().map(|v| v.clone().cast(compute)).collect();
    let (h, weights) = reference::forward(sources, u, eps);
    (h.cast(storage), weights)
}

#[cfg(feature = "flex")]
fn kernel(sources: &[Tensor<3>], u: Tensor<1>, eps: f64) -> (Tensor<3>, Tensor<3>) {
    use super::definition::DepthAttentionOps;
    use burn::backend::Dispatch;
    use burn_kimi_kernels::list::TensorList;
    let sources = sources.iter().map(|v| v.clone().into_dispatch()).collect();
    let (h, weights) = Dispatch::depth_attention(TensorList(sources), u.into_dispatch(), eps);
    (Tensor::from_dispatch(h), Tensor::from_dispatch(weights))
}

/// The read of a single source, whose weight is 1 whatever the query: the source, unrounded.
///
/// When gradients are wanted, an exact zero that depends on the parameters is subtracted, which changes no bit
/// (`x - 0 = x`, also for `x = -0`). So each parameter has a gradient, zero, as in any other read: optimizers and
/// gradient reductions that walk over all parameters meet no special case.
fn read_only_source(source: Tensor<3>, query: Tensor<1>, gamma: Tensor<1>) -> Tensor<3> {
    if !query.device().is_autodiff() {
        return source;
    }
    let zero = (query.clone() - query) + (gamma.clone() - gamma);
    let dtype = source.dtype();
    source - zero.cast(dtype).unsqueeze()
}

fn check(sources: &[Tensor<3>], query: &Tensor<1>, gamma: &Tensor<1>, eps: f64) {
    assert!(
        eps.is_finite() && eps >= 0.0,
        "depth_attention: eps is {eps}, wanted a finite number of at least 0"
    );
    let Some(first) = sources.first() else {
        panic!("depth_attention: sources is empty, wanted at least one tensor [batch, tokens, d]");
    };
    let [_, _, d] = first.dims();
    assert!(
        d > 0,
        "depth_attention: sources[0] has shape {:?}, wanted [batch, tokens, d] with d of at least 1",
        first.dims()
    );
    let device = first.device();
    assert!(
        is_plain_float(first.dtype()),
        "depth_attention: sources[0] has dtype {:?}, wanted f16, bf16, f32 or f64",
        first.dtype()
    );

    for (i, source) in sources.iter().enumerate().skip(1) {
        assert!(
            source.dims() == first.dims(),
            "depth_attention: sources[{i}] has shape {:?}, wanted {:?} as sources[0]",
            source.dims(),
            first.dims()
        );
        assert!(
            source.dtype() == first.dtype(),
            "depth_attention: sources[{i}] has dtype {:?}, wanted {:?} as sources[0]",
            source.dtype(),
            first.dtype()
        );
        assert!(
            source.device() == device,
            "depth_attention: sources[{i}] is on {:?}, wanted {device:?} as sources[0]",
            source.device()
        );
    }
    for (name, parameter) in [("query", query), ("gamma", gamma)] {
        assert!(
            parameter.dims() == [d],
            "depth_attention: {name} has shape {:?}, wanted [{d}] for sources of shape {:?}",
            parameter.dims(),
            first.dims()
        );
        assert!(
            is_plain_float(parameter.dtype()),
            "depth_attention: {name} has dtype {:?}, wanted f16, bf16, f32 or f64",
            parameter.dtype()
        );
        assert!(
            parameter.device() == device,
            "depth_attention: {name} is on {:?}, wanted {device:?} as sources[0]",
            parameter.device()
        );
    }
}

/// Quantised tensors and the storage-only float types are no operands of this operator.
fn is_plain_float(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
}
