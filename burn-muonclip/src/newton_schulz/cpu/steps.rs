//! The steps on one matrix.

use std::mem::swap;

use burn_kimi_kernels::cpu::tile::Tile;

use super::super::form;
use super::products::{Finish, Threads, multiply_symmetric, multiply_tall};

/// Everything that one matrix needs on its way.
pub(super) struct Workspace {
    rows: usize,
    columns: usize,
    threads: Threads,
    /// The matrix, standing, and what it becomes.
    y: Tile,
    next_y: Tile,
    /// `short x short`: the Gram matrix, the polynomial of a step, the product of polynomials, and room for the next of any.
    r: Tile,
    p: Tile,
    q: Tile,
    next: Tile,
}

impl Workspace {
    pub(super) fn new([rows, columns]: [usize; 2], threads: Threads) -> Self {
        let (short, long) = (rows.min(columns), rows.max(columns));
        let tall = || Tile::zeros(long, short);
        let square = || Tile::zeros(short, short);
        Self {
            rows,
            columns,
            threads,
            y: tall(),
            next_y: tall(),
            r: square(),
            p: square(),
            q: square(),
            next: square(),
        }
    }

    fn short(&self) -> usize {
        self.rows.min(self.columns)
    }

    fn long(&self) -> usize {
        self.rows.max(self.columns)
    }

    /// From a matrix to the orthogonalised one, both row by row.
    pub(super) fn orthogonalize(&mut self, from: &[f32], to: &mut [f32], steps: &[[f64; 3]]) {
        let Some(scale) = scale(from) else {
            to.fill(0.0);
            return;
        };
        self.load(from, scale);
        if form::takes_gram_form(self.short(), self.long()) {
            form::segments(steps).for_each(|steps| self.gram(steps));
        } else {
            steps.iter().for_each(|step| self.standard(step));
        }
        self.store(to);
    }

    /// `Y <- Y (a I + b A + c A^2)`, where `A = Y^T Y`.
    fn standard(&mut self, &[a, b, c]: &[f64; 3]) {
        self.take_gram_matrix();
        self.take_polynomial([a, b, c]);
        self.apply_polynomial();
    }

    /// The steps of a segment, on the Gram matrix: `Q` collects the polynomials, and `Y` meets their product.
    fn gram(&mut self, steps: &[[f64; 3]]) {
        self.take_gram_matrix();
        for (i, &step) in steps.iter().enumerate() {
            self.take_polynomial(step);
            if i + 1 < steps.len() {
                // R <- P R P
                self.square_product(|own| (&own.r, &own.p));
                swap(&mut self.r, &mut self.next);
                self.square_product(|own| (&own.r, &own.p));
                swap(&mut self.r, &mut self.next);
            }
            if i == 0 {
                swap(&mut self.q, &mut self.p);
            } else {
                self.square_product(|own| (&own.q, &own.p));
                swap(&mut self.q, &mut self.next);
            }
        }
        swap(&mut self.p, &mut self.q);
        self.apply_polynomial();
    }

    /// `R <- Y^T Y`.
    fn take_gram_matrix(&mut self) {
        let depth = self.long();
        let short = self.short();
        multiply_symmetric(
            self.threads,
            [&self.y, &self.y],
            [depth, short],
            Finish::default(),
            &mut self.r,
        );
    }

    /// `P <- a I + b R + c R^2`.
    fn take_polynomial(&mut self, [a, b, c]: [f64; 3]) {
        let short = self.short();
        let finish = Finish {
            product: c as f32,
            other: Some((b as f32, &self.r)),
            diagonal: a as f32,
        };
        multiply_symmetric(
            self.threads,
            [&self.r, &self.r],
            [short; 2],
            finish,
            &mut self.p,
        );
    }

    /// The product of two polynomials of the Gram matrix, which commute, so that it is symmetric too, into `next`.
    fn square_product(&mut self, of: impl Fn(&Self) -> (&Tile, &Tile)) {
        let short = self.short();
        let mut next = std::mem::replace(&mut self.next, Tile::zeros(0, 0));
        let (left, right) = of(self);
        multiply_symmetric(
            self.threads,
            [left, right],
            [short; 2],
            Finish::default(),
            &mut next,
        );
        self.next = next;
    }

    /// `Y <- Y P`.
    fn apply_polynomial(&mut self) {
        let sizes = [self.long(), self.short()];
        multiply_tall(self.threads, &self.y, &self.p, sizes, &mut self.next_y);
        swap(&mut self.y, &mut self.next_y);
    }

    /// The matrix times `scale`, standing.
    fn load(&mut self, from: &[f32], scale: f32) {
        if self.rows >= self.columns {
            for (row, from) in from.chunks_exact(self.columns).enumerate() {
                let to = &mut self.y.row_mut(row)[..from.len()];
                to.iter_mut().zip(from).for_each(|(to, x)| *to = x * scale);
            }
            return;
        }
        let (to, stride) = self.y.parts_mut();
        for (column, from) in from.chunks_exact(self.columns).enumerate() {
            for (row, x) in from.iter().enumerate() {
                to[row * stride + column] = x * scale;
            }
        }
    }

    fn store(&self, to: &mut [f32]) {
        if self.rows >= self.columns {
            for (row, to) in to.chunks_exact_mut(self.columns).enumerate() {
                to.copy_from_slice(&self.y.row(row)[..self.columns]);
            }
            return;
        }
        let (from, stride) = (self.y.values(), self.y.stride());
        for (column, to) in to.chunks_exact_mut(self.columns).enumerate() {
            for (row, x) in to.iter_mut().enumerate() {
                *x = from[row * stride + column];
            }
        }
    }
}

/// What the Frobenius norm becomes one by; nothing for a matrix of zeros.
///
/// The sum is taken in `f64` of ratios to the largest element: squares of elements below 1e-19 or above 1e19 would leave the range of `f32`.
fn scale(matrix: &[f32]) -> Option<f32> {
    let largest = matrix.iter().fold(0.0f32, |max, x| max.max(x.abs()));
    if largest == 0.0 && !matrix.iter().any(|x| x.is_nan()) {
        return None;
    }
    let largest = f64::from(largest);
    let squares: f64 = matrix
        .iter()
        .map(|&x| (f64::from(x) / largest).powi(2))
        .sum();
    Some((1.0 / (largest * squares.sqrt())) as f32)
}
