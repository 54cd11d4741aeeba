//! What a codec is to a chain: three small traits, and the sizes they promise.

use std::borrow::Cow;
use std::fmt;
use std::io::Read;
use std::sync::Arc;

use cuzarr_device::convert::Conversion;
use cuzarr_device::{ElementStep, Packing};

use super::device::{DeviceDecoder, DeviceEncoder};
use super::native::Step;
use super::{ChunkSpec, VariableElements};
use crate::{Error, ErrorKind, Result};

/// How many bytes there are before they are seen. Comes from metadata only, never from a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Always this many.
    Exact(u64),
    /// Never more than this.
    AtMost(u64),
    /// Metadata does not bound it (variable-length elements).
    Unknown,
}

/// Why the host does what kernels do not, unless a codec knows better.
pub const ON_HOST: &str = "decoded on the host in this version";

/// How many times as large as their elements the bytes behind several compressors may be.
const MOST_GROWTH: u64 = 4;

impl Size {
    /// The bound, where there is one.
    pub fn bound(self) -> Option<u64> {
        match self {
            Size::Exact(bytes) | Size::AtMost(bytes) => Some(bytes),
            Size::Unknown => None,
        }
    }

    /// The size after `extra` more bytes.
    pub fn plus(self, extra: u64) -> Size {
        match self {
            Size::Exact(bytes) => bytes.checked_add(extra).map_or(Size::Unknown, Size::Exact),
            Size::AtMost(bytes) => bytes.checked_add(extra).map_or(Size::Unknown, Size::AtMost),
            Size::Unknown => Size::Unknown,
        }
    }

    /// The size as part of a chain whose elements have `serialized` bytes: behind any number of compressors, each with its room,
    /// nothing real has more than a few times as many.
    pub(crate) fn within(self, serialized: Size) -> Size {
        match (self, serialized.bound()) {
            (Size::AtMost(bytes), Some(serialized)) => {
                Size::AtMost(bytes.min(serialized.saturating_mul(MOST_GROWTH).saturating_add(1 << 20)))
            }
            _ => self,
        }
    }

    /// The size after a general compressor: anyone's encoder, so with room for stored blocks, flushes and small blocks.
    pub fn compressed(self) -> Size {
        match self.bound().and_then(|bytes| bytes.checked_mul(2)?.checked_add(1 << 16)) {
            Some(bytes) => Size::AtMost(bytes),
            None => Size::Unknown,
        }
    }
}

/// A codec between bytes and bytes: compressors, checksums, shuffles.
pub trait BytesToBytes: Send + Sync + fmt::Debug {
    /// The name in messages: the Zarr v3 name.
    fn name(&self) -> &str;

    /// How many bytes encoding gives.
    fn encoded_size(&self, decoded: Size) -> Size;

    /// Decodes to exactly `decoded.len()` bytes; anything else is an error.
    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()>;

    /// Decodes when the size is not known, to at most `limit_bytes`; `BudgetExceeded` for what is longer.
    fn decode(&self, encoded: &[u8], limit_bytes: u64) -> Result<Vec<u8>>;

    /// For codecs whose decoded bytes lie inside the encoded ones: checks them and says where.
    fn view<'a>(&self, encoded: &'a [u8]) -> Option<Result<&'a [u8]>> {
        let _ = encoded;
        None
    }

    /// Encodes.
    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>>;

    /// The kernels that decode this codec's frames, where there are some.
    fn device_decoder(&self) -> Option<&'static dyn DeviceDecoder> {
        None
    }

    /// Why the host decodes what kernels do not.
    fn host_reason(&self) -> &'static str {
        ON_HOST
    }

    /// The kernels that encode chunks of this size, where there are some.
    fn device_encoder(&self, decoded_bytes: usize) -> Option<Arc<dyn DeviceEncoder>> {
        let _ = decoded_bytes;
        None
    }

    /// For other codecs that a device does over whole batches: how. `decoded` is the size in bytes.
    fn native(&self, decoded: Size) -> Option<Step> {
        let _ = decoded;
        None
    }

    /// For codecs that only move bytes: how a tail reads them packed. `decoded` is the size in bytes.
    fn packing(&self, decoded: u64) -> Option<Packing> {
        let _ = decoded;
        None
    }
}

/// What an array codec leaves to the tail.
#[derive(Clone, Debug, PartialEq)]
pub enum TailPart {
    /// Nothing: it runs on the host, because of this.
    Host(&'static str),
    /// Encoded dimension `i` is decoded dimension `axes[i]`; elements stay as they are.
    Axes(Vec<usize>),
    /// Elements change one by one. Reading steps turn encoded into decoded elements, in order; writing steps the other way.
    Steps {
        /// Encoded → decoded.
        read: Vec<ElementStep>,
        /// Decoded → encoded.
        write: Vec<ElementStep>,
    },
    /// Elements become bits behind a header that the host checks.
    Bits(super::packbits::Header),
}

/// A codec between arrays. Arrays are elements in native byte order, C order, without gaps.
pub trait ArrayToArray: Send + Sync + fmt::Debug {
    /// The name in messages: the Zarr v3 name.
    fn name(&self) -> &str;

