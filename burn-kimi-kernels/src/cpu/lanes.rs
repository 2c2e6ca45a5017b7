//! Vectors of `f32` as wide as the machine has them, and the functions that the gates need of them.

use macerator::{Scalar, Simd, Vector, vload_unaligned, vstore_unaligned};

/// A register of the machine.
pub type Lanes<S> = Vector<S, f32>;

/// Every row of a tile is a multiple of this long, which every machine's vectors divide: no loop has a tail.
pub const ALIGNMENT: usize = 16;

/// How many numbers fit a register.
#[inline(always)]
pub fn lanes<S: Simd>() -> usize {
    f32::lanes::<S>()
}

/// `x` in every place.
#[inline(always)]
pub fn splat<S: Simd>(x: f32) -> Lanes<S> {
    x.splat::<S>()
}

/// The register that starts at `at`, which must be inside the row as a whole.
#[inline(always)]
pub fn load<S: Simd>(row: &[f32], at: usize) -> Lanes<S> {
    let part = &row[at..at + lanes::<S>()];
    // SAFETY: `part` is exactly one register long.
    unsafe { vload_unaligned(part.as_ptr()) }
}

/// Writes a register to the row, where it must fit.
#[inline(always)]
pub fn store<S: Simd>(row: &mut [f32], at: usize, x: Lanes<S>) {
    let part = &mut row[at..at + lanes::<S>()];
    // SAFETY: `part` is exactly one register long.
    unsafe { vstore_unaligned(part.as_mut_ptr(), x) }
}

/// Like [`load`], with 0 behind the end of the row.
#[inline(always)]
pub fn load_part<S: Simd>(row: &[f32], at: usize) -> Lanes<S> {
    if at + lanes::<S>() <= row.len() {
        return load(row, at);
    }
    let mut whole = [0.0; ALIGNMENT];
    let part = &row[at..];
    whole[..part.len()].copy_from_slice(part);
    load(&whole, 0)
}

/// Like [`store`], without what is behind the end of the row.
#[inline(always)]
pub fn store_part<S: Simd>(row: &mut [f32], at: usize, x: Lanes<S>) {
    if at + lanes::<S>() <= row.len() {
        return store(row, at, x);
    }
    let mut whole = [0.0; ALIGNMENT];
    store(&mut whole, 0, x);
    let part = &mut row[at..];
    part.copy_from_slice(&whole[..part.len()]);
}

/// The places of a row's registers; the last one is whole where the row is padded.
#[inline(always)]
pub fn registers<S: Simd>(width: usize) -> impl Iterator<Item = usize> + Clone {
    (0..width).step_by(lanes::<S>())
}

/// `sum x y` over padded rows.
#[inline(always)]
pub fn dot<S: Simd>(x: &[f32], y: &[f32]) -> f32 {
    let mut sum = splat::<S>(0.0);
    for at in registers::<S>(x.len()) {
        sum = load::<S>(x, at).mul_add(load(y, at), sum);
    }
    sum.reduce_add()
}

/// `e^x` to about one unit in the last place; 0 below the smallest normal number, so `e^-1000` is exactly 0.
#[inline(always)]
pub fn exp<S: Simd>(x: Lanes<S>) -> Lanes<S> {
    const LOWEST: f32 = -87.336_54;
    const HIGHEST: f32 = 88.722_84;
    // ln 2 in two parts: the first has so few digits that its multiples are exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    // Cephes: the series of e^x, adjusted to half an octave on either side of 0.
    const SERIES: [f32; 6] = [
        1.987_569_1e-4,
        1.398_2e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        1.666_666_5e-1,
        0.5,
    ];
    let octaves = (x * splat(std::f32::consts::LOG2_E)).round_to_int();
    let octaves = octaves.max((-126i32).splat()).min(127i32.splat());
    let whole = octaves.to_float();
    let rest = whole.mul_add(splat(-LN_2_HIGH), x);
    let rest = whole.mul_add(splat(-LN_2_LOW), rest);
    let mut series = splat::<S>(SERIES[0]);
    for coefficient in &SERIES[1..] {
        series = series.mul_add(rest, splat(*coefficient));
    }
    let series = series.mul_add(rest * rest, rest) + splat(1.0);
    let power = ((octaves + 127i32.splat()) << 23).reinterpret::<f32>();
    let result = series * power;
    let result = x.lt(splat(LOWEST)).select(splat(0.0), result);
    x.gt(splat(HIGHEST)).select(splat(f32::INFINITY), result)
}

