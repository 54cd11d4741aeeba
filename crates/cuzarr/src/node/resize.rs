//! Changes the shapes of arrays. The shapes of many arrays of a store change together, in as many rounds of requests as
//! one shape.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::array::Array;
use super::copies::update_copies;
use super::deletion::{ChunksOutside, delete_chunks, refuse_undeletable};
use super::document::{NodeChange, NodeLocks, NodePlace, StoredNode};
use super::lock::{MOST_ATTEMPTS, outrun, pause};
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::meta::{ArrayMetadata, EntryChange, NodeDocuments, NodeMetadata, ZarrFormat};
use crate::store::Store;

impl Array {
    /// Changes the shape of the array. Chunks outside the new shape are deleted. Chunks at its edge stay whole, so
    /// their outer elements appear again if the array grows.
    ///
    /// The call changes the stored shape, even if this handle remembers another shape. Other changes of the array's
    /// metadata wait until the call returns.
    ///
    /// If the process is killed, either the old array or the new one remains. Chunks are only deleted when no stored
    /// shape includes them. Chunks that a killed call left behind are deleted before a new shape includes them.
    ///
    /// # Errors
    /// `ShapeMismatch` when the number of dimensions differs; `ArrayNotFound` when the array is gone; what the store reports.
    pub fn resize(&mut self, shape: Vec<u64>) -> Result<()> {
        resize_all(&mut [ArrayResize::new(self, shape)])
    }
}

/// An array, and the new shape that a resize gives it.
pub struct ArrayResize<'a> {
    array: &'a mut Array,
    shape: Vec<u64>,
}

