//! Launches that move boxes between packed memory and nd-buffers, between nd-buffers, and fill.
//!
//! Each picks the cheapest kernel that can do it: elements that move as they are, or with their bytes reversed, go through
//! `copy.cu`; a chunk shuffled by its own element size through `shuffle.cu`; everything else through the interpreter in
//! `elements.cu`. Arguments were checked by the public functions (`crate::ops::transfer`, `crate::array::ndbuffer`).

use crate::array::dtype::{DType, DTypeKind};
use crate::array::ndbuffer::NdBuffer;
use crate::driver::source::KernelSource;
use crate::error::Result;
use crate::memory::buffer::Buffer;
use crate::ops::launch::{blocks, for_each_table, sized_kernel, threads, upload};
use crate::ops::regions::{Boxes, Item};
use crate::ops::step::cuda::{Packed, Steps, swap_unit};
use crate::ops::transfer::{ElementStep, Packing, Transfer};
use crate::stream::Stream;

pub(crate) static COPY: KernelSource = KernelSource { name: "copy", text: include_str!("copy.cu"), headers: &[] };
pub(crate) static ELEMENTS: KernelSource =
    KernelSource { name: "elements", text: include_str!("elements.cu"), headers: &[] };
pub(crate) static SHUFFLE: KernelSource =
    KernelSource { name: "shuffle", text: include_str!("../shuffle/shuffle.cu"), headers: &[] };

/// Elements that a thread takes at a time where they lie side by side, and the bytes of its widest access.
const QUAD: usize = 4;
const WIDEST: usize = 16;

/// Which way elements go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Scatter,
    Gather,
}

/// Both memories of a launch: base addresses, and the buffers they lie in.
#[derive(Clone, Copy)]
pub(crate) struct Ends<'a> {
    pub(crate) src: usize,
    pub(crate) dst: usize,
    pub(crate) src_buffer: &'a Buffer,
    pub(crate) dst_buffer: &'a Buffer,
}

impl Ends<'_> {
    pub(crate) fn bases(&self) -> (usize, usize) {
        (self.src, self.dst)
    }
}

/// Packed memory to an nd-buffer, in stream order.
pub(crate) fn scatter(packed: &Buffer, transfer: &Transfer, target: &NdBuffer, stream: &Stream) -> Result<()> {
    let ends = Ends { src: packed.address(), dst: target.address(), src_buffer: packed, dst_buffer: target.buffer() };
    move_boxes(Direction::Scatter, transfer, &transfer.tail.steps, target.strides(), ends, stream)
}

/// An nd-buffer to packed memory, in stream order.
pub(crate) fn gather(source: &NdBuffer, transfer: &Transfer, packed: &Buffer, stream: &Stream) -> Result<()> {
    let ends = Ends { src: source.address(), dst: packed.address(), src_buffer: source.buffer(), dst_buffer: packed };
    move_boxes(Direction::Gather, transfer, &transfer.tail.steps_of_writing(), source.strides(), ends, stream)
}

fn move_boxes(
    direction: Direction,
    transfer: &Transfer,
    steps: &[ElementStep],
    strides: &[isize],
    ends: Ends<'_>,
    stream: &Stream,
) -> Result<()> {
    let tail = &transfer.tail;
    // Shuffling single bytes leaves them where they are.
    let packing = match tail.packing {
        Packing::Shuffled { unit_bytes: 1 } => Packing::Plain,
        packing => packing,
    };
    let (packed_bytes, array_bytes) = (tail.packed.size_bytes(), tail.dtype.size_bytes());
    let mut boxes = boxes_of(direction, transfer, packing, strides, array_bytes);
    boxes.simplify();
    if boxes.items.is_empty() || packed_bytes == 0 {
        return Ok(());
    }
    match (packing, swap_unit(steps)) {
        (Packing::Plain, Some(unit)) if boxes.alignment(packed_bytes, ends.bases()).is_multiple_of(unit) => {
            boxes.cut(packed_bytes, ends.bases(), 16);
            copy_boxes(boxes, ends, unit, false, stream)
        }
        (Packing::Shuffled { unit_bytes }, Some(unit))
            if unit_bytes == packed_bytes
                && matches!(unit_bytes, 2 | 4 | 8 | 16)
                && array_aligned(direction, &boxes, ends, unit_bytes) =>
        {
            let rest = shuffle_boxes(direction, boxes, ends, unit_bytes, unit, stream)?;
            element_boxes(direction, rest, ends, (tail.packed, tail.dtype), packing, steps, stream)
        }
        (Packing::Bits, _) if steps.is_empty() => {
            let rest = bit_boxes(direction, boxes, ends, stream)?;
            element_boxes(direction, rest, ends, (tail.packed, tail.dtype), packing, steps, stream)
        }
        _ => element_boxes(direction, boxes, ends, (tail.packed, tail.dtype), packing, steps, stream),
    }
}

