//! The sequences that a call works on.

/// Sequences behind each other in one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// What the table calls it.
    pub name: &'static str,
    /// Tokens of each sequence.
    pub lengths: Vec<usize>,
}

/// The mixed lengths that kernels of this operator are published with, of 8192 tokens.
const MIXED: [usize; 6] = [1300, 547, 2048, 963, 271, 3063];

impl Batch {
    /// The three batches of the published tables, for `tokens` tokens in all: one sequence, mixed lengths, and eight equal ones.
    #[must_use]
    pub fn published(tokens: usize) -> [Self; 3] {
        let whole: usize = MIXED.iter().sum();
        [
            Self {
                name: "one",
                lengths: vec![tokens],
            },
            Self {
                name: "mixed",
                lengths: shares(tokens, &MIXED.map(|length| (length, whole))),
            },
            Self {
                name: "eight",
                lengths: shares(tokens, &[(1, 8); 8]),
            },
        ]
    }

    /// Where each sequence begins, and where the last one ends.
    #[must_use]
    pub fn offsets(&self) -> Vec<usize> {
        let mut offsets = vec![0];
        for length in &self.lengths {
            offsets.push(offsets[offsets.len() - 1] + length);
        }
        offsets
    }
}

/// `tokens` divided by fractions that add up to 1; the last share takes what rounding leaves.
fn shares(tokens: usize, fractions: &[(usize, usize)]) -> Vec<usize> {
    let mut shares: Vec<usize> = fractions
        .iter()
        .map(|(part, whole)| tokens * part / whole)
        .collect();
    let given: usize = shares.iter().sum();
    if let Some(last) = shares.last_mut() {
        *last += tokens - given;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_the_published_ones_and_hold_every_token() {
        let [one, mixed, eight] = Batch::published(8192);
        assert_eq!(one.lengths, [8192]);
        assert_eq!(mixed.lengths, MIXED);
        assert_eq!(eight.lengths, [1024; 8]);
        for tokens in [0, 1, 7, 100, 8193] {
            for batch in Batch::published(tokens) {
                assert_eq!(batch.offsets().last(), Some(&tokens), "{batch:?}");
            }
        }
    }
}
