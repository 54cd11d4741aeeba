//! Batches: the requests of a read, the chunks in the requested bytes and the boxes of missing chunks, as far as they
//! fit memory. A batch is one step of a plan.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use cuzarr_device::TransferBox;

use super::source::ChunkLayout;
use crate::store::{ByteRange, Version};

/// The name of a stored chunk, for error messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkName {
    /// The name of the array, if a call reads several.
    pub array: Option<Arc<str>>,
    /// The key of the stored object.
    pub key: Arc<str>,
    /// The chunk's coordinates in its shard, for each level of shards; empty for an object. Empty for a chunk that is
    /// an object itself.
    pub inner: Vec<u64>,
}

impl std::fmt::Display for ChunkName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(array) = &self.array {
            write!(f, "{array}: ")?;
        }
        write!(f, "chunk '{}'", self.key)?;
        if self.inner.is_empty() { Ok(()) } else { write!(f, ", inner chunk {:?}", self.inner) }
    }
}

/// The sizes in bytes that the answer to a read may have without being an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeRule {
    /// The store's answer to a read must have exactly this many bytes. Any other size means a corrupt chunk.
    Exact(u64),
    /// The store's answer to a read may have at most this many bytes.
    AtMost(u64),
    /// The store's answer to a read may have any size. For elements of variable length.
    Any,
}

impl SizeRule {
    /// Whether a store's answer of this size to a read is no error.
    pub fn allows(self, size_bytes: u64) -> bool {
        match self {
            SizeRule::Exact(expected) => size_bytes == expected,
            SizeRule::AtMost(bound) => size_bytes <= bound,
            SizeRule::Any => true,
        }
    }
}

impl std::fmt::Display for SizeRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SizeRule::Exact(bytes) => write!(f, "{bytes}"),
            SizeRule::AtMost(bytes) => write!(f, "at most {bytes}"),
            SizeRule::Any => f.write_str("any number"),
        }
    }
}

/// A chunk, or a piece of an uncompressed chunk, and the boxes of results that its elements fill.
#[derive(Clone, Debug)]
pub struct Unit {
    /// The number of the chunk's array among all arrays that the call reads.
    pub array: usize,
    /// The name of the chunk, for error messages.
    pub name: ChunkName,
    /// The version that the stored object must still have when its bytes are read; `None` for any version.
    pub version: Option<Version>,
    /// The range in the stored object at which the bytes of this chunk or piece lie.
    pub range: ByteRange,
    /// The sizes that the stored bytes of the chunk or piece may have.
    pub size: SizeRule,
    /// How the stored object (chunk or shard) that holds the chunk is divided into chunks and encoded.
    pub(crate) layout: Arc<ChunkLayout>,
    /// Size of the chunk or piece in bytes after all host codecs are undone.
    pub packed_size_bytes: usize,
    /// Whether the unit is a whole chunk, and not a piece of one. Otherwise it is a piece of an uncompressed chunk.
    pub whole: bool,
    /// The boxes in the call's results that elements of this chunk fill, in the order of the results. There are several
    /// if several selections need the chunk.
    pub places: Vec<Place>,
    /// Whether the decoded chunk goes to the chunk cache.
    pub keep: bool,
}

/// The content of a chunk cache entry: a decoded chunk, or the index of a shard. Plans do not look inside.
pub trait Kept: Any + fmt::Debug + Send + Sync {}

/// A box in one of a read's results that a chunk fills, and where its first element lies in the packed chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of the result in which the box lies, among all results of the call.
    pub out: usize,
    /// Index of the box's first element among the packed elements of the chunk or piece.
    pub first_elem: usize,
    /// Start of the box along each dimension of the result.
    pub start: Vec<usize>,
    /// Extent of the box along each dimension of the result.
    pub extent: Vec<usize>,
}

impl Unit {
    /// Describes `place` for the copy of elements to a result, if the chunk's packed bytes begin at
    /// `packed_offset_bytes`.
    pub fn transfer_box(&self, place: &Place, packed_offset_bytes: usize) -> TransferBox {
        TransferBox {
            packed_offset_bytes,
            packed_size_bytes: self.packed_size_bytes,
            packed_first_elem: place.first_elem,
            start: place.start.clone(),
            extent: place.extent.clone(),
        }
    }

    /// The boxes that the chunk or piece fills, as one slice for each result.
    pub fn places_by_out(&self) -> impl Iterator<Item = &[Place]> {
        self.places.chunk_by(|one, next| one.out == next.out)
    }

    /// The boxes that get the fill value if the chunk does not exist.
    pub fn fills(&self) -> impl Iterator<Item = Fill> + '_ {
        self.places.iter().map(|place| Fill {
            out: place.out,
            name: self.name.clone(),
            start: place.start.clone(),
            extent: place.extent.clone(),
        })
    }
}

/// A box in one of a read's results that gets the fill value because no chunk is stored for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fill {
    /// The number of the result in which the box lies, among all results of the call.
    pub out: usize,
    /// The chunk or shard that does not exist, for error messages.
    pub name: ChunkName,
    /// Start of the box along each dimension of the result.
    pub start: Vec<usize>,
    /// Extent of the box along each dimension of the result.
    pub extent: Vec<usize>,
}

