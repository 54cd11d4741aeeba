//! A validated chain of codecs.

use std::sync::Arc;

use cuzarr_device::Device;

use super::damage::{above_bound, corrupt};
use super::host::{ArrayToArray, ArrayToBytes, BytesToBytes, TailPart, VariableToBytes};
use super::open::{Opened, Request};
use super::program::{Leave, Program, leave_nothing, tail_split};
use super::registry::{self, Found};
use super::size::Size;
use super::{ChunkSpec, Sharding, VariableElements, v2};
use crate::meta::{ArrayMetadata, CodecsMetadata, Endian, Extension};
use crate::{Error, ErrorKind, Result, ResultExt};

/// The codec chain of one array, validated for one decoded chunk.
#[derive(Clone, Debug)]
pub struct Chain {
    spec: ChunkSpec,
    arrays: Vec<Arc<dyn ArrayToArray>>,
    serializer: Serializer,
    bytes: Vec<BytesStep>,
    encoded: Size,
    /// Elements of variable length are stored in F order.
    variable_order_f: bool,
}

/// The array→bytes codec.
#[derive(Clone, Debug)]
pub(crate) enum Serializer {
    Fixed(Arc<dyn ArrayToBytes>),
    Sharding(Arc<Sharding>),
    Variable(Arc<dyn VariableToBytes>),
}

/// A bytes→bytes codec and how many bytes it decodes to.
#[derive(Clone, Debug)]
pub(crate) struct BytesStep {
    pub(crate) codec: Arc<dyn BytesToBytes>,
    pub(crate) decoded: Size,
}

