//! A checked chain of codecs; its sharding codec, if it has one, contains a chain for the inner chunks.

use std::sync::Arc;

use super::damage::{above_bound, corrupt};
use super::host::{ArrayToArray, ArrayToBytes, BytesToBytes, VariableToBytes};
use super::program::Program;
use super::size::Size;
use super::{ChunkSpec, VariableElements};
use crate::{Error, ErrorKind, Result, ResultExt};

/// The codecs of one array, checked against the shape and type of its decoded chunks.
#[derive(Clone, Debug)]
pub struct Chain {
    pub(super) spec: ChunkSpec,
    pub(super) arrays: Vec<Arc<dyn ArrayToArray>>,
    pub(super) serializer: Serializer,
    pub(super) bytes: Vec<BytesStep>,
    pub(super) encoded: Size,
    /// Whether elements of variable length are stored in F order instead of C order.
    pub(super) variable_order_f: bool,
}

/// The array→bytes codec of a chain: for elements of fixed size, for shards, or for elements of variable length.
#[derive(Clone, Debug)]
pub(crate) enum Serializer {
    Fixed(Arc<dyn ArrayToBytes>),
    Sharding(Arc<Sharding>),
    Variable(Arc<dyn VariableToBytes>),
}

/// The codec `sharding_indexed` of one array: how to find, read and write the inner chunks of a shard.
#[derive(Clone, Debug)]
pub struct Sharding {
    pub(super) shard_shape: Vec<u64>,
    pub(super) grid: Vec<u64>,
    pub(super) inner: Chain,
    /// The program that decodes and encodes whole inner chunks; `None` for elements of variable length.
    pub(super) inner_program: Option<Program>,
    pub(super) index_program: Program,
    pub(super) index_size_bytes: u64,
    pub(super) index_at_start: bool,
    /// The order in which a shard's inner chunks are written, as a list of their C-order numbers; `None` for C order.
    pub(super) write_order: Option<Arc<[u32]>>,
}

/// One bytes→bytes codec of the chain, and the size that it decodes to.
#[derive(Clone, Debug)]
pub(crate) struct BytesStep {
    pub(crate) codec: Arc<dyn BytesToBytes>,
    pub(crate) decoded: Size,
}

impl Serializer {
    pub(crate) fn name(&self) -> &str {
        match self {
            Serializer::Fixed(codec) => codec.name(),
            Serializer::Sharding(_) => "sharding_indexed",
            Serializer::Variable(codec) => codec.name(),
        }
    }
}

impl Chain {
    /// The shape, data type and fill value of a decoded chunk.
    pub fn spec(&self) -> &ChunkSpec {
        &self.spec
    }

    /// The sharding codec, if the chain has no other codecs. Only then can inner chunks be read by themselves.
    pub fn sharding(&self) -> Option<&Sharding> {
        match &self.serializer {
            Serializer::Sharding(sharding) if self.arrays.is_empty() && self.bytes.is_empty() => Some(sharding),
            _ => None,
        }
    }

    /// The chain of the innermost chunks: this chain, if it has no shards.
    pub(crate) fn leaf(&self) -> &Chain {
        self.sharding().map_or(self, |sharding| sharding.inner().leaf())
    }

    /// Returns a copy of this chain that writes the inner chunks of shards in the given orders. `orders` holds a list
    /// of C-order numbers for each level of sharding, the outermost first. An order is not part of the metadata, and
    /// readers do not need it.
    ///
    /// # Errors
    /// `InvalidArgument` when an order does not list every inner chunk once.
    pub fn with_write_orders(&self, orders: &[Arc<[u32]>]) -> Result<Chain> {
        let mut chain = self.clone();
        if let Serializer::Sharding(sharding) = &self.serializer {
            chain.serializer = Serializer::Sharding(Arc::new(sharding.with_write_orders(orders)?));
        }
        Ok(chain)
    }

    /// Maximum size of an encoded chunk, in bytes; `None` for elements of variable length.
    pub fn encoded_bound_bytes(&self) -> Option<u64> {
        self.encoded.bound()
    }

    /// The size of an encoded chunk, exact or bounded, as far as metadata determines it.
    pub(crate) fn encoded_size(&self) -> Size {
        self.encoded
    }

    pub(crate) fn arrays(&self) -> &[Arc<dyn ArrayToArray>] {
        &self.arrays
    }

    pub(crate) fn serializer(&self) -> &Serializer {
        &self.serializer
    }

