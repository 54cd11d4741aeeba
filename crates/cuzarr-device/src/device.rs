//! Devices: `cpu`, or `cuda:N`.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// A place that holds memory and runs kernels: `cpu`, or `cuda:N`.
///
/// ```
/// use cuzarr_device::Device;
/// assert_eq!("cuda:1".parse::<Device>()?, Device::Cuda(1));
/// assert_eq!("cuda".parse::<Device>()?, Device::Cuda(0));
/// assert_eq!(Device::Cpu.to_string(), "cpu");
/// # Ok::<(), cuzarr_device::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Device {
    /// Host memory.
    Cpu,
    /// The GPU with this number in CUDA.
    Cuda(u32),
    /// A simulated GPU: host memory that is treated like a GPU's. Kernels are the same `.cu` files, compiled for the
    /// CPU. For tests only.
    #[doc(hidden)]
    Simt,
}

impl Device {
    /// Whether the host may read and write this device's memory through plain pointers.
    ///
    /// `false` for `Simt`: code must treat its memory like a GPU's.
    pub fn is_host_accessible(self) -> bool {
        self == Device::Cpu
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            Device::Simt => f.write_str("simt"),
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "cpu" => Ok(Device::Cpu),
            "cuda" | "gpu" => Ok(Device::Cuda(0)),
            "simt" => Ok(Device::Simt),
            _ => text
                .strip_prefix("cuda:")
                .and_then(|ordinal| ordinal.parse().ok())
                .map(Device::Cuda)
                .ok_or_else(|| Error::invalid(format!("unknown device '{text}', expected 'cpu' or 'cuda:N'"))),
        }
    }
}
