//! The CUDA driver, bound at run time: the table of its functions, its error codes, and [`CudaBackend`], one GPU.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::driver::backend::{Backend, FunctionInfo, Grid, Peer, Properties, RawEvent, RawFunction, RawStream};
use crate::driver::library;
use crate::error::{Error, ErrorKind, Result};

type Code = c_int;

/// Declares the table of functions and how it is filled, so that a name and its type are written once.
macro_rules! driver_functions {
    ($($field:ident = $symbol:literal ($($argument:ty),*);)*) => {
        struct Functions { $($field: unsafe extern "C" fn($($argument),*) -> Code,)* }

        impl Functions {
            fn load(library: &libloading::Library) -> Result<Functions> {
                // SAFETY: names and types are those of cuda.h; the `_v2` names have had these types since CUDA 4.
                unsafe { Ok(Functions { $($field: library::symbol(library, $symbol)?,)* }) }
            }
        }
    };
}

driver_functions! {
    init = "cuInit"(c_uint);
    driver_version = "cuDriverGetVersion"(*mut c_int);
    error_name = "cuGetErrorName"(Code, *mut *const c_char);
    error_string = "cuGetErrorString"(Code, *mut *const c_char);
    device_count = "cuDeviceGetCount"(*mut c_int);
    device_get = "cuDeviceGet"(*mut c_int, c_int);
    device_name = "cuDeviceGetName"(*mut c_char, c_int, c_int);
    device_attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
    device_total_memory = "cuDeviceTotalMem_v2"(*mut usize, c_int);
    device_can_reach = "cuDeviceCanAccessPeer"(*mut c_int, c_int, c_int);
    primary_context_retain = "cuDevicePrimaryCtxRetain"(*mut *mut c_void, c_int);
    context_get_current = "cuCtxGetCurrent"(*mut *mut c_void);
    context_set_current = "cuCtxSetCurrent"(*mut c_void);
    context_synchronize = "cuCtxSynchronize"();
    memory_info = "cuMemGetInfo_v2"(*mut usize, *mut usize);
    memory_allocate = "cuMemAlloc_v2"(*mut u64, usize);
    memory_free = "cuMemFree_v2"(u64);
    pointer_attribute = "cuPointerGetAttribute"(*mut c_void, c_int, u64);
    host_allocate = "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
    host_free = "cuMemFreeHost"(*mut c_void);
    pool_create = "cuMemPoolCreate"(*mut *mut c_void, *const PoolProperties);
    pool_set_attribute = "cuMemPoolSetAttribute"(*mut c_void, c_int, *mut c_void);
    pool_set_access = "cuMemPoolSetAccess"(*mut c_void, *const PoolAccess, usize);
    pool_get_attribute = "cuMemPoolGetAttribute"(*mut c_void, c_int, *mut c_void);
    pool_trim = "cuMemPoolTrimTo"(*mut c_void, usize);
    pool_allocate = "cuMemAllocFromPoolAsync"(*mut u64, usize, *mut c_void, *mut c_void);
    pool_free = "cuMemFreeAsync"(u64, *mut c_void);
    stream_create = "cuStreamCreateWithPriority"(*mut *mut c_void, c_uint, c_int);
    stream_destroy = "cuStreamDestroy_v2"(*mut c_void);
    stream_synchronize = "cuStreamSynchronize"(*mut c_void);
    stream_query = "cuStreamQuery"(*mut c_void);
    stream_wait_event = "cuStreamWaitEvent"(*mut c_void, *mut c_void, c_uint);
    event_create = "cuEventCreate"(*mut *mut c_void, c_uint);
    event_destroy = "cuEventDestroy_v2"(*mut c_void);
    event_record = "cuEventRecord"(*mut c_void, *mut c_void);
    event_query = "cuEventQuery"(*mut c_void);
    event_synchronize = "cuEventSynchronize"(*mut c_void);
    event_elapsed = "cuEventElapsedTime"(*mut f32, *mut c_void, *mut c_void);
    copy_h2d = "cuMemcpyHtoDAsync_v2"(u64, *const c_void, usize, *mut c_void);
    copy_d2h = "cuMemcpyDtoHAsync_v2"(*mut c_void, u64, usize, *mut c_void);
    copy_any = "cuMemcpyAsync"(u64, u64, usize, *mut c_void);
    copy_peer = "cuMemcpyPeerAsync"(u64, *mut c_void, u64, *mut c_void, usize, *mut c_void);
    memset = "cuMemsetD8Async"(u64, u8, usize, *mut c_void);
    module_load = "cuModuleLoadData"(*mut *mut c_void, *const c_void);
    module_function = "cuModuleGetFunction"(*mut *mut c_void, *mut c_void, *const c_char);
    module_unload = "cuModuleUnload"(*mut c_void);
    function_attribute = "cuFuncGetAttribute"(*mut c_int, c_int, *mut c_void);
    function_set_attribute = "cuFuncSetAttribute"(*mut c_void, c_int, c_int);
    launch = "cuLaunchKernel"(
        *mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint,
        *mut c_void, *mut *mut c_void, *mut *mut c_void
    );
}

