//! Arrays for Python: an array of the library, with options for one device. Metadata, modes and hierarchies are handled
//! in Python.

use std::sync::Arc;
use std::time::Duration;

use cuzarr::config::Accelerator;
use cuzarr::internal::node::{chain, trusting_consolidated};
use cuzarr::meta::{Mark, NodeMetadata};
use cuzarr::node::{Array, ArrayOptions};
use cuzarr::plan::{AxisSelection, Selection};
use cuzarr_device::DType;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyDict, PyInt, PyList, PySlice, PyTuple};

use crate::arrow;
use crate::ending::Unlocked;
use crate::error::{IntoPython, PyResult};
use crate::interrupt::{self, here, interruptible};
use crate::metadata::{PyArrayMetadata, not_an_array};
use crate::names::{parse_device, parse_dtype};
use crate::ndbuffer::PyNdBuffer;
use crate::nodes::parse_alone;
use crate::selection::{Lists, Selected, selection};
use crate::store::PyStore;
use crate::strings;
use crate::update::PyUpdate;
use crate::watch::Watches;

/// A [`Decoding`](cuzarr::meta::Decoding) for Python, by which stored elements become numbers: the type to read as,
/// values that mark missing elements, scale, offset, and the result's type.
type Decoded = (Option<String>, Vec<Py<PyAny>>, Option<f64>, Option<f64>, Option<String>);

/// An array of the Rust library, opened with options such as its device.
#[pyclass(name = "Array", module = "cuzarr._core", frozen)]
pub struct PyArray {
    array: Array,
}

#[pymethods]
impl PyArray {
    /// Makes the object of an array in a store, from its parsed metadata or from a dictionary of its metadata
    /// documents. It reads nothing. With `trusts_consolidated`, the documents may come from a group's consolidated
    /// metadata.
    #[new]
    #[pyo3(signature = (store, path, documents, options, trusts_consolidated=false))]
    fn new(
        store: &PyStore,
        path: &str,
        documents: &Bound<'_, PyAny>,
        options: &Bound<'_, PyDict>,
        trusts_consolidated: bool,
    ) -> PyResult<Self> {
        let metadata = match documents.cast::<PyArrayMetadata>() {
            Ok(metadata) => (**metadata.get().checked()?).clone(),
            Err(_) => match parse_alone(documents)?.check().py()? {
                NodeMetadata::Array(metadata) => *metadata,
                NodeMetadata::Group(_) => return Err(not_an_array(&format!("the documents at '{path}'"))).py(),
            },
        };
        let array = Array::from_metadata(Arc::clone(&store.inner), path, metadata, parse_options(options)?).py()?;
        chain(&array).py()?;
        Ok(PyArray { array: if trusts_consolidated { trusting_consolidated(array) } else { array } })
    }

    /// Name of the element type in device memory; `None` for elements of variable length.
    #[getter]
    fn dtype(&self) -> Option<String> {
        self.array.metadata().data_type().device_dtype().map(|dtype| dtype.to_string())
    }

    /// Reads the selected elements, in C order, into new memory on the array's device.
    fn read(&self, py: Python<'_>, selection: Selected<'_>) -> PyResult<PyNdBuffer> {
        let selection = selection.parse()?;
        Ok(PyNdBuffer { inner: self.run(py, move |array| array.read_buffer(&selection))? })
    }

    /// Reads a selection of integers and slices, in C order, into new memory on the array's device. Returns `None` for
    /// other selections, for indices out of range, and if no element is selected.
    fn read_plain(&self, py: Python<'_>, selection: &Bound<'_, PyAny>) -> PyResult<Option<PyNdBuffer>> {
        let Some(axes) = plain_axes(selection, self.array.shape()) else { return Ok(None) };
        let selection = Selection::new(axes).py()?;
        Ok(Some(PyNdBuffer { inner: self.run(py, move |array| array.read_buffer(&selection))? }))
    }

    /// Reads the selected elements into `out`, which must have the selection's shape.
    fn read_into(&self, py: Python<'_>, selection: Selected<'_>, out: &PyNdBuffer) -> PyResult<()> {
        let selection = selection.parse()?;
        let out = out.inner.clone();
        self.run(py, move |array| array.read_into(&selection, &out))
    }

    /// Reads many selections of the array in one batch, each into new memory of its own shape. The elements get type
    /// `dtype`, or keep the array's type.
    fn read_many(&self, py: Python<'_>, selections: Vec<Lists>, dtype: Option<&str>) -> PyResult<Vec<PyNdBuffer>> {
        let (selections, dtype) = (parse_selections(&selections)?, dtype.map(parse_dtype).transpose()?);
        let results = self.run(py, move |array| array.read_many(&selections, dtype))?;
        Ok(results.into_iter().map(|inner| PyNdBuffer { inner }).collect())
    }

    /// Reads many selections of one shape in one batch, stacked along the first dimension of `out`.
    fn read_stack_into(&self, py: Python<'_>, selections: Vec<Lists>, out: &PyNdBuffer) -> PyResult<()> {
        let selections = parse_selections(&selections)?;
        let out = out.inner.clone();
        self.run(py, move |array| array.read_stack_into(&selections, &out))
    }

