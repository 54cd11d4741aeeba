//! Explanations of reads and writes: the placements that the engine would use, and the counts of the plan.

use std::sync::Arc;

use cuzarr_device::Order;

use crate::error::Result;
use crate::plan::{CacheState, Explanation, Plan, Selection, WritePlan};
use crate::run::access::{Access, ReadResult};
use crate::run::chunk_cache::CacheUse;
use crate::run::engine::Engine;
use crate::run::options::Options;
use crate::store::Store;

/// Bytes of a new result, if it is contiguous in C order.
fn contiguous_bytes(access: &Access, selection: &Selection, options: &Options) -> Option<usize> {
    let is_c = options.order == Order::C || selection.shape().len() < 2;
    let (dtype, len) = access.dtype().zip(selection.len()).filter(|_| is_c)?;
    usize::try_from(len).ok()?.checked_mul(dtype.size_bytes())
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
        let contiguous_bytes = contiguous_bytes(access, selection, options);
        let result = ReadResult { contiguous_bytes, in_turn: false };
        let placement = access.place_read(&**store, &plan, result, options);
        let (limit_bytes, program) = (options.memory_limit_bytes, access.source().layout().program.as_deref());
        let mut explanation =
            Explanation::of_read(access.chain(), program, &placement, access.device(), selection, &limits, limit_bytes);
        explanation.count(&plan, placement.batch_bytes)?;
        explanation.chunk_cache = access.cached_as(&**store, options).map(|_| {
            let CacheUse { chunks, size_bytes } = Engine::get().cache_use(access.device());
            CacheState { chunks, size_bytes, limit_bytes: options.chunk_cache_bytes }
        });
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
}