/// What helps when a device is full.
pub(crate) const MEMORY_HINT: &str = "read a smaller selection, lower memory_limit, or free other libraries' caches";

const SUCCESS: Code = 0;
const ERROR_INVALID_VALUE: Code = 1;
const ERROR_OUT_OF_MEMORY: Code = 2;
const ERROR_NOT_READY: Code = 600;

const ATTRIBUTE_MULTIPROCESSORS: c_int = 16;
const ATTRIBUTE_CAPABILITY_MAJOR: c_int = 75;
const ATTRIBUTE_CAPABILITY_MINOR: c_int = 76;
const ATTRIBUTE_MEMORY_POOLS: c_int = 115;

const POINTER_DEVICE_ORDINAL: c_int = 9;

const FUNCTION_MAX_THREADS: c_int = 0;
const FUNCTION_SHARED_BYTES: c_int = 1;
const FUNCTION_LOCAL_BYTES: c_int = 3;
const FUNCTION_REGISTERS: c_int = 4;
const FUNCTION_MAX_DYNAMIC_SHARED_BYTES: c_int = 8;

/// `cuFuncGetParamInfo` of CUDA 12.4 and newer: offset and size of a parameter.
type ParameterInfo = unsafe extern "C" fn(*mut c_void, usize, *mut usize, *mut usize) -> Code;

/// Codes after which nothing on the GPU works in this process any more: a kernel faulted.
fn loses_context(code: Code) -> bool {
    matches!(code, 700 | 702 | 710 | 714..=719)
}

/// The driver, initialised. It exists once a process, and only after something asked for a GPU.
pub(crate) struct Driver {
    functions: Functions,
    parameter_info: Option<ParameterInfo>,
    path: std::path::PathBuf,
    process: u32,
}

static DRIVER: OnceLock<std::result::Result<Driver, DriverProblem>> = OnceLock::new();

/// Why the driver cannot be used, kept so that every later call gives the same answer.
struct DriverProblem {
    kind: ErrorKind,
    message: String,
    hint: String,
}