    /// Reads boxes of one extent in one batch, stacked along the first dimension of `out`. `starts` is int64 on the
    /// host; each row is the start of one box.
    fn read_boxes_into(&self, py: Python<'_>, starts: &PyNdBuffer, extent: Vec<u64>, out: &PyNdBuffer) -> PyResult<()> {
        let (starts, out) = (starts.inner.clone(), out.inner.clone());
        self.run(py, move |array| {
            let starts = starts.host_slice::<i64>()?;
            let starts = starts.chunks_exact(extent.len().max(1));
            let region = |start: &[i64]| {
                let start: Vec<u64> = start.iter().map(|&start| start as u64).collect();
                Selection::region(&start, &extent)
            };
            array.read_stack_into(&starts.map(region).collect::<cuzarr::Result<Vec<_>>>()?, &out)
        })
    }

    /// Reads the selected elements of variable length, in C order: strings if they are `text`, else bytes.
    fn read_variable<'py>(&self, py: Python<'py>, selection: Selected<'_>, text: bool) -> PyResult<Bound<'py, PyList>> {
        let selection = selection.parse()?;
        let elements = self.run(py, move |array| array.read_variable(&selection))?;
        strings::to_list(py, &elements, text)
    }

    /// Reads the selected elements of variable length as an Arrow array, in C order. Returns the capsules of its schema
    /// and its elements.
    fn read_arrow<'py>(&self, py: Python<'py>, selection: Selected<'_>, text: bool) -> PyResult<Bound<'py, PyTuple>> {
        let selection = selection.parse()?;
        let elements = self.run(py, move |array| array.read_variable(&selection))?;
        arrow::variable(py, elements, text)
    }

    /// Writes the elements of `value` to the selected elements of the array. They are broadcast to the selection's
    /// shape.
    fn write(&self, py: Python<'_>, selection: Selected<'_>, value: &PyNdBuffer) -> PyResult<()> {
        let selection = selection.parse()?;
        let value = value.inner.clone();
        self.run(py, move |array| array.write_buffer(&selection, &value))
    }

    /// Writes a list of strings or bytes, in C order, to the selected elements of an array of variable-length elements.
    fn write_variable(
        &self,
        py: Python<'_>,
        selection: Selected<'_>,
        elements: &Bound<'_, PyList>,
        text: bool,
    ) -> PyResult<()> {
        let selection = selection.parse()?;
        let elements = strings::from_list(elements, text)?;
        self.run(py, move |array| array.write_variable(&selection, &elements))
    }

    /// Begins an update of the selected elements, such as `a[i] += 1`: no other write changes them between the update's
    /// read and its write. Other writes to the same stored objects wait until it ends.
    fn update(&self, py: Python<'_>, selection: Selected<'_>) -> PyResult<PyUpdate> {
        let selection = selection.parse()?;
        PyUpdate::begin(py, self.watched(), selection)
    }

    /// Explains what a read of the selection would do, or a write if `writing`: as text and as JSON.
    fn explain(&self, py: Python<'_>, selection: Selected<'_>, writing: bool) -> PyResult<(String, String)> {
        let selection = selection.parse()?;
        let explain = if writing { Array::explain_write } else { Array::explain };
        let explanation = py.unlocked(|| explain(&self.array, &selection)).py()?;
        Ok((explanation.to_string(), explanation.to_json().to_string()))
    }

    /// Returns how stored elements become numbers (scale, offset, missing values) if the array has the attributes in
    /// this JSON text. The parts are the type to read as, values that mark missing elements, scale, offset, and the
    /// type of the result. `None` if stored elements need no decoding.
    fn decoding(&self, py: Python<'_>, attributes: &str) -> PyResult<Option<Decoded>> {
        let mut metadata = self.array.metadata().clone();
        let decoding = metadata.set_attributes_json(attributes).and_then(|()| metadata.decoding()).py()?;
        if decoding.is_plain() {
            return Ok(None);
        }
        let mark = |mark: &Mark| match *mark {
            Mark::Int(value) => Ok(value.into_pyobject(py)?.into_any().unbind()),
            Mark::Float(value) => Ok(value.into_pyobject(py)?.into_any().unbind()),
            Mark::Complex(re, im) => Ok(PyComplex::from_doubles(py, re, im).into_any().unbind()),
        };
        let missing = decoding.missing.iter().map(mark).collect::<PyResult<_>>()?;
        let name = |dtype: Option<DType>| dtype.map(|dtype| dtype.to_string());
        Ok(Some((name(decoding.read_as), missing, decoding.scale, decoding.offset, name(decoding.dtype))))
    }

    /// Returns the report of the last read or write, as JSON.
    fn last_report(&self) -> Option<String> {
        self.array.last_report().map(|report| report.to_json().to_string())
    }

    fn __repr__(&self) -> String {
        format!("<cuzarr._core.{:?}>", self.array)
    }
}

