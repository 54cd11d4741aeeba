//! Allocation of buffers, and the choice of the pool for results: cuzarr's own or another library's.

use std::sync::{Arc, PoisonError, RwLock};

use crate::device::Device;
use crate::driver::context::Context;
use crate::error::{Error, Result};
use crate::memory::buffer::Buffer;
use crate::memory::pool::pooled::PooledMemory;
use crate::stream::Stream;

impl Buffer {
    /// Allocates a buffer of `size_bytes` on `device`, with unspecified contents. Host memory is zeroed and aligned to
    /// 64 bytes.
    ///
    /// # Errors
    /// `OutOfMemory`; `DeviceUnavailable` when the device cannot be used.
    pub fn empty(device: Device, size_bytes: usize) -> Result<Buffer> {
        match device {
            Device::Cpu => Buffer::zeroed_on_host(size_bytes),
            _ => allocate_on(device, size_bytes),
        }
    }

    /// Allocates a buffer of `size_bytes` zero bytes on `device`.
    ///
    /// # Errors
    /// Those of [`Buffer::empty`].
    pub fn zeroed(device: Device, size_bytes: usize) -> Result<Buffer> {
        match device {
            Device::Cpu => Buffer::zeroed_on_host(size_bytes),
            _ => {
                let buffer = Buffer::empty(device, size_bytes)?;
                let stream = Stream::legacy(device)?;
                stream.memset(&buffer, 0)?;
                stream.synchronize()?;
                Ok(buffer)
            }
        }
    }

    /// Copies host bytes to new memory on `device`.
    ///
    /// # Errors
    /// Those of [`Buffer::empty`].
    pub fn from_bytes(device: Device, bytes: &[u8]) -> Result<Buffer> {
        let buffer = Buffer::empty(device, bytes.len())?;
        Stream::legacy(device)?.h2d(bytes, &buffer)?;
        Ok(buffer)
    }

    /// Copies the buffer's bytes to a new buffer on `device`. Shares them if they are already there.
    ///
    /// # Errors
    /// Those of [`Buffer::empty`] and [`Buffer::copy_from`].
    pub fn to_device(&self, device: Device) -> Result<Buffer> {
        if self.device() == device {
            return Ok(self.clone());
        }
        let copied = Buffer::empty(device, self.size_bytes())?;
        copied.copy_from(self)?;
        Ok(copied)
    }

    /// Whether both buffers hold the same bytes, on any device.
    ///
    /// # Errors
    /// Those of [`Buffer::to_vec`]: bytes of a device are compared on the host.
    pub fn equals(&self, other: &Buffer) -> Result<bool> {
        if self.size_bytes() != other.size_bytes() {
            return Ok(false);
        }
        let (left, right) = (self.to_device(Device::Cpu)?, other.to_device(Device::Cpu)?);
        Ok(left.host_bytes()? == right.host_bytes()?)
    }
}

/// An allocator of memory for results: our pool, or that of CuPy, PyTorch or RMM.
pub trait DeviceAllocator: Send + Sync {
    /// Allocates uninitialised memory on `device`. Every stream may use it immediately.
    ///
    /// # Errors
    /// `OutOfMemory` when the device has no memory left, even after cached memory was given back.
    fn allocate(&self, device: Device, size_bytes: usize) -> Result<Buffer>;
}

/// cuzarr's own stream-ordered memory pool, as an allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pool;

impl DeviceAllocator for Pool {
    fn allocate(&self, device: Device, size_bytes: usize) -> Result<Buffer> {
        Ok(PooledMemory::new(Context::get(device)?, size_bytes, None)?.into_buffer())
    }
}

/// The allocator that the program chose for arrays that reads and computations return. `None` means our own pool.
static RESULTS: RwLock<Option<Arc<dyn DeviceAllocator>>> = RwLock::new(None);

/// Sets the pool that memory for results comes from, so that two libraries' pools do not compete for one GPU. `None`
/// selects our own. Scratch memory of kernels always comes from our pool.
pub fn set_allocator(allocator: Option<Arc<dyn DeviceAllocator>>) {
    *RESULTS.write().unwrap_or_else(PoisonError::into_inner) = allocator;
}

/// Allocates device memory for an array that a read or a computation returns, from the pool that [`set_allocator`]
/// chose. Every stream may use it immediately.
///
/// # Errors
/// `DeviceUnavailable` when the device cannot be used; `OutOfMemory`, after the pool was trimmed and tried again.
pub fn allocate_on(device: Device, size_bytes: usize) -> Result<Buffer> {
    if device == Device::Cpu {
        return Buffer::zeroed_on_host(size_bytes);
    }
    let chosen = RESULTS.read().unwrap_or_else(PoisonError::into_inner).clone();
    let Some(chosen) = chosen else { return Pool.allocate(device, size_bytes) };
    check_given(chosen.allocate(device, size_bytes)?, device, size_bytes)
}

/// Returns the first `size_bytes` of the memory that an allocator gave; refuses memory that does not fit the request.
fn check_given(given: Buffer, device: Device, size_bytes: usize) -> Result<Buffer> {
    if given.device() != device || given.size_bytes() < size_bytes || given.is_read_only() {
        let what = if given.is_read_only() { "read-only bytes" } else { "bytes" };
        let (got, place) = (given.size_bytes(), given.device());
        let message = format!("the allocator gave {got} {what} on {place}, expected {size_bytes} bytes on {device}");
        return Err(Error::invalid(message).with_hint("fix the allocator, or choose cuzarr's own"));
    }
    given.slice(..size_bytes)
}
