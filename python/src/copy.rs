//! Copying arrays and hierarchies, by stores and paths.

use std::sync::Arc;

use cuzarr::compute::{Changes, Copied, Existing, Regions, copy_node};
use cuzarr::node;
use cuzarr::store::Store;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::{interruptible, parse_options};
use crate::error::{IntoPython, PyResult};
use crate::store::PyStore;
use crate::watch::{Watch, Watched, Watches};

/// A copy that was planned: what `cuzarr.copy` and `cuzarr.rechunk` do.
#[pyclass(name = "Copy", module = "cuzarr._core")]
pub struct PyCopy {
    copied: Option<Copied>,
    watch: Arc<Watch>,
}

#[pymethods]
impl PyCopy {
    /// Plans a copy of the node at a path; `changes` are JSON, `existing` is `refuse`, `overwrite` or `resume`. Writes
    /// nothing.
    #[new]
    fn new(
        py: Python<'_>,
        source: (PyRef<'_, PyStore>, String),
        target: (PyRef<'_, PyStore>, String),
        changes: &str,
        existing: &str,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let document = serde_json::from_str(changes).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let changes = Changes::from_json(&document).py()?;
        let existing = match existing {
            "refuse" => Existing::Refuse,
            "overwrite" => Existing::Overwrite,
            "resume" => Existing::Resume,
            other => return Err(PyValueError::new_err(format!("'{other}' is none of refuse, overwrite and resume"))),
        };
        let options = parse_options(options)?;
        let watch = Arc::new(Watch::default());
        let watched = |store: &PyStore| -> Arc<dyn Store> {
            Arc::new(Watched::new(Arc::clone(&store.inner), Watches::current(&watch)))
        };
        let (from, to) = (watched(&source.0), watched(&target.0));
        let (from_path, to_path) = (source.1, target.1);
        let copied = py.detach(|| {
            let node = node::open_existing(from, &from_path, None, options)?;
            copy_node(node, to, &to_path, &changes, existing)
        });
        Ok(PyCopy { copied: Some(copied.py()?), watch })
    }

    /// The plan as JSON.
    fn plan(&self) -> String {
        self.copied.as_ref().map_or_else(|| "[]".into(), |copied| copied.to_json().to_string())
    }

    /// Carries the plan out, once.
    fn run(&mut self, py: Python<'_>) -> PyResult<()> {
        let copied = self.copied.take().ok_or_else(|| PyValueError::new_err("a copy runs once"))?;
        interruptible(py, &self.watch, || copied.run(&|_, _| ()).map(|_| ()))
    }
}

/// The shape of regions in which to work through an array within a number of bytes: whole objects of shape `unit`, with which
/// chunks of these shapes are read as few times as possible.
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
