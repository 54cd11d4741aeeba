//! The routes of a write: ways to gather the elements of chunks, encode them, and deliver them to the store.

pub(crate) mod encode;
pub(crate) mod gather;
pub(crate) mod host;
pub(crate) mod kernels;
pub(crate) mod merge;
pub(crate) mod resident;
pub(crate) mod variable;
