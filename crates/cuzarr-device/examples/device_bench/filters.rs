//! Checksums and running sums.

use cuzarr_device::internal::checksum::{Checksum, compute};
use cuzarr_device::internal::delta::{Chunk, accumulate_on};
use cuzarr_device::internal::pool;
use cuzarr_device::{Buffer, DType, Result};

use super::{Bench, noise};

/// Bytes whose answer is computed on the host, too.
const CHECKED_BYTES: usize = 16 << 20;

fn crc(polynomial: u32, bytes: &[u8]) -> u32 {
    let entry = |byte| (0..8).fold(byte, |crc: u32, _| crc >> 1 ^ if crc & 1 == 1 { polynomial } else { 0 });
    let table: Vec<u32> = (0..256).map(entry).collect();
    !bytes.iter().fold(u32::MAX, |crc, byte| table[(crc as u8 ^ byte) as usize] ^ crc >> 8)
}

/// Two sums modulo `modulus` from `start` on, for data whose sums are never a multiple of it.
fn sums(start: u64, modulus: u64, values: impl Iterator<Item = u64>) -> u32 {
    let (first, second) = values.fold((start, 0), |(first, second), value| {
        let first = (first + value) % modulus;
        (first, (second + first) % modulus)
    });
    (second << 16 | first) as u32
}

fn expected(checksum: Checksum, bytes: &[u8]) -> u32 {
    match checksum {
        Checksum::Crc32c => crc(0x82f6_3b78, bytes),
        Checksum::Crc32 => crc(0xedb8_8320, bytes),
        Checksum::Adler32 => sums(1, 65521, bytes.iter().map(|&byte| byte.into())),
        // An odd last byte is the upper half of a word.
        Checksum::Fletcher32 => {
            let word = |word: &[u8]| u64::from(word[0]) << 8 | word.get(1).map_or(0, |&low| u64::from(low));
            sums(0, 65535, bytes.chunks(2).map(word))
        }
    }
}

pub(super) fn checksums(bench: &mut Bench) -> Result<()> {
    let bytes = noise(bench.options.bytes);
    let frames = [("64 KiB", 64 << 10), ("1 MiB", 1 << 20), ("8 MiB", 8 << 20), ("64 MiB", 64 << 20)];
    for checksum in [Checksum::Crc32c, Checksum::Crc32, Checksum::Adler32, Checksum::Fletcher32] {
        for (size, frame_bytes) in frames {
            for (count, what) in [(bytes.len() / frame_bytes, "many"), (1, "one")] {
                let name = format!("checksum {checksum:?}, {what} of {size}");
                if count == 0 || bytes.len() < frame_bytes || !bench.wants(&name) {
                    continue;
                }
                let data = Buffer::from_bytes(bench.options.device, &bytes[..count * frame_bytes])?;
                // Away from all alignment, as frames in a slab are.
                let ranges: Vec<_> = (0..count).map(|at| at * frame_bytes + at % 7..(at + 1) * frame_bytes).collect();
                let mut got = Vec::new();
                let time = bench.time(|stream| {
                    got = compute(checksum, &data, &ranges, stream)?;
                    Ok(())
                })?;
                let checked = (CHECKED_BYTES / frame_bytes).max(1);
                let verified = ranges.iter().zip(&got).take(checked);
                let verified =
                    verified.fold(true, |all, (range, &got)| all && got == expected(checksum, &bytes[range.clone()]));
                bench.record(name, count * frame_bytes, count * frame_bytes, time, verified);
            }
        }
    }
    Ok(())
}

/// Small integers, so that sums of floats are exact in any order.
fn steps(dtype: DType, bytes: usize) -> Vec<u8> {
    let steps = noise(bytes / dtype.size_bytes()).into_iter().map(|byte| byte as i8 / 32);
    match (dtype, dtype.size_bytes()) {
        (DType::FLOAT32, _) => steps.flat_map(|step| f32::from(step).to_ne_bytes()).collect(),
        (_, 2) => steps.flat_map(|step| i16::from(step).to_ne_bytes()).collect(),
        (_, 4) => steps.flat_map(|step| i32::from(step).to_ne_bytes()).collect(),
        _ => steps.flat_map(|step| i64::from(step).to_ne_bytes()).collect(),
    }
}

fn summed(dtype: DType, bytes: &[u8]) -> Vec<u8> {
    macro_rules! sum {
        ($type:ty) => {{
            let elements = bytes.as_chunks().0.iter().map(|element| <$type>::from_ne_bytes(*element));
            elements
                .scan(Default::default(), |sum: &mut $type, step| {
                    *sum += step;
                    Some(*sum)
                })
                .flat_map(<$type>::to_ne_bytes)
                .collect()
        }};
    }
    match (dtype, dtype.size_bytes()) {
        (DType::FLOAT32, _) => sum!(f32),
        (_, 2) => sum!(i16),
        (_, 4) => sum!(i32),
        _ => sum!(i64),
    }
}

pub(super) fn running_sums(bench: &mut Bench) -> Result<()> {
    for dtype in [DType::INT16, DType::INT32, DType::INT64, DType::FLOAT32] {
        for (size, chunk_bytes) in [("16 KiB", 16 << 10), ("1 MiB", 1 << 20), ("64 MiB", 64 << 20)] {
            let name = format!("delta {dtype}, chunks of {size}");
            let count = bench.options.bytes / chunk_bytes;
            if count == 0 || !bench.wants(&name) {
                continue;
            }
            let bytes = steps(dtype, count * chunk_bytes);
            let source = Buffer::from_bytes(bench.options.device, &bytes)?;
            let target = pool::allocate_on(bench.options.device, bytes.len())?;
            let chunk = |at: usize| Chunk {
                src_offset_bytes: at * chunk_bytes,
                dst_offset_bytes: at * chunk_bytes,
                size_bytes: chunk_bytes,
            };
            let chunks: Vec<Chunk> = (0..count).map(chunk).collect();
            let time = bench.time(|stream| accumulate_on(dtype, &source, &target, &chunks, stream))?;
            let got = target.to_vec()?;
            let verified =
                got.chunks(chunk_bytes).zip(bytes.chunks(chunk_bytes)).all(|(got, chunk)| got == summed(dtype, chunk));
            bench.record(name, bytes.len(), 2 * bytes.len(), time, verified);
        }
    }
    Ok(())
}
