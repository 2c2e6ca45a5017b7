//! The kernel for Burn's CPU backend.
//!
//! A task is some channels of one sequence. It goes along the tokens with the window in registers, a register of channels at a time: `2 W`
//! operations and 8 bytes a number forward; backward, where the sums are computed again, `6 W` operations and 12 bytes.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};
use burn_flex::FlexTensor;
use macerator::Simd;

use super::Activation;
use super::definition::ShortConvolutionOps;
use burn_kimi_kernels::cpu::lanes::{Lanes, load_part, registers, sigmoid, splat, store_part};
use burn_kimi_kernels::cpu::shared::SharedValues;
use burn_kimi_kernels::cpu::tensors::{Unwritten, cast, contiguous, values, zeros};
use burn_kimi_kernels::cpu::threads::for_each;

/// The longest window that is kept in registers; longer ones go through primitive operations.
pub(super) const MOST_TAPS: usize = 4;

/// Channels of a task.
const BLOCK: usize = 64;

impl ShortConvolutionOps for Flex {
    fn short_convolution(
        x: FlexTensor,
        weight: FlexTensor,
        window: FlexTensor,
        activation: Activation,
    ) -> FlexTensor {
        let storage = x.dtype();
        let inputs = Inputs::new(x, weight, window);
        let problem = inputs.problem(activation);
        let mut y = Unwritten::new(inputs.x.shape());
        let rows = y.shared();
        for_each(
            problem.tasks(),
            || (),
            |(), task| forward(&problem, task, rows),
        );
        // SAFETY: the tasks write every token.
        cast(unsafe { y.written() }, storage)
    }

    fn short_convolution_backward(
        x: FlexTensor,
        weight: FlexTensor,
        window: FlexTensor,
        gradient: FlexTensor,
        activation: Activation,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let storage = [&x, &weight, &window].map(FlexTensor::dtype);
        let inputs = Inputs::new(x, weight, window);
        let problem = inputs.problem(activation);
        let gradient = contiguous(gradient);
        let [mut x, mut window] = [&inputs.x, &inputs.window].map(|x| Unwritten::new(x.shape()));
        // `[B, W, C]`: the sum over the sequences is taken at the end, in their order.
        let mut taps = vec![0.0; problem.batch * problem.taps * problem.channels];
        let results = Gradients {
            x: x.shared(),
            window: window.shared(),
            taps: SharedValues::of_slice(&mut taps),
        };
        for_each(
            problem.tasks(),
            || (),
            |(), task| {
                backward(&problem, task, values(&gradient), results);
            },
        );
        // SAFETY: the tasks write every token, and every row of the window.
        let (x, window) = unsafe { (x.written(), window.written()) };
        let mut weight = zeros(inputs.weight.shape());
        let sums = weight.storage_mut::<f32>();
        for of_sequence in taps.chunks_exact(problem.taps * problem.channels) {
            for (j, row) in of_sequence.chunks_exact(problem.channels).enumerate() {
                for (c, term) in row.iter().enumerate() {
                    sums[c * problem.taps + j] += term;
                }
            }
        }
        let [x_type, weight_type, window_type] = storage;
        (
            cast(x, x_type),
            cast(weight, weight_type),
            cast(window, window_type),
        )
    }
}

/// The inputs as contiguous `f32`.
struct Inputs {
    x: FlexTensor,
    weight: FlexTensor,
    window: FlexTensor,
    /// `[W, C]`.
    taps: Vec<f32>,
}

impl Inputs {
    fn new(x: FlexTensor, weight: FlexTensor, window: FlexTensor) -> Self {
        let (x, weight, window) = (contiguous(x), contiguous(weight), contiguous(window));
        let [channels, _, count] = weight.shape().dims::<3>();
        let by_channel = values(&weight);
        let taps = (0..count)
            .flat_map(|j| (0..channels).map(move |c| by_channel[c * count + j]))
            .collect();
        Self {
            taps,
            x,
            weight,
            window,
        }
    }

