//! Calls for arrays with a rectilinear grid: one call for each part, whose chunks have one shape.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use cuzarr_device::{Device, NdBuffer, profile};

use crate::codec::VariableElements;
use crate::error::Result;
use crate::plan::{ChunkOrder, Plan, Selection, WritePlan, chunks_touched, memory_shape};
use crate::run::access::Access;
use crate::run::calls::{broadcast, check_array, check_variable};
use crate::run::engine::Engine;
use crate::run::options::Options;
use crate::run::read::call;
use crate::run::read::coordinator;
use crate::run::read::out::Out;
use crate::run::read::route::variable::{self, VariableDestination, assemble};
use crate::run::report::Report;
use crate::run::schedule::pool::in_threads;
use crate::run::write;
use crate::store::Store;

/// Most parts that are worked on at once. All share the engine's threads and memory; this hides the time of requests.
const PARTS_AT_ONCE: usize = 8;

/// Elements of a call that lie in chunks of one shape.
pub(crate) struct ArrayPart {
    /// Access to these chunks as an array of their own.
    pub(crate) access: Arc<Access>,
    /// The call's elements, in the order of these chunks.
    pub(crate) order: ChunkOrder,
}

impl ArrayPart {
    /// The number of innermost chunks that the call touches.
    pub(crate) fn chunks(&self) -> u64 {
        chunks_touched(self.access.source(), &self.order)
    }
}

impl Engine {
    /// Reads the parts of `selection` into `out`.
    ///
    /// # Errors
    /// Those of [`Engine::read`].
    pub(crate) fn read_parts(
        &self,
        parts: &[ArrayPart],
        store: &Arc<dyn Store>,
        selection: &Selection,
        out: &NdBuffer,
        options: &Options,
    ) -> Result<Report> {
        let shape = memory_shape(selection)?;
        parts.iter().try_for_each(|part| check_array(&part.access, &shape, out))?;
        let _range = profile::range("read", out.size_bytes() as u64);
        let has_lists = |part: &ArrayPart| part.order.has_lists();
        let (result, at_once): (Box<dyn Fn() -> Out + Sync>, usize) = match out.device() {
            // Boxes of all parts share one writer. With lists, each part has its own, and so they go one after the other.
            Device::Cpu if !parts.iter().any(has_lists) => {
                let writer = Arc::new(Mutex::new(out.writer()?));
                (Box::new(move || Out::Shared(out.clone(), Arc::clone(&writer))), PARTS_AT_ONCE)
            }
            Device::Cpu => (Box::new(|| Out::Whole(out.clone())), 1),
            _ => (Box::new(|| Out::Whole(out.clone())), PARTS_AT_ONCE),
        };
        for_each(parts, at_once, |ArrayPart { access, order }| {
            let plan = Plan::of_order(Arc::clone(access.source()), order.clone(), options.plan(&store.capabilities()));
            call::read(self, access, store, plan, result(), options).map(|(_, report)| report)
        })
    }

    /// Writes the parts of `selection` from `value`, whose shape is broadcast to the selection's.
    ///
    /// # Errors
    /// Those of [`Engine::write`].
    pub(crate) fn write_parts(
        &self,
        parts: &[ArrayPart],
        store: &Arc<dyn Store>,
        selection: &Selection,
        value: &NdBuffer,
        options: &Options,
    ) -> Result<Report> {
        let shape = memory_shape(selection)?;
        let value = broadcast(value, &shape)?;
        parts.iter().try_for_each(|part| check_array(&part.access, &shape, &value))?;
        let _range = profile::range("write", value.size_bytes() as u64);
        for_each(parts, PARTS_AT_ONCE, |ArrayPart { access, order }| {
            let call = self.call(store, value.device(), options);
            let plan = WritePlan::of_order(Arc::clone(access.source()), selection.clone(), order.clone());
            write::coordinator::write(
                &call,
                access,
                plan,
                write::coordinator::Value::Elements(value.clone()),
                options,
            )?;
            Ok(call.report())
        })
    }

    /// Reads the parts of `selection`, of elements of variable length, in C order. Elements without a chunk are `fill`.
    ///
    /// # Errors
    /// Those of [`Engine::read_variable`].
    pub(crate) fn read_variable_parts(
        &self,
        parts: &[ArrayPart],
        store: &Arc<dyn Store>,
        selection: &Selection,
        fill: &[u8],
        options: &Options,
    ) -> Result<(VariableElements, Report)> {
        parts.iter().try_for_each(|part| variable::require(&part.access))?;
        let _range = profile::range("read", 0);
        let shape = selection.shape();
        let (out, collected) = (memory_shape(selection)?, Mutex::new(Vec::new()));
        let report = for_each(parts, PARTS_AT_ONCE, |ArrayPart { access, order }| {
            let plan = Plan::of_order(Arc::clone(access.source()), order.clone(), options.plan(&store.capabilities()));
            let call = self.call(store, Device::Cpu, options);
            let mut destination = VariableDestination::new(&call, access, plan.spacing(&out)?, options)?;
            coordinator::run(&call, access, plan, &mut destination)?;
            collected.lock().unwrap_or_else(PoisonError::into_inner).push(destination.collected());
            Ok(call.report())
        })?;
        let collected = collected.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok((assemble(&collected, &shape, fill)?, report))
    }

    /// Writes the parts of `selection`, of elements of variable length, from `value`, which is in C order.
    ///
    /// # Errors
    /// Those of [`Engine::write_variable`].
    pub(crate) fn write_variable_parts(
        &self,
        parts: &[ArrayPart],
        store: &Arc<dyn Store>,
        selection: &Selection,
        value: &VariableElements,
        options: &Options,
    ) -> Result<Report> {
        parts.iter().try_for_each(|part| variable::require(&part.access))?;
        check_variable(selection, value)?;
        let _range = profile::range("write", 0);
        let value = Arc::new(value.clone());
        for_each(parts, PARTS_AT_ONCE, |ArrayPart { access, order }| {
            let call = self.call(store, Device::Cpu, options);
            let plan = WritePlan::of_order(Arc::clone(access.source()), selection.clone(), order.clone());
            let value = write::coordinator::Value::Variable(Arc::clone(&value));
            write::coordinator::write(&call, access, plan, value, options)?;
            Ok(call.report())
        })
    }
}

/// Works on parts, several at a time, and adds their reports. No part begins after a failure.
fn for_each(parts: &[ArrayPart], at_once: usize, work: impl Fn(&ArrayPart) -> Result<Report> + Sync) -> Result<Report> {
    let begun = Instant::now();
    let (next, outcome) = (AtomicUsize::new(0), Mutex::new(Ok(Report::default())));
    in_threads(at_once.min(parts.len()), || {
        while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let done = work(part);
            let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
            match (&mut *outcome, done) {
                (Ok(report), Ok(part)) => report.add(&part, begun.elapsed().as_secs_f64()),
                (Ok(_), Err(error)) => *outcome = Err(error),
                (Err(_), _) => {}
            }
            if outcome.is_err() {
                next.store(parts.len(), Ordering::Relaxed);
            }
        }
    });
    outcome.into_inner().unwrap_or_else(PoisonError::into_inner)
}
