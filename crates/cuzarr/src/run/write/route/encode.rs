//! Encoding by kernels. Chunks are gathered in packed form and encoded on the device, and only the frames cross the bus. Where a
//! write changes a part of a chunk, its old elements are there before the new ones are gathered over them
//! (`crate::run::write::route::merge`).
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
use cuzarr_device::{Buffer, Device, NdBuffer, Order, Stream, Tail, pool};

use crate::codec::batch::{Blank, EncodeBatch};
use crate::codec::device::DeviceEncoder;
use crate::codec::native::{Native, Strided, Undo, Undone};
use crate::codec::{Location, Program};
use crate::error::{Error, Result};
use crate::plan::{Coverage, DeviceEncoding, old_bound_bytes};
use crate::run::report::Stage;
use crate::run::write::gathering::{GatherTo, Gathering};
use crate::run::write::object::Stored;
use crate::run::write::route::merge::{Changed, Decoding, Old, OldChunks, Packed, Undecoded, unpack};
use crate::run::write::writing::{Leaf, Seal, Writing};

/// The encoders of one write, and the chunks that kernels encode.
pub(crate) struct Encoders {
    device: Device,
    encoder: Arc<dyn DeviceEncoder>,
    /// The kernels that decode chunks of which a part is written; `None` when the host merges them.
    merging: Option<Arc<Native>>,
    /// The filters between packed chunks and frames.
    undo: Undo,
    /// The gathering of packed chunks.
    packed: Gathering,
    /// The old elements of each of its chunks, where they are kept.
    olds: Vec<Option<Old>>,
    /// Batches on the device at a time.
    batches: usize,
    /// The gathering of their plain elements, when packed bytes cannot be compared with the fill value.
    plain: Option<Gathering>,
    /// A packed chunk that only holds the fill value, for chunks beyond the array's edge. It is made with the first of them.
    blank: Option<Buffer>,
    /// The fill value as plain elements; `None` when all chunks are stored.
    plain_blank: Option<Buffer>,
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
    /// The old chunks that kernels decode.
    decoding: Option<Decoding>,
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
    /// Chunks whose old elements kernels did not decode.
    pub(crate) undecoded: Vec<(Leaf, Stored, Error)>,
}

/// A chunk, the place of its bytes, and its checksum when the device computed it.
pub(crate) struct FrameAt {
    pub(crate) leaf: Leaf,
    pub(crate) range: Range<usize>,
    pub(crate) seal: Option<Seal>,
}

impl Encoders {
    /// The encoders of a write.
    pub(crate) fn new(
        writing: &Writing,
        program: &Program,
        value: &NdBuffer,
        encoding: &DeviceEncoding,
    ) -> Result<Encoders> {
        let device = value.device();
        let DeviceEncoding { encoder, merging, chunks, batches, .. } = encoding.clone();
        let (tail, undo) = (program.tail(), program.device_undo());
        let gathering =
            |tail: &Tail, size_bytes| Gathering::new(tail.clone(), GatherTo::Chunks, size_bytes, usize::MAX);
        let mut packed = gathering(tail, program.packed_size_bytes());
        packed.most = chunks;
        let elements_bytes = tail.dtype.size_bytes() * writing.chunk_elements();
        let is_compared = !writing.write_empty;
        let plain = (is_compared && !tail.is_plain()).then(|| gathering(&Tail::plain(tail.dtype), elements_bytes));
        let elements = [writing.chunk_elements()];
        let full = || NdBuffer::full(device, tail.dtype, &elements, Order::C, &writing.fill);
        let plain_blank = is_compared.then(full).transpose()?.map(|blank| blank.buffer().clone());
        Ok(Encoders {
            device,
            encoder,
            merging,
            undo,
            packed,
            olds: Vec::new(),
            batches,
            plain,
            blank: None,
            plain_blank,
            checksum: program.device_checksum(),
            streams: VecDeque::new(),
            running: VecDeque::new(),
        })
    }

    /// Where the old elements of chunks come from; `None` when the host merges chunks of which a part is written.
    pub(crate) fn old_chunks(&self) -> Option<OldChunks> {
        let bound_bytes = old_bound_bytes(&*self.encoder, self.packed.size_bytes);
        self.merging.as_ref().map(|native| OldChunks::new(Arc::clone(native), bound_bytes))
    }

