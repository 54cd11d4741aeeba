//! The GPU's driver behind a seam, and the libraries beside it: each is looked for when it is first needed.

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
