//! What runs on a GPU: the driver behind a seam, the look-up of kernels, and the launches.

pub(crate) mod backend;
pub(crate) mod context;
pub(crate) mod cubin;
pub(crate) mod driver;
pub(crate) mod library;
pub(crate) mod nvrtc;
pub(crate) mod simt;

pub use library::set_library_search_paths;
