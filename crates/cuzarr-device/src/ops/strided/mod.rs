//! Copies elements between strided layouts in host memory.
//!
//! A copy is first brought to a normal form: dimensions are ordered by the target's strides, and neighbours that
//! continue each other are merged. An innermost run that is packed on both sides is taken as one wide element. Then one
//! of these inner loops is used, each compiled for every element width: a flat copy; a strided run; a blocked
//! transposition, if source and target have different innermost dimensions; or runs along the longest dimension, if
//! those two are short.

use std::mem::MaybeUninit;

use crate::ops::lanes::{Vector, transpose_square};

/// One dimension of a copy: its extent, and its byte strides in the source and in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dimension {
    pub extent: usize,
    pub source: isize,
    pub target: isize,
}

/// Simplifies a copy's dimensions: drops those of extent 1, orders the others by the target's strides (outermost
/// first), and merges those that continue each other. `None` if there are no elements.
pub(crate) fn normalize(shape: &[usize], source: &[isize], target: &[isize]) -> Option<Vec<Dimension>> {
    if shape.contains(&0) {
        return None;
    }
    let dimension = |axis: usize| Dimension { extent: shape[axis], source: source[axis], target: target[axis] };
    let mut all: Vec<Dimension> = (0..shape.len()).map(dimension).filter(|one| one.extent > 1).collect();
    all.sort_by_key(|one| std::cmp::Reverse((one.target.unsigned_abs(), one.source.unsigned_abs())));
    merge(&mut all);
    Some(all)
}

fn merge(all: &mut Vec<Dimension>) {
    all.dedup_by(|inner, outer| {
        let extent = inner.extent as isize;
        let continues = inner.source.checked_mul(extent) == Some(outer.source)
            && inner.target.checked_mul(extent) == Some(outer.target);
        if continues {
            *outer = Dimension { extent: outer.extent * inner.extent, ..*inner };
        }
        continues
    });
}

/// Copies an array of elements of `element_bytes` bytes between two strided memories.
///
/// # Safety
/// Every element that `shape` and the strides reach from the two pointers lies in memory that may be read (written).
/// The two memories do not overlap.
pub(crate) unsafe fn copy(
    shape: &[usize],
    element_bytes: usize,
    source: (*const u8, &[isize]),
    target: (*mut u8, &[isize]),
) {
    let Some(mut dimensions) = normalize(shape, source.1, target.1) else { return };
    let mut width = element_bytes;
    if let Some(&inner) = dimensions.last()
        && inner.source == width as isize
        && inner.target == width as isize
    {
        width *= inner.extent;
        dimensions.pop();
    }
    // SAFETY: normalising changes neither which elements are reached nor where they are.
    unsafe { copy_normal(&dimensions, width, source.0, target.0) }
}

/// Copies elements of `width` bytes along dimensions that `normalize` has ordered and merged.
///
/// # Safety
/// The conditions of [`copy`].
unsafe fn copy_normal(dimensions: &[Dimension], width: usize, source: *const u8, target: *mut u8) {
    let Some((&inner, outer)) = dimensions.split_last() else {
        // SAFETY: one element on each side, not overlapping.
        return unsafe { std::ptr::copy_nonoverlapping(source, target, width) };
    };
    // The dimension with the smallest stride in the source, if it is not the innermost one of the target.
    let across = (0..outer.len()).min_by_key(|&axis| outer[axis].source.unsigned_abs());
    if let Some(across) = across.filter(|&axis| outer[axis].source.unsigned_abs() < inner.source.unsigned_abs())
        && matches!(width, 1 | 2 | 3 | 4 | 6 | 8 | 12 | 16)
        && inner.target == width as isize
        && outer[across].source == width as isize
    {
        let mut rest = outer.to_vec();
        let plane = Plane { along_source: rest.remove(across), along_target: inner };
        if let Some(long) = longest_beside(&rest, plane) {
            let long = if long < rest.len() { rest.remove(long) } else { plane.sides().1 };
            let sides = [plane.along_source, plane.along_target];
            let short: Vec<Dimension> = sides.into_iter().filter(|one| *one != long).collect();
            // SAFETY: as for the whole, whose dimensions these are in another order.
            for_each(&rest, source, target, |source, target| unsafe {
                copy_along(long, &short, width, source, target);
            });
            return;
        }
        // SAFETY: as for the whole; a plane is a part of it.
        for_each(&rest, source, target, |source, target| unsafe { transpose_plane(plane, width, source, target) });
        return;
    }
    // SAFETY: as for the whole; a row is a part of it.
    for_each(outer, source, target, |source, target| unsafe { copy_row(inner, width, source, target) });
}

