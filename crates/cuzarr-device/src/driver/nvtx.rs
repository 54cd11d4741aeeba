//! NVTX: names for a program's work in the timelines of profilers such as Nsight Systems.
//!
//! When a profiler starts a program, it sets `NVTX_INJECTION64_PATH` to a library of its own. NVIDIA's NVTX 3 headers
//! load that library at the first range. They offer it a table of slots, and call the functions that it puts there.
//! This module does the same without the headers (<https://github.com/NVIDIA/NVTX>, `nvtxDetail/nvtxTypes.h` has the
//! layouts). Without the variable, nothing is loaded and a range costs one look at a pointer.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::c_layout::c_layout;
use crate::driver::library;
use crate::error::{Error, ErrorKind, Result};

/// The environment variable in which a profiler names its library.
const LIBRARY_VARIABLE: &str = "NVTX_INJECTION64_PATH";

/// The name under which profilers list cuzarr's ranges.
const DOMAIN: &std::ffi::CStr = c"cuzarr";

/// Number of NVTX modules, which are groups of functions. Each has a table for the profiler's functions; we call five
/// functions of one table.
const MODULES: usize = 7;
const DOMAINS: usize = 5;
/// Number of functions in each module's table, including the unused first entry.
const ENTRIES: [usize; MODULES] = [0, 16, 9, 15, 7, 16, 7];
const MOST_ENTRIES: usize = 16;

const DOMAIN_START: usize = 2;
const DOMAIN_END: usize = 3;
const DOMAIN_PUSH: usize = 4;
const DOMAIN_POP: usize = 5;
const DOMAIN_CREATE: usize = 12;

static SLOTS: [[AtomicPtr<c_void>; MOST_ENTRIES]; MODULES] =
    [const { [const { AtomicPtr::new(null_mut()) }; MOST_ENTRIES] }; MODULES];

/// For each module, the addresses of the pointers that a profiler fills with its functions, from the second entry on.
/// The other entries are null.
struct NvtxTables([[*const AtomicPtr<c_void>; MOST_ENTRIES + 1]; MODULES]);

// SAFETY: the addresses are those of statics, which every thread may use.
unsafe impl Send for NvtxTables {}
// SAFETY: the table is not changed once it is made.
unsafe impl Sync for NvtxTables {}

static TABLES: OnceLock<NvtxTables> = OnceLock::new();

fn tables() -> &'static NvtxTables {
    TABLES.get_or_init(|| {
        let mut tables = NvtxTables([[std::ptr::null(); MOST_ENTRIES + 1]; MODULES]);
        for ((table, slots), entries) in tables.0.iter_mut().zip(&SLOTS).zip(ENTRIES) {
            for (place, slot) in table.iter_mut().zip(slots).take(entries).skip(1) {
                *place = slot;
            }
        }
        tables
    })
}

/// `NvtxExportTableCallbacks`: the function by which a profiler asks for the tables of `NvtxTables`.
#[repr(C)]
struct Callbacks {
    size_bytes: usize,
    table_of_module: unsafe extern "C" fn(c_int, *mut *const *const AtomicPtr<c_void>, *mut c_uint) -> c_int,
}

/// `NvtxExportTableVersionInfo`: tells a profiler which version of NVTX this process speaks.
#[repr(C)]
struct VersionInfo {
    size_bytes: usize,
    version: u32,
    reserved: u32,
    set_version: extern "C" fn(u32),
}

static CALLBACKS: Callbacks = Callbacks { size_bytes: size_of::<Callbacks>(), table_of_module };
static VERSION_INFO: VersionInfo =
    VersionInfo { size_bytes: size_of::<VersionInfo>(), version: VERSION, reserved: 0, set_version: ignore_version };

const VERSION: u32 = 3;

extern "C" fn ignore_version(_version: u32) {}

/// Gives a profiler one NVTX module's function table and its number of entries; returns 0 for unknown modules.
///
/// # Safety
/// The two places may be written, or are null.
unsafe extern "C" fn table_of_module(
    module: c_int,
    table: *mut *const *const AtomicPtr<c_void>,
    entries: *mut c_uint,
) -> c_int {
    let Some(module) = usize::try_from(module).ok().filter(|module| (1..MODULES).contains(module)) else { return 0 };
    // SAFETY: the caller promises places that may be written; null ones are left alone.
    unsafe {
        if !entries.is_null() {
            *entries = ENTRIES[module] as c_uint;
        }
        if !table.is_null() {
            *table = tables().0[module].as_ptr();
        }
    }
    1
}

extern "C" fn export_table(number: u32) -> *const c_void {
    match number {
        1 => (&raw const CALLBACKS).cast(),
        3 => (&raw const VERSION_INFO).cast(),
        _ => std::ptr::null(),
    }
}

type Initialize = unsafe extern "C" fn(extern "C" fn(u32) -> *const c_void) -> c_int;
type Create = unsafe extern "C" fn(*const c_char) -> *mut c_void;
type Push = unsafe extern "C" fn(*mut c_void, *const Attributes) -> c_int;
type Pop = unsafe extern "C" fn(*mut c_void) -> c_int;
type Start = unsafe extern "C" fn(*mut c_void, *const Attributes) -> u64;
type End = unsafe extern "C" fn(*mut c_void, u64);

/// `nvtxEventAttributes_v2`: the name of a range and a number, its size in bytes, as a profiler reads them.
#[repr(C)]
struct Attributes {
    version: u16,
    size_bytes: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_char,
}

// The layouts of NVTX 3: `nvtxEventAttributes_v2` in nvToolsExt.h, the others in nvtxDetail/nvtxTypes.h.
#[cfg(target_pointer_width = "64")]
mod layouts {
    use super::*;