/// The boxes with byte strides and offsets on both sides. In a shuffled chunk a byte's place is the one it had before
/// shuffling; among packed bits a place is a bit's number.
fn boxes_of(
    direction: Direction,
    transfer: &Transfer,
    packing: Packing,
    strides: &[isize],
    array_bytes: usize,
) -> Boxes {
    let width = if packing == Packing::Bits { 1 } else { transfer.tail.packed.size_bytes() as i64 };
    let packed_strides: Vec<i64> = transfer.packed_strides.iter().map(|&stride| stride as i64 * width).collect();
    let array_strides: Vec<i64> = strides.iter().map(|&stride| stride as i64).collect();
    let items = transfer.boxes.iter().map(|item| {
        let first = item.packed_first_elem as i64 * width;
        let packed = if packing == Packing::Plain { first + item.packed_offset_bytes as i64 } else { first };
        let array = item.start.iter().zip(&array_strides).map(|(&at, &stride)| at as i64 * stride).sum();
        let (src_offset, dst_offset) = match direction {
            Direction::Scatter => (packed, array),
            Direction::Gather => (array, packed),
        };
        Item {
            src_offset,
            dst_offset,
            chunk_offset: item.packed_offset_bytes as i64,
            chunk_bytes: item.packed_size_bytes as u64,
            extents: item.extent.clone(),
        }
    });
    let items = items.collect();
    let (src_strides, dst_strides) = match direction {
        Direction::Scatter => (packed_strides, array_strides),
        Direction::Gather => (array_strides, packed_strides),
    };
    Boxes { access_bytes: array_bytes, src_strides, dst_strides, items }
}

/// Whether elements of the nd-buffer may be accessed whole. The packed side counts from the chunk's beginning.
fn array_aligned(direction: Direction, boxes: &Boxes, ends: Ends<'_>, size_bytes: usize) -> bool {
    let bases = match direction {
        Direction::Scatter => (0, ends.dst),
        Direction::Gather => (ends.src, 0),
    };
    boxes.alignment(size_bytes, bases) == size_bytes
}

/// Moves accesses of `boxes.access_bytes` bytes as they are, reversing units of `unit` bytes.
pub(crate) fn copy_boxes(
    mut boxes: Boxes,
    ends: Ends<'_>,
    unit: usize,
    repeats_source: bool,
    stream: &Stream,
) -> Result<()> {
    boxes.order_and_merge();
    for mut group in boxes.split_by_alignment(ends.bases()) {
        group.widen(ends.bases(), repeats_source);
        launch_copy(group, ends, unit, !repeats_source, stream)?;
    }
    Ok(())
}

fn launch_copy(boxes: Boxes, ends: Ends<'_>, unit: usize, may_transpose: bool, stream: &Stream) -> Result<()> {
    for_each_table(boxes, stream, may_transpose, |lowered, table| {
        let name = if lowered.transposed { "copy_transposed" } else { "copy_linear" };
        let kernel = sized_kernel(&COPY, stream.device(), name, lowered.access_bytes)?;
        let arguments = (ends.src, ends.dst, table.address(), lowered.walk, unit as u32);
        let grid = blocks(&kernel, lowered.walk.tiles);
        let buffers = [ends.src_buffer, ends.dst_buffer, table];
        // SAFETY: the parameters of copy_linear_N and copy_transposed_N; the boxes were checked to lie in both buffers.
        unsafe { kernel.launch(stream, grid, threads(stream.device()), arguments, &buffers) }
    })
}

