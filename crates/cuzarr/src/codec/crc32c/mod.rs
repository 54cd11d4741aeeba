//! # `crc32c`: stores a CRC-32C checksum with each chunk
//!
//! CRC-32C (Castagnoli, RFC 3720) after the data, or before it if numcodecs' `location` says `start`.
//!
//! - Specification: <https://zarr-specs.readthedocs.io/en/latest/v3/codecs/crc32c/index.html>
//! - Names: v3 `crc32c`, `numcodecs.crc32c`; v2 `crc32c`
//! - Compatible: zarr-python, numcodecs, zarrs, tensorstore
//! - Native: everywhere. On GPUs it is checked in device memory, if the bytes that it guards are decoded there.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "crc32c"});
//! # let spec = ChunkSpec::new(vec![4], DataType::UInt8, FillValue::Element(vec![0]));
//! # Chain::from_extensions(&[Extension::new("bytes", Default::default()), Extension::from_json(&codec, "codecs")?], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```

pub(crate) mod cpu;

use cuzarr_device::internal::checksum::Checksum as Kind;

use super::checksum::{Checksum, location};
use super::configuration::Configuration;
use super::open::{Opened, Request};
use super::step::Location;
use crate::Result;

/// Opens the codec `crc32c` from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let configuration = Configuration::new(request.name, request.configuration, &["location"])?;
    let location = location(&configuration, Location::End)?;
    Ok(Opened::bytes(Checksum { name: "crc32c", kind: Kind::Crc32c, location, compute: cpu::checksum }))
}
