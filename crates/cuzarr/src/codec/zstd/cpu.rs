//! Decodes and encodes Zstandard frames on the host, by libzstd, with contexts that each thread keeps.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{
    CParameter, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective, compress_bound, find_frame_compressed_size,
    get_frame_content_size,
};

use super::cuda::ZstdDecoder;
use super::encode::ZstdEncoder;
use super::scan::{MAGIC, scan};
use super::table::ZstdTables;
use crate::codec::damage::{corrupt, expect_size, read_to_limit, unencodable};
use crate::codec::device::{DeviceDecoder, DeviceEncoder};
use crate::codec::host::BytesToBytes;
use crate::codec::size::Size;
use crate::codec::threads::threads;
use crate::{Error, ErrorKind, Result};

/// The sizes of the blocks into which an encoder divides a Zstandard frame.
#[derive(Clone, Copy)]
struct ZstdBlocks {
    /// Maximum bytes that a block decodes to; 0 for the format's limit, 128 KiB.
    most_bytes: u32,
    /// Encoded bytes of the parts that blocks are divided into, which share tables; 0 leaves blocks whole.
    part_bytes: u32,
}

/// Small blocks, for decoding on a GPU: it decodes each block sequentially, but many blocks at once.
const SMALL: ZstdBlocks = ZstdBlocks { most_bytes: 64 << 10, part_bytes: 16 << 10 };
/// Small blocks, for decoding on a GPU, in chunks that several jobs encode. These have many blocks anyway, and all
/// headers of a frame are read one by one.
const SMALL_BY_JOBS: ZstdBlocks = ZstdBlocks { part_bytes: 0, ..SMALL };
const LARGE: ZstdBlocks = ZstdBlocks { most_bytes: 0, part_bytes: 0 };
/// Compression ratio above which chunks get large blocks: headers of small blocks would be 1 % of the frame or more.
const WELL_COMPRESSED: usize = 16;
/// Size of the pieces ("jobs") into which chunks of at least twice this size are cut, to be encoded side by side. That
/// does not depend on the number of threads, so that equal chunks give equal bytes.
const JOB_BYTES: usize = 8 << 20;

/// The bit of a frame's descriptor that announces a checksum: RFC 8878, section 3.1.1.1.1.
const HAS_CHECKSUM: u8 = 1 << 2;
/// Maximum bytes of a frame's header together with the header of its first block.
const HEADERS_BYTES: usize = 18 + 3;

thread_local! {
    /// A decoder for only the first blocks of a frame, which writes directly into the caller's output buffer, without a
    /// copy.
    static FIRST_BLOCKS: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
    static DECOMPRESSOR: RefCell<Decompressor<'static>> = RefCell::default();
    static COMPRESSOR: RefCell<Compressor<'static>> = RefCell::default();
}

#[derive(Debug)]
pub(super) struct Zstd {
    pub(super) level: i32,
    pub(super) checksum: bool,
}

/// Decodes all frames of `encoded` directly into `decoded`, without a copy from a separate window. Returns the number
/// of decoded bytes.
pub(crate) fn decompress(encoded: &[u8], decoded: &mut [u8]) -> Result<usize> {
    DECOMPRESSOR.with_borrow_mut(|decompressor| {
        decompressor.decompress_to_buffer(encoded, decoded).map_err(|error| damage(&error, encoded, decoded.len()))
    })
}

/// Decodes only the blocks that hold the first `end` bytes, and returns how many bytes they decode to. `None` unless
/// `encoded` is one intact frame of `decoded.len()` bytes without a checksum. Damage inside a block is left for
/// [`decompress`] to report.
fn decompress_first(encoded: &[u8], decoded: &mut [u8], end: usize) -> Option<usize> {
    let descriptor = encoded.strip_prefix(&MAGIC.to_le_bytes())?.first()?;
    let fits = get_frame_content_size(encoded).ok()? == Some(decoded.len() as u64);
    if descriptor & HAS_CHECKSUM != 0 || !fits || find_frame_compressed_size(encoded) != Ok(encoded.len()) {
        return None;
    }
    FIRST_BLOCKS.with_borrow_mut(|context| {
        context.reset(ResetDirective::SessionOnly).ok()?;
        context.set_parameter(DParameter::StableOutBuffer(true)).ok()?;
        let mut output = OutBuffer::around(decoded);
        // libzstd decodes all that it is given, so each call gets one block and the next one's header.
        let (mut at, mut next_bytes) = (0, HEADERS_BYTES);
        while output.pos() < end {
            let mut input = InBuffer::around(encoded.get(at..encoded.len().min(at + next_bytes))?);
            next_bytes = context.decompress_stream(&mut output, &mut input).ok()?;
            if input.pos() == 0 {
                return None;
            }
            at += input.pos();
        }
        Some(output.pos())
    })
}

