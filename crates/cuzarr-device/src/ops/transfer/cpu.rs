//! Moves boxes of elements between packed memory and an nd-buffer, both in host memory.
//!
//! Unchanged elements are moved by one strided copy. All others go in tiles that fit the L1 cache: a tile of packed
//! elements is loaded into scratch memory (unshuffling, or unpacking bits), changed by the steps, and stored. Writing
//! goes the other way. Scratch memory has the order of the packed side, so loads run along packed memory, and the
//! strided copy to or from the array transposes if needed.

use crate::array::dtype::DType;
use crate::array::lists::{ListPart, Lists};
use crate::array::ndbuffer::NdBuffer;
use crate::ops::shuffle::cpu as shuffle;
use crate::ops::step::cpu::Steps;
use crate::ops::strided::{self, Dimension};
use crate::ops::transfer::{Packing, Transfer, TransferBox};

/// Size in bytes of a tile: the elements that go through scratch memory at once. Two tiles fit an L1 cache of 32 KiB.
const TILE_BYTES: usize = 16 << 10;

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    /// Elements move from packed memory to the array.
    Read,
    /// Elements move from the array to packed memory.
    Write,
}

/// Where the packed elements of a box lie.
#[derive(Clone, Copy)]
enum Packed {
    /// The packed elements lie at byte strides from the given pointer.
    Plain(*mut u8),
    /// The packed elements lie in a byte-shuffled chunk, at element indices that begin at `first`.
    Shuffled { chunk: *mut u8, chunk_bytes: usize, unit_bytes: usize, first: usize },
    /// The packed elements lie in a chunk of bits, at element indices that begin at `first`.
    Bits { chunk: *mut u8, first: usize },
}

/// Scratch memory for the elements of one tile, before and after a cast.
struct Scratch {
    first: Vec<u8>,
    second: Vec<u8>,
    capacity_elems: usize,
}

impl Scratch {
    fn new(steps: &Steps<'_>, largest_box_elems: usize) -> Scratch {
        let widest = steps.widest_bytes();
        let capacity_elems = (TILE_BYTES / widest).clamp(1, largest_box_elems.max(1));
        let bytes = vec![0; capacity_elems * widest];
        Scratch { first: bytes.clone(), second: bytes, capacity_elems }
    }
}

/// The values that all boxes of a transfer share: direction, steps, element sizes and scratch memory.
struct Mover<'a> {
    direction: Direction,
    steps: Steps<'a>,
    packed: DType,
    array_bytes: usize,
    scratch: Scratch,
}

/// Moves every box of `transfer` from packed memory to `target`.
///
/// # Safety
/// [`Transfer::check`] accepted the transfer for `target` and the size of `packed`. Meanwhile, no thread writes the
/// packed bytes, and no other thread accesses the boxes' elements. The packed bytes and the target do not overlap.
pub(crate) unsafe fn scatter(packed: *const u8, transfer: &Transfer, target: &NdBuffer) {
    let tail = &transfer.tail;
    let steps = Steps::new(&tail.steps, tail.packed, tail.dtype);
    // SAFETY: the caller promises the same; reading does not write through the pointer.
    unsafe { move_boxes(Direction::Read, steps, packed.cast_mut(), transfer, target) }
}

/// Moves every box of `transfer` from `source` to packed memory.
///
/// # Safety
/// The conditions of [`scatter`], with the roles of the memories exchanged.
pub(crate) unsafe fn gather(source: &NdBuffer, transfer: &Transfer, packed: *mut u8) {
    let tail = &transfer.tail;
    let written = tail.steps_of_writing();
    let steps = Steps::new(&written, tail.dtype, tail.packed);
    // SAFETY: the caller promises the same conditions.
    unsafe { move_boxes(Direction::Write, steps, packed, transfer, source) }
}

