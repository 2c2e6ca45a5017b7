use burn::tensor::Tensor;

use super::inputs::check_tokens;
use super::{KdaOptions, KdaState, kda};

/// What a run of tokens does to any memory that comes in: `S1 = M S0 + N`.
///
/// The map is the whole of the run as far as later tokens are concerned. Runs can therefore be summarised apart, on several devices,
/// and joined afterwards.
#[derive(Clone, Debug)]
pub struct KdaSummary {
    /// `M`, `[B, HV, K, K]`.
    pub transition: Tensor<4>,
    /// `N`, `[B, HV, K, V]`: the memory that the run leaves of an empty one.
    pub writes: Tensor<4>,
}

/// Summarises a run of tokens; shapes as in [`kda`]. Differentiable.
///
/// # Panics
///
/// As [`kda`], and if the options give the rows lengths, offsets or slots: a run is a part of every row, on which they would say something
/// else.
pub fn kda_summary(
    k: Tensor<4>,
    v: Tensor<4>,
    g: Tensor<4>,
    beta: Tensor<3>,
    options: &KdaOptions,
) -> KdaSummary {
    options.check_whole_rows("kda_summary");
    // Here, where `v` still is what the caller gave.
    check_tokens([&k, &k, &v, &g], &beta, ["g", "beta"]);
    let [batch, tokens, heads, value_dim] = v.dims();
    let [_, _, _, key_dim] = k.dims();
    // The columns of a memory do not know of each other. Behind those of the values stand columns that start as the identity and are
    // written nothing but corrections to: what the run makes of them is its transition.
    let (device, dtype) = (v.device(), v.dtype());
    let nothing = Tensor::zeros([batch, tokens, heads, key_dim], (&device, dtype));
    let compute = burn_kimi_kernels::precision::compute_dtype(dtype);
    let identity = Tensor::<2>::eye(key_dim, &device).cast(compute);
    let identity = identity.reshape([1, 1, key_dim, key_dim]);
    let identity = identity.repeat(&[batch, heads, 1, 1]);
    let empty = Tensor::zeros([batch, heads, key_dim, value_dim], (&device, compute));
    let start = KdaState::from_key_value(Tensor::cat(vec![empty, identity], 3));
    let values = Tensor::cat(vec![v, nothing], 3);
    let (_, end) = kda(k.zeros_like(), k, values, g, beta, Some(start), options);
    let end = end.into_key_value();
    KdaSummary {
        writes: end.clone().narrow(3, 0, value_dim),
        transition: end.narrow(3, value_dim, key_dim),
    }
}

impl KdaSummary {
    /// The memory behind the run, from the one before it.
    ///
    /// # Panics
    ///
    /// If `state`, or a part of the summary, has another shape, dtype or device than `writes` implies. Nothing is broadcast.
    pub fn apply(&self, state: KdaState) -> KdaState {
        self.check();
        let state = state.into_key_value();
        self.check_beside_writes("state", &state, self.writes.dims());
        let state = self.transition.clone().matmul(state);
        KdaState::from_key_value(state + self.writes.clone())
    }

    /// The summary of this run and `next` behind it.
    ///
    /// # Panics
    ///
    /// If `next`, or a part of either, has another shape, dtype or device than `writes` implies. Nothing is broadcast, and summaries from
    /// several devices have to be moved to one first.
    pub fn then(&self, next: &Self) -> Self {
        self.check();
        next.check();
        self.check_beside_writes("next.writes", &next.writes, self.writes.dims());
        Self {
            transition: next.transition.clone().matmul(self.transition.clone()),
            writes: next.transition.clone().matmul(self.writes.clone()) + next.writes.clone(),
        }
    }

    /// Checks the parts against each other.
    fn check(&self) {
        let [batch, heads, key_dim, _] = self.writes.dims();
        let square = [batch, heads, key_dim, key_dim];
        self.check_beside_writes("transition", &self.transition, square);
    }

