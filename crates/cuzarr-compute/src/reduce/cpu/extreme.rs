//! Searches packed elements for the smallest or largest one, in the elements' own type.
//!
//! The result is the first of equal elements. A NaN goes before all others, or is left out. So the result does not depend
//! on the order of the search, and is that of the lanes of a GPU. `0.0` and `-0.0` are equal.
//!
//! A row is searched twice: for the best value, then for its first place. The second search ends at the first hit, and
//! finds the elements in the cache.

use cuzarr_device::DType;

use crate::reduce::state::{Accumulator, Fold, State};

/// Number of elements that are compared side by side.
const LANES: usize = 32;

/// A number type whose elements have `N` bytes.
trait Ordered<const N: usize>: Copy + PartialOrd {
    /// Not larger than any number.
    const LEAST: Self;
    /// Not smaller than any number.
    const GREATEST: Self;
    /// Whether the type has NaN.
    const HAS_NAN: bool;
    /// An integer that counts elements. It is as wide as an element, so that vectors of both have as many lanes.
    type Flag: Copy + Default + std::ops::AddAssign + Into<u64>;
    fn of(bytes: [u8; N]) -> Self;
    /// Returns 1 for NaN, else 0.
    fn nan_flag(self) -> Self::Flag;
    fn is_nan(self) -> bool;
    /// Returns the word of a partial result: the number in the widest type of its kind.
    fn word(self) -> u64;

    /// Whether this number replaces `other` as the smallest or largest one.
    #[inline(always)]
    fn replaces<const LEAST: bool>(self, other: Self) -> bool {
        if LEAST { self < other } else { other < self }
    }
}

macro_rules! whole_numbers {
    ($($name:ident $wide:ident;)*) => {$(
        impl Ordered<{ size_of::<$name>() }> for $name {
            const LEAST: Self = $name::MIN;
            const GREATEST: Self = $name::MAX;
            const HAS_NAN: bool = false;
            type Flag = u8;
            #[inline(always)]
            fn of(bytes: [u8; size_of::<$name>()]) -> Self { $name::from_ne_bytes(bytes) }
            #[inline(always)]
            fn nan_flag(self) -> u8 { 0 }
            #[inline(always)]
            fn is_nan(self) -> bool { false }
            #[inline(always)]
            fn word(self) -> u64 { $wide::from(self) as u64 }
        }
    )*};
}

whole_numbers! { i8 i64; i16 i64; i32 i64; i64 i64; u8 u64; u16 u64; u32 u64; u64 u64; }

macro_rules! floats {
    ($($name:ident $flag:ident;)*) => {$(
        impl Ordered<{ size_of::<$name>() }> for $name {
            const LEAST: Self = $name::NEG_INFINITY;
            const GREATEST: Self = $name::INFINITY;
            const HAS_NAN: bool = true;
            type Flag = $flag;
            #[inline(always)]
            fn of(bytes: [u8; size_of::<$name>()]) -> Self { $name::from_ne_bytes(bytes) }
            #[inline(always)]
            fn nan_flag(self) -> $flag { $flag::from(self.is_nan()) }
            #[inline(always)]
            fn is_nan(self) -> bool { self.is_nan() }
            #[inline(always)]
            fn word(self) -> u64 { f64::from(self).to_bits() }
        }
    )*};
}

floats! { f32 u32; f64 u64; }

