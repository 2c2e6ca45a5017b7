//! `attnres_stack`: a stack of sublayers `f_l(x) = tanh(rms_norm(x) W[l])` under a block schedule,
//! from the embedding `x` `[B,T,d]` to the output read `h` `[B,T,d]`. Read `l` uses `w[l]` and
//! `gamma[l]` of `w`, `gamma` `[L+1,d]`; `W` is `[L,d,d]`, each matrix `[in,out]`.

use burn::module::{Param, ParamId};
use burn::tensor::Tensor;
use burn_attnres::{AttnResConfig, BlockPlan, DepthRead};

use crate::parity::case::Case;
use crate::parity::error::CaseError;
use crate::parity::session::Session;

pub(super) fn compute(case: &Case, session: &mut Session<'_>) -> Result<(), CaseError> {
    let eps = super::attnres::eps(case)?;
    let sublayers: usize = case.field("sublayers")?;
    let per_block: usize = case.field("sublayers_per_block")?;
    let sources: Option<Vec<usize>> = case.optional_field("sources_per_read")?;

    let x = session.input("x", [None; 3])?;
    let [batch, _, width] = x.dims();
    if batch == 0 || width == 0 {
        // Burn 0.22.1 on the CPU reads out of bounds when an empty batch is multiplied by a matrix.
        let wanted = "at least one sequence and one channel";
        return Err(session.bad_input("x", &x.dims(), wanted));
    }
    let weights = session.input::<3>("W", [sublayers, width, width].map(Some))?;
    let per_read = [sublayers.checked_add(1), Some(width)];
    let w = session.input("w", per_read)?;
    let gamma = session.input("gamma", per_read)?;

    let config = AttnResConfig::new(width, sublayers)
        .with_plan(BlockPlan::SublayersPerBlock(per_block))
        .with_eps(eps);
    let schedule = config
        .schedule()
        .map_err(|error| case.bad_field("sublayers_per_block", error.to_string()))?;
    if let Some(wanted) = sources
        && wanted != schedule.sources_per_read()
    {
        let found = schedule.sources_per_read();
        session.failed("sources_per_read", format!("{found:?}, wanted {wanted:?}"));
    }

    let mut attn_res = config.init(session.device());
    let rows = |x: Tensor<2>| x.iter_dim(0).map(|row| row.squeeze_dim::<1>(0));
    attn_res.reads = rows(w)
        .zip(rows(gamma))
        .map(|(query, gamma)| DepthRead {
            query: parameter(query),
            gamma: parameter(gamma),
        })
        .collect();

    let mut stream = attn_res.start(x);
    for weight in weights.iter_dim(0) {
        let input = rms_norm(stream.read(&attn_res), eps);
        stream.write(input.matmul(weight).tanh());
    }
    session.output("h", stream.finish(&attn_res))
}

/// A parameter that stays part of the graph of the case's inputs, instead of a new leaf.
fn parameter(value: Tensor<1>) -> Param<Tensor<1>> {
    Param::initialized(ParamId::new(), value)
}

fn rms_norm(x: Tensor<3>, eps: f64) -> Tensor<3> {
    let mean_square = x.clone().square().mean_dim(2);
    x / (mean_square + eps).sqrt()
}
