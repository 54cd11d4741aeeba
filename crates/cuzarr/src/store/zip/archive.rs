//! A local ZIP file as a store, for reading and writing.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuzarr_device::Device;

use super::super::batch;
use super::super::key::{validate_key, validate_prefix};
use super::super::layers::read_only_error;
use super::super::local::{Durability, LocalOptions, LocalStore, Symlinks};
use super::super::{
    Capabilities, Condition, Identity, Key, Listing, Lock, Payload, ReadRequest, ReadSink, Stat, Store, Unfinished,
    Workers, no_parts,
};
use super::ZipStore;
use super::draft::{Draft, DraftWriting, Expected, Members, Names};
use crate::error::{Error, ErrorKind, Result, ResultExt};

/// How a [`ZipArchive`] treats the file at its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZipMode {
    /// Reads the existing file, and writes nothing.
    Read,
    /// Reads the file, and writes a new file with its members and the added ones. The file need not exist.
    Append,
    /// Writes a new file, which replaces an existing one when it is complete.
    Replace,
    /// Writes a new file; no file with its name may exist yet.
    Create,
}

/// Options of a [`ZipArchive`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ZipOptions {
    /// Whether the file is read, appended to, replaced or created.
    pub mode: ZipMode,
    /// The level, 1 to 9, with which deflate compresses new members of the ZIP file. `None` stores them uncompressed,
    /// which suits chunks.
    pub deflate: Option<u32>,
    /// Whether the file may be larger than 2 GiB, or have more than 65,534 members; if not, exceeding this is an error.
    pub zip64: bool,
    /// How far the file must be on the disk before [`ZipArchive::finish`] returns.
    pub durability: Durability,
}

impl Default for ZipOptions {
    fn default() -> Self {
        ZipOptions { mode: ZipMode::Read, deflate: None, zip64: true, durability: Durability::default() }
    }
}

impl ZipOptions {
    setters! {
        with_mode(mode: ZipMode) = mode;
        with_deflate(deflate: Option<u32>) = deflate;
        with_zip64(zip64: bool) = zip64;
        with_durability(durability: Durability) = durability;
    }
}

/// A local ZIP file, for reading and writing. Clones share it.
///
/// Members are written to a new file in the same folder. It has no name, or a temporary name if the system does not
/// support files without a name. [`ZipArchive::finish`] gives it the real name. Until then, and if the process is
/// killed, the real name keeps the old file, if there was one. An archive that is dropped unfinished leaves no file.
/// The file is opened when it is first used. A value that is overwritten or deleted leaves its bytes in the file, where
/// no reader sees them. But if all values of an old file are deleted before anything is written, their bytes are not
/// kept.
///
/// ```
/// use cuzarr::store::{Store, StoreExt, ZipArchive, ZipMode, ZipOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.zip");
/// let archive = ZipArchive::new(&path, ZipOptions::default().with_mode(ZipMode::Create))?;
/// archive.write("a/b", b"bytes")?;
/// assert!(!path.exists());
/// archive.finish()?;
/// assert_eq!(ZipArchive::new(&path, ZipOptions::default())?.get("a/b")?.as_deref(), Some(&b"bytes"[..]));
/// # Ok::<(), cuzarr::Error>(())
/// ```
#[derive(Clone)]
pub struct ZipArchive(Arc<ArchiveShared>);

struct ArchiveShared {
    path: PathBuf,
    options: ZipOptions,
    /// The number of the process that made this archive. A forked process has a copy of this value, but the file
    /// belongs to its parent.
    process: u32,
    state: Mutex<State>,
}

struct State {
    mode: ZipMode,
    view: View,
    is_closed: bool,
}

#[derive(Clone)]
enum View {
    Unopened,
    Old(ZipStore),
    New(Arc<Draft>),
}