/// One request to the store: a range of an object's bytes, and the units that lie in this range.
#[derive(Clone, Debug)]
pub struct Read {
    /// The number of the object's array among all arrays that the call reads.
    pub array: usize,
    /// The key of the stored object.
    pub key: Arc<str>,
    /// The version that the stored object must still have when the request reads it; `None` for any version.
    pub version: Option<Version>,
    /// The range of bytes that the request asks for.
    pub range: ByteRange,
    /// The sizes that the answer to the request may have.
    pub size: SizeRule,
    /// Which units of the batch lie in the bytes of this request, as a range of their numbers.
    pub units: std::ops::Range<usize>,
}

/// A part of a read that fits the available memory: requests to the store, chunks to decode, and boxes of missing
/// chunks.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The number of the group of arrays whose chunks this batch reads. Arrays of a group share batches.
    pub group: usize,
    /// The requests to the store, each with the numbers of the chunks and pieces that lie in its bytes.
    pub reads: Vec<Read>,
    /// The chunks and pieces to decode, in the order of `reads`.
    pub units: Vec<Unit>,
    /// Boxes that get the fill value because no chunk is stored for them.
    pub fills: Vec<Fill>,
    /// Units that need no read because the chunk cache has their chunks, each with the cached chunk.
    pub kept: Vec<(Unit, Arc<dyn Kept>)>,
    /// The limits by which neighbouring ranges were joined to one request.
    pub(crate) limits: CoalesceLimits,
}

impl Batch {
    /// Makes a batch that reads the chunks `units`, and writes the fill value to the boxes `fills`.
    pub(crate) fn new(group: usize, units: Vec<Unit>, fills: Vec<Fill>, limits: CoalesceLimits) -> Batch {
        let (units, reads) = coalesce(units, limits);
        Batch { group, reads, units, fills, kept: Vec::new(), limits }
    }

    /// Makes a batch that ignores the chunk cache: it also reads the chunks in `kept` from the store.
    pub(crate) fn without_kept(self) -> Batch {
        let kept = self.kept.into_iter().map(|(unit, _)| unit);
        Batch::new(self.group, self.units.into_iter().chain(kept).collect(), self.fills, self.limits)
    }

    /// Whether the batch has nothing to do: no requests, no boxes for the fill value and no cached chunks.
    pub(crate) fn is_empty(&self) -> bool {
        self.units.is_empty() && self.fills.is_empty() && self.kept.is_empty()
    }

    /// Size of all chunks and pieces of one request together, after host codecs are undone.
    pub fn packed_bytes(&self, read: usize) -> usize {
        self.units[self.reads[read].units.clone()].iter().map(|unit| unit.packed_size_bytes).sum()
    }

    /// Bytes of a request that are read but not needed, because they lie between the ranges of its units.
    pub fn gap_bytes(&self, read: usize) -> usize {
        let Read { range, units, .. } = &self.reads[read];
        let Some((_, size_bytes)) = span_of(*range) else { return 0 };
        let wanted = self.units[units.clone()].iter().filter_map(|unit| span_of(unit.range)).map(|(_, bytes)| bytes);
        // A read of several units fits in memory, so this fits `usize`.
        size_bytes.saturating_sub(wanted.sum()) as usize
    }

    /// Offset and size of a chunk's bytes in the answer to the request `read`; `None` if they are the whole answer.
    pub fn unit_span(&self, read: &Read, unit: usize) -> Option<(usize, usize)> {
        match (read.range, self.units[unit].range) {
            (ByteRange::Span { offset: begin, .. }, ByteRange::Span { offset, size_bytes }) => {
                // A merged read is never larger than a slab, so both fit `usize`.
                Some(((offset - begin) as usize, size_bytes as usize))
            }
            _ => None,
        }
    }
}

/// Limits for joining neighbouring ranges of an object to one request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CoalesceLimits {
    /// Maximum gap in bytes between two ranges of an object that are joined to one request.
    pub gap_bytes: u64,
    /// Maximum size of a request that was joined from several ranges.
    pub max_bytes: u64,
    /// Size in bytes from which on a request is not joined with others. Such a read is worth its own request, and
    /// separate reads run in parallel.
    pub enough_bytes: u64,
    /// Maximum size of all gaps together that the requests of one batch cover.
    pub spare_bytes: u64,
}