/// Makes the error for frames that libzstd refused, with the position of the damage. libzstd does not say where the
/// damage is, so the headers are searched for it.
fn damage(error: &std::io::Error, encoded: &[u8], decoded_bytes: usize) -> Error {
    let said = lower(error);
    let mut tables = ZstdTables::new();
    let scanned = scan(&mut tables, encoded, 0..encoded.len(), 0..decoded_bytes);
    if said.contains("checksum") {
        let mut places = tables.frames.iter().filter_map(|frame| frame.checksum);
        let message = match (places.next(), places.next()) {
            (Some(at), None) => format!("byte {at}: the checksum there is not that of the data"),
            _ => "a frame's checksum is not that of its data".into(),
        };
        return Error::new(ErrorKind::ChecksumMismatch, message);
    }
    match scanned {
        Err(error) if error.kind() == ErrorKind::ChunkCorrupt || said.contains("dictionary") => error,
        _ => corrupt(format!("{said}, in {} encoded bytes for {decoded_bytes} decoded", encoded.len())),
    }
}

/// Encodes one stream of another codec's frame, and appends it to `encoded`. An error if it does not fit.
pub(crate) fn compress(decoded: &[u8], level: i32, encoded: &mut Vec<u8>) -> std::io::Result<usize> {
    Zstd { level, checksum: false }.compress_alone(decoded, LARGE, encoded)
}

impl Zstd {
    /// Encodes one frame, with small blocks if that costs little. [`threads`] threads encode a large chunk.
    fn compress(&self, decoded: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut encoded = Vec::with_capacity(compress_bound(decoded.len()));
        let is_large = decoded.len() >= 2 * JOB_BYTES;
        let mut compress = |blocks| match is_large {
            false => self.compress_alone(decoded, blocks, &mut encoded),
            // If the system refuses threads, this thread does it all.
            true => self
                .compress_by_jobs(decoded, blocks, &mut encoded)
                .or_else(|_| self.compress_alone(decoded, blocks, &mut encoded)),
        };
        if compress(if is_large { SMALL_BY_JOBS } else { SMALL })? < decoded.len() / WELL_COMPRESSED {
            compress(LARGE)?;
        }
        Ok(encoded)
    }

    fn compress_by_jobs(&self, decoded: &[u8], blocks: ZstdBlocks, encoded: &mut Vec<u8>) -> std::io::Result<usize> {
        // The compressor is not kept: its threads would be missing in a forked process.
        let mut compressor = Compressor::default();
        compressor.set_parameter(CParameter::JobSize(JOB_BYTES as u32))?;
        compressor.set_parameter(CParameter::NbWorkers(threads().min(decoded.len() / JOB_BYTES) as u32))?;
        self.compress_by(&mut compressor, decoded, blocks, encoded)
    }

    fn compress_alone(&self, decoded: &[u8], blocks: ZstdBlocks, encoded: &mut Vec<u8>) -> std::io::Result<usize> {
        COMPRESSOR.with_borrow_mut(|compressor| {
            // A frame that did not fit has left its session open.
            compressor
                .context_mut()
                .reset(ResetDirective::SessionOnly)
                .map_err(|_| std::io::Error::other("reset failed"))?;
            self.compress_by(compressor, decoded, blocks, encoded)
        })
    }

    fn compress_by(
        &self,
        compressor: &mut Compressor<'static>,
        decoded: &[u8],
        blocks: ZstdBlocks,
        encoded: &mut Vec<u8>,
    ) -> std::io::Result<usize> {
        compressor.set_compression_level(self.level)?;
        compressor.include_checksum(self.checksum)?;
        compressor.set_parameter(CParameter::MaxBlockSize(blocks.most_bytes))?;
        compressor.set_parameter(CParameter::TargetCBlockSize(blocks.part_bytes))?;
        compressor.compress_to_buffer(decoded, encoded)
    }
}

fn lower(error: &std::io::Error) -> String {
    error.to_string().to_lowercase()
}

