//! Codes the coefficients of a zfp block as bit planes, from the highest plane down.
//!
//! ```text
//! n = 0
//! for each plane x, while there are bits left:
//!     the n lowest bits of x, as they are
//!     while n < size:
//!         one bit: is any bit of x from n on set? If not, the plane is done
//!         the bits of x from n on, up to the first that is set; n = the place after it
//! ```
//!
//! If only the last coefficient's bit can be the next one set, its 1 is not stored. A block ends when its bits are used
//! up.
//! <https://zfp.readthedocs.io/en/latest/algorithm.html#lossy-compression>, steps 6 to 8.

use super::bits::{BitReader, BitWriter};

/// Maximum number of coefficients in a zfp block: 4 along each of 4 dimensions.
pub(super) const MOST_VALUES: usize = 256;

/// One bit of each coefficient, all of the same weight.
type Plane = [u64; MOST_VALUES / 64];

/// Which bit planes of a zfp block are coded, and in how many bits.
#[derive(Clone, Copy)]
pub(super) struct PlaneExtent {
    /// Number of bits of each coefficient of a zfp block.
    pub(super) width: u32,
    /// Maximum number of bit planes of a zfp block that are coded.
    pub(super) planes: u32,
    /// Maximum number of bits that all bit planes of a zfp block together are coded in.
    pub(super) most_bits: u32,
}

/// Transposes rows of bits: bit `i` of row `j` becomes bit `j` of row `i`.
fn transpose(rows: &mut [u64; 64]) {
    let (mut distance, mut mask) = (32, u64::MAX >> 32);
    while distance > 0 {
        for row in (0..64).filter(|row| row & distance == 0) {
            let swapped = (rows[row] >> distance ^ rows[row + distance]) & mask;
            rows[row] ^= swapped << distance;
            rows[row + distance] ^= swapped;
        }
        distance /= 2;
        mask ^= mask << distance;
    }
}

/// The bits of a zfp block's coefficients, with one row for each bit plane or for each coefficient. There are `PARTS`
/// times 64 coefficients. If there are fewer, `PARTS` is 0, and planes are built one by one from `few`.
struct Planes<const PARTS: usize> {
    rows: [[u64; 64]; PARTS],
    few: [u64; 16],
}

impl<const PARTS: usize> Planes<PARTS> {
    const NONE: Planes<PARTS> = Planes { rows: [[0; 64]; PARTS], few: [0; 16] };

    fn of(coefficients: &[u64]) -> Planes<PARTS> {
        let mut planes = Planes::NONE;
        match PARTS {
            0 => planes.few[..coefficients.len()].copy_from_slice(coefficients),
            _ => {
                planes.rows.iter_mut().zip(coefficients.chunks(64)).for_each(|(rows, part)| rows.copy_from_slice(part))
            }
        }
        planes.rows.iter_mut().for_each(transpose);
        planes
    }

    fn get(&self, bit: u32) -> Plane {
        let mut plane = Plane::default();
        match PARTS {
            0 => plane[0] = self.few.iter().rev().fold(0, |word, one| word << 1 | (one >> bit & 1)),
            _ => plane.iter_mut().zip(&self.rows).for_each(|(word, rows)| *word = rows[bit as usize]),
        }
        plane
    }

    fn put(&mut self, bit: u32, plane: Plane) {
        match PARTS {
            0 => self.few.iter_mut().enumerate().for_each(|(at, one)| *one |= (plane[0] >> at & 1) << bit),
            _ => self.rows.iter_mut().zip(plane).for_each(|(rows, word)| rows[bit as usize] = word),
        }
    }

    fn into_coefficients(mut self, coefficients: &mut [u64]) {
        self.rows.iter_mut().for_each(transpose);
        match PARTS {
            0 => coefficients.copy_from_slice(&self.few[..coefficients.len()]),
            _ => coefficients.chunks_mut(64).zip(&self.rows).for_each(|(part, rows)| part.copy_from_slice(rows)),
        }
    }
}

/// Returns the index of the first set bit from bit `from` on.
fn first_set(plane: &Plane, from: u32) -> Option<u32> {
    let first = from as usize / 64;
    let masks = [u64::MAX << (from % 64)].into_iter().chain(std::iter::repeat(u64::MAX));
    let mut words = plane.iter().zip(0..).skip(first).zip(masks);
    words.find_map(|((word, at), mask): ((_, u32), _)| {
        let word = word & mask;
        (word != 0).then(|| 64 * at + word.trailing_zeros())
    })
}

/// Divides the first `count` bits of a plane into parts of up to 64 bits. Returns the number of each part, and how many
/// bits it has.
fn parts(count: u32) -> impl Iterator<Item = (usize, u32)> {
    (0..count.div_ceil(64)).map(move |part| (part as usize, (count - 64 * part).min(64)))
}

/// Codes the bit planes of coefficients, and returns the number of bits written.
pub(super) fn encode(writer: &mut BitWriter, extent: PlaneExtent, coefficients: &[u64]) -> u32 {
    match coefficients.len() / 64 {
        0 => encode_parts::<0>(writer, extent, coefficients),
        1 => encode_parts::<1>(writer, extent, coefficients),
        _ => encode_parts::<4>(writer, extent, coefficients),
    }
}

fn encode_parts<const PARTS: usize>(writer: &mut BitWriter, extent: PlaneExtent, coefficients: &[u64]) -> u32 {
    let PlaneExtent { width, planes, most_bits } = extent;
    let (size, coefficients) = (coefficients.len() as u32, Planes::<PARTS>::of(coefficients));
    let (mut left, mut known) = (most_bits, 0);
    for bit in (width.saturating_sub(planes)..width).rev() {
        if left == 0 {
            break;
        }
        let plane = coefficients.get(bit);
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

/// Decodes the bit planes of coefficients, and returns the number of bits read.
pub(super) fn decode(reader: &mut BitReader<'_>, extent: PlaneExtent, coefficients: &mut [u64]) -> u32 {
    match coefficients.len() / 64 {
        0 => decode_parts::<0>(reader, extent, coefficients),
        1 => decode_parts::<1>(reader, extent, coefficients),
        _ => decode_parts::<4>(reader, extent, coefficients),
    }
}

fn decode_parts<const PARTS: usize>(reader: &mut BitReader<'_>, extent: PlaneExtent, coefficients: &mut [u64]) -> u32 {
    let PlaneExtent { width, planes, most_bits } = extent;
    let (size, mut found) = (coefficients.len() as u32, Planes::<PARTS>::NONE);
    let (mut left, mut known) = (most_bits, 0);
    for bit in (width.saturating_sub(planes)..width).rev() {
        if left == 0 {
            break;
        }
        let mut plane = Plane::default();
        let verbatim = known.min(left);
        for (part, bits) in parts(verbatim) {
            plane[part] = reader.read(bits);
        }
        left -= verbatim;
        while left > 0 && known < size {
            left -= 1;
            if reader.read(1) == 0 {
                break;
            }
            let (zeros, is_found) = reader.zeros(left.min(size - 1 - known));
            left -= zeros + u32::from(is_found);
            known += zeros;
            plane[known as usize / 64] |= 1 << (known % 64);
            known += 1;
        }
        found.put(bit, plane);
    }
    found.into_coefficients(coefficients);
    most_bits - left
}
