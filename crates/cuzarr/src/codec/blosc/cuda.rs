//! Launches of `blosc.cu`, and the scan of headers on the host.

use cuzarr_device::{Device, Kernel, KernelSource, pool, upload_table};

use super::container::{Compressor, HEADER_BYTES, Header, MIN_SPLIT_BYTES, Shuffling};
use crate::codec::batch::frames::{FrameEntry, Kind, table};
use crate::codec::batch::{Decode, Prepared, Request, Task};
use crate::codec::contract::corrupt;
use crate::{Error, ErrorKind, Result};

static BLOSC: KernelSource = KernelSource { name: "blosc", text: include_str!("blosc.cu") };

/// Bytes of a piece of a frame that is stored as it is. `CUZARR_BLOSC_PIECE` in blosc.cu.
const COPY_PIECE_BYTES: usize = 32 << 10;
/// Bytes of output that a block of threads finishes at a time. `CUZARR_TILE` in blosc.cu.
const TILE_BYTES: usize = 16 << 10;
/// Shuffled bytes of a frame begin in scratch at multiples of this.
const WORK_ALIGNMENT_BYTES: usize = 64;
/// Few warps a block, so that a block's place is free as soon as its slowest stream is done.
const WARPS_PER_BLOCK: u32 = 2;
/// Blocks of streams that a multiprocessor holds at once: 64 warps.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 32;

