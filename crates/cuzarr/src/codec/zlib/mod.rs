//! # `numcodecs.zlib`: compresses bytes to zlib streams
//!
//! Deflate in a zlib stream, RFC 1950.
//!
//! - Specification: <https://numcodecs.readthedocs.io/en/stable/compression/zlib.html>
//! - Names: v3 `numcodecs.zlib`, `zlib`; v2 `zlib`
//! - Compatible: zarr-python, numcodecs, zarrs; tensorstore in v2
//! - Native: cpu (libdeflate); GPUs (`codec/deflate`), which encode levels 1 to 9 all alike (from compute capability 8.0
//!   on); level 0 and chunks above 256 MiB are encoded by the host.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "numcodecs.zlib", "configuration": {"level": 5}});
//! # let spec = ChunkSpec::new(vec![4], DataType::UInt8, FillValue::Element(vec![0]));
//! # Chain::from_extensions(&[Extension::new("bytes", Default::default()), Extension::from_json(&codec, "codecs")?], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```
//!
//! Bytes after the end of the stream are ignored, as Python's `zlib.decompress` does.

mod cpu;

use super::configuration::Configuration;
use super::open::{Opened, Request};
use crate::Result;

/// Opens the codec `zlib` from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let configuration = Configuration::new(request.name, request.configuration, &["level"])?;
    let level = match configuration.integer("level", -1..=9, 1)? {
        -1 => 6,
        level => level as i32,
    };
    Ok(Opened::bytes(cpu::Zlib { level }))
}
