//! A job: an expression whose inputs are read and computed region by region.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use cuzarr::internal::node::with_store;
use cuzarr_device::internal::pool::{Within, in_flight, within};
use cuzarr_device::{Device, NdBuffer};

use super::near::{self, Blocks, Lent};
use super::together::Together;
use crate::expression::{Expr, Flat, Running, Summary, View};
use crate::options::ComputeOptions;
use crate::program::{Input, Processor, Program, lower};
use crate::progress::Meter;
use crate::regions::{hull_of, limit_for_part, memory_shape, operand_region, plannable_bytes, regions};
use cuzarr::Order;
use cuzarr::internal::run::{Behind, walk};
use cuzarr::plan::{Explanation, Region, Selection};
use cuzarr::{CancellationToken, Error, ErrorKind, Result};

/// Largest useful size of a region in bytes: larger ones gain nothing, since several are in progress at a time.
const ENOUGH_BYTES: u64 = 1 << 30;

/// The memory limit divided by this is the memory for regions, if they are read one after the other. The rest is for
/// data in flight of reads and writes.
pub(crate) const REGIONS_SHARE: u64 = 3;
/// The memory limit divided by this is the memory for regions, if several are read at a time: some reads end while
/// others continue. On an H200, a mean of 8 GiB took 1.4 times as long as reading alone with one region ahead, and 1.2
/// times with four (`bench/compute.py`).
const SHORT_REGIONS_SHARE: u64 = 4;
const SHORT_REGIONS_AHEAD: u64 = 4;
/// Largest useful total size in bytes of the regions that are read at a time. Each is then as much as decoders take at
/// a time.
const ENOUGH_SHORT_BYTES: u64 = 640 << 20;

/// Ways to divide the memory limit if regions are read one after the other, by one pipeline. Each is a pair: the number
/// of regions that are read ahead, and the divisor of the memory limit that gives the memory for all regions. The first
/// way with room for a chunk is taken.
const IN_TURN: [(u64, u64); 3] = [(3, 8), (3, 4), (1, REGIONS_SHARE)];
/// Largest useful total size in bytes of regions that are read in order by one pipeline.
const ENOUGH_IN_TURN_BYTES: u64 = 512 << 20;

/// Number of results that are written to a store at a time, if regions need not be smaller for it. A write begins and
/// ends with work that not all threads share; another write fills the gaps.
const WRITTEN_AT_ONCE: usize = 2;

type BesideRegion = dyn Fn(&[u64]) -> u64 + Send + Sync;

/// An expression that was compiled to a program, with its inputs, ready to be computed region by region.
pub(crate) struct Job<'a> {
    pub(crate) program: Program,
    inputs: Vec<Input>,
    /// For each input, the number of the first input that reads the same array.
    same: Vec<usize>,
    /// For each input that is computed from another expression, the way in which it is computed. Empty if there is no
    /// such input.
    derived: Vec<Option<Derived<'a>>>,
    /// The region of the expression that the job computes.
    pub(crate) part: Region,
    /// Whether an input that is already the result may be returned without a copy.
    keeps: bool,
    /// A function that returns how many bytes the caller itself needs for a region with some extent.
    beside: Option<Box<BesideRegion>>,
    /// Whether regions are so small that they stay in the processor's cache ([`near`]).
    is_near: bool,
    /// Whether the host computes all elements as one region if the memory limit allows it.
    is_in_one: bool,
    /// Number of regions that are read ahead, before they are computed.
    ahead: usize,
    /// Number of results that the job's caller writes to a store at a time; 0 if it writes none. Writing needs memory
    /// that reads would take.
    pub(super) written_at_once: usize,
    pub(crate) processor: Processor,
    meter: Option<Meter<'a>>,
    options: ComputeOptions<'a>,
    /// Limit for the data of unfinished reads, in bytes.
    pub(super) reading_bytes: u64,
    /// The memory limit, which stays in force while the job exists; `None` if nothing is read.
    _within: Option<Within>,
}

/// An input that is computed from another expression, with the job that computes that expression.
pub(super) struct Derived<'a> {
    pub(super) of: Job<'a>,
    pub(super) how: How,
}

/// How an input is computed from another expression: by running sums or products, or by flattening.
pub(super) enum How {
    Running(Running, Mutex<Columns>),
    Flat(Flat),
}

/// For each column of regions along the running dimension, the last region that was computed. A column is identified by
/// its start and extent along the other dimensions.
pub(super) type Columns = HashMap<(Vec<u64>, Vec<u64>), Last>;

