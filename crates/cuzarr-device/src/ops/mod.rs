//! Operations on memory, one folder each: `mod.rs` has the public functions, `cpu.rs` and `cuda.rs` implement them, and
//! the kernels lie beside them.

pub mod bits;
pub mod cast;
pub mod checksum;
pub(crate) mod compare;
pub mod convert;
pub(crate) mod copy;
pub mod delta;
pub mod downsample;
pub(crate) mod element;
mod gather;
pub(crate) mod lanes;
pub(crate) mod launch;
pub(crate) mod lines;
pub mod math;
mod matmul;
pub mod nan;
pub mod nonzero;
pub(crate) mod ranges;
pub(crate) mod regions;
pub mod scan;
pub mod shuffle;
mod sort;
pub mod step;
pub(crate) mod strided;
mod take;
pub mod transfer;
