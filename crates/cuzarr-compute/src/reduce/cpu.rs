//! Reduces arrays in host memory, for example to sums. They use the same segments, lanes and steps as a GPU, one row of
//! lanes at a time. All loops over lanes are simple enough for compilers to use vector instructions.
//!
//! Extremes of packed elements are searched in the elements' own type ([`extreme`]). Their partial results do not depend
//! on lanes: they are the best element of a segment, and its first place.

mod extreme;
mod short;
mod sums;

use std::ops::Range;

use cuzarr_device::internal::Threads;
use cuzarr_device::internal::cpu::cast;
use cuzarr_device::internal::cpu::math::{Vectors, widest};
use cuzarr_device::{DType, NdBuffer};

use super::state::{Accumulator, Fold, Joint, State, Value, Wide, beats};
use super::view::{self, BLOCK_LANES, BLOCK_THREADS, PACK, THREAD_STEPS, View};
use cuzarr::Result;

/// Largest number of elements of the result, or of segments, that a thread takes at once, even if they have fewer than
/// [`ELEMS_AT_ONCE`] elements.
const JOBS_AT_ONCE: usize = 4096;
const ELEMS_AT_ONCE: usize = 1 << 16;
/// Least number of jobs for each thread if jobs are elements of the result with all their segments.
const JOBS_OF_THREAD: usize = 4;

/// Reduces an array in host memory: writes the partial result of each element of the result to `states`, in C order.
///
/// # Errors
/// `MemorySpace` for memory of another device.
pub(super) fn states(source: &NdBuffer, view: &View, fold: Fold, threads: usize) -> Result<Vec<State>> {
    let mut states = vec![State::default(); view.outputs];
    reduce(source, view, fold, threads, &mut states, 1, |found, states| {
        states.copy_from_slice(found);
        Ok(())
    })?;
    Ok(states)
}

