//! Reductions on the host. They use the same segments, lanes and steps as a GPU, one row of lanes at a time.

use std::ops::Range;

use cuzarr_device::NdBuffer;
use cuzarr_device::internal::Threads;
use cuzarr_device::internal::cpu::cast;

use super::state::{Accumulator, Fold, State, Value, Wide, beats};
use super::view::{self, BLOCK_LANES, BLOCK_THREADS, PACK, THREAD_STEPS, View};
use cuzarr::Result;

/// A thread takes jobs with [`ELEMS_AT_ONCE`] elements at a time, since fewer are not worth a thread, but at most this
/// many jobs.
const JOBS_AT_ONCE: usize = 64;
const ELEMS_AT_ONCE: usize = 1 << 16;

/// Computes the states of all segments. Those of one element of the result lie together.
///
/// # Errors
/// `MemorySpace` for memory of another device.
pub(crate) fn states(source: &NdBuffer, view: &View, fold: Fold, threads: usize) -> Result<Vec<State>> {
    let bytes = source.buffer().host_bytes()?;
    let mut states = vec![fold.accumulator.empty(fold.wide); view.outputs * view.segments];
    // A row consists of the lanes of one segment, or of neighbouring elements of the result.
    let rows_per_job = if view.by_blocks { 1 } else { BLOCK_LANES };
    let jobs = if view.by_blocks { states.len() } else { view.outputs.div_ceil(rows_per_job) * view.segments };
    let job_elems = source.len().div_ceil(jobs.max(1)).max(1);
    let at_once = ELEMS_AT_ONCE.div_ceil(job_elems).min(JOBS_AT_ONCE);
    let row = Row { bytes: &bytes, source, view, fold };
    let several = (0..jobs).step_by(at_once).map(|first| first..jobs.min(first + at_once));
    let work = |jobs: Range<usize>| jobs.map(|job| row.job(job)).collect::<Result<Vec<_>>>();
    let answers: Vec<_> = Threads::workers().map(threads, several, work).into_iter().collect::<Result<_>>()?;
    for (job, row) in answers.into_iter().flatten().enumerate() {
        if view.by_blocks {
            states[job] = row[0];
        } else {
            let (tile, segment) = (job / view.segments, job % view.segments);
            for (at, state) in row.into_iter().enumerate() {
                states[(tile * BLOCK_LANES + at) * view.segments + segment] = state;
            }
        }
    }
    Ok(states)
}

struct Row<'a> {
    bytes: &'a [u8],
    source: &'a NdBuffer,
    view: &'a View,
    fold: Fold,
}

impl Row<'_> {
    /// Computes one segment and merges its lanes, or computes one segment each for several elements of the result.
    fn job(&self, job: usize) -> Result<Vec<State>> {
        match self.fold.wide {
            Wide::Signed => self.walk::<i64>(job),
            Wide::Unsigned => self.walk::<u64>(job),
            Wide::Float => self.walk::<f64>(job),
            Wide::Complex => self.walk::<f64>(job),
        }
    }

    /// Merges states pairwise, the upper half into the lower half, until only the first is left.
    fn join(&self, states: &mut [State]) {
        let mut half = states.len() / 2;
        while half > 0 {
            for lane in 0..half {
                states[lane] = self.fold.accumulator.merge(self.fold.wide, states[lane], states[lane + half]);
            }
            half /= 2;
        }
    }

    fn walk<V: Value>(&self, job: usize) -> Result<Vec<State>> {
        let view = self.view;
        let dtype = self.source.dtype();
        let size = dtype.size_bytes();
        let wide_type = view::wide_type(self.fold.wide);
        let (lanes_of_output, steps) =
            if view.by_blocks { (BLOCK_LANES, THREAD_STEPS / PACK) } else { (1, THREAD_STEPS) };
        let (outputs, segment) = if view.by_blocks {
            (job / view.segments..job / view.segments + 1, job % view.segments)
        } else {
            let first = job / view.segments * BLOCK_LANES;
            (first..view.outputs.min(first + BLOCK_LANES), job % view.segments)
        };
        let width = if view.by_blocks { BLOCK_LANES } else { outputs.len() };
        let mut lanes = Lanes::<V>::new(self.fold.accumulator, width);
        let (mut packed, mut wide) = (vec![0; width * size], vec![0; width * wide_type.size_bytes()]);
        let bases: Vec<isize> = outputs.clone().map(|output| view.kept_offset(output)).collect();
        let origin = self.source.layout().offset_bytes();
        for step in 0..steps {
            // The last segment and its last row are shorter.
            let at = (segment * steps + step) * lanes_of_output;
            if at >= view.reduced {
                break;
            }
            let count = if view.by_blocks { width.min(view.reduced - at) } else { width };
            let row_stride = if view.by_blocks { view.over.even() } else { view.kept.even() };
            if row_stride == Some(size as isize) {
                let offset = bases[0] + view.reduced_offset(at);
                let from = origin.wrapping_add_signed(offset);
                packed[..count * size].copy_from_slice(&self.bytes[from..from + count * size]);
            }
            for lane in (0..count).filter(|_| row_stride != Some(size as isize)) {
                let offset = if view.by_blocks {
                    bases[0] + view.reduced_offset(at + lane)
                } else {
                    bases[lane] + view.reduced_offset(at)
                };
                let from = origin.wrapping_add_signed(offset);
                packed[lane * size..(lane + 1) * size].copy_from_slice(&self.bytes[from..from + size]);
            }
            let wide = &mut wide[..count * wide_type.size_bytes()];
            cast::cast(dtype, wide_type, &packed[..count * size], wide)?;
            lanes.take(wide, at, view.by_blocks, self.fold.skip_nan, self.fold.wide == Wide::Complex);
        }
        let mut states = lanes.settle();
        if view.by_blocks {
            // First the lanes of each thread are merged, then the threads.
            states.chunks_mut(PACK).for_each(|thread| self.join(thread));
            states = states.into_iter().step_by(PACK).collect();
            debug_assert_eq!(states.len(), BLOCK_THREADS);
            self.join(&mut states);
            states.truncate(1);
        }
        Ok(states)
    }
}

