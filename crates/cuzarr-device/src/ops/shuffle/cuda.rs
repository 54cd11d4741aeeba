//! Byte and bit shuffles of flat memory on any device, for codecs that do not shuffle as the last step of decoding.

use super::cpu;
use crate::c_layout::c_layout;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::buffer::Buffer;
use crate::ops::launch::{blocks, context, sized_kernel, threads, upload};
use crate::ops::regions::{Item, RegionBoxes};
use crate::ops::transfer::cuda::{Direction, Ends, SHUFFLE, copy_boxes, shuffle_boxes};
use crate::ops::transfer::{Packing, Scatter, Tail, Transfer, TransferBox};
use crate::stream::Stream;

/// A range of bytes that is shuffled on its own: a chunk, or a block of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Byte offset of the range in the source.
    pub src_offset_bytes: usize,
    /// Byte offset of the range in the target.
    pub dst_offset_bytes: usize,
    /// Size of the range in bytes, the same in source and target.
    pub size_bytes: usize,
}

/// The unit that is shuffled: bytes or bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    /// Bytes are shuffled: first come the first bytes of all units, then all second bytes, and so on.
    Bytes,
    /// Bits are shuffled in groups of 8 elements, as by bitshuffle and Blosc: first bit 0 of byte 0 of all elements,
    /// then bit 1, and so on.
    Bits,
}

/// Shuffles every byte range (span) of the source into the target, in units of `unit_bytes` bytes, in stream order.
/// Bytes that do not fill a unit (for bits, a group of 8 units) follow unchanged.
///
/// # Errors
/// `InvalidArgument` for spans outside the buffers and units of 0 bytes, `MemorySpace`, `OutOfMemory`, `DeviceFailed`.
pub fn shuffle(
    kind: Shuffle,
    src: &Buffer,
    dst: &Buffer,
    spans: &[Span],
    unit_bytes: usize,
    stream: &Stream,
) -> Result<()> {
    run(true, kind, src, dst, spans, unit_bytes, stream)
}

/// Puts every byte range that [`shuffle`] shuffled back into its original order, in stream order.
///
/// # Errors
/// Those of [`shuffle`].
pub fn unshuffle(
    kind: Shuffle,
    src: &Buffer,
    dst: &Buffer,
    spans: &[Span],
    unit_bytes: usize,
    stream: &Stream,
) -> Result<()> {
    run(false, kind, src, dst, spans, unit_bytes, stream)
}

fn run(
    forward: bool,
    kind: Shuffle,
    src: &Buffer,
    dst: &Buffer,
    spans: &[Span],
    unit_bytes: usize,
    stream: &Stream,
) -> Result<()> {
    check(src, dst, spans, unit_bytes, stream)?;
    if stream.device() == Device::Cpu {
        return spans.iter().try_for_each(|span| run_on_host(forward, kind, src, dst, span, unit_bytes));
    }
    match kind {
        Shuffle::Bytes => shuffle_bytes(forward, src, dst, spans, unit_bytes, stream),
        Shuffle::Bits => shuffle_bits(forward, src, dst, spans, unit_bytes, stream),
    }
}

fn check(src: &Buffer, dst: &Buffer, spans: &[Span], unit_bytes: usize, stream: &Stream) -> Result<()> {
    if unit_bytes == 0 || u32::try_from(unit_bytes).is_err() {
        return Err(Error::invalid(format!("cannot shuffle units of {unit_bytes} bytes")));
    }
    dst.require_writable()?;
    for buffer in [src, dst] {
        if buffer.device() != stream.device() {
            let message = format!("the buffer is on {}, the stream on {}", buffer.device(), stream.device());
            return Err(Error::new(ErrorKind::MemorySpace, message));
        }
    }
    let inside = |offset: usize, size: usize, buffer: &Buffer| {
        offset.checked_add(size).is_some_and(|end| end <= buffer.size_bytes())
    };
    let outside = |span: &&Span| {
        !inside(span.src_offset_bytes, span.size_bytes, src) || !inside(span.dst_offset_bytes, span.size_bytes, dst)
    };
    match spans.iter().find(outside) {
        Some(span) => {
            let message =
                format!("{span:?} is not inside buffers of {} and {} bytes", src.size_bytes(), dst.size_bytes());
            Err(Error::invalid(message))
        }
        None => Ok(()),
    }
}

