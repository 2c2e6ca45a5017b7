use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::{Example, Token, token};
use crate::synthetic::TaskSettings;

const SEPARATOR: Token = 0;
const FIRST_KEY: usize = 1;

/// `pairs` of a key and its value, a separator (token 0), and the pairs again in the order of `queries`, where the values are
/// the answers.
///
/// # Panics
/// If a query is no index of a pair.
pub fn mqar(pairs: &[(Token, Token)], queries: &[usize]) -> Example {
    let flat = |(key, value): (Token, Token)| [key, value];
    let mut tokens: Vec<Token> = pairs.iter().copied().flat_map(flat).collect();
    tokens.push(SEPARATOR);
    let first_value = tokens.len() + 1;
    tokens.extend(queries.iter().flat_map(|&query| flat(pairs[query])));
    Example {
        answers: (first_value..tokens.len()).step_by(2).collect(),
        tokens,
    }
}

/// Keys and values are different tokens.
pub(super) fn vocabulary(sizes: &TaskSettings) -> usize {
    FIRST_KEY + 2 * sizes.symbols
}

pub(super) fn length(sizes: &TaskSettings) -> usize {
    4 * sizes.pairs + 1
}

/// Keys of an example are distinct, and each is asked for once.
pub(super) fn draw(sizes: &TaskSettings, rng: &mut StdRng) -> Example {
    let mut keys: Vec<usize> = (0..sizes.symbols).collect();
    keys.shuffle(rng);
    let first_value = FIRST_KEY + sizes.symbols;
    let pairs: Vec<(Token, Token)> = keys
        .into_iter()
        .take(sizes.pairs)
        .map(|key| {
            let value = rng.random_range(0..sizes.symbols);
            (token(FIRST_KEY, key), token(first_value, value))
        })
        .collect();
    let mut queries: Vec<usize> = (0..sizes.pairs).collect();
    queries.shuffle(rng);
    mqar(&pairs, &queries)
}