impl ZipArchive {
    /// Makes an archive at `path`. Nothing is read or written yet.
    ///
    /// # Errors
    /// `StoreFailed` when `path` is a directory, or exists and the mode is [`ZipMode::Create`]; `InvalidArgument` for
    /// an unknown level of deflate.
    pub fn new(path: impl AsRef<Path>, options: ZipOptions) -> Result<ZipArchive> {
        let path = path.as_ref();
        if options.deflate.is_some_and(|level| !(1..=9).contains(&level)) {
            let message = format!("got deflate level {}, expected 1 to 9", options.deflate.unwrap_or(0));
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        // If the path is a link, the file behind it is replaced, not the link.
        let path = match path.canonicalize() {
            Ok(real) => real,
            Err(_) => std::path::absolute(path).map_err(|error| {
                Error::new(ErrorKind::StoreFailed, format!("zip://{}: {error}", path.display())).telling(error)
            })?,
        };
        let refusal = match options.mode {
            _ if path.is_dir() => Some("this is a directory, expected a file"),
            ZipMode::Create if path.exists() => Some("the file exists already"),
            _ => None,
        };
        if let Some(reason) = refusal {
            return Err(Error::new(ErrorKind::StoreFailed, format!("zip://{}: {reason}", path.display())));
        }
        let state = State { mode: options.mode, view: View::Unopened, is_closed: false };
        Ok(ZipArchive(Arc::new(ArchiveShared { path, options, process: std::process::id(), state: Mutex::new(state) })))
    }

    /// The absolute path of the ZIP file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Completes the file and gives it its real name, if anything was written. Later writes to the archive add to that
    /// file.
    ///
    /// # Errors
    /// `StoreFailed` when another program changed the file meanwhile, or the system reports an error. Then the old file
    /// remains, and the written members can be finished later.
    pub fn finish(&self) -> Result<()> {
        self.finish_in(&mut self.state())
    }

    /// Like [`ZipArchive::finish`], but also refuses later writes.
    ///
    /// # Errors
    /// Those of [`ZipArchive::finish`].
    pub fn close(&self) -> Result<()> {
        let mut state = self.state();
        state.is_closed = true;
        self.finish_in(&mut state)
    }

    fn finish_in(&self, state: &mut State) -> Result<()> {
        if let View::New(draft) = &state.view {
            if self.0.process != std::process::id() {
                return Ok(());
            }
            if draft.is_changed() {
                draft.publish()?;
                state.mode = ZipMode::Append;
            }
        }
        state.view = View::Unopened;
        Ok(())
    }

    /// Discards everything that was written since the file was opened or finished.
    pub fn discard(&self) {
        let view = std::mem::replace(&mut self.state().view, View::Unopened);
        drop(view);
    }

    /// Whether there are changes that [`ZipArchive::finish`] has not yet put into the file with the real name.
    pub fn is_unfinished(&self) -> bool {
        matches!(&self.state().view, View::New(draft) if draft.is_changed())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the file to read from: the one at the path, or the draft that will replace it.
    fn view(&self) -> Result<View> {
        self.view_in(&mut self.state())
    }

    fn view_in(&self, state: &mut State) -> Result<View> {
        if let View::Unopened = state.view {
            let is_read = match state.mode {
                ZipMode::Read => true,
                ZipMode::Append => self.0.path.exists(),
                ZipMode::Replace | ZipMode::Create => false,
            };
            state.view = if is_read { View::Old(self.open()?) } else { View::New(self.begin_draft(state)?) };
        }
        Ok(state.view.clone())
    }

    /// Returns the new ZIP file into which values are written, and begins it if there is none. An old file is copied
    /// first.
    fn draft(&self) -> Result<Arc<Draft>> {
        let mut state = self.state();
        if state.is_closed {
            return Err(Error::new(ErrorKind::ReadOnly, "the ZIP file was closed")).at(|| self.to_string());
        }
        let draft = match self.view_in(&mut state)? {
            View::New(draft) => return Ok(draft),
            View::Unopened => self.begin_draft(&state)?,
            View::Old(old) => {
                let writing = self.writing();
                Arc::new(Draft::copy(&self.0.path, &old.archive, writing).at(|| self.to_string())?)
            }
        };
        state.view = View::New(Arc::clone(&draft));
        Ok(draft)
    }

    fn begin_draft(&self, state: &State) -> Result<Arc<Draft>> {
        let expected = match state.mode {
            ZipMode::Replace => Expected::Anything,
            ZipMode::Create | ZipMode::Append | ZipMode::Read => Expected::Nothing,
        };
        Ok(Arc::new(Draft::create(&self.0.path, self.writing(), expected).at(|| self.to_string())?))
    }

    fn writing(&self) -> DraftWriting {
        let ZipOptions { deflate, zip64, durability, .. } = self.0.options;
        DraftWriting { deflate, zip64, durability }
    }

    fn open(&self) -> Result<ZipStore> {
        open_zip_file(&self.0.path)
    }

    fn check_writable(&self, key: &Key) -> Result<()> {
        if self.0.options.mode == ZipMode::Read { Err(read_only_error(self, key)) } else { Ok(()) }
    }

    fn place(&self, key: &Key) -> String {
        format!("{self}: key '{key}'")
    }

    /// Calls `write` with the draft, which is the ZIP file that values are written into. If the draft got its name
    /// meanwhile, `write` returns `None`, and is called again with a new draft.
    fn in_draft<T>(&self, key: &Key, write: impl Fn(&Arc<Draft>) -> Result<Option<T>>) -> Result<T> {
        self.check_writable(key)?;
        loop {
            if let Some(written) = write(&self.draft()?).at(|| self.place(key))? {
                return Ok(written);
            }
        }
    }

    fn remove(&self, key: &Key, remove: impl Fn(&Names) -> Result<()>) -> Result<()> {
        self.in_draft(key, |draft| Ok(draft.remove(&remove)?.then_some(())))
    }
}

/// Opens a local ZIP file for reading.
///
/// # Errors
/// Those of [`ZipStore::open`].
pub(in crate::store) fn open_zip_file(place: &Path) -> Result<ZipStore> {
    let name = place.file_name().and_then(|name| name.to_str()).unwrap_or("");
    let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The user named this file, so it may be a link to any place.
    let options = LocalOptions { symlinks: Symlinks::Everywhere, read_only: true, ..LocalOptions::default() };
    ZipStore::open(Arc::new(LocalStore::with_options(folder, options)?), name)
}

impl Store for ZipArchive {
    fn read(&self, requests: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers) {
        match self.view() {
            Ok(View::Old(old)) => old.read(requests, sink, workers),
            Ok(View::New(draft)) => batch::run(Members(draft), requests, sink, workers),
            Ok(View::Unopened) => {}
            Err(error) => (0..requests.len()).for_each(|index| sink.done(index, Err(error.clone()))),
        }
    }

    fn put(&self, key: &Key, value: Payload<'_>, condition: &Condition) -> Result<bool> {
        validate_key(key)?;
        self.in_draft(key, |draft| draft.put(key, value, condition))
    }

    fn begin(&self, key: &Key, size_bytes: u64) -> Result<Box<dyn Unfinished>> {
        validate_key(key)?;
        if !self.capabilities().writes_parts {
            return no_parts(self, key);
        }
        self.in_draft(key, |draft| draft.begin(key, size_bytes))
    }

    fn delete_many(&self, keys: &[String]) -> Result<()> {
        let Some(first) = keys.first() else { return Ok(()) };
        self.check_writable(first)?;
        // If the file has none of these keys, it need not be copied.
        let mut is_here = false;
        for key in keys {
            is_here |= self.stat(key)?.is_some();
        }
        if is_here { self.remove(first, |names| names.remove(keys)) } else { Ok(()) }
    }

    fn delete_prefix(&self, prefix: &Key) -> Result<()> {
        validate_prefix(prefix)?;
        self.check_writable(prefix)?;
        if self.list(prefix)?.is_empty() {
            return Ok(());
        }
        self.remove(prefix, |names| names.remove_prefix(prefix))
    }

    fn stat(&self, key: &Key) -> Result<Option<Stat>> {
        match self.view()? {
            View::Old(old) => old.stat(key),
            View::New(draft) => draft.stat(key),
            View::Unopened => Ok(None),
        }
    }

    fn list_dir(&self, prefix: &Key) -> Result<Listing> {
        match self.view()? {
            View::Old(old) => old.list_dir(prefix),
            View::New(draft) => draft.list_dir(prefix),
            View::Unopened => Ok(Listing::default()),
        }
    }

    fn list(&self, prefix: &Key) -> Result<Vec<String>> {
        match self.view()? {
            View::Old(old) => old.list(prefix),
            View::New(draft) => draft.list(prefix),
            View::Unopened => Ok(Vec::new()),
        }
    }

    fn identity(&self) -> Identity {
        Identity::directory(&self.0.path)
    }

    fn capabilities(&self) -> Capabilities {
        let is_written = self.0.options.mode != ZipMode::Read;
        Capabilities {
            read_only: !is_written,
            deletes: is_written,
            conditional_writes: is_written,
            // Readers see nothing before `finish`.
            transactional: is_written,
            far: false,
            versions: true,
            divides_reads: true,
            writes_parts: is_written && self.0.options.deflate.is_none(),
            shortens_parts: false,
        }
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

impl fmt::Display for ZipArchive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "zip://{}", self.0.path.display())
    }
}

impl fmt::Debug for ZipArchive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ZipArchive('{self}')")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::store::{ByteRange, StoreExt};

