//! Small reads that the calling thread waits for: shard indexes, and chunks that are rewritten.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::call::Call;
use super::report::Stage;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{ByteRange, Lease, ReadOutcome, ReadRequest, ReadSink};

/// Key, range, and how many bytes that must give.
type Request<'a> = (&'a str, ByteRange, u64);

/// Number and outcome of a request.
type Item = (usize, Result<Option<Vec<u8>>>);

/// Reads a batch on the call's threads and waits for all of it; items that were never ended are failures.
pub(crate) fn fetch(call: &Arc<Call>, requests: Vec<Request<'_>>) -> Vec<Result<Option<Vec<u8>>>> {
    let begun = Instant::now();
    let (sender, receiver) = channel();
    let sizes = requests.iter().map(|(_, _, size_bytes)| *size_bytes).collect();
    let batch: Arc<[ReadRequest]> =
        requests.into_iter().map(|(key, range, _)| ReadRequest { key: key.to_string(), range }).collect();
    let count = batch.len();
    let sink = Arc::new(Sink { call: Arc::clone(call), sizes, sender: Mutex::new(sender) });
    call.store.read(batch, sink, &call.workers());
    let lost = || Err(Error::new(ErrorKind::StoreFailed, "the store gave up a read without saying why"));
    let mut items: Vec<Result<Option<Vec<u8>>>> = (0..count).map(|_| lost()).collect();
    // Ends when every item came, or when the store dropped the sink.
    let mut size_bytes = 0;
    for (index, item) in receiver.into_iter().take(count) {
        if let Ok(Some(bytes)) = &item {
            size_bytes += bytes.len() as u64;
        }
        if let Some(slot) = items.get_mut(index) {
            *slot = item;
        }
    }
    call.counters.add(Stage::Fetch, size_bytes, begun.elapsed());
    items
}

struct Sink {
    call: Arc<Call>,
    sizes: Vec<u64>,
    sender: Mutex<Sender<Item>>,
}

impl ReadSink for Sink {
    fn check(&self) -> Result<()> {
        self.call.check_cancelled()
    }

    fn reserve(&self, index: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
        self.call.check_cancelled()?;
        let expected = self.sizes.get(index).copied().unwrap_or(0);
        if size_bytes != expected {
            let message = format!("got {size_bytes} bytes, expected {expected}");
            return Err(Error::new(ErrorKind::ChunkCorrupt, message));
        }
        Ok(Box::new(vec![0; size_bytes as usize]))
    }

    fn done(&self, index: usize, outcome: Result<ReadOutcome>) {
        let item = outcome.and_then(|outcome| match outcome {
            ReadOutcome::Missing => Ok(None),
            ReadOutcome::OnDevice(buffer) => Ok(Some(buffer.to_vec()?)),
            ReadOutcome::Filled(lease) => match lease.into_any().downcast::<Vec<u8>>() {
                Ok(bytes) => Ok(Some(*bytes)),
                Err(_) => Err(Error::new(ErrorKind::StoreFailed, "the store handed back memory that it was not lent")),
            },
        });
        // Without a receiver nobody waits any more.
        let _ = self.sender.lock().unwrap_or_else(PoisonError::into_inner).send((index, item));
    }
}