    c_layout! {
        Attributes: 48 bytes {
            version at 0, size_bytes at 2, category at 4, color_type at 8, color at 12, payload_type at 16, reserved at 20,
            payload at 24, message_type at 32, message at 40,
        }
    }
    c_layout! { Callbacks: 16 bytes { size_bytes at 0, table_of_module at 8 } }
    c_layout! { VersionInfo: 24 bytes { size_bytes at 0, version at 8, reserved at 12, set_version at 16 } }
}

/// A profiler that is attached to this process, and its functions.
struct Profiler {
    path: PathBuf,
    domain: usize,
    push: Push,
    pop: Pop,
    start: Start,
    end: End,
}

static PROFILER: OnceLock<Option<Profiler>> = OnceLock::new();

fn profiler() -> Option<&'static Profiler> {
    // If a profiler cannot be loaded, it reports that itself. NVTX is silent, too.
    PROFILER.get_or_init(|| Profiler::attach().ok()).as_ref()
}

/// Path of the library of the profiler that is attached to this process.
///
/// # Errors
/// `LibraryMissing` when there is no profiler.
pub(crate) fn attached() -> Result<PathBuf> {
    profiler().map(|profiler| profiler.path.clone()).ok_or_else(|| {
        let message = format!("no profiler is attached: {LIBRARY_VARIABLE} is not set");
        Error::new(ErrorKind::LibraryMissing, message)
    })
}

impl Profiler {
    fn attach() -> Result<Profiler> {
        let found = library::open(LIBRARY_VARIABLE, &[])?;
        // SAFETY: the type is that of nvtxTypes.h.
        let initialize: Initialize = unsafe { library::symbol(&found.library, "InitializeInjectionNvtx2") }?;
        let missing = |what: &str| Error::new(ErrorKind::LibraryMissing, format!("the profiler {what}"));
        // SAFETY: as NVTX calls it, with a function that gives tables which live as long as the process.
        if unsafe { initialize(export_table) } == 0 {
            return Err(missing("did not start"));
        }
        std::mem::forget(found.library);
        let function = |entry: usize| {
            let function = SLOTS[DOMAINS][entry].load(Ordering::Acquire);
            if function.is_null() { Err(missing("takes no ranges of domains")) } else { Ok(function) }
        };
        // SAFETY: the profiler put functions of these types there, as the table's layout says.
        unsafe {
            let create: Create = std::mem::transmute(function(DOMAIN_CREATE)?);
            Ok(Profiler {
                path: found.path,
                domain: create(DOMAIN.as_ptr()) as usize,
                push: std::mem::transmute::<*mut c_void, Push>(function(DOMAIN_PUSH)?),
                pop: std::mem::transmute::<*mut c_void, Pop>(function(DOMAIN_POP)?),
                start: std::mem::transmute::<*mut c_void, Start>(function(DOMAIN_START)?),
                end: std::mem::transmute::<*mut c_void, End>(function(DOMAIN_END)?),
            })
        }
    }

    /// Calls `report` with the attributes that describe a range named `name` to the profiler.
    fn describe<T>(name: &str, size_bytes: u64, report: impl FnOnce(&Attributes) -> T) -> T {
        const UNSIGNED_INT64: i32 = 1;
        const ASCII: i32 = 1;
        let message = CString::new(name).unwrap_or_default();
        report(&Attributes {
            version: VERSION as u16,
            size_bytes: size_of::<Attributes>() as u16,
            category: 0,
            color_type: 0,
            color: 0,
            payload_type: UNSIGNED_INT64,
            reserved: 0,
            payload: size_bytes,
            message_type: ASCII,
            message: message.as_ptr(),
        })
    }
}

/// A span of one thread's work that profilers show: from the call of [`range`] until this value is dropped. A thread's
/// ranges are nested.
#[must_use]
pub struct Range {
    profiler: Option<&'static Profiler>,
    /// Makes the type `!Send`, so that the range stays on its thread.
    _thread: PhantomData<*const ()>,
}

/// Shows the work of this thread as a named range in profilers, until the result is dropped. `size_bytes` is the number
/// of bytes that it processes.
///
/// ```
/// let _range = cuzarr_device::profile::range("decode", 4096);
/// ```
pub fn range(name: &str, size_bytes: u64) -> Range {
    let profiler = profiler();
    if let Some(Profiler { push, domain, .. }) = profiler {
        // SAFETY: the profiler's own function, its domain, and attributes that live through the call.
        Profiler::describe(name, size_bytes, |attributes| unsafe { push(*domain as *mut c_void, attributes) });
    }
    Range { profiler, _thread: PhantomData }
}

impl Drop for Range {
    fn drop(&mut self) {
        if let Some(Profiler { pop, domain, .. }) = self.profiler {
            // SAFETY: the profiler's own function; this thread pushed.
            unsafe { pop(*domain as *mut c_void) };
        }
    }
}

/// Begins a range that profilers show under the name `name`, and that may end on another thread. Pass the returned
/// number to [`end`].
pub fn start(name: &str, size_bytes: u64) -> u64 {
    let Some(Profiler { start, domain, .. }) = profiler() else { return 0 };
    // SAFETY: as in `range`.
    Profiler::describe(name, size_bytes, |attributes| unsafe { start(*domain as *mut c_void, attributes) })
}

/// Ends a range in profilers that [`start`] began.
pub fn end(number: u64) {
    if let (Some(Profiler { end, domain, .. }), true) = (profiler(), number != 0) {
        // SAFETY: the profiler's own function and number.
        unsafe { end(*domain as *mut c_void, number) };
    }
}
