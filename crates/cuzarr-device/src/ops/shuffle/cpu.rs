//! Byte swaps, byte shuffles and bit shuffles on host bytes.

use crate::error::{Error, Result};
use crate::ops::lanes;

/// Reverses the bytes of every unit (group) of `unit_bytes` bytes, in place, as a change of byte order does. Bytes that
/// do not fill a unit are unchanged.
pub fn swap_bytes(bytes: &mut [u8], unit_bytes: usize) {
    fn swap<const N: usize>(bytes: &mut [u8]) {
        for unit in bytes.as_chunks_mut::<N>().0 {
            unit.reverse();
        }
    }
    match unit_bytes {
        0 | 1 => (),
        2 => swap::<2>(bytes),
        4 => swap::<4>(bytes),
        8 => swap::<8>(bytes),
        16 => swap::<16>(bytes),
        _ => bytes.chunks_exact_mut(unit_bytes).for_each(<[u8]>::reverse),
    }
}

/// Shuffles bytes as HDF5 and Blosc do: first the first bytes of all units, then all second bytes, and so on. Bytes
/// that do not fill a unit follow unchanged.
///
/// # Errors
/// `InvalidArgument` when the lengths differ or the unit is empty.
pub fn shuffle(source: &[u8], target: &mut [u8], unit_bytes: usize) -> Result<()> {
    check(source, target, unit_bytes)?;
    shuffle_part(source, 0, unit_bytes, target);
    Ok(())
}

/// Puts bytes that [`shuffle`] shuffled back into their original order.
///
/// # Errors
/// Those of [`shuffle`].
pub fn unshuffle(source: &[u8], target: &mut [u8], unit_bytes: usize) -> Result<()> {
    check(source, target, unit_bytes)?;
    unshuffle_part(source, 0, unit_bytes, target);
    Ok(())
}

fn check(source: &[u8], target: &[u8], unit_bytes: usize) -> Result<()> {
    if source.len() != target.len() || unit_bytes == 0 {
        let (from, to) = (source.len(), target.len());
        return Err(Error::invalid(format!("cannot shuffle {from} bytes into {to} in units of {unit_bytes} bytes")));
    }
    Ok(())
}

/// Index, among `size_bytes` shuffled bytes, of the byte that has index `at` before shuffling.
fn shuffled_index(at: usize, size_bytes: usize, unit_bytes: usize) -> usize {
    let units = size_bytes / unit_bytes;
    if at < units * unit_bytes { at % unit_bytes * units + at / unit_bytes } else { at }
}

/// For `len` unshuffled bytes from index `at`: the number of bytes before the first whole unit, and the number in whole
/// units.
fn split(at: usize, len: usize, size_bytes: usize, unit_bytes: usize) -> (usize, usize) {
    let head = (at.next_multiple_of(unit_bytes) - at).min(len);
    let units_end = size_bytes / unit_bytes * unit_bytes;
    let whole = (at + len).min(units_end).saturating_sub(at + head) / unit_bytes * unit_bytes;
    (head, whole)
}

/// Fills `target` with a part of a shuffled chunk, unshuffled: the bytes from index `at` of the unshuffled chunk on.
pub(crate) fn unshuffle_part(chunk: &[u8], at: usize, unit_bytes: usize, target: &mut [u8]) {
    let (head, whole) = split(at, target.len(), chunk.len(), unit_bytes);
    let units = chunk.len() / unit_bytes;
    let first = (at + head) / unit_bytes;
    for index in (0..head).chain(head + whole..target.len()) {
        target[index] = chunk[shuffled_index(at + index, chunk.len(), unit_bytes)];
    }
    let target = &mut target[head..head + whole];
    if target.is_empty() {
        return;
    }
    let plane = |byte: usize| &chunk[byte * units + first..][..whole / unit_bytes];
    match unit_bytes {
        1 => target.copy_from_slice(plane(0)),
        2 => interleave(std::array::from_fn::<_, 2, _>(plane), target),
        4 => interleave(std::array::from_fn::<_, 4, _>(plane), target),
        8 => interleave(std::array::from_fn::<_, 8, _>(plane), target),
        16 => interleave_vectors(std::array::from_fn::<_, 16, _>(plane), target),
        _ => {
            for byte in 0..unit_bytes {
                for (unit, &value) in target.chunks_exact_mut(unit_bytes).zip(plane(byte)) {
                    unit[byte] = value;
                }
            }
        }
    }
}

