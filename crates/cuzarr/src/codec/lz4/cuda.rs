//! Launches of `lz4.cu`: one warp decodes each of many small frames; all threads decode each larger frame.

use cuzarr_device::internal::{WARP, pool, upload_table};
use cuzarr_device::{Buffer, Device, Header, KernelSource, header};

use super::HEADER_BYTES;
use super::blocks::{ENTRY_BYTES, Lz4Block, Lz4Blocks, has_short_sequences};
use super::cost;
use crate::Result;
use crate::codec::batch::frames::{FrameEntry, table};
use crate::codec::cost::Speeds;
use crate::codec::device::{Decode, DeviceDecoder, Headers, Prepared, Request, Task, Unit};
use crate::codec::{batch, lz};

/// CUDA headers in `codec/lz4` that kernels include.
pub(crate) const HEADERS: &[Header] =
    &[header!("codec/lz4/lz4.cuh"), header!("codec/lz4/lz4_guess.cuh"), header!("codec/lz4/lz4_tokens.cuh")];

static LZ4: KernelSource =
    KernelSource { name: "lz4", text: include_str!("lz4.cu"), headers: &[HEADERS, lz::HEADERS, batch::HEADERS] };

/// Number of warps in each thread block that decodes LZ4 frames. A block keeps its place until its slowest frame is
/// done, so it has few warps.
const WARPS_PER_BLOCK: u32 = 2;
/// Number of threads in a thread block that corrects LZ4 tokens whose positions were guessed wrongly. Each thread mends
/// those of one span.
const MEND_THREADS: u32 = 64;
/// Maximum size of LZ4 frames that one warp each decodes sequentially if a batch has at least `ENOUGH_IN_ORDER` of
/// them. An exception are frames whose sequences of literals and matches are short.
const IN_ORDER_BYTES: usize = 64 << 10;
const ENOUGH_IN_ORDER: usize = 4096;
/// Maximum size of LZ4 frames that are always decoded sequentially, by one warp each. `simt` has a smaller limit, so
/// that both ways are tested.
const SMALL_BYTES: usize = 4 << 10;
const SMALL_SIMT_BYTES: usize = 256;

/// LZ4 frames that are ready to be decoded together: single blocks, each with or without its decoded size in front.
struct Lz4Frames {
    header_bytes: usize,
    /// The table, for kernels, of those frames that are decoded by one warp each.
    table: Vec<u8>,
    count: u32,
    blocks: Lz4Blocks,
}

/// Kernels that decode LZ4 blocks, alone or preceded by their decoded size.
#[derive(Debug)]
pub(super) struct Lz4Decoder {
    name: &'static str,
    /// Number of bytes before each block that state its decoded size: 4 or none.
    header_bytes: usize,
}

/// The decoder of frames of `numcodecs.lz4`: the decoded size (little-endian `u32`), then one block.
pub(super) static SIZED: Lz4Decoder = Lz4Decoder { name: "lz4", header_bytes: HEADER_BYTES };
/// The decoder of frames that are a single LZ4 block with nothing around it.
pub(super) static RAW: Lz4Decoder = Lz4Decoder { name: "lz4_raw", header_bytes: 0 };

impl DeviceDecoder for Lz4Decoder {
    fn name(&self) -> &'static str {
        self.name
    }

    fn speeds(&self) -> &'static Speeds {
        &cost::SPEEDS
    }

    fn scratch_copies(&self, decoded_bytes: usize) -> u64 {
        cost::scratch_copies(decoded_bytes)
    }

    fn headers(&self, frame: &[u8], _: usize) -> Option<Headers> {
        (frame.len() >= self.header_bytes).then(Headers::known)
    }

    fn prepare(&self, request: &Request<'_>) -> Result<Prepared> {
        prepare(self.header_bytes, request)
    }
}

