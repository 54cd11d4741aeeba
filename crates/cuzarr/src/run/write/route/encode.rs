//! Encoding by kernels. Whole chunks are gathered in packed form and encoded on the device, and only the frames cross the bus.
//!
//! ```text
//! gather ─> compare with the fill value ─> filters ─> encode     a few batches   on streams of their own
//!                     sizes of frames ─> download      the one before  into a slab
//!                             store                    those before    by the workers
//! ```
//!
//! A batch is as large as a slab. Several batches are on the device at a time (`crate::plan::placement` says how many). Their
//! memory is reserved before the first one begins, so no batch waits for memory.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use cuzarr_device::checksum::{self, Checksum};
use cuzarr_device::transfer::gather_on;
use cuzarr_device::{Buffer, DType, DTypeKind, Device, NdBuffer, Order, Stream, Tail, pool};

use crate::codec::Location;
use crate::codec::batch::{Blank, EncodeBatch};
use crate::codec::device::DeviceEncoder;
use crate::codec::native::{Strided, Undo, Undone};
use crate::error::Result;
use crate::plan::{Coverage, DeviceEncoding, WriteCircumstances, chunks_touched, encoding};
use crate::run::options::Options;
use crate::run::report::Stage;
use crate::run::write::gathering::Gathering;
use crate::run::write::writing::{Leaf, Seal, Writing};

/// The encoders of one write, and the chunks that kernels encode.
pub(crate) struct Encoders {
    device: Device,
    encoder: Arc<dyn DeviceEncoder>,
    /// The filters between packed chunks and frames.
    undo: Undo,
    /// The gathering of packed chunks.
    packed: Gathering,
    /// Batches on the device at a time.
    batches: usize,
    /// The gathering of their plain elements, when packed bytes cannot be compared with the fill value.
    plain: Option<Gathering>,
    /// A packed chunk that only holds the fill value, for chunks beyond the array's edge. It is made with the first of them.
    blank: Option<Buffer>,
    /// The fill value as plain elements; `None` when all chunks are stored.
    plain_blank: Option<Buffer>,
    nan: u32,
    /// The codec that follows the frames.
    checksum: Option<(Checksum, Location)>,
    streams: VecDeque<Stream>,
    running: VecDeque<Running>,
}

struct Running {
    batch: EncodeBatch,
    undone: Undone,
    /// The packed chunks, when the host may have to encode some.
    packed: Option<Buffer>,
    leaves: Vec<Leaf>,
    stream: Stream,
}

/// Frames that lie one after the other in device memory.
pub(crate) struct EncodedBatch {
    pub(crate) buffer: Buffer,
    pub(crate) leaves: Vec<FrameAt>,
    /// Chunks that only hold the fill value.
    pub(crate) empty: Vec<Leaf>,
    /// Packed chunks with an element that cannot be encoded. The host makes their error.
    pub(crate) refused: Vec<(Leaf, Buffer)>,
}

/// A chunk, the place of its bytes, and its checksum when the device computed it.
pub(crate) struct FrameAt {
    pub(crate) leaf: Leaf,
    pub(crate) range: Range<usize>,
    pub(crate) seal: Option<Seal>,
}

/// Bytes of a float any NaN of which is any other. `encode_differs` in lz4_encode.cu.
fn nan_code(dtype: DType) -> u32 {
    match dtype.kind() {
        DTypeKind::Float => dtype.size_bytes() as u32,
        DTypeKind::BFloat => 3,
        DTypeKind::Complex => dtype.size_bytes() as u32 / 2,
        _ => 0,
    }
}

