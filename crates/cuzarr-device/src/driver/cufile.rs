//! cuFile, NVIDIA's library that reads files straight into GPU memory, where there is one.
//!
//! Where storage, file system and kernel module (`nvidia-fs`) agree, bytes go from the drive to the GPU and the host sees
//! none of them; elsewhere the library works in its compatibility mode, by way of its own pinned memory. A file is
//! registered once and read any number of times, from any thread.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::device::Device;
use crate::driver::context::Context;
use crate::driver::library;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::buffer::Buffer;

/// Names the library to use instead of looking for one.
pub(crate) const LIBRARY_VARIABLE: &str = "CUZARR_CUFILE_LIBRARY";
/// What the library is called.
pub(crate) const LIBRARY_NAMES: [&str; 2] = ["libcufile.so.0", "libcufile.so"];

const HINT: &str =
    "install cuFile (pip install nvidia-cufile-cu12, or the CUDA toolkit), or set gds to 'auto' or 'off'";

/// `CUfileError_t`: the library's code and, when that says so, the driver's.
#[repr(C)]
#[derive(Clone, Copy)]
struct Status {
    code: c_int,
    cuda: c_int,
}

/// `CUfileDescr_t`.
#[repr(C)]
struct Description {
    kind: c_int,
    handle: DescriptorOrPointer,
    operations: *const c_void,
}

#[repr(C)]
union DescriptorOrPointer {
    descriptor: c_int,
    /// Not used here; it makes the union as wide as the library's.
    _pointer: *mut c_void,
}

const KIND_DESCRIPTOR: c_int = 1;
/// The codes of the library begin here; smaller ones are errno's.
const FIRST_CODE: isize = 5000;

/// The beginning of `CUfileDrvProps_t`, with room for what later versions add.
#[repr(C)]
struct Properties {
    major_version: u32,
    rest: [u64; 32],
}

type Handle = *mut c_void;
type Transfer = unsafe extern "C" fn(Handle, *mut c_void, usize, i64, i64) -> isize;

/// The library, loaded and started once.
pub struct CuFile {
    register: unsafe extern "C" fn(*mut Handle, *mut Description) -> Status,
    deregister: unsafe extern "C" fn(Handle),
    read: Transfer,
    write: Transfer,
    path: PathBuf,
    is_direct: bool,
    process: u32,
}

static CUFILE: OnceLock<std::result::Result<CuFile, String>> = OnceLock::new();

