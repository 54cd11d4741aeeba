//! Launches kernels that compare the elements of nd-buffers.

use crate::array::dtype::{DType, DTypeKind};
use crate::array::ndbuffer::NdBuffer;
use crate::driver::source::KernelSource;
use crate::error::Result;
use crate::memory::buffer::Buffer;
use crate::ops::compare::Nan;
use crate::ops::launch::{blocks, for_each_table, threads, upload};
use crate::ops::step::cuda::code;
use crate::ops::transfer::cuda::{pattern, whole};
use crate::stream::Stream;

static COMPARE: KernelSource = KernelSource { name: "compare", text: include_str!("compare.cu"), headers: &[] };

/// When two elements count as equal, as the number that kernels read. `Equality` in compare.cu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Equality {
    /// Two elements are equal if all their bits are.
    Bits = 0,
    /// Two elements are equal if all their bits are, except that any two NaN parts (real or imaginary) are equal.
    Parts = 1,
    /// Two elements are equal if they are equal numbers: -0.0 equals 0.0, and NaN equals nothing.
    Numbers = 2,
    /// Two elements are equal if they are equal numbers, or if both are NaN.
    NumbersAndNan = 3,
}

/// Whether two nd-buffers of the same shape and dtype have equal elements. Waits for the stream.
pub(crate) fn all_equal(left: &NdBuffer, right: &NdBuffer, equal_nan: bool, stream: &Stream) -> Result<bool> {
    let numbers = part_of(left.dtype()).is_some();
    let equality = match (numbers, equal_nan) {
        (false, _) => Equality::Bits,
        (true, false) => Equality::Numbers,
        (true, true) => Equality::NumbersAndNan,
    };
    compare(left, right.strides(), right.address(), right.buffer(), equality, stream)
}

/// Whether every element of an nd-buffer in device memory equals `element`. Waits for the stream.
pub(crate) fn all_equal_element(array: &NdBuffer, element: &[u8], nan: Nan, stream: &Stream) -> Result<bool> {
    let has_nan = part_of(array.dtype())
        .is_some_and(|part| element.chunks_exact(part.size_bytes()).any(|bytes| is_nan(part, bytes)));
    let equality = match nan {
        Nan::Never if has_nan => return Ok(array.is_empty()),
        Nan::Any if has_nan => Equality::Parts,
        _ => Equality::Bits,
    };
    if array.is_empty() || element.is_empty() {
        return Ok(true);
    }
    let pattern = pattern(element, stream)?;
    let strides = vec![0; array.ndim()];
    compare(array, &strides, pattern.address(), &pattern, equality, stream)
}

fn compare(
    left: &NdBuffer,
    right_strides: &[isize],
    right: usize,
    right_buffer: &Buffer,
    equality: Equality,
    stream: &Stream,
) -> Result<bool> {
    let bases = (left.address(), right);
    let size_bytes = left.dtype().size_bytes();
    let mut boxes = whole(left, right_strides);
    boxes.simplify();
    if boxes.items.is_empty() || size_bytes == 0 {
        return Ok(true);
    }
    let part = match (equality, part_of(left.dtype())) {
        (Equality::Bits, _) | (_, None) => code(DType::opaque(1))?,
        (_, Some(part)) => code(part)?,
    };
    let repeats = right_strides.iter().all(|&stride| stride == 0) && !right_strides.is_empty();
    let aligned;
    if equality == Equality::Bits {
        boxes.cut(size_bytes, bases, 16);
        aligned = true;
        boxes.order_and_merge();
        boxes.swap_sides(|boxes| boxes.widen((bases.1, bases.0), repeats && right_buffer.size_bytes() >= 16));
    } else {
        aligned = boxes.alignment(size_bytes, bases) == size_bytes;
        boxes.order_and_merge();
    }
    let differ = upload(&[0u8; 4], stream)?;
    let kernel = COMPARE.kernel(stream.device(), "all_equal")?;
    for_each_table(boxes, stream, false, |lowered, table| {
        let bytes = lowered.access_bytes as u32;
        let arguments = (
            bases.0,
            bases.1,
            table.address(),
            lowered.walk,
            differ.address(),
            bytes,
            u32::from(part),
            equality as u32,
            u32::from(aligned),
        );
        let grid = blocks(&kernel, lowered.walk.tiles);
        let buffers = [left.buffer(), right_buffer, table, &differ];
        // SAFETY: the parameters of all_equal; both sides were checked to lie in their buffers.
        unsafe { kernel.launch(stream, grid, threads(stream.device()), arguments, &buffers) }
    })?;
    let mut flag = [0u8; 4];
    stream.d2h(&differ, &mut flag)?;
    Ok(flag == [0; 4])
}

/// The type of a float, or of the parts of a complex number; `None` for types without NaN.
fn part_of(dtype: DType) -> Option<DType> {
    match (dtype.kind(), dtype.size_bytes()) {
        (DTypeKind::Float | DTypeKind::BFloat, _) => Some(dtype),
        (DTypeKind::Complex, 8) => Some(DType::FLOAT32),
        (DTypeKind::Complex, 16) => Some(DType::FLOAT64),
        _ => None,
    }
}

fn is_nan(part: DType, bytes: &[u8]) -> bool {
    let mut wide = [0u8; 8];
    wide[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
    let bits = u64::from_le_bytes(wide);
    let (sign, infinity) = match (part.kind(), part.size_bytes()) {
        (DTypeKind::BFloat, _) => (1 << 15, 0x7f80),
        (_, 2) => (1 << 15, 0x7c00),
        (_, 4) => (1 << 31, 0x7f80_0000),
        _ => (1 << 63, 0x7ff0_0000_0000_0000),
    };
    bits & !sign > infinity
}