    fn check_beside_writes(&self, name: &str, x: &Tensor<4>, shape: [usize; 4]) {
        assert!(
            x.dims() == shape,
            "KdaSummary: {name} has the shape {:?}, which should be {shape:?}",
            x.dims()
        );
        let writes = &self.writes;
        assert!(
            x.dtype() == writes.dtype(),
            "KdaSummary: {name} is stored as {:?}, but writes as {:?}",
            x.dtype(),
            writes.dtype()
        );
        assert!(
            x.device() == writes.device(),
            "KdaSummary: {name} is on {:?}, but writes is on {:?}",
            x.device(),
            writes.device()
        );
    }
}

/// A part of every sequence of a batch, on a device of its own. Shapes as in [`kda`].
#[derive(Clone, Debug)]
pub struct KdaPart {
    /// `[B, T, H, K]`.
    pub q: Tensor<4>,
    /// `[B, T, H, K]`.
    pub k: Tensor<4>,
    /// `[B, T, HV, V]`.
    pub v: Tensor<4>,
    /// `[B, T, HV, K]`.
    pub g: Tensor<4>,
    /// `[B, T, HV]`.
    pub beta: Tensor<3>,
}

impl KdaPart {
    /// `[B, H, HV, K, V]`: what all parts of a batch have in common.
    fn sizes(&self) -> [usize; 5] {
        let [batch, _, heads, key_dim] = self.q.dims();
        let [_, _, value_heads, value_dim] = self.v.dims();
        [batch, heads, value_heads, key_dim, value_dim]
    }
}

/// [`kda`] over sequences that are cut into consecutive parts, each on a device of its own (context parallelism).
///
/// Every part but the last is summarised, which needs nothing of the others; then every part is computed from the memory that enters it,
/// and its summary makes of that the memory that enters the next. Only these memories, `[K, V]` a head, travel: the tensors of a part are
/// on one device, which may be another for every part, and `initial_state` may be on any. Gradients take the same way back. Returns the
/// outputs where the parts are, and the last memory on the last part's device.
///
/// # Panics
///
/// As [`kda`]; without any part; if parts differ in more than their number of tokens and their device; and if the options give the rows
/// lengths, offsets or slots, which would say something else on every part.
pub fn kda_context_parallel(
    parts: Vec<KdaPart>,
    initial_state: Option<KdaState>,
    options: &KdaOptions,
) -> (Vec<Tensor<4>>, KdaState) {
    assert!(
        !parts.is_empty(),
        "kda_context_parallel: there are no parts"
    );
    options.check_whole_rows("kda_context_parallel");
    let (sizes, dtype) = (parts[0].sizes(), parts[0].v.dtype());
    for (at, part) in parts.iter().enumerate() {
        assert!(
            part.sizes() == sizes,
            "kda_context_parallel: [B, H, HV, K, V] of part {at} is {:?}, which should be {sizes:?} as of part 0",
            part.sizes()
        );
        assert!(
            part.v.dtype() == dtype,
            "kda_context_parallel: v of part {at} is stored as {:?}, which should be {dtype:?} as of part 0",
            part.v.dtype()
        );
    }
    let behind_last = parts.len() - 1;
    let summaries = parts[..behind_last].iter().map(|part| {
        let KdaPart { k, v, g, beta, .. } = part.clone();
        kda_summary(k, v, g, beta, options)
    });
    let summaries: Vec<_> = summaries.collect();

    let mut entering = initial_state;
    let mut outputs = Vec::new();
    let mut last = None;
    for (at, part) in parts.into_iter().enumerate() {
        let device = part.v.device();
        let here = entering.map(|state| state.to_device(&device));
        let KdaPart { q, k, v, g, beta } = part;
        entering = summaries.get(at).map(|summary| match here.clone() {
            Some(state) => summary.apply(state),
            None => KdaState::from_key_value(summary.writes.clone()),
        });
        let (o, state) = kda(q, k, v, g, beta, here, options);
        outputs.push(o);
        last = Some(state);
    }
    (outputs, last.expect("there is a last part"))
}
