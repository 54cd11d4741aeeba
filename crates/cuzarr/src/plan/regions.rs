//! Regions: the boxes into which an array is divided, to be processed one at a time. Each has whole stored objects of
//! the target, as many as the budget allows. Their shape is chosen so that source chunks are read as few times as
//! possible.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};
use crate::meta::RegularGrid;
use crate::plan::Selection;

/// Size in bytes at which a region of an array has enough chunks to keep every thread busy. Larger regions only help if
/// they save reads.
const COMFORTABLE_BYTES: u64 = 128 << 20;

/// One box of an array, which is processed on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The region's number in the C order of all regions.
    pub number: u64,
    /// Index of the first element of the region along each dimension.
    pub start: Vec<u64>,
    /// Number of elements of the region along each dimension.
    pub extent: Vec<u64>,
}

impl Region {
    /// Returns the selection of all elements of this region.
    ///
    /// # Errors
    /// `SelectionInvalid` when its end overflows.
    pub fn selection(&self) -> Result<Selection> {
        Selection::region(&self.start, &self.extent)
    }

    /// The number of elements in the region.
    pub fn elems(&self) -> u64 {
        self.extent.iter().fold(1, |elems, &extent| elems.saturating_mul(extent))
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ends = self.start.iter().zip(&self.extent).map(|(start, extent)| (start, start.saturating_add(*extent)));
        let axes: Vec<String> = ends.map(|(start, end)| format!("{start}:{end}")).collect();
        write!(f, "region [{}]", axes.join(", "))
    }
}

/// The boxes into which an array is divided, to be processed one at a time; in C order.
///
/// ```
/// use cuzarr::plan::Regions;
/// // One row after the other was stored, columns are wanted: 4 MiB hold half of the columns, so every row is read twice.
/// let regions = Regions::plan(&[1024, 2048], 4, &[1024, 16], &[&[1, 2048]], 4 << 20)?;
/// assert_eq!((regions.shape(), regions.len()), (&[1024, 1024][..], 2));
/// assert_eq!(regions.reads(&[1, 2048]), 2.0);
/// # Ok::<(), cuzarr::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regions {
    array: Vec<u64>,
    grid: RegularGrid,
    counts: Vec<u64>,
    len: u64,
}

/// Says how far to raise a memory limit, of which work gets the same share again. The work takes `needed` bytes, and has
/// `limit` of them now.
pub(crate) fn raise_limit(needed: u64, limit: u64) -> String {
    let times = (needed as f64 / limit.max(1) as f64 * 100.0).ceil() / 100.0;
    format!("raise `memory_limit` to {times} times what it is")
}

impl Regions {
    /// Divides an array of shape `array` into regions of shape `shape`.
    ///
    /// # Errors
    /// `InvalidArgument` when the dimensions differ; `MetadataInvalid` for regions without elements, or too many of them.
    pub fn new(array: &[u64], shape: Vec<u64>) -> Result<Regions> {
        let grid = RegularGrid::new(shape)?;
        let (counts, len) = (grid.chunk_counts(array)?, grid.chunk_count(array)?);
        Ok(Regions { array: array.to_vec(), grid, counts, len })
    }

    /// Chooses regions that consist of whole objects of shape `unit` and have at most `most_bytes`
    /// bytes. They are chosen so that chunks of the shapes `chunks` are read as few times as possible.
    ///
    /// # Errors
    /// `BudgetExceeded` when one object is larger.
    pub fn plan(
        array: &[u64],
        element_bytes: u64,
        unit: &[u64],
        chunks: &[&[u64]],
        most_bytes: u64,
    ) -> Result<Regions> {
        let mut search = Search { array, element_bytes, unit, chunks, shape: unit.to_vec() };
        let least = search.bytes(unit);
        if least > most_bytes {
            let message = format!("one object of shape {unit:?} takes {least} bytes, a region may have {most_bytes}");
            let hint = format!("{}, or write smaller chunks or shards", raise_limit(least, most_bytes));
            return Err(Error::new(ErrorKind::BudgetExceeded, message).with_hint(hint));
        }
        search.read_less_often(most_bytes);
        search.grow(most_bytes.min(COMFORTABLE_BYTES));
        Regions::new(array, search.shape)
    }

