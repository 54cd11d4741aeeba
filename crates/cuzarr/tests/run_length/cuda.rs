//! Launches of `run_length.cu`.

use cuzarr::internal::codec::batch::{HEADERS, place_frames};
use cuzarr::internal::codec::cost::{EncodingSpeeds, Speeds};
use cuzarr::internal::codec::device::{
    ChunkRow, Decode, DeviceDecoder, DeviceEncoder, Encode, EncodeTask, FRAME_ENTRY_BYTES, Headers, Launched, Prepared,
    Request, Task,
};
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_device::KernelSource;
use cuzarr_device::internal::{pool, upload_table};

static RUN_LENGTH: KernelSource =
    KernelSource { name: "run_length", text: include_str!("run_length.cu"), headers: &[HEADERS] };

/// Frames of a block of threads, each of which has one.
const THREADS: u32 = 32;

static SPEEDS: Speeds = Speeds { thread_alone: 1.0, thread_busy: 1.0, one_frame: [1.0; 5], many_frames: [50.0; 5] };
static ENCODING_SPEEDS: EncodingSpeeds = EncodingSpeeds { host_thread_gb_s: 1.0, device_gb_s: 50.0, device_s: 1e-4 };

#[derive(Debug)]
pub(super) struct Decoder;

impl DeviceDecoder for Decoder {
    fn name(&self) -> &'static str {
        "run_length"
    }

    fn speeds(&self) -> &'static Speeds {
        &SPEEDS
    }

    fn scratch_copies(&self, _: usize) -> u64 {
        1
    }

    fn headers(&self, _: &[u8], _: usize) -> Option<Headers> {
        Some(Headers::known())
    }

    fn prepare(&self, request: &Request<'_>) -> Result<Prepared> {
        let ranges = request.units.iter().flat_map(|unit| {
            let places = [unit.src.start as u64, unit.dst.start as u64].into_iter().flat_map(u64::to_ne_bytes);
            places.chain([unit.src.len() as u32, unit.dst.len() as u32].into_iter().flat_map(u32::to_ne_bytes))
        });
        let frames = Frames { ranges: ranges.collect(), count: request.units.len() as u32 };
        Prepared::new(request, frames, Vec::new())
    }
}

/// Frames, with the table that the kernel reads.
struct Frames {
    ranges: Vec<u8>,
    count: u32,
}

impl Decode for Frames {
    fn scratch_bytes(&self) -> usize {
        self.ranges.len()
    }

    fn launch(&self, task: &Task<'_>) -> Result<()> {
        let Task { stream, src, dst, statuses } = *task;
        let ranges = upload_table(&self.ranges, stream)?;
        let kernel = RUN_LENGTH.kernel(stream.device(), "run_length_decode")?;
        let arguments = (src.address(), dst.address(), ranges.address(), self.count, statuses.address());
        let buffers = [src, dst, &ranges, statuses];
        // SAFETY: the parameters of run_length_decode. `Prepared` has checked that source, target and statuses have room for every
        // frame, and the kernel stays in a frame's ranges.
        Ok(unsafe { kernel.launch(stream, self.count.div_ceil(THREADS), THREADS, arguments, &buffers) }?)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Encoder {
    pub(super) chunk_bytes: usize,
}

impl DeviceEncoder for Encoder {
    fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    fn frame_bound_bytes(&self) -> usize {
        2 * self.chunk_bytes
    }

    fn speeds(&self) -> &'static EncodingSpeeds {
        &ENCODING_SPEEDS
    }

    fn memory_bytes(&self, row: &ChunkRow) -> usize {
        self.output_bound_bytes(row.count) + row.count * FRAME_ENTRY_BYTES
    }

    fn prepare(&self, row: &ChunkRow) -> Result<Box<dyn Encode>> {
        let too_many = |_| Error::new(ErrorKind::InvalidArgument, "too many or too large chunks");
        let count = u32::try_from(row.count).map_err(too_many)?;
        let size_bytes = u32::try_from(self.chunk_bytes).map_err(too_many)?;
        Ok(Box::new(Chunks { encoder: *self, stride_bytes: row.stride_bytes as u64, size_bytes, count }))
    }
}

/// Chunks that become frames.
struct Chunks {
    encoder: Encoder,
    stride_bytes: u64,
    size_bytes: u32,
    count: u32,
}

impl Encode for Chunks {
    fn launch(&self, task: &EncodeTask<'_>) -> Result<Launched> {
        let (stream, src, sizes) = (task.stream(), task.src(), task.sizes());
        let frames = pool::allocate(self.count as usize * FRAME_ENTRY_BYTES, stream)?;
        let out = pool::allocate(self.encoder.output_bound_bytes(self.count as usize), stream)?;
        let (chunks, blocks) = ((src.address(), self.stride_bytes), self.count.div_ceil(THREADS));
        let kernel = |name| RUN_LENGTH.kernel(stream.device(), name);
        let arguments = (chunks.0, chunks.1, self.size_bytes, self.count, sizes.address(), frames.address());
        // SAFETY: the parameters of run_length_sizes. The batch has checked that chunks lie in `src`; there is a size and an
        // entry for each.
        unsafe { kernel("run_length_sizes")?.launch(stream, blocks, THREADS, arguments, &[src, sizes, &frames]) }?;
        place_frames(&frames, stream)?;
        let arguments = (chunks.0, chunks.1, self.size_bytes, self.count, frames.address(), out.address());
        // SAFETY: the parameters of run_length_encode. `out` has room for every frame's bound, one behind the other.
        unsafe { kernel("run_length_encode")?.launch(stream, blocks, THREADS, arguments, &[src, &frames, &out]) }?;
        Ok(Launched { out, frames })
    }
}
