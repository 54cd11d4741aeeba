//! The passes of a copy: each pass goes once through all elements of an array, region by region.

use std::collections::HashSet;

use cuzarr_device::downsample::{Boxes, Downsampling, downsample_part};
use cuzarr_device::internal::pool::{in_flight, within};
use cuzarr_device::{DType, Device, NdBuffer, Order};

use crate::progress::Meter;
use cuzarr::codec::VariableElements;
use cuzarr::internal::run::relay;
use cuzarr::node::Array;
use cuzarr::plan::{AxisSelection, Region, Regions, Selection};
use cuzarr::{Error, ErrorKind, Result, ResultExt};

/// Bytes that an element of variable length is assumed to take, since its real size is not known in advance.
const VARIABLE_BYTES: u64 = 64;

/// One pass of a copy: it copies all elements of an array once, region by region.
#[derive(Clone, Debug)]
pub struct Pass {
    pub(super) source: Array,
    pub(super) target: Array,
    /// The regions of the target that the pass copies, in order.
    pub regions: Regions,
    /// Number of regions that are already finished; the pass continues after them.
    pub finished: u64,
    /// How many times each byte of the source is read, on average.
    pub reads: f64,
    pub(super) shrink: Option<Shrink>,
    /// The selection of source elements that the pass copies; `None` means all.
    pub(super) select: Option<Selection>,
    /// The type to which the pass converts elements; `None` if source and target have the same type.
    pub(super) cast: Option<DType>,
}

/// How a box of source elements is combined into one element of the target.
#[derive(Clone, Debug)]
pub struct Shrink {
    /// Number of source elements along each dimension that become one target element.
    pub factors: Vec<u64>,
    /// How the source elements are combined, for example by their mean.
    pub method: Downsampling,
}

impl Shrink {
    /// Returns the shape that an array of shape `source` has after it is shrunk.
    pub(super) fn shape(&self, source: &[u64]) -> Vec<u64> {
        source.iter().zip(&self.factors).map(|(extent, factor)| extent.div_ceil(*factor)).collect()
    }

    /// Returns the region of the source whose elements are needed to compute a region of the target.
    fn needs(&self, region: &Region, source: &[u64]) -> Region {
        let along = |axis: usize| {
            let (factor, reach) = (self.factors[axis], self.method.reach(self.factors[axis]));
            let start = (region.start[axis] * factor).saturating_sub(reach);
            let end = (region.start[axis] + region.extent[axis]).saturating_mul(factor).saturating_add(reach);
            (start, end.min(source[axis]) - start)
        };
        let (start, extent) = (0..source.len()).map(along).unzip();
        Region { number: region.number, start, extent }
    }

    /// Computes the elements of a target region from the source elements `needed` for it.
    fn make(&self, region: &Region, needed: &NdBuffer) -> Result<NdBuffer> {
        // Both fit `usize`: factors are limited by the elements of a box, extents by the elements in memory.
        let factors: Vec<usize> = self.factors.iter().map(|&factor| factor as usize).collect();
        let before = |(start, &factor): (&u64, &u64)| (start * factor).min(self.method.reach(factor)) as usize;
        let before: Vec<usize> = region.start.iter().zip(&self.factors).map(before).collect();
        let shape = region.extent.iter().map(|&extent| extent as usize).collect();
        Ok(downsample_part(needed, Boxes { before: &before, shape }, &factors, self.method)?)
    }

    /// Bytes of source elements that are read for each target element, if each region has at least the shape `unit`.
    pub(super) fn bytes(&self, element_bytes: u64, unit: &[u64]) -> u64 {
        let along = |(&factor, unit): (&u64, &u64)| {
            factor.saturating_add((2 * self.method.reach(factor)).div_ceil((*unit).max(1)))
        };
        self.factors.iter().zip(unit).map(along).fold(element_bytes, u64::saturating_mul)
    }
}

/// The elements of one region after they were read: of fixed size, or of variable length.
enum Elements {
    Fixed(NdBuffer),
    Variable(VariableElements),
}

impl Pass {
    /// Makes a pass that copies elements unchanged.
    pub(super) fn new(source: &Array, target: &Array, regions: Regions, finished: u64, reads: f64) -> Pass {
        let (source, target) = (source.clone(), target.clone());
        Pass { source, target, regions, finished, reads, shrink: None, select: None, cast: None }
    }

