//! One call that reads: its route is chosen once.

use std::sync::Arc;

use crate::codec::VariableElements;
use crate::error::Result;
use crate::plan::{Plan, Route};
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
/// `FallbackRefused` under `strict`; the first failure, with the others attached.
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
    let result = (out.contiguous_bytes(), matches!(out, Out::InTurn(_)));
    let placement = access.place_read(&**store, &plan, result, options);
    if options.strict {
        placement.refuse_fallen(access.chain())?;
    }
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
            let mut destination = VariableDestination::new(&call, spacing, options);
            run(&call, access, plan, &mut destination)?;
            Ok((Some(assemble(&destination.collected(), out.elements()?, access.fill())?), call.report()))
        }
        Route::Hybrid(_) | Route::Kernels(_) | Route::Resident(_) => {
            let call = engine.driven_call(store, device, options);
            let mut destination = DeviceDestination::new(&call, access, out, spacing, placement, options)?;
            run(&call, access, plan, &mut destination)?;
            Ok((None, call.report()))
        }
    }
}
