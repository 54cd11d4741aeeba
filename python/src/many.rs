//! Reads and writes of many arrays in one call.

use std::collections::HashMap;

use cuzarr::CancellationToken;
use cuzarr::internal::node::{ResizeOptions, resize_with};
use cuzarr::meta::{NodeDocuments, NodeMetadata};
use cuzarr::node::{Array, ArrayResize, ArraySelection, ArrayWrite, explain_all, read_all, write_all};
use cuzarr_device::{DType, NdBuffer};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::array::PyArray;
use crate::ending::Unlocked;
use crate::error::{IntoPython, PyResult};
use crate::interrupt::{here, interruptible};
use crate::names::parse_dtype;
use crate::ndbuffer::PyNdBuffer;
use crate::nodes::node_to_python;
use crate::selection::Selected;
use crate::strings;
use crate::watch::Watches;

/// A read of one array: the array, the part to read, and optionally the type of the result and the memory for it.
type Wanted<'py> = (Bound<'py, PyArray>, Part<'py>, Option<String>, Option<PyRef<'py, PyNdBuffer>>);

/// The part of an array to read: a selection, or ranges of a one-dimensional array (starts and lengths as int64 on the
/// host).
#[derive(FromPyObject)]
pub enum Part<'py> {
    Ranges((PyRef<'py, PyNdBuffer>, PyRef<'py, PyNdBuffer>)),
    Selected(Selected<'py>),
}

impl Part<'_> {
    fn of<'a>(&self, array: &'a Array) -> PyResult<ArraySelection<'a>> {
        match self {
            Part::Selected(selection) => Ok(ArraySelection::new(array, selection.parse()?)),
            Part::Ranges((starts, lengths)) => {
                let (starts, lengths) =
                    (starts.inner.host_slice::<i64>().py()?, lengths.inner.host_slice::<i64>().py()?);
                let range = |(&start, &length): (&i64, &i64)| start as u64..start.saturating_add(length) as u64;
                Ok(ArraySelection::ranges(array, starts.iter().zip(lengths.iter()).map(range).collect()))
            }
        }
    }
}

/// The different arrays that one call reads or writes; a single token cancels the whole call. Several uses of one
/// Python array count as one.
struct Handles {
    watches: Watches,
    token: CancellationToken,
    arrays: Vec<Array>,
    numbers: HashMap<usize, usize>,
}

impl Handles {
    fn new() -> Handles {
        let watches = Watches::current();
        let token = watches.token();
        Handles { watches, token, arrays: Vec::new(), numbers: HashMap::new() }
    }

    /// Returns the index of an array in the call's list of different arrays, and adds the array to the list if it is
    /// new.
    fn number(&mut self, array: &Bound<'_, PyArray>) -> usize {
        *self.numbers.entry(array.as_ptr() as usize).or_insert_with(|| {
            self.arrays.push(self.watches.array(array.get().array(), &self.token));
            self.arrays.len() - 1
        })
    }

    /// Adds an array to the call, even if the call has the same array already.
    fn add(&mut self, array: &Bound<'_, PyArray>) {
        self.arrays.push(self.watches.array(array.get().array(), &self.token));
    }

    /// Runs `work` without the interpreter's lock, and checks for signals while it runs.
    fn run<T: Send>(&self, py: Python<'_>, work: impl FnOnce() -> cuzarr::Result<T> + Send) -> PyResult<T> {
        match self.arrays.iter().all(|array| array.store().capabilities().divides_reads) {
            true => here(py, work),
            false => interruptible(py, &self.token, work),
        }
    }
}

/// Reads parts of arrays in one pipeline, each into new memory on its array's device or into the caller's memory.
#[pyfunction]
pub fn read_many(py: Python<'_>, reads: Vec<Wanted<'_>>) -> PyResult<Vec<PyNdBuffer>> {
    let mut handles = Handles::new();
    let numbers: Vec<usize> = reads.iter().map(|(array, ..)| handles.number(array)).collect();
    let mut wanted = Vec::with_capacity(reads.len());
    for (number, (_, part, dtype, out)) in numbers.into_iter().zip(reads) {
        let dtype: Option<DType> = dtype.as_deref().map(parse_dtype).transpose()?;
        let out: Option<NdBuffer> = out.map(|out| out.inner.clone());
        let read = part.of(&handles.arrays[number])?;
        let read = dtype.into_iter().fold(read, ArraySelection::with_dtype);
        wanted.push(out.into_iter().fold(read, ArraySelection::with_out));
    }
    let results = handles.run(py, || read_all(&wanted))?;
    Ok(results.into_iter().map(|inner| PyNdBuffer { inner }).collect())
}

