//! The kernel for Burn's CPU backend: 12 bytes a number forward, 20 backward.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};
use burn_flex::FlexTensor;
use macerator::Simd;

use super::definition::SwigluOps;
use burn_kimi_kernels::cpu::lanes::{load_part, registers, sigmoid, splat, store_part};
use burn_kimi_kernels::cpu::shared::SharedValues;
use burn_kimi_kernels::cpu::tensors::{Unwritten, cast, contiguous, values};
use burn_kimi_kernels::cpu::threads::for_each;

/// Numbers of a task.
const BLOCK: usize = 1 << 14;

impl SwigluOps for Flex {
    fn swiglu(gate: FlexTensor, up: FlexTensor) -> FlexTensor {
        let storage = gate.dtype();
        let (gate, up) = (contiguous(gate), contiguous(up));
        let mut y = Unwritten::new(gate.shape());
        let (inputs, to) = ([values(&gate), values(&up)], y.shared());
        for_each(tasks(&gate), || (), |(), task| forward(inputs, task, to));
        // SAFETY: the tasks write every number.
        cast(unsafe { y.written() }, storage)
    }

    fn swiglu_backward(
        gate: FlexTensor,
        up: FlexTensor,
        gradient: FlexTensor,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let storage = gate.dtype();
        let [gate, up, gradient] = [gate, up, gradient].map(contiguous);
        let [mut of_gate, mut of_up] = [&gate, &up].map(|x| Unwritten::new(x.shape()));
        let inputs = [values(&gate), values(&up), values(&gradient)];
        let results = [of_gate.shared(), of_up.shared()];
        for_each(
            tasks(&gate),
            || (),
            |(), task| backward(inputs, task, results),
        );
        // SAFETY: the tasks write every number.
        let [of_gate, of_up] = [of_gate, of_up].map(|x| cast(unsafe { x.written() }, storage));
        (of_gate, of_up)
    }
}

fn tasks(x: &FlexTensor) -> usize {
    values(x).len().div_ceil(BLOCK)
}

#[macerator::with_simd]
fn forward<'a, S: Simd>(inputs: [&'a [f32]; 2], task: usize, y: SharedValues<'a>) {
    let [gate, up] = inputs;
    let range = task * BLOCK..gate.len().min((task + 1) * BLOCK);
    let (gate, up) = (&gate[range.clone()], &up[range.clone()]);
    // SAFETY: no other task has this range.
    let y = unsafe { y.part(range) };
    for at in registers::<S>(gate.len()) {
        let gate = load_part::<S>(gate, at);
        store_part(y, at, gate * sigmoid(gate) * load_part(up, at));
    }
}

#[macerator::with_simd]
fn backward<'a, S: Simd>(inputs: [&'a [f32]; 3], task: usize, results: [SharedValues<'a>; 2]) {
    let ([gate, up, gradient], [of_gate, of_up]) = (inputs, results);
    let range = task * BLOCK..gate.len().min((task + 1) * BLOCK);
    let (gate, up, gradient) = (
        &gate[range.clone()],
        &up[range.clone()],
        &gradient[range.clone()],
    );
    // SAFETY: no other task has this range.
    let (of_gate, of_up) = unsafe { (of_gate.part(range.clone()), of_up.part(range)) };
    for at in registers::<S>(gate.len()) {
        let (gate, d) = (load_part::<S>(gate, at), load_part::<S>(gradient, at));
        let open = sigmoid(gate);
        store_part(of_up, at, d * gate * open);
        let slope = open * gate.mul_add(splat::<S>(1.0) - open, splat(1.0));
        store_part(of_gate, at, d * load_part(up, at) * slope);
    }
}
