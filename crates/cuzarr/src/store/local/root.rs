//! The root directory of a local store, and access that cannot leave it.

use std::fs;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::{AsFd, BorrowedFd};
#[cfg(target_os = "linux")]
use std::path::Component;
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(target_os = "linux")]
use std::sync::OnceLock;
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::batch::Source;
use super::super::key::{join_key, validate_key};
use super::super::{Key, Symlinks, hint_about_file};
use super::descriptors::patiently;
use super::file::OpenFile;
use super::{DirectIo, io_error, is_absence, is_partial};
use crate::error::{Error, ErrorKind, Result};

/// Maximum number of attempts to delete a directory into which another writer puts files; then the deletion fails.
const DELETE_ATTEMPTS: usize = 100;

/// The root directory of a local store, with access to its files that cannot leave it. The directory need not exist.
pub(super) struct Root {
    path: PathBuf,
    symlinks: Symlinks,
    /// Whether a symbolic link was found on the path to a value of this store. If so, later values are opened through
    /// the root's handle, without a first attempt that allows no links.
    #[cfg(target_os = "linux")]
    has_links: AtomicBool,
}

impl Root {
    pub(super) fn new(path: &Path, symlinks: Symlinks) -> Result<Self> {
        let path = std::path::absolute(path).map_err(|error| io_error("cannot resolve the store's path", error))?;
        if path.is_file() {
            let message = format!("'{}' is a file, expected a directory", path.display());
            return Err(Error::new(ErrorKind::StoreFailed, message).with_hint(hint_about_file(&path)));
        }
        // If the path contains `..`, it may lead through links.
        #[cfg(target_os = "linux")]
        let has_links = path.components().any(|name| name == Component::ParentDir);
        Ok(Root {
            path,
            symlinks,
            #[cfg(target_os = "linux")]
            has_links: AtomicBool::new(has_links),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The real path of the directory of `prefix`; `None` if it does not exist.
    pub(super) fn directory(&self, prefix: &Key) -> Result<Option<PathBuf>> {
        let Some(real) = self.resolve(prefix)? else { return Ok(None) };
        Ok(real.is_dir().then_some(real))
    }

    /// Like [`Root::directory`], but creates missing levels, one at a time, so that none lies outside the root. `None`
    /// if another writer deletes a level meanwhile.
    pub(super) fn create_directory(&self, prefix: &Key) -> Result<Option<PathBuf>> {
        if let Some(real) = self.resolve(prefix)? {
            return require_directory(real, prefix);
        }
        let created = if prefix.is_empty() {
            fs::create_dir_all(&self.path)
        } else {
            let (parent, name) = prefix.rsplit_once('/').unwrap_or(("", prefix));
            let Some(parent) = self.create_directory(parent)? else { return Ok(None) };
            fs::create_dir(parent.join(name))
        };
        match created {
            Ok(()) => {}
            // Another writer made it. A link to nowhere also ends here; it is detected below.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let place = if prefix.is_empty() { self.path.clone() } else { self.path.join(prefix) };
                return Err(io_error(&format!("cannot create the directory '{}'", place.display()), error));
            }
        }
        match self.resolve(prefix)? {
            Some(real) => require_directory(real, prefix),
            None => Ok(None),
        }
    }

    /// The real path of a key or prefix, with all links followed; `None` if nothing is there.
    ///
    /// # Errors
    /// `KeyInvalid` when a link leads outside and such links are refused.
    fn resolve(&self, key: &Key) -> Result<Option<PathBuf>> {
        let path = if key.is_empty() { self.path.clone() } else { self.path.join(key) };
        #[cfg(target_os = "linux")]
        if let Some(is_there) = self.is_there_without_links(&path) {
            return Ok(is_there.then_some(path));
        }
        let real = match fs::canonicalize(&path) {
            Ok(real) => real,
            Err(error) if is_absence(&error) => return Ok(None),
            Err(error) => return Err(io_error("cannot follow the path", error)),
        };
        if self.symlinks == Symlinks::Everywhere || key.is_empty() || self.contains(&real)? {
            return Ok(Some(real));
        }
        Err(leads_outside())
    }

    /// Whether a path exists and contains no link. Then it is its own real path. The check takes one system call
    /// instead of one per level. `None` if the path contains links, or the kernel cannot tell.
    #[cfg(target_os = "linux")]
    fn is_there_without_links(&self, path: &Path) -> Option<bool> {
        use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
        use rustix::io::Errno;
        if self.has_links.load(Ordering::Relaxed) {
            return None;
        }
        match openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            Ok(_) => Some(true),
            Err(Errno::NOENT | Errno::NOTDIR) => Some(false),
            Err(error) => {
                self.has_links.fetch_or(error == Errno::LOOP, Ordering::Relaxed);
                None
            }
        }
    }

    #[cfg(test)]
    pub(super) fn resolve_for_tests(&self, key: &Key) -> Result<Option<PathBuf>> {
        self.resolve(key)
    }

    fn contains(&self, real: &Path) -> Result<bool> {
        let root = fs::canonicalize(&self.path).map_err(|error| io_error("cannot follow the store's path", error))?;
        Ok(real.starts_with(root))
    }

    /// The names of files and directories in `directory` that can be parts of keys, and for each whether it is a
    /// directory. Leaves out unfinished values, names that are not UTF-8, links that are not followed, and special
    /// files.
    pub(super) fn entries(&self, directory: &Path) -> Result<Vec<(String, bool)>> {
        let reader = match fs::read_dir(directory) {
            Ok(reader) => reader,
            Err(error) if is_absence(&error) => return Ok(Vec::new()),
            Err(error) => return Err(io_error("cannot list the directory", error)),
        };
        let mut entries = Vec::new();
        for entry in reader {
            let entry = entry.map_err(|error| io_error("cannot list the directory", error))?;
            let Some(name) = entry.file_name().to_str().map(String::from) else { continue };
            if is_partial(&name) || validate_key(&name).is_err() {
                continue;
            }
            if let Some(is_directory) = self.kind_of(&entry)? {
                entries.push((name, is_directory));
            }
        }
        Ok(entries)
    }

    /// Whether an entry of a directory is a directory (`true`) or a file (`false`), with allowed links followed; `None`
    /// for other kinds.
    fn kind_of(&self, entry: &fs::DirEntry) -> Result<Option<bool>> {
        let file_type = match entry.file_type() {
            Ok(file_type) => file_type,
            Err(error) if is_absence(&error) => return Ok(None),
            Err(error) => return Err(io_error("cannot list the directory", error)),
        };
        if !file_type.is_symlink() {
            return Ok((file_type.is_dir() || file_type.is_file()).then(|| file_type.is_dir()));
        }
        let Ok(real) = fs::canonicalize(entry.path()) else { return Ok(None) };
        if self.symlinks == Symlinks::WithinRoot && !self.contains(&real)? {
            return Ok(None);
        }
        Ok(fs::metadata(&real).ok().filter(|target| target.is_dir() || target.is_file()).map(|target| target.is_dir()))
    }

    /// Lists the keys of all files below a directory. `above` has the real paths from the start to this directory. A
    /// link back to one of them is not followed, because the walk would never end.
    pub(super) fn walk(
        &self,
        directory: &Path,
        prefix: &str,
        above: &mut Vec<PathBuf>,
        keys: &mut Vec<String>,
    ) -> Result<()> {
        above.push(directory.to_path_buf());
        for (name, is_directory) in self.entries(directory)? {
            let key = join_key(prefix, &name);
            if !is_directory {
                keys.push(key);
                continue;
            }
            match fs::canonicalize(directory.join(name)) {
                Ok(real) if !above.contains(&real) => self.walk(&real, &key, above, keys)?,
                _ => {}
            }
        }
        above.pop();
        Ok(())
    }

    /// Deletes a directory and everything in it. Links are removed, not followed.
    pub(super) fn delete_directory(&self, parent: &Key, name: &str) -> Result<()> {
        let Some(directory) = self.directory(parent)? else { return Ok(()) };
        delete(&directory.join(name))
    }

    /// Deletes everything in the root directory, but not the directory itself.
    pub(super) fn clear(&self) -> Result<()> {
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if is_absence(&error) => return Ok(()),
            Err(error) => return Err(io_error("cannot list the directory", error)),
        };
        for entry in entries {
            let entry = entry.map_err(|error| io_error("cannot list the directory", error))?;
            match entry.file_type() {
                Ok(file_type) if file_type.is_dir() => delete(&entry.path())?,
                _ => match fs::remove_file(entry.path()) {
                    Err(error) if !is_absence(&error) => return Err(io_error("cannot delete a value", error)),
                    _ => {}
                },
            }
        }
        Ok(())
    }
}

