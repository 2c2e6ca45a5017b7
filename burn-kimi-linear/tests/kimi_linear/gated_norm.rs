use burn::module::Param;
use burn::tensor::{Device, Tensor};
use burn_kimi_linear::GatedRmsNormConfig;

use crate::closeness::{assert_close, values};
use crate::draws::normal;
use crate::layer_oracle::gated_norm;

#[test]
fn normalises_each_head_and_then_gates() {
    let device = Device::flex();
    let shape = [2, 3, 2, 5];
    let random = || Tensor::<4>::from_data(normal(shape, 2.0), &device);
    let (x, gate) = (random(), random());
    let mut norm = GatedRmsNormConfig::new(5).with_epsilon(1e-3).init(&device);
    let weight = Tensor::<1>::from_data(normal([5], 1.0), &device);
    norm.norm.gamma = Param::from_tensor(weight.clone());
    let want = gated_norm(
        &values(x.clone()),
        &values(gate.clone()),
        &values(weight),
        1e-3,
    );
    assert_close("y", &values(norm.forward(x, gate)), &want, 1e-6);
}

/// A head without any signal is not divided by zero.
#[test]
fn zeros_stay_zero() {
    let device = Device::flex();
    let zeros = Tensor::<4>::zeros([1, 1, 1, 4], &device);
    let y = GatedRmsNormConfig::new(4)
        .init(&device)
        .forward(zeros.clone(), zeros);
    assert_eq!(values(y), [0.0; 4]);
}
