//! Zarr arrays straight into and out of GPU memory.

mod cancellation;
pub mod codec;
pub mod config;
pub mod display;
mod error;
pub mod meta;
pub mod node;
mod open;
pub mod plan;
pub mod prelude;
pub mod run;
pub mod store;

pub use cancellation::CancellationToken;
pub use cuzarr_device::{Buffer, DType, Device, HostElement, Layout, NdBuffer, Order};
pub use error::{Error, ErrorKind, Result, ResultExt};

// For what the command line and the Python package print.
#[doc(hidden)]
pub use error::{is_printable, nearest, printable, printable_lines};
pub use node::{Array, ArrayOptions, Group, Node};
pub use open::{create_group, open, open_array, open_group};
pub use plan::Selection;
