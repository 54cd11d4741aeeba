//! Device memory, streams and kernels for cuzarr. Knows nothing of Zarr, and is the only crate that calls a GPU's driver.

mod budget;
mod buffer;
pub mod checksum;
mod copy;
pub mod cpu;
mod cuda;
pub mod delta;
mod device;
pub mod dlpack;
mod dtype;
mod error;
mod host_memory;
mod kernel;
mod layout;
mod ndbuffer;
mod pieces;
pub mod pool;
mod probe;
mod slab;
mod stream;
pub mod transfer;

pub use budget::{Budget, Lease};
pub use buffer::{Buffer, Owner};
pub use cuda::{CuFile, DirectFile, set_library_search_paths, shuffle, upload_table};
pub use device::{Device, MemoryInfo};
pub use dtype::{DType, DTypeKind};
pub use error::{Error, ErrorKind, Result};
pub use kernel::{Arguments, Kernel, KernelSource, set_cubin_directory};
pub use layout::{Layout, Order};
pub use ndbuffer::{HostElement, NdBuffer};
pub use pieces::{HostPiece, HostPieces};
pub use pool::DeviceAllocator;
pub use probe::{GpuReport, LibraryReport, Probe, probe};
pub use slab::{DEFAULT_SLAB_BYTES, Slab, SlabPiece, SlabRing};
pub use stream::{Event, Stream};
pub use transfer::{Arithmetic, ElementStep, Packing, Tail, Transfer, TransferBox};
