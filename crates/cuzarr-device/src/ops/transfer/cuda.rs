//! Launches that move boxes between packed memory and nd-buffers or between nd-buffers, and that fill boxes.
//!
//! Each launch uses the cheapest kernel that fits. Elements that are unchanged, or only byte-swapped, go through
//! `copy.cu`. Chunks shuffled by their element size go through `shuffle.cu`. All others go through the interpreter in
//! `elements.cu`. Arguments were checked by the public functions (`crate::ops::transfer`, `crate::array::ndbuffer`).

use std::collections::HashMap;
use std::sync::Arc;

use crate::array::dtype::{DType, DTypeKind};
use crate::array::lists::{ListPart, Lists};
use crate::array::ndbuffer::NdBuffer;
use crate::c_layout::c_layout;
use crate::driver::source::KernelSource;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::buffer::Buffer;
use crate::ops::launch::{blocks, for_each_table, sized_kernel, threads, upload, write_table};
use crate::ops::regions::lower::{MAX_NDIM, UNROLL};
use crate::ops::regions::{Item, RegionBoxes};
use crate::ops::step::cuda::{Packed, Steps, swap_unit};
use crate::ops::transfer::{ElementStep, Packing, Scatter, Tail, Transfer, TransferBox};
use crate::stream::Stream;

pub(crate) static COPY: KernelSource = KernelSource { name: "copy", text: include_str!("copy.cu"), headers: &[] };
pub(crate) static ELEMENTS: KernelSource =
    KernelSource { name: "elements", text: include_str!("elements.cu"), headers: &[] };
pub(crate) static SHUFFLE: KernelSource =
    KernelSource { name: "shuffle", text: include_str!("../shuffle/shuffle.cu"), headers: &[] };

/// Number of neighbouring elements that a thread moves at once; `WIDEST` is the size of its widest access in bytes.
const QUAD: usize = 4;
const WIDEST: usize = 16;

/// Direction of a transfer: from packed memory to the nd-buffer, or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Scatter,
    Gather,
}

/// Source and target memory of a launch: the base addresses, and the buffers that contain these addresses.
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

/// How a launch's elements lie in packed memory and in the nd-buffer, and in which direction they move.
struct Sides<'a> {
    direction: Direction,
    packing: Packing,
    packed: DType,
    array: DType,
    /// The nd-buffer's strides in bytes.
    strides: &'a [isize],
}

impl Sides<'_> {
    /// Describes elements that are packed and changed as a tail says, and move from or to an nd-buffer with these
    /// strides.
    fn of<'a>(direction: Direction, tail: &Tail, strides: &'a [isize]) -> Sides<'a> {
        // A shuffle of single bytes changes nothing.
        let packing = match tail.packing {
            Packing::Shuffled { unit_bytes: 1 } => Packing::Plain,
            packing => packing,
        };
        Sides { direction, packing, packed: tail.packed, array: tail.dtype, strides }
    }

    /// Describes elements that are copied from plain memory to the nd-buffer `target`.
    fn plain(packed: DType, target: &NdBuffer) -> Sides<'_> {
        let (direction, packing) = (Direction::Scatter, Packing::Plain);
        Sides { direction, packing, packed, array: target.dtype(), strides: target.strides() }
    }
}