/// A plane with a side of fewer elements than this is too narrow to be transposed in blocks.
const SHORT: usize = 32;
/// Stride in bytes above which almost every element of a run lies in another page.
const NEAR_BYTES: usize = 512;

/// Two dimensions of a copy along which elements are transposed, because one is packed in the source and one in the
/// target. The source is packed along one of them, the target along the other.
#[derive(Clone, Copy)]
struct Plane {
    along_source: Dimension,
    along_target: Dimension,
}

impl Plane {
    /// The two dimensions of the plane: first the shorter, then the longer one.
    fn sides(self) -> (Dimension, Dimension) {
        let (one, other) = (self.along_source, self.along_target);
        if one.extent < other.extent { (one, other) } else { (other, one) }
    }
}

/// Returns the dimension to copy along if a plane is too narrow. That is an index in `rest`, or `rest.len()` for the
/// plane's own longer side. `None` if the plane should be cut into blocks.
fn longest_beside(rest: &[Dimension], plane: Plane) -> Option<usize> {
    let (short, long) = plane.sides();
    if short.extent >= SHORT {
        return None;
    }
    let is_near = |one: &Dimension| one.source.unsigned_abs().max(one.target.unsigned_abs()) <= NEAR_BYTES;
    if long.extent >= SHORT {
        return is_near(&long).then_some(rest.len());
    }
    let near = (0..rest.len()).filter(|&axis| is_near(&rest[axis]) && rest[axis].extent >= SHORT);
    near.max_by_key(|&axis| rest[axis].extent)
}

/// Copies a run of elements along the dimension `long`, for every position of the dimensions `short`. A run is short
/// enough for the L1 cache.
///
/// # Safety
/// The conditions of [`copy`].
unsafe fn copy_along(long: Dimension, short: &[Dimension], width: usize, source: *const u8, target: *mut u8) {
    const RUN_BYTES: usize = 8 << 10;
    let reach = long.source.unsigned_abs().max(long.target.unsigned_abs()).max(width);
    let most = (RUN_BYTES / reach).max(SHORT);
    for first in (0..long.extent).step_by(most) {
        let run = Dimension { extent: most.min(long.extent - first), ..long };
        let from = source.wrapping_offset(first as isize * long.source);
        let to = target.wrapping_offset(first as isize * long.target);
        // SAFETY: a run is a part of the whole, for which the caller promises.
        for_each(short, from, to, |source, target| unsafe { copy_row(run, width, source, target) });
    }
}

/// Calls `row` with the source and target pointers of every position of the outer dimensions.
pub(crate) fn for_each(
    outer: &[Dimension],
    source: *const u8,
    target: *mut u8,
    mut row: impl FnMut(*const u8, *mut u8),
) {
    all_rows(outer, source, target, |source, target| {
        row(source, target);
        true
    });
}

/// Calls `row` like [`for_each`], until a call returns `false`. Returns whether all calls returned `true`.
pub(crate) fn all_rows(
    outer: &[Dimension],
    source: *const u8,
    target: *mut u8,
    mut row: impl FnMut(*const u8, *mut u8) -> bool,
) -> bool {
    let mut position = vec![0_usize; outer.len()];
    let (mut source, mut target) = (source, target);
    loop {
        if !row(source, target) {
            return false;
        }
        let mut axis = outer.len();
        loop {
            let Some(next) = axis.checked_sub(1) else { return true };
            axis = next;
            let dimension = outer[axis];
            position[axis] += 1;
            if position[axis] < dimension.extent {
                source = source.wrapping_offset(dimension.source);
                target = target.wrapping_offset(dimension.target);
                break;
            }
            position[axis] = 0;
            let back = -(dimension.extent as isize - 1);
            source = source.wrapping_offset(dimension.source.wrapping_mul(back));
            target = target.wrapping_offset(dimension.target.wrapping_mul(back));
        }
    }
}

