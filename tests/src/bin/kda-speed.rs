//! Prints how fast the KDA operator is on a device: `benches/gpu.sh` runs it on CUDA.
//!
//! Exit status: 0, or 2 if the arguments make no sense.

use std::process::ExitCode;

use burn::tensor::{DType, Device, FloatDType};
use burn_kimi_model::DeviceName;
use clap::{Parser, ValueEnum};
use tests::speed::{Batch, Cost, Limits, Pass, Repeats, Widths, Work};

/// Time the KDA operator, forward and with gradients, on the batches that such kernels are published with.
#[derive(Parser)]
struct Arguments {
    /// Where to compute: flex, wgpu, vulkan, metal, webgpu, cuda or rocm.
    #[arg(long, value_name = "NAME", default_value_t)]
    device: DeviceName,

    /// Tokens of a batch.
    #[arg(long, default_value_t = 8192)]
    tokens: usize,

    /// Heads, one table each.
    #[arg(long, value_delimiter = ',', default_value = "96,64")]
    heads: Vec<usize>,

    /// Width of keys and values.
    #[arg(long, default_value_t = 128)]
    width: usize,

    /// How inputs and output are stored; by default bf16 where the device has it, else f32.
    #[arg(long, value_enum)]
    dtype: Option<Storage>,

    /// Calls before the clock starts.
    #[arg(long, default_value_t = 10)]
    warm_up: usize,

    /// Measurements; the median counts.
    #[arg(long, default_value_t = 5)]
    samples: usize,

    /// Calls in one measurement.
    #[arg(long, default_value_t = 20)]
    calls: usize,

    /// The device's memory bandwidth in GB/s. The default is an H200's.
    #[arg(long, default_value_t = 4800.0)]
    bandwidth: f64,

    /// The device's peak in TFLOP/s. The default is an H200's, bf16 without sparsity.
    #[arg(long, default_value_t = 989.0)]
    peak: f64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Storage {
    F32,
    F16,
    Bf16,
}

impl Storage {
    fn float(self) -> FloatDType {
        match self {
            Self::F32 => FloatDType::F32,
            Self::F16 => FloatDType::F16,
            Self::Bf16 => FloatDType::BF16,
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let device = match arguments.device.open() {
        Ok(device) => device,
        Err(error) => return unusable(&error.to_string()),
    };
    if arguments.tokens == 0 || arguments.width == 0 || arguments.heads.contains(&0) {
        return unusable("--tokens, --heads and --width must be at least 1");
    }
    let has = |storage: &Storage| device.supports_dtype(storage.float());
    let storage = arguments
        .dtype
        .or(Some(Storage::Bf16).filter(has))
        .unwrap_or(Storage::F32);
    if !has(&storage) {
        return unusable(&format!(
            "{} does not store {:?}: give another --dtype",
            arguments.device,
            storage.float()
        ));
    }
    print_tables(&arguments, &device, DType::from(storage.float()));
    ExitCode::SUCCESS
}

fn print_tables(arguments: &Arguments, device: &Device, dtype: DType) {
    let Arguments {
        tokens,
        width,
        bandwidth,
        peak,
        ..
    } = *arguments;
    let repeats = Repeats {
        warm_up: arguments.warm_up,
        samples: arguments.samples,
        calls: arguments.calls,
    };
    let limits = Limits {
        bandwidth: bandwidth * 1e9,
        flops: peak * 1e12,
    };
    let widths = Widths {
        head: width,
        number: dtype.size(),
    };
    println!(
        "{}: T = {tokens}, K = V = {width}, {dtype:?}; median of {} x {} calls; floor at {bandwidth} GB/s and {peak} TFLOP/s",
        arguments.device, repeats.samples, repeats.calls
    );
    for &heads in &arguments.heads {
        println!("\n| H = {heads} | pass | ms | GB/s | TFLOP/s | floor, ms | times the floor |");
        println!("|---|---|---|---|---|---|---|");
        for batch in Batch::published(tokens) {
            for (name, pass) in [
                ("forward", Pass::Forward),
                ("forward and backward", Pass::ForwardBackward),
            ] {
                let cost = Cost::of(pass, tokens * heads, widths);
                let seconds = Work::new(device, dtype, &batch, [heads, width], pass).time(repeats);
                println!(
                    "| {} | {name} | {:.3} | {:.1} | {:.2} | {:.3} | {:.1} |",
                    batch.name,
                    seconds * 1e3,
                    cost.bytes / seconds / 1e9,
                    cost.flops / seconds / 1e12,
                    limits.floor(cost) * 1e3,
                    seconds / limits.floor(cost)
                );
            }
        }
    }
}

fn unusable(reason: &str) -> ExitCode {
    eprintln!("error: {reason}");
    ExitCode::from(2)
}
