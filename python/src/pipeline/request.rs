//! A request from zarr-python: a list of chunks, with a part of each chunk and its place in the result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use cuzarr::CancellationToken;
use cuzarr::internal::plan::KeyOf;
use cuzarr::internal::run::{Access, Engine};
use cuzarr::meta::{ChunkKeyEncoding, Separator};
use cuzarr::plan::AxisSelection;
use cuzarr::run::Options;
use cuzarr::store::Store;
use cuzarr_device::Device;
use cuzarr_device::internal::Threads;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PySlice, PySliceMethods, PyTuple};

use super::chunks::PyChunks;
use super::grid::{Grid, Part};
use super::store::PyChunkStore;
use crate::array::parse_options;
use crate::ending::{Unlocked, try_attach};
use crate::error::{IntoPython, PyResult};
use crate::interrupt::{here, interruptible};
use crate::ndbuffer::PyNdBuffer;
use crate::strings;
use crate::watch::{Watch, Watches};

/// A request for a box of elements, with the keys of the chunks that hold them.
#[pyclass(name = "ChunkRequest", module = "cuzarr._core", frozen)]
pub struct PyChunkRequest {
    grid: Grid,
    /// Maps the grid index of a chunk to the chunk's key.
    key: KeyOf,
    /// The keys of the requested chunks, in the order of the request.
    keys: Arc<[String]>,
    watch: Arc<Watch>,
}

#[pymethods]
impl PyChunkRequest {
    /// Makes the request for a batch that zarr-python passes to a codec pipeline. `None` unless its parts make up a box
    /// of chunks of one shape. Keys are the `path` of each byte getter; with `numbered`, they are the items' numbers.
    /// With `keep_beyond`, a write keeps the elements of a chunk beyond the array's edge.
    #[staticmethod]
    fn of_batch(
        batch: &Bound<'_, PyList>,
        chunk_shape: Vec<u64>,
        out_shape: Vec<u64>,
        numbered: bool,
        keep_beyond: bool,
    ) -> PyResult<Option<Self>> {
        let mut items = Vec::with_capacity(batch.len());
        let mut keys = Vec::with_capacity(batch.len());
        let mut spec: Option<Bound<'_, PyAny>> = None;
        for (number, item) in batch.iter().enumerate() {
            let item = item.cast_into::<PyTuple>()?;
            let item_spec = item.get_item(1)?;
            if !spec.as_ref().is_some_and(|spec| spec.is(&item_spec)) {
                if item_spec.getattr("shape")?.extract::<Vec<u64>>()? != chunk_shape {
                    return Ok(None);
                }
                spec = Some(item_spec);
            }
            let Some(parts) = parts(&item.get_item(2)?, &item.get_item(3)?, &chunk_shape, &out_shape)? else {
                return Ok(None);
            };
            items.push((parts, !keep_beyond && item.get_item(4)?.extract::<bool>()?));
            keys.push(match numbered {
                true => number.to_string(),
                false => item.get_item(0)?.getattr("path")?.extract()?,
            });
        }
        Ok(Grid::of_parts(&items, &chunk_shape).map(|grid| PyChunkRequest::new(grid, keys)))
    }

    /// Makes the request for a box of an array. Each axis has a first element, a count, a step, and whether the result
    /// drops it. A key is `prefix` and the chunk's index in the encoding `default` or `v2`. `None` if the array has no
    /// such box, or the box is empty. A request for a box does not list missing chunks.
    #[staticmethod]
    fn of_box(
        shape: Vec<u64>,
        chunk_shape: Vec<u64>,
        axes: Vec<(u64, u64, u64, bool)>,
        prefix: String,
        encoding: (String, String),
        keep_beyond: bool,
    ) -> Option<Self> {
        let separator = match encoding.1.as_str() {
            "." => Separator::Dot,
            "/" => Separator::Slash,
            _ => return None,
        };
        let encoding = match encoding.0.as_str() {
            "default" => ChunkKeyEncoding::Default { separator },
            "v2" => ChunkKeyEncoding::V2 { separator },
            _ => return None,
        };
        let axis = |(start, count, step, dropped)| AxisSelection { start, count, step, dropped };
        let grid = Grid::of_box(&shape, &chunk_shape, axes.into_iter().map(axis).collect(), keep_beyond)?;
        let key: KeyOf = Arc::new(move |at| prefix.clone() + &encoding.key(at));
        Some(PyChunkRequest { grid, key, keys: Arc::default(), watch: Arc::default() })
    }

