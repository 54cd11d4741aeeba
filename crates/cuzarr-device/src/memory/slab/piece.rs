//! A piece of a slab, for one thread to fill.

use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use crate::memory::slab::ring::Lease;

/// Part of a slab, for one thread to fill. The ring gets the slab back only after this is dropped.
pub struct SlabPiece {
    pub(super) lease: Arc<Lease>,
    pub(super) offset_bytes: usize,
    pub(super) size_bytes: usize,
    /// Bytes of the slab that this piece and others were before they were divided; all of them hold it.
    pub(super) family: Option<Arc<Range<usize>>>,
}

impl SlabPiece {
    /// Where in the slab the piece begins.
    pub fn offset_bytes(&self) -> usize {
        self.offset_bytes
    }

    /// Keeps the first `at` bytes and gives the others, for another thread to fill. An `at` beyond the end keeps all.
    pub fn split_off(&mut self, at: usize) -> SlabPiece {
        let at = at.min(self.size_bytes);
        let (offset_bytes, size_bytes) = (self.offset_bytes + at, self.size_bytes - at);
        let whole = self.offset_bytes..self.offset_bytes + self.size_bytes;
        let family = Arc::clone(self.family.get_or_insert_with(|| Arc::new(whole)));
        self.size_bytes = at;
        SlabPiece { lease: Arc::clone(&self.lease), offset_bytes, size_bytes, family: Some(family) }
    }

    /// The bytes of this piece and of all others that it was divided into, once those were dropped; `None` before.
    pub fn whole(&self) -> Option<&[u8]> {
        let Some(family) = &self.family else { return Some(self) };
        if Arc::strong_count(family) > 1 {
            return None;
        }
        // Bytes that other threads wrote before they dropped their pieces are visible from here on.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        let address = self.lease.address() + family.start;
        // SAFETY: initialised memory inside the slab, which no thread writes: the others are gone, this piece is borrowed,
        // and the slab itself refuses while it lives. Copies under way only read.
        Some(unsafe { std::slice::from_raw_parts(address as *const u8, family.len()) })
    }
}

impl Drop for SlabPiece {
    fn drop(&mut self) {
        if let Some(forward) = self.lease.forward.get() {
            forward.filled(
                self.lease.address(),
                &self.lease.copies,
                self.offset_bytes..self.offset_bytes + self.size_bytes,
            );
        }
    }
}

impl Deref for SlabPiece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let address = self.lease.address() + self.offset_bytes;
        // SAFETY: initialised memory inside the slab; pieces do not overlap, and the slab itself refuses while one lives.
        unsafe { std::slice::from_raw_parts(address as *const u8, self.size_bytes) }
    }
}

impl DerefMut for SlabPiece {
    fn deref_mut(&mut self) -> &mut [u8] {
        let address = self.lease.address() + self.offset_bytes;
        // SAFETY: as in `deref`, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(address as *mut u8, self.size_bytes) }
    }
}
