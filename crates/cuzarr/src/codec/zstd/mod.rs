//! # `zstd`: compresses bytes to Zstandard frames
//!
//! Zstandard frames, RFC 8878.
//!
//! - Specification: <https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/zstd>
//! - Names: v3 `zstd`, `numcodecs.zstd`; v2 `zstd`
//! - Compatible: zarr-python, numcodecs, zarrs, tensorstore
//! - Native: cpu (libzstd); GPUs, where chunks are decoded block by block (frames with dictionaries are refused), and encoded
//!   in blocks of 32 KiB for levels up to 9 (from compute capability 8.0 on)
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "zstd", "configuration": {"level": 3, "checksum": true}});
//! # let spec = ChunkSpec::new(vec![4], DataType::UInt8, FillValue::Element(vec![0]));
//! # Chain::from_extensions(&[Extension::new("bytes", Default::default()), Extension::from_json(&codec, "codecs")?], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```
//!
//! Decoding accepts the frames of all writers: frames without content size, several frames in a chunk, and skippable
//! frames. Encoding on the host writes one frame with its content size, in small blocks that a GPU decodes at once.
//! Chunks of 16 MiB and more are encoded by the threads that other chunks leave idle; their number does not change the
//! bytes.

mod cost;
pub(crate) mod cpu;
pub(crate) mod cuda;
pub(crate) mod encode;
mod scan;
mod table;

pub(crate) use cuda::{DAMAGE, HEADERS};

#[cfg(test)]
pub(crate) use {cuda::described_headers, scan::described};

use super::configuration::Configuration;
use super::open::{Opened, Request};
use crate::Result;

/// Opens the codec `zstd` from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let configuration = Configuration::new(request.name, request.configuration, &["level", "checksum"])?;
    let level = configuration.integer("level", -131_072..=22, 0)? as i32;
    let checksum = configuration.boolean("checksum", false)?;
    Ok(Opened::bytes(cpu::Zstd { level, checksum }))
}
