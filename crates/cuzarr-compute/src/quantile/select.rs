//! Finds the elements with given ranks in sorted order, without sorting, by counting.

use cuzarr_device::internal::cpu::{cast, nan};
use cuzarr_device::{DType, DTypeKind};

use super::Quantile;
use super::method::{Places, QuantileMethod};
use crate::count::{Bins, Keys, NO_INTERVAL, copies};
use crate::options::ComputeOptions;
use crate::stream::Job;
use cuzarr::{Error, ErrorKind, Result};

/// The memory limit divided by this is the limit for the tables of counters of a search for quantiles.
const TABLES_SHARE: u64 = 8;
const MOST_DIGIT_BITS: u32 = 16;
const FEWEST_DIGIT_BITS: u32 = 4;

/// Inputs of a search for quantiles: the keys, and how much memory tables and regions may take.
pub(super) struct Room<'a> {
    pub(super) quantile: &'a Quantile,
    job_copies: [u64; 2],
    threads: u64,
    dtype: DType,
    pub(super) keys: Keys,
    pub(super) reduced: u64,
    /// Limit for the tables of counters that a search needs, in bytes.
    pub(super) tables_bytes: u64,
    /// Limit for the regions of elements that are in memory while they are counted, in bytes.
    pub(super) regions_bytes: u64,
}

impl<'a> Room<'a> {
    pub(super) fn new(
        quantile: &'a Quantile,
        job: &mut Job<'_>,
        dtype: DType,
        reduced: u64,
        options: &ComputeOptions<'_>,
    ) -> Result<Room<'a>> {
        let keys = Keys::of(dtype).ok_or_else(|| Error::new(ErrorKind::DTypeMismatch, "elements have no order"))?;
        let limit_bytes = options.memory_limit_bytes;
        let tables_bytes = (limit_bytes / TABLES_SHARE).max(1);
        let regions_bytes = if job.is_in_memory() { u64::MAX } else { limit_bytes.saturating_sub(tables_bytes) };
        // Threads that share one element of the result need one table each. So there are no more threads than tables
        // that fit.
        let slots = 2 * quantile.probabilities.len() as u64;
        let table_bytes = ((slots << FEWEST_DIGIT_BITS) + 2 * slots) * 8;
        let fitting = usize::try_from((tables_bytes / table_bytes).saturating_sub(2)).unwrap_or(usize::MAX);
        job.processor.threads = job.processor.threads.min(fitting).max(1);
        let threads = job.processor.threads as u64;
        let job_copies = [copies(&job.processor, 1) as u64, copies(&job.processor, usize::MAX) as u64];
        Ok(Room { quantile, job_copies, threads, dtype, keys, reduced, tables_bytes, regions_bytes })
    }

    /// Number of elements to find for each element of the result: two for each probability.
    fn slots(&self) -> usize {
        2 * self.quantile.probabilities.len()
    }

    /// Bytes that the tables of counters take for `outputs` elements of the result.
    pub(super) fn tables(&self, outputs: u64, bits: u32) -> u64 {
        let copies = self.job_copies[usize::from(outputs >= self.threads)] + 1;
        (((self.slots() as u64) << bits) + 2 * self.slots() as u64).saturating_mul(8 * copies).saturating_mul(outputs)
    }

    /// Returns how many bits of the keys, at most `most`, one pass can resolve with tables for `outputs` result
    /// elements. With more bits than `most`, there would be more counters than elements.
    pub(super) fn digit_bits(&self, outputs: u64, most: u32) -> Result<u32> {
        let most = most.clamp(FEWEST_DIGIT_BITS, MOST_DIGIT_BITS).min(self.keys.bits);
        let fitting = (1..=most).rev().find(|&bits| self.tables(outputs, bits) <= self.tables_bytes);
        // Chooses the shortest digits with this number of passes.
        fitting.map(|bits| self.keys.bits.div_ceil(self.passes(bits))).ok_or_else(|| {
            let needed = self.tables(outputs, 1).saturating_mul(TABLES_SHARE);
            let message = format!("counting for {outputs} quantiles at once takes a memory limit of {needed} bytes");
            let hint = format!("raise `memory_limit` to {needed} bytes, or store smaller chunks");
            Error::new(ErrorKind::BudgetExceeded, message).with_hint(hint)
        })
    }

    /// Number of passes over the elements, if each resolves `bits` bits of the keys.
    pub(super) fn passes(&self, bits: u32) -> u32 {
        self.keys.bits.div_ceil(bits)
    }

    /// Number of result elements whose tables of counters fit into the memory limit together; at least one.
    pub(super) fn outputs(&self, bits: u32) -> usize {
        let fitting = |count: u64| count.max(1).min(usize::MAX as u64) as usize;
        let many = self.tables_bytes / (self.tables(self.threads.max(1), bits) / self.threads.max(1)).max(1);
        if many >= self.threads { fitting(many) } else { fitting(self.tables_bytes / self.tables(1, bits).max(1)) }
    }

    /// Finds the wanted elements for `outputs` elements of the result, resolving a few bits of their keys in each pass.
    pub(super) fn select(
        &self,
        outputs: usize,
        digit_bits: u32,
        chosen: &mut Chosen,
        count: &mut dyn FnMut(&Bins) -> Result<Vec<u64>>,
    ) -> Result<()> {
        let slots = self.slots();
        let mut shift = self.keys.bits - digit_bits.min(self.keys.bits);
        let mut bins = Bins::Digits { lows: vec![0; outputs], intervals: 1, shift, bits: self.keys.bits - shift };
        let counters = count(&bins)?;
        let nan = &counters[counters.len() - outputs..];
        // The first pass counts every element that has a key.
        let mut wanted: Vec<Wanted> = Vec::with_capacity(outputs * slots);
        let mut gammas = Vec::with_capacity(outputs);
        for &nan in nan {
            let n = self.reduced - nan;
            let has_answer = n > 0 && (nan == 0 || self.quantile.skip_nan);
            let places = self.quantile.probabilities.iter().map(|&q| self.quantile.method.places(n.max(1), q));
            let places: Vec<Places> = places.collect();
            wanted.extend(places.iter().flat_map(|place| [place.0, place.1]).map(|rank| Wanted {
                interval: if has_answer { Some(0) } else { None },
                low: 0,
                rank,
            }));
            gammas.push(places.into_iter().map(|place| place.2).collect::<Vec<f64>>());
        }
        narrow(&mut wanted, &bins, &counters, slots);
        while shift > 0 {
            let bits = digit_bits.min(shift);
            shift -= bits;
            let (lows, intervals) = intervals(&mut wanted, slots);
            bins = Bins::Digits { lows, intervals, shift, bits };
            narrow(&mut wanted, &bins, &count(&bins)?, slots);
        }
        for (wanted, gammas) in wanted.chunks(slots).zip(gammas) {
            for (at, (pair, gamma)) in wanted.chunks(2).zip(gammas).enumerate() {
                chosen.push(at, pair[0].interval.map(|_| (pair[0].low, pair[1].low, gamma)))?;
            }
        }
        Ok(())
    }
}

