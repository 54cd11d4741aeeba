//! A ZIP file that is being written, with a temporary name. At the end it gets its real name.
//!
//! Members are written one after another, by any number of threads: each thread reserves its place in the file and
//! fills it. If a member is overwritten or deleted, its bytes stay in the file, but the directory does not name them.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use crc32fast::Hasher;
use flate2::Compression;
use flate2::write::DeflateEncoder;

use super::super::batch::Source;
use super::super::key::is_document;
use super::super::local::{Partial, file_version, io_error, read_exact_at, rename_if_absent, write_all_at};
use super::super::object::Object;
use super::super::values::Values;
use super::super::{Condition, Durability, Key, Listing, Payload, Stat, Unfinished, Version};
use super::Archive;
use super::deflated::inflate;
use super::directory::{Directory, LOCAL_BYTES, ZipMember, damaged};
use super::record::{Described, end};
use crate::error::{Error, ErrorKind, Result, ResultExt};

/// The options with which a draft is written: compression, size limits, and how far the file must be on the disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct DraftWriting {
    pub(super) deflate: Option<u32>,
    pub(super) zip64: bool,
    pub(super) durability: Durability,
}

/// Maximum size in bytes of a ZIP file without ZIP64; `PLAIN_MEMBERS` is the maximum number of its members.
const PLAIN_BYTES: u64 = (1 << 31) - 1;
const PLAIN_MEMBERS: u64 = u16::MAX as u64 - 1;

/// Which file may be at the real name when the draft gets that name.
#[derive(Clone, Debug)]
pub(super) enum Expected {
    /// Any file may have the real name, or none; the draft replaces it.
    Anything,
    /// No file may have the real name: publishing the draft fails if there is one.
    Nothing,
    /// Only the old file, from which members were copied, may have the real name, and it must be unchanged.
    File(Version),
}

/// A ZIP file that is being written under a temporary name, until it is published under its real name.
pub(super) struct Draft {
    path: PathBuf,
    file: fs::File,
    partial: Partial,
    writing: DraftWriting,
    expected: Expected,
    /// Offset in the new ZIP file at which the next member will begin.
    end: AtomicU64,
    members: Values<Arc<Written>>,
    base: Option<DraftBase>,
    /// Whether new members can be written: the bytes of the old file were copied, or are not needed.
    is_prepared: Mutex<bool>,
    /// Whether something was written to the draft, or deleted, that the file at the real name does not show.
    is_changed: AtomicBool,
    /// Whether the draft already has its real name, so that nothing more can be written to it. Writers hold a read lock
    /// while they write.
    is_published: RwLock<bool>,
}

/// The old ZIP file whose members the draft keeps. Its bytes are copied before the first new member is written, unless
/// all its members have been deleted by then.
struct DraftBase {
    file: fs::File,
    version: Version,
    /// Offset of the directory in the old file.
    at: u64,
    kept: KeptMember,
    is_kept: AtomicBool,
}

/// The parts of the old ZIP file, besides its members, that the new file keeps.
#[derive(Default)]
struct KeptMember {
    /// Directory entries of the old file whose names are not valid keys, such as folders.
    others: Vec<Vec<u8>>,
    comment: Vec<u8>,
    /// Number of bytes before the ZIP archive in the file, such as a program that unpacks it. Offsets in the archive do
    /// not count them.
    moved: u64,
}

/// A member of the new ZIP file, either kept from the old file or newly written.
struct Written {
    member: Place,
    version: Version,
    /// The member's directory entry in the old file, if the member was copied from there.
    record: Option<Vec<u8>>,
}

/// Where the bytes of a member are now: in the old ZIP file, or written to the draft.
enum Place {
    Copied(Arc<ZipMember>),
    New { is_deflated: bool, header_at: u64, data_at: u64, packed_bytes: u64, size_bytes: u64, checksum: u32 },
}

impl Written {
    fn new(member: Place) -> Written {
        // Lower numbers belong to values in memory.
        static NUMBER: AtomicU64 = AtomicU64::new(1 << 63);
        let version = Version::numbered(NUMBER.fetch_add(1, Ordering::Relaxed));
        Written { member, version, record: None }
    }

