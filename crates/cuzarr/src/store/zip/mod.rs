//! ZIP files as stores: [`ZipStore`] reads them from any store that reads ranges, and [`ZipArchive`] also writes local
//! ones.
//!
//! The directory at the end of the file is read once, when the store is opened. An uncompressed member is a range of
//! the file. So reads of it are passed on as reads of the file, and the inner store serves them with its own threads. A
//! deflated member is decompressed for each read, in bounded memory. A read of a whole member takes one request: the
//! member's place in the file is guessed, and the checksum shows whether the guess was right. Before the first read of
//! a part of a member, the member's header is read.
//!
//! Checksums are verified when a whole member is read. A part of a member cannot be verified, because the checksum
//! covers the whole member.
//!
//! Nothing in the file is trusted. The directory must lie in the file, and have as many members as the end of the file
//! says. Members must lie before the directory, and must not overlap. Names that are not valid keys are left out. A
//! deflated member must not be larger than deflate can make it. Format: APPNOTE.TXT 6.3.10, sections 4.3 (records) and
//! 4.5.3 (ZIP64).

mod archive;
mod deflated;
mod directory;
mod draft;
mod passed;
mod record;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cuzarr_device::Device;

pub(super) use self::archive::open_zip_file;
pub use self::archive::{ZipArchive, ZipMode, ZipOptions};
use self::deflated::{Deflated, WINDOW_BYTES};
use self::directory::{Directory, LOCAL_BYTES, ZipMember, damaged};
use self::passed::{Item, Passed, Wanted};
use super::batch;
use super::ext::collect_versioned;
use super::values::Values;
use super::{
    ByteRange, Capabilities, Condition, Identity, Key, Listing, Lock, Payload, ReadRequest, ReadSink, Stat, Store,
    Unfinished, Version, Workers,
};
use crate::error::{Error, ErrorKind, Result, ResultExt};

/// In a store that is not reached over a network, several threads may read one ZIP member of at least this many bytes.
const LARGE_BYTES: u64 = 1 << 20;

/// A small deflated member is read by one request, with its header and at most this many further bytes.
const SLACK_BYTES: u64 = 1 << 10;

/// A ZIP file in another store, for reading. Clones share its directory.
#[derive(Clone)]
pub struct ZipStore {
    archive: Arc<Archive>,
    members: Values<Arc<ZipMember>>,
}

struct Archive {
    inner: Arc<dyn Store>,
    key: String,
    size_bytes: u64,
    /// The version of the file whose directory was read.
    version: Option<Version>,
    is_far: bool,
    /// Whether a member's bytes were found at another offset than in a ZIP file without gaps.
    has_gaps: AtomicBool,
}

impl ZipStore {
    /// Reads the directory of the ZIP file at `key`.
    ///
    /// # Errors
    /// `StoreFailed` when there is no such file, or it is not a ZIP file, or is damaged; `Unsupported` for encrypted
    /// members, and for compression other than deflate.
    pub fn open(inner: Arc<dyn Store>, key: &Key) -> Result<ZipStore> {
        let place = format!("{inner}/{key}");
        ZipStore::open_at(inner, key).at(|| place)
    }

    fn open_at(inner: Arc<dyn Store>, key: &Key) -> Result<ZipStore> {
        let stat = inner.stat(key)?.ok_or_else(|| damaged("there is no such file"))?;
        let is_far = inner.capabilities().far;
        let archive = Archive {
            inner,
            key: key.to_string(),
            size_bytes: stat.size_bytes,
            version: stat.version,
            is_far,
            has_gaps: AtomicBool::new(false),
        };
        let directory = Directory::read(&archive)?;
        let members = Values::default();
        for entry in directory.entries()? {
            // If several members have one name, the last one is the newest, and counts.
            if let Some(key) = entry.key {
                members.insert_if(key, entry.member, |_| true)?;
            }
        }
        Ok(ZipStore { archive: Arc::new(archive), members })
    }

