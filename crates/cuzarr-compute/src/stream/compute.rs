//! Expressions into memory.

use cuzarr_device::{NdBuffer, Order};

use super::job::{Job, for_each_region};
use crate::expression::{Expr, Kind};
use crate::options::ComputeOptions;
use crate::program::memory_shape;
use cuzarr::Result;
use cuzarr::plan::Region;

impl Expr {
    /// Computes the whole expression into new memory of the device: region by region while others are read, with what is in
    /// flight below the memory limit. What is in memory elsewhere is moved there.
    ///
    /// # Errors
    /// `BudgetExceeded` when work on one chunk does not fit the limit; `OutOfMemory` for the result; what reading reports.
    pub fn compute(&self, options: &ComputeOptions<'_>) -> Result<NdBuffer> {
        self.compute_region(&vec![0; self.ndim()], self.shape(), options)
    }

    /// Like [`Expr::compute`], but only for the box of `extent` elements that begins at `start`.
    ///
    /// # Errors
    /// Those of [`Expr::compute`]; `SelectionInvalid` when the box lies outside.
    pub fn compute_region(&self, start: &[u64], extent: &[u64], options: &ComputeOptions<'_>) -> Result<NdBuffer> {
        let part = Region { number: 0, start: start.to_vec(), extent: extent.to_vec() };
        if let (Kind::Summary(summary, of), true) = (&self.0.kind, extent == self.shape()) {
            return summary.compute(of, options);
        }
        part.selection()?.check(self.shape())?;
        let mut job = Job::new(self, part, options)?;
        let limit_bytes = if job.is_in_memory() { u64::MAX } else { options.memory_limit_bytes };
        let regions = job.regions(None, limit_bytes)?;
        if let [region] = &regions[..] {
            return job.work(region, &job.read(region)?);
        }
        let result = NdBuffer::empty(options.device, self.dtype(), &memory_shape(extent)?, Order::C)?;
        for_each_region(
            &job,
            &regions,
            |region, inputs| job.work(region, &inputs),
            |region, part| {
                let (start, extent) = (memory_shape(&region.start)?, memory_shape(&region.extent)?);
                Ok(result.region(&start, &extent, &vec![1; extent.len()])?.copy_from(&part)?)
            },
        )?;
        Ok(result)
    }
}
