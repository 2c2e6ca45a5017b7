//! Muon: momentum, orthogonalisation and decoupled weight decay for one matrix or a stack of matrices.

use burn::config::Config;
use burn::optim::{LearningRate, Optimizer, RecordState, StateSink, StateSource};
use burn::tensor::{DType, Device, Tensor};

use crate::column_blocks::ColumnBlocks;
use crate::newton_schulz::{NewtonSchulzConfig, newton_schulz};
use crate::precision::working_dtype;

/// Configuration of [`Muon`].
#[derive(Config, Debug, PartialEq)]
pub struct MuonConfig {
    /// Momentum `mu` of the accumulating rule `M <- mu M + G`.
    #[config(default = 0.95)]
    pub momentum: f64,
    /// Whether `mu M + G` is orthogonalised (Moonlight's code, PyTorch) or `M` itself (Algorithm 1 of the
    /// Kimi K2 report as printed).
    #[config(default = true)]
    pub nesterov: bool,
    /// The orthogonalisation.
    #[config(default = "NewtonSchulzConfig::new()")]
    pub newton_schulz: NewtonSchulzConfig,
    /// Decoupled weight decay, multiplied by the learning rate.
    #[config(default = 0.1)]
    pub weight_decay: f32,
    /// The root mean square that an update of full rank has before the learning rate. AdamW's updates lie
    /// between 0.2 and 0.4, so 0.2 lets both share one learning rate.
    #[config(default = 0.2)]
    pub update_rms: f64,
    /// Whether the momentum is kept in bf16 between steps, for half the memory. Arithmetic stays in f32. Parameters in f64 keep it in f64.
    #[config(default = false)]
    pub bf16_momentum: bool,
    /// The matrices that the parameter is taken for, side by side; `None` for one.
    pub column_blocks: Option<ColumnBlocks>,
}

impl MuonConfig {
    /// Builds the optimizer for one parameter group.
    ///
    /// Give it to [`ModuleOptimizer::with_group`](burn::optim::ModuleOptimizer::with_group), or let
    /// [`MuonClipConfig`](crate::MuonClipConfig) do it.
    pub fn build(&self) -> Muon {
        Muon {
            config: self.clone(),
        }
    }
}

/// Muon for a matrix `[n, m]` or a stack of matrices `[E, n, m]`.
///
/// With `M_0 = 0` and learning rate `lr`:
///
/// ```text
/// M <- mu M + G
/// O <- NewtonSchulz(mu M + G)                       (or of M, without Nesterov)
/// W <- W - lr (update_rms sqrt(max(n, m)) O + weight_decay W)
/// ```
///
/// (Kimi K2, [arXiv:2507.20534](https://arxiv.org/abs/2507.20534), Algorithm 1.) The scale is symmetric in
/// `n` and `m`, so Burn's `[in, out]` and PyTorch's `[out, in]` give the same update. The matrices of a
/// stack are independent of each other. Momentum is kept in f32 for 16-bit parameters, unless it is wanted in bf16.
///
/// # Panics
/// [`step`](Optimizer::step) panics if the parameter's rank is neither 2 nor 3, or if column blocks do not fit it.
#[derive(Clone, Debug)]
pub struct Muon {
    config: MuonConfig,
}

/// The momentum of one parameter.
#[derive(Clone, Debug)]
pub struct MuonState<const D: usize> {
    /// Accumulated gradients `M`, shaped like the parameter, f32 or bf16 (f64 for f64 parameters).
    pub momentum_buffer: Tensor<D>,
}

/// The name under which [`MuonState`] is recorded.
pub(crate) const MOMENTUM_BUFFER: &str = "momentum_buffer";

impl<const D: usize> RecordState for MuonState<D> {
    fn state_flatten(&self, prefix: &str, out: &mut StateSink) {
        out.push_tensor(
            prefix,
            MOMENTUM_BUFFER,
            self.momentum_buffer.clone().into_data(),
        );
    }

    fn state_unflatten(prefix: &str, src: &mut StateSource, device: &Device) -> Option<Self> {
        let data = src.take_tensor(prefix, MOMENTUM_BUFFER)?;
        let dtype = data.dtype();
        // A tensor made without a dtype takes the device's default, which would round what was saved.
        (data.rank() == D && dtype.is_float()).then(|| Self {
            momentum_buffer: Tensor::from_data(data, (device, dtype)),
        })
    }
}

impl Muon {
    /// Bytes of momentum for an element of an `f32` parameter.
    pub(crate) fn momentum_bytes(&self) -> usize {
        if self.config.bf16_momentum { 2 } else { 4 }
    }

