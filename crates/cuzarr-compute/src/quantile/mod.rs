//! Exact quantiles, such as the median, of arrays of any size. Elements are counted by the highest bits of their keys
//! (`count/`). The bin of each wanted element becomes the next interval, until a single key is left. Each pass reads
//! everything once. Elements of 1 and 2 bytes take one pass, of 4 bytes two, and of 8 bytes four, if the memory limit
//! leaves room for the tables.
//!
//! If all elements of a result fit the limit, they are read only once. A GPU (`cuda.rs`) then sorts the rows in shared
//! memory if few elements make up a result. If many do and there are many results, a block searches each row. Results
//! do not depend on the order of the work.

mod cuda;
mod method;
mod select;

use cuzarr_device::{DType, DTypeKind, Device, NdBuffer, Order};

pub use self::method::QuantileMethod;
use self::select::{Chosen, Room};
use crate::count::{Counting, Keys};
use crate::expression::{Expr, Summary, axes_argument};
use crate::options::ComputeOptions;
use crate::reduce::view::View;
use crate::reduce::{kept_shape, sorted_axes};
use crate::regions::{limit_for_part, memory_shape, regions};
use crate::stream::{Job, REGIONS_SHARE, deliver, for_each_region};
use cuzarr::plan::Region;
use cuzarr::{Error, ErrorKind, Result};

/// A description of quantiles: their probabilities, the method, and the dimensions over which they are computed. The
/// result's first dimension has one entry for each probability.
#[derive(Clone, Debug)]
pub struct Quantile {
    /// The probabilities of the wanted quantiles, from 0 to 1.
    pub probabilities: Vec<f64>,
    /// How a quantile is computed that lies between two elements.
    pub method: QuantileMethod,
    /// The dimensions that the quantiles are computed over; `None` means all.
    pub axes: Option<Vec<usize>>,
    /// Whether reduced dimensions are kept, with an extent of 1.
    pub keepdims: bool,
    /// Whether NaN elements are left out. Otherwise a result with a NaN element is NaN.
    pub skip_nan: bool,
    /// Whether `probabilities` is a single number, so that the result has no dimension for it.
    pub scalar: bool,
    /// The element type of the result, for methods that interpolate. The default is the elements' type for floats, else
    /// binary64.
    pub dtype: Option<DType>,
}

impl Quantile {
    /// Describes quantiles of all elements.
    pub fn new(probabilities: Vec<f64>, method: QuantileMethod) -> Quantile {
        Quantile { probabilities, method, axes: None, keepdims: false, skip_nan: false, scalar: false, dtype: None }
    }
}

