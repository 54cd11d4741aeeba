//! Host memory that is read or written in place, under a lease.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::memory::lease::Lease;

/// Borrowed bytes of host memory, for reading. While the value lives, writing the bytes is refused.
pub struct HostBytes<'a> {
    bytes: &'a [u8],
    _lease: Lease,
}

impl<'a> HostBytes<'a> {
    pub(crate) fn new(bytes: &'a [u8], lease: Lease) -> HostBytes<'a> {
        HostBytes { bytes, _lease: lease }
    }
}

impl Deref for HostBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl AsRef<[u8]> for HostBytes<'_> {
    fn as_ref(&self) -> &[u8] {
        self.bytes
    }
}

impl<S: AsRef<[u8]>> PartialEq<S> for HostBytes<'_> {
    fn eq(&self, other: &S) -> bool {
        self.bytes == other.as_ref()
    }
}

impl PartialEq<HostBytes<'_>> for Vec<u8> {
    fn eq(&self, other: &HostBytes<'_>) -> bool {
        self == other.bytes
    }
}

impl fmt::Debug for HostBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes.fmt(f)
    }
}

/// Borrowed elements of host memory, for reading. While the value lives, writing the elements is refused.
pub struct HostSlice<'a, T> {
    elements: &'a [T],
    _lease: Lease,
}

impl<'a, T> HostSlice<'a, T> {
    pub(crate) fn new(elements: &'a [T], lease: Lease) -> HostSlice<'a, T> {
        HostSlice { elements, _lease: lease }
    }
}

impl<T> Deref for HostSlice<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.elements
    }
}

impl<T> AsRef<[T]> for HostSlice<'_, T> {
    fn as_ref(&self) -> &[T] {
        self.elements
    }
}

impl<T: PartialEq, S: AsRef<[T]>> PartialEq<S> for HostSlice<'_, T> {
    fn eq(&self, other: &S) -> bool {
        self.elements == other.as_ref()
    }
}

impl<T: fmt::Debug> fmt::Debug for HostSlice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.elements.fmt(f)
    }
}

/// Bytes of host memory for writing, exclusively until the value is dropped. It keeps the memory alive.
///
/// ```
/// use cuzarr_device::Buffer;
/// let buffer = Buffer::from_vec(vec![0; 8]);
/// let mut left = buffer.host_bytes_mut()?;
/// assert!(buffer.host_bytes().is_err());
/// let mut right = left.split_off(4);
/// std::thread::scope(|threads| {
///     threads.spawn(|| left.fill(1));
///     threads.spawn(|| right.fill(2));
/// });
/// drop((left, right));
/// assert_eq!(buffer.host_bytes()?, [1, 1, 1, 1, 2, 2, 2, 2]);
/// # Ok::<(), cuzarr_device::Error>(())
/// ```
pub struct HostBytesMut {
    address: usize,
    len: usize,
    /// The lease that reserves the bytes for writing, until the last part that was split off is dropped.
    _lease: Arc<Lease>,
}

impl HostBytesMut {
    /// Gives one owner exclusive access to bytes of host memory, until the value is dropped.
    ///
    /// # Safety
    /// `address` points to `len` initialised bytes of host memory. `lease` allows writing them and keeps them alive. No
    /// other value is made from `lease` for these bytes.
    pub(crate) unsafe fn new(address: usize, len: usize, lease: Arc<Lease>) -> HostBytesMut {
        HostBytesMut { address, len, _lease: lease }
    }

    /// Keeps the first `at` bytes and returns the others, for another thread. If `at` is beyond the end, keeps all.
    /// Takes no lock.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> HostBytesMut {
        let at = at.min(self.len);
        let rest = HostBytesMut { address: self.address + at, len: self.len - at, _lease: Arc::clone(&self._lease) };
        self.len = at;
        rest
    }
}

impl Deref for HostBytesMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the caller of `new` promised these bytes, alive and leased as long as `self`. Parts that were split
        // off do not overlap.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.len) }
    }
}

impl DerefMut for HostBytesMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY: like `deref`; in addition, `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.len) }
    }
}
