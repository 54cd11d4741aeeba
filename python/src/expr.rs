//! Lazy array expressions as objects of Python, which are computed on request.

use std::sync::Arc;

use cuzarr::meta::Decoding;
use cuzarr::plan::Region;
use cuzarr::store::Store;
use cuzarr::{Error, ErrorKind};
use cuzarr_compute::{
    Along, ComputeOptions, Expr, Histogram, Op, Operand, Pick, PickedDim, Quantile, QuantileMethod, ReduceOp,
    Reduction, Weak,
};
use cuzarr_device::{Device, Scan};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyComplex, PyFloat, PyInt};

use crate::array::PyArray;
use crate::ending::Unlocked;
use crate::error::{IntoPython, PyResult};
use crate::interrupt::interruptible;
use crate::names::{parse_device, parse_dtype};
use crate::ndbuffer::PyNdBuffer;
use crate::selection::Selected;
use crate::store::PyStore;
use crate::watch::Watches;

/// A lazy array expression: its elements are computed on request.
#[pyclass(name = "Expr", module = "cuzarr._core", frozen)]
pub struct PyExpr(pub Expr);

/// The elements to pick along one dimension: an index; a start, a count and a step; or a list of 8-byte integers.
#[derive(FromPyObject)]
pub enum Picked<'py> {
    Index(u64),
    Range(u64, u64, i64),
    List(PyRef<'py, PyNdBuffer>),
}

/// Converts a Python value to an operand: an expression, or a number, which takes the type of the other operand.
fn operand(value: &Bound<'_, PyAny>) -> PyResult<Operand> {
    if let Ok(expr) = value.cast::<PyExpr>() {
        return Ok(Operand::Expr(expr.get().0.clone()));
    }
    if value.is_instance_of::<PyBool>() {
        let truth = Weak::Int(i128::from(value.extract::<bool>()?));
        return Ok(Operand::Expr(Expr::constant(truth, cuzarr_device::DType::BOOL).py()?));
    }
    if value.is_instance_of::<PyInt>() {
        let text = value.str()?.to_string();
        let too_large = |_| Error::new(ErrorKind::OutOfRange, format!("the number {text} does not fit into 64 bits"));
        let number = text.parse().map_err(too_large).py()?;
        return Ok(Operand::Weak(Weak::Int(number)));
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(Operand::Weak(Weak::Float(value.extract()?)));
    }
    let complex = value.cast::<PyComplex>()?;
    let part = |name: &str| complex.getattr(name)?.extract::<f64>();
    Ok(Operand::Weak(Weak::Complex(part("real")?, part("imag")?)))
}

#[pymethods]
impl PyExpr {
    /// Makes an expression from elements in memory.
    #[staticmethod]
    fn buffer(buffer: &PyNdBuffer) -> PyResult<PyExpr> {
        Expr::buffer(buffer.inner.clone()).map(PyExpr).py()
    }

    /// Makes an expression from all elements of an array in a store.
    #[staticmethod]
    fn array(array: &PyArray) -> PyResult<PyExpr> {
        Expr::array(array.array().clone()).map(PyExpr).py()
    }

    /// Makes an expression from single points of an array. Together they have the given shape, in C order.
    #[staticmethod]
    fn points(array: &PyArray, selection: Selected<'_>, shape: Vec<u64>) -> PyResult<PyExpr> {
        Expr::points(array.array().clone(), &selection.parse()?, &shape).map(PyExpr).py()
    }

    /// Makes an expression that joins several expressions along a dimension.
    #[staticmethod]
    fn concatenated(parts: Vec<PyRef<'_, PyExpr>>, axis: usize) -> PyResult<PyExpr> {
        let parts: Vec<Expr> = parts.iter().map(|part| part.0.clone()).collect();
        Expr::concatenated(&parts, axis).map(PyExpr).py()
    }

    /// Makes an expression for running sums along a dimension, or running products if `is_product`.
    fn running(&self, axis: usize, is_product: bool) -> PyResult<PyExpr> {
        let scan = if is_product { Scan::Product } else { Scan::Sum };
        self.0.running(axis, scan).map(PyExpr).py()
    }

    /// Arranges the elements of this expression in one dimension, in C order.
    fn flat(&self) -> PyResult<PyExpr> {
        self.0.flat().map(PyExpr).py()
    }

    /// The expression's elements, if they are in memory and need no computation; else `None`.
    fn memory(&self) -> Option<PyNdBuffer> {
        self.0.memory().map(|inner| PyNdBuffer { inner: inner.clone() })
    }

