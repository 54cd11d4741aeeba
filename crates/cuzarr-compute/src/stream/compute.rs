//! Computes expressions, with the results in new memory or in memory of the caller.

use cuzarr_device::{NdBuffer, Order};

use super::job::{Job, for_each_region, hulls};
use crate::expression::{Expr, Kind, Parts, Summary};
use crate::options::ComputeOptions;
use crate::regions::memory_shape;
use cuzarr::plan::Region;
use cuzarr::{Error, ErrorKind, Result};

impl Expr {
    /// Computes the whole expression into new memory of the device. The next regions are read while one region is
    /// computed; data in flight stays below the memory limit. Operands in other memory are copied to the device.
    ///
    /// # Errors
    /// `ShapeMismatch`, `DTypeMismatch`, `ArrayNotFound` or `InvalidArgument` when an array was resized, replaced or
    /// deleted after the expression was made; `BudgetExceeded` when work on one chunk does not fit the limit;
    /// `OutOfMemory` for the result; those of reading.
    pub fn compute(&self, options: &ComputeOptions<'_>) -> Result<NdBuffer> {
        self.compute_region(&vec![0; self.ndim()], self.shape(), options)
    }

    /// Returns the regions in which [`Expr::compute`] works through the expression. All regions along the dimension of
    /// a running sum count as one region. Regions depend on the memory limit, but not on the device.
    ///
    /// # Errors
    /// `BudgetExceeded` when work on one chunk does not fit the limit.
    pub fn compute_regions(&self, options: &ComputeOptions<'_>) -> Result<Vec<Region>> {
        self.check_sources(options)?;
        let whole = Region { number: 0, start: vec![0; self.ndim()], extent: self.shape().to_vec() };
        let mut job = Job::new(self, whole, options)?;
        let regions = job.regions(None, options.memory_limit_bytes)?;
        Ok(hulls(&job.apart(regions)))
    }

    /// Whether the expression is a summary: a reduction, quantiles or a histogram of another expression.
    pub fn is_summary(&self) -> bool {
        matches!(self.0.kind, Kind::Summary(..))
    }

    /// Returns the number of parts of a summary (such as a sum) that other processes can compute with
    /// [`Expr::summary_part`]. A part consists of some regions. `None` for other expressions, and for summaries without
    /// parts.
    ///
    /// # Errors
    /// Those of [`Expr::compute`] that appear before anything is read.
    pub fn summary_parts(&self, options: &ComputeOptions<'_>) -> Result<Option<u64>> {
        match &self.0.kind {
            Kind::Summary(summary, of) => {
                self.check_sources(options)?;
                summary.parts(of, options)
            }
            _ => Ok(None),
        }
    }

    /// Computes the intermediate result of one part of a summary (such as a sum), as bytes for [`Expr::join_summary`].
    ///
    /// # Errors
    /// Those of [`Expr::compute`]; `Unsupported` for other expressions.
    pub fn summary_part(&self, number: u64, options: &ComputeOptions<'_>) -> Result<Vec<u8>> {
        let (summary, of) = self.as_summary()?;
        self.check_sources(options)?;
        summary.part(of, number, options)
    }

    /// Computes the result of a summary (such as a sum) from the results of all its parts in order, in host memory. It
    /// has the same bits as the result of [`Expr::compute`] with the same memory limit.
    ///
    /// ```
    /// use cuzarr_compute::{ComputeOptions, Expr, ReduceOp, Reduction};
    /// use cuzarr_device::{DType, Device, NdBuffer, Order};
    /// let buffer = NdBuffer::from_host(Device::Cpu, DType::UINT8, &[4], Order::C, &[1, 2, 3, 4])?;
    /// let sum = Expr::buffer(buffer)?.reduced(Reduction::new(ReduceOp::Sum, None))?;
    /// let options = ComputeOptions::default();
    /// let count = sum.summary_parts(&options)?.unwrap_or_default();
    /// let mut parts = (0..count).map(|number| sum.summary_part(number, &options));
    /// assert_eq!(sum.join_summary(&mut parts, &options)?.host_slice::<u64>()?, [10]);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of the parts; `InvalidArgument` for bytes that are not such a part; `Unsupported` for other expressions.
    pub fn join_summary(&self, parts: &mut Parts<'_>, options: &ComputeOptions<'_>) -> Result<NdBuffer> {
        let (summary, of) = self.as_summary()?;
        summary.joined(of, parts, options)
    }