    fn problem(&self, activation: Activation) -> Problem<'_> {
        let [batch, tokens, channels] = self.x.shape().dims::<3>();
        let [_, _, taps] = self.weight.shape().dims::<3>();
        Problem {
            x: values(&self.x),
            window: values(&self.window),
            weight: &self.taps,
            activation,
            batch,
            tokens,
            channels,
            taps,
        }
    }
}

struct Problem<'a> {
    x: &'a [f32],
    window: &'a [f32],
    /// `[W, C]`.
    weight: &'a [f32],
    activation: Activation,
    batch: usize,
    tokens: usize,
    channels: usize,
    taps: usize,
}

/// Some channels of one sequence.
#[derive(Clone, Copy)]
struct Task {
    sequence: usize,
    channel: usize,
    width: usize,
}

#[derive(Clone, Copy)]
struct Gradients<'a> {
    x: SharedValues<'a>,
    window: SharedValues<'a>,
    taps: SharedValues<'a>,
}

impl<'a> Problem<'a> {
    fn tasks(&self) -> usize {
        self.batch * self.channels.div_ceil(BLOCK)
    }

    fn task(&self, index: usize) -> Task {
        let blocks = self.channels.div_ceil(BLOCK);
        let channel = index % blocks * BLOCK;
        Task {
            sequence: index / blocks,
            channel,
            width: BLOCK.min(self.channels - channel),
        }
    }

    /// The task's channels in row `row` of the sequence, counted from the first row of the window on.
    #[inline(always)]
    fn input(&self, task: Task, row: usize) -> &'a [f32] {
        let past = self.taps - 1;
        let (rows, row) = match row.checked_sub(past) {
            Some(token) => (self.x, task.sequence * self.tokens + token),
            None => (self.window, task.sequence * past + row),
        };
        &rows[row * self.channels + task.channel..][..task.width]
    }

    /// The taps of the task's channels from channel `at` on.
    #[inline(always)]
    fn taps<S: Simd, const W: usize>(&self, task: Task, at: usize) -> [Lanes<S>; W] {
        let mut taps = [splat::<S>(0.0); W];
        for (j, tap) in taps.iter_mut().enumerate() {
            let row = &self.weight[j * self.channels + task.channel..][..task.width];
            *tap = load_part(row, at);
        }
        taps
    }

    /// The inputs that the first token sees besides its own, behind a place for one older.
    #[inline(always)]
    fn first_inputs<S: Simd, const W: usize>(&self, task: Task, at: usize) -> [Lanes<S>; W] {
        let mut inputs = [splat::<S>(0.0); W];
        for row in 0..W - 1 {
            inputs[row + 1] = load_part(self.input(task, row), at);
        }
        inputs
    }

    /// The task's part of row `row` of a tensor of `rows` rows a sequence.
    ///
    /// # Safety
    ///
    /// Nobody else may hold it.
    #[inline(always)]
    unsafe fn part(
        &self,
        of: SharedValues<'a>,
        task: Task,
        rows: usize,
        row: usize,
    ) -> &'a mut [f32] {
        let start = (task.sequence * rows + row) * self.channels + task.channel;
        // SAFETY: the caller's promise.
        unsafe { of.part(start..start + task.width) }
    }
}

#[macerator::with_simd]
fn forward<'a, S: Simd>(problem: &Problem<'a>, task: usize, y: SharedValues<'a>) {
    let task = problem.task(task);
    match problem.taps {
        1 => forward_taps::<S, 1>(problem, task, y),
        2 => forward_taps::<S, 2>(problem, task, y),
        3 => forward_taps::<S, 3>(problem, task, y),
        4 => forward_taps::<S, 4>(problem, task, y),
        _ => unreachable!("the caller asks for at most {MOST_TAPS} taps"),
    }
}

