use burn::tensor::Device;
use examples::cli::Cli;
use examples::sample::{Sampling, sample};
use examples::train::{Interrupt, decoder_config};

use crate::tiny::FLAGS;

#[test]
fn is_reproducible_and_as_long_as_asked() {
    let settings = Cli::parse_line(["train-lm"].iter().chain(&FLAGS))
        .expect("flags")
        .settings;
    let device = Device::default();
    let model = decoder_config(&settings.model)
        .expect("a model")
        .init(&device);
    let run = |temperature, seed| {
        sample(
            &model,
            b"fn main",
            &Sampling {
                length: 12,
                temperature,
                seed,
            },
            &device,
            &Interrupt::default(),
        )
    };
    assert_eq!(run(1.0, 3).len(), 12);
    assert_eq!(run(1.0, 3), run(1.0, 3));
    assert_ne!(run(1.0, 3), run(1.0, 4));
    assert_eq!(run(0.0, 3), run(0.0, 4));
}