impl Encoders {
    /// The encoders of a write, and the device memory that they use; `None` when the host encodes.
    pub(crate) fn new(writing: &Writing, value: &NdBuffer, options: &Options) -> Result<Option<(Encoders, u64)>> {
        let Some(program) = &writing.program else { return Ok(None) };
        let device = value.device();
        let given = WriteCircumstances {
            device,
            threads: options.threads,
            strict: options.strict,
            chunks: chunks_touched(&writing.plan.source, &writing.plan.order),
            chunk_elements: writing.chunk_elements(),
            replaces: writing.plan.least_coverage().replaces(),
            write_empty: writing.write_empty,
            memory_limit_bytes: writing.call.limit_bytes,
            batch_bytes: options.slab_bytes as u64,
        };
        let Ok(encoding) = encoding(program, &given) else { return Ok(None) };
        let DeviceEncoding { encoder, chunks, batches, memory_bytes } = encoding;
        let (tail, undo) = (program.tail(), program.device_undo());
        let strides = writing.plan.packed_strides();
        let gathering = |tail: &Tail, size_bytes| Gathering::new(tail.clone(), strides.clone(), size_bytes, usize::MAX);
        let mut packed = gathering(tail, program.packed_size_bytes());
        packed.most = chunks;
        let elements_bytes = tail.dtype.size_bytes() * writing.chunk_elements();
        let is_compared = !writing.write_empty;
        let plain = (is_compared && !tail.is_plain()).then(|| gathering(&Tail::plain(tail.dtype), elements_bytes));
        let elements = [writing.chunk_elements()];
        let full = || NdBuffer::full(device, tail.dtype, &elements, Order::C, &writing.fill);
        let plain_blank = is_compared.then(full).transpose()?.map(|blank| blank.buffer().clone());
        Ok(Some((
            Encoders {
                device,
                encoder,
                undo,
                packed,
                batches,
                plain,
                blank: None,
                plain_blank,
                nan: nan_code(tail.dtype),
                checksum: program.device_checksum(),
                streams: VecDeque::new(),
                running: VecDeque::new(),
            },
            memory_bytes,
        )))
    }

    /// Most bytes of one frame.
    pub(crate) fn frame_bound_bytes(&self) -> usize {
        self.encoder.frame_bound_bytes()
    }

    /// The number of chunks in the batches on the device, and in those before and behind.
    pub(crate) fn chunks_wanted(&self) -> usize {
        self.packed.most.saturating_mul(self.batches + 2)
    }

    /// Adds a chunk; true when there are enough chunks to begin a batch.
    pub(crate) fn add(&mut self, leaf: Leaf) -> bool {
        self.packed.leaves.push(leaf);
        self.packed.leaves.len() >= self.packed.most
    }

    /// Whether a batch must be taken before another can begin.
    pub(crate) fn is_full(&self) -> bool {
        self.running.len() >= self.batches
    }

    pub(crate) fn has_leaves(&self) -> bool {
        !self.packed.leaves.is_empty()
    }

    /// Puts gathering and encoding of the collected chunks on a stream.
    pub(crate) fn begin(&mut self, writing: &Arc<Writing>, value: &NdBuffer) -> Result<()> {
        let leaves = std::mem::take(&mut self.packed.leaves);
        let stream = if self.streams.len() < self.batches { None } else { self.streams.pop_front() };
        let stream = stream.map_or_else(|| writing.call.streams.take(self.device), Ok)?;
        self.streams.push_back(stream.clone());
        let (stride, counters) = (self.packed.padded_bytes, &writing.call.counters);
        if self.blank.is_none() && leaves.iter().any(|leaf| leaf.chunk.coverage != Coverage::Full) {
            self.blank = Some(self.packed_blank(writing)?);
        }
        let gather = |gathering: &Gathering, blank: Option<&Buffer>| -> Result<Buffer> {
            let stride = gathering.padded_bytes;
            let chunks = pool::allocate(leaves.len() * stride, &stream)?;
            for (index, _) in leaves.iter().enumerate().filter(|(_, leaf)| leaf.chunk.coverage != Coverage::Full) {
                let Some(blank) = blank else { break };
                stream.d2d(blank, &chunks.slice(index * stride..index * stride + gathering.size_bytes)?)?;
            }
            let transfer = gathering.transfer(writing, &leaves);
            let size_bytes = (leaves.len() * gathering.size_bytes) as u64;
            counters.time_on(Stage::Gather, size_bytes, &stream, || gather_on(value, &transfer, &chunks, &stream))?;
            Ok(chunks)
        };
        let chunks = gather(&self.packed, self.blank.as_ref())?;
        let plain = match (&self.plain, &self.plain_blank) {
            (Some(plain), Some(blank)) => Some((gather(plain, Some(blank))?, plain.padded_bytes)),
            _ => None,
        };
        let blank = self.plain_blank.as_ref().map(|blank| {
            let (chunks, stride_bytes) = plain.as_ref().map_or((&chunks, stride), |(chunks, stride)| (chunks, *stride));
            Blank { chunks, stride_bytes, blank, nan: self.nan }
        });
        let (count, packed) = (leaves.len(), Strided { buffer: chunks.clone(), stride_bytes: stride });
        let size_bytes = (count * self.packed.size_bytes) as u64;
        let mut batch = None;
        counters.time_on(Stage::Encode, size_bytes, &stream, || {
            let undone = self.undo.run(packed, self.packed.size_bytes, count, &stream)?;
            let ready = &undone.chunks;
            let prepared = EncodeBatch::prepare(&*self.encoder, &ready.buffer, ready.stride_bytes, count)?;
            let (batch, _) = batch.insert((prepared, undone));
            batch.run_unless_blank(blank.as_ref(), &stream)
        })?;
        let packed = self.undo.reports().then_some(chunks);
        self.running.extend(batch.map(|(batch, undone)| Running { batch, undone, packed, leaves, stream }));
        Ok(())
    }

