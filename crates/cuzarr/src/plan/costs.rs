//! Costs of decoding on a GPU and on the host's threads. They decide where a batch of frames is decoded.
//!
//! - On the device, a batch takes the time of one frame alone, of all frames at full load, and of the launches. Stored
//!   bytes cross the bus at the same time.
//! - On the host, each thread decodes one frame at a time. Threads must be woken first, and are slower when all are
//!   busy. Decoded bytes cross the bus.
//!
//! The figures are GB/s of decoded bytes for several sizes of frames. They were measured on one machine and are
//! shipped. For another GPU they are scaled by its number of multiprocessors. A placement only needs their ratio.
//! `bench/placement.py` compares them with measured times.

use crate::codec::Work;
use crate::codec::cost::{FRAME_BYTES, Speeds};

/// Number of multiprocessors of the GPU on which the codecs' speeds were measured, and of threads of its host.
const MULTIPROCESSORS: f64 = 132.0;
const THREADS: f64 = 16.0;

/// Speed of copies between pinned memory and the GPU, in GB/s.
const BUS_GB_S: f64 = 50.0;
/// Assumed decoded bytes per stored byte, for estimating copies to the GPU.
const RATIO: f64 = 1.8;
/// Seconds that decoding takes at least, even for the smallest batch of frames. On the device: launches and tables. On
/// the host: one frame, or passing many frames to all threads.
const DEVICE_BATCH_S: f64 = 0.05e-3;
const HOST_FRAME_S: f64 = 0.02e-3;
const HOST_BATCH_S: f64 = 0.2e-3;
/// Reads into host memory, fitted to those of one H200 (`bench/accelerator.py`, records `30-accelerator`,
/// `30-accelerator-223407` and `30-accelerator-224914`). On the device: seconds beside its decoder and the way of the elements,
/// always, and for filling and draining that way, which short reads do in part. On the host: seconds beside the decoders,
/// and the share of their speed that is left, as frames and elements are not in the threads' caches.
const RETURN_S: f64 = 1.0e-3;
const FILL_S: f64 = 0.3e-3;
const FILL_GB: f64 = 0.0168;
const HOST_READ_S: f64 = 0.3e-3;
const HOST_SHARE: f64 = 0.6;
/// The GB/s at which each thread, and all threads of the measured machine together, fetch chunks for the device and take
/// decoded ones to their place; then those at which they take elements to the device and store frames.
const PLACED_GB_S: (f64, f64) = (2.6, 15.0);
const STAGED_GB_S: (f64, f64) = (0.8, 9.5);
/// A device decodes for the host if its time is expected to be below this share of the host's time.
const SURE: f64 = 0.9;
/// Seconds that one addition takes on the device in a running sum of floats (`device_bench --only 'delta float32'`).
/// Below it are the GB/s of a host thread, which also runs the decoders before the sum.
const DEVICE_ADDITION_S: f64 = 30e-9;
const HOST_SUM_GB_S: f64 = 0.45;

/// The costs of decoding on one GPU, from the figures in each codec's `cost.rs`.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// The speed of this GPU as a fraction of the speed of the GPU on which the codecs were measured.
    scale: f64,
}

/// Estimated decoding speeds, in GB/s of decoded bytes that arrive in device memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimated speed of kernels on the device.
    pub device_gb_s: f64,
    /// The estimated speed of all host threads together.
    pub host_gb_s: f64,
}

/// The estimated seconds of a read into host memory, if the host decodes, and if a device decodes and the elements come
/// back.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Offload {
    pub(crate) host_s: f64,
    pub(crate) device_s: f64,
}

impl std::ops::Add for Offload {
    type Output = Offload;

    fn add(self, other: Offload) -> Offload {
        Offload { host_s: self.host_s + other.host_s, device_s: self.device_s + other.device_s }
    }
}

impl Offload {
    /// Seconds that the device is expected to save; 0 if it saves too little to be sure.
    pub(crate) fn saved_s(self) -> f64 {
        if self.device_s < SURE * self.host_s { self.host_s - self.device_s } else { 0.0 }
    }
}

