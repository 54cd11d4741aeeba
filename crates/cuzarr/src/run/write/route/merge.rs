//! Merges new elements with the old ones of partly written chunks, on the device. A write that changes a part of a
//! chunk needs the chunk's other elements. Workers fetch the stored bytes, and kernels decode them to where the new
//! elements are then written. After that, the chunk is encoded like one that is replaced as a whole.
//!
//! ```text
//! fetch (workers) ─> slab ─> upload ─> decode ─> new elements over it ─> encode (`crate::run::write::route::encode`)
//! ```
//!
//! Frames that kernels cannot decode are decoded by the worker that fetched them.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use cuzarr_device::internal::transfer::{copy_pieces_on, scatter_on};
use cuzarr_device::internal::{Slab, SlabRing, Threads, pool};
use cuzarr_device::{Buffer, Device, Layout, NdBuffer, Stream, Tail, Transfer, TransferBox};

use crate::codec::batch::HostCopy;
use crate::codec::device::Headers;
use crate::codec::native::{Native, NativeBatch, Source};
use crate::error::{Error, ErrorKind, Result};
use crate::run::natives::Natives;
use crate::run::report::Stage;
use crate::run::schedule::scratch::ScratchBlock;
use crate::run::write::event::Event;
use crate::run::write::object::{StoredBytes, at_chunk};
use crate::run::write::writing::{Leaf, Writing};

/// Alignment of stored chunks in the buffer that is copied to the device for decoding.
const ALIGNMENT_BYTES: usize = 256;

/// The old elements of a chunk of which a write replaces a part.
pub(crate) enum Old {
    /// The chunk's stored bytes, which kernels will decode.
    Frame(OldFrame),
    /// Old elements that the host has decoded, in packed form.
    Packed(ScratchBlock),
}

/// The stored bytes of an old chunk that kernels will decode.
pub(crate) struct OldFrame {
    stored: StoredBytes,
    /// The headers that were read from the bytes.
    headers: Headers,
    /// The bytes in pinned memory, from where they go to the device; `None` if there was no room.
    pinned: Option<Slab>,
}

/// A chunk of which a write changes a part, and its old elements; `None` if the chunk was not stored.
pub(crate) type Changed = (Leaf, Option<Old>);

/// A queue of chunks of which a write replaces a part, while threads fetch their old elements.
pub(crate) struct OldChunks {
    natives: Arc<Natives>,
    /// Kernels decode only chunks with at most this many stored bytes; the host decodes the others.
    bound_bytes: usize,
    /// Pinned memory for stored bytes. The threads that fetch them put them there, because one thread would take as long
    /// as all work on the device. `None` if decoders need the bytes of a batch in one piece.
    ring: Option<SlabRing>,
    sender: Sender<Option<Changed>>,
    receiver: Receiver<Option<Changed>>,
    /// Tells the coordinator of the write that an answer came.
    events: Sender<Event>,
    /// Number of chunks whose old elements threads are still fetching.
    waiting: usize,
}

/// The message of a thread that fetched old elements: the chunk with these elements, or nothing after a failure. It is
/// sent in any case, so that no thread waits for a worker that failed.
struct Answer {
    sender: Sender<Option<Changed>>,
    events: Sender<Event>,
    changed: Option<Changed>,
}

impl Drop for Answer {
    fn drop(&mut self) {
        // If the call has failed, no thread receives the answer.
        let _ = self.sender.send(self.changed.take());
        let _ = self.events.send(Event::Fetched);
    }
}

impl OldChunks {
    /// Makes the queue of a write. Its chunks wait in at most `pinned_bytes` of pinned memory.
    ///
    /// # Errors
    /// `DeviceUnavailable`
    pub(crate) fn new(
        natives: Arc<Natives>,
        bound_bytes: usize,
        (device, pinned_bytes): (Device, usize),
        events: &Sender<Event>,
    ) -> Result<OldChunks> {
        let (sender, receiver) = channel();
        let ring = (pinned_bytes >= bound_bytes && !natives.usual().reads_frames())
            .then(|| SlabRing::new(device, bound_bytes, pinned_bytes))
            .transpose()?;
        Ok(OldChunks { natives, bound_bytes, ring, sender, receiver, events: events.clone(), waiting: 0 })
    }

