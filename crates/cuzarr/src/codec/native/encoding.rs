//! Encoding on a device: packed chunks become frames, for whole writes and for encoders that are used directly.
//!
//! ```text
//! packed ──[filters]── chunks ──[encoder]── frames ──[crc32c]── checksums
//! ```

use std::ops::Range;
use std::sync::Arc;

use cuzarr_device::internal::checksum::{self, Checksum};
use cuzarr_device::{Buffer, Stream};

use super::undo::{Strided, Undo, Undone};
use crate::codec::Program;
use crate::codec::batch::{Blank, EncodeBatch, Encoded};
use crate::codec::device::DeviceEncoder;
use crate::codec::step::Location;
use crate::{Error, ErrorKind, Result};

/// How a device encodes the chunks of a program: by an encoder, with filters before and a checksum after it.
#[derive(Clone)]
pub(crate) struct NativeEncoder {
    pub(crate) encoder: Arc<dyn DeviceEncoder>,
    /// The steps that the device runs over packed chunks before it encodes them to frames.
    pub(crate) undo: Undo,
    /// The checksum of each frame, if a checksum codec follows the encoder, and where it stands.
    pub(crate) checksum: Option<(Checksum, Location)>,
}

/// An encoding of chunks that was put on a CUDA stream, and whose results were not yet fetched.
pub(crate) struct NativeEncoding {
    batch: EncodeBatch,
    undone: Undone,
    /// The packed chunks, if some elements may not be encodable: from them, the host finds out which element it is.
    packed: Option<Strided>,
    checksum: Option<(Checksum, Location)>,
}

/// The encoded chunks, in the memory of their device.
pub(crate) struct NativeFrames {
    pub(crate) buffer: Buffer,
    /// For each chunk, the range of its frame in `buffer`; `None` if all of its elements are the fill value.
    pub(crate) frames: Vec<Option<Range<usize>>>,
    /// For each frame, its checksum. Empty if no checksum codec follows the encoder.
    pub(crate) checksums: Vec<u32>,
    reported: Vec<bool>,
    packed: Option<Strided>,
}

impl NativeEncoder {
    /// Returns how a device encodes chunks with the codecs of `program`.
    ///
    /// # Errors
    /// `Unsupported`, with the reason why the host encodes.
    pub(crate) fn of(program: &Program) -> Result<NativeEncoder> {
        let encoder = program.device_encoder().map_err(|reason| Error::new(ErrorKind::Unsupported, reason))?;
        let (undo, checksum) = (program.device_undo(), program.device_checksum());
        Ok(NativeEncoder { encoder: Arc::clone(encoder), undo, checksum })
    }

    /// Launches on `stream` the encoding of packed chunks to frames. Chunks of nothing but the fill value (`blank`) are
    /// left out.
    ///
    /// # Errors
    /// `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
    pub(crate) fn begin(
        &self,
        packed: &Strided,
        packed_bytes: Vec<usize>,
        blank: Option<&Blank<'_>>,
        stream: &Stream,
    ) -> Result<NativeEncoding> {
        let undone = self.undo.run(packed.clone(), stream)?;
        let chunk_bytes = match self.undo.chunk_bytes() {
            0 => packed_bytes,
            _ => vec![self.encoder.chunk_bytes(); packed.count],
        };
        let chunks = &undone.chunks;
        let mut batch = EncodeBatch::prepare(&*self.encoder, &chunks.buffer, chunks.stride_bytes, chunk_bytes)?;
        batch.run_unless_blank(blank, stream)?;
        let packed = self.undo.reports().then(|| packed.clone());
        Ok(NativeEncoding { batch, undone, packed, checksum: self.checksum })
    }
}

impl NativeEncoding {
    /// Waits for the frames, and computes their checksums on the stream that `stream` returns.
    ///
    /// # Errors
    /// `DeviceFailed`, `OutOfMemory`, `KernelCompileFailed`.
    pub(crate) fn finish(self, stream: impl FnOnce() -> Result<Stream>) -> Result<NativeFrames> {
        let Encoded { buffer, frames } = self.batch.finish()?;
        let reported = self.undone.reported()?;
        let ranges: Vec<_> = frames.iter().flatten().cloned().collect();
        let checksums = match self.checksum {
            Some((checksum, _)) if !ranges.is_empty() => checksum::compute(checksum, &buffer, &ranges, &stream()?)?,
            _ => Vec::new(),
        };
        Ok(NativeFrames { buffer, frames, checksums, reported, packed: self.packed })
    }
}

impl NativeFrames {
    /// The bytes of packed chunk `number`, if an element in it cannot be encoded; else `None`. The host then says what
    /// is wrong.
    ///
    /// # Errors
    /// `DeviceFailed`
    pub(crate) fn refused(&self, number: usize) -> Result<Option<Vec<u8>>> {
        let Some(packed) = self.packed.as_ref().filter(|_| self.reported[number]) else { return Ok(None) };
        let from = number * packed.stride_bytes;
        Ok(Some(packed.buffer.slice(from..from + packed.size_bytes)?.to_vec()?))
    }
}
