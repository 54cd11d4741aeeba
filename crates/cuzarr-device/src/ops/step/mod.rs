//! The steps that change elements on their way, one after the other.

pub mod bits;
pub(crate) mod cpu;
pub(crate) mod cuda;
