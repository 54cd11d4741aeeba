//! `Device::Simt`: the kernels' own `.cu` files compiled for the CPU, under address and undefined-behaviour sanitizers.
//!
//! For tests. The library named by `CUZARR_SIMT_LIBRARY` contains every kernel and a scheduler of fibers. Memory is
//! plain heap memory filled with a pattern, so the sanitizer sees every access outside it. Each call on a stream
//! returns when its work is done. So code that forgets to order two streams passes here; only tests on a GPU find it.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use crate::driver::backend::{Backend, FunctionInfo, Grid, Properties, RawEvent, RawFunction, RawStream};
use crate::driver::library;
use crate::error::{Error, ErrorKind, Result};

/// The environment variable that names the shared library built by `scripts/build_simt.sh`.
pub(crate) const LIBRARY_VARIABLE: &str = "CUZARR_SIMT_LIBRARY";

/// The environment variable with the compiler's flags, such as header folders, for texts that are compiled while a test
/// runs.
const FLAGS_VARIABLE: &str = "CUZARR_SIMT_FLAGS";
/// Prefix of a "cubin" that is really the path of a compiled library.
const COMPILED: &[u8] = b"simt:";

/// The byte that fills fresh memory, so that a kernel which reads before it writes gives wrong results.
const POISON: u8 = 0xA5;
/// Alignment in bytes of the simulated device's allocations, which is that of a GPU.
const ALIGNMENT_BYTES: usize = 256;
/// Size of the simulated device's memory in bytes. It is small, so that running out of memory can be tested.
const TOTAL_BYTES: usize = 1 << 30;

type Find = unsafe extern "C" fn(*const c_char) -> *mut c_void;
type Launch = unsafe extern "C" fn(*mut c_void, u32, u32, u32, *mut *mut c_void) -> c_int;
type Parameters = unsafe extern "C" fn(*mut c_void, *mut *const usize) -> usize;
type LastError = unsafe extern "C" fn() -> *const c_char;

pub(crate) struct SimtBackend {
    properties: Properties,
    find: Find,
    parameters: Parameters,
    launch: Launch,
    last_error: LastError,
    memory: Mutex<HashMap<usize, usize>>,
    /// Sizes of the blocks of pinned host memory, by address.
    pinned: Mutex<BTreeMap<usize, usize>>,
    used_bytes: AtomicUsize,
    next_handle: AtomicUsize,
    events: Mutex<HashMap<usize, Instant>>,
}

impl SimtBackend {
    pub(crate) fn new() -> Result<SimtBackend> {
        if std::env::var_os(LIBRARY_VARIABLE).is_none() {
            let message = format!("no simt library: {LIBRARY_VARIABLE} is not set");
            return Err(Error::new(ErrorKind::DeviceUnavailable, message).with_hint("run scripts/build_simt.sh"));
        }
        let found = library::open(LIBRARY_VARIABLE, &[])?;
        // SAFETY: the types are those of the functions that kernels/simt/runtime.cpp exports.
        let (find, parameters, launch, last_error) = unsafe {
            (
                library::symbol(&found.library, "cuzarr_simt_find")?,
                library::symbol(&found.library, "cuzarr_simt_parameters")?,
                library::symbol(&found.library, "cuzarr_simt_launch")?,
                library::symbol(&found.library, "cuzarr_simt_last_error")?,
            )
        };
        std::mem::forget(found.library);
        Ok(SimtBackend {
            properties: Properties {
                name: "simt".to_string(),
                compute_capability: (0, 0),
                multiprocessors: 2,
                total_bytes: TOTAL_BYTES as u64,
                memory_pools: true,
            },
            find,
            parameters,
            launch,
            last_error,
            memory: Mutex::default(),
            pinned: Mutex::default(),
            used_bytes: AtomicUsize::new(0),
            next_handle: AtomicUsize::new(1),
            events: Mutex::default(),
        })
    }

