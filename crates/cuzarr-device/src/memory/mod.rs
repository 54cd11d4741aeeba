//! Memory on every device: buffers, the leases that guard host bytes, memory pools and pinned slabs.

pub(crate) mod allocator;
pub(crate) mod buffer;
pub(crate) mod copy;
pub(crate) mod direct_file;
pub(crate) mod footprint;
pub(crate) mod host_block;
pub(crate) mod host_bytes;
pub(crate) mod lease;
pub(crate) mod pinned;
pub(crate) mod pool;
pub(crate) mod residency;
pub(crate) mod slab;
