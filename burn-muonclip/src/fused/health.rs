//! Stage 2: are all gradients finite, and how large are they together?

use burn::tensor::{DType, Tensor};

use crate::muon::to_working;

/// Size of one gradient, still on its device.
pub(crate) struct GradientSize {
    path: String,
    num_elements: usize,
    /// Mean absolute element `a`, and, where norms are wanted, the sum of squares of the elements over `a`.
    ///
    /// The mean is NaN or infinite exactly if an element is (a mean of finite elements overflows only above
    /// 1e30 or so), and ratios to it can be squared without leaving the range of f32.
    statistics: Tensor<1>,
}

/// What the sizes say together.
pub(crate) struct Health {
    /// Paths of gradients with NaN or infinite elements.
    pub(crate) non_finite: Vec<String>,
    /// Norm of all gradients together, where norms were measured.
    pub(crate) norm: Option<f64>,
}

/// Measures `grad` without waiting for its device.
pub(crate) fn measure<const D: usize>(
    path: String,
    grad: Tensor<D>,
    with_norm: bool,
) -> GradientSize {
    let num_elements = grad.shape().num_elements();
    let grad = by_rows(to_working(grad));
    // Divided before it is added up: the sum of finite numbers may not be finite.
    let share = 1.0 / num_elements.max(1) as f64;
    let mean = sum(grad.clone().abs().mul_scalar(share));
    let statistics = if with_norm {
        let zero = mean.clone().equal_scalar(0.0);
        let unit = mean.clone().mask_fill(zero, 1.0).unsqueeze::<2>();
        Tensor::cat(vec![mean, sum(grad.div(unit).square())], 0)
    } else {
        mean
    };
    GradientSize {
        path,
        num_elements,
        statistics: statistics.cast(DType::F32),
    }
}

/// `[rows, columns]`, where the columns are the last axis.
fn by_rows<const D: usize>(x: Tensor<D>) -> Tensor<2> {
    let columns = x.dims().last().copied().unwrap_or(1);
    let rows = x.shape().num_elements() / columns.max(1);
    x.reshape([rows, columns])
}

/// Sums by rows first: on some backends the sum of a whole large tensor depends on scheduling, and a
/// resumed run has to clip by the same factor.
fn sum(x: Tensor<2>) -> Tensor<1> {
    x.sum_dim(1).sum_dim(0).reshape([1])
}

/// Reads all sizes in one transfer.
pub(crate) fn assess(sizes: Vec<GradientSize>, with_norms: bool) -> Health {
    let Some(first) = sizes.first() else {
        return Health {
            non_finite: Vec::new(),
            norm: with_norms.then_some(0.0),
        };
    };
    let device = first.statistics.device();
    let per_gradient = if with_norms { 2 } else { 1 };
    let statistics = sizes
        .iter()
        .map(|size| size.statistics.clone().to_device(&device))
        .collect();
    let values: Vec<f64> = Tensor::cat(statistics, 0)
        .into_data()
        .iter::<f64>()
        .collect();

    let non_finite = sizes
        .iter()
        .zip(values.chunks(per_gradient))
        .filter(|(size, value)| size.num_elements > 0 && !value[0].is_finite())
        .map(|(size, _)| size.path.clone())
        .collect();
    let norm = with_norms.then(|| {
        let squares = values.chunks(2).map(|value| value[0] * value[0] * value[1]);
        squares.sum::<f64>().sqrt()
    });
    Health { non_finite, norm }
}
