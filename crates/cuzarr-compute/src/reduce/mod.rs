//! Reductions over all dimensions or some: sums, means, extremes and others.
//!
//! Elements are divided by their place into segments of fixed size. Each segment gives a state ([`state::State`]), and
//! states are joined pairwise, in order. So results do not depend on threads or blocks, and have the same bits on the
//! CPU and on a GPU (see `reduce/reduce.cuh`). If an array is read in regions, their states are joined in the order of
//! the regions, first within a run ([`runs`]), then across runs. Regions and runs depend on the memory limit, not on
//! the device. On a cluster, a run is a task.
//!
//! Sums of floats are computed in binary64 and rounded once: first over at most 256 elements in a row, then pairwise.
//! Variances use distances from a nearby element and the formula of Chan, Golub and LeVeque. Integers wrap around, as
//! in NumPy.

mod cpu;
pub(crate) mod cuda;
mod runs;
mod state;
pub(crate) mod view;

use cuzarr_device::internal::Threads;
use cuzarr_device::internal::cpu::{cast, nan};
use cuzarr_device::{DType, DTypeKind, Device, NdBuffer, Order};

use self::runs::{FEW_BYTES, Runs};
use self::state::Fold;
pub(crate) use self::state::{Accumulator, State, Wide};
use self::view::{View, state_bytes, wide_type};
use crate::expression::{Expr, Parts, Summary, axes_argument, without_arithmetic};
use crate::options::ComputeOptions;
use crate::program::Processor;
use crate::regions::memory_shape;
use crate::stream::{Job, deliver, for_each_region};
use cuzarr::plan::Region;
use cuzarr::{Error, ErrorKind, Result};

/// Number of partial results that a thread merges or finishes at a time.
const MERGED_AT_ONCE: usize = 4096;

/// A GPU gathers a reduction's partial results if these fit into the memory limit divided by `STATES_SHARE`.
const STATES_SHARE: u64 = 4;

/// The function that a reduction computes from elements, such as a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReduceOp {
    /// The sum of the elements. Bools and integers are summed in 64 bits.
    Sum,
    /// The product of the elements. Bools and integers are multiplied in 64 bits.
    Prod,
    /// The mean of the elements.
    Mean,
    /// The standard deviation of the elements.
    Std,
    /// The variance of the elements.
    Var,
    /// The smallest element; NaN if one is NaN.
    Min,
    /// The largest element; NaN if one is NaN.
    Max,
    /// The index of the first smallest element.
    ArgMin,
    /// The index of the first largest element.
    ArgMax,
    /// Whether at least one element is not 0.
    Any,
    /// Whether no element is 0.
    All,
    /// Number of elements that are not 0.
    CountNonzero,
}

/// A reduction: the function that is computed from elements, and the dimensions over which it is computed.
#[derive(Clone, Debug)]
pub struct Reduction {
    /// The function that is computed from the elements.
    pub op: ReduceOp,
    /// The dimensions to reduce; `None` means all.
    pub axes: Option<Vec<usize>>,
    /// Whether reduced dimensions are kept, with an extent of 1.
    pub keepdims: bool,
    /// NumPy's `ddof`: a variance is divided by the number of elements minus `ddof`.
    pub ddof: f64,
    /// Whether NaN elements are left out.
    pub skip_nan: bool,
}

