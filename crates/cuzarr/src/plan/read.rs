//! The plan of a read: which bytes of which objects are decoded into which boxes of the result.
//!
//! A plan is a value that does nothing. Its caller asks for one batch after another, each as large as the available
//! memory. So a selection of millions of chunks is never listed as a whole. When the plan needs a shard's index, it
//! asks its caller, and continues once it has the index.

mod descent;
mod units;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use cuzarr_device::internal::Lists;

pub use self::descent::{Entries, IndexPlace, IndexRead};
use self::descent::{OpenGrid, Shard, find, missing_name};
pub(crate) use self::units::Filling;
use super::batch::{Batch, CoalesceLimits, Unit};
use super::chunk_order::{ChunkOrder, chunks_touched};
use super::geometry::memory_shape;
use super::options::PlanOptions;
use super::selection::Selection;
use super::source::{ChunkLayout, Source};
use super::tour::{Tour, Want};

use super::whole::{WholeShards, whole_shards};
use crate::error::{Error, ErrorKind, Result};

/// Size in bytes from which on a read is not joined with neighbours, because bandwidth and not the number of reads
/// limits it.
const ENOUGH_BYTES: u64 = 1 << 20;

/// Approximate maximum number of objects whose needed parts are listed in advance, if a plan has several selections.
const LISTED_CELLS: u64 = 64 << 10;

/// Maximum number of shard index entries that a plan of several selections keeps; beyond it, an index is dropped once
/// it was used. Neighbouring selections share shards.
const KEPT_ENTRIES: usize = 4 << 20;

/// The limits that one batch of a read must keep.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Maximum size of all chunks and pieces of the batch together, in bytes after host codecs are undone ("packed
    /// bytes"). A larger chunk comes alone.
    pub packed_bytes: usize,
    /// Approximate maximum number of boxes of results that the batch fills, from chunks or with the fill value.
    pub units: usize,
    /// Alignment in bytes of chunks in the batch: the packed bytes of each are rounded up to a multiple of this.
    pub alignment_bytes: usize,
}

/// The next step that the caller of a plan must take.
#[derive(Debug)]
pub enum Step {
    /// This batch can be read now.
    Batch(Batch),
    /// The caller must read these shard indexes first, and pass them to the plan.
    Indexes(Vec<IndexRead>),
    /// All batches of the read have been returned, so the caller has nothing more to do.
    Done,
}

/// Why a plan stopped adding units to a batch.
pub(crate) enum Filled {
    /// The batch has reached its maximum number of bytes or of boxes.
    Full,
    /// The caller must first fetch the index of a shard at this level of nested shards.
    Unknown(usize),
    /// All elements that the plan reads have been put into batches.
    Done,
}

/// Which result of the read a selection fills, and where in that result the selection's elements go.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Goal {
    out: usize,
    at: At,
}

/// Where in a result of the call the elements of a selection go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    /// The selection fills the whole result of the call.
    Alone,
    /// Selections are stacked along the result's first dimension, and this selection has the given index there.
    Stacked(usize),
    /// Selections lie one after the other in a one-dimensional result, and this selection begins at the given index.
    Behind(usize),
}

