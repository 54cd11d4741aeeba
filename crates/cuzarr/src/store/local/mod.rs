//! A store in a directory of the local file system. Keys are paths below it, and values are files.
//!
//! **Writes are atomic.** A value is written to a file with another name in the same directory, then renamed. Readers
//! see the old value or the new one. An interrupted write leaves the old value. If the process died, a
//! `.cuzarr-….partial` file is left too. No listing shows that file, and no key can name it. A value that is written in
//! parts begins as a file of this kind, with its full size.
//!
//! **A write waits for the disk only if asked to** ([`Durability`], the configuration key `fsync`). By default it does
//! not wait, like zarr-python.
//!
//! **No key leads outside the root.** Keys that are absolute or contain `..` are refused, and so are symbolic links
//! that lead outside (see [`Symlinks`]). On Linux, the kernel checks this in the call that opens the value (`openat2`
//! with `RESOLVE_BENEATH`). On other systems, and for writes, the real path is compared with that of the root.
//!
//! **Reads** open each value of a batch once, and each shard once per call. The lent threads fill the lent memory by
//! positioned reads. Bytes that are not in the page cache are read through the cache, or bypass it ([`DirectIo`], the
//! configuration key `direct_io`).

mod descriptors;
#[cfg(target_os = "linux")]
mod direct;
mod file;
mod lock;
mod root;

use std::fmt;
use std::fs;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cuzarr_device::Device;

use super::batch::{self, Source};
use super::key::{join_key, validate_key, validate_prefix};
use super::layers::read_only_error;
use super::object::Object;
use super::{
    Capabilities, Condition, Identity, Key, Listing, Lock, Payload, ReadRequest, ReadSink, Stat, Store, Unfinished,
    Workers,
};
use crate::error::{Error, ErrorKind, Result, ResultExt};
use descriptors::Counted;
pub(super) use file::{OpenFile, read_exact_at, rename_if_absent, version_of as file_version, write_all_at};
use root::{Reader, Root};

/// How far a value must be on the disk before a write returns: values of the setting `fsync`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The value need not be on the disk: the operating system writes it later. A crash of the process loses nothing. A
    /// power cut may lose values that were written shortly before.
    #[default]
    Process,
    /// The value's bytes must be on the disk before the value gets its name. A power cut leaves the old value or the
    /// new one.
    Data,
    /// The value's bytes and its name must be on the disk. A value whose write has returned survives a power cut.
    DataAndName,
}

/// Parses a value of the configuration key `fsync`.
impl FromStr for Durability {
    type Err = Error;

    fn from_str(word: &str) -> Result<Durability> {
        match word {
            "none" => Ok(Durability::Process),
            "data" => Ok(Durability::Data),
            "full" => Ok(Durability::DataAndName),
            _ => {
                let message = format!("got fsync '{word}', expected none, data or full");
                Err(Error::new(ErrorKind::InvalidArgument, message))
            }
        }
    }
}

/// Whether reads of bytes that are not in the page cache bypass it: values of the setting `direct_io`.
///
/// A read through the cache leaves the bytes there for the next read. A read that bypasses it (`O_DIRECT`) is faster on
/// fast drives. Small reads always go through the cache, and so do reads on file systems without `O_DIRECT`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectIo {
    /// Reads go through the page cache at first. Once the process has read more than half of the memory that was free,
    /// reads bypass the cache.
    #[default]
    Auto,
    /// Reads bypass the page cache.
    On,
    /// Reads go through the page cache.
    Off,
}

/// Parses a value of the configuration key `direct_io`.
impl FromStr for DirectIo {
    type Err = Error;

    fn from_str(word: &str) -> Result<DirectIo> {
        match word {
            "auto" => Ok(DirectIo::Auto),
            "on" => Ok(DirectIo::On),
            "off" => Ok(DirectIo::Off),
            _ => {
                let message = format!("got direct_io '{word}', expected auto, on or off");
                Err(Error::new(ErrorKind::InvalidArgument, message))
            }
        }
    }
}

/// Which symbolic links a store follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symlinks {
    /// Follow only links whose target lies inside the store's root directory. A key that leads through any other link
    /// is an error, and listings omit such links.
    #[default]
    WithinRoot,
    /// Follow all links, also to targets outside the store's root directory. The path of the root itself may contain
    /// links in any case.
    Everywhere,
}

