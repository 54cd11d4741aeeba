//! Reads and writes arrays that are larger than memory, one region after another.

use std::sync::mpsc::channel;

use cuzarr_device::NdBuffer;
use cuzarr_device::internal::pool::in_flight;

use super::array::Array;
use crate::error::Result;
use crate::plan::{Region, Selection};
use crate::run::{Behind, beside, relay};

impl Array {
    /// Reads regions of the array to its device in order, and passes each to `work` in the calling thread. Meanwhile,
    /// the next `ahead` regions are read.
    ///
    /// There is memory for `ahead + 1` regions at a time. Other bytes in flight stay below the array's memory limit.
    /// The memory of a region is reused when `work` returns, so kernels that read it must have ended by then.
    ///
    /// ```
    /// use cuzarr::prelude::*;
    ///
    /// let array = Array::builder([10], DataType::UInt8).chunks([2]).fill_value(7_u8).create("memory://sevens")?;
    /// let regions = Regions::new(array.shape(), vec![4])?.from(0).collect::<cuzarr::Result<Vec<_>>>()?;
    /// let mut sum = 0u64;
    /// array.stream(&regions, 1, |_, elements| {
    ///     sum += elements.host_slice::<u8>()?.iter().map(|&element| u64::from(element)).sum::<u64>();
    ///     Ok(())
    /// })?;
    /// assert_eq!(sum, 70);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first failure of `work`, or of reading, like [`Array::read_buffer`]. `work` may see damaged regions before
    /// the damage is noticed. So its results are only valid if this returns without an error.
    pub fn stream(
        &self,
        regions: &[Region],
        ahead: usize,
        mut work: impl FnMut(&Region, &NdBuffer) -> Result<()>,
    ) -> Result<()> {
        let token = &self.options().cancellation;
        if !self.reads_in_turn() {
            let read = |region: &&Region| in_flight(|| self.read_buffer(&region.selection()?));
            return relay(token, regions.iter().map(Ok), ahead.max(1), read, |region, elements| {
                work(region, &elements)
            });
        }
        // One pipeline for all regions: it is filled and drained only once, and reserves its scratch memory once.
        let selections = regions.iter().map(Region::selection).collect::<Result<Vec<Selection>>>()?;
        let (sender, receiver) = channel();
        let read = move || in_flight(|| self.read_in_turn(selections, ahead + 1, sender));
        beside(token, read, move || {
            for region in regions {
                // The reader ended early. Its error says why.
                let Some(arrived) = token.receive(&receiver)? else { break };
                work(region, arrived.elements()?)?;
            }
            Ok(())
        })
    }

    /// Writes regions of the array in order: `work` makes the elements of each region in the calling thread. Each
    /// region is written while `work` makes the next one.
    ///
    /// There is memory for two regions at a time: the one that is being made, and the one that is being written.
    /// Regions of whole chunks, or of whole shards, are written without reading the stored objects first.
    ///
    /// ```
    /// use cuzarr::prelude::*;
    ///
    /// let array = Array::builder([6], DataType::UInt8).chunks([2]).create("memory://squares")?;
    /// let regions = Regions::new(array.shape(), vec![2])?.from(0).collect::<cuzarr::Result<Vec<_>>>()?;
    /// array.write_stream(&regions, |region| {
    ///     let at = region.start[0] as u8;
    ///     Ok(NdBuffer::from_host(Device::Cpu, DType::UINT8, &[2], Order::C, &[at * at, (at + 1) * (at + 1)])?)
    /// })?;
    /// assert_eq!(*array.read::<u8>(&Selection::all(array.shape()))?, [0, 1, 4, 9, 16, 25]);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first failure of `work`, or of writing, like [`Array::write_buffer`]. Regions that were already written
    /// stay.
    pub fn write_stream(&self, regions: &[Region], mut work: impl FnMut(&Region) -> Result<NdBuffer>) -> Result<()> {
        let write = |region: &Region, elements: NdBuffer| self.write_buffer(&region.selection()?, &elements);
        Behind::in_order(write).run(&self.options().cancellation, |hand_on| {
            regions.iter().try_for_each(|region| hand_on(region, in_flight(|| work(region))?))
        })
    }
}
