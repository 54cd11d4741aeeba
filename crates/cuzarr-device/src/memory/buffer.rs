//! Flat, untyped bytes on a device.

use std::any::Any;
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::host_block::HostMemory;
use crate::memory::host_bytes::{HostBytes, HostBytesMut};
use crate::memory::lease::{Access, Footprint, Lease, Leases};
use crate::memory::pool::{self, PooledMemory};
use crate::ops::copy;

/// Keeps memory alive: dropping it gives the memory back to whoever it came from.
pub type Owner = Box<dyn Any + Send + Sync>;

/// A block of memory on one device. Every [`Buffer`] and nd-buffer that views it shares it; it ends with the last one.
struct Allocation {
    device: Device,
    address: usize,
    size_bytes: usize,
    leases: Leases,
    owner: Owner,
}

/// Flat, untyped bytes on a device. Cloning and slicing share the memory; copying is always a word of its own.
///
/// As with NumPy's arrays, writing (`copy_from`, an nd-buffer's `fill`, a transfer) goes through shared references. Each access
/// to host memory leases the bytes that it touches for as long as it takes: many may read them, one may write them, and what
/// does not go together is refused. Memory that code outside of this crate reaches (wrapped by [`Buffer::from_raw`], or handed
/// to another library) is known to no lease there: those who share it agree on who writes when.
#[derive(Clone)]
pub struct Buffer {
    allocation: Arc<Allocation>,
    offset_bytes: usize,
    size_bytes: usize,
    read_only: bool,
}

impl Buffer {
    /// Memory whose contents are unspecified; host memory is all zero, and aligned to 64 bytes.
    ///
    /// # Errors
    /// `OutOfMemory`; `DeviceUnavailable` when the device is not there.
    pub fn empty(device: Device, size_bytes: usize) -> Result<Buffer> {
        match device {
            Device::Cpu => Buffer::zeroed(device, size_bytes),
            _ => pool::allocate_on(device, size_bytes),
        }
    }

    /// Memory that is all zero.
    ///
    /// # Errors
    /// As [`Buffer::empty`].
    pub fn zeroed(device: Device, size_bytes: usize) -> Result<Buffer> {
        match device {
            Device::Cpu => {
                let memory = HostMemory::zeroed(size_bytes)?;
                let address = memory.address();
                // SAFETY: the owner frees this memory when it is dropped, and nobody else knows it.
                Ok(unsafe { Buffer::from_raw(device, address, size_bytes, Box::new(memory)) })
            }
            _ => {
                let buffer = Buffer::empty(device, size_bytes)?;
                copy::zero(&buffer)?;
                Ok(buffer)
            }
        }
    }

    /// A copy of host bytes on `device`.
    ///
    /// # Errors
    /// As [`Buffer::empty`].
    pub fn from_bytes(device: Device, bytes: &[u8]) -> Result<Buffer> {
        let buffer = Buffer::empty(device, bytes.len())?;
        copy::host_to_buffer(bytes, &buffer)?;
        Ok(buffer)
    }

    /// One view of buffers that fill a stretch of memory, in whatever order, and where in it each begins; `None` when they leave
    /// gaps, overlap, are blocks of the pool side by side, of which streams know each by itself, or blocks of host memory, whose
    /// leases are counted apart. It is for kernels: what
    /// the driver copies may not cross from one block to another.
    pub fn joined(parts: &[Buffer]) -> Option<(Buffer, Vec<usize>)> {
        let mut sorted: Vec<&Buffer> = parts.iter().filter(|part| part.size_bytes > 0).collect();
        sorted.sort_by_key(|part| part.address());
        let first = *sorted.first()?;
        let follows = |pair: &[&Buffer]| {
            pair[0].address() + pair[0].size_bytes == pair[1].address() && pair[0].device() == pair[1].device()
        };
        if !sorted.windows(2).all(follows) {
            return None;
        }
        let start = first.address();
        let offset = |part: &Buffer| if part.size_bytes > 0 { part.address() - start } else { 0 };
        let (offsets, read_only) = (parts.iter().map(offset).collect(), parts.iter().any(Buffer::is_read_only));
        let size_bytes = sorted.iter().map(|part| part.size_bytes).sum();
        let joined = if sorted.iter().all(|part| part.shares_memory_with(first)) {
            Buffer { size_bytes, ..first.clone() }
        } else if first.device().is_host_accessible() || sorted.iter().any(|part| part.owner().is::<PooledMemory>()) {
            return None;
        } else {
            // SAFETY: each of these bytes belongs to a part, which the owner keeps.
            unsafe { Buffer::from_raw(first.device(), start, size_bytes, Box::new(parts.to_vec())) }
        };
        Some((Buffer { read_only, ..joined }, offsets))
    }