/// Shuffles the part `source` of a chunk into the shuffled `chunk`. `source` begins at index `at` of the unshuffled
/// chunk.
pub(crate) fn shuffle_part(source: &[u8], at: usize, unit_bytes: usize, chunk: &mut [u8]) {
    // SAFETY: a slice borrowed for writing is memory that may be written, and does not overlap `source`.
    unsafe { shuffle_part_into(source, at, unit_bytes, chunk.as_mut_ptr(), chunk.len()) }
}

/// Like [`shuffle_part`], for a chunk whose other bytes may be written by other threads.
///
/// # Safety
/// `chunk` points to `chunk_bytes` writable bytes, `at + source.len() <= chunk_bytes`, and the two do not overlap.
pub(crate) unsafe fn shuffle_part_into(
    source: &[u8],
    at: usize,
    unit_bytes: usize,
    chunk: *mut u8,
    chunk_bytes: usize,
) {
    let (head, whole) = split(at, source.len(), chunk_bytes, unit_bytes);
    let units = chunk_bytes / unit_bytes;
    let first = (at + head) / unit_bytes;
    for index in (0..head).chain(head + whole..source.len()) {
        // SAFETY: shuffling permutes the indexes below `chunk_bytes`.
        unsafe { *chunk.add(shuffled_index(at + index, chunk_bytes, unit_bytes)) = source[index] };
    }
    let source = &source[head..head + whole];
    if source.is_empty() {
        return;
    }
    // SAFETY: whole units' planes lie inside the chunk.
    let plane = |byte: usize| unsafe { chunk.add(byte * units + first) };
    // SAFETY: the caller promises that the chunk holds all bytes of whole units. So every plane has room for one byte
    // of each unit.
    unsafe {
        match unit_bytes {
            1 => std::ptr::copy_nonoverlapping(source.as_ptr(), plane(0), source.len()),
            2 => deinterleave::<2>(source, plane),
            4 => deinterleave::<4>(source, plane),
            8 => deinterleave::<8>(source, plane),
            16 => deinterleave::<16>(source, plane),
            _ => {
                // A block of units at a time, so that the source is read from the cache for every plane.
                for (number, part) in source.chunks(BLOCK_UNITS * unit_bytes).enumerate() {
                    for byte in 0..unit_bytes {
                        let plane = plane(byte).add(number * BLOCK_UNITS);
                        for (at, unit) in part.chunks_exact(unit_bytes).enumerate() {
                            *plane.add(at) = unit[byte];
                        }
                    }
                }
            }
        }
    }
}

/// Number of units (elements of `unit_bytes` bytes) that are shuffled or bit-shuffled together.
const BLOCK_UNITS: usize = 1024;