impl CuFile {
    /// The library, started.
    ///
    /// # Errors
    /// `LibraryMissing` when there is none, it does not start, or this process was forked after it had started.
    pub fn get() -> Result<&'static CuFile> {
        let cufile = CUFILE.get_or_init(|| CuFile::load().map_err(|error| error.message().to_string()));
        match cufile {
            Ok(cufile) if cufile.process == std::process::id() => Ok(cufile),
            Ok(_) => Err(Error::new(ErrorKind::LibraryMissing, "cuFile was started before this process was forked")
                .with_hint("start worker processes with 'spawn' or 'forkserver'")),
            Err(message) => Err(Error::new(ErrorKind::LibraryMissing, message.clone()).with_hint(HINT)),
        }
    }

    fn load() -> Result<CuFile> {
        let found = library::open(LIBRARY_VARIABLE, &LIBRARY_NAMES)?;
        let from = &found.library;
        // SAFETY: names and types are those of cufile.h.
        let (open, properties, mut cufile) = unsafe {
            (
                library::symbol::<unsafe extern "C" fn() -> Status>(from, "cuFileDriverOpen")?,
                library::symbol::<unsafe extern "C" fn(*mut Properties) -> Status>(from, "cuFileDriverGetProperties")?,
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
        // Its threads and exit handlers run code of the library until the process ends.
        std::mem::forget(found.library);
        // SAFETY: may be called any number of times.
        check("cuFileDriverOpen", unsafe { open() }).map_err(|error| {
            let message = format!("cuFile at {} does not start: {}", cufile.path.display(), error.message());
            Error::new(ErrorKind::LibraryMissing, message)
        })?;
        let mut found = Properties { major_version: 0, rest: [0; 32] };
        // SAFETY: writes a structure that is smaller than ours.
        if check("cuFileDriverGetProperties", unsafe { properties(&mut found) }).is_ok() {
            // The version of nvidia-fs: 0 where the module is not loaded.
            cufile.is_direct = found.major_version > 0;
        }
        Ok(cufile)
    }

    /// Whether the kernel module is there that lets drives write to GPU memory; else reads go by way of the host.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Where the library was found.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn check(call: &str, status: Status) -> Result<()> {
    match status {
        Status { code: 0, .. } => Ok(()),
        Status { code, cuda: 0 } => {
            Err(Error::new(ErrorKind::DeviceFailed, format!("{call} failed with {}", describe(code))))
        }
        Status { code, cuda } => {
            let message = format!("{call} failed with {} and CUDA error {cuda}", describe(code));
            Err(Error::new(ErrorKind::DeviceFailed, message))
        }
    }
}

/// What a code of the library means, for those that users meet.
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

/// A file that is registered with cuFile. Reading and writing through shared references is what files do.
pub struct DirectFile {
    cufile: &'static CuFile,
    handle: usize,
    // Closed after the handle is gone.
    _file: File,
}

impl DirectFile {
    /// Registers an open file.
    ///
    /// # Errors
    /// `LibraryMissing` where cuFile is not there; `DeviceFailed` when it refuses the file.
    pub fn new(file: File) -> Result<DirectFile> {
        let cufile = CuFile::get()?;
        let descriptor = descriptor(&file)?;
        let handle = DescriptorOrPointer { descriptor };
        let mut description = Description { kind: KIND_DESCRIPTOR, handle, operations: std::ptr::null() };
        let mut handle = std::ptr::null_mut();
        // SAFETY: reads the description, writes one handle; the file stays open as long as the handle.
        check("cuFileHandleRegister", unsafe { (cufile.register)(&mut handle, &mut description) })?;
        Ok(DirectFile { cufile, handle: handle as usize, _file: file })
    }

    /// Fills `target` with the bytes from `offset` on. Returns when they are there, for every stream; work that other
    /// streams still have on that memory must be done.
    ///
    /// # Errors
    /// `MemorySpace` for host memory; `DeviceFailed`, also when the file ends before the memory is full.
    pub fn read_exact_at(&self, target: &Buffer, offset: u64) -> Result<()> {
        target.require_writable()?;
        self.transfer("cuFileRead", self.cufile.read, target, offset)
    }

    /// Writes all bytes of `source`, which are ready, to the file from `offset` on.
    ///
    /// # Errors
    /// As [`DirectFile::read_exact_at`].
    pub fn write_all_at(&self, source: &Buffer, offset: u64) -> Result<()> {
        self.transfer("cuFileWrite", self.cufile.write, source, offset)
    }

    fn transfer(&self, call: &str, function: Transfer, memory: &Buffer, offset: u64) -> Result<()> {
        if memory.device() == Device::Cpu {
            return Err(Error::new(ErrorKind::MemorySpace, "cuFile is for memory of a device"));
        }
        let size_bytes = memory.size_bytes();
        if i64::try_from(offset).ok().and_then(|offset| offset.checked_add_unsigned(size_bytes as u64)).is_none() {
            return Err(Error::invalid(format!("no file has a byte {offset}")));
        }
        let backend = &Context::get(memory.device())?.backend;
        let mut done = 0;
        while done < size_bytes {
            let (rest, at) = (size_bytes - done, (offset + done as u64) as i64);
            let (handle, address) = (self.handle as Handle, memory.address() as *mut c_void);
            let (mut count, mut errno) = (0, 0);
            // The library works on the context that is current.
            backend.with_current(&mut || {
                // SAFETY: a registered handle, and memory of this device from `done` on to its end, alive through the call.
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

impl Drop for DirectFile {
    fn drop(&mut self) {
        // In a forked child the handle belongs to the parent's library state.
        if self.cufile.process == std::process::id() {
            // SAFETY: it was registered once and nobody uses it any more.
            unsafe { (self.cufile.deregister)(self.handle as Handle) };
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
