//! Speeds and scratch memory of Blosc on a device and on the host.

use crate::codec::cost::Speeds;

/// Speeds of decoding Blosc frames that contain LZ4.
pub(super) static SPEEDS: Speeds = Speeds {
    thread_alone: 2.4,
    thread_busy: 1.5,
    one_frame: [0.2, 0.85, 3.0, 20.0, 60.0],
    many_frames: [110.0, 160.0, 200.0, 220.0, 220.0],
};

/// Scratch memory for shuffled bytes and for the decoders of the streams, as a multiple of the decoded bytes.
pub(super) const SCRATCH_COPIES: u64 = 3;
