//! From boxes of elements to the tables that kernels walk through (`kernels/include/cuzarr/regions.cuh`).
//!
//! Lowering, in order: dimensions of extent 1 go; elements are cut into accesses that the memory is aligned for, or joined
//! into wider ones along runs that are packed on both sides; dimensions are ordered by the target's strides and merged where
//! they continue each other; what is left above eight dimensions, or above 2³¹ elements, becomes several regions. It touches
//! no device, so it is tested without one.

use crate::error::{Error, ErrorKind, Result};

/// Dimensions that a kernel takes.
pub(crate) const MAX_NDIM: usize = 8;
/// Elements that one thread moves in one tile.
pub(crate) const UNROLL: u32 = 4;
/// Most regions that dimensions above [`MAX_NDIM`] may turn one transfer into.
const MAX_REGIONS: usize = 1 << 22;
/// A square is worth its two barriers from this many elements a side.
const MIN_SQUARE: usize = 4;

/// One box, offsets in bytes from the two base addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) src_offset: i64,
    pub(crate) dst_offset: i64,
    /// Where the packed chunk begins, and its size, for packings that are not strided.
    pub(crate) chunk_offset: i64,
    pub(crate) chunk_bytes: u64,
    pub(crate) extents: Vec<usize>,
}

/// Boxes that share strides.
#[derive(Clone, Debug)]
pub(crate) struct Boxes {
    /// Bytes of what one access moves.
    pub(crate) access_bytes: usize,
    pub(crate) src_strides: Vec<i64>,
    pub(crate) dst_strides: Vec<i64>,
    pub(crate) items: Vec<Item>,
}

/// One box as kernels see it. `Region` in regions.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Region {
    first_tile: u64,
    src_offset: i64,
    dst_offset: i64,
    chunk_offset: i64,
    chunk_bytes: u64,
    elems: u32,
    rows: u32,
    columns: u32,
    reserved: u32,
    extents: [u32; MAX_NDIM],
    magics: [u32; MAX_NDIM],
    shifts: [u32; MAX_NDIM],
}

/// What the regions of one launch share. `Walk` in regions.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Walk {
    pub(crate) tiles: u64,
    region_count: u32,
    ndim: u32,
    src_strides: [i64; MAX_NDIM],
    dst_strides: [i64; MAX_NDIM],
}

/// A launch, but for its pointers.
#[derive(Debug)]
pub(crate) struct Lowered {
    pub(crate) regions: Vec<Region>,
    pub(crate) walk: Walk,
    pub(crate) access_bytes: usize,
    pub(crate) transposed: bool,
}

impl Boxes {
    /// Drops empty boxes, and dimensions that have extent 1 in all of them.
    pub(crate) fn simplify(&mut self) {
        self.items.retain(|item| !item.extents.contains(&0));
        let used: Vec<bool> =
            (0..self.src_strides.len()).map(|axis| self.items.iter().any(|item| item.extents[axis] > 1)).collect();
        if used.iter().all(|&used| used) {
            return;
        }
        keep(&mut self.src_strides, &used);
        keep(&mut self.dst_strides, &used);
        self.items.iter_mut().for_each(|item| keep(&mut item.extents, &used));
    }

    /// Cuts elements of `element_bytes` into accesses of the widest power of two, up to `limit_bytes`, that divides them and
    /// all addresses, given the alignment of the two base addresses.
    pub(crate) fn cut(&mut self, element_bytes: usize, bases: (usize, usize), limit_bytes: usize) {
        let access = self.alignment(element_bytes, bases).min(limit_bytes);
        self.access_bytes = access;
        if access < element_bytes {
            self.src_strides.push(access as i64);
            self.dst_strides.push(access as i64);
            self.items.iter_mut().for_each(|item| item.extents.push(element_bytes / access));
        }
    }

    /// The largest power of two up to 16 that divides `size_bytes` and every address.
    pub(crate) fn alignment(&self, size_bytes: usize, bases: (usize, usize)) -> usize {
        let mut bits = 16 | size_bytes as u64 | bases.0 as u64 | bases.1 as u64;
        for stride in self.src_strides.iter().chain(&self.dst_strides) {
            bits |= *stride as u64;
        }
        for item in &self.items {
            bits |= item.src_offset as u64 | item.dst_offset as u64;
        }
        1 << bits.trailing_zeros()
    }

    /// The largest power of two up to 16 that divides every address of the source.
    pub(crate) fn src_alignment(&self, base: usize) -> usize {
        side_alignment(base, &self.src_strides, self.items.iter().map(|item| item.src_offset))
    }

