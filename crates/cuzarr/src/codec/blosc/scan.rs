//! Reads the headers of Blosc frames on the host. The headers decide what kernels copy and unshuffle, and which codec's
//! kernels decode which streams.

use cuzarr_device::Device;
use cuzarr_device::internal::defined;

use super::container::{Compressor, HEADER_BYTES, Header, Shuffling};
use super::streams::{Stream, streams};
use crate::codec::batch::frames::{FrameEntry, Kind};
use crate::codec::damage::corrupt;
use crate::codec::device::{DeviceDecoder, Headers, Request, Unit};
use crate::codec::lz4::blocks::Lz4Block;
use crate::codec::{deflate, zstd};
use crate::{Error, ErrorKind, Result};

const TEXT: &str = include_str!("blosc.cu");
/// Size in bytes of the pieces in which a Blosc frame of uncompressed data is copied.
const COPY_PIECE_BYTES: usize = defined(TEXT, "CUZARR_BLOSC_PIECE") as usize;
/// Bytes of output that a thread block unshuffles at a time.
const TILE_BYTES: usize = defined(TEXT, "CUZARR_TILE") as usize;
/// Alignment in bytes of the scratch memory for the decoded but still shuffled bytes of each Blosc frame.
const WORK_ALIGNMENT_BYTES: usize = 64;
/// Maximum decoded bytes of an LZ4 stream that one warp decodes sequentially; longer streams are decoded by many thread
/// blocks. `simt` has a smaller limit, so that both ways are tested.
const IN_ORDER_BYTES: usize = 4 << 10;
const IN_ORDER_SIMT_BYTES: usize = 256;

/// Where a stream is decoded to: scratch memory if it is shuffled, else its final place in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamTarget {
    Work,
    Place,
}

/// Streams of one compressor that another codec's kernels decode, and the frames that contain them.
pub(super) struct InnerStream {
    compressor: Compressor,
    pub(super) decoder: &'static dyn DeviceDecoder,
    pub(super) target: StreamTarget,
    pub(super) units: Vec<Unit>,
    /// The headers of all streams.
    pub(super) headers: Vec<Headers>,
    /// For each stream, which frame it is from, and at which byte of the frame it begins.
    pub(super) owners: Vec<(u32, u32)>,
}

/// What the headers of one frame say.
pub(super) struct HeaderRead {
    /// The frame's entry in the table for kernels, as if it was the first frame.
    entry: FrameEntry,
    /// The compressor of the frame and its streams, or the error of a damaged frame.
    content: Result<(Compressor, Vec<Stream>)>,
    /// The headers of the compressed streams, if another codec's kernels decode them; `None` if these kernels cannot
    /// decode all streams.
    inner: Option<Vec<Headers>>,
}

/// The contents of the headers of a batch of Blosc frames, prepared for kernels.
#[derive(Default)]
pub(super) struct BloscScan {
    pub(super) entries: Vec<FrameEntry>,
    pub(super) refused: Vec<(usize, Error)>,
    pub(super) streams: u64,
    /// Number of tiles in all frames together; a tile is the output that one thread block unshuffles at a time.
    pub(super) tiles: u32,
    /// Bytes of scratch memory for the decoded but still shuffled blocks of all frames.
    pub(super) work_bytes: usize,
    /// Large LZ4 streams, each decoded by many thread blocks: first those that go to scratch memory, then those that go
    /// to the target.
    pub(super) blocks: [Vec<Lz4Block>; 2],
    pub(super) inner: Vec<InnerStream>,
}

/// The decoder for streams of `compressor`, if they are decoded by another codec's kernels.
fn inner_decoder(compressor: Compressor) -> Option<&'static dyn DeviceDecoder> {
    match compressor {
        Compressor::Zstd => Some(&zstd::cuda::ZstdDecoder),
        Compressor::Zlib => Some(&deflate::cuda::ZLIB),
        Compressor::Lz4 | Compressor::Lz4Hc | Compressor::BloscLz | Compressor::Snappy => None,
    }
}

fn is_native(compressor: Compressor) -> bool {
    matches!(compressor, Compressor::Lz4 | Compressor::Lz4Hc) || inner_decoder(compressor).is_some()
}

