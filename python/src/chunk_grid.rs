//! Chunk grids for Python: which chunk contains an element, and which chunks exist. Also parses the chunks that users
//! give.

use cuzarr::internal::meta::chunking::{self, Chunks, Lengths, Shards};
use cuzarr::meta::{ChunkGrid, Edges, RegularGrid};
use cuzarr::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyList, PyMapping, PyString, PyTuple};

use crate::error::{IntoPython, PyResult, wrong_type};
use crate::json;

/// Largest number of chunks along one dimension whose lengths are listed; a request for more is an error. The lengths
/// take 80 MB, more than anyone would read.
const MOST_EXTENTS: u64 = 10_000_000;

/// The chunks along one dimension: all of one length, or each with its own length.
#[pyclass(name = "AxisGrid", module = "cuzarr._core", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub struct PyAxisGrid(Edges);

#[pymethods]
impl PyAxisGrid {
    /// The length that all chunks along this dimension have; `None` if each has its own length.
    #[getter]
    fn edge(&self) -> Option<u64> {
        match &self.0 {
            Edges::Even(edge) => Some(*edge),
            Edges::Runs(_) => None,
        }
    }

    /// The element index at which the last chunk along this dimension ends; `None` for chunks of one length, which have
    /// no last one.
    #[getter]
    fn end(&self) -> Option<u64> {
        self.0.end()
    }

    /// The length of the largest chunk along this dimension.
    #[getter]
    fn largest(&self) -> u64 {
        self.0.distinct().last().copied().unwrap_or(1)
    }

    /// The number of the chunk that contains the element at `index` along this dimension. For an element behind the
    /// last chunk, the number that the next chunk would have.
    fn chunk_of(&self, index: u64) -> u64 {
        self.0.chunk_of(index)
    }

    /// The index, along this dimension, of the first element of chunk number `chunk`. For a number behind the last
    /// chunk, the end of the last one.
    fn start(&self, chunk: u64) -> u64 {
        self.0.start(chunk)
    }

    /// The length, along this dimension, of chunk number `chunk`, including the part beyond the array's end.
    fn size(&self, chunk: u64) -> PyResult<u64> {
        let message =
            || Error::new(ErrorKind::InvalidArgument, format!("there is no chunk {chunk} along this dimension"));
        self.0.size(chunk).ok_or_else(message).py()
    }

    /// The number of chunks along an array dimension of this extent.
    fn count(&self, extent: u64) -> u64 {
        self.0.count(extent)
    }

    /// The length of each chunk along an array dimension of this extent. The last one is cut off at the array's end.
    fn sizes<'py>(&self, py: Python<'py>, extent: u64) -> PyResult<Bound<'py, PyTuple>> {
        sizes(py, &self.0, extent)
    }
}

fn sizes<'py>(py: Python<'py>, axis: &Edges, extent: u64) -> PyResult<Bound<'py, PyTuple>> {
    let count = axis.count(extent);
    if count > MOST_EXTENTS {
        let message = format!("a dimension has {count} chunks, at most {MOST_EXTENTS} are listed");
        return Err(Error::new(ErrorKind::Unsupported, message).with_hint("use chunks, shards and cdata_shape instead"))
            .py();
    }
    // Equal lengths share one Python integer, to save memory.
    let mut last: Option<(u64, Bound<'py, PyAny>)> = None;
    let mut listed = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
    for chunk in 0..count {
        let length = axis.size(chunk).unwrap_or(0).min(extent - axis.start(chunk));
        let number = match &last {
            Some((same, number)) if *same == length => number.clone(),
            _ => length.into_pyobject(py)?.into_any(),
        };
        listed.push(number.clone());
        last = Some((length, number));
    }
    PyTuple::new(py, listed)
}

/// The chunk grid of an array: chunks of one shape, or with their own lengths along each dimension.
#[pyclass(name = "ChunkGrid", module = "cuzarr._core", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub struct PyChunkGrid(pub ChunkGrid);