/// Completes a frame's entry from its header; leaves it without streams when the frame cannot be decoded.
pub(crate) fn scan(entry: &mut FrameEntry, frame: &[u8]) -> Result<()> {
    (entry.kind, entry.streams, entry.block_bytes) = (Kind::Damaged, 0, 1);
    let header = Header::parse_first(frame, frame.len())?;
    let decoded = entry.dst_bytes as usize;
    if header.decoded_bytes != decoded {
        let message = format!("the header says {} decoded bytes, expected {decoded}", header.decoded_bytes);
        return Err(corrupt(format!("byte 4: {message}")));
    }
    if header.memcpyed {
        header.copied(frame)?;
        (entry.kind, entry.streams) = (Kind::Copied, decoded.div_ceil(COPY_PIECE_BYTES) as u32);
        return Ok(());
    }
    if !matches!(header.compressor, Compressor::Lz4 | Compressor::Lz4Hc) {
        let message = format!("byte 2: blocks of {:?}, which kernels do not decode", header.compressor);
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    if decoded == 0 {
        return Ok(());
    }
    if header.block_count() > (frame.len() - HEADER_BYTES) / 4 {
        let count = header.block_count();
        return Err(corrupt(format!("byte {HEADER_BYTES}: the table of {count} blocks leaves the frame")));
    }
    let (block, unit) = (header.block_bytes, header.type_bytes);
    let (whole, splits) = (decoded / block, header.split_count(block));
    if whole > 0 && !block.is_multiple_of(splits) {
        return Err(corrupt(format!("byte 8: blocks of {block} bytes cannot be split into {splits} streams")));
    }
    entry.kind = Kind::Streams;
    entry.block_bytes = block as u32;
    entry.splits = splits as u32;
    entry.type_bytes = unit as u32;
    entry.streams = (whole * splits) as u32 + u32::from(!decoded.is_multiple_of(block));
    entry.shuffling = match header.shuffling {
        Shuffling::Bytes if unit > 1 => 1,
        Shuffling::Bits => 2,
        _ => 0,
    };
    Ok(())
}

/// Whether the header promises what kernels decode.
pub(crate) fn knows(frame: &[u8], decoded_bytes: usize) -> bool {
    scan(&mut FrameEntry::new(frame.len(), decoded_bytes), frame).is_ok()
}

/// About how many streams a frame has at most when c-blosc made it: blocks and splits are no smaller. A frame with more is
/// decoded all the same, by fewer warps than it could use.
pub(crate) fn most_streams(decoded_bytes: usize) -> u32 {
    (decoded_bytes / MIN_SPLIT_BYTES + 1) as u32
}

/// Frames whose streams are LZ4's or stored.
struct Frames {
    table: Vec<u8>,
    count: u32,
    /// How many streams there are, when the host has counted them; else how many there can be.
    streams: u64,
    /// Whether the table is complete, so that no kernel has to scan.
    scanned: bool,
    /// Tiles of all targets.
    tiles: u32,
    /// Of shuffled bytes.
    work_bytes: usize,
    /// Threads of a block: few in `simt`, where each is a fiber.
    threads: u32,
}

pub(crate) fn prepare(request: &Request<'_>) -> Result<Prepared> {
    let mut entries = Vec::with_capacity(request.units.len());
    let mut refused = Vec::new();
    let (mut streams, mut tiles, mut work_bytes) = (0, 0u32, 0usize);
    for (index, unit) in request.units.iter().enumerate() {
        let mut entry = FrameEntry::new(unit.src.len(), unit.dst.len());
        (entry.src_offset, entry.dst_offset) = (unit.src.start as u64, unit.dst.start as u64);
        (entry.first_stream, entry.first_tile) = (streams, tiles);
        entry.work_offset = work_bytes.next_multiple_of(WORK_ALIGNMENT_BYTES) as u64;
        match request.host {
            Some(host) => {
                if let Err(error) = scan(&mut entry, &host[unit.src.clone()]) {
                    refused.push((index, error));
                }
            }
            // The scan will know; this is what the grid is sized by.
            None => entry.streams = most_streams(unit.dst.len()),
        }
        if request.host.is_none() || entry.shuffling != 0 {
            work_bytes = entry.work_offset as usize + unit.dst.len();
        }
        streams += u64::from(entry.streams);
        tiles = u32::try_from(unit.dst.len().div_ceil(TILE_BYTES))
            .ok()
            .and_then(|more| tiles.checked_add(more))
            .ok_or_else(|| {
                let message = format!("unit {index}: the batch decodes to too many bytes");
                Error::new(ErrorKind::InvalidArgument, message)
            })?;
        entries.push(entry);
    }
    let count = entries.len() as u32;
    let (table, scanned) = (table(&entries, streams), request.host.is_some());
    let threads = if request.device == Device::Simt { 32 } else { 256 };
    let decode = Box::new(Frames { table, count, streams, scanned, tiles, work_bytes, threads });
    Ok(Prepared { decode, refused })
}

impl Frames {
    fn stream_blocks(&self, kernel: &Kernel) -> u32 {
        let wanted = self.streams.div_ceil(u64::from(WARPS_PER_BLOCK));
        // The grid strides, so any number is right; when the host did not count, as many as can run at once.
        let most = if self.scanned { i32::MAX as u32 } else { kernel.multiprocessors() * BLOCKS_PER_MULTIPROCESSOR };
        wanted.min(most.into()) as u32
    }
}

impl Decode for Frames {
    fn scratch_bytes(&self) -> usize {
        self.work_bytes + self.table.len()
    }

    fn launch(&self, task: &Task<'_>) -> Result<()> {
        let Task { stream, src, dst, statuses } = *task;
        let device = stream.device();
        let work = pool::allocate(self.work_bytes.max(1), stream)?;
        let table = upload_table(&self.table, stream)?;
        if !self.scanned {
            let kernel = BLOSC.kernel(device, "blosc_scan")?;
            let arguments = (src.address(), table.address(), self.count, statuses.address());
            // SAFETY: the parameters of blosc_scan, one block of at most 256 threads; frames lie in the source.
            unsafe { kernel.launch(stream, 1, self.threads, arguments, &[src, &table, statuses]) }?;
        }
        let kernel = BLOSC.kernel(device, "blosc_streams")?;
        let blocks = self.stream_blocks(&kernel);
        if blocks > 0 {
            let addresses = (src.address(), dst.address(), work.address(), table.address());
            let arguments = (addresses.0, addresses.1, addresses.2, addresses.3, self.count, statuses.address());
            let buffers = [src, dst, &work, &table, statuses];
            // SAFETY: the parameters of blosc_streams. The table's ranges were checked to lie in the buffers, scratch holds
            // every frame that may be shuffled, and a warp stays in its stream.
            unsafe { kernel.launch(stream, blocks, WARPS_PER_BLOCK * 32, arguments, &buffers) }?;
        }
        if self.work_bytes > 0 && self.tiles > 0 {
            let kernel = BLOSC.kernel(device, "blosc_unshuffle")?;
            let blocks = self.tiles.min(kernel.multiprocessors() * BLOCKS_PER_MULTIPROCESSOR).max(1);
            let arguments = (work.address(), dst.address(), table.address(), self.count, self.tiles);
            // SAFETY: the parameters of blosc_unshuffle; it reads a frame's scratch and writes its target.
            unsafe { kernel.launch(stream, blocks, self.threads, arguments, &[&work, dst, &table]) }?;
        }
        Ok(())
    }
}
