//! Shuffles the bytes of elements on the host (the first bytes of all elements, then the second ones), and undoes it.
//!
//! ```text
//! shuffled[plane * count + i] = plain[i * unit + plane]      for i in 0..count, plane in 0..unit
//! ```
//! Bytes that do not fill a unit follow unchanged.

use std::borrow::Cow;

use cuzarr_device::Packing;
use cuzarr_device::internal::cpu::shuffle::{shuffle, unshuffle};

use crate::Result;
use crate::codec::damage::{above_limit, corrupt, expect_encoded_size, unencodable};
use crate::codec::host::BytesToBytes;
use crate::codec::native::Step;
use crate::codec::size::Size;

#[derive(Debug)]
pub(super) struct Shuffle {
    pub(super) unit_bytes: usize,
}

impl BytesToBytes for Shuffle {
    fn name(&self) -> &str {
        "numcodecs.shuffle"
    }

    fn encoded_size(&self, decoded: Size) -> Size {
        decoded
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        expect_encoded_size(encoded.len(), decoded.len())?;
        if !decoded.len().is_multiple_of(self.unit_bytes) {
            return Err(corrupt(format!("{} bytes are not whole units of {}", decoded.len(), self.unit_bytes)));
        }
        Ok(unshuffle(encoded, decoded, self.unit_bytes)?)
    }

    fn decode(&self, encoded: &[u8], limit_bytes: u64) -> Result<Vec<u8>> {
        if encoded.len() as u64 > limit_bytes {
            return Err(above_limit(encoded.len(), limit_bytes));
        }
        let mut decoded = vec![0; encoded.len()];
        self.decode_into(encoded, &mut decoded)?;
        Ok(decoded)
    }

    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        if !decoded.len().is_multiple_of(self.unit_bytes) {
            return Err(unencodable(format!("{} bytes are not whole units of {}", decoded.len(), self.unit_bytes)));
        }
        let mut encoded = vec![0; decoded.len()];
        shuffle(&decoded, &mut encoded, self.unit_bytes)?;
        Ok(encoded)
    }

    fn native(&self, decoded: Size) -> Option<Step> {
        let whole = decoded.bound().is_some_and(|bytes| bytes.is_multiple_of(self.unit_bytes as u64));
        whole.then_some(Step::Unshuffle { unit_bytes: self.unit_bytes })
    }

    fn packing(&self, decoded: u64) -> Option<Packing> {
        match self.unit_bytes {
            0 | 1 => Some(Packing::Plain),
            unit_bytes if decoded.is_multiple_of(unit_bytes as u64) => Some(Packing::Shuffled { unit_bytes }),
            _ => None,
        }
    }
}
