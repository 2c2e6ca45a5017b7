use rand::RngExt;
use rand::rngs::StdRng;

use super::{Example, Token, token};
use crate::synthetic::TaskSettings;

const PUSH: Token = 0;
const POP: Token = 1;
const FIRST_STACK: usize = 2;

/// What happens to one of several stacks. Stacks and symbols are given by their tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The symbol goes on the stack.
    Push {
        /// The stack.
        stack: Token,
        /// What is put on it.
        symbol: Token,
    },
    /// The newest symbol comes off the stack.
    Pop {
        /// The stack.
        stack: Token,
    },
}

/// Three tokens an operation: token 0 or 1 for push or pop, the stack, and the symbol. Symbols that come off are the answers.
///
/// # Panics
/// If a stack is empty when something is to come off it.
pub fn stack(operations: &[Operation]) -> Example {
    // What is on the stacks, oldest first, each with its stack.
    let mut content: Vec<(Token, Token)> = Vec::new();
    let mut example = Example {
        tokens: Vec::with_capacity(3 * operations.len()),
        answers: Vec::new(),
    };
    for &operation in operations {
        match operation {
            Operation::Push { stack, symbol } => {
                content.push((stack, symbol));
                example.tokens.extend([PUSH, stack, symbol]);
            }
            Operation::Pop { stack } => {
                let newest = content
                    .iter()
                    .rposition(|&(holder, _)| holder == stack)
                    .unwrap_or_else(|| panic!("stack: nothing is on stack {stack} to come off it"));
                let (_, symbol) = content.remove(newest);
                example.answers.push(example.tokens.len() + 2);
                example.tokens.extend([POP, stack, symbol]);
            }
        }
    }
    example
}

pub(super) fn vocabulary(sizes: &TaskSettings) -> usize {
    FIRST_STACK + sizes.stacks + sizes.symbols
}

pub(super) fn length(sizes: &TaskSettings) -> usize {
    3 * sizes.operations
}

/// Half of the operations are pops, so that every example has as many answers. A coin decides between push and pop as long as
/// both are possible, and any stack (with something on it) is as likely as another.
pub(super) fn draw(sizes: &TaskSettings, rng: &mut StdRng) -> Example {
    let pushes = sizes.operations - sizes.operations / 2;
    let first_symbol = FIRST_STACK + sizes.stacks;
    let mut depths = vec![0; sizes.stacks];
    let mut pushed = 0;
    let mut operations = Vec::with_capacity(sizes.operations);
    while operations.len() < sizes.operations {
        let filled: Vec<usize> = (0..sizes.stacks).filter(|&at| depths[at] > 0).collect();
        let pops = match (filled.is_empty(), pushed == pushes) {
            (true, _) => false,
            (_, true) => true,
            _ => rng.random(),
        };
        operations.push(if pops {
            let at = filled[rng.random_range(0..filled.len())];
            depths[at] -= 1;
            Operation::Pop {
                stack: token(FIRST_STACK, at),
            }
        } else {
            let at = rng.random_range(0..sizes.stacks);
            depths[at] += 1;
            pushed += 1;
            Operation::Push {
                stack: token(FIRST_STACK, at),
                symbol: token(first_symbol, rng.random_range(0..sizes.symbols)),
            }
        });
    }
    stack(&operations)
}
