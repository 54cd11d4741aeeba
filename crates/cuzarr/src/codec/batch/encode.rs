//! The way back: chunks of one size in device memory become frames there.
//!
//! An [`EncodeBatch`] is prepared for chunks that lie in one buffer, run in the order of a stream, and finished: then the host
//! knows where each frame lies, and only those bytes need to cross the bus. A codec that has kernels says which frames it
//! makes of chunks of a size by [`crate::codec::BytesToBytes::device_encoding`].

use std::fmt;
use std::ops::Range;

use cuzarr_device::{Buffer, Device, Event, Stream};

pub use crate::codec::lz4::encode::Encoding;
pub(crate) use crate::codec::lz4::encode::cuda::Blank;
use crate::codec::lz4::encode::cuda::{Encoder, FRAME_ENTRY_BYTES, Launched};
use crate::{Error, ErrorKind, Result};

/// Chunks that are encoded together.
pub struct EncodeBatch {
    src: Buffer,
    encoder: Encoder,
    len: usize,
    running: Option<(Launched, Event)>,
}

/// Frames in device memory.
#[derive(Debug)]
pub struct Encoded {
    /// The memory they lie in, in the order of the chunks.
    pub buffer: Buffer,
    /// Where each is; `None` for a chunk of nothing but the fill value.
    pub frames: Vec<Option<Range<usize>>>,
}

impl fmt::Debug for EncodeBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncodeBatch({} chunks)", self.len)
    }
}

impl EncodeBatch {
    /// Plans the encoding of `count` chunks of `src`, `stride_bytes` from one to the next. Nothing is put on the device yet.
    ///
    /// # Errors
    /// `InvalidArgument` for chunks that are not inside `src`, `MemorySpace` for host memory; `DeviceUnavailable`,
    /// `LibraryMissing`, `KernelCompileFailed`.
    pub fn prepare(encoding: Encoding, src: &Buffer, stride_bytes: usize, count: usize) -> Result<EncodeBatch> {
        if src.device() == Device::Cpu {
            return Err(Error::new(ErrorKind::MemorySpace, "kernels do not encode what is in host memory"));
        }
        let last = stride_bytes.checked_mul(count.saturating_sub(1));
        let end = last.and_then(|last| last.checked_add(encoding.chunk_bytes())).unwrap_or(usize::MAX);
        if (count > 0 && end > src.size_bytes()) || !stride_bytes.is_multiple_of(16) {
            let (chunk, have) = (encoding.chunk_bytes(), src.size_bytes());
            let message =
                format!("{count} chunks of {chunk} bytes, {stride_bytes} from one to the next, in a buffer of {have}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let encoder = Encoder::new(src.device(), encoding, count, stride_bytes)?;
        Ok(EncodeBatch { src: src.clone(), encoder, len: count, running: None })
    }

    /// Most device memory that a run takes beside the chunks, what it gives included.
    pub fn memory_bytes(encoding: &Encoding, device: Device, stride_bytes: usize, count: usize) -> usize {
        Encoder::memory_bytes(encoding, device, count, stride_bytes)
    }

    /// Puts the encoding on `stream`.
    ///
    /// # Errors
    /// `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
    pub fn run(&mut self, stream: &Stream) -> Result<()> {
        self.run_unless_blank(None, stream)
    }

    /// As [`EncodeBatch::run`], without the chunks that are equal to `blank`.
    pub(crate) fn run_unless_blank(&mut self, blank: Option<&Blank<'_>>, stream: &Stream) -> Result<()> {
        self.running = None;
        if self.len > 0 {
            let launched = self.encoder.launch(&self.src, blank, stream)?;
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
