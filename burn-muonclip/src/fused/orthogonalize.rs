//! Stage 3: momentum and orthogonalisation, batched by shape.

use burn::module::ParamId;
use burn::tensor::container::TensorContainer;
use burn::tensor::{DType, Device, Tensor};

use super::gather::{MatrixGradient, Parameter};
use super::state::{Momenta, Momentum};
use crate::muon::Muon;

/// Largest number of elements that batching may gather for one Newton-Schulz call: 256 MiB in f32. It bounds
/// the memory of a step, because the gathered copy and what the iteration computes from it grow with the batch.
/// A parameter that is larger by itself still goes in one call.
const MAX_BATCH_ELEMENTS: usize = 1 << 26;

/// The orthogonalised directions of a step.
#[derive(Default)]
pub(crate) struct Updates {
    /// `[E, n, m]` by parameter.
    pub(crate) directions: TensorContainer<ParamId>,
    pub(crate) matrices: usize,
    pub(crate) calls: usize,
}

/// Matrices that can go through Newton-Schulz together: of one shape up to transposition.
struct Batch {
    short: usize,
    long: usize,
    dtype: DType,
    device: Device,
    elements: usize,
    members: Vec<MatrixGradient>,
}

impl Batch {
    fn accepts(&self, other: &Batch) -> bool {
        (self.short, self.long, self.dtype) == (other.short, other.long, other.dtype)
            && self.device == other.device
            && self.elements + other.elements <= MAX_BATCH_ELEMENTS
    }
}

/// Advances the momenta and orthogonalises the new directions.
pub(crate) fn orthogonalize(
    muon: &Muon,
    momenta: &mut Momenta,
    gradients: Vec<MatrixGradient>,
    grad_scale: f64,
) -> Updates {
    let mut updates = Updates::default();
    for batch in batches(gradients) {
        let mut members: Vec<(Parameter, [usize; 3])> = Vec::with_capacity(batch.members.len());
        let mut directions = Vec::with_capacity(batch.members.len());
        for MatrixGradient { parameter, grad } in batch.members {
            let dims = grad.dims();
            let grad = if grad_scale == 1.0 {
                grad
            } else {
                grad.mul_scalar(grad_scale)
            };
            let direction = advance_momentum(muon, momenta, &parameter, grad);
            directions.push(lying(direction));
            members.push((parameter, dims));
        }
        let sizes: Vec<usize> = members.iter().map(|(_, dims)| dims[0]).collect();
        updates.matrices += sizes.iter().sum::<usize>();
        updates.calls += 1;
        let orthogonal = muon
            .orthogonalize(joined(directions))
            .split_with_sizes(sizes, 0);
        for ((parameter, [_, n, m]), update) in members.into_iter().zip(orthogonal) {
            let update = if n > m {
                update.swap_dims(1, 2)
            } else {
                update
            };
            updates.directions.register(parameter.id, update);
        }
    }
    updates
}

/// Groups the matrices in the order in which their shapes first appear, so that a resumed run makes the
/// same calls.
fn batches(gradients: Vec<MatrixGradient>) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    for gradient in gradients {
        let [e, n, m] = gradient.grad.dims();
        let mut batch = Batch {
            short: n.min(m),
            long: n.max(m),
            dtype: gradient.grad.dtype(),
            device: gradient.parameter.device.clone(),
            elements: e * n * m,
            members: Vec::new(),
        };
        match batches.iter_mut().find(|open| open.accepts(&batch)) {
            Some(open) => {
                open.elements += batch.elements;
                open.members.push(gradient);
            }
            None => {
                batch.members.push(gradient);
                batches.push(batch);
            }
        }
    }
    batches
}

fn advance_momentum(
    muon: &Muon,
    momenta: &mut Momenta,
    parameter: &Parameter,
    grad: Tensor<3>,
) -> Tensor<3> {
    let momentum = momenta
        .remove(&parameter.path)
        .map(|momentum| momentum.value.to_device(&parameter.device));
    let (direction, value) = muon.accumulate(grad, momentum);
    let momentum = Momentum {
        id: parameter.id,
        value,
        rank: parameter.rank,
    };
    momenta.insert(parameter.path.clone(), momentum);
    direction
}

/// Turns standing matrices on their side, so that both orientations of a shape share a batch.
fn lying(x: Tensor<3>) -> Tensor<3> {
    let [_, n, m] = x.dims();
    if n > m { x.swap_dims(1, 2) } else { x }
}

fn joined(mut tensors: Vec<Tensor<3>>) -> Tensor<3> {
    if tensors.len() == 1 {
        tensors.remove(0)
    } else {
        Tensor::cat(tensors, 0)
    }
}
