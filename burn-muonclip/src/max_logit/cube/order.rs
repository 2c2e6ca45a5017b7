//! Numbers as whole numbers of the same order: the bits of positive ones behind all negative ones, whose bits are turned round.
//!
//! A kernel compares them without a word about `inf` and NaN, of which WGSL lets an implementation assume that there are none.

use cubecl::prelude::*;

const SIGN: u32 = 0x8000_0000;
const INFINITY: u32 = 0x7f80_0000;
/// What `-inf` is: nothing is below it.
pub(super) const LOWEST: u32 = !0xff80_0000;

/// NaN becomes what `+inf` is.
#[cube]
pub(super) fn ordered(x: f32) -> u32 {
    let bits = u32::reinterpret(x);
    let magnitude = bits & !SIGN;
    let ascending = select(bits < SIGN, bits | SIGN, !bits);
    select(magnitude > INFINITY, INFINITY | SIGN, ascending)
}

/// The number that [`ordered`] was given.
#[cube]
pub(super) fn number(ordered: u32) -> f32 {
    f32::reinterpret(select(ordered < SIGN, !ordered, ordered & !SIGN))
}
