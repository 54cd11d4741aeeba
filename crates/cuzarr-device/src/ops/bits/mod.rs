//! Packs numbers of a few bits each, and expands packed numbers into whole elements, for many chunks in device memory.
//! Packed numbers follow each other without gaps. The first number begins in the lowest bit of the first byte.

mod cuda;

use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::buffer::Buffer;
use crate::stream::Stream;
use cuda::Way;

/// Which bits of each element are packed, and which of them have a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// Size of an element in bytes: 1, 2, 4 or 8.
    pub elem_bytes: usize,
    /// Number of bits of each element that have a meaning. The bits above are 0.
    pub elem_bits: u32,
    /// Index of the lowest bit of each element that is packed.
    pub first: u32,
    /// Number of bits of each element that are packed. `first + width` is at most `elem_bits`.
    pub width: u32,
    /// Whether unpacking repeats the highest packed bit in the bits above it.
    pub is_signed: bool,
}

/// Where one chunk lies in the packed buffer and in the buffer of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Byte offset of the chunk's packed numbers.
    pub packed_offset_bytes: usize,
    /// Byte offset of the chunk's elements, a multiple of the element size.
    pub elems_offset_bytes: usize,
}

impl Fields {
    /// Size of `elems` packed numbers in bytes. Never more than the size of the elements.
    pub fn packed_bytes(&self, elems: usize) -> usize {
        let width = self.width as usize;
        elems / 8 * width + (elems % 8 * width).div_ceil(8)
    }

    fn are_valid(&self) -> bool {
        matches!(self.elem_bytes, 1 | 2 | 4 | 8)
            && (1..=8 * self.elem_bytes as u32).contains(&self.elem_bits)
            && self.width > 0
            && self.first.checked_add(self.width).is_some_and(|end| end <= self.elem_bits)
    }
}

/// Expands the packed numbers of each chunk into `elems` whole elements, in stream order. Bits that were not packed are
/// 0.
///
/// # Errors
/// `InvalidArgument` for impossible fields and spans; `MemorySpace`, `ReadOnly`, `OutOfMemory`, `DeviceFailed`.
pub fn unpack_on(
    fields: &Fields,
    packed: &Buffer,
    elements: &Buffer,
    spans: &[Span],
    elems: usize,
    stream: &Stream,
) -> Result<()> {
    check(fields, packed, elements, spans, elems, stream)?;
    elements.require_writable()?;
    cuda::launch(Way::Unpack, fields, packed, elements, spans, elems, stream)
}

/// Packs the chosen bits of elements, in stream order; the inverse of [`unpack_on`]. Bits behind the last number are 0.
///
/// # Errors
/// Those of [`unpack_on`].
pub fn pack_on(
    fields: &Fields,
    elements: &Buffer,
    packed: &Buffer,
    spans: &[Span],
    elems: usize,
    stream: &Stream,
) -> Result<()> {
    check(fields, packed, elements, spans, elems, stream)?;
    packed.require_writable()?;
    cuda::launch(Way::Pack, fields, packed, elements, spans, elems, stream)
}

fn check(
    fields: &Fields,
    packed: &Buffer,
    elements: &Buffer,
    spans: &[Span],
    elems: usize,
    stream: &Stream,
) -> Result<()> {
    if stream.device() == Device::Cpu || [packed, elements].iter().any(|buffer| buffer.device() != stream.device()) {
        let message = format!("cannot pack from {} to {} on {}", elements.device(), packed.device(), stream.device());
        return Err(Error::new(ErrorKind::MemorySpace, message));
    }
    let Some(elems_bytes) = elems.checked_mul(fields.elem_bytes).filter(|_| fields.are_valid()) else {
        return Err(Error::invalid(format!("cannot pack {elems} elements of {fields:?}")));
    };
    let packed_bytes = fields.packed_bytes(elems);
    let inside = |buffer: &Buffer, offset: usize, size: usize| {
        offset.checked_add(size).is_some_and(|end| end <= buffer.size_bytes())
    };
    let wrong = |span: &&Span| {
        !inside(packed, span.packed_offset_bytes, packed_bytes)
            || !inside(elements, span.elems_offset_bytes, elems_bytes)
            || !(elements.address() + span.elems_offset_bytes).is_multiple_of(fields.elem_bytes)
    };
    match spans.iter().find(wrong) {
        Some(span) => Err(Error::invalid(format!(
            "{span:?} of {elems} elements is not inside buffers of {} and {} bytes, or between elements",
            packed.size_bytes(),
            elements.size_bytes()
        ))),
        None => Ok(()),
    }
}