/// Which elements of an array fill one result of a read.
#[derive(Clone, Copy, Debug)]
pub enum ResultOf<'a> {
    /// One selection of elements fills the whole result. The result has its shape.
    One(&'a Selection),
    /// Selections of one shape and step fill the result, stacked along a new first dimension.
    Stack(&'a [Selection]),
    /// Ranges of a one-dimensional array fill the result, one after the other.
    Ranges(&'a [Range<u64>]),
}

impl ResultOf<'_> {
    /// The shape of the result that the selections fill.
    ///
    /// # Errors
    /// `OutOfMemory` when no memory could hold it.
    pub fn shape(&self) -> Result<Vec<usize>> {
        match self {
            ResultOf::One(selection) => memory_shape(selection),
            ResultOf::Stack(selections) => {
                let one = selections.first().map_or(Ok(Vec::new()), memory_shape)?;
                Ok([&[selections.len()], &one[..]].concat())
            }
            ResultOf::Ranges(ranges) => {
                let total = ranges.iter().try_fold(0_u64, |sum, range| sum.checked_add(length(range)));
                let too_many = || Error::new(ErrorKind::OutOfMemory, "not enough memory for so many elements");
                Ok(vec![total.and_then(|total| usize::try_from(total).ok()).ok_or_else(too_many)?])
            }
        }
    }
}

fn length(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

/// The distances between selected elements in packed chunks, and where index lists place them.
#[derive(Clone, Debug)]
pub struct Spacing {
    /// The order of the selected elements, and whether results are stacked; `None` if nothing is selected.
    order: Option<(ChunkOrder, bool)>,
    /// The array's own chunk layout, which is usually the only one, and the strides of selected elements in its chunks.
    usual: (Arc<ChunkLayout>, Vec<isize>),
    /// For dimensions with index lists, where each element lies in packed chunks and in memory.
    pub lists: Option<Arc<Lists>>,
}

impl Spacing {
    /// Computes how far apart the selected elements of `order` lie in packed chunks. The `bool` says whether they are
    /// stacked along a first dimension.
    pub(crate) fn new(
        order: Option<(ChunkOrder, bool)>,
        layout: &Arc<ChunkLayout>,
        lists: Option<Arc<Lists>>,
    ) -> Spacing {
        let usual = (Arc::clone(layout), strides_in(order.as_ref(), layout));
        Spacing { order, usual, lists }
    }

    /// The strides of selected elements in a packed chunk, in elements, per dimension of the result. Steps and
    /// transposed axes are included. For a list, the stride of neighbouring indices.
    pub(crate) fn strides(&self, layout: &Arc<ChunkLayout>) -> Cow<'_, [isize]> {
        match &self.usual {
            (usual, strides) if Arc::ptr_eq(usual, layout) => Cow::Borrowed(strides),
            _ => Cow::Owned(strides_in(self.order.as_ref(), layout)),
        }
    }

    /// Number of elements side by side in the usual packed chunk that lie side by side along the result's last dimension.
    pub(crate) fn run(&self) -> u64 {
        let (layout, strides) = &self.usual;
        match (strides.last(), layout.packed.axes.last()) {
            (Some(1), Some(&axis)) => layout.leaf().chunk_shape[axis],
            _ => 1,
        }
    }
}

fn strides_in(order: Option<&(ChunkOrder, bool)>, layout: &ChunkLayout) -> Vec<isize> {
    let Some((order, is_stacked)) = order else { return Vec::new() };
    is_stacked.then_some(0).into_iter().chain(order.packed_strides(&layout.strides)).collect()
}

/// The name of the array in error messages, if a call reads several arrays.
type Label = Option<Arc<str>>;

/// The plan of a read, which decides step by step which bytes of which objects are read, and where the elements go.
pub struct Plan {
    source: Arc<Source>,
    /// The number of the plan's array among all arrays that the call reads.
    array: usize,
    label: Label,
    /// The number of the plan's first result among the results of the call.
    first_out: usize,
    /// The selections in the order of their results; `goals` says where the elements of each go.
    selections: Vec<ChunkOrder>,
    goals: Vec<Goal>,
    /// The number of the first selection whose chunks the plan has not begun to put into batches.
    next: usize,
    /// Whether all elements of a selection are read before those of the next one.
    in_turn: bool,
    options: PlanOptions,
    stack: Vec<OpenGrid>,
    known: HashMap<IndexPlace, Option<Arc<dyn Entries>>>,
    /// The number of entries of all shard indexes that the plan keeps in `known`.
    known_entries: usize,
    /// Pieces of the chunk visited last that no longer fitted the batch, and that go to the next one.
    pieces: VecDeque<Unit>,
}

impl Plan {
    /// Plans a read of `selection`.
    ///
    /// # Errors
    /// `SelectionInvalid` when the selection does not fit the array.
    pub fn new(source: Arc<Source>, selection: Selection, options: PlanOptions) -> Result<Plan> {
        Plan::of_results(source, &[ResultOf::One(&selection)], options)
    }

    /// Plans a read of several results of one array. They are numbered from 0. A chunk that several results need comes
    /// once.
    ///
    /// # Errors
    /// `SelectionInvalid` when a selection does not fit the array; `ShapeMismatch` when the selections of a stack
    /// differ in shape or step.
    pub fn of_results(source: Arc<Source>, results: &[ResultOf<'_>], options: PlanOptions) -> Result<Plan> {
        let (mut orders, mut goals) = (Vec::new(), Vec::new());
        for (out, result) in results.iter().enumerate() {
            match result {
                ResultOf::One(selection) => {
                    orders.push(ChunkOrder::new(selection, &source)?);
                    goals.push(Goal { out, at: At::Alone });
                }
                ResultOf::Stack(selections) => {
                    if let Some(other) = selections.iter().find(|selection| !selection.is_like(&selections[0])) {
                        let message =
                            format!("selections {} and {other} differ in more than their place", selections[0]);
                        return Err(Error::new(ErrorKind::ShapeMismatch, message));
                    }
                    for (at, selection) in selections.iter().enumerate() {
                        orders.push(ChunkOrder::new(selection, &source)?);
                        goals.push(Goal { out, at: At::Stacked(at) });
                    }
                }
                ResultOf::Ranges(ranges) => {
                    let mut behind = 0;
                    for range in ranges.iter().filter(|range| length(range) > 0) {
                        let selection = Selection::region(&[range.start], &[length(range)])?;
                        orders.push(ChunkOrder::new(&selection, &source)?);
                        goals.push(Goal { out, at: At::Behind(behind) });
                        behind += length(range) as usize;
                    }
                }
            }
        }
        Ok(Plan::of(source, orders, goals, options))
    }

    /// Plans a read of several boxes of the array, one box after the other. A batch may hold the end of one box and the
    /// beginning of the next, but each box is complete before the next one begins. The first index of each `Place` is
    /// the number of its box.
    ///
    /// # Errors
    /// `SelectionInvalid` when a selection does not fit the array, or is not a box of all its dimensions.
    pub fn in_turn(source: Arc<Source>, selections: Vec<Selection>, options: PlanOptions) -> Result<Plan> {
        let is_box = |selection: &&Selection| {
            selection.axes().is_some_and(|axes| axes.iter().all(|axis| axis.step == 1 && !axis.dropped))
        };
        if let Some(other) = selections.iter().find(|selection| !is_box(selection)) {
            let message = format!("selection {other} is not a box of the array");
            return Err(Error::new(ErrorKind::SelectionInvalid, message));
        }
        let orders = selections.iter().map(|selection| ChunkOrder::new(selection, &source)).collect::<Result<_>>()?;
        let goals = (0..selections.len()).map(|at| Goal { out: 0, at: At::Stacked(at) }).collect();
        Ok(Plan { in_turn: true, ..Plan::of(source, orders, goals, options) })
    }

    fn of(source: Arc<Source>, selections: Vec<ChunkOrder>, goals: Vec<Goal>, options: PlanOptions) -> Plan {
        Plan {
            source,
            array: 0,
            label: None,
            first_out: 0,
            selections,
            goals,
            next: 0,
            in_turn: false,
            options,
            stack: Vec::new(),
            known: HashMap::new(),
            known_entries: 0,
            pieces: VecDeque::new(),
        }
    }

    /// Makes the plan of this read for the same array with codecs that are bound to another device, where packed chunks
    /// may have another layout.
    ///
    /// # Errors
    /// Those of [`Plan::new`].
    pub(crate) fn rebound(self, source: &Arc<Source>) -> Result<Plan> {
        let orders = self.selections.into_iter().map(|order| order.rebound(source)).collect::<Result<_>>()?;
        Ok(Plan { in_turn: self.in_turn, ..Plan::of(Arc::clone(source), orders, self.goals, self.options) })
    }

    /// Number of innermost chunks that the selections touch. A chunk counts once for each selection.
    pub(crate) fn chunks(&self) -> u64 {
        self.selections.iter().map(|order| chunks_touched(&self.source, order)).fold(0, u64::saturating_add)
    }

    /// The description of the array that is read: its grid, codecs and keys.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// The selections of the plan, each in the order in which the array's chunks are visited.
    pub(crate) fn orders(&self) -> &[ChunkOrder] {
        &self.selections
    }

    /// Whether the plan has only one selection, which fills its whole result.
    pub(crate) fn is_of_one(&self) -> bool {
        matches!(self.goals[..], [Goal { at: At::Alone, .. }])
    }

    /// Whether several selections may need the same shard.
    fn is_of_several(&self) -> bool {
        self.selections.len() > 1
    }

    /// Returns the array's grid with the stored objects that the next selections need, ready to be visited. The number
    /// of selections is limited so that the list of grid cells stays small, but is at least one.
    fn first_grid(&mut self) -> Option<OpenGrid> {
        let from = self.next;
        let objects = self.source.cells(0);
        let listed_cells = if self.in_turn { 1 } else { LISTED_CELLS };
        let mut cells = 0;
        while let Some(selection) = self.selections.get(self.next).filter(|_| cells < listed_cells) {
            cells = selection.touched(objects).saturating_add(cells);
            self.next += 1;
        }
        let wants: Vec<Want> = (from..self.next)
            .map(|selection| {
                let inside = self.selections[selection].whole();
                Want { selection, inside }
            })
            .collect();
        let origin = vec![0; self.source.shape.len()];
        let tour = || Tour::new(&self.selections, &wants, &origin, objects);
        (!wants.is_empty()).then(|| OpenGrid { level: 0, tour: tour(), shard: None })
    }

    /// Where the selected elements lie, both in packed chunks and in a result whose memory has the shape `array`.
    /// `result` counts from the plan's first result.
    ///
    /// # Errors
    /// `InvalidArgument` when `array` is not the result's shape.
    pub fn spacing(&self, result: usize, array: &[usize]) -> Result<Spacing> {
        let out = self.first_out + result;
        let at = self.goals.partition_point(|goal| goal.out < out);
        let found = self.goals.get(at).zip(self.selections.get(at)).filter(|(goal, _)| goal.out == out);
        let lists = match found {
            Some((Goal { at: At::Alone, .. }, order)) => order.lists(&self.source, array)?,
            _ => None,
        };
        let order = found.map(|(goal, order)| (order.clone(), matches!(goal.at, At::Stacked(_))));
        Ok(Spacing::new(order, self.source.layout(), lists))
    }

    /// The shards that hold the selection, if reading them whole is faster than reading their indexes first.
    pub fn whole_shards(&self) -> Option<WholeShards> {
        match &self.selections[..] {
            [selection] => whole_shards(&self.source, selection, &self.options),
            _ => None,
        }
    }

    /// Gives the plan a shard index that it asked for; `None` if the shard does not exist.
    pub fn learn(&mut self, place: IndexPlace, entries: Option<Arc<dyn Entries>>) {
        self.known_entries += entries.as_ref().map_or(1, |entries| entries.len());
        self.known.insert(place, entries);
    }

    /// Returns a shard index that the plan was given, or `None` if it has not been given yet. The plan keeps it only if
    /// another selection may use the same shard.
    fn take_known(&mut self, place: &IndexPlace) -> Option<Option<Arc<dyn Entries>>> {
        if self.is_of_several() && self.known_entries <= KEPT_ENTRIES {
            return self.known.get(place).cloned();
        }
        let taken = self.known.remove(place)?;
        self.known_entries -= taken.as_ref().map_or(1, |entries| entries.len());
        Some(taken)
    }

    /// Returns this plan with the array's name in errors.
    #[must_use]
    pub(crate) fn labelled(self, name: &str) -> Plan {
        Plan { label: Some(name.into()), ..self }
    }

    /// Returns this plan for a call of several arrays: with the array's number, and the number of its first result.
    #[must_use]
    pub(crate) fn numbered(mut self, array: usize, first_out: usize) -> Plan {
        self.goals.iter_mut().for_each(|goal| goal.out += first_out);
        Plan { array, first_out, ..self }
    }

    /// Adds chunks to read and boxes for the fill value to a batch, until the batch is full or a shard index must be
    /// read.
    ///
    /// # Errors
    /// `ChunkCorrupt` when a shard's index contradicts the array's metadata.
    pub(crate) fn fill_up(&mut self, filling: &mut Filling) -> Result<Filled> {
        loop {
            while let Some(piece) = self.pieces.pop_front() {
                if !filling.has_room_for(&piece) {
                    self.pieces.push_front(piece);
                    return Ok(Filled::Full);
                }
                filling.add(piece);
            }
            if filling.is_full() {
                return Ok(Filled::Full);
            }
            let Some(open) = self.stack.last_mut() else {
                if let Some(open) = self.first_grid() {
                    self.stack.push(open);
                    continue;
                }
                return Ok(Filled::Done);
            };
            let Some(spot) = open.tour.current() else {
                self.stack.pop();
                continue;
            };
            let level = open.level;
            let layout = open.layout(&self.source, &spot.origin)?;
            let Some(found) = find(&self.source, &self.label, open, &spot.at)? else {
                let name = missing_name(&self.source, &self.label, open, &spot.at);
                open.tour.advance();
                self.fill(&name, &spot, &mut filling.fills);
                continue;
            };
            let Some(shard_layout) = &layout.levels[level].shard else {
                open.tour.advance();
                self.plan_chunk(&found, &spot, &layout)?;
                continue;
            };
            let shard_offset = found.span.map_or(0, |span| span.0);
            let place = IndexPlace { key: Arc::clone(&found.name.key), shard_offset, level };
            let known = self.take_known(&place);
            let Some(open) = self.stack.last_mut() else { continue };
            match known {
                None => return Ok(Filled::Unknown(level)),
                Some(None) => {
                    open.tour.advance();
                    self.fill(&found.name, &spot, &mut filling.fills);
                }
                Some(Some(entries)) => {
                    open.tour.advance();
                    let inner_chunks = self.source.cells(level + 1);
                    let tour = Tour::new(&self.selections, &spot.wants, &spot.origin, inner_chunks);
                    let offset = place.shard_offset;
                    let size_bytes = found.span.map(|span| span.1);
                    let (grid, inner) = (shard_layout.grid.clone(), found.name.inner);
                    let shard = Shard { key: place.key, offset, size_bytes, grid, entries, inner, layout };
                    self.stack.push(OpenGrid { level: level + 1, tour, shard: Some(shard) });
                }
            }
        }
    }

    /// Returns the next batch to read, or shard indexes to fetch first, for a call that reads only this array.
    #[cfg(test)]
    fn next(&mut self, room: &Room) -> Result<Step> {
        let mut filling = Filling::new(*room);
        Ok(match self.fill_up(&mut filling)? {
            Filled::Done if filling.is_empty() => Step::Done,
            Filled::Unknown(level) if filling.is_empty() => Step::Indexes(self.wanted_indexes(level)?),
            _ => self.hand_out(filling, 0),
        })
    }

    /// The shard indexes that a new plan needs before its first batch. Empty if objects are chunks.
    ///
    /// # Errors
    /// Those of [`Plan::fill_up`].
    pub(crate) fn first_indexes(&mut self) -> Result<Vec<IndexRead>> {
        if self.stack.is_empty()
            && let Some(open) = self.first_grid()
        {
            self.stack.push(open);
        }
        if self.source.levels() > 1 && self.stack.len() == 1 { self.wanted_indexes(0) } else { Ok(Vec::new()) }
    }

    /// Makes a batch from the chunks to read and the boxes for the fill value that were collected in `filling`.
    pub(crate) fn hand_out(&self, filling: Filling, group: usize) -> Step {
        let spare = filling.room.packed_bytes.saturating_sub(filling.used_bytes) as u64;
        // Encoded chunks are usually smaller than the memory that was counted for them.
        let surplus = if self.source.layout().packed.stored_is_packed { 0 } else { filling.used_bytes as u64 };
        let limits = CoalesceLimits {
            gap_bytes: self.options.coalesce_gap_bytes,
            max_bytes: self.options.coalesce_max_bytes,
            enough_bytes: ENOUGH_BYTES,
            spare_bytes: spare.max(surplus),
        };
        Step::Batch(Batch::new(group, filling.units, filling.fills, limits))
    }
}

#[cfg(test)]
mod tests;
