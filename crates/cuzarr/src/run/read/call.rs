//! One call that reads: its route is chosen once.

use std::sync::Arc;

use cuzarr_device::Device;

use crate::codec::VariableElements;
use crate::error::Result;
use crate::plan::{Circumstances, Plan, ReadPlacement, Route};
use crate::run::access::Access;
use crate::run::engine::Engine;
use crate::run::options::Options;
use crate::run::read::coordinator::run;
use crate::run::read::device::DeviceDestination;
use crate::run::read::out::Out;
use crate::run::read::route::host::HostDestination;
use crate::run::read::route::small;
use crate::run::read::route::variable::{VariableDestination, assemble};
use crate::run::report::Report;
use crate::store::Store;

/// Carries `plan` out into `out`, by the route of its placement. Returns the elements when they have variable length.
///
/// # Errors
/// The first failure, with the others attached.
pub(crate) fn read(
    engine: &Engine,
    access: &Access,
    store: &Arc<dyn Store>,
    plan: Plan,
    out: Out,
    options: &Options,
) -> Result<(Option<VariableElements>, Report)> {
    let device = access.device();
    let spacing = plan.spacing(&out.shape())?;
    let program = access.program().ok().map(|program| &**program);
    let chunks = out.len().div_ceil(access.chunk_elements().max(1)) as u64;
    let one_chunk = || store.capabilities().divides_reads && plan.is_one_chunk();
    let given = Circumstances {
        in_turn: matches!(out, Out::InTurn(_)),
        is_resident: store.is_on(device),
        one_chunk_bytes: out.contiguous_bytes().filter(|_| device != Device::Cpu && one_chunk()),
        ..options.circumstances(device, chunks)
    };
    let placement = ReadPlacement::new(program, device, &given);
    match &placement.route {
        Route::Host => {
            let call = engine.call(store, device, options);
            let mut destination = HostDestination::new(&call, access, &out, spacing, options)?;
            run(&call, access, plan, &mut destination)?;
            Ok((None, call.report()))
        }
        Route::Small => {
            let call = engine.call(store, device, options);
            small::read(&call, access, plan, out.whole()?, options)?;
            Ok((None, call.report()))
        }
        Route::Variable => {
            let call = engine.call(store, device, options);
            let mut destination = VariableDestination::new(&call, access, spacing, options)?;
            run(&call, access, plan, &mut destination)?;
            Ok((Some(assemble(&[destination.collected()], out.elements()?, access.fill())?), call.report()))
        }
        Route::Hybrid(_) | Route::Kernels(_) | Route::Resident(_) => {
            let call = engine.driven_call(store, device, options);
            let mut destination = DeviceDestination::new(&call, access, out, spacing, placement, options)?;
            run(&call, access, plan, &mut destination)?;
            Ok((None, call.report()))
        }
    }
}
