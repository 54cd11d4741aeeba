//! The routes by which elements become encoded chunks.

pub(crate) mod encode;
pub(crate) mod gather;
pub(crate) mod host;
pub(crate) mod kernels;
pub(crate) mod merge;
pub(crate) mod resident;
pub(crate) mod variable;
