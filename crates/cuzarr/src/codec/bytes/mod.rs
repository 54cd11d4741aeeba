//! # `bytes`: turns elements into bytes
//!
//! Stores elements one after the other in C order, as little-endian or big-endian bytes.
//!
//! - Specification: <https://zarr-specs.readthedocs.io/en/latest/v3/codecs/bytes/index.html>
//! - Names: v3 `bytes`, `endian`; implicit in v2, where the data type says the byte order
//! - Compatible: zarr-python, zarrs, tensorstore
//! - Native: everywhere, as a step of the tail; structures with several field sizes in big endian are swapped on the host.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "bytes", "configuration": {"endian": "big"}});
//! # let spec = ChunkSpec::new(vec![4], DataType::Int32, FillValue::Element(vec![0; 4]));
//! # Chain::from_extensions(&[Extension::from_json(&codec, "codecs")?], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```

pub(crate) mod cpu;

use super::ChunkSpec;
use super::configuration::Configuration;
use super::open::{Opened, Request};
use crate::Result;
use crate::meta::{DataType, Endian, SwapUnit};

/// Opens the codec `bytes` from its configuration in the metadata. As in zarr-python, `endian` is required if it
/// matters, except for structures: older writers left it out.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let configuration = Configuration::new(request.name, request.configuration, &["endian"])?;
    let spec = request.spec;
    let endian = configuration.choice("endian", &[("little", Endian::Little), ("big", Endian::Big)])?;
    if spec.data_type.size_bytes().is_none() {
        return Err(configuration.invalid(format!("elements of {:?} differ in length", spec.data_type)));
    }
    let units = spec.data_type.swap_units();
    let structure = matches!(*spec.data_type, DataType::Struct { .. });
    if endian.is_none() && !units.is_empty() && !structure {
        return Err(configuration.invalid("'endian' is missing, and elements have more than one byte"));
    }
    open_swapping(spec, if endian == Some(Endian::Big) { units } else { Vec::new() })
}

/// Opens the codec that every v2 array has without naming it: it stores elements in the byte order `endian`.
pub(crate) fn open_v2(spec: &ChunkSpec, endian: Endian) -> Result<Opened> {
    open_swapping(spec, spec.data_type.stored_swap_units(endian))
}

fn open_swapping(spec: &ChunkSpec, units: Vec<SwapUnit>) -> Result<Opened> {
    Ok(Opened::serializer(swapper_of(spec, units)?))
}

/// Makes the codec that converts elements between native byte order and the byte order of a v2 array.
pub(crate) fn swapper(spec: &ChunkSpec, endian: Endian) -> Result<cpu::Bytes> {
    swapper_of(spec, spec.data_type.stored_swap_units(endian))
}

fn swapper_of(spec: &ChunkSpec, units: Vec<SwapUnit>) -> Result<cpu::Bytes> {
    let element_bytes = spec.data_type.size_bytes().unwrap_or(1);
    let uniform = match &units[..] {
        [] => Some(1),
        // One run of equal units that fills the element.
        [SwapUnit { offset: 0, unit_bytes, count }] if unit_bytes * count == element_bytes => Some(*unit_bytes),
        _ => None,
    };
    Ok(cpu::Bytes { size_bytes: spec.size_bytes()?, element_bytes, units, uniform })
}