    /// The largest power of two up to 16 that divides every address of the target.
    pub(crate) fn dst_alignment(&self, base: usize) -> usize {
        side_alignment(base, &self.dst_strides, self.items.iter().map(|item| item.dst_offset))
    }

    /// Does something with source and target exchanged.
    pub(crate) fn swap_sides(&mut self, change: impl FnOnce(&mut Boxes)) {
        self.exchange();
        change(self);
        self.exchange();
    }

    fn exchange(&mut self) {
        std::mem::swap(&mut self.src_strides, &mut self.dst_strides);
        self.items.iter_mut().for_each(|item| std::mem::swap(&mut item.src_offset, &mut item.dst_offset));
    }

    /// Orders dimensions by the target's strides, outermost first, and merges neighbours that continue each other.
    pub(crate) fn order_and_merge(&mut self) {
        let mut axes: Vec<usize> = (0..self.src_strides.len()).collect();
        axes.sort_by_key(|&axis| {
            std::cmp::Reverse((self.dst_strides[axis].unsigned_abs(), self.src_strides[axis].unsigned_abs()))
        });
        self.permute(&axes);
        let mut axis = self.src_strides.len();
        while axis > 1 {
            axis -= 1;
            let Some(inner) = self.common_extent(axis) else { continue };
            let continues = |strides: &[i64]| strides[axis].checked_mul(inner as i64) == Some(strides[axis - 1]);
            if continues(&self.src_strides) && continues(&self.dst_strides) {
                self.src_strides.remove(axis - 1);
                self.dst_strides.remove(axis - 1);
                for item in &mut self.items {
                    item.extents[axis] *= item.extents[axis - 1];
                    item.extents.remove(axis - 1);
                }
            }
        }
    }

    /// Parts the boxes that can be moved 16 bytes at a time from the others, so that one odd edge does not narrow them all.
    pub(crate) fn split_by_alignment(mut self, bases: (usize, usize)) -> Vec<Boxes> {
        let Some(inner) = self.src_strides.len().checked_sub(1) else { return vec![self] };
        let access = self.access_bytes;
        let wide = |item: &Item| {
            let bits = item.src_offset as u64 | item.dst_offset as u64 | bases.0 as u64 | bases.1 as u64;
            (bits | (item.extents[inner] * access) as u64).trailing_zeros() >= 4
        };
        let (aligned, others): (Vec<Item>, Vec<Item>) = std::mem::take(&mut self.items).into_iter().partition(wide);
        let groups = [aligned, others].into_iter().filter(|items| !items.is_empty());
        groups.map(|items| Boxes { items, ..self.clone() }).collect()
    }

    /// Parts the boxes whose innermost runs are taken `count` elements at a time from the others: packed on both sides, in
    /// elements of so many bytes (in the unit of the strides), of a multiple of `count`, and at offsets and strides that are
    /// multiples of `multiples`, all of them powers of two. Boxes of the first part count in groups from then on.
    pub(crate) fn split_groups(
        mut self,
        count: usize,
        (src_bytes, dst_bytes): (usize, usize),
        multiples: (usize, usize),
        fits: impl Fn(&Item) -> bool,
    ) -> (Boxes, Boxes) {
        let items = std::mem::take(&mut self.items);
        let mut groups = self.clone();
        let inner = match self.src_strides.len().checked_sub(1) {
            Some(inner)
                if (self.src_strides[inner], self.dst_strides[inner]) == (src_bytes as i64, dst_bytes as i64) =>
            {
                inner
            }
            _ => return (groups, Boxes { items, ..self }),
        };
        groups.src_strides[inner] *= count as i64;
        groups.dst_strides[inner] *= count as i64;
        // A mask, as a division takes longer than all else here.
        let divides = |multiple: usize, value: i64| value & (multiple as i64 - 1) == 0;
        let strides = groups.src_strides.iter().all(|&stride| divides(multiples.0, stride))
            && groups.dst_strides.iter().all(|&stride| divides(multiples.1, stride));
        let taken = |item: &Item| {
            let offsets = divides(multiples.0, item.src_offset) && divides(multiples.1, item.dst_offset);
            strides && offsets && divides(count, item.extents[inner] as i64) && fits(item)
        };
        (groups.items, self.items) =
            if items.iter().all(taken) { (items, Vec::new()) } else { items.into_iter().partition(taken) };
        groups.items.iter_mut().for_each(|item| item.extents[inner] >>= count.trailing_zeros());
        (groups, self)
    }

