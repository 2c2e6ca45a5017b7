//! The kernel for Burn's CPU backend.
//!
//! A task is a run of tokens, and takes as many of them at a time as fit the second cache with all their sources. It reads each source's tokens from memory as one
//! stretch, and then token by token a second time from the cache, so memory sees every number once: `(n + 1) d` numbers a token forward, `(2 n + 1) d`
//! backward, which computes the weights again. At about a floating point operation a byte, memory is the limit. Results depend neither on the
//! number of threads nor on how tokens are taken together.

use std::ops::Range;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::Shape;
use burn_flex::FlexTensor;
use burn_kimi_kernels::cpu::lanes::{
    Lanes, lanes, load, load_part, registers, splat, store, store_part,
};
use burn_kimi_kernels::cpu::shared::SharedValues;
use burn_kimi_kernels::cpu::tensors::{Unwritten, cast, contiguous, sum_of_parts, values};
use burn_kimi_kernels::cpu::threads::for_each;
use burn_kimi_kernels::list::TensorList;
use macerator::Simd;

use super::definition::DepthAttentionOps;

/// Tokens of a task.
const TOKENS: usize = 32;

/// Numbers of all sources that are read together: 128 KB.
const TOGETHER: usize = 1 << 15;

impl DepthAttentionOps for Flex {
    fn depth_attention(
        sources: TensorList<Self>,
        u: FlexTensor,
        eps: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let storage = sources.0[0].dtype();
        let (sources, u) = (lower(sources), contiguous(u));
        let problem = Problem::new(&sources, &u, eps);
        let [batch, tokens, _] = sources[0].shape().dims();
        let mut h = Unwritten::new(sources[0].shape());
        let mut weights = Unwritten::new(Shape::new([sources.len(), batch, tokens]));
        let results = [h.shared(), weights.shared()];
        for_each(
            problem.tasks(),
            || problem.workspace(),
            |found, task| forward(&problem, found, task, results),
        );
        // SAFETY: the tasks write every token.
        let (h, weights) = unsafe { (h.written(), weights.written()) };
        (cast(h, storage), weights)
    }

    fn depth_attention_backward(
        sources: TensorList<Self>,
        u: FlexTensor,
        h_grad: FlexTensor,
        weights_grad: FlexTensor,
        eps: f64,
    ) -> (TensorList<Self>, FloatTensor<Self>) {
        let storage = sources.0[0].dtype();
        let (sources, u) = (lower(sources), contiguous(u));
        let (h_grad, weights_grad) = (contiguous(h_grad), contiguous(weights_grad));
        let problem = Problem::new(&sources, &u, eps);
        let unwritten = |v: &FlexTensor| Unwritten::new(v.shape());
        let mut of_sources: Vec<_> = sources.iter().map(unwritten).collect();
        // A row a task: they are added at the end, in their order.
        let mut of_u = vec![0.0; problem.tasks() * problem.width()];
        let results = Gradients {
            sources: of_sources.iter_mut().map(Unwritten::shared).collect(),
            u: SharedValues::of_slice(&mut of_u),
        };
        let given = [values(&h_grad), values(&weights_grad)];
        for_each(
            problem.tasks(),
            || (problem.workspace(), Vec::new()),
            |workspace, task| backward(&problem, workspace, task, given, &results),
        );
        // SAFETY: the tasks write every token.
        let written = |v: Unwritten| cast(unsafe { v.written() }, storage);
        let of_sources = of_sources.into_iter().map(written).collect();
        (TensorList(of_sources), sum_of_parts(&of_u, u.shape()))
    }
}

fn lower(sources: TensorList<Flex>) -> Vec<FlexTensor> {
    sources.0.into_iter().map(contiguous).collect()
}

struct Problem<'a> {
    sources: Vec<&'a [f32]>,
    /// `[d]`.
    u: &'a [f32],
    eps: f32,
}

struct Gradients<'a> {
    sources: Vec<SharedValues<'a>>,
    u: SharedValues<'a>,
}

/// What is found out about one source of a token.
#[derive(Clone, Copy, Default)]
struct Found {
    /// `1 / sqrt(mean(v^2) + eps)`.
    scale: f32,
    /// `scale <u, v>`.
    logit: f32,
    weight: f32,
    /// The gradient of the weight.
    gradient: f32,
    /// The part of `u` in the gradient of the source, and the part of the source in that of `u`.
    along: f32,
    /// The part of the source that its gradient loses.
    shrink: f32,
}

impl<'a> Problem<'a> {
    fn new(sources: &'a [FlexTensor], u: &'a FlexTensor, eps: f64) -> Self {
        Self {
            sources: sources.iter().map(values).collect(),
            u: values(u),
            eps: eps as f32,
        }
    }

    /// For the tokens that are read together: those of a token lie together.
    fn workspace(&self) -> Vec<Found> {
        vec![Found::default(); self.together() * self.sources.len()]
    }