/// Splits units of `N` bytes into `N` planes: plane `k` gets byte `k` of every unit. `plane` gives the first address of
/// a plane.
///
/// # Safety
/// Each plane has room for one byte of every unit, and overlaps neither another plane nor the source.
unsafe fn deinterleave<const N: usize>(source: &[u8], plane: impl Fn(usize) -> *mut u8) {
    let planes: [*mut u8; N] = std::array::from_fn(plane);
    let units = source.as_chunks::<N>().0;
    let (blocks, rest) = units.as_chunks::<16>();
    for (number, block) in blocks.iter().enumerate() {
        let bytes = block.as_flattened();
        let vectors: [lanes::Vector; N] = std::array::from_fn(|at| lanes::load(&bytes[at * 16..]));
        for (plane, row) in planes.iter().zip(lanes::units_to_planes::<N>(vectors)) {
            // SAFETY: the caller promises room for a byte of every unit; 16 of them begin here.
            unsafe { plane.add(number * 16).cast::<lanes::Vector>().write(row) };
        }
    }
    for (index, unit) in rest.iter().enumerate() {
        for (plane, &byte) in planes.iter().zip(unit) {
            // SAFETY: the caller promises room for a byte of every unit, these last ones, too.
            unsafe { *plane.add(blocks.len() * 16 + index) = byte };
        }
    }
}

