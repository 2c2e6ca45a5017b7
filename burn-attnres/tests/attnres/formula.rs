//! Depth attention and its gradients in f64, straight from the equations and one number at a time.

/// The inputs of one read: `n` sources of `tokens` vectors of `d` numbers.
#[derive(Debug, Clone)]
pub(crate) struct Read {
    pub(crate) sources: Vec<Vec<f64>>,
    pub(crate) query: Vec<f64>,
    pub(crate) gamma: Vec<f64>,
    pub(crate) eps: f64,
}

pub(crate) struct Gradients {
    pub(crate) sources: Vec<Vec<f64>>,
    pub(crate) query: Vec<f64>,
    pub(crate) gamma: Vec<f64>,
}

impl Read {
    pub(crate) fn d(&self) -> usize {
        self.query.len()
    }

    pub(crate) fn tokens(&self) -> usize {
        self.sources[0].len() / self.d()
    }

    fn vector(&self, source: usize, token: usize) -> &[f64] {
        &self.sources[source][token * self.d()..(token + 1) * self.d()]
    }

    fn inverse_rms(&self, source: usize, token: usize) -> f64 {
        let v = self.vector(source, token);
        let mean_square = v.iter().map(|x| x * x).sum::<f64>() / v.len() as f64;
        1.0 / (mean_square + self.eps).sqrt()
    }

    /// The logit as the paper writes it: query times the normalised and scaled key.
    fn logit(&self, source: usize, token: usize) -> f64 {
        let r = self.inverse_rms(source, token);
        let v = self.vector(source, token);
        (0..self.d())
            .map(|j| self.query[j] * (self.gamma[j] * v[j] * r))
            .sum()
    }

    /// The weights of one token, over the sources.
    fn token_weights(&self, token: usize) -> Vec<f64> {
        let logits: Vec<f64> = (0..self.sources.len())
            .map(|i| self.logit(i, token))
            .collect();
        let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|z| (z - max).exp()).sum();
        logits.iter().map(|z| (z - max).exp() / sum).collect()
    }

    /// `p`, as `[n, tokens]` in row-major order.
    pub(crate) fn weights(&self) -> Vec<f64> {
        let by_token: Vec<_> = (0..self.tokens()).map(|t| self.token_weights(t)).collect();
        (0..self.sources.len())
            .flat_map(|i| by_token.iter().map(move |p| p[i]))
            .collect()
    }

    /// `h`, as `[tokens, d]` in row-major order.
    pub(crate) fn output(&self) -> Vec<f64> {
        let mut h = Vec::new();
        for token in 0..self.tokens() {
            let p = self.token_weights(token);
            for j in 0..self.d() {
                h.push((0..p.len()).map(|i| p[i] * self.vector(i, token)[j]).sum());
            }
        }
        h
    }

    /// The gradients of `sum(h * g) + sum(p * a)`, with `g` as `h` and `a` as the weights.
    ///
    /// With `u = query * gamma`, `r_i` the inverse root mean square and `c_i = <g, v_i> + a_i`:
    /// `dz_i = p_i (c_i - sum_j p_j c_j)`, `dv_i = p_i g + dz_i r_i u - dz_i r_i^2 z_i v_i / d`,
    /// `du = sum dz_i r_i v_i`, `dquery = gamma * du`, `dgamma = query * du`.
    pub(crate) fn gradients(&self, g: &[f64], a: &[f64]) -> Gradients {
        let (n, d, tokens) = (self.sources.len(), self.d(), self.tokens());
        let u: Vec<f64> = (0..d).map(|j| self.query[j] * self.gamma[j]).collect();
        let mut dv = vec![vec![0.0; tokens * d]; n];
        let mut du = vec![0.0; d];
        for token in 0..tokens {
            let p = self.token_weights(token);
            let g = &g[token * d..(token + 1) * d];
            let c: Vec<f64> = (0..n)
                .map(|i| {
                    let v = self.vector(i, token);
                    (0..d).map(|j| g[j] * v[j]).sum::<f64>() + a[i * tokens + token]
                })
                .collect();
            let mean: f64 = (0..n).map(|i| p[i] * c[i]).sum();
            for i in 0..n {
                let dz = p[i] * (c[i] - mean);
                let r = self.inverse_rms(i, token);
                let z = self.logit(i, token);
                let v = self.vector(i, token);
                for j in 0..d {
                    dv[i][token * d + j] =
                        p[i] * g[j] + dz * r * u[j] - dz * r * r * z * v[j] / d as f64;
                    du[j] += dz * r * v[j];
                }
            }
        }
        Gradients {
            sources: dv,
            query: (0..d).map(|j| self.gamma[j] * du[j]).collect(),
            gamma: (0..d).map(|j| self.query[j] * du[j]).collect(),
        }
    }
}
