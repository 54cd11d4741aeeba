//! Reads members of a ZIP file by reading ranges of the file, with one request for each member.
//!
//! The bytes of a stored member go from the file into the caller's memory. If all of a member is read, the threads that
//! fill the memory compute its checksum while the bytes are in the cache. If a member's own header was not read yet,
//! its bytes are expected where they would be in a file without gaps. The checksum shows whether they are there. A
//! deflated member comes with its header in one request, and is decompressed on the lent threads.

use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crc32fast::Hasher;
use cuzarr_device::{Buffer, Device};

use super::super::batch;
use super::super::ext::zeroed;
use super::ZipStore;
use super::deflated::inflate;
use super::directory::{ZipMember, damaged};
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::store::{Lease, OpenValues, ReadOutcome, ReadSink, Version, Workers, write_to};

/// Maximum size of all members that are read again at a time, because they did not begin at the expected offset.
const AGAIN_BYTES: u64 = 64 << 20;

/// A sink for the ranges of the ZIP file that contain the wanted members. It passes each call on to the batch's sink,
/// with the item's number in the batch.
pub(super) struct Passed(Arc<PassedShared>);

struct PassedShared {
    zip: ZipStore,
    sink: Arc<dyn ReadSink>,
    items: Vec<Item>,
    /// The threads that decompress members and search for them, so that a connection's thread need not.
    workers: Option<Arc<dyn Workers>>,
    remaining: AtomicUsize,
    /// Numbers of the items whose member did not begin at the expected offset.
    misplaced: Mutex<Vec<usize>>,
}

/// One item of a batch: a member, or a part of it, and the caller's memory for its bytes.
pub(super) struct Item {
    /// The number of the item in the batch of reads that the caller asked for.
    pub(super) place: usize,
    pub(super) key: String,
    pub(super) what: Wanted,
    /// The caller's memory for the member, until the member's bytes are in it.
    pub(super) lent: Lent,
}

/// The caller's memory, kept until a member's bytes have come.
type Lent = Mutex<Option<Box<dyn Lease>>>;

/// The part of the ZIP file that one request reads: a part of a member, or all of it.
pub(super) enum Wanted {
    /// A part of an uncompressed member.
    Part,
    /// The whole of an uncompressed member, from offset `at` of the ZIP file on. Unless `is_certain`, the bytes may
    /// belong to another member.
    Whole { member: Arc<ZipMember>, at: u64, is_certain: bool, sums: Sums },
    /// The header and the compressed data of a deflated member.
    Packed { member: Arc<ZipMember> },
}

/// Checksums of the parts in which a member's bytes came, each with its offset.
pub(super) type Sums = Arc<Mutex<Vec<(usize, Hasher)>>>;

impl Passed {
    pub(super) fn new(zip: ZipStore, sink: Arc<dyn ReadSink>, items: Vec<Item>, workers: &dyn Workers) -> Passed {
        let (remaining, workers) = (AtomicUsize::new(items.len()), workers.handle());
        Passed(Arc::new(PassedShared { zip, sink, items, workers, remaining, misplaced: Mutex::default() }))
    }
}

impl PassedShared {
    /// Reports the outcome of an item to the batch's sink; the item's lent memory is in the outcome, or there is none.
    fn end(&self, index: usize, outcome: Result<ReadOutcome>) {
        let item = &self.items[index];
        self.sink.done(item.place, outcome.at(|| format!("{}: key '{}'", self.zip, item.key)));
    }