    /// Tokens that are read together.
    fn together(&self) -> usize {
        (TOGETHER / (self.sources.len() * self.width())).clamp(1, TOKENS)
    }

    fn width(&self) -> usize {
        self.u.len()
    }

    fn tokens(&self) -> usize {
        self.sources[0].len() / self.width()
    }

    fn tasks(&self) -> usize {
        self.tokens().div_ceil(TOKENS)
    }

    /// The runs of tokens of a task that are read together.
    fn runs(&self, task: usize) -> impl Iterator<Item = Range<usize>> {
        let (tokens, together) = (self.tokens(), self.together());
        let end = tokens.min((task + 1) * TOKENS);
        (task * TOKENS..end)
            .step_by(together)
            .map(move |start| start..end.min(start + together))
    }

    fn row(&self, token: usize) -> Range<usize> {
        token * self.width()..(token + 1) * self.width()
    }

    /// From the gradients of a token's weights what its sources and `u` get.
    fn differentiate(&self, found: &mut [Found], token: usize, weights_grad: &[f32]) {
        let mut mean = 0.0;
        for (i, source) in found.iter_mut().enumerate() {
            source.gradient += weights_grad[i * self.tokens() + token];
            mean += source.weight * source.gradient;
        }
        for source in found {
            source.along = source.weight * (source.gradient - mean) * source.scale;
            source.shrink = source.along * source.scale * source.logit / self.width() as f32;
        }
    }

    /// The reading from memory: scale, logit and gradient of every source of these tokens. Without gradients, `given` is empty.
    #[inline(always)]
    fn read<S: Simd>(&self, found: &mut [Found], tokens: Range<usize>, given: &[f32]) {
        let n = self.sources.len();
        for (i, source) in self.sources.iter().enumerate() {
            for token in tokens.clone() {
                let (row, found) = (self.row(token), &mut found[(token - tokens.start) * n + i]);
                let v = &source[row.clone()];
                let [squares, along] = products::<S>(v, self.u);
                found.scale = (squares / self.width() as f32 + self.eps).sqrt().recip();
                found.logit = found.scale * along;
                if !given.is_empty() {
                    [_, found.gradient] = products::<S>(v, &given[row]);
                }
            }
        }
    }
}

/// `<v, v>` and `<v, u>`, each in four sums: one would wait for its last addition, and few of the reads from memory would be under way at a time.
#[inline(always)]
fn products<S: Simd>(v: &[f32], u: &[f32]) -> [f32; 2] {
    let lanes = lanes::<S>();
    let whole = v.len() / (4 * lanes) * (4 * lanes);
    let zero = [splat::<S>(0.0); 2];
    let (mut a, mut b, mut c, mut d) = (zero, zero, zero, zero);
    for at in (0..whole).step_by(4 * lanes) {
        let (v, u) = (&v[at..at + 4 * lanes], &u[at..at + 4 * lanes]);
        a = add_products(a, load(v, 0), load(u, 0));
        b = add_products(b, load(v, lanes), load(u, lanes));
        c = add_products(c, load(v, 2 * lanes), load(u, 2 * lanes));
        d = add_products(d, load(v, 3 * lanes), load(u, 3 * lanes));
    }
    for at in registers::<S>(v.len() - whole) {
        let at = whole + at;
        a = add_products(a, load_part(v, at), load_part(u, at));
    }
    [
        ((a[0] + b[0]) + (c[0] + d[0])).reduce_add(),
        ((a[1] + b[1]) + (c[1] + d[1])).reduce_add(),
    ]
}

#[inline(always)]
fn add_products<S: Simd>(
    [squares, along]: [Lanes<S>; 2],
    v: Lanes<S>,
    u: Lanes<S>,
) -> [Lanes<S>; 2] {
    [v.mul_add(v, squares), v.mul_add(u, along)]
}

/// Softmax of the logits.
#[inline(always)]
fn weigh(found: &mut [Found]) {
    let mut highest = f32::NEG_INFINITY;
    for source in found.iter() {
        // `max` would lose a NaN.
        if source.logit > highest || source.logit.is_nan() {
            highest = source.logit;
        }
    }
    let mut sum = 0.0;
    for source in found.iter_mut() {
        source.weight = (source.logit - highest).exp();
        sum += source.weight;
    }
    for source in found {
        source.weight /= sum;
    }
}

#[macerator::with_simd]
fn forward<'a, S: Simd>(
    problem: &Problem<'a>,
    found: &mut [Found],
    task: usize,
    results: [SharedValues<'a>; 2],
) {
    let [h, weights] = results;
    for tokens in problem.runs(task) {
        problem.read::<S>(found, tokens.clone(), &[]);
        for (token, found) in tokens.zip(found.chunks_exact_mut(problem.sources.len())) {
            weigh(found);
            // SAFETY: no other task has this token.
            let h = unsafe { h.part(problem.row(token)) };
            mix::<S>(problem, token, found, h);
            for (i, source) in found.iter().enumerate() {
                let place = i * problem.tokens() + token;
                // SAFETY: no other task has this token.
                let weight = unsafe { weights.part(place..place + 1) };
                weight[0] = source.weight;
            }
        }
    }
}

