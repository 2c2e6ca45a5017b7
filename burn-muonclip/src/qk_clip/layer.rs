//! What QK-Clip has to know of an attention layer, as plain data.

use core::fmt;

use burn::module::ParamId;
use burn::nn::Linear;
use burn::nn::attention::MultiHeadAttention;

/// An attention layer: which columns of which parameters make the queries and keys of its heads.
///
/// Burn keeps a linear layer's weight as `[in, out]`, so a head is a run of columns, of the weight and of the bias alike.
#[derive(Clone, Debug, PartialEq)]
pub struct QkLayer {
    /// Its name in reports.
    pub name: String,
    /// Query heads.
    pub heads: usize,
    /// Key heads: as many, or fewer where query heads share them (grouped queries).
    pub key_heads: usize,
    /// Under which id its logits are recorded: that of the weight that makes the queries.
    pub id: ParamId,
    /// Everything that is scaled.
    pub parts: Vec<QkPart>,
}

/// A parameter, or columns of it, that makes queries or keys.
#[derive(Clone, Debug, PartialEq)]
pub struct QkPart {
    /// The parameter, a weight `[in, out]` or a bias `[out]`.
    pub param: ParamId,
    /// What it makes.
    pub side: QkSide,
    /// Where its heads are.
    pub columns: HeadColumns,
}

/// What columns make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkSide {
    /// Queries.
    Query,
    /// Keys, of which there may be fewer heads.
    Key,
    /// Queries that meet a part of the keys which all heads share and which is left alone (the rotary part of latent attention).
    QueryOfSharedKey,
}

/// The columns of each head: head `h` has `width` columns from `offset + h * stride` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadColumns {
    /// The first column of the first head.
    pub offset: usize,
    /// From one head to the next.
    pub stride: usize,
    /// Columns of a head.
    pub width: usize,
}

impl HeadColumns {
    /// Heads of `width` columns one behind the other.
    pub fn dense(width: usize) -> Self {
        Self {
            offset: 0,
            stride: width,
            width,
        }
    }

    /// The same from `offset` on, as in a fused projection.
    pub fn starting_at(self, offset: usize) -> Self {
        Self { offset, ..self }
    }

    pub(super) fn of(&self, head: usize) -> core::ops::Range<usize> {
        let first = self.offset + head * self.stride;
        first..first + self.width
    }
}

/// Why a layer has nothing that QK-Clip could do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unclippable {
    /// Queries or keys are normalised: the logits do not depend on the length of the weights, and clipping would shrink those for ever.
    QkNorm,
    /// There is no softmax over logits, as in linear attention.
    NoSoftmax,
}

impl fmt::Display for Unclippable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::QkNorm => {
                "its queries or keys are normalised, so the weights' length does not reach the logits"
            }
            Self::NoSoftmax => "it has no softmax over logits",
        })
    }
}

impl QkLayer {
    /// A layer without parts yet, whose logits are recorded for `query`.
    pub fn new(name: impl Into<String>, heads: usize, key_heads: usize, query: &Linear) -> Self {
        Self {
            name: name.into(),
            heads,
            key_heads,
            id: query.weight.id,
            parts: Vec::new(),
        }
    }

    /// Adds columns of a projection, and of its bias if it has one.
    pub fn with_part(mut self, projection: &Linear, side: QkSide, columns: HeadColumns) -> Self {
        let bias = projection.bias.as_ref().map(|bias| bias.id);
        for param in [Some(projection.weight.id), bias].into_iter().flatten() {
            self.parts.push(QkPart {
                param,
                side,
                columns,
            });
        }
        self
    }

    /// Burn's attention layer.
    pub fn multi_head(name: impl Into<String>, attention: &MultiHeadAttention) -> Self {
        let (heads, width) = (attention.n_heads, attention.d_k);
        Self::grouped_query(
            name,
            &attention.query,
            &attention.key,
            [heads, heads],
            width,
        )
    }

    /// Query heads and key heads of `width`, each kind from a projection of its own; `[heads, key_heads]`.
    pub fn grouped_query(
        name: impl Into<String>,
        query: &Linear,
        key: &Linear,
        [heads, key_heads]: [usize; 2],
        width: usize,
    ) -> Self {
        Self::new(name, heads, key_heads, query)
            .with_part(query, QkSide::Query, HeadColumns::dense(width))
            .with_part(key, QkSide::Key, HeadColumns::dense(width))
    }

    /// Queries, keys and values from one projection, in this order.
    pub fn fused(
        name: impl Into<String>,
        qkv: &Linear,
        [heads, key_heads]: [usize; 2],
        width: usize,
    ) -> Self {
        let keys = HeadColumns::dense(width).starting_at(heads * width);
        Self::new(name, heads, key_heads, qkv)
            .with_part(qkv, QkSide::Query, HeadColumns::dense(width))
            .with_part(qkv, QkSide::Key, keys)
    }

    /// Multi-head latent attention. `query` makes each head's own part and behind it the rotary part: the only projection of the queries, or the second one where
    /// they have a latent too. `key_value` makes each head's own keys and behind them its values, from the latent. The rotary part of the keys, which heads
    /// share, and the values are left alone.
    pub fn latent(
        name: impl Into<String>,
        query: &Linear,
        key_value: &Linear,
        heads: usize,
        widths: LatentWidths,
    ) -> Self {
        let LatentWidths { nope, rope, value } = widths;
        let own = HeadColumns {
            offset: 0,
            stride: nope + rope,
            width: nope,
        };
        let rotary = HeadColumns {
            offset: nope,
            width: rope,
            ..own
        };
        let keys = HeadColumns {
            stride: nope + value,
            ..own
        };
        Self::new(name, heads, heads, query)
            .with_part(query, QkSide::Query, own)
            .with_part(query, QkSide::QueryOfSharedKey, rotary)
            .with_part(key_value, QkSide::Key, keys)
    }
}

impl QkLayer {
    /// How many heads of this kind there are.
    pub(super) fn heads_of(&self, side: QkSide) -> usize {
        match side {
            QkSide::Query | QkSide::QueryOfSharedKey => self.heads,
            QkSide::Key => self.key_heads,
        }
    }
}

/// Widths of the heads of latent attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatentWidths {
    /// A head's own part of queries and keys.
    pub nope: usize,
    /// The part whose keys all heads share, rotary or not.
    pub rope: usize,
    /// Values.
    pub value: usize,
}
