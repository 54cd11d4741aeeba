//! The spread of numbers: counts in bins whose width is a power of two. Bins become wider when the range grows.

use std::collections::BTreeMap;

use cuzarr_device::DType;
use cuzarr_device::internal::cpu::cast;

use crate::count::{KeyKind, Keys};
use cuzarr::Result;

/// Least number of bins in a histogram of all numbers, unless the numbers are too close together. There are at most
/// twice as many bins, plus one.
const LEAST_BINS: f64 = 64.0;

/// A histogram: the number of elements in each bin, whose width is a power of two. Bin `n` begins at `n * width`. The
/// width depends only on the range.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Spread {
    /// The smallest and the largest number of the histogram, if there is one.
    range: Option<(f64, f64)>,
    pub(super) width: f64,
    pub(super) bins: BTreeMap<i64, u64>,
}

impl Spread {
    /// Makes a histogram without counts, for numbers from `low` to `high`.
    pub(super) fn within(low: f64, high: f64) -> Spread {
        Spread { range: Some((low, high)), width: width_for(low, high), bins: BTreeMap::new() }
    }

    /// Returns the indices of the histogram's first and last bin.
    pub(super) fn ends(&self) -> Option<(i64, i64)> {
        // Quotients by powers of two are exact, and below 2^53: see `width_for`.
        self.range.map(|(low, high)| ((low / self.width).floor() as i64, (high / self.width).floor() as i64))
    }

    /// Returns the edges of the bins as keys: the key of each bin's smallest element, then the key of the largest
    /// element. For integers, the last key is that of the type's largest value, because the largest element may lie
    /// above the rounded number.
    ///
    /// # Errors
    /// `Unsupported` for a type without order.
    pub(super) fn edges(&self, keys: Keys, dtype: DType) -> Result<Vec<u64>> {
        let (Some((low, high)), Some((first, last))) = (self.range, self.ends()) else { return Ok(Vec::new()) };
        let inner = (first + 1..=last).map(|bin| bin as f64 * self.width);
        let greatest = match keys.kind {
            KeyKind::Signed | KeyKind::Unsigned => Ok(u64::MAX >> (64 - keys.bits)),
            KeyKind::Float => least_key(keys, dtype, high),
        };
        [low].into_iter().chain(inner).map(|edge| least_key(keys, dtype, edge)).chain([greatest]).collect()
    }

    /// Adds counts to consecutive bins of the histogram, beginning with the first bin.
    pub(super) fn add(&mut self, counts: &[u64]) {
        let first = self.ends().map_or(0, |(first, _)| first);
        for (bin, &count) in (first..).zip(counts).filter(|(_, count)| **count > 0) {
            *self.bins.entry(bin).or_default() += count;
        }
    }

    /// Adds the counts of another histogram to this one.
    pub(super) fn join(&mut self, mut other: Spread) {
        let Some((low, high)) = other.range else { return };
        let (least, greatest) = self.range.unwrap_or((low, high));
        let joint = Spread::within(least.min(low), greatest.max(high));
        if self.range.is_none() {
            self.width = other.width;
        }
        for one in [&mut *self, &mut other] {
            while one.width < joint.width {
                one.widen();
            }
        }
        self.range = joint.range;
        for (bin, count) in other.bins {
            *self.bins.entry(bin).or_default() += count;
        }
    }

    /// Doubles the width of the bins, which joins pairs of bins.
    pub(super) fn widen(&mut self) {
        self.width *= 2.0;
        let mut wide = BTreeMap::new();
        for (bin, count) in std::mem::take(&mut self.bins) {
            *wide.entry(bin.div_euclid(2)).or_default() += count;
        }
        self.bins = wide;
    }
}

/// Returns the width of bins for numbers from `low` to `high`: a power of two. It divides the range into bins, and is
/// not lost when it is added to numbers of this size.
fn width_for(low: f64, high: f64) -> f64 {
    let least = low.abs().max(high.abs()) * f64::EPSILON * 4.0;
    let parts = 2.0 * LEAST_BINS;
    // The difference of both numbers may overflow.
    let wanted = (high / parts - low / parts).max(least);
    if wanted > 0.0 { wanted.log2().ceil().exp2() } else { 1.0 }
}

