use serde::{Deserialize, Serialize};

/// What mixes the tokens of a model. Everything else is the same in all arms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
#[value(rename_all = "kebab-case")]
pub enum Arm {
    /// Kimi Delta Attention: the delta rule, and a decay for every key channel
    Kda,
    /// The same with one decay a head, as in the gated delta rule
    ScalarGate,
    /// The same decay as KDA with a plain sum for the delta rule: gated linear attention
    NoDelta,
    /// Causal softmax attention
    Softmax,
}

impl Arm {
    /// Every arm, in the order of reports.
    pub const ALL: [Self; 4] = [Self::Kda, Self::ScalarGate, Self::NoDelta, Self::Softmax];

    /// The name that `--arms` takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kda => "kda",
            Self::ScalarGate => "scalar-gate",
            Self::NoDelta => "no-delta",
            Self::Softmax => "softmax",
        }
    }
}
