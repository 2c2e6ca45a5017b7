//! The triangular systems of a chunk, row by row.

use macerator::Simd;

use super::chunk::Chunk;
use super::lanes::{lanes, load, splat, store};
use super::tile::Tile;

/// Registers that a row is worked on in: enough to hide the latency of additions.
const BLOCK: usize = 4;

/// The errors that the tokens correct, and what they write: `(I + Diag(beta) A) U = Diag(beta) P`.
///
/// `errors` holds `P = V - K_start S0` and gets `E = P - A U`; `writes` gets `U = Diag(beta) E`; and `B U` is added to `outputs` where there are any.
/// In `width` columns of each.
#[inline(always)]
pub(super) fn solve<S: Simd>(
    chunk: &Chunk,
    width: usize,
    errors: &mut Tile,
    writes: &mut Tile,
    mut outputs: Option<&mut Tile>,
) {
    for t in 0..chunk.len {
        let keys = chunk.key_pairs.row(t);
        let queries = chunk.query_pairs.row(t);
        let beta = splat::<S>(chunk.beta[t]);
        let (earlier, writes) = writes.split_before(t);
        let errors = errors.row_mut(t);
        for_each_block::<S>(width, |at, count| {
            let mut error = [splat::<S>(0.0); BLOCK];
            let mut output = [splat::<S>(0.0); BLOCK];
            for (i, write) in earlier.chunks_exact(writes.len()).enumerate() {
                let (key, query) = (splat::<S>(-keys[i]), splat::<S>(queries[i]));
                for j in 0..count {
                    let write = load::<S>(write, at + j * lanes::<S>());
                    error[j] = key.mul_add(write, error[j]);
                    output[j] = query.mul_add(write, output[j]);
                }
            }
            for j in 0..count {
                let place = at + j * lanes::<S>();
                let error = load::<S>(errors, place) + error[j];
                store(errors, place, error);
                let write = error * beta;
                store(writes, place, write);
                if let Some(outputs) = &mut outputs {
                    let row = outputs.row_mut(t);
                    let own = splat::<S>(queries[t]).mul_add(write, output[j]);
                    store(row, place, load::<S>(row, place) + own);
                }
            }
        });
    }
}

/// The same system transposed, for the gradients: from that of the writes to that of the errors.
///
/// `gradients` holds the gradient of `U` that comes from the state, and gets `dR = (I + Diag(beta) A)^-T (B^T dO + that)`; `scaled` gets
/// `Diag(beta) dR`, the gradient of `P`.
#[inline(always)]
pub(super) fn solve_transposed<S: Simd>(
    chunk: &Chunk,
    width: usize,
    output_gradients: &Tile,
    gradients: &mut Tile,
    scaled: &mut Tile,
) {
    for i in (0..chunk.len).rev() {
        for_each_block::<S>(width, |at, count| {
            let mut sum = [splat::<S>(0.0); BLOCK];
            let own = splat::<S>(chunk.query_pairs.row(i)[i]);
            for j in 0..count {
                let place = at + j * lanes::<S>();
                sum[j] = own.mul_add(
                    load(output_gradients.row(i), place),
                    load(gradients.row(i), place),
                );
            }
            for t in i + 1..chunk.len {
                let key = splat::<S>(-chunk.key_pairs.row(t)[i]);
                let query = splat::<S>(chunk.query_pairs.row(t)[i]);
                for (j, sum) in sum.iter_mut().enumerate().take(count) {
                    let place = at + j * lanes::<S>();
                    *sum = query.mul_add(load(output_gradients.row(t), place), *sum);
                    *sum = key.mul_add(load(scaled.row(t), place), *sum);
                }
            }
            for (j, sum) in sum.into_iter().enumerate().take(count) {
                let place = at + j * lanes::<S>();
                store(gradients.row_mut(i), place, sum);
                store(scaled.row_mut(i), place, sum * splat(chunk.beta[i]));
            }
        });
    }
}

/// Calls `work` with the start of each block of registers and how many it has.
#[inline(always)]
fn for_each_block<S: Simd>(width: usize, mut work: impl FnMut(usize, usize)) {
    let block = BLOCK * lanes::<S>();
    let mut at = 0;
    while at + block <= width {
        work(at, BLOCK);
        at += block;
    }
    if at < width {
        work(at, (width - at) / lanes::<S>());
    }
}