/// Returns the key of the smallest element of a type that is not below `number`. Such an element must exist.
fn least_key(keys: Keys, dtype: DType, number: f64) -> Result<u64> {
    let mask = u64::MAX >> (64 - keys.bits);
    match keys.kind {
        // Larger numbers become the type's largest value: 64-bit integers may have been rounded up.
        KeyKind::Signed => Ok(keys.key((number.ceil() as i64).cast_unsigned() & mask).unwrap_or(0)),
        KeyKind::Unsigned => Ok(keys.key(number.ceil() as u64).unwrap_or(0)),
        KeyKind::Float => {
            let (mut element, mut back) = (vec![0; dtype.size_bytes()], [0; 8]);
            cast::cast(DType::FLOAT64, dtype, &number.to_ne_bytes(), &mut element)?;
            cast::cast(dtype, DType::FLOAT64, &element, &mut back)?;
            let key = keys.of_element(&element).unwrap_or(0);
            Ok(if f64::from_ne_bytes(back) < number { key + 1 } else { key })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: &[f64]) -> Spread {
        let ends = |fold: fn(f64, f64) -> f64| numbers.iter().copied().reduce(fold).unwrap();
        let mut spread = Spread::within(ends(f64::min), ends(f64::max));
        let (first, last) = spread.ends().unwrap();
        let mut counts = vec![0; (last - first + 1) as usize];
        numbers.iter().for_each(|number| counts[((number / spread.width).floor() as i64 - first) as usize] += 1);
        spread.add(&counts);
        spread
    }

    #[test]
    fn joined_parts_are_what_the_whole_is() {
        let numbers: Vec<f64> = (0..5000)
            .map(|at| (f64::from(at) * 0.37).sin() * 1e3 + f64::from(at % 17) - 1e6 * f64::from(at / 4990))
            .collect();
        for size in [1, 7, 640, 4990] {
            let mut joined = Spread::default();
            numbers.chunks(size).for_each(|part| joined.join(of(part)));
            assert_eq!(joined, of(&numbers), "{size}");
        }
    }

    #[test]
    fn ranges_of_any_size_have_a_width() {
        let greatest = f64::MAX;
        for (low, high) in
            [(-greatest, greatest), (0.0, 5e-324), (1e300, 1e300), (0.0, 0.0), (9e18, 9.1e18), (-3.0, -2.9)]
        {
            let (first, last) = Spread::within(low, high).ends().unwrap();
            assert!((0..=128).contains(&(last - first)), "{low} to {high}: {first} to {last}");
        }
    }

    #[test]
    fn edges_lie_between_the_elements_of_two_bins() {
        for (dtype, number, below, above) in [
            (DType::INT8, 2.5, 2.0, 3.0),
            (DType::INT8, -2.5, -3.0, -2.0),
            (DType::UINT8, 254.0, 253.0, 254.0),
            (DType::FLOAT16, 2049.0, 2048.0, 2050.0),
            (DType::FLOAT32, 16_777_217.0, 16_777_216.0, 16_777_218.0),
            (DType::FLOAT32, -16_777_217.0, -16_777_218.0, -16_777_216.0),
            (DType::INT64, 9_007_199_254_740_994.0, 9_007_199_254_740_992.0, 9_007_199_254_740_994.0),
        ] {
            let keys = Keys::of(dtype).unwrap();
            let edge = least_key(keys, dtype, number).unwrap();
            let key = |number: f64| {
                let mut element = vec![0; dtype.size_bytes()];
                cast::cast(DType::FLOAT64, dtype, &number.to_ne_bytes(), &mut element).unwrap();
                keys.of_element(&element).unwrap()
            };
            assert!(key(below) < edge && edge <= key(above), "{dtype} {number}");
        }
        assert_eq!(least_key(Keys::of(DType::INT64).unwrap(), DType::INT64, 2f64.powi(63)).unwrap(), u64::MAX);
    }
}
