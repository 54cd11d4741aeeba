//! # `blosc`: compresses bytes to Blosc-1 containers
//!
//! The Blosc-1 container: blocks, shuffled by bytes or bits, each compressed by one of five compressors.
//!
//! - Specification: <https://zarr-specs.readthedocs.io/en/latest/v3/codecs/blosc/index.html>,
//!   <https://github.com/Blosc/c-blosc/blob/main/README_CHUNK_FORMAT.rst>
//! - Names: v3 `blosc`, `numcodecs.blosc`; v2 `blosc`
//! - Compatible: zarr-python, numcodecs, zarrs, tensorstore
//! - Native: cpu; cuda decodes frames of `lz4`, `lz4hc`, `zstd` and `zlib`, with any shuffle: each stream by the kernels of
//!   its own codec, then unshuffled (`blosc.cu`). `blosclz` and `snappy` are rare in Zarr and go via host. cuda encodes `lz4`,
//!   `zlib` and `zstd` (to level 5, which is zstd's 9), with any shuffle: each stream by the encoder of its own codec
//!   (`encode`); `lz4hc` and `blosclz` encode via host.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "blosc", "configuration":
//!     {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}});
//! # let spec = ChunkSpec::new(vec![4], DataType::UInt8, FillValue::Element(vec![0]));
//! # Chain::from_extensions(&[Extension::new("bytes", Default::default()), Extension::from_json(&codec, "codecs")?], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```
//!
//! This project reads and writes the container itself, without c-blosc. The compressors' libraries only see single
//! blocks. So every offset and size of a hostile frame is checked against metadata before it is used, and there is no
//! process-wide state. A GPU decoder starts from the same tables of blocks and streams. BloscLZ is this project's own
//! code, too. Snappy is decoded but not encoded, because no c-blosc of zarr-python, zarrs or tensorstore has it.

mod bits;
mod blosclz;
mod container;
mod cost;
mod cpu;
mod cuda;
mod encode;
mod scan;
mod streams;

use container::{Compressor, Shuffling};
#[cfg(test)]
pub(crate) use scan::{described, described_headers};

use super::configuration::Configuration;
use super::open::{Opened, Request};
use crate::Result;

/// Opens the codec `blosc` from its configuration, in the spelling of v3 or of numcodecs.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let known = ["cname", "clevel", "shuffle", "typesize", "blocksize"];
    let configuration = Configuration::new(request.name, request.configuration, &known)?;
    let numcodecs = request.zarr_format == 2 || request.name.starts_with("numcodecs.");
    // v3 requires `cname`; zarr-python's default is zstd, numcodecs' is lz4.
    let default = if numcodecs { Compressor::Lz4 } else { Compressor::Zstd };
    let compressor = configuration.choice("cname", Compressor::NAMES)?.unwrap_or(default);
    let level = configuration.integer("clevel", 0..=9, 5)? as u8;
    let block_bytes = configuration.integer("blocksize", 0..=i32::MAX.into(), 0)? as usize;
    let element_bytes = request.element_bytes.unwrap_or(1);
    let type_bytes = configuration.integer("typesize", 0..=i32::MAX.into(), 0)? as usize;
    let type_bytes = if type_bytes == 0 { element_bytes } else { type_bytes };
    let automatic = if element_bytes == 1 { Shuffling::Bits } else { Shuffling::Bytes };
    let shuffling = match configuration.get("shuffle") {
        Some(serde_json::Value::Number(_)) => match configuration.integer("shuffle", -1..=2, 1)? {
            -1 => automatic,
            0 => Shuffling::None,
            1 => Shuffling::Bytes,
            _ => Shuffling::Bits,
        },
        None if numcodecs => Shuffling::Bytes,
        _ => {
            let choices =
                [("noshuffle", Shuffling::None), ("shuffle", Shuffling::Bytes), ("bitshuffle", Shuffling::Bits)];
            configuration.choice("shuffle", &choices)?.unwrap_or(automatic)
        }
    };
    // c-blosc's header has one byte for the size.
    let type_bytes = if type_bytes > 255 { 1 } else { type_bytes.max(1) as u8 };
    Ok(Opened::bytes(cpu::Blosc { compressor, level, shuffling, type_bytes, block_bytes }))
}
