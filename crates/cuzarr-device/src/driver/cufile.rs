//! cuFile, NVIDIA's library that reads files straight into GPU memory, if it is installed.
//!
//! If storage, file system and kernel module (`nvidia-fs`) support it, bytes go from the drive to the GPU and bypass
//! the host. Otherwise the library works in its compatibility mode and copies through its own pinned memory. A file is
//! registered once and read any number of times, from any thread.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::c_layout::c_layout;
use crate::driver::backend::Backend;
use crate::driver::library;
use crate::error::{Error, ErrorKind, Result};

/// The environment variable that names the cuFile library to use, instead of searching for one.
pub(crate) const LIBRARY_VARIABLE: &str = "CUZARR_CUFILE_LIBRARY";
/// The file names under which cuFile is searched for.
pub(crate) const LIBRARY_NAMES: [&str; 2] = ["libcufile.so.0", "libcufile.so"];

const HINT: &str =
    "install cuFile (pip install nvidia-cufile-cu12, or the CUDA toolkit), or set gds to 'auto' or 'off'";

/// `CUfileError_t`: cuFile's error code. If it reports a driver error, `cuda` is the driver's code.
#[repr(C)]
#[derive(Clone, Copy)]
struct CufileStatus {
    code: c_int,
    cuda: c_int,
}

/// `CUfileDescr_t`: the file to register, as cuFile wants it described.
#[repr(C)]
struct Description {
    kind: c_int,
    handle: DescriptorOrPointer,
    operations: *const c_void,
}

#[repr(C)]
union DescriptorOrPointer {
    descriptor: c_int,
    /// A pointer in cuFile's structure that cuzarr does not use. It makes the union as wide as the library's.
    _pointer: *mut c_void,
}

const KIND_DESCRIPTOR: c_int = 1;
/// The lowest of cuFile's own error codes. Smaller numbers are `errno` values.
const FIRST_CODE: isize = 5000;

/// The beginning of `CUfileDrvProps_t`, with room for fields that later versions add.
#[repr(C)]
struct CufileProperties {
    major_version: u32,
    rest: [u64; 32],
}

// The layouts of cufile.h, version 1.0 and later. The library writes its `CUfileDrvProps_t` (56 bytes in version 1)
// into `CufileProperties`.
#[cfg(target_pointer_width = "64")]
mod layouts {
    use super::*;

    c_layout! { CufileStatus: 8 bytes { code at 0, cuda at 4 } }
    c_layout! { DescriptorOrPointer: 8 bytes { descriptor at 0 } }
    c_layout! { Description: 24 bytes { kind at 0, handle at 8, operations at 16 } }
    c_layout! { CufileProperties: 264 bytes { major_version at 0 } }
    const _: () = assert!(size_of::<CufileProperties>() >= 56 && align_of::<CufileProperties>() >= align_of::<usize>());
}

type CufileHandle = *mut c_void;
type TransferFunction = unsafe extern "C" fn(CufileHandle, *mut c_void, usize, i64, i64) -> isize;

/// The cuFile library, loaded and started once.
pub struct CuFile {
    register: unsafe extern "C" fn(*mut CufileHandle, *mut Description) -> CufileStatus,
    deregister: unsafe extern "C" fn(CufileHandle),
    read: TransferFunction,
    write: TransferFunction,
    path: PathBuf,
    is_direct: bool,
    process: u32,
}

static CUFILE: OnceLock<Result<CuFile>> = OnceLock::new();

impl CuFile {
    /// Returns the cuFile library, loaded and started at the first call.
    ///
    /// # Errors
    /// `LibraryMissing` when there is none, it does not start, or this process was forked after it had started.
    pub fn get() -> Result<&'static CuFile> {
        let cufile = CUFILE.get_or_init(|| CuFile::load().map_err(|error| error.or_hint(HINT)));
        match cufile {
            Ok(cufile) if cufile.process == std::process::id() => Ok(cufile),
            Ok(_) => Err(Error::new(ErrorKind::LibraryMissing, "cuFile was started before this process was forked")
                .with_hint("start worker processes with 'spawn' or 'forkserver'")),
            Err(error) => Err(error.clone()),
        }
    }

    fn load() -> Result<CuFile> {
        let found = library::open(LIBRARY_VARIABLE, &LIBRARY_NAMES)?;
        let from = &found.library;
        // SAFETY: names and types are those of cufile.h.
        let (open, properties, mut cufile) = unsafe {
            (
                library::symbol::<unsafe extern "C" fn() -> CufileStatus>(from, "cuFileDriverOpen")?,
                library::symbol::<unsafe extern "C" fn(*mut CufileProperties) -> CufileStatus>(
                    from,
                    "cuFileDriverGetProperties",
                )?,
                CuFile {
                    register: library::symbol(from, "cuFileHandleRegister")?,
                    deregister: library::symbol(from, "cuFileHandleDeregister")?,
                    read: library::symbol(from, "cuFileRead")?,
                    write: library::symbol(from, "cuFileWrite")?,
                    path: found.path,
                    is_direct: false,
                    process: std::process::id(),
                },
            )
        };
        // The library's threads and exit handlers run its code until the process ends.
        std::mem::forget(found.library);
        // SAFETY: may be called any number of times.
        check("cuFileDriverOpen", unsafe { open() }).map_err(|error| {
            let message = format!("cuFile at {} does not start: {}", cufile.path.display(), error.message());
            Error::new(ErrorKind::LibraryMissing, message)
        })?;
        let mut found = CufileProperties { major_version: 0, rest: [0; 32] };
        // SAFETY: writes a structure that is smaller than ours.
        if check("cuFileDriverGetProperties", unsafe { properties(&mut found) }).is_ok() {
            // The version of nvidia-fs; 0 if the module is not loaded.
            cufile.is_direct = found.major_version > 0;
        }
        Ok(cufile)
    }

    /// Whether the kernel module that lets drives write to GPU memory is loaded. Without it, reads go through the host.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Path of the cuFile library.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn check(call: &str, status: CufileStatus) -> Result<()> {
    match status {
        CufileStatus { code: 0, .. } => Ok(()),
        CufileStatus { code, cuda: 0 } => {
            Err(Error::new(ErrorKind::DeviceFailed, format!("{call} failed with {}", describe(code))))
        }
        CufileStatus { code, cuda } => {
            let message = format!("{call} failed with {} and CUDA error {cuda}", describe(code));
            Err(Error::new(ErrorKind::DeviceFailed, message))
        }
    }
}