/// Deletes a directory and everything in it. A link to a directory is removed, but not its target. A file is a value,
/// so it stays.
fn delete(directory: &Path) -> Result<()> {
    match fs::symlink_metadata(directory) {
        Err(error) if is_absence(&error) => return Ok(()),
        Ok(found) if found.is_symlink() && !directory.is_dir() => return Ok(()),
        Ok(found) if found.is_file() => return Ok(()),
        _ => {}
    }
    for attempt in 1.. {
        match fs::remove_dir_all(directory) {
            Err(error) if is_absence(&error) => break,
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && attempt < DELETE_ATTEMPTS => {
                std::thread::yield_now();
            }
            Err(error) => return Err(io_error("cannot delete the directory", error)),
            Ok(()) => break,
        }
    }
    Ok(())
}

fn leads_outside() -> Error {
    Error::new(ErrorKind::KeyInvalid, "a symbolic link leads outside the store").with_hint(
        "replace the link by the data that it points to, or in Rust open the store with Symlinks::Everywhere",
    )
}

/// Checks that a path that should be a directory is one; `None` if it vanished meanwhile.
fn require_directory(real: PathBuf, prefix: &Key) -> Result<Option<PathBuf>> {
    match fs::metadata(&real) {
        Ok(found) if found.is_dir() => Ok(Some(real)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("cannot follow the path", error)),
        Ok(_) => {
            let message = format!("'{prefix}' is a value, so nothing can lie below it");
            Err(Error::new(ErrorKind::StoreFailed, message))
        }
    }
}