impl PyArray {
    /// Returns the array of the Rust library that this object makes available to Python.
    pub fn array(&self) -> &Array {
        &self.array
    }

    /// Returns the array in a form whose reads and writes Python can cancel, by the `Watch` objects whose `with` blocks
    /// this thread is in.
    pub fn watched(&self) -> Array {
        let watches = Watches::current();
        watches.array(&self.array, &watches.token())
    }

    /// Runs `call` on the array without the interpreter's lock. Python can cancel it, by the `Watch` objects whose
    /// `with` blocks this thread is in.
    fn run<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&Array) -> cuzarr::Result<T> + Send) -> PyResult<T> {
        let array = self.watched();
        match array.store().capabilities().divides_reads {
            true => here(py, || call(&array)),
            false => interruptible(py, &array.options().cancellation, || call(&array)),
        }
    }
}

/// Refuses arrays that were resized, replaced or deleted since they were opened. It reads one document per array.
#[pyfunction]
pub fn check_unchanged(py: Python<'_>, arrays: Vec<PyRef<'_, PyArray>>) -> PyResult<()> {
    let arrays: Vec<Array> = arrays.iter().map(|array| array.array.clone()).collect();
    interruptible(py, &interrupt::token(), || {
        let arrays: Vec<&Array> = arrays.iter().collect();
        cuzarr::internal::node::check_unchanged(&arrays, "open the array again")
    })
}

fn parse_selections(lists: &[Lists]) -> PyResult<Vec<Selection>> {
    lists.iter().map(|(start, count, step, dropped)| selection(start, count, step, dropped)).collect()
}

/// Parses a selection of integers and slices; `None` for other items, and if it selects no element.
fn plain_axes(selection: &Bound<'_, PyAny>, shape: &[u64]) -> Option<Vec<AxisSelection>> {
    let one = [selection.clone()];
    let many: Vec<Bound<'_, PyAny>>;
    let items = match selection.cast_exact::<PyTuple>() {
        Ok(items) => {
            many = items.iter().collect();
            &many[..]
        }
        Err(_) => &one[..],
    };
    let rest = shape.len().checked_sub(items.len()).filter(|_| !shape.is_empty())?;
    let mut axes = Vec::with_capacity(shape.len());
    for (item, &extent) in items.iter().zip(shape) {
        axes.push(plain_axis(item, extent)?);
    }
    let whole = |&extent: &u64| AxisSelection { start: 0, count: extent, step: 1, dropped: false };
    axes.extend(shape[shape.len() - rest..].iter().map(whole));
    axes.iter().all(|axis| axis.count > 0).then_some(axes)
}

fn plain_axis(item: &Bound<'_, PyAny>, extent: u64) -> Option<AxisSelection> {
    if let Ok(slice) = item.cast_exact::<PySlice>() {
        let indices = slice.indices(extent.try_into().ok()?).ok()?;
        let (start, step) = (u64::try_from(indices.start).ok()?, u64::try_from(indices.step).ok()?);
        // A larger step would leave the array anyway.
        return Some(AxisSelection {
            start,
            count: indices.slicelength as u64,
            step: step.min(extent.max(1)),
            dropped: false,
        });
    }
    let index: i64 = item.cast_exact::<PyInt>().ok()?.extract().ok()?;
    let start = if index < 0 { extent.checked_sub(index.unsigned_abs())? } else { index as u64 };
    (start < extent).then_some(AxisSelection { start, count: 1, step: 1, dropped: true })
}

/// Parses an array's options from a dictionary. Those that are missing or `None` keep their defaults.
pub fn parse_options(given: &Bound<'_, PyDict>) -> PyResult<ArrayOptions> {
    let mut options = ArrayOptions::default();
    for (name, value) in given {
        if value.is_none() {
            continue;
        }
        match name.extract::<&str>()? {
            "device" => options.device = parse_device(value.extract()?)?,
            "accelerator" => options.accelerator = value.extract::<&str>()?.parse::<Accelerator>().py()?,
            "strict" => options.strict = value.extract()?,
            "memory_limit_bytes" => options.memory_limit_bytes = value.extract()?,
            "threads" => options.threads = value.extract::<usize>()?.max(1),
            "write_empty_chunks" => options.write_empty_chunks = value.extract()?,
            "read_missing_chunks" => options.read_missing_chunks = value.extract()?,
            "coalesce_gap_bytes" => options.coalesce_gap_bytes = value.extract()?,
            "coalesce_max_bytes" => options.coalesce_max_bytes = value.extract()?,
            "variable_limit_bytes" => options.variable_limit_bytes = value.extract()?,
            "chunk_cache" => options.chunk_cache = value.extract()?,
            "chunk_cache_bytes" => options.chunk_cache_bytes = value.extract()?,
            "chunk_cache_max_age" => options.chunk_cache_max_age = Duration::from_secs(value.extract()?),
            other => return Err(PyValueError::new_err(format!("unknown option '{other}'"))),
        }
    }
    Ok(options)
}
