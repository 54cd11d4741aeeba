//! Pieces of an uncompressed chunk: the ranges of bytes that hold the wanted elements. A piece has a limited size. It
//! covers gaps only if they cost less than another request.

/// The wanted elements along one dimension of a packed chunk.
#[derive(Clone, Debug)]
pub(crate) enum PackedAxis {
    /// The wanted elements are `count` elements that lie `distance` elements apart.
    Even { count: u64, distance: u64 },
    /// The wanted elements do not lie at equal distances; these are their sorted indices.
    Listed(Vec<u64>),
}

impl PackedAxis {
    fn count(&self) -> u64 {
        match self {
            PackedAxis::Even { count, .. } => *count,
            PackedAxis::Listed(elems) => elems.len() as u64,
        }
    }

    /// The distance, in elements, of the wanted element number `index` from the first wanted one.
    fn offset(&self, index: u64) -> u64 {
        match self {
            PackedAxis::Even { distance, .. } => index.saturating_mul(*distance),
            PackedAxis::Listed(elems) => elems[index as usize] - elems[0],
        }
    }

    /// The largest distance, in elements, between two neighbouring wanted elements of this dimension.
    fn widest(&self) -> u64 {
        match self {
            PackedAxis::Even { distance, .. } => *distance,
            PackedAxis::Listed(elems) => elems.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0),
        }
    }
}

/// A range of a chunk's packed bytes that is read alone, and the wanted elements in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Offset of the piece from the first wanted element of the chunk.
    pub offset_bytes: u64,
    /// Size of the piece in bytes.
    pub size_bytes: u64,
    /// Which of the chunk's wanted elements lie in the piece, as one range per packed dimension: `from..to`.
    pub inside: Vec<(u64, u64)>,
}

/// Limits for dividing the wanted bytes of an uncompressed chunk into pieces that are read separately.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PieceLimits {
    /// Maximum size in bytes of a piece: a range of a chunk's bytes that is read separately. An element is never
    /// divided.
    pub max_bytes: u64,
    /// Maximum gap in bytes between wanted elements that are read together as one piece.
    pub gap_bytes: u64,
}

/// Divides the wanted elements of an uncompressed chunk into ranges of bytes to read ("pieces"), in the order of these
/// bytes.
pub(crate) fn divide(axes: &[PackedAxis], element_bytes: u64, limits: PieceLimits) -> Vec<Piece> {
    if axes.iter().any(|axis| axis.count() == 0) {
        return Vec::new();
    }
    // `spans[i]`: number of elements from the first to the last wanted one, if only dimensions `i..` vary.
    let mut spans = vec![1u64; axes.len() + 1];
    // `dense[i]`: whether dimensions `i..` have no gap that is worth skipping.
    let mut dense = vec![true; axes.len() + 1];
    for i in (0..axes.len()).rev() {
        let gap = axes[i].widest().saturating_sub(spans[i + 1]).saturating_mul(element_bytes);
        dense[i] = dense[i + 1] && (axes[i].count() == 1 || gap <= limits.gap_bytes);
        spans[i] = axes[i].offset(axes[i].count() - 1).saturating_add(spans[i + 1]);
    }
    let mut division = PieceDivision { axes, element_bytes, limits, spans, dense, pieces: Vec::new() };
    division.divide_axis(0, 0, &mut Vec::with_capacity(axes.len()));
    division.pieces
}

struct PieceDivision<'a> {
    axes: &'a [PackedAxis],
    element_bytes: u64,
    limits: PieceLimits,
    spans: Vec<u64>,
    dense: Vec<bool>,
    pieces: Vec<Piece>,
}

