//! Traits of codecs that run on the host: one trait for each kind, such as array→array and bytes→bytes codecs.

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

/// The reason that is given why the host decodes a codec, unless the codec has a reason of its own.
pub const ON_HOST: &str = "decoded on the host in this version";

/// A bytes→bytes codec: a compressor, a checksum or a shuffle.
pub trait BytesToBytes: Send + Sync + fmt::Debug {
    /// The codec's Zarr v3 name, for messages.
    fn name(&self) -> &str;

    /// The size of a chunk after encoding, if `decoded` is its size before, as far as it is known.
    fn encoded_size(&self, decoded: Size) -> Size;

    /// Decodes to exactly `decoded.len()` bytes; a frame of another decoded size is an error.
    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()>;

    /// Decodes a frame into `decoded`, of which only the bytes in the range `wanted` must be right afterwards. Other
    /// parts may be skipped if a frame's parts can be decoded alone. The content of the other bytes is then
    /// unspecified. Returns the number of bytes that were decoded. Frames with a checksum of all bytes are decoded
    /// whole.
    fn decode_part_into(&self, encoded: &[u8], decoded: &mut [u8], wanted: Range<usize>) -> Result<usize> {
        let _ = wanted;
        self.decode_into(encoded, decoded)?;
        Ok(decoded.len())
    }

    /// Decodes a frame of unknown decoded size; the error is `BudgetExceeded` if it has more than `limit_bytes`.
    fn decode(&self, encoded: &[u8], limit_bytes: u64) -> Result<Vec<u8>>;

    /// Whether decoding verifies a checksum of all encoded bytes.
    fn has_checksum(&self) -> bool {
        false
    }

    /// Checks the encoded bytes, and returns the decoded bytes as a slice of them, without a copy. `None` for codecs
    /// that change bytes.
    fn view<'a>(&self, encoded: &'a [u8]) -> Option<Result<&'a [u8]>> {
        let _ = encoded;
        None
    }

    /// Encodes the bytes `decoded` of a chunk, and returns the encoded bytes.
    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>>;

    /// The kernels that decode this codec's frames, if there are any.
    fn device_decoder(&self) -> Option<&'static dyn DeviceDecoder> {
        None
    }

    /// Why the host decodes this codec, if there are no kernels for it.
    fn host_reason(&self) -> &'static str {
        ON_HOST
    }

    /// The kernels that encode chunks of this size, if there are any.
    fn device_encoder(&self, decoded_bytes: usize) -> Option<Arc<dyn DeviceEncoder>> {
        let _ = decoded_bytes;
        None
    }

    /// The step by which a device decodes many chunks at once, for codecs without frames. `decoded` is the size in
    /// bytes.
    fn native(&self, decoded: Size) -> Option<Step> {
        let _ = decoded;
        None
    }

    /// How elements can be copied from encoded bytes directly to the array (by the tail), for codecs that only move
    /// bytes. `decoded` is the size in bytes.
    fn packing(&self, decoded: u64) -> Option<Packing> {
        let _ = decoded;
        None
    }
}

/// How much of an array→array codec is done by the tail, the last copy of elements from a decoded chunk to the array.
#[derive(Clone, Debug, PartialEq)]
pub enum TailPart {
    /// The copy of elements to the array (the tail) does no part of the codec; the host runs it, for this reason.
    Host(&'static str),
    /// The copy of elements to the array (the tail) does the whole codec, which only reorders dimensions: encoded
    /// dimension `i` is decoded dimension `axes[i]`.
    Axes(Vec<usize>),
    /// The copy of elements to the array (the tail) does the whole codec, which changes elements one by one. Reading
    /// steps turn encoded into decoded elements, in order; writing steps the other way.
    Steps {
        /// Steps that turn an encoded element into a decoded one, in order.
        read: Vec<ElementStep>,
        /// Steps that turn a decoded element into an encoded one, in order.
        write: Vec<ElementStep>,
    },
    /// The copy of elements to the array (the tail) does the whole codec, which encodes each element as one bit. A pass
    /// checks the header before the bits.
    Bits(PackedBits),
}

/// A codec that encodes arrays to arrays, such as a filter. Arrays are elements in native byte order, C order, without
/// gaps.
pub trait ArrayToArray: Send + Sync + fmt::Debug {
    /// The codec's Zarr v3 name, for messages.
    fn name(&self) -> &str;

    /// The shape, data type and fill value of the array after encoding.
    fn encoded_spec(&self) -> &ChunkSpec;

    /// Decodes the encoded array of a whole chunk into `decoded`.
    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()>;

    /// Encodes the decoded array of a whole chunk into `encoded`; `encoded` has the size of the array after encoding.
    fn encode_into(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()>;

    /// Whether decoding leaves all bytes as they are.
    fn decodes_to_itself(&self) -> bool {
        false
    }

    /// The steps by which a device decodes many chunks at once, if the copy of elements to the array (the tail) cannot
    /// do the codec.
    fn native(&self) -> Option<Vec<Step>> {
        None
    }

    /// The decoding steps whose inverses encode on a device, if they work for all elements. They may differ from the
    /// steps of [`ArrayToArray::native`].
    fn native_undone(&self) -> Option<Vec<Step>> {
        None
    }

    /// The conversion of each element by which a device encodes, for codecs whose decoding steps cannot be inverted. It
    /// replaces each element, or reports one that cannot be encoded; the host then says what is wrong.
    fn native_encoding(&self) -> Option<Conversion> {
        None
    }

    /// How much of this codec is done by the tail, the last copy of elements from a decoded chunk to the array.
    fn tail(&self) -> TailPart {
        TailPart::Host("needs whole chunks")
    }
}

/// A codec that encodes an array of fixed-size elements to bytes.
pub trait ArrayToBytes: Send + Sync + fmt::Debug {
    /// The codec's Zarr v3 name, for messages.
    fn name(&self) -> &str;

    /// The size of a chunk's encoded bytes, as far as it is known.
    fn encoded_size(&self) -> Size;

    /// Decodes the encoded bytes of a whole chunk to elements in native byte order.
    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()>;

    /// Encodes the elements of a whole chunk, and returns the encoded bytes.
    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>>;

    /// The kernels that decode chunks of this codec, if there are any.
    fn device_decoder(&self) -> Option<FrameDecoder> {
        None
    }

    /// Why the host decodes this codec, if there are no kernels for it.
    fn host_reason(&self) -> &'static str {
        ON_HOST
    }

    /// The steps by which a device decodes many chunks at once, for codecs whose encoded bytes are neither frames nor
    /// plain elements.
    fn native(&self) -> Option<Vec<Step>> {
        None
    }

    /// The steps that turn stored elements into native ones, for codecs that store elements one by one in some byte
    /// order.
    fn steps(&self) -> Option<Vec<ElementStep>> {
        None
    }
}

/// A codec that encodes an array of variable-length elements to bytes.
pub trait VariableToBytes: Send + Sync + fmt::Debug {
    /// The codec's Zarr v3 name, for messages.
    fn name(&self) -> &str;

    /// Decodes a chunk of `count` variable-length elements.
    fn decode(&self, encoded: &[u8], count: u64) -> Result<VariableElements>;

    /// Encodes a chunk of variable-length elements.
    fn encode(&self, elements: &VariableElements) -> Result<Vec<u8>>;
}
