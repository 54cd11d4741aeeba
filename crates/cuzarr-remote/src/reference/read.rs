//! Reading a batch of references: values that the table holds are copied, and each file gets one batch of reads.
//!
//! Parts of one remote file that lie close together are read by one request, into memory of their own, and copied from there.
//! The memory for the parts is reserved first, so the caller's budget counts them before a byte comes.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use cuzarr::store::{ByteRange, Lease, OpenValues, ReadOutcome, ReadRequest, ReadSink, Store, Version, Workers};
use cuzarr::{Buffer, Device, Error, ErrorKind, Result, ResultExt};

use crate::read::SPAN_PART_BYTES;

/// Parts with at most this many bytes between them are read by one request. The bytes between them take less time than another
/// request: 64 KiB come in about a millisecond.
const GAP_BYTES: u64 = 64 << 10;

/// The largest read that is put together: what the client asks for by one request.
const JOINED_BYTES: u64 = SPAN_PART_BYTES;

/// A read of a part of a file.
pub(super) struct Wanted {
    /// Its place in the batch.
    pub(super) index: usize,
    pub(super) file: Arc<str>,
    pub(super) range: ByteRange,
    pub(super) etag: Option<Arc<str>>,
    pub(super) changed_until: Option<u32>,
    /// The key, for messages.
    pub(super) name: String,
}

impl Wanted {
    /// Whether the file is another one than the table knows.
    fn is_changed(&self, found: &Version) -> bool {
        let has_other_tag = match (&self.etag, found.entity_tag()) {
            (Some(expected), Some(found)) => expected.trim_matches('"') != found.trim_matches('"'),
            _ => false,
        };
        let until = self.changed_until.map(u64::from);
        has_other_tag || until.zip(found.modified_seconds()).is_some_and(|(until, modified)| modified > until)
    }
}

/// Reads parts of the files of one store. Each ends once, in `sink`.
pub(super) fn run(store: &Arc<dyn Store>, wanted: Vec<Wanted>, sink: &Arc<dyn ReadSink>, workers: &dyn Workers) {
    let items = if store.capabilities().far { joined(wanted) } else { wanted.into_iter().map(Item::alone).collect() };
    let requests = items.iter().map(|item| ReadRequest { key: item.parts[0].file.to_string(), range: item.range });
    let requests = requests.collect();
    store.read(requests, Arc::new(Parts { sink: Arc::clone(sink), items }), workers);
}

/// One request, for one part or for several.
struct Item {
    range: ByteRange,
    parts: Vec<Wanted>,
    /// One for each part, where there are several.
    leases: Mutex<Vec<Result<Slot>>>,
}

/// Where a part's bytes lie in its request's, and the memory that they go to.
type Slot = (Range<usize>, Box<dyn Lease>);

impl Item {
    fn alone(part: Wanted) -> Item {
        Item { range: part.range, parts: vec![part], leases: Mutex::default() }
    }
}

fn span(part: &Wanted) -> Option<(u64, u64)> {
    match part.range {
        ByteRange::Span { offset, size_bytes } => Some((offset, size_bytes)),
        _ => None,
    }
}

/// Puts reads together whose bytes lie close to each other in one file.
fn joined(wanted: Vec<Wanted>) -> Vec<Item> {
    let (mut spans, others): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|part| span(part).is_some());
    spans.sort_by(|one, other| (&one.file, span(one)).cmp(&(&other.file, span(other))));
    let mut items: Vec<Item> = others.into_iter().map(Item::alone).collect();
    let first_span = items.len();
    for part in spans {
        let (offset, size_bytes) = span(&part).unwrap_or((0, 0));
        if let Some(last) = items[first_span..].last_mut()
            && let ByteRange::Span { offset: start, size_bytes: last_bytes } = last.range
            && last.parts[0].file == part.file
            && last.parts[0].etag == part.etag
            && offset <= start + last_bytes + GAP_BYTES
            && (offset + size_bytes).max(start + last_bytes) - start <= JOINED_BYTES
        {
            let end = (offset + size_bytes).max(start + last_bytes);
            last.range = ByteRange::Span { offset: start, size_bytes: end - start };
            last.parts.push(part);
        } else {
            items.push(Item::alone(part));
        }
    }
    items
}

/// Passes on what a store reads to those who wanted it.
struct Parts {
    sink: Arc<dyn ReadSink>,
    items: Vec<Item>,
}

impl Parts {
    fn end(&self, part: &Wanted, outcome: Result<ReadOutcome>) {
        self.sink.done(part.index, outcome.at(|| part.name.clone()));
    }

    /// Reserves memory for each part, and then for the request that brings them.
    fn reserve_joined(&self, item: &Item, size_bytes: u64) -> Result<Box<dyn Lease>> {
        let ByteRange::Span { offset: start, size_bytes: expected } = item.range else {
            return Err(Error::new(ErrorKind::StoreFailed, "a request for several parts is no span"));
        };
        if size_bytes != expected {
            let message = format!("the store has {size_bytes} bytes for a request of {expected}");
            return Err(Error::new(ErrorKind::StoreFailed, message));
        }
        let reserve = |part: &Wanted| {
            let (offset, size_bytes) = span(part).unwrap_or((start, 0));
            let from = (offset - start) as usize;
            Ok((from..from + size_bytes as usize, self.sink.reserve(part.index, size_bytes)?))
        };
        let leases: Vec<_> = item.parts.iter().map(reserve).collect();
        // When nobody wants the bytes, they need not come.
        let refusal = leases.iter().all(Result::is_err).then(|| leases.iter().find_map(|lease| lease.as_ref().err()));
        let refusal = refusal.flatten().map(Error::copied);
        *item.leases.lock().unwrap_or_else(PoisonError::into_inner) = leases;
        refusal.map_or_else(|| Ok(Box::new(vec![0_u8; size_bytes as usize]) as Box<dyn Lease>), Err)
    }