    /// Returns the array from which the pass copies.
    pub fn source(&self) -> &Array {
        &self.source
    }

    /// Returns the array to which the pass copies.
    pub fn target(&self) -> &Array {
        &self.target
    }

    /// Returns how several source elements become one; `None` if each element is copied.
    pub fn shrink(&self) -> Option<&Shrink> {
        self.shrink.as_ref()
    }

    /// Returns the selection of source elements to copy; `None` means all.
    pub fn selection(&self) -> Option<&Selection> {
        self.select.as_ref()
    }

    /// Returns this pass with elements in the memory of `device`.
    pub(super) fn on(&self, device: Device) -> Pass {
        let moved = |array: &Array| array.with_options(array.options().clone().with_device(device));
        Pass { source: moved(&self.source), target: moved(&self.target), ..self.clone() }
    }

    /// Size in bytes of all elements of the target.
    pub(super) fn size_bytes(&self) -> u64 {
        self.target.metadata().elems().unwrap_or(u64::MAX).saturating_mul(element_bytes(&self.target))
    }

    /// Adds the regions and bytes that this pass still has to copy to the totals of the progress meter.
    pub(super) fn announce(&self, meter: &Meter<'_>) {
        let regions = self.regions.len();
        let share = 1.0 - self.finished as f64 / regions.max(1) as f64;
        let elems = self.target.metadata().elems().unwrap_or(u64::MAX) as f64 * share;
        meter.expect(regions, self.finished, (elems as u64).saturating_mul(element_bytes(&self.target)));
    }

    /// Size in bytes of the elements of a target region, in memory.
    pub(super) fn bytes(&self, region: &Region) -> u64 {
        region.elems().saturating_mul(element_bytes(&self.target))
    }

    /// Copies the given regions of this pass, one after the other. The next region is read while one is written. `done`
    /// is called for each region.
    ///
    /// # Errors
    /// The first failure, with the region in the trail.
    pub(super) fn run<T: Send>(
        &self,
        regions: impl Iterator<Item = Result<(Region, T)>>,
        mut done: impl FnMut(&Region, T) -> Result<()>,
    ) -> Result<()> {
        let read = |(region, _): &(Region, T)| of_region(region, in_flight(|| self.read(region)));
        relay(&self.source.options().cancellation, regions, 1, read, |(region, note), elements| {
            of_region(&region, self.write(&region, elements))?;
            done(&region, note)
        })
    }

    /// Copies the elements of one region from the pass's source to its target.
    ///
    /// # Errors
    /// Those of [`Pass::run`].
    pub(super) fn copy(&self, region: &Region) -> Result<()> {
        of_region(region, self.read(region).and_then(|elements| self.write(region, elements)))
    }

    /// Reads the source elements that a region of the target needs.
    fn read(&self, region: &Region) -> Result<Elements> {
        let selection = match (&self.shrink, self.select.as_ref().and_then(Selection::axes)) {
            (Some(shrink), _) => shrink.needs(region, self.source.shape()).selection()?,
            (None, Some(axes)) => selected(axes, region)?,
            (None, None) => region.selection()?,
        };
        match self.source.metadata().data_type().size_bytes() {
            Some(_) => self.source.read_buffer(&selection).map(Elements::Fixed),
            None => self.source.read_variable(&selection).map(Elements::Variable),
        }
    }

    /// Converts or combines source elements into the elements of a target region.
    fn made(&self, region: &Region, mut elements: NdBuffer) -> Result<NdBuffer> {
        if let Some(shrink) = &self.shrink {
            elements = shrink.make(region, &elements)?;
        }
        match self.cast {
            Some(dtype) => Ok(elements.astype(dtype, Order::C)?),
            None => Ok(elements),
        }
    }

    /// Writes elements to a region of the target.
    fn write(&self, region: &Region, elements: Elements) -> Result<()> {
        let selection = region.selection()?;
        match elements {
            Elements::Fixed(elements) => {
                let made = in_flight(|| self.made(region, elements))?;
                self.target.write_buffer(&selection, &made)
            }
            Elements::Variable(elements) => self.target.write_variable(&selection, &elements),
        }
    }