impl ReduceOp {
    const NAMES: &'static [(ReduceOp, &'static str)] = &[
        (ReduceOp::Sum, "sum"),
        (ReduceOp::Prod, "prod"),
        (ReduceOp::Mean, "mean"),
        (ReduceOp::Std, "std"),
        (ReduceOp::Var, "var"),
        (ReduceOp::Min, "min"),
        (ReduceOp::Max, "max"),
        (ReduceOp::ArgMin, "argmin"),
        (ReduceOp::ArgMax, "argmax"),
        (ReduceOp::Any, "any"),
        (ReduceOp::All, "all"),
        (ReduceOp::CountNonzero, "count_nonzero"),
    ];

    /// Returns the reduction with this NumPy name.
    pub fn named(name: &str) -> Option<ReduceOp> {
        Self::NAMES.iter().find(|(_, own)| *own == name).map(|(op, _)| *op)
    }

    /// Returns NumPy's names of all reductions.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().map(|(_, name)| *name)
    }

    /// Returns NumPy's name of the reduction.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(op, _)| *op == self).map_or("", |(_, name)| name)
    }

    /// Returns the type that elements are converted to before they are reduced, and the type of the result.
    pub(crate) fn dtypes(self, dtype: DType) -> Result<(DType, DType)> {
        let is_exact = matches!(dtype.kind(), DTypeKind::Bool | DTypeKind::Int | DTypeKind::UInt);
        let refused_of_complex =
            !matches!(self, ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Any | ReduceOp::All | ReduceOp::CountNonzero);
        if dtype.kind() == DTypeKind::Opaque {
            return Err(without_arithmetic(dtype));
        }
        if dtype.kind() == DTypeKind::Complex && refused_of_complex {
            let message = format!("{} is not defined for elements of {dtype}", self.name());
            return Err(Error::new(ErrorKind::DTypeMismatch, message)
                .with_hint("use CuPy or NumPy, or reduce real and imag by themselves"));
        }
        Ok(match self {
            ReduceOp::Sum | ReduceOp::Prod if is_exact => (dtype, wide_type(Wide::of(dtype))),
            ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Min | ReduceOp::Max => (dtype, dtype),
            ReduceOp::Mean | ReduceOp::Std | ReduceOp::Var if is_exact => (DType::FLOAT64, DType::FLOAT64),
            ReduceOp::Mean | ReduceOp::Std | ReduceOp::Var => (dtype, dtype),
            ReduceOp::ArgMin | ReduceOp::ArgMax | ReduceOp::CountNonzero => (dtype, DType::INT64),
            ReduceOp::Any | ReduceOp::All => (dtype, DType::BOOL),
        })
    }

    /// Returns how a GPU computes this reduction's result from partial results, and the element type in which it does
    /// so.
    fn answer(self, wide: Wide, skip_nan: bool) -> (cuda::Answer, DType) {
        use cuda::Answer;
        let is_complex = wide == Wide::Complex;
        match self {
            ReduceOp::Sum if is_complex => (Answer::Value, DType::COMPLEX128),
            ReduceOp::Mean if is_complex => (Answer::MeanOfBoth, DType::COMPLEX128),
            ReduceOp::Sum | ReduceOp::Prod => (Answer::Value, wide_type(wide)),
            ReduceOp::Mean => (Answer::Mean, DType::FLOAT64),
            ReduceOp::Std if skip_nan => (Answer::NanDeviation, DType::FLOAT64),
            ReduceOp::Var if skip_nan => (Answer::NanVariance, DType::FLOAT64),
            ReduceOp::Std => (Answer::Deviation, DType::FLOAT64),
            ReduceOp::Var => (Answer::Variance, DType::FLOAT64),
            ReduceOp::Min | ReduceOp::Max => (Answer::Extreme, wide_type(wide)),
            ReduceOp::ArgMin | ReduceOp::ArgMax => (Answer::Place, DType::INT64),
            ReduceOp::Any => (Answer::Any, DType::INT64),
            ReduceOp::All => (Answer::All, DType::INT64),
            ReduceOp::CountNonzero => (Answer::Value, DType::INT64),
        }
    }

    fn accumulator(self) -> Accumulator {
        match self {
            ReduceOp::Sum | ReduceOp::Mean => Accumulator::Sum,
            ReduceOp::Prod => Accumulator::Product,
            ReduceOp::Std | ReduceOp::Var => Accumulator::Moments,
            ReduceOp::Min | ReduceOp::ArgMin => Accumulator::Least,
            ReduceOp::Max | ReduceOp::ArgMax => Accumulator::Greatest,
            ReduceOp::Any | ReduceOp::All | ReduceOp::CountNonzero => Accumulator::Count,
        }
    }
}

impl Reduction {
    /// Describes a reduction over the given dimensions; `None` means all.
    pub fn new(op: ReduceOp, axes: Option<Vec<usize>>) -> Reduction {
        Reduction { op, axes, keepdims: false, ddof: 0.0, skip_nan: false }
    }

    /// Returns the reduction as it applies to elements of type `dtype`. For types without NaN, nothing is left out, as
    /// in NumPy.
    fn for_elements(&self, dtype: DType) -> Reduction {
        let has_nan = matches!(Wide::of(dtype), Wide::Float | Wide::Complex);
        Reduction { skip_nan: self.skip_nan && has_nan, ..self.clone() }
    }

    /// Returns how this reduction combines elements of type `dtype`.
    fn fold(&self, dtype: DType) -> Fold {
        Fold::of(dtype, self.op.accumulator(), self.skip_nan)
    }

    /// Returns the dimensions to reduce, in ascending order.
    fn axes(&self, ndim: usize) -> Result<Vec<usize>> {
        let axes = sorted_axes(self.axes.as_deref(), ndim)?;
        if matches!(self.op, ReduceOp::ArgMin | ReduceOp::ArgMax) && axes.len() != 1 && axes.len() != ndim {
            let message = format!("{} takes one dimension, or all", self.op.name());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        Ok(axes)
    }
}

impl Summary for Reduction {
    fn result(&self, dtype: DType, shape: &[u64]) -> Result<(DType, Vec<u64>)> {
        let axes = self.axes(shape.len())?;
        Ok((self.op.dtypes(dtype)?.1, kept_shape(shape, &axes, self.keepdims)))
    }

