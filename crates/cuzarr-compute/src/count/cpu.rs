//! Counts elements in host memory, with several threads.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use cuzarr_device::internal::Threads;

use super::{Bins, Counter, KeyKind, Keys, NO_INTERVAL};
use cuzarr::Result;

/// Number of result elements that one pass over the input counts together, if the inputs of these result elements are
/// neighbours.
const TILE_OUTPUTS: usize = 256;
/// Least number of input elements for which another thread is used. Fewer elements are not worth a thread.
const THREAD_ELEMS: usize = 1 << 15;

impl Counter<'_> {
    /// Counts the input elements that belong to the result elements `outputs`: numbers in `counters`, NaN in `others`.
    ///
    /// # Errors
    /// `MemorySpace` for memory of another device.
    pub(super) fn add(
        &self,
        outputs: Range<usize>,
        threads: usize,
        counters: &mut [u64],
        others: &mut [u64],
    ) -> Result<()> {
        let _held = self.source.buffer().host_bytes()?; // so that no other thread writes meanwhile
        let threads = threads.min(outputs.len() * self.view.reduced / THREAD_ELEMS + 1);
        let table = self.bins.counters();
        if outputs.len() >= threads {
            let each = outputs.len().div_ceil(threads).max(1);
            let parts = counters.chunks_mut(each * table).zip(others.chunks_mut(each)).enumerate();
            Threads::workers().map(threads, parts, |(part, (counters, others))| {
                let range = part * each..part * each + others.len();
                self.count(outputs.start, range, 0..self.view.reduced, counters, others);
            });
            return Ok(());
        }
        // Each thread has its own tables. They are added in any order, since sums of integers do not depend on it.
        let each = self.view.reduced.div_ceil(threads).max(1);
        let sums = Mutex::new((counters, others));
        Threads::workers().map(threads, (0..self.view.reduced).step_by(each), |first| {
            let (mut own, mut own_others) = (vec![0; outputs.len() * table], vec![0; outputs.len()]);
            let part = first..(first + each).min(self.view.reduced);
            self.count(outputs.start, 0..outputs.len(), part, &mut own, &mut own_others);
            let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
            sums.0.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
            sums.1.iter_mut().zip(own_others).for_each(|(sum, own)| *sum += own);
        });
        Ok(())
    }

    /// Counts input elements for the result elements from `first + range.start` to `first + range.end`. Of each, only
    /// the input elements with the indices `reduced` count.
    fn count(
        &self,
        first: usize,
        range: Range<usize>,
        reduced: Range<usize>,
        counters: &mut [u64],
        others: &mut [u64],
    ) {
        let (keys, table) = (self.keys, self.bins.counters());
        let outputs = first + range.start..first + range.end;
        match self.bins {
            Bins::Edges(edges) => {
                let elements = outputs.len().saturating_mul(reduced.len());
                let Some(bins) = BinTable::new(edges, elements) else { return };
                if let [others] = others
                    && self.count_row(outputs.start, reduced.clone(), &bins, (counters, others))
                {
                    return;
                }
                self.walk(outputs, reduced, |number, raw| match keys.key(raw) {
                    None => others[number] += 1,
                    Some(key) => {
                        if let Some(bin) = bins.bin(key) {
                            counters[number * table + bin] += 1;
                        }
                    }
                });
            }
            Bins::Digits { lows, intervals, shift, bits } => {
                let (shift, bits) = (*shift, *bits);
                let lows = &lows[range.start * intervals..range.end * intervals];
                self.walk(outputs, reduced, |number, raw| match keys.key(raw) {
                    None => others[number] += 1,
                    Some(key) => {
                        for (interval, &low) in lows[number * intervals..][..*intervals].iter().enumerate() {
                            let digit = key.wrapping_sub(low) >> shift;
                            if digit >> bits == 0 && low != NO_INTERVAL {
                                counters[number * table + (interval << bits) + digit as usize] += 1;
                            }
                        }
                    }
                });
            }
        }
    }

    /// Counts the input elements of one result element if they lie side by side; returns false if they do not. Numbers go
    /// to the first counters, NaN to the last one.
    fn count_row(
        &self,
        output: usize,
        reduced: Range<usize>,
        bins: &BinTable<'_>,
        (counters, others): (&mut [u64], &mut u64),
    ) -> bool {
        let size = self.keys.bits as usize / 8;
        let Ok(bytes) = self.source.buffer().host_bytes() else { return false };
        let is_packed = self.view.over.even() == Some(size as isize) && !reduced.is_empty();
        if !is_packed || counters.len() > MOST_BINS_IN_TURNS {
            return false;
        }
        let offset = self.view.kept_offset(output) + self.view.reduced_offset(reduced.start);
        let from = self.source.layout().offset_bytes().wrapping_add_signed(offset);
        let row = &bytes[from..from + reduced.len() * size];
        let mut tables = Tables::new(counters.len());
        match size {
            1 => tables.count(row.as_chunks::<1>().0, |&[byte]| u64::from(byte), self.keys, bins),
            2 => tables.count(row.as_chunks::<2>().0, |&raw| u16::from_ne_bytes(raw).into(), self.keys, bins),
            4 => tables.count(row.as_chunks::<4>().0, |&raw| u32::from_ne_bytes(raw).into(), self.keys, bins),
            _ => tables.count(row.as_chunks::<8>().0, |&raw| u64::from_ne_bytes(raw), self.keys, bins),
        }
        tables.add_to(counters, others);
        true
    }

    /// Calls `take(number, bits)` for each input element: the index in `outputs` of its result element, and its bits.
    fn walk(&self, outputs: Range<usize>, reduced: Range<usize>, take: impl FnMut(usize, u64)) {
        match self.keys.bits {
            8 => self.walk_sized::<1>(outputs, reduced, |&[byte]| u64::from(byte), take),
            16 => self.walk_sized::<2>(outputs, reduced, |&raw| u64::from(u16::from_ne_bytes(raw)), take),
            32 => self.walk_sized::<4>(outputs, reduced, |&raw| u64::from(u32::from_ne_bytes(raw)), take),
            _ => self.walk_sized::<8>(outputs, reduced, |&raw| u64::from_ne_bytes(raw), take),
        }
    }

    fn walk_sized<const SIZE: usize>(
        &self,
        outputs: Range<usize>,
        reduced: Range<usize>,
        raw: impl Fn(&[u8; SIZE]) -> u64,
        mut take: impl FnMut(usize, u64),
    ) {
        let Ok(bytes) = self.source.buffer().host_bytes() else { return };
        let origin = self.source.layout().offset_bytes();
        if self.view.over.even() == Some(SIZE as isize) && !self.view.is_across() {
            for (number, output) in outputs.enumerate() {
                let offset = self.view.kept_offset(output) + self.view.reduced_offset(reduced.start);
                let row = &bytes[origin.wrapping_add_signed(offset)..][..reduced.len() * SIZE];
                row.as_chunks::<SIZE>().0.iter().for_each(|element| take(number, raw(element)));
            }
            return;
        }
        let element = |offset: isize| {
            let at = origin.wrapping_add_signed(offset);
            bytes[at..].first_chunk::<SIZE>().map_or(0, &raw)
        };
        let tile = if self.view.is_across() { TILE_OUTPUTS } else { 1 };
        let mut bases = Vec::with_capacity(tile);
        for first in outputs.clone().step_by(tile) {
            bases.clear();
            bases.extend((first..outputs.end.min(first + tile)).map(|output| self.view.kept_offset(output)));
            for at in reduced.clone() {
                let over = self.view.reduced_offset(at);
                for (number, base) in bases.iter().enumerate() {
                    take(first - outputs.start + number, element(base + over));
                }
            }
        }
    }
}

