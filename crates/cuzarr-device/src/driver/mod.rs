//! The GPU's driver behind a seam, and the libraries beside it: all are found when they are first needed.

pub(crate) mod backend;
pub(crate) mod context;
pub(crate) mod cubin;
pub(crate) mod cuda;
pub(crate) mod cufile;
pub(crate) mod library;
pub(crate) mod nvrtc;
pub(crate) mod simt;
