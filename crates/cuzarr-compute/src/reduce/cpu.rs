//! Reduces arrays in host memory, for example to sums. They use the same segments, lanes and steps as a GPU, one row of
//! lanes at a time. All loops over lanes are simple enough for compilers to use vector instructions.

use std::ops::Range;

use cuzarr_device::NdBuffer;
use cuzarr_device::internal::Threads;
use cuzarr_device::internal::cpu::cast;

use super::state::{Accumulator, Fold, Joint, State, Value, Wide, beats};
use super::view::{self, BLOCK_LANES, BLOCK_THREADS, PACK, THREAD_STEPS, View};
use cuzarr::Result;

/// Largest number of jobs (segments or tiles) that a thread takes at once, even if they have fewer than
/// [`ELEMS_AT_ONCE`] elements.
const JOBS_AT_ONCE: usize = 4096;
const ELEMS_AT_ONCE: usize = 1 << 16;

/// Reduces each segment of the input to a partial result, on the CPU. The results of segments of one result element lie
/// together.
///
/// # Errors
/// `MemorySpace` for memory of another device.
pub(crate) fn states(source: &NdBuffer, view: &View, fold: Fold, threads: usize) -> Result<Vec<State>> {
    let bytes = source.buffer().host_bytes()?;
    let walk = RowWalk { bytes: &bytes, source, view, fold };
    match fold.wide {
        Wide::Signed => walk.states::<i64>(threads),
        Wide::Unsigned => walk.states::<u64>(threads),
        Wide::Float | Wide::Complex => walk.states::<f64>(threads),
    }
}

/// A reduction that runs on the CPU: it loads the elements of segments row by row, and reduces them. A row consists of
/// the lanes of one segment, or of neighbouring elements of the result.
struct RowWalk<'a> {
    bytes: &'a [u8],
    source: &'a NdBuffer,
    view: &'a View,
    fold: Fold,
}

