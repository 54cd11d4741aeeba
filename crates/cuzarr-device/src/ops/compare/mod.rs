//! Whether elements are equal.

pub(crate) mod cpu;
pub(crate) mod cuda;
