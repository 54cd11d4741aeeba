//! Computes expressions, and writes the results to arrays in stores.

use super::job::{Job, for_each_written, hulls};
use crate::checkpoint::Checkpoint;
use crate::expression::Expr;
use crate::options::ComputeOptions;
use crate::program::{Input, lower};
use cuzarr::internal::node::with_store;
use cuzarr::internal::run::Behind;
use cuzarr::node::Array;
use cuzarr::plan::Region;
use cuzarr::{Error, ErrorKind, Result};

/// A planned computation whose result is written to an array in a store.
pub(super) struct Storing<'a> {
    job: Job<'a>,
    pub(super) regions: Vec<Region>,
    pub(super) target: Array,
}

impl Storing<'_> {
    /// Computes some regions of the expression, and writes the results to the target array. `done` is called after each
    /// region is written.
    pub(super) fn run(&self, regions: &[Region], mut done: impl FnMut(&Region) -> Result<()> + Send) -> Result<()> {
        if regions.is_empty() {
            return Ok(());
        }
        let behind = Behind {
            at_once: self.job.written_at_once,
            write: |region: &&Region, part| self.target.write_buffer(&region.selection()?, &part),
            done: |region: &Region, ()| done(region),
        };
        for_each_written(&self.job, regions, |region, inputs| self.job.work(region, &inputs), behind)
    }
}

fn beyond_last(number: u64, count: usize) -> Error {
    let message = format!("got region number {number}, expected a number below {count}");
    Error::new(ErrorKind::InvalidArgument, message)
}

impl Expr {
    /// Computes the expression, and writes the result to an array of the same shape. Elements are converted to the
    /// array's type as in an assignment. Each stored object is written once, whole, while the next ones are read and
    /// computed.
    ///
    /// # Errors
    /// `ShapeMismatch`; `InvalidArgument` when the target is one of the sources; `BudgetExceeded` when work on one
    /// stored object does not fit the limit; those of reading and writing. Objects that were written before a failure
    /// stay.
    pub fn store(&self, target: &Array, options: &ComputeOptions<'_>) -> Result<()> {
        self.store_noting(target, options, false)
    }

    /// Like [`Expr::store`], but interrupted work can be resumed. The progress is recorded beside the target's chunks,
    /// and another call with the same arrays, target and memory limit continues from there. It does not check that the
    /// elements of the arrays and of operands in memory are still the same.
    ///
    /// # Errors
    /// Those of [`Expr::store`].
    pub fn store_resumable(&self, target: &Array, options: &ComputeOptions<'_>) -> Result<()> {
        self.store_noting(target, options, true)
    }

    /// Returns the regions in which [`Expr::store`] works through a target. Each consists of whole stored objects. All
    /// regions along the dimension of a running sum count as one. Regions depend on the memory limit, but not on the
    /// device.
    ///
    /// # Errors
    /// Those of [`Expr::store`] that appear before anything is read.
    pub fn store_regions(&self, target: &Array, options: &ComputeOptions<'_>) -> Result<Vec<Region>> {
        let storing = self.storing(target, options)?;
        let apart = storing.job.apart(storing.regions);
        Ok(hulls(&apart))
    }

    /// Computes only the region with this number like [`Expr::store`], as one of many tasks.
    ///
    /// # Errors
    /// Those of [`Expr::store`]; `InvalidArgument` beyond the last region.
    pub fn store_region(&self, target: &Array, number: u64, options: &ComputeOptions<'_>) -> Result<()> {
        let mut storing = self.storing(target, options)?;
        let apart = storing.job.apart(std::mem::take(&mut storing.regions));
        let beyond = || beyond_last(number, apart.len());
        let regions = usize::try_from(number).ok().and_then(|number| apart.get(number)).ok_or_else(beyond)?;
        storing.run(regions, |_| Ok(()))
    }

    fn store_noting(&self, target: &Array, options: &ComputeOptions<'_>, is_noted: bool) -> Result<()> {
        let storing = self.storing(target, options)?;
        let shape = storing.regions.first().map_or(&[][..], |region| &region.extent);
        let mut noted = match is_noted {
            true => Some(Checkpoint::resume(&storing.target, &self.origin()?, shape)?),
            false => Checkpoint::forget(&storing.target).map(|()| None)?,
        };
        let finished = noted.as_ref().map_or(0, Checkpoint::finished);
        let first = storing.regions.partition_point(|region| region.number < finished);
        storing.run(&storing.regions[first..], |region| {
            noted.as_mut().map_or(Ok(()), |noted| noted.note(region.number + 1))
        })?;
        noted.map_or(Ok(()), |noted| noted.end())
    }

    /// Checks and plans a computation whose result is written to `target`.
    pub(super) fn storing<'a>(&self, target: &Array, options: &ComputeOptions<'a>) -> Result<Storing<'a>> {
        if target.shape() != self.shape() {
            let message = format!("the expression has shape {:?}, the target {:?}", self.shape(), target.shape());
            return Err(Error::new(ErrorKind::ShapeMismatch, message));
        }
        let dtype = target.metadata().data_type().device_dtype().unwrap_or(self.dtype());
        self.refuse_overlap(target.store(), target.path())?;
        self.check_sources(options)?;
        let whole = Region { number: 0, start: vec![0; self.ndim()], extent: self.shape().to_vec() };
        let mut job = Job::new(&self.astype(dtype)?, whole, options)?.written();
        let unit = target.metadata().chunk_grid().chunk_shape().to_vec();
        let regions = job.regions(Some(unit), options.memory_limit_bytes)?;
        let own = target.options().clone();
        let cancellation = options.cancellation.unwrap_or(&own.cancellation).clone();
        let (memory_limit_bytes, threads) = (job.reading_bytes, options.threads);
        let target = target.with_options(
            own.with_memory_limit_bytes(memory_limit_bytes).with_threads(threads).with_cancellation(cancellation),
        );
        let target = options.wrap.map_or(target.clone(), |wrap| with_store(&target, wrap(target.store())));
        Ok(Storing { job, regions, target })
    }

    /// Returns a text that identifies this computation: equal for the same work only.
    pub(super) fn origin(&self) -> Result<String> {
        let (program, inputs) = lower(self)?;
        let origins = inputs.iter().map(|input| match input {
            Input::Array(view) => {
                let array = &view.array;
                let documents = array.metadata().documents();
                let texts = documents.iter().map(|(_, bytes)| String::from_utf8_lossy(bytes));
                let place = format!("{}/{}", array.store(), array.path());
                Ok(format!("{place} {}: {}", view.origin(), texts.collect::<String>()))
            }
            Input::Joined(joined) => {
                let parts = joined.parts.iter().map(Expr::origin).collect::<Result<Vec<_>>>()?;
                Ok(format!("joined along {}: {parts:?}", joined.axis))
            }
            Input::Flat(flat) => {
                Ok(format!("{} elements from {} in a row: {}", flat.count, flat.from, flat.of.origin()?))
            }
            Input::Running(running) => {
                let (name, axis, from) = (running.name(), running.axis, running.from);
                Ok(format!("{name} along {axis} from {from}: {}", running.of.origin()?))
            }
            Input::Reduced(of, summary) => Ok(format!("{summary:?} of {}", of.origin()?)),
            Input::Buffer(buffer) => Ok(format!("{} {:?}", buffer.dtype(), buffer.shape())),
        });
        Ok([Ok(format!("{program:?}"))].into_iter().chain(origins).collect::<Result<Vec<_>>>()?.join("\n"))
    }
}
