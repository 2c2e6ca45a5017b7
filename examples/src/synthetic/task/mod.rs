//! The three tasks of the Kimi Linear report (arXiv 2510.26692, section 5.1). Each is one sequence of tokens in which some
//! tokens, the answers, follow from those before them.

mod mqar;
mod palindrome;
mod stack;

use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

use super::TaskSettings;

pub use mqar::mqar;
pub use palindrome::palindrome;
pub use stack::{Operation, stack};

/// A token of a task, from 0 to its vocabulary.
pub type Token = u16;

/// A sequence with its answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// The tokens, prompt and answers together.
    pub tokens: Vec<Token>,
    /// Where in `tokens` the answers are, in rising order, never at 0.
    pub answers: Vec<usize>,
}

/// Which task a model is trained on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
#[value(rename_all = "kebab-case")]
pub enum TaskKind {
    /// Repeat random tokens in reverse
    Palindrome,
    /// Multi-query associative recall: the values of keys that were paired before
    Mqar,
    /// The tokens that come off several stacks
    Stack,
}

impl TaskKind {
    /// Every task, in the order of reports.
    pub const ALL: [Self; 3] = [Self::Palindrome, Self::Mqar, Self::Stack];

    /// The name that `--tasks` takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Palindrome => "palindrome",
            Self::Mqar => "mqar",
            Self::Stack => "stack",
        }
    }

    /// How many different tokens there are.
    pub fn vocabulary(self, sizes: &TaskSettings) -> usize {
        match self {
            Self::Palindrome => palindrome::vocabulary(sizes),
            Self::Mqar => mqar::vocabulary(sizes),
            Self::Stack => stack::vocabulary(sizes),
        }
    }

    /// How many tokens an example has: all of a task are of one length.
    pub fn length(self, sizes: &TaskSettings) -> usize {
        match self {
            Self::Palindrome => palindrome::length(sizes),
            Self::Mqar => mqar::length(sizes),
            Self::Stack => stack::length(sizes),
        }
    }

    /// A random example.
    pub fn draw(self, sizes: &TaskSettings, rng: &mut StdRng) -> Example {
        match self {
            Self::Palindrome => palindrome::draw(sizes, rng),
            Self::Mqar => mqar::draw(sizes, rng),
            Self::Stack => stack::draw(sizes, rng),
        }
    }
}

/// `index` counted from the first token of its kind, as a token. Settings are checked to stay within tokens.
fn token(first: usize, index: usize) -> Token {
    Token::try_from(first + index).expect("the settings bound every vocabulary")
}
