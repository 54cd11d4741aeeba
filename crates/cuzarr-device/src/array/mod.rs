//! Typed, strided, N-dimensional memory: element types, layouts, nd-buffers, and writers that let threads share one
//! nd-buffer.

pub(crate) mod dtype;
pub(crate) mod elements;
pub(crate) mod grouped;
pub(crate) mod layout;
pub(crate) mod lists;
pub(crate) mod ndbuffer;
pub(crate) mod small_number;
pub(crate) mod writer;
