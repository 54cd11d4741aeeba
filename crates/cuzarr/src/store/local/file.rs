//! Operations that differ between operating systems: positioned reads and writes, and renaming without replacing.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;
#[cfg(target_os = "linux")]
use std::sync::OnceLock;
use std::time::SystemTime;

use super::super::Version;
use super::super::object::Object;
use super::descriptors::Counted;
#[cfg(target_os = "linux")]
use super::direct;
use super::{DirectIo, io_error};
use crate::error::{Error, ErrorKind, Result};

/// A file that was opened to read a value.
pub(in super::super) struct OpenFile {
    file: File,
    #[cfg(target_os = "linux")]
    cold: Cold,
    size_bytes: u64,
    modified: Option<SystemTime>,
    version: Option<Version>,
    _counted: Counted,
}

impl OpenFile {
    /// Wraps an open file; `None` if it is a directory, which is not a value.
    pub(super) fn new(file: File, direct_io: DirectIo) -> Result<Option<Self>> {
        let metadata = file.metadata().map_err(|error| io_error("cannot get the value's size", error))?;
        if metadata.is_dir() {
            return Ok(None);
        }
        if !metadata.is_file() {
            return Err(Error::new(ErrorKind::StoreFailed, "the value is neither a file nor a directory"));
        }
        let (size_bytes, modified, version) = (metadata.len(), metadata.modified().ok(), version_of(&metadata));
        Ok(Some(OpenFile {
            file,
            #[cfg(target_os = "linux")]
            cold: Cold { direct_io, around: OnceLock::new() },
            size_bytes,
            modified,
            version,
            _counted: Counted::new(),
        }))
    }
}

/// How bytes of a value's file that are not in the page cache are read.
#[cfg(target_os = "linux")]
struct Cold {
    direct_io: DirectIo,
    /// A second handle of the file that bypasses the page cache, opened when it is first needed; `None` if the file
    /// system does not support it.
    around: OnceLock<Option<File>>,
}

impl OpenFile {
    /// The file handle with which the value was opened.
    pub(in super::super) fn file(&self) -> &File {
        &self.file
    }

    #[cfg(target_os = "linux")]
    fn fill(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let Cold { direct_io, around } = &self.cold;
        let size_bytes = bytes.len();
        let is_around = *direct_io != DirectIo::Off
            && size_bytes >= direct::LEAST_BYTES
            && direct::is_cold(&self.file, offset..offset + size_bytes as u64)
            && (*direct_io == DirectIo::On || !direct::page_cache_has_room(size_bytes));
        if is_around {
            let around = around.get_or_init(|| direct::open(&self.file));
            // On failure, the plain read below tries again, and reports its own error.
            if let Some(Ok(())) = around.as_ref().map(|around| direct::read_exact_at(around, bytes, offset)) {
                return Ok(());
            }
        }
        read_exact_at(&self.file, bytes, offset)
    }

    #[cfg(not(target_os = "linux"))]
    fn fill(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        read_exact_at(&self.file, bytes, offset)
    }
}

#[cfg(unix)]
pub(in super::super) fn version_of(metadata: &Metadata) -> Option<Version> {
    use std::os::unix::fs::MetadataExt;
    let ns = |seconds: i64, ns: i64| seconds.wrapping_mul(1_000_000_000).wrapping_add(ns) as u64;
    let modified_ns = ns(metadata.mtime(), metadata.mtime_nsec());
    let changed_ns = ns(metadata.ctime(), metadata.ctime_nsec());
    Some(Version::of_file(metadata.dev(), metadata.ino(), metadata.len(), modified_ns, changed_ns))
}

#[cfg(not(unix))]
pub(in super::super) fn version_of(_metadata: &Metadata) -> Option<Version> {
    None
}

impl Object for OpenFile {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn version(&self) -> Option<Version> {
        self.version.clone()
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        self.fill(bytes, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => changed(&format!("it had {} bytes, and is shorter now", self.size_bytes)),
            _ => io_error("cannot read the value", error),
        })
    }

    fn check_unchanged(&self) -> Result<()> {
        let metadata = self.file.metadata().map_err(|error| io_error("cannot get the value's size", error))?;
        if metadata.len() != self.size_bytes {
            return Err(changed(&format!("it had {} bytes, and has {} now", self.size_bytes, metadata.len())));
        }
        if metadata.modified().ok() != self.modified {
            return Err(changed("its modification time changed"));
        }
        Ok(())
    }
}

fn changed(how: &str) -> Error {
    Error::new(ErrorKind::StoreFailed, format!("the value changed in place while it was read: {how}"))
}

#[cfg(unix)]
pub(in super::super) fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(windows)]
pub(in super::super) fn read_exact_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                bytes = &mut bytes[count..];
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(unix)]
pub(in super::super) fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(windows)]
pub(in super::super) fn write_all_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_write(file, bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                bytes = &bytes[count..];
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Creates a file without a name; `None` if the system or the file system does not support that.
pub(super) fn create_nameless(directory: &Path) -> Option<File> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{Mode, OFlags};
        let mode = Mode::from_raw_mode(0o666);
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        // The file will get its name through this directory.
        let has_links = Path::new("/proc/self/fd").is_dir();
        has_links.then(|| rustix::fs::open(directory, flags, mode).ok().map(File::from))?
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = directory;
        None
    }
}

/// Gives a name to a file that was created without one.
pub(super) fn give_name(file: &File, path: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{AtFlags, CWD, linkat};
        use std::os::fd::AsRawFd;
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(linkat(CWD, link.as_str(), CWD, path, AtFlags::SYMLINK_FOLLOW)?)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        Err(io::Error::new(io::ErrorKind::NotFound, format!("'{}' is gone", path.display())))
    }
}

/// Renames a file to its final name, unless that name is taken. Returns whether it did.
pub(in super::super) fn rename_if_absent(partial: &Path, target: &Path) -> io::Result<bool> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, partial, CWD, target, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(true),
            Err(Errno::EXIST) => return taken(target),
            // Older kernels and some file systems do not support the flag, but they support hard links.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match std::fs::hard_link(partial, target) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken(target),
        Err(error) => Err(error),
    }
}

/// The result of giving a file a name that is taken: false if a value has it; an error if a directory has it.
fn taken(target: &Path) -> io::Result<bool> {
    if target.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(false) }
}