impl RowWalk<'_> {
    fn states<V: Value>(&self, threads: usize) -> Result<Vec<State>> {
        let view = self.view;
        let mut states = vec![self.fold.accumulator.empty(self.fold.wide); view.outputs * view.segments];
        let tiles = view.outputs.div_ceil(BLOCK_LANES);
        let jobs = if view.by_blocks { states.len() } else { tiles * view.segments };
        let job_elems = self.source.len().div_ceil(jobs.max(1)).max(1);
        let at_once = ELEMS_AT_ONCE.div_ceil(job_elems).min(JOBS_AT_ONCE);
        let workers = Threads::workers();
        if view.by_blocks {
            let several = states.chunks_mut(at_once).enumerate();
            let done = workers.map(threads, several, |(number, states)| {
                let mut row = Row::<V>::default();
                let jobs = number * at_once..number * at_once + states.len();
                jobs.zip(states).try_for_each(|(job, state)| self.block(job, &mut row).map(|found| *state = found))
            });
            done.into_iter().collect::<Result<()>>()?;
            return Ok(states);
        }
        let several = (0..jobs).step_by(at_once).map(|first| first..jobs.min(first + at_once));
        let answers = workers.map(threads, several, |jobs: Range<usize>| {
            let mut row = Row::<V>::default();
            jobs.map(|job| self.tile(job, &mut row)).collect::<Result<Vec<_>>>()
        });
        let answers: Vec<_> = answers.into_iter().collect::<Result<_>>()?;
        for (job, row) in answers.into_iter().flatten().enumerate() {
            let (tile, segment) = (job / view.segments, job % view.segments);
            for (at, state) in row.into_iter().enumerate() {
                states[(tile * BLOCK_LANES + at) * view.segments + segment] = state;
            }
        }
        Ok(states)
    }

    /// Reduces one segment, whose elements go in turn to the lanes of a simulated GPU block. Merges the lanes of each
    /// thread, then the threads.
    fn block<V: Value>(&self, job: usize, row: &mut Row<V>) -> Result<State> {
        let view = self.view;
        let base = view.kept_offset(job / view.segments);
        let first = job % view.segments * BLOCK_THREADS * THREAD_STEPS;
        let end = view.reduced.min(first + BLOCK_THREADS * THREAD_STEPS);
        row.lanes.reset(self.fold, BLOCK_LANES.min(end.saturating_sub(first)));
        for at in (first..end).step_by(BLOCK_LANES) {
            let count = BLOCK_LANES.min(end - at);
            let offset = |lane: usize| base + view.reduced_offset(at + lane);
            self.load(count, view.over.even(), offset, row)?;
            row.lanes.take(&row.values, &row.seconds, at as u64, 1);
        }
        row.lanes.settle(self.fold, &mut row.settled);
        Ok(row.settled.joined(self.fold, (end - first) as u64, &mut row.columns))
    }

    /// Reduces one segment for each of several neighbouring elements of the result.
    fn tile<V: Value>(&self, job: usize, row: &mut Row<V>) -> Result<Vec<State>> {
        let view = self.view;
        let outputs = job / view.segments * BLOCK_LANES;
        let count = BLOCK_LANES.min(view.outputs - outputs);
        let first = job % view.segments * THREAD_STEPS;
        row.lanes.reset(self.fold, count);
        let bases: Vec<isize> = (outputs..outputs + count).map(|output| view.kept_offset(output)).collect();
        for at in first..view.reduced.min(first + THREAD_STEPS) {
            let step = view.reduced_offset(at);
            self.load(count, view.kept.even(), |lane| bases[lane] + step, row)?;
            row.lanes.take(&row.values, &row.seconds, at as u64, 0);
        }
        row.lanes.settle(self.fold, &mut row.settled);
        Ok(row.settled.all(row.lanes.rows))
    }

    /// Loads a row of elements, and converts it to the widest type of the elements' kind, such as float64. `even` is
    /// the distance between two of them if it is always the same.
    fn load<V: Value>(
        &self,
        count: usize,
        even: Option<isize>,
        offset: impl Fn(usize) -> isize,
        row: &mut Row<V>,
    ) -> Result<()> {
        let dtype = self.source.dtype();
        let size = dtype.size_bytes();
        let origin = self.source.layout().offset_bytes();
        let is_packed = even == Some(size as isize);
        if !is_packed {
            row.packed.resize(count * size, 0);
            for (lane, element) in row.packed.chunks_exact_mut(size).enumerate() {
                let from = origin.wrapping_add_signed(offset(lane));
                element.copy_from_slice(&self.bytes[from..from + size]);
            }
        }
        let from = origin.wrapping_add_signed(offset(0));
        let packed = if is_packed { &self.bytes[from..from + count * size] } else { &row.packed[..] };
        row.values.resize(count, V::ZERO);
        if V::widen(dtype, packed, &mut row.values) {
            return Ok(());
        }
        let wide = view::wide_type(self.fold.wide);
        row.wide.resize(count * wide.size_bytes(), 0);
        cast::cast(dtype, wide, packed, &mut row.wide)?;
        let words = row.wide.as_chunks::<8>().0;
        if self.fold.wide != Wide::Complex {
            words
                .iter()
                .zip(&mut row.values)
                .for_each(|(&word, value)| *value = V::from_word(u64::from_ne_bytes(word)));
            return Ok(());
        }
        row.seconds.resize(count, 0.0);
        for ((parts, value), second) in words.as_chunks::<2>().0.iter().zip(&mut row.values).zip(&mut row.seconds) {
            *value = V::from_word(u64::from_ne_bytes(parts[0]));
            *second = f64::from_ne_bytes(parts[1]);
        }
        Ok(())
    }
}

/// The memory in which one thread keeps a row of elements and the lanes that reduce them.
struct Row<V> {
    packed: Vec<u8>,
    wide: Vec<u8>,
    values: Vec<V>,
    /// Imaginary parts of the row's elements, if they are complex; empty for other types.
    seconds: Vec<f64>,
    lanes: Lanes<V>,
    settled: Settled,
    columns: [Settled; PACK],
}

impl<V: Value> Default for Row<V> {
    fn default() -> Self {
        let (packed, wide, values, seconds, settled, columns) = Default::default();
        Row { packed, wide, values, seconds, lanes: Lanes::default(), settled, columns }
    }
}