    /// Makes the request for whole chunks, stacked along the first dimension.
    #[staticmethod]
    fn stacked(keys: Vec<String>, chunk_shape: Vec<u64>) -> PyResult<Self> {
        let grid = Grid::stacked(keys.len(), &chunk_shape)
            .ok_or_else(|| PyValueError::new_err("chunks of this shape cannot be stacked"))?;
        Ok(PyChunkRequest::new(grid, keys))
    }

    /// Index at which the requested box begins in the result array, along each dimension.
    #[getter]
    fn out_start<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.grid.out_start)
    }

    /// The extents of the box in the result, along each dimension.
    #[getter]
    fn out_shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.grid.out_shape)
    }

    /// Cancels a read or write of this request that runs on another thread. It ends at its next object.
    fn cancel(&self) {
        self.watch.cancel();
    }

    /// Reads the requested box into `out`, which must have the box's shape. Missing chunks give the fill value. Returns
    /// the missing items.
    fn read(
        &self,
        py: Python<'_>,
        chunks: &PyChunks,
        store: &PyChunkStore,
        out: &PyNdBuffer,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Vec<usize>> {
        let options = self.run_options(options)?;
        let device = out.inner.device();
        self.run(py, store, &options.cancellation, |store| {
            let access = self.access(chunks, device)?;
            Engine::get().read(&access, store, &self.grid.selection, &out.inner, &options).map(|_| ())
        })
        .map(|((), missing)| missing)
    }

    /// Begins to read the requested box on another thread. It does not need the interpreter's lock unless the store is
    /// written in Python.
    fn start(
        &self,
        chunks: &PyChunks,
        store: Py<PyChunkStore>,
        out: Py<PyNdBuffer>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<PyStartedRead> {
        let mut options = self.run_options(options)?;
        if options.threads >= MANY_THREADS {
            options.threads -= 1;
        }
        let elements = out.get().inner.clone();
        let device = elements.device();
        let watched = Watches::with(&self.watch).store(&store.get().inner);
        let selection = self.grid.selection.clone();
        let access = self.access(chunks, device).py()?;
        let read = move || Engine::get().read(&access, &watched, &selection, &elements, &options).map(|_| ());
        let ending = Arc::new(Ending::default());
        let ends = Arc::clone(&ending);
        Threads::callers().submit(Box::new(move || ends.end(catch_unwind(AssertUnwindSafe(read)))));
        Ok(PyStartedRead { ending, store, _out: out })
    }

    /// Reads the requested elements of variable length, in C order: as strings if they are `text`, else as bytes. Also
    /// returns the missing items.
    fn read_variable<'py>(
        &self,
        py: Python<'py>,
        chunks: &PyChunks,
        store: &PyChunkStore,
        options: &Bound<'_, PyDict>,
        text: bool,
    ) -> PyResult<(Bound<'py, PyList>, Vec<usize>)> {
        let options = self.run_options(options)?;
        let (elements, missing) = self.run(py, store, &options.cancellation, |store| {
            let access = self.access(chunks, Device::Cpu)?;
            Engine::get().read_variable(&access, store, &self.grid.selection, &options)
        })?;
        Ok((strings::to_list(py, &elements.0, text)?, missing))
    }

    /// Writes elements to the requested box. They are broadcast to the shape of the box.
    fn write(
        &self,
        py: Python<'_>,
        chunks: &PyChunks,
        store: &PyChunkStore,
        value: &PyNdBuffer,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<()> {
        let options = self.run_options(options)?;
        self.run(py, store, &options.cancellation, |store| {
            let access = self.access(chunks, Device::Cpu)?;
            Engine::get().write(&access, store, &self.grid.selection, &value.inner, &options).map(|_| ())
        })
        .map(|_| ())
    }

    /// Writes elements of variable length, given in C order, to the requested box.
    fn write_variable(
        &self,
        py: Python<'_>,
        chunks: &PyChunks,
        store: &PyChunkStore,
        elements: &Bound<'_, PyList>,
        options: &Bound<'_, PyDict>,
        text: bool,
    ) -> PyResult<()> {
        let options = self.run_options(options)?;
        let value = strings::from_list(elements, text)?;
        self.run(py, store, &options.cancellation, |store| {
            let access = self.access(chunks, Device::Cpu)?;
            Engine::get().write_variable(&access, store, &self.grid.selection, &value, &options).map(|_| ())
        })
        .map(|_| ())
    }

    fn __len__(&self) -> usize {
        self.keys.len()
    }

    fn __repr__(&self) -> String {
        format!("<cuzarr._core.ChunkRequest {} of {} chunks>", self.grid.selection, self.keys.len())
    }
}

impl PyChunkRequest {
    fn new(grid: Grid, keys: Vec<String>) -> Self {
        let keys: Arc<[String]> = keys.into();
        PyChunkRequest { key: grid.places.keys(&keys), grid, keys, watch: Arc::new(Watch::of_missing()) }
    }

    /// Returns the indices of the requested chunks that were not in the store, in order.
    fn missing(&self) -> Vec<usize> {
        let missing = self.watch.take_missing();
        let is_missing = |(item, key): (usize, &String)| missing.contains(key).then_some(item);
        if missing.is_empty() { Vec::new() } else { self.keys.iter().enumerate().filter_map(is_missing).collect() }
    }

    /// Parses options of a read or write, and adds the request's cancellation token.
    fn run_options(&self, given: &Bound<'_, PyDict>) -> PyResult<Options> {
        let cancellation = Watches::with(&self.watch).token();
        Ok(parse_options(given)?.with_read_missing_chunks(true).with_cancellation(cancellation))
    }

    fn access(&self, chunks: &PyChunks, device: Device) -> cuzarr::Result<Access> {
        Ok(chunks.access(device)?.with_chunks(self.grid.shape.clone(), Arc::clone(&self.key)))
    }

    /// Runs a read or write of this request without the interpreter's lock. An exception from the store's own code is
    /// raised again. A signal such as Ctrl-C cancels `token`.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        store: &PyChunkStore,
        token: &CancellationToken,
        call: impl FnOnce(&Arc<dyn Store>) -> cuzarr::Result<T> + Send,
    ) -> PyResult<(T, Vec<usize>)> {
        let watched = Watches::with(&self.watch).store(&store.inner);
        let work = || Ok(call(&watched));
        let outcome = match watched.capabilities().divides_reads {
            true => here(py, work),
            false => interruptible(py, token, work),
        };
        match outcome? {
            Ok(value) => Ok((value, self.missing())),
            Err(error) => Err(store.take_failure().unwrap_or_else(|| crate::error::to_python(&error))),
        }
    }
}