impl<'a> ArrayResize<'a> {
    /// Makes the resize of one array to the shape `shape`, as an item for `resize_all`.
    pub fn new(array: &'a mut Array, shape: impl Into<Vec<u64>>) -> ArrayResize<'a> {
        ArrayResize { array, shape: shape.into() }
    }
}

/// Options for changing the shapes of arrays.
#[derive(Clone, Copy, Debug)]
pub struct ResizeOptions {
    /// Whether chunks outside the new shape are deleted.
    pub deletes_outside: bool,
    /// Spaces per level in metadata documents; `None` for documents of one line.
    pub indent: Option<usize>,
    /// Whether the stored shape of an array must still be the shape that its `Array` has in memory. If another writer
    /// gave it another shape, the call is refused.
    pub expects_known_shapes: bool,
}

impl Default for ResizeOptions {
    fn default() -> Self {
        ResizeOptions { deletes_outside: true, indent: Some(2), expects_known_shapes: false }
    }
}

/// Changes the shapes of several arrays by one call, as [`Array::resize`] changes one. Arrays of one store change
/// together: their documents are read and written at once, and consolidated metadata above them is changed once.
///
/// If a shape is refused, no array of its store changes. If a store fails in the middle, some of the arrays have their
/// new shape, and their handles have it too. Stores are changed one after another.
///
/// ```
/// use std::sync::Arc;
/// use cuzarr::node::{Array, ArrayResize, resize_all};
/// use cuzarr::prelude::*;
/// use cuzarr::store::{MemoryStore, Store};
///
/// let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
/// let create = |path| Array::builder([2, 3], DataType::Int16).create_in(Arc::clone(&store), path);
/// let (mut wind, mut rain) = (create("wind")?, create("rain")?);
/// resize_all(&mut [ArrayResize::new(&mut wind, [4, 3]), ArrayResize::new(&mut rain, [4, 3])])?;
/// assert_eq!((wind.shape(), rain.shape()), (&[4, 3][..], &[4, 3][..]));
/// # Ok::<(), cuzarr::Error>(())
/// ```
///
/// # Errors
/// Those of [`Array::resize`]; `InvalidArgument` when an array is given twice.
pub fn resize_all(arrays: &mut [ArrayResize<'_>]) -> Result<()> {
    resize_with(arrays, ResizeOptions::default())
}

/// Like [`resize_all`], but with options.
pub(crate) fn resize_with(arrays: &mut [ArrayResize<'_>], options: ResizeOptions) -> Result<()> {
    refuse_repeats(arrays)?;
    // By the handle of the store, because another handle may refuse to write.
    let mut stores: Vec<(Arc<dyn Store>, Vec<&mut ArrayResize<'_>>)> = Vec::new();
    for array in arrays {
        match stores.iter_mut().find(|(store, _)| Arc::ptr_eq(store, array.array.store())) {
            Some((_, of_store)) => of_store.push(array),
            None => stores.push((Arc::clone(array.array.store()), vec![array])),
        }
    }
    stores.iter_mut().try_for_each(|(store, arrays)| {
        arrays.sort_by(|one, other| one.array.path().cmp(other.array.path()));
        resize_of_store(store, arrays, options)
    })
}

/// Refuses to give one stored array two shapes by one call, even through two `Array` values with different store
/// objects.
fn refuse_repeats(arrays: &[ArrayResize<'_>]) -> Result<()> {
    let mut places = HashSet::new();
    let repeated = arrays.iter().find(|one| !places.insert(one.array.store().identity().below(one.array.path())));
    let Some(ArrayResize { array, .. }) = repeated else { return Ok(()) };
    let message = format!("{}: the array is to get two shapes", array.place());
    Err(Error::new(ErrorKind::InvalidArgument, message))
}

/// Changes the shapes of arrays of one store, which are sorted by path.
fn resize_of_store(store: &Arc<dyn Store>, arrays: &mut [&mut ArrayResize<'_>], options: ResizeOptions) -> Result<()> {
    let tokens = arrays.iter().map(|array| array.array.options().cancellation.clone()).collect();
    let cancellation = CancellationToken::under(tokens);
    let place = |array: &&mut ArrayResize<'_>| {
        let format = array.array.metadata().zarr_format();
        NodePlace { path: array.array.path().to_string(), format, is_array: true }
    };
    let locks = NodeLocks::take(Arc::clone(store), arrays.iter().map(place).collect(), true, &cancellation)?;
    let mut left: Vec<usize> = (0..arrays.len()).collect();
    for attempt in 0..MOST_ATTEMPTS {
        let changes = read_changes(&locks, arrays, &left, options)?;
        cancellation.check()?;
        if options.deletes_outside {
            delete_before(&**store, &changes, &cancellation)?;
        }
        left = replace(&**store, &locks, arrays, changes, options)?;
        if left.is_empty() {
            return Ok(());
        }
        pause(attempt, &cancellation)?;
    }
    Err(outrun(&**store, arrays[left[0]].array.path()))
}

/// How a resize changes one array, from its stored shape to the wanted one.
struct Change {
    /// The number of the array among the arrays of the call.
    number: usize,
    path: String,
    stored: StoredNode,
    old: ArrayMetadata,
    /// The array's metadata with the new shape instead of the old one. The grid covers the old shape, too: a
    /// rectilinear grid only grows.
    new: ArrayMetadata,
}

impl Change {
    fn has(&self, differs: impl Fn(&u64, &u64) -> bool) -> bool {
        self.old.shape().iter().zip(self.new.shape()).any(|(old, new)| differs(old, new))
    }

    fn to<'a>(&'a self, documents: &'a NodeDocuments) -> NodeChange<'a> {
        NodeChange { number: self.number, stored: &self.stored, documents }
    }

    /// The chunks that lie in the new shape and not in the old shape.
    fn added(&self) -> ChunksOutside<'_> {
        ChunksOutside { path: &self.path, metadata: &self.new, within: self.new.shape(), kept: self.old.shape() }
    }

    /// The chunks that lie in the old shape and not in the new shape.
    fn removed(&self) -> ChunksOutside<'_> {
        ChunksOutside { path: &self.path, metadata: &self.new, within: self.old.shape(), kept: self.new.shape() }
    }
}

/// Reads the metadata documents of the arrays `arrays[n]` for each `n` in `numbers`, and computes how each array
/// changes. The arrays get the stored metadata.
fn read_changes(
    locks: &NodeLocks,
    arrays: &mut [&mut ArrayResize<'_>],
    numbers: &[usize],
    options: ResizeOptions,
) -> Result<Vec<Change>> {
    let stored = locks.read(numbers)?.into_iter();
    let change = |(&number, stored): (&usize, StoredNode)| {
        let ArrayResize { array, shape } = &mut *arrays[number];
        let old = stored.array().at(|| array.place())?;
        if options.expects_known_shapes && old.shape() != array.shape() {
            let (known, now) = (array.shape(), old.shape());
            let message = format!("{}: another writer changed the shape from {known:?} to {now:?}", array.place());
            return Err(Error::new(ErrorKind::ShapeMismatch, message).with_hint("open it again, and repeat the change"));
        }
        array.set_metadata(old.clone());
        let mut new = old.clone();
        new.set_shape(shape.clone()).at(|| array.place())?;
        Ok(Change { number, path: array.path().to_string(), stored, old, new })
    };
    numbers.iter().zip(stored).map(change).collect()
}

/// Deletes stored chunks outside the old shapes that the new shapes would include; a killed resize left them behind. A
/// transactional store only accepts chunks of the current shape. So there, the chunks outside the new shape are deleted
/// instead; a killed resize leaves nothing in such a store.
fn delete_before(store: &dyn Store, changes: &[Change], cancellation: &CancellationToken) -> Result<()> {
    changes.iter().try_for_each(|change| refuse_undeletable(store, &change.removed()))?;
    if store.capabilities().transactional {
        return delete_removed(store, changes.iter());
    }
    let growing: Vec<&Change> = changes.iter().filter(|change| change.has(|old, new| new > old)).collect();
    // Consolidated copies may still have larger shapes.
    let mut entries: BTreeMap<ZarrFormat, Vec<EntryChange>> = BTreeMap::new();
    for Change { path, stored, old, .. } in &growing {
        let entry = EntryChange { path: path.clone(), node: Some(stored.documents().clone().alone()) };
        entries.entry(old.zarr_format()).or_default().push(entry);
    }
    for (format, entries) in entries {
        update_copies(store, format, entries, cancellation)?;
    }
    delete_chunks(store, &growing.into_iter().map(Change::added).collect::<Vec<_>>())
}

/// Stores the new shapes, and then deletes the chunks outside them, which no reader expects any more. Returns the
/// arrays that were not changed because another writer was faster.
fn replace(
    store: &dyn Store,
    locks: &NodeLocks,
    arrays: &mut [&mut ArrayResize<'_>],
    changes: Vec<Change>,
    options: ResizeOptions,
) -> Result<Vec<usize>> {
    let documents = |change: &Change| NodeDocuments::from(&NodeMetadata::Array(Box::new(change.new.clone())));
    let documents: Vec<NodeDocuments> = changes.iter().map(documents).collect();
    let new: Vec<_> = changes.iter().zip(&documents).map(|(change, documents)| change.to(documents)).collect();
    let outcomes = locks.replace(&new, options.indent)?;
    let mut failure = None;
    if options.deletes_outside && !store.capabilities().transactional {
        let stored = changes.iter().zip(&outcomes).filter(|(_, outcome)| matches!(outcome, Ok(true)));
        failure = delete_removed(store, stored.map(|(change, _)| change)).err();
    }
    let mut left = Vec::new();
    for (Change { number, new, .. }, outcome) in changes.into_iter().zip(outcomes) {
        match outcome {
            Ok(true) => arrays[number].array.set_metadata(new),
            Ok(false) => left.push(number),
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(left), Err)
}

fn delete_removed<'a>(store: &dyn Store, changes: impl Iterator<Item = &'a Change>) -> Result<()> {
    let shrinking = changes.filter(|change| change.has(|old, new| new < old));
    delete_chunks(store, &shrinking.map(Change::removed).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::meta::DataType;
    use crate::node::{ArrayOptions, Consolidation, Group, consolidate_metadata};
    use crate::plan::Selection;
    use crate::store::testing::{Observed, Operation};
    use crate::store::{LocalStore, Lock, MemoryStore, StoreExt};

    const NAMES: [&str; 3] = ["deep/u", "deep/v", "w"];

    /// Stores arrays of 4 elements in chunks of 2, and consolidates their group and the root.
    fn prepare(store: &Arc<dyn Store>, format: ZarrFormat) {
        for (name, value) in NAMES.iter().zip(1_u8..) {
            let builder = Array::builder([4], DataType::UInt8).chunks([2]).zarr_format(format);
            let array = builder.create_in(Arc::clone(store), name).unwrap();
            array.write(&Selection::all(&[4]), &[value; 4]).unwrap();
        }
        for group in ["deep", ""] {
            consolidate_metadata(Arc::clone(store), group, None, ArrayOptions::default()).unwrap();
        }
    }

    fn open(store: &Arc<dyn Store>, name: &str) -> Array {
        Array::open(Arc::clone(store), name, ArrayOptions::default()).unwrap()
    }

    fn resize(arrays: &mut [Array], shapes: &[Vec<u64>]) -> Result<()> {
        let resizes = arrays.iter_mut().zip(shapes).map(|(array, shape)| ArrayResize::new(array, shape.clone()));
        resize_all(&mut resizes.collect::<Vec<_>>())
    }

    /// The shapes of the test arrays: in the consolidated metadata of the root, and in the arrays' own documents.
    fn shapes(store: &Arc<dyn Store>) -> [Vec<u64>; 2] {
        let copied = |name: &&str| {
            let consolidation = Consolidation::Required;
            let root = Group::open(Arc::clone(store), "", None, consolidation, ArrayOptions::default()).unwrap();
            let members = root.members(None).unwrap();
            let found = members.into_iter().find(|(path, _)| path == name).unwrap().1;
            let crate::node::Node::Array(array) = found else { panic!("{name} is a group") };
            array.shape()[0]
        };
        let stored = |name: &&str| open(store, name).shape()[0];
        [NAMES.iter().map(copied).collect(), NAMES.iter().map(stored).collect()]
    }

    #[test]
    fn arrays_of_a_store_change_as_they_do_one_by_one() {
        for format in [ZarrFormat::V2, ZarrFormat::V3] {
            for transactional in [false, true] {
                let new = || match transactional {
                    true => Observed::new(Arc::new(MemoryStore::new())).transactional(),
                    false => Observed::new(Arc::new(MemoryStore::new())),
                };
                let stores: [Arc<dyn Store>; 2] = [Arc::new(new()), Arc::new(new())];
                let wanted = [vec![1], vec![7], vec![4]];
                stores.iter().for_each(|store| prepare(store, format));
                let mut together = [2, 1, 0].map(|at: usize| open(&stores[0], NAMES[at]));
                resize(&mut together, &[wanted[2].clone(), wanted[1].clone(), wanted[0].clone()]).unwrap();
                for (name, shape) in NAMES.iter().zip(&wanted) {
                    open(&stores[1], name).resize(shape.clone()).unwrap();
                }
                assert_eq!(together.map(|array| array.shape().to_vec()), [vec![4], vec![7], vec![1]]);
                let [one, other] = stores.map(|store| {
                    let keys = store.list("").unwrap();
                    keys.into_iter().map(|key| (store.get(&key).unwrap(), key)).collect::<Vec<_>>()
                });
                assert_eq!(one, other, "{format:?} {transactional}");
            }
        }
    }

    #[test]
    fn a_shape_that_is_refused_changes_nothing() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        prepare(&store, ZarrFormat::V3);
        let mut arrays = NAMES.map(|name| open(&store, name));
        let error = resize(&mut arrays, &[vec![1], vec![8], vec![2, 2]]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
        assert!(format!("{error:?}").contains("'/w'"), "{error:?}");
        let mut same = [open(&store, "w"), open(&store, "deep/u"), open(&store, "w")];
        assert_eq!(resize(&mut same, &[vec![1], vec![1], vec![2]]).unwrap_err().kind(), ErrorKind::InvalidArgument);
        let again: Arc<dyn Store> = Arc::new(Observed::new(Arc::clone(&store)));
        let mut by_two_handles = [open(&store, "w"), open(&again, "w")];
        assert_eq!(resize(&mut by_two_handles, &[vec![1], vec![2]]).unwrap_err().kind(), ErrorKind::InvalidArgument);
        store.delete("deep/v/zarr.json").unwrap();
        assert_eq!(resize(&mut arrays, &[vec![1], vec![8], vec![9]]).unwrap_err().kind(), ErrorKind::ArrayNotFound);
        assert!(arrays.iter().all(|array| array.shape() == [4]));
        assert_eq!([open(&store, "w").shape(), open(&store, "deep/u").shape()], [[4]; 2]);
        assert_eq!(open(&store, "deep/u").read::<u8>(&Selection::all(&[4])).unwrap()[..], [1; 4]);
        let Ok(()) = resize(&mut [], &[]) else { panic!("no array is no error") };
    }

    #[test]
    fn one_document_that_cannot_be_written_leaves_the_others_changed_and_known() {
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        prepare(&memory, ZarrFormat::V3);
        let failing = Observed::new(Arc::clone(&memory)).with_failure(|operation| match operation {
            Operation::Write(key, _) if key == "deep/v/zarr.json" => Some(Error::new(ErrorKind::StoreFailed, "full")),
            _ => None,
        });
        let store: Arc<dyn Store> = Arc::new(failing);
        let mut arrays = NAMES.map(|name| open(&store, name));
        let error = resize(&mut arrays, &[vec![2], vec![2], vec![9]]).unwrap_err();
        assert!(error.kind() == ErrorKind::StoreFailed && format!("{error:?}").contains("deep/v"), "{error:?}");
        assert_eq!(arrays.each_ref().map(|array| array.shape()[0]), [2, 4, 9]);
        assert_eq!(shapes(&memory), [[2, 4, 9], [2, 4, 9]], "copies follow the documents");
        assert!(!memory.exists("deep/u/c/1").unwrap() && memory.exists("deep/v/c/1").unwrap());
        assert_eq!(arrays[1].read::<u8>(&Selection::all(&[4])).unwrap()[..], [2; 4]);
    }

    #[test]
    fn a_shape_that_another_writer_has_changed_can_be_refused() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        prepare(&store, ZarrFormat::V3);
        let mut arrays = NAMES.map(|name| open(&store, name));
        open(&store, "deep/v").resize(vec![5]).unwrap();
        let options = ResizeOptions { expects_known_shapes: true, ..ResizeOptions::default() };
        let grow = |arrays: &mut [Array]| {
            let resizes = arrays.iter_mut().map(|array| ArrayResize::new(array, [6]));
            resize_with(&mut resizes.collect::<Vec<_>>(), options)
        };
        let error = grow(&mut arrays).unwrap_err();
        assert!(
            error.kind() == ErrorKind::ShapeMismatch && format!("{error:?}").contains("from [4] to [5]"),
            "{error:?}"
        );
        assert_eq!(shapes(&store), [[4, 5, 4], [4, 5, 4]]);
        arrays[1] = open(&store, "deep/v");
        grow(&mut arrays).unwrap();
        assert_eq!(shapes(&store), [[6; 3], [6; 3]]);
    }

    #[test]
    fn an_array_that_another_writer_changes_first_is_tried_again() {
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        prepare(&memory, ZarrFormat::V3);
        let (rival, was_faster) = (Arc::clone(&memory), AtomicBool::new(false));
        let watched = Observed::new(Arc::clone(&memory)).with_failure(move |operation| {
            if matches!(operation, Operation::Write(key, _) if key == "deep/u/zarr.json")
                && !was_faster.swap(true, Ordering::Relaxed)
            {
                // A program that holds no lock of this process.
                let document = rival.get("deep/u/zarr.json").unwrap().unwrap();
                let text =
                    String::from_utf8(document).unwrap().replace("\"attributes\": {}", "\"attributes\": {\"a\": 1}");
                rival.write("deep/u/zarr.json", text.as_bytes()).unwrap();
            }
            None
        });
        let store: Arc<dyn Store> = Arc::new(watched);
        let mut arrays = NAMES.map(|name| open(&store, name));
        resize(&mut arrays, &[vec![6], vec![6], vec![6]]).unwrap();
        assert_eq!(shapes(&memory), [[6; 3], [6; 3]]);
        let found = open(&memory, "deep/u");
        assert_eq!(serde_json::Value::from(found.metadata().attributes().clone()), serde_json::json!({"a": 1}));
    }

    #[test]
    fn calls_that_need_the_same_arrays_wait_for_each_other_and_end() {
        let folder = tempfile::tempdir().unwrap();
        let local = || -> Arc<dyn Store> { Arc::new(LocalStore::new(folder.path()).unwrap()) };
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        for store in [&(|| Arc::clone(&memory)) as &(dyn Fn() -> Arc<dyn Store> + Sync), &local] {
            prepare(&store(), ZarrFormat::V3);
            std::thread::scope(|threads| {
                for thread in 0..4_u64 {
                    threads.spawn(move || {
                        let store = store();
                        let order = [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]][thread as usize];
                        let mut arrays = order.map(|at: usize| open(&store, NAMES[at]));
                        for round in 0..10 {
                            resize(&mut arrays, &vec![vec![10 * thread + round + 1]; 3]).unwrap();
                            open(&store, "w").set_attributes(Default::default()).unwrap();
                        }
                    });
                }
            });
            let [copied, stored] = shapes(&store());
            assert!(copied == stored && stored.iter().all(|shape| *shape == stored[0]), "{copied:?} {stored:?}");
        }
    }

    #[test]
    fn arrays_behind_one_that_another_process_holds_are_not_held_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let local = || -> Arc<dyn Store> { Arc::new(LocalStore::new(folder.path()).unwrap()) };
        prepare(&local(), ZarrFormat::V3);
        // A `flock` through another descriptor acts like one of another process.
        let Lock::Held(held) = local().try_lock("deep/v").unwrap() else { panic!("nobody else has it") };
        std::thread::scope(|threads| {
            let resizing = threads.spawn(|| {
                let store = local();
                let mut arrays = NAMES.map(|name| open(&store, name));
                resize(&mut arrays, &[vec![6], vec![6], vec![6]]).unwrap();
            });
            while !matches!(local().try_lock("deep/u").unwrap(), Lock::Busy) {
                std::thread::yield_now();
            }
            // The call holds the first array and waits for the second.
            while matches!(local().try_lock("w").unwrap(), Lock::Busy) {
                std::thread::yield_now();
            }
            assert_eq!(shapes(&local()), [[4; 3], [4; 3]]);
            drop(held);
            resizing.join().unwrap();
        });
        assert_eq!(shapes(&local()), [[6; 3], [6; 3]]);
    }
}
