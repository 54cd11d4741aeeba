//! Codecs on a device: the traits of decoders and encoders of frames.
//!
//! A codec returns its decoder from [`BytesToBytes::device_decoder`](super::BytesToBytes::device_decoder). A decoder
//! prepares many frames together as a [`Decode`], which a stream runs. A decoder knows its bytes only as ranges of a
//! buffer. So a container's decoder (Blosc) can prepare its inner streams with another codec's decoder, into its own
//! scratch memory, and launch that before its own kernels.
//!
//! Encoding works the same way: [`BytesToBytes::device_encoder`](super::BytesToBytes::device_encoder) returns an
//! encoder for chunks of one size, which prepares many of them as an [`Encode`]. The places of frames stay on the
//! device until the batch is done. So a container's encoder can put the frames of another encoder into its own.

use std::any::Any;
use std::fmt;
use std::ops::{Deref, Range};
use std::ptr;
use std::sync::Arc;

use cuzarr_device::internal::defined;
use cuzarr_device::{Buffer, Device, Header, KernelSource, Stream};

use super::cost::{EncodingSpeeds, Speeds};
use crate::{Error, ErrorKind, Result};

/// Bytes of the status in which kernels report damage, one for each frame.
pub const STATUS_BYTES: usize = 8;

/// Exclusive upper limit of a frame's encoded and decoded bytes for kernels, which count positions in 32 bits; the host
/// decodes larger frames.
pub const MOST_FRAME_BYTES: usize = 1 << 31;

/// Kernels that decode one kind of frame. One batch holds frames of all arrays with the same decoder. So if a codec's
/// configuration changes how its frames are decoded, each configuration has a decoder of its own.
pub trait DeviceDecoder: Send + Sync + fmt::Debug {
    /// The name of the kind of frame, for messages and explanations.
    fn name(&self) -> &'static str;

    /// The speeds at which the device and the host decode frames of this kind.
    fn speeds(&self) -> &'static Speeds;

    /// The reason why the host decodes frames of `decoded_bytes`; `None` if kernels do.
    fn host_reason(&self, decoded_bytes: usize) -> Option<&'static str> {
        let _ = decoded_bytes;
        None
    }

    /// How large a batch of frames of this size should be, as a multiple of the usual batch size. Kernels that take
    /// long for a single frame, and need many to fill the device, return more than 1.
    fn batch_factor(&self, decoded_bytes: usize) -> u64 {
        let _ = decoded_bytes;
        1
    }

    /// Scratch memory for decoding frames of this size, as a multiple of their decoded bytes, rounded up. It is enough
    /// to decode them well; a decoder may take more if [`Request::scratch_aim_bytes`] allows it.
    fn scratch_copies(&self, decoded_bytes: usize) -> u64;

    /// Reads a frame's headers; `None` if kernels cannot decode the frame, so that the host decodes or refuses it. The
    /// thread that fetched the frame calls this, so that the headers of a batch are read by many threads.
    fn headers(&self, frame: &[u8], decoded_bytes: usize) -> Option<Headers>;

    /// CUDA headers that define codes of damage besides those of `cuzarr/status.cuh`, with their messages.
    fn damages(&self) -> &'static [Header] {
        &[]
    }

    /// The kernel that finds headers inside frames that lie only on the device, so that the host can read them. `None`
    /// for a decoder whose kernels read all headers themselves.
    fn header_walk(&self) -> Option<HeaderWalk> {
        None
    }

    /// Whether [`prepare`](Self::prepare) needs the frames' bytes, and not only the headers that were read from them.
    fn reads_frames(&self) -> bool {
        false
    }

    /// Plans the decoding of many frames.
    ///
    /// # Errors
    /// `InvalidArgument` for a batch that decodes to too many bytes. Damaged frames are listed in the result instead.
    fn prepare(&self, request: &Request<'_>) -> Result<Prepared>;
}

