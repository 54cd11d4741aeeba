//! What frames a batch can hold, and which of them are better left to the host.

use super::decode::{Headers, Prepared, Request};
use crate::Result;
use crate::codec::deflate::cuda::Container;
use crate::codec::{blosc, deflate, lz4, zstd};

/// Kernels count positions in 32 bits, with room to add.
pub(super) const MAX_UNIT_BYTES: usize = 1 << 31;

/// What frames a batch holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// The decoded size (little-endian `u32`), then one LZ4 block: `numcodecs.lz4`.
    Lz4,
    /// One LZ4 block with nothing around it.
    Lz4Raw,
    /// Blosc-1 containers of LZ4, zstd and zlib, and those stored as they are.
    Blosc,
    /// Zstandard frames, one or several: `zstd`.
    Zstd,
    /// gzip members, one after the other.
    Gzip,
    /// One zlib stream. What follows it is ignored.
    Zlib,
    /// One deflate stream with nothing around it. What follows it is ignored.
    Deflate,
}

/// A frame of more is large beside a batch of 64 MiB.
const LARGE_FRAME_BYTES: usize = 1 << 20;
/// A frame of more is large beside the device.
const WIDE_FRAME_BYTES: usize = 16 << 20;

impl Format {
    /// Why kernels do not take frames of `decoded_bytes`; `None` when they do. Whether they should is `plan::Costs`' to say.
    pub(crate) fn host_reason(self, decoded_bytes: usize) -> Option<&'static str> {
        match self {
            _ if decoded_bytes >= MAX_UNIT_BYTES => Some("frames of 2 GiB and more are decoded on the host"),
            Format::Zstd => zstd::cuda::host_reason(decoded_bytes),
            _ => None,
        }
    }

    /// How many times the usual batch of frames of this decoded size is decoded together: kernels that need long for however
    /// little, and fill the device with few chunks of a batch only, want more of them. Several batches of zstd's side by side
    /// do nearly as well, except of frames so large that each takes all of the device for itself.
    pub(crate) fn batch_factor(self, frame_bytes: usize) -> u64 {
        match self {
            Format::Lz4 | Format::Lz4Raw | Format::Blosc => 1,
            Format::Zstd if frame_bytes <= WIDE_FRAME_BYTES => 2,
            Format::Zstd | Format::Gzip | Format::Zlib | Format::Deflate => 4,
        }
    }

    /// Scratch memory of a decoder for frames of this decoded size, in times what they decode to: what keeps a batch whole.
    /// Measured (`scratch_bytes` of `examples/decode_bench.rs`), rounded up: sequences take 3 times and more where most
    /// bytes are copied in short runs, and frames that are large beside their batch 4 bytes more for each byte.
    pub(crate) fn scratch_copies(self, frame_bytes: usize) -> u64 {
        let is_large = frame_bytes > LARGE_FRAME_BYTES;
        match self {
            Format::Lz4 | Format::Lz4Raw if is_large => 9,
            Format::Zstd if is_large => 8,
            Format::Lz4 | Format::Lz4Raw | Format::Zstd => 4,
            Format::Blosc | Format::Gzip | Format::Zlib | Format::Deflate => 2,
        }
    }

    /// What the frame's headers say; `None` when kernels do not know it. What they do not know is the host's to decode, or to
    /// refuse.
    pub(crate) fn headers(self, frame: &[u8], decoded_bytes: usize) -> Option<Headers> {
        let plain = |known: bool| known.then_some(Headers::Plain);
        match self {
            _ if frame.len() >= MAX_UNIT_BYTES => None,
            Format::Lz4 => plain(frame.len() >= lz4::HEADER_BYTES),
            Format::Lz4Raw => plain(true),
            Format::Blosc => plain(blosc::cuda::knows(frame, decoded_bytes)),
            Format::Zstd => zstd::cuda::headers(frame, decoded_bytes).map(Headers::Zstd),
            Format::Gzip | Format::Zlib | Format::Deflate => plain(deflate::cuda::knows(frame)),
        }
    }

    /// Whether the host makes tables of headers that stand inside of frames. Of frames that are on the device alone they are
    /// then brought to it, when a batch of them is prepared.
    pub(super) fn scans_on_host(self) -> bool {
        match self {
            Format::Lz4 | Format::Lz4Raw | Format::Gzip | Format::Zlib | Format::Deflate => false,
            Format::Blosc | Format::Zstd => true,
        }
    }

    /// Whether a batch is prepared from what its frames hold, and not only from what [`Format::headers`] said.
    pub(crate) fn reads_frames(self) -> bool {
        match self {
            Format::Lz4 | Format::Lz4Raw | Format::Zstd | Format::Zlib | Format::Deflate => false,
            Format::Blosc | Format::Gzip => true,
        }
    }

    /// Prepares units of this format.
    pub(crate) fn prepare(self, request: &Request<'_>) -> Result<Prepared> {
        match self {
            Format::Lz4 => lz4::cuda::prepare(lz4::HEADER_BYTES, request),
            Format::Lz4Raw => lz4::cuda::prepare(0, request),
            Format::Blosc => blosc::cuda::prepare(request),
            Format::Zstd => zstd::cuda::prepare(request),
            Format::Gzip => deflate::cuda::prepare(Container::Gzip, request),
            Format::Zlib => deflate::cuda::prepare(Container::Zlib, request),
            Format::Deflate => deflate::cuda::prepare(Container::Raw, request),
        }
    }
}