/// Partial results, one in each lane; each lane reduces some of the elements.
struct Lanes<V> {
    accumulator: Accumulator,
    skip_nan: bool,
    /// Number of rows that gave every lane an element.
    rows: u64,
    /// Number of lanes to which a last, shorter row gave one element more.
    rest: usize,
    values: Vec<V>,
    seconds: Vec<f64>,
    sums: Vec<f64>,
    places: Vec<u64>,
    /// Number of elements that each lane has taken, if NaN elements are left out.
    counts: Vec<u64>,
}

impl<V: Value> Default for Lanes<V> {
    fn default() -> Self {
        let (accumulator, skip_nan, rows, rest) = (Accumulator::Sum, false, 0, 0);
        let (values, seconds, sums, places, counts) = Default::default();
        Lanes { accumulator, skip_nan, rows, rest, values, seconds, sums, places, counts }
    }
}

fn refill<T: Copy>(lanes: &mut Vec<T>, width: usize, value: T) {
    lanes.clear();
    lanes.resize(width, value);
}

impl<V: Value> Lanes<V> {
    fn reset(&mut self, fold: Fold, width: usize) {
        (self.accumulator, self.skip_nan, self.rows, self.rest) = (fold.accumulator, fold.skip_nan, 0, 0);
        refill(&mut self.values, width, if fold.accumulator == Accumulator::Product { V::ONE } else { V::ZERO });
        refill(&mut self.counts, width, 0);
        refill(&mut self.seconds, width, 0.0);
        refill(&mut self.sums, width, 0.0);
        refill(&mut self.places, width, 0);
    }

    /// Adds the elements of `row` to the lanes, one to each, from the first lane on. The element of the first lane has
    /// number `at`, and the numbers of neighbours differ by `step`.
    fn take(&mut self, row: &[V], seconds: &[f64], at: u64, step: u64) {
        if self.skip_nan {
            self.take_numbers(row, seconds, at, step);
            return;
        }
        let is_first = self.rows == 0;
        match row.len() == self.values.len() {
            true => self.rows += 1,
            false => self.rest = row.len(),
        }
        let lanes = self.values.iter_mut().zip(row);
        match self.accumulator {
            Accumulator::Sum => {
                lanes.for_each(|(value, &x)| *value = value.add(x));
                self.seconds.iter_mut().zip(seconds).for_each(|(second, &x)| *second += x);
            }
            Accumulator::Product => lanes.for_each(|(value, &x)| *value = value.multiply(x)),
            Accumulator::Count if seconds.is_empty() => {
                self.places.iter_mut().zip(row).for_each(|(count, x)| *count += u64::from(!x.is_zero()));
            }
            Accumulator::Count => {
                let parts = row.iter().zip(seconds);
                let is_not_zero = |(x, second): (&V, &f64)| !x.is_zero() || *second != 0.0;
                self.places.iter_mut().zip(parts).for_each(|(count, parts)| *count += u64::from(is_not_zero(parts)));
            }
            Accumulator::Moments => {
                if is_first {
                    self.values[..row.len()].copy_from_slice(row);
                }
                let sums = self.sums.iter_mut().zip(&mut self.seconds);
                for ((value, x), (sum, second)) in self.values.iter().zip(row).zip(sums) {
                    let distance = x.float() - value.float();
                    *sum += distance;
                    *second += distance * distance;
                }
            }
            Accumulator::Least | Accumulator::Greatest if is_first => {
                self.values[..row.len()].copy_from_slice(row);
                (0..).zip(&mut self.places[..row.len()]).for_each(|(lane, place): (u64, _)| *place = at + lane * step);
            }
            Accumulator::Least => self.extremes(row, at, step, |x, y| beats(x, y, true)),
            Accumulator::Greatest => self.extremes(row, at, step, |x, y| beats(x, y, false)),
        }
    }

    #[inline(always)]
    fn extremes(&mut self, row: &[V], at: u64, step: u64, beats: impl Fn(V, V) -> bool) {
        let mut number = at;
        for ((value, place), &x) in self.values.iter_mut().zip(&mut self.places).zip(row) {
            let wins = beats(x, *value);
            *value = if wins { x } else { *value };
            *place = if wins { number } else { *place };
            number += step;
        }
    }

