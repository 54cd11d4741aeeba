//! A ZIP file as a store, for reading, over any store that reads ranges.
//!
//! The directory at the end of the file is read once, when the store is opened. A member that is stored as it is is a range of the
//! file, so reads of it are passed on as reads of the file: the store behind serves them with its own threads. A deflated member is
//! decompressed for each read, in bounded memory.
//!
//! Checksums are verified where all of a member is read. A range of a member is read without: its checksum is of the whole.
//!
//! Nothing in the file is trusted. The directory must lie in the file, as must each member, before the directory and beside the
//! other members; names that are no keys are left out; a deflated member may be as large as deflate can make it, and no larger.
//! Format: APPNOTE.TXT 6.3.10, sections 4.3 (records) and 4.5.3 (ZIP64).

mod stored;

use std::fmt;
use std::io::{self, Read};
use std::sync::{Arc, OnceLock};

use cuzarr_device::Device;
use flate2::read::DeflateDecoder;

use self::stored::{Item, Stored};
use super::batch::{self, Source};
use super::key::validate_key;
use super::object::Object;
use super::values::Values;
use super::{
    ByteRange, Capabilities, Condition, Identity, Key, Listing, Payload, ReadRequest, ReadSink, Stat, Store, StoreExt,
    Unfinished, Version, Workers,
};
use crate::error::{Error, ErrorKind, Result, ResultExt};

/// Sizes of records, without what follows them.
const END_BYTES: usize = 22;
const END64_BYTES: usize = 56;
const LOCATOR64_BYTES: usize = 20;
const ENTRY_BYTES: usize = 46;
const LOCAL_BYTES: u64 = 30;

/// The end record has a comment behind it, of at most so many bytes.
const COMMENT_BYTES: usize = u16::MAX as usize;

/// The largest directory that is read: more than two million members with names of a usual length.
const DIRECTORY_MAX_BYTES: u64 = 256 << 20;

/// Deflate makes no more than so many bytes of one (zlib's technical details).
const DEFLATE_MOST: u64 = 1032;

/// Compressed bytes that are read at a time.
const WINDOW_BYTES: u64 = 1 << 20;

/// A ZIP file in another store, for reading. Cloning shares its directory.
#[derive(Clone)]
pub struct ZipStore {
    archive: Arc<Archive>,
    members: Values<Arc<Member>>,
}

struct Archive {
    inner: Arc<dyn Store>,
    key: String,
    /// Of the file whose directory was read.
    version: Option<Version>,
    /// Where members end: the directory begins here.
    directory_at: u64,
}

struct Member {
    is_deflated: bool,
    header_at: u64,
    packed_bytes: u64,
    size_bytes: u64,
    checksum: u32,
    /// Where its bytes begin, once its own header was read.
    data_at: OnceLock<u64>,
}

impl ZipStore {
    /// Reads the directory of the ZIP file at `key`.
    ///
    /// # Errors
    /// `StoreFailed` when there is no such file, or it is no ZIP file, or a damaged one; `Unsupported` for what is not read here:
    /// encrypted members, and compression other than deflate.
    pub fn open(inner: Arc<dyn Store>, key: &Key) -> Result<ZipStore> {
        let place = format!("{inner}/{key}");
        ZipStore::open_at(inner, key).at(|| place)
    }

    fn open_at(inner: Arc<dyn Store>, key: &Key) -> Result<ZipStore> {
        let stat = inner.stat(key)?.ok_or_else(|| damaged("there is no such file"))?;
        let archive = Archive { inner, key: key.to_string(), version: stat.version, directory_at: 0 };
        let tail_bytes = (END_BYTES + COMMENT_BYTES + END64_BYTES + LOCATOR64_BYTES) as u64;
        let tail_at = stat.size_bytes.saturating_sub(tail_bytes);
        let tail = archive.bytes(tail_at, stat.size_bytes - tail_at)?;
        let end = End::find(&tail, tail_at)?;
        if end.size_bytes > DIRECTORY_MAX_BYTES {
            let message = format!("its directory has {} bytes, at most {DIRECTORY_MAX_BYTES} are read", end.size_bytes);
            return Err(Error::new(ErrorKind::BudgetExceeded, message));
        }
        // What lies before the archive, such as a program that unpacks it, moves all offsets.
        let directory_at = end.at.checked_sub(end.size_bytes).ok_or_else(|| damaged("its directory is cut off"))?;
        let moved =
            directory_at.checked_sub(end.offset).ok_or_else(|| damaged("its directory is not where it says"))?;
        let archive = Archive { directory_at, ..archive };
        let directory = archive.bytes(directory_at, end.size_bytes)?;
        let members = parse_directory(&directory, &end, moved, directory_at)?;
        Ok(ZipStore { archive: Arc::new(archive), members })
    }

