//! Kernels of the user's own, compiled when the program runs.

use cuzarr_device::{Function, LaunchShape, Module, Stream};
use pyo3::prelude::*;

use crate::error::{IntoPython, PyResult};
use crate::ndbuffer::{PyNdBuffer, parse_device};

/// A text of CUDA C++, compiled for one device.
#[pyclass(name = "Module", module = "cuzarr._core", frozen)]
pub struct PyUserModule(Module);

/// One kernel of a module.
#[pyclass(name = "Function", module = "cuzarr._core", frozen)]
pub struct PyFunction(Function);

/// One argument of a launch.
#[derive(FromPyObject)]
pub enum Argument {
    /// The address of an array's first element.
    Array(Py<PyNdBuffer>),
    /// A value, as its bytes.
    Value(Vec<u8>),
}

#[pymethods]
impl PyUserModule {
    #[new]
    fn new(py: Python<'_>, text: &str, device: &str, file: &str, options: Vec<String>) -> PyResult<Self> {
        let device = parse_device(device)?;
        py.detach(|| Module::compile(device, file, text, &options)).map(PyUserModule).py()
    }

    /// Whether a text compiles for a GPU of this compute capability; needs no GPU.
    #[staticmethod]
    fn check(py: Python<'_>, text: &str, file: &str, options: Vec<String>, capability: (u32, u32)) -> PyResult<()> {
        py.detach(|| Module::check(file, text, &options, capability)).py()
    }

    /// The kernel of this name.
    fn function(&self, py: Python<'_>, name: &str) -> PyResult<PyFunction> {
        py.detach(|| self.0.function(name)).map(PyFunction).py()
    }
}

#[pymethods]
impl PyFunction {
    #[getter]
    fn max_threads(&self) -> u32 {
        self.0.max_threads()
    }

    #[getter]
    fn registers(&self) -> u32 {
        self.0.registers()
    }

    #[getter]
    fn local_bytes(&self) -> u32 {
        self.0.local_bytes()
    }

    #[getter]
    fn static_shared_bytes(&self) -> u32 {
        self.0.static_shared_bytes()
    }

    #[getter]
    fn parameter_bytes(&self) -> Option<Vec<usize>> {
        self.0.parameter_bytes().map(<[usize]>::to_vec)
    }

    /// Launches it: on somebody's stream, where it goes on running, or on the legacy default stream and to its end.
    fn launch(
        &self,
        py: Python<'_>,
        arguments: Vec<Argument>,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
        stream: Option<usize>,
    ) -> PyResult<()> {
        let arrays: Vec<_> = arguments
            .iter()
            .filter_map(|argument| match argument {
                Argument::Array(array) => Some(array.get().inner.buffer().clone()),
                Argument::Value(_) => None,
            })
            .collect();
        let values: Vec<Vec<u8>> = arguments
            .into_iter()
            .map(|argument| match argument {
                Argument::Array(array) => array.get().inner.address().to_ne_bytes().to_vec(),
                Argument::Value(value) => value,
            })
            .collect();
        let shape = LaunchShape { grid, block, shared_bytes };
        let device = self.0.device();
        py.detach(|| {
            let queue = match stream {
                None => Stream::legacy(device)?,
                // SAFETY: the caller's stream, which they keep until their work is done, as in every library.
                Some(handle) => unsafe { Stream::from_raw(device, handle, None) }?,
            };
            let buffers: Vec<_> = arrays.iter().collect();
            // SAFETY: number and sizes of the arguments are checked; what the kernel does with them is the user's.
            unsafe { self.0.launch(&queue, shape, values, &buffers) }?;
            if stream.is_none() { queue.synchronize() } else { Ok(()) }
        })
        .py()
    }
}
