//! Launches the kernels of `blosc.cu`, and those of other codecs for the compressed streams inside Blosc frames.

use cuzarr_device::internal::{pool, upload_table};
use cuzarr_device::{Buffer, Device, Header, KernelSource, header};

use super::cost;
use super::scan::{BloscScan, HeaderRead, InnerStream, StreamTarget};
use crate::codec::batch::frames::table;
use crate::codec::cost::Speeds;
use crate::codec::device::{Decode, DeviceDecoder, HeaderWalk, Headers, Prepared, Request, STATUS_BYTES, Task};
use crate::codec::lz4::blocks::Lz4Blocks;
use crate::codec::{batch, deflate, lz, lz4, zstd};
use crate::{Error, Result};

/// CUDA headers in `codec/blosc` that kernels include.
const HEADERS: &[Header] = &[header!("codec/blosc/blosc.cuh")];

static BLOSC: KernelSource = KernelSource {
    name: "blosc",
    text: include_str!("blosc.cu"),
    headers: &[HEADERS, lz4::HEADERS, lz::HEADERS, batch::HEADERS],
};
static WALK: KernelSource = KernelSource {
    name: "blosc_headers",
    text: include_str!("blosc_headers.cu"),
    headers: &[HEADERS, zstd::HEADERS, batch::HEADERS],
};

/// Number of warps in each thread block that decodes the streams inside Blosc frames. A block keeps its place until its
/// slowest stream is done, so it has few warps.
const WARPS_PER_BLOCK: u32 = 2;
/// Number of thread blocks that a multiprocessor holds at once, for the kernel that unshuffles tiles of Blosc frames.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 32;

/// Kernels that decode Blosc-1 containers whose data is compressed by LZ4, zstd or zlib, or is stored uncompressed.
#[derive(Debug)]
pub(super) struct BloscDecoder;

impl DeviceDecoder for BloscDecoder {
    fn name(&self) -> &'static str {
        "blosc"
    }

    fn speeds(&self) -> &'static Speeds {
        &cost::SPEEDS
    }

    /// The CUDA headers with the damage codes of the codecs whose streams lie inside Blosc frames: zstd and deflate.
    fn damages(&self) -> &'static [Header] {
        &[zstd::DAMAGE, deflate::DAMAGE]
    }

    fn scratch_copies(&self, _: usize) -> u64 {
        cost::SCRATCH_COPIES
    }

    fn headers(&self, frame: &[u8], decoded_bytes: usize) -> Option<Headers> {
        let read = HeaderRead::of(frame, decoded_bytes);
        read.is_known().then(|| Headers::read(read))
    }

    fn header_walk(&self) -> Option<HeaderWalk> {
        Some(HeaderWalk { source: &WALK, kernel: "headers_blosc", threads: 32 })
    }

    fn prepare(&self, request: &Request<'_>) -> Result<Prepared> {
        prepare(request)
    }
}

/// Compressed streams inside Blosc frames, of one compressor such as zstd, which the kernels of that compressor's codec
/// decode.
struct BloscStreams {
    target: StreamTarget,
    decode: Box<dyn Decode>,
    /// For each stream, which frame it is from, and at which byte of the frame it begins: two `u32`.
    owners: Vec<u8>,
    count: usize,
}

/// A batch of Blosc frames whose headers were read, ready to be decoded.
struct BloscFrames {
    table: Vec<u8>,
    count: u32,
    streams: u64,
    /// Number of tiles in all frames together; a tile is the output that one thread block unshuffles at a time.
    tiles: u32,
    /// Bytes of scratch memory for the decoded but still shuffled blocks of all frames.
    work_bytes: usize,
    /// Number of threads in a thread block: few on the emulated device `simt`, where each thread is a fiber.
    threads: u32,
    /// Large LZ4 streams, each decoded by many thread blocks: first those that go to scratch memory, then those that go
    /// to the target.
    large: [Lz4Blocks; 2],
    inner: Vec<BloscStreams>,
}

/// Prepares the decoding of the streams of one compressor inside a batch of Blosc frames. A frame with streams that the
/// compressor's decoder refuses is refused with the first of their errors.
fn prepare_inner(request: &Request<'_>, inner: InnerStream, refused: &mut Vec<(usize, Error)>) -> Result<BloscStreams> {
    let prepared = inner.decoder.prepare(&Request { units: &inner.units, headers: &inner.headers, ..*request })?;
    let (decode, refused_streams) = prepared.into_parts();
    for (stream, error) in refused_streams {
        let (frame, place) = inner.owners[stream];
        if !refused.iter().any(|(other, _)| *other == frame as usize) {
            refused.push((frame as usize, error.at("the stream there").at(format!("byte {place}"))));
        }
    }
    Ok(BloscStreams {
        target: inner.target,
        decode,
        owners: inner
            .owners
            .iter()
            .flat_map(|(frame, place)| [frame.to_ne_bytes(), place.to_ne_bytes()].concat())
            .collect(),
        count: inner.owners.len(),
    })
}

