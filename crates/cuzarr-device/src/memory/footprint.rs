//! Footprints: which bytes of a memory block an access touches, and whether two accesses overlap.

use std::ops::Range;

/// The bytes of a memory block that an access touches: `width` bytes at `start`, repeated along the strides of the
/// axes.
#[derive(Clone, Debug)]
pub(crate) struct Footprint {
    start: usize,
    width: usize,
    axes: Vec<FootprintAxis>,
}

#[derive(Clone, Copy, Debug)]
struct FootprintAxis {
    stride: usize,
    extent: usize,
}

/// Number of steps after which [`Footprint::overlaps`] stops searching and answers yes.
const MOST_STEPS: usize = 4096;

impl Footprint {
    /// The footprint of a range of bytes; `None` if the range is empty.
    pub(crate) fn range(range: Range<usize>) -> Option<Footprint> {
        (!range.is_empty()).then(|| Footprint { start: range.start, width: range.len(), axes: Vec::new() })
    }

    /// The footprint of an array's elements, of `element_bytes` bytes each. `start` is where element (0, …, 0) begins
    /// in the block. `None` if there are no elements. All elements lie in the block, as the constructors of layouts
    /// checked.
    pub(crate) fn strided(
        shape: &[usize],
        strides: &[isize],
        mut start: usize,
        element_bytes: usize,
    ) -> Option<Footprint> {
        if shape.contains(&0) || element_bytes == 0 {
            return None;
        }
        let mut axes: Vec<FootprintAxis> = Vec::new();
        for (&extent, &stride) in shape.iter().zip(strides) {
            if extent > 1 && stride != 0 {
                if stride < 0 {
                    start -= stride.unsigned_abs() * (extent - 1);
                }
                axes.push(FootprintAxis { stride: stride.unsigned_abs(), extent });
            }
        }
        axes.sort_unstable_by_key(|axis| axis.stride);
        let (mut width, mut apart) = (element_bytes, Vec::new());
        for axis in axes {
            // Elements that touch or overlap are joined to one run.
            match apart.is_empty() && axis.stride <= width {
                true => width += axis.stride * (axis.extent - 1),
                false => apart.push(axis),
            }
        }
        Some(Footprint { start, width, axes: apart })
    }

    fn end(&self) -> usize {
        self.start + self.width + self.axes.iter().map(|axis| axis.stride * (axis.extent - 1)).sum::<usize>()
    }

    /// Shifts the footprint by `bytes`, to higher offsets.
    pub(crate) fn moved_by(self, bytes: usize) -> Footprint {
        Footprint { start: self.start + bytes, ..self }
    }

    /// The footprint as text for error messages: its first byte and the byte behind its last, counted from `base`.
    /// Bytes before `base` are negative.
    pub(crate) fn text(&self, base: usize) -> String {
        format!("{}..{}", self.start as i128 - base as i128, self.end() as i128 - base as i128)
    }

    /// Whether two footprints have a byte in common. Also `true` for unusual layouts for which the exact answer would
    /// take long.
    ///
    /// A common byte is a solution of `Σ dᵢ·strideᵢ + e = distance`, where each `dᵢ` and `e` lies in an interval.
    /// Strides are tried from the largest to the smallest; the reach of the smaller ones bounds each `dᵢ`. NumPy's
    /// `shares_memory` solves the same problem
    /// (<https://numpy.org/doc/stable/reference/generated/numpy.shares_memory.html>).
    pub(crate) fn overlaps(&self, other: &Footprint) -> bool {
        if self.end() <= other.start || other.end() <= self.start {
            return false;
        }
        if self.axes.is_empty() && other.axes.is_empty() {
            return true;
        }
        let mut terms: Vec<Term> = Vec::new();
        let mine = self.axes.iter().map(|axis| (axis.stride, 0, axis.extent as i128 - 1));
        let theirs = other.axes.iter().map(|axis| (axis.stride, 1 - axis.extent as i128, 0));
        for (stride, low, high) in mine.chain(theirs) {
            match terms.iter_mut().find(|term| term.stride == stride as i128) {
                Some(term) => (term.low, term.high) = (term.low + low, term.high + high),
                None => terms.push(Term { stride: stride as i128, low, high }),
            }
        }
        terms.sort_unstable_by_key(|term| std::cmp::Reverse(term.stride));
        let within = (1 - other.width as i128, self.width as i128 - 1);
        let mut steps = MOST_STEPS;
        has_solution(&terms, within, other.start as i128 - self.start as i128, &mut steps)
    }
}

