//! Encodes chunks of a write with kernels, in batches. Chunks are gathered in packed form and encoded on the device,
//! and only the frames cross the bus. If a write changes a part of a chunk, the chunk's old elements are decoded first,
//! and the new ones are gathered over them (`crate::run::write::route::merge`).
//!
//! ```text
//! gather ─> compare with the fill value ─> filters ─> encode     a few batches   on streams of their own
//!                     sizes of frames ─> download      the one before  into a slab
//!                             store                    those before    by the workers
//! ```
//!
//! A batch is as large as a slab. Several batches are on the device at a time (`crate::plan::placement` decides how
//! many). Their memory is reserved before the first one begins, so no batch waits for memory.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use cuzarr_device::internal::{SlabRing, pool};
use cuzarr_device::{Buffer, Device, NdBuffer, Order, Stream, Tail};

use crate::codec::Program;
use crate::codec::batch::Blank;
use crate::codec::native::{Native, NativeEncoder, NativeEncoding, Strided};
use crate::error::{Error, Result};
use crate::plan::{ChunkLayout, Coverage, DeviceEncoding};
use crate::run::natives::Natives;
use crate::run::report::Stage;
use crate::run::write::elements::Elements;
use crate::run::write::event::Event;
use crate::run::write::gathering::{GatherTo, Gathering};
use crate::run::write::object::StoredBytes;
use crate::run::write::route::merge::{Changed, Decoding, Old, OldChunks, Packed, Undecoded, unpack};
use crate::run::write::writing::{Leaf, Seal, Writing};

/// The kernels that encode the chunks of one write, and the chunks that wait for them.
pub(crate) struct Encoders {
    device: Device,
    /// Whether whole chunks of different shapes are encoded in one batch. For this, packed chunks must become frames
    /// without other steps, and the encoder must accept chunks that are smaller than the largest.
    mixes: bool,
    /// The chunks that wait to be encoded, grouped by the kernels that encode them. Usually there is one.
    kinds: Vec<Kind>,
    numbers: HashMap<*const ChunkLayout, usize>,
    /// Number of chunks in a batch that kernels encode; `batches` is the number of batches on the device at a time.
    chunks: usize,
    batches: usize,
    /// The kernels that decode old chunks of which a part is written; `None` if the host merges such chunks.
    merging: Option<Arc<Natives>>,
    streams: VecDeque<Stream>,
    running: VecDeque<Running>,
}

/// Waiting chunks that the same kernels encode: of one layout, or also whole chunks of smaller layouts with
/// [`Encoders::mixes`].
struct Kind {
    layout: Arc<ChunkLayout>,
    native: NativeEncoder,
    merging: Option<Arc<Native>>,
    /// Gathers the waiting chunks in packed form, the form that is encoded.
    packed: Gathering,
    /// For each waiting chunk its old elements; `None` for a chunk that is replaced as a whole.
    olds: Vec<Option<Old>>,
    /// Gathers the waiting chunks once more as plain elements, if packed bytes cannot be compared with the fill value.
    plain: Option<Gathering>,
    /// A packed chunk whose elements all have the fill value, for chunks that reach beyond the array's edge. It is made
    /// when it is first needed.
    blank: Option<Buffer>,
    /// A chunk of plain elements that all have the fill value, to find chunks that are not stored; `None` if every
    /// chunk is stored.
    plain_blank: Option<Buffer>,
}

struct Running {
    encoding: NativeEncoding,
    /// The kernels that decode the old elements of this batch's chunks; they are checked when the batch ends.
    decoding: Option<Decoding>,
    leaves: Vec<Leaf>,
    /// The number of the group of waiting chunks from which the batch was taken.
    kind: usize,
    stream: Stream,
}

