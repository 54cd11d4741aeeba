//! Boxes of elements, and how they become the tables that kernels walk through (`kernels/include/cuzarr/regions.cuh`).
//!
//! Lowering has these steps: Dimensions of extent 1 are dropped. Elements are cut into accesses that the memory is
//! aligned for, or joined to wider ones along runs that are packed on both sides. Dimensions are ordered by the
//! target's strides, and merged if they continue each other. A box with more than eight dimensions or 2³¹ elements
//! becomes several regions. Lowering touches no device, so it is tested without one.

pub(crate) mod lower;

/// One box of elements to move from a source to a target. Offsets are in bytes from the two base addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) src_offset: i64,
    pub(crate) dst_offset: i64,
    /// Byte offset of the packed chunk that contains the box, for packings that are not strided; `chunk_bytes` is its
    /// size.
    pub(crate) chunk_offset: i64,
    pub(crate) chunk_bytes: u64,
    pub(crate) extents: Vec<usize>,
}

/// Boxes of elements to move that have the same strides.
#[derive(Clone, Debug)]
pub(crate) struct RegionBoxes {
    /// Number of bytes that one memory access of a thread moves.
    pub(crate) access_bytes: usize,
    pub(crate) src_strides: Vec<i64>,
    pub(crate) dst_strides: Vec<i64>,
    pub(crate) items: Vec<Item>,
}

impl RegionBoxes {
    /// Drops empty boxes, and dimensions whose extent is 1 in all boxes.
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

    /// Splits each element of `element_bytes` into memory accesses of equal size. That size is the largest power of
    /// two, up to `limit_bytes`, that divides the element size and all addresses. `bases` are the two base addresses.
    pub(crate) fn cut(&mut self, element_bytes: usize, bases: (usize, usize), limit_bytes: usize) {
        let access = self.alignment(element_bytes, bases).min(limit_bytes);
        self.access_bytes = access;
        if access < element_bytes {
            self.src_strides.push(access as i64);
            self.dst_strides.push(access as i64);
            self.items.iter_mut().for_each(|item| item.extents.push(element_bytes / access));
        }
    }

    /// The largest power of two, up to 16, that divides `size_bytes` and every address of source and target.
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

    /// The largest power of two, up to 16, that divides every address of the source.
    pub(crate) fn src_alignment(&self, base: usize) -> usize {
        side_alignment(base, &self.src_strides, self.items.iter().map(|item| item.src_offset))
    }

    /// The largest power of two, up to 16, that divides every address of the target.
    pub(crate) fn dst_alignment(&self, base: usize) -> usize {
        side_alignment(base, &self.dst_strides, self.items.iter().map(|item| item.dst_offset))
    }

    /// Exchanges source and target of all boxes, calls `change`, and exchanges them back.
    pub(crate) fn swap_sides(&mut self, change: impl FnOnce(&mut RegionBoxes)) {
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

    /// Separates the boxes that can be moved 16 bytes at a time from the others. So one box with odd edges does not
    /// slow down all boxes.
    pub(crate) fn split_by_alignment(mut self, bases: (usize, usize)) -> Vec<RegionBoxes> {
        let Some(inner) = self.src_strides.len().checked_sub(1) else { return vec![self] };
        let access = self.access_bytes;
        let wide = |item: &Item| {
            let bits = item.src_offset as u64 | item.dst_offset as u64 | bases.0 as u64 | bases.1 as u64;
            (bits | (item.extents[inner] * access) as u64).trailing_zeros() >= 4
        };
        let (aligned, others): (Vec<Item>, Vec<Item>) = std::mem::take(&mut self.items).into_iter().partition(wide);
        let groups = [aligned, others].into_iter().filter(|items| !items.is_empty());
        groups.map(|items| RegionBoxes { items, ..self.clone() }).collect()
    }

    /// Separates the boxes whose innermost rows can be moved `count` elements at a time from the other boxes. The first
    /// part of the result has these boxes, with extents and strides in groups. Their runs are packed on both sides,
    /// with elements of `src_bytes` and `dst_bytes` (in the unit of the strides). Run lengths are multiples of `count`,
    /// offsets and strides multiples of `multiples`. `count` and `multiples` must be powers of two.
    pub(crate) fn split_groups(
        mut self,
        count: usize,
        src_bytes: usize,
        dst_bytes: usize,
        multiples: (usize, usize),
        fits: impl Fn(&Item) -> bool,
    ) -> (RegionBoxes, RegionBoxes) {
        let items = std::mem::take(&mut self.items);
        let mut groups = self.clone();
        let inner = match self.src_strides.len().checked_sub(1) {
            Some(inner)
                if (self.src_strides[inner], self.dst_strides[inner]) == (src_bytes as i64, dst_bytes as i64) =>
            {
                inner
            }
            _ => return (groups, RegionBoxes { items, ..self }),
        };
        groups.src_strides[inner] *= count as i64;
        groups.dst_strides[inner] *= count as i64;
        // A mask, because a division would take longer than everything else here.
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

    /// Joins memory accesses along the innermost dimension to wider ones, if source and target are packed and aligned
    /// there. With `repeats_source`, the source may also be one element, stored `16 / access_bytes` times.
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

    /// The extent of dimension `axis`, if it is the same in all boxes.
    fn common_extent(&self, axis: usize) -> Option<usize> {
        let first = self.items.first()?.extents[axis];
        self.items.iter().all(|item| item.extents[axis] == first).then_some(first)
    }

    pub(super) fn permute(&mut self, axes: &[usize]) {
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

fn side_alignment(base: usize, strides: &[i64], offsets: impl Iterator<Item = i64>) -> usize {
    let bits = offsets.chain(strides.iter().copied()).fold(16 | base as u64, |bits, value| bits | value as u64);
    1 << bits.trailing_zeros()
}

fn keep<T: Copy>(values: &mut Vec<T>, used: &[bool]) {
    let mut flags = used.iter();
    values.retain(|_| flags.next().copied().unwrap_or(true));
}
