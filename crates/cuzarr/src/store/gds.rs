//! A directory whose values go between files and GPU memory by cuFile (GPUDirect Storage).
//!
//! Reads of a sink on a GPU land in its memory without passing through ours; where the kernel module `nvidia-fs` is
//! there, not through the host at all. Everything else is [`LocalStore`]'s: keys, links, listings, atomic writes. cuFile's
//! compatibility mode is slower than our own pinned slabs, so [`Gds::Auto`] uses cuFile only where it is direct.
//!
//! A file is registered with cuFile once, and stays so while it is among the last that were used: registering costs more
//! than a small read. What is opened is still looked up by its key, so a value that was replaced is never mistaken.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuzarr_device::{Buffer, CuFile, Device, DirectFile};

use super::batch::{self, Object, Source};
use super::local::{LocalOptions, LocalStore, OpenFile};
use super::{
    Capabilities, Condition, Identity, Key, Listing, Payload, ReadRequest, ReadSink, Stat, Store, Version, Workers,
};
use crate::error::{Error, ErrorKind, Result};

/// Files that stay registered.
const REGISTERED: usize = 128;

/// When values go by way of cuFile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gds {
    /// Where the library is installed and drives can write to GPU memory.
    #[default]
    Auto,
    /// Always: also in the library's compatibility mode; without the library reads to a GPU fail.
    On,
    /// Never.
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

/// A directory of the local file system, read and written by cuFile where memory is a GPU's. Cloning shares what is
/// registered.
#[derive(Clone)]
pub struct GdsStore {
    local: LocalStore,
    gds: Gds,
    files: Arc<Files>,
}

impl GdsStore {
    /// The values below `root`. Loads no library yet.
    ///
    /// # Errors
    /// Those of [`LocalStore::new`].
    pub fn new(root: impl AsRef<Path>, gds: Gds, options: LocalOptions) -> Result<Self> {
        Ok(GdsStore { local: LocalStore::with_options(root, options)?, gds, files: Arc::default() })
    }

    /// The root directory, absolute.
    pub fn root(&self) -> &Path {
        self.local.root()
    }

    /// Whether values between files and this device's memory go by way of cuFile. Loads the library for a GPU.
    pub fn uses_cufile(&self, device: Device) -> bool {
        device != Device::Cpu
            && match self.gds {
                Gds::On => true,
                Gds::Off => false,
                Gds::Auto => CuFile::get().is_ok_and(CuFile::is_direct),
            }
    }
}

/// The files that are registered. They are open, so none of their inodes is used for another file.
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

    /// The registered twin of an open file.
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
        // Without the lock: registering takes long, and twice the same file does no harm.
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

/// The same file once more, without the flags it was opened with (cuFile refuses some of them); past the page cache where
/// drives write to GPU memory and the file system can.
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

/// What helps where cuFile is there and refuses a file.
fn with_hint(error: Error) -> Error {
    match error.hint() {
        Some(_) => error,
        None => error
            .with_hint("set gds to 'auto', or let cuFile do without its kernel module: CUFILE_FORCE_COMPAT_MODE=true"),
    }
}

fn failed(what: &str, error: &io::Error) -> Error {
    Error::new(ErrorKind::StoreFailed, format!("{what}: {error}"))
}

/// Opens values for one batch.
struct Reader(GdsStore);

/// A value that is open for reading.
struct Value {
    file: OpenFile,
    files: Arc<Files>,
    gds: Gds,
}

impl Source for Reader {
    type Object = Value;

    fn open(&self, key: &Key) -> Result<Option<Value>> {
        let file = self.0.local.open_value(key)?;
        Ok(file.map(|file| Value { file, files: Arc::clone(&self.0.files), gds: self.0.gds }))
    }

    fn name(&self) -> String {
        self.0.to_string()
    }
}

impl Object for Value {
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
                // A file system that cuFile does not know, on a machine where it knows others.
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
            true => batch::run(Reader(self.clone()), batch, sink, workers),
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

    fn delete_many(&self, keys: &[String]) -> Result<()> {
        self.local.delete_many(keys)
    }

    fn delete_prefix(&self, prefix: &Key) -> Result<()> {
        // What is registered is open, and would keep the disk's space.
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
        // cuFile's reads are not divided.
        Capabilities { divides_reads: false, ..self.local.capabilities() }
    }

    fn is_on(&self, device: Device) -> bool {
        self.uses_cufile(device)
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
