//! The limits of a plan.

/// Limits for a plan's decisions.
#[derive(Clone, Copy, Debug)]
pub struct PlanOptions {
    /// Largest gap between ranges that one read covers.
    pub coalesce_gap_bytes: u64,
    /// Maximum size of a read of several chunks.
    pub coalesce_max_bytes: u64,
    /// Maximum size of a piece of an uncompressed chunk.
    pub piece_max_bytes: u64,
    /// Bytes of shard indexes that are fetched at once.
    pub index_window_bytes: u64,
    /// Maximum size of shards that are read whole before their indexes are known.
    pub whole_shards_bytes: u64,
    /// Uncompressed chunks of at most this size are read whole, even if a selection needs only a part. For chunks that
    /// the chunk cache keeps.
    pub whole_chunks_bytes: u64,
}