/// Moves chunks that are shuffled by their element size, four elements at a time where they lie side by side. Gives back the
/// boxes that no kernel here takes: those of units of 16 bytes that do not.
pub(crate) fn shuffle_boxes(
    direction: Direction,
    mut boxes: Boxes,
    ends: Ends<'_>,
    bytes: usize,
    unit: usize,
    stream: &Stream,
) -> Result<Boxes> {
    boxes.order_and_merge();
    let scatters = direction == Direction::Scatter;
    let (packed, array) = if scatters { ends.bases() } else { (ends.dst, ends.src) };
    // A quad is a word of each plane, and on the other side accesses of up to 16 bytes.
    let (whole, access) = (QUAD * bytes, (QUAD * bytes).min(WIDEST));
    let multiples = if scatters { (whole, access) } else { (access, whole) };
    let (quads, rest) = boxes.split_groups(QUAD, (bytes, bytes), multiples, |item| {
        let planes = (packed as u64).wrapping_add(item.chunk_offset as u64) | (item.chunk_bytes / bytes as u64);
        planes.is_multiple_of(QUAD as u64) && array.is_multiple_of(access)
    });
    let (quad_name, name) = if scatters { ("unshuffle_quads", "unshuffle") } else { ("shuffle_quads", "shuffle") };
    launch_shuffle(quad_name, quads, ends, bytes, unit, stream)?;
    if bytes == WIDEST {
        return Ok(rest);
    }
    let nothing = Boxes { items: Vec::new(), ..rest.clone() };
    launch_shuffle(name, rest, ends, bytes, unit, stream)?;
    Ok(nothing)
}

fn launch_shuffle(name: &str, boxes: Boxes, ends: Ends<'_>, bytes: usize, unit: usize, stream: &Stream) -> Result<()> {
    for_each_table(boxes, stream, false, |lowered, table| {
        let kernel = sized_kernel(&SHUFFLE, stream.device(), name, bytes)?;
        let arguments = (ends.src, ends.dst, table.address(), lowered.walk, unit as u32);
        let grid = blocks(&kernel, lowered.walk.tiles);
        let buffers = [ends.src_buffer, ends.dst_buffer, table];
        // SAFETY: the parameters of the kernels that are named so; the boxes were checked to lie in both buffers, and those in
        // quads to be aligned for them.
        unsafe { kernel.launch(stream, grid, threads(stream.device()), arguments, &buffers) }
    })
}

/// Moves packed bits that become whole bytes or come from them, 32 or 8 at a time. Gives back the boxes that do not lie so.
fn bit_boxes(direction: Direction, mut boxes: Boxes, ends: Ends<'_>, stream: &Stream) -> Result<Boxes> {
    boxes.order_and_merge();
    let scatters = direction == Direction::Scatter;
    let (array, name) = if scatters { (ends.dst, "bits_scatter") } else { (ends.src, "bits_gather") };
    for packed_bytes in [4, 1] {
        // Bits on the packed side, accesses of up to 16 bytes on the other.
        let (group, access) = (8 * packed_bytes, (8 * packed_bytes).min(WIDEST));
        let multiples = if scatters { (group, access) } else { (access, group) };
        let (groups, rest) = boxes.split_groups(group, (1, 1), multiples, |_| array.is_multiple_of(access));
        for_each_table(groups, stream, false, |lowered, table| {
            let kernel = sized_kernel(&ELEMENTS, stream.device(), name, packed_bytes)?;
            let arguments = (ends.src, ends.dst, table.address(), lowered.walk);
            let grid = blocks(&kernel, lowered.walk.tiles);
            let buffers = [ends.src_buffer, ends.dst_buffer, table];
            // SAFETY: the parameters of bits_scatter_N and bits_gather_N; the boxes were checked to lie in both buffers, and
            // their runs to begin and end at whole bytes and multiples of the access.
            unsafe { kernel.launch(stream, grid, threads(stream.device()), arguments, &buffers) }
        })?;
        boxes = rest;
    }
    Ok(boxes)
}