/// Explains what [`read_many`] would do: for each group of reads that share batches, their indices, and the explanation
/// as text and as JSON.
#[pyfunction]
pub fn explain_many(
    py: Python<'_>,
    reads: Vec<(Bound<'_, PyArray>, Selected<'_>)>,
) -> PyResult<Vec<(Vec<usize>, String, String)>> {
    let mut handles = Handles::new();
    let numbers: Vec<usize> = reads.iter().map(|(array, _)| handles.number(array)).collect();
    let selection = |(number, (_, selected)): (usize, (Bound<'_, PyArray>, Selected<'_>))| {
        Ok(ArraySelection::new(&handles.arrays[number], selected.parse()?))
    };
    let wanted: Vec<_> = numbers.into_iter().zip(reads).map(selection).collect::<PyResult<_>>()?;
    let groups = py.unlocked(|| explain_all(&wanted)).py()?.into_iter();
    Ok(groups.map(|(numbers, told)| (numbers, told.to_string(), told.to_json().to_string())).collect())
}

/// Elements to write: an array; or a list of elements of variable length, and whether they are text.
#[derive(FromPyObject)]
pub enum Elements<'py> {
    Fixed(PyRef<'py, PyNdBuffer>),
    Variable((Bound<'py, PyList>, bool)),
}

/// Writes to selections of several arrays in one call. Writes from one device are checked before the first of them
/// begins.
#[pyfunction]
pub fn write_many(py: Python<'_>, writes: Vec<(Bound<'_, PyArray>, Selected<'_>, Elements<'_>)>) -> PyResult<()> {
    let mut handles = Handles::new();
    let numbers: Vec<usize> = writes.iter().map(|(array, ..)| handles.number(array)).collect();
    let mut given = Vec::with_capacity(writes.len());
    for (number, (_, selection, elements)) in numbers.into_iter().zip(writes) {
        let (array, selection) = (&handles.arrays[number], selection.parse()?);
        given.push(match elements {
            Elements::Fixed(value) => ArrayWrite::new(array, selection, value.inner.clone()),
            Elements::Variable((list, text)) => {
                ArrayWrite::variable(array, selection, strings::from_list(&list, text)?)
            }
        });
    }
    handles.run(py, || write_all(&given))
}

/// Each array's metadata after a resize of several arrays, and the error that ended the resize.
type Resized<'py> = (Vec<Bound<'py, PyAny>>, Option<Py<PyAny>>);

/// Changes the shapes of several arrays in one call. Returns the metadata that each array has afterwards, and the error
/// if there was one.
#[pyfunction]
pub fn resize_many<'py>(
    py: Python<'py>,
    arrays: Vec<Bound<'py, PyArray>>,
    shapes: Vec<Vec<u64>>,
    deletes_outside: bool,
    expects_known_shapes: bool,
    indent: Option<usize>,
) -> PyResult<Resized<'py>> {
    let mut handles = Handles::new();
    arrays.iter().for_each(|array| handles.add(array));
    let mut resized = handles.arrays.clone();
    let options = ResizeOptions { deletes_outside, indent, expects_known_shapes };
    let outcome = handles.run(py, || {
        let mut resizes: Vec<_> =
            resized.iter_mut().zip(shapes).map(|(array, shape)| ArrayResize::new(array, shape)).collect();
        resize_with(&mut resizes, options)
    });
    let metadata = |array: &Array| {
        let metadata = NodeMetadata::Array(Box::new(array.metadata().clone()));
        node_to_python(py, &NodeDocuments::from(&metadata))
    };
    let failure = outcome.err().map(|error| error.into_value(py).into_any());
    Ok((resized.iter().map(metadata).collect::<PyResult<_>>()?, failure))
}