impl BytesToBytes for Zstd {
    fn name(&self) -> &str {
        "zstd"
    }

    fn has_checksum(&self) -> bool {
        self.checksum
    }

    fn encoded_size(&self, decoded: Size) -> Size {
        decoded.compressed()
    }

    fn device_decoder(&self) -> Option<&'static dyn DeviceDecoder> {
        Some(&ZstdDecoder)
    }

    fn device_encoder(&self, decoded_bytes: usize) -> Option<Arc<dyn DeviceEncoder>> {
        Some(Arc::new(ZstdEncoder::new(decoded_bytes, self.level, self.checksum)?))
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        expect_size(decompress(encoded, decoded)?, decoded.len())
    }

    fn decode_part_into(&self, encoded: &[u8], decoded: &mut [u8], wanted: Range<usize>) -> Result<usize> {
        let is_small = wanted.end <= decoded.len() / 8 * 7;
        if is_small && let Some(size_bytes) = decompress_first(encoded, decoded, wanted.end) {
            return Ok(size_bytes);
        }
        self.decode_into(encoded, decoded)?;
        Ok(decoded.len())
    }

    fn decode(&self, encoded: &[u8], limit_bytes: u64) -> Result<Vec<u8>> {
        // The streaming decoder keeps a window of its own; libzstd refuses windows above 128 MiB.
        let decoder = zstd::stream::read::Decoder::with_buffer(encoded).map_err(|error| corrupt(lower(&error)))?;
        read_to_limit(decoder, limit_bytes)
    }

    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        self.compress(&decoded).map_err(|error| unencodable(lower(&error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::threads::with_threads;

    /// Returns `count` bytes, each larger than the one before by 0, 1 or 2.
    fn climbing(count: usize) -> Vec<u8> {
        let (mut state, mut value) = (7u32, 0u8);
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            value = value.wrapping_add((state >> 30) as u8 / 2 + (state >> 27 & 1) as u8);
            value
        };
        (0..count).map(|_| next()).collect()
    }

    fn scanned(frame: &[u8], decoded_bytes: usize) -> ZstdTables {
        let mut tables = ZstdTables::new();
        scan(&mut tables, frame, 0..frame.len(), 0..decoded_bytes).unwrap();
        tables
    }

    #[test]
    fn bytes_of_large_chunks_do_not_depend_on_the_number_of_threads() {
        let (chunk, codec) = (climbing(2 * JOB_BYTES + 12_345), Zstd { level: 1, checksum: true });
        let frames = [1, 2, 5].map(|threads| with_threads(threads, || codec.compress(&chunk).unwrap()));
        assert!(frames[0].len() < chunk.len() * 2 / 3, "{}", frames[0].len());
        assert!(frames[1] == frames[0] && frames[2] == frames[0]);
        let mut decoded = vec![0; chunk.len()];
        assert_eq!(decompress(&frames[0], &mut decoded).unwrap(), chunk.len());
        assert!(decoded == chunk);
        let tables = scanned(&frames[0], chunk.len());
        assert_eq!(tables.frames.len(), 1, "one frame");
        assert_eq!(
            tables.blocks.len(),
            chunk.len().div_ceil(SMALL_BY_JOBS.most_bytes as usize),
            "blocks without parts"
        );
    }

    #[test]
    fn blocks_are_small_and_their_parts_share_tables() {
        let text = (0..40_000u32).flat_map(|number| (number * number / 7 % 10_007).to_string().into_bytes());
        let chunk: Vec<u8> = text.collect();
        let frame = Zstd { level: 3, checksum: false }.compress(&chunk).unwrap();
        let blocks = scanned(&frame, chunk.len()).blocks;
        let longest = blocks.iter().map(|block| block.src_bytes).max().unwrap();
        assert!(longest < 2 * SMALL.part_bytes, "{longest}");
        let own = blocks.iter().filter(|block| block.own_tree).count();
        assert!(own < blocks.len(), "{own} of {}", blocks.len());
    }

    #[test]
    fn blocks_of_what_becomes_very_small_are_large() {
        let chunk: Vec<u8> = climbing(600).into_iter().flat_map(|number| [number; 1000]).collect();
        let frame = Zstd { level: 3, checksum: false }.compress(&chunk).unwrap();
        assert!(frame.len() < chunk.len() / WELL_COMPRESSED);
        assert!(frame == zstd::bulk::compress(&chunk, 3).unwrap(), "as libzstd divides it");
    }
}
