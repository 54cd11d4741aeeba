//! The read route of one small chunk that goes to device memory: the calling thread reads and decodes it. The host
//! decodes it into pinned memory, and one copy moves its elements to their place. Starting kernels would take longer.
//! So would a copy from pageable memory, which the driver first copies to pinned memory.

use std::sync::Arc;

use cuzarr_device::internal::SlabRing;
use cuzarr_device::{Layout, NdBuffer, Order};

use crate::error::Result;
use crate::plan::{Plan, SMALL_BYTES};
use crate::run::context::Context;
use crate::run::read::coordinator;
use crate::run::read::route::host::HostDestination;
use crate::run::report::Stage;
use crate::run::{Access, Options};

/// Maximum size of the pinned memory that is kept between small reads, in bytes.
const KEPT_BYTES: usize = 32 * SMALL_BYTES;

/// Reads one small chunk on the calling thread into `out`, which is contiguous in C order.
pub(crate) fn read(call: &Arc<Context>, access: &Access, plan: Plan, out: &NdBuffer, options: &Options) -> Result<()> {
    let on_host = access.on_host()?;
    let plan = plan.rebound(on_host.source())?;
    let layout = Layout::contiguous(out.shape(), out.dtype().size_bytes(), Order::C)?;
    let ring = SlabRing::new(out.device(), SMALL_BYTES, KEPT_BYTES.max(layout.size_bytes()))?;
    let pinned = ring.acquire(layout.size_bytes())?.into_buffer()?;
    let staged = NdBuffer::from_parts(pinned.slice(..layout.size_bytes())?, out.dtype(), layout)?;
    let spacing = plan.spacing(0, out.shape())?;
    // The destination writes to the pinned memory while it lives, so it must end before the copy reads that memory.
    {
        let mut destination = HostDestination::new(call, vec![(&on_host, &staged, spacing)], options)?;
        coordinator::run(call, &[&on_host], plan.into(), &mut destination)?;
    }
    let (begin, size_bytes) = (out.layout().offset_bytes(), out.size_bytes());
    let target = out.buffer().slice(begin..begin + size_bytes)?;
    let stream = call.streams.take(out.device())?;
    let copy = || stream.h2d(&staged.buffer().host_bytes()?, &target);
    call.counters.time(Stage::Upload, size_bytes as u64, copy)?;
    call.streams.give_back(&stream);
    Ok(())
}
