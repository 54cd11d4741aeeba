//! Histograms that choose bins, and the bin of each element, by NumPy's rules.

use cuzarr_device::internal::cpu::cast;
use cuzarr_device::internal::cpu::nan::Canonical;
use cuzarr_device::{DType, DTypeKind, Device, NdBuffer, Order};

use crate::count::{Bins, Counting, Keys};
use crate::expression::{Expr, Op, Summary, promote};
use crate::options::ComputeOptions;
use crate::stream::{Job, deliver, for_each_region};
use cuzarr::plan::Region;
use cuzarr::{Error, ErrorKind, Result};

/// Largest number of bins that a histogram may have; more are refused. Their counters need device memory.
const MOST_BINS: u64 = 1 << 24;

/// The bins of a histogram, as the caller gave them. Each includes its lower edge but not its upper one; the last bin
/// includes both.
#[derive(Clone, Debug)]
enum Edges {
    /// The histogram has `bins` bins of equal width over a range of numbers. The range defaults to the smallest and the
    /// largest element.
    Even { bins: u64, range: Option<(f64, f64)>, dtype: Option<DType> },
    /// The histogram has bins between these edges, which are packed in host memory.
    Given(NdBuffer),
}

/// The description of a histogram of all elements.
#[derive(Clone, Debug)]
pub struct Histogram {
    edges: Edges,
    density: bool,
}

/// Which of a histogram's two results is wanted: the counts or the edges of the bins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HistogramPart {
    Counts,
    Edges,
}

/// The counts or the edges of a histogram's bins, as a node of an expression.
#[derive(Debug)]
struct Asked {
    histogram: Histogram,
    part: HistogramPart,
}

impl Summary for Asked {
    fn result(&self, dtype: DType, _shape: &[u64]) -> Result<(DType, Vec<u64>)> {
        self.histogram.result(self.part, dtype)
    }

    fn compute(&self, of: &Expr, options: &ComputeOptions<'_>) -> Result<NdBuffer> {
        self.histogram.compute(self.part, of, options)
    }

    fn name(&self) -> &'static str {
        match self.part {
            HistogramPart::Counts => "histogram",
            HistogramPart::Edges => "histogram_bin_edges",
        }
    }

    fn arguments(&self) -> String {
        String::new()
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message.into())
}

impl Histogram {
    /// Describes a histogram with `bins` bins of equal width. Without a range, it spans the smallest to the largest
    /// element, which takes another pass.
    pub fn new(bins: u64, range: Option<(f64, f64)>) -> Histogram {
        Histogram { edges: Edges::Even { bins, range, dtype: None }, density: false }
    }

    /// Describes a histogram with bins between the given edges, which must increase. Elements and edges are compared in
    /// the type that they promote to.
    ///
    /// # Errors
    /// `MemorySpace` when the edges are on a device.
    pub fn between(edges: &NdBuffer) -> Result<Histogram> {
        edges.buffer().host_bytes()?;
        Ok(Histogram { edges: Edges::Given(edges.copy(Order::C)?), density: false })
    }

    /// Sets the element type of the edges, for bins of equal width. The default is the elements' type for floats, and
    /// binary64 for others.
    pub fn with_dtype(mut self, edges: DType) -> Histogram {
        if let Edges::Even { dtype, .. } = &mut self.edges {
            *dtype = Some(edges);
        }
        self
    }

    /// Chooses whether the histogram returns NumPy's `density` for each bin instead of the count. The density is each
    /// count divided by the sum of counts and by the bin's width, in binary64.
    pub fn density(mut self, density: bool) -> Histogram {
        self.density = density;
        self
    }

    fn edges_dtype(&self, dtype: DType) -> DType {
        let is_float = matches!(dtype.kind(), DTypeKind::Float | DTypeKind::BFloat);
        match &self.edges {
            Edges::Even { dtype: said, .. } => said.unwrap_or(if is_float { dtype } else { DType::FLOAT64 }),
            Edges::Given(edges) => edges.dtype(),
        }
    }

