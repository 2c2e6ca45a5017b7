//! A plain Burn program that adds each crate of the workspace, one after the other.
//!
//! Prints a line a crate, and exits with 1 if one of them does not do what its user would expect.

// Only a skeleton so far: that it builds beside the others is all there is to show.
use burn_agent_swarm as _;

mod decoder;
mod delta_attention;
mod depth_attention;
mod optimizer;

use std::process::ExitCode;

use burn::tensor::{Device, Tensor};

/// What a crate showed, or what is wrong with it.
type Shown = Result<String, String>;

fn main() -> ExitCode {
    let device = Device::default();
    device.seed(7);
    let device = device.autodiff();

    let parts: [(&str, fn(&Device) -> Shown); 4] = [
        ("burn-muonclip", optimizer::show),
        ("burn-kimi-linear", delta_attention::show),
        ("burn-attnres", depth_attention::show),
        ("burn-kimi-model", decoder::show),
    ];
    let mut failed = false;
    for (name, show) in parts {
        match show(&device) {
            Ok(text) => println!("{name}: {text}"),
            Err(problem) => {
                failed = true;
                println!("{name}: WRONG: {problem}");
            }
        }
    }
    println!("burn-agent-swarm: linked");
    ExitCode::from(u8::from(failed))
}

/// The losses of a training run as text, if they are finite and the last is at most `share` of the first.
fn fell(losses: &[f32], share: f32) -> Shown {
    let (Some(first), Some(last)) = (losses.first(), losses.last()) else {
        return Err("no step was made".into());
    };
    let text = format!("loss {first:.4} -> {last:.4} in {} steps", losses.len());
    let finite = losses.iter().all(|loss| loss.is_finite());
    if finite && *last <= share * first {
        Ok(text)
    } else {
        Err(text)
    }
}

/// The largest absolute difference of two tensors.
fn difference<const D: usize>(one: Tensor<D>, other: Tensor<D>) -> f32 {
    (one - other).abs().max().into_scalar()
}