    /// Joins accesses along the innermost dimension into wider ones, where it is packed on both sides (or repeats one element
    /// of the source, which then has to be repeated `16 / access_bytes` times) and everything is aligned.
    pub(crate) fn widen(&mut self, bases: (usize, usize), repeats_source: bool) {
        let Some(inner) = self.src_strides.len().checked_sub(1) else { return };
        let access = self.access_bytes as i64;
        let packed_src = self.src_strides[inner] == access || (repeats_source && self.src_strides[inner] == 0);
        if self.dst_strides[inner] != access || !packed_src || access >= 16 {
            return;
        }
        let (src, dst) = (std::mem::take(&mut self.src_strides[inner]), std::mem::take(&mut self.dst_strides[inner]));
        let runs = self.items.iter().fold(16, |bits, item| bits | (item.extents[inner] * self.access_bytes));
        let wide = self.alignment(runs, bases);
        let factor = (wide / self.access_bytes).max(1);
        self.src_strides[inner] = if src == 0 { 0 } else { access * factor as i64 };
        self.dst_strides[inner] = dst * factor as i64;
        self.items.iter_mut().for_each(|item| item.extents[inner] /= factor);
        self.access_bytes *= factor;
    }

    /// The table for a launch with `threads` threads a block; `may_transpose` where the kernel has a transposing twin.
    ///
    /// # Errors
    /// `Unsupported` when so many dimensions are left that they make millions of regions.
    pub(crate) fn lower(mut self, threads: u32, may_transpose: bool) -> Result<Lowered> {
        self.fit_dimensions()?;
        self.fit_sizes();
        let square = if may_transpose { self.square() } else { None };
        if let Some(row_axis) = square {
            let last = self.src_strides.len() - 1;
            let mut axes: Vec<usize> = (0..last).filter(|&axis| axis != row_axis).collect();
            axes.extend([row_axis, last]);
            self.permute(&axes);
        }
        let ndim = self.src_strides.len();
        let mut walk = Walk { ndim: ndim as u32, region_count: self.items.len() as u32, ..Walk::default() };
        walk.src_strides[..ndim].copy_from_slice(&self.src_strides);
        walk.dst_strides[..ndim].copy_from_slice(&self.dst_strides);
        let mut regions = Vec::with_capacity(self.items.len());
        // Most boxes are as large as the one before.
        let mut same: Option<(&[usize], Region, u64)> = None;
        for item in &self.items {
            let (shaped, tiles) = match same {
                Some((extents, shaped, tiles)) if extents == item.extents => (shaped, tiles),
                _ => {
                    let mut region = item.region();
                    let tiles = match square {
                        Some(_) => region.cut_into_squares(ndim, square_side(self.access_bytes)),
                        None => u64::from(region.elems.div_ceil(threads * UNROLL)),
                    };
                    region.prepare_divisions(ndim);
                    same = Some((&item.extents, region, tiles));
                    (region, tiles)
                }
            };
            regions.push(Region {
                first_tile: walk.tiles,
                src_offset: item.src_offset,
                dst_offset: item.dst_offset,
                chunk_offset: item.chunk_offset,
                chunk_bytes: item.chunk_bytes,
                ..shaped
            });
            walk.tiles += tiles;
        }
        Ok(Lowered { regions, walk, access_bytes: self.access_bytes, transposed: square.is_some() })
    }

    /// Turns the outermost dimensions into more boxes until kernels can take the rest.
    fn fit_dimensions(&mut self) -> Result<()> {
        while self.src_strides.len() > MAX_NDIM {
            let count = self.items.iter().try_fold(0usize, |sum, item| sum.checked_add(item.extents[0]));
            if count.is_none_or(|count| count > MAX_REGIONS) {
                let message = format!("{} dimensions cannot be moved in one transfer", self.src_strides.len());
                return Err(Error::new(ErrorKind::Unsupported, message).with_hint("move smaller boxes"));
            }
            let (src, dst) = (self.src_strides.remove(0), self.dst_strides.remove(0));
            let spread = |item: Item| {
                let inner = item.extents[1..].to_vec();
                (0..item.extents[0] as i64).map(move |at| Item {
                    src_offset: item.src_offset + at * src,
                    dst_offset: item.dst_offset + at * dst,
                    extents: inner.clone(),
                    ..item
                })
            };
            self.items = std::mem::take(&mut self.items).into_iter().flat_map(spread).collect();
        }
        Ok(())
    }

