//! The formulas in f64, written with loops and nothing of the crate.

/// A row-major matrix.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Matrix {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) values: Vec<f64>,
}

impl Matrix {
    pub(crate) fn new(rows: usize, columns: usize, values: Vec<f64>) -> Self {
        assert_eq!(values.len(), rows * columns);
        Self {
            rows,
            columns,
            values,
        }
    }

    pub(crate) fn zeros(rows: usize, columns: usize) -> Self {
        Self::new(rows, columns, vec![0.0; rows * columns])
    }

    pub(crate) fn at(&self, i: usize, j: usize) -> f64 {
        self.values[i * self.columns + j]
    }

    pub(crate) fn transposed(&self) -> Self {
        let mut out = Self::zeros(self.columns, self.rows);
        for i in 0..self.rows {
            for j in 0..self.columns {
                out.values[j * self.rows + i] = self.at(i, j);
            }
        }
        out
    }

    pub(crate) fn times(&self, other: &Self) -> Self {
        let mut out = Self::zeros(self.rows, other.columns);
        for i in 0..self.rows {
            for k in 0..self.columns {
                for j in 0..other.columns {
                    out.values[i * other.columns + j] += self.at(i, k) * other.at(k, j);
                }
            }
        }
        out
    }

    pub(crate) fn scaled(&self, factor: f64) -> Self {
        Self::new(
            self.rows,
            self.columns,
            self.values.iter().map(|v| v * factor).collect(),
        )
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        let values = self
            .values
            .iter()
            .zip(&other.values)
            .map(|(a, b)| a + b)
            .collect();
        Self::new(self.rows, self.columns, values)
    }

    pub(crate) fn norm(&self) -> f64 {
        let largest = self.values.iter().fold(0.0f64, |max, v| max.max(v.abs()));
        if largest == 0.0 {
            return 0.0;
        }
        largest
            * self
                .values
                .iter()
                .map(|v| (v / largest).powi(2))
                .sum::<f64>()
                .sqrt()
    }

    pub(crate) fn rms(&self) -> f64 {
        self.norm() / (self.values.len() as f64).sqrt()
    }
}

pub(crate) const STANDARD: [f64; 3] = [3.4445, -4.7750, 2.0315];

/// `X <- a X + b (X X^T) X + c (X X^T)^2 X`, five times, from `X / |X|`; on the transpose of a tall matrix.
pub(crate) fn newton_schulz(x: &Matrix, coefficients: &[[f64; 3]]) -> Matrix {
    if x.rows > x.columns {
        return newton_schulz(&x.transposed(), coefficients).transposed();
    }
    let norm = x.norm();
    if norm == 0.0 {
        return x.clone();
    }
    let mut x = x.scaled(1.0 / norm);
    for &[a, b, c] in coefficients {
        let gram = x.times(&x.transposed());
        let first = gram.times(&x);
        let second = gram.times(&first);
        x = x.scaled(a).plus(&first.scaled(b)).plus(&second.scaled(c));
    }
    x
}

pub(crate) struct MuonRule {
    pub(crate) momentum: f64,
    pub(crate) nesterov: bool,
    pub(crate) weight_decay: f64,
}

/// All weights of a run of Algorithm 1 of the Kimi K2 report, from zero momentum.
pub(crate) fn muon(rule: &MuonRule, lr: f64, weight: &Matrix, grads: &[Matrix]) -> Vec<Matrix> {
    let mut momentum = Matrix::zeros(weight.rows, weight.columns);
    let mut weight = weight.clone();
    let scale = 0.2 * (weight.rows.max(weight.columns) as f64).sqrt();
    grads
        .iter()
        .map(|grad| {
            momentum = momentum.scaled(rule.momentum).plus(grad);
            let direction = match rule.nesterov {
                true => momentum.scaled(rule.momentum).plus(grad),
                false => momentum.clone(),
            };
            let update = newton_schulz(&direction, &[STANDARD; 5]).scaled(scale);
            weight = weight.plus(&update.plus(&weight.scaled(rule.weight_decay)).scaled(-lr));
            weight.clone()
        })
        .collect()
}

/// One AdamW step from zero state on one element.
pub(crate) fn adamw_first_step(weight: f64, grad: f64, lr: f64, weight_decay: f64) -> f64 {
    weight * (1.0 - lr * weight_decay) - lr * grad / (grad.abs() + 1e-8)
}

/// Root mean square of the difference over that of `want`.
pub(crate) fn relative_error(got: &[f64], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    assert!(got.iter().all(|v| v.is_finite()), "not finite: {got:?}");
    let square = |v: f64| v * v;
    let error: f64 = got.iter().zip(want).map(|(g, w)| square(g - w)).sum();
    let size: f64 = want.iter().map(|w| square(*w)).sum();
    if size == 0.0 {
        error.sqrt()
    } else {
        (error / size).sqrt()
    }
}
