//! Eight booleans to a byte.

use crate::Result;
use crate::codec::ChunkSpec;
use crate::codec::contract::{ArrayToArray, TailPart, corrupt, expect_encoded_size};

/// The first byte, and how many bytes of bits follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bits of the last byte that are padding.
    pub padding: u8,
    /// Bytes behind the header.
    pub bits_bytes: usize,
}

impl Header {
    /// The header of `count` booleans.
    pub(crate) fn of(count: usize) -> Header {
        let bits_bytes = count.div_ceil(8);
        Header { padding: (bits_bytes * 8 - count) as u8, bits_bytes }
    }

    /// The bits behind the header, which must be what metadata says.
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

    /// The header and the bits.
    pub(crate) fn put_before(&self, bits: &[u8]) -> Vec<u8> {
        [&[self.padding], bits].concat()
    }
}

#[derive(Debug)]
pub(super) struct PackBits {
    pub(super) header: Header,
    pub(super) encoded: ChunkSpec,
}

impl ArrayToArray for PackBits {
    fn name(&self) -> &str {
        super::NAME
    }

    fn encoded_spec(&self) -> &ChunkSpec {
        &self.encoded
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        let bits = self.header.check(encoded)?;
        for (booleans, byte) in decoded.chunks_mut(8).zip(bits) {
            for (position, boolean) in booleans.iter_mut().enumerate() {
                *boolean = byte >> (7 - position) & 1;
            }
        }
        Ok(())
    }

    fn encode_into(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()> {
        expect_encoded_size(encoded.len(), self.header.bits_bytes + 1)?;
        encoded[0] = self.header.padding;
        for (booleans, byte) in decoded.chunks(8).zip(&mut encoded[1..]) {
            let bit = |(position, boolean): (usize, &u8)| u8::from(*boolean != 0) << (7 - position);
            *byte = booleans.iter().enumerate().map(bit).sum();
        }
        Ok(())
    }

    fn tail(&self) -> TailPart {
        TailPart::Bits(self.header)
    }
}
