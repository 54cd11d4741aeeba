//! Matrix products in device memory: of floats and complex numbers by cuBLAS, of integers and bools by a kernel.

mod cuda;

use crate::array::dtype::{DType, DTypeKind};
use crate::array::layout::Order;
use crate::array::ndbuffer::NdBuffer;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::stream::Stream;

impl NdBuffer {
    /// Multiplies the matrices in this array by those in `other`. The last two dimensions are the matrices; the others
    /// are broadcast. Both arrays must have the same dtype and device. The result is packed in C order, and ready on
    /// every stream.
    ///
    /// Integers wrap, and bools are combined with "and" and "or", as in NumPy. cuBLAS chooses the order in which floats
    /// are summed; it sums 2-byte floats in binary32.
    ///
    /// # Errors
    /// `InvalidArgument` for shapes or types that do not fit; `MemorySpace` for different devices; `LibraryMissing`
    /// when cuBLAS is needed and missing; `Unsupported` for opaque bytes, and in host memory; `OutOfMemory`;
    /// `DeviceFailed`.
    pub fn matmul(&self, other: &NdBuffer) -> Result<NdBuffer> {
        let (device, dtype) = (self.device(), self.dtype());
        if other.device() != device {
            let message = format!("matrices are on {device} and on {}", other.device());
            return Err(Error::new(ErrorKind::MemorySpace, message));
        }
        let (first, second) = (self.shape(), other.shape());
        let ([.., rows, inner], [.., others, columns]) = (first, second) else {
            return Err(Error::invalid(format!("{first:?} and {second:?} are no shapes of matrices")));
        };
        if inner != others || dtype != other.dtype() {
            return Err(Error::invalid(format!(
                "matrices of {dtype} and shape {first:?} do not fit those of {} and shape {second:?}",
                other.dtype()
            )));
        }
        let batch = broadcast(&first[..first.len() - 2], &second[..second.len() - 2])?;
        let shape = [&batch[..], &[*rows, *columns]].concat();
        let result = NdBuffer::empty(device, dtype, &shape, Order::C)?;
        if device == Device::Cpu {
            let message = "products of matrices in host memory are NumPy's";
            return Err(Error::new(ErrorKind::Unsupported, message).with_hint("use numpy.matmul"));
        }
        if result.is_empty() {
            return Ok(result);
        }
        if *inner == 0 {
            return NdBuffer::zeroed(device, dtype, &shape, Order::C);
        }
        let stream = Stream::legacy(device)?;
        let (first, second) = (one_batch(self, &batch)?, one_batch(other, &batch)?);
        match dtype.kind() {
            DTypeKind::Bool | DTypeKind::Int | DTypeKind::UInt => {
                cuda::whole_numbers(&first, &second, &result, &stream)?
            }
            _ => {
                let elements = cuda::elements(dtype).ok_or_else(|| {
                    Error::new(ErrorKind::Unsupported, format!("there are no products of matrices of {dtype}"))
                })?;
                cuda::floats(elements, &first, &second, &result, &stream)?;
            }
        }
        stream.synchronize()?;
        Ok(result)
    }
}

/// Returns the shape to which the dimensions before the matrices are broadcast.
fn broadcast(first: &[usize], second: &[usize]) -> Result<Vec<usize>> {
    let ndim = first.len().max(second.len());
    let extent = |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(ndim).map_or(1, |own| shape[own]);
    let joint = |axis| match (extent(first, axis), extent(second, axis)) {
        (1, other) => Some(other),
        (own, other) if own == other || other == 1 => Some(own),
        _ => None,
    };
    (0..ndim).map(joint).collect::<Option<_>>().ok_or_else(|| {
        Error::invalid(format!("dimensions {first:?} and {second:?} before the matrices do not broadcast"))
    })
}

/// Broadcasts matrices to `batch`, and merges their batch dimensions to one. A view if possible, else a copy.
fn one_batch(matrices: &NdBuffer, batch: &[usize]) -> Result<NdBuffer> {
    let own = &matrices.shape()[matrices.ndim() - 2..];
    let count = batch.iter().product();
    matrices.broadcast_to(&[batch, own].concat())?.reshape_copy(&[&[count], own].concat())
}

/// Makes a copy, packed in C order, of one batch of matrices. If all matrices are the same, only one is copied.
fn packed(matrices: &NdBuffer) -> Result<NdBuffer> {
    if matrices.strides()[0] == 0 || matrices.shape()[0] == 1 {
        return matrices.index_axis(0, 0)?.copy(Order::C)?.broadcast_to(matrices.shape());
    }
    matrices.copy(Order::C)
}

/// The strides of a batch of matrices in elements; `None` if strides or address are no multiples of the element size.
fn strides(matrices: &NdBuffer, dtype: DType) -> Option<[i64; 3]> {
    let size = dtype.size_bytes() as isize;
    let whole = matrices.strides().iter().all(|stride| stride % size == 0);
    let own: Vec<i64> = matrices.strides().iter().map(|stride| (stride / size) as i64).collect();
    own.try_into().ok().filter(|_| whole && matrices.address().is_multiple_of(dtype.size_bytes()))
}