impl Driver {
    /// The driver, loaded and initialised at the first call.
    ///
    /// # Errors
    /// `DeviceUnavailable` when there is no driver, it is too old, sees no GPU, or this process was forked after CUDA
    /// had been initialised (a child cannot use its parent's driver).
    pub(crate) fn get() -> Result<&'static Driver> {
        let driver = DRIVER.get_or_init(|| Driver::load().map_err(DriverProblem::from));
        match driver {
            Ok(driver) if driver.process == std::process::id() => Ok(driver),
            Ok(_) => Err(Error::new(
                ErrorKind::DeviceUnavailable,
                "this process was forked after CUDA had been initialised, so it cannot use the GPU",
            )
            .with_hint("start worker processes with 'spawn' or 'forkserver', or use the GPU only in the children")),
            Err(problem) => Err(problem.error()),
        }
    }

    fn load() -> Result<Driver> {
        let found = library::open("CUZARR_CUDA_LIBRARY", &["libcuda.so.1", "libcuda.so"]).map_err(|cause| {
            Error::new(ErrorKind::DeviceUnavailable, format!("no CUDA driver: {}", cause.message()))
                .with_hint(cause.hint().unwrap_or("install the NVIDIA driver, or use device 'cpu'").to_string())
        })?;
        let functions = Functions::load(&found.library)?;
        // SAFETY: the type is that of cuda.h.
        let parameter_info = unsafe { library::symbol(&found.library, "cuFuncGetParamInfo") }.ok();
        // The functions live in this library, for as long as the process.
        std::mem::forget(found.library);
        let driver = Driver { functions, parameter_info, path: found.path, process: std::process::id() };
        // SAFETY: cuInit may be called any number of times.
        driver.check("cuInit", unsafe { (driver.functions.init)(0) }).map_err(|cause| {
            Error::new(ErrorKind::DeviceUnavailable, format!("the CUDA driver cannot start: {}", cause.message()))
                .with_hint("run nvidia-smi to see whether a GPU is visible here")
        })?;
        Ok(driver)
    }

    /// Where the driver's library was found.
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// The newest CUDA this driver knows, as (major, minor).
    pub(crate) fn version(&self) -> Result<(u32, u32)> {
        let mut version = 0;
        // SAFETY: writes one int.
        self.check("cuDriverGetVersion", unsafe { (self.functions.driver_version)(&mut version) })?;
        Ok((version as u32 / 1000, version as u32 % 1000 / 10))
    }

    /// How many GPUs this process sees.
    pub(crate) fn device_count(&self) -> Result<u32> {
        let mut count = 0;
        // SAFETY: writes one int.
        self.check("cuDeviceGetCount", unsafe { (self.functions.device_count)(&mut count) })?;
        Ok(count.max(0) as u32)
    }

    /// What GPU `ordinal` is; makes no context.
    pub(crate) fn properties(&self, ordinal: u32) -> Result<Properties> {
        let device = self.device(ordinal)?;
        let mut name = [0 as c_char; 256];
        // SAFETY: the driver writes at most 256 bytes, ended by a zero.
        self.check("cuDeviceGetName", unsafe { (self.functions.device_name)(name.as_mut_ptr(), 256, device) })?;
        let mut total_bytes = 0usize;
        // SAFETY: writes one size.
        let code = unsafe { (self.functions.device_total_memory)(&mut total_bytes, device) };
        self.check("cuDeviceTotalMem", code)?;
        // SAFETY: the driver ended the name with a zero inside the 256 bytes.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        Ok(Properties {
            name,
            compute_capability: (
                self.attribute(device, ATTRIBUTE_CAPABILITY_MAJOR)? as u32,
                self.attribute(device, ATTRIBUTE_CAPABILITY_MINOR)? as u32,
            ),
            multiprocessors: self.attribute(device, ATTRIBUTE_MULTIPROCESSORS)?.max(1) as u32,
            total_bytes: total_bytes as u64,
            memory_pools: self.attribute(device, ATTRIBUTE_MEMORY_POOLS).unwrap_or(0) == 1,
        })
    }

    /// The GPU that memory belongs to; `None` when the driver does not know the address.
    pub(crate) fn device_of(&self, address: usize) -> Result<Option<u32>> {
        let mut ordinal: c_int = 0;
        let answer = (&raw mut ordinal).cast();
        // SAFETY: writes one int, whatever the address.
        let code = unsafe { (self.functions.pointer_attribute)(answer, POINTER_DEVICE_ORDINAL, address as u64) };
        if code == ERROR_INVALID_VALUE {
            return Ok(None);
        }
        self.check("cuPointerGetAttribute", code)?;
        Ok(u32::try_from(ordinal).ok())
    }

    fn device(&self, ordinal: u32) -> Result<c_int> {
        let count = self.device_count()?;
        if ordinal >= count {
            return Err(Error::new(
                ErrorKind::DeviceUnavailable,
                format!("no device cuda:{ordinal}, {count} GPUs are visible"),
            )
            .with_hint("check CUDA_VISIBLE_DEVICES"));
        }
        let mut device = 0;
        // SAFETY: writes one handle.
        self.check("cuDeviceGet", unsafe { (self.functions.device_get)(&mut device, ordinal as c_int) })?;
        Ok(device)
    }

    fn attribute(&self, device: c_int, attribute: c_int) -> Result<c_int> {
        let mut value = 0;
        // SAFETY: writes one int.
        self.check("cuDeviceGetAttribute", unsafe {
            (self.functions.device_attribute)(&mut value, attribute, device)
        })?;
        Ok(value)
    }

    fn check(&self, call: &str, code: Code) -> Result<()> {
        if code == SUCCESS {
            return Ok(());
        }
        let kind = if code == ERROR_OUT_OF_MEMORY { ErrorKind::OutOfMemory } else { ErrorKind::DeviceFailed };
        let error = Error::new(kind, format!("{call} failed with {}", self.describe(code)));
        if kind == ErrorKind::OutOfMemory {
            return Err(error.with_hint(MEMORY_HINT));
        }
        if !loses_context(code) {
            return Err(error);
        }
        Err(error.with_hint(
            "a kernel faulted, so this process has lost its context on the GPU: start the process again, and run it under \
             compute-sanitizer to see which kernel it was",
        ))
    }

    fn describe(&self, code: Code) -> String {
        let text = |function: unsafe extern "C" fn(Code, *mut *const c_char) -> Code| {
            let mut text: *const c_char = std::ptr::null();
            // SAFETY: on success the driver stores a pointer to a constant, zero-ended text.
            let found = unsafe { function(code, &mut text) } == SUCCESS && !text.is_null();
            // SAFETY: as above.
            found.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        match (text(self.functions.error_name), text(self.functions.error_string)) {
            (Some(name), Some(words)) => format!("{name} ({words})"),
            _ => format!("CUDA error {code}"),
        }
    }
}