    /// Adds a chunk, with its old elements where they are kept; true when there are enough chunks to begin a batch.
    pub(crate) fn add(&mut self, (leaf, old): Changed) -> bool {
        self.packed.leaves.push(leaf);
        self.olds.push(old);
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
        let (leaves, olds) = (std::mem::take(&mut self.packed.leaves), std::mem::take(&mut self.olds));
        let stream = if self.streams.len() < self.batches { None } else { self.streams.pop_front() };
        let stream = stream.map_or_else(|| writing.call.streams.take(self.device), Ok)?;
        self.streams.push_back(stream.clone());
        let (stride, counters) = (self.packed.padded_bytes, &writing.call.counters);
        let mut kept = Vec::new();
        let mut filled = Vec::new();
        for (index, (leaf, old)) in leaves.iter().zip(&olds).enumerate() {
            match old {
                Some(_) => kept.push(index),
                None if leaf.chunk.coverage != Coverage::Full => filled.push(index),
                None => {}
            }
        }
        if self.blank.is_none() && !filled.is_empty() {
            self.blank = Some(self.packed_blank(writing)?);
        }
        let fill = |gathering: &Gathering, blank: Option<&Buffer>| -> Result<Buffer> {
            let stride = gathering.padded_bytes;
            let chunks = pool::allocate(leaves.len() * stride, &stream)?;
            for index in &filled {
                let Some(blank) = blank else { break };
                stream.d2d(blank, &chunks.slice(index * stride..index * stride + gathering.size_bytes)?)?;
            }
            Ok(chunks)
        };
        let gather = |gathering: &Gathering, chunks: &Buffer| {
            let transfer = gathering.transfer(writing, &leaves);
            let size_bytes = (leaves.len() * gathering.size_bytes) as u64;
            counters.time_on(Stage::Gather, size_bytes, &stream, || gather_on(value, &transfer, chunks, &stream))
        };
        let chunks = fill(&self.packed, self.blank.as_ref())?;
        let size_bytes = self.packed.size_bytes;
        let old = Packed { buffer: &chunks, stride_bytes: stride, size_bytes };
        let decoding = match &self.merging {
            Some(native) if !kept.is_empty() => Decoding::begin(writing, native, olds, &old, &stream)?,
            _ => None,
        };
        let plain = match (&self.plain, &self.plain_blank) {
            (Some(plain), Some(blank)) => Some((plain, fill(plain, Some(blank))?)),
            _ => None,
        };
        if let Some((gathering, plain)) = plain.as_ref().filter(|_| !kept.is_empty()) {
            let (tail, elements) = (&self.packed.tail, writing.chunk_elements());
            unpack(&old, &kept, tail, elements, (plain, gathering.padded_bytes), &stream)?;
        }
        gather(&self.packed, &chunks)?;
        let plain = match plain {
            Some((gathering, plain)) => {
                gather(gathering, &plain)?;
                Some((plain, gathering.padded_bytes))
            }
            None => None,
        };
        let blank = self.plain_blank.as_ref().map(|blank| {
            let (chunks, stride_bytes) = plain.as_ref().map_or((&chunks, stride), |(chunks, stride)| (chunks, *stride));
            Blank { chunks, stride_bytes, blank }
        });
        let (count, packed) = (leaves.len(), Strided { buffer: chunks.clone(), stride_bytes: stride });
        let size_bytes = (count * size_bytes) as u64;
        let mut batch = None;
        counters.time_on(Stage::Encode, size_bytes, &stream, || {
            let undone = self.undo.run(packed, self.packed.size_bytes, count, &stream)?;
            let ready = &undone.chunks;
            let prepared = EncodeBatch::prepare(&*self.encoder, &ready.buffer, ready.stride_bytes, count)?;
            let (batch, _) = batch.insert((prepared, undone));
            batch.run_unless_blank(blank.as_ref(), &stream)
        })?;
        let packed = self.undo.reports().then_some(chunks);
        self.running.extend(batch.map(|(batch, undone)| Running { batch, undone, packed, decoding, leaves, stream }));
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
        let Some(Running { batch, undone, packed, decoding, leaves, stream }) = self.running.pop_front() else {
            return Ok(None);
        };
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
        let (mut undecoded, mut missing) = (Vec::new(), decoding.map_or(Ok(Vec::new()), Decoding::check)?.into_iter());
        let mut next = missing.next();
        for (index, (leaf, frame)) in leaves.into_iter().zip(encoded.frames).enumerate() {
            let seal = frame.as_ref().and_then(|_| seals.next().flatten());
            // Both are in the order of the chunks.
            if let Some(Undecoded { stored, error, .. }) = next.take_if(|undecoded| undecoded.index == index) {
                undecoded.push((leaf, stored, error));
                next = missing.next();
                continue;
            }
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
        Ok(Some(EncodedBatch { buffer: encoded.buffer, leaves: stored, empty, refused, undecoded }))
    }

    /// Drops everything, after a failure.
    pub(crate) fn abandon(&mut self) {
        self.packed.leaves.clear();
        self.olds.clear();
        self.running.clear();
    }

    /// Returns the streams after all their work has ended.
    pub(crate) fn give_back(&mut self, writing: &Writing) {
        self.streams.drain(..).for_each(|stream| writing.call.streams.give_back(&stream));
    }
}