/// Moves every box of `transfer` between packed memory and `array`, in the given direction.
///
/// # Safety
/// The conditions of [`scatter`] or [`gather`].
unsafe fn move_boxes(direction: Direction, steps: Steps<'_>, packed: *mut u8, transfer: &Transfer, array: &NdBuffer) {
    let elems = |item: &TransferBox| item.extent.iter().product::<usize>();
    let largest = transfer.boxes.iter().map(elems).max().unwrap_or(0);
    if largest == 0 || array.dtype().size_bytes() == 0 {
        return;
    }
    let tail = &transfer.tail;
    let packed_bytes = tail.packed.size_bytes();
    let as_is = steps.is_empty() && tail.packing == Packing::Plain;
    let scratch = Scratch::new(&steps, if as_is { 0 } else { largest });
    let array_bytes = array.dtype().size_bytes();
    let mut mover = Mover { direction, steps, packed: tail.packed, array_bytes, scratch };
    let byte_strides: Vec<isize> =
        transfer.packed_strides.iter().map(|stride| stride.wrapping_mul(packed_bytes as isize)).collect();
    for item in &transfer.boxes {
        let chunk = packed.wrapping_add(item.packed_offset_bytes);
        let first = item.packed_first_elem;
        let (side, strides) = match tail.packing {
            Packing::Plain => (Packed::Plain(chunk.wrapping_add(first.wrapping_mul(packed_bytes))), &byte_strides),
            Packing::Shuffled { unit_bytes } => {
                let chunk_bytes = item.packed_size_bytes;
                (Packed::Shuffled { chunk, chunk_bytes, unit_bytes, first }, &transfer.packed_strides)
            }
            Packing::Bits => (Packed::Bits { chunk, first }, &transfer.packed_strides),
        };
        if let Some(lists) = &transfer.lists {
            let lines = lines(lists, item, strides, array.strides());
            let corner = corner_of(array, &lines, &item.start);
            // SAFETY: the box was checked against both memories.
            unsafe { mover.move_listed(&lines, side, corner) };
            continue;
        }
        let corner = element_pointer(array, &item.start, &item.extent);
        // SAFETY: the box was checked against both memories.
        unsafe { mover.move_box(&item.extent, (side, strides), (corner, array.strides())) };
    }
}

/// Least number of elements, along the dimensions without index lists, that one strided copy moves together. With
/// fewer, elements are moved one by one.
const WORTH_A_COPY: usize = 32;

/// The elements along one dimension of a box, and their strides in packed memory and in the array. The array's stride
/// is in bytes, the packed side's stride in its own unit.
struct Line<'a> {
    extent: usize,
    packed: isize,
    array: isize,
    /// The dimension's index list: for each element, the numbers by which `packed` and `array` are multiplied. Without
    /// a list, both are the element's number.
    listed: Option<ListPart<'a>>,
}

impl Line<'_> {
    fn at(&self, index: usize) -> (isize, isize) {
        let (packed, array) = self.listed.map_or((index, index), |list| list.get(index));
        (packed as isize * self.packed, array as isize * self.array)
    }
}

/// Returns the elements along each dimension of a box, for a transfer with index lists. Strides of the packed side are
/// in its own unit, as in [`Mover::move_box`].
fn lines<'a>(lists: &'a Lists, item: &TransferBox, packed_strides: &[isize], array_strides: &[isize]) -> Vec<Line<'a>> {
    let line = |(dim, &extent): (usize, &usize)| {
        let listed = lists.part(dim, item.start[dim], extent);
        Line { extent, packed: packed_strides[dim], array: array_strides[dim], listed }
    };
    item.extent.iter().enumerate().map(line).collect()
}