impl From<Error> for DriverProblem {
    fn from(error: Error) -> Self {
        let hint = error.hint().unwrap_or("update the NVIDIA driver").to_string();
        let kind = match error.kind() {
            ErrorKind::LibraryMissing => ErrorKind::DeviceUnavailable,
            kind => kind,
        };
        DriverProblem { kind, message: error.message().to_string(), hint }
    }
}

impl DriverProblem {
    fn error(&self) -> Error {
        Error::new(self.kind, self.message.clone()).with_hint(self.hint.clone())
    }
}

/// One GPU: its primary context, retained once and never reset, and the pool its memory comes from.
pub(crate) struct CudaBackend {
    driver: &'static Driver,
    device: c_int,
    context: usize,
    /// None where the GPU has no memory pools (some virtual GPUs): plain allocation then.
    pools: Option<Pools>,
    /// Bytes that are held beside them.
    apart_bytes: AtomicU64,
    properties: Properties,
}

/// Makes a context current for this thread, and puts a foreign one back at the end.
struct Current<'a> {
    driver: &'a Driver,
    previous: *mut c_void,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        if !self.previous.is_null() {
            // SAFETY: it was current before; failing leaves ours current, which is no worse than not restoring.
            unsafe { (self.driver.functions.context_set_current)(self.previous) };
        }
    }
}

impl CudaBackend {
    /// Retains the GPU's primary context and makes its pools.
    pub(crate) fn new(ordinal: u32) -> Result<CudaBackend> {
        let driver = Driver::get()?;
        let device = driver.device(ordinal)?;
        let properties = driver.properties(ordinal)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: writes one handle; never released, so that it stays valid for the process.
        let code = unsafe { (driver.functions.primary_context_retain)(&mut context, device) };
        driver.check("cuDevicePrimaryCtxRetain", code)?;
        let context = context as usize;
        let mut backend =
            CudaBackend { driver, device, context, pools: None, apart_bytes: AtomicU64::new(0), properties };
        if backend.properties.memory_pools {
            backend.pools = Some(backend.create_pools()?);
        }
        Ok(backend)
    }

    fn functions(&self) -> &Functions {
        &self.driver.functions
    }

    fn check(&self, call: &str, code: Code) -> Result<()> {
        self.driver.check(call, code)
    }

    fn parameter_bytes(&self, function: RawFunction) -> Result<Option<Vec<usize>>> {
        let Some(parameter_info) = self.driver.parameter_info else { return Ok(None) };
        let _current = self.enter()?;
        let mut sizes = Vec::new();
        loop {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: the driver made the function; it writes two sizes.
            let code = unsafe { parameter_info(function as *mut c_void, sizes.len(), &mut offset, &mut size) };
            if code == ERROR_INVALID_VALUE {
                // The way it says that there are no more.
                return Ok(Some(sizes));
            }
            self.check("cuFuncGetParamInfo", code)?;
            sizes.push(size);
        }
    }

