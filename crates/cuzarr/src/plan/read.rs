//! The plan of a read: which bytes of which objects, decoded into which boxes of the result.
//!
//! A plan is a value that does nothing. It is asked for one batch after the other, each as large as the memory at hand,
//! so that a selection of millions of chunks is never listed as a whole. Where the way leads through a shard whose index
//! is not known yet, the plan says which indexes it needs, is told them, and is asked again.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::batch::{Batch, ChunkName, CoalesceLimits, Fill, Place, SizeRule, Unit, coalesce};
use super::explanation::chunks_touched;
use super::geometry::{first_elem, number_in, packed_strides, region, whole};
use super::pieces::{PackedAxis, PieceLimits, divide};
use super::selection::{AxisSelection, Selection};
use super::source::{ShardLayout, Source};
use super::tour::{Spot, Tour, Want};
use super::walk::{Walk, cells_touched};
use super::whole::{WholeShards, whole_shards};
use crate::codec::ShardIndex;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{ByteRange, Version};

/// Reads of so many bytes are not joined with their neighbours: bandwidth, not their number, decides their time.
const ENOUGH_BYTES: u64 = 1 << 20;

/// Where the inner chunks of one shard lie: (offset, size) from the shard's first byte, by C-order number.
pub trait Entries: Send + Sync {
    /// The place of an inner chunk, or `None` when it does not exist.
    fn get(&self, linear: usize) -> Option<(u64, u64)>;

    /// How many inner chunks there are, stored or not.
    fn len(&self) -> usize;

    /// Whether there are no inner chunks.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The version of the object that they are of: chunks must come from the same. `None` when it is not known.
    fn version(&self) -> Option<Version> {
        None
    }
}

impl Entries for ShardIndex {
    fn get(&self, linear: usize) -> Option<(u64, u64)> {
        ShardIndex::get(self, linear)
    }

    fn len(&self) -> usize {
        ShardIndex::len(self)
    }
}

/// Cells of the array's own grid that are listed at once for several selections, about.
const LISTED_CELLS: u64 = 64 << 10;

/// Entries of indexes that a plan of several selections keeps at most: selections of one neighbourhood share their shards.
const KEPT_ENTRIES: usize = 4 << 20;

/// Sizes that a plan decides by.
#[derive(Clone, Copy, Debug)]
pub struct PlanOptions {
    /// Gaps up to so many bytes are read over.
    pub coalesce_gap_bytes: u64,
    /// Most bytes of a read of several chunks.
    pub coalesce_max_bytes: u64,
    /// Uncompressed chunks are read in pieces of at most so many bytes.
    pub piece_max_bytes: u64,
    /// Shard indexes that are fetched at once, in bytes.
    pub index_window_bytes: u64,
    /// Most bytes of shards that are read whole before their indexes are known.
    pub whole_shards_bytes: u64,
}

/// What one batch may hold.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Packed bytes; a single chunk that is larger comes alone.
    pub packed_bytes: usize,
    /// Boxes of the result that units and fills have, about.
    pub units: usize,
    /// Packed bytes of a unit are counted in multiples of this.
    pub alignment_bytes: usize,
}

/// Where an index is, for [`Plan::learn`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IndexPlace {
    /// The object.
    pub key: Arc<str>,
    /// Where the shard begins in the object.
    pub shard_offset: u64,
    /// Level whose chunks are such shards: the first inner shard may begin where the outer one does.
    pub level: usize,
}

/// The index of one shard, to be fetched.
#[derive(Clone, Debug)]
pub struct IndexRead {
    /// What to say to [`Plan::learn`].
    pub place: IndexPlace,
    /// Its bytes in the object.
    pub range: ByteRange,
    /// How many they are.
    pub size_bytes: u64,
    /// Which version of the object it must be of, when another index led here.
    pub version: Option<Version>,
    /// The shard, for error messages.
    pub name: ChunkName,
}

