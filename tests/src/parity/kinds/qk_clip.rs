//! `qk_clip`: `x` `[B,T,d]` and the projections `q_proj` `[H D,d]` and `k_proj` `[G D,d]` of a layer; out come the largest logit of every head, `s_max`
//! `[H]`, the clipped projections, and the largest logits with those, `s_max_after`.

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn_muonclip::qk_clip::{LogitMaxima, LogitRecorder, QkClipConfig, QkLayer};
use burn_muonclip::{MaxLogitOptions, max_logit};

use crate::parity::case::Case;
use crate::parity::error::CaseError;
use crate::parity::session::Session;

pub(super) fn compute(case: &Case, session: &mut Session<'_>) -> Result<(), CaseError> {
    let heads = Heads::read(case)?;
    let options = MaxLogitOptions::new().with_causal(case.field("causal")?);
    let threshold: f64 = case.field("tau")?;

    let x = session.input("x", [None; 3])?;
    let [_, _, width] = x.dims();
    let mut projection = |name, heads: usize| -> Result<Linear, CaseError> {
        let weight: Tensor<2> = session.input(name, [Some(heads), Some(width)])?;
        Ok(Linear {
            weight: Param::from_tensor(weight.transpose()),
            bias: None,
        })
    };
    let layer = Layer {
        query: projection("q_proj", heads.query * heads.width)?,
        key: projection("k_proj", heads.key * heads.width)?,
    };
    let before = layer.largest(&x, &heads, &options);

    let description = QkLayer::grouped_query(
        "layer",
        &layer.query,
        &layer.key,
        [heads.query, heads.key],
        heads.width,
    );
    let clip = QkClipConfig::new()
        .with_threshold(threshold)
        .init(&layer, vec![description], LogitRecorder::new())
        .map_err(|error| case.bad_field("tau", error.to_string()))?;
    let mut maxima = LogitMaxima::new();
    let numbers = before.clone().into_data().iter::<f32>().collect::<Vec<_>>();
    maxima.report(layer.query.weight.id, &numbers);
    let layer = clip.apply_maxima(layer, &maxima);

    session.output("s_max", before)?;
    session.output("s_max_after", layer.largest(&x, &heads, &options))?;
    session.output("q_proj", layer.query.weight.val().transpose())?;
    session.output("k_proj", layer.key.weight.val().transpose())
}

struct Heads {
    query: usize,
    key: usize,
    width: usize,
}

impl Heads {
    fn read(case: &Case) -> Result<Self, CaseError> {
        let attention: String = case.field("attention")?;
        let heads = Self {
            query: case.field("heads")?,
            key: case.field("kv_heads")?,
            width: case.field("head_dim")?,
        };
        if !["mha", "gqa"].contains(&attention.as_str()) {
            return Err(
                case.bad_field("attention", format!("`{attention}`, wanted `mha` or `gqa`"))
            );
        }
        if heads.key == 0 || !heads.query.is_multiple_of(heads.key) {
            let problem = format!("{}, wanted a divisor of {} heads", heads.key, heads.query);
            return Err(case.bad_field("kv_heads", problem));
        }
        if heads.width == 0 {
            return Err(case.bad_field("head_dim", "0, wanted at least 1".to_owned()));
        }
        Ok(heads)
    }
}

#[derive(Module, Debug)]
struct Layer {
    query: Linear,
    key: Linear,
}

impl Layer {
    fn largest(&self, x: &Tensor<3>, heads: &Heads, options: &MaxLogitOptions) -> Tensor<1> {
        let [batch, tokens, _] = x.dims();
        let split = |linear: &Linear, count: usize| {
            let y = linear.forward(x.clone());
            y.reshape([batch, tokens, count, heads.width])
                .swap_dims(1, 2)
        };
        max_logit(
            split(&self.query, heads.query),
            split(&self.key, heads.key),
            options,
        )
    }
}
