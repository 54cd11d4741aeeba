//! Locks on directories, by `flock`. The system releases them when their process ends, even by a crash.

use std::fs;
use std::io;
use std::path::Path;

use super::super::Lock;

/// Tries to lock a directory, without waiting. On file systems that cannot lock directories, such as some network file
/// systems, returns [`Lock::Unsupported`].
#[cfg(unix)]
pub(super) fn try_lock(directory: &Path) -> io::Result<Lock> {
    use std::os::unix::fs::MetadataExt;

    use rustix::fs::{FlockOperation, flock};
    use rustix::io::Errno;

    let file = match fs::File::open(directory) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Lock::Unsupported),
        // The directory may be writable but not readable.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(Lock::Unsupported),
        Err(error) => return Err(error),
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(Lock::Busy),
        Err(_) => return Ok(Lock::Unsupported),
    }
    let locked = file.metadata()?;
    let held = HeldLock { file, process: std::process::id() };
    // If the directory was deleted and created again meanwhile, the lock is on the old one.
    match fs::metadata(directory) {
        Ok(found) if (found.dev(), found.ino()) == (locked.dev(), locked.ino()) => Ok(Lock::Held(Box::new(held))),
        _ => Ok(Lock::Busy),
    }
}

#[cfg(not(unix))]
pub(super) fn try_lock(_directory: &Path) -> io::Result<Lock> {
    Ok(Lock::Unsupported)
}

/// A lock on a directory that this process holds, until it is dropped. It is released explicitly: a forked child has a
/// copy of the handle, so closing the handle here would not release it.
#[cfg(unix)]
struct HeldLock {
    file: fs::File,
    process: u32,
}

#[cfg(unix)]
impl Drop for HeldLock {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // If this fails, the lock still ends with the handle.
            let _ = rustix::fs::flock(&self.file, rustix::fs::FlockOperation::Unlock);
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn one_caller_at_a_time_holds_a_directory() {
        let folder = tempfile::tempdir().unwrap();
        let held = try_lock(folder.path()).unwrap();
        assert!(matches!(held, Lock::Held(_)));
        assert!(matches!(try_lock(folder.path()).unwrap(), Lock::Busy));
        drop(held);
        assert!(matches!(try_lock(folder.path()).unwrap(), Lock::Held(_)));
        assert!(matches!(try_lock(&folder.path().join("missing")).unwrap(), Lock::Unsupported));
    }
}
