//! Makes a chain of codecs that are opened one after the other.

use std::sync::Arc;

use super::chain::{BytesStep, Chain, Serializer};
use super::host::ArrayToArray;
use super::open::{Opened, Request};
use super::registry::{self, Found};
use super::size::Size;
use super::{ChunkSpec, bytes};
use crate::meta::{Endian, Extension};
use crate::{Error, ErrorKind, Result, ResultExt};

/// A chain of codecs that is built one by one, with a check that each codec accepts the output of the one before it.
pub(crate) struct Builder {
    zarr_format: u8,
    spec: ChunkSpec,
    /// The shape, data type and fill value that the next array→array or array→bytes codec gets.
    pub(crate) current: ChunkSpec,
    arrays: Vec<Arc<dyn ArrayToArray>>,
    serializer: Option<Serializer>,
    bytes: Vec<BytesStep>,
    size: Size,
    /// The size of a chunk after the array→bytes codec, as far as metadata determines it.
    serialized: Size,
    pub(crate) variable_order_f: bool,
}

impl Builder {
    pub(crate) fn new(zarr_format: u8, spec: ChunkSpec) -> Result<Builder> {
        let size = spec.size()?;
        let current = spec.clone();
        let (arrays, bytes) = (Vec::new(), Vec::new());
        let (serializer, serialized) = (None, size);
        Ok(Builder { zarr_format, spec, current, arrays, serializer, bytes, size, serialized, variable_order_f: false })
    }

    /// Whether an array→bytes codec was already added.
    pub(crate) fn is_serialized(&self) -> bool {
        self.serializer.is_some()
    }

    /// Opens a codec that encodes the output of the chain built so far, without adding the codec to the chain.
    pub(crate) fn open(&self, codec: &Extension) -> Result<Found> {
        registry::open(&self.request(codec), Chain::from_extensions)
    }

    fn request<'a>(&'a self, codec: &'a Extension) -> Request<'a> {
        Request {
            name: &codec.name,
            configuration: &codec.configuration,
            zarr_format: self.zarr_format,
            spec: &self.current,
            decoded: self.size,
            element_bytes: self.current.data_type.size_bytes(),
        }
    }

    /// Adds an opened codec to the end of the chain.
    pub(crate) fn push(&mut self, found: impl Into<Found>) -> Result<()> {
        match (found.into(), self.is_serialized()) {
            (Found::Codec(Opened::Array(codec)), false) => {
                self.current = codec.encoded_spec().clone();
                self.size = self.current.size()?;
                self.arrays.push(codec);
            }
            (Found::Codec(Opened::Serializer(codec)), false) => {
                self.size = codec.encoded_size();
                self.serialized = self.size;
                self.serializer = Some(Serializer::Fixed(codec));
            }
            (Found::Sharding(codec), false) => {
                self.size = codec.encoded_bound();
                self.serialized = self.size;
                self.serializer = Some(Serializer::Sharding(codec));
            }
            (Found::Codec(Opened::Variable(codec)), false) => {
                if !self.arrays.is_empty() {
                    let message =
                        format!("codec '{}' behind array codecs: they take elements of one size", codec.name());
                    return Err(Error::new(ErrorKind::UnsupportedFeature, message));
                }
                self.size = Size::Unknown;
                self.serialized = self.size;
                self.serializer = Some(Serializer::Variable(codec));
            }
            (Found::Codec(Opened::Bytes(codec)), true) => {
                let decoded = self.size;
                self.size = codec.encoded_size(decoded).within(self.serialized);
                self.bytes.push(BytesStep { codec, decoded });
            }
            (Found::Codec(Opened::Bytes(codec)), false) => {
                return Err(misplaced(codec.name(), "bytes→bytes", "stands before the array→bytes codec"));
            }
            (Found::Codec(Opened::Array(codec)), true) => {
                return Err(misplaced(codec.name(), "array→array", "stands behind the array→bytes codec"));
            }
            (Found::Sharding(_) | Found::Codec(Opened::Serializer(_) | Opened::Variable(_)), true) => {
                let message = "a chain has exactly one array→bytes codec, got a second";
                return Err(Error::new(ErrorKind::MetadataInvalid, message));
            }
        }
        Ok(())
    }

    /// Adds the codec `bytes` with little-endian byte order.
    fn push_bytes(&mut self) -> Result<()> {
        let opened = bytes::open_v2(&self.current, Endian::Little)?;
        self.push(opened)
    }

    pub(crate) fn finish(self) -> Result<Chain> {
        let Builder { spec, arrays, serializer, bytes, size, variable_order_f, .. } = self;
        let Some(serializer) = serializer else {
            return Err(Error::new(ErrorKind::MetadataInvalid, "the chain has no array→bytes codec, such as 'bytes'"));
        };
        Ok(Chain { spec, arrays, serializer, bytes, encoded: size, variable_order_f })
    }
}

fn misplaced(name: &str, kind: &str, place: &str) -> Error {
    Error::new(ErrorKind::MetadataInvalid, format!("codec '{name}' ({kind}) {place}"))
}

impl Chain {
    /// Makes a chain of v3 codecs that encodes chunks of `spec`.
    ///
    /// # Errors
    /// Those of [`Chain::new`].
    pub fn from_extensions(codecs: &[Extension], spec: ChunkSpec) -> Result<Chain> {
        let mut builder = Builder::new(3, spec)?;
        for (index, codec) in codecs.iter().enumerate() {
            let opened = builder.open(codec).at(|| format!("codecs[{index}]"))?;
            builder.push(opened).at(|| format!("codecs[{index}]"))?;
        }
        builder.finish()
    }

    /// Like [`Chain::from_extensions`], but for frames that the caller has, instead of the chunks of an array. If there
    /// is no array→bytes codec, `bytes` (little-endian) is added. Codecs that no metadata names, such as `deflate`, may
    /// be used too.
    ///
    /// # Errors
    /// Those of [`Chain::new`].
    pub fn from_codecs(codecs: &[Extension], spec: ChunkSpec) -> Result<Chain> {
        let mut builder = Builder::new(3, spec)?;
        for (index, codec) in codecs.iter().enumerate() {
            let at = || format!("codecs[{index}]");
            let opened = registry::open_direct(&builder.request(codec), Chain::from_extensions).at(at)?;
            if matches!(opened, Found::Codec(Opened::Bytes(_))) && !builder.is_serialized() {
                builder.push_bytes()?;
            }
            builder.push(opened).at(at)?;
        }
        if !builder.is_serialized() {
            builder.push_bytes()?;
        }
        builder.finish()
    }
}