/// What a plan wants next.
#[derive(Debug)]
pub enum Step {
    /// This can be read now.
    Batch(Batch),
    /// These indexes must be learned first.
    Indexes(Vec<IndexRead>),
    /// Everything was handed out.
    Done,
}

/// One grid on the way down from the array to a chunk that is decoded.
struct Frame {
    level: usize,
    tour: Tour,
    /// The shard whose inner chunks are walked; `None` for the array's own grid.
    shard: Option<Shard>,
}

struct Shard {
    key: Arc<str>,
    offset: u64,
    /// `None` for an object of its own, whose size is not known.
    size_bytes: Option<u64>,
    grid: Vec<u64>,
    entries: Arc<dyn Entries>,
    inner: Vec<u64>,
}

/// A stored chunk that was found: where its bytes are.
struct Found {
    name: ChunkName,
    /// Offset and size in the object; `None` for the whole object.
    span: Option<(u64, u64)>,
    version: Option<Version>,
}

/// How the results of a plan's selections lie.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stacking {
    /// There is one selection, and its result is the array.
    One,
    /// One behind the other along a new first dimension.
    Stacked,
    /// So, and nothing of a selection comes before all of those in front of it.
    InTurn,
}

/// The plan of one read, of one selection or of several.
pub struct Plan {
    source: Arc<Source>,
    /// Results of several selections lie in one array, behind a first dimension.
    selections: Vec<Selection>,
    /// The first selection that was not begun.
    next: usize,
    stacking: Stacking,
    options: PlanOptions,
    /// Elements between neighbours of a packed chunk, per dimension of the array.
    strides: Vec<u64>,
    stack: Vec<Frame>,
    known: HashMap<IndexPlace, Option<Arc<dyn Entries>>>,
    /// Entries of all that is known.
    known_entries: usize,
    /// Pieces of the chunk that was met last, for which there was no room yet.
    pieces: VecDeque<Unit>,
}

impl Plan {
    /// The plan of reading `selection`.
    ///
    /// # Errors
    /// `SelectionInvalid` when the selection does not fit the array.
    pub fn new(source: Arc<Source>, selection: Selection, options: PlanOptions) -> Result<Plan> {
        Plan::of(source, vec![selection], Stacking::One, options)
    }

    /// The plan of reading several selections that differ in their place alone, one behind the other along a new first
    /// dimension of the result.
    ///
    /// # Errors
    /// `SelectionInvalid` when a selection does not fit the array; `ShapeMismatch` when they are not alike.
    pub fn many(source: Arc<Source>, selections: Vec<Selection>, options: PlanOptions) -> Result<Plan> {
        if let Some(other) = selections.iter().find(|selection| !selection.is_like(&selections[0])) {
            let message = format!("selections {} and {other} differ in more than their place", selections[0]);
            return Err(Error::new(ErrorKind::ShapeMismatch, message));
        }
        Plan::of(source, selections, Stacking::Stacked, options)
    }

    /// The plan of reading several boxes of the array one after the other: batches hold the end of one and the beginning of
    /// the next, but nothing of a box comes before all of those in front of it. The first dimension of places is the box's
    /// number.
    ///
    /// # Errors
    /// `SelectionInvalid` when a selection does not fit the array, or is no box of all its dimensions.
    pub fn in_turn(source: Arc<Source>, selections: Vec<Selection>, options: PlanOptions) -> Result<Plan> {
        let is_box = |selection: &&Selection| selection.axes().iter().all(|axis| axis.step == 1 && !axis.dropped);
        if let Some(other) = selections.iter().find(|selection| !is_box(selection)) {
            let message = format!("selection {other} is no box of the array");
            return Err(Error::new(ErrorKind::SelectionInvalid, message));
        }
        Plan::of(source, selections, Stacking::InTurn, options)
    }