    /// Makes an expression for some elements of this one, along each dimension and in the given order of dimensions.
    /// `along` has a selector for each dimension of this expression. `dims` has, for each dimension of the result, the
    /// source dimension or the extent of a new one.
    fn picked(&self, along: Vec<Picked<'_>>, dims: Vec<(Option<usize>, u64)>) -> PyResult<PyExpr> {
        let selector = |one: &Picked<'_>| match one {
            &Picked::Index(index) => Ok(Along::Index(index)),
            &Picked::Range(start, count, step) => Ok(Along::Range { start, count, step }),
            Picked::List(list) => Ok(Along::List(list.inner.host_slice::<u64>().py()?.to_vec().into())),
        };
        let along = along.iter().map(selector).collect::<PyResult<_>>()?;
        let dim = |(source, extent): (Option<usize>, u64)| source.map_or(PickedDim::New(extent), PickedDim::Source);
        let pick = Pick::new(along, dims.into_iter().map(dim).collect()).py()?;
        self.0.picked(&pick).map(PyExpr).py()
    }

    /// Makes an expression that applies the operation with this NumPy name to the operands.
    #[staticmethod]
    fn apply(name: &str, operands: Vec<Bound<'_, PyAny>>) -> PyResult<PyExpr> {
        let unknown = || {
            Error::new(ErrorKind::Unsupported, format!("unknown function '{name}'"))
                .with_hint("call CuPy's or NumPy's function on the arrays: both take them without copying")
        };
        let op = Op::named(name).ok_or_else(unknown).py()?;
        let operands = operands.iter().map(operand).collect::<PyResult<Vec<_>>>()?;
        Expr::apply(op, &operands).map(PyExpr).py()
    }

    /// Makes an expression that converts the elements of this one to another type.
    fn astype(&self, dtype: &str) -> PyResult<PyExpr> {
        self.0.astype(parse_dtype(dtype)?).map(PyExpr).py()
    }

    /// Makes an expression that decodes the stored elements in this one to numbers, by the attributes (JSON) of their
    /// array.
    fn decoded(&self, attributes: &str, dtype: Option<&str>) -> PyResult<PyExpr> {
        let decoding = self.decoding(attributes)?;
        self.0.decoded_by(&decoding, dtype.map(parse_dtype).transpose()?).map(PyExpr).py()
    }

    /// Makes an expression that decodes the stored elements in this one to nanoseconds since 1970; `None` if the
    /// attributes describe no times.
    fn decoded_times(&self, attributes: &str) -> PyResult<Option<PyExpr>> {
        Ok(self.0.decoded_times_by(&self.decoding(attributes)?).py()?.map(PyExpr))
    }

    /// Makes an expression that reduces the elements with the operation of this NumPy name.
    fn reduced(
        &self,
        name: &str,
        axes: Option<Vec<usize>>,
        keepdims: bool,
        ddof: f64,
        skip_nan: bool,
    ) -> PyResult<PyExpr> {
        let unknown = || Error::new(ErrorKind::Unsupported, format!("unknown reduction '{name}'"));
        let op = ReduceOp::named(name).ok_or_else(unknown).py()?;
        self.0.reduced(Reduction { op, axes, keepdims, ddof, skip_nan }).map(PyExpr).py()
    }

    /// Makes an expression for quantiles of the elements. The first dimension counts the probabilities; with `scalar`
    /// there is no such dimension.
    #[expect(clippy::too_many_arguments, reason = "Python hands over what it has, by position")]
    fn quantile(
        &self,
        probabilities: Vec<f64>,
        method: &str,
        axes: Option<Vec<usize>>,
        keepdims: bool,
        skip_nan: bool,
        scalar: bool,
        dtype: Option<&str>,
    ) -> PyResult<PyExpr> {
        let unknown = || {
            Error::new(ErrorKind::InvalidArgument, format!("unknown method '{method}' of quantiles"))
                .with_nearest(method, QuantileMethod::names())
        };
        let method = QuantileMethod::named(method).ok_or_else(unknown).py()?;
        let dtype = dtype.map(parse_dtype).transpose()?;
        let quantile = Quantile { probabilities, method, axes, keepdims, skip_nan, scalar, dtype };
        self.0.quantile(quantile).map(PyExpr).py()
    }

    /// Makes expressions for a histogram with bins of equal width. Returns the counts and the edges; `dtype` can set
    /// the type of the edges.
    fn histogram(
        &self,
        bins: u64,
        range: Option<(f64, f64)>,
        dtype: Option<&str>,
        density: bool,
    ) -> PyResult<(PyExpr, PyExpr)> {
        let mut histogram = Histogram::new(bins, range).density(density);
        if let Some(dtype) = dtype {
            histogram = histogram.with_dtype(parse_dtype(dtype)?);
        }
        let (counts, edges) = self.0.histogram(histogram).py()?;
        Ok((PyExpr(counts), PyExpr(edges)))
    }

    /// Makes expressions for the counts and the edges of a histogram between given edges, which must be in host memory.
    fn histogram_between(&self, edges: &PyNdBuffer, density: bool) -> PyResult<(PyExpr, PyExpr)> {
        let histogram = Histogram::between(&edges.inner).py()?.density(density);
        let (counts, edges) = self.0.histogram(histogram).py()?;
        Ok((PyExpr(counts), PyExpr(edges)))
    }

    #[getter]
    fn shape(&self) -> Vec<u64> {
        self.0.shape().to_vec()
    }

    #[getter]
    fn dtype(&self) -> String {
        self.0.dtype().to_string()
    }

    /// Computes the expression at once, without reading from stores. The inputs must be in the memory of this device.
    fn evaluate(&self, py: Python<'_>, device: &str) -> PyResult<PyNdBuffer> {
        let device = parse_device(device)?;
        let inner = py.unlocked(|| self.0.evaluate(device)).py()?;
        Ok(PyNdBuffer { inner })
    }

    /// Computes one box of the expression, region by region, within a memory limit.
    #[pyo3(signature = (start, extent, device, memory_limit_bytes, threads))]
    fn compute(
        &self,
        py: Python<'_>,
        start: Vec<u64>,
        extent: Vec<u64>,
        device: &str,
        memory_limit_bytes: u64,
        threads: usize,
    ) -> PyResult<PyNdBuffer> {
        let (options, expr) = (options(parse_device(device)?, memory_limit_bytes, threads), self.0.clone());
        if expr.is_in_memory() {
            // This call cannot be cancelled.
            let inner = py.unlocked(|| expr.compute_region(&start, &extent, &options)).py()?;
            return Ok(PyNdBuffer { inner });
        }
        let inner = run(py, options, move |options| expr.compute_region(&start, &extent, options))?;
        Ok(PyNdBuffer { inner })
    }

    /// Computes the expression into existing memory of a device, within a memory limit.
    fn compute_into(
        &self,
        py: Python<'_>,
        result: &PyNdBuffer,
        memory_limit_bytes: u64,
        threads: usize,
    ) -> PyResult<()> {
        let (expr, result) = (self.0.clone(), result.inner.clone());
        let options = options(result.device(), memory_limit_bytes, threads);
        run(py, options, move |options| expr.compute_into(&result, options))
    }

    /// Explains how the expression would be computed, as text and as JSON.
    fn explain(
        &self,
        py: Python<'_>,
        device: &str,
        memory_limit_bytes: u64,
        threads: usize,
    ) -> PyResult<(String, String)> {
        let options = options(parse_device(device)?, memory_limit_bytes, threads);
        let explanation = py.unlocked(|| self.0.explain(&options)).py()?;
        Ok((explanation.to_string(), explanation.to_json().to_string()))
    }

    /// Refuses a path that holds an array that the expression reads, and paths inside or around such an array.
    fn refuse_overlap(&self, store: &PyStore, path: &str) -> PyResult<()> {
        self.0.refuse_overlap(&store.inner, path).py()
    }

    /// Computes the expression and writes it to an array, region by region, within a memory limit. With `resume`,
    /// interrupted work can be continued.
    fn store(
        &self,
        py: Python<'_>,
        target: &PyArray,
        device: &str,
        memory_limit_bytes: u64,
        threads: usize,
        resume: bool,
    ) -> PyResult<()> {
        let (expr, target) = (self.0.clone(), target.array().clone());
        run(py, options(parse_device(device)?, memory_limit_bytes, threads), move |options| {
            if resume { expr.store_resumable(&target, options) } else { expr.store(&target, options) }
        })
    }

    /// Computes one of the regions of [`PyExpr::regions`], and writes it to an array.
    fn store_region(
        &self,
        py: Python<'_>,
        target: &PyArray,
        number: u64,
        device: &str,
        memory_limit_bytes: u64,
        threads: usize,
    ) -> PyResult<()> {
        let (expr, target) = (self.0.clone(), target.array().clone());
        run(py, options(parse_device(device)?, memory_limit_bytes, threads), move |options| {
            expr.store_region(&target, number, options)
        })
    }

    /// Returns start and extent of each region in which the expression is computed or, with a `target`, stored. The
    /// regions do not depend on the device.
    #[pyo3(signature = (memory_limit_bytes, target=None))]
    fn regions(&self, py: Python<'_>, memory_limit_bytes: u64, target: Option<&PyArray>) -> PyResult<Vec<Box>> {
        let (expr, target) = (self.0.clone(), target.map(|target| target.array().clone()));
        let regions = run(py, options(Device::Cpu, memory_limit_bytes, 1), move |options| match target {
            Some(target) => expr.store_regions(&target, options),
            None => expr.compute_regions(options),
        })?;
        Ok(boxes(regions))
    }

    /// Whether the expression is a reduction, a quantile or a histogram, without operations on its result.
    #[getter]
    fn is_summary(&self) -> bool {
        self.0.is_summary()
    }

    /// Number of parts into which a reduction can be divided for other processes; `None` for other expressions.
    fn summary_parts(&self, py: Python<'_>, memory_limit_bytes: u64) -> PyResult<Option<u64>> {
        let expr = self.0.clone();
        run(py, options(Device::Cpu, memory_limit_bytes, 1), move |options| expr.summary_parts(options))
    }

    /// Computes one part of a reduction, which other processes can share. Returns its intermediate state as bytes.
    fn summary_part<'py>(
        &self,
        py: Python<'py>,
        number: u64,
        device: &str,
        memory_limit_bytes: u64,
        threads: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let expr = self.0.clone();
        let options = options(parse_device(device)?, memory_limit_bytes, threads);
        let part = run(py, options, move |options| expr.summary_part(number, options))?;
        Ok(PyBytes::new(py, &part))
    }

    /// Joins the intermediate results of all parts of a reduction to its result, in host memory.
    fn join_summary(&self, parts: &Bound<'_, PyAny>, memory_limit_bytes: u64) -> PyResult<PyNdBuffer> {
        let options = ComputeOptions::default().with_device(Device::Cpu).with_memory_limit_bytes(memory_limit_bytes);
        let mut raised = None;
        let mut parts = parts.try_iter()?.map(|part| {
            let bytes = part.and_then(|part| Ok(part.cast::<PyBytes>()?.as_bytes().to_vec()));
            bytes.map_err(|exception| {
                raised = Some(exception);
                Error::new(ErrorKind::Cancelled, "a part was not computed")
            })
        });
        let result = self.0.join_summary(&mut parts, &options);
        match raised {
            Some(exception) => Err(exception),
            None => Ok(PyNdBuffer { inner: result.py()? }),
        }
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }
}