    fn options(mode: ZipMode, deflate: Option<u32>) -> ZipOptions {
        ZipOptions { mode, deflate, ..ZipOptions::default() }
    }

    fn files(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn keeps_the_promises_of_stores() {
        for deflate in [None, Some(1)] {
            let folders = std::sync::Mutex::new(Vec::new());
            crate::store::conformance::run(&|| {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("a.zip");
                folders.lock().unwrap().push(folder);
                Arc::new(ZipArchive::new(path, options(ZipMode::Create, deflate)).unwrap())
            });
        }
    }

    #[test]
    fn the_name_has_the_old_archive_until_the_new_one_is_finished() {
        for deflate in [None, Some(6)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.zip");
            let new = ZipArchive::new(&path, options(ZipMode::Create, deflate)).unwrap();
            new.write("a/b", &[7; 5000]).unwrap();
            new.write("zarr.json", b"{}").unwrap();
            assert!(!path.exists() && new.is_unfinished());
            assert_eq!(new.get("a/b").unwrap().unwrap(), [7; 5000]);
            new.finish().unwrap();
            assert_eq!(files(folder.path()), 1);
            let old = fs::read(&path).unwrap();

            let more = ZipArchive::new(&path, options(ZipMode::Append, deflate)).unwrap();
            more.write("a/b", b"again").unwrap();
            more.write("c", b"new").unwrap();
            more.delete("zarr.json").unwrap();
            assert_eq!(more.list("").unwrap(), ["a/b", "c"]);
            assert_eq!(fs::read(&path).unwrap(), old);
            assert!(files(folder.path()) <= 2, "the new file may have a temporary name");
            more.finish().unwrap();
            let read = ZipArchive::new(&path, options(ZipMode::Read, None)).unwrap();
            assert_eq!(read.list("").unwrap(), ["a/b", "c"]);
            assert_eq!(read.get("a/b").unwrap().unwrap(), b"again");
            assert_eq!(read.get("c").unwrap().unwrap(), b"new");

            let dropped = ZipArchive::new(&path, options(ZipMode::Replace, deflate)).unwrap();
            dropped.write("d", b"never").unwrap();
            drop(dropped);
            assert_eq!(files(folder.path()), 1);
            assert_eq!(read.get("c").unwrap().unwrap(), b"new");
            assert!(ZipArchive::new(&path, options(ZipMode::Create, deflate)).is_err());
        }
    }

    #[test]
    fn values_that_are_all_deleted_first_leave_no_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.zip");
        let old = ZipArchive::new(&path, options(ZipMode::Create, None)).unwrap();
        old.write("zarr.json", b"{}").unwrap();
        old.write("c/0", &[1; 100_000]).unwrap();
        old.finish().unwrap();
        let new = ZipArchive::new(&path, options(ZipMode::Append, None)).unwrap();
        new.delete("zarr.json").unwrap();
        assert_eq!(new.get("c/0").unwrap().unwrap(), [1; 100_000]);
        new.delete_prefix("").unwrap();
        new.write("c/1", b"new").unwrap();
        assert_eq!(old.get("c/0").unwrap().unwrap(), [1; 100_000]);
        new.finish().unwrap();
        assert!(fs::metadata(&path).unwrap().len() < 1000);
        assert_eq!(new.list("").unwrap(), ["c/1"]);
        assert_eq!(new.get("c/1").unwrap().unwrap(), b"new");
    }

