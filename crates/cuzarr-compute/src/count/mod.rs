//! Counting elements by their values: in bins between edges, or by some bits of their keys, beginning with the highest
//! bits. Counts do not depend on the order of elements. So they are the same on every device and for every division
//! into regions.

mod cpu;
mod cuda;
mod key;

use cuzarr_device::NdBuffer;

pub(crate) use self::cuda::KeyWords;
pub(crate) use self::key::{KeyKind, Keys};
use crate::program::Processor;
use crate::reduce::view::View;
use cuzarr::Result;

/// The number that stands for an interval without keys, where otherwise the first key of an interval is given.
pub(crate) const NO_INTERVAL: u64 = u64::MAX;

/// The bins in which elements are counted, given by keys: integers that compare as the elements do. The counters of one
/// element of the result lie together.
#[derive(Clone, Debug)]
pub(crate) enum Bins {
    /// Bins between edges, which are given as ascending keys. A counter counts keys from its edge to below the next
    /// edge; the last one includes its upper edge too.
    Edges(Vec<u64>),
    /// Bins that divide intervals of keys into equal parts; each element of the result has `intervals` such intervals.
    /// Each interval has `2^bits` counters for `2^(bits + shift)` keys. It begins at a multiple of the number of keys,
    /// or is [`NO_INTERVAL`].
    Digits { lows: Vec<u64>, intervals: usize, shift: u32, bits: u32 },
}

impl Bins {
    /// Number of counters (one for each bin) for one element of the result.
    pub(crate) fn counters(&self) -> usize {
        match self {
            Bins::Edges(edges) => edges.len() - 1,
            Bins::Digits { intervals, bits, .. } => intervals << bits,
        }
    }
}

/// Counters of an array's elements by value, for each element of the result, to which regions are added one after the
/// other.
pub(crate) struct Counting<'a> {
    keys: Keys,
    bins: &'a Bins,
    outputs: usize,
    processor: &'a Processor,
    counters: Counters,
}

/// The elements of one region, and the bins in which they are counted for each element of the result.
#[derive(Clone, Copy)]
struct Counter<'a> {
    source: &'a NdBuffer,
    view: &'a View,
    keys: Keys,
    bins: &'a Bins,
}

enum Counters {
    Host(Vec<u64>),
    Device(cuda::Tables),
}

/// Returns how many tables of counters are in host memory at the same time. Threads that share one element of the
/// result need one table each.
pub(crate) fn copies(processor: &Processor, outputs: usize) -> usize {
    if processor.stream().is_none() && outputs < processor.threads { processor.threads + 1 } else { 1 }
}

impl<'a> Counting<'a> {
    /// Makes one table of counters, all 0, for each of `outputs` elements of the result.
    ///
    /// # Errors
    /// `OutOfMemory`; `DeviceFailed`.
    pub(crate) fn new(keys: Keys, bins: &'a Bins, outputs: usize, processor: &'a Processor) -> Result<Counting<'a>> {
        let counters = match processor.stream() {
            None => Counters::Host(vec![0; outputs * (bins.counters() + 1)]),
            Some(stream) => Counters::Device(cuda::Tables::new(bins, outputs, stream)?),
        };
        Ok(Counting { keys, bins, outputs, processor, counters })
    }

    /// Counts the elements of one region of the array. Its results begin at `first_output`.
    ///
    /// # Errors
    /// `MemorySpace` for memory of another device; what the device reports.
    pub(crate) fn add(&mut self, source: &NdBuffer, axes: &[usize], first_output: usize) -> Result<()> {
        let packed;
        let (mut source, mut view) = (source, View::new(source, axes)?);
        if self.processor.stream().is_some() && view.kept.shape.len().max(view.over.shape.len()) > cuda::MOST_AXES {
            packed = source.copy(cuzarr_device::Order::C)?;
            (source, view) = (&packed, View::new(&packed, axes)?);
        }
        let outputs = first_output..first_output + self.outputs;
        let counter = Counter { source, view: &view, keys: self.keys, bins: self.bins };
        match (&mut self.counters, self.processor.stream()) {
            (Counters::Device(tables), Some(stream)) => cuda::add(&counter, outputs, tables, stream),
            (Counters::Host(counters), _) => {
                let (counters, others) = counters.split_at_mut(self.outputs * self.bins.counters());
                counter.add(outputs, self.processor.threads, counters, others)
            }
            (Counters::Device(_), None) => Ok(()),
        }
    }

    /// Returns the counters of each element of the result, in order. After all of them come the NaN counts of each
    /// element.
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn finish(self) -> Result<Vec<u64>> {
        match (self.counters, self.processor.stream()) {
            (Counters::Host(counters), _) => Ok(counters),
            (Counters::Device(tables), Some(stream)) => tables.counters(stream),
            (Counters::Device(_), None) => Ok(Vec::new()),
        }
    }
}
