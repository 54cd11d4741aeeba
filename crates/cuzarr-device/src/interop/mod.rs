//! Exchange with other libraries: DLPack, the array interfaces of NumPy and CUDA, and profilers' names.

pub(crate) mod array_interface;
pub mod dlpack;
