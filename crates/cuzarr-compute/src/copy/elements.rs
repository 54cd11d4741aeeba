//! Copying the elements of one array into another. The caller writes the target's documents.

use cuzarr_device::internal::pool::within;
use cuzarr_device::{DType, DTypeKind};

use super::pass::{Pass, element_bytes, refuse_other_shape};
use crate::progress::{Meter, Tell};
use crate::regions::{OBJECT_SHARE, REGION_SHARE, plannable_bytes};
use cuzarr::Order;
use cuzarr::internal::node::refuse_overlap;
use cuzarr::meta::DataType;
use cuzarr::node::Array;
use cuzarr::plan::Regions;
use cuzarr::{Error, ErrorKind, Result};

/// Copies all elements of an array into another one of the same shape. Numbers are converted to the target's type, like
/// NumPy's `astype`. Neither metadata nor a checkpoint is written. So the target may lie in any store that accepts its
/// chunks, even in a ZIP file.
///
/// Regions are copied one after the other. Each is read in one batch and written in one batch, and the next region is
/// read while one is written. Every object is written once. Regions take at most half of the source's memory limit;
/// reading and writing them takes the other half. If a region's share is too small for one object, objects are copied
/// one at a time, as long as the limit allows that.
///
/// ```
/// use std::sync::Arc;
/// use cuzarr::meta::ArrayMetadata;
/// use cuzarr::node::{Array, ArrayOptions};
/// use cuzarr::plan::Selection;
/// use cuzarr::store::MemoryStore;
/// use cuzarr_compute::copy_elements;
/// let array = |chunk: u64| {
///     let text = format!(r#"{{
///         "zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "uint8", "fill_value": 7, "codecs": ["bytes"],
///         "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [{chunk}]}}}},
///         "chunk_key_encoding": {{"name": "default"}}
///     }}"#);
///     let metadata = ArrayMetadata::from_json(text.as_bytes())?;
///     Array::create(Arc::new(MemoryStore::new()), "a", metadata, false, ArrayOptions::default())
/// };
/// let (source, target) = (array(1)?, array(3)?);
/// copy_elements(&source, &target, &|_| ())?;
/// assert_eq!(target.read_buffer(&Selection::all(&[4]))?.host_slice::<u8>()?, [7, 7, 7, 7]);
/// # Ok::<(), cuzarr::Error>(())
/// ```
///
/// # Errors
/// `ShapeMismatch`; `DTypeMismatch` for different types, unless both are numbers; `InvalidArgument` when source and
/// target overlap; errors of reading and writing, with the region in the trail. Chunks written before a failure stay.
pub fn copy_elements(source: &Array, target: &Array, progress: Tell<'_>) -> Result<()> {
    refuse_other_shape(source.shape(), target.shape())?;
    let cast = conversion(source.metadata().data_type(), target.metadata().data_type())?;
    refuse_overlap((source.store(), source.path()), (target.store(), target.path()))?;
    let unit = target.metadata().chunk_grid().chunk_shape();
    let bytes = copied_element_bytes(source, target)?;
    let object_bytes = unit.iter().fold(bytes, |bytes, &extent| bytes.saturating_mul(extent));
    let limit_bytes = source.options().memory_limit_bytes;
    let plannable = plannable_bytes(limit_bytes);
    let fits = object_bytes.saturating_mul(OBJECT_SHARE) <= plannable;
    let most_bytes = if fits { plannable / REGION_SHARE } else { object_bytes };
    let memory_limit_bytes = if fits { plannable / 2 } else { limit_bytes };
    let limited = |array: &Array| {
        array.with_options(array.options().clone().with_memory_limit_bytes(memory_limit_bytes).with_order(Order::C))
    };
    let chunk = source.chunk_shape()?;
    let regions = Regions::plan(source.shape(), bytes, unit, &[&chunk], most_bytes)?;
    let reads = regions.reads(&chunk);
    let pass = Pass { cast, ..Pass::new(&limited(source), &limited(target), regions, 0, reads) };
    let meter = Meter::new(progress);
    pass.announce(&meter);
    if fits {
        let _within = within(source.device(), limit_bytes);
        let regions = pass.regions.from(0).map(|region| region.map(|region| (region, ())));
        return pass.run(regions, |region, ()| {
            meter.note(1, pass.bytes(region));
            Ok(())
        });
    }
    pass.regions.from(0).try_for_each(|region| {
        let region = region?;
        pass.copy(&region)?;
        meter.note(1, pass.bytes(&region));
        Ok(())
    })
}

/// Returns the type to which a copy converts elements; `None` if source and target have the same type.
fn conversion(source: &DataType, target: &DataType) -> Result<Option<DType>> {
    let number = |data_type: &DataType| {
        let is_time = matches!(data_type, DataType::DateTime64 { .. } | DataType::TimeDelta64 { .. });
        data_type.device_dtype().filter(|dtype| !is_time && dtype.kind() != DTypeKind::Opaque)
    };
    match (number(source), number(target)) {
        _ if source == target => Ok(None),
        (Some(_), Some(dtype)) => Ok(Some(dtype)),
        _ => {
            let message = format!("the source has elements of {source}, which cannot be converted to {target}");
            Err(Error::new(ErrorKind::DTypeMismatch, message))
        }
    }
}

/// Returns the size in bytes of one copied element in memory, in the larger of the source's and the target's type. For
/// elements of variable length this is the average over the first object, but at least an assumed size.
fn copied_element_bytes(source: &Array, target: &Array) -> Result<u64> {
    let least = element_bytes(source).max(element_bytes(target));
    if source.metadata().data_type().size_bytes().is_some() {
        return Ok(least);
    }
    let unit = target.metadata().chunk_grid().chunk_shape().to_vec();
    let Some(first) = Regions::new(source.shape(), unit)?.from(0).next().transpose()? else { return Ok(least) };
    let elements = source.read_variable(&first.selection()?)?;
    Ok(least.max((elements.data.len() as u64).div_ceil(first.elems().max(1))))
}