    /// Does `work`; once more without the pool's unused memory when the driver has none left for it.
    fn with_room<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        match work() {
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                self.synchronize_device()?;
                self.trim_bounded()?;
                self.trim_to(0)?;
                work()
            }
            answer => answer,
        }
    }

    fn ready(&self, call: &str, code: Code) -> Result<bool> {
        if code == ERROR_NOT_READY { Ok(false) } else { self.check(call, code).map(|()| true) }
    }

    fn enter(&self) -> Result<Current<'_>> {
        Driver::get()?;
        let ours = self.context as *mut c_void;
        let mut previous = std::ptr::null_mut();
        // SAFETY: writes one handle.
        self.check("cuCtxGetCurrent", unsafe { (self.functions().context_get_current)(&mut previous) })?;
        if previous == ours {
            return Ok(Current { driver: self.driver, previous: std::ptr::null_mut() });
        }
        // SAFETY: the primary context, retained for the process.
        self.check("cuCtxSetCurrent", unsafe { (self.functions().context_set_current)(ours) })?;
        Ok(Current { driver: self.driver, previous })
    }
}

/// Enters the context, calls one driver function, checks its code.
macro_rules! call {
    ($self:ident, $symbol:literal, $field:ident($($argument:expr),*)) => {{
        let _current = $self.enter()?;
        // SAFETY: the arguments are valid for this function: handles came from the driver, addresses from the caller,
        // who promised them (`Backend`), and results go to locals.
        let code = unsafe { ($self.functions().$field)($($argument),*) };
        $self.check($symbol, code)
    }};
}

mod pools;

use pools::{PoolAccess, PoolProperties, Pools};

impl Backend for CudaBackend {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn with_current(&self, work: &mut dyn FnMut()) -> Result<()> {
        let _current = self.enter()?;
        work();
        Ok(())
    }

