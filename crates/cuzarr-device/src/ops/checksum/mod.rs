//! Checksums of many spans of device memory at once, by kernels: CRC-32C, CRC-32, Adler-32 and Fletcher-32.
//!
//! [`verify_on`] compares each checksum with four stored bytes, in stream order, and reports a difference in a status
//! word. [`compute`] returns the checksums. Both refuse host memory: other crates have good routines for the CPU.

pub(crate) mod cuda;

use std::ops::Range;

use crate::c_layout::c_layout;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::{defined, stated_size};
use crate::memory::buffer::Buffer;
use crate::ops::launch::require_statuses;
use crate::stream::Stream;

const HEADER: &str = include_str!("../../../kernels/include/cuzarr/checksum.cuh");
/// Size of the intermediate sums that kernels keep for each span: `ChecksumSums` in checksum.cuh.
pub const SUMS_BYTES: usize = stated_size(HEADER, "ChecksumSums");

/// A kind of checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Checksum {
    /// CRC-32C (Castagnoli, RFC 3720).
    Crc32c = defined(HEADER, "CUZARR_CRC32C") as isize,
    /// CRC-32 of gzip and zlib's `crc32`.
    Crc32 = defined(HEADER, "CUZARR_CRC32") as isize,
    /// Adler-32 (RFC 1950).
    Adler32 = defined(HEADER, "CUZARR_ADLER32") as isize,
    /// HDF5's Fletcher-32: two sums modulo 65535 over big-endian words. An odd last byte is the upper half of a word.
    Fletcher32 = defined(HEADER, "CUZARR_FLETCHER32") as isize,
}

/// A range of bytes whose checksum is stored elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The bytes that the checksum covers, as a range of the data buffer.
    pub bytes: Range<usize>,
    /// Byte offset of the four-byte checksum in the buffer of stored checksums.
    pub stored_offset_bytes: usize,
    /// Index of the range's word in `statuses`, the buffer in which kernels report a wrong checksum.
    pub status: u32,
    /// The position that an error message gives for this byte range.
    pub at: u32,
}

/// Size of a stored checksum in bytes.
const STORED_BYTES: usize = 4;

impl Checksum {
    /// The reflected polynomial of a CRC and the period of x modulo it.
    fn polynomial(self) -> Option<(u32, u32)> {
        match self {
            Checksum::Crc32c => Some((0x82f6_3b78, (1 << 31) - 1)),
            Checksum::Crc32 => Some((0xedb8_8320, u32::MAX)),
            Checksum::Adler32 | Checksum::Fletcher32 => None,
        }
    }
}

/// Constants with which kernels multiply polynomials modulo a CRC's polynomial. `CrcField` in checksum.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CrcField {
    polynomial: u32,
    period: u32,
    /// x^(2^k) modulo the CRC's polynomial, for each k.
    powers: [u32; 32],
}

// `CrcField` in checksum.cuh; checksum.cu checks the size, too.
c_layout! { CrcField: 136 bytes { polynomial at 0, period at 4, powers at 8 } }

impl CrcField {
    /// Returns the constants that kernels use for a CRC; `None` for other checksums.
    pub fn of(checksum: Checksum) -> Option<CrcField> {
        let (polynomial, period) = checksum.polynomial()?;
        // Bit order is reflected: the highest bit of a word is the coefficient of x^0.
        let mut powers = [1 << 30; 32];
        for at in 1..powers.len() {
            powers[at] = multiply(powers[at - 1], powers[at - 1], polynomial);
        }
        Some(CrcField { polynomial, period, powers })
    }
}

/// Returns the product of the polynomials `a` and `b`, modulo `polynomial`.
fn multiply(mut a: u32, mut b: u32, polynomial: u32) -> u32 {
    let mut product = 0;
    while a != 0 {
        if a >> 31 == 1 {
            product ^= b;
        }
        a <<= 1;
        b = b >> 1 ^ if b & 1 == 1 { polynomial } else { 0 };
    }
    product
}

/// Compares the checksum of every byte range of `data` with the stored one in `stored` (big-endian there if
/// `big_endian`). If they differ, puts `CUZARR_WRONG_CHECKSUM` and the span's `at` into its word of `statuses`. In
/// stream order.
///
/// # Errors
/// `InvalidArgument` for spans outside the buffers and more than 4 GiB in one, `MemorySpace`, `OutOfMemory`,
/// `DeviceFailed`.
pub fn verify_on(
    checksum: Checksum,
    big_endian: bool,
    data: &Buffer,
    stored: &Buffer,
    statuses: &Buffer,
    spans: &[Span],
    stream: &Stream,
) -> Result<()> {
    check_stored(stored, STORED_BYTES, statuses, spans)?;
    check(data, [stored, statuses], spans, stream)?;
    cuda::verify(checksum, big_endian, data, stored, statuses, spans, stream)
}

