//! Device memory, streams and kernels for cuzarr. This crate does not know Zarr. No other crate calls a GPU's driver.
//!
//! Each module uses only modules above it in this table; `crates/cuzarr/tests/layers.rs` checks that.
//!
//! | module | contents |
//! |---|---|
//! | `error`, `lock`, `c_layout` | the error type, locks, checks of structures in C layout |
//! | `device` | [`Device`]: `cpu`, or `cuda:N` |
//! | `driver` | the GPU's driver behind an interface (`backend`): CUDA, or `simt` in tests; NVRTC, cuBLAS, cuFile, NVTX; cubins |
//! | `event`, `stream` | [`Stream`], which orders the work of a device, and [`Event`], a mark in a stream |
//! | `memory` | [`Buffer`], the leases that guard host bytes, the pools, the ring of pinned slabs, copies of flat bytes |
//! | `array`, `kernel` | [`NdBuffer`], its dtype and layout, writers that threads share; [`Kernel`] and [`Module`], and their launches |
//! | `ops` | operations on memory, one folder each: `mod.rs` has the public functions, then `cpu.rs`, `cuda.rs` and the kernels (`*.cu`) |
//! | `interop`, `probe` | DLPack and array interfaces; a report of what this machine offers |
//!
//! A result on a GPU is made in four steps. Storage fills pinned memory that `SlabRing` gives. `Slab::upload` submits
//! the copy on a [`Stream`]. Codecs launch kernels on that stream. `transfer::scatter_on` moves the elements to their
//! places in an [`NdBuffer`].

mod array;
mod c_layout;
mod device;
mod driver;
mod error;
mod event;
mod interop;
mod kernel;
mod lock;
mod memory;
mod ops;
mod probe;
mod process;
mod stream;
mod threads;

pub use array::dtype::{DType, DTypeKind};
pub use array::elements::{HostElement, bytes_of};
pub use array::layout::{Layout, Order};
pub use array::ndbuffer::NdBuffer;
pub use array::small_number::SmallNumber;
pub use device::Device;
pub use driver::device::MemoryInfo;
pub use driver::library::set_library_search_paths;
pub use driver::nvtx as profile;
pub use driver::source::{Header, KernelSource};
pub use error::{Error, ErrorKind, Result};
pub use event::Event;
pub use interop::dlpack;
pub use kernel::module::{Function, LaunchShape, Module};
pub use kernel::{Arguments, Kernel, set_cubin_directory};
pub use memory::allocator::DeviceAllocator;
pub use memory::buffer::Buffer;
pub use memory::host_bytes::{HostBytes, HostBytesMut, HostSlice};
pub use memory::lease::Owner;
pub use ops::downsample;
pub use ops::nonzero::{nonzero, nonzero_indices};
pub use ops::ranges::ElementRange;
pub use ops::scan::Scan;
pub use probe::{GpuReport, LibraryReport, Probe, probe};
pub use process::{AppendOnlyMap, PerProcess, is_forked};
pub use stream::Stream;

pub use ops::transfer::{Arithmetic, ElementStep, Packing, Tail, Transfer, TransferBox};

/// Allocation of device memory.
pub mod pool {
    pub use crate::memory::allocator::{DeviceAllocator, Pool, set_allocator};
    pub use crate::memory::pool::{PoolStats, lend, memory_info, reset_peak, stats, trim};
}

/// Items of this crate that `cuzarr`, its codecs and `cuzarr-compute` are built from. They are not part of the public
/// interface; any release may change them.
#[doc(hidden)]
pub mod internal {
    pub use crate::array::grouped::{Grouped, Numbering, Within, grouped};
    pub use crate::array::lists::{List, ListPart, Lists};
    pub use crate::array::writer::{ElementBox, Lent, Part, PartBytes, Reader, Writer};
    pub use crate::driver::cufile::CuFile;
    pub use crate::driver::source::STATUS_HEADER;
    pub use crate::kernel::{WARP, defined, stated_size};
    pub use crate::memory::direct_file::DirectFile;
    pub use crate::memory::residency::resident_bytes;
    pub use crate::memory::slab::{Copied, DEFAULT_SLAB_BYTES, Slab, SlabPiece, SlabRing, SlabSeries};
    pub use crate::ops::launch::{upload_table, write_table};
    pub use crate::ops::{bits, checksum, convert, delta, shuffle, transfer};
    pub use crate::threads::{Job, Scope, Threads, Turn, is_worker, run_here};

    /// Host functions that codecs use on their own byte slices.
    pub mod cpu {
        pub use crate::ops::shuffle::cpu as shuffle;
        pub use crate::ops::step::bits;
        pub use crate::ops::{cast, math, nan};
    }

    /// Functions of the memory pools for work and for its results, used by the engine and the Python package.
    pub mod pool {
        pub use crate::memory::allocator::allocate_on;
        pub use crate::memory::pool::{Within, allocate, in_flight, mark_shared, name_result, named_bytes, within};
    }
}