    fn handle(&self) -> usize {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    fn times(&self) -> MutexGuard<'_, HashMap<usize, Instant>> {
        self.events.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn lock_pinned(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.pinned.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn blocks(&self) -> MutexGuard<'_, HashMap<usize, usize>> {
        self.memory.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Compiles generated kernels with the system's compiler, as NVRTC does for a GPU, for [`Backend::load_module`].
///
/// # Errors
/// `LibraryMissing` without the flags or the compiler; `KernelCompileFailed`.
pub(crate) fn compile(file: &str, text: &str) -> Result<Vec<u8>> {
    let missing = |what: &str| Error::new(ErrorKind::LibraryMissing, format!("simt has no {what}"));
    let flags = std::env::var(FLAGS_VARIABLE).map_err(|_| missing(FLAGS_VARIABLE))?;
    let library = std::env::var(LIBRARY_VARIABLE).map_err(|_| missing(LIBRARY_VARIABLE))?;
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("cuzarr-simt-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| missing(&format!("folder: {error}")))?;
    let compiled = compile_in(&folder, file, text, &flags, &library);
    if compiled.is_err() {
        discard(&folder);
    }
    Ok([COMPILED, compiled?.to_string_lossy().as_bytes()].concat())
}

/// Compiles `text`, which messages call `file`, to a library in `folder`.
fn compile_in(folder: &Path, file: &str, text: &str, flags: &str, library: &str) -> Result<PathBuf> {
    let missing = |what: &str| Error::new(ErrorKind::LibraryMissing, format!("simt has no {what}"));
    let (source, object) = (folder.join("kernel.cpp"), folder.join("kernel.so"));
    std::fs::write(&source, text).map_err(|error| missing(&format!("folder: {error}")))?;
    let mut command = std::process::Command::new(std::env::var("CXX").unwrap_or_else(|_| "g++".to_string()));
    // `LD_PRELOAD` is removed, so that the compiler itself does not run under the sanitizer.
    command.env_remove("LD_PRELOAD").args(flags.split_whitespace()).arg("-shared").arg("-o").arg(&object);
    let output = command.arg(&source).arg(library).output().map_err(|error| missing(&format!("compiler: {error}")))?;
    if !output.status.success() {
        let message = format!("{file} did not compile\n{}", String::from_utf8_lossy(&output.stderr));
        return Err(Error::new(ErrorKind::KernelCompileFailed, message));
    }
    Ok(object)
}

/// Removes a folder with a compiler's files. If that fails, the folder does no harm.
fn discard(folder: &Path) {
    let _ = std::fs::remove_dir_all(folder);
}

fn heap_layout(size_bytes: usize) -> Result<Layout> {
    Layout::from_size_align(size_bytes.max(1), ALIGNMENT_BYTES)
        .map_err(|_| Error::new(ErrorKind::OutOfMemory, format!("cannot allocate {size_bytes} bytes")))
}

impl Backend for SimtBackend {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn memory_info(&self) -> Result<(u64, u64)> {
        let free = TOTAL_BYTES.saturating_sub(self.used_bytes.load(Ordering::Relaxed));
        Ok((free as u64, TOTAL_BYTES as u64))
    }

    fn held_bytes(&self) -> Result<u64> {
        Ok(self.used_bytes.load(Ordering::Relaxed) as u64)
    }

    fn allocate(&self, size_bytes: usize, _stream: RawStream) -> Result<usize> {
        let layout = heap_layout(size_bytes)?;
        let mut blocks = self.blocks();
        let used = self.used_bytes.load(Ordering::Relaxed);
        if used.checked_add(size_bytes).is_none_or(|used| used > TOTAL_BYTES) {
            let message = format!("simt has no {size_bytes} bytes left of {TOTAL_BYTES}");
            return Err(Error::new(ErrorKind::OutOfMemory, message));
        }
        // SAFETY: `heap_layout` gives no empty layout.
        let address = unsafe { alloc(layout) };
        if address.is_null() {
            return Err(Error::new(ErrorKind::OutOfMemory, format!("the host has no {size_bytes} bytes for simt")));
        }
        // SAFETY: `alloc` gave this many bytes just now.
        unsafe { std::ptr::write_bytes(address, POISON, layout.size()) };
        self.used_bytes.store(used + size_bytes, Ordering::Relaxed);
        blocks.insert(address as usize, size_bytes);
        Ok(address as usize)
    }

    fn allocate_bounded(&self, size_bytes: usize, stream: RawStream) -> Result<Option<usize>> {
        self.allocate(size_bytes, stream).map(Some)
    }

    unsafe fn free(&self, address: usize, _stream: RawStream) -> Result<()> {
        let Some(size_bytes) = self.blocks().remove(&address) else {
            return Err(Error::new(ErrorKind::DeviceFailed, "simt was asked to free memory that it never gave"));
        };
        self.used_bytes.fetch_sub(size_bytes, Ordering::Relaxed);
        // SAFETY: it was allocated with this layout and is freed once, since it was in the table.
        unsafe { dealloc(address as *mut u8, heap_layout(size_bytes)?) };
        Ok(())
    }

    fn allocate_apart(&self, size_bytes: usize) -> Result<usize> {
        self.allocate(size_bytes, 0)
    }

    unsafe fn free_apart(&self, address: usize, _size_bytes: usize) -> Result<()> {
        // SAFETY: the caller promises that no work uses it any more.
        unsafe { self.free(address, 0) }
    }

    unsafe fn spoil(&self, address: usize, size_bytes: usize) {
        // SAFETY: the caller promises memory of this device, of this size.
        unsafe { std::ptr::write_bytes(address as *mut u8, POISON, size_bytes) };
    }

    fn bound(&self, _limit_bytes: u64) -> Result<()> {
        Ok(())
    }

    fn trim_bounded(&self) -> Result<()> {
        Ok(())
    }

    fn trim_to(&self, _size_bytes: u64) -> Result<()> {
        Ok(())
    }

    fn allocate_host(&self, size_bytes: usize) -> Result<usize> {
        // SAFETY: `heap_layout` gives no empty layout.
        let address = unsafe { alloc(heap_layout(size_bytes)?) };
        if address.is_null() {
            return Err(Error::new(
                ErrorKind::OutOfMemory,
                format!("the host has no {size_bytes} bytes of pinned memory"),
            ));
        }
        // SAFETY: `alloc` gave this many bytes just now. Slabs are handed out as byte slices, so they must be initialised.
        unsafe { std::ptr::write_bytes(address, POISON, size_bytes) };
        self.lock_pinned().insert(address as usize, size_bytes);
        Ok(address as usize)
    }

    fn reaches_host(&self, address: usize, size_bytes: usize) -> Result<bool> {
        let pinned = self.lock_pinned();
        let block = pinned.range(..=address).next_back();
        Ok(block.is_some_and(|(start, block_bytes)| address + size_bytes <= start + block_bytes))
    }

    unsafe fn free_host(&self, address: usize, size_bytes: usize) -> Result<()> {
        self.lock_pinned().remove(&address);
        // SAFETY: the caller promises that it came from `allocate_host` with this size.
        unsafe { dealloc(address as *mut u8, heap_layout(size_bytes)?) };
        Ok(())
    }

    fn create_stream(&self, _urgent: bool) -> Result<RawStream> {
        Ok(self.handle())
    }

    unsafe fn destroy_stream(&self, _stream: RawStream) -> Result<()> {
        Ok(())
    }

    unsafe fn synchronize_stream(&self, _stream: RawStream) -> Result<()> {
        Ok(())
    }

    unsafe fn stream_is_idle(&self, _stream: RawStream) -> Result<bool> {
        Ok(true)
    }

    fn synchronize_device(&self) -> Result<()> {
        Ok(())
    }

    fn create_event(&self, _timing: bool) -> Result<RawEvent> {
        Ok(self.handle())
    }

    unsafe fn destroy_event(&self, event: RawEvent) -> Result<()> {
        self.times().remove(&event);
        Ok(())
    }

    unsafe fn record(&self, event: RawEvent, _stream: RawStream) -> Result<()> {
        self.times().insert(event, Instant::now());
        Ok(())
    }

    unsafe fn wait(&self, _stream: RawStream, _event: RawEvent) -> Result<()> {
        Ok(())
    }

    unsafe fn synchronize_event(&self, _event: RawEvent) -> Result<()> {
        Ok(())
    }

    unsafe fn event_is_done(&self, _event: RawEvent) -> Result<bool> {
        Ok(true)
    }

    unsafe fn elapsed_ms(&self, start: RawEvent, end: RawEvent) -> Result<f32> {
        let times = self.times();
        match (times.get(&start), times.get(&end)) {
            (Some(start), Some(end)) => Ok(end.saturating_duration_since(*start).as_secs_f32() * 1e3),
            _ => Err(Error::new(ErrorKind::DeviceFailed, "elapsed time between events that were not recorded")),
        }
    }

    unsafe fn h2d(&self, src: *const u8, dst: usize, size_bytes: usize, _stream: RawStream) -> Result<()> {
        // SAFETY: the caller promises both ranges.
        unsafe { std::ptr::copy(src, dst as *mut u8, size_bytes) };
        Ok(())
    }

    unsafe fn d2h(&self, src: usize, dst: *mut u8, size_bytes: usize, _stream: RawStream) -> Result<()> {
        // SAFETY: the caller promises both ranges.
        unsafe { std::ptr::copy(src as *const u8, dst, size_bytes) };
        Ok(())
    }

    unsafe fn d2d(&self, src: usize, dst: usize, size_bytes: usize, _stream: RawStream) -> Result<()> {
        // SAFETY: the caller promises both ranges.
        unsafe { std::ptr::copy(src as *const u8, dst as *mut u8, size_bytes) };
        Ok(())
    }

    unsafe fn memset(&self, dst: usize, byte: u8, size_bytes: usize, _stream: RawStream) -> Result<()> {
        // SAFETY: the caller promises the range.
        unsafe { std::ptr::write_bytes(dst as *mut u8, byte, size_bytes) };
        Ok(())
    }

    /// Loads a library of kernels that were compiled for the CPU at run time. Kernels of the library need no loading. A
    /// text that [`compile`] compiled is a library of its own: `cubin` then holds the library's path, and the file is
    /// deleted once it is loaded.
    fn load_module(&self, cubin: &[u8]) -> Result<usize> {
        if let Some(path) = cubin.strip_prefix(COMPILED).and_then(|path| std::str::from_utf8(path).ok()) {
            let opened = library::open_at(path);
            if let Some(folder) = Path::new(path).parent() {
                discard(folder);
            }
            // The library registers its kernels when it is loaded, and stays until the process ends.
            std::mem::forget(opened?);
        }
        Ok(1)
    }

    unsafe fn function(&self, _module: usize, name: &str) -> Result<RawFunction> {
        let text = CString::new(name).map_err(|_| Error::invalid("a kernel's name contains a zero byte"))?;
        // SAFETY: a zero-ended text, read before the call returns.
        let function = unsafe { (self.find)(text.as_ptr()) };
        if function.is_null() {
            let message = format!("the simt library has no kernel '{name}'");
            return Err(Error::new(ErrorKind::DeviceFailed, message).with_hint("build it again"));
        }
        Ok(function as usize)
    }

    unsafe fn unload_module(&self, _module: usize) -> Result<()> {
        Ok(())
    }

    unsafe fn parameter_bytes(&self, function: RawFunction) -> Result<Option<Vec<usize>>> {
        let mut sizes = std::ptr::null();
        // SAFETY: the caller promises a function that `find` gave; the library writes one pointer.
        let count = unsafe { (self.parameters)(function as *mut c_void, &mut sizes) };
        // SAFETY: the library keeps `count` sizes there, a constant of the kernel.
        Ok(Some(unsafe { std::slice::from_raw_parts(sizes, count) }.to_vec()))
    }

    unsafe fn function_info(&self, function: RawFunction) -> Result<FunctionInfo> {
        // SAFETY: the caller promises a function that `find` gave.
        let parameter_bytes = unsafe { self.parameter_bytes(function) }?;
        Ok(FunctionInfo { max_threads: u32::MAX, parameter_bytes, ..FunctionInfo::default() })
    }

    unsafe fn allow_shared(&self, _function: RawFunction, _size_bytes: u32) -> Result<()> {
        Ok(())
    }

    unsafe fn launch(
        &self,
        function: RawFunction,
        grid: Grid,
        _stream: RawStream,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        let ([blocks, 1, 1], [threads, 1, 1]) = (grid.blocks, grid.threads) else {
            return Err(Error::new(ErrorKind::Unsupported, "simt runs grids of one dimension"));
        };
        let shared = grid.shared_bytes;
        // SAFETY: the caller promises a function that `find` gave, and its arguments.
        let code = unsafe { (self.launch)(function as *mut c_void, blocks, threads, shared, arguments.as_mut_ptr()) };
        if code == 0 {
            return Ok(());
        }
        // SAFETY: a zero-ended text that the library keeps for this thread.
        let words = unsafe { CStr::from_ptr((self.last_error)()) }.to_string_lossy().into_owned();
        Err(Error::new(ErrorKind::DeviceFailed, format!("simt launch failed: {words}")))
    }
}