/// A batch of encoded chunks: their frames lie one after the other in device memory.
pub(crate) struct EncodedBatch {
    pub(crate) buffer: Buffer,
    pub(crate) leaves: Vec<FrameAt>,
    /// Chunks of the batch that are not stored, because all of their elements have the fill value.
    pub(crate) empty: Vec<Leaf>,
    /// Chunks of the batch, in packed form, that have an element that the codecs cannot encode. The host encodes them
    /// to get the error.
    pub(crate) refused: Vec<(Leaf, Buffer)>,
    /// Chunks whose old elements the kernels could not decode, with their stored bytes.
    pub(crate) undecoded: Vec<(Leaf, StoredBytes, Error)>,
}

/// A chunk that lies in a buffer, the range of its bytes there, and its checksum if the device computed it.
pub(crate) struct FrameAt {
    pub(crate) leaf: Leaf,
    pub(crate) range: Range<usize>,
    pub(crate) seal: Option<Seal>,
}

impl Kind {
    fn new(
        writing: &Writing,
        device: Device,
        layout: &Arc<ChunkLayout>,
        gathered: GatherTo,
        merging: Option<&Natives>,
    ) -> Result<Kind> {
        let program = layout.program()?;
        let tail = program.tail();
        let gathering = |tail: &Tail, to, size_bytes| Gathering::new(tail.clone(), to, size_bytes, usize::MAX);
        let packed = gathering(tail, gathered, program.packed_size_bytes());
        let elements = layout.chunk_elements();
        let is_compared = !writing.write_empty;
        let plain_bytes = tail.dtype.size_bytes() * elements;
        let plain = (is_compared && !tail.is_plain())
            .then(|| gathering(&Tail::plain(tail.dtype), GatherTo::Chunks, plain_bytes));
        let full = || NdBuffer::full(device, tail.dtype, &[elements], Order::C, &writing.fill);
        let plain_blank = is_compared.then(full).transpose()?.map(|blank| blank.buffer().clone());
        Ok(Kind {
            layout: Arc::clone(layout),
            native: NativeEncoder::of(program)?,
            merging: merging.and_then(|natives| natives.of(layout)),
            packed,
            olds: Vec::new(),
            plain,
            blank: None,
            plain_blank,
        })
    }

    /// Enqueues on a stream the kernels that gather the waiting chunks and encode them.
    fn begin(
        &mut self,
        writing: &Arc<Writing>,
        elements: &Elements,
        slabs: &SlabRing,
        kind: usize,
        stream: Stream,
    ) -> Result<Running> {
        let (leaves, olds) = (std::mem::take(&mut self.packed.leaves), std::mem::take(&mut self.olds));
        let staged = elements.stage(writing, &leaves, &stream)?;
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
            self.blank = Some(self.packed_blank(writing, staged.value.device())?);
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
            let size_bytes = leaves.iter().map(|leaf| gathering.bytes_of(leaf)).sum::<Result<usize>>()? as u64;
            let gather = || gathering.gather(writing, &leaves, &staged, chunks, &stream);
            counters.time_on(Stage::Gather, size_bytes, &stream, gather)
        };
        let chunks = fill(&self.packed, self.blank.as_ref())?;
        let size_bytes = self.packed.size_bytes;
        let old = Packed { buffer: &chunks, stride_bytes: stride, size_bytes };
        let decoding = match &self.merging {
            Some(native) if !kept.is_empty() => Decoding::begin(writing, native, olds, &old, slabs, &stream)?,
            _ => None,
        };
        let plain = match (&self.plain, &self.plain_blank) {
            (Some(plain), Some(blank)) => Some((plain, fill(plain, Some(blank))?)),
            _ => None,
        };
        if let Some((gathering, plain)) = plain.as_ref().filter(|_| !kept.is_empty()) {
            let (tail, elements) = (&self.packed.tail, self.layout.chunk_elements());
            unpack(&old, &kept, tail, elements, plain, gathering.padded_bytes, &stream)?;
        }
        gather(&self.packed, &chunks)?;
        let plain = match plain {
            Some((gathering, plain)) => {
                gather(gathering, &plain)?;
                Some((plain, gathering.padded_bytes))
            }
            None => None,
        };
        let count = leaves.len();
        let packed = Strided { buffer: chunks.clone(), stride_bytes: stride, size_bytes, count };
        let packed_bytes = leaves.iter().map(|leaf| self.packed.bytes_of(leaf)).collect::<Result<Vec<_>>>()?;
        let encoded_bytes = packed_bytes.iter().sum::<usize>() as u64;
        let compared_bytes = match &self.plain {
            Some(plain) => vec![plain.size_bytes; count],
            None => packed_bytes.clone(),
        };
        let blank = self.plain_blank.as_ref().map(|blank| {
            let (chunks, stride_bytes) = plain.as_ref().map_or((&chunks, stride), |(chunks, stride)| (chunks, *stride));
            Blank { chunks, stride_bytes, blank, compared_bytes: &compared_bytes }
        });
        let encode = || self.native.begin(&packed, packed_bytes, blank.as_ref(), &stream);
        let encoding = counters.time_on(Stage::Encode, encoded_bytes, &stream, encode)?;
        Ok(Running { encoding, decoding, leaves, kind, stream })
    }

    /// Returns a packed chunk whose elements all have the fill value.
    fn packed_blank(&self, writing: &Writing, device: Device) -> Result<Buffer> {
        match (&self.plain, &self.plain_blank) {
            // The chunk for the comparison is both plain and packed.
            (None, Some(blank)) => Ok(blank.clone()),
            _ => Ok(Buffer::from_bytes(device, &writing.packed_blank(&self.layout)?)?),
        }
    }
}

