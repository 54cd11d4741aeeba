//! cuBLAS, NVIDIA's library for matrix products, if it is installed.
//!
//! It comes with the CUDA toolkit, CuPy and PyTorch, and in wheels of its own. Each device gets one handle, made at
//! first use and kept until the process ends: a handle holds device memory, and making one takes longer than most
//! products. All work goes to the legacy default stream, so that no two streams share the memory of a handle.

use std::ffi::{c_char, c_int, c_longlong, c_void};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

use crate::driver::context::{Context, PerDevice};
use crate::driver::cuda::driver::Driver;
use crate::driver::library;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;

/// The environment variable that names the cuBLAS library to use, instead of searching for one.
pub(crate) const LIBRARY_VARIABLE: &str = "CUZARR_CUBLAS_LIBRARY";
/// The library file names under which cuBLAS is searched for, newest version first.
pub(crate) const LIBRARY_NAMES: [&str; 3] = ["libcublas.so.13", "libcublas.so.12", "libcublas.so"];

const HINT: &str = "install cuBLAS (pip install nvidia-cublas, or nvidia-cublas-cu12 for CUDA 12), or set CUDA_HOME";

type CublasStatus = c_int;
type CublasHandle = *mut c_void;

const ALLOC_FAILED: CublasStatus = 3;
const ARCH_MISMATCH: CublasStatus = 8;
const NOT_SUPPORTED: CublasStatus = 15;

/// Values of cuBLAS's `cublasOperation_t`: a matrix is used unchanged (column by column), or transposed.
const AS_IT_IS: c_int = 0;
const TRANSPOSED: c_int = 1;
/// Value of cuBLAS's `cublasGemmAlgo_t` with which the library chooses the algorithm.
const DEFAULT_ALGORITHM: c_int = -1;

/// Element types that matrix products are computed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elements {
    Float16,
    BFloat16,
    Float32,
    Float64,
    Complex64,
    Complex128,
}

impl Elements {
    /// The number of this element type in cuBLAS's `cudaDataType_t`.
    fn data_type(self) -> c_int {
        match self {
            Elements::Float32 => 0,
            Elements::Float64 => 1,
            Elements::Float16 => 2,
            Elements::Complex64 => 4,
            Elements::Complex128 => 5,
            Elements::BFloat16 => 14,
        }
    }

    fn is_double(self) -> bool {
        matches!(self, Elements::Float64 | Elements::Complex128)
    }

    /// The number in `cublasComputeType_t` that says whether sums have single or double precision.
    fn compute_type(self) -> c_int {
        if self.is_double() { 70 } else { 68 }
    }
}

/// How a batch of matrices lies in memory: the address of the first matrix, and distances in elements. The distances
/// are those between rows (between columns if transposed) and between matrices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrices {
    pub(crate) address: usize,
    pub(crate) leading: c_int,
    pub(crate) stride: c_longlong,
    /// Whether the columns of each matrix are packed instead of the rows.
    pub(crate) is_transposed: bool,
}

/// A batch of matrix products for cuBLAS to compute: factors, sizes, and the address of the results. The elements of a
/// matrix lie row by row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Products {
    pub(crate) elements: Elements,
    pub(crate) rows: c_int,
    pub(crate) columns: c_int,
    /// Number of columns of the first matrices, and of rows of the second.
    pub(crate) inner: c_int,
    pub(crate) batch: c_int,
    pub(crate) first: Matrices,
    pub(crate) second: Matrices,
    /// The device address to which the packed result matrices are written.
    pub(crate) result: usize,
}

/// A number by which cuBLAS multiplies a matrix product: real or complex, aligned as cuBLAS requires for complex
/// numbers.
#[repr(align(16))]
struct Factor<T>([T; 2]);

type Gemm = unsafe extern "C" fn(
    CublasHandle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const c_void,
    *const c_void,
    c_int,
    c_int,
    c_longlong,
    *const c_void,
    c_int,
    c_int,
    c_longlong,
    *const c_void,
    *mut c_void,
    c_int,
    c_int,
    c_longlong,
    c_int,
    c_int,
    c_int,
) -> CublasStatus;

/// The cuBLAS library, loaded once.
pub(crate) struct Cublas {
    create: unsafe extern "C" fn(*mut CublasHandle) -> CublasStatus,
    set_stream: unsafe extern "C" fn(CublasHandle, *mut c_void) -> CublasStatus,
    gemm: Gemm,
    status_name: Option<unsafe extern "C" fn(CublasStatus) -> *const c_char>,
    path: PathBuf,
}

static CUBLAS: OnceLock<Result<Cublas>> = OnceLock::new();

/// The `cublasHandle_t` with which cuBLAS is called for one device, as a number; 0 before the first use. Code that
/// submits work holds the lock.
#[derive(Default)]
struct DeviceHandle(Mutex<usize>);

static HANDLES: PerDevice<DeviceHandle> = PerDevice::new();

