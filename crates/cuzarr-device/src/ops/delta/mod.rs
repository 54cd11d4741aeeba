//! Running sums of whole chunks in device memory, and their inverse, differences. Element `i` becomes the sum of
//! elements 0 to `i`, as `numpy.cumsum` gives it in the same type. Integers wrap. Floats are added one after the other,
//! so that they round as on the CPU.

pub(crate) mod cuda;

use crate::array::dtype::{DType, DTypeKind};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::buffer::Buffer;
use crate::stream::Stream;

/// Alignment, in bytes, of each chunk in the source buffer and in the target buffer.
pub const ALIGNMENT_BYTES: usize = 16;

/// Where one chunk lies in the source and in the target. The two may be the same bytes, but must not overlap otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Byte offset in the source at which the chunk begins.
    pub src_offset_bytes: usize,
    /// Byte offset in the target at which the chunk's result begins.
    pub dst_offset_bytes: usize,
    /// Size of the chunk in bytes, the same in source and target. Whole elements only.
    pub size_bytes: usize,
}

/// Whether elements of this type can be summed: integers, and floats of 2 to 8 bytes.
pub fn is_supported(dtype: DType) -> bool {
    matches!(dtype.kind(), DTypeKind::Int | DTypeKind::UInt | DTypeKind::Float | DTypeKind::BFloat)
}

/// Writes the running sums of every chunk of `src` to `dst`, in stream order.
///
/// # Errors
/// `InvalidArgument` for chunks that are outside the buffers, not aligned, or not whole elements; `Unsupported` for
/// other types; `MemorySpace`, `ReadOnly`, `OutOfMemory`, `DeviceFailed`.
pub fn accumulate_on(dtype: DType, src: &Buffer, dst: &Buffer, chunks: &[Chunk], stream: &Stream) -> Result<()> {
    check(dtype, src, dst, chunks, stream)?;
    cuda::accumulate(dtype, src, dst, chunks, stream)
}

/// Writes the difference of every element of `src` and the one before it to `dst`, in stream order. The first element
/// of a chunk is copied. The two buffers must not share memory.
///
/// # Errors
/// Those of [`accumulate_on`]; `InvalidArgument` also for buffers that share memory.
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
