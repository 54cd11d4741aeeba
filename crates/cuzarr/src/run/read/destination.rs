//! The trait between the coordinator of a read and the memory that takes the elements.

use std::sync::Arc;

use crate::error::Result;
use crate::plan::{Batch, Room};
use crate::run::read::in_flight::{BatchRoute, InFlight, Launcher};

/// The destination of a read's elements: host memory, a device, or a table of elements of variable length.
pub(crate) trait Destination {
    /// The route of one batch.
    type Route: BatchRoute + ?Sized;

    /// The limits of a batch of this group of arrays.
    fn room(&self, group: usize) -> Room;

    /// Launches a batch, or gives it back if there is no memory for it now. If `alone`, no other batch of this call is
    /// in flight; then this may wait for other calls, or fail.
    fn launch(&mut self, launcher: &Launcher<'_>, batch: Batch, alone: bool) -> Result<Launch<Self::Route>>;

    /// Closes a batch that came back: each of its units has landed, is missing, or has failed.
    fn close(&mut self, flight: Arc<InFlight<Self::Route>>, number: usize) -> Result<()>;

    /// Does work that can be postponed. The coordinator calls it before it waits for the store.
    fn idle(&mut self) -> Result<()> {
        Ok(())
    }

    /// Gives back memory that is kept for later batches, before the call waits for other calls. No batch is in flight.
    fn rest(&mut self) -> Result<()> {
        Ok(())
    }

    /// Completes the result, after all batches came back.
    fn finish(&mut self) -> Result<()>;
}

/// The outcome of launching a batch.
pub(crate) enum Launch<R: ?Sized> {
    Launched(Arc<InFlight<R>>),
    NoMemory(Batch),
}