/// Options of a [`LocalStore`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocalOptions {
    /// Whether the store refuses every write.
    pub read_only: bool,
    /// How far a value must be on the disk before a write returns.
    pub durability: Durability,
    /// Which symbolic links the store follows.
    pub symlinks: Symlinks,
    /// Whether reads of bytes that are not in the page cache bypass it.
    pub direct_io: DirectIo,
}

impl LocalOptions {
    setters! {
        with_read_only(read_only: bool) = read_only;
        with_durability(durability: Durability) = durability;
        with_symlinks(symlinks: Symlinks) = symlinks;
        with_direct_io(direct_io: DirectIo) = direct_io;
    }
}

/// A store that keeps its values as files in a directory of the local file system. Writes are atomic, and no key leads
/// outside the root.
#[derive(Clone)]
pub struct LocalStore {
    root: Arc<Root>,
    options: LocalOptions,
}

/// Maximum number of attempts to write a value, after which the write fails. An attempt fails if another writer deletes
/// the directory meanwhile.
const WRITE_ATTEMPTS: usize = 100;

impl LocalStore {
    /// Makes a store of the values below `root`. The first write creates the directory; until then, all keys are
    /// missing.
    ///
    /// # Errors
    /// `StoreFailed` when `root` is a file, or when it is relative and the working directory is gone.
    pub fn new(root: impl AsRef<Path>) -> Result<Self> {
        LocalStore::with_options(root, LocalOptions::default())
    }

    /// Like [`LocalStore::new`], with options.
    ///
    /// # Errors
    /// Those of [`LocalStore::new`].
    pub fn with_options(root: impl AsRef<Path>, options: LocalOptions) -> Result<Self> {
        let root = Root::new(root.as_ref(), options.symlinks)?;
        Ok(LocalStore { root: Arc::new(root), options })
    }

    /// The absolute path of the store's root directory.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// The options with which the store was made.
    pub fn options(&self) -> LocalOptions {
        self.options
    }

    /// Opens the file of one value, in the same way as a batch does.
    pub(super) fn open_value(&self, key: &Key) -> Result<Option<OpenFile>> {
        Reader::new(Arc::clone(&self.root), self.options.direct_io).open(key)
    }

    fn place(&self, key: &Key) -> String {
        format!("{self}: key '{key}'")
    }

    fn check_writable(&self, key: &Key) -> Result<()> {
        if self.options.read_only { Err(read_only_error(self, key)) } else { Ok(()) }
    }

    /// Like [`Store::put`], but calls `fill` to write the value's bytes into an empty temporary file.
    pub(super) fn put_by(
        &self,
        key: &Key,
        condition: &Condition,
        fill: &dyn Fn(&mut fs::File) -> io::Result<()>,
    ) -> Result<bool> {
        self.check_writable(key)?;
        condition.refuse_versions(self, key)?;
        if *condition == Condition::Always {
            return self.write_then(key, fill, |partial, target| partial.rename(target).map(|()| true));
        }
        if self.stat(key)?.is_some() {
            return Ok(false);
        }
        self.write_then(key, fill, |partial, target| file::rename_if_absent(&partial.path, target))
    }

    fn delete_one(&self, key: &Key) -> Result<()> {
        self.check_writable(key)?;
        validate_value_key(key)?;
        let (parent, name) = key.rsplit_once('/').unwrap_or(("", key));
        let Some(directory) = self.root.directory(parent).at(|| self.place(key))? else { return Ok(()) };
        let path = directory.join(name);
        match fs::remove_file(&path) {
            Err(error) if !is_absence(&error) && !path.is_dir() => {
                Err(io_error("cannot delete the value", error)).at(|| self.place(key))
            }
            _ => Ok(()),
        }
    }

    /// Calls `fill` to write a file with a temporary name, then `publish(temporary, target)`. The temporary file is
    /// gone afterwards, even after a failure.
    fn write_then<T>(
        &self,
        key: &Key,
        fill: &dyn Fn(&mut fs::File) -> io::Result<()>,
        publish: impl Fn(Partial, &Path) -> io::Result<T>,
    ) -> Result<T> {
        self.in_directory(key, |directory, name| self.write_in(directory, name, fill, &publish))
    }

