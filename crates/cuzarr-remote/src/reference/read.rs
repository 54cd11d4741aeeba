//! Reads a batch of references: inline values are copied, and each store gets one batch of reads for its files.
//!
//! Parts that lie close together in one remote file are read by one request. Its bytes are written to the memory that
//! the caller lends for each part, as they arrive. Bytes between the parts are dropped.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use cuzarr::store::{ByteRange, Lease, OpenValues, ReadOutcome, ReadRequest, ReadSink, Store, Version, Workers};
use cuzarr::{Buffer, Device, Error, ErrorKind, Result, ResultExt};

use crate::read::SPAN_PART_BYTES;

/// Largest gap in bytes between two parts of a file that are still read by one request. Reading the gap takes less time
/// than another request: 64 KiB arrive in about a millisecond.
const GAP_BYTES: u64 = 64 << 10;

/// Largest read in bytes that is joined from several parts: the most that one request reads.
const JOINED_BYTES: u64 = SPAN_PART_BYTES;

/// A part of a file that is to be read, because the requested key refers to it.
pub(super) struct Wanted {
    /// The index in its batch of the read request that this part answers.
    pub(super) index: usize,
    pub(super) file: Arc<str>,
    pub(super) range: ByteRange,
    pub(super) etag: Option<Arc<str>>,
    pub(super) changed_until: Option<u32>,
    /// Whether the file never changes, because it is a chunk file of an Icechunk repository.
    pub(super) is_permanent: bool,
    /// The key whose reference names this part of a file, for messages.
    pub(super) name: String,
}

impl Wanted {
    /// Whether the file has changed since the table of references was made.
    fn is_changed(&self, found: &Version) -> bool {
        let has_other_tag = self.etag.as_deref().is_some_and(|expected| !found.allows_entity_tag(expected));
        let until = self.changed_until.map(u64::from);
        has_other_tag || until.zip(found.modified_seconds()).is_some_and(|(until, modified)| modified > until)
    }
}

/// Reads parts of files in one store, and passes their bytes to `sink`. Each part ends once, in `sink`.
pub(super) fn run(store: &Arc<dyn Store>, wanted: Vec<Wanted>, sink: &Arc<dyn ReadSink>, workers: &dyn Workers) {
    let items = if store.capabilities().far { joined(wanted) } else { wanted.into_iter().map(Item::alone).collect() };
    let requests = items.iter().map(|item| ReadRequest { key: item.parts[0].file.to_string(), range: item.range });
    let requests = requests.collect();
    store.read(requests, Arc::new(Parts { sink: Arc::clone(sink), items }), workers);
}

/// One request to a store, which reads one part of a file or several neighbouring ones.
struct Item {
    range: ByteRange,
    /// The parts that the request reads, ordered by their position in the file.
    parts: Vec<Wanted>,
}

impl Item {
    fn alone(part: Wanted) -> Item {
        Item { range: part.range, parts: vec![part] }
    }
}

/// The memory of all parts that one request reads, as a single lease.
struct Joined {
    size_bytes: usize,
    slots: Vec<Slot>,
    /// Size in bytes of the largest part of the file that the request reads.
    longest_bytes: usize,
    /// Memory for the bytes of all parts, for a store that needs contiguous memory.
    together: Option<Vec<u8>>,
}

/// The part of a joined request that belongs to one part of a file: its bytes there, and the memory that the caller
/// lends for it.
struct Slot {
    from: usize,
    size_bytes: usize,
    lease: Result<Box<dyn Lease>>,
}

impl Joined {
    /// Copies the bytes of the whole request to the memory of each part, for a store that needed contiguous memory.
    fn divide(&mut self) -> Result<()> {
        self.together.take().map_or(Ok(()), |bytes| self.write(0, &bytes))
    }
}

impl Lease for Joined {
    fn bytes(&mut self) -> &mut [u8] {
        self.together.get_or_insert_with(|| vec![0; self.size_bytes])
    }

