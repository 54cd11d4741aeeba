//! Plans: values that describe what will be read, decoded and written where. They do nothing themselves.
//!
//! A [`Selection`] describes the wanted elements, and a [`Source`] the array. [`Plan`] turns both into batches of
//! reads, units and fills. Plans do no I/O and use no device. So every decision can be tested without a store or a GPU.

pub(crate) mod batch;
mod cells;
mod chunk_order;
pub(crate) mod costs;
mod divisor;
mod explanation;
mod geometry;
pub(crate) mod options;
mod pieces;
mod placement;
mod plans;
pub(crate) mod read;
mod regions;
pub(crate) mod selection;
pub(crate) mod source;
mod tour;
pub(crate) mod whole;
mod write;

pub use costs::Estimate;
pub(crate) use costs::Offload;
pub use explanation::{Acceleration, CacheState, Explanation};
pub use placement::{Decoding, Merging, Placement};
pub(crate) use regions::raise_limit;
pub use regions::{Region, Regions};
pub use selection::{AxisIndex, AxisSelection, Selection, SliceArg};

// Types for the engine, for the Python package's pipeline, and for tests.
pub(crate) use batch::{Batch, ChunkName, Fill, Kept, Place, Read, SizeRule, Unit};
pub(crate) use options::PlanOptions;
pub(crate) use plans::Plans;
pub(crate) use read::{Entries, IndexPlace, IndexRead, Plan, ResultOf, Room, Spacing, Step};
pub(crate) use source::{KeyOf, Source};
pub(crate) use whole::WholeShards;

pub(crate) use chunk_order::chunks_touched;
pub(crate) use geometry::{chunk_bounds, memory_shape, strides};
pub(crate) use placement::{
    ChunkRoute, Circumstances, DeviceEncoding, DeviceWrite, HOST_IS_FASTER, PIECES_SHARE, PLAIN, PLAIN_COPIES,
    ReadPlacement, Resident, Route, SMALL_BYTES, WriteCircumstances, WritePlacement, WriteRoute, encoding_places,
    padded, refuse_fallen,
};
pub(crate) use source::{ChunkLayout, Level, PackedLayout, ShardLayout};
pub(crate) use write::{Coverage, Touched, WritePlan};

#[cfg(test)]
pub(crate) mod testing;
