//! Exchange of arrays with other libraries: DLPack, and the array interfaces of NumPy and CUDA.

pub(crate) mod array_interface;
pub mod dlpack;