    /// Shape of a whole region. Regions at the far edges are cut off.
    pub fn shape(&self) -> &[u64] {
        self.grid.chunk_shape()
    }

    /// The number of regions.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no regions, because the array has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size of the largest region in bytes.
    pub fn most_bytes(&self, element_bytes: u64) -> u64 {
        size_bytes(self.shape(), &self.array, element_bytes)
    }

    /// Average number of times that chunks of this shape are read, if chunks are always read whole.
    pub fn reads(&self, chunk: &[u64]) -> f64 {
        reads(&self.array, self.shape(), chunk)
    }

    /// The region with this number in C order.
    ///
    /// # Errors
    /// `InvalidArgument` beyond the last region.
    pub fn get(&self, number: u64) -> Result<Region> {
        let mut rest = number;
        let mut at = vec![0; self.counts.len()];
        for (at, &count) in at.iter_mut().zip(&self.counts).rev() {
            (*at, rest) = (rest % count.max(1), rest / count.max(1));
        }
        if number >= self.len {
            let message = format!("got region number {number}, expected a number below {}", self.len);
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let ranges = self.grid.chunk_region(&at, &self.array)?;
        let (start, extent) = ranges.into_iter().map(|range| (range.start, range.end - range.start)).unzip();
        Ok(Region { number, start, extent })
    }

    /// Returns the regions from number `first` on, in C order.
    pub fn from(&self, first: u64) -> impl Iterator<Item = Result<Region>> + '_ {
        (first..self.len).map(|number| self.get(number))
    }
}

/// A greedy search for the best shape of regions. Each time, it takes the step that saves the most reads for the memory
/// that it costs.
struct Search<'a> {
    array: &'a [u64],
    element_bytes: u64,
    unit: &'a [u64],
    chunks: &'a [&'a [u64]],
    shape: Vec<u64>,
}

impl Search<'_> {
    fn bytes(&self, shape: &[u64]) -> u64 {
        size_bytes(shape, self.array, self.element_bytes)
    }

    fn reads(&self, shape: &[u64]) -> f64 {
        self.chunks.iter().map(|chunk| reads(self.array, shape, chunk)).sum()
    }

    /// The current shape of regions, with another extent along one dimension.
    fn with(&self, dim: usize, extent: u64) -> Vec<u64> {
        let mut shape = self.shape.clone();
        shape[dim] = extent;
        shape
    }

    /// The array's extent along one dimension, rounded up to whole objects.
    fn whole(&self, dim: usize) -> u64 {
        self.array[dim].div_ceil(self.unit[dim]).max(1).saturating_mul(self.unit[dim])
    }

    fn larger_extents(&self, dim: usize) -> Vec<u64> {
        let (now, whole) = (self.shape[dim], self.whole(dim));
        let aligned = self.chunks.iter().map(|chunk| {
            let step = lcm(self.unit[dim], chunk[dim]);
            (now / step).saturating_add(1).saturating_mul(step)
        });
        let mut extents: Vec<u64> = aligned.chain([now.saturating_mul(2), whole]).map(|one| one.min(whole)).collect();
        extents.retain(|&extent| extent > now);
        extents
    }

    fn read_less_often(&mut self, most_bytes: u64) {
        loop {
            let (reads, bytes) = (self.reads(&self.shape), self.bytes(&self.shape));
            let mut best: Option<(f64, Vec<u64>)> = None;
            for dim in 0..self.shape.len() {
                for extent in self.larger_extents(dim) {
                    let shape = self.with(dim, extent);
                    let (saved, after) = (reads / self.reads(&shape), self.bytes(&shape));
                    if after > most_bytes || saved <= 1.0 + 1e-9 {
                        continue;
                    }
                    let score = saved.ln() / (after as f64 / bytes.max(1) as f64).ln().max(1e-9);
                    if best.as_ref().is_none_or(|(found, _)| score > *found) {
                        best = Some((score, shape));
                    }
                }
            }
            let Some((_, shape)) = best else { return };
            self.shape = shape;
        }
    }

    /// Enlarges the regions until the memory is used up. It grows the last dimensions first,
    /// so that elements are copied in long contiguous runs.
    fn grow(&mut self, most_bytes: u64) {
        for dim in (0..self.shape.len()).rev() {
            while self.shape[dim] < self.whole(dim) {
                let shape = self.with(dim, self.shape[dim].saturating_mul(2).min(self.whole(dim)));
                if self.bytes(&shape) > most_bytes {
                    break;
                }
                self.shape = shape;
            }
        }
    }
}

