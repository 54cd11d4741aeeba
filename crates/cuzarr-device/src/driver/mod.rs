//! The GPU's driver behind an interface, and optional libraries. Each is loaded at first use.

pub(crate) mod backend;
pub(crate) mod context;
pub(crate) mod cubin;
pub(crate) mod cublas;
pub(crate) mod cuda;
pub(crate) mod cufile;
pub(crate) mod device;
pub(crate) mod library;
pub(crate) mod nvrtc;
pub mod nvtx;
pub(crate) mod simt;
pub(crate) mod source;