/// Number of tables of counters in which neighbouring elements are counted in turn. If they lie in the same bin, the
/// processor need not wait for one counter before it adds to the next.
const TURNS: usize = 4;
/// Largest number of bins whose counters are so few that there may be several tables of them.
const MOST_BINS_IN_TURNS: usize = 4096;

/// Counters of one thread: for each bin, for keys outside of all bins, and for NaN.
struct Tables {
    bins: usize,
    counters: Vec<u64>,
}

impl Tables {
    fn new(bins: usize) -> Tables {
        Tables { bins, counters: vec![0; TURNS * (bins + 2)] }
    }

    #[inline(always)]
    fn count<E>(&mut self, row: &[E], raw: impl Fn(&E) -> u64, keys: Keys, bins: &BinTable<'_>) {
        // A conversion of keys that is known to be one kind needs fewer instructions.
        match keys.kind {
            KeyKind::Unsigned => self.count_keys(row, |element| Some(raw(element)), bins),
            KeyKind::Signed => {
                let sign = 1 << (keys.bits - 1);
                self.count_keys(row, |element| Some(raw(element) ^ sign), bins);
            }
            KeyKind::Float => self.count_keys(row, |element| keys.key_of_float(raw(element)), bins),
        }
    }

    #[inline(always)]
    fn count_keys<E>(&mut self, row: &[E], key: impl Fn(&E) -> Option<u64>, bins: &BinTable<'_>) {
        let (outside, nan) = (self.bins, self.bins + 1);
        let slot = |element: &E| match key(element) {
            Some(key) => bins.bin(key).unwrap_or(outside),
            None => nan,
        };
        let stride = self.bins + 2;
        let (mut turn, end) = (0, TURNS * stride);
        // One call in one loop, so that compilers inline the search.
        for element in row {
            self.counters[turn + slot(element)] += 1;
            turn += stride;
            turn = if turn == end { 0 } else { turn };
        }
    }

