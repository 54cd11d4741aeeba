//! Batches of frames that a device decodes by itself: encoded bytes in device memory become decoded bytes there.
//!
//! A [`Batch`] is prepared for frames of one [`DeviceDecoder`], run in the order of a stream, and checked. The host
//! reads each frame's headers from the caller's bytes, if the caller has them. Otherwise kernels read the headers, or
//! copy those inside frames to the host (`headers.cuh`) while a batch is prepared. Runs read nothing back.
//!
//! ```
//! use cuzarr::internal::codec::batch::{Batch, Unit};
//! use cuzarr::internal::codec::device_decoder;
//! # use cuzarr_device::{Buffer, Device, Stream};
//! # fn decode(device: Device, encoded: &[u8], decoded_bytes: usize) -> cuzarr::Result<Vec<u8>> {
//! let src = Buffer::from_bytes(device, encoded)?;
//! let dst = Buffer::empty(device, decoded_bytes)?;
//! let units = [Unit { src: 0..encoded.len(), dst: 0..decoded_bytes }];
//! let mut batch = Batch::prepare(device_decoder("blosc")?, &src, &dst, &units, Some(encoded))?;
//! batch.run(&Stream::new(device)?)?;
//! batch.check()?.into_iter().collect::<cuzarr::Result<Vec<()>>>()?;
//! # Ok(dst.to_vec()?)
//! # }
//! ```

mod encode;
mod fields;
pub(crate) mod frames;
mod headers;
pub(crate) mod status;

use std::fmt;
use std::ops::Range;

use cuzarr_device::internal::pool;
use cuzarr_device::{Buffer, Device, Event, Header, Stream, header};

pub(crate) use super::device::STATUS_BYTES;
pub use super::device::Unit;
use super::device::{Decode, DeviceDecoder, FrameDecoder, Headers, MOST_FRAME_BYTES, Request, Task};
use crate::{Error, ErrorKind, Result};
pub(crate) use encode::Blank;
pub use encode::place_frames;
pub use encode::{EncodeBatch, Encoded};
pub(crate) use fields::Fields;
pub(crate) use status::result_of;

/// CUDA headers in `codec/batch` that kernels of all codecs include.
pub const HEADERS: &[Header] = &[
    header!("codec/batch/encode/encoded.cuh"),
    header!("codec/batch/frames.cuh"),
    header!("codec/batch/headers/headers.cuh"),
];

/// Maximum number of frames in a batch, whose table goes through pinned memory; a batch of more frames is refused.
const MAX_UNITS: usize = 512 << 10;

struct Running {
    statuses: Buffer,
    done: Event,
}

/// Encoded frames in device memory, and the bytes or headers of these frames that are also in host memory.
pub(crate) struct Source<'a> {
    pub(crate) buffer: &'a Buffer,
    pub(crate) host: HostCopy<'a>,
}

/// The bytes of encoded frames that are in host memory too: a copy of all bytes, only the headers, or nothing.
#[derive(Clone, Copy, Default)]
pub(crate) struct HostCopy<'a> {
    /// A copy of all bytes of the frames, if there is one.
    pub(crate) bytes: Option<&'a [u8]>,
    /// The headers of all frames, if a decoder has already read them; otherwise empty.
    pub(crate) headers: &'a [Headers],
}

/// Limits for the scratch memory of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScratchLimit {
    /// Maximum scratch memory in bytes that decoders take if they can, even if they are then slower:
    /// [`Request::scratch_aim_bytes`].
    pub(crate) aim_bytes: usize,
    /// Scratch memory in bytes above which the frames of a batch are decoded in several parts, one after the other.
    pub(crate) most_bytes: usize,
}

impl From<usize> for ScratchLimit {
    fn from(bytes: usize) -> ScratchLimit {
        ScratchLimit { aim_bytes: bytes, most_bytes: bytes }
    }
}

/// A range of a batch's frames that is decoded with one launch.
struct Part {
    units: Range<usize>,
    decode: Box<dyn Decode>,
}

