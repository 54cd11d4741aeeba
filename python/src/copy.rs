//! Copies of arrays and hierarchies, and pyramids of arrays.

use std::sync::Arc;

use cuzarr::meta::ZarrFormat;
use cuzarr::node::{self, ArrayOptions, Consolidation, Group, Node};
use cuzarr::plan::{AxisSelection, Region, Regions, Selection};
use cuzarr::store::Store;
use cuzarr::{CancellationToken, Error, ErrorKind};
use cuzarr_compute::{Changes, Checkpoint, Copied, Existing, Pyramid, PyramidOptions, Shrink, copy_node};
use cuzarr_device::downsample::Downsampling;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::{PyArray, parse_options};
use crate::carrier::Elsewhere;
use crate::ending::Unlocked;
use crate::error::{IntoPython, PyResult};
use crate::interrupt::interruptible;
use crate::store::PyStore;
use crate::watch::Watches;

/// A planned copy, for `cuzarr.copy` and `cuzarr.rechunk`.
#[pyclass(name = "Copy", module = "cuzarr._core")]
pub struct PyCopy {
    copied: Option<Copied>,
    token: CancellationToken,
}

#[pymethods]
impl PyCopy {
    /// Plans a copy of an array or group, and writes nothing. `changes` is JSON; `existing` is `refuse`, `overwrite` or
    /// `resume`.
    #[new]
    fn new(
        py: Python<'_>,
        source: Opened<'_>,
        target: (PyRef<'_, PyStore>, String),
        changes: &str,
        existing: &str,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let (changes, existing) = (parse_changes(changes)?, parse_existing(existing)?);
        let places = Places::new(source, target, parse_options(options)?);
        let copied = py.unlocked(|| {
            let node = places.open_source()?;
            copy_node(node, Arc::clone(&places.to), &places.to_path, &changes, existing)
        });
        Ok(PyCopy { copied: Some(copied.py()?), token: places.options.cancellation })
    }

    /// The plan of the copy as JSON.
    fn plan(&self) -> String {
        self.copied.as_ref().map_or_else(|| "[]".into(), |copied| copied.to_json().to_string())
    }

    /// Differences between consolidated metadata of the source and the own documents of its arrays and groups: one
    /// sentence for each.
    fn differences(&self) -> Vec<String> {
        self.copied.as_ref().map_or_else(Vec::new, |copied| copied.differences().to_vec())
    }

    /// The paths of the arrays and groups that the copy leaves out because they cannot be read, each with its error.
    fn unreadable(&self) -> Vec<(String, String)> {
        let unreadable = self.copied.iter().flat_map(|copied| copied.unreadable());
        unreadable.map(|(name, error)| (name.clone(), error.to_string())).collect()
    }

    /// Carries out the planned copy. It can run only once. With `carry`, that function distributes regions to other
    /// processes.
    #[pyo3(signature = (carry=None))]
    fn run(&mut self, py: Python<'_>, carry: Option<Py<PyAny>>) -> PyResult<()> {
        let copied = self.copied.take().ok_or_else(|| PyValueError::new_err("a copy runs once"))?;
        if let Some(carry) = carry {
            return Elsewhere::run(py, carry, |carrier| copied.run_by(carrier, &|_, _| ()).map(|_| ()));
        }
        interruptible(py, &self.token, move || copied.run(&|_, _| ()).map(|_| ()))
    }
}

/// A planned image pyramid, for `cuzarr.pyramid`.
#[pyclass(name = "Pyramid", module = "cuzarr._core")]
pub struct PyPyramid {
    pyramid: Option<Pyramid>,
    token: CancellationToken,
}

#[pymethods]
impl PyPyramid {
    /// Plans a pyramid of an array or image, and writes nothing. `changes` and `settings` are JSON.
    #[new]
    fn new(
        py: Python<'_>,
        source: Opened<'_>,
        target: (PyRef<'_, PyStore>, String),
        changes: &str,
        existing: &str,
        settings: &str,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let (changes, existing) = (parse_changes(changes)?, parse_existing(existing)?);
        let settings = serde_json::from_str(settings).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let settings = PyramidOptions::from_json(&settings, changes).py()?;
        let places = Places::new(source, target, parse_options(options)?);
        let pyramid = py.unlocked(|| match places.open_source()? {
            Node::Array(array) => Pyramid::new(&array, Arc::clone(&places.to), &places.to_path, existing, settings),
            Node::Group(image) => Pyramid::of_image(
                &image.reading_documents()?,
                Arc::clone(&places.to),
                &places.to_path,
                existing,
                settings,
            ),
        });
        Ok(PyPyramid { pyramid: Some(pyramid.py()?), token: places.options.cancellation })
    }

    /// The plan of the pyramid as JSON.
    fn plan(&self) -> String {
        self.pyramid.as_ref().map_or_else(|| "{}".into(), |pyramid| pyramid.to_json().to_string())
    }

    /// Carries out the planned pyramid. It can run only once. With `carry`, that function distributes regions to other
    /// processes.
    #[pyo3(signature = (carry=None))]
    fn run(&mut self, py: Python<'_>, carry: Option<Py<PyAny>>) -> PyResult<()> {
        let pyramid = self.pyramid.take().ok_or_else(|| PyValueError::new_err("a pyramid is made once"))?;
        if let Some(carry) = carry {
            return Elsewhere::run(py, carry, |carrier| pyramid.run_by(carrier, &|_, _| ()).map(|_| ()));
        }
        interruptible(py, &self.token, move || pyramid.run(&|_, _| ()).map(|_| ()))
    }
}

/// A node that Python has opened: its store, path and Zarr format, and whether a group's members come from consolidated
/// metadata.
type Opened<'py> = (PyRef<'py, PyStore>, String, u8, bool);

/// Source and target of a copy: their stores and paths. The stores report each key that is read or written to Python's
/// `Watch` objects.
struct Places {
    from: Arc<dyn Store>,
    from_path: String,
    from_format: ZarrFormat,
    from_consolidated: bool,
    to: Arc<dyn Store>,
    to_path: String,
    options: ArrayOptions,
}

impl Places {
    fn new(source: Opened<'_>, target: (PyRef<'_, PyStore>, String), options: ArrayOptions) -> Places {
        let watches = Watches::current();
        let (from, to) = (watches.store(&source.0.inner), watches.store(&target.0.inner));
        let options = options.with_cancellation(watches.token());
        let from_format = if source.2 == 2 { ZarrFormat::V2 } else { ZarrFormat::V3 };
        let (from_path, from_consolidated) = (source.1, source.3);
        Places { from, from_path, from_format, from_consolidated, to, to_path: target.1, options }
    }

