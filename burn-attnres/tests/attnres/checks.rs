//! Mistakes in shape, dtype and eps name the tensor, what it is and what was wanted.

use burn::tensor::{DType, Device, Tensor};
use burn_attnres::depth_attention;

fn zeros(shape: [usize; 3]) -> Tensor<3> {
    Tensor::zeros(shape, &Device::flex())
}

fn read(sources: &[Tensor<3>], query: usize, gamma: usize, eps: f64) -> Tensor<3> {
    let ones = |len| Tensor::ones([len], &Device::flex());
    depth_attention(sources, ones(query), ones(gamma), eps)
}

#[test]
#[should_panic(expected = "sources is empty, wanted at least one tensor [batch, tokens, d]")]
fn no_sources() {
    read(&[], 4, 4, 1e-6);
}

#[test]
#[should_panic(expected = "sources[2] has shape [1, 3, 4], wanted [1, 2, 4] as sources[0]")]
fn sources_of_different_length() {
    let sources = [zeros([1, 2, 4]), zeros([1, 2, 4]), zeros([1, 3, 4])];
    read(&sources, 4, 4, 1e-6);
}

#[test]
#[should_panic(expected = "sources[1] has dtype F64, wanted F32 as sources[0]")]
fn sources_of_different_dtype() {
    let sources = [zeros([1, 2, 4]), zeros([1, 2, 4]).cast(DType::F64)];
    read(&sources, 4, 4, 1e-6);
}

#[test]
#[should_panic(expected = "sources[0] has shape [1, 2, 0], wanted [batch, tokens, d]")]
fn sources_without_features() {
    read(&[zeros([1, 2, 0]), zeros([1, 2, 0])], 0, 0, 1e-6);
}

#[test]
#[should_panic(expected = "query has shape [5], wanted [4] for sources of shape [1, 2, 4]")]
fn query_of_another_width() {
    read(&[zeros([1, 2, 4])], 5, 4, 1e-6);
}

#[test]
#[should_panic(expected = "gamma has shape [1], wanted [4] for sources of shape [1, 2, 4]")]
fn gamma_is_not_broadcast() {
    read(&[zeros([1, 2, 4]), zeros([1, 2, 4])], 4, 1, 1e-6);
}

#[test]
#[should_panic(expected = "eps is -0.000001, wanted a finite number of at least 0")]
fn negative_eps() {
    read(&[zeros([1, 2, 4])], 4, 4, -1e-6);
}

#[test]
#[should_panic(expected = "eps is NaN, wanted a finite number of at least 0")]
fn eps_not_a_number() {
    read(&[zeros([1, 2, 4])], 4, 4, f64::NAN);
}
