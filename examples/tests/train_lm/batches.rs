use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use examples::text::{Batch, TrainBatches, evaluation_windows};

fn text() -> Arc<[u8]> {
    (0..1000).map(|index| (index % 251) as u8).collect()
}

#[test]
fn a_step_draws_the_same_windows_whenever_it_is_asked() {
    let batches = TrainBatches::new(text(), 8, 16, 7);
    let all: Vec<_> = (0..20).map(|step| batches.starts(step)).collect();
    let again = TrainBatches::new(text(), 8, 16, 7);
    assert_eq!(again.starts(13), all[13]);
    assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
    assert_ne!(TrainBatches::new(text(), 8, 16, 8).starts(0), all[0]);
}

#[test]
fn every_start_can_be_drawn_and_no_other() {
    let batches = TrainBatches::new(text()[..20].into(), 64, 16, 0);
    let mut seen = [false; 4];
    for start in (0..8).flat_map(|step| batches.starts(step)) {
        seen[start] = true;
    }
    assert_eq!(seen, [true; 4]);
}

#[test]
fn targets_are_the_inputs_one_byte_later() {
    let batches = TrainBatches::new(text(), 3, 16, 1);
    let batch = batches.batch(4, &Device::default());
    let (inputs, targets) = (batch.inputs.into_data(), batch.targets.into_data());
    assert_eq!(inputs.shape().to_vec(), [3, 16]);
    let inputs: Vec<i64> = inputs.iter().collect();
    let targets: Vec<i64> = targets.iter().collect();
    for (row, start) in batches.starts(4).into_iter().enumerate() {
        let window: Vec<i64> = text()[start..=start + 16]
            .iter()
            .map(|&byte| byte.into())
            .collect();
        assert_eq!(inputs[row * 16..][..16], window[..16]);
        assert_eq!(targets[row * 16..][..16], window[1..]);
    }
}

#[test]
fn parts_of_a_batch_are_its_windows_in_order() {
    let batch = TrainBatches::new(text(), 5, 16, 1).batch(0, &Device::default());
    for (parts, sizes) in [
        (1, vec![5]),
        (2, vec![2, 3]),
        (5, vec![1; 5]),
        (9, vec![1; 5]),
    ] {
        let parts = batch.split(parts);
        let found: Vec<_> = parts.iter().map(Batch::windows).collect();
        assert_eq!(found, sizes);
        let inputs = parts.iter().map(|part| part.inputs.clone()).collect();
        assert_eq!(
            Tensor::cat(inputs, 0).into_data(),
            batch.inputs.clone().into_data()
        );
        let targets = parts.iter().map(|part| part.targets.clone()).collect();
        assert_eq!(
            Tensor::cat(targets, 0).into_data(),
            batch.targets.clone().into_data()
        );
    }
}

#[test]
fn evaluation_windows_are_even_and_predict_no_byte_twice() {
    let text = text();
    let starts = |tokens| -> Vec<usize> {
        let windows = evaluation_windows(&text, 16, tokens);
        assert!(windows.iter().all(|window| window.len() == 17));
        windows
            .iter()
            .map(|window| window.as_ptr() as usize - text.as_ptr() as usize)
            .collect()
    };
    assert_eq!(starts(64), [0, 240, 496, 736]);
    // All there is room for: 999 predicted bytes are 62 windows of 16.
    assert_eq!(
        starts(usize::MAX),
        (0..62).map(|index| index * 16).collect::<Vec<_>>()
    );
    assert_eq!(starts(1), [0]);
    assert!(evaluation_windows(&text[..16], 16, 64).is_empty());
    assert_eq!(evaluation_windows(&text[..17], 16, 64).len(), 1);
}

#[test]
#[should_panic(expected = "windows must be of one length")]
fn windows_of_different_lengths_are_refused() {
    Batch::from_windows(&[b"abc", b"ab"], &Device::default());
}
