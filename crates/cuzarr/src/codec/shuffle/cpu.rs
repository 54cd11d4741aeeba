//! Byte planes to elements and back.
//!
//! ```text
//! shuffled[plane * count + i] = plain[i * unit + plane]      for i in 0..count, plane in 0..unit
//! ```
//! Bytes that do not fill a unit follow unchanged.

use std::borrow::Cow;

use cuzarr_device::Packing;

use crate::Result;
use crate::codec::contract::{BytesToBytes, Size, corrupt, expect_encoded_size, unencodable};

#[derive(Debug)]
pub(super) struct Shuffle {
    pub(super) unit_bytes: usize,
}

/// Units whose planes are read or written together: they stay in the first-level cache.
const TILE_UNITS: usize = 512;

/// Undoes [`shuffle`]. Both slices have the same length.
pub(crate) fn unshuffle(shuffled: &[u8], plain: &mut [u8], unit_bytes: usize) {
    match unit_bytes {
        0 | 1 => plain.copy_from_slice(shuffled),
        2 => unshuffle_fixed::<2>(shuffled, plain),
        4 => unshuffle_fixed::<4>(shuffled, plain),
        8 => unshuffle_fixed::<8>(shuffled, plain),
        _ => unshuffle_any(shuffled, plain, unit_bytes),
    }
}

/// Byte planes of `plain`. Both slices have the same length.
pub(crate) fn shuffle(plain: &[u8], shuffled: &mut [u8], unit_bytes: usize) {
    match unit_bytes {
        0 | 1 => shuffled.copy_from_slice(plain),
        2 => shuffle_fixed::<2>(plain, shuffled),
        4 => shuffle_fixed::<4>(plain, shuffled),
        8 => shuffle_fixed::<8>(plain, shuffled),
        _ => shuffle_any(plain, shuffled, unit_bytes),
    }
}

fn unshuffle_fixed<const UNIT: usize>(shuffled: &[u8], plain: &mut [u8]) {
    let count = plain.len() / UNIT;
    let (units, rest) = plain.as_chunks_mut::<UNIT>();
    rest.copy_from_slice(&shuffled[count * UNIT..]);
    let planes: [&[u8]; UNIT] = std::array::from_fn(|plane| &shuffled[plane * count..][..count]);
    for (tile, units) in units.chunks_mut(TILE_UNITS).enumerate() {
        let planes: [&[u8]; UNIT] = planes.map(|plane| &plane[tile * TILE_UNITS..][..units.len()]);
        for (i, unit) in units.iter_mut().enumerate() {
            *unit = std::array::from_fn(|plane| planes[plane][i]);
        }
    }
}

fn shuffle_fixed<const UNIT: usize>(plain: &[u8], shuffled: &mut [u8]) {
    let count = plain.len() / UNIT;
    let (units, rest) = plain.as_chunks::<UNIT>();
    shuffled[count * UNIT..].copy_from_slice(rest);
    for (plane, out) in shuffled[..count * UNIT].chunks_exact_mut(count.max(1)).enumerate() {
        for (byte, unit) in out.iter_mut().zip(units) {
            *byte = unit[plane];
        }
    }
}

fn unshuffle_any(shuffled: &[u8], plain: &mut [u8], unit_bytes: usize) {
    let count = plain.len() / unit_bytes;
    let whole = count * unit_bytes;
    plain[whole..].copy_from_slice(&shuffled[whole..]);
    for (tile, units) in plain[..whole].chunks_mut(TILE_UNITS * unit_bytes).enumerate() {
        let length = units.len() / unit_bytes;
        for plane in 0..unit_bytes {
            let bytes = &shuffled[plane * count + tile * TILE_UNITS..][..length];
            units[plane..].iter_mut().step_by(unit_bytes).zip(bytes).for_each(|(out, &byte)| *out = byte);
        }
    }
}

fn shuffle_any(plain: &[u8], shuffled: &mut [u8], unit_bytes: usize) {
    let count = plain.len() / unit_bytes;
    let whole = count * unit_bytes;
    shuffled[whole..].copy_from_slice(&plain[whole..]);
    for (tile, units) in plain[..whole].chunks(TILE_UNITS * unit_bytes).enumerate() {
        let length = units.len() / unit_bytes;
        for plane in 0..unit_bytes {
            let bytes = &mut shuffled[plane * count + tile * TILE_UNITS..][..length];
            units[plane..].iter().step_by(unit_bytes).zip(bytes).for_each(|(&byte, out)| *out = byte);
        }
    }
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
        unshuffle(encoded, decoded, self.unit_bytes);
        Ok(())
    }

    fn decode(&self, encoded: &[u8], limit_bytes: u64) -> Result<Vec<u8>> {
        if encoded.len() as u64 > limit_bytes {
            return Err(corrupt(format!("got {} bytes, at most {limit_bytes} are allowed", encoded.len())));
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
        shuffle(&decoded, &mut encoded, self.unit_bytes);
        Ok(encoded)
    }

    fn packing(&self, decoded: u64) -> Option<Packing> {
        match self.unit_bytes {
            0 | 1 => Some(Packing::Plain),
            unit_bytes if decoded.is_multiple_of(unit_bytes as u64) => Some(Packing::Shuffled { unit_bytes }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_follow_the_definition_for_every_unit_and_tail() {
        for unit in 1..=17 {
            for length in [0, 1, unit - 1, unit, 7 * unit + unit / 2, 1031 * unit + 1] {
                let plain: Vec<u8> = (0..length).map(|i| (i * 7 + i / 251) as u8).collect();
                let count = length / unit;
                let mut expected = plain.clone();
                (0..count * unit).for_each(|at| expected[at % unit * count + at / unit] = plain[at]);
                let mut shuffled = vec![0xee; length];
                shuffle(&plain, &mut shuffled, unit);
                assert_eq!(shuffled, expected, "unit {unit}, length {length}");
                let mut back = vec![0xee; length];
                unshuffle(&shuffled, &mut back, unit);
                assert_eq!(back, plain, "unit {unit}, length {length}");
            }
        }
    }
}
