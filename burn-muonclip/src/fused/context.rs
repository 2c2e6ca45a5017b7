//! What a parameter's tensor carries besides its value.

use burn::module::ParamId;
use burn::tensor::{GradientCheckpointingStrategy, Tensor};

/// The autodiff state of a parameter, taken before its value is replaced and given to the new value.
///
/// Without it the parameter would no longer require gradients, would leave distributed training, or would
/// meet its inputs under another checkpointing strategy, which autodiff refuses.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct TensorContext {
    autodiff: bool,
    require_grad: bool,
    distributed: bool,
    checkpointing: Option<GradientCheckpointingStrategy>,
}

impl TensorContext {
    pub(crate) fn of<const D: usize>(tensor: &Tensor<D>) -> Self {
        let autodiff = tensor.is_autodiff();
        Self {
            autodiff,
            require_grad: tensor.is_require_grad(),
            // Burn answers this for autodiff tensors only.
            distributed: autodiff && tensor.is_distributed(),
            checkpointing: tensor.gradient_checkpointing_strategy(),
        }
    }

    /// Makes the plain tensor `value` the value of the parameter.
    pub(crate) fn restore<const D: usize>(self, value: Tensor<D>, id: ParamId) -> Tensor<D> {
        if !self.autodiff {
            return value;
        }
        let mut tensor = Tensor::from_inner(value);
        if let Some(strategy) = self.checkpointing {
            tensor = tensor.with_gradient_checkpointing_strategy(strategy);
        }
        if self.require_grad {
            tensor = tensor.require_grad();
        }
        if self.distributed {
            tensor = tensor.set_distributed(id);
        }
        tensor
    }
}
