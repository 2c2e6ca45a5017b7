//! The kernels for Burn's CPU backend.
use std::sync::Arc;

use burn::backend::Flex;
use burn::backend::tensor::FloatTensor;

use super::definition::{KdaOps, KdaTensors};
use super::plan::KdaPlan;

impl KdaOps for Flex {
    fn kda_forward(_: KdaTensors<Self>, _: Arc<KdaPlan>) -> (FloatTensor<Self>, FloatTensor<Self>) {
        todo!()
    }
    fn kda_backward(
        _: KdaTensors<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: Arc<KdaPlan>,
    ) -> KdaTensors<Self> {
        todo!()
    }
    fn kda_snapshots(_: KdaTensors<Self>, _: Arc<KdaPlan>) -> (FloatTensor<Self>, FloatTensor<Self>) {
        todo!()
    }
}
