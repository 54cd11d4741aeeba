//! Reads shard indexes, with small requests for which the calling thread waits.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use crate::error::{Error, ErrorKind, Result};
use crate::plan::{SMALL_BYTES, SizeRule};
use crate::run::context::Context;
use crate::run::report::Stage;
use crate::run::schedule::budget::exceeded;
use crate::run::schedule::pool::Here;
use crate::store::{ByteRange, Lease, OpenValues, ReadOutcome, ReadRequest, ReadSink, Version};

/// A request for a part of a shard, such as its index.
pub(crate) struct Request<'a> {
    /// The array's number among the arrays of the call.
    pub(crate) array: usize,
    pub(crate) key: &'a str,
    pub(crate) range: ByteRange,
    /// The sizes in bytes that the requested part of the shard may have.
    pub(crate) size: SizeRule,
    /// The version that the shard must have, if it is known.
    pub(crate) version: Option<Version>,
}

impl Request<'_> {
    fn is_brief(&self) -> bool {
        matches!(self.size, SizeRule::Exact(size_bytes) if size_bytes <= SMALL_BYTES as u64)
    }
}

/// The bytes of a part of a shard, with the shard's version.
pub(crate) struct Fetched {
    pub(crate) bytes: Vec<u8>,
    /// The shard's version; `None` if the store does not report versions.
    pub(crate) version: Option<Version>,
}

/// The result of one small read: the number of its request, and the bytes or the error.
type FetchItem = (usize, Result<Option<Vec<u8>>>);

/// Reads parts of shards, such as indexes, on the call's threads, and waits until all have come. A request without an
/// answer is a failure. The shards stay open for the call.
pub(crate) fn fetch(call: &Arc<Context>, requests: &[Request<'_>]) -> Vec<Result<Option<Fetched>>> {
    let begun = Instant::now();
    let (sender, receiver) = channel();
    let count = requests.len();
    let versions: Arc<[OnceLock<Version>]> = (0..count).map(|_| OnceLock::new()).collect();
    let mut first = 0;
    for run in requests.chunk_by(|one, next| one.array == next.array) {
        let batch: Arc<[ReadRequest]> =
            run.iter().map(|request| ReadRequest { key: request.key.to_string(), range: request.range }).collect();
        let sink = Arc::new(Sink {
            call: Arc::clone(call),
            array: run[0].array,
            first,
            expected: run.iter().map(|request| (request.size, request.version.clone())).collect(),
            versions: Arc::clone(&versions),
            sender: Mutex::new(sender.clone()),
        });
        match requests {
            [one] if one.is_brief() && call.of(one.array).store.capabilities().divides_reads => {
                call.read(one.array, batch, sink, &Here);
            }
            _ => call.read(run[0].array, batch, sink, &call.workers()),
        }
        first += run.len();
    }
    drop(sender);
    let mut items: Vec<Option<Result<Option<Vec<u8>>>>> = (0..count).map(|_| None).collect();
    let mut size_bytes = 0;
    let mut ended = Ok(());
    for _ in 0..count {
        let (index, item) = match next(call, &receiver) {
            Ok(item) => item,
            Err(error) => {
                ended = Err(error);
                break;
            }
        };
        // Bytes from held objects are counted later, when chunks are taken from them.
        if let (Ok(Some(bytes)), Some(SizeRule::Exact(_))) = (&item, requests.get(index).map(|request| request.size)) {
            size_bytes += bytes.len() as u64;
        }
        if let Some(slot) = items.get_mut(index) {
            *slot = Some(item);
        }
    }
    let lost = || match &ended {
        Ok(()) => Err(Error::new(ErrorKind::StoreFailed, "the store answered one read twice, and another one never")),
        Err(error) => Err(error.clone()),
    };
    call.counters.add(Stage::Fetch, size_bytes, begun.elapsed());
    let fetched = items.into_iter().zip(&*versions).map(|(item, version)| {
        Ok(item.unwrap_or_else(lost)?.map(|bytes| Fetched { bytes, version: version.get().cloned() }))
    });
    fetched.collect()
}

/// Waits until any of the requests ends, and returns its number with its bytes or error.
///
/// # Errors
/// `Cancelled`, while the requests still run; `StoreFailed` if the store dropped the sink.
fn next(call: &Context, receiver: &Receiver<FetchItem>) -> Result<FetchItem> {
    let dropped = || Error::new(ErrorKind::StoreFailed, "the store dropped a read without an outcome");
    call.cancellation.receive(receiver)?.ok_or_else(dropped)
}

struct Sink {
    call: Arc<Context>,
    array: usize,
    /// The number of the first request of this batch, counted over the requests of all arrays.
    first: usize,
    /// For each request of the batch, the allowed sizes of the bytes, and the version that the shard must have.
    expected: Vec<(SizeRule, Option<Version>)>,
    versions: Arc<[OnceLock<Version>]>,
    sender: Mutex<Sender<FetchItem>>,
}

impl ReadSink for Sink {
    fn check(&self) -> Result<()> {
        self.call.check_cancelled()
    }

    fn open_values(&self) -> Option<&OpenValues> {
        Some(&self.call.of(self.array).shards)
    }

    fn opened(&self, index: usize, version: Version) -> Result<()> {
        Context::check_version(self.expected.get(index).and_then(|(_, wanted)| wanted.as_ref()), &version)?;
        if let Some(slot) = self.versions.get(self.first + index) {
            // Only the first version is set. Later calls report the same version.
            let _ = slot.set(version);
        }
        Ok(())
    }

    fn reserve(&self, index: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
        self.call.check_cancelled()?;
        let expected = self.expected.get(index).map_or(SizeRule::Exact(0), |(size, _)| *size);
        if !expected.allows(size_bytes) {
            let message = format!("got {size_bytes} bytes, expected {expected}");
            return Err(Error::new(ErrorKind::ChunkCorrupt, message));
        }
        if size_bytes > self.call.limit_bytes {
            return Err(exceeded(size_bytes, self.call.limit_bytes));
        }
        Ok(Box::new(vec![0; size_bytes as usize]))
    }

    fn done(&self, index: usize, outcome: Result<ReadOutcome>) {
        let item = outcome.and_then(|outcome| match outcome {
            ReadOutcome::Missing => Ok(None),
            ReadOutcome::OnDevice(buffer) => Ok(Some(buffer.to_vec()?)),
            ReadOutcome::Filled(lease) => match lease.into_any().downcast::<Vec<u8>>() {
                Ok(bytes) => Ok(Some(*bytes)),
                Err(_) => Err(Error::new(ErrorKind::StoreFailed, "the store returned memory that was not lent to it")),
            },
        });
        // If there is no receiver, the call has ended and needs no answer.
        let _ = self.sender.lock().unwrap_or_else(PoisonError::into_inner).send((self.first + index, item));
    }
}