    /// Learns where the bytes of members begin, for all that are asked for, by one batch.
    fn locate(&self, members: &[Arc<Member>]) -> Result<()> {
        let unknown: Vec<_> = members.iter().filter(|member| member.data_at.get().is_none()).collect();
        let header = |member: &&Arc<Member>| self.archive.request(member.header_at, LOCAL_BYTES);
        let headers = self.archive.inner.get_many(unknown.iter().map(header).collect());
        for (member, bytes) in unknown.iter().zip(headers) {
            let bytes = bytes?.ok_or_else(|| damaged("the file is gone"))?;
            let names_bytes = u64::from(u16_at(&bytes, 26)?) + u64::from(u16_at(&bytes, 28)?);
            let data_at = member.header_at + LOCAL_BYTES + names_bytes;
            let fits = data_at.checked_add(member.packed_bytes).is_some_and(|end| end <= self.archive.directory_at);
            if !bytes.starts_with(b"PK\x03\x04") || !fits {
                return Err(damaged("a member's header contradicts the directory"));
            }
            // Others may have been quicker, and found the same.
            let _ = member.data_at.set(data_at);
        }
        Ok(())
    }

    fn refuse(&self, key: &Key) -> Error {
        let message = format!("{self}: key '{key}': ZIP files are only read here");
        Error::new(ErrorKind::ReadOnly, message)
            .with_hint("write to a directory, then pack it: zip -0 -r ../NAME.zip .")
    }
}

impl Archive {
    fn request(&self, offset: u64, size_bytes: u64) -> ReadRequest {
        ReadRequest { key: self.key.clone(), range: ByteRange::Span { offset, size_bytes } }
    }

    fn bytes(&self, offset: u64, size_bytes: u64) -> Result<Vec<u8>> {
        let bytes = self.inner.get_range(&self.key, ByteRange::Span { offset, size_bytes })?;
        bytes.ok_or_else(|| damaged("the file is gone"))
    }

    /// Refuses a file that took the place of the one whose directory is known.
    fn check_version(&self, found: &Version) -> Result<()> {
        if self.version.as_ref().is_none_or(|version| version.has_same_bytes(found)) {
            return Ok(());
        }
        Err(damaged("the ZIP file was replaced since it was opened").with_hint("open it again"))
    }
}