    /// Lets a thread read the old bytes of a chunk from the store, of which the write replaces a part.
    pub(crate) fn fetch(&mut self, writing: &Arc<Writing>, leaf: Leaf) {
        let (natives, bound_bytes, ring) = (Arc::clone(&self.natives), self.bound_bytes, self.ring.clone());
        self.submit(writing, leaf, move |writing, leaf| {
            let Some(stored) = leaf.place.load()? else { return Ok(None) };
            let bytes = stored.bytes();
            let native = natives.of(&leaf.chunk.layout).filter(|_| bytes.len() <= bound_bytes);
            match native.and_then(|native| native.headers(bytes)) {
                Some(headers) => {
                    let mut pinned = ring.map(|ring| ring.try_acquire(bytes.len())).transpose()?.flatten();
                    if let Some(slab) = &mut pinned {
                        slab.bytes_mut()?[..bytes.len()].copy_from_slice(bytes);
                    }
                    Ok(Some(Old::Frame(OldFrame { stored, headers, pinned })))
                }
                None => decode(writing, leaf, &stored).map(Some),
            }
        });
    }

    /// Lets a host thread decode an old chunk that kernels could not decode.
    pub(crate) fn decode_on_host(&mut self, writing: &Arc<Writing>, leaf: Leaf, stored: StoredBytes) {
        self.submit(writing, leaf, move |writing, leaf| decode(writing, leaf, &stored).map(Some));
    }

    fn submit(
        &mut self,
        writing: &Arc<Writing>,
        leaf: Leaf,
        work: impl FnOnce(&Writing, &Leaf) -> Result<Option<Old>> + Send + 'static,
    ) {
        self.waiting += 1;
        let (writing, sender, events) = (Arc::clone(writing), self.sender.clone(), self.events.clone());
        let call = Arc::clone(&writing.call);
        call.submit(writing.array.is_far(), move || {
            let mut answer = Answer { sender, events, changed: None };
            if writing.call.is_cancelled() {
                return;
            }
            let outcome = catch_unwind(AssertUnwindSafe(|| work(&writing, &leaf)));
            let panicked = |_| Err(Error::new(ErrorKind::EncodeFailed, "a codec panicked; please report this"));
            match at_chunk(outcome.unwrap_or_else(panicked), &leaf.chunk.name) {
                Ok(old) => answer.changed = Some((leaf, old)),
                Err(error) => writing.array.fail(error),
            }
        });
    }

    /// Whether threads are still fetching the old elements of some chunks.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Returns the next chunk whose old elements were fetched; `None` if there is none now.
    pub(crate) fn try_next(&mut self) -> Option<Changed> {
        while let Ok(answer) = self.receiver.try_recv() {
            self.waiting -= 1;
            if answer.is_some() {
                return answer;
            }
        }
        None
    }

    /// Waits for the next chunk whose old elements are fetched; `None` if there are no more chunks.
    ///
    /// # Errors
    /// `Cancelled`
    pub(crate) fn next(&mut self, writing: &Writing) -> Result<Option<Changed>> {
        while self.is_waiting() {
            writing.call.check_cancelled()?;
            // `None` never comes, because `self` has a sender too.
            let Some(answer) = writing.call.cancellation.receive(&self.receiver)? else { break };
            self.waiting -= 1;
            if answer.is_some() {
                return Ok(answer);
            }
        }
        Ok(None)
    }
}

/// Decodes the stored bytes of an old chunk on the host, to be merged with new elements.
fn decode(writing: &Writing, leaf: &Leaf, stored: &StoredBytes) -> Result<Old> {
    let program = leaf.chunk.layout.program()?;
    let mut packed = writing.call.scratch.take(program.packed_size_bytes())?;
    let size_bytes = packed.len() as u64;
    writing.call.counters.time(Stage::Decode, size_bytes, || program.decode(stored.bytes(), &mut packed))?;
    Ok(Old::Packed(packed))
}

