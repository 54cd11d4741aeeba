//! Flat, untyped bytes on a device.

use std::any::Any;
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::footprint::Footprint;
use crate::memory::host_block::HostMemory;
use crate::memory::host_bytes::{HostBytes, HostBytesMut};
use crate::memory::lease::{Access, Allocation, Lease, Owner};

/// Flat, untyped bytes on a device. Clones and slices share the memory and never copy it.
///
/// Writing (`copy_from`, an nd-buffer's `fill`, a transfer) goes through shared references, as with NumPy arrays. Each
/// access to host memory leases the bytes that it touches while it runs: many may read a byte, or one may write it. A
/// conflicting access is refused. Leases do not cover code outside this crate that uses the same memory (wrapped by
/// [`Buffer::from_raw`], or handed to another library): its users must agree on who writes when.
#[derive(Clone)]
pub struct Buffer {
    allocation: Arc<Allocation>,
    offset_bytes: usize,
    size_bytes: usize,
    read_only: bool,
}

impl Buffer {
    /// New host memory of zeros, aligned to 64 bytes.
    pub(crate) fn zeroed_on_host(size_bytes: usize) -> Result<Buffer> {
        let memory = HostMemory::zeroed(size_bytes)?;
        let address = memory.address();
        // SAFETY: `memory` owns these bytes, all initialised. It moves into the owner, and only this buffer gets its
        // address.
        Ok(unsafe { Buffer::from_raw(Device::Cpu, address, size_bytes, Box::new(memory)) })
    }

