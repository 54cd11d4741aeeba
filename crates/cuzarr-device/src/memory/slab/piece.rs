//! Pieces of a slab, each for one thread to fill.

use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use crate::memory::slab::ring::Lease;

/// A part of a slab (pinned host memory) for one thread to fill. The ring gets the slab back only after all its pieces
/// are dropped.
pub struct SlabPiece {
    pub(super) lease: Arc<Lease>,
    pub(super) offset_bytes: usize,
    pub(super) size_bytes: usize,
    /// If the piece was split: the byte range in the slab of the undivided piece. All pieces split from it share this
    /// value.
    pub(super) family: Option<Arc<Range<usize>>>,
}

impl SlabPiece {
    /// Byte offset of the piece in the slab.
    pub fn offset_bytes(&self) -> usize {
        self.offset_bytes
    }

    /// Keeps the first `at` bytes and returns the others, for another thread to fill. If `at` is beyond the end, keeps
    /// all.
    pub fn split_off(&mut self, at: usize) -> SlabPiece {
        let at = at.min(self.size_bytes);
        let (offset_bytes, size_bytes) = (self.offset_bytes + at, self.size_bytes - at);
        let whole = self.offset_bytes..self.offset_bytes + self.size_bytes;
        let family = Arc::clone(self.family.get_or_insert_with(|| Arc::new(whole)));
        self.size_bytes = at;
        SlabPiece { lease: Arc::clone(&self.lease), offset_bytes, size_bytes, family: Some(family) }
    }

    /// Returns the bytes of the undivided piece, once all other pieces split from it were dropped; `None` before.
    pub fn whole(&self) -> Option<&[u8]> {
        let Some(family) = &self.family else { return Some(self) };
        if Arc::strong_count(family) > 1 {
            return None;
        }
        // Makes the bytes visible that other threads wrote before they dropped their pieces.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        let address = self.lease.address() + family.start;
        // SAFETY: initialised memory inside the slab, which no thread writes: the other pieces are gone, this one is
        // borrowed, and the slab refuses writes while a piece lives. Running copies only read.
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
        // SAFETY: initialised memory inside the slab. Pieces do not overlap, and the slab refuses accesses while one
        // lives.
        unsafe { std::slice::from_raw_parts(address as *const u8, self.size_bytes) }
    }
}

impl DerefMut for SlabPiece {
    fn deref_mut(&mut self) -> &mut [u8] {
        let address = self.lease.address() + self.offset_bytes;
        // SAFETY: like `deref`; in addition, `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(address as *mut u8, self.size_bytes) }
    }
}
