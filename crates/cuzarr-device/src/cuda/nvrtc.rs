//! NVRTC, the run-time compiler, where there is one.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use super::driver::Driver;
use super::library;
use crate::error::{Error, ErrorKind, Result};

type Code = c_int;
type Program = *mut c_void;

/// Names the library to use instead of looking for one.
pub(crate) const LIBRARY_VARIABLE: &str = "CUZARR_NVRTC_LIBRARY";

const HINT: &str = "install the wheel with its cubins, or NVRTC: pip install nvidia-cuda-nvrtc-cu12 (or set CUDA_HOME)";

/// The compiler, loaded once.
pub(crate) struct Nvrtc {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Code,
    error_string: unsafe extern "C" fn(Code) -> *const c_char,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Code,
    destroy: unsafe extern "C" fn(*mut Program) -> Code,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Code,
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> Code,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> Code,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> Code,
    log: unsafe extern "C" fn(Program, *mut c_char) -> Code,
    path: PathBuf,
}

static NVRTC: OnceLock<std::result::Result<Nvrtc, String>> = OnceLock::new();

impl Nvrtc {
    /// The compiler that matches the driver best.
    ///
    /// # Errors
    /// `LibraryMissing` when there is none.
    pub(crate) fn get() -> Result<&'static Nvrtc> {
        let nvrtc = NVRTC.get_or_init(|| Nvrtc::load().map_err(|error| error.message().to_string()));
        nvrtc.as_ref().map_err(|message| Error::new(ErrorKind::LibraryMissing, message.clone()).with_hint(HINT))
    }

    fn load() -> Result<Nvrtc> {
        // A driver runs machine code of its own major version and older ones.
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
                path: found.path,
            }
        };
        std::mem::forget(found.library);
        Ok(nvrtc)
    }

    /// Where it was found.
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Its version.
    pub(crate) fn version(&self) -> Result<(u32, u32)> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: writes two ints.
        self.check("nvrtcVersion", unsafe { (self.version)(&mut major, &mut minor) })?;
        Ok((major as u32, minor as u32))
    }

    /// Machine code for a source.
    ///
    /// # Errors
    /// `KernelCompileFailed`, with the compiler's log.
    pub(crate) fn compile(
        &self,
        name: &str,
        text: &str,
        headers: &[(&str, &str)],
        flags: &[String],
    ) -> Result<Vec<u8>> {
        let texts = c_strings(headers.iter().map(|(_, text)| *text))?;
        let names = c_strings(headers.iter().map(|(name, _)| *name))?;
        let flags = c_strings(flags.iter().map(String::as_str))?;
        let (source, file) = (c_string(text)?, c_string(&format!("{name}.cu"))?);
        let (texts, names, options) = (pointers(&texts), pointers(&names), pointers(&flags));
        let mut program = std::ptr::null_mut();
        let count = headers.len() as c_int;
        // SAFETY: zero-ended texts that live through the call, which copies them.
        let code = unsafe {
            (self.create)(&mut program, source.as_ptr(), file.as_ptr(), count, texts.as_ptr(), names.as_ptr())
        };
        self.check("nvrtcCreateProgram", code)?;
        // SAFETY: a live program and zero-ended texts.
        let code = unsafe { (self.compile)(program, options.len() as c_int, options.as_ptr()) };
        let cubin = if code == 0 {
            self.bytes("nvrtcGetCUBIN", program, self.cubin_size, self.cubin)
        } else {
            let log = self.bytes("nvrtcGetProgramLog", program, self.log_size, self.log).unwrap_or_default();
            let log = String::from_utf8_lossy(&log).trim_end_matches('\0').trim_end().to_string();
            Err(Error::new(ErrorKind::KernelCompileFailed, format!("kernel {name} did not compile\n{log}")))
        };
        // SAFETY: a live program, destroyed once.
        unsafe { (self.destroy)(&mut program) };
        cubin
    }

    fn bytes(
        &self,
        call: &str,
        program: Program,
        size: unsafe extern "C" fn(Program, *mut usize) -> Code,
        fill: unsafe extern "C" fn(Program, *mut c_char) -> Code,
    ) -> Result<Vec<u8>> {
        let mut size_bytes = 0;
        // SAFETY: a live program; writes one size.
        self.check(call, unsafe { size(program, &mut size_bytes) })?;
        let mut bytes = vec![0u8; size_bytes];
        // SAFETY: the compiler writes exactly the size it said.
        self.check(call, unsafe { fill(program, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }

    fn check(&self, call: &str, code: Code) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: returns a constant, zero-ended text.
        let text = unsafe { (self.error_string)(code) };
        let words = match text.is_null() {
            true => code.to_string(),
            // SAFETY: as above.
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
