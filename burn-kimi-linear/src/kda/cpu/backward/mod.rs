//! The backward pass: forward once more for the states between chunks, then back through the chunks.
//!
//! Nothing was saved but the inputs. For each head the forward walk ([`walk`]) leaves the state that entered every chunk, `T / C` matrices
//! `[K, V]`, and what every token corrected, `[T, V]`; both are freed with the call, and as many exist at a time as there are threads.
//! The walk back costs `12 K V` operations a token on top of the `4 K V` of the walk forward. Besides inputs and gradients, read and written once, the states
//! between chunks go to memory and come back: `8 K V / C` bytes a token and head, `2 C` operations for each.
//!
//! With the letters of [`super::super::primitive`] and `E` for the errors, `U = Diag(beta) E`:
//!
//! ```text
//! dU  = B^T dO + K_end dS1                 dR = (I + Diag(beta) A)^-T dU,  dP = Diag(beta) dR = dV
//! dB  = dO U^T                             dA = -dP U^T                     dbeta_t = <dR_t, E_t>
//! dS0 = Diag(e^{G_C}) dS1 + Q_start^T dO - K_start^T dP
//! ```
//!
//! The first and the last line are the walk back; columns of `V` do not meet there. The second and what follows from it ([`tokens`]) needs all columns, but
//! nothing of other chunks. So where there are fewer heads than threads, the walks are shared out by columns, and the rest by chunks; the gradients
//! of states and of what is written are then kept as well. The bits are the same.

mod tokens;
mod walk;

use std::ops::Range;

use burn_kimi_kernels::cpu::shared::SharedValues;
use burn_kimi_kernels::cpu::threads::{for_each, workers};
use macerator::Simd;

use super::chunk::{Chunk, Needs};
use super::forward::value_parts;
use super::problem::{Dims, Head, Problem};
use super::rows::{Rows, SharedRows};
use tokens::{ParameterGradients, Tokens, View};
use walk::{At, SharedTraces, Traces, Walk};

/// What the backward pass is given beside the inputs.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    /// The states that the sequences started from, `[S, HV, K, V]`.
    pub(super) states: &'a [f32],
    /// The gradient of the output.
    pub(super) o: Rows<'a>,
}

/// Where the gradients go.
#[derive(Clone, Copy)]
pub(super) struct Gradients<'a> {
    pub(super) q: SharedRows<'a>,
    pub(super) k: SharedRows<'a>,
    pub(super) v: SharedRows<'a>,
    pub(super) g: SharedRows<'a>,
    pub(super) beta: SharedRows<'a>,
    /// `[S, HV, K, V]`: on entry the gradients of the states that were left behind.
    pub(super) states: SharedValues<'a>,
    /// `[N, HV]`, a row for every sequence.
    pub(super) a_log: SharedValues<'a>,
    /// `[N, HV, K]`.
    pub(super) dt_bias: SharedValues<'a>,
}

/// One value head of one sequence.
#[derive(Clone, Copy)]
struct Task {
    head: Head,
    /// Its place in `[N, HV]`.
    parameters: usize,
    /// Whether the gradients of its queries and keys are still to be set rather than added to.
    is_first_of_group: bool,
}

/// The tokens of a chunk.
#[derive(Clone, Copy)]
struct Span {
    /// Which chunk of its sequence it is.
    index: usize,
    first: usize,
    len: usize,
}

impl Span {
    fn all(head: Head, dims: &Dims) -> impl DoubleEndedIterator<Item = Self> + use<> {
        let (len, chunk) = (head.sequence.len, dims.chunk);
        (0..len.div_ceil(chunk)).map(move |index| Self {
            index,
            first: index * chunk,
            len: chunk.min(len - index * chunk),
        })
    }
}

/// Writes the gradients.
pub(super) fn backward(problem: &Problem, given: Given, gradients: Gradients) {
    let dims = &problem.dims;
    let groups = problem.plan.sequences.len() * dims.heads / dims.group;
    if workers() > groups {
        return share_out(problem, groups, given, gradients);
    }
    for_each(
        groups,
        || {
            (
                Walk::new(dims, dims.value),
                Tokens::new(dims),
                Traces::new(dims),
            )
        },
        |(walk, tokens, traces), group| {
            for member in 0..dims.group {
                let task = Task::new(problem, group, member);
                run(problem, task, walk, tokens, traces, given, gradients);
            }
        },
    );
}

impl Task {
    /// The value heads that share the queries and keys of a head are a group. Groups are counted through the sequences.
    fn new(problem: &Problem, group: usize, member: usize) -> Self {
        let Dims {
            heads,
            group: members,
            ..
        } = problem.dims;
        let key_heads = heads / members;
        let (sequence, key_head) = (group / key_heads, group % key_heads);
        let value_head = key_head * members + member;
        Self {
            head: problem.head(sequence, value_head),
            parameters: sequence * heads + value_head,
            is_first_of_group: member == 0,
        }
    }
}