    /// Returns the type and the shape of a histogram's counts, or of the edges of its bins.
    ///
    /// # Errors
    /// `DTypeMismatch`, `InvalidArgument`.
    fn result(&self, part: HistogramPart, dtype: DType) -> Result<(DType, Vec<u64>)> {
        if Keys::of(dtype).is_none() {
            let message = format!("a histogram is not defined for elements of {dtype}");
            return Err(Error::new(ErrorKind::DTypeMismatch, message).with_hint("take those of real and imag"));
        }
        let bins = match &self.edges {
            Edges::Even { bins: 0, .. } => return Err(invalid("a histogram has at least one bin")),
            Edges::Even { range: Some((first, last)), .. }
                if first.partial_cmp(last).is_none_or(|order| order.is_gt()) =>
            {
                return Err(invalid(format!("the range {first} to {last} of a histogram does not increase")));
            }
            Edges::Even { range: Some((first, last)), .. } if !(first.is_finite() && last.is_finite()) => {
                return Err(invalid(format!("the range {first} to {last} of a histogram is not finite")));
            }
            Edges::Even { bins, .. } => *bins,
            Edges::Given(edges) => {
                let keys = Keys::of(edges.dtype()).filter(|_| edges.ndim() == 1 && edges.len() > 1);
                let keys = keys.ok_or_else(|| invalid("the edges of a histogram are a row of at least two numbers"))?;
                if !keys_of(edges, keys)?.is_sorted() {
                    return Err(invalid("the edges of a histogram must increase"));
                }
                edges.len() as u64 - 1
            }
        };
        if bins > MOST_BINS {
            return Err(invalid(format!("a histogram has at most {MOST_BINS} bins, not {bins}")));
        }
        Ok(match part {
            HistogramPart::Edges => (self.edges_dtype(dtype), vec![bins + 1]),
            HistogramPart::Counts if self.density => (DType::FLOAT64, vec![bins]),
            HistogramPart::Counts => (DType::INT64, vec![bins]),
        })
    }

    /// Computes the counts or the edges of a histogram's bins, in new memory of the device.
    ///
    /// # Errors
    /// `InvalidArgument` where the elements give no range; those of [`Expr::compute`].
    fn compute(&self, part: HistogramPart, of: &Expr, options: &ComputeOptions<'_>) -> Result<NdBuffer> {
        self.result(part, of.dtype())?;
        let edges = self.edges(of, options)?;
        if part == HistogramPart::Edges {
            return Ok(edges.to_device(options.device)?);
        }
        let joint = match self.edges {
            Edges::Even { .. } => edges.dtype(),
            Edges::Given(_) => promote(of.dtype(), edges.dtype())?,
        };
        let compared = edges.astype(joint, Order::C)?;
        let keys = Keys::of(joint).ok_or_else(|| invalid(format!("elements of {joint} have no order")))?;
        let bins = Bins::Edges(keys_of(&compared, keys)?);
        let whole = Region { number: 0, start: vec![0; of.ndim()], extent: of.shape().to_vec() };
        let mut job = Job::new(&of.astype(joint)?, whole, options)?.looked_at().near();
        let limit_bytes = if job.is_in_memory() { u64::MAX } else { options.memory_limit_bytes };
        let axes: Vec<usize> = (0..of.ndim()).collect();
        let regions = job.regions(None, limit_bytes)?;
        let mut counting = Counting::new(keys, &bins, 1, &job.processor)?;
        for_each_region(
            &job,
            &regions,
            |region, inputs| counting.add(&job.work(region, &inputs)?, &axes, 0),
            |_, ()| Ok(()),
        )?;
        let mut counts = counting.finish()?;
        counts.truncate(bins.counters());
        let bytes: Vec<u8> = match self.density {
            false => counts.iter().flat_map(|count| count.to_ne_bytes()).collect(),
            true => density(&counts, &edges)?.iter().flat_map(|share| share.to_ne_bytes()).collect(),
        };
        let dtype = if self.density { DType::FLOAT64 } else { DType::INT64 };
        let result = NdBuffer::from_host(Device::Cpu, dtype, &[counts.len()], Order::C, &bytes)?;
        deliver(&result, options)
    }

    /// Returns the edges of the bins, in host memory.
    fn edges(&self, of: &Expr, options: &ComputeOptions<'_>) -> Result<NdBuffer> {
        let (bins, range) = match &self.edges {
            Edges::Given(edges) => return Ok(edges.clone()),
            Edges::Even { bins, range, .. } => (*bins, *range),
        };
        let dtype = self.edges_dtype(of.dtype());
        // Like NumPy, computes in the elements' own type if the elements set the range, else in binary64.
        let (working, (first, last)) = match range {
            Some(range) => (DType::FLOAT64, range),
            None if of.shape().contains(&0) => (DType::FLOAT64, (0.0, 1.0)),
            None => (dtype, of.extremes(options)?),
        };
        if !(first.is_finite() && last.is_finite()) {
            return Err(invalid(format!(
                "the elements range from {first} to {last}: a histogram needs a finite range"
            )));
        }
        let edges = even_edges(first, last, bins, working)?;
        let bytes: Vec<u8> = edges.iter().flat_map(|edge| edge.to_ne_bytes()).collect();
        let edges = NdBuffer::from_host(Device::Cpu, DType::FLOAT64, &[edges.len()], Order::C, &bytes)?;
        let edges = edges.astype(dtype, Order::C)?;
        let rounded = as_floats(&edges)?;
        if rounded.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(invalid(format!("{bins} bins from {first} to {last} are too many: some would be empty")));
        }
        Ok(edges)
    }
}

