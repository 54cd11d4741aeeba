//! What a writer hands to the thread that stores rows.

use std::ops::Range;

use cuzarr_device::{Event, NdBuffer};

use super::rows::Rows;

/// What the storing thread has to do for one array.
pub(super) struct Task {
    /// The number of the array among those of the writer.
    pub(super) array: usize,
    /// The rows that this is about.
    pub(super) span: Range<u64>,
    pub(super) work: Work,
}

pub(super) enum Work {
    /// Stores rows.
    Rows(Box<Given>),
    /// Makes coarser rows again, of rows that the level with this number has in the store.
    Remake(usize),
    /// Stores the shards and the coarser rows that are gathered.
    Settle,
    /// Makes the last rows of coarser levels without rows that lie behind one that did not come.
    Trim,
}

/// Rows of one block.
pub(super) struct Given {
    /// The rows that the program gave; the others in the task's span have the fill value.
    pub(super) rows: Rows,
    pub(super) value: NdBuffer,
    /// After this event, `value` has its elements.
    pub(super) ready: Event,
    /// The memory that is free when the rows are stored.
    pub(super) slot: Option<NdBuffer>,
    /// Whether rows of this block were handed over before.
    pub(super) is_late: bool,
}

impl Task {
    pub(super) fn has_slot(&self) -> bool {
        matches!(&self.work, Work::Rows(given) if given.slot.is_some())
    }
}