    fn open_source(&self) -> cuzarr::Result<Node> {
        let (from, path, format) = (&self.from, &self.from_path, Some(self.from_format));
        match node::open_existing(Arc::clone(from), path, format, self.options.clone())? {
            Node::Group(_) if !self.from_consolidated => {
                Group::open(Arc::clone(from), path, format, Consolidation::Never, self.options.clone()).map(Node::Group)
            }
            node => Ok(node),
        }
    }
}

fn parse_changes(text: &str) -> PyResult<Changes> {
    let document = serde_json::from_str(text).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Changes::from_json(&document).py()
}

fn parse_existing(name: &str) -> PyResult<Existing> {
    match name {
        "refuse" => Ok(Existing::Refuse),
        "overwrite" => Ok(Existing::Overwrite),
        "resume" => Ok(Existing::Resume),
        other => Err(PyValueError::new_err(format!("existing is '{other}', expected refuse, overwrite or resume"))),
    }
}

/// Copies all elements of an array to another one, whose metadata documents Python has written.
#[pyfunction]
pub fn copy_elements(py: Python<'_>, source: &PyArray, target: &PyArray) -> PyResult<()> {
    let watches = Watches::current();
    let token = watches.token();
    let (source, target) = (watches.array(source.array(), &token), watches.array(target.array(), &token));
    interruptible(py, &token, || cuzarr_compute::copy_elements(&source, &target, &|_| ()))
}