impl Expr {
    /// Makes the expressions for the number of elements in each bin, and for the edges of the bins; see [`Histogram`].
    ///
    /// ```
    /// use cuzarr_compute::{Expr, Histogram};
    /// use cuzarr_device::{DType, Device, NdBuffer, Order};
    /// let bytes: Vec<u8> = [0.0f64, 1.0, 3.0, 2.0, 4.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
    /// let x = Expr::buffer(NdBuffer::from_host(Device::Cpu, DType::FLOAT64, &[5], Order::C, &bytes)?)?;
    /// let (counts, edges) = x.histogram(Histogram::new(2, None))?;
    /// assert_eq!(counts.compute(&Default::default())?.host_slice::<i64>()?, [2, 3]);
    /// assert_eq!(edges.compute(&Default::default())?.host_slice::<f64>()?, [0.0, 2.0, 4.0]);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// `DTypeMismatch` when the elements have no order; `InvalidArgument` for edges that do not increase.
    pub fn histogram(&self, histogram: Histogram) -> Result<(Expr, Expr)> {
        let counts = self.summary(Asked { histogram: histogram.clone(), part: HistogramPart::Counts })?;
        Ok((counts, self.summary(Asked { histogram, part: HistogramPart::Edges })?))
    }
}

/// Computes `bins + 1` edges as NumPy's `linspace` does, with every step rounded to `dtype`.
fn even_edges(first: f64, last: f64, bins: u64, dtype: DType) -> Result<Vec<f64>> {
    // Binary64 has more than twice the digits of the shorter types. So rounding its result equals rounding the exact
    // one.
    let round = |value: f64| -> Result<f64> {
        let (mut short, mut wide) = (vec![0; dtype.size_bytes()], [0; 8]);
        cast::cast(DType::FLOAT64, dtype, &value.to_ne_bytes(), &mut short)?;
        cast::cast(dtype, DType::FLOAT64, &short, &mut wide)?;
        Ok(f64::from_ne_bytes(wide))
    };
    let (first, last) = if first == last { (round(first - 0.5)?, round(last + 0.5)?) } else { (first, last) };
    let (distance, count) = (round(last - first)?, round(bins as f64)?);
    let step = round(distance / count)?;
    let mut edges = Vec::with_capacity(bins as usize + 1);
    for number in 0..bins {
        let number = round(number as f64)?;
        let along = if step == 0.0 { round(round(number / count)? * distance)? } else { round(number * step)? };
        edges.push(round(along + first)?);
    }
    edges.push(last);
    Ok(edges)
}

fn as_floats(numbers: &NdBuffer) -> Result<Vec<f64>> {
    Ok(numbers.astype(DType::FLOAT64, Order::C)?.host_slice::<f64>()?.to_vec())
}

fn keys_of(edges: &NdBuffer, keys: Keys) -> Result<Vec<u64>> {
    let bytes = edges.to_host_bytes(Order::C)?;
    let each = bytes.chunks(edges.dtype().size_bytes()).map(|edge| keys.of_element(edge));
    each.collect::<Option<_>>().ok_or_else(|| invalid("an edge of a histogram is NaN"))
}

/// Computes NumPy's `density`: counts divided by the widths of the bins, then by the sum of all counts.
fn density(counts: &[u64], edges: &NdBuffer) -> Result<Vec<f64>> {
    let below = edges.region(&[0], &[counts.len()], &[1])?;
    let above = edges.region(&[1], &[counts.len()], &[1])?;
    // In the type of the edges, like NumPy's `diff`.
    let widths = Expr::apply(Op::Subtract, &[Expr::buffer(above)?.into(), Expr::buffer(below)?.into()])?;
    let widths = as_floats(&widths.evaluate(Device::Cpu)?)?;
    let all = counts.iter().sum::<u64>() as f64;
    Ok(counts.iter().zip(widths).map(|(&count, width)| (count as f64 / width / all).canonical()).collect())
}
