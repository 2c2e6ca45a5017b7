//! Which layer of a decoder attends how.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// The attention of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttentionKind {
    /// Kimi Delta Attention: constant memory, linear time.
    Kda,
    /// Multi-head latent attention over every earlier token.
    Mla,
}

/// The attention of a whole decoder.
///
/// Written `mla`, `kda`, `hybrid` (Kimi Linear's three to one) or `hybrid:N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttentionPlan {
    /// Latent attention in every layer.
    Mla,
    /// Delta attention in every layer.
    Kda,
    /// `kda_per_mla` layers of delta attention, then one of latent attention, repeated.
    Hybrid {
        /// Delta layers before each latent one, at least 1.
        kda_per_mla: usize,
    },
}

impl AttentionPlan {
    /// The ratio that Kimi Linear was published with.
    pub const KIMI_LINEAR: Self = Self::Hybrid { kda_per_mla: 3 };

    /// The attention of the layer with the given index, counted from 0.
    pub fn kind(&self, layer: usize) -> AttentionKind {
        match *self {
            Self::Mla => AttentionKind::Mla,
            Self::Kda => AttentionKind::Kda,
            Self::Hybrid { kda_per_mla } => {
                let period = kda_per_mla.saturating_add(1);
                match layer % period == kda_per_mla {
                    true => AttentionKind::Mla,
                    false => AttentionKind::Kda,
                }
            }
        }
    }
}

impl Default for AttentionPlan {
    fn default() -> Self {
        Self::KIMI_LINEAR
    }
}

impl fmt::Display for AttentionPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mla => f.write_str("mla"),
            Self::Kda => f.write_str("kda"),
            plan if *plan == Self::KIMI_LINEAR => f.write_str("hybrid"),
            Self::Hybrid { kda_per_mla } => write!(f, "hybrid:{kda_per_mla}"),
        }
    }
}

/// A text that names no [`AttentionPlan`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown attention plan {0:?}: expected mla, kda, hybrid or hybrid:N with N at least 1")]
pub struct ParseAttentionPlanError(String);

impl FromStr for AttentionPlan {
    type Err = ParseAttentionPlanError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "mla" => Ok(Self::Mla),
            "kda" => Ok(Self::Kda),
            "hybrid" => Ok(Self::KIMI_LINEAR),
            _ => match text.strip_prefix("hybrid:").map(str::parse) {
                Some(Ok(kda_per_mla)) if kda_per_mla > 0 => Ok(Self::Hybrid { kda_per_mla }),
                _ => Err(ParseAttentionPlanError(text.into())),
            },
        }
    }
}
