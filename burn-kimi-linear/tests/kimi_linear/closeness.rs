use burn::tensor::Tensor;

/// The values of a tensor as `f64`, in row-major order.
pub(crate) fn values<const D: usize>(x: Tensor<D>) -> Vec<f64> {
    x.into_data().iter::<f64>().collect()
}

/// Root mean square of the difference over that of `want`; infinite if a value is not finite.
pub(crate) fn relative_rms(got: &[f64], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len(), "number of elements");
    let square = |x: f64| x * x;
    let error: f64 = got.iter().zip(want).map(|(g, w)| square(g - w)).sum();
    let size: f64 = want.iter().map(|w| square(*w)).sum();
    if !error.is_finite() {
        return f64::INFINITY;
    }
    match size {
        0.0 => error.sqrt(),
        _ => (error / size).sqrt(),
    }
}

#[track_caller]
pub(crate) fn assert_close(what: &str, got: &[f64], want: &[f64], tolerance: f64) {
    let error = relative_rms(got, want);
    assert!(
        error <= tolerance,
        "{what}: relative rms {error:e} above {tolerance:e}"
    );
}
