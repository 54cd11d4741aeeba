//! Writes shards of inner chunks that are encoded already.

use std::sync::Arc;
use std::sync::mpsc::channel;

use cuzarr_device::Device;
use cuzarr_device::internal::Threads;

use crate::error::Result;
use crate::plan::{Selection, Touched, WritePlan};
use crate::run::access::Access;
use crate::run::calls::writes_at_once;
use crate::run::context::CallArray;
use crate::run::engine::Engine;
use crate::run::options::Options;
use crate::run::write::object::{Object, at_chunk};
use crate::run::write::place::{Place, WriteShard};
use crate::store::Store;

/// The encoded bytes of an inner chunk, which is given by its first element in the array. The outer `None` means that
/// the chunk keeps its old bytes, the inner one that it is not stored.
pub(crate) type Frames<'a> = &'a (dyn Fn(&[u64]) -> Result<Option<Option<Vec<u8>>>> + Sync);

impl Engine {
    /// Writes the shards of a selection from the encoded bytes of their inner chunks.
    ///
    /// # Errors
    /// `SelectionInvalid`; errors of `frames`; the first failure, with the others attached.
    pub(crate) fn write_encoded(
        &self,
        access: &Access,
        store: &Arc<dyn Store>,
        selection: &Selection,
        frames: Frames<'_>,
        options: &Options,
    ) -> Result<()> {
        let plan = WritePlan::new(Arc::clone(access.source()), selection.clone())?;
        let call = self.call(&[store], Device::Cpu, options);
        let array = CallArray { call: Arc::clone(&call), number: 0, name: None };
        let (ticket, all_ended) = channel::<()>();
        let write = |shard: Touched| -> Result<()> {
            call.check_cancelled()?;
            let mut encoded = Vec::new();
            let mut is_whole = shard.coverage.replaces();
            for inner in plan.inner(&shard) {
                match frames(inner.origin())? {
                    Some(frame) => encoded.push((inner.number, frame)),
                    None => is_whole = false,
                }
            }
            let object = Object {
                array: array.clone(),
                layout: Arc::clone(&shard.layout),
                key: Arc::clone(&shard.name.key),
                covered: is_whole,
                guard: None,
                _ticket: Box::new(ticket.clone()),
            };
            let numbers: Vec<usize> = encoded.iter().map(|(number, _)| *number).collect();
            let place = Place::Object(Arc::new(object));
            let of_shard = Arc::new(WriteShard::new(place, 0, is_whole, &numbers)?);
            let mut inner = encoded.into_iter();
            inner.try_for_each(|(number, frame)| Place::Inner(Arc::clone(&of_shard), number).deliver(frame))
        };
        let shards = plan.objects().collect::<Result<Vec<Touched>>>()?;
        Threads::callers().map(writes_at_once(&call), shards, |shard| {
            let name = shard.name.clone();
            if let Err(error) = at_chunk(write(shard), &name) {
                call.fail(error);
            }
        });
        drop(ticket);
        // Other threads may still send shards to a store that is far away. Nothing is received, but the channel ends.
        let _ = all_ended.recv();
        call.outcome()
    }
}
