//! Bit shuffle: bit `k` of byte `b` of every element becomes one run of bits, least significant first.
//!
//! ```text
//! bit (i % 8) of shuffled[(b * 8 + k) * count / 8 + i / 8] = bit k of plain[i * unit + b]      for i in 0..count
//! ```
//! The layout is bitshuffle's (K. Masui et al., 2015) as c-blosc 1 uses it: only for a count that is a multiple of 8;
//! otherwise, and for bytes that do not fill an element, bytes are copied.

/// Transposes an 8 × 8 matrix of bits whose row `r` is byte `r`: three rounds of swapping half-size blocks
/// (H. Warren, Hacker's Delight, 7-3).
fn transpose(mut bits: u64) -> u64 {
    for (distance, mask) in [(7, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0x0000_0000_f0f0_f0f0)] {
        let moved = (bits ^ (bits >> distance)) & mask;
        bits ^= moved ^ (moved << distance);
    }
    bits
}

/// How many bytes take part in the shuffle.
fn shuffled_bytes(size: usize, unit_bytes: usize) -> usize {
    let count = size / unit_bytes;
    if count.is_multiple_of(8) { count * unit_bytes } else { 0 }
}

/// Undoes [`bitshuffle`]. Both slices have the same length.
pub(super) fn bitunshuffle(shuffled: &[u8], plain: &mut [u8], unit_bytes: usize) {
    let whole = shuffled_bytes(plain.len(), unit_bytes);
    plain[whole..].copy_from_slice(&shuffled[whole..]);
    let groups = whole / unit_bytes / 8;
    if groups == 0 {
        return;
    }
    for byte in 0..unit_bytes {
        let rows: [&[u8]; 8] = std::array::from_fn(|bit| &shuffled[(byte * 8 + bit) * groups..][..groups]);
        for (group, elements) in plain[..whole].chunks_exact_mut(8 * unit_bytes).enumerate() {
            let bits = transpose(u64::from_le_bytes(std::array::from_fn(|bit| rows[bit][group])));
            let bytes = bits.to_le_bytes();
            elements[byte..].iter_mut().step_by(unit_bytes).zip(bytes).for_each(|(out, byte)| *out = byte);
        }
    }
}

/// Bit planes of `plain`. Both slices have the same length.
pub(super) fn bitshuffle(plain: &[u8], shuffled: &mut [u8], unit_bytes: usize) {
    let whole = shuffled_bytes(plain.len(), unit_bytes);
    shuffled[whole..].copy_from_slice(&plain[whole..]);
    let groups = whole / unit_bytes / 8;
    if groups == 0 {
        return;
    }
    for byte in 0..unit_bytes {
        for (group, elements) in plain[..whole].chunks_exact(8 * unit_bytes).enumerate() {
            let column = std::array::from_fn(|element| elements[element * unit_bytes + byte]);
            let bits = transpose(u64::from_le_bytes(column));
            for (bit, row) in bits.to_le_bytes().into_iter().enumerate() {
                shuffled[(byte * 8 + bit) * groups + group] = row;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_follow_the_definition() {
        for unit in 1..=9 {
            for length in [0, 1, 8 * unit, 8 * unit + 1, 7 * unit, 64 * unit, 72 * unit + unit / 2] {
                let plain: Vec<u8> = (0..length).map(|i| (i * 37 + i / 5) as u8).collect();
                let mut expected = plain.clone();
                let count = length / unit;
                if count % 8 == 0 {
                    expected[..count * unit].fill(0);
                    for (at, bit) in (0..count * unit).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                        let (element, byte) = (at / unit, at % unit);
                        let to = (byte * 8 + bit) * count / 8 + element / 8;
                        expected[to] |= (plain[at] >> bit & 1) << (element % 8);
                    }
                }
                let mut shuffled = vec![0xee; length];
                bitshuffle(&plain, &mut shuffled, unit);
                assert_eq!(shuffled, expected, "unit {unit}, length {length}");
                let mut back = vec![0xee; length];
                bitunshuffle(&shuffled, &mut back, unit);
                assert_eq!(back, plain, "unit {unit}, length {length}");
            }
        }
    }
}