    fn compute(&self, of: &Expr, options: &ComputeOptions<'_>) -> Result<NdBuffer> {
        of.reduce_checked(self, options)
    }

    fn parts(&self, of: &Expr, options: &ComputeOptions<'_>) -> Result<Option<u64>> {
        let axes = self.axes(of.ndim())?;
        let source = of.astype(self.op.dtypes(of.dtype())?.0)?;
        let (_, regions) = source.gathering(&axes, options)?;
        Ok(Some(Runs::of(&source, &regions, &axes, options).count() as u64))
    }

    fn part(&self, of: &Expr, number: u64, options: &ComputeOptions<'_>) -> Result<Vec<u8>> {
        let reduction = &self.for_elements(of.dtype());
        let axes = reduction.axes(of.ndim())?;
        let source = of.astype(reduction.op.dtypes(of.dtype())?.0)?;
        let (job, regions) = source.gathering(&axes, options)?;
        let (regions, hull) = Runs::of(&source, &regions, &axes, options).numbered(number)?;
        let states = match source.gathers_there(reduction, &axes, options)? {
            Some(_) => {
                let states = source.gathered_there(reduction, regions, hull, &axes, &job)?;
                states.into_iter().map(|state| state.0).collect()
            }
            None => {
                let mut run = Gathered::new(source.shape(), hull, &axes, reduction.fold(source.dtype()))?;
                source.gather_regions(&job, regions, |region, elements| run.add(region, elements, &job.processor))?;
                run.states
            }
        };
        let mut bytes = Vec::with_capacity(states.len() * size_of::<State>());
        states.iter().for_each(|words| bytes.extend_from_slice(words.map(u64::to_le_bytes).as_flattened()));
        Ok(bytes)
    }

    fn joined(&self, of: &Expr, parts: &mut Parts<'_>, options: &ComputeOptions<'_>) -> Result<NdBuffer> {
        let reduction = &self.for_elements(of.dtype());
        let axes = reduction.axes(of.ndim())?;
        let (dtype, shape) = reduction.result(of.dtype(), of.shape())?;
        let source = of.astype(reduction.op.dtypes(of.dtype())?.0)?;
        let (_, regions) = source.gathering(&axes, options)?;
        let mut gathered =
            Gathered::new(source.shape(), whole_of(source.shape()), &axes, reduction.fold(source.dtype()))?;
        let runs = Runs::of(&source, &regions, &axes, options);
        for number in 0..runs.count() as u64 {
            let (_, hull) = runs.numbered(number)?;
            let part = parts.next().transpose()?.unwrap_or_default();
            let expected = kept_shape(&hull.extent, &axes, false).iter().product::<u64>() * size_of::<State>() as u64;
            if part.len() as u64 != expected {
                let message = format!("the part of {hull} has {} bytes, expected {expected}", part.len());
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            let words = part.as_chunks::<8>().0.as_chunks::<3>().0;
            let states: Vec<State> = words.iter().map(|words| State(words.map(u64::from_le_bytes))).collect();
            gathered.take(&hull, &states);
        }
        Ok(finish(reduction, &gathered, dtype, options.threads)?.reshape(&memory_shape(&shape)?)?)
    }

    fn name(&self) -> &'static str {
        self.op.name()
    }

