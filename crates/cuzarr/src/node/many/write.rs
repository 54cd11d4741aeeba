//! Writes to many arrays by one call.

use std::collections::HashSet;
use std::sync::Arc;

use cuzarr_device::internal::pool;
use cuzarr_device::{Device, NdBuffer};

use super::{Array, OfMany, in_calls, options_of, token_of};
use crate::cancellation::CancellationToken;
use crate::codec::VariableElements;
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::plan::{Selection, WritePlan};
use crate::run::{Access, Engine, EngineWrite, Objects, Value};

/// One write of a call of [`write_all`]: elements for a selection of an array.
#[derive(Clone)]
pub struct ArrayWrite<'a> {
    array: &'a Array,
    selection: Selection,
    value: Value,
}

impl<'a> ArrayWrite<'a> {
    /// Makes a write of `value`, which may be on any device, to the selected elements. Their shape is broadcast to the
    /// selection's.
    pub fn new(array: &'a Array, selection: Selection, value: NdBuffer) -> Self {
        ArrayWrite { array, selection, value: Value::Elements(value) }
    }

    /// Makes a write of variable-length elements, in C order of the selection.
    pub fn variable(array: &'a Array, selection: Selection, elements: VariableElements) -> Self {
        ArrayWrite { array, selection, value: Value::Variable(Arc::new(elements)) }
    }
}

impl OfMany for ArrayWrite<'_> {
    fn array(&self) -> &Array {
        self.array
    }

    fn device(&self) -> Device {
        self.value.device()
    }

    fn encoder(&self) -> Device {
        self.array.options().device
    }
}