fn run_on_host(forward: bool, kind: Shuffle, src: &Buffer, dst: &Buffer, span: &Span, unit_bytes: usize) -> Result<()> {
    let source = src.slice(span.src_offset_bytes..span.src_offset_bytes + span.size_bytes)?;
    let target = dst.slice(span.dst_offset_bytes..span.dst_offset_bytes + span.size_bytes)?;
    // Goes through new memory, since the two buffers may be views of the same block.
    let mut shuffled = vec![0; span.size_bytes];
    let permute = match (forward, kind) {
        (true, Shuffle::Bytes) => cpu::shuffle,
        (false, Shuffle::Bytes) => cpu::unshuffle,
        (true, Shuffle::Bits) => cpu::bitshuffle,
        (false, Shuffle::Bits) => cpu::bitunshuffle,
    };
    permute(&source.host_bytes()?, &mut shuffled, unit_bytes)?;
    Stream::legacy(Device::Cpu)?.h2d(&shuffled, &target)
}

/// Shuffles or unshuffles bytes with the kernels that gather from flat memory to shuffled chunks, or scatter from them.
fn shuffle_bytes(
    forward: bool,
    src: &Buffer,
    dst: &Buffer,
    spans: &[Span],
    unit_bytes: usize,
    stream: &Stream,
) -> Result<()> {
    let ends = Ends { src: src.address(), dst: dst.address(), src_buffer: src, dst_buffer: dst };
    let flat_offset = |span: &Span| if forward { span.src_offset_bytes } else { span.dst_offset_bytes };
    let flat = if forward { src.address() } else { dst.address() };
    let aligned = spans.iter().all(|span| (flat + flat_offset(span)).is_multiple_of(unit_bytes));
    if !matches!(unit_bytes, 2 | 4 | 8) || !aligned {
        return shuffle_any(forward, src, dst, spans, unit_bytes, stream);
    }
    let direction = if forward { Direction::Gather } else { Direction::Scatter };
    shuffle_boxes(direction, boxes(spans, forward, unit_bytes), ends, unit_bytes, 1, stream)?;
    copy_rests(spans, ends, |size| size / unit_bytes * unit_bytes, stream)
}

fn boxes(spans: &[Span], forward: bool, unit_bytes: usize) -> RegionBoxes {
    let items = spans.iter().map(|span| {
        let (src, dst) = (span.src_offset_bytes as i64, span.dst_offset_bytes as i64);
        // On the shuffled side, offsets count from the chunk's beginning.
        let (src_offset, dst_offset, chunk_offset) = if forward { (src, 0, dst) } else { (0, dst, src) };
        let extents = vec![span.size_bytes / unit_bytes];
        Item { src_offset, dst_offset, chunk_offset, chunk_bytes: span.size_bytes as u64, extents }
    });
    let strides = vec![unit_bytes as i64];
    RegionBoxes { access_bytes: unit_bytes, src_strides: strides.clone(), dst_strides: strides, items: items.collect() }
}

/// Copies the end of each byte range unchanged, because it is too short to be shuffled. `whole` gives the size of the
/// shuffled part.
fn copy_rests(spans: &[Span], ends: Ends<'_>, whole: impl Fn(usize) -> usize, stream: &Stream) -> Result<()> {
    let items = spans.iter().map(|span| {
        let done = whole(span.size_bytes);
        Item {
            src_offset: (span.src_offset_bytes + done) as i64,
            dst_offset: (span.dst_offset_bytes + done) as i64,
            chunk_offset: 0,
            chunk_bytes: 0,
            extents: vec![span.size_bytes - done],
        }
    });
    let mut rests = RegionBoxes { access_bytes: 1, src_strides: vec![1], dst_strides: vec![1], items: items.collect() };
    rests.simplify();
    if rests.items.is_empty() {
        return Ok(());
    }
    copy_boxes(rests, ends, 1, false, stream)
}