    /// Like [`Lanes::take`], but without NaN elements.
    fn take_numbers(&mut self, row: &[V], seconds: &[f64], at: u64, step: u64) {
        let second = |lane: usize| seconds.get(lane).copied().unwrap_or_default();
        if self.accumulator == Accumulator::Sum && seconds.is_empty() {
            for ((value, count), &x) in self.values.iter_mut().zip(&mut self.counts).zip(row) {
                let is_number = !x.is_nan();
                *value = if is_number { value.add(x) } else { *value };
                *count += u64::from(is_number);
            }
            return;
        }
        for (lane, &x) in row.iter().enumerate().filter(|(lane, x)| !x.is_nan() && !second(*lane).is_nan()) {
            let (value, place) = (&mut self.values[lane], at + lane as u64 * step);
            match self.accumulator {
                Accumulator::Sum => {
                    *value = value.add(x);
                    self.seconds[lane] += second(lane);
                }
                Accumulator::Product => *value = value.multiply(x),
                Accumulator::Count => self.places[lane] += u64::from(!x.is_zero() || second(lane) != 0.0),
                Accumulator::Moments => {
                    if self.counts[lane] == 0 {
                        *value = x;
                    }
                    let distance = x.float() - value.float();
                    self.sums[lane] += distance;
                    self.seconds[lane] += distance * distance;
                }
                Accumulator::Least | Accumulator::Greatest => {
                    let least = self.accumulator == Accumulator::Least;
                    if self.counts[lane] == 0 || beats(x, *value, least) {
                        (*value, self.places[lane]) = (x, place);
                    }
                }
            }
            self.counts[lane] += 1;
        }
    }

    /// Writes the partial result of each lane to `settled`. Words that are 0 everywhere, and counts that follow from
    /// the number of elements, are left out.
    fn settle(&mut self, fold: Fold, settled: &mut Settled) {
        let [first, counts, third] = &mut settled.0;
        [&mut *first, &mut *counts, &mut *third].into_iter().for_each(|words| words.clear());
        let needs_counts =
            matches!(fold.accumulator, Accumulator::Moments | Accumulator::Least | Accumulator::Greatest);
        if self.skip_nan {
            counts.extend_from_slice(&self.counts);
        } else if needs_counts {
            counts.resize(self.values.len(), self.rows);
            counts[..self.rest].iter_mut().for_each(|count| *count += 1);
        }
        match fold.accumulator {
            Accumulator::Count => first.extend_from_slice(&self.places),
            Accumulator::Moments => self.moments(counts, first, third),
            _ => first.extend(self.values.iter().map(|value| value.word())),
        }
        match fold.accumulator {
            Accumulator::Least | Accumulator::Greatest => third.extend_from_slice(&self.places),
            Accumulator::Sum if fold.wide == Wide::Complex => {
                third.extend(self.seconds.iter().map(|second| second.to_bits()));
            }
            _ => {}
        }
    }

    fn moments(&self, counts: &[u64], means: &mut Vec<u64>, squares: &mut Vec<u64>) {
        let parts = self.values.iter().zip(counts).zip(self.sums.iter().zip(&self.seconds));
        for ((value, &count), (&sum, &second)) in parts {
            let shift = if count == 1 { sum } else { sum / count as f64 };
            let state = if count == 0 { (0.0, 0.0) } else { (value.float() + shift, second - sum * shift) };
            means.push(state.0.to_bits());
            squares.push(state.1.to_bits());
        }
    }
}

/// The partial results of all lanes, word by word: the first words of all, then the second and the third words. Words
/// that are the same for all lanes may be left out ([`Lanes::settle`]).
#[derive(Default)]
struct Settled([Vec<u64>; 3]);

impl Settled {
    /// Returns the partial result of one lane. `count` is its number of elements if counts were left out.
    fn get(&self, lane: usize, count: u64) -> State {
        let [first, counts, third] = &self.0;
        let word = |words: &[u64], other: u64| words.get(lane).copied().unwrap_or(other);
        State([word(first, 0), word(counts, count), word(third, 0)])
    }

    fn all(&self, count: u64) -> Vec<State> {
        (0..self.0[0].len()).map(|lane| self.get(lane, count)).collect()
    }