    fn size_bytes(&mut self) -> usize {
        self.size_bytes
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        let end = at.saturating_add(bytes.len());
        if end > self.size_bytes {
            return Err(foreign());
        }
        // Parts may overlap.
        let first = self.slots.partition_point(|slot| slot.from + self.longest_bytes <= at);
        for slot in self.slots[first..].iter_mut().take_while(|slot| slot.from < end) {
            let (from, to) = (slot.from.max(at), (slot.from + slot.size_bytes).min(end));
            if let (Ok(lease), true) = (&mut slot.lease, from < to) {
                lease.write(from - slot.from, &bytes[from - at..to - at])?;
            }
        }
        Ok(())
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

fn span(part: &Wanted) -> Option<(u64, u64)> {
    match part.range {
        ByteRange::Span { offset, size_bytes } => Some((offset, size_bytes)),
        _ => None,
    }
}

/// Joins reads of parts that lie close to each other in one file.
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

/// The receiver of the bytes of requests, which passes them to the parts of files that each request covers.
struct Parts {
    sink: Arc<dyn ReadSink>,
    items: Vec<Item>,
}

impl Parts {
    fn end(&self, part: &Wanted, outcome: Result<ReadOutcome>) {
        self.sink.done(part.index, outcome.at(|| part.name.clone()));
    }

    /// Asks the caller for memory for each part that a request reads.
    fn reserve_joined(&self, item: &Item, size_bytes: u64) -> Result<Box<dyn Lease>> {
        let ByteRange::Span { offset: start, size_bytes: expected } = item.range else {
            return Err(Error::new(ErrorKind::StoreFailed, "a request for several parts is no span"));
        };
        if size_bytes != expected {
            let message = format!("the store has {size_bytes} bytes for a request of {expected}");
            return Err(Error::new(ErrorKind::StoreFailed, message));
        }
        let slot = |part: &Wanted| {
            let (offset, size_bytes) = span(part).unwrap_or((start, 0));
            let lease = self.sink.reserve(part.index, size_bytes);
            Slot { from: (offset - start) as usize, size_bytes: size_bytes as usize, lease }
        };
        let slots: Vec<Slot> = item.parts.iter().map(slot).collect();
        // If all parts refuse the bytes, they need not be read.
        if slots.iter().all(|slot| slot.lease.is_err())
            && let Some(refusal) = slots.iter().find_map(|slot| slot.lease.as_ref().err())
        {
            return Err(refusal.clone());
        }
        let longest_bytes = slots.iter().map(|slot| slot.size_bytes).max().unwrap_or(0);
        Ok(Box::new(Joined { size_bytes: size_bytes as usize, slots, longest_bytes, together: None }))
    }

    fn end_joined(&self, item: &Item, outcome: Result<ReadOutcome>) {
        let joined = outcome.and_then(|outcome| match outcome {
            ReadOutcome::Filled(lease) => {
                let mut joined = lease.into_any().downcast::<Joined>().map_err(|_| foreign())?;
                joined.divide()?;
                Ok(joined)
            }
            ReadOutcome::OnDevice(_) => Err(foreign()),
            ReadOutcome::Missing => Err(missing(&item.parts[0].file)),
        });
        match joined {
            Ok(joined) => {
                for (part, slot) in item.parts.iter().zip(joined.slots) {
                    self.end(part, slot.lease.map(ReadOutcome::Filled));
                }
            }
            Err(error) => item.parts.iter().for_each(|part| self.end(part, Err(error.clone()))),
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

    // The caller knows its own keys, but not the keys of files.
    fn open_values(&self) -> Option<&OpenValues> {
        None
    }

    fn opened(&self, index: usize, version: Version) -> Result<()> {
        let item = &self.items[index];
        if item.parts.iter().any(|part| part.is_changed(&version)) {
            let message = format!("the file '{}' was changed since the table was made", item.parts[0].file);
            return Err(Error::new(ErrorKind::StoreFailed, message).with_hint("make the table again"));
        }
        item.parts.iter().try_for_each(|part| {
            let permanent = part.is_permanent.then(|| Version::permanent(&part.file));
            self.sink.opened(part.index, permanent.unwrap_or_else(|| version.clone()))
        })
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

/// Groups parts of files by the stores from which they are read.
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
        Wanted {
            index,
            file: file.into(),
            range,
            etag: None,
            changed_until: None,
            is_permanent: false,
            name: String::new(),
        }
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

    #[test]
    fn bytes_go_to_the_parts_as_they_come_or_all_together() {
        // Two parts share bytes, and nothing wants those from 60 to 70.
        let places = [(0, 40), (10, 20), (30, 30), (70, 30)];
        let joined = || {
            let slot = |&(from, size_bytes): &(usize, usize)| Slot {
                from,
                size_bytes,
                lease: Ok(Box::new(vec![0; size_bytes])),
            };
            Joined { size_bytes: 100, slots: places.iter().map(slot).collect(), longest_bytes: 40, together: None }
        };
        let bytes: Vec<u8> = (1..=100).collect();
        let check = |mut joined: Joined| {
            joined.divide().unwrap();
            for (slot, (from, size_bytes)) in joined.slots.into_iter().zip(places) {
                assert_eq!(slot.lease.unwrap().bytes(), &bytes[from..from + size_bytes]);
            }
        };
        for step in [1, 7, 33, 100] {
            let mut lease = joined();
            for at in (0..100).step_by(step) {
                lease.write(at, &bytes[at..(at + step).min(100)]).unwrap();
            }
            assert!(lease.together.is_none(), "no memory beside that of the parts");
            check(lease);
        }
        let mut lease = joined();
        assert_eq!(lease.size_bytes(), 100);
        lease.bytes().copy_from_slice(&bytes);
        check(lease);
        assert!(joined().write(99, &[1, 2]).is_err());
    }
}