/// Shuffles or unshuffles units that have no fast kernel, byte by byte, with the interpreting kernels.
fn shuffle_any(
    forward: bool,
    src: &Buffer,
    dst: &Buffer,
    spans: &[Span],
    unit_bytes: usize,
    stream: &Stream,
) -> Result<()> {
    use crate::array::dtype::DType;
    use crate::array::layout::Layout;
    use crate::array::ndbuffer::NdBuffer;
    let (flat, packed) = if forward { (src, dst) } else { (dst, src) };
    let layout = Layout::contiguous(&[flat.size_bytes()], 1, crate::array::layout::Order::C)?;
    let flat = NdBuffer::from_parts(flat.clone(), DType::UINT8, layout)?;
    let tail = Tail { packing: Packing::Shuffled { unit_bytes }, ..Tail::plain(DType::UINT8) };
    let boxes = spans.iter().map(|span| {
        let (flat, packed) = match forward {
            true => (span.src_offset_bytes, span.dst_offset_bytes),
            false => (span.dst_offset_bytes, span.src_offset_bytes),
        };
        TransferBox {
            packed_offset_bytes: packed,
            packed_size_bytes: span.size_bytes,
            packed_first_elem: 0,
            start: vec![flat],
            extent: vec![span.size_bytes],
        }
    });
    let transfer = Transfer { tail, packed_strides: vec![1], lists: None, boxes: boxes.collect() };
    match forward {
        true => crate::ops::transfer::cuda::gather(&flat, &transfer, packed, stream),
        false => crate::ops::transfer::cuda::scatter(&[Scatter::all(packed, &transfer, &flat)], stream),
    }
}

/// One range of bytes of a bit shuffle, in the form that kernels read, counted in groups of 8 elements. `Span` in
/// shuffle.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct GroupSpan {
    src_offset: u64,
    dst_offset: u64,
    first_group: u64,
    groups: u64,
}

// `Span` in shuffle.cu, which checks the size, too.
c_layout! { plain GroupSpan: 32 bytes { src_offset at 0, dst_offset at 8, first_group at 16, groups at 24 } }

fn shuffle_bits(
    forward: bool,
    src: &Buffer,
    dst: &Buffer,
    spans: &[Span],
    unit_bytes: usize,
    stream: &Stream,
) -> Result<()> {
    context(stream)?;
    let ends = Ends { src: src.address(), dst: dst.address(), src_buffer: src, dst_buffer: dst };
    let group_bytes = 8 * unit_bytes;
    let mut groups = 0;
    let mut table = Vec::new();
    for span in spans.iter().filter(|span| span.size_bytes >= group_bytes) {
        let own = (span.size_bytes / group_bytes) as u64;
        let (src_offset, dst_offset) = (span.src_offset_bytes as u64, span.dst_offset_bytes as u64);
        table.push(GroupSpan { src_offset, dst_offset, first_group: groups, groups: own });
        groups += own;
    }
    if groups > 0 {
        let aligned = table.iter().all(|span| (dst.address() as u64 + span.dst_offset).is_multiple_of(8));
        let kernel = match (forward, unit_bytes) {
            (true, _) => SHUFFLE.kernel(stream.device(), "bitshuffle")?,
            (false, 1 | 2 | 4 | 8) if aligned => sized_kernel(&SHUFFLE, stream.device(), "bitunshuffle", unit_bytes)?,
            (false, _) => SHUFFLE.kernel(stream.device(), "bitunshuffle")?,
        };
        let count = table.len() as u32;
        let table = upload(&table, stream)?;
        let threads = threads(stream.device());
        let grid = blocks(&kernel, groups.div_ceil(u64::from(threads)));
        let arguments = (ends.src, ends.dst, table.address(), count, groups, unit_bytes as u32);
        // SAFETY: the parameters of bitshuffle, bitunshuffle and bitunshuffle_N; the spans were checked to lie in both buffers.
        unsafe { kernel.launch(stream, grid, threads, arguments, &[src, dst, &table]) }?;
    }
    copy_rests(spans, ends, |size| size / group_bytes * group_bytes, stream)
}
