//! Matrix products by cuBLAS, and launches of `matmul.cu`.

use std::ffi::c_int;

use crate::array::dtype::{DType, DTypeKind};
use crate::array::ndbuffer::NdBuffer;
use crate::c_layout::c_layout;
use crate::device::Device;
use crate::driver::cublas::{Cublas, Elements, Matrices, Products};
use crate::driver::source::KernelSource;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::launch::{blocks, context, threads};
use crate::ops::matmul::{packed, strides};
use crate::stream::Stream;

static MATMUL: KernelSource = KernelSource { name: "matmul", text: include_str!("matmul.cu"), headers: &[] };

/// Most matrices in one call of cuBLAS; a larger batch takes several calls.
const MOST_BATCH: usize = 1 << 15;

/// The cuBLAS type for a dtype; `None` for types that cuBLAS does not multiply.
pub(super) fn elements(dtype: DType) -> Option<Elements> {
    Some(match (dtype.kind(), dtype.size_bytes()) {
        (DTypeKind::Float, 2) => Elements::Float16,
        (DTypeKind::Float, 4) => Elements::Float32,
        (DTypeKind::Float, 8) => Elements::Float64,
        (DTypeKind::BFloat, 2) => Elements::BFloat16,
        (DTypeKind::Complex, 8) => Elements::Complex64,
        (DTypeKind::Complex, 16) => Elements::Complex128,
        _ => return None,
    })
}

/// Converts an extent to the type that cuBLAS takes.
fn count(value: usize) -> Result<c_int> {
    c_int::try_from(value).map_err(|_| {
        let message = format!("cuBLAS takes no matrices with {value} rows or columns, {} at most", c_int::MAX);
        Error::new(ErrorKind::Unsupported, message).with_hint("multiply parts of the matrices")
    })
}

/// Describes the memory of a batch of matrices for cuBLAS; `None` if cuBLAS cannot use it.
fn layout(matrices: &NdBuffer) -> Option<Matrices> {
    let [batch, row, column] = strides(matrices, matrices.dtype())?;
    let (rows, columns) = (matrices.shape()[1], matrices.shape()[2]);
    let lies = |extents: [usize; 2], leading: i64, step: i64| {
        // A dimension with one element has no step.
        let leading = if extents[0] == 1 { extents[1] as i64 } else { leading };
        let fits = (step == 1 || extents[1] == 1) && leading >= extents[1] as i64;
        c_int::try_from(leading).ok().filter(|_| fits)
    };
    let (leading, is_transposed) = match lies([rows, columns], row, column) {
        Some(leading) => (leading, false),
        None => (lies([columns, rows], column, row)?, true),
    };
    let stride = if matrices.shape()[0] == 1 { 0 } else { batch };
    (stride >= 0).then_some(Matrices { address: matrices.address(), leading, stride, is_transposed })
}

/// Returns matrices in a layout that cuBLAS can use, with their description: the given ones, or a packed copy.
fn taken(matrices: &NdBuffer) -> Result<(NdBuffer, Matrices)> {
    if let Some(found) = layout(matrices) {
        return Ok((matrices.clone(), found));
    }
    let copy = packed(matrices)?;
    let columns = count(copy.shape()[2])?;
    let found = layout(&copy).ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, format!("cuBLAS takes no matrices with {columns} columns like these"))
    })?;
    Ok((copy, found))
}

/// Fills `result` with matrix products of floats or complex numbers, in the order of the legacy default stream. All
/// extents must be at least 1.
pub(super) fn floats(
    elements: Elements,
    first: &NdBuffer,
    second: &NdBuffer,
    result: &NdBuffer,
    stream: &Stream,
) -> Result<()> {
    if !matches!(stream.device(), Device::Cuda(_)) {
        let message = format!("cuBLAS makes no products of {} on {}", result.dtype(), stream.device());
        return Err(Error::new(ErrorKind::LibraryMissing, message));
    }
    let cublas = Cublas::get()?;
    let (rows, inner, columns) = (first.shape()[1], first.shape()[2], second.shape()[2]);
    let ((first, left), (second, right)) = (taken(first)?, taken(second)?);
    let (batch, size_bytes) = (first.shape()[0], result.dtype().size_bytes());
    let memory = [first.buffer(), second.buffer(), result.buffer()];
    for done in (0..batch).step_by(MOST_BATCH) {
        let at = |matrices: Matrices| {
            let address = matrices.address + done * matrices.stride as usize * size_bytes;
            Matrices { address, ..matrices }
        };
        let products = Products {
            elements,
            rows: count(rows)?,
            columns: count(columns)?,
            inner: count(inner)?,
            batch: count((batch - done).min(MOST_BATCH))?,
            first: at(left),
            second: at(right),
            result: result.address() + done * rows * columns * size_bytes,
        };
        for buffer in memory {
            stream.begin_use(buffer)?;
        }
        // SAFETY: the caller checked that the three shapes agree. `layout` described the first two arrays, and the
        // result is packed. Their memory is in use on the legacy default stream of a CUDA device.
        unsafe { cublas.multiply(context(stream)?, &products) }?;
        stream.end_use(&memory)?;
    }
    Ok(())
}

/// The shapes and strides of a batch of integer matrix products, for the kernel. `Products` in matmul.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Whole {
    batch: u64,
    rows: u64,
    inner: u64,
    columns: u64,
    /// Steps in elements along the batch, rows and columns of the first matrices.
    first: [i64; 3],
    second: [i64; 3],
}

// `Products` in matmul.cu.
c_layout! { Whole: 80 bytes { batch at 0, rows at 8, inner at 16, columns at 24, first at 32, second at 56 } }

/// Fills `result` with matrix products of integers or bools, in stream order. All extents must be at least 1.
pub(super) fn whole_numbers(first: &NdBuffer, second: &NdBuffer, result: &NdBuffer, stream: &Stream) -> Result<()> {
    let dtype = result.dtype();
    let aligned = |matrices: &NdBuffer| -> Result<(NdBuffer, [i64; 3])> {
        let own = if strides(matrices, dtype).is_some() { matrices.clone() } else { packed(matrices)? };
        let steps = strides(&own, dtype).ok_or_else(|| Error::invalid("a copy of matrices is not packed"))?;
        Ok((own, steps))
    };
    let ((first, left), (second, right)) = (aligned(first)?, aligned(second)?);
    let (batch, rows, inner) = (first.shape()[0] as u64, first.shape()[1] as u64, first.shape()[2] as u64);
    let columns = second.shape()[2] as u64;
    let of = Whole { batch, rows, inner, columns, first: left, second: right };
    let name = if dtype == DType::BOOL { "matmul_bool".to_string() } else { format!("matmul_{}", dtype.size_bytes()) };
    let kernel = MATMUL.kernel(stream.device(), &name)?;
    let threads = threads(stream.device());
    let grid = blocks(&kernel, (result.len() as u64).div_ceil(threads.into()));
    let arguments = (first.address(), second.address(), result.address(), of);
    // SAFETY: the parameters of the kernels. Shapes and strides in `of` are those of the arrays. Their elements have
    // the size in the kernel's name, and the result is packed.
    unsafe { kernel.launch(stream, grid, threads, arguments, &[first.buffer(), second.buffer(), result.buffer()]) }
}
