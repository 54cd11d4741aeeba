//! Fletcher-32 as HDF5 computes it (`H5_checksum_fletcher32`): two sums modulo 65535 over big-endian words.

/// Number of 16-bit words that are summed before both sums are folded, so that the second sum stays below 2³².
const WORDS_PER_FOLD: usize = 360;

fn fold(sum: u32) -> u32 {
    (sum & 0xffff) + (sum >> 16)
}

/// The Fletcher-32 checksum of `bytes`; an odd last byte is the upper half of a word.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    let (mut first, mut second) = (0u32, 0u32);
    let (words, odd) = bytes.as_chunks::<2>();
    for run in words.chunks(WORDS_PER_FOLD) {
        for &word in run {
            first += u32::from(u16::from_be_bytes(word));
            second += first;
        }
        (first, second) = (fold(first), fold(second));
    }
    if let [last] = odd {
        first += u32::from(*last) << 8;
        second += first;
        (first, second) = (fold(first), fold(second));
    }
    fold(second) << 16 | fold(first)
}

#[cfg(test)]
mod tests {
    #[test]
    fn sums_do_not_overflow() {
        // Largest words for longer than one fold; equals numcodecs' result.
        assert_eq!(super::checksum(&[0xff; 4000]), 0xffff_ffff);
        assert_eq!(super::checksum(&[]), 0);
    }
}
