//! The whole delta attention layer in `f64`, from its parameters and the paper's equations.

use burn_kimi_linear::{ForgetGate, KimiDeltaAttention, ShortConvolution};

use crate::closeness::values;
use crate::kda_oracle::{Dims, Inputs, recurrence};

/// What the parameters do not say.
pub(crate) struct Settings {
    pub heads: usize,
    pub gate: ForgetGate,
    pub max_write: f64,
    pub norm_epsilon: f64,
}

/// `x` is `[tokens, d_model]`, and so is the result.
pub(crate) fn layer(
    layer: &KimiDeltaAttention,
    settings: &Settings,
    x: &[f64],
    tokens: usize,
) -> Vec<f64> {
    let [value_heads, key] = layer.dt_bias.dims();
    let value = layer.v_proj.weight.dims()[1] / value_heads;
    let project = |x: &[f64], linear: &burn::nn::Linear| {
        let [input, output] = linear.weight.dims();
        let weight = values(linear.weight.val());
        let row = |x: &[f64], o: usize| {
            (0..input)
                .map(|i| x[i] * weight[i * output + o])
                .sum::<f64>()
        };
        x.chunks(input)
            .flat_map(|x| (0..output).map(move |o| (x, o)))
            .map(|(x, o)| row(x, o))
            .collect::<Vec<f64>>()
    };
    let mixed = |linear, conv| silu(convolve(conv, &project(x, linear), tokens));

    let decay = project(&project(x, &layer.f_a_proj), &layer.f_b_proj);
    let (a_log, dt_bias) = (values(layer.a_log.val()), values(layer.dt_bias.val()));
    let g = decay
        .iter()
        .enumerate()
        .map(|(at, x)| {
            let rate = a_log[at / key % value_heads].exp();
            let x = x + dt_bias[at % (value_heads * key)];
            match settings.gate {
                ForgetGate::Softplus => -rate * x.exp().ln_1p(),
                ForgetGate::LowerBound(bound) => bound * sigmoid(rate * x),
            }
        })
        .collect();
    let beta = project(x, &layer.b_proj)
        .iter()
        .map(|x| settings.max_write * sigmoid(*x))
        .collect();
    let inputs = Inputs {
        dims: Dims {
            batch: 1,
            tokens,
            heads: settings.heads,
            group: value_heads / settings.heads,
            key,
            value,
        },
        scale: (key as f64).powf(-0.5),
        parts: [
            unit_length(mixed(&layer.q_proj, &layer.q_conv1d), key),
            unit_length(mixed(&layer.k_proj, &layer.k_conv1d), key),
            mixed(&layer.v_proj, &layer.v_conv1d),
            g,
            beta,
            vec![0.0; value_heads * key * value],
        ],
    };
    let gate = project(&project(x, &layer.g_a_proj), &layer.g_b_proj);
    let weight = values(layer.o_norm.norm.gamma.val());
    let o = gated_norm(
        &recurrence(&inputs).o,
        &gate,
        &weight,
        settings.norm_epsilon,
    );
    project(&o, &layer.o_proj)
}

/// `RMSNorm(x) * weight * sigmoid(gate)` over rows as wide as `weight`.
pub(crate) fn gated_norm(x: &[f64], gate: &[f64], weight: &[f64], epsilon: f64) -> Vec<f64> {
    let width = weight.len();
    let scale =
        |row: &[f64]| (row.iter().map(|x| x * x).sum::<f64>() / width as f64 + epsilon).powf(-0.5);
    x.chunks(width)
        .flat_map(|row| row.iter().map(move |x| x * scale(row)))
        .enumerate()
        .map(|(at, x)| x * weight[at % width] * sigmoid(gate[at]))
        .collect()
}

fn convolve(convolution: &ShortConvolution, x: &[f64], tokens: usize) -> Vec<f64> {
    let [channels, _, kernel] = convolution.weight.dims();
    let weight = values(convolution.weight.val());
    let tap = |t: usize, c: usize, j: usize| match (t + j).checked_sub(kernel - 1) {
        Some(from) => weight[c * kernel + j] * x[from * channels + c],
        None => 0.0,
    };
    (0..tokens * channels)
        .map(|at| {
            (0..kernel)
                .map(|j| tap(at / channels, at % channels, j))
                .sum()
        })
        .collect()
}

fn unit_length(mut x: Vec<f64>, width: usize) -> Vec<f64> {
    for row in x.chunks_mut(width) {
        let length = (row.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
        row.iter_mut().for_each(|x| *x /= length);
    }
    x
}

fn silu(x: Vec<f64>) -> Vec<f64> {
    x.into_iter().map(|x| x * sigmoid(x)).collect()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
