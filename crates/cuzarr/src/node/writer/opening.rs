//! Opens the arrays of a writer: checks them, and prepares what a killed program left.

use std::ops::Range;
use std::sync::Arc;

use cuzarr_device::downsample::{Downsampling, downsample};
use cuzarr_device::{Device, NdBuffer, Order};

use super::WriterOptions;
use super::stored::{Part, Sharding, Stored};
use super::storing::{node_place, shorten};
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::node::array::Array;
use crate::node::document::NodeLocks;
use crate::run::Engine;
use crate::store::join_key;

/// An array of a [`Writer`](super::Writer), the dimension along which rows are added, and the coarser levels that are made
/// of its rows.
#[derive(Clone, Debug)]
pub struct WriterArray {
    pub(super) array: Array,
    pub(super) axis: usize,
    pub(super) levels: Vec<(Array, Vec<u64>)>,
    method: Downsampling,
}

impl WriterArray {
    /// Rows are added to `array` along dimension `axis`.
    pub fn new(array: Array, axis: usize) -> WriterArray {
        WriterArray { array, axis, levels: Vec::new(), method: Downsampling::Mean }
    }

    /// Makes coarser levels of the array's rows, as an image of OME-Zarr has them. `levels` go from the finest to the
    /// coarsest, each with the number of elements of the level before that become one along each dimension.
    #[must_use]
    pub fn with_levels(self, levels: Vec<(Array, Vec<u64>)>, method: Downsampling) -> WriterArray {
        WriterArray { levels, method, ..self }
    }
}

impl From<(Array, usize)> for WriterArray {
    fn from((array, axis): (Array, usize)) -> WriterArray {
        WriterArray::new(array, axis)
    }
}

/// The arrays of a writer, opened and checked.
pub(super) struct Opened {
    /// First the arrays to which the program adds rows, then their coarser levels.
    pub(super) stored: Vec<Stored>,
    /// For each array to which the program adds rows, its coarser levels.
    pub(super) images: Vec<Image>,
}

/// The coarser levels of an array.
pub(super) struct Image {
    /// For each level its number among all arrays, and its factors.
    pub(super) levels: Vec<(usize, Vec<u64>)>,
    pub(super) method: Downsampling,
    /// Rows of which coarser rows are made again, each with the number of their level.
    pub(super) remade: Vec<(usize, Range<u64>)>,
}

impl Image {
    /// The numbers of the levels among all arrays.
    pub(super) fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        self.levels.iter().map(|(number, _)| *number)
    }
}

/// Opens the arrays of a writer. With `resume`, deletes what lies behind them.
pub(super) fn open(arrays: Vec<WriterArray>, options: &WriterOptions) -> Result<Opened> {
    // Nobody stores rows while some are deleted.
    let locks = match options.resume && options.region.is_none() {
        true => Some(lock_documents(&arrays)?),
        false => None,
    };
    let (mut stored, mut images) = (Vec::new(), Vec::new());
    for of in &arrays {
        let next = of.levels.first().and_then(|(_, factors)| factors.get(of.axis)).copied();
        let place = of.array.place();
        let mut own = opened(of.array.clone(), of.axis, options, next.unwrap_or(1)).at(|| place)?;
        own.image = stored.len();
        stored.push(own);
    }
    // How many rows each array has if nothing is wrong.
    let mut ends: Vec<u64> = stored.iter().map(|of| of.array.shape()[of.part.axis]).collect();
    for (number, of) in arrays.into_iter().enumerate() {
        if options.region.is_some() && !of.levels.is_empty() {
            let error = Error::new(ErrorKind::Unsupported, "a writer of a region makes no coarser levels");
            return Err(error.at(of.array.place()).with_hint("make them afterwards, with `pyramid`"));
        }
        let mut image = Image { levels: Vec::new(), method: of.method, remade: Vec::new() };
        let mut finer = number;
        for (at, (array, factors)) in of.levels.iter().enumerate() {
            let next = of.levels.get(at + 1).and_then(|(_, factors)| factors.get(of.axis)).copied();
            let level = Level { finer, factors, method: of.method, next: next.unwrap_or(1) };
            let (mut level, end) =
                level.open(array.clone(), &stored[finer], ends[finer], options.resume).at(|| array.place())?;
            let (factor, before) = (factors[of.axis], &stored[finer].part);
            let (first, stop) = (level.part.start[of.axis] * factor, before.start[of.axis]);
            // A cell that ends behind these rows is made when the rows come.
            let stop = if finer == number { stop } else { stop / factor * factor };
            let height = stored[finer].height;
            let cut = |block: u64| first.max(block * height)..stop.min((block + 1) * height);
            image.remade.extend((first / height..stop.div_ceil(height)).map(|block| (finer, cut(block))));
            finer = stored.len();
            image.levels.push((finer, factors.clone()));
            level.image = number;
            stored.push(level);
            ends.push(end);
        }
        image.remade.retain(|(_, rows)| !rows.is_empty());
        images.push(image);
    }
    if let Some(locks) = locks {
        let locks = shorten(&mut stored, &ends, locks)?;
        stored.iter().try_for_each(|of| delete_behind(&of.array))?;
        drop(locks);
    }
    Ok(Opened { stored, images })
}

