//! Where the blocks of zfp lie in a chunk.

/// The shape of a chunk, the fastest axis first, in as many dimensions as blocks have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extents(pub(super) Vec<usize>);

/// Where a zfp block lies in a chunk: for each axis, its first element and its number of elements inside the chunk, at
/// most 4.
pub(super) type Place = [(usize, usize); 4];

impl Extents {
    /// Number of zfp blocks that the chunk is cut into; `None` if it overflows.
    pub(super) fn block_count(&self) -> Option<usize> {
        self.0.iter().try_fold(1usize, |count, extent| count.checked_mul(extent.div_ceil(4)))
    }

    /// Where each zfp block lies in the chunk, in the order in which the blocks are stored.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        (0..self.block_count().unwrap_or(0)).map(|number| {
            let (mut rest, mut place) = (number, [(0, 1); 4]);
            for (axis, &extent) in self.0.iter().enumerate() {
                let first = rest % extent.div_ceil(4) * 4;
                place[axis] = (first, (extent - first).min(4));
                rest /= extent.div_ceil(4);
            }
            place
        })
    }

    /// The index of a block's first element, if the whole block lies inside the chunk.
    pub(super) fn whole(&self, place: &Place) -> Option<usize> {
        place[..self.0.len()].iter().all(|(_, count)| *count == 4).then(|| {
            let axes = self.0.iter().zip(place).rev();
            axes.fold(0, |element, (extent, (first, _))| element * extent + first)
        })
    }

    /// For each value of a block inside the chunk, its distance in memory from the block's first value, in elements.
    pub(super) fn steps(&self) -> Vec<usize> {
        let whole = [(0, 4); 4];
        self.elements(&whole).map(|(element, _)| element).collect()
    }

    /// For each value of a block: the index of its element in the chunk, and `false` if the value only fills up the
    /// block.
    pub(super) fn elements(&self, place: &Place) -> impl Iterator<Item = (usize, bool)> {
        (0..1usize << (2 * self.0.len())).map(move |value| {
            let (mut element, mut stride, mut is_own) = (0, 1, true);
            for (axis, extent) in self.0.iter().enumerate() {
                let (first, count) = place[axis];
                let at = value >> (2 * axis) & 3;
                is_own &= at < count;
                element += (first + PADDED[count][at]) * stride;
                stride *= extent;
            }
            (element, is_own)
        })
    }
}

/// How a line of 0 to 4 values is filled up: for each of its four places, which value stands there.
const PADDED: [[usize; 4]; 5] = [[0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 1, 0], [0, 1, 2, 0], [0, 1, 2, 3]];
