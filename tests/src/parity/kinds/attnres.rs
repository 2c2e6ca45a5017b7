//! `attnres`: one read over the depth sources `v` `[n,B,T,d]` with query `w` and norm weight
//! `gamma` `[d]`; out come `h` `[B,T,d]` and the weights `p` `[n,B,T]`.

use burn::tensor::Tensor;
use burn_attnres::depth_attention_with_weights;

use crate::parity::case::Case;
use crate::parity::error::CaseError;
use crate::parity::session::Session;
use crate::parity::tensors::TensorFile;

pub(super) fn compute(case: &Case, session: &mut Session<'_>) -> Result<(), CaseError> {
    let eps = eps(case)?;

    let v = session.input::<4>("v", [None; 4])?;
    let [count, .., width] = v.dims();
    if count == 0 || width == 0 {
        let wanted = "at least one source, of width at least 1";
        return Err(session.bad_input("v", &v.dims(), wanted));
    }
    let w = session.input("w", [Some(width)])?;
    let gamma = session.input("gamma", [Some(width)])?;

    let sources: Vec<Tensor<3>> = v.iter_dim(0).map(|source| source.squeeze_dim(0)).collect();
    let (h, p) = depth_attention_with_weights(&sources, w, gamma, eps);
    session.output("h", h)?;
    session.optional_output("p", p)
}

/// The epsilon of the key norm.
pub(super) fn eps(case: &Case) -> Result<f64, CaseError> {
    let eps = case.field("eps")?;
    if eps < 0.0 {
        return Err(case.bad_field("eps", format!("{eps}, wanted at least 0")));
    }
    Ok(eps)
}

/// With one source its weight is 1 whatever the query, so the gradients of the two factors of the
/// query must be exactly 0, not merely small.
pub(super) fn is_exactly_zero(tensors: &TensorFile, name: &str) -> Result<bool, CaseError> {
    if !matches!(name, "grad.w" | "grad.gamma") {
        return Ok(false);
    }
    let (sources, _) = tensors.float("in.v")?;
    let (_, want) = tensors.float(name)?;
    Ok(sources.first() == Some(&1) && want.iter().all(|value| *value == 0.0))
}