impl Encoders {
    /// Makes the encoders of a write, without chunks yet.
    pub(crate) fn new(writing: &Writing, program: &Program, device: Device, encoding: &DeviceEncoding) -> Encoders {
        let DeviceEncoding { encoder, merging, chunks, batches, .. } = encoding.clone();
        let (source, layout) = (&writing.plan.source, writing.plan.source.layout());
        let compares_packed = writing.write_empty || program.tail().is_plain();
        let encodes_packed = program.device_undo().chunk_bytes() == 0;
        Encoders {
            device,
            mixes: source.has_uneven_leaf() && encoder.takes_smaller() && compares_packed && encodes_packed,
            kinds: Vec::new(),
            numbers: HashMap::new(),
            chunks,
            batches,
            merging: merging.map(|native| Arc::new(Natives::new(0, layout, native))),
            streams: VecDeque::new(),
            running: VecDeque::new(),
        }
    }

    /// Makes the queue that fetches old elements of chunks; `None` if the host merges old and new elements. Chunks wait
    /// in at most `pinned_bytes` of pinned memory.
    ///
    /// # Errors
    /// `DeviceUnavailable`
    pub(crate) fn old_chunks(
        &self,
        bound_bytes: usize,
        pinned_bytes: usize,
        events: &Sender<Event>,
    ) -> Result<Option<OldChunks>> {
        let new = |natives: &Arc<Natives>| {
            OldChunks::new(Arc::clone(natives), bound_bytes, (self.device, pinned_bytes), events)
        };
        self.merging.as_ref().map(new).transpose()
    }

    /// Adds a chunk that kernels will encode, with its old elements if the write keeps some of them. Returns the number
    /// of the chunk's kind if the kind has enough chunks for a batch.
    ///
    /// # Errors
    /// `Unsupported` when kernels do not encode such chunks; `OutOfMemory`.
    pub(crate) fn add(&mut self, writing: &Writing, changed: Changed) -> Result<Option<usize>> {
        let (leaf, old) = changed;
        let (own, largest) = (&leaf.chunk.layout, writing.plan.source.layout());
        let is_whole = old.is_none() && leaf.chunk.coverage == Coverage::Full;
        let layout = if is_whole && self.mixes { largest } else { own };
        let number = match self.numbers.get(&Arc::as_ptr(layout)) {
            Some(&number) => number,
            None => {
                let gathered = if self.mixes { GatherTo::PackedChunks } else { GatherTo::Chunks };
                self.kinds.push(Kind::new(writing, self.device, layout, gathered, self.merging.as_deref())?);
                self.numbers.insert(Arc::as_ptr(layout), self.kinds.len() - 1);
                self.kinds.len() - 1
            }
        };
        let kind = &mut self.kinds[number];
        kind.packed.leaves.push(leaf);
        kind.olds.push(old);
        Ok((kind.packed.leaves.len() >= self.chunks).then_some(number))
    }

