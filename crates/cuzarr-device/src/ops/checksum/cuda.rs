//! Launches the kernels of `checksum.cu`, which compute and verify checksums of byte ranges. Arguments were checked by
//! the public functions (`crate::ops::checksum`).

use crate::c_layout::c_layout;
use crate::driver::source::KernelSource;
use crate::error::{Error, Result};
use crate::kernel::WARP;
use crate::memory::buffer::Buffer;
use crate::memory::pool;
use crate::ops::checksum::{Checksum, CrcField, SUMS_BYTES, Span};
use crate::ops::launch::{blocks, threads, upload};
use crate::stream::Stream;

static CHECKSUM: KernelSource = KernelSource { name: "checksum", text: include_str!("checksum.cu"), headers: &[] };

/// Largest and smallest size, in bytes, of the pieces into which a byte range is cut, so that many threads sum it in
/// parallel. Large pieces cost less to join; small ones keep the device busy when there is little data.
const LARGEST_PIECE_BYTES: usize = 64 << 10;
const SMALLEST_PIECE_BYTES: usize = 4 << 10;
/// Warps that run on a multiprocessor at once.
const WARPS_PER_MULTIPROCESSOR: usize = 64;

/// One span in the table that kernels read: `ChecksumSpan` in checksum.cuh, 32 bytes. The table's first line has the
/// same size and is a `ChecksumTable`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ChecksumEntry {
    offset: u64,
    stored_offset: u64,
    bytes: u32,
    first_piece: u32,
    unit: u32,
    at: u32,
}

// `ChecksumSpan` in checksum.cuh; checksum.cu checks the size, too.
c_layout! { plain ChecksumEntry: 32 bytes { offset at 0, stored_offset at 8, bytes at 16, first_piece at 20, unit at 24, at at 28 } }

/// Intermediate sums of `count` byte ranges in device memory, from which the checksums are computed. They are ready
/// when the kernels before have run.
struct Summed {
    checksum: Checksum,
    count: usize,
    table: Buffer,
    sums: Buffer,
}

fn table(spans: &[Span], multiprocessors: usize) -> Result<(Vec<ChecksumEntry>, u32)> {
    let total: usize = spans.iter().map(|span| span.bytes.len()).sum();
    let piece_bytes = (total / (multiprocessors * WARPS_PER_MULTIPROCESSOR).max(1))
        .next_power_of_two()
        .clamp(SMALLEST_PIECE_BYTES, LARGEST_PIECE_BYTES);
    let too_many = || Error::invalid("the spans of one launch have too many bytes");
    let mut entries = vec![ChecksumEntry { offset: 0, stored_offset: 0, bytes: 0, first_piece: 0, unit: 0, at: 0 }];
    let mut pieces = 0u32;
    for span in spans {
        entries.push(ChecksumEntry {
            offset: span.bytes.start as u64,
            stored_offset: span.stored_offset_bytes as u64,
            // `check` made sure that it fits.
            bytes: span.bytes.len() as u32,
            first_piece: pieces,
            unit: span.status,
            at: span.at,
        });
        let more = u32::try_from(span.bytes.len().div_ceil(piece_bytes)).map_err(|_| too_many())?;
        pieces = pieces.checked_add(more).ok_or_else(too_many)?;
    }
    let count = u32::try_from(spans.len()).map_err(|_| too_many())?;
    // The first words of `ChecksumTable`: spans, pieces, piece_bytes.
    entries[0].offset = u64::from(pieces) << 32 | u64::from(count);
    entries[0].stored_offset = piece_bytes as u64;
    Ok((entries, pieces))
}

