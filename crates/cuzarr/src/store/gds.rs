//! A store in a local directory. cuFile (GPUDirect Storage) moves its values between files and GPU memory.
//!
//! Reads into GPU memory use no memory of this process on the host. With the kernel module `nvidia-fs` they bypass the
//! host completely. [`LocalStore`] does everything else: keys, links, listings, atomic writes. cuFile's compatibility
//! mode is slower than our own pinned slabs, so [`Gds::Auto`] uses cuFile only if drives can write to GPU memory.
//!
//! Registering a file with cuFile takes longer than a small read. So the files used last stay registered. Each read
//! still opens the value by its key, so a replaced value is never mistaken for the old one.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuzarr_device::internal::{CuFile, DirectFile};
use cuzarr_device::{Buffer, Device};

use super::batch::{self, Source};
use super::local::{LocalOptions, LocalStore, OpenFile};
use super::object::Object;
use super::{
    Capabilities, Condition, Identity, Key, Listing, Lock, Payload, ReadRequest, ReadSink, Stat, Store, Unfinished,
    Version, Workers,
};
use crate::error::{Error, ErrorKind, Result};

/// Maximum number of files that stay registered with cuFile.
const REGISTERED: usize = 128;

/// Whether cuFile moves values between files and GPU memory: always, never, or if it can do so directly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gds {
    /// Use cuFile if the library is installed and drives can write to GPU memory.
    #[default]
    Auto,
    /// Always use cuFile, even in its compatibility mode. Without the library, reads into GPU memory fail.
    On,
    /// Never use cuFile.
    Off,
}

impl FromStr for Gds {
    type Err = Error;

    fn from_str(text: &str) -> Result<Gds> {
        match text {
            "auto" => Ok(Gds::Auto),
            "on" => Ok(Gds::On),
            "off" => Ok(Gds::Off),
            _ => Err(Error::new(ErrorKind::ConfigInvalid, format!("gds is '{text}', expected 'auto', 'on' or 'off'"))),
        }
    }
}

/// A store in a local directory that uses cuFile for reads into GPU memory and writes from it. Clones share the
/// registered files.
#[derive(Clone)]
pub struct GdsStore {
    local: LocalStore,
    gds: Gds,
    files: Arc<Files>,
}

impl GdsStore {
    /// Makes a store of the values below `root`. The library is not loaded yet.
    ///
    /// # Errors
    /// Those of [`LocalStore::new`].
    pub fn new(root: impl AsRef<Path>, gds: Gds, options: LocalOptions) -> Result<Self> {
        Ok(GdsStore { local: LocalStore::with_options(root, options)?, gds, files: Arc::default() })
    }

    /// The absolute path of the store's root directory.
    pub fn root(&self) -> &Path {
        self.local.root()
    }

    /// Whether cuFile moves values between files and the memory of `device`. Loads the library if `device` is a GPU.
    pub fn uses_cufile(&self, device: Device) -> bool {
        device != Device::Cpu
            && match self.gds {
                Gds::On => true,
                Gds::Off => false,
                Gds::Auto => CuFile::get().is_ok_and(CuFile::is_direct),
            }
    }
}

/// The files that are registered with cuFile; reading a registered file again is fast. They stay open, so the system
/// cannot give their inodes to other files.
#[derive(Default)]
struct Files(Mutex<Registered>);

#[derive(Default)]
struct Registered {
    files: HashMap<Version, (Arc<DirectFile>, u64)>,
    clock: u64,
}

impl Files {
    fn lock(&self) -> MutexGuard<'_, Registered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the handle under which cuFile knows an open file, and registers the file if necessary.
    fn get(&self, file: &OpenFile) -> Result<Arc<DirectFile>> {
        let version = file.version();
        if let Some(version) = &version {
            let mut registered = self.lock();
            registered.clock += 1;
            let now = registered.clock;
            if let Some((known, used)) = registered.files.get_mut(version) {
                *used = now;
                return Ok(Arc::clone(known));
            }
        }
        // The lock is not held here: registering is slow, and registering one file twice is harmless.
        let fresh =
            Arc::new(DirectFile::new(for_reading(file.file()).map_err(|error| failed("cannot open it", &error))?)?);
        let Some(version) = version else { return Ok(fresh) };
        let mut registered = self.lock();
        if registered.files.len() >= REGISTERED {
            let oldest = registered.files.iter().min_by_key(|(_, (_, used))| *used).map(|(version, _)| version.clone());
            oldest.map(|version| registered.files.remove(&version));
        }
        let now = registered.clock;
        registered.files.insert(version, (Arc::clone(&fresh), now));
        Ok(fresh)
    }

    fn clear(&self) {
        let files = std::mem::take(&mut self.lock().files);
        drop(files);
    }
}

/// Opens a file again for reading, without flags that cuFile refuses. The new handle bypasses the page cache, if drives
/// can write to GPU memory and the file system allows it.
fn for_reading(file: &File) -> io::Result<File> {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        use std::os::unix::fs::OpenOptionsExt;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let open = |flags| std::fs::OpenOptions::new().read(true).custom_flags(flags).open(&path);
        let is_direct = CuFile::get().is_ok_and(CuFile::is_direct);
        let direct = is_direct.then(|| open(rustix::fs::OFlags::DIRECT.bits() as i32).ok()).flatten();
        if let Some(again) = direct.or_else(|| open(0).ok()) {
            return Ok(again);
        }
    }
    file.try_clone()
}