    /// A packed chunk that only holds the fill value.
    fn packed_blank(&self, writing: &Writing) -> Result<Buffer> {
        match (&self.plain, &self.plain_blank, &writing.program) {
            // The chunk for the comparison is plain and packed at once.
            (None, Some(blank), _) => Ok(blank.clone()),
            (_, _, Some(_)) => Ok(Buffer::from_bytes(self.device, writing.packed_blank()?)?),
            (_, _, None) => Ok(Buffer::zeroed(self.device, self.packed.size_bytes)?),
        }
    }

    /// Waits for the oldest batch; `None` when there is none.
    pub(crate) fn take(&mut self) -> Result<Option<EncodedBatch>> {
        let Some(Running { batch, undone, packed, leaves, stream }) = self.running.pop_front() else { return Ok(None) };
        let encoded = batch.finish()?;
        let reported = undone.reported()?;
        let ranges: Vec<_> = encoded.frames.iter().flatten().cloned().collect();
        let mut seals = match self.checksum {
            Some((checksum, location)) if !ranges.is_empty() => {
                let values = checksum::compute(checksum, &encoded.buffer, &ranges, &stream)?;
                values.into_iter().map(|value| Some(Seal { checksum: value, location })).collect()
            }
            _ => vec![None; ranges.len()],
        }
        .into_iter();
        let (mut stored, mut empty, mut refused) = (Vec::with_capacity(leaves.len()), Vec::new(), Vec::new());
        for (index, (leaf, frame)) in leaves.into_iter().zip(encoded.frames).enumerate() {
            let seal = frame.as_ref().and_then(|_| seals.next().flatten());
            match (frame, &packed) {
                (None, _) => empty.push(leaf),
                (Some(_), Some(packed)) if reported[index] => {
                    let start = index * self.packed.padded_bytes;
                    let chunk = packed.slice(start..start + self.packed.size_bytes)?;
                    refused.push((leaf, Buffer::from_vec(chunk.to_vec()?)));
                }
                (Some(range), _) => stored.push(FrameAt { leaf, range, seal }),
            }
        }
        Ok(Some(EncodedBatch { buffer: encoded.buffer, leaves: stored, empty, refused }))
    }

    /// Drops everything, after a failure.
    pub(crate) fn abandon(&mut self) {
        self.packed.leaves.clear();
        self.running.clear();
    }

    /// Returns the streams after all their work has ended.
    pub(crate) fn give_back(&mut self, writing: &Writing) {
        self.streams.drain(..).for_each(|stream| writing.call.streams.give_back(&stream));
    }
}
