//! The trait by which this crate calls each kind of device: some forty methods. The CUDA driver implements them, and so
//! does `simt` in tests.

use std::ffi::{c_int, c_void};

use crate::error::{Error, ErrorKind, Result};

/// The number by which a backend (the driver of one device) identifies a stream. 0 is the legacy default stream.
pub(crate) type RawStream = usize;
/// The number by which a backend (the driver of one device) identifies an event.
pub(crate) type RawEvent = usize;
/// The number by which a backend (the driver of one device) identifies a kernel.
pub(crate) type RawFunction = usize;

/// Size and shape of a launch: blocks of the grid and threads of a block, by x, y and z.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) blocks: [u32; 3],
    pub(crate) threads: [u32; 3],
    pub(crate) shared_bytes: u32,
}

/// Facts about a kernel from the driver, for checks before a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FunctionInfo {
    /// Largest block, in threads, that the kernel's registers allow.
    pub(crate) max_threads: u32,
    /// Bytes of shared memory per block that the kernel's source declares.
    pub(crate) static_shared_bytes: u32,
    pub(crate) registers: u32,
    pub(crate) local_bytes: u32,
    /// Size of each parameter of the kernel; `None` if the driver cannot tell (before CUDA 12.4).
    pub(crate) parameter_bytes: Option<Vec<usize>>,
}

/// The properties of a device, read once.
#[derive(Clone, Debug)]
pub(crate) struct Properties {
    pub(crate) name: String,
    pub(crate) compute_capability: (u32, u32),
    pub(crate) multiprocessors: u32,
    pub(crate) total_bytes: u64,
    pub(crate) memory_pools: bool,
}

/// The values by which the driver identifies one GPU, for driver calls that involve two GPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// The `CUdevice` of the GPU, as the driver's calls take it.
    pub(crate) device: c_int,
    /// The `CUcontext` of the GPU, as the driver's calls take it.
    pub(crate) context: usize,
}

