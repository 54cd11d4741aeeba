//! Options for reads and writes of an array, in one struct that arrays hold and that each call gets.

use std::time::Duration;

use cuzarr_device::internal::DEFAULT_SLAB_BYTES;
use cuzarr_device::{Device, Order};

use crate::cancellation::CancellationToken;
use crate::config::{Accelerator, Config};
use crate::plan::{Circumstances, PlanOptions};
use crate::store::Capabilities;

/// The memory limit divided by this limits the size of shards that one call reads whole, and of an open array's shard
/// indexes.
pub(crate) const INDEXES_SHARE: u64 = 64;

/// Size of the shard indexes that one call fetches at once, or of the shards that it reads whole instead, in bytes.
const INDEX_WINDOW_BYTES: u64 = 16 << 20;

/// Default of `coalesce_gap_bytes`: ranges are read by one request if the gap between them has at most this many bytes.
const DEFAULT_GAP_BYTES: u64 = 1 << 20;
/// Default of `coalesce_gap_bytes` for local stores: copying a longer gap from the page cache takes longer than another
/// read.
const NEAR_GAP_BYTES: u64 = 128 << 10;

/// Number of multiprocessors of the GPU on which the decoding costs that ship with cuzarr were measured.
const MEASURED_MULTIPROCESSORS: u32 = 132;

/// Options for reads and writes of an array, such as the device of results and the memory limit. They are not stored.
///
/// ```
/// use cuzarr::{ArrayOptions, Order};
/// let options = ArrayOptions::default().with_order(Order::F).with_memory_limit_bytes(256 << 20);
/// assert_eq!((options.order, options.strict), (Order::F, false));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Options {
    /// The device of an array's results. A call of the engine uses the device of its [`Access`](super::Access).
    pub device: Device,
    /// The device that decodes and encodes for results and values in host memory.
    pub accelerator: Accelerator,
    /// The order of elements in an array's results.
    pub order: Order,
    /// Whether it is an error if the host must run a codec although the elements are on a device. If so, a device
    /// decodes and encodes all that it can, even if the host would be faster.
    pub strict: bool,
    /// Whether missing chunks are read as the fill value. Otherwise they are an error.
    pub read_missing_chunks: bool,
    /// Whether chunks are stored although all of their elements have the fill value.
    pub write_empty_chunks: bool,
    /// Maximum number of bytes in flight outside results; work that needs more waits. The limit holds for all calls on
    /// the device together, and for each kind of memory (host, pinned, device).
    pub memory_limit_bytes: u64,
    /// Maximum number of threads of one call.
    pub threads: usize,
    /// Ranges are read by one request if the gap between them has at most this many bytes. The default is 1 MiB, which
    /// means 128 KiB in stores that divide reads, such as local files.
    pub coalesce_gap_bytes: u64,
    /// Maximum size of one request that reads several ranges.
    pub coalesce_max_bytes: u64,
    /// Maximum decoded size in bytes of a chunk with elements of variable length; a larger chunk is an error.
    pub variable_limit_bytes: u64,
    /// Whether decoded chunks are kept in the chunk cache of the device on which results are.
    pub chunk_cache: bool,
    /// Maximum size of the chunk cache of one device in bytes; beyond it, old chunks are dropped.
    pub chunk_cache_bytes: u64,
    /// Time for which the chunk cache trusts, without asking a store over a network, that objects are unchanged or
    /// still missing.
    pub chunk_cache_max_age: Duration,
    /// Whether reports list every single read, copy and kernel launch with its start and end.
    pub trace: bool,
    /// The token with which the caller can stop the call.
    pub cancellation: CancellationToken,
    /// Internal settings: the sizes of batches, and whether the device must decode.
    pub(crate) tuning: Tuning,
}

/// The sizes of batches, and whether the device must decode; for tests and measurements. The defaults suit every array.
/// No value changes a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Size of a slab of pinned host memory, through which bytes go to and from the device.
    pub slab_bytes: usize,
    /// Decoded size of one batch for the kernels, enough to use all multiprocessors of a device.
    pub decode_batch_bytes: u64,
    /// Whether a device decodes and encodes everything that it can, even if the host would be faster. `strict` implies
    /// it.
    pub force_device: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning { slab_bytes: DEFAULT_SLAB_BYTES, decode_batch_bytes: 64 << 20, force_device: false }
    }
}