    fn add_to(&self, counters: &mut [u64], others: &mut u64) {
        for table in self.counters.chunks(self.bins + 2) {
            counters.iter_mut().zip(table).for_each(|(sum, own)| *sum += own);
            *others += table[self.bins + 1];
        }
    }
}

/// A table that speeds up the search for the bin in which a key lies. It is indexed by the first bits of a key's
/// distance from the first edge, which leaves few edges to compare with.
struct BinTable<'a> {
    /// The key of each bin's lower edge.
    lower: &'a [u64],
    first: u64,
    /// The distance of the last edge from the first one.
    span: u64,
    shift: u32,
    entries: Vec<Entry>,
}

/// Keys with the same first bits.
#[derive(Clone, Copy)]
struct Entry {
    /// The lowest edge between these keys, which is not the lowest key.
    edge: u64,
    /// The bin of the lowest key.
    bin: u32,
    /// Number of edges between these keys.
    edges: u32,
}

/// Largest number of bits of a key that serve as an index into the table.
const TABLE_BITS: u32 = 12;
/// Number of bits of an index besides those that number the bins. Most entries then have one edge or none, and the table
/// of a usual histogram stays in the first-level cache.
const BITS_OF_BIN: u32 = 4;

impl<'a> BinTable<'a> {
    /// Makes the table for sorted edges, with a size that suits about `elements` keys; `None` if there are no bins.
    fn new(edges: &'a [u64], elements: usize) -> Option<BinTable<'a>> {
        let (&last, lower) = edges.split_last()?;
        let first = *lower.first()?;
        let bits = elements.max(1).ilog2().min(TABLE_BITS).min(lower.len().ilog2() + BITS_OF_BIN);
        let span = last - first;
        let shift = (u64::BITS - span.leading_zeros()).saturating_sub(bits).min(u64::BITS - 1);
        let at_or_below = |entry: u64| lower.partition_point(|&edge| edge <= first + (entry << shift));
        let starts: Vec<usize> = (0..=span >> shift).map(at_or_below).chain([lower.len()]).collect();
        let entries = starts.windows(2).map(|pair| Entry {
            edge: lower.get(pair[0]).copied().unwrap_or(u64::MAX),
            bin: pair[0] as u32 - 1,
            edges: (pair[1] - pair[0]) as u32,
        });
        Some(BinTable { lower, first, span, shift, entries: entries.collect() })
    }

    /// Returns the number of the bin that contains a key; `None` if no bin does. The last bin includes its upper edge.
    #[inline(always)]
    fn bin(&self, key: u64) -> Option<usize> {
        // Keys below the first edge are very far above it.
        let distance = key.wrapping_sub(self.first);
        if distance > self.span {
            return None;
        }
        let Entry { edge, bin, edges } = self.entries[(distance >> self.shift) as usize];
        let bin = bin as usize;
        if edges > 1 {
            let between = &self.lower[bin + 1..][..edges as usize];
            return Some(bin + between.partition_point(|&edge| edge <= key));
        }
        Some(bin + usize::from((edges > 0) & (key >= edge)))
    }
}

#[cfg(test)]
mod tests {
    use super::{BinTable, Counter, Keys};
    use crate::count::{Bins, View};
    use cuzarr_device::{DType, Device, NdBuffer, Order};

