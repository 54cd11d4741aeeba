//! Reusable blocks of host memory, for bytes that were fetched and are not in the result yet. Blocks are reused,
//! because a new block costs a page fault for every 4 KiB.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use cuzarr_device::{Buffer, Device, HostBytesMut};

use crate::error::Result;
use crate::store::Lease;

/// Size of the smallest block of scratch memory. All sizes are powers of two.
const SMALLEST_BYTES: usize = 1 << 12;
/// Blocks up to this size are rounded up to a power of two, and kept for reuse.
const LARGEST_KEPT_BYTES: usize = 1 << 28;
/// Maximum size of all unused blocks that are kept for reuse, in bytes; further blocks are freed.
const KEPT_BYTES: usize = 1 << 29;

/// Blocks of host memory that no call uses now, kept for reuse. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Scratch(Arc<Mutex<Free>>);

#[derive(Default)]
struct Free {
    /// The unused memory blocks, in one list for each size, which is a power of two.
    blocks: Vec<Vec<HostBytesMut>>,
    kept_bytes: usize,
}

/// A block of scratch memory; dropping it gives the memory back for reuse. Its initial content is unspecified.
pub(crate) struct ScratchBlock {
    /// The lent memory; `None` only while it is being dropped.
    block: Option<HostBytesMut>,
    size_bytes: usize,
    home: Scratch,
}

impl Scratch {
    /// Takes a block of scratch memory of `size_bytes`, an unused one if there is one.
    ///
    /// # Errors
    /// `OutOfMemory`
    pub(crate) fn take(&self, size_bytes: usize) -> Result<ScratchBlock> {
        let block_bytes = class_bytes(size_bytes);
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = free.blocks.get_mut(class(block_bytes)).and_then(Vec::pop);
        if kept.is_some() {
            free.kept_bytes -= block_bytes;
        }
        drop(free);
        let block = match kept {
            Some(block) => block,
            None => Buffer::empty(Device::Cpu, block_bytes)?.host_bytes_mut()?,
        };
        Ok(ScratchBlock { block: Some(block), size_bytes, home: self.clone() })
    }

    fn give_back(&self, block: HostBytesMut) {
        let block_bytes = block.len();
        if !(SMALLEST_BYTES..=LARGEST_KEPT_BYTES).contains(&block_bytes) {
            return;
        }
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if free.kept_bytes + block_bytes > KEPT_BYTES {
            return;
        }
        let class = class(block_bytes);
        if free.blocks.len() <= class {
            free.blocks.resize_with(class + 1, Vec::new);
        }
        free.kept_bytes += block_bytes;
        free.blocks[class].push(block);
    }
}

fn class_bytes(size_bytes: usize) -> usize {
    if size_bytes > LARGEST_KEPT_BYTES { size_bytes } else { size_bytes.next_power_of_two().max(SMALLEST_BYTES) }
}

fn class(block_bytes: usize) -> usize {
    block_bytes.ilog2() as usize
}

impl std::ops::Deref for ScratchBlock {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |block| &block[..self.size_bytes])
    }
}

impl std::ops::DerefMut for ScratchBlock {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.block.as_mut().map_or(&mut [], |block| &mut block[..self.size_bytes])
    }
}

impl Drop for ScratchBlock {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.home.give_back(block);
        }
    }
}

impl Lease for ScratchBlock {
    fn bytes(&mut self) -> &mut [u8] {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_block_is_used_again() {
        let scratch = Scratch::default();
        let mut first = scratch.take(5000).unwrap();
        assert_eq!(first.len(), 5000);
        first.fill(9);
        drop(first);
        assert_eq!(scratch.take(8000).unwrap()[0], 9);
        assert_eq!(scratch.take(0).unwrap().len(), 0);
        assert_eq!(scratch.take(usize::MAX).err().map(|error| error.kind()), Some(ErrorKind::OutOfMemory));
    }
}
