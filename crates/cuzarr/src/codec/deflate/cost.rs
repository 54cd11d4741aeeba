//! Speeds and scratch memory of deflate on a device and on the host, for every container.

use crate::codec::cost::{EncodingSpeeds, Speeds};

pub(super) static SPEEDS: Speeds = Speeds {
    thread_alone: 0.66,
    thread_busy: 0.48,
    one_frame: [0.12, 0.32, 1.2, 7.0, 19.0],
    many_frames: [40.0, 32.0, 31.0, 31.0, 30.0],
};

/// Number of decoded bytes above which a frame counts as large: a batch of 64 MiB has room for few large frames.
const LARGE_FRAME_BYTES: usize = 1 << 20;

/// By what factor a batch of frames of this size should be larger than usual. A warp takes milliseconds for a frame, so
/// that only many frames fill the device. Large frames have many warps each.
pub(super) fn batch_factor(decoded_bytes: usize) -> u64 {
    if decoded_bytes > LARGE_FRAME_BYTES { 2 } else { 3 }
}

/// Scratch memory for decoding, as a multiple of the decoded bytes, measured by `scratch_bytes` of
/// `examples/decode_bench.rs` and rounded up. Matches have room for twice the decoded bytes. Marks of large frames take
/// 4 bytes for each byte, or less if segments are processed in parts.
pub(super) fn scratch_copies(decoded_bytes: usize) -> u64 {
    if decoded_bytes > LARGE_FRAME_BYTES { 4 } else { 3 }
}

/// Costs of encoding deflate; the host's speed is for level 5.
pub(super) static ENCODING_SPEEDS: EncodingSpeeds =
    EncodingSpeeds { host_thread_gb_s: 0.06, device_gb_s: 18.0, device_s: 1e-3 };