    fn arguments(&self) -> String {
        axes_argument(self.axes.as_deref())
    }
}

/// Returns the dimensions to reduce, in ascending order; `None` means all.
///
/// # Errors
/// `InvalidArgument` when a dimension does not exist, or is named twice.
pub(super) fn sorted_axes(axes: Option<&[usize]>, ndim: usize) -> Result<Vec<usize>> {
    let mut axes = axes.map_or_else(|| (0..ndim).collect(), <[usize]>::to_vec);
    axes.sort_unstable();
    let repeats = axes.windows(2).any(|pair| pair[0] == pair[1]);
    if repeats || axes.iter().any(|&axis| axis >= ndim) {
        let message = format!("axes {axes:?} are not different dimensions of {ndim}");
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    Ok(axes)
}

/// Returns `shape` without the reduced dimensions, or with an extent of 1 for each of them if `keepdims`.
pub(super) fn kept_shape(shape: &[u64], axes: &[usize], keepdims: bool) -> Vec<u64> {
    let extents = shape.iter().enumerate().filter_map(|(axis, &extent)| match axes.contains(&axis) {
        true => keepdims.then_some(1),
        false => Some(extent),
    });
    extents.collect()
}

/// A reduction's partial results in host memory, one for each element of the result or of a part of it. They cover the
/// regions that were added so far.
struct Gathered {
    shape: Vec<u64>,
    hull: Region,
    axes: Vec<usize>,
    fold: Fold,
    /// The words of each partial result. Vectors of plain words are made from memory that is zero already.
    states: Vec<[u64; 3]>,
}

impl Gathered {
    /// Makes partial results to which no element was added yet, for the regions of an array that lie in the box `hull`.
    fn new(shape: &[u64], hull: Region, axes: &[usize], fold: Fold) -> Result<Gathered> {
        let outputs: usize = memory_shape(&kept_shape(&hull.extent, axes, false))?.iter().product();
        let states = vec![fold.accumulator.empty(fold.wide).0; outputs];
        Ok(Gathered { shape: shape.to_vec(), hull, axes: axes.to_vec(), fold, states })
    }

    fn is_reduced(&self, axis: usize) -> bool {
        self.axes.contains(&axis)
    }

    /// Returns the index, in `states`, of the partial result for the result element at `place`.
    fn number(&self, place: &[u64]) -> u64 {
        let axes = (0..self.shape.len()).filter(|&axis| !self.is_reduced(axis));
        axes.fold(0, |number, axis| number * self.hull.extent[axis] + place[axis] - self.hull.start[axis])
    }

    /// Merges the partial results of a region into those gathered so far. They are in C order of the region's part
    /// of the result.
    fn take(&mut self, region: &Region, states: &[State]) {
        let kept: Vec<usize> = (0..self.shape.len()).filter(|&axis| !self.is_reduced(axis)).collect();
        let (row, outer) = match kept.split_last() {
            Some((&last, outer)) => (region.extent[last] as usize, outer),
            None => (1, &kept[..]),
        };
        let mut all = std::mem::take(&mut self.states);
        let mut place = region.start.clone();
        for states in states.chunks(row.max(1)) {
            let first = self.number(&place) as usize;
            self.merge(region, &mut all[first..first + states.len()], states);
            // Moves to the next row of the region's part of the result.
            for &axis in outer.iter().rev() {
                place[axis] += 1;
                if place[axis] < region.start[axis] + region.extent[axis] {
                    break;
                }
                place[axis] = region.start[axis];
            }
        }
        self.states = all;
    }

    /// Merges partial results of a region into those of the same elements of the result.
    fn merge(&self, region: &Region, own: &mut [[u64; 3]], states: &[State]) {
        let Fold { accumulator, wide, .. } = self.fold;
        let pairs = own.iter_mut().zip(states);
        match (accumulator, wide) {
            // The compiler makes a loop of its own for these.
            (Accumulator::Sum, Wide::Float) => {
                pairs.for_each(|(own, &state)| merge(Accumulator::Sum, Wide::Float, own, state));
            }
            (Accumulator::Least | Accumulator::Greatest, _) => pairs.for_each(|(own, state)| {
                let State([value, count, place]) = *state;
                merge(accumulator, wide, own, State([value, count, self.place_of(region, place)]));
            }),
            _ => pairs.for_each(|(own, &state)| merge(accumulator, wide, own, state)),
        }
    }

    /// Reduces the elements of a region, and merges their partial results into those gathered so far.
    fn add(&mut self, region: &Region, elements: &NdBuffer, processor: &Processor) -> Result<()> {
        let mut kept =
            (0..self.shape.len()).filter(|&axis| !self.is_reduced(axis)).skip_while(|&axis| region.extent[axis] == 1);
        kept.next();
        let is_one_row = kept.all(|axis| region.extent[axis] == self.hull.extent[axis]);
        if processor.stream().is_some() || !is_one_row {
            let states = states_of(elements, &self.axes, self.fold, processor)?;
            self.take(region, &states);
            return Ok(());
        }
        // Each thread merges what it has just reduced.
        let view = View::new(elements, &self.axes)?;
        let first = self.number(&region.start) as usize;
        let mut all = std::mem::take(&mut self.states);
        let own = &mut all[first..first + view.outputs];
        let done = cpu::reduce(elements, &view, self.fold, processor.threads, own, 1, |states, own| {
            self.merge(region, own, states);
            Ok(())
        });
        self.states = all;
        done
    }

    /// Converts an element's C-order index in a region to its C-order index in the whole array. Both only count the
    /// reduced dimensions.
    fn place_of(&self, region: &Region, number: u64) -> u64 {
        let (mut rest, mut place, mut scale) = (number, 0, 1);
        for axis in (0..self.shape.len()).rev().filter(|&axis| self.is_reduced(axis)) {
            let extent = region.extent[axis].max(1);
            place += (region.start[axis] + rest % extent) * scale;
            scale *= self.shape[axis];
            rest /= extent;
        }
        place
    }
}

/// Merges a partial result into another one, which has no element yet or others.
#[inline(always)]
fn merge(accumulator: Accumulator, wide: Wide, own: &mut [u64; 3], state: State) {
    // A partial result of no elements changes nothing.
    let is_first = own[1] == 0;
    *own = if is_first { state.0 } else { accumulator.merge(wide, State(*own), state).0 };
}

/// Returns a function that computes the size in bytes of a region's partial results from the region's extent.
pub(crate) fn states_of_regions(axes: &[usize]) -> impl Fn(&[u64]) -> u64 + Send + Sync + use<> {
    let axes = axes.to_vec();
    move |extent| state_bytes(extent, &axes)
}

/// Returns the bytes of a memory limit that remain beside two sets of partial results: that of all regions, and that of
/// one run of regions. `None` if the states take too large a part of the limit. Then the host gathers them, and there
/// are no runs.
fn beside_states(outputs: usize, limit_bytes: u64) -> Option<u64> {
    let states_bytes = (outputs as u64).saturating_mul(2 * size_of::<State>() as u64);
    (states_bytes <= limit_bytes / STATES_SHARE).then(|| limit_bytes - states_bytes)
}

/// Returns the region that covers an array of this shape.
fn whole_of(shape: &[u64]) -> Region {
    Region { number: 0, start: vec![0; shape.len()], extent: shape.to_vec() }
}

/// Reduces an array in memory over `axes` to one partial result for each element of the result, in C order.
fn states_of(source: &NdBuffer, axes: &[usize], fold: Fold, processor: &Processor) -> Result<Vec<State>> {
    let view = View::new(source, axes)?;
    match processor.stream() {
        None => cpu::states(source, &view, fold, processor.threads),
        // If states are larger than the elements, they would need much memory that no limit counts, and copying them
        // back would take longer than copying the elements.
        Some(stream) if view.outputs * size_of::<State>() > source.size_bytes() => {
            stream.synchronize()?;
            let host = Processor::apart(Device::Cpu, processor.threads)?;
            states_of(&source.to_device(Device::Cpu)?, axes, fold, &host)
        }
        Some(stream) => cuda::states(source, &view, fold, stream),
    }
}

/// Reduces all elements except NaN to a single partial result (state).
///
/// # Errors
/// Those of the pass on the device.
pub(super) fn state_of(source: &NdBuffer, accumulator: Accumulator, processor: &Processor) -> Result<State> {
    let fold = Fold::of(source.dtype(), accumulator, true);
    let states = states_of(source, &(0..source.ndim()).collect::<Vec<_>>(), fold, processor)?;
    Ok(states.first().copied().unwrap_or_else(|| accumulator.empty(fold.wide)))
}

impl Expr {
    /// Makes the expression for a reduction of this expression.
    ///
    /// # Errors
    /// `DTypeMismatch` when the reduction is not defined for the element type; `InvalidArgument` for dimensions that do
    /// not exist.
    pub fn reduced(&self, reduction: Reduction) -> Result<Expr> {
        self.summary(reduction)
    }

    /// Computes a reduction of this expression, in new memory of the device. The next regions are read while one region
    /// is reduced.
    ///
    /// ```
    /// use cuzarr_compute::{ComputeOptions, Expr, ReduceOp, Reduction};
    /// use cuzarr_device::{DType, Device, NdBuffer, Order};
    /// let bytes: Vec<u8> = [1.0f64, 2.0, 3.0, 4.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
    /// let x = Expr::buffer(NdBuffer::from_host(Device::Cpu, DType::FLOAT64, &[2, 2], Order::C, &bytes)?)?;
    /// let mean = x.reduce(&Reduction::new(ReduceOp::Mean, Some(vec![0])), &ComputeOptions::default())?;
    /// assert_eq!(mean.host_slice::<f64>()?, [2.0, 3.0]);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// `DTypeMismatch` when the reduction is not defined for the element type; `InvalidArgument` for dimensions that do
    /// not exist, and for an extreme without elements; those of [`Expr::compute`].
    pub fn reduce(&self, reduction: &Reduction, options: &ComputeOptions<'_>) -> Result<NdBuffer> {
        self.check_sources(options)?;
        self.reduce_checked(reduction, options)
    }

    /// Like [`Expr::reduce`], for callers that have already compared the arrays with their documents.
    fn reduce_checked(&self, reduction: &Reduction, options: &ComputeOptions<'_>) -> Result<NdBuffer> {
        let reduction = &reduction.for_elements(self.dtype());
        let axes = reduction.axes(self.ndim())?;
        let (dtype, shape) = reduction.result(self.dtype(), self.shape())?;
        let source = self.astype(reduction.op.dtypes(self.dtype())?.0)?;
        if let Some(result) = source.reduce_there(reduction, &axes, dtype, options)? {
            return Ok(result.reshape(&memory_shape(&shape)?)?);
        }
        let fold = reduction.fold(source.dtype());
        let (job, regions) = source.gathering_for(&[fold], &axes, options)?;
        if let ([only], None) = (&regions[..], job.processor.stream()) {
            let result = source.reduce_at_once(reduction, &axes, dtype, &job, only)?;
            return Ok(result.reshape(&memory_shape(&shape)?)?);
        }
        let [gathered] = source.gather(&axes, [fold], options, (&job, &regions))?;
        let result = finish(reduction, &gathered, dtype, options.threads)?.reshape(&memory_shape(&shape)?)?;
        deliver(&result, options)
    }

    /// Computes a reduction whose elements are a single region, in host memory. Partial results stay in the cache: each
    /// thread turns them into elements of the result at once. Returns these in one dimension.
    fn reduce_at_once(
        &self,
        reduction: &Reduction,
        axes: &[usize],
        dtype: DType,
        job: &Job<'_>,
        region: &Region,
    ) -> Result<NdBuffer> {
        let elements = job.work(region, &job.read(region)?)?;
        let view = View::new(&elements, axes)?;
        let fold = reduction.fold(self.dtype());
        let finish = Finish::new(reduction, fold, self.shape(), axes, dtype);
        let result = NdBuffer::empty(Device::Cpu, dtype, &[view.outputs], Order::C)?;
        let mut bytes = result.buffer().host_bytes_mut()?;
        let threads = job.processor.threads;
        cpu::reduce(&elements, &view, fold, threads, &mut bytes, dtype.size_bytes(), |states, results| {
            finish.write(states, results)
        })?;
        drop(bytes);
        Ok(result)
    }

    /// Returns how a GPU computes the result from partial results; `None` if the host gathers the partial results
    /// instead.
    fn gathers_there(
        &self,
        reduction: &Reduction,
        axes: &[usize],
        options: &ComputeOptions<'_>,
    ) -> Result<Option<(cuda::Answer, DType)>> {
        let outputs: usize = memory_shape(&kept_shape(self.shape(), axes, false))?.iter().product();
        let (answer, widest) = reduction.op.answer(Wide::of(self.dtype()), reduction.skip_nan);
        // The host reports errors, so it takes the cases that may fail.
        let may_fail = self.shape().contains(&0) || (reduction.skip_nan && matches!(answer, cuda::Answer::Place));
        let suits = cuda::Gathered::suits(self.shape(), axes);
        let fits = beside_states(outputs, options.memory_limit_bytes).is_some();
        Ok((options.device != Device::Cpu && !may_fail && suits && fits).then_some((answer, widest)))
    }

    /// Computes a reduction whose partial results a GPU gathers; `None` if the host has to gather them.
    fn reduce_there(
        &self,
        reduction: &Reduction,
        axes: &[usize],
        dtype: DType,
        options: &ComputeOptions<'_>,
    ) -> Result<Option<NdBuffer>> {
        let Some((answer, wide)) = self.gathers_there(reduction, axes, options)? else { return Ok(None) };
        let finish = cuda::Finish { answer, ddof: reduction.ddof, wide, dtype };
        let (job, regions) = self.gathering(axes, options)?;
        let Some(stream) = job.processor.stream() else { return Ok(None) };
        let fold = reduction.fold(self.dtype());
        let mut gathered = cuda::Gathered::new(self.shape(), whole_of(self.shape()), axes, fold, stream)?;
        if let [only] = &regions[..] {
            let elements = job.work(only, &job.read(only)?)?;
            return gathered.finish_all(&elements, &finish).map(Some);
        }
        let runs = Runs::of(self, &regions, axes, options);
        let (mut at, mut run) = (runs.ends(), None);
        for_each_region(
            &job,
            &regions,
            |region, inputs| {
                let elements = job.work(region, &inputs)?;
                let Some((hull, is_last)) = at.next().flatten() else { return gathered.take(region, &elements) };
                let mut own = match run.take() {
                    Some(own) => own,
                    None => cuda::Gathered::new(self.shape(), hull.clone(), axes, fold, stream)?,
                };
                own.take(region, &elements)?;
                if is_last {
                    return gathered.take_run(&hull, &own);
                }
                run = Some(own);
                Ok(())
            },
            |_, ()| Ok(()),
        )?;
        gathered.finish(&finish).map(Some)
    }

    /// Reduces a run of regions to partial results in GPU memory. All regions of the run lie in `hull`.
    fn gathered_there(
        &self,
        reduction: &Reduction,
        regions: &[Region],
        hull: Region,
        axes: &[usize],
        job: &Job<'_>,
    ) -> Result<Vec<State>> {
        let Some(stream) = job.processor.stream() else { return Ok(Vec::new()) };
        let mut run = cuda::Gathered::new(self.shape(), hull, axes, reduction.fold(self.dtype()), stream)?;
        let take = |region: &Region, inputs: Vec<NdBuffer>| run.take(region, &job.work(region, &inputs)?);
        for_each_region(job, regions, take, |_, ()| Ok(()))?;
        run.states()
    }

    /// Returns the smallest and the largest element; both are computed in one pass. There must be at least one element.
    /// If one is NaN, both results are NaN.
    ///
    /// # Errors
    /// Those of [`Expr::reduce`].
    pub(super) fn extremes(&self, options: &ComputeOptions<'_>) -> Result<(f64, f64)> {
        let axes = sorted_axes(None, self.ndim())?;
        let folds = [Accumulator::Least, Accumulator::Greatest].map(|which| Fold::of(self.dtype(), which, false));
        let (job, regions) = self.gathering_for(&folds, &axes, options)?;
        let both = self.gather(&axes, folds, options, (&job, &regions))?;
        let [least, greatest] =
            both.map(|gathered| gathered.fold.wide.number(gathered.states.first().map_or(0, |words| words[0])));
        Ok((least, greatest))
    }

    /// Reduces all elements to partial results of several kinds (folds), in a single pass through the expression.
    fn gather<const N: usize>(
        &self,
        axes: &[usize],
        folds: [Fold; N],
        options: &ComputeOptions<'_>,
        (job, regions): (&Job<'_>, &[Region]),
    ) -> Result<[Gathered; N]> {
        let all = |hull: &Region| {
            let each = folds.iter().map(|&fold| Gathered::new(self.shape(), hull.clone(), axes, fold));
            each.collect::<Result<Vec<_>>>()
        };
        let mut whole = all(&whole_of(self.shape()))?;
        let runs = Runs::of(self, regions, axes, options);
        let (mut at, mut run) = (runs.ends(), None);
        self.gather_regions(job, regions, |region, elements| {
            let Some((hull, is_last)) = at.next().flatten() else {
                return whole.iter_mut().try_for_each(|whole| whole.add(region, elements, &job.processor));
            };
            let mut own = run.take().map_or_else(|| all(&hull), Ok)?;
            own.iter_mut().try_for_each(|own| own.add(region, elements, &job.processor))?;
            if is_last {
                for (whole, own) in whole.iter_mut().zip(&own) {
                    whole.take(&hull, &own.states.iter().map(|&words| State(words)).collect::<Vec<_>>());
                }
            } else {
                run = Some(own);
            }
            Ok(())
        })?;
        drop(at);
        let missing = || Error::new(ErrorKind::InvalidArgument, "a reduction lacks its states");
        whole.try_into().map_err(|_| missing())
    }

    /// Computes the elements of each region, and passes them to a callback, which must not keep them.
    fn gather_regions(
        &self,
        job: &Job<'_>,
        regions: &[Region],
        mut add: impl FnMut(&Region, &NdBuffer) -> Result<()>,
    ) -> Result<()> {
        let work = |region: &Region, inputs: Vec<NdBuffer>| add(region, &job.work(region, &inputs)?);
        for_each_region(job, regions, work, |_, ()| Ok(()))
    }

    /// Makes a job that computes all elements of the expression, and the regions in which it does so on every device.
    fn gathering<'a>(&self, axes: &[usize], options: &ComputeOptions<'a>) -> Result<(Job<'a>, Vec<Region>)> {
        self.gathering_for(&[], axes, options)
    }

    /// Like [`Expr::gathering`], but regions may be others on the host if the results of `folds` do not depend on them:
    /// regions that stay in the processor's cache, or a single one if there are many partial results.
    fn gathering_for<'a>(
        &self,
        folds: &[Fold],
        axes: &[usize],
        options: &ComputeOptions<'a>,
    ) -> Result<(Job<'a>, Vec<Region>)> {
        let whole = whole_of(self.shape());
        let mut job = Job::new(self, whole, options)?.looked_at().beside(states_of_regions(axes));
        let states_bytes = kept_shape(self.shape(), axes, false)
            .iter()
            .fold(size_of::<State>() as u64, |all, &one| all.saturating_mul(one));
        if !folds.is_empty() && folds.iter().all(|fold| fold.is_exact()) {
            job = if states_bytes <= FEW_BYTES { job.near() } else { job.in_one() };
        }
        let outputs: usize = memory_shape(&kept_shape(self.shape(), axes, false))?.iter().product();
        // The same limit as on a GPU, so that regions and results are the same.
        let left_bytes = beside_states(outputs, options.memory_limit_bytes).unwrap_or(options.memory_limit_bytes);
        let limit_bytes = if job.is_in_memory() { u64::MAX } else { left_bytes };
        let regions = job.regions(None, limit_bytes)?;
        Ok((job, regions))
    }
}

/// Computes the elements of the result from their partial results, in one dimension of host memory.
fn finish(reduction: &Reduction, gathered: &Gathered, dtype: DType, threads: usize) -> Result<NdBuffer> {
    let finish = Finish::new(reduction, gathered.fold, &gathered.shape, &gathered.axes, dtype);
    let result = NdBuffer::empty(Device::Cpu, dtype, &[gathered.states.len()], Order::C)?;
    let mut bytes = result.buffer().host_bytes_mut()?;
    let parts = gathered.states.chunks(MERGED_AT_ONCE).zip(bytes.chunks_mut(MERGED_AT_ONCE * dtype.size_bytes()));
    let done = Threads::workers().map(threads, parts, |(states, results)| finish.write(states, results));
    done.into_iter().collect::<Result<()>>()?;
    drop(bytes);
    Ok(result)
}

/// The three words of a partial result.
trait Words {
    fn words(&self) -> [u64; 3];
}

impl Words for State {
    fn words(&self) -> [u64; 3] {
        self.0
    }
}

impl Words for [u64; 3] {
    fn words(&self) -> [u64; 3] {
        *self
    }
}

/// How partial results become elements of the result, in host memory.
struct Finish<'a> {
    reduction: &'a Reduction,
    wide: Wide,
    /// Number of elements that make up each element of the result.
    total: u64,
    dtype: DType,
}