    fn of(source: Arc<Source>, selections: Vec<Selection>, stacking: Stacking, options: PlanOptions) -> Result<Plan> {
        selections.iter().try_for_each(|selection| selection.check(&source.shape))?;
        let strides = source.packed.strides(&source.leaf().chunk_shape);
        Ok(Plan {
            source,
            selections,
            next: 0,
            stacking,
            options,
            strides,
            stack: Vec::new(),
            known: HashMap::new(),
            known_entries: 0,
            pieces: VecDeque::new(),
        })
    }

    /// A plan of the same read of the array in another binding, whose packed chunks may lie otherwise.
    ///
    /// # Errors
    /// Those of [`Plan::new`].
    pub(crate) fn rebound(self, source: &Arc<Source>) -> Result<Plan> {
        Plan::of(Arc::clone(source), self.selections, self.stacking, self.options)
    }

    /// Whether the plan is of one selection, which lies in one chunk.
    pub(crate) fn is_one_chunk(&self) -> bool {
        matches!(&self.selections[..], [one] if self.stacking == Stacking::One && chunks_touched(&self.source, one) == 1)
    }

    /// Whether results lie behind a first dimension.
    fn is_stacked(&self) -> bool {
        self.stacking != Stacking::One
    }

    /// Dimensions, steps and extents, which all selections have alike.
    fn axes(&self) -> &[AxisSelection] {
        self.selections.first().map_or(&[], |selection| selection.axes())
    }

    /// The array's own grid, for selections that were not begun: one, or so many that the list of their cells stays small.
    fn first_frame(&mut self) -> Option<Frame> {
        let from = self.next;
        let cell = &self.source.levels[0].chunk_shape;
        let listed_cells = if self.stacking == Stacking::InTurn { 1 } else { LISTED_CELLS };
        let mut cells = 0;
        while let Some(selection) = self.selections.get(self.next).filter(|_| cells < listed_cells) {
            let touched = selection.axes().iter().zip(cell).map(|(axis, &cell)| cells_touched(axis, cell.max(1)));
            cells = touched.fold(1u64, u64::saturating_mul).saturating_add(cells);
            self.next += 1;
        }
        let wants: Vec<Want> = (from..self.next)
            .map(|selection| {
                let inside = whole(self.selections[selection].axes());
                Want { selection, inside }
            })
            .collect();
        let origin = vec![0; self.source.shape.len()];
        let tour = || Tour::new(&self.selections, &wants, &origin, cell);
        (!wants.is_empty()).then(|| Frame { level: 0, tour: tour(), shard: None })
    }

    /// Elements between neighbours in packed bytes, per dimension of the result: steps and transposed axes included.
    pub fn packed_strides(&self) -> Vec<isize> {
        self.is_stacked().then_some(0).into_iter().chain(packed_strides(self.axes(), &self.strides)).collect()
    }

    /// The shards that all of the selection lies in, where reading them whole takes less time than asking for their indexes first.
    pub fn whole_shards(&self) -> Option<WholeShards> {
        match &self.selections[..] {
            [selection] => whole_shards(&self.source, selection, &self.options),
            _ => None,
        }
    }

    /// Tells the plan an index it asked for; `None` when the shard does not exist.
    pub fn learn(&mut self, place: IndexPlace, entries: Option<Arc<dyn Entries>>) {
        self.known_entries += entries.as_ref().map_or(1, |entries| entries.len());
        self.known.insert(place, entries);
    }

    /// An index that was learned. It is not needed again, unless another selection leads through the same shard.
    fn take_known(&mut self, place: &IndexPlace) -> Option<Option<Arc<dyn Entries>>> {
        if self.is_stacked() && self.known_entries <= KEPT_ENTRIES {
            return self.known.get(place).cloned();
        }
        let taken = self.known.remove(place)?;
        self.known_entries -= taken.as_ref().map_or(1, |entries| entries.len());
        Some(taken)
    }

