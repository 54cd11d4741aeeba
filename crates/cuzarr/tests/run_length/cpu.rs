//! Runs on the host.

use std::borrow::Cow;
use std::sync::Arc;

use cuzarr::internal::codec::device::{DeviceDecoder, DeviceEncoder};
use cuzarr::internal::codec::{BytesToBytes, Size};
use cuzarr::{Error, ErrorKind, Result};

use super::cuda;

pub(super) const NAME: &str = "test.run_length";

#[derive(Debug)]
pub(super) struct RunLength;

impl BytesToBytes for RunLength {
    fn name(&self) -> &str {
        NAME
    }

    fn encoded_size(&self, decoded: Size) -> Size {
        decoded.compressed()
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        let bytes = self.decode(encoded, decoded.len() as u64)?;
        if bytes.len() != decoded.len() {
            let message = format!("decodes to {} bytes, expected {}", bytes.len(), decoded.len());
            return Err(Error::new(ErrorKind::ChunkCorrupt, message));
        }
        decoded.copy_from_slice(&bytes);
        Ok(())
    }

    fn decode(&self, encoded: &[u8], limit_bytes: u64) -> Result<Vec<u8>> {
        let damaged = |at: usize| Error::new(ErrorKind::ChunkCorrupt, format!("byte {at}: no run"));
        let mut decoded = Vec::new();
        for (index, run) in encoded.chunks(2).enumerate() {
            let &[count, byte] = run else { return Err(damaged(2 * index)) };
            if count == 0 {
                return Err(damaged(2 * index));
            }
            if decoded.len() as u64 + u64::from(count) > limit_bytes {
                return Err(Error::new(ErrorKind::BudgetExceeded, format!("more than {limit_bytes} bytes")));
            }
            decoded.resize(decoded.len() + usize::from(count), byte);
        }
        Ok(decoded)
    }

    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        let runs = decoded.chunk_by(|one, next| one == next).flat_map(|run| run.chunks(255));
        Ok(runs.flat_map(|run| [run.len() as u8, run[0]]).collect())
    }

    fn device_decoder(&self) -> Option<&'static dyn DeviceDecoder> {
        Some(&cuda::Decoder)
    }

    fn device_encoder(&self, decoded_bytes: usize) -> Option<Arc<dyn DeviceEncoder>> {
        Some(Arc::new(cuda::Encoder { chunk_bytes: decoded_bytes }))
    }
}
