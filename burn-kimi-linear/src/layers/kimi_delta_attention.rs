use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{Device, Distribution, Tensor, assert_shape};
use burn_kimi_kernels::precision::compute_dtype;

use super::projection::projection;
use super::{
    GatedRmsNorm, GatedRmsNormConfig, KimiDeltaAttentionState, ShortConvolution,
    ShortConvolutionConfig,
};
use crate::kda::{ForgetGate, KdaGate, KdaOptions, KdaProjections, KdaState, kda_projected};

/// Settings of a [`KimiDeltaAttention`] layer.
#[derive(Config, Debug)]
pub struct KimiDeltaAttentionConfig {
    /// Width of the model.
    pub d_model: usize,
    /// Heads of queries and keys.
    pub num_heads: usize,
    /// Width of a head's queries and keys.
    pub head_dim: usize,
    /// Heads of values, a multiple of `num_heads`; `None` for as many.
    pub num_value_heads: Option<usize>,
    /// Width of a head's values; `None` for `head_dim`.
    pub value_head_dim: Option<usize>,
    /// Tokens that the short convolutions see.
    #[config(default = 4)]
    pub conv_size: usize,
    /// The forget gate.
    #[config(default = "ForgetGate::Softplus")]
    pub gate: ForgetGate,
    /// Lets the write strength reach 2, and with it the eigenvalues of the transition -1.
    #[config(default = false)]
    pub allow_negative_eigenvalues: bool,
    /// Added to the mean square in the output norm.
    #[config(default = 1e-5)]
    pub norm_epsilon: f64,
}

impl KimiDeltaAttentionConfig {
    /// Creates the layer. Projections start as Burn's `Linear`; `A_log = ln U(1, 16)` with the softplus gate and 0 with the
    /// bounded one; `dt_bias` is the inverse softplus of a step drawn log-uniformly from `[0.001, 0.1]`.
    ///
    /// # Panics
    ///
    /// If the value heads are not a multiple of the heads, or a lower bound of the gate is not a negative number that `f32` can hold.
    pub fn init(&self, device: &Device) -> KimiDeltaAttention {
        let value_heads = self.num_value_heads.unwrap_or(self.num_heads);
        let value_head_dim = self.value_head_dim.unwrap_or(self.head_dim);
        assert!(
            self.num_heads > 0 && value_heads.is_multiple_of(self.num_heads),
            "KimiDeltaAttention: {value_heads} value heads are not a multiple of {} heads",
            self.num_heads
        );
        self.gate
            .check_bound("KimiDeltaAttention: the lower bound of `gate`");
        let key_width = self.num_heads * self.head_dim;
        let gate_width = value_heads * self.head_dim;
        let value_width = value_heads * value_head_dim;
        let convolution = |channels| {
            ShortConvolutionConfig::new(channels)
                .with_kernel_size(self.conv_size)
                .init(device)
        };
        KimiDeltaAttention {
            q_proj: projection(self.d_model, key_width, device),
            k_proj: projection(self.d_model, key_width, device),
            v_proj: projection(self.d_model, value_width, device),
            q_conv1d: convolution(key_width),
            k_conv1d: convolution(key_width),
            v_conv1d: convolution(value_width),
            a_log: initial_a_log(value_heads, self.gate, device),
            dt_bias: initial_dt_bias(value_heads, self.head_dim, device),
            f_a_proj: projection(self.d_model, self.head_dim, device),
            f_b_proj: projection(self.head_dim, gate_width, device),
            b_proj: projection(self.d_model, value_heads, device),
            g_a_proj: projection(self.d_model, value_head_dim, device),
            g_b_proj: projection(value_head_dim, value_width, device),
            o_norm: GatedRmsNormConfig::new(value_head_dim)
                .with_epsilon(self.norm_epsilon)
                .init(device),
            o_proj: projection(value_width, self.d_model, device),
            gate: self.gate,
            allow_negative_eigenvalues: self.allow_negative_eigenvalues,
        }
    }
}

/// A layer of Kimi Delta Attention: short convolutions, gates, the [`kda`](fn@crate::kda) operator, and a gated norm.
///
/// Projections are fields under the names of the released Kimi Linear tensors.
#[derive(Module, Debug)]
pub struct KimiDeltaAttention {
    /// `[d_model, H * K]`.
    pub q_proj: Linear,
    /// `[d_model, H * K]`.
    pub k_proj: Linear,
    /// `[d_model, HV * V]`.
    pub v_proj: Linear,
    /// Convolution of the queries.
    pub q_conv1d: ShortConvolution,
    /// Convolution of the keys.
    pub k_conv1d: ShortConvolution,
    /// Convolution of the values.
    pub v_conv1d: ShortConvolution,
    /// Logarithm of each head's decay rate, `[HV]`.
    pub a_log: Param<Tensor<1>>,
    /// Offset of the forget gate, `[HV, K]`.
    pub dt_bias: Param<Tensor<2>>,
    /// Forget gate, first of two factors: `[d_model, K]`.
    pub f_a_proj: Linear,
    /// Forget gate, second factor: `[K, HV * K]`.
    pub f_b_proj: Linear,
    /// Write strength, `[d_model, HV]`.
    pub b_proj: Linear,
    /// Output gate, first of two factors: `[d_model, V]`.
    pub g_a_proj: Linear,
    /// Output gate, second factor: `[V, HV * V]`.
    pub g_b_proj: Linear,
    /// Norm and gate of the output.
    pub o_norm: GatedRmsNorm,
    /// `[HV * V, d_model]`.
    pub o_proj: Linear,
    #[module(skip)]
    gate: ForgetGate,
    #[module(skip)]
    allow_negative_eigenvalues: bool,
}