/// Copies a row of elements, `width` bytes each, from `source` to `target`.
///
/// # Safety
/// The conditions of [`copy`].
unsafe fn copy_row(row: Dimension, width: usize, source: *const u8, target: *mut u8) {
    // SAFETY: the caller promises the same conditions.
    unsafe {
        match width {
            0 => (),
            1 => copy_row_of::<[u8; 1]>(row, source, target),
            2 => copy_row_of::<[u8; 2]>(row, source, target),
            3 => copy_row_of::<[u8; 3]>(row, source, target),
            4 => copy_row_of::<[u8; 4]>(row, source, target),
            6 => copy_row_of::<[u8; 6]>(row, source, target),
            8 => copy_row_of::<[u8; 8]>(row, source, target),
            12 => copy_row_of::<[u8; 12]>(row, source, target),
            16 => copy_row_of::<[u8; 16]>(row, source, target),
            _ => {
                for index in 0..row.extent as isize {
                    let from = source.wrapping_offset(index * row.source);
                    std::ptr::copy_nonoverlapping(from, target.wrapping_offset(index * row.target), width);
                }
            }
        }
    }
}

/// Copies a row of elements, each as one value of type `T`.
///
/// # Safety
/// The conditions of [`copy`], with elements of `T`'s size.
unsafe fn copy_row_of<T: Copy>(row: Dimension, source: *const u8, target: *mut u8) {
    let width = size_of::<T>() as isize;
    // The loop is repeated in each branch, so that the compiler knows which side is packed.
    // SAFETY: the elements may be accessed; `T` has alignment 1.
    unsafe {
        if row.target == width {
            let target = target.cast::<T>();
            for index in 0..row.extent as isize {
                *target.offset(index) = *source.offset(index * row.source).cast::<T>();
            }
        } else if row.source == width {
            let source = source.cast::<T>();
            for index in 0..row.extent as isize {
                *target.offset(index * row.target).cast::<T>() = *source.offset(index);
            }
        } else {
            for index in 0..row.extent as isize {
                *target.offset(index * row.target).cast::<T>() = *source.offset(index * row.source).cast::<T>();
            }
        }
    }
}

/// Transposes a plane of elements of `width` bytes.
///
/// # Safety
/// The conditions of [`copy`].
unsafe fn transpose_plane(plane: Plane, width: usize, source: *const u8, target: *mut u8) {
    // SAFETY: the caller promises the same conditions.
    unsafe {
        match width {
            1 => transpose_plane_of::<1, 16, 64>(plane, source, target),
            2 => transpose_plane_of::<2, 8, 64>(plane, source, target),
            3 => transpose_plane_of::<3, 0, 64>(plane, source, target),
            4 => transpose_plane_of::<4, 4, 64>(plane, source, target),
            6 => transpose_plane_of::<6, 0, 32>(plane, source, target),
            8 => transpose_plane_of::<8, 2, 32>(plane, source, target),
            12 => transpose_plane_of::<12, 0, 32>(plane, source, target),
            _ => transpose_plane_of::<16, 1, 32>(plane, source, target),
        }
    }
}

/// Size in bytes of the largest block of elements that is transposed at once. It stays in an L1 cache of 32 KiB.
const BLOCK_BYTES: usize = 16 << 10;

#[repr(align(64))]
struct StridedBlock {
    _bytes: [u8; BLOCK_BYTES],
}

