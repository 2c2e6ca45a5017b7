use burn::tensor::{DType, Device, Tensor};

use super::plan::{KdaPlan, Preparation};
use super::{KdaOptions, KdaState};
use burn_kimi_kernels::precision::compute_dtype;

/// The inputs of a call once they are checked against each other, as the caller gave them, and what to do with them.
pub(super) struct KdaInputs {
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
    /// `[HV]`; `None` where there is nothing to prepare, or `exp(A_log)` stands for 1.
    pub a_log: Option<Tensor<1>>,
    /// `[HV, K]`; `None` where there is nothing to prepare.
    pub dt_bias: Option<Tensor<2>>,
    /// `[S, HV, K, V]`, in the dtype that is computed in: `f32`, or `f64` if all of the above are.
    pub state: Tensor<4>,
    pub plan: KdaPlan,
}

impl KdaInputs {
    /// # Panics
    ///
    /// With the name of the tensor, what it is and what it should be, if one does not fit the others; and on options that do not fit
    /// the tensors.
    pub(super) fn new(
        [q, k, v, g]: [Tensor<4>; 4],
        beta: Tensor<3>,
        initial_state: Option<KdaState>,
        preparation: Preparation,
        options: &KdaOptions,
    ) -> Self {
        let gates = match preparation {
            Preparation::None => ["g", "beta"],
            Preparation::Projections { .. } => ["decay", "write"],
        };
        check_tokens([&q, &k, &v, &g], &beta, gates);
        let [batch, tokens, _, key_dim] = q.dims();
        let [_, _, value_heads, value_dim] = v.dims();
        let (device, dtype) = (v.device(), compute_dtype(v.dtype()));
        let given = initial_state.map(KdaState::into_key_value);
        let slots = given.as_ref().map(|state| state.dims()[0]);
        let (sequences, slots) = options.sequences([batch, tokens], slots);
        let state = match given {
            Some(state) => {
                let wanted = [slots, value_heads, key_dim, value_dim];
                check_shape("initial_state", state.dims(), wanted);
                check_device("initial_state", &state.device(), &device);
                assert!(
                    state.dtype() == dtype,
                    "kda: initial_state is stored as {:?}, which should be {dtype:?}, as v is {:?}",
                    state.dtype(),
                    v.dtype()
                );
                state
            }
            None => Tensor::zeros([slots, value_heads, key_dim, value_dim], (&device, dtype)),
        };
        Self {
            q,
            k,
            v,
            g,
            beta,
            a_log: None,
            dt_bias: None,
            state,
            plan: KdaPlan {
                scale: options.scale_for(key_dim),
                chunk_size: options.chunk_size(),
                preparation,
                sequences,
            },
        }
    }

    /// Adds the parameters of the forget gate.
    pub(super) fn with_gate(mut self, a_log: Option<Tensor<1>>, dt_bias: Tensor<2>) -> Self {
        let [_, _, value_heads, key_dim] = self.g.dims();
        if let Some(a_log) = &a_log {
            check_shape("a_log", a_log.dims(), [value_heads]);
            check_beside("a_log", (a_log.device(), a_log.dtype()), &self.v);
        }
        check_shape("dt_bias", dt_bias.dims(), [value_heads, key_dim]);
        check_beside("dt_bias", (dt_bias.device(), dt_bias.dtype()), &self.v);
        self.a_log = a_log;
        self.dt_bias = Some(dt_bias);
        self
    }

    /// The same inputs outside of any gradient graph.
    pub(super) fn without_gradients(self) -> Self {
        if !self.v.device().is_autodiff() {
            return self;
        }
        Self {
            q: self.q.inner(),
            k: self.k.inner(),
            v: self.v.inner(),
            g: self.g.inner(),
            beta: self.beta.inner(),
            a_log: self.a_log.map(Tensor::inner),
            dt_bias: self.dt_bias.map(Tensor::inner),
            state: self.state.inner(),
            plan: self.plan,
        }
    }

    /// Whether there is no token to work on.
    pub(super) fn is_empty(&self) -> bool {
        self.plan.sequences.iter().all(|sequence| sequence.len == 0)
    }
}

/// Checks the tensors that have a row a token against each other; the last two go by the names in `gates`.
///
/// # Panics
///
/// With the name of the tensor, what it is and what it should be.
pub(super) fn check_tokens([q, k, v, g]: [&Tensor<4>; 4], beta: &Tensor<3>, gates: [&str; 2]) {
    let [batch, tokens, heads, key_dim] = q.dims();
    let [_, _, value_heads, value_dim] = v.dims();
    check_shape("k", k.dims(), [batch, tokens, heads, key_dim]);
    check_shape("v", v.dims(), [batch, tokens, value_heads, value_dim]);
    assert!(
        heads > 0 && value_heads > 0 && value_heads.is_multiple_of(heads),
        "kda: v has {value_heads} heads, which is not a multiple of the {heads} heads of q and k"
    );
    assert!(
        key_dim > 0 && value_dim > 0,
        "kda: heads must have a width, got K = {key_dim} and V = {value_dim}"
    );
    let [g_name, beta_name] = gates;
    check_shape(g_name, g.dims(), [batch, tokens, value_heads, key_dim]);
    check_shape(beta_name, beta.dims(), [batch, tokens, value_heads]);
    check_float("v", v.dtype());
    for (name, other) in [
        ("q", (q.device(), q.dtype())),
        ("k", (k.device(), k.dtype())),
        (g_name, (g.device(), g.dtype())),
        (beta_name, (beta.device(), beta.dtype())),
    ] {
        check_beside(name, other, v);
    }
}

/// Checks that a tensor is where `v` is, and may be computed with together with it: every tensor may have its own storage, which is
/// widened to `f32`, but `f64` would lose digits there.
fn check_beside(name: &str, (device, dtype): (Device, DType), v: &Tensor<4>) {
    check_device(name, &device, &v.device());
    check_float(name, dtype);
    assert!(
        compute_dtype(dtype) == compute_dtype(v.dtype()),
        "kda: {name} is stored as {dtype:?}, but v as {:?}: either all tensors are F64, or none",
        v.dtype()
    );
}

fn check_shape<const D: usize>(name: &str, shape: [usize; D], wanted: [usize; D]) {
    assert!(
        shape == wanted,
        "kda: {name} has the shape {shape:?}, which should be {wanted:?}"
    );
}

fn check_device(name: &str, device: &Device, wanted: &Device) {
    assert!(
        device == wanted,
        "kda: {name} is on {device:?}, but v is on {wanted:?}"
    );
}

fn check_float(name: &str, dtype: DType) {
    assert!(
        matches!(
            dtype,
            DType::F64 | DType::F32 | DType::Flex32 | DType::F16 | DType::BF16
        ),
        "kda: {name} is stored as {dtype:?}, which is not a plain float"
    );
}