    fn end_joined(&self, item: &Item, outcome: Result<ReadOutcome>) {
        let leases = std::mem::take(&mut *item.leases.lock().unwrap_or_else(PoisonError::into_inner));
        let bytes = outcome.and_then(|outcome| match outcome {
            ReadOutcome::Filled(lease) => lease.into_any().downcast::<Vec<u8>>().map_err(|_| foreign()),
            ReadOutcome::OnDevice(_) => Err(foreign()),
            ReadOutcome::Missing => Err(missing(&item.parts[0].file)),
        });
        match bytes {
            Ok(bytes) if leases.len() == item.parts.len() => {
                for (part, lease) in item.parts.iter().zip(leases) {
                    let filled = lease.and_then(|(range, mut lease)| {
                        let source = bytes.get(range).filter(|source| source.len() == lease.bytes().len());
                        lease.bytes().copy_from_slice(source.ok_or_else(foreign)?);
                        Ok(ReadOutcome::Filled(lease))
                    });
                    self.end(part, filled);
                }
            }
            Ok(_) => item.parts.iter().for_each(|part| self.end(part, Err(foreign()))),
            Err(error) => {
                // The memory goes back before its items end.
                drop(leases);
                item.parts.iter().for_each(|part| self.end(part, Err(error.copied())));
            }
        }
    }
}

fn foreign() -> Error {
    Error::new(ErrorKind::StoreFailed, "the store handed back memory that it was not lent")
}

fn missing(file: &str) -> Error {
    Error::new(ErrorKind::StoreFailed, format!("the file '{file}' that the reference names does not exist"))
}

#[deny(clippy::missing_trait_methods)]
impl ReadSink for Parts {
    fn reserve(&self, index: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
        let item = &self.items[index];
        match &*item.parts {
            [part] => self.sink.reserve(part.index, size_bytes),
            _ => self.reserve_joined(item, size_bytes),
        }
    }

    fn check(&self) -> Result<()> {
        self.sink.check()
    }

    // The caller knows its own keys, and not those of files.
    fn open_values(&self) -> Option<&OpenValues> {
        None
    }

    fn opened(&self, index: usize, version: Version) -> Result<()> {
        let item = &self.items[index];
        if item.parts.iter().any(|part| part.is_changed(&version)) {
            let message = format!("the file '{}' was changed since the table was made", item.parts[0].file);
            return Err(Error::new(ErrorKind::StoreFailed, message).with_hint("make the table again"));
        }
        item.parts.iter().try_for_each(|part| self.sink.opened(part.index, version.clone()))
    }

    fn device(&self) -> Device {
        Device::Cpu
    }

    fn reserve_on_device(&self, _index: usize, _size_bytes: u64) -> Result<Buffer> {
        Err(Error::new(ErrorKind::MemorySpace, "the bytes are wanted on the host"))
    }

    fn done(&self, index: usize, outcome: Result<ReadOutcome>) {
        let item = &self.items[index];
        match &*item.parts {
            [part] => {
                let outcome = outcome.and_then(|outcome| match outcome {
                    ReadOutcome::Missing => Err(missing(&part.file)),
                    outcome => Ok(outcome),
                });
                self.end(part, outcome);
            }
            _ => self.end_joined(item, outcome),
        }
    }
}

/// Groups reads by their stores.
pub(super) fn by_store(wanted: Vec<(Arc<dyn Store>, Wanted)>) -> Vec<(Arc<dyn Store>, Vec<Wanted>)> {
    let mut groups: Vec<(Arc<dyn Store>, Vec<Wanted>)> = Vec::new();
    let mut known = HashMap::new();
    for (store, part) in wanted {
        let group = *known.entry(Arc::as_ptr(&store).cast::<()>()).or_insert_with(|| {
            groups.push((store, Vec::new()));
            groups.len() - 1
        });
        groups[group].1.push(part);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(index: usize, file: &str, offset: u64, size_bytes: u64) -> Wanted {
        let range = ByteRange::Span { offset, size_bytes };
        Wanted { index, file: file.into(), range, etag: None, changed_until: None, name: String::new() }
    }

    fn shape(items: &[Item]) -> Vec<(ByteRange, Vec<usize>)> {
        items.iter().map(|item| (item.range, item.parts.iter().map(|part| part.index).collect())).collect()
    }

    #[test]
    fn neighbours_of_one_file_are_one_request() {
        let items = joined(vec![
            wanted(0, "a", 1000, 10),
            wanted(1, "a", 0, 1000),
            wanted(2, "b", 1010, 10),
            wanted(3, "a", 1010 + GAP_BYTES, 5),
            wanted(4, "a", 1016 + 2 * GAP_BYTES, 5),
            wanted(5, "a", 500, 100),
        ]);
        let span = |offset, size_bytes| ByteRange::Span { offset, size_bytes };
        let expected = [
            (span(0, 1015 + GAP_BYTES), vec![1, 5, 0, 3]),
            (span(1016 + 2 * GAP_BYTES, 5), vec![4]),
            (span(1010, 10), vec![2]),
        ];
        assert_eq!(shape(&items), expected);
    }

    #[test]
    fn requests_stay_within_the_largest() {
        let half = JOINED_BYTES / 2;
        let items = joined((0..5).map(|at| wanted(at, "a", at as u64 * half, half)).collect());
        assert_eq!(items.iter().map(|item| item.parts.len()).collect::<Vec<_>>(), [2, 2, 1]);
        let whole = Wanted { range: ByteRange::Full, ..wanted(9, "a", 0, 0) };
        assert_eq!(joined(vec![whole, wanted(1, "a", 0, 5)]).len(), 2);
    }
}
