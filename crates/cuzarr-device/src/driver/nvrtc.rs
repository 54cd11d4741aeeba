//! NVRTC, NVIDIA's run-time compiler, if it is installed.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::driver::cuda::driver::Driver;
use crate::driver::library;
use crate::driver::source::Header;
use crate::error::{Error, ErrorKind, Result};

type NvrtcCode = c_int;
type Program = *mut c_void;

/// The environment variable that names the NVRTC library to use, instead of searching for one.
pub(crate) const LIBRARY_VARIABLE: &str = "CUZARR_NVRTC_LIBRARY";

const HINT: &str = "install the wheel with its cubins, or NVRTC: pip install nvidia-cuda-nvrtc-cu12 (or set CUDA_HOME)";

/// The NVRTC compiler, loaded once.
pub(crate) struct Nvrtc {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> NvrtcCode,
    error_string: unsafe extern "C" fn(NvrtcCode) -> *const c_char,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> NvrtcCode,
    destroy: unsafe extern "C" fn(*mut Program) -> NvrtcCode,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> NvrtcCode,
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> NvrtcCode,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> NvrtcCode,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> NvrtcCode,
    log: unsafe extern "C" fn(Program, *mut c_char) -> NvrtcCode,
    add_name: unsafe extern "C" fn(Program, *const c_char) -> NvrtcCode,
    lowered_name: unsafe extern "C" fn(Program, *const c_char, *mut *const c_char) -> NvrtcCode,
    path: PathBuf,
}

/// A CUDA C++ text to compile, with its headers and flags.
pub(crate) struct Job<'a> {
    /// The file name of the text in the compiler's messages.
    pub(crate) file: &'a str,
    pub(crate) text: &'a str,
    /// Headers that the text may include.
    pub(crate) headers: &'a [Header],
    pub(crate) flags: &'a [String],
    /// The C++ name of a kernel whose name in machine code is wanted, such as `scale<float>`.
    pub(crate) name_expression: Option<&'a str>,
}

/// The machine code that NVRTC compiled from a CUDA C++ text.
pub(crate) struct Compiled {
    pub(crate) cubin: Vec<u8>,
    /// The name in machine code of the kernel that `name_expression` named, if there was one.
    pub(crate) lowered_name: Option<String>,
}

static NVRTC: OnceLock<Result<Nvrtc>> = OnceLock::new();

