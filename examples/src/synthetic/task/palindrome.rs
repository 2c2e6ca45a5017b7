use rand::RngExt;
use rand::rngs::StdRng;

use super::{Example, Token, token};
use crate::synthetic::TaskSettings;

const SEPARATOR: Token = 0;
const FIRST_SYMBOL: usize = 1;

/// `symbols`, a separator (token 0), and the symbols in reverse, which are the answers.
pub fn palindrome(symbols: &[Token]) -> Example {
    let reversed = symbols.iter().rev();
    Example {
        tokens: symbols
            .iter()
            .chain([&SEPARATOR])
            .chain(reversed)
            .copied()
            .collect(),
        answers: (symbols.len() + 1..=2 * symbols.len()).collect(),
    }
}

pub(super) fn vocabulary(sizes: &TaskSettings) -> usize {
    FIRST_SYMBOL + sizes.symbols
}

pub(super) fn length(sizes: &TaskSettings) -> usize {
    2 * sizes.reversed + 1
}

pub(super) fn draw(sizes: &TaskSettings, rng: &mut StdRng) -> Example {
    let symbols: Vec<Token> = (0..sizes.reversed)
        .map(|_| token(FIRST_SYMBOL, rng.random_range(0..sizes.symbols)))
        .collect();
    palindrome(&symbols)
}
