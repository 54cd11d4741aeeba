//! The steps by which a device does one codec's work. Codecs return them as values; [`native`](super::native) runs
//! them.

use std::ops::Range;

use cuzarr_device::internal::bits::Fields;
use cuzarr_device::internal::checksum::Checksum;
use cuzarr_device::internal::convert::Conversion;
use cuzarr_device::{DType, Packing, Tail};

use super::damage::{corrupt, expect_encoded_size};
use super::device::FrameDecoder;
use crate::Result;

/// Bytes of a checksum, for all checksum codecs.
pub(crate) const CHECKSUM_BYTES: usize = 4;

/// One step of decoding on a device, which does a codec or a part of one.
#[derive(Clone, Debug)]
pub enum Step {
    /// Decodes one frame for each chunk.
    Decode {
        /// The kernels that decode the frames.
        decoder: FrameDecoder,
        /// The exact number of bytes that a frame decodes to.
        decoded_bytes: usize,
    },
    /// Verifies a checksum at the start or the end of the bytes.
    Check {
        /// The kind of checksum that is verified.
        checksum: Checksum,
        /// Where the checksum stands: at the start or the end of the encoded bytes.
        location: Location,
    },
    /// Checks that the byte at the start or the end of the encoded bytes is the expected one.
    Header {
        /// The value that the byte at the start or the end of the encoded bytes must have.
        expected: u8,
        /// Where the byte stands: at the start or the end of the encoded bytes.
        location: Location,
    },
    /// Undoes a byte shuffle, so that the bytes of each unit lie together again.
    Unshuffle {
        /// Number of bytes that are shuffled as one unit: in most cases, the size of an element.
        unit_bytes: usize,
    },
    /// Changes elements one by one, or transposes the axes of a chunk.
    Map(Map),
    /// Replaces each element by the sum of all elements up to it.
    Sum(DType),
    /// Expands numbers that are stored in a few bits each into whole elements.
    Unpack {
        /// Which bits of each element are packed.
        fields: Fields,
        /// The number of elements in a chunk.
        len: usize,
    },
    /// Converts each element exactly to another type, and reports chunks that have an element that cannot be converted.
    Convert {
        /// How each element is converted.
        conversion: Conversion,
        /// The number of elements in a chunk.
        len: usize,
    },
}

/// A copy of all elements of a chunk that changes the elements or their order.
#[derive(Clone, Debug)]
pub struct Map {
    /// How elements are packed in the input, and the steps by which each element is changed.
    pub tail: Tail,
    /// The shape of the chunk after the step.
    pub shape: Vec<usize>,
    /// For each dimension of the output, how far neighbours are apart in the input, in elements.
    pub packed_strides: Vec<isize>,
}

impl Map {
    /// Makes a map of `len` elements that changes elements but keeps their order.
    pub(crate) fn flat(tail: Tail, len: usize) -> Map {
        Map { tail, shape: vec![len], packed_strides: vec![1] }
    }

    pub(super) fn packed_bytes(&self) -> usize {
        let len = self.shape.iter().product::<usize>();
        match self.tail.packing {
            Packing::Bits => len.div_ceil(8),
            _ => len * self.tail.packed.size_bytes(),
        }
    }

    pub(super) fn decoded_bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.tail.dtype.size_bytes()
    }
}

impl Step {
    /// Whether this step and `other` do the same work on a chunk. Sizes may differ.
    pub(crate) fn is_like(&self, other: &Step) -> bool {
        match (self, other) {
            (Step::Decode { decoder, .. }, Step::Decode { decoder: other, .. }) => decoder.is_like(other),
            (Step::Check { checksum, location }, Step::Check { checksum: other, location: place }) => {
                (checksum, location) == (other, place)
            }
            (Step::Header { location, .. }, Step::Header { location: other, .. }) => location == other,
            (Step::Unshuffle { unit_bytes }, Step::Unshuffle { unit_bytes: other }) => unit_bytes == other,
            (Step::Sum(dtype), Step::Sum(other)) => dtype == other,
            (Step::Convert { conversion, .. }, Step::Convert { conversion: other, .. }) => conversion == other,
            // Each kind of chunks has launches of its own.
            (Step::Map(_), Step::Map(_)) | (Step::Unpack { .. }, Step::Unpack { .. }) => true,
            _ => false,
        }
    }

    /// Whether the step only checks the bytes and leaves them where they are.
    pub(crate) fn looks(&self) -> bool {
        matches!(self, Step::Check { .. } | Step::Header { .. })
    }
}

/// Where a checksum or another header stands: before or after the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// The checksum or header stands before the data.
    Start,
    /// The checksum or header stands after the data.
    End,
}

impl Location {
    /// Returns the range of the data, given the number of bytes of data and checksum together. `len` is at least
    /// [`CHECKSUM_BYTES`].
    pub(crate) fn payload(self, len: usize) -> Range<usize> {
        self.split(CHECKSUM_BYTES, len).0
    }

    /// Returns the range of the data, and where the header begins, given the number of bytes of both together.
    pub(crate) fn split(self, header_bytes: usize, len: usize) -> (Range<usize>, usize) {
        match self {
            Location::Start => (header_bytes..len, 0),
            Location::End => (0..len - header_bytes, len - header_bytes),
        }
    }
}

/// The layout of packed booleans: a first byte that counts the padding bits, then the bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedBits {
    /// Number of bits of the last byte that are padding.
    pub padding: u8,
    /// Number of bytes after the first one, which hold the bits.
    pub bits_bytes: usize,
}

impl PackedBits {
    /// Makes the layout of `count` packed booleans.
    pub(crate) fn of(count: usize) -> PackedBits {
        let bits_bytes = count.div_ceil(8);
        PackedBits { padding: (bits_bytes * 8 - count) as u8, bits_bytes }
    }

    /// Checks the header against metadata, and returns the bits after it.
    pub(crate) fn check<'a>(&self, encoded: &'a [u8]) -> Result<&'a [u8]> {
        expect_encoded_size(encoded.len(), self.bits_bytes + 1)?;
        match encoded.split_first() {
            Some((&padding, bits)) if padding == self.padding => Ok(bits),
            _ => {
                let got = encoded.first().copied().unwrap_or_default();
                Err(corrupt(format!("byte 0: the header says {got} bits of padding, expected {}", self.padding)))
            }
        }
    }

    /// Returns the header byte, followed by the packed booleans `bits`.
    pub(crate) fn put_before(&self, bits: &[u8]) -> Vec<u8> {
        [&[self.padding], bits].concat()
    }
}