/// Pointer to the first element of a box, counting only the dimensions without lists.
fn corner_of(array: &NdBuffer, lines: &[Line<'_>], start: &[usize]) -> *mut u8 {
    let even = lines.iter().zip(start).filter(|(line, _)| line.listed.is_none() && line.extent > 0);
    let offset: isize = even.map(|(line, &at)| at as isize * line.array).sum();
    (array.address() as *mut u8).wrapping_offset(offset)
}

/// Calls `action` with the offsets of every combination of one element from each line, the last line fastest.
fn for_each_choice(lines: &[&Line<'_>], mut action: impl FnMut(isize, isize)) {
    if lines.iter().any(|line| line.extent == 0) {
        return;
    }
    let mut index = vec![0; lines.len()];
    loop {
        let offsets = lines.iter().zip(&index).map(|(line, &index)| line.at(index));
        let (packed, array) = offsets.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        action(packed, array);
        let mut dim = lines.len();
        loop {
            let Some(next) = dim.checked_sub(1) else { return };
            dim = next;
            index[dim] += 1;
            if index[dim] < lines[dim].extent {
                break;
            }
            index[dim] = 0;
        }
    }
}

/// The version of [`copy_line`] for elements of `size_bytes`.
fn line_copy(size_bytes: usize) -> unsafe fn(&Line<'_>, Direction, usize, *mut u8, *mut u8) {
    match size_bytes {
        1 => copy_line::<1>,
        2 => copy_line::<2>,
        4 => copy_line::<4>,
        8 => copy_line::<8>,
        16 => copy_line::<16>,
        _ => copy_line::<0>,
    }
}

/// Copies the elements along one dimension of a box between packed memory and the array. Each has `SIZE` bytes, or
/// `size_bytes` if `SIZE` is 0.
///
/// # Safety
/// All elements of the line lie in both memories, which do not overlap, and no other thread accesses them.
unsafe fn copy_line<const SIZE: usize>(
    line: &Line<'_>,
    direction: Direction,
    size_bytes: usize,
    packed: *mut u8,
    array: *mut u8,
) {
    let size_bytes = if SIZE == 0 { size_bytes } else { SIZE };
    for index in 0..line.extent {
        let (packed_offset, array_offset) = line.at(index);
        let (packed, array) = (packed.wrapping_offset(packed_offset), array.wrapping_offset(array_offset));
        let (src, dst) = if direction == Direction::Read { (packed, array) } else { (array, packed) };
        // SAFETY: the caller promises that the element lies there on both sides.
        unsafe { std::ptr::copy_nonoverlapping(src.cast_const(), dst, size_bytes) };
    }
}

/// Copies the elements of `source` to `target`, and converts them if the dtypes differ. The caller must know that the
/// conversion exists.
///
/// # Safety
/// The two have the same shape, are on the host and do not overlap. Meanwhile, no other thread writes the source or
/// accesses the target.
pub(crate) unsafe fn copy(source: &NdBuffer, target: &NdBuffer) {
    if source.is_empty() || source.dtype().size_bytes() == 0 {
        return;
    }
    let step = [crate::ops::transfer::ElementStep::Cast { from: source.dtype(), to: target.dtype() }];
    let steps = if source.dtype() == target.dtype() { &[][..] } else { &step[..] };
    let steps = Steps::new(steps, source.dtype(), target.dtype());
    let scratch = Scratch::new(&steps, source.len());
    let array_bytes = target.dtype().size_bytes();
    let mut mover = Mover { direction: Direction::Read, steps, packed: source.dtype(), array_bytes, scratch };
    let side = (Packed::Plain(source.address() as *mut u8), source.strides());
    // SAFETY: the nd-buffers' constructors checked that all their elements lie in their memory.
    unsafe { mover.move_box(source.shape(), side, (target.address() as *mut u8, target.strides())) }
}

/// Sets the elements of one box of an nd-buffer to `element`. With lists, the box counts positions in them.
///
/// # Safety
/// The box lies inside `target`, which is on the host. `element` has the size of its elements. Meanwhile, no other
/// thread accesses the box.
pub(crate) unsafe fn fill_box(
    target: &NdBuffer,
    lists: Option<&Lists>,
    start: &[usize],
    extent: &[usize],
    element: &[u8],
) {
    if let Some(lists) = lists {
        let line = |(dim, &extent): (usize, &usize)| {
            let listed = lists.part(dim, start[dim], extent);
            Line { extent, packed: 0, array: target.strides()[dim], listed }
        };
        let lines: Vec<Line<'_>> = extent.iter().enumerate().map(line).collect();
        let corner = corner_of(target, &lines, start);
        let (listed, even): (Vec<&Line<'_>>, Vec<&Line<'_>>) = lines.iter().partition(|line| line.listed.is_some());
        let (extent, strides): (Vec<usize>, Vec<isize>) = even.iter().map(|line| (line.extent, line.array)).unzip();
        if extent.iter().product::<usize>() >= WORTH_A_COPY {
            for_each_choice(&listed, |_, offset| {
                // SAFETY: the caller checked the box, and the lists name indices inside the array.
                unsafe { strided::fill(&extent, element, corner.wrapping_offset(offset), &strides) };
            });
        } else {
            let Some((last, outer)) = lines.split_last() else { return };
            let copy = line_copy(element.len());
            for_each_choice(&outer.iter().collect::<Vec<_>>(), |_, offset| {
                let (from, to) = (element.as_ptr().cast_mut(), corner.wrapping_offset(offset));
                // SAFETY: the caller checked the box, and the lists name indices inside the array. All packed offsets
                // are 0, so only `element` is read, which does not overlap the array.
                unsafe { copy(last, Direction::Read, element.len(), from, to) };
            });
        }
        return;
    }
    let corner = element_pointer(target, start, extent);
    // SAFETY: the caller checked the box. The constructors checked that all elements lie in their memory.
    unsafe { strided::fill(extent, element, corner, target.strides()) }
}

/// Pointer to the element at `start`; any pointer if the box is empty.
fn element_pointer(array: &NdBuffer, start: &[usize], extent: &[usize]) -> *mut u8 {
    let offset = match extent.contains(&0) {
        true => 0,
        false => start.iter().zip(array.strides()).map(|(&at, &stride)| at as isize * stride).sum(),
    };
    (array.address() as *mut u8).wrapping_offset(offset)
}

impl Mover<'_> {
    /// Moves the elements of one box between packed memory and the array, and changes them by the steps. Strides of the
    /// packed side are in bytes for plain elements, and in elements otherwise.
    ///
    /// # Safety
    /// Every element of the box lies in its memory on both sides, and the sides do not overlap.
    unsafe fn move_box(&mut self, extent: &[usize], packed: (Packed, &[isize]), array: (*mut u8, &[isize])) {
        // SAFETY: the caller's promise holds for every branch: each moves elements of this box alone.
        unsafe {
            if let (Packed::Plain(pointer), true) = (packed.0, self.steps.is_empty()) {
                let (plain, array) = ((pointer, packed.1), array);
                let (from, to) = if self.direction == Direction::Read { (plain, array) } else { (array, plain) };
                return strided::copy(extent, self.array_bytes, (from.0.cast_const(), from.1), to);
            }
            let Some(dimensions) = strided::normalize(extent, array.1, packed.1) else { return };
            let packed_unit = if let Packed::Plain(_) = packed.0 { self.packed.size_bytes() as isize } else { 1 };
            let rows_are_packed = dimensions
                .last()
                .is_none_or(|inner| inner.target == packed_unit && inner.source == self.array_bytes as isize);
            if rows_are_packed && self.goes_direct(packed.0) {
                return self.move_rows(&dimensions, packed_unit, packed.0, array.0);
            }
            let tile = tile_extents(&dimensions, self.scratch.capacity_elems);
            for_each_tile(&dimensions, &tile, |part, array_offset, packed_offset| {
                self.move_tile(part, packed.0.advanced(packed_offset), array.0.wrapping_offset(array_offset));
            });
        }
    }

    /// Moves one box between packed memory and the array, with index lists in some dimensions.
    ///
    /// # Safety
    /// The conditions of [`Mover::move_box`].
    unsafe fn move_listed(&mut self, lines: &[Line<'_>], packed: Packed, array: *mut u8) {
        let (listed, even): (Vec<&Line<'_>>, Vec<&Line<'_>>) = lines.iter().partition(|line| line.listed.is_some());
        let Some((last, outer)) = lines.split_last() else { return };
        let extent: Vec<usize> = even.iter().map(|line| line.extent).collect();
        if last.listed.is_none() && extent.iter().product::<usize>() >= WORTH_A_COPY {
            let (packed_strides, array_strides): (Vec<isize>, Vec<isize>) =
                even.iter().map(|line| (line.packed, line.array)).unzip();
            for_each_choice(&listed, |packed_offset, array_offset| {
                let array = (array.wrapping_offset(array_offset), &array_strides[..]);
                // SAFETY: the caller's promise holds for every part of the box.
                unsafe { self.move_box(&extent, (packed.advanced(packed_offset), &packed_strides), array) };
            });
            return;
        }
        let outer: Vec<&Line<'_>> = outer.iter().collect();
        for_each_choice(&outer, |packed_offset, array_offset| {
            let (packed, array) = (packed.advanced(packed_offset), array.wrapping_offset(array_offset));
            // SAFETY: the caller's promise holds for every part of the box.
            unsafe { self.move_line(last, packed, array) };
        });
    }

    /// Moves the elements along one dimension of a box between packed memory and the array.
    ///
    /// # Safety
    /// The conditions of [`Mover::move_box`].
    unsafe fn move_line(&mut self, line: &Line<'_>, packed: Packed, array: *mut u8) {
        let (direction, array_bytes, packed_bytes) = (self.direction, self.array_bytes, self.packed.size_bytes());
        if let (Packed::Plain(pointer), true) = (packed, self.steps.is_empty()) {
            // SAFETY: the caller promises the same conditions.
            return unsafe { line_copy(array_bytes)(line, direction, array_bytes, pointer, array) };
        }
        let most = self.scratch.capacity_elems;
        for from in (0..line.extent).step_by(most) {
            let count = most.min(line.extent - from);
            let places = || (from..from + count).map(|index| line.at(index)).enumerate();
            let Scratch { first, second, .. } = &mut self.scratch;
            // SAFETY: scratch holds `count` of the widest elements. The caller promises the places on both sides.
            unsafe {
                match direction {
                    Direction::Read => {
                        for (at, (offset, _)) in places() {
                            load(&[], packed.advanced(offset), packed_bytes, &mut first[at * packed_bytes..]);
                        }
                        let result = self.steps.run(first, second, count);
                        for (at, (_, offset)) in places() {
                            let element = result[at * array_bytes..].as_ptr();
                            std::ptr::copy_nonoverlapping(element, array.wrapping_offset(offset), array_bytes);
                        }
                    }
                    Direction::Write => {
                        for (at, (_, offset)) in places() {
                            let element = first[at * array_bytes..].as_mut_ptr();
                            std::ptr::copy_nonoverlapping(
                                array.wrapping_offset(offset).cast_const(),
                                element,
                                array_bytes,
                            );
                        }
                        let result = self.steps.run(first, second, count);
                        for (at, (offset, _)) in places() {
                            let element = &result[at * packed_bytes..(at + 1) * packed_bytes];
                            store(&[], packed.advanced(offset), packed_bytes, element);
                        }
                    }
                }
            }
        }
    }

    /// Moves one tile of a box between packed memory and the array, through scratch memory.
    ///
    /// # Safety
    /// The conditions of [`Mover::move_box`]; the tile fits into scratch memory.
    unsafe fn move_tile(&mut self, tile: &[Dimension], packed: Packed, array: *mut u8) {
        let extent: Vec<usize> = tile.iter().map(|one| one.extent).collect();
        let count = extent.iter().product();
        let packed_bytes = self.packed.size_bytes();
        let array_strides: Vec<isize> = tile.iter().map(|one| one.source).collect();
        let Scratch { first, second, .. } = &mut self.scratch;
        // SAFETY: scratch holds a tile of the widest elements. The caller promises the places on both sides.
        unsafe {
            match self.direction {
                Direction::Read => {
                    load(tile, packed, packed_bytes, first);
                    let result = self.steps.run(first, second, count);
                    let strides = packed_strides(&extent, self.array_bytes);
                    strided::copy(&extent, self.array_bytes, (result.as_ptr(), &strides), (array, &array_strides));
                }
                Direction::Write => {
                    let strides = packed_strides(&extent, self.array_bytes);
                    let scratch = (first.as_mut_ptr(), &strides[..]);
                    strided::copy(&extent, self.array_bytes, (array.cast_const(), &array_strides), scratch);
                    let result = self.steps.run(first, second, count);
                    store(tile, packed, packed_bytes, &result[..count * packed_bytes]);
                }
            }
        }
    }

    /// Whether rows that are packed in source and target need no scratch memory: every step can be done in place, in
    /// the target. When writing with steps, the packed side must also be plain.
    fn goes_direct(&self, packed: Packed) -> bool {
        match self.direction {
            Direction::Read => self.steps.are_in_place(),
            Direction::Write => {
                self.steps.is_empty() || (self.steps.are_in_place() && matches!(packed, Packed::Plain(_)))
            }
        }
    }

    /// Moves rows that are packed in source and target, in pieces that fit the cache.
    ///
    /// # Safety
    /// The conditions of [`Mover::move_box`].
    unsafe fn move_rows(&self, dimensions: &[Dimension], packed_unit: isize, packed: Packed, array: *mut u8) {
        let (count, outer) = match dimensions.split_last() {
            Some((inner, outer)) => (inner.extent, outer),
            None => (1, dimensions),
        };
        let size_bytes = self.array_bytes;
        let most = (TILE_BYTES / size_bytes).max(1);
        for_each_row(outer, |array_offset, packed_offset| {
            for at in (0..count).step_by(most) {
                let extent = most.min(count - at);
                let row = [Dimension { extent, source: size_bytes as isize, target: packed_unit }];
                let packed = packed.advanced(packed_offset + at as isize * packed_unit);
                let array = array.wrapping_offset(array_offset).wrapping_add(at * size_bytes);
                // SAFETY: these packed elements lie there on both sides, and no other thread accesses them.
                unsafe {
                    match (self.direction, packed) {
                        (Direction::Read, _) => {
                            let bytes = std::slice::from_raw_parts_mut(array, extent * size_bytes);
                            load(&row, packed, size_bytes, bytes);
                            self.steps.run(bytes, &mut [], extent);
                        }
                        (Direction::Write, Packed::Plain(pointer)) => {
                            std::ptr::copy_nonoverlapping(array.cast_const(), pointer, extent * size_bytes);
                            let bytes = std::slice::from_raw_parts_mut(pointer, extent * size_bytes);
                            self.steps.run(bytes, &mut [], extent);
                        }
                        (Direction::Write, _) => {
                            let bytes = std::slice::from_raw_parts(array.cast_const(), extent * size_bytes);
                            store(&row, packed, size_bytes, bytes);
                        }
                    }
                }
            }
        });
    }
}

impl Packed {
    /// Returns the packed elements that begin at the distance `by` behind the first of these. `by` counts bytes for
    /// plain packings, and elements otherwise.
    fn advanced(self, by: isize) -> Packed {
        match self {
            Packed::Plain(pointer) => Packed::Plain(pointer.wrapping_offset(by)),
            Packed::Shuffled { chunk, chunk_bytes, unit_bytes, first } => {
                Packed::Shuffled { chunk, chunk_bytes, unit_bytes, first: first.wrapping_add_signed(by) }
            }
            Packed::Bits { chunk, first } => Packed::Bits { chunk, first: first.wrapping_add_signed(by) },
        }
    }
}

/// Loads a tile of packed elements into scratch memory, in the order of the tile's dimensions.
///
/// # Safety
/// The tile's elements lie in their memory and fit `scratch`.
unsafe fn load(tile: &[Dimension], packed: Packed, element_bytes: usize, scratch: &mut [u8]) {
    let mut at = 0;
    match packed {
        Packed::Plain(pointer) => {
            let (extent, strides) = split_target(tile);
            let order = packed_strides(&extent, element_bytes);
            // SAFETY: the caller promises the same conditions.
            unsafe {
                strided::copy(&extent, element_bytes, (pointer.cast_const(), &strides), (scratch.as_mut_ptr(), &order));
            }
        }
        Packed::Shuffled { chunk, chunk_bytes, unit_bytes, first } => {
            // SAFETY: a chunk of this size begins there, and no thread writes it while it is read.
            let chunk = unsafe { std::slice::from_raw_parts(chunk.cast_const(), chunk_bytes) };
            for_each_run(tile, first, |index, count| {
                let size_bytes = count * element_bytes;
                let part = &mut scratch[at..at + size_bytes];
                shuffle::unshuffle_part(chunk, index * element_bytes, unit_bytes, part);
                at += size_bytes;
            });
        }
        Packed::Bits { chunk, first } => for_each_run(tile, first, |index, count| {
            for (bit, value) in scratch[at..at + count].iter_mut().enumerate() {
                let bit = index + bit;
                // SAFETY: the caller says that this bit is in the chunk.
                *value = unsafe { *chunk.wrapping_add(bit / 8) } >> (7 - bit % 8) & 1;
            }
            at += count;
        }),
    }
}

/// Stores a tile from scratch memory as packed elements; the inverse of [`load`].
///
/// # Safety
/// The conditions of [`load`], for writing.
unsafe fn store(tile: &[Dimension], packed: Packed, element_bytes: usize, scratch: &[u8]) {
    let mut at = 0;
    match packed {
        Packed::Plain(pointer) => {
            let (extent, strides) = split_target(tile);
            let order = packed_strides(&extent, element_bytes);
            // SAFETY: the caller promises the same conditions.
            unsafe { strided::copy(&extent, element_bytes, (scratch.as_ptr(), &order), (pointer, &strides)) }
        }
        Packed::Shuffled { chunk, chunk_bytes, unit_bytes, first } => for_each_run(tile, first, |index, count| {
            let size_bytes = count * element_bytes;
            let part = &scratch[at..at + size_bytes];
            // SAFETY: a chunk of this size begins there, and these elements lie in it.
            unsafe { shuffle::shuffle_part_into(part, index * element_bytes, unit_bytes, chunk, chunk_bytes) };
            at += size_bytes;
        }),
        Packed::Bits { chunk, first } => for_each_run(tile, first, |index, count| {
            for (bit, &value) in scratch[at..at + count].iter().enumerate() {
                let (byte, shift) = ((index + bit) / 8, 7 - (index + bit) % 8);
                // SAFETY: the caller says that this bit is in the chunk.
                unsafe {
                    let byte = chunk.wrapping_add(byte);
                    *byte = *byte & !(1 << shift) | u8::from(value != 0) << shift;
                }
            }
            at += count;
        }),
    }
}

fn split_target(tile: &[Dimension]) -> (Vec<usize>, Vec<isize>) {
    tile.iter().map(|one| (one.extent, one.target)).unzip()
}

/// The byte strides of elements that are packed in C order.
fn packed_strides(extent: &[usize], element_bytes: usize) -> Vec<isize> {
    let mut stride = element_bytes as isize;
    let mut strides = vec![0; extent.len()];
    for (own, &extent) in strides.iter_mut().zip(extent).rev() {
        *own = stride;
        stride *= extent as isize;
    }
    strides
}

/// Returns the extents of the tiles into which a box is cut, each with at most `capacity` elements. Tiles are long
/// along the innermost dimensions of the packed side (the last one) and of the array.
fn tile_extents(dimensions: &[Dimension], capacity: usize) -> Vec<usize> {
    const SHORTEST_RUN: usize = 64;
    let mut tile = vec![1; dimensions.len()];
    let Some(last) = dimensions.len().checked_sub(1) else { return tile };
    let mut room = capacity;
    let mut grow = |axis: usize, most: usize| {
        let wanted = (tile[axis] * room).min(most).min(dimensions[axis].extent).max(tile[axis]);
        room = room * tile[axis] / wanted;
        tile[axis] = wanted;
    };
    let array_inner = (0..=last).min_by_key(|&axis| dimensions[axis].source.unsigned_abs()).unwrap_or(last);
    if array_inner != last {
        grow(last, SHORTEST_RUN);
        grow(array_inner, usize::MAX);
    }
    for axis in (0..=last).rev() {
        grow(axis, usize::MAX);
    }
    tile
}

/// Calls `action` for every tile, with its offset in the array and its offset in packed memory. The first counts bytes,
/// the second has the unit of `Dimension::target`.
fn for_each_tile(dimensions: &[Dimension], tile: &[usize], mut action: impl FnMut(&[Dimension], isize, isize)) {
    let mut position = vec![0; dimensions.len()];
    let mut part = dimensions.to_vec();
    loop {
        let (mut array_offset, mut packed_offset) = (0, 0);
        for (axis, one) in dimensions.iter().enumerate() {
            part[axis].extent = tile[axis].min(one.extent - position[axis]);
            array_offset += position[axis] as isize * one.source;
            packed_offset += position[axis] as isize * one.target;
        }
        action(&part, array_offset, packed_offset);
        let mut axis = dimensions.len();
        loop {
            let Some(next) = axis.checked_sub(1) else { return };
            axis = next;
            position[axis] += tile[axis];
            if position[axis] < dimensions[axis].extent {
                break;
            }
            position[axis] = 0;
        }
    }
}

/// Calls `action` for every position of the `outer` dimensions, with its offset in the array and its offset in packed
/// memory. The first counts bytes, the second has the unit of `Dimension::target`.
fn for_each_row(outer: &[Dimension], mut action: impl FnMut(isize, isize)) {
    let ones = vec![1; outer.len()];
    for_each_tile(outer, &ones, |_, array_offset, packed_offset| action(array_offset, packed_offset));
}

/// Calls `action` for every run of elements that are neighbours in packed memory, with its first index and its length.
fn for_each_run(tile: &[Dimension], first: usize, mut action: impl FnMut(usize, usize)) {
    match tile.split_last() {
        Some((inner, outer)) if inner.target == 1 => {
            for_each_row(outer, |_, offset| action(first.wrapping_add_signed(offset), inner.extent));
        }
        _ => for_each_row(tile, |_, offset| action(first.wrapping_add_signed(offset), 1)),
    }
}
