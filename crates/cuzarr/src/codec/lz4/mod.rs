//! # `numcodecs.lz4`: compresses bytes to an LZ4 block
//!
//! The decoded size as a little-endian `u32`, then one LZ4 block.
//!
//! - Specification: <https://numcodecs.readthedocs.io/en/stable/compression/lz4.html>
//! - Names: v3 `numcodecs.lz4`, `lz4`; v2 `lz4`. For frames that a caller holds ([`crate::run::Decoder`]), `lz4_raw` is
//!   a block alone, as in Parquet and nvCOMP
//! - Compatible: zarr-python, numcodecs
//! - Native: cpu (liblz4); cuda decodes chunks below 2 GiB: many small chunks by one warp each, others by all threads, even
//!   a single large block (`lz4.cu`, `codec::lz`), and encodes chunks of up to 1 GiB (`encode`).
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "numcodecs.lz4", "configuration": {"acceleration": 1}});
//! # let spec = ChunkSpec::new(vec![4], DataType::UInt8, FillValue::Element(vec![0]));
//! # Chain::from_extensions(&[Extension::new("bytes", Default::default()), Extension::from_json(&codec, "codecs")?], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```

pub(crate) mod blocks;
mod cost;
pub(crate) mod cpu;
pub(crate) mod cuda;
pub(crate) mod encode;

pub(crate) use cuda::HEADERS;

use super::configuration::Configuration;
use super::open::{Opened, Request};
use crate::Result;

/// Bytes in front of a frame's block that state its decoded size.
pub(crate) const HEADER_BYTES: usize =
    cuzarr_device::internal::defined(include_str!("lz4.cu"), "CUZARR_LZ4_HEADER") as usize;

/// Opens the codec `lz4` from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    Ok(Opened::bytes(cpu::Lz4 { acceleration: acceleration(request)? }))
}

/// Opens the codec of single LZ4 blocks with nothing around them.
pub(crate) fn open_raw(request: &Request<'_>) -> Result<Opened> {
    Ok(Opened::bytes(cpu::Lz4Raw { acceleration: acceleration(request)? }))
}

fn acceleration(request: &Request<'_>) -> Result<i32> {
    let configuration = Configuration::new(request.name, request.configuration, &["acceleration"])?;
    // liblz4 takes anything below 1 as 1 and above 65537 as 65537.
    Ok(configuration.integer("acceleration", i32::MIN.into()..=i32::MAX.into(), 1)?.clamp(1, 65537) as i32)
}
