//! The operator from Burn's primitive operations: differentiable, on every device and for every dtype.

mod chunked;
mod decay;
mod prepare;
mod recurrent;

use burn::tensor::Tensor;

use super::inputs::KdaInputs;
use super::plan::{KdaPlan, Sequence};
use prepare::prepare;
pub use recurrent::kda_reference;

/// The tensors once they are prepared: one dtype, one head count, queries scaled.
#[derive(Clone)]
struct Prepared {
    /// `[B, T, HV, K]`, times the scale.
    q: Tensor<4>,
    /// `[B, T, HV, K]`.
    k: Tensor<4>,
    /// `[B, T, HV, V]`.
    v: Tensor<4>,
    /// `[B, T, HV, K]`, log decay.
    g: Tensor<4>,
    /// `[B, T, HV]`, write strength.
    beta: Tensor<3>,
    /// `[B, HV, K, V]`.
    state: Tensor<4>,
}

/// The output and the states.
pub(super) fn forward(inputs: KdaInputs) -> (Tensor<4>, Tensor<4>) {
    let chunk_size = inputs.plan.chunk_size;
    by_sequence(inputs, |sequence| match sequence.v.dims() {
        [_, 1, ..] => recurrent::recurrent(sequence),
        [_, tokens, ..] => chunked::chunked(sequence, chunk_size.min(tokens.next_power_of_two())),
    })
}

/// The output, and the state after every token, `[B, T, HV, K, V]`, from the states that the rows start from.
pub(super) fn snapshots(inputs: KdaInputs, initial: Tensor<4>) -> (Tensor<4>, Tensor<5>) {
    let dtype = inputs.v.dtype();
    let [_, tokens, ..] = inputs.v.dims();
    let whole = prepare(inputs);
    let mut memory = initial;
    let mut outputs = Vec::new();
    let mut states = Vec::new();
    for t in 0..tokens {
        let cut = |x: &Tensor<4>| x.clone().narrow(1, t, 1);
        let (o, state) = recurrent::recurrent(Prepared {
            q: cut(&whole.q),
            k: cut(&whole.k),
            v: cut(&whole.v),
            g: cut(&whole.g),
            beta: whole.beta.clone().narrow(1, t, 1),
            state: memory,
        });
        outputs.push(o);
        states.push(state.clone());
        memory = state;
    }
    (
        Tensor::cat(outputs, 1).cast(dtype),
        Tensor::stack(states, 1),
    )
}

/// Runs `compute` on batches of sequences: on all at once where each fills its row, else on one after the other.
fn by_sequence(
    inputs: KdaInputs,
    compute: impl Fn(Prepared) -> (Tensor<4>, Tensor<4>),
) -> (Tensor<4>, Tensor<4>) {
    let dtype = inputs.v.dtype();
    if fills_its_rows(&inputs) {
        let (o, state) = compute(prepare(inputs));
        return (o.cast(dtype), state);
    }
    let [_, _, heads, width] = inputs.v.dims();
    let mut o = inputs.v.zeros_like();
    let mut states = inputs.state.clone();
    for sequence in inputs.plan.sequences.clone() {
        if sequence.len == 0 {
            continue;
        }
        let Sequence { row, slot, .. } = sequence;
        let (part, state) = compute(prepare(cut_out(&inputs, sequence)));
        let place = [
            row..row + 1,
            sequence.start..sequence.end(),
            0..heads,
            0..width,
        ];
        o = o.slice_assign(place, part.cast(dtype));
        let [_, heads, key_dim, value_dim] = states.dims();
        states = states.slice_assign([slot..slot + 1, 0..heads, 0..key_dim, 0..value_dim], state);
    }
    (o, states)
}

fn fills_its_rows(inputs: &KdaInputs) -> bool {
    let [rows, tokens, ..] = inputs.v.dims();
    let [slots, ..] = inputs.state.dims();
    let sequences = &inputs.plan.sequences;
    let whole = |(row, sequence): (usize, &Sequence)| {
        *sequence
            == Sequence {
                row,
                start: 0,
                len: tokens,
                slot: row,
            }
    };
    slots == rows && sequences.len() == rows && sequences.iter().enumerate().all(whole)
}

/// The inputs of one sequence alone.
fn cut_out(inputs: &KdaInputs, sequence: Sequence) -> KdaInputs {
    let Sequence {
        row,
        start,
        len,
        slot,
    } = sequence;
    let cut = |x: &Tensor<4>| x.clone().narrow(0, row, 1).narrow(1, start, len);
    KdaInputs {
        q: cut(&inputs.q),
        k: cut(&inputs.k),
        v: cut(&inputs.v),
        g: cut(&inputs.g),
        beta: inputs.beta.clone().narrow(0, row, 1).narrow(1, start, len),
        a_log: inputs.a_log.clone(),
        dt_bias: inputs.dt_bias.clone(),
        state: inputs.state.clone().narrow(0, slot, 1),
        plan: KdaPlan {
            sequences: vec![Sequence {
                row: 0,
                start: 0,
                len,
                slot: 0,
            }],
            ..inputs.plan.clone()
        },
    }
}
