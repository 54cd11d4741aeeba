//! Codecs on the host: small traits for each side of a chain.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use cuzarr_device::internal::convert::Conversion;
use cuzarr_device::{ElementStep, Packing};

use super::device::{DeviceDecoder, DeviceEncoder, FrameDecoder};
use super::size::Size;
use super::spec::{ChunkSpec, VariableElements};
use super::step::{PackedBits, Step};
use crate::Result;

/// The default reason why the host runs a codec.
pub const ON_HOST: &str = "decoded on the host in this version";

/// A bytes→bytes codec: a compressor, a checksum or a shuffle.
pub trait BytesToBytes: Send + Sync + fmt::Debug {
    /// The name in messages: the Zarr v3 name.
    fn name(&self) -> &str;

    /// The size of the encoded bytes.
    fn encoded_size(&self, decoded: Size) -> Size;

    /// Decodes to exactly `decoded.len()` bytes; another size is an error.
    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()>;

    /// Decodes at least the bytes `wanted` of `decoded`, if a frame's parts can be decoded alone. The content of the
    /// other bytes is then unspecified. Returns the number of bytes that were decoded. Frames with a checksum of all
    /// bytes are decoded whole.
    fn decode_part_into(&self, encoded: &[u8], decoded: &mut [u8], wanted: Range<usize>) -> Result<usize> {
        let _ = wanted;
        self.decode_into(encoded, decoded)?;
        Ok(decoded.len())
    }

    /// Decodes a frame of unknown size, to at most `limit_bytes`; a longer result is `BudgetExceeded`.
    fn decode(&self, encoded: &[u8], limit_bytes: u64) -> Result<Vec<u8>>;

    /// Whether every encoded byte is under a checksum that decoding verifies.
    fn has_checksum(&self) -> bool {
        false
    }

    /// Checks the encoded bytes and returns the decoded bytes among them, without a copy. `None` for codecs that change
    /// bytes.
    fn view<'a>(&self, encoded: &'a [u8]) -> Option<Result<&'a [u8]>> {
        let _ = encoded;
        None
    }

    /// Encodes a chunk.
    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>>;

    /// The kernels that decode this codec's frames, if there are any.
    fn device_decoder(&self) -> Option<&'static dyn DeviceDecoder> {
        None
    }

    /// Why the host decodes, when kernels do not.
    fn host_reason(&self) -> &'static str {
        ON_HOST
    }

    /// The kernels that encode chunks of this size, if there are any.
    fn device_encoder(&self, decoded_bytes: usize) -> Option<Arc<dyn DeviceEncoder>> {
        let _ = decoded_bytes;
        None
    }

    /// The step by which a device decodes whole batches, for codecs without frames. `decoded` is the size in bytes.
    fn native(&self, decoded: Size) -> Option<Step> {
        let _ = decoded;
        None
    }

    /// The packing by which a tail reads the encoded bytes, for codecs that only move bytes. `decoded` is the size in
    /// bytes.
    fn packing(&self, decoded: u64) -> Option<Packing> {
        let _ = decoded;
        None
    }
}

/// The part of an array codec's work that the tail does.
#[derive(Clone, Debug, PartialEq)]
pub enum TailPart {
    /// The tail does nothing: the codec runs on the host, for this reason.
    Host(&'static str),
    /// Encoded dimension `i` is decoded dimension `axes[i]`; elements stay as they are.
    Axes(Vec<usize>),
    /// Elements change one by one. Reading steps turn encoded into decoded elements, in order; writing steps the other way.
    Steps {
        /// Steps that turn encoded into decoded elements.
        read: Vec<ElementStep>,
        /// Steps that turn decoded into encoded elements.
        write: Vec<ElementStep>,
    },
    /// Elements become bits. A pass checks the header before the bits.
    Bits(PackedBits),
}

/// A codec between arrays. Arrays are elements in native byte order, C order, without gaps.
pub trait ArrayToArray: Send + Sync + fmt::Debug {
    /// The name in messages: the Zarr v3 name.
    fn name(&self) -> &str;

    /// The array after encoding.
    fn encoded_spec(&self) -> &ChunkSpec;

    /// Decodes a whole chunk.
    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()>;

    /// Encodes a whole chunk; `encoded` has the size of the encoded spec.
    fn encode_into(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()>;

    /// Whether decoding changes nothing.
    fn decodes_to_itself(&self) -> bool {
        false
    }

    /// The steps by which a device decodes whole batches, for codecs that a tail cannot do.
    fn native(&self) -> Option<Vec<Step>> {
        None
    }

    /// The steps that a device can undo to encode whole batches, if that works for all elements. They may differ from
    /// the steps of [`ArrayToArray::native`].
    fn native_undone(&self) -> Option<Vec<Step>> {
        None
    }

    /// The conversion by which a device can encode whole batches, for codecs whose steps cannot be undone. It replaces
    /// each element, or reports one that cannot be encoded; the host then says what is wrong.
    fn native_encoding(&self) -> Option<Conversion> {
        None
    }

    /// The part of this codec's work that a tail can do.
    fn tail(&self) -> TailPart {
        TailPart::Host("needs whole chunks")
    }
}

/// The codec from an array of fixed-size elements to bytes.
pub trait ArrayToBytes: Send + Sync + fmt::Debug {
    /// The name in messages: the Zarr v3 name.
    fn name(&self) -> &str;

    /// The size of the encoded bytes.
    fn encoded_size(&self) -> Size;

    /// Decodes a whole chunk to native byte order.
    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()>;

    /// Encodes a whole chunk.
    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>>;

    /// The kernels that decode chunks of this codec, if there are any.
    fn device_decoder(&self) -> Option<FrameDecoder> {
        None
    }

    /// Why the host decodes, when kernels do not.
    fn host_reason(&self) -> &'static str {
        ON_HOST
    }

    /// The steps by which a device decodes whole batches, for codecs whose output is neither frames nor plain elements.
    fn native(&self) -> Option<Vec<Step>> {
        None
    }

    /// The steps of reading, element by element, for codecs whose bytes are just elements in some byte order.
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
