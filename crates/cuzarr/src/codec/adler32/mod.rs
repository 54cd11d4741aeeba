//! # `numcodecs.adler32`: stores an Adler-32 checksum with each chunk
//!
//! Adler-32 (RFC 1950), before the data unless `location` says `end`.
//!
//! - Specification: <https://numcodecs.readthedocs.io/en/stable/checksum32.html>
//! - Names: v3 `numcodecs.adler32`, `adler32`; v2 `adler32`
//! - Compatible: zarr-python, numcodecs, zarrs
//! - Native: everywhere. On GPUs it is checked in device memory, if the bytes that it guards are decoded there.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "numcodecs.adler32", "configuration": {"location": "start"}});
//! # let spec = ChunkSpec::new(vec![4], DataType::UInt8, FillValue::Element(vec![0]));
//! # Chain::from_extensions(&[Extension::new("bytes", Default::default()), Extension::from_json(&codec, "codecs")?], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```

mod cpu;

use cuzarr_device::internal::checksum::Checksum as Kind;

use super::checksum::{Checksum, location};
use super::configuration::Configuration;
use super::open::{Opened, Request};
use super::step::Location;
use crate::Result;

/// Opens the codec `adler32` from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let configuration = Configuration::new(request.name, request.configuration, &["location"])?;
    let location = location(&configuration, Location::Start)?;
    Ok(Opened::bytes(Checksum { name: "numcodecs.adler32", kind: Kind::Adler32, location, compute: cpu::checksum }))
}