    /// Makes a buffer of a host vector, without copying.
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        let (address, size_bytes) = (bytes.as_ptr() as usize, bytes.len());
        // SAFETY: the vector owns these bytes, is moved into the owner, and is never touched again.
        unsafe { Buffer::from_raw(Device::Cpu, address, size_bytes, Box::new(bytes)) }
    }

    /// Wraps memory that other code owns, without copying.
    ///
    /// # Safety
    /// `address` names `size_bytes` initialised bytes on `device`. They stay valid, and are neither freed nor moved,
    /// until `owner` is dropped. While a call on the buffer, or a view that it gave, reads host memory, no other code
    /// writes it. While one of them writes host memory, no other code reads it. No other buffer is made of the same
    /// bytes before `owner` is dropped.
    pub unsafe fn from_raw(device: Device, address: usize, size_bytes: usize, owner: Owner) -> Self {
        let allocation = Allocation::new(device, address, size_bytes, owner);
        Buffer { allocation: Arc::new(allocation), offset_bytes: 0, size_bytes, read_only: false }
    }

    /// Wraps another library's memory, which several buffers may wrap. They share one table of leases.
    ///
    /// # Safety
    /// The conditions of [`Buffer::from_raw`], except that other buffers made by this function may share the bytes.
    pub(crate) unsafe fn foreign(device: Device, address: usize, size_bytes: usize, owner: Owner) -> Self {
        let allocation = Allocation::foreign(device, address, size_bytes, owner);
        Buffer { allocation: Arc::new(allocation), offset_bytes: 0, size_bytes, read_only: false }
    }

    /// The device in whose memory the buffer's bytes lie.
    pub fn device(&self) -> Device {
        self.allocation.device
    }

    /// Size of the buffer in bytes.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// The device address of the buffer's first byte. The caller is responsible for accesses through it.
    pub fn address(&self) -> usize {
        self.allocation.address + self.offset_bytes
    }

    /// The bytes that this buffer views, as offsets in the memory block that contains them.
    pub(crate) fn footprint(&self) -> Option<Footprint> {
        Footprint::range(self.offset_bytes..self.offset_bytes + self.size_bytes)
    }

    /// Offset of this buffer's first byte in the memory block that it is a view of.
    pub(crate) fn offset_bytes(&self) -> usize {
        self.offset_bytes
    }

    /// Records that all bytes of the buffer are being read or written; conflicting accesses are refused while the
    /// result lives.
    pub(crate) fn lease(&self, access: Access) -> Result<Lease> {
        self.lease_of(self.footprint(), access)
    }

    /// Records that the bytes `footprints` of the memory block that this buffer views are being read or written.
    ///
    /// # Errors
    /// `InvalidArgument` when another use of the bytes conflicts, and for writing read-only memory.
    pub(crate) fn lease_of(&self, footprints: impl IntoIterator<Item = Footprint>, access: Access) -> Result<Lease> {
        if access == Access::Write {
            self.require_writable()?;
        }
        Lease::take(&self.allocation, footprints, access)
    }

    /// Records that one copy reads the bytes `from` of `src` and writes the bytes `to` of `dst`. The two may overlap.
    ///
    /// # Errors
    /// Those of [`Buffer::lease_of`].
    pub(crate) fn lease_for_copy(
        src: &Buffer,
        from: Option<Footprint>,
        dst: &Buffer,
        to: Option<Footprint>,
    ) -> Result<(Lease, Lease)> {
        dst.require_writable()?;
        Lease::for_copy(&src.allocation, from, &dst.allocation, to)
    }

    /// Whether nothing is recorded as reading or writing the buffer's memory block at the moment.
    #[cfg(test)]
    pub(crate) fn is_free(&self) -> bool {
        self.allocation.is_free()
    }

    /// A view of `size_bytes` bytes that begins where this buffer begins; `None` if the memory block ends before.
    pub(crate) fn extended_to(&self, size_bytes: usize) -> Option<Buffer> {
        let fits = self.offset_bytes.checked_add(size_bytes).is_some_and(|end| end <= self.allocation.size_bytes);
        fits.then(|| Buffer { size_bytes, ..self.clone() })
    }

    /// Returns a value that keeps this buffer's memory from being freed as long as the value exists.
    pub(crate) fn keeper(&self) -> Arc<dyn Any + Send + Sync> {
        self.allocation.clone()
    }

    /// The value that keeps the memory block alive, and frees it when it is dropped.
    pub(crate) fn owner(&self) -> &(dyn Any + Send + Sync) {
        &*self.allocation.owner
    }

    /// Returns the value that owns the memory block, if no other buffer uses the block and the value has type `T`.
    /// Otherwise gives the buffer back as the error.
    pub(crate) fn into_owner<T: Any>(self) -> Result<T, Buffer> {
        if !self.owner().is::<T>() {
            return Err(self);
        }
        let (offset_bytes, size_bytes, read_only) = (self.offset_bytes, self.size_bytes, self.read_only);
        match Arc::try_unwrap(self.allocation).map(|allocation| allocation.owner.downcast::<T>()) {
            Ok(Ok(owner)) => Ok(*owner),
            Ok(Err(_)) => unreachable!("the owner's type was checked"),
            Err(allocation) => Err(Buffer { allocation, offset_bytes, size_bytes, read_only }),
        }
    }

    /// Size of the whole block that this buffer is a view of, in bytes.
    pub fn allocation_bytes(&self) -> usize {
        self.allocation.size_bytes
    }

    /// A view of this memory that refuses every write. Views of it do the same.
    #[must_use]
    pub fn into_read_only(self) -> Buffer {
        Buffer { read_only: true, ..self }
    }

    /// Whether this view of memory refuses to be written.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub(crate) fn require_writable(&self) -> Result<()> {
        match self.read_only {
            true => Err(Error::invalid("memory is read-only").with_hint("copy it first")),
            false => Ok(()),
        }
    }

    /// Whether two buffers are views of the same memory block.
    pub fn shares_memory_with(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.allocation, &other.allocation)
    }

    /// A view of a range of the bytes.
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

    /// Gives access to the bytes of a buffer in host memory for reading, without copying them. They must be in host
    /// memory. While the result lives, writing them is refused.
    ///
    /// # Errors
    /// `MemorySpace` when the bytes are elsewhere; `InvalidArgument` while they are being written.
    pub fn host_bytes(&self) -> Result<HostBytes<'_>> {
        self.require_host()?;
        let lease = self.lease(Access::Read)?;
        if self.size_bytes == 0 {
            return Ok(HostBytes::new(&[], lease));
        }
        // SAFETY: initialised host memory of this size (the constructors promise it), alive as long as `self`. The
        // lease lives as long as the slice, and keeps writers away.
        let bytes = unsafe { std::slice::from_raw_parts(self.address() as *const u8, self.size_bytes) };
        Ok(HostBytes::new(bytes, lease))
    }

    /// Gives access to the bytes of a buffer in host memory for writing, without copying them. They must be in host
    /// memory. While the result lives, all other uses are refused.
    ///
    /// # Errors
    /// `MemorySpace` when the bytes are elsewhere; `InvalidArgument` when they are read-only or in use.
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