/// The states of lanes while they take elements.
struct Lanes<V> {
    accumulator: Accumulator,
    values: Vec<V>,
    seconds: Vec<f64>,
    sums: Vec<f64>,
    places: Vec<u64>,
    counts: Vec<u64>,
}

impl<V: Value> Lanes<V> {
    fn new(accumulator: Accumulator, width: usize) -> Lanes<V> {
        let start = if accumulator == Accumulator::Product { V::ONE } else { V::ZERO };
        Lanes {
            accumulator,
            values: vec![start; width],
            seconds: vec![0.0; width],
            sums: vec![0.0; width],
            places: vec![0; width],
            counts: vec![0; width],
        }
    }

    /// Takes one element for each lane: consecutive elements from number `at`, or element `at` of neighbouring results.
    fn take(&mut self, wide: &[u8], at: usize, by_blocks: bool, skip_nan: bool, is_complex: bool) {
        let word = |at: usize| {
            let mut own = [0; 8];
            own.copy_from_slice(&wide[8 * at..8 * at + 8]);
            u64::from_ne_bytes(own)
        };
        let parts = 1 + usize::from(is_complex);
        for lane in 0..wide.len() / 8 / parts {
            let x = V::from_word(word(lane * parts));
            let second = if is_complex { f64::from_bits(word(lane * parts + 1)) } else { 0.0 };
            if skip_nan && (x.is_nan() || second.is_nan()) {
                continue;
            }
            let place = (at + if by_blocks { lane } else { 0 }) as u64;
            match self.accumulator {
                Accumulator::Sum => {
                    self.values[lane] = self.values[lane].add(x);
                    self.seconds[lane] += second;
                }
                Accumulator::Product => self.values[lane] = self.values[lane].multiply(x),
                Accumulator::Count => self.places[lane] += u64::from(!x.is_zero() || second != 0.0),
                Accumulator::Moments => {
                    if self.counts[lane] == 0 {
                        self.values[lane] = x;
                    }
                    let distance = x.float() - self.values[lane].float();
                    self.sums[lane] += distance;
                    self.seconds[lane] += distance * distance;
                }
                Accumulator::Least | Accumulator::Greatest => {
                    let least = self.accumulator == Accumulator::Least;
                    if self.counts[lane] == 0 || beats(x, self.values[lane], least) {
                        (self.values[lane], self.places[lane]) = (x, place);
                    }
                }
            }
            self.counts[lane] += 1;
        }
    }

    fn settle(&self) -> Vec<State> {
        let state = |lane: usize| {
            let (value, count) = (self.values[lane], self.counts[lane]);
            State(match self.accumulator {
                Accumulator::Sum => [value.word(), count, self.seconds[lane].to_bits()],
                Accumulator::Product => [value.word(), count, 0],
                Accumulator::Count => [self.places[lane], count, 0],
                Accumulator::Moments if count == 0 => [0; 3],
                Accumulator::Moments => {
                    let shift = self.sums[lane] / count as f64;
                    let squares = self.seconds[lane] - self.sums[lane] * shift;
                    [(value.float() + shift).to_bits(), count, squares.to_bits()]
                }
                Accumulator::Least | Accumulator::Greatest => [value.word(), count, self.places[lane]],
            })
        };
        (0..self.values.len()).map(state).collect()
    }
}
