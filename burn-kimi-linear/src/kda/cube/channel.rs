//! The gradients of one channel of `K` of a chunk, once the products with its states and the pairs of its tokens are there: see
//! [`super::gradients`]. Everything is in registers, one unit a channel.

use cubecl::prelude::*;

use super::record::Record;
use super::walk::Four;

/// Takes the sums over `V` of a channel back through the decays, and adds the pairs of tokens.
///
/// `q_sums`, `read_sums` and `write_sums` are the rows of `dO S^T`, `dP S^T` and `U D^T`, and `state_sum` that of `S * D`. `base` is the
/// channel in the first row of the record, `at` that of the result.
#[cube]
pub(super) fn channel_gradients(
    records: &[f32],
    // `dB` and `dA`, by columns.
    pairs: &Shared<[Four]>,
    q_sums: &mut Array<f32>,
    read_sums: &mut Array<f32>,
    write_sums: &mut Array<f32>,
    state_sum: f32,
    result: &mut [f32],
    base: usize,
    at: usize,
    scale: f32,
    #[comptime] record: Record,
) {
    let chunk = comptime!(record.chunk);
    let mut q = Array::<f32>::new(chunk);
    let mut k = Array::<f32>::new(chunk);
    let mut decay = Array::<f32>::new(chunk);
    #[unroll]
    for t in 0..chunk {
        let at = base + comptime!(t * record.width());
        q[t] = scale * records[at + comptime!(record.queries())];
        k[t] = records[at + comptime!(record.keys())];
        decay[t] = records[at + comptime!(record.decay())];
    }

    let mut before = 1.0f32;
    #[unroll]
    for t in 0..chunk {
        before *= decay[t];
        q_sums[t] *= before;
        read_sums[t] *= -before;
    }
    let mut after = 1.0f32;
    #[unroll]
    for back in 0..chunk {
        let t = comptime!(record.chunk - 1 - back);
        write_sums[t] *= after;
        after *= decay[t];
    }

    let mut g = Array::<f32>::new(chunk);
    let mut from_state = before * state_sum;
    #[unroll]
    for back in 0..chunk {
        let t = comptime!(record.chunk - 1 - back);
        from_state = fma(q[t], q_sums[t], fma(k[t], read_sums[t], from_state));
        g[t] = from_state;
    }
    let mut to_state = 0.0f32;
    #[unroll]
    for t in 0..chunk {
        g[t] += to_state;
        to_state = fma(k[t], write_sums[t], to_state);
    }
    #[unroll]
    for t in 0..chunk {
        read_sums[t] += write_sums[t];
    }

    let mut passing = Array::<f32>::new(chunk);
    #[unroll]
    for i in 0..chunk {
        let own = pairs[comptime!(i * (record.rows() / 4) + i / 4)].extract(comptime!(i % 4));
        q_sums[i] = fma(own, k[i], q_sums[i]);
        let mut later = own * q[i];
        let mut carried = 1.0f32;
        #[unroll]
        for t in comptime!(i + 1)..chunk {
            let at = comptime!(i * (record.rows() / 4) + t / 4);
            let o = pairs[at].extract(comptime!(t % 4));
            let p =
                pairs[comptime!(record.chunk * record.rows() / 4) + at].extract(comptime!(t % 4));
            carried *= decay[t];
            let key = k[i] * carried;
            q_sums[t] = fma(o, key, q_sums[t]);
            read_sums[t] = fma(p, key, read_sums[t]);
            let pull = fma(p, k[t], o * q[t]);
            later = fma(pull, carried, later);
            passing[t] = pull * key;
        }
        read_sums[i] += later;
        let mut sum = 0.0f32;
        #[unroll]
        for back in 0..comptime!(record.chunk - 1 - i) {
            let t = comptime!(record.chunk - 1 - back);
            sum += passing[t];
            g[t] += sum;
        }
    }

    #[unroll]
    for t in 0..chunk {
        let at = at + comptime!(t * record.width());
        result[at] = scale * q_sums[t];
        result[at + comptime!(record.chunk * record.width())] = read_sums[t];
        result[at + comptime!(2 * record.chunk * record.width())] = g[t];
    }
}
