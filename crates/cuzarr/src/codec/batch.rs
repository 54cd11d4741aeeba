//! Batches of frames that a device decodes by itself: encoded bytes in device memory become decoded bytes there.
//!
//! A [`Batch`] is prepared for frames of one [`Format`], run in the order of a stream, and checked. It costs the host a look
//! at each frame's header when the caller has those bytes at hand; otherwise a kernel reads the headers. Both write one
//! table of 64 bytes a frame (`cuzarr/frames.cuh`), from which every other kernel starts.
//!
//! ```
//! use cuzarr::codec::batch::{Batch, Format, Unit};
//! # use cuzarr_device::{Buffer, Device, Stream};
//! # fn decode(device: Device, encoded: &[u8], decoded_bytes: usize) -> cuzarr::Result<Vec<u8>> {
//! let src = Buffer::from_bytes(device, encoded)?;
//! let dst = Buffer::empty(device, decoded_bytes)?;
//! let units = [Unit { src: 0..encoded.len(), dst: 0..decoded_bytes }];
//! let mut batch = Batch::prepare(Format::Blosc, &src, &dst, &units, Some(encoded))?;
//! batch.run(&Stream::new(device)?)?;
//! batch.check()?.into_iter().collect::<cuzarr::Result<Vec<()>>>()?;
//! # Ok(dst.to_vec()?)
//! # }
//! ```

use std::fmt;
use std::ops::Range;

use cuzarr_device::{Buffer, Device, Event, Stream, pool, upload_table};

use super::contract::corrupt;
use super::{blosc, lz4};
use crate::{Error, ErrorKind, Result};

/// Bytes of output that a block of threads finishes at a time. `CUZARR_TILE` in blosc.cu.
const TILE_BYTES: usize = 16 << 10;
/// Shuffled bytes of a frame begin in scratch at multiples of this.
const WORK_ALIGNMENT_BYTES: usize = 64;
/// Most frames of a batch: their table goes through pinned memory.
const MAX_UNITS: usize = 512 << 10;
const ENTRY_BYTES: usize = 64;
const STATUS_BYTES: usize = 8;
/// Kernels count positions in 32 bits, with room to add.
const MAX_UNIT_BYTES: usize = 1 << 31;

/// What frames a batch holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// The decoded size (little-endian `u32`), then one LZ4 block: `numcodecs.lz4`. Fast for many frames of up to 1 MiB;
    /// a large one takes as long as one warp needs.
    Lz4,
    /// Blosc-1 containers whose blocks are LZ4's; also those stored as they are.
    Blosc,
}

/// One frame: where its encoded bytes lie, and where its decoded bytes, exactly so many, go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Range of bytes in the source.
    pub src: Range<usize>,
    /// Range of bytes in the target; those of different units must not overlap.
    pub dst: Range<usize>,
}

/// LZ4 frames that decode to more are left to the host: in order, a warp gives about 100 MB/s.
const LARGEST_LZ4_BYTES: usize = 512 << 10;

/// From so many threads on the host decodes faster than kernels that get batches of one slab: on an H200 with 16 threads,
/// 8 MiB chunks of Blosc-LZ4 came at 32 GB/s by the host and at 16 GB/s by the kernels.
const FASTER_HOST_THREADS: usize = 8;

impl Format {
    /// Why a host with so many threads decodes these frames; `None` when kernels should do it.
    pub(crate) fn faster_host_reason(self, host_threads: usize) -> Option<&'static str> {
        (host_threads >= FASTER_HOST_THREADS).then_some("the host's threads decode it faster than kernels yet do")
    }

    /// Why frames of `decoded_bytes` are better decoded on the host; `None` when kernels should do it.
    pub(crate) fn host_reason(self, decoded_bytes: usize) -> Option<&'static str> {
        match self {
            _ if decoded_bytes >= MAX_UNIT_BYTES => Some("frames of 2 GiB and more are decoded on the host"),
            Format::Lz4 if decoded_bytes > LARGEST_LZ4_BYTES => Some("one LZ4 block of more than 512 KiB is serial"),
            _ => None,
        }
    }

    /// Whether kernels know what the frame's header says. What they do not know is the host's to decode, or to refuse.
    pub(crate) fn knows(self, frame: &[u8], decoded_bytes: usize) -> bool {
        match self {
            Format::Lz4 => frame.len() >= 4 && frame.len() < MAX_UNIT_BYTES,
            Format::Blosc => frame.len() < MAX_UNIT_BYTES && blosc::cuda::knows(frame, decoded_bytes),
        }
    }
}

