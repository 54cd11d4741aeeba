//! One call that reads: its route is chosen once.

use std::sync::Arc;

use cuzarr_device::{Device, NdBuffer};

use crate::codec::VariableElements;
use crate::error::Result;
use crate::plan::{Plan, Plans, Route, Selection, Spacing};
use crate::run::access::Access;
use crate::run::engine::Engine;
use crate::run::options::Options;
use crate::run::read::coordinator::run;
use crate::run::read::device::{DeviceDestination, Group, Outs};
use crate::run::read::out::Out;
use crate::run::read::route::host::HostDestination;
use crate::run::read::route::small;
use crate::run::read::route::variable::{VariableDestination, assemble};
use crate::run::report::Report;
use crate::store::Store;

/// One array of a read of many.
#[derive(Clone, Copy)]
pub struct ArrayRead<'a> {
    /// The array, bound to the device of the result.
    pub access: &'a Access,
    /// The store with its chunks.
    pub store: &'a Arc<dyn Store>,
    /// What is read.
    pub selection: &'a Selection,
    /// The result.
    pub out: &'a NdBuffer,
}

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
            let call = engine.call(&[store], device, options);
            let mut destination = HostDestination::new(&call, vec![(access, out.whole()?, spacing)], options)?;
            run(&call, &[access], plan.into(), &mut destination)?;
            Ok((None, call.report()))
        }
        Route::Small => {
            let call = engine.call(&[store], device, options);
            small::read(&call, access, plan, out.whole()?, options)?;
            Ok((None, call.report()))
        }
        Route::Variable => {
            let call = engine.call(&[store], device, options);
            let mut destination = VariableDestination::new(&call, spacing, options);
            run(&call, &[access], plan.into(), &mut destination)?;
            Ok((Some(assemble(&destination.collected(), out.elements()?, access.fill())?), call.report()))
        }
        Route::Hybrid(_) | Route::Kernels(_) | Route::Resident(_) => {
            let call = engine.driven_call(&[store], device, options);
            let group = Group::new(placement, access.source().layout());
            let (array, outs) = ((access, spacing), Outs::try_from(out)?);
            let mut destination = DeviceDestination::new(&call, vec![group], &[array], outs, options)?;
            run(&call, &[access], plan.into(), &mut destination)?;
            Ok((None, call.report()))
        }
    }
}

/// Carries the plans of several arrays out, each into its own result, in one pipeline. All results are on one device, and there is
/// at least one.
///
/// # Errors
/// `FallbackRefused` under `strict`; the first failure, with the others attached. Then results hold anything.
pub(crate) fn read_all(
    engine: &Engine,
    device: Device,
    reads: Vec<(&ArrayRead<'_>, Plan)>,
    options: &Options,
) -> Result<Report> {
    let stores: Vec<&Arc<dyn Store>> = reads.iter().map(|(read, _)| read.store).collect();
    let accesses: Vec<&Access> = reads.iter().map(|(read, _)| read.access).collect();
    let (mut groups, mut plans, mut spacings, mut outs) = (Vec::<Group>::new(), Vec::new(), Vec::new(), Vec::new());
    for (ArrayRead { access, store, out, .. }, plan) in reads {
        // A chunk that comes with others costs no start of its own.
        let placement = access.place_read(&***store, &plan, (None, false), options);
        if options.strict {
            placement.refuse_fallen(access.chain())?;
        }
        spacings.push(plan.spacing(out.shape())?);
        let (layout, known) = (
            access.source().layout(),
            groups.iter().position(|group| group.suits(&placement, access.source().layout())),
        );
        let group = known.unwrap_or(groups.len());
        match groups.get_mut(group) {
            Some(group) => group.take(placement, layout),
            None => groups.push(Group::new(placement, layout)),
        }
        plans.push((group, plan));
        outs.push((*out).clone());
    }
    let plans = Plans::new(plans);
    if device == Device::Cpu {
        let call = engine.call(&stores, device, options);
        let arrays = accesses.iter().zip(&outs).zip(spacings).map(|((access, out), spacing)| (*access, out, spacing));
        let mut destination = HostDestination::new(&call, arrays.collect(), options)?;
        run(&call, &accesses, plans, &mut destination)?;
        return Ok(call.report());
    }
    let call = engine.driven_call(&stores, device, options);
    let arrays: Vec<(&Access, Spacing)> = accesses.iter().copied().zip(spacings).collect();
    let mut destination = DeviceDestination::new(&call, groups, &arrays, Outs::Whole(outs), options)?;
    run(&call, &accesses, plans, &mut destination)?;
    Ok(call.report())
}
