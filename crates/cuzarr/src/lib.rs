//! Zarr arrays straight into and out of GPU memory.

pub mod codec;
mod error;
pub mod meta;
pub mod store;

pub use error::{Error, ErrorKind, Result, ResultExt};
