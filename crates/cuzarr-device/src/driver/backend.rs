//! The seam under everything that runs on a device: some forty calls that the CUDA driver answers, or `simt` in tests.

use std::ffi::{c_int, c_void};

use crate::error::{Error, ErrorKind, Result};

/// A backend's handle of a stream; 0 is the legacy default stream.
pub(crate) type RawStream = usize;
/// A backend's handle of an event.
pub(crate) type RawEvent = usize;
/// A backend's handle of a kernel.
pub(crate) type RawFunction = usize;

/// Size and shape of a launch: blocks of the grid and threads of a block, each by x, y and z.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) blocks: [u32; 3],
    pub(crate) threads: [u32; 3],
    pub(crate) shared_bytes: u32,
}

/// The driver's facts about a kernel, for checks before a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FunctionInfo {
    /// Most threads of a block, with the registers it takes.
    pub(crate) max_threads: u32,
    /// Shared memory that is declared in the source.
    pub(crate) static_shared_bytes: u32,
    pub(crate) registers: u32,
    pub(crate) local_bytes: u32,
    /// Size of each parameter; `None` when the driver is too old to say (before CUDA 12.4).
    pub(crate) parameter_bytes: Option<Vec<usize>>,
}

/// The properties of a device, asked once.
#[derive(Clone, Debug)]
pub(crate) struct Properties {
    pub(crate) name: String,
    pub(crate) compute_capability: (u32, u32),
    pub(crate) multiprocessors: u32,
    pub(crate) total_bytes: u64,
    pub(crate) memory_pools: bool,
}

/// The names of one GPU in driver calls about another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// The driver's handle of the GPU.
    pub(crate) device: c_int,
    /// Its context.
    pub(crate) context: usize,
}

/// One device, as the rest of the crate uses it. Every call may come from any thread.
///
/// # Safety
/// The `unsafe` calls trust their addresses, sizes and handles: memory must be valid until the stream has passed the call.
pub(crate) trait Backend: Send + Sync {
    fn properties(&self) -> &Properties;
    fn memory_info(&self) -> Result<(u64, u64)>;
    /// Bytes that its pools have taken from the system.
    fn held_bytes(&self) -> Result<u64>;
    fn allocate(&self, size_bytes: usize, stream: RawStream) -> Result<usize>;
    /// Like `allocate`, from the pool of memory in flight, which takes no more of the system than `bound` was told last;
    /// `None` when there is no such pool.
    fn allocate_bounded(&self, size_bytes: usize, stream: RawStream) -> Result<Option<usize>>;
    unsafe fn free(&self, address: usize, stream: RawStream) -> Result<()>;
    /// Memory outside of the pools, in the system's units, which every stream may use at once.
    fn allocate_apart(&self, size_bytes: usize) -> Result<usize>;
    /// Gives memory of `allocate_apart` back to the system. May wait for the device.
    unsafe fn free_apart(&self, address: usize, size_bytes: usize) -> Result<()>;
    /// Overwrites memory that is not used yet, so that tests notice reads of bytes that were never written.
    unsafe fn spoil(&self, _address: usize, _size_bytes: usize) {}
    /// Limits the pool of memory in flight to `limit_bytes`, in a new pool; 0 ends it. Memory that it gave before stays as
    /// it is.
    fn bound(&self, limit_bytes: u64) -> Result<()>;
    /// Gives the unused memory of the pool of memory in flight back to the system, without waiting, as `trim_to`.
    fn trim_bounded(&self) -> Result<()>;
    /// Gives unused pool memory back to the system until the pool holds at most `size_bytes`, as far as possible. Does not
    /// wait for memory that streams still use.
    fn trim_to(&self, size_bytes: u64) -> Result<()>;
    fn allocate_host(&self, size_bytes: usize) -> Result<usize>;
    unsafe fn free_host(&self, address: usize, size_bytes: usize) -> Result<()>;
    fn create_stream(&self, urgent: bool) -> Result<RawStream>;
    unsafe fn destroy_stream(&self, stream: RawStream) -> Result<()>;
    unsafe fn synchronize_stream(&self, stream: RawStream) -> Result<()>;
    unsafe fn stream_is_idle(&self, stream: RawStream) -> Result<bool>;
    /// Runs `work` with the device's context current on this thread, for libraries that ask for it.
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
    /// The device's name to other devices; `None` when there can be no other of its kind.
    fn peer(&self) -> Option<Peer> {
        None
    }
    /// Lets another GPU reach this one's pool, where the machine joins the two.
    fn open_to(&self, _other: Peer) -> Result<()> {
        Ok(())
    }
    /// Copies from an address on one GPU to an address on another, on a stream of this one, which may be either of them.
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
    /// Loads machine code for this device; `simt` needs none, its library holds every kernel already.
    fn load_module(&self, cubin: &[u8]) -> Result<usize>;
    unsafe fn function(&self, module: usize, name: &str) -> Result<RawFunction>;
    /// Gives a module back; no kernel of it runs any more.
    unsafe fn unload_module(&self, module: usize) -> Result<()>;
    /// Size of each parameter; `None` when the driver is too old to say (before CUDA 12.4).
    unsafe fn parameter_bytes(&self, function: RawFunction) -> Result<Option<Vec<usize>>>;
    unsafe fn function_info(&self, function: RawFunction) -> Result<FunctionInfo>;
    /// Lets launches of the function ask for `size_bytes` of dynamic shared memory.
    unsafe fn allow_shared(&self, function: RawFunction, size_bytes: u32) -> Result<()>;
    unsafe fn launch(
        &self,
        function: RawFunction,
        grid: Grid,
        stream: RawStream,
        arguments: &mut [*mut c_void],
    ) -> Result<()>;
}