    /// What to do next, in at most so much room.
    ///
    /// # Errors
    /// `ChunkCorrupt` when a shard's index contradicts the array's metadata.
    pub fn next(&mut self, room: &Room) -> Result<Step> {
        let mut filling = Filling { room: *room, used_bytes: 0, places: 0, units: Vec::new(), fills: Vec::new() };
        loop {
            while let Some(piece) = self.pieces.pop_front() {
                if !filling.has_room_for(&piece) {
                    self.pieces.push_front(piece);
                    return Ok(self.hand_out(filling));
                }
                filling.add(piece);
            }
            if filling.is_full() {
                return Ok(self.hand_out(filling));
            }
            let Some(frame) = self.stack.last_mut() else {
                if let Some(frame) = self.first_frame() {
                    self.stack.push(frame);
                    continue;
                }
                return Ok(if filling.is_empty() { Step::Done } else { self.hand_out(filling) });
            };
            let Some(spot) = frame.tour.current() else {
                self.stack.pop();
                continue;
            };
            let level = frame.level;
            let Some(found) = find(&self.source, frame, &spot.at)? else {
                let name = missing_name(&self.source, frame, &spot.at);
                frame.tour.advance();
                self.fill(&name, &spot, &mut filling.fills);
                continue;
            };
            let Some(layout) = self.source.levels[level].shard.clone() else {
                frame.tour.advance();
                self.plan_chunk(&found, &spot)?;
                continue;
            };
            let shard_offset = found.span.map_or(0, |span| span.0);
            let place = IndexPlace { key: Arc::clone(&found.name.key), shard_offset, level };
            let known = self.take_known(&place);
            let Some(frame) = self.stack.last_mut() else { continue };
            match known {
                None if filling.is_empty() => return Ok(Step::Indexes(self.wanted_indexes(level, &layout)?)),
                None => return Ok(self.hand_out(filling)),
                Some(None) => {
                    frame.tour.advance();
                    self.fill(&found.name, &spot, &mut filling.fills);
                }
                Some(Some(entries)) => {
                    frame.tour.advance();
                    let shape = &self.source.levels[level + 1].chunk_shape;
                    let tour = Tour::new(&self.selections, &spot.wants, &spot.origin, shape);
                    let offset = place.shard_offset;
                    let size_bytes = found.span.map(|span| span.1);
                    let (grid, inner) = (layout.grid, found.name.inner);
                    let shard = Shard { key: place.key, offset, size_bytes, grid, entries, inner };
                    self.stack.push(Frame { level: level + 1, tour, shard: Some(shard) });
                }
            }
        }
    }

    fn hand_out(&self, filling: Filling) -> Step {
        let packed = &self.source.packed;
        let spare = filling.room.packed_bytes.saturating_sub(filling.used_bytes) as u64;
        let limits = CoalesceLimits {
            gap_bytes: self.options.coalesce_gap_bytes,
            max_bytes: self.options.coalesce_max_bytes,
            enough_bytes: ENOUGH_BYTES,
            spare_bytes: if packed.stored_is_packed { spare } else { u64::MAX },
        };
        let (units, reads) = coalesce(filling.units, limits);
        Step::Batch(Batch { reads, units, fills: filling.fills })
    }

