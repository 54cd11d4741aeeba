//! How an array behaves while it is used; nothing of this is stored.

use cuzarr_device::Device;

use crate::cancellation::CancellationToken;
use crate::config::Config;

/// How an array behaves while it is used; nothing of this is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayOptions {
    /// Where results are.
    pub device: Device,
    /// A fall-back to the host is an error.
    pub strict: bool,
    /// Results are in F order.
    pub order_is_f: bool,
    /// Missing chunks give the fill value; otherwise they are an error.
    pub read_missing_chunks: bool,
    /// Chunks that hold nothing but the fill value are stored.
    pub write_empty_chunks: bool,
    /// Bytes in flight outside results, per kind of memory.
    pub memory_limit_bytes: u64,
    /// Threads that one call may use.
    pub threads: usize,
    /// Gaps up to so many bytes between ranges are read over.
    pub coalesce_gap_bytes: u64,
    /// Most bytes of one read of several ranges.
    pub coalesce_max_bytes: u64,
    /// Bytes that a chunk of variable-length elements may decode to.
    pub variable_limit_bytes: u64,
    /// Reports list every piece of work.
    pub trace: bool,
    /// Stops calls of the array or group.
    pub cancellation: CancellationToken,
}

impl From<&Config> for ArrayOptions {
    fn from(config: &Config) -> Self {
        ArrayOptions {
            device: config.device(),
            strict: config.strict(),
            order_is_f: config.order_is_f(),
            read_missing_chunks: config.read_missing_chunks(),
            write_empty_chunks: config.write_empty_chunks(),
            memory_limit_bytes: config.memory_limit_bytes(),
            threads: config.threads(),
            coalesce_gap_bytes: config.coalesce_gap_bytes(),
            coalesce_max_bytes: config.coalesce_max_bytes(),
            variable_limit_bytes: config.variable_chunk_max_bytes(),
            trace: false,
            cancellation: CancellationToken::default(),
        }
    }
}

impl Default for ArrayOptions {
    fn default() -> Self {
        ArrayOptions::from(&Config::new())
    }
}