/// An element to find: it has rank `rank` in the interval of keys that begins at `low`.
#[derive(Clone, Copy)]
struct Wanted {
    /// Index of the element's key interval among the intervals that are counted for the same result element; `None` if
    /// nothing is to be found.
    interval: Option<usize>,
    low: u64,
    rank: u64,
}

/// Returns the intervals of keys to count in the next pass, and their number for each element of the result. Each
/// distinct interval appears once, and rows are padded to the same length.
fn intervals(wanted: &mut [Wanted], slots: usize) -> (Vec<u64>, usize) {
    let mut rows: Vec<Vec<u64>> = Vec::with_capacity(wanted.len() / slots);
    for wanted in wanted.chunks_mut(slots) {
        let mut lows = Vec::new();
        for one in wanted.iter_mut().filter(|one| one.interval.is_some()) {
            let known = lows.iter().position(|&low| low == one.low);
            one.interval = Some(known.unwrap_or(lows.len()));
            if known.is_none() {
                lows.push(one.low);
            }
        }
        rows.push(lows);
    }
    let count = rows.iter().map(Vec::len).max().unwrap_or(0).max(1);
    rows.iter_mut().for_each(|lows| lows.resize(count, NO_INTERVAL));
    (rows.concat(), count)
}

/// Narrows the interval of each wanted element to the keys of the counter that contains it. The keys of that counter
/// become the next interval.
fn narrow(wanted: &mut [Wanted], bins: &Bins, counters: &[u64], slots: usize) {
    let Bins::Digits { shift, bits, .. } = bins else { return };
    for (wanted, own) in wanted.chunks_mut(slots).zip(counters.chunks(bins.counters())) {
        for one in wanted {
            let Some(interval) = one.interval else { continue };
            let counts = &own[interval << bits..][..1 << bits];
            for (digit, &count) in counts.iter().enumerate() {
                if one.rank < count {
                    one.low += (digit as u64) << shift;
                    break;
                }
                one.rank -= count;
            }
        }
    }
}

