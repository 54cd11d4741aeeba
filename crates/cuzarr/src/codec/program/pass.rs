//! The passes that the host runs over a whole chunk, one after the other: in most cases, one for each codec.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use crate::codec::damage::{above_bound, expect_encoded_size};
use crate::codec::host::{ArrayToArray, ArrayToBytes, BytesToBytes};
use crate::codec::size::Size;
use crate::codec::step::PackedBits;
use crate::codec::{packbits, scratch};
use crate::{Result, ResultExt};

/// One pass of the host over a whole chunk, which decodes or encodes it: in most cases, one codec.
#[derive(Clone, Debug)]
pub(crate) enum Pass {
    Bytes {
        codec: Arc<dyn BytesToBytes>,
        decoded: Size,
    },
    Serializer {
        codec: Arc<dyn ArrayToBytes>,
        decoded: usize,
    },
    Array {
        codec: Arc<dyn ArrayToArray>,
        decoded: usize,
        encoded: usize,
    },
    /// Removes or adds the first byte of the codec `packbits`, which is not possible while elements are copied to the
    /// array.
    BitsHeader(PackedBits),
}

impl Pass {
    pub(crate) fn name(&self) -> &str {
        match self {
            Pass::Bytes { codec, .. } => codec.name(),
            Pass::Serializer { codec, .. } => codec.name(),
            Pass::Array { codec, .. } => codec.name(),
            Pass::BitsHeader(_) => packbits::NAME,
        }
    }

    pub(super) fn decoded_size(&self) -> Size {
        match self {
            Pass::Bytes { decoded, .. } => *decoded,
            Pass::Serializer { decoded, .. } | Pass::Array { decoded, .. } => Size::Exact(*decoded as u64),
            Pass::BitsHeader(header) => Size::Exact(header.bits_bytes as u64),
        }
    }

    /// The encoded size of `decoded_bytes` bytes; `None` if it depends on their content.
    pub(crate) fn encoded_bytes(&self, decoded_bytes: usize) -> Option<usize> {
        match self {
            Pass::Bytes { codec, .. } => codec.encoded_size(Size::Exact(decoded_bytes as u64)).exact(),
            Pass::Serializer { codec, .. } => codec.encoded_size().exact(),
            Pass::Array { encoded, .. } => Some(*encoded),
            Pass::BitsHeader(_) => Some(decoded_bytes + 1),
        }
    }

    /// Checks the encoded bytes, and returns the decoded bytes as a slice of them, without a copy; `None` if the codec
    /// changes bytes.
    fn view<'a>(&self, encoded: &'a [u8]) -> Option<Result<&'a [u8]>> {
        match self {
            Pass::Bytes { codec, .. } => codec.view(encoded),
            Pass::BitsHeader(header) => Some(header.check(encoded)),
            Pass::Serializer { .. } | Pass::Array { .. } => None,
        }
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        match self {
            Pass::Bytes { codec, .. } => codec.decode_into(encoded, decoded),
            Pass::Serializer { codec, .. } => codec.decode_into(encoded, decoded),
            Pass::Array { codec, encoded: expected, .. } => {
                expect_encoded_size(encoded.len(), *expected)?;
                codec.decode_into(encoded, decoded)
            }
            Pass::BitsHeader(header) => {
                decoded.copy_from_slice(header.check(encoded)?);
                Ok(())
            }
        }
    }

    fn decode_part_into(&self, encoded: &[u8], decoded: &mut [u8], wanted: Range<usize>) -> Result<usize> {
        if let Pass::Bytes { codec, .. } = self {
            return codec.decode_part_into(encoded, decoded, wanted);
        }
        self.decode_into(encoded, decoded)?;
        Ok(decoded.len())
    }

    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        match self {
            Pass::Bytes { codec, .. } => codec.encode(decoded),
            Pass::Serializer { codec, .. } => codec.encode(decoded),
            Pass::Array { codec, encoded: size, .. } => {
                let mut encoded = vec![0; *size];
                codec.encode_into(&decoded, &mut encoded)?;
                Ok(encoded)
            }
            Pass::BitsHeader(header) => Ok(header.put_before(&decoded)),
        }
    }
}

/// Decodes `encoded` to `packed` by all `passes`, in order. The last pass writes to `packed`, where only the bytes
/// `wanted` must be valid. Returns the number of bytes that the last pass decoded.
pub(super) fn decode_passes(passes: &[Pass], encoded: &[u8], packed: &mut [u8], wanted: Range<usize>) -> Result<usize> {
    let Some((first, rest)) = passes.split_first() else {
        expect_encoded_size(encoded.len(), packed.len())?;
        packed.copy_from_slice(encoded);
        return Ok(packed.len());
    };
    let place = || format!("codec '{}'", first.name());
    if rest.is_empty() {
        return first.decode_part_into(encoded, packed, wanted).at(place);
    }
    if let Some(view) = first.view(encoded) {
        return decode_passes(rest, view.at(place)?, packed, wanted);
    }
    match (first.decoded_size(), first) {
        (Size::AtMost(_) | Size::Unknown, Pass::Bytes { codec, decoded }) => {
            // For elements of fixed size, metadata bounds the size of everything they are encoded to.
            let limit = decoded.bound().unwrap_or(0);
            let decoded = codec.decode(encoded, limit).map_err(above_bound).at(place)?;
            decode_passes(rest, &decoded, packed, wanted)
        }
        (size, _) => scratch::with(size.bound().unwrap_or(0) as usize, |decoded| {
            first.decode_into(encoded, decoded).at(place)?;
            decode_passes(rest, decoded, packed, wanted)
        }),
    }
}

/// Encodes `packed` by all `passes`, in order.
pub(super) fn encode_passes(passes: &[Pass], packed: &[u8]) -> Result<Vec<u8>> {
    let encoded = passes.iter().try_fold(Cow::Borrowed(packed), |decoded, pass| {
        pass.encode(decoded).map(Cow::Owned).at(|| format!("codec '{}'", pass.name()))
    })?;
    Ok(encoded.into_owned())
}
