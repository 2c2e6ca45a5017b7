//! The recurrence of KDA in `f64`, written from the equations over plain slices.

#[derive(Clone, Copy, Debug)]
pub(crate) struct Dims {
    pub batch: usize,
    pub tokens: usize,
    pub heads: usize,
    /// Value heads for each head of queries and keys.
    pub group: usize,
    pub key: usize,
    pub value: usize,
}

impl Dims {
    pub(crate) fn value_heads(&self) -> usize {
        self.heads * self.group
    }

    pub(crate) fn keys(&self) -> [usize; 4] {
        [self.batch, self.tokens, self.heads, self.key]
    }

    pub(crate) fn values(&self) -> [usize; 4] {
        [self.batch, self.tokens, self.value_heads(), self.value]
    }

    pub(crate) fn gates(&self) -> [usize; 4] {
        [self.batch, self.tokens, self.value_heads(), self.key]
    }

    pub(crate) fn betas(&self) -> [usize; 3] {
        [self.batch, self.tokens, self.value_heads()]
    }

    pub(crate) fn state(&self) -> [usize; 4] {
        [self.batch, self.value_heads(), self.key, self.value]
    }
}

/// All inputs of the operator, in the order `q, k, v, g, beta, state`.
#[derive(Clone, Debug)]
pub(crate) struct Inputs {
    pub dims: Dims,
    pub scale: f64,
    pub parts: [Vec<f64>; 6],
}

pub(crate) const PART_NAMES: [&str; 6] = ["q", "k", "v", "g", "beta", "state"];

pub(crate) struct Outputs {
    pub o: Vec<f64>,
    pub state: Vec<f64>,
}

pub(crate) fn recurrence(inputs: &Inputs) -> Outputs {
    let Dims {
        batch,
        tokens,
        heads,
        group,
        key,
        value,
    } = inputs.dims;
    let value_heads = heads * group;
    let [q, k, v, g, beta, state] = &inputs.parts;
    let mut o = vec![0.0; batch * tokens * value_heads * value];
    let mut state = state.clone();

    for b in 0..batch {
        for head in 0..value_heads {
            let s = &mut state[(b * value_heads + head) * key * value..][..key * value];
            for t in 0..tokens {
                let row = b * tokens + t;
                let qk_at = (row * heads + head / group) * key;
                let at = row * value_heads + head;
                for d in 0..key {
                    let decay = g[at * key + d].exp();
                    s[d * value..][..value].iter_mut().for_each(|x| *x *= decay);
                }
                for e in 0..value {
                    let known: f64 = (0..key).map(|d| k[qk_at + d] * s[d * value + e]).sum();
                    let update = beta[at] * (v[at * value + e] - known);
                    (0..key).for_each(|d| s[d * value + e] += k[qk_at + d] * update);
                    let read: f64 = (0..key).map(|d| q[qk_at + d] * s[d * value + e]).sum();
                    o[at * value + e] = inputs.scale * read;
                }
            }
        }
    }
    Outputs { o, state }
}
