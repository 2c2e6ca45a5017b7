use burn::tensor::{Device, Distribution, Tensor};
use burn_kimi_linear::KdaState;

#[test]
fn both_layouts_are_the_same_memory() {
    let key_first = Tensor::<4>::random([2, 3, 4, 5], Distribution::Default, &Device::flex());
    let state = KdaState::from_key_value(key_first.clone());
    assert_eq!(state.dims(), [2, 3, 4, 5]);
    let value_first = state.into_value_key();
    assert_eq!(value_first.dims(), [2, 3, 5, 4]);
    let back = KdaState::from_value_key(value_first).into_key_value();
    assert_eq!(back.into_data(), key_first.into_data());
}

#[test]
fn an_empty_memory_is_zero() {
    let state = KdaState::zeros([1, 2, 3, 4], &Device::flex()).into_key_value();
    assert_eq!(state.dims(), [1, 2, 3, 4]);
    assert_eq!(state.abs().sum().into_scalar::<f32>(), 0.0);
}
