//! What a pass has to compute and to move at least.

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The output.
    Forward,
    /// The output and the gradients of all inputs.
    ForwardBackward,
}

/// Sizes of a head, and of a stored number.
#[derive(Clone, Copy, Debug)]
pub struct Widths {
    /// `K` and `V`.
    pub head: usize,
    /// Bytes of a number in the inputs and the output.
    pub number: usize,
}

/// Of one call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Floating point operations.
    pub flops: f64,
    /// Bytes read and written.
    pub bytes: f64,
}

/// Tokens in a chunk, which the flops are stated for.
const CHUNK: f64 = 16.0;

impl Cost {
    /// Forward, the paper's count: `6 d^2 + 3 C d + C^2` flops a token and head; `q`, `k`, `v`, `g` and `beta` read once and `o` written
    /// once.
    ///
    /// Backward, twice the flops: each product of the forward pass has two gradients. Inputs and the gradient of `o` are read once, the
    /// gradients of the inputs written once. What is computed or moved again is not counted.
    #[must_use]
    pub fn of(pass: Pass, token_heads: usize, widths: Widths) -> Self {
        let (d, number) = (widths.head as f64, widths.number as f64);
        let forward = Self {
            flops: 6.0 * d * d + 3.0 * CHUNK * d + CHUNK * CHUNK,
            bytes: (5.0 * d + 1.0) * number,
        };
        let each = match pass {
            Pass::Forward => forward,
            Pass::ForwardBackward => Self {
                flops: 3.0 * forward.flops,
                bytes: forward.bytes + (9.0 * d + 2.0) * number,
            },
        };
        Self {
            flops: each.flops * token_heads as f64,
            bytes: each.bytes * token_heads as f64,
        }
    }
}

/// What a device can do at best.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of memory a second.
    pub bandwidth: f64,
    /// Floating point operations a second.
    pub flops: f64,
}

impl Limits {
    /// Seconds that a pass takes at least.
    #[must_use]
    pub fn floor(&self, cost: Cost) -> f64 {
        (cost.bytes / self.bandwidth).max(cost.flops / self.flops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8192 tokens, 96 heads of 128, bf16: 1.01 GB, 82 GFLOP, 0.21 ms on an H200.
    #[test]
    fn the_published_size_has_the_known_cost() {
        let widths = Widths {
            head: 128,
            number: 2,
        };
        let cost = Cost::of(Pass::Forward, 8192 * 96, widths);
        assert!((cost.bytes / 1e9 - 1.008).abs() < 1e-3, "{cost:?}");
        assert!((cost.flops / 1e9 - 82.3).abs() < 0.1, "{cost:?}");
        let limits = Limits {
            bandwidth: 4.8e12,
            flops: 989e12,
        };
        assert!((limits.floor(cost) * 1e3 - 0.21).abs() < 1e-3);
        let both = Cost::of(Pass::ForwardBackward, 8192 * 96, widths);
        assert!((both.bytes / 1e9 - 2.823).abs() < 1e-3, "{both:?}");
    }
}
