//! What the tokens of a chunk are to each other: the matrices of a [`Record`], in the parts that [`super::prepare`] puts together.

use cubecl::prelude::*;

use super::prepare::{SHARE, SHARES, SLAB};
use super::record::Record;
use super::walk::Four;

/// Carries the unit's share of its own token's key through the slab, and adds its products with the queries and keys it meets.
#[cube]
pub(super) fn carry(
    slab: &Shared<[Four]>,
    q_sums: &mut Array<f32>,
    k_sums: &mut Array<f32>,
    own: usize,
    share: usize,
    #[comptime] record: Record,
) {
    let slab_size = comptime!(record.chunk * SLAB);
    let mut carried = Array::<Four>::new(SHARE);
    #[unroll]
    for j in 0..SHARE {
        carried[j] = slab[slab_size + own * SLAB + share * SHARE + j];
    }
    #[unroll]
    for t in 0..comptime!(record.chunk) {
        if own <= t {
            let at = t * SLAB + share * SHARE;
            #[unroll]
            for j in 0..SHARE {
                if own < t {
                    carried[j] *= slab[2 * slab_size + at + j];
                }
                let q_four = slab[at + j];
                let k_four = slab[slab_size + at + j];
                #[unroll]
                for lane in 0..4usize {
                    let x = carried[j].extract(lane);
                    q_sums[t] = fma(q_four.extract(lane), x, q_sums[t]);
                    k_sums[t] = fma(k_four.extract(lane), x, k_sums[t]);
                }
            }
        }
    }
}

/// Leaves the sums of the unit's share in the slab, `[SHARES, C, C]` by columns.
#[cube]
pub(super) fn leave_sums(
    sums: &Array<f32>,
    slab: &mut Shared<[Four]>,
    own: usize,
    share: usize,
    #[comptime] record: Record,
) {
    let rows = comptime!(record.rows() / 4);
    #[unroll]
    for t in 0..rows {
        let mut four = Four::new(0.0);
        #[unroll]
        for lane in 0..4usize {
            four.insert(lane, sums[comptime!(t * 4 + lane)]);
        }
        slab[(share * comptime!(record.chunk) + own) * rows + t] = four;
    }
}

/// Four numbers of the matrix that the shares' sums add up to.
#[cube]
pub(super) fn sum_shares(slab: &Shared<[Four]>, at: usize, #[comptime] record: Record) -> Four {
    let mut sum = slab[at];
    for share in 1..SHARES {
        sum += slab[share * comptime!(record.chunk * record.rows() / 4) + at];
    }
    sum
}

/// One column of the inverse of `I + A Diag(beta)`, or of `I + Diag(beta) A` for the gradient, by forward substitution. Row `t` depends on
/// earlier rows alone.
#[cube]
pub(super) fn solve(
    pairs: &Shared<[Four]>,
    strength: &Shared<[f32]>,
    records: &mut [Four],
    at: usize,
    column: usize,
    #[comptime] gradient: bool,
    #[comptime] record: Record,
) {
    let chunk = comptime!(record.chunk);
    let rows = comptime!(record.rows() / 4);
    let mut x = Array::<f32>::new(comptime!(record.rows()));
    #[unroll]
    for t in 0..comptime!(record.rows()) {
        x[t] = 0.0;
    }
    #[unroll]
    for t in 0..chunk {
        let mut sum = 0.0f32;
        #[unroll]
        for i in 0..t {
            let pair = pairs[comptime!(i * (record.rows() / 4) + t / 4)].extract(comptime!(t % 4));
            if comptime!(gradient) {
                sum = fma(pair, x[i], sum);
            } else {
                sum = fma(pair * strength[i], x[i], sum);
            }
        }
        if comptime!(gradient) {
            sum *= strength[t];
        }
        x[t] = select(column == t, 1.0, select(column < t, -sum, 0.0));
    }
    #[unroll]
    for t in 0..rows {
        let mut four = Four::new(0.0);
        #[unroll]
        for lane in 0..4usize {
            four.insert(lane, x[comptime!(t * 4 + lane)]);
        }
        records[at + column * rows + t] = four;
    }
}
