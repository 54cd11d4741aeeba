//! A filter of v2 that views the bytes before it as another data type or in another byte order.

use super::ChunkSpec;
use super::bytes::cpu::{Bytes, swap};
use super::damage::expect_encoded_size;
use super::host::ArrayToArray;
use crate::Result;

/// A codec that views the stored bytes of elements as elements of another type.
#[derive(Debug)]
pub(super) struct Reinterpret {
    /// The byte order of the elements before they are viewed as another type.
    pub(super) before: Bytes,
    /// Bytes that are reversed together to bring the output to native byte order; 1 for none.
    pub(super) after: usize,
    pub(super) encoded: ChunkSpec,
}

impl ArrayToArray for Reinterpret {
    fn name(&self) -> &str {
        "bytes"
    }

    fn encoded_spec(&self) -> &ChunkSpec {
        &self.encoded
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        expect_encoded_size(encoded.len(), decoded.len())?;
        decoded.copy_from_slice(encoded);
        swap(decoded, self.after);
        self.before.swap(decoded);
        Ok(())
    }

    fn decodes_to_itself(&self) -> bool {
        self.after <= 1 && self.before.uniform.is_some_and(|unit_bytes| unit_bytes <= 1)
    }

    fn encode_into(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()> {
        expect_encoded_size(encoded.len(), decoded.len())?;
        encoded.copy_from_slice(decoded);
        self.before.swap(encoded);
        swap(encoded, self.after);
        Ok(())
    }
}
