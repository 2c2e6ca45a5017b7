//! The decay between two tokens of a chunk, split into factors that never exceed 1.
//!
//! Between tokens `i < t` a key channel decays by `exp(g_{i+1} + ... + g_t)`. Written as `exp(G_t) exp(-G_i)` with the
//! running sum `G`, the second factor overflows on ordinary gates. Here a chunk is halved again and again instead:
//! for every pair there is one level at which `i` lies in the upper and `t` in the lower half of the same block, and
//! there the decay is
//!
//! ```text
//! exp(sum of g from i+1 to the end of the upper half) * exp(sum of g from the start of the lower half to t)
//! ```
//!
//! Both exponents are sums of non-positive numbers over exactly their own range, so nothing overflows, nothing has to
//! be masked before the exponential, and a strong decay elsewhere in the chunk costs no digits here.

use burn::tensor::{DType, Device, Tensor, TensorData};

/// The constant 0/1 matrices of one chunk size.
pub(super) struct DecayPlan {
    /// `[levels * C, C]`: row `(level, t)` selects the gates that the factor of token `t` sums at that level.
    pub factors: Tensor<2>,
    /// `[levels, C, C]`: 1 where the pair `(t, i)` belongs to the level.
    pub pairs: Tensor<3>,
    /// `[2C, C]`: from the chunk's start to `t` for the first `C` rows, from behind `t` to its end for the others.
    pub edges: Tensor<2>,
    /// `[C, C]`.
    pub identity: Tensor<2>,
}

impl DecayPlan {
    /// `chunk_size` must be a power of two.
    pub(super) fn new(chunk_size: usize, device: &Device, dtype: DType) -> Self {
        let c = chunk_size;
        let halves: Vec<usize> = (0..).map(|l| 1 << l).take_while(|h| *h < c).collect();
        let matrix = |rows: usize, cell: &dyn Fn(usize, usize) -> bool| {
            let cells = (0..rows * c).map(|at| f32::from(cell(at / c, at % c)));
            let data = TensorData::new(cells.collect::<Vec<_>>(), [rows, c]);
            Tensor::<2>::from_data(data, (device, dtype))
        };

        let level_rows = halves.len() * c;
        let factors = matrix(level_rows, &|row, s| {
            let (half, t) = (halves[row / c], row % c);
            let middle = t / (2 * half) * (2 * half) + half;
            if t >= middle {
                (middle..=t).contains(&s)
            } else {
                (t + 1..middle).contains(&s)
            }
        });
        let pairs = matrix(level_rows, &|row, i| {
            let (half, t) = (halves[row / c], row % c);
            let block = t / (2 * half);
            block == i / (2 * half) && t % (2 * half) >= half && i % (2 * half) < half
        });
        let edges = matrix(2 * c, &|row, s| {
            let t = row % c;
            if row < c { s <= t } else { s > t }
        });
        Self {
            factors,
            pairs: pairs.reshape([halves.len(), c, c]),
            edges,
            identity: matrix(c, &|t, i| t == i),
        }
    }
}
