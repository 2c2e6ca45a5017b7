//! Which form a matrix takes, and where the Gram form starts anew.

/// From how many times as long as wide on the Gram form is taken. Counted with symmetric products both are equal at 1.1; the Gram form has more small products.
const LONG: f64 = 1.25;

/// The same where symmetric products are computed as a whole: both are equal at 1.6.
const LONG_WITHOUT_SYMMETRY: f64 = 2.0;

/// Steps before the first new start. They see the smallest eigenvalues, which rounding hurts most.
const FIRST: usize = 2;

/// Steps between new starts.
const NEXT: usize = 3;

/// Whether matrices with sides `short <= long` take the Gram form, where symmetric products cost half.
pub(super) fn takes_gram_form(short: usize, long: usize) -> bool {
    long as f64 >= LONG * short as f64
}

/// The same where they cost all.
pub(super) fn takes_gram_form_without_symmetry(short: usize, long: usize) -> bool {
    long as f64 >= LONG_WITHOUT_SYMMETRY * short as f64
}

/// The steps that are taken on one Gram matrix.
pub(super) fn segments(steps: &[[f64; 3]]) -> impl Iterator<Item = &[[f64; 3]]> {
    let (first, rest) = steps.split_at(FIRST.min(steps.len()));
    std::iter::once(first)
        .filter(|steps| !steps.is_empty())
        .chain(rest.chunks(NEXT))
}
