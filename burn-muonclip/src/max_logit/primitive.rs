//! From Burn's primitive operations, for every backend.

use burn::tensor::{Bool, Tensor};

use super::inputs::{Inputs, Sizes};
use crate::precision::working_dtype;

/// Queries and keys of a block. A block's logits are `B H` times as many as its pairs.
const QUERIES: usize = 256;
const KEYS: usize = 512;

pub(super) fn max_logit(inputs: &Inputs) -> Tensor<1> {
    let Sizes {
        queries,
        keys,
        scale,
        ..
    } = inputs.sizes;
    let mut largest = inputs.nothing_visible();
    for first in (0..queries).step_by(QUERIES) {
        let count = QUERIES.min(queries - first);
        let seen = inputs.sizes.visible(first + count - 1).min(keys);
        for key in (0..seen).step_by(KEYS) {
            let block = Block {
                query: first,
                queries: count,
                key,
                keys: KEYS.min(seen - key),
            };
            largest = largest.max_pair(block.largest(inputs));
        }
    }
    largest.mul_scalar(scale)
}

/// Neighbouring queries and neighbouring keys.
struct Block {
    query: usize,
    queries: usize,
    key: usize,
    keys: usize,
}

impl Block {
    /// The largest product of every head, `[H]`.
    fn largest(&self, inputs: &Inputs) -> Tensor<1> {
        let Sizes {
            batch,
            heads,
            key_heads,
            dim,
            ..
        } = inputs.sizes;
        let wide = working_dtype(inputs.q.dtype());
        let q = inputs.q.clone().narrow(2, self.query, self.queries);
        let k = inputs.k.clone().narrow(2, self.key, self.keys);
        // The queries of all heads that share a key head are rows of one product.
        let rows = heads / key_heads * self.queries;
        let q = q.cast(wide).reshape([batch, key_heads, rows, dim]);
        let products =
            q.matmul(k.cast(wide).swap_dims(2, 3))
                .reshape([batch, heads, self.queries, self.keys]);
        let nan = products.clone().is_nan();
        let mut products = products.mask_fill(nan, f64::INFINITY);
        if let Some(future) = self.future(inputs) {
            products = products.mask_fill(future.unsqueeze(), f64::NEG_INFINITY);
        }
        if let Some(mask) = &inputs.mask {
            products = products.mask_fill(self.part_of(mask), f64::NEG_INFINITY);
        }
        products.max_dim(3).max_dim(2).max_dim(0).reshape([heads])
    }

    /// The pairs whose key is later than the query, if there are any.
    fn future(&self, inputs: &Inputs) -> Option<Tensor<2, Bool>> {
        let sizes = &inputs.sizes;
        if sizes.visible(self.query) >= self.key + self.keys {
            return None;
        }
        // Query `i` of the block sees keys up to `offset + i` of it.
        let offset = (self.query + sizes.keys) as i64 - (sizes.queries + self.key) as i64;
        let shape = [self.queries, self.keys];
        Some(Tensor::tril_mask(shape, offset, &inputs.q.device()))
    }

    fn part_of(&self, mask: &Tensor<4, Bool>) -> Tensor<4, Bool> {
        let [_, _, queries, keys] = mask.dims();
        let mut part = mask.clone();
        if queries > 1 {
            part = part.narrow(2, self.query, self.queries);
        }
        if keys > 1 {
            part = part.narrow(3, self.key, self.keys);
        }
        part
    }
}
