//! Statistics of numbers in one pass: count, extremes, mean, standard deviation and spread.
//!
//! Every region gives its own [`Statistics`], which are then joined. On a GPU, the kernels of reductions and histograms
//! compute them. The edges of a region's bins are multiples of a power of two, so bins of two regions are joined
//! without looking at the elements again. Everything except mean and deviation is independent of how the regions are
//! divided.

mod spread;

use cuzarr_device::{DTypeKind, NdBuffer};

use self::spread::Spread;
use crate::count::{Bins, Counting, Keys};
use crate::expression::{Expr, Op, Operand, Weak, without_arithmetic};
use crate::options::ComputeOptions;
use crate::program::{Processor, lower};
use crate::reduce::{Accumulator, State, Wide, state_of, states_of_regions};
use crate::stream::{Job, for_each_region};
use cuzarr::Result;
use cuzarr::plan::Region;

/// Number of elements whose infinities are replaced by NaN at a time. The replaced copy takes memory beside the limit.
const PART_ELEMS: usize = 1 << 20;

/// Statistics of the elements of an expression: counts, range, mean, standard deviation and histogram, in binary64.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// Number of finite elements.
    pub finite: u64,
    /// Number of NaN elements.
    pub nan: u64,
    /// Number of infinite elements.
    pub infinite: u64,
    /// The smallest and the largest number, which may be infinite; `None` if all elements are NaN. Integers beyond 2⁵³
    /// are rounded to binary64; [`Statistics::whole_range`] has them exactly.
    pub range: Option<(f64, f64)>,
    /// The exact smallest and largest element of integer types; `None` for other types, and without elements.
    pub whole_range: Option<(i128, i128)>,
    /// The finite elements' mean, number and sum of squared distances from the mean.
    moments: State,
    /// The histogram of the finite elements.
    spread: Spread,
}

impl Statistics {
    /// Returns the number of elements that the statistics describe, including NaN and infinite ones.
    pub fn count(&self) -> u64 {
        self.finite + self.nan + self.infinite
    }

    /// Returns the mean of the finite numbers; `None` if there are none.
    pub fn mean(&self) -> Option<f64> {
        (self.finite > 0).then(|| f64::from_bits(self.moments.0[0]))
    }

    /// Returns the standard deviation of the finite numbers, as NumPy's `std` computes it (divided by n, not by n - 1);
    /// `None` if there are none.
    pub fn std(&self) -> Option<f64> {
        let squares = f64::from_bits(self.moments.0[2]).max(0.0);
        (self.finite > 0).then(|| (squares / self.finite as f64).sqrt())
    }

    /// Returns the histogram of the finite numbers, in at most `most` bins: their width, and each bin's start and
    /// count. All bins have the same width, a power of two. There are at most `most` bins (2, if `most` is less), and
    /// never more than 129.
    pub fn histogram(&self, most: usize) -> (f64, Vec<(f64, u64)>) {
        let mut wide = self.spread.clone();
        while wide.ends().is_some_and(|(first, last)| (last - first) as usize >= most.max(2)) {
            wide.widen();
        }
        let Some((first, last)) = wide.ends() else { return (0.0, Vec::new()) };
        let bin = |bin: i64| (bin as f64 * wide.width, wide.bins.get(&bin).copied().unwrap_or(0));
        (wide.width, (first..=last).map(bin).collect())
    }

    /// Computes the statistics of elements on the processor's device.
    fn of(elements: &NdBuffer, processor: &Processor) -> Result<Statistics> {
        let (mut all, dtype) = (Statistics::default(), elements.dtype());
        let Some(keys) = Keys::of(dtype) else { return Err(without_arithmetic(dtype)) };
        let Some(range) = Extremes::of(elements, processor)? else {
            all.nan = elements.len() as u64;
            return Ok(all);
        };
        (all.nan, all.range) = (elements.len() as u64 - range.count, Some((range.least, range.greatest)));
        all.whole_range = range.whole;
        let mut finite = Some(range).filter(|range| range.least.is_finite() && range.greatest.is_finite());
        if finite.is_some() {
            all.moments = state_of(elements, Accumulator::Moments, processor)?;
        } else {
            for part in parts(elements)? {
                let part = without_infinities(&part, processor)?;
                finite = Extremes::join(finite, Extremes::of(&part, processor)?);
                all.moments = merged_moments(all.moments, state_of(&part, Accumulator::Moments, processor)?);
            }
        }
        all.finite = finite.as_ref().map_or(0, |finite| finite.count);
        all.infinite = elements.len() as u64 - all.nan - all.finite;
        let Some(finite) = finite else { return Ok(all) };
        // Both limits are rounded down, and bin edges are binary64 numbers. So each integer stays in its bin.
        let (least, greatest) =
            finite.whole.map_or((finite.least, finite.greatest), |(least, greatest)| (below(least), below(greatest)));
        all.spread = Spread::within(least, greatest);
        let counts = match all.spread.ends() {
            Some((first, last)) if first < last => {
                let bins = Bins::Edges(all.spread.edges(keys, dtype)?);
                let mut counting = Counting::new(keys, &bins, 1, processor)?;
                counting.add(elements, &(0..elements.ndim()).collect::<Vec<_>>(), 0)?;
                let mut counts = counting.finish()?;
                counts.truncate(bins.counters());
                counts
            }
            _ => vec![all.finite],
        };
        all.spread.add(&counts);
        Ok(all)
    }

