//! The kernel for Burn's CPU backend.
//!
//! A matrix is kept standing, `Y: [long, short]`, so that both products over its long side read rows: `Y^T Y` and `Y Q`. Small matrices are tasks for the
//! threads; a large one, or one that is alone, is cut into blocks of its products. `f32` throughout, nothing but the input and a few
//! workspaces in memory. At 16 to 64 operations for a number that is read from the second cache, arithmetic is the limit.

mod products;
mod steps;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};
use burn_flex::FlexTensor;
use burn_kimi_kernels::cpu::tensors::{Unwritten, contiguous, values};
use burn_kimi_kernels::cpu::threads::{for_each, workers};

use super::definition::NewtonSchulzOps;
use products::Threads;
use steps::Workspace;

/// Numbers of a matrix that is large enough to keep all threads busy, and too large to have one workspace a thread.
const LARGE: usize = 1 << 19;

impl NewtonSchulzOps for Flex {
    fn newton_schulz(x: FlexTensor, steps: Vec<[f64; 3]>) -> FloatTensor<Self> {
        let x = contiguous(x);
        let [batch, n, m] = x.shape().dims();
        let mut result = Unwritten::new(x.shape());
        let (numbers, to) = (values(&x), result.shared());
        let matrix = |workspace: &mut Workspace, index: usize| {
            let range = index * n * m..(index + 1) * n * m;
            // SAFETY: no other task has this matrix.
            let to = unsafe { to.part(range.clone()) };
            workspace.orthogonalize(&numbers[range], to, &steps);
        };
        if n * m >= LARGE || batch < workers() {
            let mut workspace = Workspace::new([n, m], Threads::All);
            (0..batch).for_each(|index| matrix(&mut workspace, index));
        } else {
            for_each(batch, || Workspace::new([n, m], Threads::Caller), matrix);
        }
        // SAFETY: every matrix is written.
        unsafe { result.written() }
    }
}
