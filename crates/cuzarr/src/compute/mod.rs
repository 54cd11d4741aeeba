//! Computing with arrays of any size: they are worked through in regions, each read while the one before it is computed
//! and written, so that memory stays within the budget whatever the shape is.

mod copy;
mod copy_group;
mod grid;
mod journal;
mod pyramid;
mod target;
mod walk;

pub use copy::{Copy, Existing, Pass, Progress};
pub use copy_group::{Copied, copy_node};
pub use grid::{Region, Regions};
pub use pyramid::{Pyramid, PyramidOptions};
pub use target::{Changes, compressor_named};
pub use walk::walk;