impl PieceDivision<'_> {
    /// Divides the wanted elements, from dimension `axis` of the chunk on, into ranges of bytes to read ("pieces").
    /// `above` fixes the elements in the dimensions before, and `base` is their offset in elements.
    fn divide_axis(&mut self, axis: usize, base: u64, above: &mut Vec<(u64, u64)>) {
        if axis == self.axes.len() {
            return self.emit(base, 1, above.clone());
        }
        let (along, count) = (&self.axes[axis], self.axes[axis].count());
        let below = self.spans[axis + 1];
        let max_elems = (self.limits.max_bytes / self.element_bytes.max(1)).max(1);
        if below > max_elems || !self.dense[axis + 1] {
            for index in 0..count {
                above.push((index, index + 1));
                self.divide_axis(axis + 1, base + along.offset(index), above);
                above.pop();
            }
            return;
        }
        let mut from = 0;
        while from < count {
            let to = self.group_end(along, from, below, max_elems);
            let mut inside = above.clone();
            inside.push((from, to));
            inside.extend(self.axes[axis + 1..].iter().map(|deeper| (0, deeper.count())));
            let first = along.offset(from);
            self.emit(base + first, along.offset(to - 1) - first + below, inside);
            from = to;
        }
    }

    /// The index behind the last wanted element of the piece that begins with element `from`. Each element covers
    /// `below` packed elements.
    fn group_end(&self, along: &PackedAxis, from: u64, below: u64, max_elems: u64) -> u64 {
        let skips =
            |distance: u64| distance.saturating_sub(below).saturating_mul(self.element_bytes) > self.limits.gap_bytes;
        match along {
            PackedAxis::Even { count, distance } if !skips(*distance) => {
                (*count).min(from.saturating_add((max_elems - below) / (*distance).max(1) + 1))
            }
            PackedAxis::Even { .. } => from + 1,
            PackedAxis::Listed(elems) => {
                let (rest, first) = (&elems[from as usize..], elems[from as usize]);
                let ends = |pair: &[u64]| skips(pair[1] - pair[0]) || pair[1] - first + below > max_elems;
                from + rest.windows(2).position(ends).map_or(rest.len(), |at| at + 1) as u64
            }
        }
    }

    fn emit(&mut self, base: u64, span: u64, inside: Vec<(u64, u64)>) {
        let (offset_bytes, size_bytes) = (base * self.element_bytes, span * self.element_bytes);
        self.pieces.push(Piece { offset_bytes, size_bytes, inside });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(count: u64, distance: u64) -> PackedAxis {
        PackedAxis::Even { count, distance }
    }

    fn spans(axes: &[PackedAxis], max_bytes: u64, gap_bytes: u64) -> Vec<(u64, u64)> {
        let pieces = divide(axes, 4, PieceLimits { max_bytes, gap_bytes });
        let wanted: u64 = pieces.iter().map(|p| p.inside.iter().map(|(from, to)| to - from).product::<u64>()).sum();
        assert_eq!(wanted, axes.iter().map(PackedAxis::count).product::<u64>());
        pieces.iter().map(|piece| (piece.offset_bytes, piece.size_bytes)).collect()
    }

    #[test]
    fn a_small_whole_chunk_is_one_piece() {
        assert_eq!(spans(&[axis(8, 10), axis(10, 1)], 1 << 20, 0), [(0, 320)]);
        assert_eq!(spans(&[], 1, 0), [(0, 4)]);
    }

    #[test]
    fn a_large_chunk_is_cut_between_rows() {
        assert_eq!(spans(&[axis(8, 10), axis(10, 1)], 120, 0), [(0, 120), (120, 120), (240, 80)]);
        assert_eq!(
            spans(&[axis(2, 10), axis(10, 1)], 16, 0),
            [(0, 16), (16, 16), (32, 8), (40, 16), (56, 16), (72, 8)]
        );
        assert_eq!(spans(&[axis(3, 1)], 1, 0), [(0, 4), (4, 4), (8, 4)]);
    }

    #[test]
    fn wide_gaps_are_left_out_and_narrow_ones_read_over() {
        assert_eq!(spans(&[axis(3, 10), axis(2, 1)], 1 << 20, 31), [(0, 8), (40, 8), (80, 8)]);
        assert_eq!(spans(&[axis(3, 10), axis(2, 1)], 1 << 20, 32), [(0, 88)]);
        assert_eq!(spans(&[axis(2, 100), axis(2, 10), axis(3, 1)], 1 << 20, 28), [(0, 52), (400, 52)]);
        assert_eq!(spans(&[axis(2, 100), axis(2, 10), axis(3, 1)], 1 << 20, 4).len(), 4);
    }

    #[test]
    fn listed_elements_are_grouped_where_gaps_are_narrow() {
        let rows = || vec![PackedAxis::Listed(vec![20, 30, 70]), axis(10, 1)];
        assert_eq!(spans(&rows(), 1 << 20, 0), [(0, 80), (200, 40)]);
        assert_eq!(spans(&rows(), 1 << 20, 120), [(0, 240)]);
        assert_eq!(spans(&rows(), 40, 120), [(0, 40), (40, 40), (200, 40)]);
        assert_eq!(spans(&[PackedAxis::Listed(vec![5, 5, 6, 9])], 1 << 20, 4), [(0, 8), (16, 4)]);
    }
}
