//! The kernels for Burn's GPU backends: one source for CUDA, ROCm, Vulkan, Metal and WebGPU.
//!
//! A sequence is cut into chunks. [`prepare`] makes a [`record`] of every chunk and value head, in parallel; [`scan`] walks over the records
//! of a sequence with the state. For the gradients the states that enter the chunks are computed once more, [`reverse`] walks back with the
//! gradient of the state, [`gradients`] has those of a chunk's prepared inputs, in parallel again, and [`chain`] those of what the caller
//! gave.
//!
//! Planes, matrix units, library products and autotune are not used. Planes and matrix units add in an order of the device's, and the latter
//! round what is promised in `f32`; a library product chooses its kernel by shape, so a sequence's bits would depend on its batch. The one
//! variant there is, see [`plan::Tiles`], follows from the number of states and has the same bits.
//!
//! Every sum has a fixed order that depends on `K` alone, no kernel uses atomics, and no value of a token takes part in a result of an
//! earlier one.

mod backward;
mod chain;
mod channel;
mod forward;
mod gate;
mod gradients;
mod inputs;
#[cfg(all(test, feature = "wgpu"))]
mod least_device;
mod plan;
mod prepare;
mod record;
mod reverse;
mod scan;
mod step;
mod sums;
mod table;
mod walk;
mod within;

use std::sync::Arc;

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;

use super::definition::{KdaOps, KdaTensors};
use super::plan::KdaPlan;
use inputs::Inputs;

impl KdaOps for CubeBackend {
    fn kda_forward(
        tensors: KdaTensors<Self>,
        plan: Arc<KdaPlan>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (inputs, state) = Inputs::new(tensors, plan);
        forward::forward(&inputs, state)
    }

    fn kda_backward(
        tensors: KdaTensors<Self>,
        o_grad: FloatTensor<Self>,
        state_grad: FloatTensor<Self>,
        plan: Arc<KdaPlan>,
    ) -> KdaTensors<Self> {
        let (inputs, state) = Inputs::new(tensors, plan);
        backward::backward(&inputs, state, o_grad, state_grad)
    }

    fn kda_snapshots(
        tensors: KdaTensors<Self>,
        plan: Arc<KdaPlan>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (inputs, state) = Inputs::new(tensors, plan);
        let [batch, tokens, heads, value_dim] = inputs.v.shape().dims();
        let shape = Shape::new([batch, tokens, heads, inputs.sizes.key_dim, value_dim]);
        let (client, device) = (inputs.v.client.clone(), inputs.v.device.clone());
        let states = empty_device_contiguous_dtype(client, device, shape, DType::F32);
        let o = forward::snapshots(&inputs, state, &states);
        (o, states)
    }
}
