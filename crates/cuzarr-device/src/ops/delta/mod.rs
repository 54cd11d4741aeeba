//! Running sums of whole chunks in device memory, and the differences that undo them. Element `i` becomes the sum of elements
//! 0 to `i`, as `numpy.cumsum` gives it in the same type. Integers wrap. Floats are added one after the other, so that they
//! round as on the CPU.

pub(crate) mod cuda;

use crate::array::dtype::{DType, DTypeKind};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::buffer::Buffer;
use crate::stream::Stream;

/// Chunks begin at multiples of this in both memories.
pub const ALIGNMENT_BYTES: usize = 16;

/// One chunk. Source and target may be the same bytes, but must not overlap otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Where it begins in the source.
    pub src_offset_bytes: usize,
    /// Where its sums begin in the target.
    pub dst_offset_bytes: usize,
    /// Its size, the same on both sides: whole elements.
    pub size_bytes: usize,
}

/// Whether elements of this type can be summed: integers and floats of 1 to 8 bytes.
pub fn is_supported(dtype: DType) -> bool {
    matches!(dtype.kind(), DTypeKind::Int | DTypeKind::UInt | DTypeKind::Float | DTypeKind::BFloat)
}

/// Puts the running sums of every chunk of `src` into `dst`, in stream order.
///
/// # Errors
/// `InvalidArgument` for chunks outside the buffers, odd addresses and sizes; `Unsupported` for other types;
/// `MemorySpace`, `ReadOnly`, `OutOfMemory`, `DeviceFailed`.
pub fn accumulate_on(dtype: DType, src: &Buffer, dst: &Buffer, chunks: &[Chunk], stream: &Stream) -> Result<()> {
    check(dtype, src, dst, chunks, stream)?;
    cuda::accumulate(dtype, src, dst, chunks, stream)
}

/// Puts the differences of every element of `src` from the one before it into `dst`, in stream order; the first element of a
/// chunk stays. The two buffers are apart.
///
/// # Errors
/// Those of [`accumulate_on`]; `InvalidArgument` also for views of one block.
pub fn differ_on(dtype: DType, src: &Buffer, dst: &Buffer, chunks: &[Chunk], stream: &Stream) -> Result<()> {
    check(dtype, src, dst, chunks, stream)?;
    if src.shares_memory_with(dst) {
        return Err(Error::invalid("source and target of differences overlap"));
    }
    cuda::differences(dtype, src, dst, chunks, stream)
}

fn check(dtype: DType, src: &Buffer, dst: &Buffer, chunks: &[Chunk], stream: &Stream) -> Result<()> {
    if !is_supported(dtype) {
        return Err(Error::new(ErrorKind::Unsupported, format!("no running sums in {dtype}")));
    }
    if stream.device() == Device::Cpu || src.device() != stream.device() || dst.device() != stream.device() {
        let message =
            format!("cannot sum from {} to {} on a stream of {}", src.device(), dst.device(), stream.device());
        return Err(Error::new(ErrorKind::MemorySpace, message));
    }
    dst.require_writable()?;
    let element_bytes = dtype.size_bytes();
    let fits = |buffer: &Buffer, offset: usize, size: usize| {
        offset.checked_add(size).is_some_and(|end| end <= buffer.size_bytes())
            && (buffer.address() + offset).is_multiple_of(ALIGNMENT_BYTES)
    };
    let valid = |chunk: &Chunk| {
        fits(src, chunk.src_offset_bytes, chunk.size_bytes)
            && fits(dst, chunk.dst_offset_bytes, chunk.size_bytes)
            && chunk.size_bytes.is_multiple_of(element_bytes)
    };
    if let Some(chunk) = chunks.iter().find(|chunk| !valid(chunk)) {
        let (from, to) = (src.size_bytes(), dst.size_bytes());
        let message = format!(
            "{chunk:?} of {dtype} is not aligned, has part of an element, or is not inside buffers of {from} and {to} bytes"
        );
        return Err(Error::invalid(message));
    }
    Ok(())
}