/// Checks headers of one byte: in `data`, the byte at each span's `stored_offset_bytes` must be `expected`. If it is
/// not, puts `CUZARR_BAD_HEADER` and the span's `at` into its word of `statuses`. In stream order.
///
/// # Errors
/// Those of [`verify_on`].
pub fn expect_byte_on(expected: u8, data: &Buffer, statuses: &Buffer, spans: &[Span], stream: &Stream) -> Result<()> {
    check_stored(data, 1, statuses, spans)?;
    check(data, [data, statuses], spans, stream)?;
    cuda::expect_byte(expected, data, statuses, spans, stream)
}

/// Returns the checksum of each range of `data`. Waits for the stream.
///
/// # Errors
/// Those of [`verify_on`].
pub fn compute(checksum: Checksum, data: &Buffer, ranges: &[Range<usize>], stream: &Stream) -> Result<Vec<u32>> {
    let values = compute_on(checksum, data, ranges, stream)?;
    let mut bytes = vec![0; values.size_bytes()];
    stream.d2h(&values, &mut bytes)?;
    Ok(bytes.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect())
}

/// Like [`compute`], but returns a buffer with a `u32` for each range, in device memory and in stream order.
///
/// # Errors
/// Those of [`verify_on`].
pub fn compute_on(checksum: Checksum, data: &Buffer, ranges: &[Range<usize>], stream: &Stream) -> Result<Buffer> {
    let span = |bytes: &Range<usize>| Span { bytes: bytes.clone(), stored_offset_bytes: 0, status: 0, at: 0 };
    let spans: Vec<Span> = ranges.iter().map(span).collect();
    check(data, [data, data], &spans, stream)?;
    cuda::compute(checksum, data, &spans, stream)
}

/// Most device memory that [`compute_on`] allocates for `count` ranges, including its result.
pub fn compute_bytes(count: usize) -> usize {
    cuda::compute_bytes(count)
}

fn check_stored(stored: &Buffer, stored_bytes: usize, statuses: &Buffer, spans: &[Span]) -> Result<()> {
    require_statuses(statuses)?;
    for (index, span) in spans.iter().enumerate() {
        let in_stored =
            span.stored_offset_bytes.checked_add(stored_bytes).is_some_and(|end| end <= stored.size_bytes());
        let in_statuses = (span.status as usize) < statuses.size_bytes() / 8;
        if !in_stored || !in_statuses {
            let (from, to) = (stored.size_bytes(), statuses.size_bytes());
            return Err(Error::invalid(format!("span {index}: {span:?} is not inside {from} and {to} bytes")));
        }
    }
    Ok(())
}

fn check(data: &Buffer, others: [&Buffer; 2], spans: &[Span], stream: &Stream) -> Result<()> {
    if stream.device() == Device::Cpu {
        return Err(Error::new(ErrorKind::MemorySpace, "checksums by kernels need a device with kernels, not cpu"));
    }
    for buffer in others.into_iter().chain([data]) {
        if buffer.device() != stream.device() {
            let message = format!("the buffer is on {}, the stream on {}", buffer.device(), stream.device());
            return Err(Error::new(ErrorKind::MemorySpace, message));
        }
    }
    let fits = |bytes: &Range<usize>| {
        bytes.start <= bytes.end && bytes.end <= data.size_bytes() && u32::try_from(bytes.len()).is_ok()
    };
    match spans.iter().position(|span| !fits(&span.bytes)) {
        Some(index) => {
            let (bytes, size) = (&spans[index].bytes, data.size_bytes());
            Err(Error::invalid(format!("span {index}: {bytes:?} is not inside {size} bytes, or too large")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x_has_the_period_that_is_stated() {
        for checksum in [Checksum::Crc32c, Checksum::Crc32] {
            let field = CrcField::of(checksum).unwrap();
            let mut power = 1 << 31;
            for bit in (0..32).filter(|bit| field.period >> bit & 1 == 1) {
                power = multiply(power, field.powers[bit], field.polynomial);
            }
            assert_eq!(power, 1 << 31, "{checksum:?}");
        }
    }
}
