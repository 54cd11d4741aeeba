//! The trait of result memory, host or device: it receives the batches of a read from the coordinator.

use std::sync::Arc;

use crate::error::Result;
use crate::plan::{Batch, Room};
use crate::run::read::in_flight::{BatchRoute, InFlight, Launcher};

/// Receives the batches of a read, and brings their elements into host memory, device memory, or a table of
/// variable-length elements.
pub(crate) trait Destination {
    /// The type of the object that fetches and decodes one batch.
    type Route: BatchRoute + ?Sized;

    /// The limits that a batch with chunks of this group of arrays must keep, such as its size.
    fn room(&self, group: usize) -> Room;

    /// Starts a batch, or gives it back if there is no memory for it now. If `alone`, no other batch of this call is in
    /// flight; then this may wait for other calls, or fail.
    fn launch(&mut self, launcher: &Launcher<'_>, batch: Batch, alone: bool) -> Result<Launch<Self::Route>>;

    /// Takes back a batch after each of its chunks was decoded, is missing in the store, or has failed.
    fn close(&mut self, flight: Arc<InFlight<Self::Route>>, number: usize) -> Result<()>;

    /// Does postponed work of this read, such as freeing the memory of batches that have ended. The coordinator calls
    /// it before it waits for the store.
    fn idle(&mut self) -> Result<()> {
        Ok(())
    }

    /// Gives back memory that this read keeps for its later batches, before it waits for memory of other calls. No
    /// batch is in flight.
    fn rest(&mut self) -> Result<()> {
        Ok(())
    }

    /// Completes the results of the read after its last batch has ended.
    fn finish(&mut self) -> Result<()>;
}

/// Whether a batch of a read was started, or was given back because there was no memory for it.
pub(crate) enum Launch<R: ?Sized> {
    Launched(Arc<InFlight<R>>),
    NoMemory(Batch),
}
