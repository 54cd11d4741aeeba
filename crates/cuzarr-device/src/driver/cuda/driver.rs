//! The CUDA driver, loaded and started at first use.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use crate::driver::backend::Properties;
use crate::driver::cuda::functions::*;
use crate::driver::library;
use crate::error::{Error, ErrorKind, Result};

/// The hint of errors that report a device without free memory.
pub(crate) const MEMORY_HINT: &str = "read a smaller selection, lower memory_limit, or free other libraries' caches";

/// The initialised CUDA driver. A process has one at most, and only after a GPU was asked for.
pub(crate) struct Driver {
    pub(super) functions: Functions,
    pub(super) parameter_info: Option<ParameterInfo>,
    path: std::path::PathBuf,
    process: u32,
}

/// The CUDA driver, or the error that kept it from starting: every later call gives the same one.
static DRIVER: OnceLock<Result<Driver>> = OnceLock::new();

impl Driver {
    /// Returns the CUDA driver, which is loaded and initialised at the first call. Loads and initialises it at the
    /// first call.
    ///
    /// # Errors
    /// `DeviceUnavailable` when there is no driver, it is too old, sees no GPU, or this process was forked after CUDA
    /// had been initialised (a child cannot use its parent's driver).
    pub(crate) fn get() -> Result<&'static Driver> {
        let driver = DRIVER.get_or_init(|| Driver::load().map_err(unavailable));
        match driver {
            Ok(driver) if driver.process == std::process::id() => Ok(driver),
            Ok(_) => Err(Error::new(
                ErrorKind::DeviceUnavailable,
                "this process was forked after CUDA had been initialised, so it cannot use the GPU",
            )
            .with_hint("start worker processes with 'spawn' or 'forkserver', or use the GPU only in the children")),
            Err(error) => Err(error.clone()),
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

    /// Path of the CUDA driver's library.
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// The newest CUDA version that this driver supports, as (major, minor).
    pub(crate) fn version(&self) -> Result<(u32, u32)> {
        let mut version = 0;
        // SAFETY: writes one int.
        self.check("cuDriverGetVersion", unsafe { (self.functions.driver_version)(&mut version) })?;
        Ok((version as u32 / 1000, version as u32 % 1000 / 10))
    }

    /// Number of GPUs that this process sees.
    pub(crate) fn device_count(&self) -> Result<u32> {
        let mut count = 0;
        // SAFETY: writes one int.
        self.check("cuDeviceGetCount", unsafe { (self.functions.device_count)(&mut count) })?;
        Ok(count.max(0) as u32)
    }

    /// Reads the properties of GPU `ordinal`. Makes no context.
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

    /// The GPU that the memory at `address` belongs to; `None` if the driver does not know the address.
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

    /// Whether the byte of host memory at `address` is pinned, and has the same address on GPUs.
    pub(super) fn is_pinned(&self, address: usize) -> Result<bool> {
        let (mut kind, mut on_device): (c_uint, u64) = (0, 0);
        let attributes: [(*mut c_void, c_int); 2] =
            [((&raw mut kind).cast(), POINTER_MEMORY_TYPE), ((&raw mut on_device).cast(), POINTER_DEVICE_POINTER)];
        for (answer, attribute) in attributes {
            // SAFETY: writes an unsigned int for the first attribute and an address for the second.
            let code = unsafe { (self.functions.pointer_attribute)(answer, attribute, address as u64) };
            if code == ERROR_INVALID_VALUE {
                return Ok(false);
            }
            self.check("cuPointerGetAttribute", code)?;
        }
        Ok(kind == MEMORY_TYPE_HOST && on_device == address as u64)
    }

    pub(super) fn device(&self, ordinal: u32) -> Result<c_int> {
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

    pub(super) fn check(&self, call: &str, code: Code) -> Result<()> {
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
            // SAFETY: the call succeeded, so the pointer is to such a text.
            found.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        match (text(self.functions.error_name), text(self.functions.error_string)) {
            (Some(name), Some(words)) => format!("{name} ({words})"),
            _ => format!("CUDA error {code}"),
        }
    }
}

/// Turns an error into one that says why the CUDA driver cannot be used. A library that misses a function is not a
/// usable driver.
fn unavailable(error: Error) -> Error {
    let error = match error.kind() {
        ErrorKind::LibraryMissing => Error::new(ErrorKind::DeviceUnavailable, error.message()),
        _ => error,
    };
    error.or_hint("update the NVIDIA driver")
}