impl PyExpr {
    /// Returns how the stored elements are decoded if their array has these attributes, given as JSON. Arrays from
    /// Python are opened without attributes.
    fn decoding(&self, attributes: &str) -> PyResult<Decoding> {
        let mut metadata = self.0.stored_metadata().py()?.clone();
        metadata.set_attributes_json(attributes).and_then(|()| metadata.decoding()).py()
    }
}

/// A box of elements: its start and its extent.
type Box = (Vec<u64>, Vec<u64>);

fn boxes(regions: Vec<Region>) -> Vec<Box> {
    regions.into_iter().map(|region| (region.start, region.extent)).collect()
}

/// Makes options for a computation from a device, a memory limit and a number of CPU threads.
fn options(device: Device, memory_limit_bytes: u64, threads: usize) -> ComputeOptions<'static> {
    ComputeOptions::default().with_device(device).with_memory_limit_bytes(memory_limit_bytes).with_threads(threads)
}

/// Runs a computation without the interpreter's lock. Python can cancel it, by the `Watch` objects whose `with` blocks
/// this thread is in.
fn run<T: Send>(
    py: Python<'_>,
    options: ComputeOptions<'static>,
    call: impl FnOnce(&ComputeOptions<'_>) -> cuzarr::Result<T> + Send,
) -> PyResult<T> {
    let watches = Watches::current();
    let token = watches.token();
    interruptible(py, &token, || {
        let wrap = |store: &Arc<dyn Store>| watches.store(store);
        call(&options.with_cancellation(&token).with_wrap(&wrap))
    })
}