    #[test]
    fn without_zip64_a_file_has_few_members_and_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let settings = ZipOptions { zip64: false, ..options(ZipMode::Create, None) };
        let archive = ZipArchive::new(folder.path().join("a.zip"), settings).unwrap();
        (0..65_534).for_each(|number| archive.write(&number.to_string(), b"").unwrap());
        archive.finish().unwrap();
        archive.write("more", b"").unwrap();
        assert_eq!(archive.finish().unwrap_err().hint(), Some("allow ZIP64"));
        let large = ZipArchive::new(folder.path().join("b.zip"), settings).unwrap();
        let error = large.begin("a", 1 << 31).err().unwrap();
        assert!(error.message().contains("expected at most 2147483647"), "{error}");
    }

    #[test]
    fn an_archive_that_another_program_changed_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.zip");
        let first = ZipArchive::new(&path, options(ZipMode::Create, None)).unwrap();
        let second = ZipArchive::new(&path, options(ZipMode::Append, None)).unwrap();
        first.write("a", b"first").unwrap();
        second.write("a", b"second").unwrap();
        first.finish().unwrap();
        assert_eq!(second.finish().unwrap_err().kind(), ErrorKind::StoreFailed);
        let read = ZipArchive::new(&path, ZipOptions::default()).unwrap();
        assert_eq!(read.get("a").unwrap().unwrap(), b"first");
    }

    #[test]
    fn a_damaged_member_of_an_archive_that_is_written_fails_its_checksum_where_all_of_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.zip");
        let old = ZipArchive::new(&path, options(ZipMode::Create, None)).unwrap();
        old.write("a", &[7; 100]).unwrap();
        old.close().unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let place = bytes.windows(100).position(|window| window == [7; 100]).unwrap();
        bytes[place + 50] ^= 0x10;
        fs::write(&path, &bytes).unwrap();
        let more = ZipArchive::new(&path, options(ZipMode::Append, None)).unwrap();
        more.write("b", b"new").unwrap();
        let error = more.get("a").unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::StoreFailed, "the member's checksum is wrong"));
        let part = ByteRange::Span { offset: 0, size_bytes: 99 };
        assert_eq!(more.get_range("a", part).unwrap().unwrap(), bytes[place..place + 99]);
        assert_eq!(more.get("b").unwrap().unwrap(), b"new");
    }

    #[test]
    fn parts_must_cover_a_value_once() {
        let folder = tempfile::tempdir().unwrap();
        let archive = ZipArchive::new(folder.path().join("a.zip"), options(ZipMode::Create, None)).unwrap();
        assert_eq!(archive.list("").unwrap().len(), 0);
        archive.finish().unwrap();
        assert_eq!(files(folder.path()), 0, "nothing was written");
        let value = archive.begin("a", 6).unwrap();
        value.write_at(3, b"def").unwrap();
        value.write_at(0, b"abc").unwrap();
        value.finish().unwrap();
        assert_eq!(archive.get("a").unwrap().unwrap(), b"abcdef");
        let value = archive.begin("b", 6).unwrap();
        value.write_at(0, b"abc").unwrap();
        value.write_at(0, b"abc").unwrap();
        assert_eq!(value.finish().unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(archive.list("").unwrap(), ["a"]);
    }

    #[test]
    fn many_members_are_counted_by_zip64() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.zip");
        let archive = ZipArchive::new(&path, options(ZipMode::Create, None)).unwrap();
        for number in 0..100_000u32 {
            archive.write(&format!("c/{number}"), &number.to_le_bytes()).unwrap();
        }
        archive.close().unwrap();
        assert_eq!(archive.write("d", b"late").unwrap_err().kind(), ErrorKind::ReadOnly);
        let read = ZipArchive::new(&path, ZipOptions::default()).unwrap();
        assert_eq!(read.list("").unwrap().len(), 100_000);
        assert_eq!(read.get("c/99999").unwrap().unwrap(), 99_999u32.to_le_bytes());
    }
}
