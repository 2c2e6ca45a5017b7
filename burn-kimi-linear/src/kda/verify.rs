use burn::tensor::{Int, Tensor};

use super::inputs::KdaInputs;
use super::plan::{Preparation, Sequence};
use super::projections::prepare_inputs;
use super::{KdaGate, KdaOptions, KdaPath, KdaProjections, KdaState, primitive};

/// The memory before the first and after every token of a run, for taking back tokens that were only a guess.
#[derive(Clone, Debug)]
pub struct KdaSnapshots {
    /// `[B, HV, K, V]`.
    initial: Tensor<4>,
    /// `[B, T, HV, K, V]`.
    after: Tensor<5>,
}

/// Several tokens at once, as [`kda`](super::kda) does one after the other, with the memory after each of them.
///
/// This is the verification step of speculative decoding: the outputs of all guesses come from one call, and
/// [`KdaSnapshots::accept`] gives the memory behind those that were right. Where the device has a kernel, outputs and memories are those
/// of single steps, bit for bit.
///
/// It is for inference: gradients do not flow through it.
///
/// # Panics
///
/// As [`kda`](super::kda), and if the options give the rows lengths of their own.
pub fn kda_verify(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    g: Tensor<4>,
    beta: Tensor<3>,
    initial_state: Option<KdaState>,
    options: &KdaOptions,
) -> (Tensor<4>, KdaSnapshots) {
    let preparation = Preparation::None;
    let inputs = KdaInputs::new([q, k, v, g], beta, initial_state, preparation, options);
    verify(inputs, options)
}

/// [`kda_verify`] from a layer's projections.
///
/// # Panics
///
/// As [`kda_projected`](super::kda_projected), and if the options give the rows lengths of their own.
pub fn kda_verify_projected(
    projections: KdaProjections,
    gate: KdaGate,
    initial_state: Option<KdaState>,
    options: &KdaOptions,
) -> (Tensor<4>, KdaSnapshots) {
    verify(
        prepare_inputs(projections, gate, initial_state, options),
        options,
    )
}

fn verify(inputs: KdaInputs, options: &KdaOptions) -> (Tensor<4>, KdaSnapshots) {
    let mut inputs = inputs.without_gradients();
    let [rows, tokens, heads, value_dim] = inputs.v.dims();
    let [_, _, _, key_dim] = inputs.q.dims();
    let whole = |(row, sequence): (usize, &Sequence)| {
        (sequence.row, sequence.start, sequence.len) == (row, 0, tokens)
    };
    assert!(
        inputs.plan.sequences.len() == rows && inputs.plan.sequences.iter().enumerate().all(whole),
        "kda_verify: every row of the batch must be one whole sequence"
    );
    let slots = inputs
        .plan
        .sequences
        .iter()
        .map(|sequence| sequence.slot as i64);
    let slots: Vec<i64> = slots.collect();
    let initial = match rows {
        0 => inputs.state.clone(),
        _ => inputs.state.clone().select(
            0,
            Tensor::<1, Int>::from_data(slots.as_slice(), &inputs.v.device()),
        ),
    };
    if inputs.is_empty() {
        let dims = [rows, tokens, heads, key_dim, value_dim];
        let after = Tensor::zeros(dims, (&inputs.v.device(), inputs.state.dtype()));
        return (inputs.v.zeros_like(), KdaSnapshots { initial, after });
    }
    // The pool stays with the caller: a kernel that got it would have to copy all of it.
    inputs.state = initial.clone();
    for (slot, sequence) in inputs.plan.sequences.iter_mut().enumerate() {
        sequence.slot = slot;
    }
    let path = KdaPath::choose(&inputs.v.device(), inputs.v.dtype(), key_dim, options);
    let (o, after) = match path {
        #[cfg(feature = "kernels")]
        KdaPath::Kernel => super::kernel::snapshots(inputs),
        #[cfg(not(feature = "kernels"))]
        KdaPath::Kernel => unreachable!("no path leads to a kernel in a build without them"),
        KdaPath::Primitive => primitive::snapshots(inputs, initial.clone()),
    };
    (o, KdaSnapshots { initial, after })
}

impl KdaSnapshots {
    /// The memory of every sequence after the first `accepted[n]` of its tokens; 0 takes all of them back.
    ///
    /// # Panics
    ///
    /// If there is not one number for every sequence, or one is above the number of tokens.
    pub fn accept(&self, accepted: &[usize]) -> KdaState {
        let [rows, tokens, heads, key_dim, value_dim] = self.after.dims();
        assert!(
            accepted.len() == rows,
            "KdaSnapshots: {} numbers of accepted tokens were given for {rows} sequences",
            accepted.len()
        );
        let states = accepted.iter().enumerate().map(|(row, &count)| {
            assert!(
                count <= tokens,
                "KdaSnapshots: {count} tokens of sequence {row} were accepted, but it has {tokens}"
            );
            match count {
                0 => self.initial.clone().narrow(0, row, 1),
                _ => {
                    let snapshot = self.after.clone().narrow(0, row, 1).narrow(1, count - 1, 1);
                    snapshot.reshape([1, heads, key_dim, value_dim])
                }
            }
        });
        let states: Vec<_> = states.collect();
        KdaState::from_key_value(match states.len() {
            0 => self.initial.clone(),
            _ => Tensor::cat(states, 0),
        })
    }
}
