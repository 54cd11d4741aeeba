//! Memory on every device: buffers, the leases that guard host bytes, and the pools and pinned slabs it comes from.

pub(crate) mod buffer;
pub(crate) mod host_block;
pub(crate) mod host_bytes;
pub(crate) mod lease;
pub mod pool;
pub(crate) mod residency;
pub(crate) mod slab;
