//! Selections from Python: four lists for a box, or an object for index lists and points.

use std::sync::Arc;

use cuzarr::plan::{AxisIndex, AxisSelection, Selection};
use cuzarr::{DType, Error, ErrorKind, NdBuffer};
use cuzarr_device::internal::Threads;
use cuzarr_device::nonzero;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::ending::Unlocked;
use crate::error::{IntoPython, PyResult};
use crate::ndbuffer::PyNdBuffer;

/// A selection of a box: starts, counts and steps along each dimension, and the dimensions that the result drops.
pub type Lists = (Vec<u64>, Vec<u64>, Vec<u64>, Vec<usize>);

/// A selection of an array's elements that is not a box: single points, or an index list or a range for each dimension.
#[pyclass(name = "Selection", module = "cuzarr._core", frozen)]
pub struct PySelection {
    inner: Selection,
}

/// The elements selected along one dimension: start, count, step and whether the dimension is dropped; or a list of
/// indices.
#[derive(FromPyObject)]
pub enum Along<'py> {
    Range(u64, u64, u64, bool),
    List(PyRef<'py, PyNdBuffer>),
}

#[pymethods]
impl PySelection {
    /// Selects along each dimension separately, by a range or a list; the result is their outer product. Lists have
    /// 8-byte integers that count from the start.
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

    /// Makes a selection of points, from the indices of all points along each dimension. Indices are packed integers of
    /// any type; negative ones count from the end of `extents`. If an index is out of range, returns its dimension and
    /// the index instead of a selection.
    #[staticmethod]
    fn points(
        py: Python<'_>,
        lists: Vec<PyRef<'_, PyNdBuffer>>,
        extents: Vec<u64>,
    ) -> PyResult<(Option<PySelection>, usize, i128)> {
        let buffers: Vec<&NdBuffer> = lists.iter().map(|list| &list.inner).collect();
        let counted = py.unlocked(|| counted(&buffers, &extents)).py()?;
        let mut indices = Vec::with_capacity(counted.len());
        for (dim, one) in counted.into_iter().enumerate() {
            match one {
                Ok(list) => indices.push(list),
                Err(outside) => return Ok((None, dim, outside)),
            }
        }
        Ok((Some(PySelection { inner: Selection::points(indices).py()? }), 0, 0))
    }

    /// Selects the points where a mask is true, in C order. A mask on a GPU is searched there.
    #[staticmethod]
    fn mask(py: Python<'_>, mask: &PyNdBuffer) -> PyResult<PySelection> {
        let shape: Vec<u64> = mask.inner.shape().iter().map(|&extent| extent as u64).collect();
        let inner = py.unlocked(|| Selection::numbered(&nonzero(&mask.inner)?, &shape)).py()?;
        Ok(PySelection { inner })
    }

    /// The shape of the selected elements.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.inner.shape())
    }
}

fn indices(list: &PyNdBuffer) -> PyResult<Arc<[u64]>> {
    Ok(list.inner.host_slice::<u64>().py()?.to_vec().into())
}

/// The indices of one dimension, all counted from its start; or the first index that is out of range.
type Counted = Result<Arc<[u64]>, i128>;

/// Number of points from which on a thread of its own converts each dimension's indices; for fewer points, one thread
/// converts all.
const WORTH_THREADS: usize = 1 << 15;

/// Converts negative indices, which count from the end, to ones that count from the start.
fn counted(lists: &[&NdBuffer], extents: &[u64]) -> cuzarr::Result<Vec<Counted>> {
    let work = lists.iter().zip(extents);
    if lists.len() < 2 || lists[0].len() < WORTH_THREADS {
        return work.map(|(list, &extent)| counted_along(list, extent)).collect();
    }
    let counted = Threads::workers().map(lists.len(), work, |(list, &extent)| counted_along(list, extent));
    counted.into_iter().collect()
}

fn counted_along(list: &NdBuffer, extent: u64) -> cuzarr::Result<Counted> {
    macro_rules! of {
        ($($dtype:ident: $name:ty,)*) => {
            match list.dtype() {
                $(DType::$dtype => Ok(counted_as(&*list.host_slice::<$name>()?, extent)),)*
                other => {
                    let message = format!("index arrays hold integers, got {other}");
                    Err(Error::new(ErrorKind::SelectionInvalid, message))
                }
            }
        };
    }
    of! { INT64: i64, INT32: i32, INT16: i16, INT8: i8, UINT64: u64, UINT32: u32, UINT16: u16, UINT8: u8, }
}

fn counted_as<T: Copy + Into<i128>>(list: &[T], extent: u64) -> Counted {
    let mut is_outside = false;
    let count = |&index: &T| {
        let index: i128 = index.into();
        // An index too far below 0 wraps around to a large number, which is out of range.
        let at = (index as u64).wrapping_add(if index < 0 { extent } else { 0 });
        is_outside |= at >= extent;
        at
    };
    let counted: Arc<[u64]> = list.iter().map(count).collect();
    match is_outside {
        false => Ok(counted),
        true => {
            let extent = i128::from(extent);
            let outside = list.iter().map(|&index| index.into()).find(|index| !(-extent..extent).contains(index));
            Err(outside.unwrap_or_default())
        }
    }
}

/// A selection of an array's elements, in one of the two forms in which Python passes it.
#[derive(FromPyObject)]
pub enum Selected<'py> {
    Box(Lists),
    Listed(PyRef<'py, PySelection>),
}

impl Selected<'_> {
    /// Converts Python's selection to that of the Rust library.
    pub fn parse(&self) -> PyResult<Selection> {
        match self {
            Selected::Box((start, count, step, dropped)) => selection(start, count, step, dropped),
            Selected::Listed(listed) => Ok(listed.inner.clone()),
        }
    }
}

/// Makes the selection of a box, from starts, counts and steps and the dimensions that the result drops.
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
