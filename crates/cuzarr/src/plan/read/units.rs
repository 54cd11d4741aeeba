//! Turns stored chunks into units and missing chunks into filled boxes, and collects both in a batch.

use std::sync::Arc;

use super::descent::Found;
use super::{At, Plan, Room};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::batch::{ChunkName, Fill, Place, SizeRule, Unit};
use crate::plan::pieces::{PackedAxis, PieceLimits, divide};
use crate::plan::source::ChunkLayout;
use crate::plan::tour::{Spot, Want};
use crate::store::ByteRange;

impl Plan {
    /// Which box of the result the elements of one cell fill: starts and extents along the dimensions that the result
    /// keeps.
    fn region(&self, selection: usize, inside: &[(u64, u64)]) -> (Vec<usize>, Vec<usize>) {
        let at = self.goals[selection].at;
        let stacked = if let At::Stacked(at) = at { Some((at, 1)) } else { None };
        let behind = if let At::Behind(elems) = at { elems } else { 0 };
        let own = self.selections[selection].region(inside).map(|(start, extent)| (start + behind, extent));
        stacked.into_iter().chain(own).unzip()
    }

    pub(super) fn fill(&self, name: &ChunkName, spot: &Spot, fills: &mut Vec<Fill>) {
        for want in &spot.wants {
            let (start, extent) = self.region(want.selection, &want.inside);
            fills.push(Fill { out: self.goals[want.selection].out, name: name.clone(), start, extent });
        }
    }

    /// Adds the units that read a stored chunk: the whole chunk, or pieces of it if it is uncompressed.
    pub(super) fn plan_chunk(&mut self, found: &Found, spot: &Spot, layout: &Arc<ChunkLayout>) -> Result<()> {
        let packed = &layout.packed;
        let whole_bytes = packed.size_bytes as u64;
        let size = match (packed.stored_is_packed, layout.leaf().bound_bytes, found.span) {
            (true, _, _) => SizeRule::Exact(whole_bytes),
            (false, Some(bound), _) => SizeRule::AtMost(bound),
            (false, None, _) => SizeRule::Any,
        };
        let size = match found.span {
            None => size,
            Some((_, stored_bytes)) => {
                if !size.allows(stored_bytes) {
                    let message = format!("index gives {stored_bytes} bytes, expected {size}");
                    return Err(Error::new(ErrorKind::ChunkCorrupt, message).at(found.name.to_string()));
                }
                SizeRule::Exact(stored_bytes)
            }
        };
        let is_whole = whole_bytes <= self.options.whole_chunks_bytes;
        if packed.stored_is_packed && packed.divisible && packed.element_bytes > 0 && !is_whole {
            return spot.wants.iter().try_for_each(|want| self.plan_pieces(found, &spot.origin, want, layout));
        }
        let range = match found.span {
            None => ByteRange::Full,
            Some((offset, size_bytes)) => ByteRange::Span { offset, size_bytes },
        };
        let place = |want: &Want| {
            let (start, extent) = self.region(want.selection, &want.inside);
            let out = self.goals[want.selection].out;
            Place { out, first_elem: self.first_elem(layout, &spot.origin, want), start, extent }
        };
        self.pieces.push_back(Unit {
            array: self.array,
            name: found.name.clone(),
            version: found.version.clone(),
            range,
            size,
            layout: Arc::clone(layout),
            packed_size_bytes: packed.size_bytes,
            whole: true,
            places: spot.wants.iter().map(place).collect(),
            keep: false,
        });
        Ok(())
    }

    /// Where the first wanted element lies in the packed chunk at `origin`, counted in elements.
    fn first_elem(&self, layout: &ChunkLayout, origin: &[u64], want: &Want) -> usize {
        self.selections[want.selection].first_elem(&layout.strides, origin, &want.inside)
    }