impl Summary for Quantile {
    fn result(&self, dtype: DType, shape: &[u64]) -> Result<(DType, Vec<u64>)> {
        let is_bool = dtype.kind() == DTypeKind::Bool;
        let between = !self.method.is_discrete() && self.method != QuantileMethod::Median;
        if Keys::of(dtype).is_none() || (is_bool && between) {
            let message = format!("quantiles are not defined for elements of {dtype}");
            let hint = if is_bool { "convert them to uint8 first" } else { "take those of real and imag" };
            return Err(Error::new(ErrorKind::DTypeMismatch, message).with_hint(hint));
        }
        if let Some(wrong) = self.probabilities.iter().find(|q| !(0.0..=1.0).contains(*q)) {
            let message = format!("the quantile {wrong} is not between 0 and 1");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        if self.scalar && self.probabilities.len() != 1 {
            return Err(Error::new(ErrorKind::InvalidArgument, "one result has one probability"));
        }
        let axes = sorted_axes(self.axes.as_deref(), shape.len())?;
        let own = kept_shape(shape, &axes, self.keepdims);
        let leading = (!self.scalar).then_some(self.probabilities.len() as u64);
        let is_float = matches!(dtype.kind(), DTypeKind::Float | DTypeKind::BFloat);
        let result = match () {
            () if self.method.is_discrete() => dtype,
            () => self.dtype.unwrap_or(if is_float { dtype } else { DType::FLOAT64 }),
        };
        Ok((result, leading.into_iter().chain(own).collect()))
    }

    /// Computes the quantiles of an expression's elements. The memory limit bounds the tables too. Without elements,
    /// the error is `InvalidArgument`.
    fn compute(&self, of: &Expr, options: &ComputeOptions<'_>) -> Result<NdBuffer> {
        let (dtype, shape) = self.result(of.dtype(), of.shape())?;
        let axes = sorted_axes(self.axes.as_deref(), of.ndim())?;
        let kept = |extent: &[u64]| memory_shape(&kept_shape(extent, &axes, false));
        let own: Vec<usize> = [&[self.probabilities.len()], &kept(of.shape())?[..]].concat();
        let reduced: u64 = axes.iter().map(|&axis| of.shape()[axis]).product();
        let result = NdBuffer::empty(Device::Cpu, dtype, &own, Order::C)?;
        if !result.is_empty() {
            if reduced == 0 {
                let message = "quantiles of no elements have no meaning";
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            let put = |tile: &Region, chosen: &Chosen| -> Result<()> {
                let extent = [&[self.probabilities.len()], &kept(&tile.extent)?[..]].concat();
                let start = [&[0], &kept(&tile.start)?[..]].concat();
                let part = NdBuffer::from_host(Device::Cpu, dtype, &extent, Order::C, &chosen.elements(dtype)?)?;
                Ok(result.region(&start, &extent, &vec![1; extent.len()])?.copy_from(&part)?)
            };
            let whole = Region { number: 0, start: vec![0; of.ndim()], extent: of.shape().to_vec() };
            let mut job = Job::new(of, whole, options)?.looked_at();
            let room = Room::new(self, &mut job, of.dtype(), reduced, options)?;
            if let Some(answers) = self.of_memory(&job, &axes, &room)? {
                return Ok(answers.astype(dtype, Order::C)?.reshape(&memory_shape(&shape)?)?);
            }
            let unit = job.unit()?;
            let over = |extent: &[u64], others: &[u64]| -> Vec<u64> {
                (0..extent.len()).map(|axis| if axes.contains(&axis) { others[axis] } else { extent[axis] }).collect()
            };
            let columns = over(&unit, of.shape());
            match job.regions(Some(columns.clone()), room.regions_bytes) {
                Ok(tiles) => for_each_region(
                    &job,
                    &tiles,
                    |tile, inputs| self.of_elements(&job.work(tile, &inputs)?, &axes, &job, &room),
                    |tile, chosen| put(tile, &chosen),
                )?,
                Err(error) if error.kind() != ErrorKind::BudgetExceeded => return Err(error),
                Err(_) => {
                    let outputs = |extent: &[u64]| kept_shape(extent, &axes, false).iter().product::<u64>();
                    let bits = room.digit_bits(outputs(&columns), reduced.ilog2() + 2)?;
                    // A tile is limited by the size of its tables, and by the part of it that is read at a time.
                    let share = room.regions_bytes / REGIONS_SHARE;
                    let cost = |extent: &[u64]| {
                        let tables = room.tables(outputs(extent), bits) as f64 / room.tables_bytes as f64;
                        job.bytes(&over(extent, &unit)).max((tables * share as f64) as u64)
                    };
                    let needed = |least: u64| {
                        let least = least.saturating_mul(REGIONS_SHARE);
                        limit_for_part(least, room.regions_bytes, options.memory_limit_bytes)
                    };
                    for tile in regions(of.shape(), &columns, &cost, share, share, &needed)? {
                        job.part = tile;
                        let chosen = self.of_regions(&axes, &unit, &mut job, &room, bits)?;
                        put(&job.part, &chosen)?;
                    }
                }
            }
        }
        let result = result.reshape(&memory_shape(&shape)?)?;
        deliver(&result, options)
    }

    fn name(&self) -> &'static str {
        "quantile"
    }

    fn arguments(&self) -> String {
        format!(", {:?}{}", self.probabilities, axes_argument(self.axes.as_deref()))
    }
}

impl Quantile {
    /// Computes the quantiles of rows in GPU memory by sorting or searching them there; `None` if neither suits. The
    /// result stays there.
    fn of_memory(&self, job: &Job<'_>, axes: &[usize], room: &Room<'_>) -> Result<Option<NdBuffer>> {
        let Some(stream) = job.processor.stream().filter(|_| job.is_in_memory()) else { return Ok(None) };
        let outputs: usize = memory_shape(&kept_shape(&job.part.extent, axes, false))?.iter().product();
        let answers_bytes = (outputs * self.probabilities.len() * size_of::<f64>()) as u64;
        if !cuda::Way::may_be(stream.device(), outputs, room.reduced, self) || answers_bytes > room.tables_bytes {
            return Ok(None);
        }
        let elements = job.work(&job.part, &job.read(&job.part)?)?;
        let (view, nan) = (View::new(&elements, axes)?, Chosen::new(self, room).nan()?);
        let way = cuda::Way::of(stream.device(), &view, self);
        way.map(|way| cuda::of_rows(&elements, &view, room, nan, way, stream)).transpose()
    }