    /// What the array is after encoding.
    fn encoded_spec(&self) -> &ChunkSpec;

    /// Decodes a whole chunk.
    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()>;

    /// Encodes a whole chunk; `encoded` has the size of the encoded spec.
    fn encode_into(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()>;

    /// Whether decoding changes nothing.
    fn decodes_to_itself(&self) -> bool {
        false
    }

    /// What a device can do in this codec's place over whole batches, where a tail can do nothing.
    fn native(&self) -> Option<Vec<Step>> {
        None
    }

    /// Whether those steps the other way are how it encodes, of any elements.
    fn native_is_undone(&self) -> bool {
        false
    }

    /// What a device can do of encoding whole batches, where it is no step the other way: each element becomes another, or is
    /// reported; then the host says what is wrong with it.
    fn native_encoding(&self) -> Option<Conversion> {
        None
    }

    /// What a tail can do in this codec's place.
    fn tail(&self) -> TailPart {
        TailPart::Host("needs whole chunks")
    }
}

/// The codec from an array of fixed-size elements to bytes.
pub trait ArrayToBytes: Send + Sync + fmt::Debug {
    /// The name in messages: the Zarr v3 name.
    fn name(&self) -> &str;

    /// How many bytes encoding gives.
    fn encoded_size(&self) -> Size;

    /// Decodes a whole chunk to native byte order.
    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()>;

    /// Encodes a whole chunk.
    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>>;

    /// The steps that do the same element by element, when bytes are just elements in some byte order: reading order.
    fn steps(&self) -> Option<Vec<ElementStep>> {
        None
    }
}

/// The codec from an array of variable-length elements to bytes.
pub trait VariableToBytes: Send + Sync + fmt::Debug {
    /// The name in messages: the Zarr v3 name.
    fn name(&self) -> &str;

    /// Decodes a chunk of `count` elements.
    fn decode(&self, encoded: &[u8], count: u64) -> Result<VariableElements>;

    /// Encodes a chunk.
    fn encode(&self, elements: &VariableElements) -> Result<Vec<u8>>;
}

/// An error about encoded bytes.
pub(crate) fn corrupt(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::ChunkCorrupt, message)
}

/// An error about what cannot be encoded.
pub(crate) fn unencodable(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::EncodeFailed, message)
}

/// Refuses a decoded size other than the expected one.
pub(crate) fn expect_size(got: usize, expected: usize) -> Result<()> {
    match got == expected {
        true => Ok(()),
        false => Err(corrupt(format!("decodes to {got} bytes, expected {expected}"))),
    }
}

/// Refuses bytes that are not there.
pub(crate) fn expect_encoded_size(got: usize, expected: usize) -> Result<()> {
    match got == expected {
        true => Ok(()),
        false => Err(corrupt(format!("got {got} encoded bytes, expected {expected}"))),
    }
}

/// An error about bytes that decode to more than the caller's limit.
pub(crate) fn above_limit(got: impl fmt::Display, limit_bytes: u64) -> Error {
    let message = format!("decodes to {got} bytes, at most {limit_bytes} are allowed");
    Error::new(ErrorKind::BudgetExceeded, message)
}

/// The same where the limit comes from metadata: then nobody's limit is too low, and the bytes are damaged.
pub(crate) fn above_bound(error: Error) -> Error {
    if error.kind() == ErrorKind::BudgetExceeded { corrupt(error.message()) } else { error }
}

/// Reads a decoder to its end, growing with what really comes, to at most `limit_bytes`.
pub(crate) fn read_to_limit(decoder: impl Read, limit_bytes: u64) -> Result<Vec<u8>> {
    let mut decoded = Vec::new();
    let mut bounded = decoder.take(limit_bytes.saturating_add(1));
    bounded.read_to_end(&mut decoded).map_err(|error| corrupt(error.to_string()))?;
    match decoded.len() as u64 > limit_bytes {
        true => Err(above_limit("more", limit_bytes)),
        false => Ok(decoded),
    }
}

/// Reads exactly `decoded.len()` bytes from a decoder and then its end.
pub(crate) fn read_exactly(mut decoder: impl Read, decoded: &mut [u8]) -> Result<()> {
    let mut filled = 0;
    while filled < decoded.len() {
        match decoder.read(&mut decoded[filled..]).map_err(|error| corrupt(error.to_string()))? {
            0 => return expect_size(filled, decoded.len()),
            count => filled += count,
        }
    }
    match decoder.read(&mut [0]).map_err(|error| corrupt(error.to_string()))? {
        0 => Ok(()),
        _ => Err(corrupt(format!("decodes to more than the expected {filled} bytes"))),
    }
}
