use burn::config::Config;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use burn_kimi_linear::swiglu;

/// Settings of a [`FeedForward`].
#[derive(Config, Debug)]
pub struct FeedForwardConfig {
    /// Width of the model.
    pub hidden_size: usize,
    /// Width inside.
    pub intermediate_size: usize,
}

impl FeedForwardConfig {
    /// Creates the layer; projections start as Burn's `Linear`, without bias.
    pub fn init(&self, device: &Device) -> FeedForward {
        let projection = |d_input, d_output| {
            LinearConfig::new(d_input, d_output)
                .with_bias(false)
                .init(device)
        };
        FeedForward {
            gate_proj: projection(self.hidden_size, self.intermediate_size),
            up_proj: projection(self.hidden_size, self.intermediate_size),
            down_proj: projection(self.intermediate_size, self.hidden_size),
        }
    }
}

/// SwiGLU feed-forward: `down(silu(gate(x)) * up(x))`. Projections are fields under the names of the released tensors.
#[derive(Module, Debug)]
pub struct FeedForward {
    /// `[hidden_size, intermediate_size]`.
    pub gate_proj: Linear,
    /// `[hidden_size, intermediate_size]`.
    pub up_proj: Linear,
    /// `[intermediate_size, hidden_size]`.
    pub down_proj: Linear,
}

impl FeedForward {
    /// `x` and the result are `[B, T, hidden_size]`.
    ///
    /// # Panics
    ///
    /// If the last axis of `x` is not `hidden_size`.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let (gate, up) = (self.gate_proj.forward(x.clone()), self.up_proj.forward(x));
        self.down_proj.forward(swiglu(gate, up))
    }
}
