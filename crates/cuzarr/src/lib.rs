//! Zarr arrays straight into and out of GPU memory.

mod cancellation;
pub mod codec;
pub mod config;
pub mod display;
mod error;
pub mod meta;
pub mod node;
pub mod plan;
pub mod run;
pub mod store;

pub use cancellation::CancellationToken;
pub use error::{Error, ErrorKind, Result, ResultExt, is_printable, nearest, printable, printable_lines};