/// What a frame holds, as kernels see it. `CUZARR_FRAME_…` in frames.cuh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Kind {
    Damaged = 0,
    Copied = 1,
    Streams = 2,
}

/// One line of the table. `Frame` in frames.cuh.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameEntry {
    pub(crate) src_offset: u64,
    pub(crate) dst_offset: u64,
    pub(crate) work_offset: u64,
    pub(crate) first_stream: u64,
    pub(crate) src_bytes: u32,
    pub(crate) dst_bytes: u32,
    pub(crate) block_bytes: u32,
    pub(crate) streams: u32,
    pub(crate) splits: u32,
    pub(crate) type_bytes: u32,
    pub(crate) first_tile: u32,
    pub(crate) kind: Kind,
    pub(crate) shuffling: u16,
}

impl FrameEntry {
    /// One stream, at the beginning of both memories.
    pub(crate) fn new(src_bytes: usize, dst_bytes: usize) -> FrameEntry {
        FrameEntry {
            src_offset: 0,
            dst_offset: 0,
            work_offset: 0,
            first_stream: 0,
            src_bytes: src_bytes as u32,
            dst_bytes: dst_bytes as u32,
            block_bytes: dst_bytes as u32,
            streams: 1,
            splits: 1,
            type_bytes: 1,
            first_tile: 0,
            kind: Kind::Streams,
            shuffling: 0,
        }
    }

    fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        let wide = [self.src_offset, self.dst_offset, self.work_offset, self.first_stream];
        let narrow = [
            self.src_bytes,
            self.dst_bytes,
            self.block_bytes,
            self.streams,
            self.splits,
            self.type_bytes,
            self.first_tile,
        ];
        let mut at = 0;
        let mut put = |value: &[u8]| {
            bytes[at..at + value.len()].copy_from_slice(value);
            at += value.len();
        };
        wide.iter().for_each(|value| put(&value.to_ne_bytes()));
        narrow.iter().for_each(|value| put(&value.to_ne_bytes()));
        put(&(self.kind as u16).to_ne_bytes());
        put(&self.shuffling.to_ne_bytes());
        bytes
    }
}

/// What the launch files of the codecs need.
pub(crate) struct Launch<'a> {
    pub(crate) stream: &'a Stream,
    pub(crate) src: &'a Buffer,
    pub(crate) dst: &'a Buffer,
    /// Shuffled bytes.
    pub(crate) work: &'a Buffer,
    pub(crate) table: &'a Buffer,
    pub(crate) statuses: &'a Buffer,
    pub(crate) frames: u32,
    /// How many streams there are, when the host has counted them; else how many there can be.
    pub(crate) streams: u64,
    pub(crate) scanned: bool,
    pub(crate) shuffled: bool,
    /// Tiles of all targets.
    pub(crate) tiles: u32,
}

struct Running {
    statuses: Buffer,
    done: Event,
}

/// Frames that are decoded together.
pub struct Batch {
    format: Format,
    src: Buffer,
    dst: Buffer,
    entries: Vec<FrameEntry>,
    /// What the host found wrong already, by unit.
    refused: Vec<(usize, Error)>,
    /// Whether the table is complete, so that no kernel has to scan.
    scanned: bool,
    streams: u64,
    tiles: u32,
    work_bytes: usize,
    /// Statuses of the last run, and the mark behind it.
    running: Option<Running>,
}

