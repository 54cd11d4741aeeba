//! Inputs that are computed from other expressions' elements, region by region: running sums, and flattened elements.

use std::sync::{MutexGuard, PoisonError};

use cuzarr::Result;
use cuzarr::plan::Region;
use cuzarr_device::{NdBuffer, Order};

use super::job::{Columns, Derived, How, Last};
use crate::expression::{Flat, Running};
use crate::regions::memory_shape;

impl Derived<'_> {
    /// Returns the dimensions of the input along which regions must be computed one after the other.
    pub(super) fn run_axes(&self) -> Vec<usize> {
        match &self.how {
            How::Running(running, _) => [&[running.axis], &self.of.run_axes()[..]].concat(),
            // If the inner regions have an order, so do the regions of the single dimension.
            How::Flat(_) => Vec::from_iter(self.of.run_axes().first().map(|_| 0)),
        }
    }

    /// Returns the dimension along which running sums or products continue; `None` for a flattened expression.
    pub(super) fn axis(&self) -> Option<usize> {
        if let How::Running(running, _) = &self.how { Some(running.axis) } else { None }
    }

    /// Reads the elements from which a region of the input is computed.
    ///
    /// # Errors
    /// Those of reading.
    pub(super) fn read(&self, part: &Region) -> Result<Vec<NdBuffer>> {
        let mut read = Vec::new();
        for part in self.parts(part) {
            read.append(&mut self.of.read(&part)?);
        }
        Ok(read)
    }

    /// Returns the number of buffers that `read` returns for a region of the input.
    pub(super) fn count_read(&self, part: &Region) -> usize {
        self.parts(part).iter().map(|part| self.of.count_read(part)).sum()
    }

    fn parts(&self, part: &Region) -> Vec<Region> {
        match &self.how {
            How::Running(running, _) => vec![elements_of(running, part)],
            How::Flat(flat) => flat.boxes(part),
        }
    }

    /// Computes a region of the input from the elements that were read for it. Totals of other columns are dropped
    /// unless `keeps_all`.
    ///
    /// # Errors
    /// Those of reading and computing.
    pub(super) fn work(&self, part: &Region, read: &[NdBuffer], keeps_all: bool) -> Result<NdBuffer> {
        match &self.how {
            How::Running(running, columns) => {
                let columns = || columns.lock().unwrap_or_else(PoisonError::into_inner);
                self.run(running, &elements_of(running, part), read, keeps_all, columns)
            }
            How::Flat(flat) => self.lay_flat(flat, part, read),
        }
    }

    fn run<'b>(
        &self,
        running: &Running,
        region: &Region,
        read: &[NdBuffer],
        keeps_all: bool,
        columns: impl Fn() -> MutexGuard<'b, Columns>,
    ) -> Result<NdBuffer> {
        let axis = running.axis;
        let (start, end) = (region.start[axis], region.start[axis] + region.extent[axis]);
        let beside = |values: &[u64]| -> Vec<u64> {
            values.iter().enumerate().filter(|(own, _)| *own != axis).map(|(_, &value)| value).collect()
        };
        let column = (beside(&region.start), beside(&region.extent));
        let known = match columns().get(&column) {
            _ if start == 0 => Some(None),
            Some(last) if last.end == start => Some(last.totals.clone()),
            Some(last) if last.start == start => Some(last.before.clone()),
            _ => None,
        };
        let before = known.map_or_else(|| self.totals_before(running, region), Ok)?;
        let elements = self.of.work(region, read)?;
        self.of.processor.finish()?;
        let (results, totals) = running.step(&elements, before.as_ref())?;
        let mut columns = columns();
        if !keeps_all && !columns.contains_key(&column) {
            columns.clear();
        }
        columns.insert(column, Last { start, end, before, totals });
        Ok(results)
    }

    /// Reads all elements before a region, and computes the totals with which its running sums or products begin. Used
    /// when the totals of the region before are not kept.
    fn totals_before(&self, running: &Running, region: &Region) -> Result<Option<NdBuffer>> {
        let axis = running.axis;
        let (mut totals, mut part) = (None, region.clone());
        let mut start = 0;
        while start < region.start[axis] {
            (part.start[axis], part.extent[axis]) = (start, region.extent[axis].min(region.start[axis] - start));
            let elements = self.of.work(&part, &self.of.read(&part)?)?;
            self.of.processor.finish()?;
            totals = running.step(&elements, totals.as_ref())?.1;
            start += region.extent[axis].max(1);
        }
        Ok(totals)
    }

    fn lay_flat(&self, flat: &Flat, part: &Region, mut read: &[NdBuffer]) -> Result<NdBuffer> {
        let shape = memory_shape(&part.extent)?;
        let result = NdBuffer::empty(self.of.device(), flat.of.dtype(), &shape, Order::C)?;
        let mut place = 0;
        for one in flat.boxes(part) {
            let own = self.of.count_read(&one).min(read.len());
            let elements = self.of.work(&one, &read[..own])?;
            self.of.processor.finish()?;
            read = &read[own..];
            let count = elements.len();
            result.region(&[place], &[count], &[1])?.copy_from(&elements.reshape_copy(&[count])?)?;
            place += count;
        }
        Ok(result)
    }

    /// Size in bytes of the elements that must be read to compute a region of the input with this extent.
    pub(super) fn bytes_read(&self, extent: &[u64]) -> u64 {
        self.of.bytes_read(&self.extent_of(extent))
    }

    /// Bytes that computing a region with this extent takes besides the elements that are read for it. It includes
    /// `totals` totals.
    pub(super) fn bytes(&self, extent: &[u64], totals: u64) -> u64 {
        let (own, working) = match &self.how {
            // Memory holds the elements, the results in the wider type, and the results in their own type.
            How::Running(running, _) => (2 * running.of.dtype().size_bytes() as u64, running.working_bytes()),
            How::Flat(flat) => (2 * flat.of.dtype().size_bytes() as u64, 0),
        };
        let elems = extent.iter().fold(1u64, |all, &one| all.saturating_mul(one));
        // Totals exist before and after a region, and each is copied once.
        let totals = totals.saturating_mul(4 * working);
        let made = elems.saturating_mul(own + 2 * working);
        made.saturating_add(totals).saturating_add(self.of.bytes_derived(&self.extent_of(extent)))
    }

    fn extent_of(&self, extent: &[u64]) -> Vec<u64> {
        match &self.how {
            How::Running(..) => extent.to_vec(),
            How::Flat(flat) => flat.extent_around(extent.first().copied().unwrap_or(1)),
        }
    }
}

/// Returns the region of the inner elements that is needed for a region of running sums or products.
fn elements_of(running: &Running, part: &Region) -> Region {
    let mut part = part.clone();
    part.start[running.axis] += running.from;
    part
}
