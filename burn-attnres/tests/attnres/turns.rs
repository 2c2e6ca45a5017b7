//! A call out of turn panics with a message that names the call and what to do.

use burn::tensor::{DType, Device, Tensor};
use burn_attnres::{AttnRes, AttnResState, BlockPlan};

use crate::network::{D, attn_res};

fn started() -> (AttnRes, AttnResState) {
    let reads = attn_res(2, BlockPlan::Full, &Device::flex());
    let stream = reads.start(ones([1, 3, D]));
    (reads, stream)
}

fn ones(shape: [usize; 3]) -> Tensor<3> {
    Tensor::ones(shape, &Device::flex())
}

#[test]
#[should_panic(
    expected = "AttnRes::start: embedding has shape [1, 3, 7], wanted [batch, tokens, 6]"
)]
fn start_with_another_width() {
    attn_res(2, BlockPlan::Full, &Device::flex()).start(ones([1, 3, 7]));
}

#[test]
#[should_panic(expected = "read: sub-layer 0 was read and not written; call write first")]
fn read_twice() {
    let (reads, mut stream) = started();
    stream.read(&reads);
    stream.read(&reads);
}

#[test]
#[should_panic(expected = "read: all 2 sub-layers are written; call finish")]
fn read_after_the_last() {
    let (reads, mut stream) = started();
    for _ in 0..3 {
        let h = stream.read(&reads);
        stream.write(h);
    }
}

#[test]
#[should_panic(expected = "write: sub-layer 0 was not read; call read first")]
fn write_before_read() {
    started().1.write(ones([1, 3, D]));
}

#[test]
#[should_panic(
    expected = "write: the output of sub-layer 0 has shape [1, 1, 6], wanted [1, 3, 6] as the embedding"
)]
fn write_another_shape() {
    let (reads, mut stream) = started();
    stream.read(&reads);
    stream.write(ones([1, 1, D]));
}

#[test]
#[should_panic(
    expected = "write: the output of sub-layer 0 has dtype F64, wanted F32 as the embedding"
)]
fn write_another_dtype() {
    let (reads, mut stream) = started();
    stream.read(&reads);
    stream.write(ones([1, 3, D]).cast(DType::F64));
}

#[test]
#[should_panic(
    expected = "finish: 1 of 2 sub-layers are written; call read and write for the others"
)]
fn finish_too_early() {
    let (reads, mut stream) = started();
    let h = stream.read(&reads);
    stream.write(h);
    stream.finish(&reads);
}

#[test]
#[should_panic(expected = "finish: sub-layer 0 was read and not written; call write first")]
fn finish_before_write() {
    let (reads, mut stream) = started();
    stream.read(&reads);
    stream.finish(&reads);
}

#[test]
#[should_panic(
    expected = "read: attn_res has 2 sub-layers in 1 blocks, wanted 2 in 2, as the one that started this stream"
)]
fn read_with_the_parameters_of_another_stack() {
    let (_, mut stream) = started();
    stream.read(&attn_res(2, BlockPlan::NumBlocks(1), &Device::flex()));
}
