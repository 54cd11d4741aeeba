//! # `gzip`: compresses bytes to gzip members
//!
//! Deflate in gzip members, RFC 1951 and 1952.
//!
//! - Specification: <https://zarr-specs.readthedocs.io/en/latest/v3/codecs/gzip/index.html>
//! - Names: v3 `gzip`, `numcodecs.gzip`; v2 `gzip`
//! - Compatible: zarr-python, numcodecs, zarrs, tensorstore
//! - Native: cpu (libdeflate; zlib-rs for several members); GPUs (`codec/deflate`), which encode
//!   levels 1 to 9 all alike (from compute capability 8.0 on); level 0 and chunks above 256 MiB are encoded by the host.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "gzip", "configuration": {"level": 5}});
//! # let spec = ChunkSpec::new(vec![4], DataType::UInt8, FillValue::Element(vec![0]));
//! # Chain::from_extensions(&[Extension::new("bytes", Default::default()), Extension::from_json(&codec, "codecs")?], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```
//!
//! Decoding takes several members, and zeros after the last, as Python's `gzip` does. Encoding writes one member
//! without name and time, so equal chunks give equal bytes.

pub(crate) mod cpu;

use super::configuration::Configuration;
use super::open::{Opened, Request};
use crate::Result;

/// Opens the codec `gzip` from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let configuration = Configuration::new(request.name, request.configuration, &["level"])?;
    // numcodecs' default is 1; Python's -1 means zlib's default, 6.
    let level = match configuration.integer("level", -1..=9, 1)? {
        -1 => 6,
        level => level as i32,
    };
    Ok(Opened::bytes(cpu::Gzip { level }))
}