/// Frames that a device decodes together, planned once and run any number of times.
pub struct Batch {
    decoder: FrameDecoder,
    src: Buffer,
    dst: Buffer,
    len: usize,
    /// Ranges of frames that are decoded one range after the other, each within the allowed scratch memory.
    parts: Vec<Part>,
    /// The frames that the host already refused, each by its number in the batch and with its error.
    refused: Vec<(usize, Error)>,
    /// The statuses that the last run writes, and the CUDA event that tells when this run has ended. `None` before a
    /// run, and after its check.
    running: Option<Running>,
}

fn check_unit(index: usize, unit: &Unit, src: &Buffer, dst: &Buffer) -> Result<()> {
    let inside = |range: &Range<usize>, buffer: &Buffer| range.start <= range.end && range.end <= buffer.size_bytes();
    if !inside(&unit.src, src) || !inside(&unit.dst, dst) {
        let (from, to) = (src.size_bytes(), dst.size_bytes());
        let message = format!("unit {index}: {unit:?} is not inside buffers of {from} and {to} bytes");
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    if unit.src.len().max(unit.dst.len()) >= MOST_FRAME_BYTES {
        let message = format!("unit {index}: frames from {MOST_FRAME_BYTES} bytes on are not decoded on a device");
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    Ok(())
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch({}, {} frames)", self.decoder.name(), self.len)
    }
}

impl Batch {
    /// Plans the decoding of the frames `units` from `src` to `dst`, both on the device that will run it. `host`, if
    /// given, holds the same bytes as `src`. Nothing is put on the device yet. But without `host`, headers inside
    /// frames are read from `src`, which must then hold its bytes.
    ///
    /// # Errors
    /// `InvalidArgument` for ranges outside the buffers and too many units, `MemorySpace`, `Unsupported` for frames of 2 GiB
    /// and more. Frames that are damaged are no error here: see [`Batch::check`].
    pub fn prepare(
        decoder: &'static dyn DeviceDecoder,
        src: &Buffer,
        dst: &Buffer,
        units: &[Unit],
        host: Option<&[u8]>,
    ) -> Result<Batch> {
        Batch::prepare_within(decoder, src, dst, units, host, usize::MAX)
    }

    /// Like [`Batch::prepare`], but frames are decoded in parts, one after the other, so that a run takes about
    /// `scratch_limit_bytes` of device memory. It takes more only for a single frame that needs more.
    ///
    /// # Errors
    /// Those of [`Batch::prepare`].
    pub fn prepare_within(
        decoder: &'static dyn DeviceDecoder,
        src: &Buffer,
        dst: &Buffer,
        units: &[Unit],
        host: Option<&[u8]>,
        scratch_limit_bytes: usize,
    ) -> Result<Batch> {
        let src = Source { buffer: src, host: HostCopy { bytes: host, headers: &[] } };
        Batch::prepare_read(FrameDecoder::Any(decoder), src, dst, units, scratch_limit_bytes.into())
    }

    /// Like [`Batch::prepare_within`], but also takes headers that the host has already read.
    pub(crate) fn prepare_read(
        decoder: FrameDecoder,
        Source { buffer: src, host }: Source<'_>,
        dst: &Buffer,
        units: &[Unit],
        limit: ScratchLimit,
    ) -> Result<Batch> {
        if src.device() != dst.device() || src.device() == Device::Cpu {
            let message = format!("cannot decode from {} to {} by kernels", src.device(), dst.device());
            return Err(Error::new(ErrorKind::MemorySpace, message));
        }
        if dst.is_read_only() {
            return Err(Error::new(ErrorKind::ReadOnly, "the target of a batch is read-only"));
        }
        if units.len() > MAX_UNITS {
            let message = format!("got {} frames for a batch, at most {MAX_UNITS} are taken", units.len());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        if let Some(bytes) = host.bytes.filter(|bytes| bytes.len() != src.size_bytes()) {
            let message = format!("got {} bytes on the host, {} on the device", bytes.len(), src.size_bytes());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        units.iter().enumerate().try_for_each(|(index, unit)| check_unit(index, unit, src, dst))?;
        let (mut headers, mut refused) = (Vec::new(), Vec::new());
        if let (None, Some(walk)) = (host.bytes, decoder.header_walk())
            && host.headers.len() < units.len()
        {
            for (index, read) in headers::read(&*decoder, walk, src, units)?.into_iter().enumerate() {
                let unknown = |error| refused.push((index, error));
                headers.push(read.map_err(unknown).unwrap_or_else(|()| Headers::known()));
            }
        }
        let (src, dst) = (src.clone(), dst.clone());
        let mut batch =
            Batch { decoder, src, dst, len: units.len(), parts: Vec::new(), refused: Vec::new(), running: None };
        let headers = if headers.is_empty() { host.headers } else { &headers };
        batch.add(units, 0..units.len(), HostCopy { headers, ..host }, limit)?;
        // A frame without headers is refused again when it is prepared: the error of its own headers says why.
        batch.refused.extend(refused);
        Ok(batch)
    }

    /// Plans the decoding of the frames in `range` by one launch, or by several if one would take too much scratch
    /// memory.
    fn add(&mut self, all: &[Unit], range: Range<usize>, host: HostCopy<'_>, limit: ScratchLimit) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let units = &all[range.clone()];
        let headers = host.headers.get(range.clone()).unwrap_or_default();
        let (device, scratch_aim_bytes) = (self.src.device(), limit.aim_bytes);
        let prepared =
            self.decoder.prepare(&Request { device, units, host: host.bytes, headers, scratch_aim_bytes })?;
        let (decode, refused) = prepared.into_parts();
        let wanted = decode.scratch_bytes();
        if wanted <= limit.most_bytes || units.len() == 1 {
            let refused = refused.into_iter().map(|(index, error)| (range.start + index, error));
            self.refused.extend(refused);
            self.parts.push(Part { units: range, decode });
            return Ok(());
        }
        drop(decode);
        let parts = wanted.div_ceil(limit.most_bytes.max(1)).clamp(2, units.len());
        let each = units.len().div_ceil(parts);
        range.clone().step_by(each).try_for_each(|start| {
            let end = (start + each).min(range.end);
            self.add(all, start..end, host, limit)
        })
    }

    /// Number of frames in the batch.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the batch has no frames.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Device memory, in bytes, that one run of this batch takes besides encoded and decoded frames.
    pub fn scratch_bytes(&self) -> usize {
        let most = self.parts.iter().map(|part| part.decode.scratch_bytes()).max().unwrap_or(0);
        most + self.len * STATUS_BYTES
    }

    /// Launches the decoding of all frames of the batch on `stream`, without waiting for the result. A damaged frame
    /// leaves arbitrary bytes in its target; other frames are not affected.
    ///
    /// # Errors
    /// `MemorySpace` for a stream of another device, `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
    pub fn run(&mut self, stream: &Stream) -> Result<()> {
        if stream.device() != self.src.device() {
            let message = format!("a batch on {} cannot run on a stream of {}", self.src.device(), stream.device());
            return Err(Error::new(ErrorKind::MemorySpace, message));
        }
        self.running = None;
        if self.is_empty() {
            return Ok(());
        }
        let statuses = pool::allocate(self.len * STATUS_BYTES, stream)?;
        stream.memset(&statuses, 0)?;
        for part in &self.parts {
            let statuses = statuses.slice(part.units.start * STATUS_BYTES..part.units.end * STATUS_BYTES)?;
            part.decode.launch(&Task { stream, src: &self.src, dst: &self.dst, statuses: &statuses })?;
        }
        self.running = Some(Running { statuses, done: stream.record()? });
        Ok(())
    }

    /// Waits for the batch's last run, and returns for each frame whether it was decoded. `ChunkCorrupt` names the byte
    /// of the frame where the damage was found; `Unsupported` names a container or compressor that only the host
    /// decodes.
    ///
    /// # Errors
    /// `DeviceFailed`; `InvalidArgument` when the batch was not run.
    pub fn check(&mut self) -> Result<Vec<Result<()>>> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        let Some(Running { statuses, done }) = self.running.take() else {
            return Err(Error::new(ErrorKind::InvalidArgument, "the batch was not run since it was checked"));
        };
        done.synchronize()?;
        // The copy does not go onto the stream of the run, which may have other work by now.
        let bytes = statuses.to_vec()?;
        let words = bytes.as_chunks::<STATUS_BYTES>().0.iter().map(|word| u64::from_ne_bytes(*word));
        let damages = self.decoder.damages();
        let mut results: Vec<Result<()>> = words.map(|status| result_of(status, damages)).collect();
        for (index, error) in &self.refused {
            results[*index] = Err(error.clone());
        }
        Ok(results)
    }
}
