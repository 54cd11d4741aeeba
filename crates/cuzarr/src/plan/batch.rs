//! Batches: one step of a plan, with reads, the units in them, and fills.

use std::sync::Arc;

use cuzarr_device::TransferBox;

use super::source::ChunkLayout;
use crate::store::{ByteRange, Version};

/// The name of a stored chunk, for error messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkName {
    /// The array, where a call reads several.
    pub array: Option<Arc<str>>,
    /// The key of the object.
    pub key: Arc<str>,
    /// The chunk's place in the shard, for each level of shards; empty for a chunk that is an object itself.
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

/// The sizes that a read may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeRule {
    /// Exactly this many bytes. Any other size means a corrupt chunk.
    Exact(u64),
    /// At most this many bytes.
    AtMost(u64),
    /// Any size, for elements of variable length.
    Any,
}

impl SizeRule {
    /// Whether a read may have this size.
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

/// A chunk, or a piece of an uncompressed chunk, and the elements of the result that come from it.
#[derive(Clone, Debug)]
pub struct Unit {
    /// The number of the array among those of the call.
    pub array: usize,
    /// The chunk's name.
    pub name: ChunkName,
    /// The version of the object that is needed; `None` for any version.
    pub version: Option<Version>,
    /// The unit's bytes in the object.
    pub range: ByteRange,
    /// The sizes that the bytes may have.
    pub size: SizeRule,
    /// The layout of the object that the chunk belongs to, and its codecs.
    pub(crate) layout: Arc<ChunkLayout>,
    /// Bytes of the packed unit.
    pub packed_size_bytes: usize,
    /// Whether this is a whole chunk, which must be decoded. Otherwise it is a piece of packed bytes, used as it is.
    pub whole: bool,
    /// The boxes of results that the unit fills, in the order of results: several when several selections want the chunk.
    pub places: Vec<Place>,
}

/// A box of a result, and the place of its elements in a packed chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of the result among those of the call.
    pub out: usize,
    /// Index of the first wanted element in the packed bytes.
    pub first_elem: usize,
    /// Where the box begins in the result, per kept dimension.
    pub start: Vec<usize>,
    /// How many elements, per kept dimension.
    pub extent: Vec<usize>,
}

impl Unit {
    /// The box of a place that scattering moves when the packed bytes lie at `packed_offset_bytes`.
    pub fn transfer_box(&self, place: &Place, packed_offset_bytes: usize) -> TransferBox {
        TransferBox {
            packed_offset_bytes,
            packed_size_bytes: self.packed_size_bytes,
            packed_first_elem: place.first_elem,
            start: place.start.clone(),
            extent: place.extent.clone(),
        }
    }

    /// The unit's places, those of one result together.
    pub fn places_by_out(&self) -> impl Iterator<Item = &[Place]> {
        self.places.chunk_by(|one, next| one.out == next.out)
    }

    /// The parts of the result to fill when the chunk is missing.
    pub fn fills(&self) -> impl Iterator<Item = Fill> + '_ {
        self.places.iter().map(|place| Fill {
            out: place.out,
            name: self.name.clone(),
            start: place.start.clone(),
            extent: place.extent.clone(),
        })
    }
}

/// A box of a result without a chunk; it gets the fill value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fill {
    /// The number of the result among those of the call.
    pub out: usize,
    /// The chunk (or shard) that does not exist.
    pub name: ChunkName,
    /// Where the box begins in the result, per kept dimension.
    pub start: Vec<usize>,
    /// How many elements, per kept dimension.
    pub extent: Vec<usize>,
}

/// One request to the store, and the units in its bytes.
#[derive(Clone, Debug)]
pub struct Read {
    /// The number of the array among those of the call.
    pub array: usize,
    /// The key of the object.
    pub key: Arc<str>,
    /// The version of the object that is needed; `None` for any version.
    pub version: Option<Version>,
    /// The bytes to read.
    pub range: ByteRange,
    /// The sizes that the bytes may have.
    pub size: SizeRule,
    /// Indices into the batch's units.
    pub units: std::ops::Range<usize>,
}

/// Reads, units and fills that fit the available memory.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The number of the group of arrays whose chunks share batches.
    pub group: usize,
    /// The requests, each with its range of units.
    pub reads: Vec<Read>,
    /// The units, in the order of `reads`.
    pub units: Vec<Unit>,
    /// Boxes without a chunk.
    pub fills: Vec<Fill>,
}

impl Batch {
    /// The packed bytes of a read's units.
    pub fn packed_bytes(&self, read: usize) -> usize {
        self.units[self.reads[read].units.clone()].iter().map(|unit| unit.packed_size_bytes).sum()
    }

    /// The bytes of a read that none of its units wants.
    pub fn gap_bytes(&self, read: usize) -> usize {
        let Read { range, units, .. } = &self.reads[read];
        let Some((_, size_bytes)) = span_of(*range) else { return 0 };
        let wanted = self.units[units.clone()].iter().filter_map(|unit| span_of(unit.range)).map(|(_, bytes)| bytes);
        // A read of several units fits in memory.
        size_bytes.saturating_sub(wanted.sum()) as usize
    }

    /// Offset and size of a unit's bytes in its read; `None` for the whole read.
    pub fn unit_span(&self, read: &Read, unit: usize) -> Option<(usize, usize)> {
        match (read.range, self.units[unit].range) {
            (ByteRange::Span { offset: begin, .. }, ByteRange::Span { offset, size_bytes }) => {
                // A merged read never exceeds the memory of one slab, so both fit.
                Some(((offset - begin) as usize, size_bytes as usize))
            }
            _ => None,
        }
    }
}

/// Limits of a merged read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoalesceLimits {
    /// Largest gap between ranges that one read covers.
    pub gap_bytes: u64,
    /// Most bytes of a merged read.
    pub max_bytes: u64,
    /// A read of at least this many bytes is not joined with others: it is worth a request, and separate reads run in parallel.
    pub enough_bytes: u64,
    /// Most bytes of all gaps of a batch together.
    pub spare_bytes: u64,
}

/// Joins the ranges of neighbouring units of one object into reads. Units of one object are sorted by offset; the order of
/// objects stays.
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

/// The range that covers both, and the bytes of the gap between them.
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
        let (units, reads) = coalesce(units, limits);
        let batch = Batch { group: 0, reads, units, fills: Vec::new() };
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