/// Copies one box of the elements of an array, for a copy whose boxes another process distributes. `shrink` has the
/// factors and the method of a pyramid level. `select` has start, count and step for each dimension, if only a part of
/// the source is copied.
#[pyfunction]
pub fn copy_region(
    py: Python<'_>,
    source: &PyArray,
    target: &PyArray,
    region: (Vec<u64>, Vec<u64>),
    shrink: Option<(Vec<u64>, String)>,
    select: Option<Vec<(u64, u64, u64)>>,
    memory_limit_bytes: u64,
) -> PyResult<()> {
    let watches = Watches::current();
    let token = watches.token();
    let (source, target) = (watches.array(source.array(), &token), watches.array(target.array(), &token));
    let shrink = shrink.map(|(factors, name)| {
        let unknown = || Error::new(ErrorKind::InvalidArgument, format!("unknown method '{name}'"));
        Downsampling::named(&name).map(|method| Shrink { factors, method }).ok_or_else(unknown)
    });
    let (shrink, (start, extent)) = (shrink.transpose().py()?, region);
    let region = Region { number: 0, start, extent };
    let axis = |(start, count, step)| AxisSelection { start, count, step, dropped: false };
    let select = select.map(|axes| Selection::new(axes.into_iter().map(axis).collect())).transpose().py()?;
    interruptible(py, &token, || {
        cuzarr_compute::copy_region(&source, &target, &region, shrink, select, memory_limit_bytes)
    })
}

/// Refuses a target that is the source, lies inside it, or contains it.
#[pyfunction]
pub fn refuse_overlap(source: (PyRef<'_, PyStore>, String), target: (PyRef<'_, PyStore>, String)) -> PyResult<()> {
    cuzarr::internal::node::refuse_overlap((&source.0.inner, &source.1), (&target.0.inner, &target.1)).py()
}

/// Returns the shape of regions in which to process an array, so that one region takes at most `most_bytes`. Regions
/// consist of whole objects of shape `unit`. They are chosen so that chunks of the given shapes are read as few times
/// as possible.
#[pyfunction]
pub fn region_shape(
    shape: Vec<u64>,
    element_bytes: u64,
    unit: Vec<u64>,
    chunks: Vec<Vec<u64>>,
    most_bytes: u64,
) -> PyResult<Vec<u64>> {
    let chunks: Vec<&[u64]> = chunks.iter().map(Vec::as_slice).collect();
    Ok(Regions::plan(&shape, element_bytes, &unit, &chunks, most_bytes).py()?.shape().to_vec())
}

/// An object in an array's store that counts the finished regions of the array, so that interrupted work on the array
/// can be resumed.
#[pyclass(name = "Checkpoint", module = "cuzarr._core")]
pub struct PyCheckpoint(Checkpoint);

#[pymethods]
impl PyCheckpoint {
    /// Opens the checkpoint of an array, and reads how many regions earlier work with the same name and region shape
    /// finished.
    #[new]
    fn new(py: Python<'_>, target: &PyArray, work: &str, region_shape: Vec<u64>) -> PyResult<PyCheckpoint> {
        let target = target.array().clone();
        py.unlocked(|| Checkpoint::resume(&target, work, &region_shape)).map(PyCheckpoint).py()
    }

    /// Refuses a store in which interrupted work could not be resumed: one that is read-only, or whose values cannot be
    /// deleted.
    #[staticmethod]
    fn check_place(target: (PyRef<'_, PyStore>, String)) -> PyResult<()> {
        Checkpoint::check_place(&*target.0.inner, &target.1).py()
    }

    /// Deletes an array's checkpoint, because the array will be written from the start.
    #[staticmethod]
    fn forget(py: Python<'_>, target: &PyArray) -> PyResult<()> {
        let target = target.array().clone();
        py.unlocked(|| Checkpoint::forget(&target)).py()
    }

    /// Number of regions of the array on which the work is finished.
    #[getter]
    fn finished(&self) -> u64 {
        self.0.finished()
    }

    /// Stores in the checkpoint that the first `finished` regions are finished.
    fn note(&mut self, py: Python<'_>, finished: u64) -> PyResult<()> {
        py.unlocked(|| self.0.note(finished)).py()
    }

    /// Deletes the checkpoint, because all regions are finished.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        py.unlocked(|| self.0.end()).py()
    }
}
