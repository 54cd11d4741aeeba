//! The user's own kernels: CUDA C++ that is compiled at run time, for the device it runs on.
//!
//! ```no_run
//! use cuzarr_device::{Buffer, Device, LaunchShape, Module, Stream};
//! # fn main() -> cuzarr_device::Result<()> {
//! let source = "extern \"C\" __global__ void scale(float *x, float by, int n) {
//!     int i = blockIdx.x * blockDim.x + threadIdx.x;
//!     if (i < n) x[i] *= by;
//! }";
//! let device = Device::Cuda(0);
//! let scale = Module::compile(device, "scale.cu", source, &[])?.function("scale")?;
//! let (x, stream) = (Buffer::zeroed(device, 4096)?, Stream::new(device)?);
//! // SAFETY: the parameters are a pointer, a float and an int, and the kernel stays below `n` elements.
//! unsafe { scale.launch(&stream, LaunchShape::line(4, 256), (x.address(), 2f32, 1024i32), &[&x]) }?;
//! stream.synchronize()
//! # }
//! ```

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use crate::device::Device;
use crate::driver::backend::{FunctionInfo, Grid, RawFunction};
use crate::driver::context::Context;
use crate::driver::cubin::{self, UserText};
use crate::driver::simt;
use crate::driver::source::Header;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::arguments::{Arguments, check_arguments};
use crate::lock::lock;
use crate::memory::buffer::Buffer;
use crate::stream::Stream;

/// Bytes of dynamic shared memory that every kernel may use without asking the driver. More has to be allowed first.
const PLAIN_SHARED_BYTES: u32 = 48 << 10;

/// Machine code that the driver has loaded on one device. Unloaded when the last module and function that use it are
/// dropped.
struct LoadedModule {
    context: &'static Context,
    handle: usize,
}

impl LoadedModule {
    fn load(context: &'static Context, cubin: &[u8]) -> Result<Arc<LoadedModule>> {
        Ok(Arc::new(LoadedModule { context, handle: context.backend.load_module(cubin)? }))
    }
}

impl Drop for LoadedModule {
    fn drop(&mut self) {
        // One of its kernels may still run. If waiting fails, the device is lost, and its memory with it.
        if self.context.backend.synchronize_device().is_ok() {
            // SAFETY: ours, and nothing of it runs any more.
            let _ = unsafe { self.context.backend.unload_module(self.handle) };
        }
    }
}

/// A text of CUDA C++, compiled for one device. Clones share the same module; any thread may use it.
#[derive(Clone)]
pub struct Module(Arc<ModuleInner>);

struct ModuleInner {
    context: &'static Context,
    file: String,
    text: String,
    options: Vec<String>,
    headers: &'static [Header],
    plain: Arc<LoadedModule>,
    /// Kernels by the C++ name that was requested, such as `scale<float>`; each comes from its own compilation.
    expressions: Mutex<HashMap<String, Function>>,
}

/// One kernel of a [`Module`].
#[derive(Clone)]
pub struct Function {
    loaded: Arc<LoadedModule>,
    raw: RawFunction,
    name: String,
    info: FunctionInfo,
}

/// The size of a launch: blocks, threads per block, and dynamic shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchShape {
    /// Number of blocks by x, y and z.
    pub grid: [u32; 3],
    /// Number of threads per block, by x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory per block, in bytes.
    pub shared_bytes: u32,
}

impl LaunchShape {
    /// A one-dimensional grid of `blocks` blocks with `threads` threads each.
    pub fn line(blocks: u32, threads: u32) -> LaunchShape {
        LaunchShape { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 0 }
    }
}

impl Module {
    /// Compiles `text` for `device` with NVRTC, or takes the machine code that an earlier run kept on disk. `file` is
    /// its name in the compiler's messages; `options` are those of NVRTC (`-DN=4`, `--use_fast_math`, `-I…`).
    ///
    /// CUDA's own headers are found if NVRTC is part of a toolkit or lies beside the wheel `nvidia-cuda-runtime`.
    ///
    /// # Errors
    /// `KernelCompileFailed`, with the compiler's messages and the lines they are about; `LibraryMissing` when there is
    /// no NVRTC; `Unsupported` on `cpu`; `DeviceUnavailable`, `DeviceFailed`.
    pub fn compile(device: Device, file: &str, text: &str, options: &[String]) -> Result<Module> {
        Module::compile_with(device, file, text, options, &[])
    }

