//! Packs eight booleans into each byte, on the host, and unpacks them.

use crate::Result;
use crate::codec::ChunkSpec;
use crate::codec::damage::expect_encoded_size;
use crate::codec::host::{ArrayToArray, TailPart};
use crate::codec::step::PackedBits;

#[derive(Debug)]
pub(super) struct PackBits {
    pub(super) header: PackedBits,
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