    /// Returns the boxes that remain to be copied, each with the number of finished regions after it. In the first
    /// region of an interrupted pass, existing objects are left out.
    pub(super) fn unfinished(
        &self,
        interrupted: bool,
    ) -> Result<impl Iterator<Item = Result<(Region, Option<u64>)>> + '_> {
        let mut first = self.finished;
        let mut parts = Vec::new();
        if interrupted && first < self.regions.len() {
            let stored: HashSet<String> = self.target.stored_chunks()?.into_iter().collect();
            if !stored.is_empty() {
                let region = self.regions.get(first)?;
                parts = self.missing(&region, &stored)?;
                first += 1;
            }
        }
        let last = parts.len().saturating_sub(1);
        let parts = parts.into_iter().enumerate().map(move |(at, part)| Ok((part, (at == last).then_some(first))));
        let whole = self.regions.from(first).map(|region| region.map(|region| (region.number + 1, region)));
        Ok(parts.chain(whole.map(|next| next.map(|(finished, region)| (region, Some(finished))))))
    }

    /// Returns the boxes of a region whose objects are not stored, or the whole region if none is stored. In a
    /// rectilinear grid, an object may lie in several regions, so a stored object may be incomplete. There the whole
    /// region is copied again.
    fn missing(&self, region: &Region, stored: &HashSet<String>) -> Result<Vec<Region>> {
        let metadata = self.target.metadata();
        if metadata.chunk_grid().rectilinear().is_some() {
            return Ok(vec![region.clone()]);
        }
        let unit = metadata.chunk_grid().chunk_shape();
        let first: Vec<u64> = region.start.iter().zip(unit).map(|(start, unit)| start / unit).collect();
        let objects = Regions::new(&region.extent, unit.to_vec())?;
        let (mut missing, mut found) = (Vec::new(), false);
        for object in objects.from(0) {
            let mut object = object?;
            let at: Vec<u64> =
                object.start.iter().zip(unit).zip(&first).map(|((start, unit), first)| first + start / unit).collect();
            if stored.contains(&metadata.chunk_key_encoding().key(&at)) {
                found = true;
                continue;
            }
            object.start = object.start.iter().zip(&region.start).map(|(inside, start)| inside + start).collect();
            missing.push(object);
        }
        Ok(if found { missing } else { vec![region.clone()] })
    }
}

/// Copies one region of a [`Pass`] from `source` to `target`. Processes that work for a [`Carrier`] call it. The arrays
/// must have the options of the pass's arrays; `shrink` and `select` are those of the pass.
///
/// # Errors
/// Errors of reading and writing, with the region in the trail.
///
/// [`Carrier`]: super::Carrier
pub fn copy_region(
    source: &Array,
    target: &Array,
    region: &Region,
    shrink: Option<Shrink>,
    select: Option<Selection>,
    memory_limit_bytes: u64,
) -> Result<()> {
    let _within = within(source.device(), memory_limit_bytes);
    let regions = Regions::new(target.shape(), target.metadata().chunk_grid().chunk_shape().to_vec())?;
    Pass { shrink, select, ..Pass::new(source, target, regions, 0, 1.0) }.copy(region)
}

/// Names the region in an error of its copy, and says what helps.
fn of_region<T>(region: &Region, outcome: Result<T>) -> Result<T> {
    outcome.at(|| region.to_string()).map_err(|error| match error.kind() {
        ErrorKind::ChunkCorrupt if error.hint().is_none() => {
            error.with_hint("the command cuzarr validate lists all damaged chunks of the source")
        }
        _ => error,
    })
}

/// Returns the selection of source elements that a region of the copy is made from, if the copy selects `axes`.
fn selected(axes: &[AxisSelection], region: &Region) -> Result<Selection> {
    let along = |(axis, (start, extent)): (&AxisSelection, (&u64, &u64))| AxisSelection {
        start: axis.start + start * axis.step,
        count: *extent,
        ..*axis
    };
    Selection::new(axes.iter().zip(region.start.iter().zip(&region.extent)).map(along).collect())
}

/// Refuses a target whose shape is not that of the source.
///
/// # Errors
/// `ShapeMismatch`
pub(super) fn refuse_other_shape(source: &[u64], target: &[u64]) -> Result<()> {
    if source == target {
        return Ok(());
    }
    let message = format!("the source has shape {source:?}, the target has shape {target:?}");
    Err(Error::new(ErrorKind::ShapeMismatch, message))
}

/// Returns the size of one element in memory, in bytes.
pub(super) fn element_bytes(array: &Array) -> u64 {
    array.metadata().data_type().size_bytes().map_or(VARIABLE_BYTES, |size_bytes| size_bytes as u64)
}
