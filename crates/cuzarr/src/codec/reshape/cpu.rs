//! Gives a chunk another shape, on the host, without moving its elements.

use crate::Result;
use crate::codec::ChunkSpec;
use crate::codec::damage::expect_encoded_size;
use crate::codec::host::ArrayToArray;

#[derive(Debug)]
pub(super) struct Reshape {
    pub(super) encoded: ChunkSpec,
}

impl ArrayToArray for Reshape {
    fn name(&self) -> &str {
        "reshape"
    }

    fn encoded_spec(&self) -> &ChunkSpec {
        &self.encoded
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        expect_encoded_size(encoded.len(), decoded.len())?;
        decoded.copy_from_slice(encoded);
        Ok(())
    }

    fn encode_into(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()> {
        expect_encoded_size(encoded.len(), decoded.len())?;
        encoded.copy_from_slice(decoded);
        Ok(())
    }
}