    fn take_lent(&self, index: usize) -> Option<Box<dyn Lease>> {
        self.items[index].lent.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn keep_lent(&self, index: usize, lease: Box<dyn Lease>) {
        *self.items[index].lent.lock().unwrap_or_else(PoisonError::into_inner) = Some(lease);
    }

    /// Keeps an item and the memory lent for it, because its member must be read again from another offset.
    fn misplace(&self, index: usize, lease: Box<dyn Lease>) {
        self.zip.archive.expect_gaps();
        self.keep_lent(index, lease);
        self.misplaced.lock().unwrap_or_else(PoisonError::into_inner).push(index);
    }

    /// Counts one request to the ZIP file as done. After the last one, members that were not found are searched for.
    fn over(self: &Arc<Self>) {
        if self.remaining.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let misplaced = std::mem::take(&mut *self.misplaced.lock().unwrap_or_else(PoisonError::into_inner));
        if misplaced.is_empty() {
            return;
        }
        let search = MemberSearch { shared: Arc::clone(self), misplaced };
        match &self.workers {
            Some(workers) => workers.spawn(Box::new(move || search.run())),
            // The store may have called from a thread that must not wait.
            None => drop(std::thread::spawn(move || search.run())),
        }
    }

    /// Checks the checksum of an uncompressed member whose bytes have all come, and reports the outcome of its item. If
    /// the checksum is wrong, the item may be kept to be read again.
    fn whole(&self, index: usize, lease: Box<dyn Lease>) {
        let Wanted::Whole { member, at, is_certain, sums } = &self.items[index].what else { return };
        let (at, is_certain) = (*at, *is_certain);
        let foreign = |_| damaged("the store handed back memory that it was not lent");
        let lease = match lease.into_any().downcast::<Hashed>().map_err(foreign) {
            Ok(lease) => lease.take(),
            Err(error) => return self.end(index, Err(error)),
        };
        let mut sums = std::mem::take(&mut *sums.lock().unwrap_or_else(PoisonError::into_inner));
        sums.sort_unstable_by_key(|(at, _)| *at);
        let mut whole = Hasher::new();
        sums.iter().for_each(|(_, part)| whole.combine(part));
        let is_right = whole.finalize() == member.checksum;
        if is_right {
            // Another thread may have been faster. It found the same offset.
            let _ = member.data_at.set(at);
            self.end(index, Ok(ReadOutcome::Filled(lease)));
        } else if is_certain {
            self.end(index, Err(wrong_checksum()));
        } else {
            self.misplace(index, lease);
        }
    }

    /// Decompresses a member whose bytes came with its header, and reports the outcome of its item.
    fn unpack(&self, index: usize, member: &ZipMember, bytes: &[u8]) {
        let Some(mut lease) = self.take_lent(index) else { return self.end(index, Err(lost())) };
        let begin = match member.data_begin(bytes) {
            Ok(begin) => begin,
            Err(error) => return self.end(index, Err(error)),
        };
        let _ = member.data_at.set(member.header_at + begin);
        let data = usize::try_from(begin).ok().and_then(|begin| bytes.get(begin..));
        let Some(data) = data.filter(|data| data.len() as u64 >= member.packed_bytes) else {
            return self.misplace(index, lease); // the header is longer than others are
        };
        let inflated =
            inflate(&data[..member.packed_bytes as usize], member.size_bytes, member.checksum, 0, lease.bytes());
        self.end(index, inflated.map(|()| ReadOutcome::Filled(lease)));
    }
}

fn wrong_checksum() -> Error {
    damaged("the member's checksum is wrong")
}

fn lost() -> Error {
    Error::new(ErrorKind::Cancelled, "the read was dropped before it ended")
}

/// A job that searches for ZIP members that did not begin at the expected offset, and reads them again. When it is
/// dropped, the remaining items end with an error.
struct MemberSearch {
    shared: Arc<PassedShared>,
    misplaced: Vec<usize>,
}

impl MemberSearch {
    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let member = |index: usize| match &shared.items[index].what {
            Wanted::Whole { member, .. } | Wanted::Packed { member } => Some(member),
            Wanted::Part => None,
        };
        let members: Vec<_> = self.misplaced.iter().filter_map(|&index| member(index).cloned()).collect();
        // If a member cannot be located, its own item fails, below.
        let _ = shared.zip.locate(&members);
        while !self.misplaced.is_empty() {
            let mut size_bytes = 0;
            let packed = |&index: &usize| member(index).map_or(0, |member| member.packed_bytes);
            let mut is_next = |index: &usize| {
                size_bytes += packed(index);
                size_bytes <= AGAIN_BYTES
            };
            let count = self.misplaced.iter().take_while(|&index| is_next(index)).count().max(1);
            let group: Vec<_> = self.misplaced.drain(..count).collect();
            self.fetch(&group);
        }
    }

    fn fetch(&self, group: &[usize]) {
        let shared = &self.shared;
        let (mut requests, mut found) = (Vec::new(), Vec::new());
        for &index in group {
            match &shared.items[index].what {
                Wanted::Whole { member, .. } | Wanted::Packed { member } => match member.data_at.get() {
                    Some(&at) => {
                        requests.push(shared.zip.archive.request(at, member.packed_bytes));
                        found.push((index, member));
                    }
                    None => {
                        let located = shared.zip.locate(std::slice::from_ref(member));
                        drop(shared.take_lent(index));
                        shared.end(index, Err(located.err().unwrap_or_else(lost)));
                    }
                },
                Wanted::Part => {}
            }
        }
        for ((index, member), bytes) in found.into_iter().zip(shared.zip.archive.many(requests)) {
            let Some(mut lease) = shared.take_lent(index) else { continue };
            let filled = bytes.and_then(|bytes| {
                if member.is_deflated {
                    return inflate(&bytes[..], member.size_bytes, member.checksum, 0, lease.bytes());
                }
                lease.bytes().copy_from_slice(&bytes);
                if crc32fast::hash(&bytes) == member.checksum { Ok(()) } else { Err(wrong_checksum()) }
            });
            shared.end(index, filled.map(|()| ReadOutcome::Filled(lease)));
        }
    }
}

impl Drop for MemberSearch {
    fn drop(&mut self) {
        for index in self.misplaced.drain(..) {
            drop(self.shared.take_lent(index));
            self.shared.end(index, Err(lost()));
        }
    }
}

/// A job for a lent thread that decompresses a member of a ZIP file. If it is dropped before it runs, its item ends
/// with an error.
struct Unpacking {
    shared: Arc<PassedShared>,
    index: usize,
    bytes: Option<Vec<u8>>,
}

