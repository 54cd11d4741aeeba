//! Expressions of arrays in stores, read and computed region by region, into memory or into another array.

mod compute;
mod creation;
mod derived;
mod explain;
mod job;
mod near;
mod sources;
mod store;
mod together;

pub use self::creation::Creation;
pub use self::explain::{ComputeExplanation, ComputeStage};
pub(crate) use self::job::{Job, REGIONS_SHARE, deliver, for_each_region};