    fn size_bytes(&self) -> u64 {
        match &self.member {
            Place::Copied(member) => member.size_bytes,
            Place::New { size_bytes, .. } => *size_bytes,
        }
    }

    fn header_at(&self) -> u64 {
        match &self.member {
            Place::Copied(member) => member.header_at,
            Place::New { header_at, .. } => *header_at,
        }
    }
}

impl Draft {
    /// Makes an empty draft that will become the file at `path`.
    pub(super) fn create(path: &Path, writing: DraftWriting, expected: Expected) -> Result<Draft> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (file, partial) =
            Partial::create_nameless(folder).map_err(|error| io_error("cannot create the temporary file", error))?;
        Ok(Draft {
            path: path.to_path_buf(),
            file,
            partial,
            writing,
            end: AtomicU64::new(0),
            members: Values::default(),
            base: None,
            is_prepared: Mutex::new(false),
            is_changed: AtomicBool::new(matches!(expected, Expected::Anything)),
            expected,
            is_published: RwLock::new(false),
        })
    }

    /// Makes a draft that keeps the members of the ZIP file at `path`, and to which others can be added.
    pub(super) fn copy(path: &Path, archive: &Archive, writing: DraftWriting) -> Result<Draft> {
        let version = archive.version.clone().ok_or_else(|| damaged("the file has no version"))?;
        let mut draft = Draft::create(path, writing, Expected::File(version.clone()))?;
        let directory = Directory::read(archive)?;
        let file = fs::File::open(path).map_err(|error| io_error("cannot open the ZIP file", error))?;
        let mut others = Vec::new();
        for entry in directory.entries()? {
            match entry.key {
                Some(key) => {
                    let record = Some(entry.record.to_vec());
                    let member = Place::Copied(entry.member);
                    let written = Written { member, version: version.clone(), record };
                    draft.members.insert_if(key, Arc::new(written), |_| true)?;
                }
                None => others.push(entry.record.to_vec()),
            }
        }
        let kept = KeptMember { others, comment: directory.end.comment.clone(), moved: directory.moved };
        let base = DraftBase { file, version, at: directory.at, kept, is_kept: AtomicBool::new(false) };
        base.check_unchanged()?;
        draft.base = Some(base);
        Ok(draft)
    }

    /// Copies the bytes of the old file into the draft, before anything else is written there. If none of its members
    /// is left, nothing is copied.
    fn prepare(&self) -> Result<()> {
        let Some(base) = &self.base else { return Ok(()) };
        let mut is_prepared = self.is_prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_prepared {
            return Ok(());
        }
        let mut is_kept = false;
        for key in self.members.list("")? {
            is_kept |= matches!(self.members.get(&key)?.as_deref(), Some(Written { member: Place::Copied(_), .. }));
        }
        if is_kept {
            let failed = |error| io_error("cannot copy the ZIP file", error);
            (&base.file).seek(SeekFrom::Start(0)).map_err(failed)?;
            let copied = io::copy(&mut (&base.file).take(base.at), &mut &self.file).map_err(failed)?;
            base.check_unchanged()?;
            if copied != base.at {
                return Err(damaged("the ZIP file became shorter while it was copied"));
            }
            self.end.store(base.at, Ordering::Relaxed);
            base.is_kept.store(true, Ordering::Relaxed);
        }
        *is_prepared = true;
        Ok(())
    }

    /// The parts of the old file, besides its members, that are kept; `None` if there is no old file.
    fn kept(&self) -> Option<&KeptMember> {
        self.base.as_ref().filter(|base| base.is_kept.load(Ordering::Relaxed)).map(|base| &base.kept)
    }

    /// Reserves `size_bytes` bytes of the new ZIP file for a member, and returns their offset in the file.
    fn take_room(&self, size_bytes: u64) -> Result<u64> {
        self.prepare()?;
        self.is_changed.store(true, Ordering::Relaxed);
        let at = self.end.fetch_add(size_bytes, Ordering::Relaxed);
        self.check_size(at + size_bytes)?;
        Ok(at)
    }

    fn check_size(&self, end: u64) -> Result<()> {
        if self.writing.zip64 || end <= PLAIN_BYTES {
            return Ok(());
        }
        let message = format!("the ZIP file would have {end} bytes, expected at most {PLAIN_BYTES} without ZIP64");
        Err(Error::new(ErrorKind::StoreFailed, message).with_hint("allow ZIP64"))
    }

    /// Returns a guard that keeps the draft from being published while a member is written. `None` if the file already
    /// has that name.
    fn unpublished(&self) -> Option<RwLockReadGuard<'_, bool>> {
        let is_published = self.is_published.read().unwrap_or_else(PoisonError::into_inner);
        if *is_published { None } else { Some(is_published) }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        write_all_at(&self.file, bytes, offset).map_err(|error| io_error("cannot write the value", error))
    }

    /// Writes a value as a member of the draft; `None` if the draft already has its real name and another is needed.
    pub(super) fn put(&self, key: &Key, value: Payload<'_>, condition: &Condition) -> Result<Option<bool>> {
        let Some(_unpublished) = self.unpublished() else { return Ok(None) };
        if !condition.allows(self.members.get(key)?.map(|old| old.version.clone()).as_ref()) {
            return Ok(Some(false));
        }
        let written = value.with_bytes(|bytes| self.append(key, bytes))?;
        let allows = |old: Option<&Arc<Written>>| condition.allows(old.map(|old| &old.version));
        self.members.insert_if(key, Arc::new(written), allows).map(Some)
    }

    fn append(&self, key: &Key, bytes: &[u8]) -> Result<Written> {
        let deflated = self.writing.deflate.map(|level| {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(level));
            encoder.write_all(bytes).and_then(|()| encoder.finish())
        });
        let deflated = deflated.transpose().map_err(|error| io_error("cannot compress the value", error))?;
        let packed = deflated.as_deref().unwrap_or(bytes);
        let described = Described {
            name: key,
            is_deflated: deflated.is_some(),
            checksum: crc32fast::hash(bytes),
            packed_bytes: packed.len() as u64,
            size_bytes: bytes.len() as u64,
        };
        let header = described.header()?;
        let header_at = self.take_room(header.len() as u64 + described.packed_bytes)?;
        let data_at = header_at + header.len() as u64;
        self.write_at(&header, header_at)?;
        self.write_at(packed, data_at)?;
        let Described { is_deflated, checksum, packed_bytes, size_bytes, .. } = described;
        Ok(Written::new(Place::New { is_deflated, header_at, data_at, packed_bytes, size_bytes, checksum }))
    }

    /// Begins a member of the draft that is written in parts; `None` if the draft already has its real name.
    pub(super) fn begin(self: &Arc<Self>, key: &Key, size_bytes: u64) -> Result<Option<Box<dyn Unfinished>>> {
        let Some(_unpublished) = self.unpublished() else { return Ok(None) };
        let described = Described { name: key, is_deflated: false, checksum: 0, packed_bytes: size_bytes, size_bytes };
        let header_bytes = described.header()?.len() as u64;
        let header_at = self.take_room(header_bytes + size_bytes)?;
        let (draft, key, sums) = (Arc::clone(self), key.to_string(), Mutex::default());
        Ok(Some(Box::new(GrowingArchive {
            draft,
            key,
            size_bytes,
            header_at,
            data_at: header_at + header_bytes,
            sums,
        })))
    }

    /// Removes members from the directory of the new ZIP file. Returns false if the file already has its real name.
    pub(super) fn remove(&self, remove: impl FnOnce(&Names) -> Result<()>) -> Result<bool> {
        let Some(_unpublished) = self.unpublished() else { return Ok(false) };
        self.is_changed.store(true, Ordering::Relaxed);
        remove(&Names(&self.members)).map(|()| true)
    }

    pub(super) fn stat(&self, key: &Key) -> Result<Option<Stat>> {
        let stat =
            |written: Arc<Written>| Stat { size_bytes: written.size_bytes(), version: Some(written.version.clone()) };
        Ok(self.members.get(key)?.map(stat))
    }

    pub(super) fn list_dir(&self, prefix: &Key) -> Result<Listing> {
        self.members.list_dir(prefix)
    }

    pub(super) fn list(&self, prefix: &Key) -> Result<Vec<String>> {
        self.members.list(prefix)
    }

    /// Whether the draft has changes that the file at the real name lacks.
    pub(super) fn is_changed(&self) -> bool {
        self.is_changed.load(Ordering::Relaxed)
    }

    /// Writes the directory of the ZIP file, and gives the file its real name.
    pub(super) fn publish(&self) -> Result<()> {
        let mut is_published = self.is_published.write().unwrap_or_else(PoisonError::into_inner);
        if *is_published {
            return Ok(());
        }
        self.prepare()?;
        let directory_at = self.end.load(Ordering::Relaxed);
        let keys = self.ordered()?;
        let mut directory = Vec::new();
        let others = self.kept().map_or(&[][..], |kept| &kept.others);
        let mut count = others.len() as u64;
        for key in keys {
            let Some(written) = self.members.get(&key)? else { continue };
            directory.extend(self.entry(&key, &written)?);
            count += 1;
        }
        others.iter().for_each(|record| directory.extend(record));
        let size_bytes = directory.len() as u64;
        if !self.writing.zip64 && count > PLAIN_MEMBERS {
            let message = format!("the ZIP file has {count} members, expected at most {PLAIN_MEMBERS} without ZIP64");
            return Err(Error::new(ErrorKind::StoreFailed, message).with_hint("allow ZIP64"));
        }
        directory.extend(end(count, size_bytes, directory_at - self.moved(), &self.comment()?));
        self.check_size(directory_at + directory.len() as u64)?;
        self.write_at(&directory, directory_at)?;
        let failed = |error| io_error("cannot finish the ZIP file", error);
        self.file.set_len(directory_at + directory.len() as u64).map_err(failed)?;
        if self.writing.durability != Durability::Process {
            self.file.sync_data().map_err(failed)?;
        }
        self.rename().at(|| format!("zip://{}", self.path.display()))?;
        *is_published = true;
        Ok(())
    }

    fn rename(&self) -> Result<()> {
        let failed = |error| io_error("cannot finish the ZIP file", error);
        self.partial.give_name(&self.file).map_err(failed)?;
        let old = fs::metadata(&self.path).ok();
        if let Some(old) = &old {
            fs::set_permissions(self.partial.path(), old.permissions()).map_err(failed)?;
        }
        match &self.expected {
            Expected::Nothing => {
                if !rename_if_absent(self.partial.path(), &self.path).map_err(failed)? {
                    return Err(replaced("another program has made a file of this name since"));
                }
            }
            Expected::File(version) => {
                let found = old.as_ref().and_then(file_version);
                if found.is_none_or(|found| !found.has_same_bytes(version)) {
                    return Err(replaced("the ZIP file was changed by another program since it was opened"));
                }
                fs::rename(self.partial.path(), &self.path).map_err(failed)?;
            }
            Expected::Anything => fs::rename(self.partial.path(), &self.path).map_err(failed)?,
        }
        if self.writing.durability == Durability::DataAndName {
            let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
            fs::File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all()).map_err(failed)?;
        }
        Ok(())
    }

    /// The keys of all members of the new ZIP file, in the order that its directory will have. Documents come first,
    /// upper levels before lower ones, so that a reader of a hierarchy finds them together (OME-Zarr's RFC 9). Chunks
    /// follow in the order in which they lie in the file.
    fn ordered(&self) -> Result<Vec<String>> {
        let mut keys = Vec::new();
        for key in self.members.list("")? {
            let place = self.members.get(&key)?.map_or(0, |written| written.header_at());
            let order = if is_document(&key) { (0, key.matches('/').count() as u64) } else { (1, place) };
            keys.push((order, key));
        }
        keys.sort_unstable();
        Ok(keys.into_iter().map(|(_, key)| key).collect())
    }

    fn entry(&self, key: &Key, written: &Written) -> Result<Vec<u8>> {
        match (&written.record, &written.member) {
            (Some(record), _) => Ok(record.clone()),
            (None, Place::New { is_deflated, header_at, packed_bytes, size_bytes, checksum, .. }) => Described {
                name: key,
                is_deflated: *is_deflated,
                checksum: *checksum,
                packed_bytes: *packed_bytes,
                size_bytes: *size_bytes,
            }
            .entry(header_at - self.moved()),
            (None, Place::Copied(_)) => Err(damaged("a copied member has no entry")),
        }
    }

    /// Number of bytes before the ZIP archive in the file, such as a program that unpacks it. Offsets in the archive do
    /// not count them.
    fn moved(&self) -> u64 {
        self.kept().map_or(0, |kept| kept.moved)
    }

    /// The comment of the file: the old one, or for a file with OME-Zarr's extension the comment of OME-Zarr's RFC 9.
    fn comment(&self) -> Result<Vec<u8>> {
        let is_ome = self.path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("ozx"));
        let own = self.kept().map_or_else(Vec::new, |kept| kept.comment.clone());
        let Some(root) = self.members.get("zarr.json")?.filter(|_| is_ome) else { return Ok(own) };
        let mut bytes = vec![0; usize::try_from(root.size_bytes()).unwrap_or(0)];
        self.read(&root, &mut bytes, 0)?;
        let document: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        Ok(match document.pointer("/attributes/ome/version").and_then(serde_json::Value::as_str) {
            Some(version) => {
                let order = serde_json::json!({"centralDirectory": {"jsonFirst": true}});
                serde_json::json!({"ome": {"version": version, "zipFile": order}}).to_string().into_bytes()
            }
            None => own,
        })
    }

    /// The file in which the bytes of a member lie: the old ZIP file, or the draft.
    fn file_of(&self, written: &Written) -> &fs::File {
        match (&written.member, &self.base) {
            (Place::Copied(_), Some(base)) => &base.file,
            _ => &self.file,
        }
    }

    /// Reads bytes of a member of the draft from byte `offset` of the member on. If these are all of its bytes, their
    /// checksum is verified.
    fn read(&self, written: &Written, bytes: &mut [u8], offset: u64) -> Result<()> {
        let file = self.file_of(written);
        let read_at = |bytes: &mut [u8], offset: u64| {
            read_exact_at(file, bytes, offset).map_err(|error| io_error("cannot read the value", error))
        };
        let (is_deflated, data_at, packed_bytes, checksum) = match &written.member {
            Place::New { is_deflated, data_at, packed_bytes, checksum, .. } => {
                (*is_deflated, *data_at, *packed_bytes, *checksum)
            }
            Place::Copied(member) => {
                let mut header = [0; LOCAL_BYTES as usize];
                read_at(&mut header, member.header_at)?;
                let data_at = member.header_at + member.data_begin(&header)?;
                (member.is_deflated, data_at, member.packed_bytes, member.checksum)
            }
        };
        let size_bytes = written.size_bytes();
        if is_deflated {
            let packed = Packed { file, at: data_at, end: data_at + packed_bytes };
            return inflate(io::BufReader::new(packed), size_bytes, checksum, offset, bytes);
        }
        read_at(bytes, data_at + offset)?;
        if bytes.len() as u64 == size_bytes && crc32fast::hash(bytes) != checksum {
            return Err(damaged("the member's checksum is wrong"));
        }
        Ok(())
    }
}