impl Nvrtc {
    /// Returns the NVRTC compiler that matches the driver best, loaded at the first call.
    ///
    /// # Errors
    /// `LibraryMissing` when there is none.
    pub(crate) fn get() -> Result<&'static Nvrtc> {
        NVRTC.get_or_init(|| Nvrtc::load().map_err(|error| error.or_hint(HINT))).as_ref().map_err(Error::clone)
    }

    fn load() -> Result<Nvrtc> {
        // A driver runs machine code of its own major version and of older ones.
        let newest = Driver::get().and_then(Driver::version).map_or(u32::MAX, |(major, _)| major);
        let names: &[&str] = if newest >= 13 {
            &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]
        } else {
            &["libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"]
        };
        let found = library::open(LIBRARY_VARIABLE, names)?;
        let from = &found.library;
        // SAFETY: names and types are those of nvrtc.h.
        let nvrtc = unsafe {
            Nvrtc {
                version: library::symbol(from, "nvrtcVersion")?,
                error_string: library::symbol(from, "nvrtcGetErrorString")?,
                create: library::symbol(from, "nvrtcCreateProgram")?,
                destroy: library::symbol(from, "nvrtcDestroyProgram")?,
                compile: library::symbol(from, "nvrtcCompileProgram")?,
                cubin_size: library::symbol(from, "nvrtcGetCUBINSize")?,
                cubin: library::symbol(from, "nvrtcGetCUBIN")?,
                log_size: library::symbol(from, "nvrtcGetProgramLogSize")?,
                log: library::symbol(from, "nvrtcGetProgramLog")?,
                add_name: library::symbol(from, "nvrtcAddNameExpression")?,
                lowered_name: library::symbol(from, "nvrtcGetLoweredName")?,
                path: found.path,
            }
        };
        std::mem::forget(found.library);
        Ok(nvrtc)
    }

    /// Path of the NVRTC library.
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Folders with CUDA's own headers near the compiler, as in a toolkit or in the `nvidia-*` wheels.
    pub(crate) fn include_folders(&self) -> Vec<PathBuf> {
        let Some(lib) = self.path.parent() else { return Vec::new() };
        let candidates = [
            "../include",
            "../../include",
            "../../../include",
            "../../cuda_runtime/include",
            "../../cuda_cccl/include",
        ];
        let folders = candidates.iter().filter_map(|folder| lib.join(folder).canonicalize().ok());
        folders.filter(|folder| folder.join("cuda_fp16.h").is_file() || folder.join("cuda").is_dir()).collect()
    }

    /// The compiler's version, as (major, minor).
    pub(crate) fn version(&self) -> Result<(u32, u32)> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: writes two ints.
        self.check("nvrtcVersion", unsafe { (self.version)(&mut major, &mut minor) })?;
        Ok((major as u32, minor as u32))
    }

    /// Compiles a CUDA C++ text to machine code.
    ///
    /// # Errors
    /// `KernelCompileFailed`, with the compiler's log.
    pub(crate) fn compile(&self, job: &Job<'_>) -> Result<Compiled> {
        let texts = c_strings(job.headers.iter().map(|header| header.text))?;
        let names = c_strings(job.headers.iter().map(|header| header.name))?;
        let flags = c_strings(job.flags.iter().map(String::as_str))?;
        let (source, file) = (c_string(job.text)?, c_string(job.file)?);
        let wanted = job.name_expression.map(c_string).transpose()?;
        let (texts, names) = (pointers(&texts), pointers(&names));
        let mut program = std::ptr::null_mut();
        let count = job.headers.len() as c_int;
        // SAFETY: zero-ended texts that live through the call, which copies them.
        let code = unsafe {
            (self.create)(&mut program, source.as_ptr(), file.as_ptr(), count, texts.as_ptr(), names.as_ptr())
        };
        self.check("nvrtcCreateProgram", code)?;
        let compiled = self.compile_program(program, job.file, &flags, wanted.as_deref());
        // SAFETY: a live program, destroyed once.
        unsafe { (self.destroy)(&mut program) };
        compiled
    }

    fn compile_program(
        &self,
        program: Program,
        file: &str,
        flags: &[CString],
        wanted: Option<&CStr>,
    ) -> Result<Compiled> {
        if let Some(wanted) = wanted {
            // SAFETY: a live program and a zero-ended text, which is copied.
            self.check("nvrtcAddNameExpression", unsafe { (self.add_name)(program, wanted.as_ptr()) })?;
        }
        let options = pointers(flags);
        // SAFETY: a live program and zero-ended texts.
        let code = unsafe { (self.compile)(program, options.len() as c_int, options.as_ptr()) };
        if code != 0 {
            let log = self.bytes("nvrtcGetProgramLog", program, self.log_size, self.log).unwrap_or_default();
            let log = String::from_utf8_lossy(&log).trim_end_matches('\0').trim_end().to_string();
            let message = format!("{file} did not compile\n{log}");
            return Err(Error::new(ErrorKind::KernelCompileFailed, message));
        }
        let mut lowered_name = None;
        if let Some(wanted) = wanted {
            let mut name = std::ptr::null();
            // SAFETY: the program was compiled with this expression; it owns the text that it hands out.
            let code = unsafe { (self.lowered_name)(program, wanted.as_ptr(), &mut name) };
            self.check("nvrtcGetLoweredName", code)?;
            // SAFETY: a zero-ended text that lives until the program is destroyed.
            lowered_name = Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned());
        }
        let cubin = self.bytes("nvrtcGetCUBIN", program, self.cubin_size, self.cubin)?;
        Ok(Compiled { cubin, lowered_name })
    }

    fn bytes(
        &self,
        call: &str,
        program: Program,
        size: unsafe extern "C" fn(Program, *mut usize) -> NvrtcCode,
        fill: unsafe extern "C" fn(Program, *mut c_char) -> NvrtcCode,
    ) -> Result<Vec<u8>> {
        let mut size_bytes = 0;
        // SAFETY: the caller has a live program; the call writes one size, to a local.
        self.check(call, unsafe { size(program, &mut size_bytes) })?;
        let mut bytes = vec![0u8; size_bytes];
        // SAFETY: the compiler writes exactly the size it said.
        self.check(call, unsafe { fill(program, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }

    fn check(&self, call: &str, code: NvrtcCode) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: returns a constant, zero-ended text.
        let text = unsafe { (self.error_string)(code) };
        let words = match text.is_null() {
            true => code.to_string(),
            // SAFETY: the text is not null, and constant.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        };
        Err(Error::new(ErrorKind::KernelCompileFailed, format!("{call} failed with {words}")))
    }
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::invalid("a kernel's source contains a zero byte"))
}

fn c_strings<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Vec<CString>> {
    texts.map(c_string).collect()
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).collect()
}
