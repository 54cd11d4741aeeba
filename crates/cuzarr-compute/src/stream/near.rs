//! Regions in host memory that are so small that they stay in the processor's cache. Each is read into memory that earlier
//! regions used, and elements of a result are computed where they belong.
//!
//! Otherwise the system clears new memory for each region, and the elements go to main memory and back. That takes
//! longer than computing a few operations.

use std::sync::{Mutex, PoisonError};

use cuzarr::internal::run::relay;
use cuzarr::plan::Region;
use cuzarr::{CancellationToken, Result};
use cuzarr_device::{Buffer, DType, Device, Layout, NdBuffer, Order};

use crate::expression::View;

/// Memory that two regions and their results take for each thread, in bytes.
const BYTES_OF_THREAD: u64 = 8 << 20;

/// Memory for the inputs of regions. Later regions use it again.
#[derive(Default)]
pub(super) struct Blocks(Mutex<Vec<Buffer>>);

/// The inputs of a region, and the memory in which they lie.
pub(super) type Lent = (Vec<NdBuffer>, Vec<Buffer>);

impl Blocks {
    /// Returns memory for the elements of a region. All regions have nearly the same size, so any free block that is large
    /// enough will do.
    pub(super) fn take(&self, dtype: DType, shape: &[usize]) -> Result<(NdBuffer, Buffer)> {
        let layout = Layout::contiguous(shape, dtype.size_bytes(), Order::C)?;
        let size_bytes = layout.size_bytes();
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = free.iter().position(|block| block.size_bytes() >= size_bytes);
        let block = found.map(|at| free.swap_remove(at));
        drop(free);
        let block = block.map_or_else(|| Buffer::empty(Device::Cpu, size_bytes), Ok)?;
        Ok((NdBuffer::from_parts(block.slice(..size_bytes)?, dtype, layout)?, block))
    }

    fn give_back(&self, blocks: Vec<Buffer>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(blocks);
    }
}

/// Returns how many bytes two regions and their results may take, so that they stay in the cache.
pub(super) fn enough_bytes(threads: usize) -> u64 {
    BYTES_OF_THREAD.saturating_mul(threads.max(1) as u64)
}

/// Whether regions of an array can be read in the processor's cache: the host reads boxes of it, without long waits for
/// each request.
pub(super) fn is_near(view: &View) -> bool {
    view.is_dense() && !view.array.store().capabilities().far
}

/// Reads each of the regions, and passes its inputs to a callback, which must not keep them. Meanwhile, the next one is
/// read.
///
/// # Errors
/// The first failure.
pub(super) fn for_each<'r>(
    token: &CancellationToken,
    regions: &'r [Region],
    read: impl Fn(&Region, &Blocks) -> Result<Lent> + Sync,
    mut work: impl FnMut(&'r Region, Vec<NdBuffer>) -> Result<()>,
) -> Result<()> {
    let blocks = Blocks::default();
    let read = |region: &&Region| read(region, &blocks);
    relay(token, regions.iter().map(Ok), 1, read, |region, (inputs, lent)| {
        work(region, inputs)?;
        blocks.give_back(lent);
        Ok(())
    })
}