/// Reads a frame's Blosc header, and fills the frame's entry in the table for kernels. Leaves it without streams if the
/// frame cannot be decoded.
fn scan_header(entry: &mut FrameEntry, frame: &[u8]) -> Result<Header> {
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
        return Ok(header);
    }
    if !is_native(header.compressor) {
        let message = format!("byte 2: blocks of {:?}, which kernels do not decode", header.compressor);
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    if decoded == 0 {
        return Ok(header);
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
    Ok(header)
}

impl HeaderRead {
    /// Reads the headers of a frame.
    pub(super) fn of(frame: &[u8], decoded_bytes: usize) -> HeaderRead {
        let mut entry = FrameEntry::new(frame.len(), decoded_bytes);
        let content = scan_header(&mut entry, frame).and_then(|header| {
            let streams = if entry.kind == Kind::Streams { streams(&header, frame)? } else { Vec::new() };
            Ok((header.compressor, streams))
        });
        let inner = match &content {
            Ok((compressor, streams)) => inner_decoder(*compressor).map_or_else(
                || Some(Vec::new()),
                |decoder| {
                    let compressed = streams.iter().filter(|stream| !stream.is_stored());
                    compressed.map(|stream| decoder.headers(&frame[stream.src.clone()], stream.dst.len())).collect()
                },
            ),
            Err(_) => {
                (entry.kind, entry.streams, entry.shuffling) = (Kind::Damaged, 0, 0);
                Some(Vec::new())
            }
        };
        HeaderRead { entry, content, inner }
    }

    /// Stands for the headers of a frame of which none were read.
    fn unknown(frame_bytes: usize, decoded_bytes: usize) -> HeaderRead {
        let mut entry = FrameEntry::new(frame_bytes, decoded_bytes);
        (entry.kind, entry.streams) = (Kind::Damaged, 0);
        let message = "Blosc frames are prepared from their headers on the host, but got none";
        HeaderRead { entry, content: Err(Error::new(ErrorKind::Unsupported, message)), inner: None }
    }

    /// Whether kernels can decode the frame, or refuse it as damaged.
    pub(super) fn is_known(&self) -> bool {
        self.inner.is_some() && self.content.as_ref().err().is_none_or(|error| error.kind() != ErrorKind::Unsupported)
    }
}

impl BloscScan {
    pub(super) fn new(request: &Request<'_>) -> Result<BloscScan> {
        let mut scan = BloscScan::default();
        for (index, unit) in request.units.iter().enumerate() {
            let own;
            let read = match request.headers.get(index).and_then(Headers::get::<HeaderRead>) {
                Some(read) => read,
                None => {
                    let (frame, decoded_bytes) =
                        (request.host.and_then(|host| host.get(unit.src.clone())), unit.dst.len());
                    own = match frame {
                        Some(frame) => HeaderRead::of(frame, decoded_bytes),
                        None => HeaderRead::unknown(unit.src.len(), decoded_bytes),
                    };
                    &own
                }
            };
            scan.add(request.device, index, unit, read)?;
        }
        Ok(scan)
    }

    fn add(&mut self, device: Device, index: usize, unit: &Unit, read: &HeaderRead) -> Result<()> {
        let mut entry = read.entry;
        (entry.src_offset, entry.dst_offset) = (unit.src.start as u64, unit.dst.start as u64);
        (entry.first_stream, entry.first_tile) = (self.streams, self.tiles);
        entry.work_offset = self.work_bytes.next_multiple_of(WORK_ALIGNMENT_BYTES) as u64;
        match &read.content {
            Ok((compressor, streams)) => {
                self.hand_out((device, index), &mut entry, *compressor, streams, read.inner.as_deref());
            }
            Err(error) => self.refused.push((index, error.clone())),
        }
        if entry.shuffling != 0 {
            self.work_bytes = entry.work_offset as usize + unit.dst.len();
        }
        self.streams += u64::from(entry.streams);
        let more = u32::try_from(unit.dst.len().div_ceil(TILE_BYTES)).ok();
        self.tiles = more.and_then(|more| self.tiles.checked_add(more)).ok_or_else(|| {
            let message = format!("unit {index}: the batch decodes to too many bytes");
            Error::new(ErrorKind::InvalidArgument, message)
        })?;
        self.entries.push(entry);
        Ok(())
    }

    /// Assigns a Blosc frame's compressed streams to the kernels of the streams' own codecs, if one warp would be too
    /// slow. The entry keeps the stored streams.
    fn hand_out(
        &mut self,
        (device, index): (Device, usize),
        entry: &mut FrameEntry,
        compressor: Compressor,
        streams: &[Stream],
        headers: Option<&[Headers]>,
    ) {
        let decoder = inner_decoder(compressor);
        let in_order_bytes = if device == Device::Simt { IN_ORDER_SIMT_BYTES } else { IN_ORDER_BYTES };
        let is_small = streams.first().is_none_or(|stream| stream.dst.len() <= in_order_bytes);
        if entry.kind != Kind::Streams || (decoder.is_none() && is_small) {
            return;
        }
        entry.kind = Kind::Stored;
        let (target, to) = match entry.shuffling {
            0 => (StreamTarget::Place, entry.dst_offset as usize),
            _ => (StreamTarget::Work, entry.work_offset as usize),
        };
        let from = entry.src_offset as usize;
        for (number, stream) in streams.iter().filter(|stream| !stream.is_stored()).enumerate() {
            let place = stream.src.start as u32;
            let src = from + stream.src.start..from + stream.src.end;
            let dst = to + stream.dst.start..to + stream.dst.end;
            match decoder {
                None => {
                    self.blocks[target as usize].push(Lz4Block { src, dst, status: index as u32, place, header: 0 });
                }
                Some(decoder) => {
                    let inner = self.inner_of(compressor, decoder, target);
                    inner.units.push(Unit { src, dst });
                    let read = headers.and_then(|headers| headers.get(number)).cloned();
                    inner.headers.push(read.unwrap_or_else(Headers::known));
                    inner.owners.push((index as u32, place));
                }
            }
        }
    }

    fn inner_of(
        &mut self,
        compressor: Compressor,
        decoder: &'static dyn DeviceDecoder,
        target: StreamTarget,
    ) -> &mut InnerStream {
        let found = self.inner.iter().position(|inner| inner.compressor == compressor && inner.target == target);
        let at = found.unwrap_or_else(|| {
            let (units, headers, owners) = (Vec::new(), Vec::new(), Vec::new());
            self.inner.push(InnerStream { compressor, decoder, target, units, headers, owners });
            self.inner.len() - 1
        });
        &mut self.inner[at]
    }
}

/// Describes the headers that were read from a frame, as text for tests.
#[cfg(test)]
pub(crate) fn described_headers(headers: &Headers) -> Option<String> {
    let HeaderRead { entry, content, inner } = headers.get()?;
    let inner: Vec<_> = inner.iter().flatten().map(zstd::described_headers).collect();
    Some(format!("{entry:?} {content:?} {inner:?}"))
}

/// Describes what was read from the headers of `units`, and the errors, as text for tests. If `apart`, the headers of
/// each unit are first read separately.
#[cfg(test)]
pub(crate) fn described(device: Device, host: &[u8], units: &[Unit], apart: bool) -> Result<Vec<String>> {
    let read = |unit: &Unit| Headers::read(HeaderRead::of(&host[unit.src.clone()], unit.dst.len()));
    let headers: Vec<Headers> = if apart { units.iter().map(read).collect() } else { Vec::new() };
    let host_bytes = (!apart).then_some(host);
    let scan =
        BloscScan::new(&Request { device, units, host: host_bytes, headers: &headers, scratch_aim_bytes: usize::MAX })?;
    let mut described = vec![format!("{:?} {:?} {:?}", scan.entries, scan.refused, scan.blocks)];
    for inner in scan.inner {
        described.push(format!("{:?} {:?} {:?}", inner.target, inner.units, inner.owners));
        if inner.compressor == Compressor::Zstd {
            described.extend(zstd::described(host, &inner.units, false));
        }
    }
    Ok(described)
}
