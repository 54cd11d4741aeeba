//! Speeds and scratch memory of zstd on a device and on the host.

use crate::codec::cost::{EncodingSpeeds, Speeds};

/// Number of decoded bytes above which a frame counts as large: a batch of 64 MiB has room for few large frames.
const LARGE_FRAME_BYTES: usize = 1 << 20;

pub(super) static SPEEDS: Speeds = Speeds {
    thread_alone: 0.66,
    thread_busy: 0.46,
    one_frame: [0.09, 0.2, 0.8, 4.9, 18.0],
    many_frames: [87.0, 74.0, 72.0, 50.0, 44.0],
};

/// How much larger than usual a batch should be: one frame takes long, because each state of its decoder depends on the
/// one before. Several batches side by side do nearly as well as a larger batch.
pub(super) const BATCH_FACTOR: u64 = 2;

/// Scratch memory for decoding, as a multiple of the decoded bytes, measured by `scratch_bytes` of
/// `examples/decode_bench.rs`. Sequences take 1.1 times the decoded bytes, or more if most bytes are copied in short
/// runs. Marks of large frames take 4 bytes for each byte, or less if segments are processed in parts.
pub(super) fn scratch_copies(decoded_bytes: usize) -> u64 {
    if decoded_bytes > LARGE_FRAME_BYTES { 4 } else { 2 }
}

/// Costs of encoding Zstandard; the host's speed is for level 3. The smallest batch takes the chain of a block's
/// sequences, and two waits.
pub(super) static ENCODING_SPEEDS: EncodingSpeeds =
    EncodingSpeeds { host_thread_gb_s: 0.12, device_gb_s: 18.0, device_s: 2e-3 };
