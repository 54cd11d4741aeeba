//! # `sharding_indexed`: stores many chunks in one object
//!
//! Stores many inner chunks in one object, with an index of their places.
//!
//! - Specification: <https://zarr-specs.readthedocs.io/en/latest/v3/codecs/sharding-indexed/index.html>
//! - Names: v3 `sharding_indexed`
//! - Compatible: zarr-python, zarrs, tensorstore
//! - Native: everywhere when it is the whole chain: inner chunks are read and decoded by themselves. With other codecs
//!   around it, shards are decoded whole on the host.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "sharding_indexed", "configuration": {
//!     "chunk_shape": [2, 2],
//!     "codecs": [{"name": "bytes"}, {"name": "zstd", "configuration": {"level": 1, "checksum": false}}],
//!     "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
//!     "index_location": "end"
//! }});
//! # let spec = ChunkSpec::new(vec![4, 4], DataType::UInt8, FillValue::Element(vec![0]));
//! let chain = Chain::from_extensions(&[Extension::from_json(&codec, "codecs")?], spec)?;
//! assert_eq!(chain.sharding().map(|sharding| sharding.grid().to_vec()), Some(vec![2, 2]));
//! # Ok::<(), cuzarr::Error>(())
//! ```
//!
//! The whole index is read before any chunk. An entry is checked only when its chunk is read, so that a damaged entry
//! does not affect the other chunks. Shards may hold bytes that no entry names. Chunks are written without gaps, in C
//! order unless [`Chain::with_write_orders`] chose another.

mod index;
mod whole;

use std::sync::Arc;

use serde_json::{Value, json};

pub(crate) use index::Layout;
pub use index::ShardIndex;

use super::ChunkSpec;
use super::chain::{Chain, Sharding};
use super::configuration::Configuration;
use super::open::Request;
use super::program::Program;
use super::size::Size;
use crate::meta::{DataType, Extension, FillValue};
use crate::store::ByteRange;
use crate::{Error, ErrorKind, Result, ResultExt};

fn default_codecs() -> Value {
    json!([{"name": "bytes", "configuration": {"endian": "little"}}])
}

fn default_index_codecs() -> Value {
    json!([{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}])
}

pub(super) fn extensions(configuration: &Configuration<'_>, key: &str, default: &Value) -> Result<Vec<Extension>> {
    let value = configuration.get(key).unwrap_or(default);
    let Some(list) = value.as_array() else {
        return configuration.wrong(key, value, "a list of codecs");
    };
    list.iter().enumerate().map(|(at, codec)| Extension::from_json(codec, &format!("{key}[{at}]"))).collect()
}

/// A function by which a codec makes the chain of codecs inside it.
pub(super) type BuildChain = fn(&[Extension], ChunkSpec) -> Result<Chain>;

/// Opens the codec `sharding_indexed` from its configuration in the metadata. `build` makes the chains that it holds.
pub(crate) fn open(request: &Request<'_>, build: BuildChain) -> Result<Sharding> {
    let known = ["chunk_shape", "codecs", "index_codecs", "index_location"];
    let configuration = Configuration::new(request.name, request.configuration, &known)?;
    let spec = request.spec;
    let chunk_shape = configuration.extents("chunk_shape")?;
    let grid = grid(&configuration, &spec.shape, &chunk_shape)?;
    let codecs = extensions(&configuration, "codecs", &default_codecs())?;
    let inner_spec = ChunkSpec { shape: chunk_shape, ..spec.clone() };
    let inner = build(&codecs, inner_spec).at(|| "codec 'sharding_indexed': inner chunks")?;
    let inner_program = if inner.is_variable() { None } else { Some(Program::whole(&inner)?) };
    let index_codecs = extensions(&configuration, "index_codecs", &default_index_codecs())?;
    let index = index_chain(&configuration, &grid, &index_codecs, build)?;
    let Size::Exact(index_size_bytes) = index.encoded_size() else {
        return Err(configuration.invalid("'index_codecs' must encode to a fixed size, without compression"));
    };
    let index_at_start = configuration.choice("index_location", &[("start", true), ("end", false)])?.unwrap_or(false);
    Ok(Sharding {
        shard_shape: spec.shape.clone(),
        grid,
        inner,
        inner_program,
        index_program: Program::whole(&index)?,
        index_size_bytes,
        index_at_start,
        write_order: None,
    })
}

