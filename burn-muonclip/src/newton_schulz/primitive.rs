//! Both forms from Burn's primitive operations: on every backend.

use burn::tensor::Tensor;

use super::form;

/// Divides each matrix by its own Frobenius norm; zero matrices stay zero.
pub(super) fn normalize(x: Tensor<3>) -> Tensor<3> {
    // Squares of elements below 1e-19 or above 1e19 leave the range of f32; ratios to the largest element do not.
    let largest = x.clone().abs().max_dim(2).max_dim(1);
    let x = x.div(one_where_zero(largest));
    let norm = x.clone().square().sum_dim(2).sum_dim(1).sqrt();
    x.div(one_where_zero(norm))
}

fn one_where_zero(x: Tensor<3>) -> Tensor<3> {
    let zero = x.clone().equal_scalar(0.0);
    x.mask_fill(zero, 1.0)
}

/// Runs the steps on normalised matrices `x: [batch, n, m]` with `n <= m`.
pub(super) fn iterate(x: Tensor<3>, steps: &[[f64; 3]]) -> Tensor<3> {
    let [_, n, m] = x.dims();
    match form::takes_gram_form_without_symmetry(n, m) {
        true => form::segments(steps).fold(x, gram),
        false => standard(x, steps),
    }
}

/// Written as `(A (c A + b I) + a I) X`: the scalars meet the `n x n` matrix only, and the long side
/// is touched by two matrix products a step and nothing else.
fn standard(x: Tensor<3>, steps: &[[f64; 3]]) -> Tensor<3> {
    let identity = identity(&x);
    steps.iter().fold(x, |x, &[a, b, c]| {
        let gram = x.clone().matmul(x.clone().swap_dims(1, 2));
        let inner = gram.clone().mul_scalar(c) + identity.clone().mul_scalar(b);
        let polynomial = gram.matmul(inner) + identity.clone().mul_scalar(a);
        polynomial.matmul(x)
    })
}

/// The steps of a segment. `R` is the Gram matrix, `P` the polynomial of a step, and `Q` the product of all of them.
fn gram(x: Tensor<3>, steps: &[[f64; 3]]) -> Tensor<3> {
    let identity = identity(&x);
    let mut r = x.clone().matmul(x.clone().swap_dims(1, 2));
    let mut q: Option<Tensor<3>> = None;
    for (i, &[a, b, c]) in steps.iter().enumerate() {
        let inner = r.clone().mul_scalar(c) + identity.clone().mul_scalar(b);
        let p = r.clone().matmul(inner) + identity.clone().mul_scalar(a);
        if i + 1 < steps.len() {
            r = p.clone().matmul(r.matmul(p.clone()));
        }
        q = Some(match q {
            Some(q) => p.matmul(q),
            None => p,
        });
    }
    match q {
        Some(q) => q.matmul(x),
        None => x,
    }
}

fn identity(x: &Tensor<3>) -> Tensor<3> {
    let [_, n, _] = x.dims();
    Tensor::<2>::eye(n, &x.device()).cast(x.dtype()).unsqueeze()
}