/// Reduces an array in host memory. `finish` gets partial results of neighbouring elements of the result, and the part of
/// `results` that belongs to them: `each` values for each element.
///
/// # Errors
/// `MemorySpace` for memory of another device; those of `finish`.
pub(super) fn reduce<T: Send>(
    source: &NdBuffer,
    view: &View,
    fold: Fold,
    threads: usize,
    results: &mut [T],
    each: usize,
    finish: impl Fn(&[State], &mut [T]) -> Result<()> + Sync,
) -> Result<()> {
    let bytes = source.buffer().host_bytes()?;
    let walk = RowWalk { bytes: &bytes, source, view, fold };
    match fold.wide {
        Wide::Signed => walk.reduce::<i64, T>(threads, results, each, finish),
        Wide::Unsigned => walk.reduce::<u64, T>(threads, results, each, finish),
        Wide::Float | Wide::Complex => walk.reduce::<f64, T>(threads, results, each, finish),
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
    /// Number of neighbouring elements of the result that are reduced together.
    fn width(&self) -> usize {
        if self.view.by_blocks { 1 } else { BLOCK_LANES }
    }

    fn reduce<V: Value, T: Send>(
        &self,
        threads: usize,
        results: &mut [T],
        each: usize,
        finish: impl Fn(&[State], &mut [T]) -> Result<()> + Sync,
    ) -> Result<()> {
        let (view, width) = (self.view, self.width());
        let tiles = view.outputs.div_ceil(width);
        let tile_elems = (view.reduced * width).max(1);
        if view.segments > 1 && tiles < JOBS_OF_THREAD * threads {
            let found = self.segments::<V>(threads)?;
            let rows = found.chunks(width.min(view.outputs.max(1)) * view.segments);
            return rows.zip(results.chunks_mut(width * each)).try_for_each(|(found, results)| {
                let rows: Vec<&[State]> = found.chunks(found.len() / view.segments).collect();
                finish(&self.joined(&rows), results)
            });
        }
        let at_once = ELEMS_AT_ONCE.div_ceil(tile_elems).min(JOBS_AT_ONCE.div_ceil(width));
        let jobs = results.chunks_mut(at_once * width * each).enumerate();
        let done = Threads::workers().map(threads, jobs, |(number, results)| {
            let (mut row, mut found) = (Row::<V>::default(), Vec::with_capacity(at_once * width));
            for tile in number * at_once..tiles.min((number + 1) * at_once) {
                let mut segments = (0..view.segments).map(|segment| self.tile(tile, segment, &mut row));
                if view.segments == 1 {
                    segments.try_for_each(|states| states.map(|states| found.extend(states)))?;
                    continue;
                }
                let rows = segments.collect::<Result<Vec<_>>>()?;
                found.extend(self.joined(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>()));
            }
            finish(&found, results)
        });
        done.into_iter().collect()
    }

    /// Returns the partial results of all segments. Those of each tile lie together, segment after segment.
    fn segments<V: Value>(&self, threads: usize) -> Result<Vec<State>> {
        let (view, width) = (self.view, self.width());
        let jobs = view.outputs.div_ceil(width) * view.segments;
        let job_elems = self.source.len().div_ceil(jobs.max(1)).max(1);
        let at_once = ELEMS_AT_ONCE.div_ceil(job_elems).min(JOBS_AT_ONCE);
        let several = (0..jobs).step_by(at_once).map(|first| first..jobs.min(first + at_once));
        let found = Threads::workers().map(threads, several, |jobs: Range<usize>| {
            let (mut row, mut found) = (Row::<V>::default(), Vec::new());
            for job in jobs {
                found.extend(self.tile(job / view.segments, job % view.segments, &mut row)?);
            }
            Ok(found)
        });
        found.into_iter().collect::<Result<Vec<_>>>().map(|found| found.concat())
    }

    /// Joins the segments of neighbouring elements of the result pairwise, neighbours first.
    fn joined(&self, segments: &[&[State]]) -> Vec<State> {
        let Fold { accumulator, wide, .. } = self.fold;
        let pair = |pair: &[&[State]]| -> Vec<State> {
            let mut own = pair[0].to_vec();
            if let Some(other) = pair.get(1) {
                own.iter_mut().zip(*other).for_each(|(own, &other)| *own = accumulator.merge(wide, *own, other));
            }
            own
        };
        let mut rows: Vec<Vec<State>> = segments.chunks(2).map(pair).collect();
        while rows.len() > 1 {
            rows = rows.chunks(2).map(|two| pair(&two.iter().map(Vec::as_slice).collect::<Vec<_>>())).collect();
        }
        rows.pop().unwrap_or_default()
    }

    /// Reduces one segment of an element of the result, or of neighbouring ones.
    fn tile<V: Value>(&self, tile: usize, segment: usize, row: &mut Row<V>) -> Result<Vec<State>> {
        if self.view.by_blocks {
            return widest(Block { walk: self, output: tile, segment, row }).map(|state| vec![state]);
        }
        widest(Tile { walk: self, tile, segment, row })
    }

    /// Reduces one segment, whose elements go in turn to the lanes of a simulated GPU block. Merges the lanes of each
    /// thread, then the threads.
    #[inline(always)]
    fn block<V: Value>(&self, output: usize, segment: usize, row: &mut Row<V>) -> Result<State> {
        let view = self.view;
        let base = view.kept_offset(output);
        let first = segment * BLOCK_THREADS * THREAD_STEPS;
        let end = view.reduced.min(first + BLOCK_THREADS * THREAD_STEPS);
        let dtype = self.source.dtype();
        if view.over.even() == Some(dtype.size_bytes() as isize) && first < end {
            let from = self.source.layout().offset_bytes().wrapping_add_signed(base + view.reduced_offset(first));
            let mut packed = &self.bytes[from..from + (end - first) * dtype.size_bytes()];
            let mut dtype = dtype;
            let is_known = extreme::is_least(self.fold).is_some() || short::suits(self.fold, end - first);
            if is_known && matches!(dtype, DType::FLOAT16 | DType::BFLOAT16) {
                // They are exact in float32, which the searches and sums below know.
                row.wide.resize((end - first) * DType::FLOAT32.size_bytes(), 0);
                cast::cast(dtype, DType::FLOAT32, packed, &mut row.wide)?;
                (dtype, packed) = (DType::FLOAT32, &row.wide);
            }
            if let Some(State([word, count, at])) = extreme::first_of(self.fold, dtype, packed) {
                return Ok(State([word, count, first as u64 + at]));
            }
            if short::threads_of(self.fold, dtype, packed, &mut row.columns[0]) {
                return Ok(row.columns[0].joined_threads(self.fold, (end - first) as u64));
            }
        }
        row.lanes.reset(self.fold, BLOCK_LANES.min(end.saturating_sub(first)));
        for at in (first..end).step_by(BLOCK_LANES) {
            let count = BLOCK_LANES.min(end - at);
            let offset = |lane: usize| base + view.reduced_offset(at + lane);
            self.load(count, view.over.even(), offset, row)?;
            row.lanes.take(&row.values, &row.seconds, at as u64, 1);
        }
        row.lanes.settle(self.fold, &mut row.settled);
        Ok(row.settled.joined(self.fold, end.saturating_sub(first) as u64, &mut row.columns))
    }

    /// Reduces one segment for each of several neighbouring elements of the result.
    #[inline(always)]
    fn columns<V: Value>(&self, tile: usize, segment: usize, row: &mut Row<V>) -> Result<Vec<State>> {
        let view = self.view;
        let outputs = tile * BLOCK_LANES;
        let count = BLOCK_LANES.min(view.outputs - outputs);
        let (first, even) = (segment * THREAD_STEPS, view.kept.even());
        let rows = first..view.reduced.min(first + THREAD_STEPS);
        let dtype = self.source.dtype();
        if even == Some(dtype.size_bytes() as isize) && !rows.is_empty() {
            let origin = self.source.layout().offset_bytes().wrapping_add_signed(view.kept_offset(outputs));
            let packed = rows.clone().map(|at| {
                let from = origin.wrapping_add_signed(view.reduced_offset(at));
                &self.bytes[from..from + count * dtype.size_bytes()]
            });
            if let Some(mut found) = extreme::first_of_columns(self.fold, dtype, count, packed.clone()) {
                found.iter_mut().for_each(|state| state.0[2] += first as u64);
                return Ok(found);
            }
            if let Some(found) = sums::of_columns(self.fold, dtype, count, packed) {
                return Ok(found);
            }
        }
        row.lanes.reset(self.fold, count);
        let bases = if even.is_some() { outputs..outputs + 1 } else { outputs..outputs + count };
        let bases: Vec<isize> = bases.map(|output| view.kept_offset(output)).collect();
        for at in rows {
            let step = view.reduced_offset(at);
            let offset = |lane: usize| match even {
                Some(stride) => bases[0] + lane as isize * stride + step,
                None => bases[lane] + step,
            };
            self.load(count, even, offset, row)?;
            row.lanes.take(&row.values, &row.seconds, at as u64, 0);
        }
        row.lanes.settle(self.fold, &mut row.settled);
        Ok(row.settled.all(row.lanes.rows))
    }

    /// Loads a row of elements, and converts it to the widest type of the elements' kind, such as float64. `even` is
    /// the distance between two of them if it is always the same.
    #[inline(always)]
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

/// Work: one segment of one element of the result.
struct Block<'a, 'w, V> {
    walk: &'a RowWalk<'w>,
    output: usize,
    segment: usize,
    row: &'a mut Row<V>,
}

impl<V: Value> Vectors for Block<'_, '_, V> {
    type Output = Result<State>;

    #[inline(always)]
    fn run(self) -> Result<State> {
        self.walk.block(self.output, self.segment, self.row)
    }
}

/// Work: one segment of neighbouring elements of the result.
struct Tile<'a, 'w, V> {
    walk: &'a RowWalk<'w>,
    tile: usize,
    segment: usize,
    row: &'a mut Row<V>,
}

impl<V: Value> Vectors for Tile<'_, '_, V> {
    type Output = Result<Vec<State>>;

    #[inline(always)]
    fn run(self) -> Result<Vec<State>> {
        self.walk.columns(self.tile, self.segment, self.row)
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

#[inline(always)]
fn refill<T: Copy>(lanes: &mut Vec<T>, width: usize, value: T) {
    lanes.clear();
    lanes.resize(width, value);
}

impl<V: Value> Lanes<V> {
    #[inline(always)]
    fn reset(&mut self, fold: Fold, width: usize) {
        (self.accumulator, self.skip_nan, self.rows, self.rest) = (fold.accumulator, fold.skip_nan, 0, 0);
        let accumulator = fold.accumulator;
        let has_moments = accumulator == Accumulator::Moments;
        let places = matches!(accumulator, Accumulator::Count | Accumulator::Least | Accumulator::Greatest);
        let width_if = |is_used: bool| if is_used { width } else { 0 };
        refill(&mut self.values, width, if accumulator == Accumulator::Product { V::ONE } else { V::ZERO });
        refill(&mut self.counts, width_if(fold.skip_nan), 0);
        refill(&mut self.seconds, width_if(has_moments || fold.wide == Wide::Complex), 0.0);
        refill(&mut self.sums, width_if(has_moments), 0.0);
        refill(&mut self.places, width_if(places), 0);
    }

    /// Adds the elements of `row` to the lanes, one to each, from the first lane on. The element of the first lane has
    /// number `at`, and the numbers of neighbours differ by `step`.
    #[inline(always)]
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
                for (value, &x) in lanes {
                    *value = value.add(x);
                }
                for (second, &x) in self.seconds.iter_mut().zip(seconds) {
                    *second += x;
                }
            }
            Accumulator::Product => {
                for (value, &x) in lanes {
                    *value = value.multiply(x);
                }
            }
            Accumulator::Count if seconds.is_empty() => {
                for (count, x) in self.places.iter_mut().zip(row) {
                    *count += u64::from(!x.is_zero());
                }
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
    #[inline(always)]
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
    #[inline(always)]
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
            _ => {
                first.resize(self.values.len(), 0);
                for (word, value) in first.iter_mut().zip(&self.values) {
                    *word = value.word();
                }
            }
        }
        match fold.accumulator {
            Accumulator::Least | Accumulator::Greatest => third.extend_from_slice(&self.places),
            Accumulator::Sum if fold.wide == Wide::Complex => {
                third.extend(self.seconds.iter().map(|second| second.to_bits()));
            }
            _ => {}
        }
    }

    #[inline(always)]
    fn moments(&self, counts: &[u64], means: &mut Vec<u64>, squares: &mut Vec<u64>) {
        means.resize(self.values.len(), 0);
        squares.resize(self.values.len(), 0);
        let parts = self.values.iter().zip(counts).zip(self.sums.iter().zip(&self.seconds));
        for (((value, &count), (&sum, &second)), (mean, square)) in parts.zip(means.iter_mut().zip(squares)) {
            let shift = if count == 1 { sum } else { sum / count as f64 };
            let state = if count == 0 { (0.0, 0.0) } else { (value.float() + shift, second - sum * shift) };
            (*mean, *square) = (state.0.to_bits(), state.1.to_bits());
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

    #[inline(always)]
    fn all(&self, count: u64) -> Vec<State> {
        (0..self.0[0].len()).map(|lane| self.get(lane, count)).collect()
    }

    /// Merges the partial results of all lanes, which have taken `count` elements: first those of each thread, then the
    /// threads'. Each time the upper half is merged into the lower half. Lanes that are not there have taken no
    /// element, and merging them would change nothing.
    #[inline(always)]
    fn joined(&mut self, fold: Fold, count: u64, columns: &mut [Settled; PACK]) -> State {
        let empty = fold.accumulator.empty(fold.wide);
        let threads = self.0[0].len().div_ceil(PACK);
        for (at, (words, &word)) in self.0.iter_mut().zip(&empty.0).enumerate() {
            let count = if words.is_empty() { 0 } else { threads };
            words.resize(count * PACK, word);
            let lanes = words.as_chunks::<PACK>().0;
            for (number, column) in columns.iter_mut().enumerate() {
                column.0[at].resize(count, 0);
                column.0[at].iter_mut().zip(lanes).for_each(|(word, lanes)| *word = lanes[number]);
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
        columns[0].joined_threads(fold, count)
    }

    /// Merges the partial results of threads. Each time the upper half is merged into the lower half.
    #[inline(always)]
    fn joined_threads(&mut self, fold: Fold, count: u64) -> State {
        let mut threads = self.0[0].len();
        if threads == 0 {
            return fold.accumulator.empty(fold.wide);
        }
        let mut half = BLOCK_THREADS / 2;
        while half > 0 {
            if threads > half {
                let [a, b, c] = &mut self.0;
                let ((a, d), (b, e), (c, f)) = (split(a, half), split(b, half), split(c, half));
                fold.merge_all([a, b, c], [d, e, f]);
                self.0.iter_mut().for_each(|words| words.truncate(half));
                threads = half;
            }
            half /= 2;
        }
        self.get(0, count)
    }
}

/// Pairs words with those that lie `half` words further: returns the first words of the pairs, and the second ones.
#[inline(always)]
fn split(words: &mut [u64], half: usize) -> (&mut [u64], &[u64]) {
    let (low, high) = words.split_at_mut(half.min(words.len()));
    let count = high.len();
    (&mut low[..count], high)
}

impl Fold {
    /// Merges each partial result in `other` into the one at the same index in `own`, as [`Accumulator::merge`] does
    /// for one pair.
    #[inline(always)]
    fn merge_all(self, own: [&mut [u64]; 3], other: [&[u64]; 3]) {
        let ([a, counts, c], [b, other_counts, d]) = (own, other);
        match (self.accumulator, self.wide) {
            (Accumulator::Sum, Wide::Signed | Wide::Unsigned) | (Accumulator::Count, _) => {
                for (a, &b) in a.iter_mut().zip(b) {
                    *a = a.wrapping_add(b);
                }
            }
            (Accumulator::Product, Wide::Signed | Wide::Unsigned) => {
                for (a, &b) in a.iter_mut().zip(b) {
                    *a = a.wrapping_mul(b);
                }
            }
            (Accumulator::Product, _) => {
                for (a, &b) in a.iter_mut().zip(b) {
                    *a = (f64::from_bits(*a) * f64::from_bits(b)).to_bits();
                }
            }
            (Accumulator::Sum, wide) => {
                for (a, &b) in a.iter_mut().zip(b) {
                    *a = (f64::from_bits(*a) + f64::from_bits(b)).to_bits();
                }
                let seconds = if wide == Wide::Complex { c.len() } else { 0 };
                for (c, &d) in c[..seconds].iter_mut().zip(d) {
                    *c = (f64::from_bits(*c) + f64::from_bits(d)).to_bits();
                }
            }
            (Accumulator::Moments, _) => {
                let mut lane = 0;
                while lane < a.len() {
                    // Lanes with equal numbers of elements are neighbours, unless elements were left out.
                    let (own, other) = (counts[lane], other_counts[lane]);
                    let same = counts[lane..].iter().zip(&other_counts[lane..]);
                    let end = lane + same.take_while(|&(&one, &two)| (one, two) == (own, other)).count();
                    let lanes = lane..end;
                    lane = end;
                    if other == 0 {
                        continue;
                    }
                    if own == 0 {
                        a[lanes.clone()].copy_from_slice(&b[lanes.clone()]);
                        c[lanes.clone()].copy_from_slice(&d[lanes]);
                        continue;
                    }
                    let joint = Joint::new(own, other);
                    let own = a[lanes.clone()].iter_mut().zip(&mut c[lanes.clone()]);
                    for ((a, c), (&b, &d)) in own.zip(b[lanes.clone()].iter().zip(&d[lanes])) {
                        [*a, *c] = joint.moments([*a, *c], [b, d]);
                    }
                }
            }
            (accumulator, wide) => {
                for lane in 0..a.len() {
                    let own = State([a[lane], counts[lane], c[lane]]);
                    let other = State([b[lane], other_counts[lane], d[lane]]);
                    [a[lane], counts[lane], c[lane]] = accumulator.merge(wide, own, other).0;
                }
                return;
            }
        }
        for (count, other) in counts.iter_mut().zip(other_counts) {
            *count += other;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuzarr_device::{DType, Device, Order};

    /// Reduces the elements of a lane, one after the other, as one GPU thread does (`accumulators.cuh`).
    fn lane(fold: Fold, elements: &[(f64, u64)]) -> State {
        let taken: Vec<(f64, u64)> = elements.iter().copied().filter(|(x, _)| !(fold.skip_nan && x.is_nan())).collect();
        let count = taken.len() as u64;
        let Some(&(first, place)) = taken.first() else { return fold.accumulator.empty(fold.wide) };
        let numbers = || taken.iter().map(|&(x, _)| x);
        match fold.accumulator {
            Accumulator::Sum => State([numbers().fold(0.0, |sum, x| sum + x).to_bits(), count, 0]),
            Accumulator::Product => State([numbers().fold(1.0, |product, x| product * x).to_bits(), count, 0]),
            Accumulator::Count => State([numbers().filter(|&x| x != 0.0).count() as u64, count, 0]),
            Accumulator::Moments => {
                let sum = numbers().fold(0.0, |sum, x| sum + (x - first));
                let squares = numbers().fold(0.0, |sum, x| sum + (x - first) * (x - first));
                let shift = sum / count as f64;
                State([(first + shift).to_bits(), count, (squares - sum * shift).to_bits()])
            }
            Accumulator::Least | Accumulator::Greatest => {
                let least = fold.accumulator == Accumulator::Least;
                let better = |best: (f64, u64), one: (f64, u64)| if beats(one.0, best.0, least) { one } else { best };
                let (best, place) = taken.iter().copied().fold((first, place), better);
                State([best.to_bits(), count, place])
            }
        }
    }

    /// Merges the upper half of the states into the lower half, until one is left.
    fn halved(fold: Fold, mut states: Vec<State>) -> State {
        while states.len() > 1 {
            let upper = states.split_off(states.len() / 2);
            let pairs = states.iter_mut().zip(upper);
            pairs.for_each(|(own, other)| *own = fold.accumulator.merge(fold.wide, *own, other));
        }
        states[0]
    }

    fn expected(view: &View, fold: Fold, element: &dyn Fn(usize, usize) -> f64, output: usize) -> State {
        let segment_elems = if view.by_blocks { BLOCK_THREADS * THREAD_STEPS } else { THREAD_STEPS };
        let segment = |number: usize| {
            let places = number * segment_elems..view.reduced.min((number + 1) * segment_elems);
            let taken: Vec<(f64, u64)> = places.map(|at| (element(output, at), at as u64)).collect();
            if !view.by_blocks {
                return lane(fold, &taken);
            }
            let of_lane = |at: usize| -> Vec<_> { taken.iter().copied().skip(at).step_by(BLOCK_LANES).collect() };
            let thread = |at: usize| halved(fold, (0..PACK).map(|own| lane(fold, &of_lane(at * PACK + own))).collect());
            halved(fold, (0..BLOCK_THREADS).map(thread).collect())
        };
        let mut states: Vec<State> = (0..view.segments).map(segment).collect();
        while states.len() > 1 {
            let join = |pair: &[State]| {
                pair[1..].iter().fold(pair[0], |own, &other| fold.accumulator.merge(fold.wide, own, other))
            };
            states = states.chunks(2).map(join).collect();
        }
        states[0]
    }

    fn check(shape: &[usize], axis: usize, dtype: DType) {
        let count: usize = shape.iter().product();
        let special = [f64::NAN, -0.0, 0.0, f64::INFINITY, -f64::NAN, 0.0, -0.0, f64::NEG_INFINITY];
        let number = |at: usize| match at % 211 {
            7 if (at / 211).is_multiple_of(5) => special[at / 1055 % special.len()],
            _ => ((at as f64 * 0.37).sin() * 8.0).round() / 4.0,
        };
        let values: Vec<f64> = (0..count).map(number).collect();
        let wide = NdBuffer::from_slice(Device::Cpu, &values, shape).unwrap();
        let source = wide.astype(dtype, Order::C).unwrap();
        let values = source.astype(DType::FLOAT64, Order::C).unwrap().into_vec::<f64>().unwrap();
        let view = View::new(&source, &[axis]).unwrap();
        let size = dtype.size_bytes() as isize;
        let element =
            |output: usize, at: usize| values[((view.kept_offset(output) + view.reduced_offset(at)) / size) as usize];
        let all = [
            Accumulator::Sum,
            Accumulator::Product,
            Accumulator::Moments,
            Accumulator::Least,
            Accumulator::Greatest,
            Accumulator::Count,
        ];
        for (accumulator, skip_nan) in all.into_iter().flat_map(|one| [(one, false), (one, true)]) {
            let fold = Fold { accumulator, wide: Wide::Float, skip_nan };
            let case = format!("{dtype} {shape:?} {axis} {fold:?}");
            for threads in [1, 2] {
                let found = states(&source, &view, fold, threads).unwrap();
                assert_eq!(found.len(), view.outputs, "{case}");
                for (output, found) in found.iter().enumerate() {
                    let expected = expected(&view, fold, &element, output);
                    // NaNs of computations differ in their bits; results get the canonical one.
                    let settle = |state: State| match accumulator {
                        Accumulator::Count => state.0,
                        _ => state.0.map(|word| if f64::from_bits(word).is_nan() { u64::MAX } else { word }),
                    };
                    assert_eq!(settle(*found), settle(expected), "{case} {output}");
                }
            }
        }
    }

    #[test]
    fn partial_results_are_those_of_lanes_that_take_one_element_after_the_other() {
        for dtype in [DType::FLOAT32, DType::FLOAT64, DType::FLOAT16] {
            for length in [1, 2, 63, 64, 65, 127, 129, 1023, 1024, 1025, 1029, 1500, 2047] {
                check(&[3, length], 1, dtype);
            }
            for length in [1, 2, 3, 255, 256, 257, 600] {
                check(&[length, 37], 0, dtype);
                check(&[length, 5], 0, dtype);
            }
            check(&[2, 66_000], 1, dtype);
        }
        check(&[9, 66_000], 1, DType::FLOAT32);
        check(&[260, 9000], 0, DType::FLOAT32);
        check(&[2, 70, 1030], 1, DType::FLOAT32);
    }

    #[test]
    fn extremes_of_whole_numbers_are_the_first_of_equals() {
        let dtypes = [
            (DType::INT8, -128.0, 127.0),
            (DType::INT16, -32_768.0, 32_767.0),
            (DType::INT32, -2_147_483_648.0, 2_147_483_647.0),
            (DType::UINT8, 0.0, 255.0),
            (DType::UINT16, 0.0, 65_535.0),
            (DType::UINT32, 0.0, 4_294_967_295.0),
            (DType::INT64, -9e15, 9e15),
            (DType::UINT64, 0.0, 9e15),
            (DType::BOOL, 0.0, 1.0),
        ];
        for (dtype, least, greatest) in dtypes {
            for (shape, axis) in [([1, 64], 1), ([3, 127], 1), ([2, 1000], 1), ([5, 33], 0), ([300, 7], 0)] {
                let count = shape[0] * shape[1];
                let value = |at: usize| match at * 7919 % count % 17 {
                    3 => least,
                    5 => greatest,
                    rest => (rest % 2) as f64,
                };
                let values: Vec<f64> = (0..count).map(value).collect();
                let source = NdBuffer::from_slice(Device::Cpu, &values, &shape).unwrap();
                let source = source.astype(dtype, Order::C).unwrap();
                let view = View::new(&source, &[axis]).unwrap();
                for accumulator in [Accumulator::Least, Accumulator::Greatest] {
                    let fold = Fold::of(dtype, accumulator, false);
                    for (output, state) in states(&source, &view, fold, 2).unwrap().into_iter().enumerate() {
                        let at = |place: usize| {
                            if axis == 1 { output * shape[1] + place } else { place * shape[1] + output }
                        };
                        let all = || (0..shape[axis]).map(|place| values[at(place)]);
                        let best =
                            all().reduce(if accumulator == Accumulator::Least { f64::min } else { f64::max }).unwrap();
                        let place = all().position(|x| x == best).unwrap();
                        let found = (fold.wide.number(state.0[0]), state.0[1], state.0[2]);
                        assert_eq!(
                            found,
                            (best, shape[axis] as u64, place as u64),
                            "{dtype} {shape:?} {axis} {accumulator:?}"
                        );
                    }
                }
            }
        }
    }
}