impl From<&Config> for Options {
    fn from(config: &Config) -> Self {
        Options {
            device: config.device(),
            accelerator: config.accelerator(),
            order: config.order(),
            strict: config.strict(),
            read_missing_chunks: config.read_missing_chunks(),
            write_empty_chunks: config.write_empty_chunks(),
            memory_limit_bytes: config.memory_limit_bytes(),
            threads: config.threads(),
            coalesce_gap_bytes: config.coalesce_gap_bytes(),
            coalesce_max_bytes: config.coalesce_max_bytes(),
            variable_limit_bytes: config.variable_chunk_max_bytes(),
            chunk_cache: false,
            chunk_cache_bytes: config.chunk_cache_bytes(),
            chunk_cache_max_age: config.chunk_cache_max_age(),
            trace: false,
            cancellation: CancellationToken::default(),
            tuning: Tuning::default(),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options::from(&Config::new())
    }
}

impl Options {
    setters! {
        with_device(device: Device) = device;
        with_accelerator(accelerator: Accelerator) = accelerator;
        with_order(order: Order) = order;
        with_strict(strict: bool) = strict;
        with_read_missing_chunks(read_missing_chunks: bool) = read_missing_chunks;
        with_write_empty_chunks(write_empty_chunks: bool) = write_empty_chunks;
        with_memory_limit_bytes(memory_limit_bytes: u64) = memory_limit_bytes;
        with_threads(threads: usize) = threads;
        with_coalesce_gap_bytes(coalesce_gap_bytes: u64) = coalesce_gap_bytes;
        with_coalesce_max_bytes(coalesce_max_bytes: u64) = coalesce_max_bytes;
        with_variable_limit_bytes(variable_limit_bytes: u64) = variable_limit_bytes;
        with_chunk_cache(chunk_cache: bool) = chunk_cache;
        with_chunk_cache_bytes(chunk_cache_bytes: u64) = chunk_cache_bytes;
        with_chunk_cache_max_age(chunk_cache_max_age: Duration) = chunk_cache_max_age;
        with_trace(trace: bool) = trace;
        with_cancellation(cancellation: CancellationToken) = cancellation;
    }

    /// Target size of one batch of a read into memory of `device`: the decoded bytes of its chunks.
    pub(crate) fn batch_bytes(&self, device: Device) -> u64 {
        let share = (self.memory_limit_bytes / 8).max(256);
        if device == Device::Cpu { share } else { share.min(self.tuning.slab_bytes as u64) }
    }

    /// Lets a device decode and encode everything that it can, even if the host would be faster.
    #[must_use]
    pub(crate) fn with_force_device(mut self) -> Options {
        self.tuning.force_device = true;
        self
    }

    /// Whether a device decodes and encodes everything that it can, even if the host would be faster.
    pub(crate) fn force_device(&self) -> bool {
        self.strict || self.tuning.force_device
    }

    /// Collects the facts from which the engine chooses whether `device` or the host decodes a read of `chunks` chunks.
    pub(crate) fn circumstances(&self, device: Device, chunks: u64) -> Circumstances {
        Circumstances {
            // A device that does not report its multiprocessors counts as the measured one.
            multiprocessors: device.multiprocessors().unwrap_or(MEASURED_MULTIPROCESSORS),
            threads: self.threads,
            force_device: self.force_device(),
            memory_limit_bytes: self.memory_limit_bytes,
            slab_bytes: self.batch_bytes(device),
            decode_batch_bytes: self.tuning.decode_batch_bytes,
            chunks,
            in_turn: false,
            is_resident: false,
            one_chunk_bytes: None,
        }
    }

    /// Like [`Options::circumstances`], for a read that `device` decodes for a result in host memory. Does not start the
    /// device.
    pub(crate) fn circumstances_of_accelerator(&self, device: Device, chunks: u64) -> Circumstances {
        let used = if device.is_initialized() { device } else { Device::Cpu };
        let slab_bytes = self.batch_bytes(device);
        Circumstances { force_device: true, slab_bytes, ..self.circumstances(used, chunks) }
    }

    /// Makes the size limits for plans of reads from a store with these capabilities, such as the largest request.
    pub(crate) fn plan(&self, store: &Capabilities) -> PlanOptions {
        let is_near = store.divides_reads && !store.far;
        PlanOptions {
            coalesce_gap_bytes: match self.coalesce_gap_bytes {
                DEFAULT_GAP_BYTES if is_near => NEAR_GAP_BYTES,
                gap_bytes => gap_bytes,
            },
            coalesce_max_bytes: self.coalesce_max_bytes,
            piece_max_bytes: self.tuning.slab_bytes as u64,
            index_window_bytes: INDEX_WINDOW_BYTES,
            whole_shards_bytes: INDEX_WINDOW_BYTES.min(self.memory_limit_bytes / INDEXES_SHARE),
            whole_chunks_bytes: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_gap_is_smaller_nearby_and_another_one_is_kept() {
        let near = Capabilities { divides_reads: true, ..Capabilities::default() };
        let far = Capabilities { far: true, ..near };
        fn gap(options: &Options, store: &Capabilities) -> u64 {
            options.plan(store).coalesce_gap_bytes
        }
        let options = Options::default();
        assert_eq!((gap(&options, &near), gap(&options, &far)), (NEAR_GAP_BYTES, 1 << 20));
        assert_eq!(gap(&options, &Capabilities::default()), 1 << 20, "a store that does not say how near it is");
        for chosen in [7, 4 << 20] {
            let options = Options { coalesce_gap_bytes: chosen, ..Options::default() };
            assert_eq!((gap(&options, &near), gap(&options, &far)), (chosen, chosen));
        }
    }
}