fn prepare(request: &Request<'_>) -> Result<Prepared> {
    let mut scan = BloscScan::new(request)?;
    let inner = std::mem::take(&mut scan.inner);
    let inner = inner.into_iter().map(|inner| prepare_inner(request, inner, &mut scan.refused));
    let frames = BloscFrames {
        inner: inner.collect::<Result<_>>()?,
        table: table(&scan.entries, scan.streams),
        count: scan.entries.len() as u32,
        streams: scan.streams,
        tiles: scan.tiles,
        work_bytes: scan.work_bytes,
        threads: if request.device == Device::Simt { 32 } else { 256 },
        large: scan.blocks.map(|blocks| Lz4Blocks::new(request.device, &blocks, request.scratch_aim_bytes)),
    };
    Prepared::new(request, frames, scan.refused)
}

impl BloscStreams {
    fn scratch_bytes(&self) -> usize {
        self.decode.scratch_bytes() + self.owners.len() + self.count * STATUS_BYTES
    }

    /// Decodes the compressed streams, then reports each damaged stream in the status of the Blosc frame that contains
    /// it.
    fn launch(&self, task: &Task<'_>, work: &Buffer, threads: u32) -> Result<()> {
        let stream = task.stream;
        let statuses = pool::allocate(self.count * STATUS_BYTES, stream)?;
        stream.memset(&statuses, 0)?;
        let dst = if self.target == StreamTarget::Work { work } else { task.dst };
        self.decode.launch(&Task { dst, statuses: &statuses, ..*task })?;
        let owners = upload_table(&self.owners, stream)?;
        let kernel = BLOSC.kernel(stream.device(), "blosc_join")?;
        let count = self.count as u32;
        let arguments = (statuses.address(), owners.address(), count, task.statuses.address());
        // SAFETY: the parameters of blosc_join. The statuses were allocated here, one for each stream; `BloscScan` has written an
        // owner for each stream, whose frame is one of the request's, and `Prepared` has checked that these have statuses.
        unsafe {
            kernel.launch(stream, count.div_ceil(threads), threads, arguments, &[&statuses, &owners, task.statuses])
        }?;
        Ok(())
    }
}

impl Decode for BloscFrames {
    fn scratch_bytes(&self) -> usize {
        let large = self.large.iter().map(Lz4Blocks::scratch_bytes).max().unwrap_or(0);
        let inner = self.inner.iter().map(BloscStreams::scratch_bytes).max().unwrap_or(0);
        self.work_bytes + self.table.len() + large.max(inner)
    }

    fn launch(&self, task: &Task<'_>) -> Result<()> {
        let Task { stream, src, dst, statuses } = *task;
        let device = stream.device();
        let work = pool::allocate(self.work_bytes.max(1), stream)?;
        let table = upload_table(&self.table, stream)?;
        if self.streams > 0 {
            let kernel = BLOSC.kernel(device, "blosc_streams")?;
            // The grid strides, so any number of blocks is right.
            let blocks = self.streams.div_ceil(u64::from(WARPS_PER_BLOCK)).min(i32::MAX as u64) as u32;
            let addresses = (src.address(), dst.address(), work.address(), table.address());
            let arguments = (addresses.0, addresses.1, addresses.2, addresses.3, self.count, statuses.address());
            let buffers = [src, dst, &work, &table, statuses];
            // SAFETY: the parameters of blosc_streams. `Prepared` has checked that source, target and statuses have room for
            // every frame, `BloscScan` has counted scratch for every frame that is shuffled, and a warp stays in its stream.
            unsafe { kernel.launch(stream, blocks, WARPS_PER_BLOCK * 32, arguments, &buffers) }?;
        }
        self.large[StreamTarget::Work as usize].launch(&Task { dst: &work, ..*task })?;
        self.large[StreamTarget::Place as usize].launch(task)?;
        self.inner.iter().try_for_each(|inner| inner.launch(task, &work, self.threads))?;
        if self.work_bytes > 0 && self.tiles > 0 {
            let kernel = BLOSC.kernel(device, "blosc_unshuffle")?;
            let blocks = self.tiles.min(kernel.multiprocessors() * BLOCKS_PER_MULTIPROCESSOR).max(1);
            let arguments = (work.address(), dst.address(), table.address(), self.count, self.tiles);
            // SAFETY: the parameters of blosc_unshuffle. It reads scratch, which `BloscScan` has counted, and writes targets,
            // which `Prepared` has checked.
            unsafe { kernel.launch(stream, blocks, self.threads, arguments, &[&work, dst, &table]) }?;
        }
        Ok(())
    }
}
