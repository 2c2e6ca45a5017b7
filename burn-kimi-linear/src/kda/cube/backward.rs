//! The backward pass: window by window from the last to the first.
//!
//! Nothing is saved by the forward pass. The states that enter the windows are computed first, by a walk that keeps only those; then each
//! window computes its records, walks over them once more for the states that enter its chunks, and back. Scratch memory beyond that of one
//! window is `K V` numbers for each window of a batch, its sequence and value head; see [`super::table`] for how many there are.

use burn::backend::TensorMetadata;
use burn::backend::ops::{FloatTensorOps, IntTensorOps};
use burn::tensor::{DType, Shape, TensorData};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::zeros_client;
use burn_cubecl::tensor::CubeTensor;

use super::gate::{self, Form};
use super::inputs::{Inputs, own};
use super::plan::{self, Tiles};
use super::record::Record;
use super::scan::{Keep, Walk};
use super::table::{Batch, batches};
use super::{chain, gradients, sums};
use crate::kda::definition::KdaTensors;

/// The gradients of all tensors.
pub(super) fn backward(
    inputs: &Inputs,
    state: CubeTensor,
    output_gradient: CubeTensor,
    state_gradient: CubeTensor,
) -> KdaTensors<CubeBackend> {
    let sizes = inputs.sizes;
    let record = Record {
        chunk: plan::chunk(inputs.plan.chunk_size),
        key_dim: sizes.key_dim,
        backward: true,
    };
    let of_a_state = sizes.value_heads * sizes.value_dim * record.width();
    let of_a_record = sizes.value_heads * record.len();
    let of_the_deltas = 2 * sizes.value_heads * record.chunk * sizes.value_dim;
    let largest = of_a_state.max(of_a_record).max(of_the_deltas);
    let batches = batches(
        &inputs.plan.sequences,
        sizes.tokens,
        record.chunk,
        inputs.limits.chunks_at_once(largest),
        inputs.sequences_at_once(),
    );
    let chunks: usize = batches
        .iter()
        .flat_map(|batch| &batch.windows)
        .map(|window| window.chunks)
        .sum();

    let of_the_gate = match inputs.preparing.form {
        Form::Prepared => 1,
        _ => chunks * sizes.value_heads * 2 * sizes.key_dim,
    };
    let pass = Pass {
        inputs,
        record,
        gates: gate::pack(inputs),
        output_gradient: into_contiguous(output_gradient),
        q: inputs.for_tokens(&inputs.q),
        k: inputs.for_tokens(&inputs.k),
        v: inputs.for_tokens(&inputs.v),
        g: inputs.for_tokens(&inputs.g),
        beta: inputs.for_tokens(&inputs.beta),
        state: own(state_gradient),
        gate_sums: inputs.scratch(of_the_gate),
    };
    for batch in &batches {
        pass.run(batch, &state);
    }
    let [a_log, dt_bias] = pass.gate_gradients(chunks);
    KdaTensors {
        q: pass.q,
        k: pass.k,
        v: pass.v,
        g: pass.g,
        beta: pass.beta,
        a_log,
        dt_bias,
        state: pass.state,
    }
}

/// The gradients while they are filled.
struct Pass<'a> {
    inputs: &'a Inputs,
    record: Record,
    gates: CubeTensor,
    output_gradient: CubeTensor,
    q: CubeTensor,
    k: CubeTensor,
    v: CubeTensor,
    g: CubeTensor,
    beta: CubeTensor,
    state: CubeTensor,
    /// `[chunks, HV, 2, K]`.
    gate_sums: CubeTensor,
}

impl Pass<'_> {
    fn run(&self, batch: &Batch, state: &CubeTensor) {
        let (inputs, record, sizes) = (self.inputs, self.record, self.inputs.sizes);
        let count = batch.sequences * sizes.value_heads;
        let tiles = Tiles::new(inputs.limits, record, sizes.value_dim, count);
        let state = self.states_of(batch, state);
        let entering_windows = self.entering_windows(batch, &state, tiles);
        for (window, states) in batch.windows.iter().zip(entering_windows).rev() {
            let places = window.chunks * sizes.value_heads;
            let table = inputs.upload(&window.table);
            let records = inputs.records(record, window, &table, &self.gates);
            let entering = inputs.scratch(places * sizes.value_dim * record.width());
            let leaving = inputs.scratch(places * sizes.value_dim * record.width());
            let deltas = inputs.scratch(2 * places * record.chunk * sizes.value_dim);
            let of_batch = inputs.upload(&window.table_of_batch());
            let walk = Walk {
                records: &records,
                table: &table,
                window,
                tiles,
            };
            let nothing = inputs.nothing_like(&inputs.v);
            let of_batch = Walk {
                table: &of_batch,
                ..walk
            };
            of_batch.scan(
                inputs,
                &own(states),
                Keep::Deltas,
                [&nothing, &deltas, &entering],
            );
            walk.reverse(
                inputs,
                &self.output_gradient,
                &self.state,
                [&leaving, &deltas, &self.v],
            );
            let gradients = gradients::launch(
                inputs,
                record,
                window,
                &table,
                &records,
                &self.output_gradient,
                [&entering, &leaving, &deltas],
            );
            chain::launch(
                inputs,
                record,
                window,
                [&table, &records, &gradients],
                [&self.q, &self.k, &self.beta, &self.g],
                &self.gate_sums,
            );
        }
    }

    /// The states of the batch's sequences, in its order.
    fn states_of(&self, batch: &Batch, state: &CubeTensor) -> CubeTensor {
        let all = state.shape()[0];
        if batch.slots.iter().copied().eq(0..all as u32) {
            return state.clone();
        }
        let slots: Vec<i32> = batch.slots.iter().map(|&slot| slot as i32).collect();
        let slots = TensorData::new(slots, [batch.sequences]);
        let slots = CubeBackend::int_from_data(slots, &state.device);
        CubeBackend::float_select(state.clone(), 0, slots)
    }

    /// The states before each window.
    fn entering_windows(&self, batch: &Batch, state: &CubeTensor, tiles: Tiles) -> Vec<CubeTensor> {
        let inputs = self.inputs;
        let record = Record {
            backward: false,
            ..self.record
        };
        let mut states = vec![state.clone()];
        for window in &batch.windows[..batch.windows.len() - 1] {
            let next = into_contiguous(states[states.len() - 1].copy());
            let table = inputs.upload(&window.table_of_batch());
            let records = inputs.records(record, window, &table, &self.gates);
            let tiles = Tiles { record, ..tiles };
            let walk = Walk {
                records: &records,
                table: &table,
                window,
                tiles,
            };
            let nothing = [
                inputs.nothing_like(&inputs.v),
                inputs.scratch(4),
                inputs.scratch(4),
            ];
            walk.scan(inputs, &next, Keep::Nothing, nothing.each_ref());
            states.push(next);
        }
        states
    }

    /// The gradients of `a_log` and `dt_bias`: zeros where nothing was prepared.
    fn gate_gradients(&self, chunks: usize) -> [CubeTensor; 2] {
        let (inputs, sizes) = (self.inputs, self.inputs.sizes);
        if inputs.preparing.form == Form::Prepared || chunks == 0 {
            return [
                vec![sizes.value_heads],
                vec![sizes.value_heads, sizes.key_dim],
            ]
            .map(|shape| {
                let (client, device) = (inputs.v.client.clone(), inputs.v.device.clone());
                zeros_client(client, device, Shape::from(shape), DType::F32)
            });
        }
        sums::gate_gradients(inputs, self.gate_sums.clone(), chunks)
    }
}
