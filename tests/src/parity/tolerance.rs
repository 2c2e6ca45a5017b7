//! When a computed tensor agrees with the expected one.

use std::cmp::Ordering;

use super::tensors::{StoredTensor, Values};

/// How much larger than the relative tolerance a single element's error may be.
const ELEMENT_FACTOR: f64 = 10.0;

/// The tolerances of one tensor; those that are given must all hold. Integers must be equal
/// whatever the tolerances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Bound on the absolute error of every element.
    pub absolute: Option<f64>,
    /// Bound on `rms(got - want) / rms(want)`, and a tenth of the bound on every element's error
    /// over `rms(want)`. If `rms(want)` is 0, bound on `rms(got)`.
    pub relative: Option<f64>,
}

impl Tolerance {
    /// Nothing but the expected values will do.
    pub const EXACT: Self = Self {
        absolute: Some(0.0),
        relative: None,
    };

    /// The one number that stands for the tolerance in a report.
    pub(super) fn shown(self) -> f64 {
        self.relative.or(self.absolute).unwrap_or(0.0)
    }
}

/// The result of comparing two tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The error, measured as the tolerance beside it is; `None` where there is none to measure.
    pub error: Option<f64>,
    /// The tolerance that decided.
    pub tolerance: f64,
    /// Why the tensors disagree; `None` if they agree.
    pub failure: Option<String>,
}

/// Compares a computed tensor with the expected one.
///
/// Another shape, another element type, NaN and infinity always fail, on either side.
#[must_use]
pub fn compare(got: &StoredTensor, want: &StoredTensor, tolerance: Tolerance) -> Comparison {
    let limit = tolerance.shown();
    if got.shape != want.shape {
        let failure = format!("shape {:?}, wanted {:?}", got.shape, want.shape);
        return Comparison::without_error(limit, failure);
    }
    match (&got.values, &want.values) {
        (Values::Int(got), Values::Int(want)) => equal(got, want),
        (Values::Float(got), Values::Float(want)) => within(got, want, tolerance),
        _ => Comparison::without_error(limit, "integers against floats".into()),
    }
}

impl Comparison {
    /// A failure where nothing could be measured.
    pub(super) fn without_error(tolerance: f64, failure: String) -> Self {
        Self {
            error: None,
            tolerance,
            failure: Some(failure),
        }
    }

    /// Orders comparisons of one tensor: failures above agreements, larger errors above smaller,
    /// and what could not be measured on top.
    pub(super) fn by_severity(&self, other: &Self) -> Ordering {
        let measure = |comparison: &Self| comparison.error.unwrap_or(f64::NAN);
        let failures = self.failure.is_some().cmp(&other.failure.is_some());
        failures.then_with(|| measure(self).total_cmp(&measure(other)))
    }

    /// Whether the tensors agree.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.failure.is_none()
    }
}

/// The number of elements that differ, of which none may.
fn equal(got: &[i64], want: &[i64]) -> Comparison {
    let differing = got.iter().zip(want).filter(|(got, want)| got != want);
    let first = got.iter().zip(want).position(|(got, want)| got != want);
    Comparison {
        error: Some(differing.count() as f64),
        tolerance: 0.0,
        failure: first.map(|at| {
            format!(
                "element {at} (flat) is {}, wanted {}; the error counts the elements that differ",
                got[at], want[at]
            )
        }),
    }
}

fn within(got: &[f32], want: &[f32], tolerance: Tolerance) -> Comparison {
    for (side, values) in [("computed", got), ("expected", want)] {
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            return Comparison {
                error: Some(f64::NAN),
                tolerance: tolerance.shown(),
                failure: Some(format!("{side} element {at} (flat) is {}", values[at])),
            };
        }
    }
    let absolute = tolerance.absolute.map(|limit| absolute(got, want, limit));
    let relative = tolerance
        .relative
        .map(|limit| relative_to_rms(got, want, limit));
    match (absolute, relative) {
        (Some(absolute), Some(relative)) if relative.agrees() && !absolute.agrees() => absolute,
        (_, Some(relative)) => relative,
        (Some(absolute), None) => absolute,
        (None, None) => Comparison::without_error(0.0, "no tolerance given".into()),
    }
}

fn absolute(got: &[f32], want: &[f32], limit: f64) -> Comparison {
    let (at, largest) = largest_error(got, want);
    Comparison {
        error: Some(largest),
        tolerance: limit,
        failure: (largest > limit).then(|| off_by(at, got, want)),
    }
}

fn relative_to_rms(got: &[f32], want: &[f32], limit: f64) -> Comparison {
    let scale = rms(want.iter().map(|value| f64::from(*value)));
    if scale == 0.0 {
        let error = rms(got.iter().map(|value| f64::from(*value)));
        return Comparison {
            error: Some(error),
            tolerance: limit,
            failure: (error > limit).then(|| "rms where every wanted element is 0".into()),
        };
    }
    let error = rms(differences(got, want)) / scale;
    let (at, largest) = largest_error(got, want);
    let failure = if error > limit {
        Some(off_by(at, got, want))
    } else if largest > ELEMENT_FACTOR * limit * scale {
        Some(format!(
            "{}: {:.3e} of the rms, at most {:.3e}",
            off_by(at, got, want),
            largest / scale,
            ELEMENT_FACTOR * limit
        ))
    } else {
        None
    };
    Comparison {
        error: Some(error),
        tolerance: limit,
        failure,
    }
}

fn off_by(at: usize, got: &[f32], want: &[f32]) -> String {
    format!(
        "element {at} (flat) is {:e}, wanted {:e}",
        got[at], want[at]
    )
}

fn differences(got: &[f32], want: &[f32]) -> impl Iterator<Item = f64> {
    got.iter()
        .zip(want)
        .map(|(got, want)| f64::from(*got) - f64::from(*want))
}

fn largest_error(got: &[f32], want: &[f32]) -> (usize, f64) {
    differences(got, want)
        .map(f64::abs)
        .enumerate()
        .fold(
            (0, 0.0),
            |worst, (at, error)| {
                if error > worst.1 { (at, error) } else { worst }
            },
        )
}

/// Root of the mean square; 0 for no elements.
fn rms(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0_u64, 0.0), |(count, sum), value| {
        (count + 1, sum + value * value)
    });
    if count == 0 {
        0.0
    } else {
        (sum / count as f64).sqrt()
    }
}