fn sum(checksum: Checksum, data: &Buffer, spans: &[Span], stream: &Stream) -> Result<Summed> {
    let device = stream.device();
    let name = if CrcField::of(checksum).is_some() { "checksum_crc" } else { "checksum_sums" };
    let kernel = CHECKSUM.kernel(device, name)?;
    let (entries, pieces) = table(spans, kernel.multiprocessors() as usize)?;
    let table = upload(&entries, stream)?;
    let sums = pool::allocate(spans.len() * SUMS_BYTES, stream)?;
    stream.memset(&sums, 0)?;
    if pieces > 0 {
        let threads = threads(device);
        let grid = blocks(&kernel, u64::from(pieces.div_ceil(threads / WARP)));
        let (buffers, places) = ([data, &table, &sums], (data.address(), table.address(), sums.address()));
        match CrcField::of(checksum) {
            Some(field) => {
                let arguments = (places.0, places.1, places.2, field);
                // SAFETY: the parameters of checksum_crc; spans were checked to lie in `data`, and there are sums for each.
                unsafe { kernel.launch(stream, grid, threads, arguments, &buffers) }?;
            }
            None => {
                let arguments = (places.0, places.1, places.2, checksum as u32);
                // SAFETY: the parameters of checksum_sums; the same memory as for checksum_crc.
                unsafe { kernel.launch(stream, grid, threads, arguments, &buffers) }?;
            }
        }
    }
    Ok(Summed { checksum, count: spans.len(), table, sums })
}

impl Summed {
    /// Computes the checksums of all byte ranges from the intermediate sums. Outputs that are `None` are not written.
    fn finish(
        &self,
        big_endian: bool,
        stored: Option<&Buffer>,
        statuses: Option<&Buffer>,
        values: Option<&Buffer>,
        stream: &Stream,
    ) -> Result<()> {
        let kernel = CHECKSUM.kernel(stream.device(), "checksum_finish")?;
        let address = |buffer: Option<&Buffer>| buffer.map_or(0, Buffer::address);
        let arguments = (
            self.table.address(),
            self.sums.address(),
            self.checksum as u32,
            address(stored),
            u32::from(big_endian),
            address(statuses),
            address(values),
        );
        let threads = threads(stream.device());
        let grid = blocks(&kernel, (self.count as u64).div_ceil(u64::from(threads)));
        let buffers: Vec<&Buffer> =
            [Some(&self.table), Some(&self.sums), stored, statuses, values].into_iter().flatten().collect();
        // SAFETY: the parameters of checksum_finish; stored bytes and statuses of every span were checked to be there.
        unsafe { kernel.launch(stream, grid, threads, arguments, &buffers) }
    }
}

pub(crate) fn verify(
    checksum: Checksum,
    big_endian: bool,
    data: &Buffer,
    stored: &Buffer,
    statuses: &Buffer,
    spans: &[Span],
    stream: &Stream,
) -> Result<()> {
    if spans.is_empty() {
        return Ok(());
    }
    let summed = sum(checksum, data, spans, stream)?;
    summed.finish(big_endian, Some(stored), Some(statuses), None, stream)
}

pub(crate) fn expect_byte(
    expected: u8,
    data: &Buffer,
    statuses: &Buffer,
    spans: &[Span],
    stream: &Stream,
) -> Result<()> {
    if spans.is_empty() {
        return Ok(());
    }
    let kernel = CHECKSUM.kernel(stream.device(), "checksum_expect_byte")?;
    let (entries, _) = table(spans, kernel.multiprocessors() as usize)?;
    let table = upload(&entries, stream)?;
    let arguments = (data.address(), table.address(), u32::from(expected), statuses.address());
    let threads = threads(stream.device());
    let grid = blocks(&kernel, (spans.len() as u64).div_ceil(u64::from(threads)));
    // SAFETY: the parameters of checksum_expect_byte; bytes and statuses of every span were checked to be there.
    unsafe { kernel.launch(stream, grid, threads, arguments, &[data, &table, statuses]) }
}

pub(crate) fn compute_bytes(count: usize) -> usize {
    (count + 1) * size_of::<ChecksumEntry>() + count * (SUMS_BYTES + size_of::<u32>())
}

pub(crate) fn compute(checksum: Checksum, data: &Buffer, spans: &[Span], stream: &Stream) -> Result<Buffer> {
    if spans.is_empty() {
        return data.slice(0..0);
    }
    let summed = sum(checksum, data, spans, stream)?;
    let values = pool::allocate(spans.len() * size_of::<u32>(), stream)?;
    summed.finish(false, None, None, Some(&values), stream)?;
    Ok(values)
}