    /// Computes the quantiles of elements in memory, by counting them in as many passes as needed.
    fn of_elements(&self, elements: &NdBuffer, axes: &[usize], job: &Job<'_>, room: &Room<'_>) -> Result<Chosen> {
        let extents = elements.shape().iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
        let outputs: usize = extents.map(|(_, extent)| extent).product();
        let answers_bytes = (outputs * self.probabilities.len() * size_of::<f64>()) as u64;
        if let Some(stream) = job.processor.stream().filter(|_| answers_bytes <= room.tables_bytes) {
            let view = View::new(elements, axes)?;
            if let Some(way) = cuda::Way::of(stream.device(), &view, self) {
                let mut chosen = Chosen::new(self, room);
                let answers = cuda::of_rows(elements, &view, room, chosen.nan()?, way, stream)?;
                chosen.take(&answers.to_host_bytes(Order::C)?);
                return Ok(chosen);
            }
        }
        // The host searches the tables. For a GPU, the tables should be much smaller than the data, since the GPU waits
        // for the search.
        let spared = if job.processor.stream().is_some() { 6 } else { 0 };
        let bits = room.digit_bits(1, room.reduced.ilog2().saturating_sub(spared)).unwrap_or(1);
        let at_once = room.outputs(bits);
        let mut chosen = Chosen::new(self, room);
        for first in (0..outputs).step_by(at_once) {
            let count = at_once.min(outputs - first);
            room.select(count, bits, &mut chosen, &mut |bins| {
                let mut counting = Counting::new(room.keys, bins, count, &job.processor)?;
                counting.add(elements, axes, first)?;
                counting.finish()
            })?;
        }
        Ok(chosen)
    }

    /// Computes the quantiles by counting elements region by region; they are read again for every pass.
    fn of_regions(
        &self,
        axes: &[usize],
        unit: &[u64],
        job: &mut Job<'_>,
        room: &Room<'_>,
        bits: u32,
    ) -> Result<Chosen> {
        let extent = job.part.extent.clone();
        let outputs: usize = memory_shape(&kept_shape(&extent, axes, false))?.iter().product();
        let slab = (0..extent.len()).map(|axis| if axes.contains(&axis) { unit[axis] } else { extent[axis] }).collect();
        let regions = job.regions_of_passes(slab, room.regions_bytes, u64::from(room.passes(bits)))?;
        let job = &*job;
        let mut chosen = Chosen::new(self, room);
        room.select(outputs, bits, &mut chosen, &mut |bins| {
            let mut counting = Counting::new(room.keys, bins, outputs, &job.processor)?;
            for_each_region(
                job,
                &regions,
                |region, inputs| counting.add(&job.work(region, &inputs)?, axes, 0),
                |_, ()| Ok(()),
            )?;
            counting.finish()
        })?;
        Ok(chosen)
    }
}

impl Expr {
    /// Makes the expression for quantiles of the elements; see [`Quantile`].
    ///
    /// ```
    /// use cuzarr_compute::{Expr, Quantile, QuantileMethod};
    /// use cuzarr_device::{DType, Device, NdBuffer, Order};
    /// let bytes: Vec<u8> = [5.0f64, 1.0, 3.0, 2.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
    /// let x = Expr::buffer(NdBuffer::from_host(Device::Cpu, DType::FLOAT64, &[4], Order::C, &bytes)?)?;
    /// let quartiles = x.quantile(Quantile::new(vec![0.25, 0.5], QuantileMethod::Linear))?;
    /// assert_eq!(quartiles.compute(&Default::default())?.host_slice::<f64>()?, [1.75, 2.5]);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// `DTypeMismatch` when quantiles are not defined for the element type; `InvalidArgument` for dimensions that do
    /// not exist, and for probabilities outside of 0 to 1.
    pub fn quantile(&self, quantile: Quantile) -> Result<Expr> {
        self.summary(quantile)
    }
}
