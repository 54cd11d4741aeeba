//! Flat, untyped bytes on a device.

use std::any::Any;
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};

/// Keeps memory alive: dropping it gives the memory back to whoever it came from.
pub type Owner = Box<dyn Any + Send + Sync>;

/// A block of memory on one device. Every [`Buffer`] and nd-buffer that views it shares it; it ends with the last one.
struct Allocation {
    device: Device,
    address: usize,
    size_bytes: usize,
    owner: Owner,
}

/// Flat, untyped bytes on a device. Cloning and slicing share the memory; copying is always a word of its own.
#[derive(Clone)]
pub struct Buffer {
    allocation: Arc<Allocation>,
    offset_bytes: usize,
    size_bytes: usize,
}

impl Buffer {
    /// Takes a host vector without copying.
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        let (address, size_bytes) = (bytes.as_ptr() as usize, bytes.len());
        // SAFETY: the vector owns these bytes, is moved into the owner, and is never touched again.
        unsafe { Buffer::from_raw(Device::Cpu, address, size_bytes, Box::new(bytes)) }
    }

    /// Wraps memory that somebody else owns, without copying.
    ///
    /// # Safety
    /// `address` names `size_bytes` bytes on `device` that stay valid, and are not freed or moved, until `owner` is
    /// dropped; nobody else writes them while a safe reference to them exists.
    pub unsafe fn from_raw(device: Device, address: usize, size_bytes: usize, owner: Owner) -> Self {
        let allocation = Allocation { device, address, size_bytes, owner };
        Buffer { allocation: Arc::new(allocation), offset_bytes: 0, size_bytes }
    }

    /// Where the bytes are.
    pub fn device(&self) -> Device {
        self.allocation.device
    }

    /// How many bytes.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// The device address of the first byte. Reading through it is the caller's responsibility.
    pub fn address(&self) -> usize {
        self.allocation.address + self.offset_bytes
    }

    /// Who gives the memory back at the end.
    pub(crate) fn owner(&self) -> &(dyn Any + Send + Sync) {
        &*self.allocation.owner
    }

    /// Size of the whole block that this buffer is a view of.
    pub fn allocation_bytes(&self) -> usize {
        self.allocation.size_bytes
    }

    /// Whether two buffers are views of one block.
    pub fn shares_memory_with(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.allocation, &other.allocation)
    }

    /// A view of part of the bytes.
    ///
    /// # Errors
    /// `InvalidArgument` when the range is not inside the buffer.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Buffer> {
        let start = match range.start_bound() {
            Bound::Included(&start) => Some(start),
            Bound::Excluded(&start) => start.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end.checked_add(1),
            Bound::Excluded(&end) => Some(end),
            Bound::Unbounded => Some(self.size_bytes),
        };
        match (start, end) {
            (Some(start), Some(end)) if start <= end && end <= self.size_bytes => Ok(Buffer {
                allocation: Arc::clone(&self.allocation),
                offset_bytes: self.offset_bytes + start,
                size_bytes: end - start,
            }),
            _ => Err(Error::invalid(format!("range is not inside a buffer of {} bytes", self.size_bytes))),
        }
    }

    /// The bytes, when they are in host memory.
    ///
    /// # Errors
    /// `MemorySpace` when they are not.
    pub fn host_bytes(&self) -> Result<&[u8]> {
        self.require_host()?;
        if self.size_bytes == 0 {
            return Ok(&[]);
        }
        // SAFETY: host memory of this size, alive as long as `self` (constructors promise it); see `from_raw` on writers.
        Ok(unsafe { std::slice::from_raw_parts(self.address() as *const u8, self.size_bytes) })
    }

    /// The bytes, for writing, when they are in host memory and no other buffer views them.
    ///
    /// # Errors
    /// `MemorySpace` when they are elsewhere, `InvalidArgument` when they are shared.
    pub fn host_bytes_mut(&mut self) -> Result<&mut [u8]> {
        self.require_host()?;
        if self.size_bytes == 0 {
            return Ok(&mut []);
        }
        if Arc::get_mut(&mut self.allocation).is_none() {
            return Err(Error::invalid("cannot borrow shared memory for writing; copy it, or drop the other views"));
        }
        // SAFETY: host memory of this size, alive as long as `self`, and `self` is its only view.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.address() as *mut u8, self.size_bytes) })
    }

    fn require_host(&self) -> Result<()> {
        if self.device().is_host_accessible() {
            return Ok(());
        }
        let message = format!("bytes are on {}, the host cannot read them in place", self.device());
        Err(Error::new(ErrorKind::MemorySpace, message).with_hint("copy them to the host first"))
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({}, {} bytes)", self.device(), self.size_bytes)
    }
}