    fn memory_info(&self) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0usize, 0usize);
        call!(self, "cuMemGetInfo", memory_info(&mut free, &mut total))?;
        Ok((free as u64, total as u64))
    }

    fn held_bytes(&self) -> Result<u64> {
        let of_pools = self.pools.as_ref().map_or(Ok(0), |pools| pools.held_bytes(self))?;
        Ok(of_pools + self.apart_bytes.load(Ordering::Relaxed))
    }

    fn allocate(&self, size_bytes: usize, stream: RawStream) -> Result<usize> {
        // Whole words: kernels that change single bits do it in the aligned word around them.
        let size_bytes = size_bytes.next_multiple_of(size_of::<u32>());
        if let Some(pools) = &self.pools {
            return pools.allocate(self, size_bytes, stream);
        }
        let mut address = 0u64;
        call!(self, "cuMemAlloc", memory_allocate(&mut address, size_bytes))?;
        Ok(address as usize)
    }

    fn allocate_bounded(&self, size_bytes: usize, stream: RawStream) -> Result<Option<usize>> {
        let size_bytes = size_bytes.next_multiple_of(size_of::<u32>());
        self.pools.as_ref().map_or(Ok(None), |pools| pools.allocate_bounded(self, size_bytes, stream))
    }

    unsafe fn free(&self, address: usize, stream: RawStream) -> Result<()> {
        if self.pools.is_none() {
            // cuMemFree waits for the device, so it is ordered after every stream.
            return call!(self, "cuMemFree", memory_free(address as u64));
        }
        call!(self, "cuMemFreeAsync", pool_free(address as u64, stream as *mut c_void))
    }

    fn allocate_apart(&self, size_bytes: usize) -> Result<usize> {
        let size_bytes = size_bytes.next_multiple_of(size_of::<u32>());
        let mut address = 0u64;
        call!(self, "cuMemAlloc", memory_allocate(&mut address, size_bytes))?;
        self.apart_bytes.fetch_add(size_bytes as u64, Ordering::Relaxed);
        Ok(address as usize)
    }

    unsafe fn free_apart(&self, address: usize, size_bytes: usize) -> Result<()> {
        // cuMemFree waits for the device, so it is ordered after every stream.
        call!(self, "cuMemFree", memory_free(address as u64))?;
        self.apart_bytes.fetch_sub(size_bytes.next_multiple_of(size_of::<u32>()) as u64, Ordering::Relaxed);
        Ok(())
    }

    fn bound(&self, limit_bytes: u64) -> Result<()> {
        self.pools.as_ref().map_or(Ok(()), |pools| pools.bound(self, limit_bytes))
    }

    fn trim_bounded(&self) -> Result<()> {
        self.pools.as_ref().map_or(Ok(()), |pools| pools.trim_bounded(self))
    }

    fn trim_to(&self, size_bytes: u64) -> Result<()> {
        self.pools.as_ref().map_or(Ok(()), |pools| pools.trim_to(self, size_bytes))
    }

    fn allocate_host(&self, size_bytes: usize) -> Result<usize> {
        const PORTABLE: c_uint = 1;
        let mut address = std::ptr::null_mut();
        call!(self, "cuMemHostAlloc", host_allocate(&mut address, size_bytes, PORTABLE))?;
        Ok(address as usize)
    }

    unsafe fn free_host(&self, address: usize, _size_bytes: usize) -> Result<()> {
        call!(self, "cuMemFreeHost", host_free(address as *mut c_void))
    }

    fn create_stream(&self, urgent: bool) -> Result<RawStream> {
        const NON_BLOCKING: c_uint = 1;
        // The driver takes the nearest one that the GPU has.
        let priority = if urgent { c_int::MIN } else { 0 };
        self.with_room(|| {
            let mut stream = std::ptr::null_mut();
            call!(self, "cuStreamCreateWithPriority", stream_create(&mut stream, NON_BLOCKING, priority))?;
            Ok(stream as usize)
        })
    }

    unsafe fn destroy_stream(&self, stream: RawStream) -> Result<()> {
        call!(self, "cuStreamDestroy", stream_destroy(stream as *mut c_void))
    }

    unsafe fn synchronize_stream(&self, stream: RawStream) -> Result<()> {
        call!(self, "cuStreamSynchronize", stream_synchronize(stream as *mut c_void))
    }

    unsafe fn stream_is_idle(&self, stream: RawStream) -> Result<bool> {
        let _current = self.enter()?;
        // SAFETY: the caller promises a live stream.
        let code = unsafe { (self.functions().stream_query)(stream as *mut c_void) };
        self.ready("cuStreamQuery", code)
    }

    fn synchronize_device(&self) -> Result<()> {
        call!(self, "cuCtxSynchronize", context_synchronize())
    }

    fn create_event(&self, timing: bool) -> Result<RawEvent> {
        const DISABLE_TIMING: c_uint = 2;
        self.with_room(|| {
            let mut event = std::ptr::null_mut();
            call!(self, "cuEventCreate", event_create(&mut event, if timing { 0 } else { DISABLE_TIMING }))?;
            Ok(event as usize)
        })
    }

    unsafe fn destroy_event(&self, event: RawEvent) -> Result<()> {
        call!(self, "cuEventDestroy", event_destroy(event as *mut c_void))
    }

    unsafe fn record(&self, event: RawEvent, stream: RawStream) -> Result<()> {
        call!(self, "cuEventRecord", event_record(event as *mut c_void, stream as *mut c_void))
    }

    unsafe fn wait(&self, stream: RawStream, event: RawEvent) -> Result<()> {
        call!(self, "cuStreamWaitEvent", stream_wait_event(stream as *mut c_void, event as *mut c_void, 0))
    }

    unsafe fn synchronize_event(&self, event: RawEvent) -> Result<()> {
        call!(self, "cuEventSynchronize", event_synchronize(event as *mut c_void))
    }

    unsafe fn event_is_done(&self, event: RawEvent) -> Result<bool> {
        let _current = self.enter()?;
        // SAFETY: the caller promises a live event.
        let code = unsafe { (self.functions().event_query)(event as *mut c_void) };
        self.ready("cuEventQuery", code)
    }

    unsafe fn elapsed_ms(&self, start: RawEvent, end: RawEvent) -> Result<f32> {
        let mut elapsed = 0.0;
        call!(self, "cuEventElapsedTime", event_elapsed(&mut elapsed, start as *mut c_void, end as *mut c_void))?;
        Ok(elapsed)
    }

    unsafe fn h2d(&self, src: *const u8, dst: usize, size_bytes: usize, stream: RawStream) -> Result<()> {
        call!(self, "cuMemcpyHtoDAsync", copy_h2d(dst as u64, src.cast(), size_bytes, stream as *mut c_void))
    }

    unsafe fn d2h(&self, src: usize, dst: *mut u8, size_bytes: usize, stream: RawStream) -> Result<()> {
        call!(self, "cuMemcpyDtoHAsync", copy_d2h(dst.cast(), src as u64, size_bytes, stream as *mut c_void))
    }

    unsafe fn d2d(&self, src: usize, dst: usize, size_bytes: usize, stream: RawStream) -> Result<()> {
        call!(self, "cuMemcpyAsync", copy_any(dst as u64, src as u64, size_bytes, stream as *mut c_void))
    }

    fn peer(&self) -> Option<Peer> {
        Some(Peer { device: self.device, context: self.context })
    }

    fn open_to(&self, other: Peer) -> Result<()> {
        self.pools.as_ref().map_or(Ok(()), |pools| pools.open_to(self, other.device))
    }

    unsafe fn copy_peer(
        &self,
        (src, from): (usize, Peer),
        (dst, to): (usize, Peer),
        size_bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        let (from, to, stream) = (from.context as *mut c_void, to.context as *mut c_void, stream as *mut c_void);
        call!(self, "cuMemcpyPeerAsync", copy_peer(dst as u64, to, src as u64, from, size_bytes, stream))
    }

    unsafe fn memset(&self, dst: usize, byte: u8, size_bytes: usize, stream: RawStream) -> Result<()> {
        call!(self, "cuMemsetD8Async", memset(dst as u64, byte, size_bytes, stream as *mut c_void))
    }

    fn load_module(&self, cubin: &[u8]) -> Result<usize> {
        // The driver reads the size from the ELF header, so a truncated image must not reach it: `kernel` verifies hashes.
        self.with_room(|| {
            let mut module = std::ptr::null_mut();
            call!(self, "cuModuleLoadData", module_load(&mut module, cubin.as_ptr().cast()))?;
            Ok(module as usize)
        })
    }

    unsafe fn function(&self, module: usize, name: &str) -> Result<RawFunction> {
        let name = CString::new(name).map_err(|_| Error::invalid("a kernel's name contains a zero byte"))?;
        self.with_room(|| {
            let mut function = std::ptr::null_mut();
            call!(self, "cuModuleGetFunction", module_function(&mut function, module as *mut c_void, name.as_ptr()))?;
            Ok(function as usize)
        })
    }

    unsafe fn launch(
        &self,
        function: RawFunction,
        grid: Grid,
        stream: RawStream,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        let (function, stream) = (function as *mut c_void, stream as *mut c_void);
        let (arguments, none) = (arguments.as_mut_ptr(), std::ptr::null_mut());
        let ([bx, by, bz], [tx, ty, tz], shared) = (grid.blocks, grid.threads, grid.shared_bytes);
        // The first launch of a kernel may have to load it.
        self.with_room(|| {
            call!(self, "cuLaunchKernel", launch(function, bx, by, bz, tx, ty, tz, shared, stream, arguments, none))
        })
    }

    unsafe fn unload_module(&self, module: usize) -> Result<()> {
        call!(self, "cuModuleUnload", module_unload(module as *mut c_void))
    }

    unsafe fn function_info(&self, function: RawFunction) -> Result<FunctionInfo> {
        let attribute = |attribute: c_int| -> Result<u32> {
            let mut value = 0;
            let function = function as *mut c_void;
            call!(self, "cuFuncGetAttribute", function_attribute(&mut value, attribute, function))?;
            Ok(value.max(0) as u32)
        };
        Ok(FunctionInfo {
            max_threads: attribute(FUNCTION_MAX_THREADS)?,
            static_shared_bytes: attribute(FUNCTION_SHARED_BYTES)?,
            local_bytes: attribute(FUNCTION_LOCAL_BYTES)?,
            registers: attribute(FUNCTION_REGISTERS)?,
            parameter_bytes: self.parameter_bytes(function)?,
        })
    }

    unsafe fn allow_shared(&self, function: RawFunction, size_bytes: u32) -> Result<()> {
        let (function, size) = (function as *mut c_void, size_bytes as c_int);
        call!(self, "cuFuncSetAttribute", function_set_attribute(function, FUNCTION_MAX_DYNAMIC_SHARED_BYTES, size))
    }
}