impl Cublas {
    /// Returns the cuBLAS library, loaded at the first call.
    ///
    /// # Errors
    /// `LibraryMissing` when there is none.
    pub(crate) fn get() -> Result<&'static Cublas> {
        CUBLAS.get_or_init(|| Cublas::load().map_err(|error| error.or_hint(HINT))).as_ref().map_err(Error::clone)
    }

    fn load() -> Result<Cublas> {
        // A library for a newer CUDA than the driver's cannot start.
        let newest = Driver::get().and_then(Driver::version).map_or(u32::MAX, |(major, _)| major);
        let names = if newest >= 13 { &LIBRARY_NAMES[..] } else { &LIBRARY_NAMES[1..] };
        let found = library::open(LIBRARY_VARIABLE, names)?;
        let from = &found.library;
        // SAFETY: names and types are those of cublas_api.h, version 11 and later.
        let cublas = unsafe {
            Cublas {
                create: library::symbol(from, "cublasCreate_v2")?,
                set_stream: library::symbol(from, "cublasSetStream_v2")?,
                gemm: library::symbol(from, "cublasGemmStridedBatchedEx")?,
                status_name: library::symbol(from, "cublasGetStatusName").ok(),
                path: found.path,
            }
        };
        // Handles use it until the process ends.
        std::mem::forget(found.library);
        Ok(cublas)
    }

    /// Submits a batch of matrix products on the legacy default stream of a device.
    ///
    /// # Errors
    /// `OutOfMemory` for the handle's memory; `Unsupported` for a device that the library does not know;
    /// `DeviceFailed`.
    ///
    /// # Safety
    /// The device is a CUDA device. The matrices and results lie in its memory as `products` says, and live until its
    /// legacy default stream has passed this call. All extents are at least 1.
    pub(crate) unsafe fn multiply(&self, context: &Context, products: &Products) -> Result<()> {
        let mut handle = lock(&HANDLES.of(context).0);
        let mut result = Ok(());
        context.backend.with_current(&mut || {
            // SAFETY: the caller's promise; the device's context is current here.
            result = unsafe { self.multiply_here(&mut handle, products) };
        })?;
        result
    }

    /// Makes the device's cuBLAS handle if there is none yet, and submits a batch of matrix products with it.
    ///
    /// # Safety
    /// The conditions of [`Cublas::multiply`], and the device's context is current on this thread.
    unsafe fn multiply_here(&self, handle: &mut usize, products: &Products) -> Result<()> {
        if *handle == 0 {
            let mut made: CublasHandle = std::ptr::null_mut();
            // SAFETY: writes one handle, to a local.
            self.check("cublasCreate", unsafe { (self.create)(&mut made) })?;
            *handle = made as usize;
        }
        let handle = *handle as CublasHandle;
        // SAFETY: a handle of this device; the null stream is the legacy default one.
        self.check("cublasSetStream", unsafe { (self.set_stream)(handle, std::ptr::null_mut()) })?;
        let Products { elements, rows, columns, inner, batch, first, second, result } = *products;
        let (single, double) = ([Factor([1f32, 0.0]), Factor([0.0; 2])], [Factor([1f64, 0.0]), Factor([0.0; 2])]);
        let factors: [*const c_void; 2] = match elements.is_double() {
            true => [double[0].0.as_ptr().cast(), double[1].0.as_ptr().cast()],
            false => [single[0].0.as_ptr().cast(), single[1].0.as_ptr().cast()],
        };
        let data_type = elements.data_type();
        let operation = |matrices: &Matrices| if matrices.is_transposed { TRANSPOSED } else { AS_IT_IS };
        // The library takes matrices column by column. Ours are row by row, which it sees as transposed, so the second
        // matrix comes first.
        // SAFETY: the library reads the factors before it returns. They are aligned numbers, real or complex, with the
        // precision of the sums. The caller promises the memory and the stream.
        let status = unsafe {
            (self.gemm)(
                handle,
                operation(&second),
                operation(&first),
                columns,
                rows,
                inner,
                factors[0],
                second.address as *const c_void,
                data_type,
                second.leading,
                second.stride,
                first.address as *const c_void,
                data_type,
                first.leading,
                first.stride,
                factors[1],
                result as *mut c_void,
                data_type,
                columns,
                c_longlong::from(rows) * c_longlong::from(columns),
                batch,
                elements.compute_type(),
                DEFAULT_ALGORITHM,
            )
        };
        self.check("cublasGemmStridedBatchedEx", status)
    }

    fn check(&self, call: &str, status: CublasStatus) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: returns a constant, zero-ended text, or null.
        let text = self.status_name.map(|name| unsafe { name(status) }).filter(|text| !text.is_null());
        let words = match text {
            None => format!("status {status}"),
            // SAFETY: the text is not null, and constant.
            Some(text) => unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        };
        let kind = match status {
            ALLOC_FAILED => ErrorKind::OutOfMemory,
            ARCH_MISMATCH | NOT_SUPPORTED => ErrorKind::Unsupported,
            _ => ErrorKind::DeviceFailed,
        };
        Err(Error::new(kind, format!("{call} of {} failed with {words}", self.path.display())))
    }
}
