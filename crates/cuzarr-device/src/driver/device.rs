//! Questions to a device that its driver answers.

use crate::device::Device;
use crate::driver::context::Context;
use crate::driver::cuda::driver::Driver;
use crate::error::{Error, ErrorKind, Result};

impl Device {
    /// The GPU whose memory holds this address, as the driver says. Starts CUDA.
    ///
    /// # Errors
    /// `DeviceUnavailable` when there is no driver, `MemorySpace` when it does not know the address.
    pub fn of_address(address: usize) -> Result<Device> {
        Driver::get()?.device_of(address)?.map(Device::Cuda).ok_or_else(|| {
            let message = format!("address {address:#x} is not memory of a GPU in this process");
            Error::new(ErrorKind::MemorySpace, message).with_hint("copy the array to a GPU first")
        })
    }

    /// How much memory the device has, and how much of it is free. Starts CUDA for a GPU.
    ///
    /// # Errors
    /// `DeviceUnavailable` when the device cannot be used, `Unsupported` when the host does not say.
    pub fn memory_info(self) -> Result<MemoryInfo> {
        if self == Device::Cpu {
            return host_memory_info();
        }
        let (free_bytes, total_bytes) = Context::get(self)?.backend.memory_info()?;
        Ok(MemoryInfo { free_bytes, total_bytes })
    }

    /// Blocks until everything that was ever put on the device by this process is done.
    ///
    /// # Errors
    /// `DeviceFailed`, also for failures of earlier work. A device that was not used has nothing to wait for.
    pub fn synchronize(self) -> Result<()> {
        Context::existing(self).map_or(Ok(()), |context| context.backend.synchronize_device())
    }

    /// Makes the device ready, so that the first real use does not pay for it (about 0.3 s on a GPU).
    ///
    /// # Errors
    /// `DeviceUnavailable`, with the reason, when the device cannot be used.
    pub fn initialize(self) -> Result<()> {
        if self == Device::Cpu { Ok(()) } else { Context::get(self).map(|_| ()) }
    }

    /// How many multiprocessors a GPU has. Speeds that were measured on another GPU are scaled by it.
    ///
    /// # Errors
    /// `Unsupported` for `cpu`, `DeviceUnavailable` when the device cannot be used.
    pub fn multiprocessors(self) -> Result<u32> {
        Ok(Context::get(self)?.backend.properties().multiprocessors)
    }

    /// A GPU's compute capability: which instructions and how much shared memory it has. (0, 0) in `simt`.
    ///
    /// # Errors
    /// `Unsupported` for `cpu`, `DeviceUnavailable` when the device cannot be used.
    pub fn compute_capability(self) -> Result<(u32, u32)> {
        Ok(Context::get(self)?.backend.properties().compute_capability)
    }
}

/// Memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that could be allocated; what pools keep unused is not counted.
    pub free_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

fn host_memory_info() -> Result<MemoryInfo> {
    let unknown = || Error::new(ErrorKind::Unsupported, "this host does not say how much memory it has");
    let text = std::fs::read_to_string("/proc/meminfo").map_err(|_| unknown())?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    match (field("MemAvailable"), field("MemTotal")) {
        (Some(free_bytes), Some(total_bytes)) => Ok(MemoryInfo { free_bytes, total_bytes }),
        _ => Err(unknown()),
    }
}
