//! Orthogonalisation of a batch of matrices by the quintic Newton-Schulz iteration.
//!
//! ```text
//! X <- X / |X|                                      the Frobenius norm of each matrix
//! X <- (a I + b A + c A^2) X,  A = X X^T            every step, with coefficients of its own
//! ```
//!
//! Source: Jordan et al., [Muon](https://kellerjordan.github.io/posts/muon/); Liu et al., [arXiv:2502.16982](https://arxiv.org/abs/2502.16982), section 2.1.
//!
//! # Forms
//!
//! With `n <= m` a step as written takes `4 n^2 m + 2 n^3` operations. Two things make it less:
//!
//! - `A` and `A^2` are symmetric: half of each is enough.
//! - All steps are polynomials of the first `A`, so they can be taken on `n x n` matrices, and the long side is met when they are done (the Gram form).
//!   The price is precision: an eigenvalue that rounding made negative grows by `a^2` a step, and would break out after some ten of
//!   them. So the product is formed and `A` taken anew after two steps, and after every three from there on.
//!
//! Square matrices take the first, longer ones both: at `m = 4 n` that is 0.4 of the operations.

mod coefficients;
#[cfg(feature = "flex")]
mod cpu;
#[cfg(feature = "flex")]
mod definition;
mod form;
mod function;
mod primitive;

pub use coefficients::{POLAR_EXPRESS_COEFFICIENTS, STANDARD_COEFFICIENTS, TWO_STAGE_COEFFICIENTS};
pub use function::{NewtonSchulzConfig, newton_schulz};