/// From this many threads on, a read on another thread leaves one core to the interpreter, which lists chunks at the
/// same time. On 16 cores, zarr-python's reads of 512 chunks took 3 to 6 % less time this way (medians).
const MANY_THREADS: usize = 8;

/// The state of a read on another thread, by which waiting threads learn that it has ended, and with which result.
#[derive(Default)]
struct Ending {
    state: Mutex<EndingState>,
    over: Condvar,
}

#[derive(Default)]
struct EndingState {
    is_over: bool,
    /// The outcome of the read, until it is taken; `Err` if the thread panicked.
    outcome: Option<std::thread::Result<cuzarr::Result<()>>>,
    callback: Option<Py<PyAny>>,
}

impl Ending {
    fn lock(&self) -> MutexGuard<'_, EndingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, outcome: std::thread::Result<cuzarr::Result<()>>) {
        let mut state = self.lock();
        state.is_over = true;
        state.outcome = Some(outcome);
        let callback = state.callback.take();
        drop(state);
        self.over.notify_all();
        if let Some(callback) = callback {
            // If the interpreter has ended, no caller waits, and the callback is leaked.
            let mut callback = Some(callback);
            try_attach(|py| callback.take().map(|callback| call(py, &callback)));
            std::mem::forget(callback);
        }
    }

    /// Waits until the read on another thread has ended, and takes its result. Only the first call returns the outcome.
    fn wait(&self) -> Option<std::thread::Result<cuzarr::Result<()>>> {
        let state = self.over.wait_while(self.lock(), |state| !state.is_over);
        state.unwrap_or_else(PoisonError::into_inner).outcome.take()
    }
}