    /// Whether the device has so many batches that the frames of one must be taken before another batch can begin.
    pub(crate) fn is_full(&self) -> bool {
        self.running.len() >= self.batches
    }

    /// Returns the number of a group of chunks that are not yet being encoded; `None` if there is none.
    pub(crate) fn waiting(&self) -> Option<usize> {
        self.kinds.iter().position(|kind| !kind.packed.leaves.is_empty())
    }

    /// Enqueues the kernels that gather and encode the waiting chunks of the group `kind`. Old elements are uploaded
    /// through `slabs`.
    pub(crate) fn begin(
        &mut self,
        writing: &Arc<Writing>,
        elements: &Elements,
        slabs: &SlabRing,
        kind: usize,
    ) -> Result<()> {
        let stream = if self.streams.len() < self.batches { None } else { self.streams.pop_front() };
        let stream = stream.map_or_else(|| writing.call.streams.take(self.device), Ok)?;
        self.streams.push_back(stream.clone());
        let running = self.kinds[kind].begin(writing, elements, slabs, kind, stream)?;
        self.running.push_back(running);
        Ok(())
    }

    /// Waits until kernels have encoded the oldest batch, and returns its frames; `None` if there is no batch.
    pub(crate) fn take(&mut self) -> Result<Option<EncodedBatch>> {
        let Some(running) = self.running.pop_front() else { return Ok(None) };
        let Running { encoding, decoding, leaves, kind, stream } = running;
        let kind = &self.kinds[kind];
        let encoded = encoding.finish(|| Ok(stream))?;
        let mut checksums = encoded.checksums.iter();
        let (mut stored, mut empty, mut refused) = (Vec::with_capacity(leaves.len()), Vec::new(), Vec::new());
        let (mut undecoded, mut missing) = (Vec::new(), decoding.map_or(Ok(Vec::new()), Decoding::check)?.into_iter());
        let mut next = missing.next();
        for (index, (leaf, frame)) in leaves.into_iter().zip(&encoded.frames).enumerate() {
            let checksum = frame.as_ref().and_then(|_| checksums.next());
            let seal = checksum.zip(kind.native.checksum).map(|(&checksum, (_, location))| Seal { checksum, location });
            // Both lists are in the order of the chunks.
            if let Some(Undecoded { stored, error, .. }) = next.take_if(|undecoded| undecoded.index == index) {
                undecoded.push((leaf, stored, error));
                next = missing.next();
                continue;
            }
            match (frame, encoded.refused(index)?) {
                (None, _) => empty.push(leaf),
                (Some(_), Some(packed)) => refused.push((leaf, Buffer::from_vec(packed))),
                (Some(range), None) => stored.push(FrameAt { leaf, range: range.clone(), seal }),
            }
        }
        Ok(Some(EncodedBatch { buffer: encoded.buffer, leaves: stored, empty, refused, undecoded }))
    }

    /// Drops all waiting chunks and running batches, because the write has failed.
    pub(crate) fn abandon(&mut self) {
        self.kinds.clear();
        self.numbers.clear();
        self.running.clear();
    }

    /// Returns the CUDA streams of this write to the process's pool, after all their work has ended.
    pub(crate) fn give_back(&mut self, writing: &Writing) {
        self.streams.drain(..).for_each(|stream| writing.call.streams.give_back(&stream));
    }
}
