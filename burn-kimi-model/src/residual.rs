use core::fmt;
use core::str::FromStr;

use burn::tensor::{Device, Tensor};
use burn_attnres::{AttnRes, AttnResConfig, AttnResState, BlockPlan};
use serde::{Deserialize, Serialize};

/// How the sub-layers of a decoder are joined.
///
/// Written `prenorm`, `full` or `block:N`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResidualScheme {
    /// `x + f(norm(x))`.
    #[default]
    PreNorm,
    /// Every sub-layer attends over the outputs of all earlier ones.
    AttnResFull,
    /// Every sub-layer attends over the sums of finished blocks and the running sum of its own.
    AttnResBlock {
        /// Blocks that the sub-layers are divided into, not counting the embedding.
        blocks: usize,
    },
}

impl fmt::Display for ResidualScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PreNorm => f.write_str("prenorm"),
            Self::AttnResFull => f.write_str("full"),
            Self::AttnResBlock { blocks } => write!(f, "block:{blocks}"),
        }
    }
}

/// A text that names no [`ResidualScheme`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown residual scheme {0:?}: expected prenorm, full or block:N with N at least 1")]
pub struct ParseResidualSchemeError(String);

impl FromStr for ResidualScheme {
    type Err = ParseResidualSchemeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "prenorm" => Ok(Self::PreNorm),
            "full" => Ok(Self::AttnResFull),
            _ => match text.strip_prefix("block:").map(str::parse) {
                Some(Ok(blocks)) if blocks > 0 => Ok(Self::AttnResBlock { blocks }),
                _ => Err(ParseResidualSchemeError(text.into())),
            },
        }
    }
}

impl ResidualScheme {
    /// The parameters of the scheme, if it has any.
    pub(crate) fn init(
        self,
        hidden_size: usize,
        sublayers: usize,
        epsilon: f64,
        device: &Device,
    ) -> Option<AttnRes> {
        let plan = match self {
            Self::PreNorm => return None,
            Self::AttnResFull => BlockPlan::Full,
            Self::AttnResBlock { blocks } => BlockPlan::NumBlocks(blocks),
        };
        let config = AttnResConfig::new(hidden_size, sublayers)
            .with_plan(plan)
            .with_eps(epsilon);
        Some(config.init(device))
    }
}

/// What flows past the sub-layers during one pass: each reads its input here and writes its output back.
pub(crate) enum ResidualStream<'a> {
    /// The running sum.
    Sum(Tensor<3>),
    /// The outputs kept for attention over depth.
    Depth(&'a AttnRes, AttnResState),
}

impl<'a> ResidualStream<'a> {
    /// Starts a pass with the embedding, `[B, T, hidden_size]`: a plain sum without `attn_res`.
    pub(crate) fn start(attn_res: Option<&'a AttnRes>, embedding: Tensor<3>) -> Self {
        match attn_res {
            None => Self::Sum(embedding),
            Some(attn_res) => Self::Depth(attn_res, attn_res.start(embedding)),
        }
    }

    /// The input of the next sub-layer, `[B, T, hidden_size]`, before its norm.
    pub(crate) fn read(&mut self) -> Tensor<3> {
        match self {
            Self::Sum(sum) => sum.clone(),
            Self::Depth(attn_res, state) => state.read(attn_res),
        }
    }

    /// Takes the output of the sub-layer that was just read for.
    pub(crate) fn write(&mut self, output: Tensor<3>) {
        match self {
            Self::Sum(sum) => *sum = sum.clone() + output,
            Self::Depth(_, state) => state.write(output),
        }
    }

    /// The output of the whole stack, `[B, T, hidden_size]`, before the last norm.
    pub(crate) fn finish(self) -> Tensor<3> {
        match self {
            Self::Sum(sum) => sum,
            Self::Depth(attn_res, state) => state.finish(attn_res),
        }
    }
}
