//! # `numcodecs.bz2`: compresses bytes to bzip2 streams
//!
//! bzip2 streams.
//!
//! - Specification: <https://numcodecs.readthedocs.io/en/stable/compression/bz2.html>
//! - Names: v3 `numcodecs.bz2`, `bz2`; v2 `bz2`
//! - Compatible: zarr-python, numcodecs, zarrs; tensorstore in v2
//! - Native: cpu (libbz2-rs). On GPUs: via host.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "numcodecs.bz2", "configuration": {"level": 9}});
//! # let spec = ChunkSpec::new(vec![4], DataType::UInt8, FillValue::Element(vec![0]));
//! # Chain::from_extensions(&[Extension::new("bytes", Default::default()), Extension::from_json(&codec, "codecs")?], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```

mod cpu;

use super::configuration::Configuration;
use super::open::{Opened, Request};
use crate::Result;

/// Opens the codec `bz2` from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let configuration = Configuration::new(request.name, request.configuration, &["level"])?;
    let level = configuration.integer("level", 1..=9, 1)? as u32;
    Ok(Opened::bytes(cpu::Bz2 { level }))
}
