//! Reading the regions of a job by one pipeline: those that follow are fetched and decoded while one is worked on, without a
//! pipeline that fills and drains, and scratch memory, for each.

use std::sync::mpsc::channel;
use std::thread::Builder;

use cuzarr_device::NdBuffer;
use cuzarr_device::pool::in_flight;

use super::grid::Region;
use super::run::Job;
use super::walk::no_thread;
use crate::error::{ErrorKind, Result};
use crate::node::Array;

/// Reads regions of the job's only array, of which there are so many in memory at a time, and hands what each is made of to
/// `work`, in their order. Kernels that `work` starts are on the job's stream, or have ended when it returns.
///
/// # Errors
/// The first failure of either. `work` may have seen regions that turn out to be damaged.
pub(super) fn relay<'r>(
    job: &Job<'_>,
    (array, at_once): (&Array, usize),
    regions: &'r [Region],
    mut work: impl FnMut(&'r Region, Vec<NdBuffer>) -> Result<()>,
) -> Result<()> {
    let selections =
        regions.iter().map(|region| job.part_of(region, array.shape()).selection()).collect::<Result<_>>()?;
    let (sender, receiver) = channel();
    std::thread::scope(|scope| {
        let reader = move || in_flight(|| array.read_in_turn(selections, at_once, sender));
        let reader = Builder::new().name("cuzarr-read".into()).spawn_scoped(scope, reader);
        let reader = reader.map_err(|error| no_thread(&error))?;
        let mut worked = Ok(());
        for region in regions {
            // It ended before all regions came: it says why.
            let Ok(arrived) = receiver.recv() else { break };
            worked = arrived.elements().and_then(|elements| {
                work(region, job.operands(region, |_, _| Ok(elements.clone()))?)?;
                job.note_read(region);
                job.processor.finish()
            });
            if worked.is_err() {
                break;
            }
        }
        drop(receiver);
        let read = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match read {
            Err(error) if worked.is_ok() || error.kind() != ErrorKind::Cancelled => Err(error),
            _ => worked,
        }
    })
}