/// Defines a function that is also compiled for AVX2, and runs that version if the processor has AVX2. The same source
/// is then twice as fast.
macro_rules! widest {
    ($(#[$doc:meta])* fn $name:ident<const $N:ident: usize>($($argument:ident: $type:ty),*) = $body:ident) => {
        $(#[$doc])*
        fn $name<const $N: usize>($($argument: $type),*) {
            #[cfg(target_arch = "x86_64")]
            if std::is_x86_feature_detected!("avx2") {
                #[target_feature(enable = "avx2")]
                fn wide<const $N: usize>($($argument: $type),*) {
                    $body::<$N>($($argument),*);
                }
                // SAFETY: the processor has what `wide` is compiled for.
                unsafe { wide::<$N>($($argument),*) };
                return;
            }
            $body::<$N>($($argument),*);
        }
    };
}

widest! {
    /// Interleaves planes: writes the first byte of every plane, then the second byte of every plane, and so on.
    fn interleave<const N: usize>(planes: [&[u8]; N], target: &mut [u8]) = interleave_tiles
}

/// Like [`interleave`], but with vectors, for numbers of planes that the compiler does not vectorise well.
fn interleave_vectors<const N: usize>(planes: [&[u8]; N], target: &mut [u8]) {
    let (units, _) = target.as_chunks_mut::<N>();
    let count = units.len();
    let whole = count / 16;
    for block in 0..whole {
        let rows = planes.map(|plane| lanes::load(&plane[block * 16..]));
        for (at, vector) in lanes::planes_to_units::<N>(rows).iter().enumerate() {
            units[block * 16..(block + 1) * 16].as_flattened_mut()[at * 16..(at + 1) * 16].copy_from_slice(vector);
        }
    }
    for index in whole * 16..count {
        units[index] = std::array::from_fn(|byte| planes[byte][index]);
    }
}

/// Number of units whose planes are read together, so that all planes stay in the cache.
const TILE_UNITS: usize = 256;

/// Number of rows of eight elements whose bits are shuffled together.
const TILE_ROWS: usize = 128;

#[inline(always)]
fn interleave_tiles<const N: usize>(planes: [&[u8]; N], target: &mut [u8]) {
    for (tile, units) in target.as_chunks_mut::<N>().0.chunks_mut(TILE_UNITS).enumerate() {
        let part = |plane: usize| &planes[plane][tile * TILE_UNITS..][..units.len()];
        if N == 8 {
            interleave_eight::<TILE_UNITS>(std::array::from_fn(part), units.as_flattened_mut());
            continue;
        }
        let planes: [&[u8]; N] = std::array::from_fn(part);
        for (index, unit) in units.iter_mut().enumerate() {
            *unit = std::array::from_fn(|plane| planes[plane][index]);
        }
    }
}

/// Interleaves eight planes of at most `MOST` bytes, in two halves of four. Compilers vectorise four planes and a zip,
/// but not eight planes.
#[inline(always)]
fn interleave_eight<const MOST: usize>(planes: [&[u8]; 8], target: &mut [u8]) {
    let (mut low, mut high) = ([[0_u8; 4]; MOST], [[0_u8; 4]; MOST]);
    let units = target.as_chunks_mut::<8>().0;
    for (index, half) in low[..units.len()].iter_mut().enumerate() {
        *half = std::array::from_fn(|plane| planes[plane][index]);
    }
    for (index, half) in high[..units.len()].iter_mut().enumerate() {
        *half = std::array::from_fn(|plane| planes[4 + plane][index]);
    }
    for ((unit, low), high) in units.iter_mut().zip(&low).zip(&high) {
        *unit = (u64::from(u32::from_le_bytes(*low)) | u64::from(u32::from_le_bytes(*high)) << 32).to_le_bytes();
    }
}

/// Shuffles bits as bitshuffle and Blosc 1 do. First comes bit 0 of byte 0 of all elements (eight elements a byte,
/// the first in the lowest bit), then bit 1, and so on. Only the largest multiple of 8 elements is shuffled. The
/// elements behind it, and bytes that fill no element, follow unchanged.
///
/// # Errors
/// Those of [`shuffle`].
pub fn bitshuffle(source: &[u8], target: &mut [u8], unit_bytes: usize) -> Result<()> {
    check(source, target, unit_bytes)?;
    let whole = source.len() / unit_bytes / 8 * 8 * unit_bytes;
    target[whole..].copy_from_slice(&source[whole..]);
    match unit_bytes {
        1 => bitshuffle_fixed::<1>(&source[..whole], &mut target[..whole]),
        2 => bitshuffle_fixed::<2>(&source[..whole], &mut target[..whole]),
        4 => bitshuffle_fixed::<4>(&source[..whole], &mut target[..whole]),
        8 => bitshuffle_fixed::<8>(&source[..whole], &mut target[..whole]),
        _ => bitshuffle_any(&source[..whole], &mut target[..whole], unit_bytes),
    }
    Ok(())
}

widest! {
    /// [`bitshuffle`] for whole rows of eight elements, of `N` bytes each.
    fn bitshuffle_fixed<const N: usize>(source: &[u8], target: &mut [u8]) = bitshuffle_tiles
}

/// Shuffles bits tile by tile, as the inverse of [`bitunshuffle_tiles`].
#[inline(always)]
fn bitshuffle_tiles<const N: usize>(source: &[u8], target: &mut [u8]) {
    let rows = source.len() / N / 8;
    let mut plane = [0_u8; TILE_ROWS * 8];
    for (tile, source) in source.chunks(TILE_ROWS * 8 * N).enumerate() {
        let units = source.len() / N;
        for byte in 0..N {
            for (value, unit) in plane.iter_mut().zip(source.as_chunks::<N>().0) {
                *value = unit[byte];
            }
            for bits in plane[..units].as_chunks_mut::<8>().0 {
                *bits = transpose_bits(u64::from_le_bytes(*bits)).to_le_bytes();
            }
            for bit in 0..8 {
                let row = &mut target[(byte * 8 + bit) * rows + tile * TILE_ROWS..][..units / 8];
                for (value, bits) in row.iter_mut().zip(plane.as_chunks::<8>().0) {
                    *value = bits[bit];
                }
            }
        }
    }
}

/// [`bitshuffle`] for whole rows of eight elements of any size.
fn bitshuffle_any(source: &[u8], target: &mut [u8], unit_bytes: usize) {
    let rows = source.len() / unit_bytes / 8;
    let (mut planes, mut bits) = (vec![0; BLOCK_UNITS * unit_bytes], [0; BLOCK_UNITS]);
    for (number, block) in source.chunks(BLOCK_UNITS * unit_bytes).enumerate() {
        let units = block.len() / unit_bytes;
        let planes = &mut planes[..block.len()];
        shuffle_part(block, 0, unit_bytes, planes);
        for (byte, plane) in planes.chunks_exact_mut(units).enumerate() {
            transpose_all_bits(plane);
            let bits = &mut bits[..units];
            shuffle_part(plane, 0, 8, bits);
            for (bit, row) in bits.chunks_exact(units / 8).enumerate() {
                let at = (byte * 8 + bit) * rows + number * (BLOCK_UNITS / 8);
                target[at..at + row.len()].copy_from_slice(row);
            }
        }
    }
}

/// Puts bits that [`bitshuffle`] shuffled back into their original order.
///
/// # Errors
/// Those of [`shuffle`].
pub fn bitunshuffle(source: &[u8], target: &mut [u8], unit_bytes: usize) -> Result<()> {
    check(source, target, unit_bytes)?;
    let whole = source.len() / unit_bytes / 8 * 8 * unit_bytes;
    target[whole..].copy_from_slice(&source[whole..]);
    match unit_bytes {
        1 => bitunshuffle_fixed::<1>(&source[..whole], &mut target[..whole]),
        2 => bitunshuffle_fixed::<2>(&source[..whole], &mut target[..whole]),
        4 => bitunshuffle_fixed::<4>(&source[..whole], &mut target[..whole]),
        8 => bitunshuffle_fixed::<8>(&source[..whole], &mut target[..whole]),
        _ => bitunshuffle_any(&source[..whole], &mut target[..whole], unit_bytes),
    }
    Ok(())
}

widest! {
    /// [`bitunshuffle`] for whole rows of eight elements, of `N` bytes each.
    fn bitunshuffle_fixed<const N: usize>(source: &[u8], target: &mut [u8]) = bitunshuffle_tiles
}

/// Reverses a bit shuffle tile by tile: makes the plane of each byte from its eight rows of bits, then interleaves the
/// planes.
#[inline(always)]
fn bitunshuffle_tiles<const N: usize>(source: &[u8], target: &mut [u8]) {
    let rows = target.len() / N / 8;
    let mut planes = [[0_u8; TILE_ROWS * 8]; N];
    for (tile, target) in target.chunks_mut(TILE_ROWS * 8 * N).enumerate() {
        let units = target.len() / N;
        for (byte, plane) in planes.iter_mut().enumerate() {
            let row = |bit: usize| &source[(byte * 8 + bit) * rows + tile * TILE_ROWS..][..units / 8];
            interleave_eight::<TILE_ROWS>(std::array::from_fn(row), &mut plane[..units]);
            for bits in plane[..units].as_chunks_mut::<8>().0 {
                *bits = transpose_bits(u64::from_le_bytes(*bits)).to_le_bytes();
            }
        }
        let planes: [&[u8]; N] = std::array::from_fn(|byte| &planes[byte][..units]);
        interleave_tiles(planes, target);
    }
}

/// [`bitunshuffle`] for whole rows of eight elements of any size.
fn bitunshuffle_any(source: &[u8], target: &mut [u8], unit_bytes: usize) {
    let rows = source.len() / unit_bytes / 8;
    let (mut planes, mut bits) = (vec![0; BLOCK_UNITS * unit_bytes], [0; BLOCK_UNITS]);
    for (number, block) in target.chunks_mut(BLOCK_UNITS * unit_bytes).enumerate() {
        let units = block.len() / unit_bytes;
        let planes = &mut planes[..block.len()];
        for (byte, plane) in planes.chunks_exact_mut(units).enumerate() {
            let bits = &mut bits[..units];
            for (bit, row) in bits.chunks_exact_mut(units / 8).enumerate() {
                let at = (byte * 8 + bit) * rows + number * (BLOCK_UNITS / 8);
                row.copy_from_slice(&source[at..at + units / 8]);
            }
            unshuffle_part(bits, 0, 8, plane);
            transpose_all_bits(plane);
        }
        unshuffle_part(planes, 0, unit_bytes, block);
    }
}

/// Transposes every 8 bytes as an 8×8 matrix of bits, one byte per row.
fn transpose_all_bits(bytes: &mut [u8]) {
    for bytes in bytes.as_chunks_mut::<8>().0 {
        *bytes = transpose_bits(u64::from_le_bytes(*bytes)).to_le_bytes();
    }
}

/// Transposes an 8×8 matrix of bits, one byte per row (Warren, Hacker's Delight, 7-3).
#[inline(always)]
fn transpose_bits(mut bits: u64) -> u64 {
    for (shift, mask) in [(7, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0x0000_0000_f0f0_f0f0)] {
        let moved = (bits ^ (bits >> shift)) & mask;
        bits ^= moved ^ (moved << shift);
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 37 + at / 5) as u8).collect()
    }

    #[test]
    fn swapping_reverses_whole_units_only() {
        for unit in [1, 2, 3, 4, 8, 16] {
            let plain = bytes(unit * 5 + 1);
            let mut swapped = plain.clone();
            swap_bytes(&mut swapped, unit);
            for (at, &byte) in swapped.iter().enumerate() {
                let from = if at < unit * 5 { at / unit * unit + unit - 1 - at % unit } else { at };
                assert_eq!(byte, plain[from], "unit {unit}, byte {at}");
            }
        }
    }

    #[test]
    fn shuffling_puts_equal_bytes_of_units_together() {
        for unit in [1, 2, 3, 4, 7, 8, 16, 20] {
            for len in [0, 1, unit - 1, unit, 3 * unit + 1, 40 * unit, 1030 * unit + unit / 2] {
                let plain = bytes(len);
                let mut shuffled = vec![0; len];
                shuffle(&plain, &mut shuffled, unit).unwrap();
                for at in 0..len {
                    assert_eq!(shuffled[shuffled_index(at, len, unit)], plain[at], "unit {unit}, byte {at} of {len}");
                }
                let mut back = vec![0; len];
                unshuffle(&shuffled, &mut back, unit).unwrap();
                assert_eq!(back, plain, "unit {unit}, {len} bytes");
            }
        }
        assert!(shuffle(&[0], &mut [0], 0).is_err() && unshuffle(&[0], &mut [], 1).is_err());
    }

    #[test]
    fn parts_of_a_shuffled_chunk_unshuffle_alone() {
        for unit in [2, 3, 4, 8, 16] {
            let plain = bytes(unit * 70 + 1);
            let mut shuffled = vec![0; plain.len()];
            shuffle(&plain, &mut shuffled, unit).unwrap();
            for (at, len) in [(0, 5), (1, 200), (unit - 1, unit + 2), (unit * 60, unit * 10 + 1), (plain.len(), 0)] {
                let len = len.min(plain.len() - at);
                let mut part = vec![0; len];
                unshuffle_part(&shuffled, at, unit, &mut part);
                assert_eq!(part, plain[at..at + len], "unit {unit}, {len} bytes from {at}");
            }
        }
    }

    #[test]
    fn bit_shuffling_gathers_one_bit_of_eight_elements_in_a_byte() {
        for unit in [1, 2, 4, 5, 8, 16] {
            for elements in [0, 7, 8, 16, 27, 1024, 3003] {
                let plain = bytes(elements * unit + unit - 1);
                let mut shuffled = vec![0; plain.len()];
                bitshuffle(&plain, &mut shuffled, unit).unwrap();
                let whole = elements / 8 * 8;
                for (element, bit) in (0..whole).flat_map(|element| (0..unit * 8).map(move |bit| (element, bit))) {
                    let expected = plain[element * unit + bit / 8] >> (bit % 8) & 1;
                    let got = shuffled[bit * (whole / 8) + element / 8] >> (element % 8) & 1;
                    assert_eq!(got, expected, "unit {unit}, element {element} of {elements}, bit {bit}");
                }
                assert_eq!(shuffled[whole * unit..], plain[whole * unit..]);
                let mut back = vec![0; plain.len()];
                bitunshuffle(&shuffled, &mut back, unit).unwrap();
                assert_eq!(back, plain);
            }
        }
    }
}