/// The quantiles found so far: a list for each probability, in the order of the result's elements.
pub(super) struct Chosen {
    method: QuantileMethod,
    keys: Keys,
    /// The type of the elements of which quantiles are computed. `gathered` is the type in which answers are gathered.
    dtype: DType,
    gathered: DType,
    answers: Vec<Vec<u8>>,
}

impl Chosen {
    pub(super) fn new(quantile: &Quantile, room: &Room<'_>) -> Chosen {
        let gathered = if quantile.method.is_discrete() { room.dtype } else { DType::FLOAT64 };
        let answers = vec![Vec::new(); quantile.probabilities.len()];
        Chosen { method: quantile.method, keys: room.keys, dtype: room.dtype, gathered, answers }
    }

    fn push(&mut self, probability: usize, found: Option<Places>) -> Result<()> {
        let answer = match found {
            Some((first, _, _)) if self.method.is_discrete() => self.keys.element(first),
            Some((first, second, gamma)) => self.between(first, second, gamma)?.to_ne_bytes().to_vec(),
            None => self.nan_bytes()?,
        };
        self.answers[probability].extend(answer);
        Ok(())
    }

    /// Appends computed quantiles: those of all elements of the result for the first probability, then for the next
    /// one.
    pub(super) fn take(&mut self, answers: &[u8]) {
        let row = (answers.len() / self.answers.len().max(1)).max(1);
        self.answers.iter_mut().zip(answers.chunks(row)).for_each(|(own, row)| own.extend(row));
    }

    /// The bytes of NaN, which stands for "no quantile", in the type of the gathered quantiles.
    fn nan_bytes(&self) -> Result<Vec<u8>> {
        let mut nan = vec![0; self.gathered.size_bytes()];
        cast::cast(DType::FLOAT64, self.gathered, &f64::NAN.to_ne_bytes(), &mut nan)?;
        Ok(nan)
    }

    /// Returns the NaN that stands for "no quantile" as the bits of an element ([`Chosen::nan_bytes`]).
    pub(super) fn nan(&self) -> Result<u64> {
        let mut word = [0; 8];
        let bytes = self.nan_bytes()?;
        word[..bytes.len()].copy_from_slice(&bytes);
        Ok(u64::from_le_bytes(word))
    }

    /// Returns the number at `gamma` (0 to 1) of the way from one element to another, rounded like NumPy's in binary64.
    fn between(&self, first: u64, second: u64, gamma: f64) -> Result<f64> {
        let (a, b) = (self.value(first)?, self.value(second)?);
        if first == second || gamma == 0.0 {
            return Ok(a);
        }
        if self.method == QuantileMethod::Median {
            return Ok((a + b) / 2.0);
        }
        let distance = match self.dtype.kind() {
            // Exact for all integers.
            DTypeKind::Bool | DTypeKind::Int | DTypeKind::UInt => second.wrapping_sub(first) as f64,
            _ => b - a,
        };
        Ok(match gamma {
            1.0 => b,
            gamma if gamma >= 0.5 => b - distance * (1.0 - gamma),
            gamma => a + distance * gamma,
        })
    }

    fn value(&self, key: u64) -> Result<f64> {
        let mut value = [0; 8];
        cast::cast(self.dtype, DType::FLOAT64, &self.keys.element(key), &mut value)?;
        Ok(f64::from_ne_bytes(value))
    }

    /// Returns all quantiles as elements of the result's type.
    pub(super) fn elements(&self, dtype: DType) -> Result<Vec<u8>> {
        let mut answers = self.answers.concat();
        nan::canonicalize(self.gathered, &mut answers);
        let mut elements = vec![0; answers.len() / self.gathered.size_bytes() * dtype.size_bytes()];
        cast::cast(self.gathered, dtype, &answers, &mut elements)?;
        Ok(elements)
    }
}
