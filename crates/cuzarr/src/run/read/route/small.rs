//! The route of one small chunk to a device. The host decodes it, and one copy moves its elements to their place. Starting
//! kernels would take longer.

use std::sync::Arc;

use cuzarr_device::{Device, NdBuffer, Order};

use crate::error::Result;
use crate::plan::Plan;
use crate::run::context::Context;
use crate::run::read::coordinator;
use crate::run::read::out::Out;
use crate::run::read::route::host::HostDestination;
use crate::run::report::Stage;
use crate::run::{Access, Options};

/// Carries `plan` out into `out`, which is contiguous in C order.
pub(crate) fn read(call: &Arc<Context>, access: &Access, plan: Plan, out: &NdBuffer, options: &Options) -> Result<()> {
    let on_host = access.on_host()?;
    let plan = plan.rebound(on_host.source())?;
    let staged = NdBuffer::empty(Device::Cpu, out.dtype(), out.shape(), Order::C)?;
    let spacing = plan.spacing(out.shape())?;
    let result = Out::Whole(staged.clone());
    coordinator::run(call, &on_host, plan, &mut HostDestination::new(call, &on_host, &result, spacing, options)?)?;
    let (begin, size_bytes) = (out.layout().offset_bytes(), out.size_bytes());
    let target = out.buffer().slice(begin..begin + size_bytes)?;
    let stream = call.streams.take(out.device())?;
    let copy = || stream.h2d(&staged.buffer().host_bytes()?, &target);
    call.counters.time(Stage::Upload, size_bytes as u64, copy)?;
    call.streams.give_back(&stream);
    Ok(())
}
