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
    if fold.accumulator != Accumulator::Sum || fold.skip_nan {
        return None;
    }
    match dtype {
        DType::FLOAT32 => Some(columns(count, rows, |element| f32::from_ne_bytes(element).into())),
        DType::FLOAT64 => Some(columns(count, rows, f64::from_ne_bytes)),
        _ => None,
    }
}

#[inline(always)]
fn columns<'a, const N: usize>(
    count: usize,
    rows: impl Iterator<Item = &'a [u8]>,
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
