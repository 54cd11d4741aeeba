//! Compares the elements of nd-buffers in host memory.

use crate::array::dtype::{DType, DTypeKind};
use crate::array::layout::Order;
use crate::array::ndbuffer::NdBuffer;
use crate::error::Result;
use crate::ops::compare::Nan;
use crate::ops::copy;
use crate::ops::element::{Element, Real, WithType, with_type};
use crate::ops::strided;

/// Whether two host nd-buffers of the same shape and dtype have equal elements. Floats are compared as numbers (a
/// complex number with a NaN part is NaN, as in NumPy), other elements bit for bit.
pub(crate) fn all_equal(left: &NdBuffer, right: &NdBuffer, equal_nan: bool) -> Result<bool> {
    let dtype = left.dtype();
    let (left, right) = (copy::nd_to_host(left, Order::C)?, copy::nd_to_host(right, Order::C)?);
    match dtype.kind() {
        DTypeKind::Float | DTypeKind::BFloat | DTypeKind::Complex => {
            let values = EqualValues { left: &left, right: &right, equal_nan };
            Ok(with_type(dtype, values).unwrap_or(false))
        }
        _ => Ok(left == right),
    }
}

struct EqualValues<'a> {
    left: &'a [u8],
    right: &'a [u8],
    equal_nan: bool,
}

impl WithType for EqualValues<'_> {
    type Output = bool;

    fn run<T: Element>(self) -> bool {
        let value = |bytes| {
            let (real, imaginary) = T::read(bytes).parts();
            (real.to_f64(), imaginary.to_f64())
        };
        self.left.chunks_exact(T::SIZE).zip(self.right.chunks_exact(T::SIZE)).all(|(left, right)| {
            let (left, right) = (value(left), value(right));
            let nan = |one: (f64, f64)| one.0.is_nan() || one.1.is_nan();
            left == right || (self.equal_nan && nan(left) && nan(right))
        })
    }
}

/// Size in bytes of the blocks in which an array's elements are compared with one repeated element. They stay in the L1
/// cache.
const PATTERN_BYTES: usize = 4096;

/// Whether every element of a host nd-buffer equals `element`.
pub(crate) fn all_equal_element(array: &NdBuffer, element: &[u8], nan: Nan) -> bool {
    let width = element.len();
    if array.is_empty() || width == 0 {
        return true;
    }
    let part = float_part(array.dtype()).filter(|_| nan != Nan::Bits);
    let has_nan = part.is_some_and(|part| element.chunks_exact(part.size_bytes()).any(|bytes| is_nan(part, bytes)));
    if has_nan && nan == Nan::Never {
        return false;
    }
    let Some(mut dimensions) = strided::normalize(array.shape(), array.strides(), array.strides()) else { return true };
    let packed = dimensions.last().filter(|inner| inner.target == width as isize).map(|inner| inner.extent);
    if packed.is_some() {
        dimensions.pop();
    }
    let bytes = packed.unwrap_or(1) * width;
    let pattern = element.repeat((PATTERN_BYTES.min(bytes) / width).max(1));
    strided::all_rows(&dimensions, array.address() as *const u8, array.address() as *mut u8, |row, _| {
        // SAFETY: the constructors checked that all elements lie in their memory; these are packed neighbours.
        let row = unsafe { std::slice::from_raw_parts(row, bytes) };
        if let (true, Some(part)) = (has_nan, part) {
            row.chunks_exact(width).all(|bytes| same_parts(part, bytes, element))
        } else {
            repeats(row, &pattern)
        }
    })
}

/// Whether `bytes` repeats `pattern`, which is one element several times.
fn repeats(bytes: &[u8], pattern: &[u8]) -> bool {
    // Comparing slices calls `memcmp`, which is the fastest loop.
    bytes.chunks(pattern.len()).all(|part| part == &pattern[..part.len()])
}

/// The type of a float, or of the parts of a complex number; `None` for other types.
fn float_part(dtype: DType) -> Option<DType> {
    match (dtype.kind(), dtype.size_bytes()) {
        (DTypeKind::Float | DTypeKind::BFloat, _) => Some(dtype),
        (DTypeKind::Complex, 8) => Some(DType::FLOAT32),
        (DTypeKind::Complex, _) => Some(DType::FLOAT64),
        _ => None,
    }
}

fn same_parts(part: DType, left: &[u8], right: &[u8]) -> bool {
    let size = part.size_bytes();
    left.chunks_exact(size)
        .zip(right.chunks_exact(size))
        .all(|(left, right)| left == right || (is_nan(part, left) && is_nan(part, right)))
}

fn is_nan(part: DType, bytes: &[u8]) -> bool {
    struct IsNan<'a>(&'a [u8]);
    impl WithType for IsNan<'_> {
        type Output = bool;
        fn run<T: Element>(self) -> bool {
            T::read(self.0).parts().0.to_f64().is_nan()
        }
    }
    with_type(part, IsNan(bytes)).unwrap_or(false)
}
