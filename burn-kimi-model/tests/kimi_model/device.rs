//! Device names.

use burn_kimi_model::{DeviceError, DeviceName};

#[test]
fn every_name_reads_back_as_it_is_written() {
    for name in DeviceName::ALL {
        assert_eq!(name.to_string().parse(), Ok(name));
    }
}

#[test]
fn an_unknown_name_is_answered_with_the_known_ones() {
    let error = "gpu"
        .parse::<DeviceName>()
        .expect_err("no device is called gpu");
    let message = error.to_string();
    assert!(
        message.contains("`gpu`") && message.contains("flex, wgpu"),
        "{message}"
    );
}

#[test]
fn flex_opens() {
    DeviceName::Flex
        .open()
        .expect("flex is in the default build");
}

#[test]
#[cfg(not(feature = "rocm"))]
fn a_name_outside_the_build_says_which_feature_it_needs() {
    let error = DeviceName::Rocm
        .open()
        .expect_err("rocm is not in this build");
    assert_eq!(
        error,
        DeviceError::NotCompiled {
            name: DeviceName::Rocm
        }
    );
    assert!(error.to_string().contains("--features rocm"), "{error}");
}