/// The totals before and after a region of running sums or products.
pub(super) struct Last {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Sums or products of all elements before the region. `totals` also includes the region's own elements.
    pub(super) before: Option<NdBuffer>,
    pub(super) totals: Option<NdBuffer>,
}

impl<'a> Job<'a> {
    /// Makes the job for `part` of an expression: compiles it to a program, and moves operands in memory to the device.
    ///
    /// # Errors
    /// What the device reports; `Unsupported` for expressions with thousands of operations.
    pub(crate) fn new(expr: &Expr, part: Region, options: &ComputeOptions<'a>) -> Result<Job<'a>> {
        Job::bound(expr, part, options, &|of, summary| summary.compute(&of, options).map(Input::Buffer))
    }

    /// Makes a job that can only be explained, not run: summaries (such as sums) in the expression are not computed.
    ///
    /// # Errors
    /// Those of [`Job::new`].
    pub(super) fn planned(expr: &Expr, part: Region, options: &ComputeOptions<'a>) -> Result<Job<'a>> {
        Job::bound(expr, part, options, &|of, summary| Ok(Input::Reduced(of, summary)))
    }

    fn bound(
        expr: &Expr,
        part: Region,
        options: &ComputeOptions<'a>,
        reduced: &dyn Fn(Expr, Arc<dyn Summary>) -> Result<Input>,
    ) -> Result<Job<'a>> {
        let (program, inputs) = lower(expr)?;
        let first = |input: &Input| inputs.iter().position(|one| one.is_of_array(input));
        let same = inputs.iter().enumerate().map(|(at, input)| first(input).unwrap_or(at)).collect();
        let bind = |input: Input| -> Result<Input> {
            Ok(match input {
                Input::Buffer(buffer) => Input::Buffer(buffer.to_device(options.device)?),
                Input::Joined(joined) => Input::Joined(joined.bound(&|of, summary| match reduced(of, summary)? {
                    Input::Buffer(buffer) => Ok(Some(buffer)),
                    _ => Ok(None),
                })?),
                Input::Flat(_) | Input::Running(_) => input,
                Input::Reduced(of, summary) => reduced(of, summary)?,
                Input::Array(mut view) => {
                    let own = view.array.options().clone();
                    let cancellation = options.cancellation.unwrap_or(&own.cancellation).clone();
                    let array = view.array.with_options(
                        own.with_device(options.device)
                            .with_threads(options.threads)
                            .with_memory_limit_bytes(options.memory_limit_bytes)
                            .with_order(Order::C)
                            .with_cancellation(cancellation),
                    );
                    let store = options.wrap.map(|wrap| wrap(array.store()));
                    view.array = store.map_or(array.clone(), |store| with_store(&array, store));
                    Input::Array(view)
                }
            })
        };
        let inputs: Vec<Input> = inputs.into_iter().map(bind).collect::<Result<_>>()?;
        let derive = |input: &Input| -> Result<Option<Derived<'a>>> {
            let (of, how) = match input {
                Input::Flat(flat) => (&flat.of, How::Flat(flat.clone())),
                Input::Running(running) => (&running.of, How::Running(running.clone(), Mutex::default())),
                _ => return Ok(None),
            };
            let whole = Region { number: 0, start: vec![0; of.ndim()], extent: of.shape().to_vec() };
            // Only the outer job reports progress, for everything.
            let of = Job::bound(of, whole, &ComputeOptions { progress: None, ..*options }, reduced)?;
            Ok(Some(Derived { of, how }))
        };
        let derived = match inputs.iter().any(Input::is_derived) {
            true => inputs.iter().map(derive).collect::<Result<_>>()?,
            false => Vec::new(),
        };
        let is_in_memory = inputs.iter().all(Input::is_in_memory);
        let processor = match is_in_memory {
            // No other work runs beside it, so it uses the existing stream.
            true => Processor::eager(options.device)?.with_threads(options.threads),
            false => Processor::apart(options.device, options.threads)?,
        };
        Ok(Job {
            program,
            inputs,
            same,
            derived,
            part,
            keeps: false,
            beside: None,
            is_near: false,
            is_in_one: false,
            ahead: 1,
            written_at_once: 0,
            processor,
            meter: options.progress.map(Meter::new),
            options: *options,
            reading_bytes: options.memory_limit_bytes,
            _within: (!is_in_memory).then(|| within(options.device, options.memory_limit_bytes)),
        })
    }