    /// Halves boxes until their elements can be numbered in 31 bits.
    fn fit_sizes(&mut self) {
        let mut at = 0;
        while at < self.items.len() {
            let item = &self.items[at];
            let elems = item.extents.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent));
            if elems.is_some_and(|elems| elems < 1 << 31) {
                at += 1;
                continue;
            }
            // The outermost dimension that can be halved: runs stay whole as long as possible. There is one, since the
            // product is above 1.
            let axis = item.extents.iter().position(|&extent| extent > 1).unwrap_or(0);
            let half = item.extents[axis] / 2;
            let mut upper = item.clone();
            upper.extents[axis] -= half;
            upper.src_offset += half as i64 * self.src_strides[axis];
            upper.dst_offset += half as i64 * self.dst_strides[axis];
            self.items[at].extents[axis] = half;
            self.items.push(upper);
        }
    }

    /// The dimension that is packed in the source while another one, the last, is packed in the target.
    fn square(&self) -> Option<usize> {
        let last = self.src_strides.len().checked_sub(1)?;
        let access = self.access_bytes as i64;
        let row_axis = (0..last).find(|&axis| self.src_strides[axis].abs() == access)?;
        let large = |axis: usize| self.items.iter().any(|item| item.extents[axis] >= MIN_SQUARE);
        let worth = self.dst_strides[last].abs() == access && self.src_strides[last].abs() > access;
        (worth && large(row_axis) && large(last)).then_some(row_axis)
    }

    /// The extent of a dimension, if all boxes have the same one.
    fn common_extent(&self, axis: usize) -> Option<usize> {
        let first = self.items.first()?.extents[axis];
        self.items.iter().all(|item| item.extents[axis] == first).then_some(first)
    }

    fn permute(&mut self, axes: &[usize]) {
        if axes.is_sorted() {
            return;
        }
        self.src_strides = axes.iter().map(|&axis| self.src_strides[axis]).collect();
        self.dst_strides = axes.iter().map(|&axis| self.dst_strides[axis]).collect();
        for item in &mut self.items {
            item.extents = axes.iter().map(|&axis| item.extents[axis]).collect();
        }
    }
}

/// Elements along a side of the square that the transposing kernel moves. `Square` in copy.cu.
fn square_side(access_bytes: usize) -> u32 {
    if access_bytes <= 2 { 64 } else { 32 }
}

fn side_alignment(base: usize, strides: &[i64], offsets: impl Iterator<Item = i64>) -> usize {
    let bits = offsets.chain(strides.iter().copied()).fold(16 | base as u64, |bits, value| bits | value as u64);
    1 << bits.trailing_zeros()
}

fn keep<T: Copy>(values: &mut Vec<T>, used: &[bool]) {
    let mut flags = used.iter();
    values.retain(|_| flags.next().copied().unwrap_or(true));
}

impl Item {
    /// What follows from the extents alone.
    fn region(&self) -> Region {
        let mut region = Region { elems: 1, ..Region::default() };
        // `fit_sizes` saw to it that the product is below 2³¹.
        for (to, &extent) in region.extents.iter_mut().zip(&self.extents) {
            *to = extent as u32;
            region.elems *= extent as u32;
        }
        region
    }
}

impl Region {
    /// Counts the last two dimensions in squares; says how many squares there are in all.
    fn cut_into_squares(&mut self, ndim: usize, side: u32) -> u64 {
        (self.rows, self.columns) = (self.extents[ndim - 2], self.extents[ndim - 1]);
        self.extents[ndim - 2] = self.rows.div_ceil(side);
        self.extents[ndim - 1] = self.columns.div_ceil(side);
        self.extents[..ndim].iter().map(|&extent| u64::from(extent)).product()
    }