    #[test]
    fn rows_of_any_length_and_type_are_counted_as_one_by_one() {
        let edges = [-2.5, -1.0, 0.0, 0.5, 3.0, 40.0];
        for dtype in [DType::FLOAT32, DType::FLOAT64, DType::FLOAT16, DType::INT8, DType::INT32, DType::UINT8] {
            let is_float = dtype.size_bytes() > 4 || matches!(dtype, DType::FLOAT32 | DType::FLOAT16);
            let keys = Keys::of(dtype).unwrap();
            let key = |number: f64| {
                let one = NdBuffer::from_slice(Device::Cpu, &[number], &[1]).unwrap().astype(dtype, Order::C).unwrap();
                keys.of_element(&one.to_host_bytes(Order::C).unwrap())
            };
            let mut sorted: Vec<u64> = edges.into_iter().filter_map(key).collect();
            sorted.sort_unstable();
            for length in [0, 1, 2, 3, 4, 5, 7, 8, 9, 1000, 40_000] {
                let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 40.0, 40.1, -2.5];
                let number = |at: usize| match at % 13 {
                    12 if is_float => special[at / 13 % special.len()],
                    _ => (at as f64 * 0.7).sin() * 5.0,
                };
                let numbers: Vec<f64> = (0..length).map(number).collect();
                let source = NdBuffer::from_slice(Device::Cpu, &numbers, &[length]).unwrap();
                let source = source.astype(dtype, Order::C).unwrap();
                let (mut expected, mut nan) = (vec![0; sorted.len() - 1], [0]);
                for element in source.to_host_bytes(Order::C).unwrap().chunks(dtype.size_bytes()) {
                    match keys.of_element(element) {
                        None => nan[0] += 1,
                        Some(key) if key < sorted[0] || key > sorted[5] => {}
                        Some(key) => expected[sorted[..5].iter().filter(|&&edge| edge <= key).count() - 1] += 1,
                    }
                }
                let view = View::new(&source, &[0]).unwrap();
                let bins = Bins::Edges(sorted.clone());
                let counter = Counter { source: &source, view: &view, keys, bins: &bins };
                for threads in [1, 3] {
                    let (mut counters, mut others) = (vec![0; expected.len()], [0]);
                    counter.add(0..1, threads, &mut counters, &mut others).unwrap();
                    assert_eq!((&counters, others), (&expected, nan), "{dtype} {length}");
                }
            }
        }
    }

    #[test]
    fn a_table_finds_the_bins_that_a_search_finds() {
        let many: Vec<u64> = (0..300).map(|at: u64| at.pow(6) << 13).collect();
        let crowded: Vec<u64> = (0..2000).map(|at| (1 << 40) + at / 3).chain([u64::MAX]).collect();
        for edges in [&[5, 5][..], &[0, u64::MAX], &[7, 7, 7, 9, 9], &[0, 1], &many, &crowded] {
            let (last, lower) = edges.split_last().unwrap();
            for elements in [0, 1, 100, 1 << 20] {
                let table = BinTable::new(edges, elements).unwrap();
                let near = |edge: &u64| [edge.saturating_sub(1), *edge, edge.saturating_add(1), edge / 2, edge | 0xfff];
                for key in edges.iter().flat_map(near) {
                    let found = lower.partition_point(|&edge| edge <= key).checked_sub(1).filter(|_| key <= *last);
                    assert_eq!(table.bin(key), found, "{key} {elements}");
                }
            }
        }
    }
}