/// One head, by one thread.
#[macerator::with_simd]
fn run<'a, S: Simd>(
    problem: &Problem<'a>,
    task: Task,
    walk: &mut Walk,
    tokens: &mut Tokens,
    traces: &mut Traces,
    given: Given<'a>,
    gradients: Gradients<'a>,
) {
    let Dims { key, value, .. } = problem.dims;
    let Task { head, .. } = task;
    traces.make_room(problem, head);
    walk.forward::<S>(problem, head, 0..value, given, &traces.shared());
    walk.start_back(problem, head, 0..value, gradients);
    let mut sums = ParameterGradients::new(key);
    for span in Span::all(head, &problem.dims).rev() {
        walk.back::<S>(problem, head, span, 0..value, given);
        let view = View {
            entered: At::new(&traces.states, span.index * key),
            left_gradient: At::new(&walk.state, 0),
            errors: At::new(&traces.errors, span.first),
            error_gradients: At::new(&walk.error_gradients, 0),
            value_gradients: At::new(&walk.value_gradients, 0),
        };
        tokens.run::<S>(problem, task, span, &walk.chunk, view, given, gradients);
        sums.add(&tokens.parameters);
        walk.leave::<S>(value);
    }
    walk.finish_back(problem, head, 0..value, gradients);
    sums.write(problem, task, gradients);
}

/// Few heads, by all threads: walks by columns of the values, and the rest by chunks.
fn share_out(problem: &Problem, groups: usize, given: Given, gradients: Gradients) {
    let dims = &problem.dims;
    let heads = groups * dims.group;
    let task = |head: usize| Task::new(problem, head / dims.group, head % dims.group);
    let parts = value_parts(dims.value, workers().div_ceil(heads.max(1)));
    let mut traces: Vec<_> = (0..heads)
        .map(|head| Traces::of_both_walks(problem, task(head).head))
        .collect();
    let shared: Vec<_> = traces.iter_mut().map(Traces::shared).collect();
    for_each(
        heads * parts.len(),
        || Walk::new(dims, dims.value),
        |walk, index| {
            let (head, part) = (index / parts.len(), index % parts.len());
            let (task, columns) = (task(head), parts[part].clone());
            run_columns(
                problem,
                task,
                columns,
                walk,
                given,
                gradients,
                &shared[head],
            );
        },
    );

    let spans: Vec<_> = (0..groups)
        .flat_map(|group| {
            let head = task(group * dims.group).head;
            Span::all(head, dims).map(move |span| (group, span))
        })
        .collect();
    // By chunk and member.
    let width = dims.key + 1;
    let mut parameters = vec![0.0; spans.len() * dims.group * width];
    let places = SharedValues::of_slice(&mut parameters);
    for_each(
        spans.len(),
        || (Chunk::new(dims), Tokens::new(dims)),
        |(chunk, tokens), index| {
            let (group, span) = spans[index];
            for member in 0..dims.group {
                let head = group * dims.group + member;
                let (task, traces) = (task(head), &traces[head]);
                run_chunk(problem, task, span, chunk, tokens, traces, given, gradients);
                let at = (index * dims.group + member) * width;
                // SAFETY: no other task has this chunk.
                let place = unsafe { places.part(at..at + width) };
                tokens.parameters.copy_to(place);
            }
        },
    );
    for head in 0..heads {
        let (group, member) = (head / dims.group, head % dims.group);
        let mut sums = ParameterGradients::new(dims.key);
        for (index, _) in spans.iter().enumerate().rev() {
            if spans[index].0 == group {
                let at = (index * dims.group + member) * width;
                sums.add(&ParameterGradients::copy_of(&parameters[at..at + width]));
            }
        }
        sums.write(problem, task(head), gradients);
    }
}

/// Both walks of some columns of a head.
#[macerator::with_simd]
fn run_columns<'a, S: Simd>(
    problem: &Problem<'a>,
    task: Task,
    columns: Range<usize>,
    walk: &mut Walk,
    given: Given<'a>,
    gradients: Gradients<'a>,
    traces: &SharedTraces<'a>,
) {
    let head = task.head;
    walk.forward::<S>(problem, head, columns.clone(), given, traces);
    walk.start_back(problem, head, columns.clone(), gradients);
    for span in Span::all(head, &problem.dims).rev() {
        walk.back::<S>(problem, head, span, columns.clone(), given);
        walk.keep(problem, span, columns.clone(), traces);
        walk.leave::<S>(columns.len());
    }
    walk.finish_back(problem, head, columns, gradients);
}

/// The tokens of one chunk of a head, after the walks.
#[macerator::with_simd]
fn run_chunk<'a, S: Simd>(
    problem: &Problem<'a>,
    task: Task,
    span: Span,
    chunk: &mut Chunk,
    tokens: &mut Tokens,
    traces: &Traces,
    given: Given<'a>,
    gradients: Gradients<'a>,
) {
    let Span { index, first, len } = span;
    chunk.load::<S>(problem, task.head, first, len, Needs::KeysAndQueries);
    let states = index * problem.dims.key;
    let view = View {
        entered: At::new(&traces.states, states),
        left_gradient: At::new(&traces.state_gradients, states),
        errors: At::new(&traces.errors, first),
        error_gradients: At::new(&traces.error_gradients, first),
        value_gradients: At::new(&traces.value_gradients, first),
    };
    tokens.run::<S>(problem, task, span, chunk, view, given, gradients);
}
