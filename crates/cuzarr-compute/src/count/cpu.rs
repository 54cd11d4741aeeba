//! Counts elements in host memory, with several threads.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use cuzarr_device::internal::Threads;

use super::{Bins, Counter, NO_INTERVAL};
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

/// A table that speeds up the search for the bin in which a key lies. It is indexed by the first bits of a key's
/// distance from the first edge, which leaves few edges to compare with.
struct BinTable<'a> {
    /// The key of each bin's lower edge.
    lower: &'a [u64],
    first: u64,
    last: u64,
    shift: u32,
    /// For each entry of the table, the number of bins whose lower edge is at or below the first key of that entry.
    starts: Vec<usize>,
}

/// Largest number of bits of a key that serve as an index into the table.
const TABLE_BITS: u32 = 12;

impl<'a> BinTable<'a> {
    /// Makes the table for sorted edges, with a size that suits about `elements` keys; `None` if there are no bins.
    fn new(edges: &'a [u64], elements: usize) -> Option<BinTable<'a>> {
        let (&last, lower) = edges.split_last()?;
        let first = *lower.first()?;
        let bits = elements.max(1).ilog2().min(TABLE_BITS);
        let shift = (u64::BITS - (last - first).leading_zeros()).saturating_sub(bits).min(u64::BITS - 1);
        let at_or_below = |entry: u64| lower.partition_point(|&edge| edge <= first + (entry << shift));
        let starts = (0..=(last - first) >> shift).map(at_or_below).chain([lower.len()]).collect();
        Some(BinTable { lower, first, last, shift, starts })
    }

    /// Returns the number of the bin that contains a key; `None` if no bin does. The last bin includes its upper edge.
    fn bin(&self, key: u64) -> Option<usize> {
        if key < self.first || key > self.last {
            return None;
        }
        let entry = ((key - self.first) >> self.shift) as usize;
        let (start, end) = (self.starts[entry], self.starts[entry + 1]);
        Some(start + self.lower[start..end].partition_point(|&edge| edge <= key) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::BinTable;

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
