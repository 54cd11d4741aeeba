//! # `n5_default`: encodes chunks to blocks of N5
//!
//! Blocks of N5 in its default mode: a header with the block's shape, then the compressed elements. Elements are
//! big-endian, and the first dimension varies fastest.
//!
//! - Specification: <https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/n5_default>,
//!   <https://github.com/saalfeldlab/n5>
//! - Names: v3 `n5_default`
//! - Configuration: `codecs`: `transpose`, which reverses all dimensions; `bytes`, big-endian; at most one bytes→bytes codec
//! - Elements: integers of 8 to 64 bits, `float32`, `float64`
//! - Blocks at the edges of N5 arrays may have another shape than the chunk. They are cut off, or filled up with the fill value.
//!   Blocks are written whole.
//! - Compatible: N5, tensorstore's driver `n5`
//! - Native: cpu. On GPUs: via host.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "n5_default", "configuration": {"codecs": [
//!     {"name": "transpose", "configuration": {"order": [1, 0]}},
//!     {"name": "bytes", "configuration": {"endian": "big"}},
//!     {"name": "gzip", "configuration": {"level": 5}},
//! ]}});
//! # let spec = ChunkSpec::new(vec![4, 3], DataType::Int16, FillValue::Element(vec![0, 0]));
//! # Chain::from_extensions(&[Extension::from_json(&codec, "codecs")?], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```

mod cpu;

use serde_json::Value;

use super::configuration::Configuration;
use super::open::{Opened, Request};
use super::sharding_indexed::{BuildChain, extensions};
use super::size::Size;
use crate::meta::{DataType, Extension};
use crate::{Result, ResultExt};

/// Opens the codec `n5_default` from its configuration in the metadata. `build` makes the chain of its codecs.
pub(crate) fn open(request: &Request<'_>, build: BuildChain) -> Result<Opened> {
    let configuration = Configuration::new(request.name, request.configuration, &["codecs"])?;
    let Some(list) = configuration.get("codecs") else { return Err(configuration.invalid("'codecs' is missing")) };
    let codecs = extensions(&configuration, "codecs", list)?;
    let spec = request.spec;
    let element_bytes = match &*spec.data_type {
        DataType::Int8 | DataType::UInt8 => 1,
        DataType::Int16 | DataType::UInt16 => 2,
        DataType::Int32 | DataType::UInt32 | DataType::Float32 => 4,
        DataType::Int64 | DataType::UInt64 | DataType::Float64 => 8,
        other => return Err(configuration.invalid(format!("N5 has no elements of {other}"))),
    };
    let dims = |extent: &u64| u32::try_from(*extent).ok();
    let Some(shape) = spec.shape.iter().map(dims).collect::<Option<Vec<u32>>>() else {
        let message = format!("a chunk of shape {:?} has an extent that N5's header cannot hold", spec.shape);
        return Err(configuration.invalid(message));
    };
    check_codecs(&configuration, &codecs, shape.len(), element_bytes)?;
    let chain = build(&codecs, spec.clone()).at(|| "codec 'n5_default'")?;
    let compressor = chain.bytes().first().map(|step| step.codec.clone());
    let size_bytes = spec.size_bytes()?;
    let fill = spec.fill_bytes();
    Ok(Opened::serializer(cpu::N5Default { shape, element_bytes, size_bytes, fill, compressor }))
}

/// Refuses inner codecs with which the encoded chunk would not be a block of N5.
fn check_codecs(
    configuration: &Configuration<'_>,
    codecs: &[Extension],
    ndim: usize,
    element_bytes: usize,
) -> Result<()> {
    let reversed: Vec<Value> = (0..ndim).rev().map(Value::from).collect();
    match codecs.first() {
        Some(first)
            if first.name == "transpose" && first.configuration.get("order") == Some(&reversed.clone().into()) => {}
        _ => {
            let order = Value::from(reversed);
            return Err(configuration.invalid(format!("codecs[0]: expected 'transpose' with 'order' {order}")));
        }
    }
    let endian = codecs.get(1).filter(|second| second.name == "bytes").map(|second| second.configuration.get("endian"));
    match endian {
        Some(Some(endian)) if endian == "big" => {}
        Some(None) if element_bytes == 1 => {}
        _ => return Err(configuration.invalid("codecs[1]: expected 'bytes' with 'endian' 'big'")),
    }
    match codecs.len() {
        2 | 3 => Ok(()),
        count => Err(configuration.invalid(format!("got {count} codecs, expected at most one behind 'bytes'"))),
    }
}

/// Maximum bytes of an N5 block: a few times the chunk's bytes, because a block at the edge of an array may be larger
/// than the chunk.
fn block_bound(chunk_bytes: usize) -> u64 {
    let chunk = Size::Exact(chunk_bytes as u64);
    Size::AtMost(u64::MAX).within(chunk).bound().unwrap_or(0)
}
