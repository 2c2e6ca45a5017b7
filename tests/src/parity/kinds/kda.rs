//! `kda`: `q`, `k` `[B,T,H,K]`, `v` `[B,T,HV,V]`, `g` `[B,T,HV,K]`, `beta` `[B,T,HV]`, and where
//! the case has one, the incoming state `s0` `[B,HV,K,V]`; out come `o` and the state `s`.

use burn_kimi_linear::{KdaOptions, KdaState, kda};

use crate::parity::case::Case;
use crate::parity::error::CaseError;
use crate::parity::session::Session;

pub(super) fn compute(case: &Case, session: &mut Session<'_>) -> Result<(), CaseError> {
    let scale: f64 = case.field("scale")?;

    let q = session.input("q", [None; 4])?;
    let [batch, time, heads, key] = q.dims();
    if batch == 0 || heads == 0 || key == 0 {
        let wanted = "at least one sequence, head and channel";
        return Err(session.bad_input("q", &q.dims(), wanted));
    }
    let k = session.input("k", q.dims().map(Some))?;
    let v = session.input("v", [Some(batch), Some(time), None, None])?;
    let [.., value_heads, value] = v.dims();
    if value_heads == 0 || !value_heads.is_multiple_of(heads) || value == 0 {
        let wanted =
            format!("heads in a multiple of the {heads} of in.q, and at least one channel");
        return Err(session.bad_input("v", &v.dims(), wanted));
    }
    let per_token = [Some(batch), Some(time), Some(value_heads)];
    let g = session.input("g", [per_token[0], per_token[1], per_token[2], Some(key)])?;
    let beta = session.input("beta", per_token)?;
    let state = session.optional_input("s0", [batch, value_heads, key, value].map(Some))?;

    let options = KdaOptions::new().with_scale(scale);
    let state = state.map(KdaState::from_key_value);
    let (o, state) = kda(q, k, v, g, beta, state, &options);
    session.output("o", o)?;
    session.optional_output("s", state.into_key_value())
}