/// The amount of parallel decoding work, by which it is decided whether kernels or host threads decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Number of host threads.
    pub threads: usize,
    /// Number of frames that are decoded in parallel.
    pub frames: u64,
}

impl Estimate {
    /// Whether kernels should decode instead of host threads, judged by the estimated speeds of both. If both are about
    /// equally fast, kernels win, so that the host stays free.
    pub fn prefers_device(&self) -> bool {
        self.device_gb_s >= 0.95 * self.host_gb_s
    }
}

impl Costs {
    /// Makes the costs from the shipped figures, for a GPU with this number of multiprocessors.
    pub fn shipped(multiprocessors: u32) -> Costs {
        Costs { scale: f64::from(multiprocessors.max(1)) / MULTIPROCESSORS }
    }

    /// Estimates the speeds of decoding frames of this size.
    pub fn estimate(&self, speeds: &Speeds, frame_bytes: usize, load: Load) -> Estimate {
        let frames = load.frames.max(1) as f64;
        let frame_gb = frame_bytes.max(1) as f64 / 1e9;
        let gigabytes = frames * frame_gb;
        let device_s = frame_gb / at(&speeds.one_frame, frame_bytes)
            + gigabytes / (at(&speeds.many_frames, frame_bytes) * self.scale);
        let device_s = device_s.max(gigabytes / (BUS_GB_S * RATIO)) + DEVICE_BATCH_S;
        let threads = frames.min(load.threads.max(1) as f64);
        let (thread, busy) = thread_gb_s(speeds, threads);
        let rounds_s = (frames / threads).ceil() * frame_gb / thread;
        let host_s = (rounds_s + HOST_FRAME_S + busy * HOST_BATCH_S).max(gigabytes / BUS_GB_S);
        Estimate { device_gb_s: gigabytes / device_s, host_gb_s: gigabytes / host_s }
    }

    /// Estimates the times of decoding `chunks` chunks of `chunk_bytes` into host memory. `frames` are the frames of a
    /// chunk, each with its decoded size; `load` is the work of one batch on the device.
    pub(crate) fn offload<'a>(
        &self,
        frames: impl Iterator<Item = (&'a Speeds, usize)>,
        chunk_bytes: usize,
        chunks: u64,
        load: Load,
    ) -> Offload {
        let chunks = chunks.max(1) as f64;
        let threads = chunks.min(load.threads.max(1) as f64);
        let chunk_gb = chunk_bytes as f64 / 1e9;
        let placed_s = chunks * chunk_gb / by_threads(PLACED_GB_S, load.threads);
        let filled_s = FILL_S * (chunks * chunk_gb / FILL_GB).min(1.0);
        let rounds = (chunks / threads).ceil();
        let (mut host_s, mut decoded_s) = (HOST_READ_S, 0.0);
        for (speeds, frame_bytes) in frames {
            let gigabytes = frame_bytes.max(1) as f64 / 1e9;
            host_s += rounds * gigabytes / (HOST_SHARE * thread_gb_s(speeds, threads).0);
            decoded_s += chunks * gigabytes / self.estimate(speeds, frame_bytes, load).device_gb_s;
        }
        Offload { host_s, device_s: RETURN_S + filled_s + decoded_s.max(placed_s) }
    }