    /// The index of the shard at hand, and those of the shards that follow it in the same grid.
    fn wanted_indexes(&self, level: usize, layout: &ShardLayout) -> Result<Vec<IndexRead>> {
        let Some(frame) = self.stack.last() else { return Ok(Vec::new()) };
        let most = if self.is_stacked() { 4096 } else { 256 };
        let window = (self.options.index_window_bytes / layout.index_size_bytes.max(1)).clamp(1, most) as usize;
        let (mut wanted, mut places) = (Vec::new(), HashSet::new());
        // Those of boxes that come later, too: one round for many of them.
        let later = self.selections[self.next..].iter().filter(|_| self.stacking == Stacking::InTurn && level == 0);
        let later = later.flat_map(|selection| cells_of(selection, &self.source.levels[0].chunk_shape));
        for at in frame.tour.places().chain(later) {
            if wanted.len() >= window {
                break;
            }
            let Some(found) = find(&self.source, frame, &at)? else { continue };
            let size_bytes = layout.index_size_bytes;
            let (shard_offset, range) = match (found.span, layout.index_range) {
                (None, range) => (0, range),
                (Some((offset, shard_bytes)), range) => {
                    let begin = match range {
                        ByteRange::Suffix { .. } => shard_bytes.checked_sub(size_bytes).map(|at| offset + at),
                        _ => (shard_bytes >= size_bytes).then_some(offset),
                    };
                    let Some(offset_of_index) = begin else {
                        let message = format!("shard has {shard_bytes} bytes, its index alone has {size_bytes}");
                        return Err(Error::new(ErrorKind::ChunkCorrupt, message).at(found.name.to_string()));
                    };
                    (offset, ByteRange::Span { offset: offset_of_index, size_bytes })
                }
            };
            let place = IndexPlace { key: Arc::clone(&found.name.key), shard_offset, level };
            if !self.known.contains_key(&place) && places.insert(place.clone()) {
                wanted.push(IndexRead { place, range, size_bytes, version: found.version, name: found.name });
            }
        }
        Ok(wanted)
    }

    /// The box of the result that a cell's elements fill: starts and extents of the kept dimensions.
    fn region(&self, selection: usize, inside: &[(u64, u64)]) -> (Vec<usize>, Vec<usize>) {
        self.is_stacked().then_some((selection, 1)).into_iter().chain(region(self.axes(), inside)).unzip()
    }

    fn fill(&self, name: &ChunkName, spot: &Spot, fills: &mut Vec<Fill>) {
        for want in &spot.wants {
            let (start, extent) = self.region(want.selection, &want.inside);
            fills.push(Fill { name: name.clone(), start, extent });
        }
    }

    /// Turns a stored chunk into units: itself, or pieces of it when its bytes can be taken as they are.
    fn plan_chunk(&mut self, found: &Found, spot: &Spot) -> Result<()> {
        let packed = &self.source.packed;
        let whole_bytes = packed.size_bytes as u64;
        let size = match (packed.stored_is_packed, self.source.leaf().bound_bytes, found.span) {
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
        if packed.stored_is_packed && packed.divisible && packed.element_bytes > 0 {
            return spot.wants.iter().try_for_each(|want| self.plan_pieces(found, &spot.origin, want));
        }
        let range = match found.span {
            None => ByteRange::Full,
            Some((offset, size_bytes)) => ByteRange::Span { offset, size_bytes },
        };
        let place = |want: &Want| {
            let (start, extent) = self.region(want.selection, &want.inside);
            Place { first_elem: self.first_elem(&spot.origin, want), start, extent }
        };
        self.pieces.push_back(Unit {
            name: found.name.clone(),
            version: found.version.clone(),
            range,
            size,
            packed_size_bytes: packed.size_bytes,
            whole: true,
            places: spot.wants.iter().map(place).collect(),
        });
        Ok(())
    }

    /// Index, in the packed chunk that begins at `origin`, of the first element that is wanted.
    fn first_elem(&self, origin: &[u64], want: &Want) -> usize {
        first_elem(self.selections[want.selection].axes(), &self.strides, origin, &want.inside)
    }

    fn plan_pieces(&mut self, found: &Found, origin: &[u64], want: &Want) -> Result<()> {
        let first = self.first_elem(origin, want) as u64;
        let packed = &self.source.packed;
        let (element_bytes, whole_bytes) = (packed.element_bytes as u64, packed.size_bytes as u64);
        let packed_axis = |&dim: &usize| PackedAxis {
            count: want.inside[dim].1 - want.inside[dim].0,
            distance: self.axes()[dim].step.saturating_mul(self.strides[dim]),
        };
        let axes: Vec<_> = packed.axes.iter().map(packed_axis).collect();
        let limits =
            PieceLimits { max_bytes: self.options.piece_max_bytes, gap_bytes: self.options.coalesce_gap_bytes };
        let pieces = divide(&axes, element_bytes, limits);
        for piece in pieces {
            let mut inside = want.inside.clone();
            for (&dim, &(from, to)) in packed.axes.iter().zip(&piece.inside) {
                inside[dim] = (want.inside[dim].0 + from, want.inside[dim].0 + to);
            }
            let (start, extent) = self.region(want.selection, &inside);
            let offset = first * element_bytes + piece.offset_bytes;
            let size_bytes = piece.size_bytes;
            let range = match found.span {
                // Asking for all of the object, or all from here on, shows an object that is too long.
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
                name: found.name.clone(),
                version: found.version.clone(),
                range,
                size: SizeRule::Exact(size_bytes),
                packed_size_bytes: size_bytes as usize,
                whole: size_bytes == whole_bytes,
                places: vec![Place { first_elem: 0, start, extent }],
            });
        }
        Ok(())
    }
}

