//! Layers: stores that are views of other stores. A layer forwards every method, so no ability of the inner store is
//! lost.

mod prefix;
mod read_only;
mod split;

pub use prefix::Prefixed;
pub use read_only::ReadOnly;
pub(super) use read_only::read_only_error;
pub(super) use split::Side;
pub use split::Split;
