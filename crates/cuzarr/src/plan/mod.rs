//! Plans: values that say what will be read, decoded and written where, and do nothing.
//!
//! [`Selection`] says which elements are meant, [`Source`] what is known of the array, and [`Plan`] turns both into
//! batches of reads, units and fills. No I/O and no device: every decision here is tested without either.

mod batch;
mod costs;
mod explanation;
mod geometry;
mod pieces;
mod placement;
mod read;
mod regions;
mod selection;
mod source;
mod tour;
mod walk;
mod whole;
mod write;

pub use batch::{Batch, ChunkName, Fill, Place, Read, SizeRule, Unit};
pub use costs::{Costs, Estimate, Load};
pub(crate) use explanation::chunks_touched;
pub use explanation::{
    Decoding, Explanation, Placed, Placement, check_strict, check_strict_writing, encoding_placements, placements,
};
pub(crate) use geometry::strides;
pub(crate) use placement::{
    Circumstances, PLAIN_COPIES, ReadPlacement, Resident, Route, SMALL_BYTES, encoding, placed,
};
pub use read::{Entries, IndexPlace, IndexRead, Plan, PlanOptions, Room, Step};
pub use regions::{Region, Regions};
pub use selection::{AxisSelection, Selection, SliceArg};
pub use source::{KeyOf, Level, PackedLayout, ShardLayout, Source};
pub use whole::WholeShards;
pub(crate) use write::{Coverage, Touched, WritePlan};