/// Where the packed chunks of one batch lie in device memory.
pub(crate) struct Packed<'a> {
    pub(crate) buffer: &'a Buffer,
    pub(crate) stride_bytes: usize,
    pub(crate) size_bytes: usize,
}

impl Packed<'_> {
    fn chunk(&self, index: usize) -> Result<Buffer> {
        let start = index * self.stride_bytes;
        Ok(self.buffer.slice(start..start + self.size_bytes)?)
    }
}

/// The kernels that decode the old chunks of one batch.
pub(crate) struct Decoding {
    batch: NativeBatch,
    /// For each old chunk that kernels decode, its number in the batch and its stored bytes.
    frames: Vec<(usize, StoredBytes)>,
}

/// An old chunk that kernels did not decode, with the reason.
pub(crate) struct Undecoded {
    pub(crate) index: usize,
    pub(crate) stored: StoredBytes,
    pub(crate) error: Error,
}

impl Decoding {
    /// Decodes old chunks into the packed memory of a batch, over which new elements are then written, in the order of
    /// `stream`. Returns `None` if kernels need not decode any.
    ///
    /// # Errors
    /// `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
    pub(crate) fn begin(
        writing: &Writing,
        native: &Native,
        olds: Vec<Option<Old>>,
        chunks: &Packed<'_>,
        slabs: &SlabRing,
        stream: &Stream,
    ) -> Result<Option<Decoding>> {
        let (mut frames, mut ranges, mut total_bytes) = (Vec::new(), Vec::new(), 0_usize);
        for (index, old) in olds.into_iter().enumerate() {
            match old {
                None => {}
                Some(Old::Packed(packed)) => {
                    let chunk = chunks.chunk(index)?;
                    writing.call.counters.time(Stage::Upload, packed.len() as u64, || stream.h2d(&packed, &chunk))?;
                }
                Some(Old::Frame(frame)) => {
                    let start = total_bytes.next_multiple_of(ALIGNMENT_BYTES);
                    total_bytes = start + frame.stored.bytes().len();
                    ranges.push(start..total_bytes);
                    frames.push((index, frame));
                }
            }
        }
        if frames.is_empty() {
            return Ok(None);
        }
        let (counters, count) = (&writing.call.counters, frames.len());
        let arena = pool::allocate(total_bytes.max(1), stream)?;
        let mut together = Together::default();
        let upload = || match native.reads_frames() {
            true => together.upload(writing, &frames, &ranges, (&arena, slabs, stream)),
            false => frames.iter_mut().zip(&ranges).try_for_each(|((_, frame), range)| {
                let target = arena.slice(range.clone())?;
                match &mut frame.pinned {
                    Some(slab) => Ok(slab.upload(0..range.len(), &target, stream)?),
                    None => Ok(stream.h2d(frame.stored.bytes(), &target)?),
                }
            }),
        };
        counters.time_on(Stage::Upload, total_bytes as u64, stream, upload)?;
        let (headers, frames): (Vec<Headers>, Vec<(usize, StoredBytes)>) =
            frames.into_iter().map(|(index, frame)| (frame.headers, (index, frame.stored))).unzip();
        let bytes = if native.reads_frames() { Some(together.bytes(total_bytes)?) } else { None };
        let decoded_bytes = count * chunks.size_bytes;
        let most = usize::try_from(native.scratch_copies()).unwrap_or(usize::MAX).saturating_mul(decoded_bytes);
        let source = Source { buffer: &arena, ranges, host: HostCopy { bytes, headers: &headers } };
        let mut batch = native.prepare(source, most.into(), stream)?;
        counters.time_on(Stage::Decode, decoded_bytes as u64, stream, || batch.run(stream))?;
        let (packed, offsets) = batch.packed();
        let pieces = frames
            .iter()
            .zip(offsets)
            .map(|((index, _), offset)| Ok((packed.slice(offset..offset + chunks.size_bytes)?, chunks.chunk(*index)?)));
        copy_pieces_on(&pieces.collect::<Result<Vec<_>>>()?, stream)?;
        Ok(Some(Decoding { batch, frames }))
    }

