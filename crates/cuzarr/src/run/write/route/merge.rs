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
use cuzarr_device::internal::{SlabRing, Threads, pool};
use cuzarr_device::{Buffer, Layout, NdBuffer, Stream, Tail, Transfer, TransferBox};

use crate::codec::batch::HostCopy;
use crate::codec::device::Headers;
use crate::codec::native::{Native, NativeBatch, Source};
use crate::error::{Error, ErrorKind, Result};
use crate::run::natives::Natives;
use crate::run::report::Stage;
use crate::run::schedule::scratch::ScratchBlock;
use crate::run::write::object::{StoredBytes, at_chunk};
use crate::run::write::writing::{Leaf, Writing};

/// Alignment of stored chunks in the buffer that is copied to the device for decoding.
const ALIGNMENT_BYTES: usize = 256;

/// The old elements of a chunk of which a write replaces a part.
pub(crate) enum Old {
    /// The chunk's stored bytes, which kernels will decode, with the headers that were read from the bytes.
    Frame(StoredBytes, Headers),
    /// Old elements that the host has decoded, in packed form.
    Packed(ScratchBlock),
}

/// A chunk of which a write changes a part, and its old elements; `None` if the chunk was not stored.
pub(crate) type Changed = (Leaf, Option<Old>);

/// A queue of chunks of which a write replaces a part, while threads fetch their old elements.
pub(crate) struct OldChunks {
    natives: Arc<Natives>,
    /// Kernels decode only chunks with at most this many stored bytes; the host decodes the others.
    bound_bytes: usize,
    sender: Sender<Option<Changed>>,
    receiver: Receiver<Option<Changed>>,
    /// Number of chunks whose old elements threads are still fetching.
    waiting: usize,
}

/// The message of a thread that fetched old elements: the chunk with these elements, or nothing after a failure. It is
/// sent in any case, so that no thread waits for a worker that failed.
struct Answer {
    sender: Sender<Option<Changed>>,
    changed: Option<Changed>,
}

impl Drop for Answer {
    fn drop(&mut self) {
        // If the call has failed, no thread receives the answer.
        let _ = self.sender.send(self.changed.take());
    }
}

impl OldChunks {
    pub(crate) fn new(natives: Arc<Natives>, bound_bytes: usize) -> OldChunks {
        let (sender, receiver) = channel();
        OldChunks { natives, bound_bytes, sender, receiver, waiting: 0 }
    }

    /// Lets a thread read the old bytes of a chunk from the store, of which the write replaces a part.
    pub(crate) fn fetch(&mut self, writing: &Arc<Writing>, leaf: Leaf) {
        let (natives, bound_bytes) = (Arc::clone(&self.natives), self.bound_bytes);
        self.submit(writing, leaf, move |writing, leaf| {
            let Some(stored) = leaf.place.load()? else { return Ok(None) };
            let bytes = stored.bytes();
            let native = natives.of(&leaf.chunk.layout).filter(|_| bytes.len() <= bound_bytes);
            match native.and_then(|native| native.headers(bytes)) {
                Some(headers) => Ok(Some(Old::Frame(stored, headers))),
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
        let (writing, sender) = (Arc::clone(writing), self.sender.clone());
        let call = Arc::clone(&writing.call);
        call.submit(writing.array.is_far(), move || {
            let mut answer = Answer { sender, changed: None };
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
        let (mut frames, mut headers, mut ranges, mut total_bytes) = (Vec::new(), Vec::new(), Vec::new(), 0_usize);
        for (index, old) in olds.into_iter().enumerate() {
            match old {
                None => {}
                Some(Old::Packed(packed)) => {
                    let chunk = chunks.chunk(index)?;
                    writing.call.counters.time(Stage::Upload, packed.len() as u64, || stream.h2d(&packed, &chunk))?;
                }
                Some(Old::Frame(stored, read)) => {
                    let start = total_bytes.next_multiple_of(ALIGNMENT_BYTES);
                    total_bytes = start + stored.bytes().len();
                    ranges.push(start..total_bytes);
                    frames.push((index, stored));
                    headers.push(read);
                }
            }
        }
        if frames.is_empty() {
            return Ok(None);
        }
        let (counters, count) = (&writing.call.counters, frames.len());
        let arena = pool::allocate(total_bytes.max(1), stream)?;
        let mut slab = if total_bytes <= slabs.limit_bytes() { slabs.try_acquire(total_bytes)? } else { None };
        let mut pageable = if slab.is_none() { vec![0; total_bytes] } else { Vec::new() };
        let bytes = match &mut slab {
            Some(slab) => &mut slab.bytes_mut()?[..total_bytes],
            None => &mut pageable[..],
        };
        put_together(writing, &frames, &ranges, bytes);
        if total_bytes > 0 {
            let upload = || match &mut slab {
                Some(slab) => slab.upload(0..total_bytes, &arena.slice(..total_bytes)?, stream),
                None => stream.h2d(&pageable, &arena),
            };
            counters.time_on(Stage::Upload, total_bytes as u64, stream, upload)?;
        }
        let bytes = match &slab {
            Some(slab) => &slab.bytes()?[..total_bytes],
            None => &pageable[..],
        };
        let decoded_bytes = count * chunks.size_bytes;
        let most = usize::try_from(native.scratch_copies()).unwrap_or(usize::MAX).saturating_mul(decoded_bytes);
        let source = Source { buffer: &arena, ranges, host: HostCopy { bytes: Some(bytes), headers: &headers } };
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

/// Copies stored frames one after the other into `bytes`, each to its range, with several threads. One thread would
/// take as long as all work on the device.
fn put_together(writing: &Writing, frames: &[(usize, StoredBytes)], ranges: &[Range<usize>], bytes: &mut [u8]) {
    let (mut rest, mut at) = (bytes, 0);
    let pieces: Vec<_> = ranges
        .iter()
        .zip(frames)
        .map(|(range, (_, stored))| {
            let (piece, behind) = std::mem::take(&mut rest)[range.start - at..].split_at_mut(range.len());
            (rest, at) = (behind, range.end);
            (piece, stored)
        })
        .collect();
    let copy = |(piece, stored): (&mut [u8], &StoredBytes)| piece.copy_from_slice(stored.bytes());
    Threads::workers().map(writing.call.threads, pieces, copy);
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