/// Calls a function with the type of `dtype`, or returns `None`.
macro_rules! with_ordered {
    ($dtype:expr, $least:expr, $function:ident($($argument:expr),*)) => {
        match ($dtype, $least) {
            (DType::INT8, true) => Some($function::<i8, 1, true>($($argument),*)),
            (DType::INT8, false) => Some($function::<i8, 1, false>($($argument),*)),
            (DType::INT16, true) => Some($function::<i16, 2, true>($($argument),*)),
            (DType::INT16, false) => Some($function::<i16, 2, false>($($argument),*)),
            (DType::INT32, true) => Some($function::<i32, 4, true>($($argument),*)),
            (DType::INT32, false) => Some($function::<i32, 4, false>($($argument),*)),
            (DType::INT64, true) => Some($function::<i64, 8, true>($($argument),*)),
            (DType::INT64, false) => Some($function::<i64, 8, false>($($argument),*)),
            (DType::UINT8, true) => Some($function::<u8, 1, true>($($argument),*)),
            (DType::UINT8, false) => Some($function::<u8, 1, false>($($argument),*)),
            (DType::UINT16, true) => Some($function::<u16, 2, true>($($argument),*)),
            (DType::UINT16, false) => Some($function::<u16, 2, false>($($argument),*)),
            (DType::UINT32, true) => Some($function::<u32, 4, true>($($argument),*)),
            (DType::UINT32, false) => Some($function::<u32, 4, false>($($argument),*)),
            (DType::UINT64, true) => Some($function::<u64, 8, true>($($argument),*)),
            (DType::UINT64, false) => Some($function::<u64, 8, false>($($argument),*)),
            (DType::FLOAT32, true) => Some($function::<f32, 4, true>($($argument),*)),
            (DType::FLOAT32, false) => Some($function::<f32, 4, false>($($argument),*)),
            (DType::FLOAT64, true) => Some($function::<f64, 8, true>($($argument),*)),
            (DType::FLOAT64, false) => Some($function::<f64, 8, false>($($argument),*)),
            _ => None,
        }
    };
}

/// Whether a reduction is searched for here: an extreme of all elements. `Some(true)` means the smallest.
#[inline(always)]
pub(super) fn is_least(fold: Fold) -> Option<bool> {
    match fold.accumulator {
        Accumulator::Least => Some(true),
        Accumulator::Greatest => Some(false),
        _ => None,
    }
}

/// Returns the extreme of packed elements with its first place. `None` for another reduction or type.
#[inline(always)]
pub(super) fn first_of(fold: Fold, dtype: DType, packed: &[u8]) -> Option<State> {
    let least = is_least(fold)?;
    with_ordered!(dtype, least, first(packed, fold.skip_nan))
}

/// Returns the extreme of each column of some rows of `count` packed elements, with its first row. `None` for another
/// reduction or type. There must be a row.
#[inline(always)]
pub(super) fn first_of_columns<'a>(
    fold: Fold,
    dtype: DType,
    count: usize,
    rows: impl ExactSizeIterator<Item = &'a [u8]>,
) -> Option<Vec<State>> {
    let least = is_least(fold)?;
    match fold.skip_nan {
        true => with_ordered!(dtype, least, numbers_of_columns(count, rows)),
        false => with_ordered!(dtype, least, columns(count, rows)),
    }
}

#[inline(always)]
fn first<T: Ordered<N>, const N: usize, const LEAST: bool>(packed: &[u8], skip_nan: bool) -> State {
    let elements = packed.as_chunks::<N>().0;
    let (best, nans) = best::<T, N, LEAST>(elements);
    let count = elements.len() as u64 - if skip_nan { nans } else { 0 };
    let at = match nans > 0 && !skip_nan {
        true => position(elements, |element| T::of(element).is_nan()),
        false => position(elements, |element| T::of(element) == best),
    };
    match elements.get(at) {
        Some(&element) if count > 0 => State([T::of(element).word(), count, at as u64]),
        _ => State::default(),
    }
}

/// Returns the best of all elements except NaN, and the number of NaNs.
#[inline(always)]
fn best<T: Ordered<N>, const N: usize, const LEAST: bool>(elements: &[[u8; N]]) -> (T, u64) {
    let worst = if LEAST { T::GREATEST } else { T::LEAST };
    let (mut lanes, mut flags) = ([worst; LANES], [T::Flag::default(); LANES]);
    let mut take = |row: &[[u8; N]]| {
        for ((lane, flag), &element) in lanes.iter_mut().zip(&mut flags).zip(row) {
            let x = T::of(element);
            *lane = if x.replaces::<LEAST>(*lane) { x } else { *lane };
            *flag += x.nan_flag();
        }
    };
    let (rows, rest) = elements.as_chunks::<LANES>();
    rows.iter().for_each(|row| take(row));
    take(rest);
    let best = lanes.into_iter().fold(worst, |best, x| if x.replaces::<LEAST>(best) { x } else { best });
    (best, flags.into_iter().map(Into::into).sum())
}