impl DraftBase {
    /// Fails if another program changed the file after its directory was read.
    fn check_unchanged(&self) -> Result<()> {
        let metadata = self.file.metadata().map_err(|error| io_error("cannot read the ZIP file", error))?;
        let is_same = file_version(&metadata).is_none_or(|found| found.has_same_bytes(&self.version));
        if is_same { Ok(()) } else { Err(replaced("the ZIP file was changed by another program since it was opened")) }
    }
}

fn replaced(message: &str) -> Error {
    Error::new(ErrorKind::StoreFailed, message).with_hint("open it again")
}

/// The keys of a draft's members, from which some can be removed.
pub(super) struct Names<'a>(&'a Values<Arc<Written>>);

impl Names<'_> {
    pub(super) fn remove(&self, keys: &[String]) -> Result<()> {
        self.0.remove(keys)
    }

    pub(super) fn remove_prefix(&self, prefix: &Key) -> Result<()> {
        self.0.remove_prefix(prefix)
    }
}

/// Reads the compressed bytes of one member from the old ZIP file or from the new one.
struct Packed<'a> {
    file: &'a fs::File,
    at: u64,
    end: u64,
}

impl Read for Packed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(bytes.len());
        read_exact_at(self.file, &mut bytes[..count], self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// Opens the members of a ZIP file that is being written, to read them.
pub(super) struct Members(pub(super) Arc<Draft>);

/// A member of the draft that is open for reading.
pub(super) struct OpenMember {
    draft: Arc<Draft>,
    written: Arc<Written>,
}

impl Source for Members {
    type Object = OpenMember;

    fn open(&self, key: &Key) -> Result<Option<OpenMember>> {
        let open = |written| OpenMember { draft: Arc::clone(&self.0), written };
        Ok(self.0.members.get(key)?.map(open))
    }

    fn name(&self) -> String {
        format!("zip://{}", self.0.path.display())
    }
}

impl Object for OpenMember {
    fn size_bytes(&self) -> u64 {
        self.written.size_bytes()
    }

    fn version(&self) -> Option<Version> {
        Some(self.written.version.clone())
    }

    // A checksum covers the whole member.
    fn is_divisible(&self) -> bool {
        false
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        self.draft.read(&self.written, bytes, offset)
    }

    // Bytes in the file are never overwritten.
    fn check_unchanged(&self) -> Result<()> {
        Ok(())
    }
}

/// A member of the new ZIP file whose bytes are written in parts.
struct GrowingArchive {
    draft: Arc<Draft>,
    key: String,
    size_bytes: u64,
    header_at: u64,
    data_at: u64,
    /// For each part of the member that was written: its offset, a hasher with its checksum, and its size.
    sums: Mutex<Vec<(u64, Hasher, u64)>>,
}

impl GrowingArchive {
    fn place(&self) -> String {
        format!("zip://{}: key '{}'", self.draft.path.display(), self.key)
    }
}

impl Unfinished for GrowingArchive {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let size_bytes = bytes.len() as u64;
        if offset.checked_add(size_bytes).is_none_or(|end| end > self.size_bytes) {
            let message = format!("got {size_bytes} bytes from byte {offset} on, the value has {}", self.size_bytes);
            return Err(Error::new(ErrorKind::InvalidArgument, message)).at(|| self.place());
        }
        let Some(_unpublished) = self.draft.unpublished() else { return Err(too_late()).at(|| self.place()) };
        self.draft.write_at(bytes, self.data_at + offset).at(|| self.place())?;
        let mut hasher = Hasher::new();
        hasher.update(bytes);
        self.sums.lock().unwrap_or_else(PoisonError::into_inner).push((offset, hasher, size_bytes));
        Ok(())
    }

    fn shorten(&mut self, _size_bytes: u64) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "a member of a ZIP file has the size that it was begun with"))
            .at(|| self.place())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let Some(_unpublished) = self.draft.unpublished() else { return Err(too_late()).at(|| self.place()) };
        let mut sums = std::mem::take(&mut *self.sums.lock().unwrap_or_else(PoisonError::into_inner));
        sums.sort_unstable_by_key(|&(offset, _, size_bytes)| (offset, size_bytes));
        let next = |at: u64, part: &(u64, Hasher, u64)| (part.0 == at).then_some(at + part.2);
        if sums.iter().try_fold(0, next) != Some(self.size_bytes) {
            let message = format!("the parts do not cover the value's {} bytes once", self.size_bytes);
            return Err(Error::new(ErrorKind::InvalidArgument, message)).at(|| self.place());
        }
        let mut whole = Hasher::new();
        sums.iter().for_each(|(_, part, _)| whole.combine(part));
        let (checksum, size_bytes) = (whole.finalize(), self.size_bytes);
        let described =
            Described { name: &self.key, is_deflated: false, checksum, packed_bytes: size_bytes, size_bytes };
        self.draft.write_at(&described.header()?, self.header_at).at(|| self.place())?;
        let (header_at, data_at) = (self.header_at, self.data_at);
        let member =
            Place::New { is_deflated: false, header_at, data_at, packed_bytes: size_bytes, size_bytes, checksum };
        self.draft.members.insert_if(&self.key, Arc::new(Written::new(member)), |_| true).map(|_| ())
    }
}

fn too_late() -> Error {
    Error::new(ErrorKind::StoreFailed, "the ZIP file was closed before the value was complete")
}
