//! The routes of a read: ways to fetch a batch of chunks, decode it and put its elements into the result.

pub(crate) mod host;
pub(crate) mod hybrid;
pub(crate) mod kernels;
pub(crate) mod resident;
pub(crate) mod small;
pub(crate) mod variable;
