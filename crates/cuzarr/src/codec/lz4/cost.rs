//! Speeds and scratch memory of LZ4 on a device and on the host.

use crate::codec::cost::{EncodingSpeeds, Speeds};

/// Number of decoded bytes above which a frame counts as large: a batch of 64 MiB has room for few large frames.
const LARGE_FRAME_BYTES: usize = 1 << 20;

pub(super) static SPEEDS: Speeds = Speeds {
    thread_alone: 2.6,
    thread_busy: 1.8,
    one_frame: [0.23, 0.8, 2.8, 15.0, 45.0],
    many_frames: [130.0, 150.0, 160.0, 110.0, 100.0],
};

/// Scratch memory for decoding, as a multiple of the decoded bytes, measured by `scratch_bytes` of
/// `examples/decode_bench.rs`. Sequences take 3 times the decoded bytes, or more if most bytes are copied in short
/// runs. Large frames take 4 bytes more for each byte.
pub(super) fn scratch_copies(decoded_bytes: usize) -> u64 {
    if decoded_bytes > LARGE_FRAME_BYTES { 9 } else { 4 }
}

/// Costs of encoding LZ4; the smallest batch takes as long as encoding one piece of a chunk and waiting twice. Speeds
/// are alike with and without Blosc's shuffle.
pub(super) static ENCODING_SPEEDS: EncodingSpeeds =
    EncodingSpeeds { host_thread_gb_s: 0.6, device_gb_s: 40.0, device_s: 1e-3 };