    /// Takes a host vector without copying.
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        let (address, size_bytes) = (bytes.as_ptr() as usize, bytes.len());
        // SAFETY: the vector owns these bytes, is moved into the owner, and is never touched again.
        unsafe { Buffer::from_raw(Device::Cpu, address, size_bytes, Box::new(bytes)) }
    }

    /// Wraps memory that somebody else owns, without copying.
    ///
    /// # Safety
    /// `address` names `size_bytes` initialised bytes on `device` that stay valid, and are not freed or moved, until `owner` is
    /// dropped. Nobody else writes host memory while a call on the buffer, or a view that it gave, reads it; nobody else reads it
    /// while one writes it; and no other buffer is made of the same bytes meanwhile.
    pub unsafe fn from_raw(device: Device, address: usize, size_bytes: usize, owner: Owner) -> Self {
        let allocation = Allocation { device, address, size_bytes, leases: Leases::default(), owner };
        Buffer { allocation: Arc::new(allocation), offset_bytes: 0, size_bytes, read_only: false }
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

    /// Who uses which bytes of the block.
    pub(crate) fn leases(&self) -> &Leases {
        &self.allocation.leases
    }

    /// The bytes that this buffer views, in its block.
    pub(crate) fn footprint(&self) -> Option<Footprint> {
        Footprint::range(self.offset_bytes..self.offset_bytes + self.size_bytes)
    }

    /// Where this buffer begins in its block.
    pub(crate) fn offset_bytes(&self) -> usize {
        self.offset_bytes
    }

    /// A lease of all bytes.
    pub(crate) fn lease(&self, access: Access) -> Result<Lease> {
        Lease::take(self, self.footprint(), access)
    }

    /// Who gives the memory back at the end.
    pub(crate) fn owner(&self) -> &(dyn Any + Send + Sync) {
        &*self.allocation.owner
    }

    /// Size of the whole block that this buffer is a view of.
    pub fn allocation_bytes(&self) -> usize {
        self.allocation.size_bytes
    }

    /// The same memory, but every attempt to write through this view (or views of it) is refused.
    #[must_use]
    pub fn into_read_only(self) -> Buffer {
        Buffer { read_only: true, ..self }
    }

    /// Whether writing through this view is refused.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Copies the bytes to `device`; shares them when they are there already.
    ///
    /// # Errors
    /// As [`Buffer::empty`] and [`Buffer::copy_from`].
    pub fn to_device(&self, device: Device) -> Result<Buffer> {
        if self.device() == device {
            return Ok(self.clone());
        }
        let copied = Buffer::empty(device, self.size_bytes)?;
        copied.copy_from(self)?;
        Ok(copied)
    }

    /// Copies all bytes of `source`, from whichever device, into this memory. Both may be views of the same block.
    ///
    /// # Errors
    /// `InvalidArgument` when the sizes differ or this buffer is read-only.
    pub fn copy_from(&self, source: &Buffer) -> Result<()> {
        if self.size_bytes != source.size_bytes {
            let (got, expected) = (source.size_bytes, self.size_bytes);
            return Err(Error::invalid(format!("cannot copy {got} bytes into a buffer of {expected}")));
        }
        copy::buffer_to_buffer(source, self)
    }

    /// Copies the bytes to the host.
    ///
    /// # Errors
    /// `OutOfMemory`, `DeviceFailed`.
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        if self.device().is_host_accessible() {
            return Ok(self.host_bytes()?.to_vec());
        }
        let mut bytes = copy::try_zeroed_vec(self.size_bytes)?;
        copy::buffer_to_host(self, &mut bytes)?;
        Ok(bytes)
    }

    /// Whether both hold the same bytes, wherever they are.
    ///
    /// # Errors
    /// As [`Buffer::to_vec`]: bytes on a device are compared on the host.
    pub fn equals(&self, other: &Buffer) -> Result<bool> {
        if self.size_bytes != other.size_bytes {
            return Ok(false);
        }
        let (left, right) = (self.to_device(Device::Cpu)?, other.to_device(Device::Cpu)?);
        Ok(left.host_bytes()? == right.host_bytes()?)
    }

    pub(crate) fn require_writable(&self) -> Result<()> {
        match self.read_only {
            true => Err(Error::invalid("memory is read-only").with_hint("copy it first")),
            false => Ok(()),
        }
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
                read_only: self.read_only,
            }),
            _ => Err(Error::invalid(format!("range is not inside a buffer of {} bytes", self.size_bytes))),
        }
    }

    /// The bytes, when they are in host memory. While the result lives, writing them is refused.
    ///
    /// # Errors
    /// `MemorySpace` when they are not; `InvalidArgument` while they are being written.
    pub fn host_bytes(&self) -> Result<HostBytes<'_>> {
        self.require_host()?;
        let lease = self.lease(Access::Read)?;
        if self.size_bytes == 0 {
            return Ok(HostBytes::new(&[], lease));
        }
        // SAFETY: initialised host memory of this size (constructors promise it), alive as long as `self`; the lease, which lives as
        // long as the slice, keeps writers away.
        let bytes = unsafe { std::slice::from_raw_parts(self.address() as *const u8, self.size_bytes) };
        Ok(HostBytes::new(bytes, lease))
    }

    /// The bytes, for writing, when they are in host memory. While the result lives, every other use of them is refused.
    ///
    /// # Errors
    /// `MemorySpace` when they are elsewhere; `InvalidArgument` when they are read-only, or in use.
    pub fn host_bytes_mut(&self) -> Result<HostBytesMut> {
        self.require_host()?;
        let lease = Arc::new(self.lease(Access::Write)?);
        // SAFETY: initialised host memory of this size, leased for writing and kept alive by the lease.
        Ok(unsafe { HostBytesMut::new(self.address(), self.size_bytes, lease) })
    }

    pub(crate) fn require_host(&self) -> Result<()> {
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