/// Moves boxes from packed buffers to nd-buffers, in stream order. Moves that only differ in their memory share launches.
pub(crate) fn scatter(moves: &[Scatter<'_>], stream: &Stream) -> Result<()> {
    let mut groups: Vec<Vec<&Scatter<'_>>> = Vec::new();
    // The groups of moves with equal strides.
    let mut alike: HashMap<(&[isize], &[isize]), Vec<usize>> = HashMap::new();
    for one in moves {
        let alike = alike.entry((&one.transfer.packed_strides, one.target.strides())).or_default();
        match alike.iter().find(|&&group| share_launches(groups[group][0], one)) {
            Some(&group) => groups[group].push(one),
            None => {
                alike.push(groups.len());
                groups.push(vec![one]);
            }
        }
    }
    groups.iter().try_for_each(|group| scatter_together(group, stream))
}

/// Whether one kernel launch can move the boxes of two moves with equal strides. Boxes with index lists can if the
/// lists and the target are the same.
fn share_launches(one: &Scatter<'_>, other: &Scatter<'_>) -> bool {
    one.transfer.tail == other.transfer.tail
        && match (&one.transfer.lists, &other.transfer.lists) {
            (None, None) => true,
            (Some(lists), Some(others)) => Arc::ptr_eq(lists, others) && one.target.address() == other.target.address(),
            _ => false,
        }
}

fn scatter_together(moves: &[&Scatter<'_>], stream: &Stream) -> Result<()> {
    let Some((first, others)) = moves.split_first() else { return Ok(()) };
    let (packed, target, transfer) = (first.packed, first.target, first.transfer);
    let ends = Ends { src: packed.address(), dst: target.address(), src_buffer: packed, dst_buffer: target.buffer() };
    let sides = Sides::of(Direction::Scatter, &transfer.tail, target.strides());
    let others: Vec<&Buffer> = others.iter().flat_map(|one| [one.packed, one.target.buffer()]).collect();
    others.iter().try_for_each(|buffer| stream.begin_use(buffer))?;
    // Kernels add offsets to the addresses of the first move. Their additions wrap around like these subtractions.
    let distance = |one: &Scatter<'_>| {
        let (src, dst) = (one.packed.address(), one.target.address());
        (src.wrapping_sub(ends.src), dst.wrapping_sub(ends.dst))
    };
    if let Some(lists) = &transfer.lists {
        let moved = |one: &&Scatter<'_>| {
            let (src, _) = distance(one);
            let moved = move |item: &TransferBox| TransferBox {
                packed_offset_bytes: item.packed_offset_bytes.wrapping_add(src),
                ..item.clone()
            };
            one.boxes().iter().map(moved).collect::<Vec<_>>()
        };
        let boxes = moves.iter().flat_map(moved).collect();
        listed_boxes(lists, &transfer.packed_strides, boxes, &sides, &transfer.tail.steps, ends, stream)?;
    } else {
        let mut boxes = boxes_of(&[], &transfer.packed_strides, &sides);
        for one in moves {
            let (src, dst) = distance(one);
            let is_plain = sides.packing == Packing::Plain;
            let moved = |item: Item| Item {
                src_offset: if is_plain { item.src_offset.wrapping_add(src as i64) } else { item.src_offset },
                dst_offset: item.dst_offset.wrapping_add(dst as i64),
                chunk_offset: item.chunk_offset.wrapping_add(src as i64),
                ..item
            };
            let own = boxes_of(one.boxes(), &transfer.packed_strides, &sides);
            boxes.items.extend(own.items.into_iter().map(moved));
        }
        move_boxes(boxes, &sides, &transfer.tail.steps, ends, stream)?;
    }
    stream.end_use(&others)
}

/// Moves boxes from an nd-buffer to packed memory, in stream order.
pub(crate) fn gather(source: &NdBuffer, transfer: &Transfer, packed: &Buffer, stream: &Stream) -> Result<()> {
    let ends = Ends { src: source.address(), dst: packed.address(), src_buffer: source.buffer(), dst_buffer: packed };
    let sides = Sides::of(Direction::Gather, &transfer.tail, source.strides());
    let (steps, strides) = (transfer.tail.steps_of_writing(), &transfer.packed_strides);
    match &transfer.lists {
        Some(lists) => listed_boxes(lists, strides, transfer.boxes.clone(), &sides, &steps, ends, stream),
        None => move_boxes(boxes_of(&transfer.boxes, strides, &sides), &sides, &steps, ends, stream),
    }
}

fn move_boxes(
    mut boxes: RegionBoxes,
    sides: &Sides<'_>,
    steps: &[ElementStep],
    ends: Ends<'_>,
    stream: &Stream,
) -> Result<()> {
    let (direction, packed_bytes) = (sides.direction, sides.packed.size_bytes());
    boxes.simplify();
    if boxes.items.is_empty() || packed_bytes == 0 {
        return Ok(());
    }
    match (sides.packing, swap_unit(steps)) {
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
            element_boxes(rest, ends, sides, steps, stream)
        }
        (Packing::Bits, _) if steps.is_empty() => {
            let rest = bit_boxes(direction, boxes, ends, stream)?;
            element_boxes(rest, ends, sides, steps, stream)
        }
        _ => element_boxes(boxes, ends, sides, steps, stream),
    }
}

