//! Regions in host memory that are so small that they stay in the processor's cache. Each is read into memory that earlier
//! regions used, and elements of a result are computed where they belong.
//!
//! Otherwise the system clears new memory for each region, and the elements go to main memory and back. That takes
//! longer than computing a few operations.

use std::sync::{Mutex, PoisonError};

use cuzarr::Result;
use cuzarr::internal::run::relay;
use cuzarr::plan::{Region, Selection};
use cuzarr_device::{Buffer, DType, Device, Layout, NdBuffer, Order};

use super::job::Job;
use crate::expression::View;
use crate::regions::memory_shape;

/// Memory that two regions and their results take for each thread, in bytes.
const BYTES_OF_THREAD: u64 = 8 << 20;

/// Memory for the inputs of regions. Later regions use it again.
#[derive(Default)]
struct Blocks(Mutex<Vec<Buffer>>);

/// The inputs of a region, and the memory in which they lie.
type Lent = (Vec<NdBuffer>, Vec<Buffer>);

impl Blocks {
    /// Returns memory for the elements of a region. All regions have nearly the same size, so any free block that is large
    /// enough will do.
    fn take(&self, dtype: DType, shape: &[usize]) -> Result<(NdBuffer, Buffer)> {
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

/// Computes each of the regions, and writes its elements to their position in `result`, which is in host memory. While
/// one is computed, the next one is read.
///
/// # Errors
/// The first failure of reading or computing.
pub(super) fn compute(job: &Job<'_>, regions: &[Region], result: &NdBuffer) -> Result<()> {
    for_each(job, regions, |region, inputs| {
        let (start, extent) = (memory_shape(&region.start)?, memory_shape(&region.extent)?);
        job.work_into(&inputs, &result.region(&start, &extent, &vec![1; extent.len()])?)
    })
}

/// Reads each of the regions, and passes its inputs to a callback, which must not keep them. Meanwhile, the next one is
/// read.
///
/// # Errors
/// The first failure.
pub(super) fn for_each(
    job: &Job<'_>,
    regions: &[Region],
    mut work: impl FnMut(&Region, Vec<NdBuffer>) -> Result<()>,
) -> Result<()> {
    let blocks = Blocks::default();
    let read = |region: &&Region| read(job, region, &blocks);
    relay(&job.token(), regions.iter().map(Ok), 1, read, |region, (inputs, lent)| {
        work(region, inputs)?;
        blocks.give_back(lent);
        Ok(())
    })
}

fn read(job: &Job<'_>, region: &Region, blocks: &Blocks) -> Result<Lent> {
    let lent = Mutex::new(Vec::new());
    let inputs = job.operands(region, |number, view, part| {
        // Such views are boxes of their arrays.
        let Some(part) = view.region(part) else { return view.read(part) };
        let (elements, block) = blocks.take(job.program.inputs[number], &memory_shape(&part.extent)?)?;
        lent.lock().unwrap_or_else(PoisonError::into_inner).push(block);
        view.array.read_into(&Selection::region(&part.start, &part.extent)?, &elements)?;
        Ok(elements)
    })?;
    job.note_read(region);
    Ok((inputs, lent.into_inner().unwrap_or_else(PoisonError::into_inner)))
}
