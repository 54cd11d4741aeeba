//! Explains reads and writes without executing them: where chunks would be decoded or encoded, and the counts of the
//! plan.

use std::sync::Arc;

use cuzarr_device::{Device, Order};

use crate::error::Result;
use crate::plan::{Acceleration, CacheState, Explanation, Plan, ResultOf, Selection, WritePlan};
use crate::run::accelerator::{self, Offer};
use crate::run::access::{Access, ReadResult};
use crate::run::chunk_cache::CacheUse;
use crate::run::engine::Engine;
use crate::run::options::Options;
use crate::run::read::device::Group;
use crate::store::Store;

/// Size of a new result of this read in bytes, if the result is contiguous in C order.
fn contiguous_bytes(access: &Access, selection: &Selection, options: &Options) -> Option<usize> {
    let is_c = options.order == Order::C || selection.shape().len() < 2;
    let (dtype, len) = access.dtype().zip(selection.len()).filter(|_| is_c)?;
    usize::try_from(len).ok()?.checked_mul(dtype.size_bytes())
}

/// The size and limit of the device's chunk cache, if reads of the array use it.
fn cache_state(access: &Access, store: &dyn Store, options: &Options) -> Option<CacheState> {
    access.cached_as(store, options).map(|_| {
        let CacheUse { chunks, size_bytes } = Engine::get().cache_use(access.device());
        CacheState { chunks, size_bytes, limit_bytes: options.chunk_cache_bytes }
    })
}

impl Engine {
    /// Explains a read of `selection` into a new result on the access's device.
    ///
    /// # Errors
    /// `SelectionInvalid` when the selection does not fit the array.
    pub fn explain(
        access: &Access,
        store: &Arc<dyn Store>,
        selection: &Selection,
        options: &Options,
    ) -> Result<Explanation> {
        let limits = access.plan_options(&**store, options);
        let plan = Plan::new(Arc::clone(access.source()), selection.clone(), limits)?;
        let wanted = accelerator::of_read(access, &**store, &plan, options, true)?;
        let accelerator = wanted.as_ref().map(|(wanted, offer)| wanted.explained(offer.as_ref().err()));
        let (plan, placement) = match wanted {
            Some((_, Ok(Offer { access, placement, .. }))) => (plan.rebound(access.source())?, placement),
            _ => {
                let contiguous_bytes = contiguous_bytes(access, selection, options);
                let result = ReadResult { contiguous_bytes, in_turn: false };
                let placement = access.place_read(&**store, &plan, result, options);
                (plan, placement)
            }
        };
        let (limit_bytes, program) = (options.memory_limit_bytes, plan.source().layout().program.as_deref());
        let mut explanation =
            Explanation::of_read(access.chain(), program, &placement, access.device(), selection, &limits, limit_bytes);
        explanation.count(&plan, placement.batch_bytes)?;
        explanation.chunk_cache = cache_state(access, &**store, options);
        match accelerator {
            Some(accelerator) if accelerator.via_host.is_none() => explanation.back_to_host(accelerator),
            accelerator => explanation.accelerator = accelerator,
        }
        Ok(explanation)
    }

    /// Explains a read of several results by one call. Arrays whose chunks are decoded in the same way form a group, which
    /// shares batches. Returns each group with the numbers of its reads.
    ///
    /// # Errors
    /// `SelectionInvalid` when a selection does not fit its array.
    pub fn explain_all(
        reads: &[(&Access, &Arc<dyn Store>, ResultOf<'_>)],
        options: &Options,
    ) -> Result<Vec<(Vec<usize>, Explanation)>> {
        let planned = |(access, store, of): &(&Access, &Arc<dyn Store>, ResultOf<'_>)| {
            let limits = access.plan_options(&***store, options);
            Plan::of_results(Arc::clone(access.source()), &[*of], limits)
        };
        let plans = reads.iter().map(planned).collect::<Result<Vec<Plan>>>()?;
        let wanted = reads.iter().zip(&plans).map(|((access, store, _), plan)| (*access, &***store, plan));
        if let Some(device) = accelerator::of_reads(wanted, options, true)? {
            let bound = reads.iter().map(|(access, ..)| access.on(device)).collect::<Result<Vec<Arc<Access>>>>()?;
            let on = |(&(_, store, of), access)| -> (&Access, &Arc<dyn Store>, ResultOf<'_>) { (access, store, of) };
            let reads: Vec<_> = reads.iter().zip(bound.iter().map(|access| &**access)).map(on).collect();
            let mut groups = Engine::explain_all(&reads, &options.clone().with_force_device())?;
            for (_, explanation) in &mut groups {
                explanation.back_to_host(Acceleration { device: device.to_string(), via_host: None });
            }
            return Ok(groups);
        }
        let mut groups: Vec<(Group, Vec<usize>, Explanation)> = Vec::new();
        for (number, ((access, store, of), plan)) in reads.iter().zip(plans).enumerate() {
            let limits = access.plan_options(&***store, options);
            let placement = access.place_read(&***store, &plan, ReadResult::default(), options);
            let (layout, elements) = (access.source().layout(), of.shape()?.iter().product::<usize>() as u64);
            let element_bytes = access.dtype().map_or(0, |dtype| dtype.size_bytes() as u64);
            let like = groups.iter_mut().find(|(group, ..)| group.suits(&placement, layout));
            let (group, numbers, explanation) = match like {
                Some(like) => like,
                None => {
                    let (program, limit_bytes) = (layout.program.as_deref(), options.memory_limit_bytes);
                    let (device, nothing) = (access.device(), Selection::all(&[]));
                    let empty = Explanation::of_read(
                        access.chain(),
                        program,
                        &placement,
                        device,
                        &nothing,
                        &limits,
                        limit_bytes,
                    );
                    let empty =
                        Explanation { result_bytes: 0, chunk_cache: cache_state(access, &***store, options), ..empty };
                    groups.push((Group::new(placement.clone(), layout), Vec::new(), empty));
                    let last = groups.len() - 1;
                    &mut groups[last]
                }
            };
            explanation.count(&plan, placement.batch_bytes)?;
            explanation.result_bytes = explanation.result_bytes.saturating_add(elements.saturating_mul(element_bytes));
            group.take(placement, layout);
            numbers.push(number);
        }
        let done = |(group, numbers, mut explanation): (Group, Vec<usize>, Explanation)| {
            explanation.selection = format!("{} selections", numbers.len());
            let batches = explanation.packed_bytes.div_ceil(group.batch_bytes().max(1));
            explanation.batches = batches.max(u64::from(explanation.chunks > 0));
            (numbers, explanation)
        };
        Ok(groups.into_iter().map(done).collect())
    }

    /// Explains a write to `selection` from memory of the access's device.
    ///
    /// # Errors
    /// Those of [`Engine::explain`].
    pub fn explain_write(
        access: &Access,
        store: &Arc<dyn Store>,
        selection: &Selection,
        options: &Options,
    ) -> Result<Explanation> {
        let explanation = Engine::explain(access, store, selection, options)?;
        let plan = WritePlan::new(Arc::clone(access.source()), selection.clone())?;
        let on_host = access.device() == Device::Cpu;
        let wanted = if on_host { accelerator::of_write(access, &**store, &plan, options, true)? } else { None };
        let accelerator = wanted.as_ref().map(|(wanted, by)| wanted.explained(by.as_ref().err()));
        let placement = match wanted {
            Some((_, Ok(placement))) => placement,
            _ => access.place_write(&**store, &plan, access.device(), options),
        };
        Ok(Explanation { accelerator, ..explanation.of_write(access.chain(), &placement) })
    }
}