/// The decoder of a codec: one for all of the codec's frames, or one that was made for chunks of one array.
#[derive(Clone, Debug)]
pub enum FrameDecoder {
    /// One decoder for the frames of all arrays with this codec.
    Any(&'static dyn DeviceDecoder),
    /// A decoder that was made for the chunks of one array.
    Made(Arc<dyn DeviceDecoder>),
}

impl FrameDecoder {
    /// Whether frames of this decoder and of `other` can share a batch: both are one decoder, or decoders of one codec
    /// for single arrays.
    pub(crate) fn is_like(&self, other: &FrameDecoder) -> bool {
        let is_same = match (self, other) {
            // A decoder without fields has no configuration, and need not have an address of its own.
            (FrameDecoder::Any(one), FrameDecoder::Any(other)) => {
                ptr::addr_eq(*one, *other) || size_of_val(*one) + size_of_val(*other) == 0
            }
            _ => true,
        };
        is_same && self.name() == other.name()
    }
}

impl Deref for FrameDecoder {
    type Target = dyn DeviceDecoder;

    fn deref(&self) -> &Self::Target {
        match self {
            FrameDecoder::Any(decoder) => *decoder,
            FrameDecoder::Made(decoder) => &**decoder,
        }
    }
}

/// One frame: the range of its encoded bytes, and the range that its decoded bytes fill exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The range of the frame's encoded bytes in the source buffer.
    pub src: Range<usize>,
    /// The range of the frame's decoded bytes in the target buffer; ranges of different units must not overlap.
    pub dst: Range<usize>,
}

/// The values that a decoder read from the headers of one frame, in a form that only this decoder understands.
#[derive(Clone)]
pub struct Headers(Option<Arc<dyn Any + Send + Sync>>);

impl Headers {
    /// Headers with no content, for decoders whose kernels need nothing that the host has read from the frame.
    pub fn known() -> Headers {
        Headers(None)
    }

    /// Keeps what a decoder read from a frame, for [`DeviceDecoder::prepare`].
    pub fn read(value: impl Any + Send + Sync) -> Headers {
        Headers(Some(Arc::new(value)))
    }

    /// Returns the value that [`Headers::read`] kept; `None` if it has another type or there is none.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.as_ref()?.downcast_ref()
    }
}

/// A kernel that copies the headers inside frames into a list for the host (`headers.cuh`). Only codecs of this crate
/// have one: nothing else checks that it stays inside its frame and the list.
#[derive(Clone, Copy, Debug)]
pub struct HeaderWalk {
    /// The CUDA source file that contains the kernel.
    pub(crate) source: &'static KernelSource,
    /// The name of the kernel in its source file.
    pub(crate) kernel: &'static str,
    /// Number of threads that walk through one frame together.
    pub(crate) threads: u32,
}

/// The frames whose decoding a decoder is asked to plan. A [`Batch`](super::batch::Batch) has checked that every range
/// is inside its buffer, and smaller than [`MOST_FRAME_BYTES`].
pub struct Request<'a> {
    /// The device on which the frames are decoded.
    pub device: Device,
    /// The frames, each with its range in the source and in the target.
    pub units: &'a [Unit],
    /// A copy of all bytes of the source, if the host has one.
    pub host: Option<&'a [u8]>,
    /// The headers of all frames, if the decoder has already read them. A decoder that has a [`HeaderWalk`] always gets
    /// them, or the frames' bytes.
    pub headers: &'a [Headers],
    /// Scratch memory, in bytes, that the decoding should not exceed if it can. A decoder that needs more time to save
    /// memory decides by this number.
    pub scratch_aim_bytes: usize,
}

/// A planned decoding of many frames, and the frames that the host refused.
pub struct Prepared {
    decode: Checked,
    refused: Vec<(usize, Error)>,
}