    /// Granlund and Montgomery's division by multiplication ("Division by invariant integers", 1994), for dividends below 2³¹.
    fn prepare_divisions(&mut self, ndim: usize) {
        for axis in 0..ndim {
            let extent = u64::from(self.extents[axis].max(1));
            let shift = extent.next_power_of_two().trailing_zeros();
            self.shifts[axis] = shift;
            self.magics[axis] = ((((1u64 << shift) - extent) << 32) / extent + 1) as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxes(access: usize, src: &[i64], dst: &[i64], extents: &[&[usize]]) -> Boxes {
        let item = |extents: &&[usize]| Item {
            src_offset: 0,
            dst_offset: 0,
            chunk_offset: 0,
            chunk_bytes: 0,
            extents: extents.to_vec(),
        };
        let items = extents.iter().map(item).collect();
        Boxes { access_bytes: access, src_strides: src.to_vec(), dst_strides: dst.to_vec(), items }
    }

    #[test]
    fn a_contiguous_box_becomes_one_run_of_wide_accesses() {
        let mut all = boxes(4, &[48, 16, 4], &[48, 16, 4], &[&[2, 3, 4]]);
        all.order_and_merge();
        all.widen((256, 512), false);
        assert_eq!((all.access_bytes, &all.src_strides[..], &all.items[0].extents[..]), (16, &[16][..], &[6][..]));
    }

    #[test]
    fn accesses_are_as_wide_as_the_least_aligned_address() {
        let mut all = boxes(4, &[40, 4], &[100, 4], &[&[3, 10]]);
        all.widen((256, 512), false);
        assert_eq!(all.access_bytes, 4);
        let mut all = boxes(2, &[40, 2], &[104, 2], &[&[3, 20]]);
        all.widen((256, 512), false);
        assert_eq!((all.access_bytes, &all.items[0].extents[..]), (8, &[3, 5][..]));
        let mut all = boxes(1, &[12], &[12], &[&[3]]);
        all.cut(12, (0, 8), 16);
        assert_eq!((all.access_bytes, &all.items[0].extents[..]), (4, &[3, 3][..]));
    }

    #[test]
    fn an_odd_edge_does_not_narrow_the_other_boxes() {
        let all = boxes(4, &[4], &[4], &[&[64], &[64], &[63]]);
        let groups = all.split_by_alignment((256, 512));
        assert_eq!(groups.iter().map(|group| group.items.len()).collect::<Vec<_>>(), [2, 1]);
        let widths = groups.into_iter().map(|mut group| {
            group.widen((256, 512), false);
            group.access_bytes
        });
        assert_eq!(widths.collect::<Vec<_>>(), [16, 4]);
    }

    #[test]
    fn boxes_of_different_inner_extents_are_not_merged() {
        let mut all = boxes(4, &[16, 4], &[16, 4], &[&[2, 4], &[2, 3]]);
        all.order_and_merge();
        assert_eq!(all.src_strides.len(), 2);
    }

    #[test]
    fn a_transpose_is_cut_into_squares() {
        let mut all = boxes(4, &[4, 400], &[280, 4], &[&[100, 70]]);
        all.order_and_merge();
        let lowered = all.lower(256, true).unwrap();
        assert!(lowered.transposed);
        assert_eq!(lowered.walk.tiles, 4 * 3);
    }

    #[test]
    fn boxes_of_all_sizes_get_their_own_extents_and_divisions() {
        let extents: [&[usize]; 6] = [&[3, 5], &[3, 5], &[5, 3], &[5, 3], &[3, 5], &[7, 7]];
        let together = boxes(1, &[100, 2], &[100, 1], &extents).lower(4, false).unwrap();
        let mut tiles = 0;
        for (region, extents) in together.regions.iter().zip(extents) {
            let alone = boxes(1, &[100, 2], &[100, 1], &[extents]).lower(4, false).unwrap();
            assert_eq!(*region, Region { first_tile: tiles, ..alone.regions[0] });
            tiles += alone.walk.tiles;
        }
        assert_eq!(together.walk.tiles, tiles);
    }

    #[test]
    fn division_by_multiplication_is_exact() {
        for extent in (1..2000).chain([65535, 65536, 65537, (1 << 30) - 1, 1 << 30, (1 << 31) - 1]) {
            let mut region = Region { extents: [extent; MAX_NDIM], ..Region::default() };
            region.prepare_divisions(1);
            let quotient = |n: u32| {
                let high = (u64::from(n) * u64::from(region.magics[0])) >> 32;
                ((high + u64::from(n)) >> region.shifts[0]) as u32
            };
            for n in (0..4000).chain([extent - 1, extent.saturating_mul(3), (1 << 31) - 1, (1 << 31) - 2]) {
                let n = n.min((1 << 31) - 1);
                assert_eq!(quotient(n), n / extent, "{n} / {extent}");
                assert!((u64::from(n) * u64::from(region.magics[0])) >> 32 <= u64::from(u32::MAX) - u64::from(n));
            }
        }
    }

    #[test]
    fn more_dimensions_than_kernels_take_become_more_regions() {
        let strides: Vec<i64> = (0..10).rev().map(|axis| 3i64.pow(axis) * 8).collect();
        let all = boxes(4, &strides, &strides, &[&[2; 10]]);
        let lowered = all.lower(256, false).unwrap();
        assert_eq!((lowered.regions.len(), lowered.walk.ndim), (4, 8));
        let all = boxes(1, &[1 << 20, 1], &[1 << 20, 1], &[&[1 << 13, 1 << 20]]);
        let lowered = all.lower(256, false).unwrap();
        assert_eq!(lowered.regions.iter().map(|region| u64::from(region.elems)).sum::<u64>(), 1 << 33);
    }
}