#[pymethods]
impl PyChunkGrid {
    /// Makes a grid whose chunks all have the same shape.
    #[staticmethod]
    fn regular(sizes: Vec<u64>) -> PyResult<Self> {
        Ok(PyChunkGrid(ChunkGrid::Regular(RegularGrid::new(sizes).py()?)))
    }

    /// Whether all chunks have the same shape.
    #[getter]
    fn is_regular(&self) -> bool {
        self.0.rectilinear().is_none()
    }

    /// The chunks along each dimension of the array, as one `AxisGrid` object for each dimension.
    #[getter]
    fn axes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(
            py,
            self.0.axes().into_iter().map(|axis| Bound::new(py, PyAxisGrid(axis))).collect::<PyResult<Vec<_>>>()?,
        )
    }

    /// The shape of the grid's largest chunk: the largest length along each dimension.
    #[getter]
    fn largest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.chunk_shape())
    }

    /// The number of chunks along each dimension of an array of shape `shape`.
    fn counts<'py>(&self, py: Python<'py>, shape: Vec<u64>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.chunk_counts(&shape).py()?)
    }

    /// For each dimension, the length of each chunk, cut off at the array's end.
    fn sizes<'py>(&self, py: Python<'py>, shape: Vec<u64>) -> PyResult<Bound<'py, PyTuple>> {
        let along = self
            .0
            .axes()
            .iter()
            .zip(shape)
            .map(|(axis, extent)| sizes(py, axis, extent))
            .collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(py, along)
    }

    /// The chunks as dask and xarray give them: for each dimension one length, or all lengths if they differ; `(0,)`
    /// without chunks.
    fn blocks<'py>(&self, py: Python<'py>, shape: Vec<u64>) -> PyResult<Bound<'py, PyTuple>> {
        if self.is_regular() {
            return self.largest(py);
        }
        let along = |(axis, &extent): (&Edges, &u64)| {
            let lengths = sizes(py, axis, extent)?;
            let count = axis.count(extent);
            if count == 0 {
                return Ok(PyTuple::new(py, [0])?.into_any());
            }
            let first = axis.size(0).unwrap_or(1).min(extent);
            let is_even = (1..count - 1).all(|chunk| axis.size(chunk) == Some(first));
            let last = axis.size(count - 1).unwrap_or(1).min(extent - axis.start(count - 1));
            Ok(if is_even && last <= first { first.into_pyobject(py)?.into_any() } else { lengths.into_any() })
        };
        PyTuple::new(py, self.0.axes().iter().zip(&shape).map(along).collect::<PyResult<Vec<_>>>()?)
    }

    /// The shape of the chunk at a grid index.
    fn chunk_shape<'py>(&self, py: Python<'py>, chunk: Vec<u64>) -> PyResult<Bound<'py, PyTuple>> {
        let sizes = self.0.axes().iter().zip(&chunk).map(|(axis, &at)| axis.size(at)).collect::<Option<Vec<_>>>();
        let message = || Error::new(ErrorKind::InvalidArgument, format!("there is no chunk {chunk:?}"));
        PyTuple::new(py, sizes.ok_or_else(message).py()?)
    }

    /// The grid as the member `chunk_grid` of a `zarr.json`.
    fn to_json<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_value(py, &self.0.to_json())
    }

    fn __repr__(&self) -> String {
        format!("ChunkGrid({})", self.0.to_json()["configuration"])
    }
}

/// Chooses the chunks of an array of shape `shape` from the chunks that a user gave. Returns the shape of chunks, the
/// grid of the stored objects, and whether these are shards.
#[pyfunction]
pub fn choose_chunks<'py>(
    py: Python<'py>,
    shape: Vec<u64>,
    element_bytes: usize,
    chunks: &Bound<'py, PyAny>,
    shards: &Bound<'py, PyAny>,
    target_bytes: Option<u64>,
) -> PyResult<(Bound<'py, PyTuple>, PyChunkGrid, bool)> {
    let (chunks, shards) = (parse_chunks(chunks)?, parse_shards(shards, target_bytes)?);
    let chosen = chunking::chunking(&shape, element_bytes, &chunks, shards.as_ref()).py()?;
    Ok((PyTuple::new(py, chosen.inner)?, PyChunkGrid(chosen.stored), chosen.is_sharded))
}

