//! Reduces short segments of packed floats, such as rows of an image. Each strip of lanes goes through all its elements
//! at once, so that its partial results stay in registers, and leaves one partial result for each thread of the simulated
//! block.
//!
//! Long segments are read row by row instead: the elements of a strip are too far apart in memory there.

use std::ops::Range;

use cuzarr_device::DType;

use super::{BLOCK_LANES, PACK, Settled};
use crate::reduce::state::{Accumulator, Fold, Joint, State, Wide};

/// Largest number of elements of a short segment.
const MOST_ELEMS: usize = 4 * BLOCK_LANES;
/// Number of lanes of a strip.
const STRIP: usize = 64;
const STRIP_THREADS: usize = STRIP / PACK;

/// Whether a segment of `count` floats is reduced here.
#[inline(always)]
pub(super) fn suits(fold: Fold, count: usize) -> bool {
    matches!(fold.accumulator, Accumulator::Sum | Accumulator::Moments)
        && fold.wide == Wide::Float
        && !fold.skip_nan
        && count <= MOST_ELEMS
}

/// Reduces the elements of a segment to a partial result for each thread that has elements. Returns false for other
/// reductions and types, and for long segments.
#[inline(always)]
pub(super) fn threads_of(fold: Fold, dtype: DType, packed: &[u8], threads: &mut Settled) -> bool {
    let suits = suits(fold, packed.len() / dtype.size_bytes());
    match dtype {
        DType::FLOAT32 if suits => {
            let element = |&bytes: &[u8; 4]| f64::from(f32::from_ne_bytes(bytes));
            Short { elements: packed.as_chunks::<4>().0, element }.reduce(fold, threads);
        }
        DType::FLOAT64 if suits => {
            let element = |&bytes: &[u8; 8]| f64::from_ne_bytes(bytes);
            Short { elements: packed.as_chunks::<8>().0, element }.reduce(fold, threads);
        }
        _ => return false,
    }
    true
}

/// A short segment, whose elements go in turn to the lanes of a block.
struct Short<'a, E, F> {
    elements: &'a [E],
    element: F,
}

impl<E, F: Fn(&E) -> f64> Short<'_, E, F> {
    #[inline(always)]
    fn reduce(&self, fold: Fold, threads: &mut Settled) {
        let (rows, rest) = (self.elements.len() / BLOCK_LANES, self.elements.len() % BLOCK_LANES);
        let lanes = self.elements.len().min(BLOCK_LANES);
        let count = lanes.div_ceil(PACK);
        let [first, counts, third] = &mut threads.0;
        [&mut *first, &mut *counts, &mut *third].into_iter().for_each(|words| words.clear());
        first.resize(count, 0);
        if fold.accumulator == Accumulator::Moments {
            counts.resize(count, 0);
            third.resize(count, 0);
        }
        // Threads all of whose lanes have `rows + 1` elements, and those whose lanes have `rows`.
        for (threads, rows) in [(0..rest / PACK, rows + 1), (rest.div_ceil(PACK)..lanes / PACK, rows)] {
            if rows == 0 || threads.is_empty() {
                continue;
            }
            match fold.accumulator {
                Accumulator::Moments => {
                    counts[threads.clone()].fill((PACK * rows) as u64);
                    self.moments(threads.clone(), rows, &mut first[threads.clone()], &mut third[threads]);
                }
                _ => self.sums(threads.clone(), rows, &mut first[threads]),
            }
        }
        // The thread whose lanes have different numbers of elements.
        if rest % PACK > 0 {
            let State(words) = self.mixed(fold, rest / PACK);
            first[rest / PACK] = words[0];
            if fold.accumulator == Accumulator::Moments {
                (counts[rest / PACK], third[rest / PACK]) = (words[1], words[2]);
            }
        }
    }

    /// Returns the elements of row `row` of the lanes of some threads.
    #[inline(always)]
    fn row(&self, threads: &Range<usize>, row: usize) -> &[E] {
        &self.elements[row * BLOCK_LANES + threads.start * PACK..row * BLOCK_LANES + threads.end * PACK]
    }

    #[inline(always)]
    fn sums(&self, threads: Range<usize>, rows: usize, sums: &mut [u64]) {
        for (strip, sums) in sums.chunks_mut(STRIP_THREADS).enumerate() {
            let first = threads.start + strip * STRIP_THREADS;
            let threads = first..first + sums.len();
            let mut lanes = [0.0f64; STRIP];
            for row in 0..rows {
                for (lane, element) in lanes.iter_mut().zip(self.row(&threads, row)) {
                    *lane += (self.element)(element);
                }
            }
            for (sum, [a, b, c, d]) in sums.iter_mut().zip(lanes.as_chunks::<PACK>().0) {
                *sum = ((a + c) + (b + d)).to_bits();
            }
        }
    }

    #[inline(always)]
    fn moments(&self, threads: Range<usize>, rows: usize, means: &mut [u64], squares: &mut [u64]) {
        let count = rows as u64;
        let (pair, both) = (Joint::new(count, count), Joint::new(2 * count, 2 * count));
        let strips = means.chunks_mut(STRIP_THREADS).zip(squares.chunks_mut(STRIP_THREADS));
        for (strip, (means, squares)) in strips.enumerate() {
            let first = threads.start + strip * STRIP_THREADS;
            let threads = first..first + means.len();
            let (mut values, mut sums, mut seconds) = ([0.0f64; STRIP], [0.0f64; STRIP], [0.0f64; STRIP]);
            for (value, element) in values.iter_mut().zip(self.row(&threads, 0)) {
                *value = (self.element)(element);
            }
            for row in 0..rows {
                let lanes = sums.iter_mut().zip(&mut seconds).zip(&values);
                for (((sum, second), value), element) in lanes.zip(self.row(&threads, row)) {
                    let distance = (self.element)(element) - value;
                    *sum += distance;
                    *second += distance * distance;
                }
            }
            for ((value, second), sum) in values.iter_mut().zip(&mut seconds).zip(&sums) {
                let shift = if count == 1 { *sum } else { sum / count as f64 };
                *value += shift;
                *second -= sum * shift;
            }
            let lanes = values.as_chunks::<PACK>().0.iter().zip(seconds.as_chunks::<PACK>().0);
            for ((mean, square), (value, second)) in means.iter_mut().zip(squares).zip(lanes) {
                let lane = |at: usize| [value[at].to_bits(), second[at].to_bits()];
                let even = pair.moments(lane(0), lane(2));
                let odd = pair.moments(lane(1), lane(3));
                [*mean, *square] = both.moments(even, odd);
            }
        }
    }

    /// Returns the partial result of one thread, lane by lane.
    #[inline(always)]
    fn mixed(&self, fold: Fold, thread: usize) -> State {
        let lane = |at: usize| {
            let elements = || self.elements.iter().skip(thread * PACK + at).step_by(BLOCK_LANES).map(&self.element);
            let Some(first) = elements().next() else { return State::default() };
            let (mut count, mut value, mut sum, mut second) = (0u64, 0.0f64, 0.0f64, 0.0f64);
            for x in elements() {
                let distance = x - first;
                count += 1;
                value += x;
                sum += distance;
                second += distance * distance;
            }
            if fold.accumulator == Accumulator::Sum {
                return State([value.to_bits(), count, 0]);
            }
            let shift = if count == 1 { sum } else { sum / count as f64 };
            State([(first + shift).to_bits(), count, (second - sum * shift).to_bits()])
        };
        let merge = |own: State, other: State| fold.accumulator.merge(fold.wide, own, other);
        merge(merge(lane(0), lane(2)), merge(lane(1), lane(3)))
    }
}
