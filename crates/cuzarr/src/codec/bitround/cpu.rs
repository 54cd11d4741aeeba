//! Rounding in integer arithmetic (M. Klöwer et al., 2021).

use crate::Result;
use crate::codec::ChunkSpec;
use crate::codec::contract::{ArrayToArray, TailPart, expect_encoded_size};

#[derive(Debug)]
pub(super) struct BitRound {
    /// Bits of the mantissa that become zero.
    pub(super) dropped: u32,
    pub(super) element_bytes: usize,
    pub(super) encoded: ChunkSpec,
}

macro_rules! round {
    ($type:ty, $dropped:expr, $bytes:expr) => {{
        let dropped = $dropped;
        let half: $type = (1 << (dropped - 1)) - 1;
        for element in $bytes.as_chunks_mut::<{ size_of::<$type>() }>().0 {
            let bits = <$type>::from_ne_bytes(*element);
            let rounded = bits.wrapping_add((bits >> dropped & 1) + half) >> dropped << dropped;
            *element = rounded.to_ne_bytes();
        }
    }};
}

impl ArrayToArray for BitRound {
    fn name(&self) -> &str {
        "bitround"
    }

    fn encoded_spec(&self) -> &ChunkSpec {
        &self.encoded
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        expect_encoded_size(encoded.len(), decoded.len())?;
        decoded.copy_from_slice(encoded);
        Ok(())
    }

    fn decodes_to_itself(&self) -> bool {
        true
    }

    fn encode_into(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()> {
        expect_encoded_size(encoded.len(), decoded.len())?;
        encoded.copy_from_slice(decoded);
        match (self.dropped, self.element_bytes) {
            (0, _) => {}
            (dropped, 2) => round!(u16, dropped, encoded),
            (dropped, 4) => round!(u32, dropped, encoded),
            (dropped, _) => round!(u64, dropped, encoded),
        }
        Ok(())
    }

    fn tail(&self) -> TailPart {
        TailPart::Host("rounds on the host when writing")
    }
}