/// Transposes a plane of elements in square blocks, through a local buffer. The rows of a block are several cache lines
/// long on both sides. Each row lies in its own page if strides are large powers of two, and each visit to a page costs
/// a walk through the page table. Every line is touched once, in one burst, so strides that map many lines to one cache
/// set do no harm.
///
/// `SIDE` is the block's side in elements. `SMALL` elements are 16 bytes; 0 if no power of two of them makes 16 bytes.
///
/// # Safety
/// The conditions of [`copy`], with elements of `WIDTH` bytes.
unsafe fn transpose_plane_of<const WIDTH: usize, const SMALL: usize, const SIDE: usize>(
    plane: Plane,
    source: *const u8,
    target: *mut u8,
) {
    const { assert!(SIDE * SIDE * WIDTH <= BLOCK_BYTES) };
    const { assert!(SMALL == 0 || (SMALL * WIDTH == 16 && SIDE.is_multiple_of(SMALL))) };
    let Plane { along_source, along_target } = plane;
    let (rows, columns) = (along_target.extent, along_source.extent);
    // A source row (at a fixed position along the target's packed dimension) has packed `columns`.
    let from = |row: usize, column: usize| {
        source.wrapping_offset(row as isize * along_target.source).wrapping_add(column * WIDTH)
    };
    let to = |column: usize, row: usize| {
        target.wrapping_offset(column as isize * along_source.target).wrapping_add(row * WIDTH)
    };
    let mut blocks = [const { MaybeUninit::<StridedBlock>::uninit() }; 2];
    let [block, staged] = blocks.each_mut().map(|block| block.as_mut_ptr().cast::<u8>());
    let line = |along: usize, down: usize| block.wrapping_add((along * SIDE + down) * WIDTH);
    // The block's source rows after they were copied here, each line read once.
    let from_staged = |down: usize, along: usize| staged.wrapping_add((down * SIDE + along) * WIDTH).cast_const();
    for row in (0..rows).step_by(SIDE) {
        for column in (0..columns).step_by(SIDE) {
            let (high, wide) = (SIDE.min(rows - row), SIDE.min(columns - column));
            let whole = |side: usize| side.checked_rem(SMALL).map_or(0, |rest| side - rest);
            let (squares_high, squares_wide) = (whole(high), whole(wide));
            // SAFETY: rows and columns below their extents are inside, and the block holds `SIDE` of either; vectors have
            // alignment 1.
            unsafe {
                for down in 0..high {
                    let (line, staged) = (from(row + down, column), from_staged(down, 0).cast_mut());
                    match wide == SIDE {
                        // The compiler knows this size at compile time.
                        true => std::ptr::copy_nonoverlapping(line, staged, SIDE * WIDTH),
                        false => std::ptr::copy_nonoverlapping(line, staged, wide * WIDTH),
                    }
                }
                for down in (0..squares_high).step_by(SMALL.max(1)) {
                    for along in (0..squares_wide).step_by(SMALL.max(1)) {
                        let rows = std::array::from_fn(|inside| *from_staged(down + inside, along).cast::<Vector>());
                        for (inside, vector) in transpose_square::<WIDTH, SMALL>(rows).into_iter().enumerate() {
                            *line(along + inside, down).cast::<Vector>() = vector;
                        }
                    }
                }
                let one = |down: usize, along: usize| {
                    *line(along, down).cast::<[u8; WIDTH]>() = *from_staged(down, along).cast::<[u8; WIDTH]>();
                };
                for down in 0..high {
                    let rest = if down < squares_high { squares_wide } else { 0 };
                    (rest..wide).for_each(|along| one(down, along));
                }
                for along in 0..wide {
                    match high == SIDE {
                        // The compiler knows this size at compile time.
                        true => std::ptr::copy_nonoverlapping(line(along, 0), to(column + along, row), SIDE * WIDTH),
                        false => std::ptr::copy_nonoverlapping(line(along, 0), to(column + along, row), high * WIDTH),
                    }
                }
            }
        }
    }
}

/// Sets all elements of a strided array at `target` to `element`.
///
/// # Safety
/// The conditions of [`copy`] for the target.
pub(crate) unsafe fn fill(shape: &[usize], element: &[u8], target: *mut u8, strides: &[isize]) {
    let Some(mut dimensions) = normalize(shape, strides, strides) else { return };
    let width = element.len();
    let inner = match dimensions.last() {
        Some(&inner) if inner.target == width as isize => {
            dimensions.pop();
            inner.extent
        }
        _ => 1,
    };
    for_each(&dimensions, target, target, |_, row| {
        // SAFETY: `inner` packed elements begin here.
        unsafe { fill_row(element, row, inner) }
    });
}

