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

/// The part of a program that a device encodes.
#[derive(Clone)]
pub(crate) struct NativeEncoder {
    pub(crate) encoder: Arc<dyn DeviceEncoder>,
    /// The filters between packed chunks and the encoder.
    pub(crate) undo: Undo,
    /// The codec after the encoder, if it is a checksum.
    pub(crate) checksum: Option<(Checksum, Location)>,
}

/// Chunks that are being encoded.
pub(crate) struct NativeEncoding {
    batch: EncodeBatch,
    undone: Undone,
    /// The packed chunks, if elements may be reported.
    packed: Option<Strided>,
    checksum: Option<(Checksum, Location)>,
}

/// The frames of chunks, in the memory of their device.
pub(crate) struct NativeFrames {
    pub(crate) buffer: Buffer,
    /// Where the frame of each chunk is; `None` for a chunk of nothing but the fill value.
    pub(crate) frames: Vec<Option<Range<usize>>>,
    /// The checksum of each frame that is not `None`. Empty if no checksum codec follows the encoder.
    pub(crate) checksums: Vec<u32>,
    reported: Vec<bool>,
    packed: Option<Strided>,
}

impl NativeEncoder {
    /// The encoder of a program, if a device can encode its chunks.
    ///
    /// # Errors
    /// `Unsupported`, with the reason why the host encodes.
    pub(crate) fn of(program: &Program) -> Result<NativeEncoder> {
        let encoder = program.device_encoder().map_err(|reason| Error::new(ErrorKind::Unsupported, reason))?;
        let (undo, checksum) = (program.device_undo(), program.device_checksum());
        Ok(NativeEncoder { encoder: Arc::clone(encoder), undo, checksum })
    }

    /// Puts the encoding of chunks of the sizes `packed_bytes` on `stream`. Chunks of nothing but the fill value
    /// (`blank`) are left out.
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
    /// Waits for the encoder, and computes checksums on the stream that `stream` returns.
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
    /// The bytes of packed chunk `number`, if one of its elements cannot be encoded. The host then says what is wrong.
    ///
    /// # Errors
    /// `DeviceFailed`
    pub(crate) fn refused(&self, number: usize) -> Result<Option<Vec<u8>>> {
        let Some(packed) = self.packed.as_ref().filter(|_| self.reported[number]) else { return Ok(None) };
        let from = number * packed.stride_bytes;
        Ok(Some(packed.buffer.slice(from..from + packed.size_bytes)?.to_vec()?))
    }
}