/// Opens the files of values in a local store, for the reads of one batch.
pub(super) struct Reader {
    root: Arc<Root>,
    direct_io: DirectIo,
    /// The handle of the root directory, opened when it is first needed. It is kept for one batch only, because a
    /// directory that is deleted and created again needs a new handle.
    #[cfg(target_os = "linux")]
    handle: OnceLock<Option<fs::File>>,
    /// Whether this batch of reads has opened any value yet.
    #[cfg(target_os = "linux")]
    has_begun: AtomicBool,
}

impl Reader {
    pub(super) fn new(root: Arc<Root>, direct_io: DirectIo) -> Self {
        Reader {
            root,
            direct_io,
            #[cfg(target_os = "linux")]
            handle: OnceLock::new(),
            #[cfg(target_os = "linux")]
            has_begun: AtomicBool::new(false),
        }
    }

    pub(super) fn open_value(&self, key: &Key) -> Result<Option<OpenFile>> {
        #[cfg(target_os = "linux")]
        if let Some(opened) = self.open_beneath(key) {
            return opened;
        }
        let Some(real) = self.root.resolve(key)? else { return Ok(None) };
        match patiently(|| open_for_reading(&real)) {
            Ok(file) => OpenFile::new(file, self.direct_io),
            Err(error) if is_absence(&error) => Ok(None),
            Err(error) => Err(io_error("cannot open the value", error)),
        }
    }

    /// Opens the file of a value with one system call that cannot leave the root. `None` if that call cannot decide:
    /// the kernel is too old, a link is absolute (and may still lead inside), or a rename interfered.
    #[cfg(target_os = "linux")]
    fn open_beneath(&self, key: &Key) -> Option<Result<Option<OpenFile>>> {
        use rustix::fs::{CWD, ResolveFlags};
        let Root { path, symlinks, has_links } = &*self.root;
        // Most batches have one value, and most paths have no link. For them, the root itself need not be opened.
        if !self.has_begun.swap(true, Ordering::Relaxed) && !has_links.load(Ordering::Relaxed) {
            let opened = self.open_at(CWD, &path.join(key), ResolveFlags::NO_SYMLINKS);
            if opened.is_some() {
                return opened;
            }
            has_links.store(true, Ordering::Relaxed);
        }
        let handle = self.handle.get_or_init(|| patiently(|| fs::File::open(path)).ok());
        let resolve = match symlinks {
            Symlinks::WithinRoot => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
            Symlinks::Everywhere => ResolveFlags::empty(),
        };
        self.open_at(handle.as_ref()?.as_fd(), Path::new(key), resolve)
    }

    #[cfg(target_os = "linux")]
    fn open_at(
        &self,
        directory: BorrowedFd<'_>,
        path: &Path,
        resolve: rustix::fs::ResolveFlags,
    ) -> Option<Result<Option<OpenFile>>> {
        use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
        use rustix::io::Errno;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = patiently(|| Ok(openat2(directory, path, flags, Mode::empty(), resolve)?));
        let opened = opened.map_err(|error| (Errno::from_io_error(&error), error));
        match opened {
            Ok(file) => Some(OpenFile::new(fs::File::from(file), self.direct_io)),
            Err((Some(Errno::NOENT | Errno::NOTDIR), _)) => Some(Ok(None)),
            Err((Some(Errno::LOOP), _)) if resolve == ResolveFlags::NO_SYMLINKS => None,
            Err((Some(Errno::XDEV | Errno::AGAIN | Errno::NOSYS | Errno::PERM | Errno::INVAL | Errno::TOOBIG), _)) => {
                None
            }
            Err((_, error)) => Some(Err(io_error("cannot open the value", error))),
        }
    }
}

impl Source for Reader {
    type Object = OpenFile;

    fn open(&self, key: &Key) -> Result<Option<OpenFile>> {
        super::validate_value_key(key)?;
        self.open_value(key)
    }

    fn name(&self) -> String {
        format!("file://{}", self.root.path().display())
    }
}

/// Opens a file for reading whose path was checked already. Does not wait for the other end of a pipe, and does not
/// follow a link that replaced the file after the check.
fn open_for_reading(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        // The bits of the flags are small positive numbers on every system.
        options.custom_flags((OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY).bits() as i32);
    }
    options.open(path)
}
