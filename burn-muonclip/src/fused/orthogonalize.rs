//! Stage 3: momentum and orthogonalisation, batched by shape.

use burn::module::ParamId;
use burn::tensor::container::TensorContainer;
use burn::tensor::{DType, Device, Tensor};

use super::gather::{MatrixGradient, Parameter};
use super::state::{Momenta, Momentum};
use crate::muon::{Muon, block_update};

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

/// A parameter while its matrices are orthogonalised: itself, or blocks of its columns.
struct Source {
    parameter: Parameter,
    /// `[E, n, m]`.
    dims: [usize; 3],
    /// Until its first matrix is asked for.
    grad: Option<Tensor<3>>,
    /// The directions of its matrices, until each is taken.
    directions: Vec<Option<Tensor<3>>>,
    /// The orthogonalised ones.
    updates: Vec<Option<Tensor<3>>>,
}

impl Source {
    fn new(gradient: MatrixGradient) -> Self {
        let MatrixGradient { parameter, grad } = gradient;
        Self {
            parameter,
            dims: grad.dims(),
            grad: Some(grad),
            directions: Vec::new(),
            updates: Vec::new(),
        }
    }

    /// The widths of its matrices.
    fn widths(&self) -> Vec<usize> {
        let [_, _, m] = self.dims;
        match &self.parameter.blocks {
            None => vec![m],
            Some(blocks) => blocks
                .widths(m)
                .expect("the plan has checked that they fit"),
        }
    }

    /// Advances the momentum, once, and takes the direction of one matrix.
    fn direction(
        &mut self,
        muon: &Muon,
        momenta: &mut Momenta,
        grad_scale: f64,
        block: usize,
    ) -> Tensor<3> {
        if let Some(grad) = self.grad.take() {
            let grad = match grad_scale {
                1.0 => grad,
                scale => grad.mul_scalar(scale),
            };
            let direction = advance_momentum(muon, momenta, &self.parameter, grad);
            let directions = match &self.parameter.blocks {
                None => vec![direction],
                Some(blocks) => blocks.cut(direction),
            };
            self.updates = vec![None; directions.len()];
            self.directions = directions.into_iter().map(Some).collect();
        }
        self.directions[block]
            .take()
            .expect("every matrix is in one batch")
    }

    /// Takes in the orthogonalised direction of one matrix; with the last one the parameter's is complete.
    fn put(&mut self, block: usize, update: Tensor<3>) -> Option<Tensor<3>> {
        let [_, n, m] = self.dims;
        self.updates[block] = Some(block_update(update, [n, m]));
        if self.updates.iter().any(Option::is_none) {
            return None;
        }
        let mut updates: Vec<_> = self.updates.drain(..).flatten().collect();
        Some(match &self.parameter.blocks {
            None => updates.remove(0),
            Some(blocks) => blocks.join(updates),
        })
    }
}

/// A matrix: which source it is of, and which of its blocks.
struct Member {
    source: usize,
    block: usize,
    /// `[E, n, width]`.
    dims: [usize; 3],
}

/// Matrices that can go through Newton-Schulz together: of one shape up to transposition.
struct Batch {
    short: usize,
    long: usize,
    dtype: DType,
    device: Device,
    elements: usize,
    members: Vec<Member>,
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
    let mut sources: Vec<_> = gradients.into_iter().map(Source::new).collect();
    for batch in batches(&sources) {
        let members = batch.members;
        let directions = members.iter().map(|member| {
            let source = &mut sources[member.source];
            lying(source.direction(muon, momenta, grad_scale, member.block))
        });
        let directions = directions.collect();
        let sizes: Vec<usize> = members.iter().map(|member| member.dims[0]).collect();
        updates.matrices += sizes.iter().sum::<usize>();
        updates.calls += 1;
        let orthogonal = muon
            .orthogonalize(joined(directions))
            .split_with_sizes(sizes, 0);
        for (member, update) in members.into_iter().zip(orthogonal) {
            let [_, n, width] = member.dims;
            let update = if n > width {
                update.swap_dims(1, 2)
            } else {
                update
            };
            let source = &mut sources[member.source];
            if let Some(update) = source.put(member.block, update) {
                updates.directions.register(source.parameter.id, update);
            }
        }
    }
    updates
}

/// Groups the matrices in the order in which their shapes first appear, so that a resumed run makes the
/// same calls.
fn batches(sources: &[Source]) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        let [e, n, _] = source.dims;
        let dtype = source.grad.as_ref().map(Tensor::dtype);
        for (block, width) in source.widths().into_iter().enumerate() {
            let member = Member {
                source: index,
                block,
                dims: [e, n, width],
            };
            let mut batch = Batch {
                short: n.min(width),
                long: n.max(width),
                dtype: dtype.expect("no gradient was taken yet"),
                device: source.parameter.device.clone(),
                elements: e * n * width,
                members: Vec::new(),
            };
            match batches.iter_mut().find(|open| open.accepts(&batch)) {
                Some(open) => {
                    open.elements += batch.elements;
                    open.members.push(member);
                }
                None => {
                    batch.members.push(member);
                    batches.push(batch);
                }
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