/// Locks the documents of all arrays, in the order of their paths.
fn lock_documents(arrays: &[WriterArray]) -> Result<NodeLocks> {
    let levels = arrays.iter().flat_map(|of| of.levels.iter().map(|(array, _)| array));
    let mut all: Vec<&Array> = arrays.iter().map(|of| &of.array).chain(levels).collect();
    all.sort_by(|one, other| one.path().cmp(other.path()));
    let places = all.iter().map(|array| node_place(array)).collect();
    NodeLocks::take_as_writer(Arc::clone(all[0].store()), places, &all[0].options().cancellation)
}

/// Checks where a writer adds rows to an array. The next coarser level makes one row of `factor` rows.
fn opened(mut array: Array, axis: usize, options: &WriterOptions, factor: u64) -> Result<Stored> {
    let ndim = array.shape().len();
    if axis >= ndim {
        let message = format!("there is no dimension {axis} in shape {:?}", array.shape());
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    array.device_dtype()?;
    if array.metadata().chunk_grid().rectilinear().is_some() {
        let message = "chunks of several extents are not written row by row";
        return Err(Error::new(ErrorKind::Unsupported, message).with_hint("use append or region writes"));
    }
    array.refresh()?;
    let part = match &options.region {
        Some((start, extent)) => {
            check_region(array.shape(), array.metadata().chunk_grid().chunk_shape(), start, extent)?;
            Part { axis, start: start.clone(), extent: extent.clone() }
        }
        None => {
            let (mut start, mut extent) = (vec![0; ndim], array.shape().to_vec());
            start[axis] = std::mem::replace(&mut extent[axis], 0);
            Part { axis, start, extent }
        }
    };
    blocked(array, part, factor)
}

/// Chooses how many rows of an array become a block: those of a stored object, or of an inner chunk of a shard. They
/// become whole rows of the next coarser level, which makes one row of `factor` rows.
fn blocked(array: Array, part: Part, factor: u64) -> Result<Stored> {
    let multiple = |height: u64| {
        let height = height.max(1);
        let common =
            (1..=height.min(factor)).rev().find(|one| height.is_multiple_of(*one) && factor.is_multiple_of(*one));
        let multiple = height.checked_mul(factor / common.unwrap_or(1));
        multiple.ok_or_else(|| Error::new(ErrorKind::InvalidArgument, format!("{factor} elements become one")))
    };
    let sharding = Sharding::of(&array, part.axis)?;
    let inner = sharding.as_ref().map(|sharding| multiple(sharding.chunk[part.axis])).transpose()?;
    match (sharding, inner) {
        (Some(sharding), Some(height)) if sharding.height.is_multiple_of(height) => {
            Ok(Stored::new(array, part, height, Some(sharding)))
        }
        _ => {
            let height = multiple(array.metadata().chunk_grid().chunk_shape()[part.axis])?;
            Ok(Stored::new(array, part, height, None))
        }
    }
}

/// A coarser level that is to be opened.
struct Level<'a> {
    /// The number of the level of which it is made.
    finer: usize,
    factors: &'a [u64],
    method: Downsampling,
    /// Number of its rows that become one row of the next level.
    next: u64,
}