/// A term of the sum by which `Footprint::overlaps` looks for a common byte: `stride` times a whole number in
/// `low..=high`.
struct Term {
    stride: i128,
    low: i128,
    high: i128,
}

fn has_solution(terms: &[Term], within: (i128, i128), distance: i128, steps: &mut usize) -> bool {
    let Some((first, rest)) = terms.split_first() else { return (within.0..=within.1).contains(&distance) };
    let low: i128 = within.0 + rest.iter().map(|term| term.low * term.stride).sum::<i128>();
    let high: i128 = within.1 + rest.iter().map(|term| term.high * term.stride).sum::<i128>();
    // distance - number * stride has to lie in low..=high.
    let least =
        (distance - high).div_euclid(first.stride) + i128::from((distance - high).rem_euclid(first.stride) != 0);
    let most = (distance - low).div_euclid(first.stride);
    for number in least.max(first.low)..=most.min(first.high) {
        if *steps == 0 {
            return true;
        }
        *steps -= 1;
        if has_solution(rest, within, distance - number * first.stride, steps) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footprint(shape: &[usize], strides: &[isize], offset_bytes: usize, element_bytes: usize) -> Footprint {
        Footprint::strided(shape, strides, offset_bytes, element_bytes).unwrap()
    }

    /// The offset of every byte that a layout touches.
    fn bytes(shape: &[usize], strides: &[isize], offset_bytes: usize, element_bytes: usize) -> Vec<usize> {
        let mut places = vec![offset_bytes as isize];
        for (&extent, &stride) in shape.iter().zip(strides) {
            places = places.iter().flat_map(|place| (0..extent as isize).map(move |at| place + at * stride)).collect();
        }
        places.iter().flat_map(|&place| (0..element_bytes).map(move |at| place as usize + at)).collect()
    }

    #[test]
    fn overlap_is_what_common_bytes_say() {
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let mut found = [0, 0];
        for _ in 0..20_000 {
            let mut side = || {
                let ndim = random(4) as usize;
                let shape: Vec<usize> = (0..ndim).map(|_| 1 + random(4) as usize).collect();
                let strides: Vec<isize> = (0..ndim).map(|_| random(41) as isize - 20).collect();
                (shape, strides, 300 + random(100) as usize * 2, 1 + random(4) as usize)
            };
            let (left, right) = (side(), side());
            let (mine, theirs) = (bytes(&left.0, &left.1, left.2, left.3), bytes(&right.0, &right.1, right.2, right.3));
            let expected = mine.iter().any(|byte| theirs.contains(byte));
            let (one, other) =
                (footprint(&left.0, &left.1, left.2, left.3), footprint(&right.0, &right.1, right.2, right.3));
            assert_eq!((one.overlaps(&other), other.overlaps(&one)), (expected, expected), "{left:?} {right:?}");
            found[usize::from(expected)] += 1;
        }
        assert!(found.iter().all(|&count| count > 1000), "{found:?}");
    }

    #[test]
    fn columns_and_boxes_of_one_array_do_not_overlap() {
        // Two halves of the columns of 1000 x 1000 elements of 4 bytes, and a quarter that meets both.
        let left = footprint(&[500, 250], &[4000, 8], 0, 4);
        let right = footprint(&[500, 250], &[4000, 8], 4, 4);
        let across = footprint(&[2, 500], &[4000, 4], 1000, 4);
        assert!(!left.overlaps(&right) && left.overlaps(&across) && across.overlaps(&right));
    }
}
