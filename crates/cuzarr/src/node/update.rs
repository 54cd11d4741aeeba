//! Updates: elements are read, changed and written back, and no other thread of this process writes them in between.

use std::sync::Arc;

use cuzarr_device::NdBuffer;

use super::array::Array;
use crate::codec::VariableElements;
use crate::error::{Result, ResultExt};
use crate::plan::Selection;
use crate::run::Turn;

/// A lock on the stored objects of a selection, to read, change and write its elements, until it is dropped. Other
/// writes of this process to these objects wait, even through another [`Array`] of the same array.
pub struct Update {
    array: Array,
    selection: Selection,
    _turn: Option<Turn>,
}

impl Array {
    /// Begins an update of the selected elements. First waits for other writes of this process to the objects of the
    /// selection. Later writes wait until the update is dropped. So elements can be read, changed and written back
    /// without losing changes of another thread.
    ///
    /// A thread that holds an update must write to these objects only through the update. Any other write of this
    /// thread to them would wait forever.
    ///
    /// ```
    /// use cuzarr::prelude::*;
    ///
    /// let array = Array::builder([4], DataType::UInt8).create("memory://counters")?;
    /// let counter = Selection::region(&[2], &[1])?;
    /// std::thread::scope(|threads| {
    ///     for _ in 0..3 {
    ///         threads.spawn(|| -> cuzarr::Result<()> {
    ///             let update = array.update(&counter)?;
    ///             let count = array.read::<u8>(&counter)?[0];
    ///             update.write(&[count + 1])
    ///         });
    ///     }
    /// });
    /// assert_eq!(array.read::<u8>(&counter)?[..], [3]);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// `SelectionInvalid`; what the codecs report.
    pub fn update(&self, selection: &Selection) -> Result<Update> {
        let turn = self.turn(selection).at(|| self.place())?;
        Ok(Update { array: self.with_store(Arc::clone(self.store())), selection: selection.clone(), _turn: turn })
    }
}

impl Update {
    pub(super) fn array(&self) -> &Array {
        &self.array
    }

    pub(super) fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Writes to the update's selection, like [`Array::write_buffer`].
    ///
    /// # Errors
    /// Those of [`Array::write_buffer`].
    pub fn write_buffer(&self, value: &NdBuffer) -> Result<()> {
        self.array.write_alone(&self.selection, value)
    }

    /// Writes to the update's selection, like [`Array::write_variable`].
    ///
    /// # Errors
    /// Those of [`Array::write_variable`].
    pub fn write_variable(&self, value: &VariableElements) -> Result<()> {
        self.array.write_variable_alone(&self.selection, value)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc::channel;
    use std::thread::scope;

    use cuzarr_device::{DType, Device, Order};

    use super::*;
    use crate::meta::ArrayMetadata;
    use crate::node::ArrayOptions;
    use crate::store::{LocalStore, MemoryStore, Store};

    const ROWS: u64 = 24;

    /// Makes an array of two stored objects, of 16 and 8 rows.
    fn create(store: Arc<dyn Store>, is_sharded: bool) {
        let codecs = match is_sharded {
            true => {
                r#"{"name": "sharding_indexed", "configuration": {"chunk_shape": [4, 5], "codecs": ["bytes"],
                    "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, "crc32c"]}}"#
            }
            false => r#""bytes""#,
        };
        let document = format!(
            r#"{{"zarr_format": 3, "node_type": "array", "shape": [{ROWS}, 5], "data_type": "uint8", "fill_value": 0,
                "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [16, 5]}}}},
                "chunk_key_encoding": {{"name": "default"}}, "codecs": [{codecs}]}}"#
        );
        let metadata = ArrayMetadata::from_json(document.as_bytes()).unwrap();
        Array::create(store, "a", metadata, true, ArrayOptions::default()).unwrap();
    }

    fn open(store: Arc<dyn Store>) -> Array {
        Array::open(store, "a", ArrayOptions::default()).unwrap()
    }

    fn local(root: &Path) -> Arc<dyn Store> {
        Arc::new(LocalStore::new(root).unwrap())
    }

    fn bytes(shape: &[usize], values: &[u8]) -> NdBuffer {
        NdBuffer::from_host(Device::Cpu, DType::UINT8, shape, Order::C, values).unwrap()
    }

    #[test]
    fn threads_that_write_rows_of_one_object_lose_none() {
        let folder = tempfile::tempdir().unwrap();
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let stores: [&(dyn Fn() -> Arc<dyn Store> + Sync); 2] = [&|| local(folder.path()), &|| Arc::clone(&memory)];
        for (store, is_sharded) in stores.into_iter().flat_map(|store| [(store, false), (store, true)]) {
            create(store(), is_sharded);
            scope(|threads| {
                for first in 0..6 {
                    threads.spawn(move || {
                        let array = open(store()); // each thread opens its own array
                        for row in (first..ROWS).step_by(6) {
                            let selection = Selection::region(&[row, 0], &[1, 5]).unwrap();
                            array.write_buffer(&selection, &bytes(&[1, 5], &[row as u8 + 1; 5])).unwrap();
                        }
                    });
                }
            });
            let found =
                open(store()).read_buffer(&Selection::all(&[ROWS, 5])).unwrap().to_host_bytes(Order::C).unwrap();
            let expected: Vec<u8> = (1..=ROWS as u8).flat_map(|row| [row; 5]).collect();
            assert_eq!(found, expected, "sharded: {is_sharded}");
        }
    }

    #[test]
    fn writes_to_other_objects_go_on_during_an_update() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        create(Arc::clone(&store), false);
        let (mine, theirs) = (open(Arc::clone(&store)), open(store));
        let first = Selection::region(&[0, 0], &[16, 5]).unwrap();
        let second = Selection::region(&[16, 0], &[8, 5]).unwrap();
        let update = mine.update(&first).unwrap();
        theirs.write_buffer(&second, &bytes(&[], &[7])).unwrap();
        let (sender, receiver) = channel();
        scope(|threads| {
            threads.spawn(|| {
                sender.send(()).unwrap();
                theirs.write_buffer(&first, &bytes(&[], &[9])).unwrap();
            });
            receiver.recv().unwrap();
            update.write_buffer(&bytes(&[], &[8])).unwrap();
            drop(update);
        });
        let found = mine.read_buffer(&Selection::all(&[ROWS, 5])).unwrap().to_host_bytes(Order::C).unwrap();
        assert_eq!((found[0], found[79], found[80]), (9, 9, 7), "who waited wrote last");
    }

    #[test]
    fn a_failed_write_lets_the_next_one_begin() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        create(Arc::clone(&store), false);
        let (array, all) = (open(store), Selection::all(&[ROWS, 5]));
        array.write_buffer(&all, &bytes(&[3], &[1, 2, 3])).unwrap_err();
        array.update(&Selection::all(&[ROWS, 6])).err().unwrap();
        array.write_buffer(&all, &bytes(&[], &[4])).unwrap();
    }
}
