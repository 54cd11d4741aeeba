//! Kernels: from a `.cu` file to a launch.
//!
//! A [`KernelSource`] is the text of a file, embedded with `include_str!`. Its machine code has a key made of
//! everything that affects it, and is searched for in this order:
//!
//! 1. cubins shipped with the package ([`set_cubin_directory`] or `CUZARR_CUBIN_DIR`), made by `scripts/compile_kernels.py`;
//! 2. the cache on disk;
//! 3. NVRTC, whose result goes into the cache.
//!
//! So a machine with the wheel needs neither compiler nor toolkit, and `cargo build` needs no CUDA. On `simt`, the
//! kernel is a function of the same name in the test library.

mod arguments;
mod defined;
pub(crate) mod module;

use std::collections::HashMap;
use std::sync::Mutex;

use crate::device::Device;
use crate::driver::backend::{Grid, RawFunction};
use crate::driver::context::{Context, PerDevice};
use crate::driver::cubin;
use crate::driver::source::KernelSource;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::arguments::check_arguments;
use crate::lock::lock;
use crate::memory::buffer::Buffer;
use crate::stream::Stream;

pub use crate::driver::cubin::set_cubin_directory;

pub use arguments::Arguments;
pub use defined::{defined, stated_size};

/// Number of threads in a warp.
pub const WARP: u32 = defined(include_str!("../../kernels/include/cuzarr/kernel.cuh"), "CUZARR_WARP");

/// The kernels of `.cu` files that are loaded on each device.
static KERNELS: PerDevice<Kernels> = PerDevice::new();

#[derive(Default)]
struct Kernels(Mutex<Loaded>);

#[derive(Default)]
struct Loaded {
    modules: HashMap<&'static str, usize>,
    entries: HashMap<(&'static str, String), &'static KernelEntry>,
}

/// One loaded kernel of a `.cu` file. It and its module are kept until the process ends.
struct KernelEntry {
    name: String,
    function: RawFunction,
    /// Size in bytes of each of the kernel's parameters; `None` if the driver cannot tell.
    parameter_bytes: Option<Vec<usize>>,
}

/// A kernel on one device, ready to be launched.
#[derive(Clone, Copy)]
pub struct Kernel {
    context: &'static Context,
    entry: &'static KernelEntry,
    shared_bytes: u32,
}

impl KernelSource {
    /// Returns the kernel `entry` of this source file, loaded on `device`. Loads it at the first call, and compiles it
    /// if needed.
    ///
    /// # Errors
    /// `Unsupported` on `cpu`; `LibraryMissing` when it has to be compiled and there is no NVRTC; `KernelCompileFailed`;
    /// `DeviceUnavailable`, `DeviceFailed`.
    pub fn kernel(&'static self, device: Device, entry: &str) -> Result<Kernel> {
        let context = Context::get(device)?;
        let mut loaded = lock(&KERNELS.of(context).0);
        let key = (self.name, entry.to_string());
        if let Some(&entry) = loaded.entries.get(&key) {
            return Ok(Kernel { context, entry, shared_bytes: 0 });
        }
        let module = match loaded.modules.get(self.name) {
            Some(&module) => module,
            None => {
                // Under the lock: other threads that want the same file wait, instead of compiling it again.
                let module = self.load(context)?;
                loaded.modules.insert(self.name, module);
                module
            }
        };
        // SAFETY: the module was loaded by this backend, and modules of files are never unloaded.
        let function = unsafe { context.backend.function(module, entry) }?;
        // SAFETY: the backend gave the function just now.
        let parameter_bytes = unsafe { context.backend.parameter_bytes(function) }?;
        let entry: &'static KernelEntry =
            Box::leak(Box::new(KernelEntry { name: entry.to_string(), function, parameter_bytes }));
        loaded.entries.insert(key, entry);
        Ok(Kernel { context, entry, shared_bytes: 0 })
    }

