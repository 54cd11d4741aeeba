//! # `numcodecs.fletcher32`: stores a Fletcher-32 checksum with each chunk
//!
//! HDF5's Fletcher-32 over big-endian 16-bit words, after the data.
//!
//! - Specification: <https://numcodecs.readthedocs.io/en/stable/checksum32.html>
//! - Names: v3 `numcodecs.fletcher32`, `fletcher32`; v2 `fletcher32`
//! - Compatible: zarr-python, numcodecs, zarrs, netCDF-C
//! - Native: everywhere. On GPUs it is checked in device memory, if the bytes that it guards are decoded there.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "numcodecs.fletcher32"});
//! # let spec = ChunkSpec::new(vec![4], DataType::UInt8, FillValue::Element(vec![0]));
//! # Chain::from_extensions(&[Extension::new("bytes", Default::default()), Extension::from_json(&codec, "codecs")?], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```

mod cpu;

use cuzarr_device::internal::checksum::Checksum as Kind;

use super::checksum::Checksum;
use super::configuration::Configuration;
use super::open::{Opened, Request};
use super::step::Location;
use crate::Result;

/// Opens the codec `fletcher32` from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    Configuration::new(request.name, request.configuration, &[])?;
    let location = Location::End;
    Ok(Opened::bytes(Checksum {
        name: "numcodecs.fletcher32",
        kind: Kind::Fletcher32,
        location,
        compute: cpu::checksum,
    }))
}
