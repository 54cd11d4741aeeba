//! [`CudaBackend`]: one GPU, through the CUDA driver.

pub(crate) mod driver;
mod functions;

use std::ffi::{CString, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::driver::backend::{Backend, FunctionInfo, Grid, Peer, Properties, RawEvent, RawFunction, RawStream};
use crate::driver::cuda::driver::Driver;
use crate::driver::cuda::functions::*;
use crate::error::{Error, ErrorKind, Result};

/// One GPU: its primary context, retained once and never reset, and its memory pools.
pub(crate) struct CudaBackend {
    driver: &'static Driver,
    device: c_int,
    context: usize,
    /// The GPU's memory pools; `None` if it has none, like some virtual GPUs. Plain allocations are used then.
    pools: Option<Pools>,
    /// Number of bytes of GPU memory that are allocated outside the pools.
    apart_bytes: AtomicU64,
    properties: Properties,
}

/// A guard that keeps the GPU's context current for the calling thread, until the guard is dropped. `drop` makes the
/// previous one current again.
struct Current<'a> {
    driver: &'a Driver,
    previous: *mut c_void,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        if !self.previous.is_null() {
            // SAFETY: it was current before; if the call fails, our context stays current, which does no harm.
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

    /// Runs `work`; if the driver has no memory left, gives the pools' unused memory back and runs `work` once more.
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

/// Makes the GPU's context current, calls one function of the CUDA driver, and checks the code that it returns.
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

use pools::Pools;

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
        // Rounds up to whole words: kernels that change single bits write the aligned word around them.
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

    fn reaches_host(&self, address: usize, size_bytes: usize) -> Result<bool> {
        let last = address + size_bytes.saturating_sub(1);
        Ok(self.driver.is_pinned(address)? && self.driver.is_pinned(last)?)
    }

    fn create_stream(&self, urgent: bool) -> Result<RawStream> {
        const NON_BLOCKING: c_uint = 1;
        // The driver takes the nearest priority that the GPU has.
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
        src: usize,
        from: Peer,
        dst: usize,
        to: Peer,
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
        // The driver reads the size from the ELF header, so a truncated image must not reach it. `kernel` verifies
        // hashes before.
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
            // SAFETY: the caller promises a function of this driver.
            parameter_bytes: unsafe { self.parameter_bytes(function) }?,
        })
    }

    unsafe fn allow_shared(&self, function: RawFunction, size_bytes: u32) -> Result<()> {
        let (function, size) = (function as *mut c_void, size_bytes as c_int);
        call!(self, "cuFuncSetAttribute", function_set_attribute(function, FUNCTION_MAX_DYNAMIC_SHARED_BYTES, size))
    }

    unsafe fn parameter_bytes(&self, function: RawFunction) -> Result<Option<Vec<usize>>> {
        let Some(parameter_info) = self.driver.parameter_info else { return Ok(None) };
        let _current = self.enter()?;
        let mut sizes = Vec::new();
        loop {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: the caller promises a function of this driver; the call writes two sizes, to locals.
            let code = unsafe { parameter_info(function as *mut c_void, sizes.len(), &mut offset, &mut size) };
            if code == ERROR_INVALID_VALUE {
                // The driver's answer behind the last parameter.
                return Ok(Some(sizes));
            }
            self.check("cuFuncGetParamInfo", code)?;
            sizes.push(size);
        }
    }
}
