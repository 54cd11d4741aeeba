//! The costs of decoding and encoding, which each codec's `cost.rs` states. `plan::Costs` compares them to choose
//! between host and device.

/// The frame sizes, in decoded bytes, for which [`Speeds`] state the speed of a device.
pub const FRAME_BYTES: [f64; 5] = [65_536.0, 262_144.0, 1_048_576.0, 8_388_608.0, 67_108_864.0];

/// Speeds of decoding one kind of frame, in GB/s of decoded bytes.
///
/// They were measured on one H200 and its host of 16 threads (`bench/placement.py`, `docs/notes/decoders.md`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speeds {
    /// Speed of one thread of the host while no other thread decodes.
    pub thread_alone: f64,
    /// Speed of each thread of the host while all of them decode.
    pub thread_busy: f64,
    /// Speed of a device that decodes a single frame, for each of [`FRAME_BYTES`].
    pub one_frame: [f64; 5],
    /// Speed of a device that decodes enough frames to keep it busy, for each of [`FRAME_BYTES`].
    pub many_frames: [f64; 5],
}

/// The costs of encoding on the host and on the device, for chunks of any size, measured on one machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EncodingSpeeds {
    /// Speed of one host thread, in GB/s of unencoded chunks, with the time for shuffling.
    pub host_thread_gb_s: f64,
    /// Speed of the device, in GB/s of unencoded chunks. The work before and after the kernels is included.
    pub device_gb_s: f64,
    /// Seconds that it takes the device to encode even the smallest batch of chunks.
    pub device_s: f64,
}