/// `h = sum p v`, four registers at a time.
#[inline(always)]
fn mix<S: Simd>(problem: &Problem, token: usize, found: &[Found], h: &mut [f32]) {
    let start = token * problem.width();
    let lanes = lanes::<S>();
    let whole = h.len() / (4 * lanes) * (4 * lanes);
    let zero = splat::<S>(0.0);
    for at in (0..whole).step_by(4 * lanes) {
        let (mut a, mut b, mut c, mut d) = (zero, zero, zero, zero);
        for (v, source) in problem.sources.iter().zip(found) {
            let v = &v[start + at..][..4 * lanes];
            let weight = splat::<S>(source.weight);
            a = load::<S>(v, 0).mul_add(weight, a);
            b = load::<S>(v, lanes).mul_add(weight, b);
            c = load::<S>(v, 2 * lanes).mul_add(weight, c);
            d = load::<S>(v, 3 * lanes).mul_add(weight, d);
        }
        let h = &mut h[at..at + 4 * lanes];
        store(h, 0, a);
        store(h, lanes, b);
        store(h, 2 * lanes, c);
        store(h, 3 * lanes, d);
    }
    for at in registers::<S>(h.len() - whole) {
        let at = whole + at;
        let mut sum = zero;
        for (v, source) in problem.sources.iter().zip(found) {
            sum = load_part::<S>(&v[problem.row(token)], at).mul_add(splat(source.weight), sum);
        }
        store_part(h, at, sum);
    }
}

/// A row of a source, and where its gradient goes.
type SourceRow<'a> = (&'a [f32], &'a mut [f32]);

/// With `G` the gradient of `h`, `g_i = <G, v_i>` plus the gradient of the weight `p_i`, `dz_i = p_i (g_i - sum_j p_j g_j)` and `r_i` the scale:
///
/// ```text
/// dv_i = p_i G + dz_i r_i u - (dz_i r_i^2 z_i / d) v_i
/// du   = sum over tokens and sources of dz_i r_i v_i
/// ```
#[macerator::with_simd]
fn backward<'a, S: Simd>(
    problem: &Problem<'a>,
    workspace: &mut (Vec<Found>, Vec<SourceRow<'a>>),
    task: usize,
    given: [&[f32]; 2],
    results: &Gradients<'a>,
) {
    let (found, rows) = workspace;
    let [h_grad, weights_grad] = given;
    // SAFETY: no other task has this row of sums.
    let of_u = unsafe { results.u.part(problem.row(task)) };
    for tokens in problem.runs(task) {
        problem.read::<S>(found, tokens.clone(), h_grad);
        for (token, found) in tokens.zip(found.chunks_exact_mut(problem.sources.len())) {
            weigh(found);
            problem.differentiate(found, token, weights_grad);
            rows.clear();
            for (source, result) in problem.sources.iter().zip(&results.sources) {
                let row = problem.row(token);
                // SAFETY: no other task has this token.
                rows.push((&source[row.clone()], unsafe { result.part(row) }));
            }
            distribute::<S>(problem.u, found, &h_grad[problem.row(token)], rows, of_u);
        }
    }
}

/// The second reading: the gradients of a token's sources, and its part in that of `u`.
#[inline(always)]
fn distribute<S: Simd>(
    u: &[f32],
    found: &[Found],
    h_grad: &[f32],
    rows: &mut [(&[f32], &mut [f32])],
    of_u: &mut [f32],
) {
    let whole = u.len() / lanes::<S>() * lanes::<S>();
    for at in registers::<S>(whole) {
        let (gradient, u) = (load::<S>(h_grad, at), load::<S>(u, at));
        let mut sum = load::<S>(of_u, at);
        for (source, (v, of_v)) in found.iter().zip(rows.iter_mut()) {
            let v = load::<S>(v, at);
            sum = v.mul_add(splat(source.along), sum);
            store(of_v, at, of_source(source, v, u, gradient));
        }
        store(of_u, at, sum);
    }
    if whole < u.len() {
        let at = whole;
        let (gradient, u) = (load_part::<S>(h_grad, at), load_part::<S>(u, at));
        let mut sum = load_part::<S>(of_u, at);
        for (source, (v, of_v)) in found.iter().zip(rows.iter_mut()) {
            let v = load_part::<S>(v, at);
            sum = v.mul_add(splat(source.along), sum);
            store_part(of_v, at, of_source(source, v, u, gradient));
        }
        store_part(of_u, at, sum);
    }
}

#[inline(always)]
fn of_source<S: Simd>(source: &Found, v: Lanes<S>, u: Lanes<S>, gradient: Lanes<S>) -> Lanes<S> {
    let of_v = gradient * splat(source.weight);
    let of_v = u.mul_add(splat(source.along), of_v);
    v.mul_add(splat(-source.shrink), of_v)
}