    /// Calls `work` with the directory and the file name in which the value of a key is stored. Calls it again if the
    /// directory vanished meanwhile.
    fn in_directory<T>(&self, key: &Key, work: impl Fn(&Path, &str) -> io::Result<T>) -> Result<T> {
        validate_value_key(key)?;
        let (parent, name) = key.rsplit_once('/').unwrap_or(("", key));
        let mut attempt = 1;
        loop {
            let failure = match self.root.create_directory(parent).at(|| self.place(key))? {
                None => io::ErrorKind::NotFound.into(),
                Some(directory) => match work(&directory, name) {
                    Ok(done) => return Ok(done),
                    Err(error) if directory.join(name).is_dir() => {
                        return Err(in_the_way(error)).at(|| self.place(key));
                    }
                    Err(error) => error,
                },
            };
            if failure.kind() != io::ErrorKind::NotFound || attempt == WRITE_ATTEMPTS {
                return Err(io_error("cannot write the value", failure)).at(|| self.place(key));
            }
            attempt += 1;
        }
    }

    fn write_in<T>(
        &self,
        directory: &Path,
        name: &str,
        fill: &dyn Fn(&mut fs::File) -> io::Result<()>,
        publish: impl Fn(Partial, &Path) -> io::Result<T>,
    ) -> io::Result<T> {
        let (mut file, partial) = Partial::create(directory)?;
        fill(&mut file)?;
        self.sync_bytes(&file)?;
        drop(file);
        let published = publish(partial, &directory.join(name))?;
        self.sync_name(directory)?;
        Ok(published)
    }

    fn sync_bytes(&self, file: &fs::File) -> io::Result<()> {
        if self.options.durability == Durability::Process { Ok(()) } else { file.sync_data() }
    }

    fn sync_name(&self, directory: &Path) -> io::Result<()> {
        match self.options.durability {
            Durability::DataAndName => fs::File::open(directory)?.sync_all(),
            Durability::Process | Durability::Data => Ok(()),
        }
    }
}

/// A value that is written to a temporary file in parts.
struct Growing {
    store: LocalStore,
    key: String,
    size_bytes: u64,
    file: fs::File,
    partial: Partial,
    written_bytes: AtomicU64,
}

impl Growing {
    fn publish(&self, directory: &Path, name: &str) -> io::Result<()> {
        match fs::rename(&self.partial.path, directory.join(name)) {
            // Another writer deleted the directory, and the temporary file with it. The bytes are still in the open
            // handle.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let copy = |file: &mut fs::File| {
                    (&self.file).rewind()?;
                    io::copy(&mut &self.file, file).map(|_| ())
                };
                self.store.write_in(directory, name, &copy, Partial::rename)
            }
            renamed => renamed.and_then(|()| self.store.sync_name(directory)),
        }
    }
}

impl Unfinished for Growing {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let size_bytes = bytes.len() as u64;
        if offset.checked_add(size_bytes).is_none_or(|end| end > self.size_bytes) {
            let message = format!("got {size_bytes} bytes from byte {offset} on, the value has {}", self.size_bytes);
            return Err(Error::new(ErrorKind::InvalidArgument, message)).at(|| self.store.place(&self.key));
        }
        file::write_all_at(&self.file, bytes, offset)
            .map_err(|error| io_error("cannot write the value", error))
            .at(|| self.store.place(&self.key))?;
        self.written_bytes.fetch_add(size_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn shorten(&mut self, size_bytes: u64) -> Result<()> {
        if size_bytes > self.size_bytes {
            let message =
                format!("got a size of {size_bytes} bytes for a value that was begun with {}", self.size_bytes);
            return Err(Error::new(ErrorKind::InvalidArgument, message)).at(|| self.store.place(&self.key));
        }
        self.size_bytes = size_bytes;
        let shortened = self.file.set_len(size_bytes);
        shortened.map_err(|error| io_error("cannot shorten the value", error)).at(|| self.store.place(&self.key))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let written = self.written_bytes.load(Ordering::Relaxed);
        if written != self.size_bytes {
            let message = format!("got {written} bytes, the value has {}", self.size_bytes);
            return Err(Error::new(ErrorKind::InvalidArgument, message)).at(|| self.store.place(&self.key));
        }
        // A network file system sends the bytes when any handle of the file is closed.
        let sent = match self.file.try_clone() {
            Err(error) if descriptors::is_exhaustion(&error) => self.file.sync_data(),
            handle => handle.map(drop),
        };
        let sent = sent.and_then(|()| self.store.sync_bytes(&self.file));
        sent.map_err(|error| io_error("cannot write the value", error)).at(|| self.store.place(&self.key))?;
        self.store.in_directory(&self.key, |directory, name| self.publish(directory, name))
    }
}

impl Store for LocalStore {
    fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers) {
        batch::run(Reader::new(Arc::clone(&self.root), self.options.direct_io), batch, sink, workers);
    }