    /// Adds `grad` to the momentum; returns what is to be orthogonalised, and the new momentum as it is kept.
    ///
    /// `grad` is in the working dtype; `momentum` is brought to it, whatever it was saved in.
    pub(crate) fn accumulate<const D: usize>(
        &self,
        grad: Tensor<D>,
        momentum: Option<Tensor<D>>,
    ) -> (Tensor<D>, Tensor<D>) {
        let mu = self.config.momentum;
        let momentum = match momentum {
            Some(momentum) => momentum.cast(grad.dtype()).mul_scalar(mu) + grad.clone(),
            None => grad.clone(),
        };
        let direction = if self.config.nesterov {
            momentum.clone().mul_scalar(mu) + grad
        } else {
            momentum.clone()
        };
        let momentum = match momentum.dtype() {
            DType::F32 if self.config.bf16_momentum => momentum.cast(DType::BF16),
            _ => momentum,
        };
        (direction, momentum)
    }

    /// Orthogonalises a batch of directions `[batch, n, m]`.
    pub(crate) fn orthogonalize(&self, directions: Tensor<3>) -> Tensor<3> {
        newton_schulz(directions, &self.config.newton_schulz)
    }

    /// Moves `weight` by the orthogonalised direction `update`, of the same shape `[.., n, m]`.
    ///
    /// The weight decay is the parameter's own, which need not be that of the configuration.
    pub(crate) fn apply<const D: usize>(
        &self,
        weight: Tensor<D>,
        update: Tensor<D>,
        lr: LearningRate,
        weight_decay: f32,
    ) -> Tensor<D> {
        // Arithmetic with a zero learning rate would still turn -0 into 0.
        if lr == 0.0 {
            return weight;
        }
        let dims = weight.dims();
        let longest = dims[D.saturating_sub(2)..].iter().max().copied();
        let scale = self.config.update_rms * (longest.unwrap_or(0) as f64).sqrt();
        let decay = lr * f64::from(weight_decay);
        let dtype = weight.dtype();
        let weight = weight.cast(working_dtype(dtype));
        (weight.mul_scalar(1.0 - decay) - update.mul_scalar(lr * scale)).cast(dtype)
    }
}

impl Optimizer for Muon {
    type State<const D: usize> = MuonState<D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<D>,
        grad: Tensor<D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<D>, Option<Self::State<D>>) {
        let stack = stack_shape(&grad.dims()).unwrap_or_else(|| {
            panic!(
                "Muon: expected a matrix [n, m] or a stack of matrices [E, n, m], got a parameter of shape {:?}; \
                 route it to AdamW",
                grad.dims()
            )
        });
        let shape = grad.shape();
        let grad = to_working(grad);
        let (direction, momentum_buffer) = self.accumulate(grad, state.map(|s| s.momentum_buffer));
        let direction = direction.reshape(stack);
        let update = match &self.config.column_blocks {
            None => self.orthogonalize(direction),
            Some(blocks) => {
                let [_, n, m] = stack;
                assert!(
                    blocks.widths(m).is_some(),
                    "Muon: {blocks:?} do not make up a parameter of shape {stack:?}"
                );
                let cut = blocks.cut(direction).into_iter();
                let orthogonal = cut.map(|block| block_update(self.orthogonalize(block), [n, m]));
                blocks.join(orthogonal.collect())
            }
        };
        let update = update.reshape(shape);
        let tensor = self.apply(tensor, update, lr, self.config.weight_decay);
        (tensor, Some(MuonState { momentum_buffer }))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device) -> Self::State<D> {
        MuonState {
            momentum_buffer: state.momentum_buffer.to_device(device),
        }
    }
}

/// The orthogonalised block of a parameter `[n, m]`, so that the parameter's scale `sqrt(max(n, m))` gives it its own.
pub(crate) fn block_update(block: Tensor<3>, [n, m]: [usize; 2]) -> Tensor<3> {
    let [_, _, width] = block.dims();
    let scale = (n.max(width) as f64 / n.max(m) as f64).sqrt();
    if scale == 1.0 {
        block
    } else {
        block.mul_scalar(scale)
    }
}

/// The shape as `[E, n, m]`, or `None` if it is no matrix and no stack of matrices.
pub(crate) fn stack_shape(dims: &[usize]) -> Option<[usize; 3]> {
    match *dims {
        [n, m] => Some([1, n, m]),
        [e, n, m] => Some([e, n, m]),
        _ => None,
    }
}

/// Brings a gradient to the dtype in which states are kept.
pub(crate) fn to_working<const D: usize>(grad: Tensor<D>) -> Tensor<D> {
    let dtype: DType = grad.dtype();
    grad.cast(working_dtype(dtype))
}