/// Which way codecs run, and what a call leaves to the host.
#[derive(Clone, Copy)]
enum Way<'a> {
    Decoding(Leave<'a>),
    Encoding(Option<&'static str>),
}

/// How a codec runs on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// There, in the same movement that places the elements.
    Native,
    /// On the CPU, because of this; the result is copied.
    ViaHost(&'static str),
}

/// One codec of a chain, and how it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The codec's v3 name.
    pub name: String,
    /// How it runs.
    pub support: Support,
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

/// Joins codecs, checking that each fits behind the one before.
pub(crate) struct Builder {
    zarr_format: u8,
    spec: ChunkSpec,
    /// The array that the next array codec would see.
    pub(crate) current: ChunkSpec,
    arrays: Vec<Arc<dyn ArrayToArray>>,
    serializer: Option<Serializer>,
    bytes: Vec<BytesStep>,
    size: Size,
    /// What the array→bytes codec gives.
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

    /// Whether there is an array→bytes codec yet.
    pub(crate) fn is_serialized(&self) -> bool {
        self.serializer.is_some()
    }

    /// Opens a codec for what the chain gives so far.
    pub(crate) fn open(&self, codec: &Extension) -> Result<Found> {
        registry::open(&self.request(codec))
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

    /// Adds an opened codec.
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

    /// Elements as their bytes, little-endian.
    fn push_bytes(&mut self) -> Result<()> {
        let opened = super::bytes::open_v2(&self.current, Endian::Little)?;
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
    /// The chain of an array: v3 codecs, or v2's order, filters, byte order and compressor as the same chain.
    ///
    /// # Errors
    /// `UnknownCodec`, or `MetadataInvalid` and `UnsupportedFeature` naming the codec.
    pub fn new(metadata: &ArrayMetadata) -> Result<Chain> {
        let shape = metadata.chunk_grid().chunk_shape().to_vec();
        let spec = ChunkSpec::new(shape, metadata.data_type().clone(), metadata.fill_value().clone());
        match metadata.codecs() {
            CodecsMetadata::V3(codecs) => Chain::from_extensions(codecs, spec),
            CodecsMetadata::V2 { .. } => v2::chain(metadata.codecs(), spec),
        }
    }

    /// A chain of v3 codecs for decoded chunks of `spec`.
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

    /// Like [`Chain::from_extensions`], for frames that a caller holds: the array→bytes codec may be left out, and is `bytes`,
    /// little-endian, then; and there is a codec that no metadata names, `deflate`.
    ///
    /// # Errors
    /// Those of [`Chain::new`].
    pub fn from_codecs(codecs: &[Extension], spec: ChunkSpec) -> Result<Chain> {
        let mut builder = Builder::new(3, spec)?;
        for (index, codec) in codecs.iter().enumerate() {
            let at = || format!("codecs[{index}]");
            let opened = registry::open_direct(&builder.request(codec)).at(at)?;
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

    /// The decoded chunk.
    pub fn spec(&self) -> &ChunkSpec {
        &self.spec
    }

    /// The shards, when sharding is the whole chain, so that inner chunks can be read by themselves.
    pub fn sharding(&self) -> Option<&Sharding> {
        match &self.serializer {
            Serializer::Sharding(sharding) if self.arrays.is_empty() && self.bytes.is_empty() => Some(sharding),
            _ => None,
        }
    }

    /// The same chain, whose shards are written with their inner chunks in these orders, the outermost shards' first. An
    /// order lists C-order numbers; it is no part of the metadata, and readers do not need it.
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

    /// Most bytes that an encoded chunk may have; `None` for elements of variable length.
    pub fn encoded_bound_bytes(&self) -> Option<u64> {
        self.encoded.bound()
    }

    /// How many bytes an encoded chunk has.
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

    /// Whether elements differ in length, so that [`Chain::decode_variable`] is the way.
    pub fn is_variable(&self) -> bool {
        self.spec.data_type.size_bytes().is_none()
    }

    /// How many array→array codecs the chain begins with; one array→bytes codec follows, the rest are bytes→bytes.
    pub fn array_codec_count(&self) -> usize {
        self.arrays.len()
    }

    /// What runs where, made once per array and device.
    ///
    /// # Errors
    /// `Unsupported` for elements of variable length.
    pub fn bind(&self, device: Device) -> Result<Program> {
        Program::new(self, device)
    }

    /// Every codec in order of encoding, and how it decodes to `device`. On the CPU everything is native.
    pub fn describe(&self, device: Device) -> Vec<Stage> {
        self.stages(device, Way::Decoding(&leave_nothing))
    }

    /// Like [`Chain::describe`], for a call that leaves to the host what `leave` gives a reason for.
    pub fn describe_beside(&self, device: Device, leave: Leave<'_>) -> Vec<Stage> {
        self.stages(device, Way::Decoding(leave))
    }

    /// Every codec in order of encoding, and how it encodes what is on `device`. On the CPU everything is native. A call that
    /// leaves to the host what kernels could encode says why in `left`.
    pub fn describe_encoding(&self, device: Device, left: Option<&'static str>) -> Vec<Stage> {
        self.stages(device, Way::Encoding(left))
    }

    fn stages(&self, device: Device, way: Way<'_>) -> Vec<Stage> {
        let names = self.arrays.iter().map(|codec| codec.name()).chain([self.serializer.name()]);
        let names = names.chain(self.bytes.iter().map(|step| step.codec.name()));
        let program = Program::new(self, device);
        let division = match (&program, way) {
            (Ok(program), Way::Decoding(leave)) => Some(program.divide(leave)),
            _ => None,
        };
        let reason = |index: usize| match (&program, way) {
            _ if device == Device::Cpu => None,
            (Ok(program), Way::Encoding(left)) => self.encoding_reason(program, index, left),
            (Ok(_), Way::Decoding(_)) => division.as_ref().and_then(|division| division.reason(index)),
            (Err(_), _) => Some("elements of variable length are host memory"),
        };
        let support = |index| reason(index).map_or(Support::Native, Support::ViaHost);
        let stages = names.enumerate().map(|(index, name)| Stage { name: name.into(), support: support(index) });
        let mut stages: Vec<Stage> = stages.collect();
        if let Some(sharding) = self.sharding() {
            stages[0].support = Support::Native;
            stages.extend(sharding.inner().stages(device, way));
        }
        stages
    }

    /// Why the host encodes with the codec of this number.
    fn encoding_reason(&self, program: &Program, index: usize, left: Option<&'static str>) -> Option<&'static str> {
        let split = tail_split(self);
        let in_tail = match index.checked_sub(self.arrays.len()) {
            None => index < split.arrays,
            Some(0) => split.serializer,
            Some(number) => number <= split.bytes,
        };
        if in_tail {
            return None;
        }
        let host = self.arrays.get(index).map(|codec| codec.tail());
        match (program.encoding_reason(index), host) {
            (None, _) => left,
            (Some(_), Some(TailPart::Host(reason))) => Some(reason),
            (reason, _) => reason,
        }
    }

    /// Undoes the bytes→bytes codecs of a variable-length chunk.
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

    /// Decodes a chunk of variable-length elements, whose metadata does not say how long it is: to at most `limit_bytes`.
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

    /// Encodes a chunk of variable-length elements. A shard of which nothing needs to be stored is still written.
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
