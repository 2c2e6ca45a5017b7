//! The kernel for Burn's CPU backend.
//!
//! A task is a block of queries of one head. It goes over the keys in blocks that it turns round once, multiplies, and looks at the products while they are in
//! the first cache: `2 D` operations a pair, and `4 D / 64` bytes of keys a pair from the second cache. Nothing but the inputs and a
//! number a task is in memory.

use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::Shape;
use burn_flex::FlexTensor;
use burn_kimi_kernels::cpu::product::{Left, Replace, Size, multiply};
use burn_kimi_kernels::cpu::shared::SharedValues;
use burn_kimi_kernels::cpu::tensors::{contiguous, values, zeros};
use burn_kimi_kernels::cpu::threads::for_each;
use burn_kimi_kernels::cpu::tile::Tile;
use macerator::Simd;

use super::definition::MaxLogitOps;
use super::inputs::Sizes;

/// Queries and keys of a block.
const BLOCK: usize = 64;

impl MaxLogitOps for Flex {
    fn max_logit(
        q: FlexTensor,
        k: FlexTensor,
        mask: BoolTensor<Self>,
        sizes: Sizes,
    ) -> FloatTensor<Self> {
        let (q, k, mask) = (contiguous(q), contiguous(k), mask.to_contiguous());
        let problem = Problem {
            q: values(&q),
            k: values(&k),
            mask: Mask::new(&mask),
            sizes,
        };
        let blocks = sizes.queries.div_ceil(BLOCK);
        let mut largest = vec![f32::NEG_INFINITY; sizes.batch * sizes.heads * blocks];
        let tasks = largest.len();
        let places = SharedValues::of_slice(&mut largest);
        for_each(
            tasks,
            || Workspace::new(sizes.dim),
            |workspace, task| {
                let (row, first) = (task / blocks, task % blocks * BLOCK);
                let mut found = f32::NEG_INFINITY;
                block(&problem, workspace, row, first, &mut found);
                // SAFETY: no other task has this place.
                let place = unsafe { places.part(task..task + 1) };
                place[0] = found;
            },
        );
        let mut result = zeros(Shape::new([sizes.heads]));
        for (head, result) in result.storage_mut::<f32>().iter_mut().enumerate() {
            let rows = (0..sizes.batch).map(|batch| batch * sizes.heads + head);
            let all = rows.flat_map(|row| &largest[row * blocks..(row + 1) * blocks]);
            *result = all.fold(f32::NEG_INFINITY, |a, &b| a.max(b)) * sizes.scale as f32;
        }
        result
    }
}

struct Problem<'a> {
    q: &'a [f32],
    k: &'a [f32],
    mask: Mask<'a>,
    sizes: Sizes,
}

/// Which pairs are hidden.
struct Mask<'a> {
    hidden: &'a [u8],
    /// Distances in each axis; 0 where one entry stands for all.
    steps: [usize; 4],
}

impl<'a> Mask<'a> {
    fn new(mask: &'a FlexTensor) -> Self {
        let dims: [usize; 4] = mask.shape().dims();
        let mut steps = [0; 4];
        let mut step = 1;
        for (axis, &dim) in dims.iter().enumerate().rev() {
            if dim > 1 {
                steps[axis] = step;
            }
            step *= dim;
        }
        Self {
            hidden: &mask.bytes()[mask.layout().start_offset()..],
            steps,
        }
    }

    /// Hides numbers of a row, of which the first is that of the pair `[batch, head, query, key]`.
    fn hide(&self, row: &mut [f32], first: [usize; 4]) {
        let places = first.iter().zip(self.steps).map(|(at, step)| at * step);
        let hidden = &self.hidden[places.sum()..];
        for (j, x) in row.iter_mut().enumerate() {
            if hidden[j * self.steps[3]] != 0 {
                *x = f32::NEG_INFINITY;
            }
        }
    }
}

struct Workspace {
    /// `[D, BLOCK]`.
    keys: Tile,
    products: Tile,
}

impl Workspace {
    fn new(dim: usize) -> Self {
        Self {
            keys: Tile::zeros(dim, BLOCK),
            products: Tile::zeros(BLOCK, BLOCK),
        }
    }
}

/// The largest product of a block of queries, of the `row`-th pair of batch and head.
#[macerator::with_simd]
fn block<'a, S: Simd>(
    problem: &Problem<'a>,
    workspace: &mut Workspace,
    row: usize,
    first: usize,
    largest: &mut f32,
) {
    let Sizes {
        heads,
        key_heads,
        queries,
        keys,
        dim,
        ..
    } = problem.sizes;
    let (batch, head) = (row / heads, row % heads);
    let key_row = batch * key_heads + head / (heads / key_heads);
    let count = BLOCK.min(queries - first);
    let q = &problem.q[(row * queries + first) * dim..][..count * dim];
    let k = &problem.k[key_row * keys * dim..][..keys * dim];
    let Workspace {
        keys: turned,
        products,
    } = workspace;
    let seen = problem.sizes.visible(first + count - 1).min(keys);
    for key in (0..seen).step_by(BLOCK) {
        let width = BLOCK.min(seen - key);
        turn(&k[key * dim..(key + width) * dim], dim, turned);
        let size = Size {
            rows: count,
            depth: dim,
            width: BLOCK,
        };
        let right = (turned.values(), turned.stride());
        multiply::<S, _>(
            size,
            Left::rows(q, dim),
            right,
            products.parts_mut(),
            Replace,
        );
        for i in 0..count {
            let query = first + i;
            let visible = problem.sizes.visible(query).saturating_sub(key).min(width);
            let row = &mut products.row_mut(i)[..visible];
            if problem.sizes.masked {
                problem.mask.hide(row, [batch, head, query, key]);
            }
            *largest = largest.max(largest_of(row));
        }
    }
}

/// The largest number, where NaN is `+inf`.
#[inline(always)]
fn largest_of(row: &[f32]) -> f32 {
    let mut largest = f32::NEG_INFINITY;
    let mut nan = false;
    for &x in row {
        largest = largest.max(x);
        nan |= x.is_nan();
    }
    if nan { f32::INFINITY } else { largest }
}

/// Keys row by row to one column each. What columns behind the last key hold is not looked at.
#[inline(always)]
fn turn(keys: &[f32], dim: usize, to: &mut Tile) {
    let (to, stride) = to.parts_mut();
    for (column, key) in keys.chunks_exact(dim).enumerate() {
        for (row, x) in key.iter().enumerate() {
            to[row * stride + column] = *x;
        }
    }
}
