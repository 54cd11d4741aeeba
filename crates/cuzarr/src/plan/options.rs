//! The limits that a plan keeps to.

/// Limits for a plan's decisions.
#[derive(Clone, Copy, Debug)]
pub struct PlanOptions {
    /// Largest gap between ranges that one read covers.
    pub coalesce_gap_bytes: u64,
    /// Most bytes of a read of several chunks.
    pub coalesce_max_bytes: u64,
    /// Most bytes of a piece of an uncompressed chunk.
    pub piece_max_bytes: u64,
    /// Bytes of shard indexes that are fetched at once.
    pub index_window_bytes: u64,
    /// Most bytes of shards that are read whole before their indexes are known.
    pub whole_shards_bytes: u64,
}
