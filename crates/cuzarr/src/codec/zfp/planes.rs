//! Coefficients as bit planes, from the highest one down.
//!
//! ```text
//! n = 0
//! for each plane x, while there are bits left:
//!     the n lowest bits of x, as they are
//!     while n < size:
//!         one bit: is any bit of x from n on set? If not, the plane is done
//!         the bits of x from n on, up to the first that is set; n = the place behind it
//! ```
//!
//! That the last coefficient's bit is set, when no other is, needs no bit. A block ends wherever its bits end.
//! <https://zfp.readthedocs.io/en/latest/algorithm.html#lossy-compression>, steps 6 to 8.

use super::bits::{BitReader, BitWriter};

/// The most coefficients of a block.
pub(super) const MOST_VALUES: usize = 256;

/// A bit for each coefficient.
type Plane = [u64; MOST_VALUES / 64];

/// Which planes of a block are coded, and in how many bits.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    /// Bits of a coefficient.
    pub(super) width: u32,
    /// At most so many planes.
    pub(super) planes: u32,
    /// In at most so many bits.
    pub(super) most_bits: u32,
}

fn plane_of(coefficients: &[u64], bit: u32) -> Plane {
    let mut plane = Plane::default();
    for (word, coefficients) in plane.iter_mut().zip(coefficients.chunks(64)) {
        *word = coefficients.iter().enumerate().fold(0, |word, (at, one)| word | (one >> bit & 1) << at);
    }
    plane
}

/// The place of the first bit that is set, from `from` on.
fn first_set(plane: &Plane, from: u32) -> Option<u32> {
    let first = from as usize / 64;
    let masks = [u64::MAX << (from % 64)].into_iter().chain(std::iter::repeat(u64::MAX));
    let mut words = plane.iter().zip(0..).skip(first).zip(masks);
    words.find_map(|((word, at), mask): ((_, u32), _)| {
        let word = word & mask;
        (word != 0).then(|| 64 * at + word.trailing_zeros())
    })
}

/// Parts of up to 64 bits of the first `count` ones: number of the part, and its bits.
fn parts(count: u32) -> impl Iterator<Item = (usize, u32)> {
    (0..count.div_ceil(64)).map(move |part| (part as usize, (count - 64 * part).min(64)))
}

/// Writes coefficients; gives the number of bits that took.
pub(super) fn encode(writer: &mut BitWriter, extent: Extent, coefficients: &[u64]) -> u32 {
    let Extent { width, planes, most_bits } = extent;
    let size = coefficients.len() as u32;
    let (mut left, mut known) = (most_bits, 0);
    for bit in (width.saturating_sub(planes)..width).rev() {
        if left == 0 {
            break;
        }
        let plane = plane_of(coefficients, bit);
        let verbatim = known.min(left);
        for (part, bits) in parts(verbatim) {
            writer.write(plane[part] & (u64::MAX >> (64 - bits)), bits);
        }
        left -= verbatim;
        while left > 0 && known < size {
            left -= 1;
            let next = first_set(&plane, known);
            writer.write(u64::from(next.is_some()), 1);
            let Some(next) = next else { break };
            let limit = left.min(size - 1 - known);
            let zeros = (next - known).min(limit);
            writer.write_zeros(zeros);
            if zeros < limit {
                writer.write(1, 1);
                left -= 1;
            }
            left -= zeros;
            known += zeros + 1;
        }
    }
    most_bits - left
}

/// Reads coefficients; gives the number of bits that took.
pub(super) fn decode(reader: &mut BitReader<'_>, extent: Extent, coefficients: &mut [u64]) -> u32 {
    let Extent { width, planes, most_bits } = extent;
    let size = coefficients.len() as u32;
    coefficients.fill(0);
    let (mut left, mut known) = (most_bits, 0);
    for bit in (width.saturating_sub(planes)..width).rev() {
        if left == 0 {
            break;
        }
        let verbatim = known.min(left);
        for (part, bits) in parts(verbatim) {
            let mut set = reader.read(bits);
            while set != 0 {
                coefficients[64 * part + set.trailing_zeros() as usize] |= 1 << bit;
                set &= set - 1;
            }
        }
        left -= verbatim;
        while left > 0 && known < size {
            left -= 1;
            if reader.read(1) == 0 {
                break;
            }
            let (zeros, found) = reader.zeros(left.min(size - 1 - known));
            left -= zeros + u32::from(found);
            known += zeros;
            coefficients[known as usize] |= 1 << bit;
            known += 1;
        }
    }
    most_bits - left
}
