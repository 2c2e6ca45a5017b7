//! The forward pass: steps, or records and a walk over them, window by window.

use burn_cubecl::tensor::CubeTensor;

use super::gate;
use super::inputs::{Inputs, own};
use super::plan::{self, Tiles};
use super::record::Record;
use super::scan::{Keep, Walk};
use super::step;
use super::table::{Window, batches};

/// The output and the states.
pub(super) fn forward(inputs: &Inputs, state: CubeTensor) -> (CubeTensor, CubeTensor) {
    let plan = &inputs.plan;
    // A step is a chunk of one token; the same bits come from the first token of a longer chunk.
    let chunk = if plan.is_step() {
        1
    } else {
        plan::chunk(plan.chunk_size)
    };
    walk(inputs, state, chunk, Keep::Output, &inputs.scratch(4))
}

/// The output; the states after every token go to `snapshots`.
pub(super) fn snapshots(inputs: &Inputs, state: CubeTensor, snapshots: &CubeTensor) -> CubeTensor {
    let (o, _) = walk(inputs, state, 1, Keep::Snapshots, snapshots);
    o
}

fn walk(
    inputs: &Inputs,
    state: CubeTensor,
    chunk: usize,
    keep: Keep,
    kept: &CubeTensor,
) -> (CubeTensor, CubeTensor) {
    let sizes = inputs.sizes;
    let record = Record {
        chunk,
        key_dim: sizes.key_dim,
        backward: false,
    };
    let steps = chunk == 1 && inputs.limits.bindings >= step::BINDINGS;
    let at_once = match steps {
        true => usize::MAX,
        false => inputs
            .limits
            .chunks_at_once(sizes.value_heads * record.len()),
    };
    let o = inputs.for_tokens(&inputs.v);
    let states = own(state);
    let nothing = inputs.scratch(4);
    let gates = (!steps).then(|| gate::pack(inputs));
    let fill = inputs.sequences_at_once();
    for batch in batches(&inputs.plan.sequences, sizes.tokens, chunk, at_once, fill) {
        let count = batch.sequences * sizes.value_heads;
        let tiles = Tiles::new(inputs.limits, record, sizes.value_dim, count);
        for window in &batch.windows {
            let table = inputs.upload(&window.table);
            let Some(gates) = &gates else {
                step::launch(inputs, window, tiles, keep, &table, [&states, &o, kept]);
                continue;
            };
            let records = inputs.records(record, window, &table, gates);
            let walk = Walk {
                records: &records,
                table: &table,
                window,
                tiles,
            };
            walk.scan(inputs, &states, keep, [&o, kept, &nothing]);
        }
    }
    (o, states)
}

impl Inputs {
    /// The records of a window's chunks.
    pub(super) fn records(
        &self,
        record: Record,
        window: &Window,
        table: &CubeTensor,
        gates: &CubeTensor,
    ) -> CubeTensor {
        let records = self.scratch(window.chunks * self.sizes.value_heads * record.len());
        super::prepare::launch(self, record, window, [table, gates, &records]);
        records
    }
}