    /// Waits for the decoding kernels, and returns the chunks that they could not decode.
    ///
    /// # Errors
    /// `DeviceFailed`
    pub(crate) fn check(mut self) -> Result<Vec<Undecoded>> {
        let results = self.batch.check()?.into_iter().zip(self.frames);
        let undecoded = results.filter_map(|(result, (index, stored))| {
            let error = result.err()?;
            Some(Undecoded { index, stored, error })
        });
        Ok(undecoded.collect())
    }
}

/// Stored frames of a batch, one after the other in host memory, for decoders that read them there.
#[derive(Default)]
struct Together {
    slab: Option<Slab>,
    pageable: Vec<u8>,
}

impl Together {
    /// Puts stored frames together, each in its range, with several threads, and copies them to the device.
    fn upload(
        &mut self,
        writing: &Writing,
        frames: &[(usize, OldFrame)],
        ranges: &[Range<usize>],
        (arena, slabs, stream): (&Buffer, &SlabRing, &Stream),
    ) -> Result<()> {
        let total_bytes = ranges.last().map_or(0, |last| last.end);
        self.slab = if total_bytes <= slabs.limit_bytes() { slabs.try_acquire(total_bytes)? } else { None };
        let bytes = match &mut self.slab {
            Some(slab) => &mut slab.bytes_mut()?[..total_bytes],
            None => {
                self.pageable = vec![0; total_bytes];
                &mut self.pageable[..]
            }
        };
        let (mut rest, mut at) = (bytes, 0);
        let pieces: Vec<_> = ranges
            .iter()
            .zip(frames)
            .map(|(range, (_, frame))| {
                let (piece, behind) = std::mem::take(&mut rest)[range.start - at..].split_at_mut(range.len());
                (rest, at) = (behind, range.end);
                (piece, &frame.stored)
            })
            .collect();
        let copy = |(piece, stored): (&mut [u8], &StoredBytes)| piece.copy_from_slice(stored.bytes());
        Threads::workers().map(writing.call.threads, pieces, copy);
        match &mut self.slab {
            _ if total_bytes == 0 => Ok(()),
            Some(slab) => Ok(slab.upload(0..total_bytes, &arena.slice(..total_bytes)?, stream)?),
            None => Ok(stream.h2d(&self.pageable, arena)?),
        }
    }

    fn bytes(&self, total_bytes: usize) -> Result<&[u8]> {
        match &self.slab {
            Some(slab) => Ok(&slab.bytes()?[..total_bytes]),
            None => Ok(&self.pageable),
        }
    }
}

/// Converts decoded chunks to plain elements in the buffer `plain`. There, chunks begin at multiples of `stride_bytes`.
///
/// # Errors
/// `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
pub(crate) fn unpack(
    chunks: &Packed<'_>,
    indexes: &[usize],
    tail: &Tail,
    elements: usize,
    plain: &Buffer,
    stride_bytes: usize,
    stream: &Stream,
) -> Result<()> {
    let (width, count) = (tail.dtype.size_bytes(), plain.size_bytes() / stride_bytes.max(1));
    let layout =
        Layout::strided(&[count, elements], &[stride_bytes as isize, width as isize], 0, width, plain.size_bytes())?;
    let target = NdBuffer::from_parts(plain.clone(), tail.dtype, layout)?;
    let boxes = indexes.iter().map(|&index| TransferBox {
        packed_offset_bytes: index * chunks.stride_bytes,
        packed_size_bytes: chunks.size_bytes,
        packed_first_elem: 0,
        start: vec![index, 0],
        extent: vec![1, elements],
    });
    let transfer = Transfer { tail: tail.clone(), packed_strides: vec![0, 1], lists: None, boxes: boxes.collect() };
    Ok(scatter_on(chunks.buffer, &transfer, &target, stream)?)
}