/// Prepares the decoding of frames of which each has `header_bytes` bytes before its LZ4 block. The host reads no
/// frames; kernels compare the sizes.
fn prepare(header_bytes: usize, request: &Request<'_>) -> Result<Prepared> {
    let small = |unit: &&Unit| unit.dst.len() <= IN_ORDER_BYTES;
    let sums = request
        .units
        .iter()
        .filter(small)
        .fold([0, 0, 0], |[count, src, dst], unit| [count + 1, src + unit.src.len(), dst + unit.dst.len()]);
    let enough = sums[0] >= ENOUGH_IN_ORDER && !has_short_sequences(sums[1], sums[2]);
    let small_bytes = if request.device == Device::Simt { SMALL_SIMT_BYTES } else { SMALL_BYTES };
    let in_order_bytes = if enough { IN_ORDER_BYTES } else { small_bytes };
    let (mut entries, mut blocks) = (Vec::new(), Vec::new());
    for (index, unit) in request.units.iter().enumerate() {
        if unit.dst.len() > in_order_bytes && unit.src.len() > header_bytes {
            blocks.push(Lz4Block {
                src: unit.src.start + header_bytes..unit.src.end,
                dst: unit.dst.clone(),
                status: index as u32,
                place: header_bytes as u32,
                header: header_bytes as u32,
            });
        } else {
            entries.push(FrameEntry {
                src_offset: unit.src.start as u64,
                dst_offset: unit.dst.start as u64,
                // The number of the frame.
                first_stream: index as u64,
                ..FrameEntry::new(unit.src.len(), unit.dst.len())
            });
        }
    }
    let frames = Lz4Frames {
        header_bytes,
        table: table(&entries, entries.len() as u64),
        count: entries.len() as u32,
        blocks: Lz4Blocks::new(request.device, &blocks, request.scratch_aim_bytes),
    };
    Prepared::new(request, frames, Vec::new())
}

impl Decode for Lz4Frames {
    fn scratch_bytes(&self) -> usize {
        self.table.len() + self.blocks.scratch_bytes()
    }

    fn launch(&self, task: &Task<'_>) -> Result<()> {
        self.blocks.launch(task)?;
        if self.count == 0 {
            return Ok(());
        }
        let Task { stream, src, dst, statuses } = *task;
        let table = upload_table(&self.table, stream)?;
        let kernel = LZ4.kernel(stream.device(), "lz4_frames")?;
        let (header, from, to) = (self.header_bytes as u32, src.address(), dst.address());
        let arguments = (from, to, table.address(), self.count, header, statuses.address());
        let blocks = self.count.div_ceil(WARPS_PER_BLOCK);
        // SAFETY: the parameters of lz4_frames. `Prepared` has checked that source, target and statuses have room for every
        // frame, and a warp stays in the ranges of its own.
        unsafe { kernel.launch(stream, blocks, WARPS_PER_BLOCK * 32, arguments, &[src, dst, &table, statuses]) }?;
        Ok(())
    }
}

impl Lz4Blocks {
    /// Launches the decoding of all LZ4 blocks on the stream of `task`.
    ///
    /// # Errors
    /// Those of [`Decode::launch`].
    pub(crate) fn launch(&self, task: &Task<'_>) -> Result<()> {
        if self.count() == 0 {
            return Ok(());
        }
        let Task { stream, src, statuses, .. } = *task;
        let table = upload_table(&self.table, stream)?;
        let sequences = pool::allocate(self.sequences * lz::SEQUENCE_BYTES, stream)?;
        let counts = pool::allocate(self.count() * 4, stream)?;
        if self.walkers > 0 {
            let kernel = LZ4.kernel(stream.device(), "lz4_walk")?;
            let arguments = (src.address(), table.address(), sequences.address(), counts.address(), statuses.address());
            let buffers = [src, &table, &sequences, &counts, statuses];
            // SAFETY: the parameters of lz4_walk, a block of threads for each entry. `Prepared` has checked that the entries'
            // ranges lie in the source; `Lz4Blocks::new` has counted room for as many sequences as an LZ4 block can hold.
            unsafe { kernel.launch(stream, self.walkers, self.threads, arguments, &buffers) }?;
        }
        if self.large > 0 {
            self.launch_guesses(task, &table, &sequences, &counts)?;
        }
        let found = lz::Sequences::Plain { sequences: &sequences, counts: &counts };
        self.engine.launch(task, &self.engine.bring(task.stream)?, found, src)
    }

