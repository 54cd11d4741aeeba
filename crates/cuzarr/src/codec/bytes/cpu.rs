//! Changes the byte order of elements: reverses the bytes of each unit in them, such as a number or a code point.

use std::borrow::Cow;

use cuzarr_device::ElementStep;

use crate::Result;
use crate::codec::damage::expect_encoded_size;
use crate::codec::host::ArrayToBytes;
use crate::codec::size::Size;
use crate::meta::SwapUnit;

#[derive(Debug)]
pub(crate) struct Bytes {
    pub(super) size_bytes: usize,
    pub(super) element_bytes: usize,
    /// Where in each element the groups of bytes lie that are reversed, such as the numbers of a structure.
    pub(super) units: Vec<SwapUnit>,
    /// Number of bytes that are reversed together, if it is the same in the whole element; 1 if nothing is reversed.
    pub(crate) uniform: Option<usize>,
}

/// Reverses every group of `unit_bytes` bytes.
pub(crate) fn swap(bytes: &mut [u8], unit_bytes: usize) {
    match unit_bytes {
        0 | 1 => {}
        2 => bytes
            .as_chunks_mut::<2>()
            .0
            .iter_mut()
            .for_each(|unit| *unit = u16::from_ne_bytes(*unit).swap_bytes().to_ne_bytes()),
        4 => bytes
            .as_chunks_mut::<4>()
            .0
            .iter_mut()
            .for_each(|unit| *unit = u32::from_ne_bytes(*unit).swap_bytes().to_ne_bytes()),
        8 => bytes
            .as_chunks_mut::<8>()
            .0
            .iter_mut()
            .for_each(|unit| *unit = u64::from_ne_bytes(*unit).swap_bytes().to_ne_bytes()),
        _ => bytes.chunks_exact_mut(unit_bytes).for_each(<[u8]>::reverse),
    }
}

impl Bytes {
    /// Reverses the bytes of every unit in each element of `bytes`.
    pub(crate) fn swap(&self, bytes: &mut [u8]) {
        match self.uniform {
            Some(unit_bytes) => swap(bytes, unit_bytes),
            None => bytes.chunks_exact_mut(self.element_bytes.max(1)).for_each(|element| {
                for SwapUnit { offset, unit_bytes, count } in &self.units {
                    swap(&mut element[*offset..offset + unit_bytes * count], *unit_bytes);
                }
            }),
        }
    }
}

impl ArrayToBytes for Bytes {
    fn name(&self) -> &str {
        "bytes"
    }

    fn encoded_size(&self) -> Size {
        Size::Exact(self.size_bytes as u64)
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        expect_encoded_size(encoded.len(), decoded.len())?;
        decoded.copy_from_slice(encoded);
        self.swap(decoded);
        Ok(())
    }

    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        let mut encoded = decoded.into_owned();
        self.swap(&mut encoded);
        Ok(encoded)
    }

    fn steps(&self) -> Option<Vec<ElementStep>> {
        match self.uniform? {
            0 | 1 => Some(Vec::new()),
            unit_bytes => Some(vec![ElementStep::SwapBytes { unit_bytes }]),
        }
    }
}