/// Describes a cuFile error code in words, if it is one that users may meet.
fn describe(code: c_int) -> String {
    let words = match code {
        5001 => "the nvidia-fs module is not loaded and compatibility mode is off",
        5004 | 5005 => "the nvidia-fs module does not suit the library",
        5007 => "the platform is not supported",
        5008 => "the file system is not supported",
        5009 => "the GPU is not supported",
        5011 => "the CUDA driver failed",
        5012..=5014 => "the memory is not a GPU's",
        5015 => "another CUDA context is current",
        5018 => "no regular file",
        5019 => "the file was opened with flags it does not take",
        5025 => "permission denied",
        5027 => "it finds no description of the file's drive; a container needs /run/udev of its host",
        5036 => "no GPU memory can be pinned",
        _ => return format!("cuFile error {code}"),
    };
    format!("cuFile error {code} ({words})")
}

/// Direction of a transfer between a file and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Bytes move from the file to memory.
    Read,
    /// Bytes move from memory to the file.
    Write,
}

/// A file that is registered with cuFile, which may then read it into GPU memory. `drop` deregisters it.
pub(crate) struct FileHandle {
    cufile: &'static CuFile,
    handle: usize,
}

impl CuFile {
    /// Registers a file with cuFile, so that cuFile can read it straight into GPU memory. The caller keeps the file
    /// open as long as the handle.
    ///
    /// # Errors
    /// `DeviceFailed` when the library refuses the file.
    pub(crate) fn register(&'static self, file: &File) -> Result<FileHandle> {
        let handle = DescriptorOrPointer { descriptor: descriptor(file)? };
        let mut description = Description { kind: KIND_DESCRIPTOR, handle, operations: std::ptr::null() };
        let mut handle = std::ptr::null_mut();
        // SAFETY: the library reads one local and writes a handle to another. `file` is open during the call.
        check("cuFileHandleRegister", unsafe { (self.register)(&mut handle, &mut description) })?;
        Ok(FileHandle { cufile: self, handle: handle as usize })
    }
}

impl FileHandle {
    /// Moves `size_bytes` bytes between the file, starting at `offset`, and device memory. Returns when the bytes are
    /// there.
    ///
    /// # Errors
    /// `DeviceFailed`, also when the file is shorter.
    ///
    /// # Safety
    /// `address` points to `size_bytes` bytes of this backend's device, which stay valid during the call. The file is
    /// still open. `offset + size_bytes` fits 63 bits.
    pub(crate) unsafe fn transfer(
        &self,
        direction: Direction,
        backend: &dyn Backend,
        address: usize,
        size_bytes: usize,
        offset: u64,
    ) -> Result<()> {
        let (call, function) = match direction {
            Direction::Read => ("cuFileRead", self.cufile.read),
            Direction::Write => ("cuFileWrite", self.cufile.write),
        };
        let mut done = 0;
        while done < size_bytes {
            let (rest, at) = (size_bytes - done, (offset + done as u64) as i64);
            let (handle, address) = (self.handle as CufileHandle, address as *mut c_void);
            let (mut count, mut errno) = (0, 0);
            // The library uses the current context.
            backend.with_current(&mut || {
                // SAFETY: the handle is registered until `drop`; the caller promises `size_bytes` bytes of this device at
                // `address`, of which the last `rest` begin at `done`.
                count = unsafe { function(handle, address, rest, at, done as i64) };
                errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            })?;
            match count {
                1.. => done += (count as usize).min(rest),
                0 => {
                    let message = format!("{call} got {done} of {size_bytes} bytes: the file is shorter");
                    return Err(Error::new(ErrorKind::DeviceFailed, message));
                }
                -1 => {
                    let cause = std::io::Error::from_raw_os_error(errno);
                    return Err(Error::new(ErrorKind::DeviceFailed, format!("{call} failed: {cause}")));
                }
                _ if -count >= FIRST_CODE => {
                    let message = format!("{call} failed with {}", describe((-count) as c_int));
                    return Err(Error::new(ErrorKind::DeviceFailed, message));
                }
                _ => {
                    let cause = std::io::Error::from_raw_os_error((-count) as i32);
                    return Err(Error::new(ErrorKind::DeviceFailed, format!("{call} failed: {cause}")));
                }
            }
        }
        Ok(())
    }
}

impl Drop for FileHandle {
    fn drop(&mut self) {
        // In a forked child, the handle belongs to the parent's copy of the library.
        if self.cufile.process == std::process::id() {
            // SAFETY: `register` made the handle, and only this value has it. No call on it is running: calls borrow
            // it.
            unsafe { (self.cufile.deregister)(self.handle as CufileHandle) };
        }
    }
}

#[cfg(unix)]
fn descriptor(file: &File) -> Result<c_int> {
    Ok(std::os::fd::AsRawFd::as_raw_fd(file))
}

#[cfg(not(unix))]
fn descriptor(_file: &File) -> Result<c_int> {
    Err(Error::new(ErrorKind::Unsupported, "cuFile exists on Linux only"))
}
