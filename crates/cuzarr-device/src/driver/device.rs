//! Methods of [`Device`] that ask the driver, for example how much memory is free.

use crate::device::Device;
use crate::driver::context::Context;
use crate::driver::cuda::driver::Driver;
use crate::error::{Error, ErrorKind, Result};

impl Device {
    /// Returns the GPU whose memory holds `address`, according to the driver. Starts CUDA.
    ///
    /// # Errors
    /// `DeviceUnavailable` when there is no driver, `MemorySpace` when the driver does not know the address.
    pub fn of_address(address: usize) -> Result<Device> {
        Driver::get()?.device_of(address)?.map(Device::Cuda).ok_or_else(|| {
            let message = format!("address {address:#x} is not memory of a GPU in this process");
            Error::new(ErrorKind::MemorySpace, message).with_hint("copy the array to a GPU first")
        })
    }

    /// Returns the device's total and free memory. Starts CUDA for a GPU.
    ///
    /// # Errors
    /// `DeviceUnavailable` when the device cannot be used, `Unsupported` when the host cannot tell.
    pub fn memory_info(self) -> Result<MemoryInfo> {
        if self == Device::Cpu {
            return host_memory_info();
        }
        let (free_bytes, total_bytes) = Context::get(self)?.backend.memory_info()?;
        Ok(MemoryInfo { free_bytes, total_bytes })
    }

    /// Blocks until all work that this process has submitted to the device is done.
    ///
    /// # Errors
    /// `DeviceFailed`, also for failures of earlier work. Never for a device that was not used: there is nothing to
    /// wait for.
    pub fn synchronize(self) -> Result<()> {
        Context::existing(self).map_or(Ok(()), |context| context.backend.synchronize_device())
    }

    /// Initialises the device, so that its first real use is not delayed (by about 0.3 s on a GPU).
    ///
    /// # Errors
    /// `DeviceUnavailable`, with the reason, when the device cannot be used.
    pub fn initialize(self) -> Result<()> {
        if self == Device::Cpu { Ok(()) } else { Context::get(self).map(|_| ()) }
    }

    /// Whether this process has used the device before, so that the next use starts without delay.
    pub fn is_initialized(self) -> bool {
        self == Device::Cpu || Context::existing(self).is_some()
    }

    /// Number of multiprocessors of a GPU. Costs that were measured on another GPU are scaled by it.
    ///
    /// # Errors
    /// `Unsupported` for `cpu`, `DeviceUnavailable` when the device cannot be used.
    pub fn multiprocessors(self) -> Result<u32> {
        Ok(Context::get(self)?.backend.properties().multiprocessors)
    }

    /// A GPU's compute capability, which tells its instruction set and its shared memory. (0, 0) on `simt`.
    ///
    /// # Errors
    /// `Unsupported` for `cpu`, `DeviceUnavailable` when the device cannot be used.
    pub fn compute_capability(self) -> Result<(u32, u32)> {
        Ok(Context::get(self)?.backend.properties().compute_capability)
    }
}

/// The memory sizes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Number of bytes of the device's memory that can be allocated. Unused memory of pools is not included.
    pub free_bytes: u64,
    /// Total size of the device's memory in bytes.
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