/// The boxes of a transfer, with byte strides and offsets in packed memory and in the nd-buffer. In a shuffled chunk,
/// offsets are those before shuffling. Among packed bits, they count bits.
fn boxes_of(boxes: &[TransferBox], packed_strides: &[isize], sides: &Sides<'_>) -> RegionBoxes {
    let width = if sides.packing == Packing::Bits { 1 } else { sides.packed.size_bytes() as i64 };
    let packed_strides: Vec<i64> = packed_strides.iter().map(|&stride| stride as i64 * width).collect();
    let array_strides: Vec<i64> = sides.strides.iter().map(|&stride| stride as i64).collect();
    let items = boxes.iter().map(|item| {
        let first = item.packed_first_elem as i64 * width;
        let packed = if sides.packing == Packing::Plain { first + item.packed_offset_bytes as i64 } else { first };
        let array = item.start.iter().zip(&array_strides).map(|(&at, &stride)| at as i64 * stride).sum();
        let (src_offset, dst_offset) = match sides.direction {
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
    let (src_strides, dst_strides) = match sides.direction {
        Direction::Scatter => (packed_strides, array_strides),
        Direction::Gather => (array_strides, packed_strides),
    };
    RegionBoxes { access_bytes: sides.array.size_bytes(), src_strides, dst_strides, items }
}

/// Whether each element of the nd-buffer is aligned, so that one memory access can move the whole element. Offsets of
/// the packed side count from the chunk's beginning, so they must be aligned, too.
fn array_aligned(direction: Direction, boxes: &RegionBoxes, ends: Ends<'_>, size_bytes: usize) -> bool {
    let bases = match direction {
        Direction::Scatter => (0, ends.dst),
        Direction::Gather => (ends.src, 0),
    };
    boxes.alignment(size_bytes, bases) == size_bytes
}

/// Moves boxes of unchanged elements, in accesses of `boxes.access_bytes` bytes. Reverses the bytes of each unit of
/// `unit` bytes.
pub(crate) fn copy_boxes(
    mut boxes: RegionBoxes,
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

fn launch_copy(boxes: RegionBoxes, ends: Ends<'_>, unit: usize, may_transpose: bool, stream: &Stream) -> Result<()> {
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

/// Moves chunks that are shuffled by their element size, four neighbouring elements at once if possible. Returns the
/// boxes that it cannot move: those of 16-byte units without such neighbours.
pub(crate) fn shuffle_boxes(
    direction: Direction,
    mut boxes: RegionBoxes,
    ends: Ends<'_>,
    bytes: usize,
    unit: usize,
    stream: &Stream,
) -> Result<RegionBoxes> {
    boxes.order_and_merge();
    let scatters = direction == Direction::Scatter;
    let (packed, array) = if scatters { ends.bases() } else { (ends.dst, ends.src) };
    // Four elements are one word in each plane, and accesses of up to 16 bytes on the other side.
    let (whole, access) = (QUAD * bytes, (QUAD * bytes).min(WIDEST));
    let multiples = if scatters { (whole, access) } else { (access, whole) };
    let (quads, rest) = boxes.split_groups(QUAD, bytes, bytes, multiples, |item| {
        let planes = (packed as u64).wrapping_add(item.chunk_offset as u64) | (item.chunk_bytes / bytes as u64);
        planes.is_multiple_of(QUAD as u64) && array.is_multiple_of(access)
    });
    let (quad_name, name) = if scatters { ("unshuffle_quads", "unshuffle") } else { ("shuffle_quads", "shuffle") };
    launch_shuffle(quad_name, quads, ends, bytes, unit, stream)?;
    if bytes == WIDEST {
        return Ok(rest);
    }
    let nothing = RegionBoxes { items: Vec::new(), ..rest.clone() };
    launch_shuffle(name, rest, ends, bytes, unit, stream)?;
    Ok(nothing)
}

fn launch_shuffle(
    name: &str,
    boxes: RegionBoxes,
    ends: Ends<'_>,
    bytes: usize,
    unit: usize,
    stream: &Stream,
) -> Result<()> {
    for_each_table(boxes, stream, false, |lowered, table| {
        let kernel = sized_kernel(&SHUFFLE, stream.device(), name, bytes)?;
        let arguments = (ends.src, ends.dst, table.address(), lowered.walk, unit as u32);
        let grid = blocks(&kernel, lowered.walk.tiles);
        let buffers = [ends.src_buffer, ends.dst_buffer, table];
        // SAFETY: the parameters of these kernels. The boxes were checked to lie in both buffers; boxes of quads are
        // aligned for quads.
        unsafe { kernel.launch(stream, grid, threads(stream.device()), arguments, &buffers) }
    })
}

/// Moves elements between packed memory with one bit each and an nd-buffer with one byte each, 32 or 8 at once. Returns
/// the boxes that do not allow this.
fn bit_boxes(direction: Direction, mut boxes: RegionBoxes, ends: Ends<'_>, stream: &Stream) -> Result<RegionBoxes> {
    boxes.order_and_merge();
    let scatters = direction == Direction::Scatter;
    let (array, name) = if scatters { (ends.dst, "bits_scatter") } else { (ends.src, "bits_gather") };
    for packed_bytes in [4, 1] {
        // Multiples are in bits on the packed side, and in accesses of up to 16 bytes on the other.
        let (group, access) = (8 * packed_bytes, (8 * packed_bytes).min(WIDEST));
        let multiples = if scatters { (group, access) } else { (access, group) };
        let (groups, rest) = boxes.split_groups(group, 1, 1, multiples, |_| array.is_multiple_of(access));
        for_each_table(groups, stream, false, |lowered, table| {
            let kernel = sized_kernel(&ELEMENTS, stream.device(), name, packed_bytes)?;
            let arguments = (ends.src, ends.dst, table.address(), lowered.walk);
            let grid = blocks(&kernel, lowered.walk.tiles);
            let buffers = [ends.src_buffer, ends.dst_buffer, table];
            // SAFETY: the parameters of bits_scatter_N and bits_gather_N. The boxes were checked to lie in both
            // buffers. Their runs begin and end at whole bytes and at multiples of the access.
            unsafe { kernel.launch(stream, grid, threads(stream.device()), arguments, &buffers) }
        })?;
        boxes = rest;
    }
    Ok(boxes)
}

/// Moves boxes of elements with any packing between packed memory and an nd-buffer, and applies any steps to the
/// elements.
fn element_boxes(
    mut boxes: RegionBoxes,
    ends: Ends<'_>,
    sides: &Sides<'_>,
    steps: &[ElementStep],
    stream: &Stream,
) -> Result<()> {
    let mut packed_bytes = sides.packed.size_bytes();
    let mut array_bytes = sides.array.size_bytes();
    if !matches!(packed_bytes, 1 | 2 | 4 | 8 | 16) || sides.packed.kind() == DTypeKind::Opaque {
        // Steps on opaque elements only swap bytes and round floats. So each element is divided into parts of the
        // largest such unit.
        let part = steps.iter().map(ElementStep::unit_bytes).max().unwrap_or(1).max(1);
        boxes.src_strides.push(part as i64);
        boxes.dst_strides.push(part as i64);
        boxes.items.iter_mut().for_each(|item| item.extents.push(packed_bytes / part));
        (packed_bytes, array_bytes) = (part, part);
    }
    let (src_bytes, dst_bytes) = match sides.direction {
        Direction::Scatter => (packed_bytes, array_bytes),
        Direction::Gather => (array_bytes, packed_bytes),
    };
    let (src_aligned, dst_aligned) =
        (boxes.src_alignment(ends.src) >= src_bytes, boxes.dst_alignment(ends.dst) >= dst_bytes);
    let (packed_aligned, array_aligned) = match sides.direction {
        Direction::Scatter => (src_aligned, dst_aligned),
        Direction::Gather => (dst_aligned, src_aligned),
    };
    let how = Packed::new(sides.packing, packed_aligned, array_aligned);
    let steps = Steps::new(steps, src_bytes, dst_bytes)?;
    boxes.order_and_merge();
    if sides.packing == Packing::Plain {
        boxes = quad_boxes(boxes, ends, src_bytes, dst_bytes, steps, stream)?;
    }
    let name = if sides.direction == Direction::Scatter { "elements_scatter" } else { "elements_gather" };
    for_each_table(boxes, stream, false, |lowered, table| {
        let kernel = ELEMENTS.kernel(stream.device(), name)?;
        let arguments = (ends.src, ends.dst, table.address(), lowered.walk, how, steps);
        let grid = blocks(&kernel, lowered.walk.tiles);
        let buffers = [ends.src_buffer, ends.dst_buffer, table];
        // SAFETY: the parameters of elements_scatter and elements_gather; the boxes were checked to lie in both buffers.
        unsafe { kernel.launch(stream, grid, threads(stream.device()), arguments, &buffers) }
    })
}

/// Moves elements that are neighbours in source and target, four at once. Returns the boxes that do not allow this.
fn quad_boxes(
    boxes: RegionBoxes,
    ends: Ends<'_>,
    src_bytes: usize,
    dst_bytes: usize,
    steps: Steps,
    stream: &Stream,
) -> Result<RegionBoxes> {
    let multiples = ((QUAD * src_bytes).min(WIDEST), (QUAD * dst_bytes).min(WIDEST));
    let (quads, rest) = boxes.split_groups(QUAD, src_bytes, dst_bytes, multiples, |_| {
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

/// Copies all elements of an nd-buffer to another of the same shape, in stream order. Converts them if the dtypes
/// differ. The two must not overlap.
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
    let sides = Sides::plain(source.dtype(), target);
    element_boxes(boxes, ends, &sides, &[step], stream)
}

/// Makes one box with all elements of an nd-buffer, for a copy to memory with the strides `dst_strides`. `dst_strides`
/// are the strides on the other side.
pub(crate) fn whole(source: &NdBuffer, dst_strides: &[isize]) -> RegionBoxes {
    RegionBoxes {
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

/// Copies `element` to device memory from which a launch can read it repeatedly. If the element's size divides 16, the
/// memory holds 16 bytes of copies.
pub(crate) fn pattern(element: &[u8], stream: &Stream) -> Result<Buffer> {
    let repeats = if 16 % element.len().max(1) == 0 { 16 / element.len().max(1) } else { 1 };
    upload(&element.repeat(repeats), stream)
}

/// Sets every element of the boxes, given as (start, extent), to `element`, in stream order.
pub(crate) fn fill_boxes(
    target: &NdBuffer,
    lists: Option<&Lists>,
    boxes: &[(Vec<usize>, Vec<usize>)],
    element: &[u8],
    stream: &Stream,
) -> Result<()> {
    if let Some(lists) = lists {
        return fill_listed(target, lists, boxes, element, stream);
    }
    let strides: Vec<i64> = target.strides().iter().map(|&stride| stride as i64).collect();
    let items = boxes.iter().map(|(start, extent)| Item {
        src_offset: 0,
        dst_offset: start.iter().zip(&strides).map(|(&at, &stride)| at as i64 * stride).sum(),
        chunk_offset: 0,
        chunk_bytes: 0,
        extents: extent.clone(),
    });
    let mut all = RegionBoxes {
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

/// One box of a transfer with index lists, in the form that kernels read. `ListedBox` in elements.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct ListedBox {
    first_tile: u64,
    packed: i64,
    array: i64,
    chunk_offset: i64,
    chunk_bytes: u64,
    elems: u32,
    reserved: u32,
    extents: [u32; MAX_NDIM],
    entries: [u32; MAX_NDIM],
}

/// The values that all boxes of one launch with index lists share. `ListedWalk` in elements.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct ListedWalk {
    tiles: u64,
    box_count: u32,
    ndim: u32,
    listed: u32,
    wide: u32,
    packed_strides: [i64; MAX_NDIM],
    array_strides: [i64; MAX_NDIM],
}

// elements.cu checks the sizes, too.
c_layout! {
    plain ListedBox: 112 bytes {
        first_tile at 0, packed at 8, array at 16, chunk_offset at 24, chunk_bytes at 32, elems at 40, reserved at 44,
        extents at 48, entries at 80,
    }
}
c_layout! {
    ListedWalk: 152 bytes {
        tiles at 0, box_count at 8, ndim at 12, listed at 16, wide at 20, packed_strides at 24, array_strides at 88,
    }
}

/// One dimension of a transfer with index lists. Strides are in bytes, or in bits on the packed side.
struct ListedAxis {
    /// The dimension's number in the transfer; `None` for the parts of an opaque element.
    dim: Option<usize>,
    packed: i64,
    array: i64,
    /// If the dimension has an index list: the first position that the boxes use, and where its pairs begin in the
    /// launch's table.
    listed: Option<(usize, u32)>,
}

/// Most list entries in the table of one launch: 8 MiB (16 for wide entries), which is part of the memory for tables.
const MOST_ENTRIES: usize = 1 << 20;

/// Moves boxes with index lists, by as many launches as their tables need.
fn listed_boxes(
    lists: &Lists,
    packed_strides: &[isize],
    mut boxes: Vec<TransferBox>,
    sides: &Sides<'_>,
    steps: &[ElementStep],
    ends: Ends<'_>,
    stream: &Stream,
) -> Result<()> {
    boxes.retain(|item| !item.extent.contains(&0));
    let mut rest = vec![boxes];
    while let Some(mut boxes) = rest.pop() {
        let elems = |item: &TransferBox| item.extent.iter().fold(1usize, |elems, &extent| elems.saturating_mul(extent));
        if entries_of(lists, &boxes) <= MOST_ENTRIES && boxes.iter().all(|item| elems(item) >> 31 == 0) {
            launch_listed(lists, packed_strides, &boxes, sides, steps, ends, stream)?;
            continue;
        }
        let half = match &boxes[..] {
            [one] => {
                let (first, second) = halves(one, packed_strides, lists);
                boxes = vec![first];
                vec![second]
            }
            many => boxes.split_off(many.len() / 2),
        };
        rest.extend([half, boxes]);
    }
    Ok(())
}

/// The range of positions along dimension `dim` that boxes use: its first position and its length.
fn span_of(boxes: &[TransferBox], dim: usize) -> (usize, usize) {
    let from = boxes.iter().map(|item| item.start[dim]).min().unwrap_or(0);
    let to = boxes.iter().map(|item| item.start[dim] + item.extent[dim]).max().unwrap_or(0);
    (from, to - from)
}

/// Number of index list entries that boxes use, in all dimensions together.
fn entries_of(lists: &Lists, boxes: &[TransferBox]) -> usize {
    let dims = 0..boxes.first().map_or(0, |item| item.start.len());
    dims.filter(|&dim| lists.part(dim, 0, 0).is_some()).map(|dim| span_of(boxes, dim).1).sum()
}

/// Divides a box into two halves along its longest dimension.
fn halves(item: &TransferBox, packed_strides: &[isize], lists: &Lists) -> (TransferBox, TransferBox) {
    let dim = (0..item.extent.len()).max_by_key(|&dim| item.extent[dim]).unwrap_or(0);
    let (mut first, mut second) = (item.clone(), item.clone());
    let middle = item.extent[dim] / 2;
    first.extent[dim] = middle;
    second.start[dim] += middle;
    second.extent[dim] -= middle;
    if lists.part(dim, 0, 0).is_none() {
        let distance = packed_strides[dim].wrapping_mul(middle as isize);
        second.packed_first_elem = second.packed_first_elem.wrapping_add_signed(distance);
    }
    (first, second)
}

/// Moves boxes whose index list entries fit the table of one launch.
fn launch_listed(
    lists: &Lists,
    packed_strides: &[isize],
    boxes: &[TransferBox],
    sides: &Sides<'_>,
    steps: &[ElementStep],
    ends: Ends<'_>,
    stream: &Stream,
) -> Result<()> {
    let mut width = sides.packed.size_bytes();
    if boxes.is_empty() || width == 0 {
        return Ok(());
    }
    let unit = if sides.packing == Packing::Bits { 1 } else { width as i64 };
    let (mut axes, mut parts_of_lists, mut entries) = (Vec::new(), Vec::new(), 0usize);
    for (dim, &stride) in packed_strides.iter().enumerate() {
        let (packed, array) = (stride as i64 * unit, sides.strides[dim] as i64);
        let (from, count) = span_of(boxes, dim);
        let listed = lists.part(dim, from, count);
        if listed.is_none() && boxes.iter().all(|item| item.extent[dim] == 1) {
            continue;
        }
        let listed = listed.map(|part| {
            let first = entries as u32;
            entries += part.len();
            parts_of_lists.push(part);
            (from, first)
        });
        axes.push(ListedAxis { dim: Some(dim), packed, array, listed });
    }
    let mut array_bytes = sides.array.size_bytes();
    if !matches!(width, 1 | 2 | 4 | 8 | 16) || sides.packed.kind() == DTypeKind::Opaque {
        // Opaque elements are divided into parts, as in `element_boxes`.
        let part = steps.iter().map(ElementStep::unit_bytes).max().unwrap_or(1).max(1);
        axes.push(ListedAxis { dim: None, packed: part as i64, array: part as i64, listed: None });
        (width, array_bytes) = (part, part);
    }
    if axes.len() > MAX_NDIM {
        let message = format!("index lists of {} dimensions, kernels take {MAX_NDIM}", axes.len());
        return Err(Error::new(ErrorKind::Unsupported, message).with_hint("select a single index along some of them"));
    }
    let parts = sides.packed.size_bytes() / width;
    let mut walk = ListedWalk { ndim: axes.len() as u32, ..ListedWalk::default() };
    for (at, axis) in axes.iter().enumerate() {
        (walk.packed_strides[at], walk.array_strides[at]) = (axis.packed, axis.array);
        walk.listed |= u32::from(axis.listed.is_some()) << at;
    }
    let tile_elems = threads(stream.device()) * UNROLL;
    let mut table = Vec::with_capacity(boxes.len());
    for item in boxes {
        let mut one = ListedBox {
            first_tile: walk.tiles,
            chunk_offset: item.packed_offset_bytes as i64,
            chunk_bytes: item.packed_size_bytes as u64,
            packed: (item.packed_first_elem as i64).wrapping_mul(unit),
            ..ListedBox::default()
        };
        if sides.packing == Packing::Plain {
            one.packed += item.packed_offset_bytes as i64;
        }
        for dim in 0..item.start.len() {
            if lists.part(dim, 0, 0).is_none() {
                one.array += item.start[dim] as i64 * sides.strides[dim] as i64;
            }
        }
        let mut elems = 1u64;
        for (at, axis) in axes.iter().enumerate() {
            let extent = axis.dim.map_or(parts, |dim| item.extent[dim]);
            elems = elems.saturating_mul(extent as u64);
            one.extents[at] = extent as u32;
            if let (Some((from, first)), Some(dim)) = (axis.listed, axis.dim) {
                one.entries[at] = first + (item.start[dim] - from) as u32;
            }
        }
        let too_large = || Error::new(ErrorKind::Unsupported, format!("elements of {} bytes in lists", parts * width));
        one.elems = u32::try_from(elems).map_err(|_| too_large())?;
        walk.tiles += u64::from(one.elems.div_ceil(tile_elems));
        table.push(one);
    }
    walk.box_count = table.len() as u32;
    let aligned = |base: usize, offsets: &mut dyn Iterator<Item = i64>, bytes: usize| {
        bytes.is_power_of_two() && offsets.fold(base as u64, |bits, at| bits | at as u64).is_multiple_of(bytes as u64)
    };
    let (packed_base, array_base) = match sides.direction {
        Direction::Scatter => (ends.src, ends.dst),
        Direction::Gather => (ends.dst, ends.src),
    };
    // Entries are multiplied by the strides of their dimensions, so the strides must be aligned, too.
    let packed_aligned =
        aligned(packed_base, &mut table.iter().map(|one| one.packed).chain(walk.packed_strides), width);
    let array_aligned =
        aligned(array_base, &mut table.iter().map(|one| one.array).chain(walk.array_strides), array_bytes);
    let how = Packed::new(sides.packing, packed_aligned, array_aligned);
    let (src_bytes, dst_bytes, name) = match sides.direction {
        Direction::Scatter => (width, array_bytes, "listed_scatter"),
        Direction::Gather => (array_bytes, width, "listed_gather"),
    };
    let steps = Steps::new(steps, src_bytes, dst_bytes)?;
    let kernel = ELEMENTS.kernel(stream.device(), name)?;
    walk.wide = u32::from(parts_of_lists.iter().any(|part| matches!(part, ListPart::Wide(_))));
    let entry_bytes = if walk.wide == 1 { 16 } else { 8 };
    let entries =
        write_table(entries * entry_bytes, stream, |table| write_entries(&parts_of_lists, walk.wide == 1, table))?;
    let table = upload(&table, stream)?;
    let arguments = (ends.src, ends.dst, table.address(), entries.address(), walk, how, steps);
    let buffers = [ends.src_buffer, ends.dst_buffer, &table, &entries];
    let grid = blocks(&kernel, walk.tiles);
    // SAFETY: the parameters of listed_scatter and listed_gather. Boxes and their entries were checked to lie in both
    // buffers.
    unsafe { kernel.launch(stream, grid, threads(stream.device()), arguments, &buffers) }
}

/// Writes the pairs of parts of index lists to a table one after the other, in the form that kernels read.
fn write_entries(parts: &[ListPart<'_>], wide: bool, table: &mut [u8]) {
    let mut rest = table;
    for part in parts {
        let (own, others) = rest.split_at_mut(part.len() * if wide { 16 } else { 8 });
        rest = others;
        match part {
            ListPart::Narrow(pairs) if !wide => {
                for (entry, pair) in own.chunks_exact_mut(8).zip(*pairs) {
                    entry[..4].copy_from_slice(&pair[0].to_ne_bytes());
                    entry[4..].copy_from_slice(&pair[1].to_ne_bytes());
                }
            }
            part => {
                for (at, entry) in own.chunks_exact_mut(16).enumerate() {
                    let (packed, array) = part.get(at);
                    entry[..8].copy_from_slice(&(packed as u64).to_ne_bytes());
                    entry[8..].copy_from_slice(&(array as u64).to_ne_bytes());
                }
            }
        }
    }
}

/// Sets the elements of boxes with lists to `element`, by scattering one element repeatedly.
fn fill_listed(
    target: &NdBuffer,
    lists: &Lists,
    boxes: &[(Vec<usize>, Vec<usize>)],
    element: &[u8],
    stream: &Stream,
) -> Result<()> {
    if element.is_empty() || boxes.is_empty() {
        return Ok(());
    }
    let pattern = pattern(element, stream)?;
    let item = |(start, extent): &(Vec<usize>, Vec<usize>)| TransferBox {
        packed_offset_bytes: 0,
        packed_size_bytes: element.len(),
        packed_first_elem: 0,
        start: start.clone(),
        extent: extent.clone(),
    };
    let (boxes, strides) = (boxes.iter().map(item).collect(), vec![0; target.ndim()]);
    let sides = Sides::plain(target.dtype(), target);
    let ends =
        Ends { src: pattern.address(), dst: target.address(), src_buffer: &pattern, dst_buffer: target.buffer() };
    listed_boxes(lists, &strides, boxes, &sides, &[], ends, stream)
}

/// Copies many pieces, each from one buffer to another, in stream order. Base addresses are 0, so offsets are
/// addresses.
pub(crate) fn copy_pieces(pieces: &[(Buffer, Buffer)], stream: &Stream) -> Result<()> {
    let items = pieces.iter().map(|(src, dst)| Item {
        src_offset: src.address() as i64,
        dst_offset: dst.address() as i64,
        chunk_offset: 0,
        chunk_bytes: 0,
        extents: vec![src.size_bytes()],
    });
    let mut boxes = RegionBoxes { access_bytes: 1, src_strides: vec![1], dst_strides: vec![1], items: items.collect() };
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
