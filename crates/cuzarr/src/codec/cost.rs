//! The costs of decoding and encoding, which each codec's `cost.rs` states. `plan::Costs` compares them and decides.

/// Sizes of frames, in decoded bytes, that [`Speeds`] are given for.
pub const FRAME_BYTES: [f64; 5] = [65_536.0, 262_144.0, 1_048_576.0, 8_388_608.0, 67_108_864.0];

/// Speeds of decoding one kind of frame, in GB/s of decoded bytes.
///
/// They were measured on one H200 and its host of 16 threads (`bench/placement.py`, `docs/notes/decoders.md`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speeds {
    /// One thread of the host alone.
    pub thread_alone: f64,
    /// One thread of the host when all are busy.
    pub thread_busy: f64,
    /// One frame alone on the device, for each of [`FRAME_BYTES`].
    pub one_frame: [f64; 5],
    /// The speed with enough frames to fill the device, for each of [`FRAME_BYTES`].
    pub many_frames: [f64; 5],
}

/// The cost of encoding chunks of any size, measured on the same machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EncodingSpeeds {
    /// One thread of the host, with shuffling: GB/s of chunks.
    pub host_thread_gb_s: f64,
    /// The device, with the work before and behind the kernels: GB/s of chunks.
    pub device_gb_s: f64,
    /// Seconds that the smallest batch takes on the device.
    pub device_s: f64,
}