impl<'a> Finish<'a> {
    fn new(reduction: &'a Reduction, fold: Fold, shape: &[u64], axes: &[usize], dtype: DType) -> Finish<'a> {
        Finish { reduction, wide: fold.wide, total: axes.iter().map(|&axis| shape[axis]).product(), dtype }
    }

    /// Writes the elements of the result, packed.
    ///
    /// # Errors
    /// `InvalidArgument` for an extreme of no elements.
    fn write(&self, states: &[impl Words], results: &mut [u8]) -> Result<()> {
        let op = self.reduction.op;
        let number = |word: u64| f64::from_bits(word);
        let is_complex = self.wide == Wide::Complex && matches!(op, ReduceOp::Sum | ReduceOp::Mean);
        let mut bytes = vec![0; states.len() * if is_complex { 16 } else { 8 }];
        let words = bytes.as_chunks_mut::<8>().0;
        let mut from = wide_type(self.wide);
        match op {
            _ if is_complex => {
                for (parts, state) in words.as_chunks_mut::<2>().0.iter_mut().zip(states) {
                    let [value, count, second] = state.words();
                    let n = if op == ReduceOp::Mean { count as f64 } else { 1.0 };
                    *parts = [value, second].map(|part| (number(part) / n).to_ne_bytes());
                }
            }
            ReduceOp::Sum | ReduceOp::Prod => put(words, states, |[value, ..]| value),
            ReduceOp::Mean => put(words, states, |[value, count, _]| (number(value) / count as f64).to_bits()),
            ReduceOp::Std => put(words, states, |state| self.variance(state).sqrt().to_bits()),
            ReduceOp::Var => put(words, states, |state| self.variance(state).to_bits()),
            ReduceOp::Min | ReduceOp::Max | ReduceOp::ArgMin | ReduceOp::ArgMax => {
                let is_value = matches!(op, ReduceOp::Min | ReduceOp::Max);
                let has_none = states.iter().any(|state| state.words()[1] == 0);
                if has_none && !(is_value && self.total > 0) {
                    return Err(self.no_extreme());
                }
                if is_value {
                    // Where all elements were NaN and left out, the extreme is NaN.
                    let nan = f64::NAN.to_bits();
                    put(words, states, |[value, count, _]| if count > 0 { value } else { nan });
                } else {
                    from = DType::INT64;
                    put(words, states, |[.., place]| place);
                }
            }
            ReduceOp::Any | ReduceOp::All | ReduceOp::CountNonzero => {
                from = DType::INT64;
                match op {
                    ReduceOp::Any => put(words, states, |[value, ..]| u64::from(value > 0)),
                    ReduceOp::All => put(words, states, |[value, count, _]| u64::from(value == count)),
                    _ => put(words, states, |[value, ..]| value),
                }
            }
        }
        nan::canonicalize(from, &mut bytes);
        Ok(cast::cast(from, self.dtype, &bytes, results)?)
    }

    fn variance(&self, [_, count, second]: [u64; 3]) -> f64 {
        let (n, squares) = (count as f64, f64::from_bits(second));
        // A NaN element makes the result NaN. If NaN is left out, NumPy returns NaN for too few elements.
        let has_none = self.reduction.skip_nan && n <= self.reduction.ddof;
        if has_none || squares.is_nan() { f64::NAN } else { squares.max(0.0) / (n - self.reduction.ddof).max(0.0) }
    }

    fn no_extreme(&self) -> Error {
        let name = self.reduction.op.name();
        let message = match self.total {
            0 => format!("{name} of no elements has no meaning"),
            _ => format!("{name} of nothing but NaN has no meaning"),
        };
        Error::new(ErrorKind::InvalidArgument, message)
    }
}

/// Writes a word for each partial result.
fn put(words: &mut [[u8; 8]], states: &[impl Words], word: impl Fn([u64; 3]) -> u64) {
    words.iter_mut().zip(states).for_each(|(bytes, state)| *bytes = word(state.words()).to_ne_bytes());
}