/// Joins neighbouring ranges of one object into single requests. Sorts the units of each object by offset, and keeps
/// the order of objects.
pub(crate) fn coalesce(mut units: Vec<Unit>, limits: CoalesceLimits) -> (Vec<Unit>, Vec<Read>) {
    let mut from = 0;
    while from < units.len() {
        let (array, key) = (units[from].array, Arc::clone(&units[from].name.key));
        let run = units[from..].iter().take_while(|unit| unit.array == array && unit.name.key == key).count();
        units[from..from + run].sort_by_key(|unit| span_of(unit.range).map_or(u64::MAX, |(offset, _)| offset));
        from += run;
    }
    let mut spare_bytes = limits.spare_bytes;
    let mut reads: Vec<Read> = Vec::with_capacity(units.len());
    for (index, unit) in units.iter().enumerate() {
        if let Some(last) = reads.last_mut()
            && let Some((range, gap)) = merged(last, unit, &limits).filter(|(_, gap)| *gap <= spare_bytes)
        {
            spare_bytes -= gap;
            (last.range, last.units.end) = (range, index + 1);
            if let ByteRange::Span { size_bytes, .. } = range {
                last.size = SizeRule::Exact(size_bytes);
            }
            continue;
        }
        let key = Arc::clone(&unit.name.key);
        let (version, range, size) = (unit.version.clone(), unit.range, unit.size);
        reads.push(Read { array: unit.array, key, version, range, size, units: index..index + 1 });
    }
    (units, reads)
}

fn span_of(range: ByteRange) -> Option<(u64, u64)> {
    match range {
        ByteRange::Span { offset, size_bytes } => Some((offset, size_bytes)),
        _ => None,
    }
}

/// The range of bytes that covers both `read` and `unit`, and the size of the gap between them. `None` if they must not
/// be joined.
fn merged(read: &Read, unit: &Unit, limits: &CoalesceLimits) -> Option<(ByteRange, u64)> {
    if read.array != unit.array || read.key != unit.name.key || read.version != unit.version {
        return None;
    }
    let ((begin, read_bytes), (offset, unit_bytes)) = (span_of(read.range)?, span_of(unit.range)?);
    let (end, unit_end) = (begin.checked_add(read_bytes)?, offset.checked_add(unit_bytes)?);
    let gap = offset.saturating_sub(end);
    let size_bytes = end.max(unit_end) - begin;
    let fits = gap <= limits.gap_bytes && size_bytes <= limits.max_bytes && read_bytes < limits.enough_bytes;
    fits.then_some((ByteRange::Span { offset: begin, size_bytes }, gap))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(key: &str, offset: u64, size_bytes: u64) -> Unit {
        Unit {
            array: 0,
            name: ChunkName { array: None, key: key.into(), inner: vec![offset] },
            version: None,
            range: ByteRange::Span { offset, size_bytes },
            size: SizeRule::Exact(size_bytes),
            layout: crate::plan::testing::layout(&[&[size_bytes]]),
            packed_size_bytes: size_bytes as usize,
            whole: true,
            places: Vec::new(),
            keep: false,
        }
    }

    fn ranges(units: Vec<Unit>, gap_bytes: u64, max_bytes: u64, spare_bytes: u64) -> Vec<(String, u64, u64, usize)> {
        let (_, reads) = coalesce(units, CoalesceLimits { gap_bytes, max_bytes, enough_bytes: 25, spare_bytes });
        let span = |read: &Read| span_of(read.range).unwrap();
        reads.iter().map(|read| (read.key.to_string(), span(read).0, span(read).1, read.units.len())).collect()
    }

    #[test]
    fn neighbours_of_one_object_are_read_together() {
        let units = || vec![unit("a", 20, 10), unit("a", 0, 10), unit("a", 10, 10), unit("b", 30, 5)];
        assert_eq!(ranges(units(), 0, 100, 100), [("a".into(), 0, 30, 3), ("b".into(), 30, 5, 1)]);
        let large = vec![unit("a", 0, 25), unit("a", 25, 10), unit("a", 35, 10)];
        assert_eq!(ranges(large, 0, 100, 100), [("a".into(), 0, 25, 1), ("a".into(), 25, 20, 2)]);
        assert_eq!(
            ranges(units(), 0, 20, 100),
            [("a".into(), 0, 20, 2), ("a".into(), 20, 10, 1), ("b".into(), 30, 5, 1)]
        );
    }

    #[test]
    fn gaps_are_read_over_as_far_as_allowed() {
        let units = || vec![unit("a", 0, 10), unit("a", 14, 10), unit("a", 30, 10)];
        assert_eq!(ranges(units(), 4, 100, 100).len(), 2);
        assert_eq!(ranges(units(), 6, 100, 100).len(), 1);
        assert_eq!(ranges(units(), 6, 100, 9).len(), 2);
        assert_eq!(ranges(units(), 3, 100, 100).len(), 3);
    }

    #[test]
    fn bytes_that_no_unit_wants_are_counted() {
        let units = vec![unit("a", 0, 10), unit("a", 14, 10), unit("a", 30, 10), unit("b", 0, 7)];
        let limits = CoalesceLimits { gap_bytes: 6, max_bytes: 100, enough_bytes: 100, spare_bytes: 100 };
        let batch = Batch::new(0, units, Vec::new(), limits);
        assert_eq!((batch.gap_bytes(0), batch.gap_bytes(1)), (10, 0));
    }

    #[test]
    fn units_may_share_bytes() {
        assert_eq!(
            ranges(vec![unit("a", 0, 10), unit("a", 0, 10), unit("a", 2, 4)], 0, 100, 0),
            [("a".into(), 0, 10, 3)]
        );
    }
}