/// Returns the place of the first element that `is_it` accepts.
#[inline(always)]
fn position<const N: usize>(elements: &[[u8; N]], is_it: impl Fn([u8; N]) -> bool) -> usize {
    let block = elements
        .chunks(4 * LANES)
        .position(|block| block.iter().fold(false, |found, &element| found | is_it(element)))
        .unwrap_or_default();
    let first = block * 4 * LANES;
    first + elements[first..].iter().position(|&element| is_it(element)).unwrap_or_default()
}

#[inline(always)]
fn columns<'a, T: Ordered<N>, const N: usize, const LEAST: bool>(
    count: usize,
    rows: impl ExactSizeIterator<Item = &'a [u8]>,
) -> Vec<State> {
    let worst = if LEAST { T::GREATEST } else { T::LEAST };
    let (mut best, mut places, steps) = (vec![worst; count], vec![0u32; count], rows.len() as u64);
    let mut rows = rows.map(|row| row.as_chunks::<N>().0);
    let mut first = 0u32;
    while let Some(a) = rows.next() {
        // A row that is taken again changes nothing.
        let b = rows.next().unwrap_or(a);
        let c = rows.next().unwrap_or(b);
        let d = rows.next().unwrap_or(c);
        // Four rows at once: processors read them at the same time, and the best elements stay in registers. Selecting
        // between one new element and the one in memory would become a masked store, which is slow on some of them.
        let elements = a.iter().zip(b).zip(c.iter().zip(d));
        for ((best, place), ((&a, &b), (&c, &d))) in best.iter_mut().zip(&mut places).zip(elements) {
            let (mut own, mut at) = (*best, *place);
            for (step, element) in (first..).zip([a, b, c, d]) {
                let x = T::of(element);
                // Without branches, so that loops can use vector instructions.
                let wins = x.replaces::<LEAST>(own) | (x.is_nan() & !own.is_nan());
                own = if wins { x } else { own };
                at = if wins { step } else { at };
            }
            (*best, *place) = (own, at);
        }
        first += 4;
    }
    let states = best.iter().zip(&places);
    states.map(|(best, &place)| State([best.word(), steps, u64::from(place)])).collect()
}

/// Like [`columns`], but leaves out NaN.
#[inline(always)]
fn numbers_of_columns<'a, T: Ordered<N>, const N: usize, const LEAST: bool>(
    count: usize,
    rows: impl ExactSizeIterator<Item = &'a [u8]>,
) -> Vec<State> {
    if !T::HAS_NAN {
        return columns::<T, N, LEAST>(count, rows);
    }
    let worst = if LEAST { T::GREATEST } else { T::LEAST };
    let (mut best, mut places, mut numbers) = (vec![worst; count], vec![0u32; count], vec![0u32; count]);
    let take = |(best, place, numbers): (T, u32, u32), (step, element): (u32, [u8; N])| {
        let x = T::of(element);
        let is_number = !x.is_nan();
        let wins = x.replaces::<LEAST>(best) | (is_number & (numbers == 0));
        (if wins { x } else { best }, if wins { step } else { place }, numbers + u32::from(is_number))
    };
    let rows: Vec<&[[u8; N]]> = rows.map(|row| row.as_chunks().0).collect();
    let (fours, rest) = rows.as_chunks();
    for ([a, b, c, d], first) in fours.iter().zip((0..).step_by(4)) {
        let found = best.iter_mut().zip(places.iter_mut().zip(&mut numbers));
        for ((best, (place, numbers)), ((&a, &b), (&c, &d))) in found.zip(a.iter().zip(*b).zip(c.iter().zip(*d))) {
            (*best, *place, *numbers) = (first..).zip([a, b, c, d]).fold((*best, *place, *numbers), take);
        }
    }
    for (step, row) in (4 * fours.len() as u32..).zip(rest) {
        let found = best.iter_mut().zip(places.iter_mut().zip(&mut numbers));
        for ((best, (place, numbers)), &element) in found.zip(*row) {
            (*best, *place, *numbers) = take((*best, *place, *numbers), (step, element));
        }
    }
    let state = |((best, place), numbers): ((T, u32), u32)| match numbers {
        0 => State::default(),
        _ => State([best.word(), numbers.into(), place.into()]),
    };
    best.into_iter().zip(places).zip(numbers).map(state).collect()
}