fn call(py: Python<'_>, callback: &Py<PyAny>) {
    if let Err(error) = callback.call0(py) {
        error.write_unraisable(py, Some(callback.bind(py)));
    }
}

/// A read of chunks for zarr-python that runs on another thread, and for whose end a program can wait.
#[pyclass(name = "StartedRead", module = "cuzarr._core", frozen)]
pub struct PyStartedRead {
    ending: Arc<Ending>,
    store: Py<PyChunkStore>,
    /// The array that the read fills, kept here so that its memory is still there when the read ends.
    _out: Py<PyNdBuffer>,
}

#[pymethods]
impl PyStartedRead {
    /// Waits until the read has ended, and raises its error. Only the first call raises.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let outcome = py.unlocked(|| self.ending.wait());
        match outcome {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => {
                Err(self.store.get().take_failure().unwrap_or_else(|| crate::error::to_python(&error)))
            }
            Some(Err(_)) => Err(PyRuntimeError::new_err("the thread of a read panicked")),
        }
    }

    /// Calls `callback` once when the read has ended: from the read's thread, or now if it has ended already. Replaces
    /// an earlier callback.
    fn when_over(&self, py: Python<'_>, callback: Py<PyAny>) {
        let mut state = self.ending.lock();
        let is_over = state.is_over;
        let earlier = if is_over { None } else { state.callback.replace(callback.clone_ref(py)) };
        drop(state);
        drop(earlier);
        if is_over {
            call(py, &callback);
        }
    }
}

/// Returns the wanted part of one chunk along each dimension; `None` if it cannot be part of a box.
fn parts(
    chunk_selection: &Bound<'_, PyAny>,
    out_selection: &Bound<'_, PyAny>,
    chunk_shape: &[u64],
    out_shape: &[u64],
) -> PyResult<Option<Vec<Part>>> {
    let (Ok(chunk), Ok(out)) = (chunk_selection.cast::<PyTuple>(), out_selection.cast::<PyTuple>()) else {
        return Ok(None);
    };
    if chunk.len() != chunk_shape.len() || out.len() != out_shape.len() {
        return Ok(None);
    }
    let mut out = out.iter().zip(out_shape);
    let mut found = Vec::with_capacity(chunk_shape.len());
    for (select, &extent) in chunk.iter().zip(chunk_shape) {
        if select.is_exact_instance_of::<PyInt>() {
            found.push(Part { start: select.extract()?, count: 1, step: 1, out_start: None });
            continue;
        }
        let (Ok(select), Some((place, &out_extent))) = (select.cast::<PySlice>(), out.next()) else { return Ok(None) };
        let Ok(place) = place.cast::<PySlice>() else { return Ok(None) };
        let select = select.indices(extent.try_into()?)?;
        let place = place.indices(out_extent.try_into()?)?;
        if select.step < 1 || place.step != 1 || select.slicelength == 0 || select.slicelength != place.slicelength {
            return Ok(None);
        }
        found.push(Part {
            start: select.start.unsigned_abs() as u64,
            count: select.slicelength as u64,
            step: select.step.unsigned_abs() as u64,
            out_start: Some(place.start.unsigned_abs() as u64),
        });
    }
    Ok(if out.next().is_some() { None } else { Some(found) })
}