    fn put(&self, key: &Key, value: Payload<'_>, condition: &Condition) -> Result<bool> {
        value.with_bytes(|bytes| self.put_by(key, condition, &|file| file.write_all(bytes)))
    }

    fn begin(&self, key: &Key, size_bytes: u64) -> Result<Box<dyn Unfinished>> {
        self.check_writable(key)?;
        let (file, partial) = self.in_directory(key, |directory, _| {
            let (file, partial) = Partial::create(directory)?;
            file.set_len(size_bytes)?;
            Ok((file, partial))
        })?;
        let (store, key) = (self.clone(), key.to_string());
        Ok(Box::new(Growing { store, key, size_bytes, file, partial, written_bytes: AtomicU64::new(0) }))
    }

    fn delete_many(&self, keys: &[String]) -> Result<()> {
        keys.iter().try_for_each(|key| self.delete_one(key))
    }

    fn delete_prefix(&self, prefix: &Key) -> Result<()> {
        self.check_writable(prefix)?;
        validate_prefix(prefix)?;
        let deleted = match prefix.rsplit_once('/') {
            _ if prefix.is_empty() => self.root.clear(),
            Some((parent, name)) => self.root.delete_directory(parent, name),
            None => self.root.delete_directory("", prefix),
        };
        deleted.at(|| format!("{self}: prefix '{prefix}'"))
    }

    fn stat(&self, key: &Key) -> Result<Option<Stat>> {
        let object = self.open_value(key).at(|| self.place(key))?;
        Ok(object.map(|object| Stat { size_bytes: object.size_bytes(), version: object.version() }))
    }

    fn list_dir(&self, prefix: &Key) -> Result<Listing> {
        validate_prefix(prefix)?;
        let place = || format!("{self}: prefix '{prefix}'");
        let Some(directory) = self.root.directory(prefix).at(place)? else { return Ok(Listing::default()) };
        let entries = self.root.entries(&directory).at(place)?;
        let mut listing = Listing::default();
        for (name, is_directory) in entries {
            let names = if is_directory { &mut listing.prefixes } else { &mut listing.keys };
            names.push(join_key(prefix, &name));
        }
        listing.keys.sort_unstable();
        listing.prefixes.sort_unstable();
        Ok(listing)
    }

    fn list(&self, prefix: &Key) -> Result<Vec<String>> {
        validate_prefix(prefix)?;
        let place = || format!("{self}: prefix '{prefix}'");
        let mut keys = Vec::new();
        if let Some(directory) = self.root.directory(prefix).at(place)? {
            self.root.walk(&directory, prefix, &mut Vec::new(), &mut keys).at(place)?;
        }
        keys.sort_unstable();
        Ok(keys)
    }

    fn identity(&self) -> Identity {
        Identity::directory(self.root.path())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            read_only: self.options.read_only,
            versions: true,
            divides_reads: true,
            writes_parts: true,
            shortens_parts: true,
            ..Capabilities::default()
        }
    }

    fn is_on(&self, _device: Device) -> bool {
        false
    }

    fn try_lock(&self, prefix: &Key) -> Result<Lock> {
        validate_prefix(prefix)?;
        let place = || format!("{self}: prefix '{prefix}'");
        let Some(directory) = self.root.directory(prefix).at(place)? else { return Ok(Lock::Unsupported) };
        lock::try_lock(&directory).map_err(|error| io_error("cannot lock the directory", error)).at(place)
    }

    fn above(&self) -> Option<(Arc<dyn Store>, String)> {
        let real = fs::canonicalize(self.root.path()).ok()?;
        let name = real.file_name()?.to_str()?.to_string();
        let above = LocalStore::with_options(real.parent()?, self.options).ok()?;
        validate_key(&name).ok()?;
        Some((Arc::new(above), name))
    }
}