impl Unpacking {
    fn run(mut self) {
        if let (Some(bytes), Wanted::Packed { member }) = (self.bytes.take(), &self.shared.items[self.index].what) {
            self.shared.unpack(self.index, member, &bytes);
        }
        self.shared.over();
    }
}

impl Drop for Unpacking {
    fn drop(&mut self) {
        if self.bytes.take().is_some() {
            drop(self.shared.take_lent(self.index));
            self.shared.end(self.index, Err(lost()));
            self.shared.over();
        }
    }
}

/// The caller's memory for a part of a member, with the checksum of its bytes when it is handed back.
struct Hashed {
    /// The caller's memory; `None` after it was handed back.
    lease: Option<Box<dyn Lease>>,
    at: usize,
    /// Whether the caller's memory may be divided among several threads. If its bytes may be wrong, it stays whole, so
    /// that it can be filled again.
    is_divisible: bool,
    sums: Sums,
}

impl Hashed {
    /// Returns the caller's memory with its content, and keeps the checksum.
    fn take(mut self) -> Box<dyn Lease> {
        self.hash().unwrap_or_else(|| Box::new(Vec::new()))
    }

    fn hash(&mut self) -> Option<Box<dyn Lease>> {
        let mut lease = self.lease.take()?;
        let mut hasher = Hasher::new();
        hasher.update(lease.bytes());
        self.sums.lock().unwrap_or_else(PoisonError::into_inner).push((self.at, hasher));
        Some(lease)
    }
}

impl Drop for Hashed {
    fn drop(&mut self) {
        self.hash();
    }
}

#[deny(clippy::missing_trait_methods)]
impl Lease for Hashed {
    fn bytes(&mut self) -> &mut [u8] {
        self.lease.as_mut().map_or(&mut [], |lease| lease.bytes())
    }

    fn size_bytes(&mut self) -> usize {
        self.bytes().len()
    }

    // The checksum is computed from `bytes`, so writes must go there.
    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        write_to(self.bytes(), at, bytes)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn split_off(&mut self, at: usize) -> Option<Box<dyn Lease>> {
        let lease = self.lease.as_mut().filter(|_| self.is_divisible)?.split_off(at)?;
        Some(Box::new(Hashed {
            lease: Some(lease),
            at: self.at + at,
            is_divisible: true,
            sums: Arc::clone(&self.sums),
        }))
    }
}

#[deny(clippy::missing_trait_methods)]
impl ReadSink for Passed {
    fn check(&self) -> Result<()> {
        self.0.sink.check()
    }

    fn reserve(&self, index: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
        let item = &self.0.items[index];
        match &item.what {
            Wanted::Part => self.0.sink.reserve(item.place, size_bytes),
            Wanted::Whole { sums, is_certain, .. } => {
                let lease = self.0.sink.reserve(item.place, size_bytes)?;
                Ok(Box::new(Hashed { lease: Some(lease), at: 0, is_divisible: *is_certain, sums: Arc::clone(sums) }))
            }
            Wanted::Packed { member } => {
                self.0.keep_lent(index, batch::reserve(&*self.0.sink, item.place, member.size_bytes)?);
                Ok(Box::new(zeroed(size_bytes)?))
            }
        }
    }

    fn open_values(&self) -> Option<&OpenValues> {
        self.0.sink.open_values()
    }

    fn opened(&self, index: usize, version: Version) -> Result<()> {
        self.0.zip.archive.check_version(&version)?;
        self.0.sink.opened(self.0.items[index].place, version)
    }

    // Not all members can be read into device memory.
    fn device(&self) -> Device {
        Device::Cpu
    }

    fn reserve_on_device(&self, _index: usize, _size_bytes: u64) -> Result<Buffer> {
        Err(Error::new(ErrorKind::MemorySpace, "the bytes are wanted on the host"))
    }

    fn done(&self, index: usize, outcome: Result<ReadOutcome>) {
        let shared = &self.0;
        let failed = |error| {
            drop(shared.take_lent(index));
            shared.end(index, Err(error));
        };
        match (outcome, &shared.items[index].what) {
            (Err(error), _) => failed(error),
            (Ok(ReadOutcome::Missing), _) => failed(damaged("the ZIP file is gone")),
            (Ok(ReadOutcome::Filled(lease)), Wanted::Whole { .. }) => shared.whole(index, lease),
            (Ok(ReadOutcome::Filled(lease)), Wanted::Packed { .. }) => {
                let Ok(bytes) = lease.into_any().downcast::<Vec<u8>>() else {
                    failed(damaged("the store handed back memory that it was not lent"));
                    return shared.over();
                };
                let job = Unpacking { shared: Arc::clone(shared), index, bytes: Some(*bytes) };
                return match &shared.workers {
                    Some(workers) => workers.spawn(Box::new(move || job.run())),
                    None => job.run(),
                };
            }
            (Ok(outcome), _) => shared.end(index, Ok(outcome)),
        }
        shared.over();
    }
}