    /// The hash of everything that affects the machine code of this source, except architecture and compiler. Part of
    /// the names of its cubins.
    ///
    /// # Errors
    /// `KernelCompileFailed` when the source includes a header that it does not carry.
    pub fn key(&self) -> Result<String> {
        Ok(cubin::key(self, &cubin::included(self.text, self.headers)?))
    }

    fn load(&self, context: &'static Context) -> Result<usize> {
        if context.device == Device::Simt {
            // The library was built from the source tree. This check finds missing headers that only a GPU build would
            // notice.
            cubin::included(self.text, self.headers)?;
            return context.backend.load_module(&[]);
        }
        let capability = context.backend.properties().compute_capability;
        let mut problems = Vec::new();
        let headers = cubin::included(self.text, self.headers)?;
        for found in cubin::candidates(self, &headers, capability) {
            match context.backend.load_module(&found.bytes) {
                Ok(module) => return Ok(module),
                Err(error) => problems.push(format!("{}: {}", found.origin, error.message())),
            }
        }
        let compiled = cubin::compile(self, &headers, capability).map_err(|error| match problems.is_empty() {
            true => error,
            false => Error::new(error.kind(), format!("{}; before that, {}", error.message(), problems.join("; ")))
                .with_hint(error.hint().unwrap_or("update the NVIDIA driver").to_string()),
        })?;
        context.backend.load_module(&compiled)
    }
}

impl Kernel {
    /// Number of multiprocessors of the kernel's device. Grids of persistent kernels are sized by it.
    pub fn multiprocessors(&self) -> u32 {
        self.context.backend.properties().multiprocessors
    }

    /// Returns the kernel for launches with `size_bytes` of shared memory, in the array that it declares with
    /// `CUZARR_SHARED_ASKED`. Does nothing on `simt`, where such an array is a plain one.
    ///
    /// # Errors
    /// `DeviceFailed` when the device does not have that much.
    pub fn with_shared(mut self, size_bytes: u32) -> Result<Kernel> {
        if self.context.device != Device::Simt {
            // SAFETY: the backend gave the function, whose module is never unloaded.
            unsafe { self.context.backend.allow_shared(self.entry.function, size_bytes) }?;
            self.shared_bytes = size_bytes;
        }
        Ok(self)
    }

    /// Submits a launch of this kernel on `stream`, with `blocks` blocks of `threads` threads. `buffers` must list all
    /// device memory that the arguments point into.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty grid, and for arguments whose number or sizes are not those of the parameters;
    /// `MemorySpace` for a stream of another device, `DeviceFailed`.
    ///
    /// # Safety
    /// The arguments have the types and layout of the kernel's parameters. With these arguments and this grid, the
    /// kernel only accesses the memory of `buffers`.
    pub unsafe fn launch<A: Arguments>(
        &self,
        stream: &Stream,
        blocks: u32,
        threads: u32,
        arguments: A,
        buffers: &[&Buffer],
    ) -> Result<()> {
        if stream.device() != self.context.device {
            let message = format!("a kernel of {} cannot run on a stream of {}", self.context.device, stream.device());
            return Err(Error::new(ErrorKind::MemorySpace, message));
        }
        if blocks == 0 || threads == 0 {
            return Err(Error::invalid(format!(
                "got a launch of {blocks} blocks of {threads} threads, expected at least one of each"
            )));
        }
        check_arguments(&self.entry.name, self.entry.parameter_bytes.as_deref(), &arguments.sizes())?;
        for buffer in buffers {
            stream.begin_use(buffer)?;
        }
        let mut arguments = arguments;
        let mut pointers = arguments.pointers();
        let grid = Grid { blocks: [blocks, 1, 1], threads: [threads, 1, 1], shared_bytes: self.shared_bytes };
        // SAFETY: the number and sizes of the arguments were checked if the driver knows the parameters. The caller
        // promises their types and the kernel's accesses. The pointers are to `arguments`, which outlives the call.
        unsafe { self.context.backend.launch(self.entry.function, grid, stream.raw_handle(), &mut pointers) }?;
        stream.end_use(buffers)
    }
}