    fn plan_pieces(&mut self, found: &Found, origin: &[u64], want: &Want, layout: &Arc<ChunkLayout>) -> Result<()> {
        let order = &self.selections[want.selection];
        let (packed, strides) = (&layout.packed, &layout.strides);
        let (element_bytes, whole_bytes) = (packed.element_bytes as u64, packed.size_bytes as u64);
        let axes = order.packed_axes(&packed.axes, strides, origin, &want.inside);
        let listed: u64 = axes
            .iter()
            .filter_map(|axis| if let PackedAxis::Listed(elems) = axis { Some(elems[0]) } else { None })
            .sum();
        let first = self.first_elem(layout, origin, want) as u64 + listed;
        let limits =
            PieceLimits { max_bytes: self.options.piece_max_bytes, gap_bytes: self.options.coalesce_gap_bytes };
        let pieces = divide(&axes, element_bytes, limits);
        for piece in pieces {
            let mut inside = want.inside.clone();
            for (at, &(from, to)) in piece.inside.iter().enumerate() {
                let dim = if inside.len() == packed.axes.len() { packed.axes[at] } else { at };
                inside[dim] = (want.inside[dim].0 + from, want.inside[dim].0 + to);
            }
            let begin = (first + piece.offset_bytes / element_bytes) as usize;
            let first_elem = self.selections[want.selection].first_elem(strides, origin, &inside).wrapping_sub(begin);
            let (start, extent) = self.region(want.selection, &inside);
            let offset = first * element_bytes + piece.offset_bytes;
            let size_bytes = piece.size_bytes;
            let range = match found.span {
                // A request without an end shows whether the object is too long.
                None if size_bytes == whole_bytes => ByteRange::Full,
                None if offset + size_bytes == whole_bytes => ByteRange::From { offset },
                None => ByteRange::Span { offset, size_bytes },
                Some((begin, _)) => {
                    let Some(offset) = begin.checked_add(offset) else {
                        let message = format!("index places the chunk at byte {begin}, behind any object's end");
                        return Err(Error::new(ErrorKind::ChunkCorrupt, message).at(found.name.to_string()));
                    };
                    ByteRange::Span { offset, size_bytes }
                }
            };
            self.pieces.push_back(Unit {
                array: self.array,
                name: found.name.clone(),
                version: found.version.clone(),
                range,
                size: SizeRule::Exact(size_bytes),
                layout: Arc::clone(layout),
                packed_size_bytes: size_bytes as usize,
                whole: size_bytes == whole_bytes,
                places: vec![Place { out: self.goals[want.selection].out, first_elem, start, extent }],
                keep: false,
            });
        }
        Ok(())
    }
}

/// The chunks to read and the boxes for the fill value that are being collected for a batch, and the batch's limits.
pub(crate) struct Filling {
    pub(super) room: Room,
    pub(super) used_bytes: usize,
    /// Number of boxes of results that the collected units fill.
    pub(super) places: usize,
    pub(super) units: Vec<Unit>,
    pub(super) fills: Vec<Fill>,
}

impl Filling {
    pub(crate) fn new(room: Room) -> Filling {
        Filling { room, used_bytes: 0, places: 0, units: Vec::new(), fills: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.units.is_empty() && self.fills.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.places + self.fills.len() >= self.room.units.max(1)
    }

    /// Whether the chunk or piece `unit` can be added without exceeding the limits of the batch. A unit that is too
    /// large for any batch fits an empty one.
    pub(super) fn has_room_for(&self, unit: &Unit) -> bool {
        let fits = self.used_bytes.checked_add(self.cost(unit)).is_some_and(|used| used <= self.room.packed_bytes);
        (fits || self.units.is_empty()) && (!self.is_full() || self.is_empty())
    }

    pub(super) fn add(&mut self, unit: Unit) {
        self.used_bytes = self.used_bytes.saturating_add(self.cost(&unit));
        self.places += unit.places.len();
        self.units.push(unit);
    }

    fn cost(&self, unit: &Unit) -> usize {
        let alignment = self.room.alignment_bytes.max(1);
        unit.packed_size_bytes.checked_next_multiple_of(alignment).unwrap_or(usize::MAX)
    }
}