    /// Finds the sequences of the `large` blocks by guessing where tokens begin, in all stretches of encoded bytes
    /// (spans) at once.
    fn launch_guesses(&self, task: &Task<'_>, table: &Buffer, sequences: &Buffer, counts: &Buffer) -> Result<()> {
        let Task { stream, src, statuses, .. } = *task;
        let [tokens, exits, entries, totals] = self.map_bytes().map(|bytes| pool::allocate(bytes.max(1), stream));
        let (tokens, exits, entries, totals) = (tokens?, exits?, entries?, totals?);
        stream.memset(&entries, 0xff)?;
        let buffers = [src, table, sequences, counts, statuses, &tokens, &exits, &entries, &totals];
        let walkers = self.walkers as usize;
        let (frames, units, count) = (src.address(), table.address() + walkers * ENTRY_BYTES, self.large);
        let counts = counts.address() + walkers * 4;
        let (tokens, exits) = (tokens.address(), exits.address());
        let (entries, totals) = (entries.address(), totals.address());
        let (spans, threads, part_bytes) = (self.spans, self.threads, self.part_bytes());
        let (part_log, span_bytes) = (part_bytes.ilog2(), part_bytes * WARP);
        let kernel = |name| LZ4.kernel(stream.device(), name);
        // SAFETY: the parameters of each kernel; a thread, a warp or a block of threads for each span or unit, as they are
        // written. `Prepared` has checked that the entries' ranges lie in the source. `Lz4Blocks::new` has counted the spans, and
        // room for as many sequences as an LZ4 block can hold.
        unsafe {
            if spans > 0 {
                let guess = kernel("lz4_guess")?;
                let arguments = |mend: u32| (frames, units, count, part_log, mend, tokens, exits);
                guess.launch(stream, spans, WARP, arguments(0), &buffers)?;
                let mends = (frames, units, count, spans, part_log, tokens, exits);
                kernel("lz4_mend")?.launch(stream, spans.div_ceil(MEND_THREADS), MEND_THREADS, mends, &buffers)?;
                guess.launch(stream, spans, WARP, arguments(1), &buffers)?;
            }
            let arguments = (frames, units, tokens, exits, entries, statuses.address());
            kernel("lz4_chase")?.launch(stream, count, threads, arguments, &buffers)?;
            if spans > 0 {
                let arguments = (frames, units, count, entries, tokens, exits, totals);
                kernel("lz4_totals")?.launch(stream, spans, threads, arguments, &buffers)?;
            }
            let arguments = (units, span_bytes, totals, counts);
            kernel("lz4_place")?.launch(stream, count, threads, arguments, &buffers)?;
            if spans > 0 {
                let found = (entries, tokens, exits, totals);
                let to = (sequences.address(), statuses.address());
                let arguments = (frames, units, count, found.0, found.1, found.2, found.3, to.0, to.1);
                kernel("lz4_spans")?.launch(stream, spans, threads, arguments, &buffers)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::device::FrameDecoder;

    #[test]
    fn decoders_of_one_name_that_work_differently_share_no_batch() {
        static OTHER: Lz4Decoder = Lz4Decoder { name: "lz4", header_bytes: 0 };
        let (sized, other) = (FrameDecoder::Any(&SIZED), FrameDecoder::Any(&OTHER));
        assert!(sized.is_like(&sized.clone()) && !sized.is_like(&other) && !sized.is_like(&FrameDecoder::Any(&RAW)));
    }
}