    /// Merges the partial results of all lanes, which have taken `count` elements: first those of each thread, then the
    /// threads'. Each time the upper half is merged into the lower half. Lanes that are not there have taken no
    /// element, and merging them would change nothing.
    fn joined(&mut self, fold: Fold, count: u64, columns: &mut [Settled; PACK]) -> State {
        let empty = fold.accumulator.empty(fold.wide);
        let mut threads = self.0[0].len().div_ceil(PACK);
        for (at, (words, &word)) in self.0.iter_mut().zip(&empty.0).enumerate() {
            columns.iter_mut().for_each(|column| column.0[at].clear());
            if !words.is_empty() {
                words.resize(threads * PACK, word);
            }
            for lanes in words.as_chunks::<PACK>().0 {
                columns.iter_mut().zip(lanes).for_each(|(column, &word)| column.0[at].push(word));
            }
        }
        let mut half = PACK / 2;
        while half > 0 {
            let (own, other) = columns.split_at_mut(half);
            own.iter_mut().zip(other).for_each(|(own, other)| {
                let ([a, b, c], [d, e, f]) = (&mut own.0, &other.0);
                fold.merge_all([a, b, c], [d, e, f]);
            });
            half /= 2;
        }
        let first = &mut columns[0];
        let mut half = BLOCK_THREADS / 2;
        while half > 0 {
            if threads > half {
                let [a, b, c] = &mut first.0;
                let ((a, d), (b, e), (c, f)) = (split(a, half), split(b, half), split(c, half));
                fold.merge_all([a, b, c], [d, e, f]);
                first.0.iter_mut().for_each(|words| words.truncate(half));
                threads = half;
            }
            half /= 2;
        }
        if threads == 0 { empty } else { first.get(0, count) }
    }
}

/// Pairs words with those that lie `half` words further: returns the first words of the pairs, and the second ones.
fn split(words: &mut [u64], half: usize) -> (&mut [u64], &[u64]) {
    let (low, high) = words.split_at_mut(half.min(words.len()));
    let count = high.len();
    (&mut low[..count], high)
}

impl Fold {
    /// Merges each partial result in `other` into the one at the same index in `own`, as [`Accumulator::merge`] does
    /// for one pair.
    fn merge_all(self, own: [&mut [u64]; 3], other: [&[u64]; 3]) {
        let ([a, counts, c], [b, other_counts, d]) = (own, other);
        match (self.accumulator, self.wide) {
            (Accumulator::Sum, Wide::Signed | Wide::Unsigned) | (Accumulator::Count, _) => {
                a.iter_mut().zip(b).for_each(|(a, &b)| *a = a.wrapping_add(b));
            }
            (Accumulator::Product, Wide::Signed | Wide::Unsigned) => {
                a.iter_mut().zip(b).for_each(|(a, &b)| *a = a.wrapping_mul(b));
            }
            (Accumulator::Product, _) => {
                let multiply = |(a, &b): (&mut u64, &u64)| *a = (f64::from_bits(*a) * f64::from_bits(b)).to_bits();
                a.iter_mut().zip(b).for_each(multiply);
            }
            (Accumulator::Sum, wide) => {
                let add = |(a, &b): (&mut u64, &u64)| *a = (f64::from_bits(*a) + f64::from_bits(b)).to_bits();
                a.iter_mut().zip(b).for_each(add);
                if wide == Wide::Complex {
                    c.iter_mut().zip(d).for_each(add);
                }
            }
            (accumulator, wide) => match (equal_count(counts), equal_count(other_counts)) {
                (Some(own), Some(other)) if accumulator == Accumulator::Moments => {
                    let joint = Joint::new(own, other);
                    for ((a, &b), (c, &d)) in a.iter_mut().zip(b).zip(c.iter_mut().zip(d)) {
                        [*a, *c] = joint.moments([*a, *c], [b, d]);
                    }
                }
                _ => {
                    for lane in 0..a.len() {
                        let own = State([a[lane], counts[lane], c[lane]]);
                        let other = State([b[lane], other_counts[lane], d[lane]]);
                        [a[lane], counts[lane], c[lane]] = accumulator.merge(wide, own, other).0;
                    }
                    return;
                }
            },
        }
        counts.iter_mut().zip(other_counts).for_each(|(count, other)| *count += other);
    }
}

/// The number of elements of each lane, if all lanes have the same number and it is not 0.
fn equal_count(counts: &[u64]) -> Option<u64> {
    let first = counts.first().copied().filter(|&first| first > 0)?;
    counts.iter().all(|&count| count == first).then_some(first)
}
