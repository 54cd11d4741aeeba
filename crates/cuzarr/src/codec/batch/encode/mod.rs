//! The way back: chunks of one size in device memory become frames there.
//!
//! An [`EncodeBatch`] is prepared for chunks that lie in one buffer, run in the order of a stream, and finished: then the host
//! knows where each frame lies, and only those bytes need to cross the bus. A codec hands the encoder of chunks of a size out
//! by [`crate::codec::BytesToBytes::device_encoder`].

mod cuda;

use std::fmt;
use std::ops::Range;

use cuzarr_device::{Buffer, Device, Event, Stream};

pub use self::cuda::place_frames;
use crate::codec::device::{ChunkRow, DeviceEncoder, Encode, EncodeTask, FRAME_ENTRY_BYTES, Launched};
use crate::{Error, ErrorKind, Result};

/// Chunks that are encoded together.
pub struct EncodeBatch {
    src: Buffer,
    encode: Box<dyn Encode>,
    len: usize,
    running: Option<(Launched, Event)>,
}

/// Frames in device memory.
#[derive(Debug)]
pub struct Encoded {
    /// The memory they lie in, in the order of the chunks.
    pub buffer: Buffer,
    /// Where each frame is; `None` for a chunk of nothing but the fill value.
    pub frames: Vec<Option<Range<usize>>>,
}

/// Chunks that may hold nothing but the fill value, compared before they are encoded.
pub(crate) struct Blank<'a> {
    /// Their elements, in pieces of the length of `blank`, `stride_bytes` from one chunk to the next.
    pub(crate) chunks: &'a Buffer,
    pub(crate) stride_bytes: usize,
    /// A chunk of the fill value.
    pub(crate) blank: &'a Buffer,
}

/// Bytes of the word that says whether a chunk is encoded.
const WANTED_BYTES: usize = 4;

impl fmt::Debug for EncodeBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncodeBatch({} chunks)", self.len)
    }
}

impl EncodeBatch {
    /// Plans the encoding of `count` chunks of `src`, `stride_bytes` from one to the next. Nothing is put on the device yet.
    ///
    /// # Errors
    /// `InvalidArgument` for chunks that are not inside `src` or do not begin at multiples of 16, `MemorySpace` for host
    /// memory; `DeviceUnavailable`, `LibraryMissing`, `KernelCompileFailed`.
    pub fn prepare(
        encoder: &dyn DeviceEncoder,
        src: &Buffer,
        stride_bytes: usize,
        count: usize,
    ) -> Result<EncodeBatch> {
        if src.device() == Device::Cpu {
            return Err(Error::new(ErrorKind::MemorySpace, "kernels do not encode chunks in host memory"));
        }
        let (last, chunk) = (stride_bytes.checked_mul(count.saturating_sub(1)), encoder.chunk_bytes());
        let end = last.and_then(|last| last.checked_add(chunk)).unwrap_or(usize::MAX);
        let is_inside = count == 0 || end <= src.size_bytes();
        if !is_inside || !stride_bytes.is_multiple_of(16) || stride_bytes < chunk || count > i32::MAX as usize {
            let have = src.size_bytes();
            let message =
                format!("{count} chunks of {chunk} bytes, {stride_bytes} from one to the next, in a buffer of {have}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        if !src.address().is_multiple_of(16) {
            let message = "chunks for kernels begin at a multiple of 16 bytes of memory, and these do not";
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("copy them to memory of their own"));
        }
        let encode = encoder.prepare(&ChunkRow { device: src.device(), count, stride_bytes })?;
        Ok(EncodeBatch { src: src.clone(), encode, len: count, running: None })
    }

    /// Most device memory that a run takes beside the chunks, its results included.
    pub fn memory_bytes(encoder: &dyn DeviceEncoder, row: &ChunkRow) -> usize {
        encoder.memory_bytes(row).saturating_add(row.count.saturating_mul(WANTED_BYTES))
    }

    /// Puts the encoding on `stream`.
    ///
    /// # Errors
    /// `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
    pub fn run(&mut self, stream: &Stream) -> Result<()> {
        self.run_unless_blank(None, stream)
    }

    /// Like [`EncodeBatch::run`], but leaves out the chunks that have the bits of `blank`.
    pub(crate) fn run_unless_blank(&mut self, blank: Option<&Blank<'_>>, stream: &Stream) -> Result<()> {
        self.running = None;
        if let Some(Blank { chunks, stride_bytes, blank }) = blank {
            let last = stride_bytes.saturating_mul(self.len.saturating_sub(1));
            let is_aligned = [chunks.address(), blank.address(), *stride_bytes].iter().all(|at| at.is_multiple_of(16));
            if !is_aligned || last.saturating_add(blank.size_bytes()) > chunks.size_bytes() {
                let message = format!("{} chunks are not comparable with a blank one", self.len);
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
        }
        if self.len > 0 {
            let wanted = cuda::wanted(blank, self.len, stream)?;
            let launched = self.encode.launch(&EncodeTask { stream, src: &self.src, wanted: &wanted })?;
            self.running = Some((launched, stream.record()?));
        }
        Ok(())
    }

    /// Waits for the last run, and says where the frames are.
    ///
    /// # Errors
    /// `DeviceFailed`; `InvalidArgument` when the batch was not run.
    pub fn finish(self) -> Result<Encoded> {
        if self.len == 0 {
            return Ok(Encoded { buffer: self.src.slice(0..0)?, frames: Vec::new() });
        }
        let Some((Launched { out, frames }, done)) = self.running else {
            return Err(Error::new(ErrorKind::InvalidArgument, "the batch was not run"));
        };
        done.synchronize()?;
        // Not on the stream of the run, which may have other work by now.
        let entries = frames.to_vec()?;
        let frames = entries.as_chunks::<FRAME_ENTRY_BYTES>().0.iter().map(|entry| {
            let [at @ .., a, b, c, d, _, _, _, _] = *entry;
            let (at, size) = (u64::from_ne_bytes(at) as usize, u32::from_ne_bytes([a, b, c, d]) as usize);
            (size > 0).then_some(at..at + size)
        });
        let frames = frames.collect();
        Ok(Encoded { buffer: out, frames })
    }
}