/// Writes to selections of any number of arrays by one call. Nothing is written if two writes touch the same stored
/// object. Writes from one device to arrays with equal options share a call of the engine, which writes nothing unless
/// all of its elements fit.
///
/// The call uses the smallest memory limit and the smallest number of threads of all arrays. Cancelling any of them
/// ends the call. Other writes of this process to the same objects come before all of these writes, or after all of
/// them.
///
/// ```
/// use cuzarr::node::{ArrayWrite, write_all};
/// use cuzarr::prelude::*;
///
/// let arrays = ["u", "v"].map(|name| Array::builder([4], DataType::UInt8).create(&format!("memory://wind/{name}")));
/// let [u, v] = arrays;
/// let (u, v) = (u?, v?);
/// let elements = NdBuffer::from_slice(Device::Cpu, &[1_u8, 2, 3, 4], &[4])?;
/// write_all(&[u.clone(), v.clone()].each_ref().map(|array| ArrayWrite::new(array, Selection::all(&[4]), elements.clone())))?;
/// assert_eq!(v.read::<u8>(&Selection::all(&[4]))?[..], [1, 2, 3, 4]);
/// # Ok::<(), cuzarr::Error>(())
/// ```
///
/// # Errors
/// Those of [`Array::write_buffer`] for each write; `InvalidArgument` when two writes touch one object. The first
/// failure ends the whole call, with the array in its trail. Objects that were already written keep their new bytes.
pub fn write_all(writes: &[ArrayWrite<'_>]) -> Result<()> {
    let objects = |write: &ArrayWrite<'_>| write.array.objects(&write.selection).at(|| write.array.place());
    let objects: Vec<Option<Objects>> = writes.iter().map(objects).collect::<Result<_>>()?;
    refuse_common_objects(writes, &objects)?;
    let token = token_of(writes);
    let _turn = Engine::get().turn(objects.into_iter().flatten().collect(), &token)?;
    in_calls(writes, &token, |numbers| call(writes, numbers, &token)).map(|_| ())
}

/// Executes the writes `writes[n]` for each `n` in `numbers`, by one call of the engine.
fn call(writes: &[ArrayWrite<'_>], numbers: &[usize], token: &CancellationToken) -> Result<()> {
    let writes: Vec<&ArrayWrite<'_>> = numbers.iter().map(|&at| &writes[at]).collect();
    let options = options_of(writes.iter().map(|write| write.array), token)?;
    let _within = pool::within(writes[0].device(), options.memory_limit_bytes);
    let places: Vec<String> = writes.iter().map(|write| write.array.place()).collect();
    let accesses: Vec<Arc<Access>> = writes.iter().map(|write| write.access()).collect::<Result<_>>()?;
    let given = writes.iter().zip(&accesses).zip(&places).map(|((write, access), place)| EngineWrite {
        access,
        store: write.array.store(),
        name: Some(place),
        selection: &write.selection,
        value: &write.value,
    });
    let report = Engine::get().write_all(&given.collect::<Vec<_>>(), &options)?;
    writes.iter().for_each(|write| write.array.set_report(report.clone()));
    Ok(())
}

impl ArrayWrite<'_> {
    fn access(&self) -> Result<Arc<Access>> {
        self.array.access(Device::Cpu).at(|| self.array.place())
    }

    /// For each stored object that the write touches, its coordinates in the array's grid.
    fn touched(&self) -> Result<HashSet<Vec<u64>>> {
        let plan = WritePlan::new(Arc::clone(self.access()?.source()), self.selection.clone())?;
        Ok(plan.positions().collect())
    }
}

/// Refuses two writes to one stored object (chunk or shard), because their order would be random.
fn refuse_common_objects(writes: &[ArrayWrite<'_>], objects: &[Option<Objects>]) -> Result<()> {
    let of_writes = || writes.iter().zip(objects).enumerate();
    for (other, (write, bounds)) in of_writes() {
        let Some(bounds) = bounds else { continue };
        let mut touched = None;
        for (one, (earlier, others)) in of_writes().take(other) {
            if !others.as_ref().is_some_and(|others| others.overlap(bounds)) {
                continue;
            }
            // With steps or index lists, the bounds include objects that are not touched.
            let own = match &mut touched {
                Some(own) => own,
                none => none.insert(write.touched()?),
            };
            let Some(position) = earlier.touched()?.into_iter().find(|position| own.contains(position)) else {
                continue;
            };
            let message = format!("writes {one} and {other} touch one stored object, that of chunk {position:?}");
            let error = Error::new(ErrorKind::InvalidArgument, message).at(write.array.place());
            return Err(error.with_hint("write them one after the other"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use cuzarr_device::Order;

    use super::*;
    use crate::meta::DataType;
    use crate::plan::{AxisIndex, SliceArg};
    use crate::store::{MemoryStore, Store, StoreExt};

    fn array(store: &Arc<dyn Store>, path: &str, shape: &[u64]) -> Array {
        let builder = Array::builder(shape.to_vec(), DataType::UInt16).chunks(vec![4; shape.len()]).fill_value(9_u16);
        builder.create_in(Arc::clone(store), path).unwrap()
    }

    fn numbers(count: u16, shape: &[usize]) -> NdBuffer {
        NdBuffer::from_slice(Device::Cpu, &(1..=count).collect::<Vec<_>>(), shape).unwrap()
    }

    fn elements(array: &Array) -> Vec<u16> {
        let all = array.read_buffer(&Selection::all(array.shape())).unwrap();
        all.copy(Order::C).unwrap().host_slice::<u16>().unwrap().to_vec()
    }

    #[test]
    fn elements_reach_their_arrays() {
        let stores: [Arc<dyn Store>; 2] = [Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new())];
        let arrays = [array(&stores[0], "a", &[6, 3]), array(&stores[1], "a", &[9]), array(&stores[0], "b", &[])];
        let region = |start, extent| Selection::region(&[start], &[extent]).unwrap();
        let writes = [
            ArrayWrite::new(&arrays[0], Selection::all(&[6, 3]), numbers(3, &[3])),
            ArrayWrite::new(&arrays[1], region(1, 3), numbers(3, &[3])),
            ArrayWrite::new(&arrays[1], region(8, 1), numbers(1, &[1])),
            ArrayWrite::new(&arrays[2], Selection::all(&[]), numbers(1, &[])),
            ArrayWrite::new(&arrays[1], region(4, 0), numbers(0, &[0])),
        ];
        write_all(&writes).unwrap();
        assert_eq!(elements(&arrays[0]), [1, 2, 3].repeat(6));
        assert_eq!(elements(&arrays[1]), [9, 1, 2, 3, 9, 9, 9, 9, 1]);
        assert_eq!(elements(&arrays[2]), [1]);
        assert!(arrays[2].last_report().is_some());
        write_all(&[]).unwrap();
    }

    #[test]
    fn writes_of_one_object_are_refused_before_anything_is_written() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let (one, two) = (array(&store, "a", &[16]), array(&store, "b", &[16]));
        let again = Array::open(Arc::clone(&store), "b", crate::node::ArrayOptions::default()).unwrap();
        let part = |start, extent| Selection::region(&[start], &[extent]).unwrap();
        let writes = [
            ArrayWrite::new(&one, part(0, 16), numbers(16, &[16])),
            ArrayWrite::new(&two, part(0, 5), numbers(5, &[5])),
            ArrayWrite::new(&again, part(7, 2), numbers(2, &[2])),
        ];
        let error = write_all(&writes).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("array '/b': writes 1 and 2 touch one stored object, that of chunk [1]"), "{text}");
        assert_eq!(store.list("a/c").unwrap().len(), 0);
        // The chunks of the other writes lie between the indices of these lists.
        let list = |indices: &[u64]| Selection::orthogonal(vec![AxisIndex::List(indices.into())]).unwrap();
        let writes = [
            ArrayWrite::new(&two, list(&[0, 8]), numbers(2, &[2])),
            ArrayWrite::new(&again, list(&[4, 12]), numbers(2, &[2])),
        ];
        write_all(&writes).unwrap();
        let expected: Vec<u16> = (0..16)
            .map(|at| match at {
                0 | 4 => 1,
                8 | 12 => 2,
                _ => 9,
            })
            .collect();
        assert_eq!(elements(&two), expected);
    }

    #[test]
    fn nothing_is_written_unless_all_fits_and_errors_name_the_array() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let (one, two) = (array(&store, "a", &[6]), array(&store, "b", &[6]));
        let writes = [
            ArrayWrite::new(&one, Selection::all(&[6]), numbers(6, &[6])),
            ArrayWrite::new(&two, Selection::all(&[6]), numbers(5, &[5])),
        ];
        let text = write_all(&writes).unwrap_err().to_string();
        assert!(text.contains("array '/b'") && text.contains("does not broadcast"), "{text}");
        assert_eq!(elements(&one), [9; 6]);
        let row = Selection::from_slices(&[SliceArg::Index(2)], &[6]).unwrap();
        store.write("b/c/0", b"short").unwrap();
        let writes = [ArrayWrite::new(&one, row.clone(), numbers(1, &[])), ArrayWrite::new(&two, row, numbers(1, &[]))];
        let text = write_all(&writes).unwrap_err().to_string();
        assert!(text.contains("array '/b': chunk 'b/c/0'"), "{text}");
    }
}