/// Elements of any packing, through any steps.
fn element_boxes(
    direction: Direction,
    mut boxes: Boxes,
    ends: Ends<'_>,
    (packed, array): (DType, DType),
    packing: Packing,
    steps: &[ElementStep],
    stream: &Stream,
) -> Result<()> {
    let mut packed_bytes = packed.size_bytes();
    let mut array_bytes = array.size_bytes();
    if !matches!(packed_bytes, 1 | 2 | 4 | 8 | 16) || packed.kind() == DTypeKind::Opaque {
        // Opaque elements only have bytes to swap: each is taken in parts of the largest unit that is swapped.
        let part = steps.iter().map(ElementStep::unit_bytes).max().unwrap_or(1).max(1);
        boxes.src_strides.push(part as i64);
        boxes.dst_strides.push(part as i64);
        boxes.items.iter_mut().for_each(|item| item.extents.push(packed_bytes / part));
        (packed_bytes, array_bytes) = (part, part);
    }
    let (src_bytes, dst_bytes) = match direction {
        Direction::Scatter => (packed_bytes, array_bytes),
        Direction::Gather => (array_bytes, packed_bytes),
    };
    let (src_aligned, dst_aligned) =
        (boxes.src_alignment(ends.src) >= src_bytes, boxes.dst_alignment(ends.dst) >= dst_bytes);
    let (packed_aligned, array_aligned) = match direction {
        Direction::Scatter => (src_aligned, dst_aligned),
        Direction::Gather => (dst_aligned, src_aligned),
    };
    let how = Packed::new(packing, packed_aligned, array_aligned);
    let steps = Steps::new(steps, src_bytes, dst_bytes)?;
    boxes.order_and_merge();
    if packing == Packing::Plain {
        boxes = quad_boxes(boxes, ends, (src_bytes, dst_bytes), steps, stream)?;
    }
    let name = if direction == Direction::Scatter { "elements_scatter" } else { "elements_gather" };
    for_each_table(boxes, stream, false, |lowered, table| {
        let kernel = ELEMENTS.kernel(stream.device(), name)?;
        let arguments = (ends.src, ends.dst, table.address(), lowered.walk, how, steps);
        let grid = blocks(&kernel, lowered.walk.tiles);
        let buffers = [ends.src_buffer, ends.dst_buffer, table];
        // SAFETY: the parameters of elements_scatter and elements_gather; the boxes were checked to lie in both buffers.
        unsafe { kernel.launch(stream, grid, threads(stream.device()), arguments, &buffers) }
    })
}

/// Moves elements that lie side by side on both sides, four at a time. Gives back the boxes that do not lie so.
fn quad_boxes(
    boxes: Boxes,
    ends: Ends<'_>,
    (src_bytes, dst_bytes): (usize, usize),
    steps: Steps,
    stream: &Stream,
) -> Result<Boxes> {
    let multiples = ((QUAD * src_bytes).min(WIDEST), (QUAD * dst_bytes).min(WIDEST));
    let (quads, rest) = boxes.split_groups(QUAD, (src_bytes, dst_bytes), multiples, |_| {
        ends.src.is_multiple_of(multiples.0) && ends.dst.is_multiple_of(multiples.1)
    });
    for_each_table(quads, stream, false, |lowered, table| {
        let kernel = ELEMENTS.kernel(stream.device(), "elements_quads")?;
        let arguments = (ends.src, ends.dst, table.address(), lowered.walk, steps);
        let grid = blocks(&kernel, lowered.walk.tiles);
        let buffers = [ends.src_buffer, ends.dst_buffer, table];
        // SAFETY: the parameters of elements_quads; the boxes were checked to lie in both buffers, and to be aligned.
        unsafe { kernel.launch(stream, grid, threads(stream.device()), arguments, &buffers) }
    })?;
    Ok(rest)
}

/// Copies all elements of one nd-buffer to another of the same shape, converted where the dtypes differ, in stream order. The
/// two do not overlap.
pub(crate) fn copy(source: &NdBuffer, target: &NdBuffer, stream: &Stream) -> Result<()> {
    let ends =
        Ends { src: source.address(), dst: target.address(), src_buffer: source.buffer(), dst_buffer: target.buffer() };
    let mut boxes = whole(source, target.strides());
    boxes.simplify();
    if boxes.items.is_empty() || source.dtype().size_bytes() == 0 {
        return Ok(());
    }
    if source.dtype() == target.dtype() {
        boxes.cut(source.dtype().size_bytes(), ends.bases(), 16);
        return copy_boxes(boxes, ends, 1, false, stream);
    }
    let step = ElementStep::Cast { from: source.dtype(), to: target.dtype() };
    let dtypes = (source.dtype(), target.dtype());
    element_boxes(Direction::Scatter, boxes, ends, dtypes, Packing::Plain, &[step], stream)
}

