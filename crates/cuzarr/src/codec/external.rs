//! External codecs, from Python's registries or from the program that uses cuzarr. They get whole chunks in host
//! memory.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, RwLock};

use serde_json::{Map, Value};

use super::ChunkSpec;
use super::damage::{above_limit, expect_size, unencodable};
use super::host::{ArrayToArray, ArrayToBytes, BytesToBytes};
use super::open::{Opened, Request};
use super::size::Size;
use crate::{Result, ResultExt};

/// The input for opening a codec that is not built in: its name, its configuration and the array that it encodes.
#[derive(Clone, Copy, Debug)]
pub struct ExternalRequest<'a> {
    /// The codec's name as metadata spells it: a v3 name, or a v2 id.
    pub name: &'a str,
    /// The codec's configuration; in v2 without the member `id`.
    pub configuration: &'a Map<String, Value>,
    /// The Zarr format of the metadata: 2 or 3.
    pub zarr_format: u8,
    /// The array that this codec encodes; for bytes→bytes codecs, the array that was turned into bytes.
    pub spec: &'a ChunkSpec,
}

/// A source of codecs that are not built in, such as Python's numcodecs. It is asked once per codec and array.
pub trait ExternalCodecs: Send + Sync {
    /// Opens a codec; `None` if the source has no codec of this name.
    fn open(&self, request: &ExternalRequest<'_>) -> Result<Option<ExternalCodec>>;

    /// Opens a bytes→bytes codec that may run on devices too; `None` if the source has none of this name. Called before
    /// [`open`](Self::open).
    ///
    /// # Errors
    /// An error about the configuration.
    fn open_bytes(&self, request: &ExternalRequest<'_>) -> Result<Option<Arc<dyn BytesToBytes>>> {
        let _ = request;
        Ok(None)
    }
}

/// A codec that decodes and encodes whole chunks in host memory. Arrays are elements in native byte order, C order.
pub trait HostCodec: Send + Sync + fmt::Debug {
    /// Decodes the encoded bytes of a whole chunk, and returns the decoded bytes.
    fn decode(&self, encoded: &[u8]) -> Result<Vec<u8>>;
    /// Encodes the decoded bytes of a whole chunk, and returns the encoded bytes.
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>>;
}

/// The data on both sides of an external codec: arrays or bytes.
#[derive(Clone, Debug)]
pub enum ExternalKind {
    /// The codec encodes arrays to arrays; the value describes the array after encoding.
    ArrayToArray(ChunkSpec),
    /// The codec encodes arrays to bytes.
    ArrayToBytes,
    /// The codec encodes bytes to bytes.
    BytesToBytes,
}

/// An opened codec that is not built in, such as one of Python's numcodecs.
#[derive(Clone, Debug)]
pub struct ExternalCodec {
    /// The data on both sides of the codec: arrays or bytes.
    pub kind: ExternalKind,
    /// The codec itself, which decodes and encodes.
    pub codec: Arc<dyn HostCodec>,
}

static EXTERNAL: RwLock<Option<Arc<dyn ExternalCodecs>>> = RwLock::new(None);

/// Sets the source of codecs that are not built in, for the whole process. Arrays opened before keep their codecs.
pub fn set_external(codecs: Option<Arc<dyn ExternalCodecs>>) {
    *EXTERNAL.write().unwrap_or_else(std::sync::PoisonError::into_inner) = codecs;
}

/// Opens a codec that is not built in; `None` if its name is not known.
pub(super) fn open(request: &Request<'_>) -> Result<Option<Opened>> {
    let codecs = EXTERNAL.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    let Some(codecs) = codecs else { return Ok(None) };
    let Request { name, configuration, zarr_format, spec, .. } = *request;
    let asked = ExternalRequest { name, configuration, zarr_format, spec };
    if let Some(codec) = codecs.open_bytes(&asked).at(|| format!("codec '{name}'"))? {
        return Ok(Some(Opened::Bytes(codec)));
    }
    let Some(ExternalCodec { kind, codec }) = codecs.open(&asked).at(|| format!("codec '{name}'"))? else {
        return Ok(None);
    };
    let name = name.to_string();
    Ok(Some(match kind {
        ExternalKind::ArrayToArray(encoded) => {
            let (decoded_bytes, encoded_bytes) = (spec.size_bytes()?, encoded.size_bytes()?);
            Opened::array(ArrayCodec { name, codec, encoded, decoded_bytes, encoded_bytes })
        }
        ExternalKind::ArrayToBytes => {
            Opened::serializer(ExternalSerializer { name, codec, decoded: Size::Exact(spec.size_bytes()? as u64) })
        }
        ExternalKind::BytesToBytes => Opened::bytes(BytesCodec { name, codec }),
    }))
}

#[derive(Debug)]
struct ArrayCodec {
    name: String,
    codec: Arc<dyn HostCodec>,
    encoded: ChunkSpec,
    decoded_bytes: usize,
    encoded_bytes: usize,
}

#[derive(Debug)]
struct ExternalSerializer {
    name: String,
    codec: Arc<dyn HostCodec>,
    decoded: Size,
}

#[derive(Debug)]
struct BytesCodec {
    name: String,
    codec: Arc<dyn HostCodec>,
}

fn decode_exactly(codec: &dyn HostCodec, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
    let bytes = codec.decode(encoded)?;
    expect_size(bytes.len(), decoded.len())?;
    decoded.copy_from_slice(&bytes);
    Ok(())
}

impl ArrayToArray for ArrayCodec {
    fn name(&self) -> &str {
        &self.name
    }

    fn encoded_spec(&self) -> &ChunkSpec {
        &self.encoded
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        expect_size(decoded.len(), self.decoded_bytes)?;
        decode_exactly(&*self.codec, encoded, decoded)
    }

    fn encode_into(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()> {
        let bytes = self.codec.encode(decoded)?;
        if bytes.len() != self.encoded_bytes || encoded.len() != bytes.len() {
            return Err(unencodable(format!("encodes to {} bytes, expected {}", bytes.len(), self.encoded_bytes)));
        }
        encoded.copy_from_slice(&bytes);
        Ok(())
    }
}

impl ArrayToBytes for ExternalSerializer {
    fn name(&self) -> &str {
        &self.name
    }

    fn encoded_size(&self) -> Size {
        self.decoded.compressed()
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        decode_exactly(&*self.codec, encoded, decoded)
    }

    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        self.codec.encode(&decoded)
    }
}

impl BytesToBytes for BytesCodec {
    fn name(&self) -> &str {
        &self.name
    }

    fn encoded_size(&self, decoded: Size) -> Size {
        decoded.compressed()
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        decode_exactly(&*self.codec, encoded, decoded)
    }

    fn decode(&self, encoded: &[u8], limit_bytes: u64) -> Result<Vec<u8>> {
        let decoded = self.codec.decode(encoded)?;
        match decoded.len() as u64 > limit_bytes {
            true => Err(above_limit(decoded.len(), limit_bytes)),
            false => Ok(decoded),
        }
    }

    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        self.codec.encode(&decoded)
    }
}