impl fmt::Display for LocalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file://{}", self.root.path().display())
    }
}

impl fmt::Debug for LocalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalStore('{self}')")
    }
}

/// The temporary file of an unfinished value, with a name that no key can have. Dropping it removes the file, except in
/// a forked process, which has a copy of this value.
pub(super) struct Partial {
    path: PathBuf,
    process: u32,
    _counted: Counted,
}

const PARTIAL_START: &str = ".cuzarr-";
const PARTIAL_END: &str = ".partial";

impl Partial {
    /// The path of the temporary file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn create(directory: &Path) -> io::Result<(fs::File, Partial)> {
        loop {
            let partial = Partial::named(directory);
            let mut options = fs::OpenOptions::new();
            options.read(true).write(true).create_new(true);
            match descriptors::patiently(|| options.open(&partial.path)) {
                Ok(file) => return Ok((file, partial)),
                // The existing file belongs to another writer, so it must not be removed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => partial.forget(),
                Err(error) => return Err(error),
            }
        }
    }

    /// Like [`Partial::create`], but the file gets a name only when [`Partial::give_name`] is called. If the system
    /// supports files without a name, a process that is killed before that leaves no file.
    pub(super) fn create_nameless(directory: &Path) -> io::Result<(fs::File, Partial)> {
        match file::create_nameless(directory) {
            Some(file) => Ok((file, Partial::named(directory))),
            None => Partial::create(directory),
        }
    }

    /// Gives the temporary file its final name. After that, there is nothing to remove.
    fn rename(self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        self.forget();
        Ok(())
    }

    /// Gives the nameless file its temporary name, unless it already has it.
    pub(super) fn give_name(&self, file: &fs::File) -> io::Result<()> {
        if self.path.exists() { Ok(()) } else { file::give_name(file, &self.path) }
    }

    fn named(directory: &Path) -> Partial {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // The process id distinguishes processes of one machine. The random number distinguishes machines that share a
        // disk.
        let name = format!("{PARTIAL_START}{:x}-{:x}-{number:x}{PARTIAL_END}", std::process::id(), random_number());
        Partial { path: directory.join(name), process: std::process::id(), _counted: Counted::new() }
    }

    /// Drops the `Partial` without deleting its temporary file.
    fn forget(mut self) {
        self.process = 0;
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // An error is ignored: after a rename there is no file, and an earlier failure is reported instead.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns a random number for the name of a temporary file. It comes from the standard library's seed for hash maps.
fn random_number() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

fn is_partial(name: &str) -> bool {
    name.starts_with(PARTIAL_START) && name.ends_with(PARTIAL_END)
}

/// Checks that `key` is valid, and cannot be the name of a temporary file.
fn validate_value_key(key: &Key) -> Result<()> {
    validate_key(key)?;
    if key.split('/').any(is_partial) {
        return Err(Error::new(ErrorKind::KeyInvalid, format!("{key:?} is a name reserved for unfinished values")));
    }
    Ok(())
}

fn in_the_way(error: io::Error) -> Error {
    let message = "cannot write the value: other keys lie below it, and a directory cannot be a file";
    Error::new(ErrorKind::StoreFailed, message).with_source(error)
}

pub(super) fn io_error(what: &str, error: io::Error) -> Error {
    let is_exhaustion = descriptors::is_exhaustion(&error);
    let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
    let is_blocked = error.kind() == io::ErrorKind::NotADirectory;
    let kind = if is_denied { ErrorKind::PermissionDenied } else { ErrorKind::StoreFailed };
    let failure = Error::new(kind, format!("{what}: {error}")).telling(error);
    match () {
        () if is_exhaustion => failure.with_hint("close files, or let the process open more of them: ulimit -n 1024"),
        () if is_denied => failure.with_hint("change the permissions of the place, or choose another one"),
        () if is_blocked => failure.with_hint("a name in this path is a file: choose another name"),
        () => failure,
    }
}

/// Whether an error means that no value is stored under a key. This includes a file in place of a parent directory.
fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests;