    /// Like [`Module::compile`], for a text that includes headers from the crate it belongs to.
    ///
    /// # Errors
    /// The errors of [`Module::compile`].
    pub fn compile_with(
        device: Device,
        file: &str,
        text: &str,
        options: &[String],
        headers: &'static [Header],
    ) -> Result<Module> {
        let context = Self::context(device)?;
        let cubin = if device == Device::Simt {
            simt::compile(file, text)?
        } else {
            let capability = context.backend.properties().compute_capability;
            cubin::compile_user(UserText { file, text, options, own: &[headers] }, None, capability)?.cubin
        };
        let plain = LoadedModule::load(context, &cubin)?;
        let (file, text, options) = (file.to_string(), text.to_string(), options.to_vec());
        Ok(Module(Arc::new(ModuleInner {
            context,
            file,
            text,
            options,
            headers,
            plain,
            expressions: Mutex::default(),
        })))
    }

    fn context(device: Device) -> Result<&'static Context> {
        if device != Device::Cpu {
            return Context::get(device);
        }
        Err(Error::new(ErrorKind::Unsupported, format!("CUDA C++ does not run on {device}"))
            .with_hint("compile it for a GPU: device \"cuda:0\""))
    }

    /// Checks that a text compiles for GPUs of compute capability `(major, minor)`. Needs NVRTC but no GPU.
    ///
    /// # Errors
    /// `KernelCompileFailed`, `LibraryMissing`.
    pub fn check(file: &str, text: &str, options: &[String], capability: (u32, u32)) -> Result<()> {
        Module::check_with(file, text, options, &[], capability)
    }

    /// Like [`Module::check`], for a text that includes headers from the crate it belongs to.
    ///
    /// # Errors
    /// The errors of [`Module::check`].
    pub fn check_with(
        file: &str,
        text: &str,
        options: &[String],
        headers: &'static [Header],
        capability: (u32, u32),
    ) -> Result<()> {
        cubin::compile_user(UserText { file, text, options, own: &[headers] }, None, capability).map(|_| ())
    }

    /// The device for which the module was compiled.
    pub fn device(&self) -> Device {
        self.0.context.device
    }

    /// Returns the kernel called `name` in the module. That is the name of an `extern "C"` kernel, the C++ name of
    /// another kernel, or an instance of a template (`scale<float>`). In the last two cases, the first call for a name
    /// compiles the text again.
    ///
    /// # Errors
    /// `InvalidArgument` when the text has no such kernel.
    pub fn function(&self, name: &str) -> Result<Function> {
        let inner = &*self.0;
        // SAFETY: a module that this function will keep alive.
        if let Ok(raw) = unsafe { inner.context.backend.function(inner.plain.handle, name) } {
            return Function::new(inner.plain.clone(), raw, name);
        }
        if self.device() == Device::Simt {
            return Err(Error::invalid(format!("{} has no kernel '{name}'", inner.file)));
        }
        // Under the lock: other threads that want the same kernel wait, instead of compiling it again.
        let mut expressions = lock(&inner.expressions);
        if let Some(function) = expressions.get(name) {
            return Ok(function.clone());
        }
        let capability = inner.context.backend.properties().compute_capability;
        let ModuleInner { file, text, options, headers, .. } = inner;
        let source = UserText { file, text, options, own: &[headers] };
        let compiled = cubin::compile_user(source, Some(name), capability);
        let compiled = compiled.map_err(|error| {
            Error::new(ErrorKind::InvalidArgument, format!("{} has no kernel '{name}'", inner.file))
                .with_hint("look for its __global__ function; a template needs its arguments: 'name<float>'")
                .with_source(error)
        })?;
        let loaded = LoadedModule::load(inner.context, &compiled.cubin)?;
        let symbol = compiled.lowered_name.unwrap_or_default();
        // SAFETY: as above.
        let raw = unsafe { inner.context.backend.function(loaded.handle, &symbol) }?;
        let function = Function::new(loaded, raw, name)?;
        expressions.insert(name.to_string(), function.clone());
        Ok(function)
    }
}