impl Prepared {
    /// Joins a planned decoding with the errors of units that the host already refused. `refused` holds each error with
    /// the number of its unit; `decode` leaves those units out. `decode` is launched only on the device of the request,
    /// with memory that has room for all units.
    ///
    /// # Errors
    /// `InvalidArgument` for a range that ends before it begins, or has [`MOST_FRAME_BYTES`] or more.
    pub fn new(request: &Request<'_>, decode: impl Decode + 'static, refused: Vec<(usize, Error)>) -> Result<Prepared> {
        let (mut src_bytes, mut dst_bytes) = (0, 0);
        for (index, Unit { src, dst }) in request.units.iter().enumerate() {
            if [src, dst].iter().any(|range| range.start > range.end || range.len() >= MOST_FRAME_BYTES) {
                let message = format!("unit {index}: kernels cannot decode from bytes {src:?} to bytes {dst:?}");
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            (src_bytes, dst_bytes) = (src.end.max(src_bytes), dst.end.max(dst_bytes));
        }
        let status_bytes = request.units.len() * STATUS_BYTES;
        let decode = Box::new(decode);
        Ok(Prepared { decode: Checked { device: request.device, src_bytes, dst_bytes, status_bytes, decode }, refused })
    }

    /// Returns the planned decoding, and the number and the error of each unit that the host refused.
    pub fn into_parts(self) -> (Box<dyn Decode>, Vec<(usize, Error)>) {
        (Box::new(self.decode), self.refused)
    }
}

/// A [`Decode`] that refuses to be launched with memory too small for its units.
struct Checked {
    device: Device,
    src_bytes: usize,
    dst_bytes: usize,
    status_bytes: usize,
    decode: Box<dyn Decode>,
}

impl Decode for Checked {
    fn scratch_bytes(&self) -> usize {
        self.decode.scratch_bytes()
    }

    fn launch(&self, task: &Task<'_>) -> Result<()> {
        let Task { stream, src, dst, statuses } = *task;
        if [stream.device(), src.device(), dst.device(), statuses.device()] != [self.device; 4] {
            let message = format!("a decoding on {} was given a stream or memory of another device", self.device);
            return Err(Error::new(ErrorKind::MemorySpace, message));
        }
        if dst.is_read_only() || statuses.is_read_only() {
            return Err(Error::new(ErrorKind::ReadOnly, "the target or the statuses of a decoding are read-only"));
        }
        let sizes = [src, dst, statuses].map(Buffer::size_bytes);
        let least = [self.src_bytes, self.dst_bytes, self.status_bytes];
        if sizes.iter().zip(&least).any(|(size, least)| size < least) || statuses.address() % STATUS_BYTES != 0 {
            let message = format!("got {sizes:?} bytes of source, target and statuses, expected {least:?} or more");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        self.decode.launch(task)
    }
}

/// A planned decoding of many frames, which can be launched many times.
pub trait Decode: Send + Sync {
    /// Maximum device memory, in bytes, that a launch takes besides source, target and statuses. Launches take it from
    /// [`cuzarr_device::pool`] in the order of the stream, so batches that follow each other use the same memory.
    fn scratch_bytes(&self) -> usize;

    /// Puts the decoding of all frames on the stream of `task`, without waiting for anything. Kernels report damage in
    /// the statuses. [`Prepared`] has checked the task.
    ///
    /// # Errors
    /// `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
    fn launch(&self, task: &Task<'_>) -> Result<()>;
}

/// The stream and the memory for one launch of a [`Decode`].
#[derive(Clone, Copy)]
pub struct Task<'a> {
    /// The stream that runs the decoding.
    pub stream: &'a Stream,
    /// The memory that holds the encoded frames.
    pub src: &'a Buffer,
    /// The memory that the decoded bytes are written to.
    pub dst: &'a Buffer,
    /// A `u64` for each unit, 0 before the launch, in which kernels report damage: see `report` in `cuzarr/status.cuh`.
    pub statuses: &'a Buffer,
}

const ENCODED: &str = include_str!("batch/encode/encoded.cuh");
/// Alignment in bytes of each frame in the memory that an [`Encode`] returns.
pub const FRAME_ALIGNMENT_BYTES: usize = defined(ENCODED, "CUZARR_FRAME_ALIGNMENT") as usize;
/// Bytes of the entry that [`Launched::frames`] has for each frame: its offset and its size.
pub const FRAME_ENTRY_BYTES: usize = defined(ENCODED, "CUZARR_FRAME_ENTRY_BYTES") as usize;

/// Kernels that encode chunks to one kind of frame.
///
/// The codec makes an encoder for chunks of one size. The encoder has its own parameters: level, size of blocks,
/// container.
pub trait DeviceEncoder: Send + Sync + fmt::Debug {
    /// Size of the chunks that this encoder is made for, in bytes.
    fn chunk_bytes(&self) -> usize;