    fn as_summary(&self) -> Result<(&dyn Summary, &Expr)> {
        match &self.0.kind {
            Kind::Summary(summary, of) => Ok((&**summary, of)),
            _ => Err(Error::new(ErrorKind::Unsupported, "the expression is no summary, and is not made of parts")),
        }
    }

    /// Like [`Expr::compute`], but only for the box of `extent` elements that begins at `start`.
    ///
    /// # Errors
    /// Those of [`Expr::compute`]; `SelectionInvalid` when the box lies outside.
    pub fn compute_region(&self, start: &[u64], extent: &[u64], options: &ComputeOptions<'_>) -> Result<NdBuffer> {
        self.check_sources(options)?;
        self.compute_checked(start, extent, options)
    }

    /// Like [`Expr::compute_region`], for callers that have already compared the arrays with their documents.
    ///
    /// # Errors
    /// Those of [`Expr::compute_region`], except for changed arrays.
    pub(crate) fn compute_checked(
        &self,
        start: &[u64],
        extent: &[u64],
        options: &ComputeOptions<'_>,
    ) -> Result<NdBuffer> {
        let part = Region { number: 0, start: start.to_vec(), extent: extent.to_vec() };
        if let (Kind::Summary(summary, of), true) = (&self.0.kind, extent == self.shape()) {
            return summary.compute(of, options);
        }
        part.selection()?.check(self.shape())?;
        let mut job = Job::new(self, part, options)?.near();
        let limit_bytes = if job.is_in_memory() { u64::MAX } else { options.memory_limit_bytes };
        let regions = job.regions(None, limit_bytes)?;
        if let [region] = &regions[..] {
            return job.work(region, &job.read(region)?);
        }
        let result = NdBuffer::empty(options.device, self.dtype(), &memory_shape(extent)?, Order::C)?;
        gather(&job, &regions, &result)?;
        Ok(result)
    }

    /// Computes the whole expression into memory of the options' device, and converts it to the element type of that
    /// memory. The memory may contain operands.
    ///
    /// # Errors
    /// `ShapeMismatch` when the shapes differ; `InvalidArgument` for memory that is read-only or elsewhere; those of
    /// [`Expr::compute`].
    pub fn compute_into(&self, result: &NdBuffer, options: &ComputeOptions<'_>) -> Result<()> {
        if memory_shape(self.shape())? != result.shape() {
            let message = format!("out has shape {:?}, the result {:?}", result.shape(), self.shape());
            return Err(Error::new(ErrorKind::ShapeMismatch, message));
        }
        if result.is_read_only() || result.device() != options.device {
            let what = if result.is_read_only() { "read-only".to_owned() } else { format!("on {}", result.device()) };
            let message =
                format!("out is memory that is {what}, expected memory on {} that can be written", options.device);
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        self.check_sources(options)?;
        let converted = self.astype(result.dtype())?;
        let whole = Region { number: 0, start: vec![0; self.ndim()], extent: self.shape().to_vec() };
        let mut job = Job::new(&converted, whole, options)?.near();
        let limit_bytes = if job.is_in_memory() { u64::MAX } else { options.memory_limit_bytes };
        let regions = job.regions(None, limit_bytes)?;
        if regions.len() > 1 && job.shares_memory_with(result) {
            // A later region may need elements that an earlier region overwrites.
            let elements = converted.compute_checked(&vec![0; self.ndim()], self.shape(), options)?;
            return Ok(result.copy_from(&elements)?);
        }
        gather(&job, &regions, result)
    }
}

/// Computes each of the regions, and copies its elements to their position in `result`.
fn gather(job: &Job<'_>, regions: &[Region], result: &NdBuffer) -> Result<()> {
    if job.is_near() && !job.shares_memory_with(result) {
        // Elements are computed where they belong.
        let work = |region: &Region, inputs: Vec<NdBuffer>| {
            let (start, extent) = (memory_shape(&region.start)?, memory_shape(&region.extent)?);
            job.work_into(&inputs, &result.region(&start, &extent, &vec![1; extent.len()])?)
        };
        return for_each_region(job, regions, work, |_, ()| Ok(()));
    }
    for_each_region(
        job,
        regions,
        |region, inputs| job.work(region, &inputs),
        |region, part| {
            let (start, extent) = (memory_shape(&region.start)?, memory_shape(&region.extent)?);
            Ok(result.region(&start, &extent, &vec![1; extent.len()])?.copy_from(&part)?)
        },
    )
}