impl KimiDeltaAttention {
    /// Attends within `x`, `[B, T, d_model]`; the result has the same shape.
    ///
    /// # Panics
    ///
    /// If the last axis of `x` is not `d_model`.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        self.forward_with_state(x, None).0
    }

    /// Continues from `state`, or starts anew without one, and returns the state after `x`.
    ///
    /// # Panics
    ///
    /// If the last axis of `x` is not `d_model`, or `state` belongs to another batch or layer shape, or its memory is not `f32` (`f64`
    /// where `x` is).
    pub fn forward_with_state(
        &self,
        x: Tensor<3>,
        state: Option<KimiDeltaAttentionState>,
    ) -> (Tensor<3>, KimiDeltaAttentionState) {
        let [batch, tokens, _] = x.dims();
        let [value_heads, key_dim] = self.dt_bias.dims();
        let [d_model, key_width] = self.q_proj.weight.dims();
        let [_, value_width] = self.v_proj.weight.dims();
        assert_shape!(x, [batch, tokens, d_model]);
        let value_dim = value_width / value_heads;
        let keys = [batch, tokens, key_width / key_dim, key_dim];
        let gates = [batch, tokens, value_heads, key_dim];
        let values = [batch, tokens, value_heads, value_dim];

        if batch == 0 || tokens == 0 {
            // Nothing attends to nothing; Flex 0.22.1 reads out of bounds when it multiplies an empty batch by a weight.
            let state = state.unwrap_or_else(|| self.init_state(batch, &x));
            return (x, state);
        }
        let (memory, windows) = match state {
            Some(state) => (Some(state.memory), state.windows.map(Some)),
            None => (None, [None, None, None]),
        };
        let [q_window, k_window, v_window] = windows;
        let (q, q_window) = self
            .q_conv1d
            .forward_silu(self.q_proj.forward(x.clone()), q_window);
        let (k, k_window) = self
            .k_conv1d
            .forward_silu(self.k_proj.forward(x.clone()), k_window);
        let (v, v_window) = self
            .v_conv1d
            .forward_silu(self.v_proj.forward(x.clone()), v_window);

        let decay = self.f_b_proj.forward(self.f_a_proj.forward(x.clone()));
        let write = self.b_proj.forward(x.clone());
        let projections = KdaProjections {
            q: q.reshape(keys),
            k: k.reshape(keys),
            v: v.reshape(values),
            decay: decay.reshape(gates),
            write,
        };
        let (o, memory) = kda_projected(projections, self.gate(), memory, &KdaOptions::new());
        let gate = self.g_b_proj.forward(self.g_a_proj.forward(x));
        let o = self.o_norm.forward(o, gate.reshape(values));
        let state = KimiDeltaAttentionState {
            memory,
            windows: [q_window, k_window, v_window],
        };
        let o = o.reshape([batch, tokens, value_width]);
        (self.o_proj.forward(o), state)
    }
}

impl KimiDeltaAttention {
    fn gate(&self) -> KdaGate {
        KdaGate {
            gate: self.gate,
            a_log: Some(self.a_log.val()),
            dt_bias: self.dt_bias.val(),
            allow_negative_eigenvalues: self.allow_negative_eigenvalues,
        }
    }

    /// The state before the first token, for inputs like `x`.
    fn init_state(&self, batch: usize, x: &Tensor<3>) -> KimiDeltaAttentionState {
        let [value_heads, key_dim] = self.dt_bias.dims();
        let [_, value_width] = self.v_proj.weight.dims();
        let dims = [batch, value_heads, key_dim, value_width / value_heads];
        let window = |convolution: &ShortConvolution| {
            let [channels, _, kernel_size] = convolution.weight.dims();
            let shape = [batch, kernel_size - 1, channels];
            Tensor::zeros(shape, (&x.device(), x.dtype()))
        };
        let memory = Tensor::zeros(dims, (&x.device(), compute_dtype(x.dtype())));
        KimiDeltaAttentionState {
            memory: KdaState::from_key_value(memory),
            windows: [&self.q_conv1d, &self.k_conv1d, &self.v_conv1d].map(window),
        }
    }
}

fn initial_a_log(heads: usize, gate: ForgetGate, device: &Device) -> Param<Tensor<1>> {
    let rate = match gate {
        ForgetGate::Softplus => Tensor::random([heads], Distribution::Uniform(1.0, 16.0), device),
        ForgetGate::LowerBound(_) => Tensor::ones([heads], device),
    };
    Param::from_tensor(rate.log())
}

fn initial_dt_bias(heads: usize, key_dim: usize, device: &Device) -> Param<Tensor<2>> {
    let (shortest, longest) = (0.001f64, 0.1f64);
    let exponent = Distribution::Uniform(shortest.ln(), longest.ln());
    let step = Tensor::<2>::random([heads, key_dim], exponent, device).exp();
    let inverse_softplus = step.clone() + (-(-step).exp() + 1.0).log();
    Param::from_tensor(inverse_softplus)
}
