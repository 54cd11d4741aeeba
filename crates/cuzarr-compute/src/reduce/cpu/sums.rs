//! Sums the columns of packed floats, in binary64. Four rows are read at once, so that their sums go through memory only once.

use cuzarr_device::DType;

use crate::reduce::state::{Accumulator, Fold, State};

/// Returns the sum of each column of some rows of `count` packed elements, with the number of rows. Elements are added in
/// the order of the rows. `None` for another reduction or type.
#[inline(always)]
pub(super) fn of_columns<'a>(
    fold: Fold,
    dtype: DType,
    count: usize,
    rows: impl Iterator<Item = &'a [u8]>,
) -> Option<Vec<State>> {
    if fold.accumulator != Accumulator::Sum {
        return None;
    }
    let columns = (count, rows);
    match (dtype, fold.skip_nan) {
        (DType::FLOAT32, false) => Some(sums(columns, |element| f32::from_ne_bytes(element).into())),
        (DType::FLOAT64, false) => Some(sums(columns, f64::from_ne_bytes)),
        (DType::FLOAT32, true) => Some(sums_of_numbers(columns, |element| f32::from_ne_bytes(element).into())),
        (DType::FLOAT64, true) => Some(sums_of_numbers(columns, f64::from_ne_bytes)),
        _ => None,
    }
}

#[inline(always)]
fn sums<'a, const N: usize>(
    (count, rows): (usize, impl Iterator<Item = &'a [u8]>),
    number: impl Fn([u8; N]) -> f64,
) -> Vec<State> {
    let mut sums = vec![0.0; count];
    let rows: Vec<&[[u8; N]]> = rows.map(|row| row.as_chunks().0).collect();
    let (fours, rest) = rows.as_chunks();
    for [a, b, c, d] in fours {
        for (sum, ((&a, &b), (&c, &d))) in sums.iter_mut().zip(a.iter().zip(*b).zip(c.iter().zip(*d))) {
            *sum = *sum + number(a) + number(b) + number(c) + number(d);
        }
    }
    for row in rest {
        sums.iter_mut().zip(*row).for_each(|(sum, &element)| *sum += number(element));
    }
    sums.iter().map(|sum| State([sum.to_bits(), rows.len() as u64, 0])).collect()
}

/// Like [`sums`], but leaves out NaN.
#[inline(always)]
fn sums_of_numbers<'a, const N: usize>(
    (count, rows): (usize, impl Iterator<Item = &'a [u8]>),
    number: impl Fn([u8; N]) -> f64,
) -> Vec<State> {
    let (mut sums, mut numbers) = (vec![0.0; count], vec![0u64; count]);
    // A sum to which -0.0 is added keeps its bits.
    let take = |(sum, numbers): (f64, u64), x: f64| {
        (sum + if x.is_nan() { -0.0 } else { x }, numbers + u64::from(!x.is_nan()))
    };
    let rows: Vec<&[[u8; N]]> = rows.map(|row| row.as_chunks().0).collect();
    let (fours, rest) = rows.as_chunks();
    for [a, b, c, d] in fours {
        let elements = a.iter().zip(*b).zip(c.iter().zip(*d));
        for ((sum, numbers), ((&a, &b), (&c, &d))) in sums.iter_mut().zip(&mut numbers).zip(elements) {
            (*sum, *numbers) = [a, b, c, d].map(&number).into_iter().fold((*sum, *numbers), take);
        }
    }
    for row in rest {
        for ((sum, numbers), &element) in sums.iter_mut().zip(&mut numbers).zip(*row) {
            (*sum, *numbers) = take((*sum, *numbers), number(element));
        }
    }
    sums.into_iter().zip(numbers).map(|(sum, numbers)| State([f64::to_bits(sum), numbers, 0])).collect()
}
