//! Converts boxes of elements to the table that a launch reads, in the integers that kernels use.

use crate::c_layout::c_layout;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::defined;
use crate::ops::regions::{Item, RegionBoxes};

const HEADER: &str = include_str!("../../../kernels/include/cuzarr/regions.cuh");
/// Most dimensions that a kernel which moves boxes handles; boxes with more are split.
pub(crate) const MAX_NDIM: usize = defined(HEADER, "CUZARR_MAX_NDIM") as usize;
/// Number of elements that one thread moves in a tile (the elements that a block of threads moves at once).
pub(crate) const UNROLL: u32 = defined(HEADER, "CUZARR_UNROLL");
/// Largest number of regions into which a transfer with more than [`MAX_NDIM`] dimensions is split; beyond it, the
/// transfer is refused.
const MAX_REGIONS: usize = 1 << 22;
/// Shortest side, in elements, for which a transposed square is worth its two barriers.
const MIN_SQUARE: usize = 4;

/// One box of elements to move, in the form that kernels read. `Region` in regions.cuh.
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

/// The strides and counts that all boxes of elements (regions) of one launch share. `Walk` in regions.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Walk {
    pub(crate) tiles: u64,
    region_count: u32,
    ndim: u32,
    src_strides: [i64; MAX_NDIM],
    dst_strides: [i64; MAX_NDIM],
}

// `Region` and `Walk` in regions.cuh; copy.cu checks the sizes, too.
c_layout! {
    plain Region: 152 bytes {
        first_tile at 0, src_offset at 8, dst_offset at 16, chunk_offset at 24, chunk_bytes at 32, elems at 40, rows at 44,
        columns at 48, reserved at 52, extents at 56, magics at 88, shifts at 120,
    }
}
c_layout! { Walk: 144 bytes { tiles at 0, region_count at 8, ndim at 12, src_strides at 16, dst_strides at 80 } }

/// The parameters of a launch that moves boxes, except its pointers.
#[derive(Debug)]
pub(crate) struct Lowered {
    pub(crate) regions: Vec<Region>,
    pub(crate) walk: Walk,
    pub(crate) access_bytes: usize,
    pub(crate) transposed: bool,
}

impl RegionBoxes {
    /// Converts the boxes to the table that a launch with `threads` threads per block reads. `may_transpose` says that
    /// the kernel has a transposing version.
    ///
    /// # Errors
    /// `Unsupported` when too many dimensions remain, so that there would be millions of regions.
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
        // Most boxes have the same extents as the box before.
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

    /// Splits boxes along the outermost dimensions until at most `MAX_NDIM` dimensions are left.
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

    /// Halves boxes until each has fewer than 2³¹ elements.
    fn fit_sizes(&mut self) {
        let mut at = 0;
        while at < self.items.len() {
            let item = &self.items[at];
            let elems = item.extents.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent));
            if elems.is_some_and(|elems| elems < 1 << 31) {
                at += 1;
                continue;
            }
            // The outermost dimension that can be halved, so that runs stay whole as long as possible. There is one,
            // since the product is above 1.
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

    /// Returns the dimension along which the source is packed, if it is to be transposed with the last one in squares.
    /// `None` unless that is not the last dimension, the target is packed in the last one, and the
    /// transposing kernel is worth it.
    fn square(&self) -> Option<usize> {
        let last = self.src_strides.len().checked_sub(1)?;
        let access = self.access_bytes as i64;
        let row_axis = (0..last).find(|&axis| self.src_strides[axis].abs() == access)?;
        let large = |axis: usize| self.items.iter().any(|item| item.extents[axis] >= MIN_SQUARE);
        let worth = self.dst_strides[last].abs() == access && self.src_strides[last].abs() > access;
        (worth && large(row_axis) && large(last)).then_some(row_axis)
    }
}

/// Side, in elements, of the square that the transposing kernel moves. `Square` in copy.cu.
fn square_side(access_bytes: usize) -> u32 {
    if access_bytes <= 2 { 64 } else { 32 }
}

impl Item {
    /// Makes a kernel's description of a box, with the fields that depend only on the box's extents.
    fn region(&self) -> Region {
        let mut region = Region { elems: 1, ..Region::default() };
        // `fit_sizes` made sure that the product is below 2³¹.
        for (to, &extent) in region.extents.iter_mut().zip(&self.extents) {
            *to = extent as u32;
            region.elems *= extent as u32;
        }
        region
    }
}

impl Region {
    /// Replaces the extents of the last two dimensions by numbers of squares. Returns the number of squares in all.
    fn cut_into_squares(&mut self, ndim: usize, side: u32) -> u64 {
        (self.rows, self.columns) = (self.extents[ndim - 2], self.extents[ndim - 1]);
        self.extents[ndim - 2] = self.rows.div_ceil(side);
        self.extents[ndim - 1] = self.columns.div_ceil(side);
        self.extents[..ndim].iter().map(|&extent| u64::from(extent)).product()
    }

    /// Prepares division by multiplication, for dividends below 2³¹ (Granlund and Montgomery, "Division by invariant
    /// integers using multiplication", 1994).
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

    fn boxes(access: usize, src: &[i64], dst: &[i64], extents: &[&[usize]]) -> RegionBoxes {
        let item = |extents: &&[usize]| Item {
            src_offset: 0,
            dst_offset: 0,
            chunk_offset: 0,
            chunk_bytes: 0,
            extents: extents.to_vec(),
        };
        let items = extents.iter().map(item).collect();
        RegionBoxes { access_bytes: access, src_strides: src.to_vec(), dst_strides: dst.to_vec(), items }
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
