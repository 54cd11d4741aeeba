//! Tests that execute plans with a naive model. Objects are maps of bytes. Packed elements are the numbers of the
//! array's elements. Every number must arrive at its place exactly once.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::*;
use crate::meta::RectilinearGrid;
use crate::plan::AxisSelection;
use crate::plan::batch::SizeRule;
use crate::plan::source::{Level, PackedLayout, ShardLayout};
use crate::plan::testing::layout_of;
use crate::store::ByteRange;

/// A small random number generator. The tests need variety, not quality.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

struct Table(Vec<Option<(u64, u64)>>);

impl Entries for Table {
    fn get(&self, linear: usize) -> Option<(u64, u64)> {
        self.0[linear]
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

type Entry = Vec<Option<(u64, u64)>>;

const ABSENT: u32 = u32::MAX;
const INDEX_BYTES: u64 = 5;

/// The stored objects of a test array whose elements are their own numbers, and the index of every shard by (key,
/// offset).
struct World {
    source: Arc<Source>,
    objects: BTreeMap<String, Vec<u8>>,
    tables: BTreeMap<(String, u64), Entry>,
    absent: Vec<Vec<u64>>,
}

fn number(at: &[u64], shape: &[u64]) -> u32 {
    at.iter().zip(shape).fold(0, |number, (&at, &extent)| number * extent as u32 + at as u32)
}

fn places(extents: &[u64]) -> Vec<Vec<u64>> {
    extents.iter().fold(vec![vec![]], |places, &extent| {
        places.iter().flat_map(|place| (0..extent).map(|at| [&place[..], &[at]].concat()).collect::<Vec<_>>()).collect()
    })
}

impl World {
    fn new(source: Source, dice: &mut Dice) -> World {
        let mut world =
            World { source: Arc::new(source), objects: BTreeMap::new(), tables: BTreeMap::new(), absent: vec![] };
        let source = Arc::clone(&world.source);
        let along = |dim: usize| source.cells(0).along(dim);
        let starts = |(dim, &extent): (usize, &u64)| {
            let mut starts = vec![0];
            while let end = along(dim).at(starts[starts.len() - 1]).end
                && end < extent
            {
                starts.push(end);
            }
            starts
        };
        let starts: Vec<Vec<u64>> = source.shape.iter().enumerate().map(starts).collect();
        let grid: Vec<u64> = starts.iter().map(|starts| starts.len() as u64).collect();
        for at in places(&grid) {
            let origin: Vec<_> = at.iter().zip(&starts).map(|(&at, starts)| starts[at as usize]).collect();
            let key = (source.key)(&at);
            let mut object = Vec::new();
            let layout = source.layout_at(&origin).unwrap();
            if world.store(&key, &layout, 0, &origin, &mut object, dice) {
                world.objects.insert(key, object);
            }
        }
        world
    }

    /// Appends a chunk of this level to the stored object. Returns false if the chunk was left out.
    fn store(
        &mut self,
        key: &str,
        kind: &ChunkLayout,
        level: usize,
        origin: &[u64],
        object: &mut Vec<u8>,
        dice: &mut Dice,
    ) -> bool {
        let source = Arc::clone(&self.source);
        let shape = &kind.levels[level].chunk_shape;
        if dice.below(5) == 0 {
            self.absent.extend(places(shape).iter().map(|at| at.iter().zip(origin).map(|(a, o)| a + o).collect()));
            return false;
        }
        let Some(layout) = &kind.levels[level].shard else {
            let axes = &kind.packed.axes;
            let packed_shape: Vec<_> = axes.iter().map(|&axis| shape[axis]).collect();
            for packed_at in places(&packed_shape) {
                let mut at = origin.to_vec();
                packed_at.iter().zip(axes).for_each(|(offset, &axis)| at[axis] += offset);
                let inside = at.iter().zip(&source.shape).all(|(at, len)| at < len);
                let value = if inside { number(&at, &source.shape) } else { ABSENT - 1 };
                object.extend(value.to_le_bytes());
            }
            return true;
        };
        let begin = object.len() as u64;
        object.extend([7; 3]);
        let inner = &kind.levels[level + 1].chunk_shape;
        let mut table = vec![None; layout.grid.iter().product::<u64>() as usize];
        let mut order: Vec<usize> = (0..table.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, dice.below(i as u64 + 1) as usize);
        }
        let cells = places(&layout.grid);
        for linear in order {
            let from = object.len() as u64;
            let cell: Vec<_> = (0..shape.len()).map(|d| origin[d] + cells[linear][d] * inner[d]).collect();
            if self.store(key, kind, level + 1, &cell, object, dice) {
                table[linear] = Some((from - begin, object.len() as u64 - from));
            }
            object.extend(vec![9; dice.below(9) as usize]);
        }
        object.extend([8; INDEX_BYTES as usize]);
        self.tables.insert((key.into(), begin), table);
        true
    }

    fn bytes(&self, key: &str, range: ByteRange) -> Option<&[u8]> {
        let object = self.objects.get(key)?;
        Some(match range {
            ByteRange::Full => object,
            ByteRange::Span { offset, size_bytes } => &object[offset as usize..(offset + size_bytes) as usize],
            ByteRange::From { offset } => &object[offset as usize..],
            ByteRange::Suffix { size_bytes } => &object[object.len() - size_bytes as usize..],
        })
    }

    fn read(&self, selection: &Selection, options: PlanOptions, room: &Room) -> Vec<u32> {
        let plan = Plan::new(Arc::clone(&self.source), selection.clone(), options).unwrap();
        self.follow(plan, selection.shape(), room)
    }

    fn follow(&self, mut plan: Plan, shape: Vec<u64>, room: &Room) -> Vec<u32> {
        let mut result = vec![None; shape.iter().product::<u64>() as usize];
        let spacing = plan.spacing(0, &[]).unwrap();
        loop {
            match plan.next(room).unwrap() {
                Step::Done => break,
                Step::Indexes(wanted) => self.teach(&mut plan, wanted),
                Step::Batch(batch) => {
                    assert!(!batch.units.is_empty() || !batch.fills.is_empty());
                    // The parts of the last chunk that several selections need may exceed the limit.
                    assert!(batch.units.len() + batch.fills.len() < room.units + MOST_SELECTIONS as usize);
                    let packed: usize = batch.units.iter().map(|unit| unit.packed_size_bytes).sum();
                    assert!(packed <= room.packed_bytes || batch.units.len() == 1);
                    self.carry_out(&batch, &spacing, &shape, &mut result);
                }
            }
        }
        result.into_iter().map(|value| value.expect("every element is written")).collect()
    }

    fn teach(&self, plan: &mut Plan, wanted: Vec<IndexRead>) {
        assert!(!wanted.is_empty());
        for index in wanted {
            let table = self.tables.get(&(index.place.key.to_string(), index.place.shard_offset)).cloned();
            match self.bytes(&index.place.key, index.range) {
                Some(bytes) => assert_eq!(bytes, [8; INDEX_BYTES as usize], "the range is the index's"),
                None => assert!(table.is_none()),
            }
            plan.learn(index.place, table.map(|table| Arc::new(Table(table)) as Arc<dyn Entries>));
        }
    }

    fn carry_out(&self, batch: &Batch, spacing: &Spacing, shape: &[u64], result: &mut [Option<u32>]) {
        let mut write = |start: &[usize], extent: &[usize], value: &dyn Fn(&[u64]) -> u32| {
            for at in places(&extent.iter().map(|&n| n as u64).collect::<Vec<_>>()) {
                let place: Vec<_> = at.iter().zip(start).map(|(a, &s)| a + s as u64).collect();
                let slot = &mut result[number(&place, shape) as usize];
                assert!(slot.replace(value(&at)).is_none(), "every element is written once");
            }
        };
        for fill in &batch.fills {
            write(&fill.start, &fill.extent, &|_| ABSENT);
        }
        let mut met = 0;
        for read in &batch.reads {
            assert_eq!(read.units.start, met);
            met = read.units.end;
            let bytes = self.bytes(&read.key, read.range);
            for index in read.units.clone() {
                let unit = &batch.units[index];
                let Some(bytes) = bytes else {
                    unit.places.iter().for_each(|place| write(&place.start, &place.extent, &|_| ABSENT));
                    continue;
                };
                if let SizeRule::Exact(size) = read.size {
                    assert_eq!(bytes.len() as u64, size);
                }
                let packed = batch.unit_span(read, index).map_or(bytes, |(from, size)| &bytes[from..from + size]);
                assert_eq!(packed.len(), unit.packed_size_bytes);
                let strides = spacing.strides(&unit.layout);
                for place in &unit.places {
                    write(&place.start, &place.extent, &|at| {
                        let steps = at.iter().zip(&*strides).map(|(&a, &s)| a as usize * s as usize).sum::<usize>();
                        let byte = (place.first_elem + steps) * 4;
                        u32::from_le_bytes(packed[byte..byte + 4].try_into().unwrap())
                    });
                }
            }
        }
        assert_eq!(met, batch.units.len());
    }

    fn expected(&self, selection: &Selection) -> Vec<u32> {
        let counts: Vec<_> = selection.axes().unwrap().iter().map(|axis| axis.count).collect();
        let element = |at: Vec<u64>| {
            let place: Vec<_> =
                at.iter().zip(selection.axes().unwrap()).map(|(a, axis)| axis.start + a * axis.step).collect();
            if self.absent.contains(&place) { ABSENT } else { number(&place, &self.source.shape) }
        };
        places(&counts).into_iter().map(element).collect()
    }
}

fn random_source(dice: &mut Dice, stored_is_packed: bool) -> Source {
    let ndim = dice.below(4) as usize;
    let depth = 1 + dice.below(3) as usize;
    let mut shapes = vec![(0..ndim).map(|_| 1 + dice.below(3)).collect::<Vec<_>>()];
    for _ in 1..depth {
        let last = &shapes[0];
        let outer = last.iter().map(|extent| extent * (1 + dice.below(3))).collect();
        shapes.insert(0, outer);
    }
    let shape = (0..ndim).map(|_| 1 + dice.below(10)).collect();
    let mut axes: Vec<usize> = (0..ndim).collect();
    for i in (1..ndim).rev() {
        axes.swap(i, dice.below(i as u64 + 1) as usize);
    }
    let inner = shapes.split_off(1);
    let layout = move |object: &[u64]| {
        let shapes: Vec<&[u64]> = [object].into_iter().chain(inner.iter().map(Vec::as_slice)).collect();
        let level = |index: usize| {
            let shard = shapes.get(index + 1).map(|inner| {
                let grid = shapes[index].iter().zip(*inner).map(|(outer, inner)| outer / inner).collect();
                ShardLayout {
                    grid,
                    index_range: ByteRange::Suffix { size_bytes: INDEX_BYTES },
                    index_size_bytes: INDEX_BYTES,
                }
            });
            Level { chunk_shape: shapes[index].to_vec(), bound_bytes: Some(1 << 20), shard }
        };
        let size_bytes = shapes[depth - 1].iter().product::<u64>() as usize * 4;
        let axes = axes.clone();
        let packed = PackedLayout { size_bytes, element_bytes: 4, axes, stored_is_packed, divisible: true };
        layout_of((0..depth).map(level).collect(), packed)
    };
    if dice.below(2) == 0 {
        return Source::new(shape, Arc::new(|at| format!("c{at:?}")), layout(&shapes[0]));
    }
    // Objects have 1, 2 or 3 times the usual length.
    let edges = shape.iter().zip(&shapes[0]).map(|(&extent, &unit)| {
        let mut edges = Vec::new();
        while edges.iter().sum::<u64>() < extent {
            edges.push(unit * (1 + dice.below(3)));
        }
        edges
    });
    let edges: Vec<Vec<u64>> = edges.collect();
    let grid = RectilinearGrid::new(&edges).unwrap();
    let largest = layout(grid.largest_chunk());
    let source = Source::new(shape, Arc::new(|at| format!("c{at:?}")), largest);
    let made = Mutex::new(BTreeMap::<Vec<u64>, Arc<ChunkLayout>>::new());
    let of = move |shape: &[u64]| {
        let mut made = made.lock().unwrap();
        Ok(Arc::clone(made.entry(shape.to_vec()).or_insert_with(|| layout(shape))))
    };
    source.with_grid(&grid, Arc::new(of))
}

fn random_selection(dice: &mut Dice, shape: &[u64]) -> Selection {
    let axis = |&len: &u64| {
        let start = dice.below(len);
        let step = 1 + dice.below(4);
        let count = 1 + dice.below((len - start).div_ceil(step));
        AxisSelection { start, count, step, dropped: count == 1 && dice.below(2) == 0 }
    };
    Selection::new(shape.iter().map(axis).collect()).unwrap()
}

/// Maximum number of selections in a plan of these tests.
const MOST_SELECTIONS: u64 = 5;

/// Returns a copy of a selection, moved to another place in the array.
fn moved(dice: &mut Dice, selection: &Selection, shape: &[u64]) -> Selection {
    let axes = selection.axes().unwrap().iter().zip(shape).map(|(axis, &len)| {
        let last = len - (axis.count - 1) * axis.step;
        AxisSelection { start: dice.below(last), ..*axis }
    });
    Selection::new(axes.collect()).unwrap()
}

#[test]
fn selections_that_are_alike_are_stacked() {
    for seed in 0..500 {
        let mut dice = Dice(seed + 7000);
        let world = World::new(random_source(&mut dice, seed % 2 == 0), &mut dice);
        let first = random_selection(&mut dice, &world.source.shape);
        let mut selections = vec![first.clone()];
        (0..dice.below(MOST_SELECTIONS)).for_each(|_| selections.push(moved(&mut dice, &first, &world.source.shape)));
        let options = PlanOptions { index_window_bytes: dice.below(30), ..options() };
        let room = Room { packed_bytes: 1 + dice.below(300) as usize, units: 1 + dice.below(20) as usize, ..room() };
        let plan = Plan::of_results(Arc::clone(&world.source), &[ResultOf::Stack(&selections)], options).unwrap();
        let shape = [&[selections.len() as u64], &first.shape()[..]].concat();
        let expected: Vec<u32> = selections.iter().flat_map(|selection| world.expected(selection)).collect();
        assert_eq!(world.follow(plan, shape, &room), expected, "seed {seed}");
    }
}

#[test]
fn boxes_come_in_turn_and_share_batches() {
    let mut shared = false;
    for seed in 0..500 {
        let mut dice = Dice(seed + 9000);
        let world = World::new(random_source(&mut dice, seed % 2 == 0), &mut dice);
        let boxes: Vec<Selection> = (0..1 + dice.below(MOST_SELECTIONS))
            .map(|_| {
                let start: Vec<u64> = world.source.shape.iter().map(|&len| dice.below(len)).collect();
                let extent = |(&len, start): (&u64, &u64)| 1 + dice.below(len - start);
                let extent: Vec<u64> = world.source.shape.iter().zip(&start).map(extent).collect();
                Selection::region(&start, &extent).unwrap()
            })
            .collect();
        let options = PlanOptions { index_window_bytes: dice.below(30), ..options() };
        let room = Room { packed_bytes: 1 + dice.below(300) as usize, units: 1 + dice.below(20) as usize, ..room() };
        let mut plan = Plan::in_turn(Arc::clone(&world.source), boxes.clone(), options).unwrap();
        let largest = world.source.shape.iter().map(|_| 10).collect::<Vec<u64>>();
        let shape = [&[boxes.len() as u64], &largest[..]].concat();
        let mut result = vec![None; shape.iter().product::<u64>() as usize];
        let (spacing, mut last) = (plan.spacing(0, &[]).unwrap(), 0);
        loop {
            match plan.next(&room).unwrap() {
                Step::Done => break,
                Step::Indexes(wanted) => world.teach(&mut plan, wanted),
                Step::Batch(batch) => {
                    let places = batch.units.iter().flat_map(|unit| &unit.places).map(|place| place.start[0]);
                    let numbers: Vec<usize> = places.chain(batch.fills.iter().map(|fill| fill.start[0])).collect();
                    let (least, most) = (*numbers.iter().min().unwrap(), *numbers.iter().max().unwrap());
                    assert!(least >= last, "seed {seed}: box {least} behind {last}");
                    (last, shared) = (most, shared || least < most);
                    world.carry_out(&batch, &spacing, &shape, &mut result);
                }
            }
        }
        for (number, selection) in boxes.iter().enumerate() {
            let at = |place: Vec<u64>| self::number(&[&[number as u64], &place[..]].concat(), &shape) as usize;
            let came: Vec<u32> =
                places(&selection.shape()).into_iter().map(|place| result[at(place)].unwrap()).collect();
            assert_eq!(came, world.expected(selection), "seed {seed}");
        }
        let elems: u64 = boxes.iter().map(|selection| selection.len().unwrap()).sum();
        assert_eq!(result.iter().flatten().count() as u64, elems, "seed {seed}");
    }
    assert!(shared, "batches hold the end of one box and the beginning of the next");
}

#[test]
fn what_is_no_box_is_not_read_in_turn() {
    let source = Arc::new(flat_source(vec![10], vec![5], true));
    let every_other = AxisSelection { start: 0, count: 5, step: 2, dropped: false };
    let plan = Plan::in_turn(source, vec![Selection::new(vec![every_other]).unwrap()], options());
    assert_eq!(plan.err().map(|error| error.kind()), Some(ErrorKind::SelectionInvalid));
}

#[test]
fn the_indexes_of_all_selections_are_wanted_at_once_and_each_once() {
    let shard = ShardLayout { grid: vec![2], index_range: ByteRange::Suffix { size_bytes: 36 }, index_size_bytes: 36 };
    let source = flat_source_in(Some(shard), vec![200], vec![10], true);
    let select = |start| Selection::region(&[start], &[5]).unwrap();
    let selections = vec![select(0), select(145), select(25), select(150)];
    let mut plan = Plan::of_results(Arc::new(source), &[ResultOf::Stack(&selections)], options()).unwrap();
    let Step::Indexes(wanted) = plan.next(&room()).unwrap() else { panic!("indexes are needed") };
    let keys: Vec<_> = wanted.iter().map(|index| index.place.key.to_string()).collect();
    assert_eq!(keys, ["c[0]", "c[1]", "c[7]"]);
    for index in wanted {
        plan.learn(index.place, Some(Arc::new(Table(vec![Some((0, 40)), Some((40, 40))]))));
    }
    let Step::Batch(batch) = plan.next(&room()).unwrap() else { panic!("a batch") };
    assert_eq!(batch.units.len(), 4);
    assert!(matches!(plan.next(&room()).unwrap(), Step::Done));
}

#[test]
fn a_chunk_that_several_selections_want_is_one_unit() {
    let shard = ShardLayout { grid: vec![2], index_range: ByteRange::Suffix { size_bytes: 36 }, index_size_bytes: 36 };
    for sharded in [false, true] {
        let source = flat_source_in(sharded.then(|| shard.clone()), vec![200], vec![10], false);
        let selections = [95, 3, 90, 8].map(|start| Selection::region(&[start], &[5]).unwrap()).to_vec();
        let mut plan = Plan::of_results(Arc::new(source), &[ResultOf::Stack(&selections)], options()).unwrap();
        let batch = loop {
            match plan.next(&room()).unwrap() {
                Step::Batch(batch) => break batch,
                Step::Indexes(wanted) => wanted.into_iter().for_each(|index| {
                    plan.learn(index.place, Some(Arc::new(Table(vec![Some((0, 40)), Some((40, 40))]))));
                }),
                Step::Done => panic!("a batch"),
            }
        };
        let wanted: Vec<Vec<_>> = batch
            .units
            .iter()
            .map(|unit| unit.places.iter().map(|place| (place.start[0], place.first_elem)).collect())
            .collect();
        assert_eq!(wanted, [vec![(1, 3), (3, 8)], vec![(3, 0)], vec![(0, 5), (2, 0)]]);
        assert!(matches!(plan.next(&room()).unwrap(), Step::Done));
    }
}

#[test]
fn selections_that_differ_in_shape_have_no_common_plan() {
    let source = Arc::new(flat_source(vec![200], vec![10], true));
    let selections = vec![Selection::region(&[0], &[5]).unwrap(), Selection::region(&[0], &[6]).unwrap()];
    let error = Plan::of_results(source, &[ResultOf::Stack(&selections)], options()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
}

#[test]
fn every_selected_element_arrives_once_at_its_place() {
    for seed in 0..1500 {
        let mut dice = Dice(seed);
        let stored_is_packed = seed % 2 == 0;
        let world = World::new(random_source(&mut dice, stored_is_packed), &mut dice);
        let selection = match dice.below(3) {
            0 => Selection::all(&world.source.shape),
            _ => random_selection(&mut dice, &world.source.shape),
        };
        let options = PlanOptions {
            coalesce_gap_bytes: dice.below(40),
            coalesce_max_bytes: 1 + dice.below(400),
            piece_max_bytes: 1 + dice.below(60),
            index_window_bytes: dice.below(30),
            whole_shards_bytes: 1 << 20,
            whole_chunks_bytes: dice.below(2) * dice.below(200),
        };
        let room = Room {
            packed_bytes: 1 + dice.below(300) as usize,
            units: 1 + dice.below(20) as usize,
            alignment_bytes: 1 << dice.below(4),
        };
        assert_eq!(world.read(&selection, options, &room), world.expected(&selection), "seed {seed}");
    }
}

fn options() -> PlanOptions {
    PlanOptions {
        coalesce_gap_bytes: 1 << 16,
        coalesce_max_bytes: 1 << 24,
        piece_max_bytes: 1 << 24,
        index_window_bytes: 1 << 20,
        whole_shards_bytes: 1 << 20,
        whole_chunks_bytes: 0,
    }
}

fn room() -> Room {
    Room { packed_bytes: 1 << 24, units: 1000, alignment_bytes: 256 }
}

fn flat_source(shape: Vec<u64>, chunk_shape: Vec<u64>, stored_is_packed: bool) -> Source {
    flat_source_in(None, shape, chunk_shape, stored_is_packed)
}

/// Makes a source of single chunks, or of shards of 20 elements with two chunks each.
fn flat_source_in(
    shard: Option<ShardLayout>,
    shape: Vec<u64>,
    chunk_shape: Vec<u64>,
    stored_is_packed: bool,
) -> Source {
    let size_bytes = chunk_shape.iter().product::<u64>() as usize * 4;
    let axes = (0..shape.len()).collect();
    let packed = PackedLayout { size_bytes, element_bytes: 4, axes, stored_is_packed, divisible: true };
    let outer = shard.map(|shard| Level { chunk_shape: vec![20], bound_bytes: None, shard: Some(shard) });
    let chunks = Level { chunk_shape, bound_bytes: Some(1 << 40), shard: None };
    let layout = layout_of(outer.into_iter().chain([chunks]).collect(), packed);
    Source::new(shape, Arc::new(|at| format!("c{at:?}")), layout)
}

#[test]
fn a_tiny_selection_of_a_huge_array_is_one_small_batch() {
    let source = flat_source(vec![1 << 40, 1 << 20], vec![1 << 10, 1 << 10], true);
    let select = |start, count| AxisSelection { start, count, step: 1, dropped: false };
    let selection = Selection::new(vec![select((1 << 39) + 5, 2), select(1000, 30)]).unwrap();
    let mut plan = Plan::new(Arc::new(source), selection, options()).unwrap();
    let Step::Batch(batch) = plan.next(&room()).unwrap() else { panic!("a batch") };
    assert_eq!(batch.reads.len(), 2);
    assert_eq!(batch.reads[0].key.as_ref(), "c[536870912, 0]");
    assert_eq!(batch.reads[0].range, ByteRange::Span { offset: (5 * 1024 + 1000) * 4, size_bytes: (1024 + 24) * 4 });
    assert!(matches!(plan.next(&room()).unwrap(), Step::Done));
}

#[test]
fn millions_of_chunks_come_in_batches() {
    let source = flat_source(vec![1 << 40], vec![1 << 10], false);
    let mut plan = Plan::new(Arc::new(source), Selection::all(&[1 << 40]), options()).unwrap();
    for _ in 0..3 {
        let Step::Batch(batch) = plan.next(&room()).unwrap() else { panic!("a batch") };
        assert_eq!(batch.units.len(), 1000);
    }
}

#[test]
fn a_large_uncompressed_chunk_is_read_in_pieces_that_show_its_end() {
    let source = flat_source(vec![1 << 13, 1 << 10], vec![1 << 13, 1 << 10], true);
    let mut plan = Plan::new(Arc::new(source), Selection::all(&[1 << 13, 1 << 10]), options()).unwrap();
    let mut ranges = Vec::new();
    while let Step::Batch(batch) = plan.next(&room()).unwrap() {
        ranges.extend(batch.reads.iter().map(|read| (read.range, read.size)));
    }
    let half = 1 << 24;
    let first = (ByteRange::Span { offset: 0, size_bytes: half }, SizeRule::Exact(half));
    assert_eq!(ranges, [first, (ByteRange::From { offset: half }, SizeRule::Exact(half))]);
}

#[test]
fn an_index_that_contradicts_the_metadata_is_corrupt() {
    let shard = ShardLayout { grid: vec![2], index_range: ByteRange::Suffix { size_bytes: 36 }, index_size_bytes: 36 };
    for entry in [(0, 39), (u64::MAX - 3, 40), (u64::MAX, 1 << 30)] {
        let source = flat_source_in(Some(shard.clone()), vec![20], vec![10], true);
        let mut plan = Plan::new(Arc::new(source), Selection::all(&[20]), options()).unwrap();
        let Step::Indexes(wanted) = plan.next(&room()).unwrap() else { panic!("an index is needed") };
        plan.learn(wanted[0].place.clone(), Some(Arc::new(Table(vec![Some(entry), None]))));
        let error = plan.next(&room()).unwrap_err();
        assert_eq!(
            (error.kind(), error.trail()),
            (ErrorKind::ChunkCorrupt, &["chunk 'c[0]', inner chunk [0]".into()][..])
        );
    }
}
