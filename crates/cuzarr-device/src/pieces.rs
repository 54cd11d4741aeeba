//! Parts of one block of host memory, written at the same time by different threads.
//!
//! A slice borrows its whole buffer, so threads that decode into neighbouring regions of one result cannot each have one.
//! [`HostPieces`] lends regions that were checked not to overlap while they live.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::buffer::Buffer;
use crate::error::{Error, ErrorKind, Result};

/// Lends parts of a block of host memory for writing. Clones lend the same memory.
///
/// ```
/// use cuzarr_device::{Buffer, HostPieces};
/// let buffer = Buffer::from_vec(vec![0; 8]);
/// let pieces = HostPieces::new(&buffer)?;
/// let (mut left, mut right) = (pieces.lend(0..4)?, pieces.lend(4..8)?);
/// assert!(pieces.lend(3..5).is_err());
/// std::thread::scope(|threads| {
///     threads.spawn(|| left.fill(1));
///     threads.spawn(|| right.fill(2));
/// });
/// drop((left, right));
/// assert_eq!(buffer.host_bytes()?, [1, 1, 1, 1, 2, 2, 2, 2]);
/// # Ok::<(), cuzarr_device::Error>(())
/// ```
#[derive(Clone)]
pub struct HostPieces(Arc<Lender>);

struct Lender {
    buffer: Buffer,
    /// Lent ranges: start → end.
    lent: Mutex<BTreeMap<usize, usize>>,
}

impl HostPieces {
    /// Lends parts of `buffer`. As with every write through a buffer, its other users agree on who writes when.
    ///
    /// # Errors
    /// `MemorySpace` when the memory is not the host's, `InvalidArgument` when it is read-only.
    pub fn new(buffer: &Buffer) -> Result<HostPieces> {
        if !buffer.device().is_host_accessible() {
            let message = format!("bytes are on {}, the host cannot write them in place", buffer.device());
            return Err(Error::new(ErrorKind::MemorySpace, message));
        }
        buffer.require_writable()?;
        Ok(HostPieces(Arc::new(Lender { buffer: buffer.clone(), lent: Mutex::default() })))
    }

    /// The bytes `range`, until the piece is dropped.
    ///
    /// # Errors
    /// `InvalidArgument` when the range is outside the memory, or overlaps a piece that lives.
    pub fn lend(&self, range: Range<usize>) -> Result<HostPiece> {
        let size_bytes = self.0.buffer.size_bytes();
        if range.start > range.end || range.end > size_bytes {
            return Err(Error::invalid(format!("range {range:?} is not inside {size_bytes} bytes")));
        }
        if !range.is_empty() {
            let mut lent = self.0.lock();
            let before = lent.range(..range.end).next_back();
            if let Some((&start, &end)) = before.filter(|&(_, &end)| end > range.start) {
                return Err(Error::invalid(format!("range {range:?} overlaps {start}..{end}, which is lent already")));
            }
            lent.insert(range.start, range.end);
        }
        Ok(HostPiece { lender: Arc::clone(&self.0), range })
    }
}

impl Lender {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        // Every section under this lock is one call on the map, which a panic cannot leave half done.
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Part of a block of host memory, for one user.
pub struct HostPiece {
    lender: Arc<Lender>,
    range: Range<usize>,
}

impl HostPiece {
    fn address(&self) -> usize {
        self.lender.buffer.address() + self.range.start
    }
}

impl Drop for HostPiece {
    fn drop(&mut self) {
        if !self.range.is_empty() {
            self.lender.lock().remove(&self.range.start);
        }
    }
}

impl Deref for HostPiece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.range.is_empty() {
            return &[];
        }
        // SAFETY: host memory inside the buffer, which the lender keeps alive; no other piece overlaps it.
        unsafe { std::slice::from_raw_parts(self.address() as *const u8, self.range.len()) }
    }
}

impl DerefMut for HostPiece {
    fn deref_mut(&mut self) -> &mut [u8] {
        if self.range.is_empty() {
            return &mut [];
        }
        // SAFETY: as in `deref`, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.address() as *mut u8, self.range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_live_never_overlap() {
        let buffer = Buffer::from_vec(vec![0; 100]);
        let pieces = HostPieces::new(&buffer).unwrap();
        let middle = pieces.lend(40..60).unwrap();
        for range in [39..41, 59..61, 40..60, 50..51, 0..100] {
            assert_eq!(pieces.lend(range).err().map(|error| error.kind()), Some(ErrorKind::InvalidArgument));
        }
        let _neighbours = (pieces.lend(0..40).unwrap(), pieces.lend(60..100).unwrap(), pieces.lend(50..50).unwrap());
        drop(middle);
        assert_eq!(pieces.lend(45..55).unwrap().len(), 10);
        assert!(pieces.lend(90..101).is_err());
    }
}