    /// Lets the job return an input's own memory as the result, for a caller that only reads the elements.
    pub(crate) fn looked_at(self) -> Job<'a> {
        Job { keeps: self.program.passes().is_some(), ..self }
    }

    /// Sets the function `bytes`, which returns from a region's extent how much memory the job's caller itself needs.
    pub(crate) fn beside(self, bytes: impl Fn(&[u64]) -> u64 + Send + Sync + 'static) -> Job<'a> {
        Job { beside: Some(Box::new(bytes)), ..self }
    }

    /// Makes regions small if they can be computed in the processor's cache, for a caller whose results do not depend on
    /// the regions.
    pub(crate) fn near(mut self) -> Job<'a> {
        let suits = |(number, input): (usize, &Input)| match input {
            // An array that several inputs use is read once, as one box.
            Input::Array(view) => near::is_near(view) && self.same[number] == number,
            Input::Buffer(_) => true,
            _ => false,
        };
        let is_host = self.device() == Device::Cpu && !self.is_in_memory();
        self.is_near = is_host && self.inputs.iter().enumerate().all(suits);
        self
    }

    /// Makes the host compute all elements as one region if the memory limit allows it, for a caller whose results do not
    /// depend on the regions.
    pub(crate) fn in_one(self) -> Job<'a> {
        Job { is_in_one: self.device() == Device::Cpu, ..self }
    }

    /// Whether regions are computed in the processor's cache.
    pub(super) fn is_near(&self) -> bool {
        self.is_near
    }

    /// Makes the job leave memory for writing, for a caller that writes the results to a store.
    pub(super) fn written(self) -> Job<'a> {
        Job { written_at_once: WRITTEN_AT_ONCE, ..self }
    }

    /// Divides the result into regions along the grid of the largest array, or along `unit`s.
    ///
    /// # Errors
    /// `BudgetExceeded` when a single unit does not fit.
    pub(crate) fn regions(&mut self, unit: Option<Vec<u64>>, limit_bytes: u64) -> Result<Vec<Region>> {
        let unit = unit.map_or_else(|| self.unit(), Ok)?;
        self.regions_of_passes(unit, limit_bytes, 1)
    }

    /// Like [`Job::regions`], but for a caller that goes through the regions several times.
    ///
    /// # Errors
    /// Those of [`Job::regions`].
    pub(crate) fn regions_of_passes(&mut self, unit: Vec<u64>, limit_bytes: u64, passes: u64) -> Result<Vec<Region>> {
        let found = self.divided(&unit, limit_bytes);
        let is_enough =
            |regions: &[Region]| self.divided(&unit, u64::MAX).is_ok_and(|(most, _)| most.len() == regions.len());
        let (regions, ahead) = match found {
            Ok((regions, ahead)) if self.written_at_once <= 1 || is_enough(&regions) => (regions, ahead),
            _ => {
                self.written_at_once = self.written_at_once.min(1);
                self.divided(&unit, limit_bytes)?
            }
        };
        let regions = self.in_order(regions);
        let most = regions.iter().map(|region| self.cost(&unit, &region.extent, ahead)).max().unwrap_or(0);
        let planned_bytes = plannable_bytes(limit_bytes);
        let share =
            if ahead == 1 { planned_bytes / REGIONS_SHARE } else { most.min(planned_bytes / SHORT_REGIONS_SHARE) };
        self.ahead = ahead as usize;
        self.leave_for_reading(planned_bytes - share);
        if let Some(meter) = &self.meter {
            let bytes = regions.iter().map(|region| self.bytes_read(&region.extent)).fold(0, u64::saturating_add);
            meter.expect(passes * regions.len() as u64, 0, bytes.saturating_mul(passes));
        }
        Ok(regions)
    }

    /// Returns the bytes that regions of shape `extent` take, if `ahead` of them are read ahead.
    fn cost(&self, unit: &[u64], extent: &[u64], ahead: u64) -> u64 {
        let is_least = extent.iter().zip(unit).all(|(extent, unit)| extent <= unit);
        // The caller's memory is not counted for a single unit, which cannot be divided further.
        let beside = self.beside.as_ref().filter(|_| !is_least).map_or(0, |bytes| bytes(extent));
        self.bytes_ahead(extent, ahead).saturating_add(beside)
    }

    /// Divides the result into regions of `unit`s. Returns them and the number of regions to read ahead.
    fn divided(&self, unit: &[u64], limit_bytes: u64) -> Result<(Vec<Region>, u64)> {
        let planned_bytes = plannable_bytes(limit_bytes);
        let cut = |ahead: u64, share: u64, enough_bytes: u64| {
            let cost = |extent: &[u64]| self.cost(unit, extent, ahead);
            let needed =
                |least: u64| limit_for_part(least.saturating_mul(share), limit_bytes, self.options.memory_limit_bytes);
            regions(&self.part.extent, unit, &cost, planned_bytes / share, enough_bytes, &needed)
        };
        let in_turn = || {
            // The choice is the same on every device, since results depend on the regions.
            let mut ways = IN_TURN.into_iter().filter(|_| self.only_array().is_some());
            ways.find_map(|(ahead, share)| Some((cut(ahead, share, ENOUGH_IN_TURN_BYTES).ok()?, ahead)))
        };
        let at_once = || cut(SHORT_REGIONS_AHEAD, SHORT_REGIONS_SHARE, ENOUGH_SHORT_BYTES);
        let near = || {
            let cut = || cut(1, REGIONS_SHARE, near::enough_bytes(self.processor.threads)).ok();
            Some((self.is_near.then(cut).flatten()?, 1))
        };
        let in_one = || {
            let cut = || cut(1, REGIONS_SHARE, ENOUGH_BYTES).ok().filter(|regions| regions.len() == 1);
            Some((self.is_in_one.then(cut).flatten()?, 1))
        };
        Ok(match near().or_else(in_one).or_else(in_turn) {
            Some(regions) => regions,
            None => match at_once() {
                Ok(regions) => (regions, SHORT_REGIONS_AHEAD),
                Err(_) => (cut(1, REGIONS_SHARE, ENOUGH_BYTES)?, 1),
            },
        })
    }

    /// Returns the dimensions of the result along which inputs *run*: a region needs the totals of the regions before
    /// it.
    pub(super) fn run_axes(&self) -> Vec<usize> {
        let mut axes = Vec::new();
        for (input, derived) in self.inputs.iter().zip(&self.derived) {
            let (Some(derived), shape) = (derived, input.shape()) else { continue };
            let place = |axis: usize| (self.part.extent.len() + axis).checked_sub(shape.len());
            axes.extend(derived.run_axes().into_iter().filter(|&axis| shape[axis] > 1).filter_map(place));
        }
        axes.sort_unstable();
        axes.dedup();
        axes
    }

    /// Sorts regions into the order in which they are computed: first along the dimensions in [`Job::run_axes`], then
    /// along the others. So few totals are kept.
    fn in_order(&self, mut regions: Vec<Region>) -> Vec<Region> {
        let axes = self.run_axes();
        if !axes.is_empty() {
            let key = |region: &Region| -> Vec<u64> {
                let others = (0..region.start.len()).filter(|axis| !axes.contains(axis));
                others.chain(axes.iter().copied()).map(|axis| region.start[axis]).collect()
            };
            regions.sort_by_cached_key(key);
            for (number, region) in regions.iter_mut().enumerate() {
                region.number = number as u64;
            }
        }
        regions
    }

    /// Groups regions, in order, into tasks that can be done separately: one region each, or all regions along the
    /// dimensions in [`Job::run_axes`].
    pub(super) fn apart(&self, regions: Vec<Region>) -> Vec<Vec<Region>> {
        let axes = self.run_axes();
        let is_beside = |one: &Region, other: &Region| {
            !axes.is_empty()
                && (0..one.start.len()).all(|axis| axes.contains(&axis) || one.start[axis] == other.start[axis])
        };
        let mut apart: Vec<Vec<Region>> = Vec::new();
        for region in regions {
            match apart.last_mut().filter(|last| is_beside(&last[0], &region)) {
                Some(last) => last.push(region),
                None => apart.push(vec![region]),
            }
        }
        apart
    }

    /// Bytes that inputs computed from other expressions take for a region, besides the elements that are read.
    pub(super) fn bytes_derived(&self, extent: &[u64]) -> u64 {
        let axes = if self.derived.is_empty() { Vec::new() } else { self.run_axes() };
        let region = Region { number: 0, start: vec![0; extent.len()], extent: extent.to_vec() };
        let bytes = self.inputs.iter().zip(&self.derived).filter_map(|(input, derived)| {
            let (derived, shape) = (derived.as_ref()?, input.shape());
            let own = operand_region(&region, &shape).extent;
            // Totals are kept for the whole extent of the other dimensions in `run_axes`.
            let is_run = |axis: usize| axes.contains(&(extent.len() + axis - shape.len()));
            let column = |(axis, &extent): (usize, &u64)| match axis {
                _ if Some(axis) == derived.axis() => 1,
                _ if is_run(axis) => shape[axis],
                _ => extent,
            };
            let totals = own.iter().enumerate().map(column).fold(1, u64::saturating_mul);
            Some(derived.bytes(&own, totals))
        });
        bytes.fold(0, u64::saturating_add)
    }

    /// Bytes of the array elements that are read for a region with this extent.
    pub(super) fn bytes_read(&self, extent: &[u64]) -> u64 {
        let region = Region { number: 0, start: vec![0; extent.len()], extent: extent.to_vec() };
        let inputs = self.inputs.iter().zip(&self.program.inputs).enumerate();
        let read = inputs.filter_map(|(number, (input, dtype))| match input {
            Input::Flat(_) | Input::Running(_) => {
                let own = operand_region(&region, &input.shape()).extent;
                self.derived.get(number)?.as_ref().map(|derived| derived.bytes_read(&own))
            }
            Input::Array(view) => {
                Some(operand_region(&region, &view.shape()).elems().saturating_mul(dtype.size_bytes() as u64))
            }
            // Joined parts are computed in memory of their own, and then copied into the input's memory.
            Input::Joined(joined) => {
                Some(operand_region(&region, &joined.shape()).elems().saturating_mul(2 * dtype.size_bytes() as u64))
            }
            _ => None,
        });
        read.fold(0, u64::saturating_add)
    }

    /// Bytes of memory that computing a region with this extent takes, including the regions that are read ahead. It
    /// counts inputs and results of two regions at a time.
    pub(crate) fn bytes(&self, extent: &[u64]) -> u64 {
        self.bytes_ahead(extent, 1)
    }

    /// Like [`Job::bytes`], but with `ahead` regions that are read ahead.
    fn bytes_ahead(&self, extent: &[u64], ahead: u64) -> u64 {
        let made = match self.keeps {
            true => 0,
            false => extent.iter().fold(self.program.output.size_bytes() as u64, |all, &one| all.saturating_mul(one)),
        };
        let read = self.bytes_read(extent).saturating_mul(ahead + 1);
        made.saturating_mul(1 + self.written_at_once.max(1) as u64)
            .saturating_add(read)
            .saturating_add(self.bytes_derived(extent))
    }

    /// Sets the limit for the data of unfinished reads to what the regions leave of the memory limit.
    fn leave_for_reading(&mut self, memory_limit_bytes: u64) {
        self.reading_bytes = memory_limit_bytes;
        for input in &mut self.inputs {
            if let Input::Array(view) = input {
                let options = view.array.options().clone().with_memory_limit_bytes(memory_limit_bytes);
                view.array = view.array.with_options(options);
            }
        }
        for derived in self.derived.iter_mut().flatten() {
            derived.of.leave_for_reading(memory_limit_bytes);
        }
    }

    /// Returns the chunk shape of the largest array that is read, in the dimensions of the result.
    pub(crate) fn unit(&self) -> Result<Vec<u64>> {
        unit_of(&self.inputs, &self.part.extent)
    }

    /// Returns the array that is read, if there is only one and it is read in boxes. `None` if there are other arrays,
    /// or if the caller writes results, since writing takes memory from reads.
    fn only_array(&self) -> Option<&View> {
        if self.inputs.iter().any(|input| matches!(input, Input::Joined(_)) || input.is_derived()) {
            return None;
        }
        let mut arrays = self.inputs.iter().filter_map(|input| match input {
            Input::Array(view) => Some(&**view),
            _ => None,
        });
        let first = arrays.next().filter(|view| self.written_at_once == 0 && view.is_dense())?;
        arrays.next().is_none().then_some(first)
    }

    /// Returns the region of an input of shape `shape` that is needed for a region of the job's part.
    pub(crate) fn part_of(&self, region: &Region, shape: &[u64]) -> Region {
        let start = region.start.iter().zip(&self.part.start).map(|(own, part)| own + part).collect();
        operand_region(&Region { number: region.number, start, extent: region.extent.clone() }, shape)
    }

    /// Reads to the device the elements that are needed for a region of the job's part. For an input that is computed
    /// from another expression, these are that expression's elements.
    ///
    /// # Errors
    /// Those of reading.
    pub(crate) fn read(&self, region: &Region) -> Result<Vec<NdBuffer>> {
        let together = self.together(region)?;
        let elements = self.operands(region, |input, view, part| match &together[self.same[input]] {
            Some(together) => together.part(view, part),
            None => view.read(part),
        })?;
        self.note_read(region);
        Ok(elements)
    }

    /// Reads each array that several inputs use only once: the box that contains what they all need.
    fn together(&self, region: &Region) -> Result<Vec<Option<Together>>> {
        let views = |first: usize| -> Vec<(&View, Region)> {
            let own = self.inputs.iter().zip(&self.same).filter(|(_, same)| **same == first);
            let views = own.filter_map(|(input, _)| match input {
                Input::Array(view) => Some((&**view, self.part_of(region, &view.shape()))),
                _ => None,
            });
            views.collect()
        };
        let read = |first: usize| match views(first) {
            views if views.len() > 1 => Together::read(&views),
            _ => Ok(None),
        };
        (0..self.inputs.len()).map(read).collect()
    }

    /// Like [`Job::read`], but into memory that earlier regions used.
    fn read_near(&self, region: &Region, blocks: &Blocks) -> Result<Lent> {
        let lent = Mutex::new(Vec::new());
        let inputs = self.operands(region, |number, view, part| {
            // Such views are boxes of their arrays.
            let Some(part) = view.region(part) else { return view.read(part) };
            let (elements, block) = blocks.take(self.program.inputs[number], &memory_shape(&part.extent)?)?;
            lent.lock().unwrap_or_else(PoisonError::into_inner).push(block);
            view.array.read_into(&Selection::region(&part.start, &part.extent)?, &elements)?;
            Ok(elements)
        })?;
        self.note_read(region);
        Ok((inputs, lent.into_inner().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Like [`Job::read`], but `of_array` reads the elements of arrays in stores. It gets the number of the input.
    ///
    /// # Errors
    /// Those of `of_array`.
    pub(crate) fn operands(
        &self,
        region: &Region,
        of_array: impl Fn(usize, &View, &Region) -> Result<NdBuffer>,
    ) -> Result<Vec<NdBuffer>> {
        let mut elements = Vec::with_capacity(self.inputs.len());
        for (number, input) in self.inputs.iter().enumerate() {
            let part = self.part_of(region, &input.shape());
            elements.push(match input {
                Input::Array(view) => of_array(number, view, &part)?,
                Input::Buffer(buffer) => {
                    let (start, extent) = (memory_shape(&part.start)?, memory_shape(&part.extent)?);
                    buffer.region(&start, &extent, &vec![1; extent.len()])?
                }
                Input::Joined(joined) => {
                    let memory_limit_bytes = self.reading_bytes / 2;
                    joined.read(&part, &ComputeOptions { memory_limit_bytes, progress: None, ..self.options })?
                }
                Input::Flat(_) | Input::Running(_) => {
                    if let Some(Some(derived)) = self.derived.get(number) {
                        elements.append(&mut derived.read(&part)?);
                    }
                    continue;
                }
                Input::Reduced(..) => {
                    return Err(Error::new(ErrorKind::Unsupported, "an operand is yet to be computed"));
                }
            });
        }
        Ok(elements)
    }

    /// Returns the number of arrays that [`Job::read`] returns for a region.
    pub(super) fn count_read(&self, region: &Region) -> usize {
        let count = |(number, input): (usize, &Input)| match self.derived.get(number) {
            Some(Some(derived)) => derived.count_read(&self.part_of(region, &input.shape())),
            _ => 1,
        };
        self.inputs.iter().enumerate().map(count).sum()
    }

    /// Returns the device on which the job computes its regions.
    pub(super) fn device(&self) -> Device {
        self.options.device
    }

    /// Returns each input's elements for a region: those that were read, or those computed from them.
    fn inputs_of(&self, region: &Region, mut read: &[NdBuffer]) -> Result<Vec<NdBuffer>> {
        let keeps_all = self.run_axes().len() > 1;
        let mut take = |count: usize| match read.split_at_checked(count) {
            Some((own, rest)) => {
                read = rest;
                Ok(own)
            }
            None => Err(Error::new(ErrorKind::InvalidArgument, "elements of an operand are missing")),
        };
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for (input, derived) in self.inputs.iter().zip(&self.derived) {
            inputs.push(match derived {
                None => take(1)?[0].clone(),
                Some(derived) => {
                    let part = self.part_of(region, &input.shape());
                    derived.work(&part, take(derived.count_read(&part))?, keeps_all)?
                }
            });
        }
        Ok(inputs)
    }

    /// Explains the reads: the name of each array with an explanation, and the size in bytes of operands in memory.
    ///
    /// # Errors
    /// Those of [`Array::explain`](cuzarr::node::Array::explain).
    pub(super) fn explained_inputs(&self) -> Result<(Vec<(String, Explanation)>, u64)> {
        let (mut reads, mut memory_bytes) = (Vec::new(), 0);
        for input in &self.inputs {
            match input {
                Input::Array(view) => reads.push((view.to_string(), view.array.explain(&view.selection()?)?)),
                Input::Buffer(buffer) => memory_bytes += buffer.size_bytes() as u64,
                Input::Joined(joined) => {
                    for part in &joined.parts {
                        let stages = part.stages(&self.options)?;
                        reads.extend(stages.into_iter().flat_map(|stage| stage.reads));
                    }
                }
                Input::Flat(_) | Input::Running(_) | Input::Reduced(..) => {}
            }
        }
        for derived in self.derived.iter().flatten() {
            let (mut own, bytes) = derived.of.explained_inputs()?;
            reads.append(&mut own);
            memory_bytes += bytes;
        }
        Ok((reads, memory_bytes))
    }

    /// Reports to the progress meter that a region was read.
    pub(crate) fn note_read(&self, region: &Region) {
        if let Some(meter) = &self.meter {
            meter.note(1, self.bytes_read(&region.extent));
        }
    }

    /// Computes the result's elements in a region from the elements that were read for it.
    ///
    /// # Errors
    /// Those of the processor.
    pub(crate) fn work(&self, region: &Region, inputs: &[NdBuffer]) -> Result<NdBuffer> {
        let shape = memory_shape(&region.extent)?;
        let made = if self.derived.is_empty() { Vec::new() } else { self.inputs_of(region, inputs)? };
        let inputs = if self.derived.is_empty() { inputs } else { &made };
        match self.program.passes() {
            Some(input) if self.keeps => Ok(inputs[input].broadcast_to(&shape)?),
            // What was computed for this region is in new memory, and need not be copied.
            Some(input)
                if self.is_made(input) && inputs[input].shape() == shape && inputs[input].is_contiguous(Order::C) =>
            {
                Ok(inputs[input].clone())
            }
            _ => self.processor.run(&self.program, &shape, inputs),
        }
    }

    /// Like [`Job::work`], but writes the elements to `target`, which is in host memory. No input may be computed from
    /// another expression.
    ///
    /// # Errors
    /// Those of the processor.
    pub(super) fn work_into(&self, inputs: &[NdBuffer], target: &NdBuffer) -> Result<()> {
        if target.dtype() == self.program.output && target.is_contiguous(Order::C) {
            return self.processor.run_into(&self.program, inputs, target);
        }
        Ok(target.copy_from(&self.processor.run(&self.program, target.shape(), inputs)?)?)
    }

    /// Returns the token with which another thread can stop the job.
    pub(super) fn token(&self) -> CancellationToken {
        self.options.cancellation.cloned().unwrap_or_default()
    }

    /// Whether an input is computed from another expression, in host memory.
    fn is_made(&self, input: usize) -> bool {
        self.device() == Device::Cpu && matches!(self.derived.get(input), Some(Some(_)))
    }

    /// Whether an operand in memory may overlap the memory of `other`.
    pub(super) fn shares_memory_with(&self, other: &NdBuffer) -> bool {
        let span = |buffer: &NdBuffer| {
            let start = buffer.buffer().address();
            start..start + buffer.buffer().size_bytes()
        };
        let (device, own) = (other.device(), span(other));
        self.inputs.iter().any(|input| match input {
            Input::Buffer(buffer) if buffer.device() == device => {
                let range = span(buffer);
                range.start < own.end && own.start < range.end
            }
            _ => false,
        }) || self.derived.iter().flatten().any(|derived| derived.of.shares_memory_with(other))
    }

    /// Whether the job reads nothing from stores.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.inputs.iter().all(Input::is_in_memory)
    }
}

/// Returns, for each group of regions, the smallest box that contains them; boxes are numbered in order.
pub(super) fn hulls(apart: &[Vec<Region>]) -> Vec<Region> {
    apart.iter().zip(0..).map(|(regions, number)| Region { number, ..hull_of(regions) }).collect()
}

/// Returns the chunk shape of the largest input in a store, in the dimensions of `shape`.
fn unit_of(inputs: &[Input], shape: &[u64]) -> Result<Vec<u64>> {
    let size = |own: &[u64]| own.iter().fold(1u64, |all, &one| all.saturating_mul(one));
    let stored =
        inputs.iter().filter(|input| matches!(input, Input::Array(_) | Input::Joined(_)) || input.is_derived());
    let mut unit = vec![1; shape.len()];
    let Some((input, own_shape)) = stored.map(|input| (input, input.shape())).max_by_key(|(_, own)| size(own)) else {
        return Ok(shape.iter().map(|&extent| extent.max(1)).collect());
    };
    let chunk = match input {
        Input::Array(view) => view.chunk_shape()?,
        Input::Joined(joined) => {
            let largest = joined.parts.iter().max_by_key(|part| size(part.shape()));
            largest.map_or_else(|| Ok(own_shape.clone()), |part| unit_of(&lower(part)?.1, part.shape()))?
        }
        Input::Flat(flat) => {
            // All chunks that lie side by side along every dimension except the first, so that each is read once.
            let unit = unit_of(&lower(&flat.of)?.1, flat.of.shape())?;
            let rows = flat.of.shape().iter().skip(1).copied();
            vec![rows.fold(unit.first().copied().unwrap_or(1), u64::saturating_mul).max(1)]
        }
        Input::Running(running) => unit_of(&lower(&running.of)?.1, &own_shape)?,
        Input::Buffer(_) | Input::Reduced(..) => own_shape.clone(),
    };
    for (axis, (unit, &whole)) in unit.iter_mut().zip(shape).enumerate().rev() {
        let own = (axis + chunk.len()).checked_sub(shape.len());
        // Along dimensions that the array lacks, any extent is as good as another.
        *unit = own.filter(|&own| own_shape[own] > 1).map_or(whole, |own| chunk[own]).clamp(1, whole.max(1));
    }
    Ok(unit)
}

/// Computes the regions of a job one after the other, and passes each to a callback. While one is computed, the next
/// ones are read and the previous one is written. A single region needs no threads. The result of `work` must not refer
/// to the inputs.
///
/// # Errors
/// The first failure.
pub(crate) fn for_each_region<U: Send>(
    job: &Job<'_>,
    regions: &[Region],
    work: impl FnMut(&Region, Vec<NdBuffer>) -> Result<U>,
    mut write: impl FnMut(&Region, U) -> Result<()> + Send,
) -> Result<()> {
    for_each_written(job, regions, work, Behind::in_order(|region: &Region, made| write(region, made)))
}

/// Like [`for_each_region`], but several results may be written at a time.
///
/// # Errors
/// The first failure.
pub(super) fn for_each_written<'r, U: Send, V: Send>(
    job: &Job<'_>,
    regions: &'r [Region],
    mut work: impl FnMut(&Region, Vec<NdBuffer>) -> Result<U>,
    mut behind: Behind<impl Fn(&&'r Region, U) -> Result<V> + Sync, impl FnMut(&'r Region, V) -> Result<()> + Send>,
) -> Result<()> {
    if let [only] = regions {
        return (behind.done)(only, (behind.write)(&only, work(only, job.read(only)?)?)?);
    }
    if job.is_near {
        let read = |region: &Region, blocks: &Blocks| job.read_near(region, blocks);
        return near::for_each(&job.token(), regions, read, |region, inputs| {
            (behind.done)(region, (behind.write)(&region, work(region, inputs)?)?)
        });
    }
    let token = job.token();
    if let Some(view) = job.only_array() {
        let shape = view.shape();
        let parts: Vec<Region> =
            regions.iter().filter_map(|region| view.region(&job.part_of(region, &shape))).collect();
        let mut each = regions.iter();
        return behind.run(&token, |hand_on| {
            view.array.stream(&parts, job.ahead, |_, elements| {
                let Some(region) = each.next() else { return Ok(()) };
                let inputs = job.operands(region, |_, _, _| Ok(elements.clone()))?;
                hand_on(region, in_flight(|| work(region, inputs))?)?;
                job.note_read(region);
                job.processor.finish()
            })
        });
    }
    let read = |region: &&Region| in_flight(|| job.read(region));
    let work = |region: &&Region, inputs| in_flight(|| work(region, inputs));
    walk(&token, regions.iter().map(Ok), job.ahead, read, work, behind)
}

/// Moves a result to the device that the options name. The copy counts against the memory limit.
///
/// # Errors
/// `OutOfMemory`
pub(crate) fn deliver(result: &NdBuffer, options: &ComputeOptions<'_>) -> Result<NdBuffer> {
    let _within = within(options.device, options.memory_limit_bytes);
    Ok(result.to_device(options.device)?)
}