/// One box over all elements of an nd-buffer, with these strides on the other side.
pub(crate) fn whole(source: &NdBuffer, dst_strides: &[isize]) -> Boxes {
    Boxes {
        access_bytes: source.dtype().size_bytes(),
        src_strides: source.strides().iter().map(|&stride| stride as i64).collect(),
        dst_strides: dst_strides.iter().map(|&stride| stride as i64).collect(),
        items: vec![Item {
            src_offset: 0,
            dst_offset: 0,
            chunk_offset: 0,
            chunk_bytes: 0,
            extents: source.shape().to_vec(),
        }],
    }
}

/// The memory from which a launch reads one element again and again: whole accesses of up to 16 bytes.
pub(crate) fn pattern(element: &[u8], stream: &Stream) -> Result<Buffer> {
    let repeats = if 16 % element.len().max(1) == 0 { 16 / element.len().max(1) } else { 1 };
    upload(&element.repeat(repeats), stream)
}

/// Sets every element of the boxes, (start, extent), to `element`, in stream order.
pub(crate) fn fill_boxes(
    target: &NdBuffer,
    boxes: &[(Vec<usize>, Vec<usize>)],
    element: &[u8],
    stream: &Stream,
) -> Result<()> {
    let strides: Vec<i64> = target.strides().iter().map(|&stride| stride as i64).collect();
    let items = boxes.iter().map(|(start, extent)| Item {
        src_offset: 0,
        dst_offset: start.iter().zip(&strides).map(|(&at, &stride)| at as i64 * stride).sum(),
        chunk_offset: 0,
        chunk_bytes: 0,
        extents: extent.clone(),
    });
    let mut all = Boxes {
        access_bytes: element.len(),
        src_strides: vec![0; strides.len()],
        items: items.collect(),
        dst_strides: strides,
    };
    all.simplify();
    if all.items.is_empty() || element.is_empty() {
        return Ok(());
    }
    let pattern = pattern(element, stream)?;
    let ends =
        Ends { src: pattern.address(), dst: target.address(), src_buffer: &pattern, dst_buffer: target.buffer() };
    all.cut(element.len(), ends.bases(), 16);
    copy_boxes(all, ends, 1, true, stream)
}

/// Copies many pieces, each from one buffer to another, in stream order. Offsets are whole addresses.
pub(crate) fn copy_pieces(pieces: &[(Buffer, Buffer)], stream: &Stream) -> Result<()> {
    let items = pieces.iter().map(|(src, dst)| Item {
        src_offset: src.address() as i64,
        dst_offset: dst.address() as i64,
        chunk_offset: 0,
        chunk_bytes: 0,
        extents: vec![src.size_bytes()],
    });
    let mut boxes = Boxes { access_bytes: 1, src_strides: vec![1], dst_strides: vec![1], items: items.collect() };
    boxes.simplify();
    let buffers: Vec<&Buffer> = pieces.iter().flat_map(|(src, dst)| [src, dst]).collect();
    for mut group in boxes.split_by_alignment((0, 0)) {
        group.widen((0, 0), false);
        for_each_table(group, stream, false, |lowered, table| {
            let kernel = sized_kernel(&COPY, stream.device(), "copy_linear", lowered.access_bytes)?;
            let (base, unit) = (0usize, 1u32);
            let arguments = (base, base, table.address(), lowered.walk, unit);
            let used: Vec<&Buffer> = buffers.iter().copied().chain([table]).collect();
            // SAFETY: the parameters of copy_linear_N; every piece is a whole buffer of its own size on both sides.
            unsafe {
                kernel.launch(stream, blocks(&kernel, lowered.walk.tiles), threads(stream.device()), arguments, &used)
            }
        })?;
    }
    Ok(())
}
