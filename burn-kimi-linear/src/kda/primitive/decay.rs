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
//! be masked before the exponential, and a strong decay elsewhere in the chunk costs no digits here. The sums are built
//! by doubling from element-wise additions: a matrix product would be shorter, but GPUs round its inputs.

use burn::tensor::{DType, Device, Tensor, TensorData};

/// One halving of a chunk of `C` tokens, for blocks of `2 * half` tokens.
pub(super) struct Level {
    /// `[N, C, K]`: for tokens of an upper half the sum of the gates behind them in it, for tokens of a lower half the
    /// sum from its start to them.
    pub exponents: Tensor<3>,
    /// `[1, C, C]`: 1 where `t` is in the lower and `i` in the upper half of the same block.
    pub pairs: Tensor<3>,
}

/// All halvings of a chunk, smallest blocks first, and the sums over the chunk as a whole.
pub(super) struct Decay {
    pub levels: Vec<Level>,
    /// `[N, C, K]`: sum from the start of the chunk to each token, itself included.
    pub from_start: Tensor<3>,
    /// `[N, C, K]`: sum from behind each token to the end of the chunk.
    pub to_end: Tensor<3>,
}

impl Decay {
    /// `gates` is `[N, C, K]` with `C` a power of two.
    pub(super) fn new(gates: Tensor<3>) -> Self {
        let [_, size, width] = gates.dims();
        let (device, dtype) = (gates.device(), gates.dtype());
        let mut totals = gates.clone();
        let mut to_end = gates.zeros_like();
        let mut from_start = gates;
        let mut levels = Vec::new();
        let mut half = 1;
        while half < size {
            let constants = Constants::new(half, size, width, &device, dtype);
            levels.push(Level {
                exponents: from_start.clone() * constants.lower.clone()
                    + to_end.clone() * constants.upper,
                pairs: constants.pairs,
            });
            let crossing = Crossing::new(totals);
            from_start = crossing.add_upper_to_lower(from_start);
            to_end = crossing.add_lower_to_upper(to_end);
            totals = crossing.totals();
            half *= 2;
        }
        Self {
            levels,
            from_start,
            to_end,
        }
    }
}

/// The totals of the two halves of every block, `[N, blocks, 1, K]` each.
struct Crossing {
    upper: Tensor<4>,
    lower: Tensor<4>,
}

impl Crossing {
    /// From the totals of all halves, `[N, 2 * blocks, K]`.
    fn new(totals: Tensor<3>) -> Self {
        let [rows, halves, width] = totals.dims();
        let pairs = totals.reshape([rows, halves / 2, 2, width]);
        Self {
            upper: pairs.clone().narrow(2, 0, 1),
            lower: pairs.narrow(2, 1, 1),
        }
    }

    fn add_upper_to_lower(&self, sums: Tensor<3>) -> Tensor<3> {
        self.add(sums, vec![self.upper.zeros_like(), self.upper.clone()])
    }

    fn add_lower_to_upper(&self, sums: Tensor<3>) -> Tensor<3> {
        self.add(sums, vec![self.lower.clone(), self.lower.zeros_like()])
    }

    /// Adds one number a channel to every token of the upper, and one to every token of the lower halves.
    fn add(&self, sums: Tensor<3>, per_half: Vec<Tensor<4>>) -> Tensor<3> {
        let [rows, size, width] = sums.dims();
        let halves = 2 * self.upper.dims()[1];
        let per_half = Tensor::cat(per_half, 2).reshape([rows, halves, 1, width]);
        let sums = sums.reshape([rows, halves, size / halves, width]);
        (sums + per_half).reshape([rows, size, width])
    }

    /// The totals of the blocks, `[N, blocks, K]`: the halves of the next level.
    fn totals(self) -> Tensor<3> {
        (self.upper + self.lower).squeeze_dim(2)
    }
}

/// The 0/1 constants of one level.
struct Constants {
    /// `[1, C, K]`: 1 in rows of upper halves.
    upper: Tensor<3>,
    /// `[1, C, K]`: 1 in rows of lower halves.
    lower: Tensor<3>,
    pairs: Tensor<3>,
}

impl Constants {
    fn new(half: usize, size: usize, width: usize, device: &Device, dtype: DType) -> Self {
        let matrix = |columns: usize, cell: &dyn Fn(usize, usize) -> bool| {
            let cells = (0..size * columns).map(|at| f32::from(cell(at / columns, at % columns)));
            let data = TensorData::new(cells.collect::<Vec<_>>(), [1, size, columns]);
            Tensor::<3>::from_data(data, (device, dtype))
        };
        let in_lower = |t: usize| t % (2 * half) >= half;
        let block = |t: usize| t / (2 * half);
        Self {
            upper: matrix(width, &|t, _| !in_lower(t)),
            lower: matrix(width, &|t, _| in_lower(t)),
            pairs: matrix(size, &|t, i| {
                block(t) == block(i) && in_lower(t) && !in_lower(i)
            }),
        }
    }
}