/// The calls to one device that the rest of the crate uses, for memory, copies, streams, events and kernels. Every call
/// may come from any thread.
///
/// # Safety
/// The `unsafe` calls trust their addresses, sizes and handles. Memory must stay valid until the stream has passed the
/// call.
pub(crate) trait Backend: Send + Sync {
    fn properties(&self) -> &Properties;
    fn memory_info(&self) -> Result<(u64, u64)>;
    /// Number of bytes that the device's pools have taken from the system.
    fn held_bytes(&self) -> Result<u64>;
    fn allocate(&self, size_bytes: usize, stream: RawStream) -> Result<usize>;
    /// Like `allocate`, but for memory that work needs besides its results; it comes from the pool that `bound` limits.
    /// `None` if there is no such pool.
    fn allocate_bounded(&self, size_bytes: usize, stream: RawStream) -> Result<Option<usize>>;
    unsafe fn free(&self, address: usize, stream: RawStream) -> Result<()>;
    /// Allocates memory outside the pools, directly from the system. Every stream may use it immediately.
    fn allocate_apart(&self, size_bytes: usize) -> Result<usize>;
    /// Frees memory that `allocate_apart` returned. May wait for the device.
    unsafe fn free_apart(&self, address: usize, size_bytes: usize) -> Result<()>;
    /// Overwrites memory that is not used yet, so that tests notice reads of bytes that were never written.
    unsafe fn spoil(&self, _address: usize, _size_bytes: usize) {}
    /// Makes `allocate_bounded` use a pool of at most `limit_bytes` from now on, or no pool if that is 0. Memory from
    /// the previous pool stays valid.
    fn bound(&self, limit_bytes: u64) -> Result<()>;
    /// Gives unused memory back to the system from the pool that `bound` limits. Like `trim_to`, does not wait.
    fn trim_bounded(&self) -> Result<()>;
    /// Gives unused memory back to the system from the pool for results, until it holds at most `size_bytes` if
    /// possible. Does not wait for memory that streams still use.
    fn trim_to(&self, size_bytes: u64) -> Result<()>;
    fn allocate_host(&self, size_bytes: usize) -> Result<usize>;
    unsafe fn free_host(&self, address: usize, size_bytes: usize) -> Result<()>;
    /// Whether kernels reach these bytes of host memory, because they are pinned, by their host address.
    fn reaches_host(&self, address: usize, size_bytes: usize) -> Result<bool>;
    fn create_stream(&self, urgent: bool) -> Result<RawStream>;
    unsafe fn destroy_stream(&self, stream: RawStream) -> Result<()>;
    unsafe fn synchronize_stream(&self, stream: RawStream) -> Result<()>;
    unsafe fn stream_is_idle(&self, stream: RawStream) -> Result<bool>;
    /// Runs `work` while the device's context is current on this thread. Some libraries need that.
    fn with_current(&self, work: &mut dyn FnMut()) -> Result<()> {
        work();
        Ok(())
    }
    fn synchronize_device(&self) -> Result<()>;
    fn create_event(&self, timing: bool) -> Result<RawEvent>;
    unsafe fn destroy_event(&self, event: RawEvent) -> Result<()>;
    unsafe fn record(&self, event: RawEvent, stream: RawStream) -> Result<()>;
    unsafe fn wait(&self, stream: RawStream, event: RawEvent) -> Result<()>;
    unsafe fn synchronize_event(&self, event: RawEvent) -> Result<()>;
    unsafe fn event_is_done(&self, event: RawEvent) -> Result<bool>;
    unsafe fn elapsed_ms(&self, start: RawEvent, end: RawEvent) -> Result<f32>;
    unsafe fn h2d(&self, src: *const u8, dst: usize, size_bytes: usize, stream: RawStream) -> Result<()>;
    unsafe fn d2h(&self, src: usize, dst: *mut u8, size_bytes: usize, stream: RawStream) -> Result<()>;
    unsafe fn d2d(&self, src: usize, dst: usize, size_bytes: usize, stream: RawStream) -> Result<()>;
    /// The values by which the driver identifies this GPU, for copies to and from other GPUs; `None` for other kinds of
    /// devices.
    fn peer(&self) -> Option<Peer> {
        None
    }
    /// Lets another GPU access the memory of this GPU's pools, if the machine connects the two.
    fn open_to(&self, _other: Peer) -> Result<()> {
        Ok(())
    }
    /// Copies from an address on one GPU to an address on another. One of them is this GPU, to which the stream
    /// belongs.
    unsafe fn copy_peer(
        &self,
        _src: usize,
        _from: Peer,
        _dst: usize,
        _to: Peer,
        _size_bytes: usize,
        _stream: RawStream,
    ) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "there is no other device of this kind"))
    }
    unsafe fn memset(&self, dst: usize, byte: u8, size_bytes: usize, stream: RawStream) -> Result<()>;
    /// Loads the machine code of kernels (a cubin) onto this device, and returns the number that identifies the loaded
    /// module. On `simt`, only kernels that were compiled at run time need it.
    fn load_module(&self, cubin: &[u8]) -> Result<usize>;
    unsafe fn function(&self, module: usize, name: &str) -> Result<RawFunction>;
    /// Unloads a module of kernels that `load_module` loaded. None of its kernels may still run.
    unsafe fn unload_module(&self, module: usize) -> Result<()>;
    /// Size of each parameter of a kernel; `None` if the driver cannot tell (before CUDA 12.4).
    unsafe fn parameter_bytes(&self, function: RawFunction) -> Result<Option<Vec<usize>>>;
    unsafe fn function_info(&self, function: RawFunction) -> Result<FunctionInfo>;
    /// Lets launches of a kernel ask for up to `size_bytes` of dynamic shared memory.
    unsafe fn allow_shared(&self, function: RawFunction, size_bytes: u32) -> Result<()>;
    unsafe fn launch(
        &self,
        function: RawFunction,
        grid: Grid,
        stream: RawStream,
        arguments: &mut [*mut c_void],
    ) -> Result<()>;
}
