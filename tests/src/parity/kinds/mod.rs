//! The kinds of cases: one file for each that is supported.

mod attnres;
mod attnres_stack;
mod kda;
mod kda_gate;
mod muon;
mod qk_clip;

use std::fmt;
use std::str::FromStr;

use super::case::Case;
use super::error::CaseError;
use super::session::Session;
use super::tensors::TensorFile;
use super::tolerance::Tolerance;

/// What a case checks. The case format knows all of these; those without an operator here are
/// reported as failures, not skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The KDA operator with its states and six gradients.
    Kda,
    /// The two forget gates of KDA.
    KdaGate,
    /// One depth-attention read.
    AttnRes,
    /// A whole stack of sublayers under a block schedule.
    AttnResStack,
    /// Several Muon steps on one matrix.
    Muon,
    /// Clipping of attention projections.
    QkClip,
    /// A whole Kimi-Linear model.
    KimiLinear,
    /// A whole Kimi-K2.5 model.
    KimiK25,
    /// Text to token ids.
    Tokenizer,
    /// Pixels to patches.
    Image,
}

/// Computes what a case expects: inputs from the session, outputs back into it.
pub(super) type Operator = fn(&Case, &mut Session<'_>) -> Result<(), CaseError>;

impl Kind {
    const ALL: [Self; 10] = [
        Self::Kda,
        Self::KdaGate,
        Self::AttnRes,
        Self::AttnResStack,
        Self::Muon,
        Self::QkClip,
        Self::KimiLinear,
        Self::KimiK25,
        Self::Tokenizer,
        Self::Image,
    ];

    /// How a case of this kind is computed; `None` if it cannot be yet.
    pub(super) fn operator(self) -> Option<Operator> {
        match self {
            Self::Kda => Some(kda::compute),
            Self::KdaGate => Some(kda_gate::compute),
            Self::AttnRes => Some(attnres::compute),
            Self::AttnResStack => Some(attnres_stack::compute),
            Self::Muon => Some(muon::compute),
            Self::QkClip => Some(qk_clip::compute),
            Self::KimiLinear | Self::KimiK25 | Self::Tokenizer | Self::Image => None,
        }
    }

    /// The tolerance of an expected tensor.
    pub(super) fn tolerance(
        self,
        case: &Case,
        tensors: &TensorFile,
        name: &str,
    ) -> Result<Tolerance, CaseError> {
        if self == Self::AttnRes && attnres::is_exactly_zero(tensors, name)? {
            return Ok(Tolerance::EXACT);
        }
        case.tolerance(name)
    }

    /// Every kind's name, for messages.
    pub(super) fn names() -> String {
        Self::ALL.map(|kind| kind.to_string()).join(", ")
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kda => "kda",
            Self::KdaGate => "kda_gate",
            Self::AttnRes => "attnres",
            Self::AttnResStack => "attnres_stack",
            Self::Muon => "muon",
            Self::QkClip => "qk_clip",
            Self::KimiLinear => "kimi_linear",
            Self::KimiK25 => "kimi_k25",
            Self::Tokenizer => "tokenizer",
            Self::Image => "image",
        })
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.to_string() == text)
            .ok_or(())
    }
}