    /// Whether one launch of this encoder may also get chunks that are smaller than `chunk_bytes`.
    fn takes_smaller(&self) -> bool {
        false
    }

    /// Maximum size of the frame of one chunk, in bytes.
    fn frame_bound_bytes(&self) -> usize;

    /// The speeds at which the device and the host encode chunks with this encoder's codec.
    fn speeds(&self) -> &'static EncodingSpeeds;

    /// Why the host encodes chunks in the memory of `device`; `None` if the device does.
    fn host_reason(&self, device: Device) -> Option<&'static str> {
        let _ = device;
        None
    }

    /// Maximum device memory, in bytes, that one encoding launch takes for its work and for the frames, without the
    /// input chunks.
    fn memory_bytes(&self, row: &ChunkRow) -> usize;

    /// Plans the encoding of the chunks in `row`.
    ///
    /// # Errors
    /// `InvalidArgument` for more chunks than a launch can count.
    fn prepare(&self, row: &ChunkRow) -> Result<Box<dyn Encode>>;

    /// Maximum bytes of `count` frames in one buffer, one after the other.
    fn output_bound_bytes(&self, count: usize) -> usize {
        count.saturating_mul(self.frame_bound_bytes().next_multiple_of(FRAME_ALIGNMENT_BYTES))
    }
}

/// How many chunks lie in one buffer, and how far apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRow {
    /// The device in whose memory the buffer with the chunks lies.
    pub device: Device,
    /// Number of chunks in the buffer.
    pub count: usize,
    /// Bytes from one chunk to the next: a multiple of 16, and at least the size of a chunk.
    pub stride_bytes: usize,
}

/// A planned encoding of many chunks, which can be launched many times.
pub trait Encode: Send + Sync {
    /// Puts the encoding of all chunks on the stream of `task`, without waiting for anything.
    ///
    /// # Errors
    /// `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
    fn launch(&self, task: &EncodeTask<'_>) -> Result<Launched>;
}

/// The stream and the chunks of one launch of an [`Encode`]. Only an [`EncodeBatch`](super::batch::EncodeBatch) makes
/// one. It has checked that the chunks lie in their memory.
#[derive(Clone, Copy)]
pub struct EncodeTask<'a> {
    pub(crate) stream: &'a Stream,
    pub(crate) src: &'a Buffer,
    pub(crate) sizes: &'a Buffer,
    pub(crate) chunk_bytes: &'a [usize],
}

impl<'a> EncodeTask<'a> {
    /// The stream that runs the encoding.
    pub fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// The memory that holds the chunks. It begins at a multiple of 16.
    pub fn src(&self) -> &'a Buffer {
        self.src
    }

    /// A `u32` in device memory for each chunk: its size in bytes. A chunk of size 0 becomes an empty frame.
    pub fn sizes(&self) -> &'a Buffer {
        self.sizes
    }

    /// The size of each chunk in bytes, including chunks that are left out and get no frame.
    pub fn chunk_bytes(&self) -> &'a [usize] {
        self.chunk_bytes
    }
}

/// The frames that one launch of an encoder writes. They are complete once the stream has finished the launch.
pub struct Launched {
    /// The memory that holds the frames, in the order of the chunks.
    pub out: Buffer,
    /// For each chunk, the offset and the size of its frame: `EncodedFrame` in `encoded.cuh`.
    pub frames: Buffer,
}
