use examples::bigram::BigramTable;

#[test]
fn probabilities_are_smoothed_counts() {
    // In "abab" the pair ab occurs twice and ba once.
    let table = BigramTable::fit(b"abab");
    assert_eq!(table.probability(b'a', b'b'), 2.1 / (2.0 + 25.6));
    assert_eq!(table.probability(b'b', b'a'), 1.1 / (1.0 + 25.6));
    assert_eq!(table.probability(b'b', b'b'), 0.1 / (1.0 + 25.6));
    assert_eq!(table.probability(b'z', b'a'), 0.1 / 25.6);
    let total: f64 = (0..=255).map(|next| table.probability(b'a', next)).sum();
    assert!((total - 1.0).abs() < 1e-12);
}

#[test]
fn loss_is_the_mean_over_the_predicted_bytes_of_every_window() {
    let table = BigramTable::fit(b"abab");
    let expected = -((2.1_f64 / 27.6).ln() + (1.1_f64 / 26.6).ln() + (0.1_f64 / 26.6).ln()) / 3.0;
    // The pair at the border of two windows is predicted by neither.
    assert!((table.loss(&[b"aba", b"bb"]) - expected).abs() < 1e-15);
    assert_eq!(table.loss(&[]), 0.0);
}

#[test]
fn an_empty_table_knows_nothing() {
    assert!((BigramTable::fit(b"").loss(&[b"xy"]) - 256_f64.ln()).abs() < 1e-12);
}
