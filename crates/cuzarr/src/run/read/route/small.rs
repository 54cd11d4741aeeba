//! Reading one small chunk to a device: the host decodes it, and its elements go straight to their place in one copy. Putting
//! work on a device would take longer than all of that.

use std::sync::Arc;

use cuzarr_device::{Device, NdBuffer, Order};

use crate::error::Result;
use crate::plan::{Plan, Selection, chunks_touched};
use crate::run::engine::{check_array, memory_shape};
use crate::run::options::SMALL_BYTES;
use crate::run::read::coordinator;
use crate::run::read::route::host::HostDestination;
use crate::run::report::{Report, Stage};
use crate::run::{Access, Engine, Options};
use crate::store::Store;

impl Engine {
    /// Like [`Engine::read`], into memory of another device than the one that `on_host` is bound to, by way of the host; `None`
    /// when that is not the way for this read: it is for one small chunk of a store at hand, into memory that lies in one
    /// piece, and not under `strict`, where a device does all that it can.
    ///
    /// # Errors
    /// Those of [`Engine::read`].
    pub fn read_small(
        &self,
        on_host: &Access,
        store: &Arc<dyn Store>,
        selection: &Selection,
        out: &NdBuffer,
        options: &Options,
    ) -> Result<Option<Report>> {
        let source = on_host.source();
        let is_small = |bytes: usize| bytes <= SMALL_BYTES;
        let is_small_read = !options.strict
            && is_small(out.size_bytes().max(on_host.program()?.packed_size_bytes()))
            && chunks_touched(source, selection) == 1
            && store.capabilities().divides_reads
            && !store.is_on(out.device())
            && out.is_contiguous(Order::C);
        if !is_small_read {
            return Ok(None);
        }
        check_array(on_host, &memory_shape(selection)?, out)?;
        let (plan, size_bytes) = (Plan::new(Arc::clone(source), selection.clone(), options.plan())?, out.size_bytes());
        let call = self.call(store, out.device(), options);
        let staged = NdBuffer::empty(Device::Cpu, out.dtype(), out.shape(), Order::C)?;
        let mut destination = HostDestination::new(&call, on_host, &staged, plan.packed_strides(), options)?;
        coordinator::read(&call, on_host, plan, &mut destination)?;
        drop(destination);
        let begin = out.layout().offset_bytes();
        let target = out.buffer().slice(begin..begin + size_bytes)?;
        let stream = call.streams.take(out.device())?;
        let copy = || stream.h2d(&staged.buffer().host_bytes()?, &target);
        call.counters.time(Stage::Upload, size_bytes as u64, copy)?;
        call.streams.give_back(&stream);
        Ok(Some(call.report()))
    }
}
