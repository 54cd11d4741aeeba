//! Executes one read call, of one array or of several arrays. Its route is chosen once, for all batches.

use std::sync::Arc;

use cuzarr_device::{Device, NdBuffer};

use crate::codec::VariableElements;
use crate::error::Result;
use crate::plan::{Plan, Plans, ReadPlacement, ResultOf, Route};
use crate::run::accelerator::{self, Offer};
use crate::run::access::{Access, ReadResult};
use crate::run::engine::Engine;
use crate::run::options::Options;
use crate::run::read::cached::with_cache;
use crate::run::read::coordinator::run;
use crate::run::read::device::{DeviceDestination, Group, Outs};
use crate::run::read::out::Out;
use crate::run::read::route::host::HostDestination;
use crate::run::read::route::small;
use crate::run::read::route::variable::{VariableDestination, assemble};
use crate::run::report::Report;
use crate::store::Store;

/// One array of a call that reads several arrays, and the results that it fills.
#[derive(Clone, Copy)]
pub struct ArrayRead<'a> {
    /// The array that is read, bound to the device of the results.
    pub access: &'a Access,
    /// The store that holds the array's chunks.
    pub store: &'a Arc<dyn Store>,
    /// The array's name, which errors show.
    pub name: &'a str,
    /// The results that are filled from this array. A chunk that several results need is fetched and decoded once.
    pub results: &'a [ArrayResult<'a>],
}

/// One result of a read: its memory, and the elements of the array that fill it.
#[derive(Clone, Copy)]
pub struct ArrayResult<'a> {
    /// The elements of the array that are read.
    pub of: ResultOf<'a>,
    /// The memory into which the elements are read.
    pub out: &'a NdBuffer,
}

/// Reads the elements of `plan` into `out`, on the route that was chosen for the read. Returns the elements if they
/// have variable length.
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
    if let Out::Whole(_) = out
        && let Some((_, Ok(Offer { access, placement, .. }))) =
            accelerator::of_read(access, &**store, &plan, options, false)?
    {
        let plan = plan.rebound(access.source())?;
        return Ok((None, read_by_device(engine, (&access, placement), store, plan, out, options)?));
    }
    let device = access.device();
    let result = ReadResult { contiguous_bytes: out.contiguous_bytes(), in_turn: matches!(out, Out::InTurn(_)) };
    let placement = access.place_read(&**store, &plan, result, options);
    if options.strict {
        placement.refuse_fallen(access.chain())?;
    }
    let spacing = plan.spacing(0, &out.shape())?;
    match &placement.route {
        Route::Host => {
            let call = with_cache(engine.call(&[store], device, options), engine, &[access], options);
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
            let call = with_cache(engine.call(&[store], device, options), engine, &[access], options);
            let mut destination = VariableDestination::new(&call, spacing, options);
            run(&call, &[access], plan.into(), &mut destination)?;
            Ok((Some(assemble(&destination.collected(), out.elements()?, access.fill())?), call.report()))
        }
        Route::Hybrid(_) | Route::Kernels(_) | Route::Resident(_) => {
            Ok((None, read_by_device(engine, (access, placement), store, plan, out, options)?))
        }
    }
}

/// Reads the elements of `plan` into `out`, on a route for which the device of the access does work.
fn read_by_device(
    engine: &Engine,
    (access, placement): (&Access, ReadPlacement),
    store: &Arc<dyn Store>,
    plan: Plan,
    out: Out,
    options: &Options,
) -> Result<Report> {
    let call = with_cache(engine.driven_call(&[store], access.device(), options), engine, &[access], options);
    let group = Group::new(placement, access.source().layout());
    let (array, outs) = ((access, plan.spacing(0, &out.shape())?), Outs::try_from(out)?);
    let mut destination = DeviceDestination::new(&call, vec![group], &[array], outs, options)?;
    run(&call, &[access], plan.into(), &mut destination)?;
    Ok(call.report())
}

/// Reads from several arrays by their plans in one pipeline, each into its own results. All arrays are bound to
/// `device`. There is at least one. All results are on that device, or on the host.
///
/// # Errors
/// `FallbackRefused` under `strict`; the first failure, with the others attached. The content of results is then
/// unspecified.
pub(crate) fn read_all(
    engine: &Engine,
    device: Device,
    reads: Vec<(&ArrayRead<'_>, Plan)>,
    options: &Options,
) -> Result<Report> {
    let stores: Vec<&Arc<dyn Store>> = reads.iter().map(|(read, _)| read.store).collect();
    let accesses: Vec<&Access> = reads.iter().map(|(read, _)| read.access).collect();
    let (mut groups, mut plans, mut results, mut outs) = (Vec::<Group>::new(), Vec::new(), Vec::new(), Vec::new());
    for (ArrayRead { access, store, results: of_array, .. }, plan) in reads {
        // A chunk that is read with others causes no extra start, so single small chunks get no special route.
        let placement = access.place_read(&***store, &plan, ReadResult::default(), options);
        if options.strict {
            placement.refuse_fallen(access.chain())?;
        }
        let first_out = outs.len();
        for (number, ArrayResult { out, .. }) in of_array.iter().enumerate() {
            results.push((*access, plan.spacing(number, out.shape())?));
            outs.push((*out).clone());
        }
        let (layout, known) = (
            access.source().layout(),
            groups.iter().position(|group| group.suits(&placement, access.source().layout())),
        );
        let group = known.unwrap_or(groups.len());
        match groups.get_mut(group) {
            Some(group) => group.take(placement, layout),
            None => groups.push(Group::new(placement, layout)),
        }
        plans.push((group, first_out, plan));
    }
    let plans = Plans::new(plans);
    if device == Device::Cpu {
        let call = with_cache(engine.call(&stores, device, options), engine, &accesses, options);
        let results = results.into_iter().zip(&outs).map(|((access, spacing), out)| (access, out, spacing));
        let mut destination = HostDestination::new(&call, results.collect(), options)?;
        run(&call, &accesses, plans, &mut destination)?;
        return Ok(call.report());
    }
    let call = with_cache(engine.driven_call(&stores, device, options), engine, &accesses, options);
    let mut destination = DeviceDestination::new(&call, groups, &results, Outs::Whole(outs), options)?;
    run(&call, &accesses, plans, &mut destination)?;
    Ok(call.report())
}
