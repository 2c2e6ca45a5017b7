//! Scaling columns of a module's parameters.

use std::collections::HashMap;

use burn::module::{ModuleMapper, Param, ParamId};
use burn::tensor::{DType, Tensor, TensorData};

use crate::fused::{NewValues, TensorContext};
use crate::precision::working_dtype;

/// Multiplies the columns of parameters, once for a parameter that several paths hold.
pub(super) struct ScaleColumns {
    /// By parameter, a factor for every column.
    factors: HashMap<ParamId, Vec<f32>>,
    scaled: NewValues,
}

impl ScaleColumns {
    pub(super) fn new(factors: HashMap<ParamId, Vec<f32>>) -> Self {
        Self {
            factors,
            scaled: NewValues::new(),
        }
    }
}

impl ModuleMapper for ScaleColumns {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(factors) = self.factors.get(&param.id) else {
            return param;
        };
        let (id, tensor, mapper) = param.consume();
        let context = TensorContext::of(&tensor);
        let tensor = match self.scaled.get(id, context) {
            Some(scaled) => scaled,
            None => {
                let plain = scale(tensor.inner(), factors);
                self.scaled.put(id, context, plain)
            }
        };
        Param::from_mapped_value(id, tensor, mapper)
    }
}

/// Computed in `f32` and rounded once. Columns whose factor is 1 keep their bits.
fn scale<const D: usize>(tensor: Tensor<D>, factors: &[f32]) -> Tensor<D> {
    let (dtype, device) = (tensor.dtype(), tensor.device());
    let wide = DType::from(working_dtype(dtype));
    let mut shape = [1; D];
    shape[D - 1] = factors.len();
    let factors = TensorData::new(factors.to_vec(), shape);
    let factors = Tensor::<D>::from_data(factors, (&device, wide));
    (tensor.cast(wide) * factors).cast(dtype)
}
