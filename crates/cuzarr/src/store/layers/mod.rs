//! Layers: stores that are views of other stores. A layer forwards every method, so the store behind it loses no ability.

mod prefix;
mod read_only;
mod split;

pub use prefix::Prefixed;
pub use read_only::ReadOnly;
pub(super) use read_only::read_only_error;
pub(super) use split::Side;
pub use split::Split;