    fn join(&mut self, other: Statistics) {
        self.finite += other.finite;
        self.nan += other.nan;
        self.infinite += other.infinite;
        self.range = match (self.range, other.range) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (own, others) => own.or(others),
        };
        self.whole_range = joined(self.whole_range, other.whole_range);
        self.moments = merged_moments(self.moments, other.moments);
        self.spread.join(other.spread);
    }
}

/// Merges the moments (mean, number, squared distances) of two sets of elements. Mean and squares are binary64,
/// whatever the elements are.
fn merged_moments(own: State, other: State) -> State {
    Accumulator::Moments.merge(Wide::Float, own, other)
}

/// Returns the largest binary64 number that is not above a 64-bit integer.
fn below(whole: i128) -> f64 {
    let nearest = whole as f64;
    if nearest as i128 > whole { nearest.next_down() } else { nearest }
}

fn joined(own: Option<(i128, i128)>, other: Option<(i128, i128)>) -> Option<(i128, i128)> {
    match (own, other) {
        (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
        (own, other) => own.or(other),
    }
}

/// The smallest and the largest element that is not NaN. There is at least one such number.
struct Extremes {
    count: u64,
    least: f64,
    greatest: f64,
    /// The exact smallest and largest element of integer arrays.
    whole: Option<(i128, i128)>,
}

impl Extremes {
    fn of(elements: &NdBuffer, processor: &Processor) -> Result<Option<Extremes>> {
        let wide = Wide::of(elements.dtype());
        let [least, greatest] =
            [Accumulator::Least, Accumulator::Greatest].map(|which| state_of(elements, which, processor));
        let (least, greatest) = (least?, greatest?);
        let extremes = || Extremes {
            count: least.0[1],
            least: wide.number(least.0[0]),
            greatest: wide.number(greatest.0[0]),
            whole: wide.whole(least.0[0]).zip(wide.whole(greatest.0[0])),
        };
        Ok((least.0[1] > 0).then(extremes))
    }

    fn join(own: Option<Extremes>, other: Option<Extremes>) -> Option<Extremes> {
        match (own, other) {
            (Some(own), Some(other)) => Some(Extremes {
                count: own.count + other.count,
                least: own.least.min(other.least),
                greatest: own.greatest.max(other.greatest),
                whole: joined(own.whole, other.whole),
            }),
            (own, other) => own.or(other),
        }
    }
}

/// Divides an array into one-dimensional parts of limited size.
fn parts(elements: &NdBuffer) -> Result<Vec<NdBuffer>> {
    let row = elements.reshape_copy(&[elements.len()])?;
    let part = |start: usize| row.region(&[start], &[PART_ELEMS.min(row.len() - start)], &[1]);
    Ok((0..row.len()).step_by(PART_ELEMS).map(part).collect::<std::result::Result<_, _>>()?)
}

/// Replaces infinities in floats by NaN.
fn without_infinities(elements: &NdBuffer, processor: &Processor) -> Result<NdBuffer> {
    let own = Expr::buffer(elements.clone())?;
    let is_finite = Expr::apply(Op::IsFinite, &[own.clone().into()])?;
    let nan = Operand::Expr(Expr::constant(Weak::Float(f64::NAN), elements.dtype())?);
    let (program, _) = lower(&Expr::apply(Op::Where, &[is_finite.into(), own.into(), nan])?)?;
    processor.run(&program, elements.shape(), std::slice::from_ref(elements))
}

impl Expr {
    /// Computes the statistics of all elements in one pass. The next regions are read while one region is processed.
    ///
    /// ```
    /// use cuzarr_compute::Expr;
    /// use cuzarr_device::{DType, Device, NdBuffer, Order};
    /// let bytes: Vec<u8> = [1.0f64, 5.0, f64::NAN, 3.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
    /// let x = Expr::buffer(NdBuffer::from_host(Device::Cpu, DType::FLOAT64, &[4], Order::C, &bytes)?)?;
    /// let known = x.statistics(&Default::default())?;
    /// assert_eq!((known.finite, known.nan, known.range, known.mean()), (3, 1, Some((1.0, 5.0)), Some(3.0)));
    /// assert_eq!(known.histogram(4), (2.0, vec![(0.0, 1), (2.0, 1), (4.0, 1)]));
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// `DTypeMismatch` for elements that are not real numbers; those of [`Expr::compute`].
    pub fn statistics(&self, options: &ComputeOptions<'_>) -> Result<Statistics> {
        if matches!(self.dtype().kind(), DTypeKind::Complex | DTypeKind::Opaque) {
            return Err(without_arithmetic(self.dtype()));
        }
        self.check_sources(options)?;
        let whole = Region { number: 0, start: vec![0; self.ndim()], extent: self.shape().to_vec() };
        let axes: Vec<usize> = (0..self.ndim()).collect();
        let mut job = Job::new(self, whole, options)?.looked_at().beside(states_of_regions(&axes));
        let limit_bytes = if job.is_in_memory() { u64::MAX } else { options.memory_limit_bytes };
        let regions = job.regions(None, limit_bytes)?;
        let mut all = Statistics::default();
        for_each_region(
            &job,
            &regions,
            |region, inputs| Statistics::of(&job.work(region, &inputs)?, &job.processor),
            |_, known| {
                all.join(known);
                Ok(())
            },
        )?;
        Ok(all)
    }
}