    /// Finds out at which offsets of the ZIP file the bytes of these members begin, with one batch of requests.
    ///
    /// # Errors
    /// The error of the first member that cannot be located. The other members are located anyway.
    fn locate(&self, members: &[Arc<ZipMember>]) -> Result<()> {
        let unknown: Vec<_> = members.iter().filter(|member| member.data_at.get().is_none()).collect();
        let header = |member: &&Arc<ZipMember>| self.archive.request(member.header_at, LOCAL_BYTES);
        let headers = self.archive.many(unknown.iter().map(header).collect());
        let mut outcome = Ok(());
        for (member, header) in unknown.iter().zip(headers) {
            match header.and_then(|header| member.data_begin(&header)) {
                // Another thread may have been faster. It found the same offset.
                Ok(begin) => drop(member.data_at.set(member.header_at + begin)),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    /// The offset in the ZIP file at which a member's bytes probably begin; `None` if its header must be read first.
    fn expected_at(&self, member: &ZipMember) -> Option<u64> {
        // In a near store, finding the place of a large member is quick. Several threads can then read it.
        let is_worth_it = self.archive.is_far || member.size_bytes < LARGE_BYTES;
        let is_likely = !self.archive.has_gaps.load(Ordering::Relaxed);
        if is_worth_it && is_likely { member.expected_at() } else { None }
    }

    /// Makes the single request that reads the wanted part of a member from the ZIP file. `None` if its bytes must be
    /// located first, or if it is decompressed one window at a time.
    fn request_for(&self, member: &Arc<ZipMember>, offset: u64, size_bytes: u64) -> Option<(ReadRequest, Wanted)> {
        let is_whole = size_bytes == member.size_bytes;
        if member.is_deflated {
            let least_bytes = member.packed_bytes + LOCAL_BYTES + SLACK_BYTES;
            let is_small = is_whole && member.packed_bytes <= WINDOW_BYTES;
            let request = || self.archive.request(member.header_at, member.span_bytes().min(least_bytes));
            return is_small.then(|| (request(), Wanted::Packed { member: Arc::clone(member) }));
        }
        let known = member.data_at.get().copied();
        let at = known.or_else(|| self.expected_at(member).filter(|_| is_whole))?;
        let whole =
            || Wanted::Whole { member: Arc::clone(member), at, is_certain: known.is_some(), sums: Default::default() };
        Some((self.archive.request(at + offset, size_bytes), if is_whole { whole() } else { Wanted::Part }))
    }

    fn refuse(&self, key: &Key) -> Error {
        let message = format!("{self}: key '{key}': ZIP files are only read here");
        Error::new(ErrorKind::ReadOnly, message).with_hint("write to a local ZIP file or to a directory")
    }
}

impl Archive {
    fn request(&self, offset: u64, size_bytes: u64) -> ReadRequest {
        ReadRequest { key: self.key.clone(), range: ByteRange::Span { offset, size_bytes } }
    }

    fn bytes(&self, offset: u64, size_bytes: u64) -> Result<Vec<u8>> {
        self.many(vec![self.request(offset, size_bytes)]).pop().unwrap_or_else(|| Err(damaged("the file is gone")))
    }

    /// Reads ranges of the ZIP file by one batch. They must have the version of the directory.
    fn many(&self, requests: Vec<ReadRequest>) -> Vec<Result<Vec<u8>>> {
        let (items, versions) = collect_versioned(&*self.inner, requests, u64::MAX);
        let checked = |(item, version): (Result<Option<Vec<u8>>>, Option<Version>)| {
            let bytes = item?.ok_or_else(|| damaged("the ZIP file is gone"))?;
            version.map_or(Ok(()), |version| self.check_version(&version))?;
            Ok(bytes)
        };
        items.into_iter().zip(versions).map(checked).collect()
    }

    /// Records that members may begin at other offsets than in a file without gaps.
    fn expect_gaps(&self) {
        self.has_gaps.store(true, Ordering::Relaxed);
    }

    /// Fails if the file was replaced after its directory was read.
    fn check_version(&self, found: &Version) -> Result<()> {
        if self.version.as_ref().is_none_or(|version| version.has_same_bytes(found)) {
            return Ok(());
        }
        Err(damaged("the ZIP file was replaced since it was opened").with_hint("open it again"))
    }
}

impl Store for ZipStore {
    fn read(&self, requests: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers) {
        let found: Vec<_> = requests.iter().map(|request| self.members.get(&request.key).ok().flatten()).collect();
        let range = |request: &ReadRequest, member: &ZipMember| request.range.resolve(member.size_bytes);
        let is_unknown = |request: &ReadRequest, member: &Arc<ZipMember>| {
            let resolved = range(request, member);
            resolved.is_ok_and(|(offset, size_bytes)| self.request_for(member, offset, size_bytes).is_none())
        };
        let pairs = || requests.iter().zip(&found).filter_map(|(request, member)| Some((request, member.as_ref()?)));
        let unknown = pairs().filter(|(request, member)| !member.is_deflated && is_unknown(request, member));
        let unknown: Vec<_> = unknown.map(|(_, member)| Arc::clone(member)).collect();
        // If a member cannot be located, its own read fails, below.
        let _ = self.locate(&unknown);
        let (mut ranges, mut items, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for (place, (request, member)) in requests.iter().zip(&found).enumerate() {
            let resolved = member.as_ref().map(|member| (member, range(request, member)));
            match resolved {
                Some((_, Err(error))) => sink.done(place, Err(error.at(format!("{self}: key '{}'", request.key)))),
                Some((member, Ok((offset, size_bytes)))) => match self.request_for(member, offset, size_bytes) {
                    Some((range, what)) => {
                        ranges.push(range);
                        items.push(Item { place, key: request.key.clone(), what, lent: Default::default() });
                    }
                    None => others.push(place),
                },
                None => others.push(place),
            }
        }
        if !ranges.is_empty() {
            let passed = Passed::new(self.clone(), Arc::clone(&sink), items, workers);
            self.archive.inner.read(ranges.into(), Arc::new(passed), workers);
        }
        if !others.is_empty() {
            let rest = others.iter().map(|&place| requests[place].clone()).collect();
            batch::run(Deflated(self.clone()), rest, Arc::new(super::layers::Side::new(sink, others)), workers);
        }
    }

    fn put(&self, key: &Key, _value: Payload<'_>, _condition: &Condition) -> Result<bool> {
        Err(self.refuse(key))
    }

    fn begin(&self, key: &Key, _size_bytes: u64) -> Result<Box<dyn Unfinished>> {
        Err(self.refuse(key))
    }

    fn delete_many(&self, keys: &[String]) -> Result<()> {
        keys.first().map_or(Ok(()), |key| Err(self.refuse(key)))
    }

    fn delete_prefix(&self, prefix: &Key) -> Result<()> {
        Err(self.refuse(prefix))
    }

    fn stat(&self, key: &Key) -> Result<Option<Stat>> {
        let version = || self.archive.version.clone();
        Ok(self.members.get(key)?.map(|member| Stat { size_bytes: member.size_bytes, version: version() }))
    }

    fn list_dir(&self, prefix: &Key) -> Result<Listing> {
        self.members.list_dir(prefix)
    }

    fn list(&self, prefix: &Key) -> Result<Vec<String>> {
        self.members.list(prefix)
    }

    fn identity(&self) -> Identity {
        self.archive.inner.identity().below(&self.archive.key)
    }

    fn capabilities(&self) -> Capabilities {
        let inner = self.archive.inner.capabilities();
        Capabilities { read_only: true, deletes: false, conditional_writes: false, transactional: false, ..inner }
    }

    fn is_on(&self, _device: Device) -> bool {
        false
    }

    fn try_lock(&self, _prefix: &Key) -> Result<Lock> {
        Ok(Lock::Unsupported)
    }

    fn above(&self) -> Option<(Arc<dyn Store>, String)> {
        None
    }
}

impl fmt::Display for ZipStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.archive.inner, self.archive.key)
    }
}

impl fmt::Debug for ZipStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ZipStore('{self}')")
    }
}

#[cfg(test)]
mod tests;