/// Adds a hint to an error, in case cuFile is installed but refuses a file.
fn with_hint(error: Error) -> Error {
    match error.hint() {
        Some(_) => error,
        None => error
            .with_hint("set gds to 'auto', or set CUFILE_FORCE_COMPAT_MODE=true so that cuFile needs no kernel module"),
    }
}

fn failed(what: &str, error: &io::Error) -> Error {
    Error::new(ErrorKind::StoreFailed, format!("{what}: {error}"))
}

/// Opens the values of a store that uses cuFile, for the reads of one batch.
struct GdsReader(GdsStore);

/// A value that was opened for reads with cuFile.
struct GdsValue {
    file: OpenFile,
    files: Arc<Files>,
    gds: Gds,
}

impl Source for GdsReader {
    type Object = GdsValue;

    fn open(&self, key: &Key) -> Result<Option<GdsValue>> {
        let file = self.0.local.open_value(key)?;
        Ok(file.map(|file| GdsValue { file, files: Arc::clone(&self.0.files), gds: self.0.gds }))
    }

    fn name(&self) -> String {
        self.0.to_string()
    }
}

impl Object for GdsValue {
    fn size_bytes(&self) -> u64 {
        self.file.size_bytes()
    }

    fn version(&self) -> Option<Version> {
        self.file.version()
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    fn on_device(
        &self,
        _device: Device,
        range: Range<u64>,
        reserve: &dyn Fn() -> Result<Buffer>,
    ) -> Result<Option<Buffer>> {
        let buffer = reserve()?;
        if buffer.size_bytes() == 0 {
            return Ok(Some(buffer));
        }
        match self.files.get(&self.file) {
            Ok(direct) => direct.read_exact_at(&buffer, range.start)?,
            Err(_) if self.gds == Gds::Auto => {
                // cuFile works on this machine, but does not support this file system.
                let host = Buffer::zeroed(Device::Cpu, buffer.size_bytes())?;
                self.file.read_exact_at(&mut host.host_bytes_mut()?, range.start)?;
                buffer.copy_from(&host)?;
            }
            Err(error) => return Err(with_hint(error)),
        }
        Ok(Some(buffer))
    }

    fn check_unchanged(&self) -> Result<()> {
        self.file.check_unchanged()
    }
}

impl Store for GdsStore {
    fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers) {
        match self.uses_cufile(sink.device()) {
            true => batch::run(GdsReader(self.clone()), batch, sink, workers),
            false => self.local.read(batch, sink, workers),
        }
    }

    fn put(&self, key: &Key, value: Payload<'_>, condition: &Condition) -> Result<bool> {
        let Payload::Buffer(buffer) = value else { return self.local.put(key, value, condition) };
        if !self.uses_cufile(buffer.device()) {
            return self.local.put(key, value, condition);
        }
        self.local.put_by(key, condition, &|file| match DirectFile::new(file.try_clone()?) {
            Ok(direct) => direct.write_all_at(buffer, 0).map_err(io::Error::other),
            Err(_) if self.gds == Gds::Auto => file.write_all(&buffer.to_vec().map_err(io::Error::other)?),
            Err(error) => Err(io::Error::other(with_hint(error.into()))),
        })
    }

    fn begin(&self, key: &Key, size_bytes: u64) -> Result<Box<dyn Unfinished>> {
        self.local.begin(key, size_bytes)
    }

    fn delete_many(&self, keys: &[String]) -> Result<()> {
        self.local.delete_many(keys)
    }

    fn delete_prefix(&self, prefix: &Key) -> Result<()> {
        // Open files keep their disk space, so the registered ones are closed.
        self.files.clear();
        self.local.delete_prefix(prefix)
    }

    fn stat(&self, key: &Key) -> Result<Option<Stat>> {
        self.local.stat(key)
    }

    fn list_dir(&self, prefix: &Key) -> Result<Listing> {
        self.local.list_dir(prefix)
    }

    fn list(&self, prefix: &Key) -> Result<Vec<String>> {
        self.local.list(prefix)
    }

    fn identity(&self) -> Identity {
        self.local.identity()
    }

    fn capabilities(&self) -> Capabilities {
        // Reads by cuFile are not divided.
        Capabilities { divides_reads: false, ..self.local.capabilities() }
    }

    fn is_on(&self, device: Device) -> bool {
        self.uses_cufile(device)
    }

    fn try_lock(&self, prefix: &Key) -> Result<Lock> {
        self.local.try_lock(prefix)
    }

    fn above(&self) -> Option<(Arc<dyn Store>, String)> {
        self.local.above()
    }
}

impl fmt::Display for GdsStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.local, f)
    }
}

impl fmt::Debug for GdsStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GdsStore('{self}', gds {:?})", self.gds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conforms_whatever_gds_is() {
        for gds in [Gds::Auto, Gds::On, Gds::Off] {
            let directories = Mutex::new(Vec::new());
            super::super::conformance::run(&|| {
                let directory = tempfile::tempdir().unwrap();
                let store = GdsStore::new(directory.path().join("root"), gds, LocalOptions::default()).unwrap();
                directories.lock().unwrap().push(directory);
                Arc::new(store)
            });
        }
    }

    #[test]
    fn knows_its_words() {
        assert_eq!("auto".parse::<Gds>().unwrap(), Gds::Auto);
        assert_eq!("yes".parse::<Gds>().unwrap_err().kind(), ErrorKind::ConfigInvalid);
    }
}