fn check_unit(index: usize, unit: &Unit, src: &Buffer, dst: &Buffer) -> Result<()> {
    let inside = |range: &Range<usize>, buffer: &Buffer| range.start <= range.end && range.end <= buffer.size_bytes();
    if !inside(&unit.src, src) || !inside(&unit.dst, dst) {
        let (from, to) = (src.size_bytes(), dst.size_bytes());
        let message = format!("unit {index}: {unit:?} is not inside buffers of {from} and {to} bytes");
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    if unit.src.len().max(unit.dst.len()) >= MAX_UNIT_BYTES {
        let message = format!("unit {index}: frames from {MAX_UNIT_BYTES} bytes on are not decoded on a device");
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    Ok(())
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch({:?}, {} frames)", self.format, self.entries.len())
    }
}

impl Batch {
    /// Plans the decoding of `units` from `src` to `dst`, both on the device that will run it. `host`, when given, holds the
    /// same bytes as `src`. Nothing is put on the device yet.
    ///
    /// # Errors
    /// `InvalidArgument` for ranges outside the buffers and too many units, `MemorySpace`, `Unsupported` for frames of 2 GiB
    /// and more. Frames that are damaged are no error here: see [`Batch::check`].
    pub fn prepare(format: Format, src: &Buffer, dst: &Buffer, units: &[Unit], host: Option<&[u8]>) -> Result<Batch> {
        if src.device() != dst.device() || src.device() == Device::Cpu {
            let message = format!("cannot decode from {} to {} by kernels", src.device(), dst.device());
            return Err(Error::new(ErrorKind::MemorySpace, message));
        }
        if dst.is_read_only() {
            return Err(Error::new(ErrorKind::ReadOnly, "the target of a batch is read-only"));
        }
        if units.len() > MAX_UNITS {
            let message = format!("got {} frames for a batch, at most {MAX_UNITS} are taken", units.len());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        if let Some(host) = host.filter(|host| host.len() != src.size_bytes()) {
            let message = format!("got {} bytes on the host, {} on the device", host.len(), src.size_bytes());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let scanned = format == Format::Lz4 || host.is_some();
        let (src, dst) = (src.clone(), dst.clone());
        let mut batch = Batch {
            format,
            src,
            dst,
            entries: Vec::with_capacity(units.len()),
            refused: Vec::new(),
            scanned,
            streams: 0,
            tiles: 0,
            work_bytes: 0,
            running: None,
        };
        for (index, unit) in units.iter().enumerate() {
            check_unit(index, unit, &batch.src, &batch.dst)?;
            batch.add(index, unit, host)?;
        }
        Ok(batch)
    }

    fn add(&mut self, index: usize, unit: &Unit, host: Option<&[u8]>) -> Result<()> {
        let mut entry = FrameEntry::new(unit.src.len(), unit.dst.len());
        (entry.src_offset, entry.dst_offset) = (unit.src.start as u64, unit.dst.start as u64);
        (entry.first_stream, entry.first_tile) = (self.streams, self.tiles);
        if self.format == Format::Blosc {
            entry.work_offset = self.work_bytes.next_multiple_of(WORK_ALIGNMENT_BYTES) as u64;
            match host {
                Some(host) => {
                    if let Err(error) = blosc::cuda::scan(&mut entry, &host[unit.src.clone()]) {
                        self.refused.push((index, error));
                    }
                }
                // The scan will know; this is what the grid is sized by.
                None => entry.streams = blosc::cuda::most_streams(unit.dst.len()),
            }
            if !self.scanned || entry.shuffling != 0 {
                self.work_bytes = entry.work_offset as usize + unit.dst.len();
            }
        }
        self.streams += u64::from(entry.streams);
        let tiles = unit.dst.len().div_ceil(TILE_BYTES);
        self.tiles = u32::try_from(tiles).ok().and_then(|tiles| self.tiles.checked_add(tiles)).ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, format!("unit {index}: the batch decodes to too many bytes"))
        })?;
        self.entries.push(entry);
        Ok(())
    }

    /// How many frames there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is nothing to decode.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Device memory that a run takes beside source and target.
    pub fn scratch_bytes(&self) -> usize {
        self.work_bytes + ENTRY_BYTES + self.entries.len() * (ENTRY_BYTES + STATUS_BYTES)
    }

    /// Puts the decoding on `stream`. Where a frame is damaged its target holds anything; other frames are not touched by it.
    ///
    /// # Errors
    /// `MemorySpace` for a stream of another device, `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
    pub fn run(&mut self, stream: &Stream) -> Result<()> {
        if stream.device() != self.src.device() {
            let message = format!("a batch on {} cannot run on a stream of {}", self.src.device(), stream.device());
            return Err(Error::new(ErrorKind::MemorySpace, message));
        }
        self.running = None;
        if self.entries.is_empty() {
            return Ok(());
        }
        let statuses = pool::allocate(self.entries.len() * STATUS_BYTES, stream)?;
        stream.memset(&statuses, 0)?;
        let work = pool::allocate(self.work_bytes.max(1), stream)?;
        let table = upload_table(&self.table(), stream)?;
        let launch = Launch {
            stream,
            src: &self.src,
            dst: &self.dst,
            work: &work,
            table: &table,
            statuses: &statuses,
            frames: self.entries.len() as u32,
            streams: self.streams,
            scanned: self.scanned,
            shuffled: self.work_bytes > 0,
            tiles: self.tiles,
        };
        match self.format {
            Format::Lz4 => lz4::cuda::launch(&launch)?,
            Format::Blosc => blosc::cuda::launch(&launch)?,
        }
        self.running = Some(Running { statuses, done: stream.record()? });
        Ok(())
    }

    fn table(&self) -> Vec<u8> {
        let mut table = vec![0; ENTRY_BYTES];
        table[..8].copy_from_slice(&self.streams.to_ne_bytes());
        table.extend(self.entries.iter().flat_map(|entry| entry.to_bytes()));
        table
    }

    /// Waits for the last run, and says for each frame whether it was decoded: `ChunkCorrupt` names the byte of the frame
    /// where the damage was found, `Unsupported` a container or compressor that only the host decodes. Every frame's result
    /// is an error of the caller when nothing ran.
    ///
    /// # Errors
    /// `DeviceFailed`; `InvalidArgument` when the batch was not run.
    pub fn check(&mut self) -> Result<Vec<Result<()>>> {
        if self.entries.is_empty() {
            return Ok(Vec::new());
        }
        let Some(Running { statuses, done }) = self.running.take() else {
            return Err(Error::new(ErrorKind::InvalidArgument, "the batch was not run since it was checked"));
        };
        done.synchronize()?;
        // Not on the stream of the run, which may have other work by now.
        let bytes = statuses.to_vec()?;
        let words = bytes.as_chunks::<STATUS_BYTES>().0.iter().map(|word| u64::from_ne_bytes(*word));
        let mut results: Vec<Result<()>> = words.map(result_of).collect();
        for (index, error) in &self.refused {
            results[*index] = Err(Error::new(error.kind(), error.message()));
        }
        Ok(results)
    }
}

/// What a kernel reported: the damage in the lowest byte, above it how far its place is from 2³² - 1.
fn result_of(status: u64) -> Result<()> {
    if status == 0 {
        return Ok(());
    }
    let at = u32::MAX - (status >> 8) as u32;
    let what = match status & 255 {
        1 => "the stream is cut off",
        2 => "a match has the offset 0",
        3 => "a match begins before the stream's first byte",
        4 => "the stream decodes to more than its place",
        5 => "the stream decodes to less than its place",
        6 => "bytes follow the end of the stream",
        7 => "the header says another decoded size than expected",
        8 => "the header says what cannot be",
        9 => {
            let message = format!("byte {at}: a container or compressor that kernels do not decode");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        10 => "a block or stream there leaves the frame",
        11 => {
            let message = format!("byte {at}: the checksum there is not that of the data");
            return Err(Error::new(ErrorKind::ChecksumMismatch, message));
        }
        _ => "damaged in an unknown way",
    };
    Err(corrupt(format!("byte {at}: {what}")))
}
