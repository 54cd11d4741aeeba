//! Encoding on a device: chunks in device memory become frames there.
//!
//! An [`EncodeBatch`] is prepared for chunks that lie in one buffer, run in the order of a stream, and finished. After
//! that, the host knows where each frame lies, and only the frames' bytes need to cross the bus. A codec returns the
//! encoder for chunks of one size from [`crate::codec::BytesToBytes::device_encoder`].

mod cuda;

use std::fmt;
use std::ops::Range;

use cuzarr_device::{Buffer, Device, Event, Stream};

pub use self::cuda::place_frames;
use crate::codec::device::{ChunkRow, DeviceEncoder, Encode, EncodeTask, FRAME_ENTRY_BYTES, Launched};
use crate::{Error, ErrorKind, Result};

/// Chunks of one buffer that a device encodes together, one frame for each chunk.
pub struct EncodeBatch {
    src: Buffer,
    encode: Box<dyn Encode>,
    chunk_bytes: Vec<usize>,
    running: Option<(Launched, Event)>,
}

/// The frames of encoded chunks, in device memory.
#[derive(Debug)]
pub struct Encoded {
    /// The memory that holds the frames, in the order of the chunks.
    pub buffer: Buffer,
    /// For each chunk, the range of its frame in `buffer`; `None` if all of its elements are the fill value.
    pub frames: Vec<Option<Range<usize>>>,
}

/// Chunks that a device compares with a chunk of the fill value before it encodes them. Chunks that equal it bit for
/// bit are not encoded.
pub(crate) struct Blank<'a> {
    /// The buffer of chunks that are compared with `blank`, `stride_bytes` from one to the next.
    pub(crate) chunks: &'a Buffer,
    pub(crate) stride_bytes: usize,
    /// A chunk full of the fill value, as large as the largest of `chunks`.
    pub(crate) blank: &'a Buffer,
    /// For each chunk, how many of its bytes are compared with `blank`.
    pub(crate) compared_bytes: &'a [usize],
}

/// Bytes of the `u32` by which kernels are told the size of one chunk.
const SIZE_BYTES: usize = 4;

impl fmt::Debug for EncodeBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncodeBatch({} chunks)", self.chunk_bytes.len())
    }
}

impl EncodeBatch {
    /// Plans the encoding of the chunks in `src`, `stride_bytes` from one to the next. `chunk_bytes` holds the size of
    /// each chunk. All have the encoder's chunk size, unless the encoder [takes smaller
    /// chunks](DeviceEncoder::takes_smaller). Nothing is put on the device yet.
    ///
    /// # Errors
    /// `InvalidArgument` for chunks that are not inside `src`, do not begin at multiples of 16, or have a size that the encoder does not
    /// take; `MemorySpace` for host memory; `DeviceUnavailable`, `LibraryMissing`, `KernelCompileFailed`.
    pub fn prepare(
        encoder: &dyn DeviceEncoder,
        src: &Buffer,
        stride_bytes: usize,
        chunk_bytes: Vec<usize>,
    ) -> Result<EncodeBatch> {
        if src.device() == Device::Cpu {
            return Err(Error::new(ErrorKind::MemorySpace, "kernels do not encode chunks in host memory"));
        }
        let (count, most) = (chunk_bytes.len(), encoder.chunk_bytes());
        let last = stride_bytes.checked_mul(count.saturating_sub(1));
        let end = last.and_then(|last| last.checked_add(*chunk_bytes.last()?)).unwrap_or(usize::MAX);
        let is_inside = count == 0 || end <= src.size_bytes();
        if !is_inside || !stride_bytes.is_multiple_of(16) || stride_bytes < most || count > i32::MAX as usize {
            let have = src.size_bytes();
            let message =
                format!("{count} chunks of {most} bytes, {stride_bytes} from one to the next, in a buffer of {have}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let least = if encoder.takes_smaller() { 1 } else { most };
        if let Some(odd) = chunk_bytes.iter().find(|size| !(least..=most).contains(*size)) {
            let message = format!("a chunk of {odd} bytes, for an encoder of chunks of {least} to {most}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        if !src.address().is_multiple_of(16) {
            let message = "chunks for kernels begin at a multiple of 16 bytes of memory, and these do not";
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("copy them to memory of their own"));
        }
        let encode = encoder.prepare(&ChunkRow { device: src.device(), count, stride_bytes })?;
        Ok(EncodeBatch { src: src.clone(), encode, chunk_bytes, running: None })
    }

    /// Maximum device memory, in bytes, that one run takes for its work and for the frames, without the input chunks.
    pub fn memory_bytes(encoder: &dyn DeviceEncoder, row: &ChunkRow) -> usize {
        encoder.memory_bytes(row).saturating_add(row.count.saturating_mul(3 * SIZE_BYTES))
    }

    /// Launches the encoding of all chunks of the batch on `stream`, without waiting for the result.
    ///
    /// # Errors
    /// `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
    pub fn run(&mut self, stream: &Stream) -> Result<()> {
        self.run_unless_blank(None, stream)
    }

    /// Like [`EncodeBatch::run`], but leaves out chunks that equal the fill value of `blank` bit for bit.
    pub(crate) fn run_unless_blank(&mut self, blank: Option<&Blank<'_>>, stream: &Stream) -> Result<()> {
        self.running = None;
        let count = self.chunk_bytes.len();
        if let Some(Blank { chunks, stride_bytes, blank, compared_bytes }) = blank {
            let ends = compared_bytes
                .iter()
                .enumerate()
                .map(|(at, bytes)| at.saturating_mul(*stride_bytes).saturating_add(*bytes));
            let is_inside = ends.max().unwrap_or(0) <= chunks.size_bytes() && compared_bytes.len() == count;
            let most = compared_bytes.iter().max().copied().unwrap_or(0);
            let is_aligned = [chunks.address(), blank.address(), *stride_bytes].iter().all(|at| at.is_multiple_of(16));
            if !is_aligned || !is_inside || most > blank.size_bytes() {
                let message = format!("{count} chunks are not comparable with a blank one");
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
        }
        if count > 0 {
            let sizes = cuda::sizes(blank, &self.chunk_bytes, stream)?;
            let task = EncodeTask { stream, src: &self.src, sizes: &sizes, chunk_bytes: &self.chunk_bytes };
            let launched = self.encode.launch(&task)?;
            self.running = Some((launched, stream.record()?));
        }
        Ok(())
    }

    /// Waits for the latest [`EncodeBatch::run`], and returns its frames.
    ///
    /// # Errors
    /// `DeviceFailed`; `InvalidArgument` when the batch was not run.
    pub fn finish(self) -> Result<Encoded> {
        if self.chunk_bytes.is_empty() {
            return Ok(Encoded { buffer: self.src.slice(0..0)?, frames: Vec::new() });
        }
        let Some((Launched { out, frames }, done)) = self.running else {
            return Err(Error::new(ErrorKind::InvalidArgument, "the batch was not run"));
        };
        done.synchronize()?;
        // The copy does not go onto the stream of the run, which may have other work by now.
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
