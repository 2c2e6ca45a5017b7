//! The kernels for Burn's GPU backends: one source for CUDA, ROCm, Vulkan, Metal and WebGPU.
//!
//! [`products`] has a cube for every block of queries of a head, which goes over the keys that the block may see and leaves one number.
//! [`largest`] makes one number a head of those. Numbers are compared as [`order`] has them, whole numbers of the same order, so that `inf` and
//! NaN are what they are also where a shading language may leave them out.

mod largest;
mod order;
mod products;

use burn::backend::TensorMetadata;
use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;

use super::definition::MaxLogitOps;
use super::inputs::Sizes;

impl MaxLogitOps for CubeBackend {
    fn max_logit(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        mask: BoolTensor<Self>,
        sizes: Sizes,
    ) -> FloatTensor<Self> {
        let (q, k, mask) = (
            into_contiguous(q),
            into_contiguous(k),
            into_contiguous(mask),
        );
        let of_blocks = products::launch(&q, &k, &mask, sizes);
        largest::launch(&of_blocks, sizes)
    }
}

/// Room for `count` numbers beside `like`.
fn empty(like: &CubeTensor, count: usize, dtype: DType) -> CubeTensor {
    let (client, device) = (like.client.clone(), like.device.clone());
    empty_device_contiguous_dtype(client, device, Shape::new([count]), dtype)
}

/// Distances in each axis of the mask; 0 where one entry stands for all.
fn steps(mask: &CubeTensor) -> [usize; 4] {
    let dims: [usize; 4] = mask.shape().dims();
    let mut steps = [0; 4];
    let mut step = 1;
    for (axis, &dim) in dims.iter().enumerate().rev() {
        if dim > 1 {
            steps[axis] = step;
        }
        step *= dim;
    }
    steps
}