impl Level<'_> {
    /// Opens the array of a level that is made of `finer`, which should have `finer_rows` rows. Returns how many rows
    /// the level should have, too.
    fn open(&self, mut array: Array, finer: &Stored, finer_rows: u64, resume: bool) -> Result<(Stored, u64)> {
        let invalid = |message: String| Error::new(ErrorKind::InvalidArgument, message);
        let (axis, ndim) = (finer.part.axis, finer.array.shape().len());
        array.refresh()?;
        if self.factors.len() != ndim || array.shape().len() != ndim || self.factors.contains(&0) {
            let message = format!("a level of shape {:?} with factors {:?}", array.shape(), self.factors);
            return Err(invalid(format!("{message}, expected {ndim} of each, and no 0")));
        }
        let expected = |dimension: usize| match dimension {
            _ if dimension == axis => array.shape()[axis],
            _ => finer.array.shape()[dimension].div_ceil(self.factors[dimension]),
        };
        let expected: Vec<u64> = (0..ndim).map(expected).collect();
        if array.shape() != expected || array.metadata().data_type() != finer.array.metadata().data_type() {
            let [own, of] = [&array, &finer.array].map(|of| format!("{:?} {}", of.shape(), of.metadata().data_type()));
            let message = format!("a level of {own} cannot be made of {of} by factors {:?}", self.factors);
            let error = Error::new(ErrorKind::ShapeMismatch, message);
            return Err(error.with_hint(format!("its shape would be {expected:?}")));
        }
        if self.method == Downsampling::Gaussian && self.factors[axis] > 1 {
            let message =
                format!("gaussian levels along dimension {axis}, the writer's, need rows that did not come yet");
            return Err(Error::new(ErrorKind::Unsupported, message).with_hint("use mean"));
        }
        let factors: Vec<usize> = self.factors.iter().map(|&factor| factor as usize).collect();
        let nothing = NdBuffer::empty(Device::Cpu, array.device_dtype()?, &vec![0; ndim], Order::C)?;
        downsample(&nothing, &factors, self.method)?;
        if array.metadata().chunk_grid().rectilinear().is_some() {
            return Err(Error::new(ErrorKind::Unsupported, "chunks of several extents are not written row by row"));
        }
        let (rows, end) = (array.shape()[axis], finer_rows.div_ceil(self.factors[axis]));
        if rows > end && !resume {
            let message =
                format!("a level has {rows} rows along dimension {axis}, and {end} belong to {finer_rows} rows");
            return Err(invalid(message).with_hint("open the writer with `resume`, and coarser rows are made again"));
        }
        // The last row may be made of rows that changed since, because a writer was killed.
        let first = rows.min(end).saturating_sub(1).min(finer.part.start[axis] / self.factors[axis]);
        let (mut start, mut extent) = (vec![0; ndim], array.shape().to_vec());
        (start[axis], extent[axis]) = (first, 0);
        let mut level = blocked(array, Part { axis, start, extent }, self.next)?;
        level.finer = Some((self.finer, self.factors[axis]));
        Ok((level, end))
    }
}

/// Refuses a region that lies outside of the array, or that has a part of a stored object.
fn check_region(shape: &[u64], chunks: &[u64], start: &[u64], extent: &[u64]) -> Result<()> {
    let invalid = |message: String| Error::new(ErrorKind::InvalidArgument, message);
    if start.len() != shape.len() || extent.len() != shape.len() {
        return Err(invalid(format!("a region of {} dimensions in shape {shape:?}", start.len())));
    }
    for (dimension, (((&start, &extent), &size), &chunk)) in start.iter().zip(extent).zip(shape).zip(chunks).enumerate()
    {
        let end = start.checked_add(extent).filter(|end| *end <= size);
        let Some(end) = end else {
            let message = format!(
                "region {start}..{} along dimension {dimension} leaves its {size} elements",
                start.saturating_add(extent)
            );
            return Err(Error::new(ErrorKind::OutOfRange, message));
        };
        let chunk = chunk.max(1);
        if start.is_multiple_of(chunk) && (end.is_multiple_of(chunk) || end == size) {
            continue;
        }
        let (down, up) = (start / chunk * chunk, (end.div_ceil(chunk) * chunk).min(size));
        let message = format!(
            "region {start}..{end} along dimension {dimension} shares stored objects of {chunk} with its neighbours"
        );
        return Err(
            invalid(message).with_hint(format!("regions begin and end at multiples of {chunk}, such as {down}..{up}"))
        );
    }
    Ok(())
}

/// Deletes chunks that lie behind the array's shape, which a killed writer left.
fn delete_behind(array: &Array) -> Result<()> {
    let ndim = array.metadata().ndim();
    let is_chunk = |key: &String| array.metadata().chunk_key_encoding().parse_key(key, ndim).is_some();
    let keys = array.foreign_keys()?.into_iter().filter(is_chunk);
    let keys: Vec<String> = keys.map(|key| join_key(array.path(), &key)).collect();
    array.store().delete_many(&keys)?;
    Engine::get().forget(&**array.store(), keys.iter().map(String::as_str));
    Ok(())
}
