//! How one call behaves.

use cuzarr_device::Device;

use crate::cancellation::CancellationToken;
use crate::config::cores;
use crate::plan::PlanOptions;
use crate::run::read::coordinator::INDEXES_SHARE;

/// Bytes of shard indexes that one call fetches at once, or of shards that are fetched whole instead.
const INDEX_WINDOW_BYTES: u64 = 16 << 20;

/// How one call behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that the call may use.
    pub threads: usize,
    /// Bytes in flight outside the result, of all calls on the device together; per kind of memory (host, device).
    pub memory_limit_bytes: u64,
    /// Gaps up to so many bytes are read over.
    pub coalesce_gap_bytes: u64,
    /// Most bytes of one read of several chunks.
    pub coalesce_max_bytes: u64,
    /// Size of a slab of the staging ring.
    pub slab_bytes: usize,
    /// Packed bytes of one batch that kernels decode: enough for all of a device's multiprocessors.
    pub decode_batch_bytes: u64,
    /// Bytes that a chunk of variable-length elements may decode to.
    pub variable_limit_bytes: u64,
    /// Whether missing chunks give the fill value; else they are errors.
    pub read_missing_chunks: bool,
    /// Whether chunks that hold nothing but the fill value are stored.
    pub write_empty_chunks: bool,
    /// Whether a device decodes all that it can, also where the host would be faster.
    pub strict: bool,
    /// Whether the report lists every piece of work.
    pub trace: bool,
    /// Stops the call.
    pub cancellation: CancellationToken,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            threads: cores(),
            memory_limit_bytes: 1 << 30,
            coalesce_gap_bytes: 1 << 16,
            coalesce_max_bytes: 4 << 20,
            slab_bytes: 16 << 20,
            decode_batch_bytes: 64 << 20,
            variable_limit_bytes: 512 << 20,
            read_missing_chunks: true,
            write_empty_chunks: false,
            strict: false,
            trace: false,
            cancellation: CancellationToken::default(),
        }
    }
}

impl Options {
    /// Packed bytes of one batch of a read into memory of `device`.
    pub fn batch_bytes(&self, device: Device) -> u64 {
        let share = (self.memory_limit_bytes / 8).max(256);
        if device == Device::Cpu { share } else { share.min(self.slab_bytes as u64) }
    }

    /// The sizes that plans decide by.
    pub fn plan(&self) -> PlanOptions {
        PlanOptions {
            coalesce_gap_bytes: self.coalesce_gap_bytes,
            coalesce_max_bytes: self.coalesce_max_bytes,
            piece_max_bytes: self.slab_bytes as u64,
            index_window_bytes: INDEX_WINDOW_BYTES,
            whole_shards_bytes: INDEX_WINDOW_BYTES.min(self.memory_limit_bytes / INDEXES_SHARE),
        }
    }
}
