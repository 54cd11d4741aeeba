//! Selections for Python: four lists for a box, or an object for index lists and points.

use std::sync::Arc;

use cuzarr::plan::{AxisIndex, AxisSelection, Selection};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::{IntoPython, PyResult};
use crate::ndbuffer::PyNdBuffer;

/// The starts, counts, steps and dropped dimensions of a box.
pub type Lists = (Vec<u64>, Vec<u64>, Vec<u64>, Vec<usize>);

/// A selection by index lists, or of points.
#[pyclass(name = "Selection", module = "cuzarr._core", frozen)]
pub struct PySelection {
    inner: Selection,
}

/// What is selected along one dimension: start, count, step and whether the dimension is dropped, or a list of indices.
#[derive(FromPyObject)]
pub enum Along<'py> {
    Range(u64, u64, u64, bool),
    List(PyRef<'py, PyNdBuffer>),
}

#[pymethods]
impl PySelection {
    /// The outer product of one selector per dimension. Lists are 8-byte integers, counted from the start.
    #[staticmethod]
    fn orthogonal(axes: Vec<Along<'_>>) -> PyResult<PySelection> {
        let axis = |axis: &Along<'_>| match axis {
            &Along::Range(start, count, step, dropped) => {
                Ok(AxisIndex::Range(AxisSelection { start, count, step, dropped }))
            }
            Along::List(list) => Ok(AxisIndex::List(indices(list)?)),
        };
        let inner = Selection::orthogonal(axes.iter().map(axis).collect::<PyResult<_>>()?).py()?;
        Ok(PySelection { inner })
    }

    /// Points, by the indices of all of them along each dimension.
    #[staticmethod]
    fn points(lists: Vec<PyRef<'_, PyNdBuffer>>) -> PyResult<PySelection> {
        let inner = Selection::points(lists.iter().map(|list| indices(list)).collect::<PyResult<_>>()?).py()?;
        Ok(PySelection { inner })
    }
}

fn indices(list: &PyNdBuffer) -> PyResult<Arc<[u64]>> {
    Ok(list.inner.host_slice::<u64>().py()?.to_vec().into())
}

/// A selection as calls of Python give it.
#[derive(FromPyObject)]
pub enum Selected<'py> {
    Box(Lists),
    Listed(PyRef<'py, PySelection>),
}

impl Selected<'_> {
    /// The library's selection.
    pub fn parse(&self) -> PyResult<Selection> {
        match self {
            Selected::Box((start, count, step, dropped)) => selection(start, count, step, dropped),
            Selected::Listed(listed) => Ok(listed.inner.clone()),
        }
    }
}

/// The selection of a box.
pub fn selection(start: &[u64], count: &[u64], step: &[u64], dropped: &[usize]) -> PyResult<Selection> {
    if [count.len(), step.len()] != [start.len(); 2] || dropped.iter().any(|&axis| axis >= start.len()) {
        return Err(PyValueError::new_err("start, count and step have different lengths, or dropped is out of range"));
    }
    let axes = (0..start.len()).map(|axis| AxisSelection {
        start: start[axis],
        count: count[axis],
        step: step[axis],
        dropped: dropped.contains(&axis),
    });
    Selection::new(axes.collect()).py()
}
