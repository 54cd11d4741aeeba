//! The routes by which a batch of a read becomes elements of the result.

pub(crate) mod host;
pub(crate) mod hybrid;
pub(crate) mod kernels;
pub(crate) mod resident;
pub(crate) mod small;
pub(crate) mod variable;
