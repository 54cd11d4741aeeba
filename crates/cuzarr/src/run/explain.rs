//! Explanations of reads and writes: the placements that the engine would use, and the counts of the plan.

use std::sync::Arc;

use crate::error::Result;
use crate::plan::{Explanation, Plan, ReadPlacement, Selection, WritePlan};
use crate::run::access::Access;
use crate::run::engine::Engine;
use crate::run::options::Options;
use crate::run::parts::ArrayPart;
use crate::store::Store;

/// The explanation of a read of `selection` with this placement. Its chunks are not counted yet.
fn of_read(
    access: &Access,
    placement: &ReadPlacement,
    store: &dyn Store,
    selection: &Selection,
    options: &Options,
) -> Explanation {
    let limits = options.plan(&store.capabilities());
    let of = (&**access.chain(), access.program().ok().map(|program| &**program));
    Explanation::of_read(of, placement, access.device(), selection, &limits, options.memory_limit_bytes)
}

/// The placement of a read of `plan` into a new result.
fn place_read(
    access: &Access,
    store: &dyn Store,
    plan: &Plan,
    selection: &Selection,
    options: &Options,
) -> ReadPlacement {
    let is_c = !options.order_is_f || selection.shape().len() < 2;
    let bytes = access.dtype().zip(selection.len()).filter(|_| is_c);
    let bytes = bytes.and_then(|(dtype, len)| usize::try_from(len).ok()?.checked_mul(dtype.size_bytes()));
    access.place_read(store, plan, (bytes, false), options)
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
        let limits = options.plan(&store.capabilities());
        let plan = Plan::new(Arc::clone(access.source()), selection.clone(), limits)?;
        let placement = place_read(access, &**store, &plan, selection, options);
        let mut explanation = of_read(access, &placement, &**store, selection, options);
        explanation.count(&plan, placement.batch_bytes);
        Ok(explanation)
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
        let placement = access.place_write(&**store, &plan, access.device(), options);
        Ok(explanation.of_write(access.chain(), &placement))
    }

    /// Explains a read of the parts of `selection`. The route and the places of codecs are those of the part with the most
    /// chunks.
    pub(crate) fn explain_parts(
        parts: &[ArrayPart],
        whole: &Access,
        store: &Arc<dyn Store>,
        selection: &Selection,
        options: &Options,
    ) -> Result<Explanation> {
        let limits = options.plan(&store.capabilities());
        let plan = |part: &ArrayPart| Plan::of_order(Arc::clone(part.access.source()), part.order.clone(), limits);
        let plans: Vec<Plan> = parts.iter().map(plan).collect();
        let place = |(part, plan): (&ArrayPart, &Plan)| place_read(&part.access, &**store, plan, selection, options);
        let placements: Vec<ReadPlacement> = parts.iter().zip(&plans).map(place).collect();
        let main = parts.iter().zip(&placements).max_by_key(|(part, _)| part.chunks());
        let mut explanation = match main {
            Some((part, placement)) => of_read(&part.access, placement, &**store, selection, options),
            None => {
                let plan = Plan::new(Arc::clone(whole.source()), selection.clone(), limits)?;
                let placement = place_read(whole, &**store, &plan, selection, options);
                of_read(whole, &placement, &**store, selection, options)
            }
        };
        for (plan, placement) in plans.iter().zip(&placements) {
            explanation.count(&plan, placement.batch_bytes);
        }
        Ok(explanation)
    }

    /// Explains a write to the parts of `selection`, as [`Engine::explain_parts`] does for a read.
    pub(crate) fn explain_writing_parts(
        parts: &[ArrayPart],
        whole: &Access,
        store: &Arc<dyn Store>,
        selection: &Selection,
        options: &Options,
    ) -> Result<Explanation> {
        let explanation = Engine::explain_parts(parts, whole, store, selection, options)?;
        let place = |part: &ArrayPart| {
            let (source, order) = (Arc::clone(part.access.source()), part.order.clone());
            let plan = WritePlan::of_order(source, selection.clone(), order);
            part.access.place_write(&**store, &plan, whole.device(), options)
        };
        let main = parts.iter().max_by_key(|part| part.chunks()).map(|part| (part, place(part)));
        let Some((part, placement)) = main else { return Ok(explanation) };
        let merging = || parts.iter().find_map(|part| place(part).merging());
        let explained = explanation.of_write(part.access.chain(), &placement);
        Ok(Explanation { merging: explained.merging.clone().or_else(merging), ..explained })
    }
}