/// The places of the cells of the array's own grid that a selection touches.
fn cells_of(selection: &Selection, cell: &[u64]) -> impl Iterator<Item = Vec<u64>> {
    Walk::new(selection.axes(), &vec![0; cell.len()], cell, &whole(selection.axes())).map(|cell| cell.at)
}

/// The stored chunk of a cell, or `None` when the shard's index says that there is none.
fn find(source: &Source, frame: &Frame, at: &[u64]) -> Result<Option<Found>> {
    let Some(shard) = &frame.shard else {
        let key = (source.key)(at).into();
        return Ok(Some(Found { name: ChunkName { key, inner: Vec::new() }, span: None, version: None }));
    };
    let Some((offset, size_bytes)) = shard.entries.get(number_in(&shard.grid, at)) else { return Ok(None) };
    let name = missing_name(source, frame, at);
    let end =
        offset.checked_add(size_bytes).filter(|&end| shard.size_bytes.is_none_or(|shard_bytes| end <= shard_bytes));
    match (shard.offset.checked_add(offset), end.and_then(|end| shard.offset.checked_add(end))) {
        (Some(begin), Some(_)) => {
            Ok(Some(Found { name, span: Some((begin, size_bytes)), version: shard.entries.version() }))
        }
        _ => {
            let what =
                shard.size_bytes.map_or("any object".into(), |size_bytes| format!("its shard of {size_bytes} bytes"));
            let message = format!("index places {size_bytes} bytes at byte {offset}, behind the end of {what}");
            Err(Error::new(ErrorKind::ChunkCorrupt, message).at(name.to_string()))
        }
    }
}

fn missing_name(source: &Source, frame: &Frame, at: &[u64]) -> ChunkName {
    match &frame.shard {
        None => ChunkName { key: (source.key)(at).into(), inner: Vec::new() },
        Some(shard) => {
            let inner = shard.inner.iter().chain(at).copied().collect();
            ChunkName { key: Arc::clone(&shard.key), inner }
        }
    }
}

/// A batch in the making.
struct Filling {
    room: Room,
    used_bytes: usize,
    /// Of all units.
    places: usize,
    units: Vec<Unit>,
    fills: Vec<Fill>,
}

impl Filling {
    fn is_empty(&self) -> bool {
        self.units.is_empty() && self.fills.is_empty()
    }

    fn is_full(&self) -> bool {
        self.places + self.fills.len() >= self.room.units.max(1)
    }

    /// Whether the unit fits. One that is too large for any batch comes alone.
    fn has_room_for(&self, unit: &Unit) -> bool {
        let fits = self.used_bytes.checked_add(self.cost(unit)).is_some_and(|used| used <= self.room.packed_bytes);
        (fits || self.units.is_empty()) && (!self.is_full() || self.is_empty())
    }

    fn add(&mut self, unit: Unit) {
        self.used_bytes = self.used_bytes.saturating_add(self.cost(&unit));
        self.places += unit.places.len();
        self.units.push(unit);
    }

    fn cost(&self, unit: &Unit) -> usize {
        let alignment = self.room.alignment_bytes.max(1);
        unit.packed_size_bytes.checked_next_multiple_of(alignment).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests;