/// `1 / (1 + e^-x)`, from the exponential that is at most 1.
#[inline(always)]
pub fn sigmoid<S: Simd>(x: Lanes<S>) -> Lanes<S> {
    let small = exp(splat(0.0) - x.abs());
    let negative = small / (small + splat(1.0));
    let positive = splat::<S>(1.0) / (small + splat(1.0));
    x.lt(splat(0.0)).select(negative, positive)
}

/// `ln(1 + e^x)`, exact to rounding at both ends.
#[inline(always)]
pub fn softplus<S: Simd>(x: Lanes<S>) -> Lanes<S> {
    let positive = x.gt(splat(0.0)).select(x, splat(0.0));
    // A NaN is not above 0: it must come through the other term, and does.
    positive + ln_1p(exp(splat(0.0) - x.abs()))
}

/// `ln(1 + z)` for `z` in `[0, 1]`, as `2 atanh(z / (2 + z))` by its series: the argument is at most 1/3.
#[inline(always)]
fn ln_1p<S: Simd>(z: Lanes<S>) -> Lanes<S> {
    let s = z / (z + splat(2.0));
    let square = s * s;
    let mut series = splat::<S>(1.0 / 17.0);
    for denominator in [15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        series = series.mul_add(square, splat(1.0f32 / denominator));
    }
    (s + s) * series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[macerator::with_simd]
    fn each<S: Simd>(values: &mut [f32], function: usize) {
        for at in registers::<S>(values.len()) {
            let x = load::<S>(values, at);
            let y = match function {
                0 => exp(x),
                1 => sigmoid(x),
                _ => softplus(x),
            };
            store(values, at, y);
        }
    }

    fn worst_relative_error(function: usize, exact: impl Fn(f64) -> f64) -> f64 {
        let inputs: Vec<f32> = (0..1 << 16)
            .map(|i| (i as f32 / 32768.0 - 1.0) * 87.0)
            .collect();
        let mut outputs = inputs.clone();
        each(&mut outputs, function);
        let errors = inputs.iter().zip(&outputs).map(|(&x, &y)| {
            let exact = exact(f64::from(x));
            (f64::from(y) - exact).abs() / exact.abs()
        });
        errors.fold(0.0, f64::max)
    }

    #[test]
    fn exponential_functions_are_exact_to_rounding() {
        assert!(worst_relative_error(0, f64::exp) < 2e-7);
        assert!(worst_relative_error(1, |x| 1.0 / (1.0 + (-x).exp())) < 4e-7);
        assert!(worst_relative_error(2, |x| x.max(0.0) + (-x.abs()).exp().ln_1p()) < 4e-7);
    }

    #[test]
    fn exponential_functions_at_their_ends() {
        let ends = [
            f32::NEG_INFINITY,
            -1000.0,
            0.0,
            1000.0,
            f32::INFINITY,
            f32::NAN,
        ];
        let padded = |values: [f32; 6]| {
            let mut row = values.to_vec();
            row.resize(ALIGNMENT, 0.0);
            row
        };
        let mut row = padded(ends);
        each(&mut row, 0);
        assert_eq!(row[..5], [0.0, 0.0, 1.0, f32::INFINITY, f32::INFINITY]);
        assert!(row[5].is_nan());
        let mut row = padded(ends);
        each(&mut row, 1);
        assert_eq!(row[..5], [0.0, 0.0, 0.5, 1.0, 1.0]);
        assert!(row[5].is_nan());
        let mut row = padded(ends);
        each(&mut row, 2);
        assert_eq!(row[..2], [0.0, 0.0]);
        assert_eq!(row[3..5], [1000.0, f32::INFINITY]);
        assert!(row[5].is_nan());
    }
}