#[inline(always)]
fn forward_taps<'a, S: Simd, const W: usize>(
    problem: &Problem<'a>,
    task: Task,
    y: SharedValues<'a>,
) {
    for at in registers::<S>(task.width) {
        let weight = problem.taps::<S, W>(task, at);
        let mut inputs = problem.first_inputs::<S, W>(task, at);
        for t in 0..problem.tokens {
            let input = load_part(problem.input(task, t + W - 1), at);
            let sum = step::<S, W>(&weight, &mut inputs, input);
            let result = match problem.activation {
                Activation::Identity => sum,
                Activation::Silu => sum * sigmoid(sum),
            };
            // SAFETY: no other task has these channels of this sequence.
            let row = unsafe { problem.part(y, task, problem.tokens, t) };
            store_part(row, at, result);
        }
    }
}

/// Moves the window on by one input and returns the sum over it.
#[inline(always)]
fn step<S: Simd, const W: usize>(
    weight: &[Lanes<S>; W],
    inputs: &mut [Lanes<S>; W],
    input: Lanes<S>,
) -> Lanes<S> {
    push::<S, W>(inputs, input);
    let mut sum = weight[0] * inputs[0];
    for j in 1..W {
        sum = weight[j].mul_add(inputs[j], sum);
    }
    sum
}

#[inline(always)]
fn push<S: Simd, const W: usize>(window: &mut [Lanes<S>; W], newest: Lanes<S>) {
    for j in 1..W {
        window[j - 1] = window[j];
    }
    window[W - 1] = newest;
}

#[macerator::with_simd]
fn backward<'a, S: Simd>(
    problem: &Problem<'a>,
    task: usize,
    gradient: &'a [f32],
    results: Gradients<'a>,
) {
    let task = problem.task(task);
    match problem.taps {
        1 => backward_taps::<S, 1>(problem, task, gradient, results),
        2 => backward_taps::<S, 2>(problem, task, gradient, results),
        3 => backward_taps::<S, 3>(problem, task, gradient, results),
        4 => backward_taps::<S, 4>(problem, task, gradient, results),
        _ => unreachable!("the caller asks for at most {MOST_TAPS} taps"),
    }
}

/// One walk along the rows of inputs, window first: when it is at row `t`, the sum of token `t` has its gradient, and with it the input of row `t`,
/// which no later sum reads, has its own.
#[inline(always)]
fn backward_taps<'a, S: Simd, const W: usize>(
    problem: &Problem<'a>,
    task: Task,
    gradient: &[f32],
    results: Gradients<'a>,
) {
    let (tokens, past) = (problem.tokens, W - 1);
    for at in registers::<S>(task.width) {
        let weight = problem.taps::<S, W>(task, at);
        let mut inputs = problem.first_inputs::<S, W>(task, at);
        let mut of_sums = [splat::<S>(0.0); W];
        let mut of_weight = [splat::<S>(0.0); W];
        for t in 0..past + tokens {
            let mut d = splat::<S>(0.0);
            if t < tokens {
                let start = (task.sequence * tokens + t) * problem.channels + task.channel;
                d = load_part(&gradient[start..][..task.width], at);
                let input = load_part(problem.input(task, t + past), at);
                let sum = step::<S, W>(&weight, &mut inputs, input);
                if problem.activation == Activation::Silu {
                    let open = sigmoid(sum);
                    d *= open * sum.mul_add(splat::<S>(1.0) - open, splat(1.0));
                }
                for j in 0..W {
                    of_weight[j] = d.mul_add(inputs[j], of_weight[j]);
                }
            }
            let of_input = step::<S, W>(&reversed::<S, W>(&weight), &mut of_sums, d);
            // SAFETY: no other task has these channels of this sequence; so below.
            let row = match t.checked_sub(past) {
                Some(token) => unsafe { problem.part(results.x, task, tokens, token) },
                None => unsafe { problem.part(results.window, task, past, t) },
            };
            store_part(row, at, of_input);
        }
        for (j, of_tap) in of_weight.into_iter().enumerate() {
            let row = unsafe { problem.part(results.taps, task, W, j) };
            store_part(row, at, of_tap);
        }
    }
}

#[inline(always)]
fn reversed<S: Simd, const W: usize>(weight: &[Lanes<S>; W]) -> [Lanes<S>; W] {
    let mut reversed = *weight;
    for j in 0..W {
        reversed[j] = weight[W - 1 - j];
    }
    reversed
}