fn damaged(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::StoreFailed, message)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk::<N>());
    field.copied().ok_or_else(|| damaged("a record of the ZIP file is cut off"))
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16> {
    field(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32> {
    field(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64> {
    field(bytes, at).map(u64::from_le_bytes)
}

/// What the end of a ZIP file says of its directory.
struct End {
    /// Where the directory ends.
    at: u64,
    offset: u64,
    size_bytes: u64,
    count: u64,
}

impl End {
    /// Looks for the end record from the back of `tail`, which begins at byte `tail_at` of the file.
    fn find(tail: &[u8], tail_at: u64) -> Result<End> {
        let starts = (0..=tail.len().saturating_sub(END_BYTES)).rev();
        let is_end = |&at: &usize| {
            let comment_bytes = u16_at(tail, at + 20).map(usize::from);
            tail[at..].starts_with(b"PK\x05\x06")
                && comment_bytes.is_ok_and(|bytes| at + END_BYTES + bytes == tail.len())
        };
        let at =
            starts.into_iter().find(is_end).ok_or_else(|| damaged("this is no ZIP file, or its end is missing"))?;
        let (disk, count) = (u16_at(tail, at + 4)?, u16_at(tail, at + 10)?);
        let (size_bytes, offset) = (u32_at(tail, at + 12)?, u32_at(tail, at + 16)?);
        let is_large = count == u16::MAX || size_bytes == u32::MAX || offset == u32::MAX;
        let locator = at.checked_sub(LOCATOR64_BYTES).filter(|&locator| tail[locator..].starts_with(b"PK\x06\x07"));
        if let Some(locator) = locator.filter(|_| is_large) {
            let at = locator.checked_sub(END64_BYTES).filter(|&at| tail[at..].starts_with(b"PK\x06\x06"));
            let at = at.ok_or_else(|| damaged("its ZIP64 record is not before its locator"))?;
            return Ok(End {
                at: tail_at + at as u64,
                count: u64_at(tail, at + 32)?,
                size_bytes: u64_at(tail, at + 40)?,
                offset: u64_at(tail, at + 48)?,
            });
        }
        if disk != 0 && disk != u16::MAX {
            return Err(Error::new(ErrorKind::Unsupported, "the ZIP file is divided into several files"));
        }
        let (offset, size_bytes, count) = (u64::from(offset), u64::from(size_bytes), u64::from(count));
        Ok(End { at: tail_at + at as u64, offset, size_bytes, count })
    }
}

/// The members by their names; of several of one name the last, which is the newest.
fn parse_directory(directory: &[u8], end: &End, moved: u64, directory_at: u64) -> Result<Values<Arc<Member>>> {
    if end.count > (directory.len() / ENTRY_BYTES) as u64 {
        return Err(damaged(format!("it claims {} members, more than its directory has room for", end.count)));
    }
    let members = Values::default();
    let mut spans = Vec::with_capacity(end.count as usize);
    let mut rest = directory;
    for _ in 0..end.count {
        let (name, member, entry_bytes) = parse_entry(rest, moved)?;
        rest = &rest[entry_bytes..];
        // At least its header, its name and its bytes lie in the file.
        let least_bytes = LOCAL_BYTES + name.len() as u64;
        let span_end = member.header_at.checked_add(least_bytes).and_then(|at| at.checked_add(member.packed_bytes));
        let span_end = span_end.filter(|&end| end <= directory_at);
        let span_end = span_end.ok_or_else(|| damaged(format!("member '{}' lies outside of it", shown(name))))?;
        spans.push((member.header_at, span_end));
        if name.ends_with(b"/") {
            continue; // a folder
        }
        // Other names cannot be asked for.
        if let Some(key) = std::str::from_utf8(name).ok().filter(|key| validate_key(key).is_ok()) {
            members.insert_if(key, Arc::new(member), |_| true)?;
        }
    }
    spans.sort_unstable();
    if spans.windows(2).any(|pair| pair[1].0 < pair[0].1) {
        return Err(damaged("two of its members overlap"));
    }
    Ok(members)
}

fn shown(name: &[u8]) -> String {
    crate::error::printable(&String::from_utf8_lossy(&name[..name.len().min(100)])).to_string()
}

/// Name and place of the member that `bytes` begins with, and how long its entry is.
fn parse_entry(bytes: &[u8], moved: u64) -> Result<(&[u8], Member, usize)> {
    if !bytes.starts_with(b"PK\x01\x02") {
        return Err(damaged("its directory is damaged"));
    }
    let (flags, method) = (u16_at(bytes, 8)?, u16_at(bytes, 10)?);
    let (checksum, packed, size) = (u32_at(bytes, 16)?, u32_at(bytes, 20)?, u32_at(bytes, 24)?);
    let [name_bytes, extra_bytes, comment_bytes] = [28, 30, 32].map(|at| u16_at(bytes, at));
    let (name_end, header_at) = (ENTRY_BYTES + usize::from(name_bytes?), u32_at(bytes, 42)?);
    let extra_end = name_end + usize::from(extra_bytes?);
    let entry_bytes = extra_end + usize::from(comment_bytes?);
    let (Some(name), Some(extra)) = (bytes.get(ENTRY_BYTES..name_end), bytes.get(name_end..extra_end)) else {
        return Err(damaged("its directory is cut off"));
    };
    if bytes.len() < entry_bytes {
        return Err(damaged("its directory is cut off"));
    }
    let [size_bytes, packed_bytes, header_at] = zip64([size, packed, header_at], extra)?;
    let header_at = header_at.checked_add(moved).ok_or_else(|| damaged("a member lies outside of it"))?;
    if flags & 1 != 0 || !matches!(method, 0 | 8) {
        let what = if flags & 1 != 0 { "encrypted".into() } else { format!("compressed by method {method}") };
        let message = format!("member '{}' is {what}; stored and deflated members are read", shown(name));
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let is_deflated = method == 8;
    let possible = if is_deflated { size_bytes / DEFLATE_MOST <= packed_bytes } else { size_bytes == packed_bytes };
    if !possible {
        let message = format!("member '{}' cannot have {size_bytes} bytes in {packed_bytes}", shown(name));
        return Err(damaged(message));
    }
    let member = Member { is_deflated, header_at, packed_bytes, size_bytes, checksum, data_at: OnceLock::new() };
    Ok((name, member, entry_bytes))
}

/// Fields of 32 bits that are all ones stand in the ZIP64 field of `extra`, in their order.
fn zip64(fields: [u32; 3], extra: &[u8]) -> Result<[u64; 3]> {
    let mut rest = extra;
    let mut large: &[u8] = &[];
    while rest.len() >= 4 {
        let (id, size_bytes) = (u16_at(rest, 0)?, usize::from(u16_at(rest, 2)?));
        let Some(body) = rest.get(4..4 + size_bytes) else { break };
        if id == 1 {
            large = body;
            break;
        }
        rest = &rest[4 + size_bytes..];
    }
    let mut found = [0; 3];
    for (found, field) in found.iter_mut().zip(fields) {
        *found = u64::from(field);
        if field == u32::MAX {
            *found = u64_at(large, 0)?;
            large = &large[8..];
        }
    }
    Ok(found)
}

/// Serves deflated members, and says which keys are missing.
struct Deflated(ZipStore);

struct DeflatedMember {
    archive: Arc<Archive>,
    member: Arc<Member>,
}

impl Source for Deflated {
    type Object = DeflatedMember;

    fn open(&self, key: &Key) -> Result<Option<DeflatedMember>> {
        let Some(member) = self.0.members.get(key)? else { return Ok(None) };
        self.0.locate(std::slice::from_ref(&member))?;
        Ok(Some(DeflatedMember { archive: Arc::clone(&self.0.archive), member }))
    }

    fn name(&self) -> String {
        self.0.to_string()
    }
}

impl Object for DeflatedMember {
    fn size_bytes(&self) -> u64 {
        self.member.size_bytes
    }

    fn version(&self) -> Option<Version> {
        self.archive.version.clone()
    }

    // Every part would decompress all that lies before it.
    fn is_divisible(&self) -> bool {
        false
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        let at = self.member.data_at.get().copied().unwrap_or(0);
        let packed =
            Packed { archive: &self.archive, at, end: at + self.member.packed_bytes, window: Vec::new(), used: 0 };
        let mut decoder = DeflateDecoder::new(packed);
        let failed = |error: io::Error| damaged(format!("the member cannot be decompressed: {error}"));
        let skipped = io::copy(&mut decoder.by_ref().take(offset), &mut io::sink()).map_err(failed)?;
        if skipped < offset {
            return Err(damaged("the member is shorter than the directory says"));
        }
        decoder.read_exact(bytes).map_err(failed)?;
        let is_whole = bytes.len() as u64 == self.member.size_bytes;
        if is_whole && crc32fast::hash(bytes) != self.member.checksum {
            return Err(damaged("the member's checksum is wrong"));
        }
        Ok(())
    }

    fn check_unchanged(&self) -> Result<()> {
        match self.archive.inner.stat(&self.archive.key)? {
            Some(Stat { version: Some(version), .. }) => self.archive.check_version(&version),
            Some(_) => Ok(()),
            None => Err(damaged("the ZIP file is gone")),
        }
    }
}

/// Compressed bytes of a member, a window at a time.
struct Packed<'a> {
    archive: &'a Archive,
    at: u64,
    end: u64,
    window: Vec<u8>,
    used: usize,
}

impl Read for Packed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.used == self.window.len() {
            let size_bytes = (self.end - self.at).min(WINDOW_BYTES);
            self.window =
                self.archive.bytes(self.at, size_bytes).map_err(|error| io::Error::other(error.to_string()))?;
            (self.used, self.at) = (0, self.at + size_bytes);
        }
        let count = bytes.len().min(self.window.len() - self.used);
        bytes[..count].copy_from_slice(&self.window[self.used..self.used + count]);
        self.used += count;
        Ok(count)
    }
}

impl Store for ZipStore {
    fn read(&self, requests: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers) {
        let found: Vec<_> = requests.iter().map(|request| self.members.get(&request.key).ok().flatten()).collect();
        let stored: Vec<_> = found.iter().flatten().filter(|member| !member.is_deflated).cloned().collect();
        // A member that cannot be located fails by itself, below.
        let _ = self.locate(&stored);
        let (mut ranges, mut items, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for (place, (request, member)) in requests.iter().zip(&found).enumerate() {
            let located = member.as_ref().filter(|member| !member.is_deflated);
            let Some((member, &data_at)) = located.and_then(|member| Some((member, member.data_at.get()?))) else {
                others.push(place);
                continue;
            };
            match request.range.resolve(member.size_bytes) {
                Ok((offset, size_bytes)) => {
                    ranges.push(self.archive.request(data_at + offset, size_bytes));
                    let checksum = (size_bytes == member.size_bytes).then_some(member.checksum);
                    items.push(Item::new(place, format!("{self}: key '{}'", request.key), checksum));
                }
                Err(error) => sink.done(place, Err(error.at(format!("{self}: key '{}'", request.key)))),
            }
        }
        if !ranges.is_empty() {
            let stored = Stored { archive: Arc::clone(&self.archive), sink: Arc::clone(&sink), items };
            self.archive.inner.read(ranges.into(), Arc::new(stored), workers);
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
