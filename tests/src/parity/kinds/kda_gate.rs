//! `kda_gate`: `x` `[B,T,H,K]`, `dt_bias` `[H,K]` and where the case has one, `a_log` `[H]`; out
//! comes the log decay `g` `[B,T,H,K]`.

use burn_kimi_linear::{ForgetGate, kda_gate};

use crate::parity::case::Case;
use crate::parity::error::CaseError;
use crate::parity::session::Session;

pub(super) fn compute(case: &Case, session: &mut Session<'_>) -> Result<(), CaseError> {
    let gate = match case.field::<Option<f64>>("lower_bound")? {
        Some(bound) if bound >= 0.0 => {
            let problem = format!("{bound}, wanted a negative number or null");
            return Err(case.bad_field("lower_bound", problem));
        }
        Some(bound) => ForgetGate::LowerBound(bound),
        None => ForgetGate::Softplus,
    };

    let x = session.input("x", [None; 4])?;
    let [.., heads, key] = x.dims();
    let a_log = session.optional_input("a_log", [Some(heads)])?;
    let dt_bias = session.input("dt_bias", [Some(heads), Some(key)])?;

    session.output("g", kda_gate(x, a_log, dt_bias, gate))
}