/// Size in bytes of the largest region of this shape inside the array.
fn size_bytes(shape: &[u64], array: &[u64], element_bytes: u64) -> u64 {
    shape.iter().zip(array).fold(element_bytes, |bytes, (&extent, &len)| bytes.saturating_mul(extent.min(len)))
}

/// The average number of regions of `shape` that touch a chunk. Along one dimension, a region of `r` elements touches
/// (r + c - gcd(r, c)) / c chunks of `c` elements, on average over all its possible places.
fn reads(array: &[u64], shape: &[u64], chunk: &[u64]) -> f64 {
    let along = |(&len, (&region, &chunk)): (&u64, (&u64, &u64))| {
        if region >= len || chunk == 0 {
            return 1.0;
        }
        let chunk = chunk.min(len);
        (region + chunk - gcd(region, chunk)) as f64 / region as f64
    };
    array.iter().zip(shape.iter().zip(chunk)).map(along).product()
}

fn gcd(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one.max(1)
}

fn lcm(one: u64, other: u64) -> u64 {
    (one / gcd(one, other)).saturating_mul(other).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts exactly how many times chunks are read on average, which `reads` estimates.
    fn counted(regions: &Regions, array: &[u64], chunk: &[u64]) -> f64 {
        let touched: u64 = regions
            .from(0)
            .map(|region| {
                let region = region.unwrap();
                let axes = region.start.iter().zip(&region.extent).zip(chunk);
                axes.map(|((&start, &extent), &chunk)| (start + extent - 1) / chunk - start / chunk + 1)
                    .product::<u64>()
            })
            .sum();
        let chunks: u64 = array.iter().zip(chunk).map(|(&len, &chunk)| len.div_ceil(chunk)).product();
        touched as f64 / chunks as f64
    }

    #[test]
    fn regions_cover_every_element_once() {
        let regions = Regions::new(&[10, 7], vec![4, 3]).unwrap();
        let total: u64 = regions.from(0).map(|region| region.unwrap().elems()).sum();
        assert_eq!((regions.len(), total), (9, 70));
        assert_eq!(regions.get(8).unwrap(), Region { number: 8, start: vec![8, 6], extent: vec![2, 1] });
        assert!(regions.get(9).is_err());
        assert_eq!(Regions::new(&[], vec![]).unwrap().len(), 1);
        assert!(Regions::new(&[0, 7], vec![4, 3]).unwrap().is_empty());
    }

    #[test]
    fn reads_are_what_is_counted() {
        for (region, chunk) in [([6, 4], [4, 4]), ([4, 4], [12, 2]), ([12, 8], [4, 4]), ([3, 24], [5, 1])] {
            let array = [60, 24];
            let regions = Regions::new(&array, region.to_vec()).unwrap();
            let (estimated, counted) = (regions.reads(&chunk), counted(&regions, &array, &chunk));
            assert!((estimated - counted).abs() < 1e-9, "{region:?} {chunk:?}: {estimated} instead of {counted}");
        }
    }

    #[test]
    fn aligned_chunks_are_read_once_where_memory_allows() {
        let regions = Regions::plan(&[960, 960], 1, &[10, 960], &[&[24, 24]], 960 * 120).unwrap();
        assert_eq!(regions.shape(), [120, 960]);
        assert_eq!(regions.reads(&[24, 24]), 1.0);
    }

    #[test]
    fn regions_keep_to_whole_objects_and_to_the_budget() {
        for most in [1u64 << 14, 1 << 16, 1 << 20, 1 << 30] {
            let (array, unit) = ([100u64, 300, 70], [10u64, 7, 70]);
            let regions = Regions::plan(&array, 2, &unit, &[&[1, 300, 70]], most).unwrap();
            assert!(regions.most_bytes(2) <= most);
            assert!(regions.shape().iter().zip(unit).all(|(extent, unit)| extent % unit == 0), "{regions:?}");
        }
    }

    #[test]
    fn an_object_above_the_budget_is_refused() {
        let error = Regions::plan(&[100], 8, &[100], &[], 799).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
        assert!(Regions::plan(&[100], 8, &[1000], &[], 800).is_ok());
    }
}