/// Parses the shards that a user gives; `None` if the array has none.
pub fn parse_shards(given: &Bound<'_, PyAny>, target_bytes: Option<u64>) -> PyResult<Option<Shards>> {
    if given.is_none() {
        return Ok(None);
    }
    Ok(Some(Shards { chunks: parse_sizes(given, "shards")?, target_bytes }))
}

/// Parses the chunks that a user gives: a length for every dimension, or one for all; -1 is a whole dimension. Other
/// forms are `False` for a single chunk, lists of lengths, `"auto"`, and another array's grid.
pub fn parse_chunks(given: &Bound<'_, PyAny>) -> PyResult<Chunks> {
    parse_sizes(given, "chunks")
}

/// Like [`parse_chunks`], for an argument of this name.
fn parse_sizes(given: &Bound<'_, PyAny>, name: &str) -> PyResult<Chunks> {
    if let Ok(grid) = given.cast::<PyChunkGrid>() {
        return Ok(Chunks::Grid(grid.get().0.clone()));
    }
    if given.is_none() || given.cast::<PyBool>().is_ok_and(|flag| flag.is_true()) {
        return refused(format!("{name} is {}, expected sizes, False or 'auto'", given.repr()?));
    }
    if given.is_instance_of::<PyBool>() {
        return Ok(Chunks::Same(-1));
    }
    if given.cast::<PyString>().is_ok_and(|text| text == "auto") {
        return Ok(Chunks::Auto);
    }
    let wrong = || -> PyResult<PyErr> {
        let message = format!("{name} is {}, expected an integer or an iterable of integers", given.repr()?);
        Ok(wrong_type(given.py(), &message))
    };
    if is_text(given) {
        return Err(wrong()?);
    }
    if given.hasattr("__index__")? && !given.hasattr("__len__")? {
        return number(given, "chunk size is").map(Chunks::Same);
    }
    let Ok(items) = given.try_iter() else { return Err(wrong()?) };
    Ok(Chunks::Along(items.map(|item| along(&item?)).collect::<PyResult<_>>()?))
}

fn is_text(given: &Bound<'_, PyAny>) -> bool {
    given.is_instance_of::<PyString>() || given.cast::<PyMapping>().is_ok()
}

fn along(given: &Bound<'_, PyAny>) -> PyResult<Lengths> {
    if is_text(given) {
        let message = format!("chunk sizes are {}, expected an integer or a list of integers", given.repr()?);
        return Err(wrong_type(given.py(), &message));
    }
    // Lists and tuples are tested first, because asking other objects for an iterator is slow.
    let is_listed = given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>();
    if !is_listed && (given.hasattr("__index__")? && !given.hasattr("__len__")? || given.try_iter().is_err()) {
        return number(given, "chunk size is").map(Lengths::Each);
    }
    let lengths = given.try_iter()?.map(|length| number(&length?, "a chunk size is")).collect::<PyResult<Vec<_>>>()?;
    Ok(Lengths::Listed(lengths))
}

fn number(given: &Bound<'_, PyAny>, what: &str) -> PyResult<i64> {
    given.extract::<i64>().or_else(|error| {
        if error.is_instance_of::<pyo3::exceptions::PyOverflowError>(given.py()) {
            return refused(format!("{what} {}, expected at most 2^63 - 1", given.repr()?));
        }
        Err(wrong_type(given.py(), &format!("{what} {}, expected an integer", given.repr()?)))
    })
}

fn refused<T>(message: String) -> PyResult<T> {
    Err(Error::new(ErrorKind::InvalidArgument, message)).py()
}
