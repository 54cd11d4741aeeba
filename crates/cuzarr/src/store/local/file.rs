//! What differs between operating systems: positioned reads, and renaming without replacing.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;
use std::time::SystemTime;

use super::super::Version;
use super::super::batch::Object;
use super::io_error;
use crate::error::{Error, ErrorKind, Result};

/// A value that is open for reading.
pub(in super::super) struct OpenFile {
    file: File,
    size_bytes: u64,
    modified: Option<SystemTime>,
    version: Option<Version>,
}

impl OpenFile {
    /// Wraps an open file; `None` when it is a directory, so no value.
    pub(super) fn new(file: File) -> Result<Option<Self>> {
        let metadata = file.metadata().map_err(|error| io_error("cannot ask for the value's size", error))?;
        if metadata.is_dir() {
            return Ok(None);
        }
        if !metadata.is_file() {
            return Err(Error::new(ErrorKind::StoreFailed, "the value is neither a file nor a directory"));
        }
        let (size_bytes, modified, version) = (metadata.len(), metadata.modified().ok(), version_of(&metadata));
        Ok(Some(OpenFile { file, size_bytes, modified, version }))
    }
}

impl OpenFile {
    /// The file itself.
    pub(in super::super) fn file(&self) -> &File {
        &self.file
    }
}

#[cfg(unix)]
fn version_of(metadata: &Metadata) -> Option<Version> {
    use std::os::unix::fs::MetadataExt;
    let ns = |seconds: i64, ns: i64| seconds.wrapping_mul(1_000_000_000).wrapping_add(ns) as u64;
    let modified_ns = ns(metadata.mtime(), metadata.mtime_nsec());
    let changed_ns = ns(metadata.ctime(), metadata.ctime_nsec());
    Some(Version::of_file((metadata.dev(), metadata.ino()), metadata.len(), modified_ns, changed_ns))
}

#[cfg(not(unix))]
fn version_of(_metadata: &Metadata) -> Option<Version> {
    None
}

impl Object for OpenFile {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn version(&self) -> Option<Version> {
        self.version
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        read_exact_at(&self.file, bytes, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => changed(&format!("it had {} bytes, and is shorter now", self.size_bytes)),
            _ => io_error("cannot read the value", error),
        })
    }

    fn check_unchanged(&self) -> Result<()> {
        let metadata = self.file.metadata().map_err(|error| io_error("cannot ask for the value's size", error))?;
        if metadata.len() != self.size_bytes {
            return Err(changed(&format!("it had {} bytes, and has {} now", self.size_bytes, metadata.len())));
        }
        if metadata.modified().ok() != self.modified {
            return Err(changed("its time of modification moved"));
        }
        Ok(())
    }
}

fn changed(how: &str) -> Error {
    Error::new(ErrorKind::StoreFailed, format!("the value changed in place while it was read: {how}"))
}

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
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

/// Gives a file its final name, unless that name is taken; says whether it did.
pub(super) fn rename_if_absent(partial: &Path, target: &Path) -> io::Result<bool> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, partial, CWD, target, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(true),
            Err(Errno::EXIST) => return taken(target),
            // Older kernels and some file systems do not know the flag; they know hard links.
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

/// The name is taken: by a value, or by a directory, which no value can replace.
fn taken(target: &Path) -> io::Result<bool> {
    if target.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(false) }
}
