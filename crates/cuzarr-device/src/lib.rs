//! Device memory, streams and kernels for cuzarr. Knows nothing of Zarr, and is the only crate that calls a GPU's driver.

mod buffer;
mod device;
mod dtype;
mod error;
mod layout;
mod transfer;

pub use buffer::{Buffer, Owner};
pub use device::Device;
pub use dtype::{DType, DTypeKind};
pub use error::{Error, ErrorKind, Result};
pub use layout::{Layout, Order};
pub use transfer::{Arithmetic, ElementStep, Packing, Tail, Transfer, TransferBox};
