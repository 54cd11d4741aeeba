//! The limits of a read plan, such as the maximum size of one request.

/// Limits for the requests of a read plan.
#[derive(Clone, Copy, Debug)]
pub struct PlanOptions {
    /// Maximum gap in bytes between two ranges of an object that one request reads together.
    pub coalesce_gap_bytes: u64,
    /// Maximum size of one request that reads several chunks.
    pub coalesce_max_bytes: u64,
    /// Maximum size in bytes of a range of an uncompressed chunk (a "piece") that is read separately.
    pub piece_max_bytes: u64,
    /// Size of the shard indexes that are fetched at once, in bytes.
    pub index_window_bytes: u64,
    /// Maximum size of all shards together that are read whole before their indexes are known.
    pub whole_shards_bytes: u64,
    /// Maximum size of an uncompressed chunk that is read whole even if a selection needs only a part of it. For chunks
    /// that the chunk cache keeps.
    pub whole_chunks_bytes: u64,
}
