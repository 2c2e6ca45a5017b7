//! Burn's AdamW as the optimizer of everything that is not a hidden matrix.

use burn::optim::{
    AdamW, AdamWConfig, AdamWState, AdaptiveMomentumState, LearningRate, Optimizer, RecordState,
    StateSink, StateSource,
};
use burn::tensor::{Device, Tensor, TensorData};
use burn_pack::Scalar;

use crate::muon::to_working;
use crate::precision::working_dtype;

/// Burn's [`AdamW`], run in f32 for 16-bit parameters.
///
/// In f16 its epsilon of 1e-8 rounds to zero and squared gradients underflow, which divides zero by zero.
/// The arithmetic itself is Burn's.
#[derive(Clone)]
pub(crate) struct AuxiliaryAdamW {
    config: AdamWConfig,
    inner: AdamW,
}

impl AuxiliaryAdamW {
    pub(crate) fn new(config: AdamWConfig) -> Self {
        Self {
            inner: config.build(),
            config,
        }
    }

    /// The same optimizer with another weight decay.
    pub(crate) fn with_weight_decay(&self, weight_decay: f32) -> Self {
        Self::new(self.config.clone().with_weight_decay(weight_decay))
    }
}

/// Burn's AdamW state, recorded under Burn's names but read back in the dtype that was saved.
#[derive(Clone)]
pub(crate) struct AuxiliaryState<const D: usize>(AdamWState<D>);

pub(crate) const MOMENT_1: &str = "momentum.moment_1";
pub(crate) const MOMENT_2: &str = "momentum.moment_2";
pub(crate) const TIME: &str = "momentum.time";

impl<const D: usize> RecordState for AuxiliaryState<D> {
    fn state_flatten(&self, prefix: &str, out: &mut StateSink) {
        let AdaptiveMomentumState {
            time,
            moment_1,
            moment_2,
            ..
        } = &self.0.momentum;
        out.push_tensor(prefix, MOMENT_1, moment_1.clone().into_data());
        out.push_tensor(prefix, MOMENT_2, moment_2.clone().into_data());
        out.push_scalar(prefix, TIME, Scalar::from(*time));
    }

    fn state_unflatten(prefix: &str, src: &mut StateSource, device: &Device) -> Option<Self> {
        let time = usize::try_from(src.take_scalar(prefix, TIME)?).ok()?;
        let mut moment = |leaf| {
            let data: TensorData = src.take_tensor(prefix, leaf)?;
            let dtype = data.dtype();
            (data.rank() == D && dtype.is_float())
                .then(|| Tensor::<D>::from_data(data, (device, dtype)))
        };
        let momentum = AdaptiveMomentumState::new(time, moment(MOMENT_1)?, moment(MOMENT_2)?);
        Some(Self(AdamWState::new(momentum)))
    }
}

impl Optimizer for AuxiliaryAdamW {
    type State<const D: usize> = AuxiliaryState<D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<D>,
        grad: Tensor<D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<D>, Option<Self::State<D>>) {
        let dtype = tensor.dtype();
        let grad = to_working(grad);
        let state = state.map(|AuxiliaryState(mut state)| {
            state.momentum.moment_1 = state.momentum.moment_1.cast(grad.dtype());
            state.momentum.moment_2 = state.momentum.moment_2.cast(grad.dtype());
            state
        });
        let working = tensor.clone().cast(working_dtype(dtype));
        let (updated, state) = self.inner.step(lr, working, grad, state);
        // Arithmetic with a zero learning rate would still turn -0 into 0.
        let updated = if lr == 0.0 {
            tensor
        } else {
            updated.cast(dtype)
        };
        (updated, state.map(AuxiliaryState))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device) -> Self::State<D> {
        AuxiliaryState(AdamW::to_device(state.0, device))
    }
}
