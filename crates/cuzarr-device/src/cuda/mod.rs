//! What runs on a GPU: the driver behind a seam, the look-up of kernels, and the launches.

pub(crate) mod backend;
pub(crate) mod checksum;
pub(crate) mod compare;
pub(crate) mod context;
pub(crate) mod convert;
pub(crate) mod cubin;
pub(crate) mod cufile;
pub(crate) mod delta;
pub(crate) mod downsample;
pub(crate) mod driver;
pub(crate) mod launch;
pub(crate) mod library;
pub(crate) mod nvrtc;
pub(crate) mod regions;
pub mod shuffle;
pub(crate) mod simt;
mod steps;
pub(crate) mod transfer;

pub use cufile::{CuFile, DirectFile};
pub use launch::{upload_table, write_table};
pub use library::set_library_search_paths;
