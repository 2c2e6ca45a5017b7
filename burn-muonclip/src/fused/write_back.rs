//! Stage 4: the new weights.

use std::collections::HashMap;

use burn::module::{ModuleMapper, Param, ParamId};
use burn::optim::{DynState, Optimizer};
use burn::tensor::container::TensorContainer;
use burn::tensor::{DType, Tensor};

use super::context::TensorContext;
use super::gather::Parameter;
use super::new_values::NewValues;
use super::state::{Moment, Moments};
use crate::adamw::{AuxiliaryAdamW, AuxiliaryState};
use crate::muon::{Muon, to_working};
use crate::precision::working_dtype;

/// Replaces the values of all parameters that had a gradient.
pub(crate) struct WriteBack<'a> {
    pub(crate) muon: &'a Muon,
    pub(crate) adamw: &'a AuxiliaryAdamW,
    pub(crate) moments: &'a mut Moments,
    /// Parameters that Muon trains, with their directions `[E, n, m]`.
    pub(crate) matrices: HashMap<ParamId, Parameter>,
    pub(crate) directions: TensorContainer<ParamId>,
    /// Parameters that AdamW trains, with their gradients `Tensor<D>`.
    pub(crate) others: HashMap<ParamId, Parameter>,
    pub(crate) grads: TensorContainer<ParamId>,
    pub(crate) grad_scale: f64,
    /// How many paths hold each parameter.
    pub(crate) uses: HashMap<ParamId, usize>,
    /// New values of parameters that are used again further on.
    pub(crate) written: NewValues,
}

impl WriteBack<'_> {
    /// The parameter's new plain value, or `None` if it had no gradient.
    fn update<const D: usize>(&mut self, id: ParamId, tensor: &Tensor<D>) -> Option<Tensor<D>> {
        if let Some(parameter) = self.matrices.get(&id) {
            let weight = tensor.clone().inner().to_device(&parameter.device);
            let direction: Tensor<3> = self.directions.remove(&id)?;
            let direction = direction.reshape(weight.shape());
            let Parameter {
                lr, weight_decay, ..
            } = *parameter;
            return Some(self.muon.apply(weight, direction, lr, weight_decay));
        }
        let parameter = self.others.get(&id)?;
        let weight = tensor.clone().inner().to_device(&parameter.device);
        let grad: Tensor<D> = self.grads.remove(&id)?;
        // Scaled in f32: in f16 a clipped gradient can underflow to zero.
        let grad = match self.grad_scale {
            1.0 => grad,
            scale => to_working(grad).mul_scalar(scale),
        };
        let state = self.moments.remove(&parameter.path).map(|moment| {
            let state = moment.state.downcast::<AuxiliaryState<D>>();
            AuxiliaryAdamW::to_device(state, &parameter.device)
        });
        let shape = weight.dims().to_vec();
        let number = DType::from(working_dtype(weight.dtype())).size();
        let bytes = 2 * number * weight.shape().num_elements();
        let adamw = self.adamw.with_weight_decay(parameter.weight_decay);
        let (weight, state) = adamw.step(parameter.lr, weight, grad, state);
        if let Some(state) = state {
            let state = DynState::create(state, D);
            let moment = Moment {
                id,
                shape,
                state,
                bytes,
            };
            self.moments.insert(parameter.path.clone(), moment);
        }
        Some(weight)
    }
}

impl ModuleMapper for WriteBack<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(&uses) = self.uses.get(&param.id) else {
            return param;
        };
        let (id, tensor, mapper) = param.consume();
        let context = TensorContext::of(&tensor);
        let tensor = match self.written.get(id, context) {
            Some(written) => written,
            None => match self.update(id, &tensor) {
                Some(plain) if uses == 1 => context.restore(plain, id),
                Some(plain) => self.written.put(id, context, plain),
                None => tensor,
            },
        };
        Param::from_mapped_value(id, tensor, mapper)
    }
}