    pub(crate) fn bytes(&self) -> &[BytesStep] {
        &self.bytes
    }

    /// Whether the elements of the chain's array have variable length. Decode them with [`Chain::decode_variable`].
    pub fn is_variable(&self) -> bool {
        self.spec.data_type.size_bytes().is_none()
    }

    /// Whether some codec verifies a checksum of each chunk, or of each shard.
    pub fn has_checksum(&self) -> bool {
        let inner = match &self.serializer {
            Serializer::Sharding(sharding) => sharding.inner().has_checksum(),
            Serializer::Fixed(_) | Serializer::Variable(_) => false,
        };
        inner || self.bytes.iter().any(|step| step.codec.has_checksum())
    }

    /// Number of array→array codecs, which are the first ones of the chain. One array→bytes codec follows; the rest are
    /// bytes→bytes.
    pub fn array_codec_count(&self) -> usize {
        self.arrays.len()
    }

    /// Undoes only the bytes→bytes codecs of a stored chunk with variable-length elements, not the codec that turned
    /// elements into bytes.
    fn decode_bytes(&self, stored: &[u8], limit_bytes: u64) -> Result<Vec<u8>> {
        let mut current: Option<Vec<u8>> = None;
        for step in self.bytes.iter().rev() {
            let encoded = current.as_deref().unwrap_or(stored);
            let decoded = match step.decoded.bound() {
                Some(bound) => step.codec.decode(encoded, bound).map_err(above_bound),
                None => step.codec.decode(encoded, limit_bytes),
            };
            current = Some(decoded.at(|| format!("codec '{}'", step.codec.name()))?);
        }
        Ok(current.unwrap_or_else(|| stored.to_vec()))
    }

    /// Decodes a chunk of variable-length elements to at most `limit_bytes`. Metadata does not say how long such a
    /// chunk is.
    ///
    /// # Errors
    /// `ChunkCorrupt` or `ChecksumMismatch` with the codec in the trail; `BudgetExceeded` beyond the limit; `Unsupported` for
    /// elements of one size.
    pub fn decode_variable(&self, stored: &[u8], limit_bytes: u64) -> Result<VariableElements> {
        let count = self.spec.elements().unwrap_or(u64::MAX);
        match &self.serializer {
            Serializer::Variable(codec) => {
                let serialized = self.decode_bytes(stored, limit_bytes)?;
                let name = || format!("codec '{}'", codec.name());
                let elements = codec.decode(&serialized, count).at(name)?;
                match elements.len() as u64 == count {
                    true if self.variable_order_f => Ok(elements.transposed(self.spec.shape.iter().rev())),
                    true => Ok(elements),
                    false => Err(corrupt(format!("got {} elements, expected {count}", elements.len()))).at(name),
                }
            }
            Serializer::Sharding(sharding) if self.is_variable() => {
                let serialized = self.decode_bytes(stored, limit_bytes)?;
                sharding.decode_variable(&serialized, limit_bytes).at(|| "codec 'sharding_indexed'")
            }
            _ => Err(Error::new(ErrorKind::Unsupported, "elements have one size: decode them packed")),
        }
    }

    /// Encodes a chunk of variable-length elements. A shard is written even if none of its inner chunks needs to be
    /// stored.
    ///
    /// # Errors
    /// `InvalidArgument` when the number of elements is not the chunk's; `EncodeFailed`.
    pub fn encode_variable(&self, elements: &VariableElements) -> Result<Vec<u8>> {
        if Some(elements.len() as u64) != self.spec.elements() {
            let message = format!("got {} elements for a chunk of shape {:?}", elements.len(), self.spec.shape);
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let serialized = match &self.serializer {
            Serializer::Variable(codec) => {
                let transposed = self.variable_order_f.then(|| elements.transposed(self.spec.shape.iter()));
                codec.encode(transposed.as_ref().unwrap_or(elements)).at(|| format!("codec '{}'", codec.name()))?
            }
            Serializer::Sharding(sharding) if self.is_variable() => {
                sharding.encode_variable(elements).at(|| "codec 'sharding_indexed'")?
            }
            _ => return Err(Error::new(ErrorKind::Unsupported, "elements have one size: encode them packed")),
        };
        self.bytes.iter().try_fold(serialized, |decoded, step| {
            step.codec.encode(decoded.into()).at(|| format!("codec '{}'", step.codec.name()))
        })
    }
}