/// Sets `count` packed elements at `target` to `element`.
///
/// # Safety
/// `count` packed elements at `target` may be written.
unsafe fn fill_row(element: &[u8], target: *mut u8, count: usize) {
    /// Sets `count` packed elements to `element`, each as one value of type `T`.
    ///
    /// # Safety
    /// The conditions of the outer function, with elements of `T`'s size.
    unsafe fn fill_row_of<T: Copy>(element: &[u8], target: *mut u8, count: usize) {
        // SAFETY: `element` has `T`'s size, and `T` alignment 1.
        unsafe {
            let value = *element.as_ptr().cast::<T>();
            std::slice::from_raw_parts_mut(target.cast::<std::mem::MaybeUninit<T>>(), count)
                .fill(std::mem::MaybeUninit::new(value));
        }
    }
    let width = element.len();
    // SAFETY: the caller promises the same conditions.
    unsafe {
        match width {
            0 => (),
            _ if element.iter().all(|&byte| byte == element[0]) => target.write_bytes(element[0], count * width),
            2 => fill_row_of::<[u8; 2]>(element, target, count),
            4 => fill_row_of::<[u8; 4]>(element, target, count),
            8 => fill_row_of::<[u8; 8]>(element, target, count),
            16 => fill_row_of::<[u8; 16]>(element, target, count),
            _ => {
                for index in 0..count {
                    std::ptr::copy_nonoverlapping(element.as_ptr(), target.add(index * width), width);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_dimensions_merge_into_one() {
        let merged = normalize(&[4, 1, 3, 2], &[24, 7, 8, 4], &[24, 9, 8, 4]).unwrap();
        assert_eq!(merged, [Dimension { extent: 24, source: 4, target: 4 }]);
        assert_eq!(normalize(&[4, 0], &[1, 1], &[1, 1]), None);
        assert!(normalize(&[1, 1], &[5, 6], &[7, 8]).unwrap().is_empty());
    }

    #[test]
    fn planes_of_any_size_are_transposed() {
        for width in [1_usize, 2, 4, 8, 16] {
            for (rows, columns) in [(1, 1), (3, 200), (64, 64), (65, 127), (130, 31), (16, 16), (200, 150)] {
                let source: Vec<u8> = (0..rows * columns * width).map(|at| (at * 7 + at / 251) as u8).collect();
                let mut target = vec![0xEE; source.len()];
                let (row, column) = ((columns * width) as isize, (rows * width) as isize);
                let unit = width as isize;
                // SAFETY: both hold every element that the strides reach.
                unsafe {
                    copy(
                        &[rows, columns],
                        width,
                        (source.as_ptr(), &[row, unit]),
                        (target.as_mut_ptr(), &[unit, column]),
                    )
                };
                for (at, element) in source.chunks_exact(width).enumerate() {
                    let place = (at % columns * rows + at / columns) * width;
                    assert_eq!(&target[place..place + width], element, "{width}: {rows} x {columns}: {at}");
                }
            }
        }
    }

    /// Every order of `0..count`.
    fn orders(count: usize) -> Vec<Vec<usize>> {
        let Some(last) = count.checked_sub(1) else { return vec![Vec::new()] };
        let insert = |order: &Vec<usize>, at| [&order[..at], &[last], &order[at..]].concat();
        orders(last).iter().flat_map(|order| (0..count).map(move |at| insert(order, at))).collect()
    }

    /// Strides of packed elements whose dimensions lie in `order`, outermost first.
    fn strides_in(order: &[usize], shape: &[usize], width: usize) -> Vec<isize> {
        let (mut strides, mut stride) = (vec![0; shape.len()], width as isize);
        for &axis in order.iter().rev() {
            strides[axis] = stride;
            stride *= shape[axis] as isize;
        }
        strides
    }

    #[test]
    fn elements_of_every_width_go_from_every_order_to_every_other() {
        for width in (1..=17).chain([24]) {
            for shape in [&[35, 3][..], &[70, 5, 3], &[4, 33, 40], &[37, 4, 4, 2]] {
                let count = shape.iter().product::<usize>();
                let source: Vec<u8> = (0..count * width).map(|at| (at * 7 + at / 251) as u8).collect();
                let packed = strides_in(&(0..shape.len()).collect::<Vec<_>>(), shape, width);
                for order in orders(shape.len()) {
                    let strides = strides_in(&order, shape, width);
                    let mut target = vec![0xEE; source.len()];
                    // The first dimension backwards on one side.
                    let back = (shape[0] - 1) as isize * packed[0];
                    let backwards = [&[-packed[0]], &packed[1..]].concat();
                    // SAFETY: both hold every element that the strides reach.
                    unsafe {
                        let first = source.as_ptr().offset(back);
                        copy(shape, width, (first, &backwards), (target.as_mut_ptr(), &strides));
                    }
                    for (at, element) in source.chunks_exact(width).enumerate() {
                        let (mut rest, mut place) = (at, 0);
                        for axis in (0..shape.len()).rev() {
                            let index = rest % shape[axis];
                            let index = if axis == 0 { shape[0] - 1 - index } else { index };
                            place += index * strides[axis] as usize;
                            rest /= shape[axis];
                        }
                        assert_eq!(&target[place..place + width], element, "{width}: {shape:?} {order:?}: {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_targets_innermost_dimension_comes_last() {
        let order = normalize(&[3, 5], &[20, 4], &[4, 12]).unwrap();
        assert_eq!(
            order,
            [Dimension { extent: 5, source: 4, target: 12 }, Dimension { extent: 3, source: 20, target: 4 }]
        );
    }
}
