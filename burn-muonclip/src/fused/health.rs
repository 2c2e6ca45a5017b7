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

/// The size of one gradient.
pub(crate) struct MeasuredSize {
    pub(crate) path: String,
    num_elements: usize,
    mean: f64,
    /// The sum of squares over the mean, where norms were wanted.
    squares: Option<f64>,
}

/// What the sizes say together.
pub(crate) enum Health {
    /// There may be a step.
    Finite {
        /// Norm of all gradients together, where it was measured.
        norm: Option<f64>,
    },
    /// There must be none.
    NonFinite {
        /// The gradients with NaN or infinite elements.
        paths: Vec<String>,
    },
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
pub(crate) fn read(sizes: Vec<GradientSize>) -> Vec<MeasuredSize> {
    let Some(first) = sizes.first() else {
        return Vec::new();
    };
    let device = first.statistics.device();
    let statistics = sizes
        .iter()
        .map(|size| size.statistics.clone().to_device(&device))
        .collect();
    let values: Vec<f64> = Tensor::cat(statistics, 0)
        .into_data()
        .iter::<f64>()
        .collect();
    let each = values.len() / sizes.len();
    sizes
        .into_iter()
        .zip(values.chunks(each))
        .map(|(size, values)| MeasuredSize {
            path: size.path,
            num_elements: size.num_elements,
            mean: values[0],
            squares: values.get(1).copied(),
        })
        .collect()
}

/// The sizes are in the order of the module: the norm is a sum.
pub(crate) fn assess(sizes: &[MeasuredSize]) -> Health {
    let paths: Vec<_> = sizes
        .iter()
        .filter(|size| size.num_elements > 0 && !size.mean.is_finite())
        .map(|size| size.path.clone())
        .collect();
    if !paths.is_empty() {
        return Health::NonFinite { paths };
    }
    let squares = sizes
        .iter()
        .map(|size| Some(size.mean * size.mean * size.squares?));
    Health::Finite {
        norm: squares.sum::<Option<f64>>().map(f64::sqrt),
    }
}
