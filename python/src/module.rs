//! Kernels that the user writes in CUDA C++. They are compiled at run time.

use cuzarr_compute::{ElementwiseArgument, ElementwiseCall, ElementwiseKernel};
use cuzarr_device::{Device, Function, LaunchShape, Module, NdBuffer, Stream};
use pyo3::prelude::*;

use crate::ending::Unlocked;
use crate::error::{IntoPython, PyResult};
use crate::foreign;
use crate::names::{parse_device, parse_dtype};
use crate::ndbuffer::PyNdBuffer;

/// A module of the user's CUDA kernels: CUDA C++ compiled for one device.
#[pyclass(name = "Module", module = "cuzarr._core", frozen)]
pub struct PyUserModule(Module);

/// One of the CUDA kernels of a module that the user wrote.
#[pyclass(name = "Function", module = "cuzarr._core", frozen)]
pub struct PyFunction(Function);

/// One argument for the launch of a kernel.
#[derive(FromPyObject)]
pub enum Argument {
    /// An array, which the kernel gets as the address of the first element.
    Array(Py<PyNdBuffer>),
    /// The bytes of a value that is not an array, such as a number, which the kernel gets itself, not its address.
    Value(Vec<u8>),
}

/// Returns the CUDA stream on which a kernel is launched: the caller's, or else the legacy default stream.
fn queue(device: Device, stream: Option<usize>) -> cuzarr_device::Result<Stream> {
    match stream {
        None => Stream::legacy(device),
        Some(handle) => foreign::stream(device, handle),
    }
}

#[pymethods]
impl PyUserModule {
    #[new]
    fn new(py: Python<'_>, text: &str, device: &str, file: &str, options: Vec<String>) -> PyResult<Self> {
        let device = parse_device(device)?;
        py.unlocked(|| Module::compile(device, file, text, &options)).map(PyUserModule).py()
    }

    /// Checks that CUDA C++ text compiles for a GPU of this compute capability. It needs no GPU.
    #[staticmethod]
    fn check(py: Python<'_>, text: &str, file: &str, options: Vec<String>, capability: (u32, u32)) -> PyResult<()> {
        py.unlocked(|| Module::check(file, text, &options, capability)).py()
    }

    /// Returns the kernel with this name.
    fn function(&self, py: Python<'_>, name: &str) -> PyResult<PyFunction> {
        py.unlocked(|| self.0.function(name)).map(PyFunction).py()
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

    /// Launches this kernel on the caller's CUDA stream or, without one, on the default stream. On the caller's stream,
    /// it may still run when the call returns. Without a stream, the call waits for it.
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
        py.unlocked(|| {
            let queue = queue(device, stream)?;
            let buffers: Vec<_> = arrays.iter().collect();
            // SAFETY: number and sizes of the arguments are checked. What the kernel does with them is the user's duty.
            unsafe { self.0.launch(&queue, shape, values, &buffers) }?;
            if stream.is_none() { queue.synchronize() } else { Ok(()) }
        })
        .py()
    }
}

/// A kernel that computes one expression for every element of whole arrays.
#[pyclass(name = "ElementwiseKernel", module = "cuzarr._core", frozen)]
pub struct PyElementwiseKernel(ElementwiseKernel);

/// The value that the caller passes for one input of an elementwise kernel.
#[derive(FromPyObject)]
pub enum Input {
    /// An array in the memory of the kernel's GPU.
    Array(Py<PyNdBuffer>),
    /// A number, as its type and its bytes.
    Value((String, Vec<u8>)),
}

#[pymethods]
impl PyElementwiseKernel {
    #[new]
    fn new(
        inputs: &str,
        outputs: &str,
        operation: &str,
        name: &str,
        preamble: &str,
        options: Vec<String>,
    ) -> PyResult<Self> {
        let kernel = ElementwiseKernel::new(inputs, outputs, operation).and_then(|kernel| kernel.named(name)).py()?;
        Ok(PyElementwiseKernel(kernel.with_preamble(preamble).with_options(&options)))
    }

    /// Number of inputs and number of outputs of the kernel.
    #[getter]
    fn counts(&self) -> (usize, usize) {
        self.0.counts()
    }

    /// Launches the kernel on a stream, and returns the outputs. On the caller's stream, it may still run when the call
    /// returns. Without a stream, the call waits for it.
    #[expect(clippy::too_many_arguments, reason = "Python hands over what it has, by position")]
    fn run(
        &self,
        py: Python<'_>,
        inputs: Vec<Input>,
        outputs: Option<Vec<Py<PyNdBuffer>>>,
        device: &str,
        size: Option<usize>,
        block_threads: u32,
        stream: Option<usize>,
    ) -> PyResult<Vec<PyNdBuffer>> {
        let device = parse_device(device)?;
        let passed = inputs.iter().map(|input| {
            Ok(match input {
                Input::Array(array) => ElementwiseArgument::Array(&array.get().inner),
                Input::Value((dtype, own)) => {
                    let mut bytes = [0; 8];
                    bytes.iter_mut().zip(own).for_each(|(byte, own)| *byte = *own);
                    ElementwiseArgument::Value(parse_dtype(dtype)?, bytes)
                }
            })
        });
        let passed = passed.collect::<PyResult<Vec<_>>>()?;
        let given: Option<Vec<&NdBuffer>> =
            outputs.as_ref().map(|outputs| outputs.iter().map(|output| &output.get().inner).collect());
        let call = ElementwiseCall { inputs: &passed, outputs: given.as_deref(), size, block_threads };
        let made = py.unlocked(|| {
            let queue = queue(device, stream)?;
            // SAFETY: the arguments are checked. What the operation does beyond its elements is the user's duty.
            let made = unsafe { self.0.run(&queue, &call) }?;
            if stream.is_none() {
                queue.synchronize()?;
            }
            Ok::<_, cuzarr::Error>(made)
        });
        Ok(made.py()?.into_iter().map(|inner| PyNdBuffer { inner }).collect())
    }
}
