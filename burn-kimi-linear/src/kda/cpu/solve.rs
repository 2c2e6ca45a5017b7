//! The triangular systems of a chunk, row by row.
//!
//! `C^2 V` operations a chunk and head, twice that with the output, from the first cache. A row needs those before it, so the work goes across
//! the columns, four registers at a time.

use macerator::Simd;

use super::chunk::Chunk;
use burn_kimi_kernels::cpu::lanes::{lanes, load, splat, store};
use burn_kimi_kernels::cpu::tile::Tile;

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
        let (earlier, writes) = writes.split_before(t);
        let mut row = Row {
            keys: chunk.key_pairs.row(t),
            queries: chunk.query_pairs.row(t),
            beta: chunk.beta[t],
            t,
            earlier,
            errors: errors.row_mut(t),
            writes,
            outputs: outputs.as_mut().map(|outputs| outputs.row_mut(t)),
        };
        let mut at = 0;
        while at + BLOCK * lanes::<S>() <= width {
            row.solve::<S, BLOCK>(at);
            at += BLOCK * lanes::<S>();
        }
        while at < width {
            row.solve::<S, 1>(at);
            at += lanes::<S>();
        }
    }
}

/// One token, and all that its row of the system needs.
struct Row<'a> {
    keys: &'a [f32],
    queries: &'a [f32],
    beta: f32,
    t: usize,
    /// The writes of the tokens before.
    earlier: &'a [f32],
    errors: &'a mut [f32],
    writes: &'a mut [f32],
    outputs: Option<&'a mut [f32]>,
}

impl Row<'_> {
    /// `WIDE` registers of columns, from `at` on.
    #[inline(always)]
    fn solve<S: Simd, const WIDE: usize>(&mut self, at: usize) {
        let mut error = [splat::<S>(0.0); WIDE];
        let mut output = [splat::<S>(0.0); WIDE];
        for (i, write) in self.earlier.chunks_exact(self.writes.len()).enumerate() {
            let key = splat::<S>(-self.keys[i]);
            let query = splat::<S>(self.queries[i]);
            for j in 0..WIDE {
                let write = load::<S>(write, at + j * lanes::<S>());
                error[j] = key.mul_add(write, error[j]);
                output[j] = query.mul_add(write, output[j]);
            }
        }
        for j in 0..WIDE {
            let place = at + j * lanes::<S>();
            let error = load::<S>(self.errors, place) + error[j];
            store(self.errors, place, error);
            let write = error * splat(self.beta);
            store(self.writes, place, write);
            if let Some(row) = &mut self.outputs {
                let own = splat::<S>(self.queries[self.t]).mul_add(write, output[j]);
                store(row, place, load::<S>(row, place) + own);
            }
        }
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
        let mut at = 0;
        while at + BLOCK * lanes::<S>() <= width {
            transposed_row::<S, BLOCK>(chunk, i, at, output_gradients, gradients, scaled);
            at += BLOCK * lanes::<S>();
        }
        while at < width {
            transposed_row::<S, 1>(chunk, i, at, output_gradients, gradients, scaled);
            at += lanes::<S>();
        }
    }
}

/// `WIDE` registers of row `i`, from `at` on.
#[inline(always)]
fn transposed_row<S: Simd, const WIDE: usize>(
    chunk: &Chunk,
    i: usize,
    at: usize,
    output_gradients: &Tile,
    gradients: &mut Tile,
    scaled: &mut Tile,
) {
    let mut sum = [splat::<S>(0.0); WIDE];
    let own = splat::<S>(chunk.query_pairs.row(i)[i]);
    for (j, sum) in sum.iter_mut().enumerate() {
        let place = at + j * lanes::<S>();
        let from_state = load::<S>(gradients.row(i), place);
        *sum = own.mul_add(load(output_gradients.row(i), place), from_state);
    }
    for t in i + 1..chunk.len {
        let key = splat::<S>(-chunk.key_pairs.row(t)[i]);
        let query = splat::<S>(chunk.query_pairs.row(t)[i]);
        let (outputs, scaled) = (output_gradients.row(t), scaled.row(t));
        for (j, sum) in sum.iter_mut().enumerate() {
            let place = at + j * lanes::<S>();
            *sum = query.mul_add(load(outputs, place), *sum);
            *sum = key.mul_add(load(scaled, place), *sum);
        }
    }
    for (j, sum) in sum.into_iter().enumerate() {
        let place = at + j * lanes::<S>();
        store(gradients.row_mut(i), place, sum);
        store(scaled.row_mut(i), place, sum * splat(chunk.beta[i]));
    }
}
