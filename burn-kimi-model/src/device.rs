//! The devices a run can name on its command line.

use std::fmt;
use std::str::FromStr;

use burn::tensor::Device;
#[cfg(any(
    feature = "wgpu",
    feature = "vulkan",
    feature = "metal",
    feature = "webgpu"
))]
use burn::tensor::{DeviceKind, DeviceType};

/// The name of a device, as `--device` takes it. Every name exists in every build, so that a name
/// whose backend was not compiled gets an error that says which feature is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceName {
    /// Burn's CPU backend.
    #[default]
    Flex,
    /// The graphics API that wgpu prefers on this machine.
    Wgpu,
    /// wgpu on Vulkan only.
    Vulkan,
    /// wgpu on Metal only.
    Metal,
    /// wgpu on the browser's WebGPU only.
    WebGpu,
    /// The first NVIDIA GPU.
    Cuda,
    /// The first AMD GPU.
    Rocm,
}

impl DeviceName {
    /// Every name, in the order the help shows them.
    pub const ALL: [Self; 7] = [
        Self::Flex,
        Self::Wgpu,
        Self::Vulkan,
        Self::Metal,
        Self::WebGpu,
        Self::Cuda,
        Self::Rocm,
    ];

    /// Opens the device: the first of its kind, and for the four graphics names a software adapter
    /// when the machine has no other. `CUBECL_WGPU_DEFAULT_DEVICE` overrides the choice among
    /// graphics adapters.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NotCompiled`] if this build lacks the backend, [`DeviceError::NoHardware`]
    /// if the backend finds nothing to run on.
    pub fn open(self) -> Result<Device, DeviceError> {
        match self {
            #[cfg(feature = "flex")]
            Self::Flex => Ok(Device::flex()),
            #[cfg(feature = "wgpu")]
            Self::Wgpu => self.open_adapter(DeviceType::Wgpu, Device::wgpu),
            #[cfg(feature = "vulkan")]
            Self::Vulkan => self.open_adapter(DeviceType::Vulkan, Device::vulkan),
            #[cfg(feature = "metal")]
            Self::Metal => self.open_adapter(DeviceType::Metal, Device::metal),
            #[cfg(feature = "webgpu")]
            Self::WebGpu => self.open_adapter(DeviceType::WebGpu, Device::webgpu),
            #[cfg(feature = "cuda")]
            Self::Cuda => self.first_of(burn::tensor::DeviceType::Cuda),
            #[cfg(feature = "rocm")]
            Self::Rocm => self.first_of(burn::tensor::DeviceType::Rocm),
            #[allow(unreachable_patterns)] // Reached only by the names this build leaves out.
            name => Err(DeviceError::NotCompiled { name }),
        }
    }

    /// Chooses among the adapters of one graphics API. Burn's default adapter is the fastest GPU;
    /// with nothing but a software adapter, that one is named outright.
    #[cfg(any(
        feature = "wgpu",
        feature = "vulkan",
        feature = "metal",
        feature = "webgpu"
    ))]
    fn open_adapter(
        self,
        adapters: DeviceType,
        open: impl Fn(DeviceKind) -> Device,
    ) -> Result<Device, DeviceError> {
        let found: Vec<Device> = Device::enumerate(adapters).into_iter().collect();
        let software = open(DeviceKind::Cpu);
        match found.as_slice() {
            [] => Err(DeviceError::NoHardware { name: self }),
            [only] if *only == software && !adapter_is_overridden() => Ok(software),
            _ => Ok(open(DeviceKind::DefaultDevice)),
        }
    }

    #[cfg(any(feature = "cuda", feature = "rocm"))]
    fn first_of(self, kind: burn::tensor::DeviceType) -> Result<Device, DeviceError> {
        Device::enumerate(kind)
            .into_iter()
            .next()
            .ok_or(DeviceError::NoHardware { name: self })
    }
}

#[cfg(any(
    feature = "wgpu",
    feature = "vulkan",
    feature = "metal",
    feature = "webgpu"
))]
fn adapter_is_overridden() -> bool {
    std::env::var_os("CUBECL_WGPU_DEFAULT_DEVICE").is_some()
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flex => "flex",
            Self::Wgpu => "wgpu",
            Self::Vulkan => "vulkan",
            Self::Metal => "metal",
            Self::WebGpu => "webgpu",
            Self::Cuda => "cuda",
            Self::Rocm => "rocm",
        })
    }
}

impl FromStr for DeviceName {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        Self::ALL
            .into_iter()
            .find(|name| name.to_string() == text)
            .ok_or_else(|| DeviceError::UnknownName { text: text.into() })
    }
}

/// Why a device could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The text names no device.
    #[error("unknown device `{text}`: use one of {}", names())]
    UnknownName {
        /// What was given.
        text: String,
    },
    /// The backend is not part of this build.
    #[error("device `{name}` is not in this build: build with `--features {name}`")]
    NotCompiled {
        /// The device asked for; its cargo feature has the same name.
        name: DeviceName,
    },
    /// The backend is there, and found no hardware or driver.
    #[error("device `{name}`: no adapter or driver for it was found on this machine")]
    NoHardware {
        /// The device asked for.
        name: DeviceName,
    },
}

fn names() -> String {
    DeviceName::ALL.map(|name| name.to_string()).join(", ")
}
