//! What one step of a plan hands to `run`: reads, the units in them, and fills.

use std::sync::Arc;

use cuzarr_device::TransferBox;

use crate::store::{ByteRange, Version};

/// Which stored chunk something is about, for error messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkName {
    /// The object.
    pub key: Arc<str>,
    /// Place in the shard, level after level; empty for a chunk that is an object of its own.
    pub inner: Vec<u64>,
}

impl std::fmt::Display for ChunkName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "chunk '{}'", self.key)?;
        if self.inner.is_empty() { Ok(()) } else { write!(f, ", inner chunk {:?}", self.inner) }
    }
}

/// How many bytes a read may bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeRule {
    /// So many; anything else is a corrupt chunk.
    Exact(u64),
    /// At most so many.
    AtMost(u64),
    /// Not known beforehand (variable-length elements).
    Any,
}

impl SizeRule {
    /// Whether a read may bring so many.
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

/// A chunk, or a piece of an uncompressed one, and the elements of the result that come from it.
#[derive(Clone, Debug)]
pub struct Unit {
    /// Which chunk.
    pub name: ChunkName,
    /// Which version of the object it must be of; `None` for whichever there is.
    pub version: Option<Version>,
    /// Its bytes in the object.
    pub range: ByteRange,
    /// How many they may be.
    pub size: SizeRule,
    /// Bytes it has when packed.
    pub packed_size_bytes: usize,
    /// Whether this is the whole chunk, to be decoded; else it is a piece of packed bytes, taken as it is.
    pub whole: bool,
    /// The boxes of the result that its elements fill: one, or more where several selections want the same chunk.
    pub places: Vec<Place>,
}

/// A box of the result, and where its elements lie in a packed chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the first wanted element in the packed bytes.
    pub first_elem: usize,
    /// Where the box begins in the result, per kept dimension.
    pub start: Vec<usize>,
    /// How many elements, per kept dimension.
    pub extent: Vec<usize>,
}

impl Unit {
    /// The boxes that scatter moves, once the packed bytes lie at `packed_offset_bytes`.
    pub fn transfer_boxes(&self, packed_offset_bytes: usize) -> impl Iterator<Item = TransferBox> + '_ {
        self.places.iter().map(move |place| TransferBox {
            packed_offset_bytes,
            packed_size_bytes: self.packed_size_bytes,
            packed_first_elem: place.first_elem,
            start: place.start.clone(),
            extent: place.extent.clone(),
        })
    }

    /// Its parts of the result, to be filled.
    pub fn fills(&self) -> impl Iterator<Item = Fill> + '_ {
        let fill = |place: &Place| (place.start.clone(), place.extent.clone());
        self.places.iter().map(fill).map(|(start, extent)| Fill { name: self.name.clone(), start, extent })
    }
}

/// A box of the result whose chunk does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fill {
    /// The chunk (or shard) that does not exist.
    pub name: ChunkName,
    /// Where the box begins in the result, per kept dimension.
    pub start: Vec<usize>,
    /// How many elements, per kept dimension.
    pub extent: Vec<usize>,
}

/// One request to the store, and the units whose bytes it brings.
#[derive(Clone, Debug)]
pub struct Read {
    /// Which object.
    pub key: Arc<str>,
    /// Which version of it; `None` for whichever there is.
    pub version: Option<Version>,
    /// Which bytes.
    pub range: ByteRange,
    /// How many they may be.
    pub size: SizeRule,
    /// Indices into the batch's units.
    pub units: std::ops::Range<usize>,
}

/// Reads, units and fills that fit the memory at hand.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Requests, each with its run of units.
    pub reads: Vec<Read>,
    /// Units, in the order of `reads`.
    pub units: Vec<Unit>,
    /// Boxes without a chunk.
    pub fills: Vec<Fill>,
}

impl Batch {
    /// Packed bytes of the units of a read.
    pub fn packed_bytes(&self, read: usize) -> usize {
        self.units[self.reads[read].units.clone()].iter().map(|unit| unit.packed_size_bytes).sum()
    }

    /// Where a unit's bytes begin in its read, and how many they are; `None` for the whole of it.
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
    /// Gaps up to so many bytes are read over.
    pub gap_bytes: u64,
    /// Most bytes of a merged read.
    pub max_bytes: u64,
    /// A read of so many bytes is not joined with others: it is worth its request, and more of them run side by side.
    pub enough_bytes: u64,
    /// Bytes of gaps that the batch may hold in all.
    pub spare_bytes: u64,
}

/// Joins the ranges of neighbouring units of one object into reads. Units are reordered by offset inside each run of
/// units of one object, never across objects.
pub(crate) fn coalesce(mut units: Vec<Unit>, limits: CoalesceLimits) -> (Vec<Unit>, Vec<Read>) {
    let mut from = 0;
    while from < units.len() {
        let key = Arc::clone(&units[from].name.key);
        let run = units[from..].iter().take_while(|unit| unit.name.key == key).count();
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
        reads.push(Read { key, version, range, size, units: index..index + 1 });
    }
    (units, reads)
}

fn span_of(range: ByteRange) -> Option<(u64, u64)> {
    match range {
        ByteRange::Span { offset, size_bytes } => Some((offset, size_bytes)),
        _ => None,
    }
}

/// The range that brings both, and the bytes it brings in vain.
fn merged(read: &Read, unit: &Unit, limits: &CoalesceLimits) -> Option<(ByteRange, u64)> {
    if read.key != unit.name.key || read.version != unit.version {
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
            name: ChunkName { key: key.into(), inner: vec![offset] },
            version: None,
            range: ByteRange::Span { offset, size_bytes },
            size: SizeRule::Exact(size_bytes),
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
    fn units_may_share_bytes() {
        assert_eq!(
            ranges(vec![unit("a", 0, 10), unit("a", 0, 10), unit("a", 2, 4)], 0, 100, 0),
            [("a".into(), 0, 10, 3)]
        );
    }
}
