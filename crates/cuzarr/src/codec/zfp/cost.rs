//! Speeds of decoding zfp blocks of a fixed rate, on the host and on a device.

use crate::codec::cost::Speeds;

/// Speeds of decoding; the host's are for cubes of float32 at 8 bits a value (`docs/notes/decoders.md`). The device's
/// speeds are lower than whole reads reached: a single chunk keeps few threads busy, and takes as long as one block.
pub(super) static SPEEDS: Speeds = Speeds {
    thread_alone: 0.28,
    thread_busy: 0.22,
    one_frame: [0.8, 3.0, 10.0, 40.0, 80.0],
    many_frames: [80.0, 80.0, 80.0, 80.0, 80.0],
};