impl Function {
    fn new(loaded: Arc<LoadedModule>, raw: RawFunction, name: &str) -> Result<Function> {
        // SAFETY: the module gave it.
        let info = unsafe { loaded.context.backend.function_info(raw) }?;
        Ok(Function { loaded, raw, name: name.to_string(), info })
    }

    /// The name under which the kernel was requested.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device on which the kernel can be launched.
    pub fn device(&self) -> Device {
        self.loaded.context.device
    }

    /// Largest block, in threads, that the kernel's registers allow.
    pub fn max_threads(&self) -> u32 {
        self.info.max_threads
    }

    /// Number of registers that each thread of the kernel uses.
    pub fn registers(&self) -> u32 {
        self.info.registers
    }

    /// Local memory per thread, in bytes: variables that did not fit into registers.
    pub fn local_bytes(&self) -> u32 {
        self.info.local_bytes
    }

    /// Shared memory per block that the source declares, in bytes.
    pub fn static_shared_bytes(&self) -> u32 {
        self.info.static_shared_bytes
    }

    /// Size of each parameter in bytes; `None` when the driver is older than CUDA 12.4.
    pub fn parameter_bytes(&self) -> Option<&[usize]> {
        self.info.parameter_bytes.as_deref()
    }

    /// Submits a launch of this kernel on `stream`. `buffers` must list all device memory of this crate that the
    /// arguments point into.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty grid, for a block of too many threads, and for arguments whose number or sizes
    /// differ from the parameters; `MemorySpace` for a stream of another device; `DeviceFailed`. A fault of the kernel
    /// is reported by a later call, at the latest when the stream is synchronised.
    ///
    /// # Safety
    /// The arguments have the meaning of the kernel's parameters, and the kernel stays inside the memory that it was
    /// given.
    pub unsafe fn launch<A: Arguments>(
        &self,
        stream: &Stream,
        shape: LaunchShape,
        arguments: A,
        buffers: &[&Buffer],
    ) -> Result<()> {
        let context = self.loaded.context;
        if stream.device() != context.device {
            let message = format!("kernel '{}' of {} cannot run on {stream:?}", self.name, context.device);
            return Err(Error::new(ErrorKind::MemorySpace, message));
        }
        let mut arguments = arguments;
        self.check(shape, &arguments.sizes())?;
        let shared = self.info.static_shared_bytes.saturating_add(shape.shared_bytes);
        if shared > PLAIN_SHARED_BYTES {
            // SAFETY: the module gave the function.
            unsafe { context.backend.allow_shared(self.raw, shape.shared_bytes) }?;
        }
        for buffer in buffers {
            stream.begin_use(buffer)?;
        }
        let mut pointers = arguments.pointers();
        let grid = Grid { blocks: shape.grid, threads: shape.block, shared_bytes: shape.shared_bytes };
        // SAFETY: the number and sizes of the arguments were checked if the driver knows the parameters. The caller
        // promises their meaning. The pointers outlive the call.
        unsafe { context.backend.launch(self.raw, grid, stream.raw_handle(), &mut pointers) }?;
        stream.end_use(buffers)
    }

    fn check(&self, shape: LaunchShape, sizes: &[usize]) -> Result<()> {
        let threads = shape.block.iter().map(|&extent| u64::from(extent)).product::<u64>();
        if threads == 0 || shape.grid.contains(&0) {
            let message = format!("kernel '{}': got an empty launch, {shape:?}", self.name);
            return Err(Error::invalid(message));
        }
        if threads > u64::from(self.info.max_threads) {
            let (name, most, registers) = (&self.name, self.info.max_threads, self.info.registers);
            let message = format!("kernel '{name}': got blocks of {threads} threads, at most {most} fit");
            return Err(Error::invalid(message)
                .with_hint(format!("launch smaller blocks: a thread takes {registers} registers")));
        }
        check_arguments(&self.name, self.parameter_bytes(), sizes)
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module({} on {})", self.0.file, self.device())
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function({} on {})", self.name, self.device())
    }
}