/// Returns the number of inner chunks in a shard along each dimension. They must fill the shard.
fn grid(configuration: &Configuration<'_>, shard: &[u64], chunk: &[u64]) -> Result<Vec<u64>> {
    let fits = shard.len() == chunk.len()
        && shard.iter().zip(chunk).all(|(shard, chunk)| *chunk > 0 && shard.is_multiple_of(*chunk));
    match fits {
        true => Ok(shard.iter().zip(chunk).map(|(shard, chunk)| shard / chunk).collect()),
        false => Err(configuration.invalid(format!("'chunk_shape' {chunk:?} does not divide the shard's {shard:?}"))),
    }
}

fn index_chain(
    configuration: &Configuration<'_>,
    grid: &[u64],
    codecs: &[Extension],
    build: BuildChain,
) -> Result<Chain> {
    let shape = [grid, &[2]].concat();
    let spec = ChunkSpec::new(shape, DataType::UInt64, FillValue::Element(vec![0xff; 8]));
    build(codecs, spec).map_err(|error| {
        let message = format!("'index_codecs': {}", error.message());
        configuration.invalid(message).telling(error)
    })
}

impl Sharding {
    /// The chain of codecs of the inner chunks, which may make shards again.
    pub fn inner(&self) -> &Chain {
        &self.inner
    }

    /// Number of inner chunks in a shard along each dimension.
    pub fn grid(&self) -> &[u64] {
        &self.grid
    }

    /// Number of inner chunks in a shard.
    pub fn len(&self) -> usize {
        // When the codec was opened, the index (16 bytes for each chunk) was found to fit in memory.
        self.grid.iter().product::<u64>() as usize
    }

    /// Whether there are no inner chunks: a dimension of the shard has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a copy that writes the inner chunks in the given orders. The first order is for this level, the next
    /// ones for shards inside.
    pub(super) fn with_write_orders(&self, orders: &[Arc<[u32]>]) -> Result<Sharding> {
        let Some((order, deeper)) = orders.split_first() else { return Ok(self.clone()) };
        let mut seen = vec![false; self.len()];
        let fresh = |&linear: &u32| seen.get_mut(linear as usize).is_some_and(|seen| !std::mem::replace(seen, true));
        if order.len() != self.len() || !order.iter().all(fresh) {
            let message = format!("a write order of {} entries for {} inner chunks", order.len(), self.len());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let inner = self.inner.with_write_orders(deeper)?;
        let inner_program = if inner.is_variable() { None } else { Some(Program::whole(&inner)?) };
        Ok(Sharding { inner, inner_program, write_order: Some(Arc::clone(order)), ..self.clone() })
    }

    /// Size of the encoded index in bytes.
    pub fn index_size_bytes(&self) -> u64 {
        self.index_size_bytes
    }

    /// Where the encoded index lies in a shard.
    pub fn index_range(&self) -> ByteRange {
        match self.index_at_start {
            true => ByteRange::Span { offset: 0, size_bytes: self.index_size_bytes },
            false => ByteRange::Suffix { size_bytes: self.index_size_bytes },
        }
    }

    /// Maximum size of a shard: four times its chunks' size, because writers that replace chunks leave old ones behind.
    pub(crate) fn encoded_bound(&self) -> Size {
        let chunks = self.inner.encoded_bound_bytes().and_then(|bytes| bytes.checked_mul(self.len() as u64));
        let bound = chunks.and_then(|bytes| bytes.checked_mul(4)?.checked_add(self.index_size_bytes));
        bound.map_or(Size::Unknown, Size::AtMost)
    }
}