    /// Why the host should run this pass for each chunk of a load; `None` if kernels should run it.
    pub fn host_reason(&self, work: Work<'_>, load: Load) -> Option<&'static str> {
        match work {
            Work::Frame(decoder, frame_bytes) => {
                let estimate = self.estimate(decoder.speeds(), frame_bytes, load);
                (!estimate.prefers_device()).then_some("the host's threads decode this many frames of this size faster")
            }
            Work::FloatSum(elements, element_bytes) => {
                // The device adds up all chunks in parallel. On the host, each thread takes one chunk at a time, and
                // also runs the decoders before the sum.
                let rounds = load.frames.div_ceil(load.threads.max(1) as u64) as f64;
                let device_s = elements as f64 * DEVICE_ADDITION_S;
                let host_s = rounds * (elements * element_bytes) as f64 / 1e9 / HOST_SUM_GB_S;
                (device_s > host_s).then_some("the host's threads add up the floats of so few chunks faster")
            }
        }
    }
}

/// The speed at which this many threads take elements from host memory to a device, and store its frames, in GB/s.
pub(crate) fn staged_gb_s(threads: usize) -> f64 {
    by_threads(STAGED_GB_S, threads)
}

/// The speed of this many threads, of which each has the speed `one`, and all together at most `most`.
fn by_threads((one, most): (f64, f64), threads: usize) -> f64 {
    (one * threads.max(1) as f64).min(most)
}

/// The speed of each of `threads` threads that decode at once. Also returns how busy the host is with them: 0 for one
/// thread, 1 for all measured threads.
fn thread_gb_s(speeds: &Speeds, threads: f64) -> (f64, f64) {
    let busy = ((threads - 1.0) / (THREADS - 1.0)).min(1.0);
    (speeds.thread_alone + busy * (speeds.thread_busy - speeds.thread_alone), busy)
}

/// The speed of a codec for frames of this size, interpolated over the logarithm of the size.
fn at(speeds: &[f64; 5], frame_bytes: usize) -> f64 {
    let size = (frame_bytes.max(1) as f64).clamp(FRAME_BYTES[0], FRAME_BYTES[4]);
    let above = FRAME_BYTES.iter().position(|&known| size <= known).unwrap_or(4).max(1);
    let (low, high) = (FRAME_BYTES[above - 1], FRAME_BYTES[above]);
    let share = (size / low).ln() / (high / low).ln();
    speeds[above - 1] * (speeds[above] / speeds[above - 1]).powf(share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::registry::device_decoder;

    const MIB: usize = 1 << 20;

    #[test]
    fn speeds_between_two_sizes_lie_between_their_speeds() {
        let speeds = [1.0, 2.0, 4.0, 8.0, 16.0];
        assert_eq!((at(&speeds, 1), at(&speeds, 65_536), at(&speeds, 1 << 30)), (1.0, 1.0, 16.0));
        let between = at(&speeds, 131_072);
        assert!((between - 2f64.sqrt()).abs() < 1e-9, "{between}");
    }

    #[test]
    fn one_frame_is_the_hosts_and_many_are_the_devices() {
        let costs = Costs::shipped(132);
        for name in ["lz4", "blosc", "zstd", "gzip"] {
            let work = Work::Frame(device_decoder(name).unwrap(), MIB / 16);
            let reason = |frames, threads| costs.host_reason(work, Load { threads, frames });
            assert!(reason(1, 16).is_some(), "{name}");
            assert!(reason(8192, 1).is_none(), "{name}");
        }
    }

    #[test]
    fn floats_are_added_up_on_the_device_where_chunks_are_many() {
        let reason =
            |frames, threads| Costs::shipped(132).host_reason(Work::FloatSum(MIB, 4), Load { threads, frames });
        assert!(reason(16, 16).is_some() && reason(1, 1).is_some());
        assert!(reason(512, 16).is_none() && reason(16, 1).is_none());
    }

    #[test]
    fn more_threads_never_speak_for_the_device_where_there_is_work_for_them() {
        let costs = Costs::shipped(132);
        for name in ["lz4", "blosc", "zstd", "zlib"] {
            let speeds = device_decoder(name).unwrap().speeds();
            for frame_bytes in [MIB, 8 * MIB, 64 * MIB] {
                for frames in [1, 16, 512] {
                    let host = |threads| costs.estimate(speeds, frame_bytes, Load { threads, frames }).host_gb_s;
                    assert!([1, 2, 8, 16, 64].is_sorted_by(|&few, &many| host(few) <= host(many) * 1.0001));
                }
            }
        }
    }

    #[test]
    fn a_smaller_device_is_seen() {
        let on = |multiprocessors, threads| {
            let speeds = device_decoder("zstd").unwrap().speeds();
            Costs::shipped(multiprocessors).estimate(speeds, MIB, Load { threads, frames: 4096 })
        };
        assert!(on(20, 8).device_gb_s < on(132, 8).device_gb_s / 4.0);
        assert!(on(20, 8).prefers_device() && !on(20, 64).prefers_device());
    }
}
