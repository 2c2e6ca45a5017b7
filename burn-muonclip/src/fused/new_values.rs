//! The new values of parameters that several paths hold.

use burn::module::ParamId;
use burn::tensor::Tensor;
use burn::tensor::container::TensorContainer;

use super::context::TensorContext;

/// What was put into the first use of a parameter. Later uses get that very tensor: with separate ones the backward pass would no longer
/// add up the gradients of all uses.
pub(crate) struct NewValues(TensorContainer<ParamId>);

#[derive(Clone)]
struct NewValue<const D: usize> {
    plain: Tensor<D>,
    context: TensorContext,
    tensor: Tensor<D>,
}

impl NewValues {
    pub(crate) fn new() -> Self {
        Self(TensorContainer::new())
    }

    /// The value of a further use, if there was an earlier one.
    pub(crate) fn get<const D: usize>(
        &self,
        id: ParamId,
        context: TensorContext,
    ) -> Option<Tensor<D>> {
        let value = self.0.get::<NewValue<D>>(&id)?;
        Some(if value.context == context {
            value.tensor
        } else {
            context.restore(value.plain, id)
        })
    }

    /// Makes the plain tensor the value of the first use, and of those to come.
    pub(crate) fn put<const D: usize>(
        &mut self,
        id: ParamId,
        context: TensorContext,
        plain: Tensor<D>,
    ) -> Tensor<D> {
        let tensor = context.restore(plain.clone(), id);
        let value = NewValue {
            plain,
            context,
            tensor: tensor.clone(),
        };
        self.0.register(id, value);
        tensor
    }
}
