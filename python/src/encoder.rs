//! Encoders that compress chunks that Python passes, without a Zarr array.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cuzarr::run::{Encoder, EncoderBatch};
use cuzarr_device::{DType, Device, Layout, NdBuffer, Order};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::decoder::callers_stream;
use crate::ending::Unlocked;
use crate::error::{IntoPython, PyResult, exceptions};
use crate::interrupt::here;
use crate::names::parse_device;
use crate::ndbuffer::PyNdBuffer;
use crate::watch::Watches;

/// An encoder for a codec, or a chain of codecs, on one device.
#[pyclass(name = "Encoder", module = "cuzarr._core", frozen)]
pub struct PyEncoder {
    inner: Encoder,
    device: Device,
}

/// A batch of chunks that is ready to be encoded, as often as wanted.
#[pyclass(name = "EncoderBatch", module = "cuzarr._core", frozen)]
pub struct PyEncoderBatch {
    inner: Mutex<EncoderBatch>,
    device: Device,
}

#[pymethods]
impl PyEncoder {
    /// Makes an encoder that encodes chunks with the given codecs on one device. `codecs` is JSON: one codec, or a list
    /// of them.
    #[new]
    fn new(codecs: &str, device: &str, strict: bool) -> PyResult<Self> {
        let codecs = serde_json::from_str(codecs).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let device = parse_device(device)?;
        Ok(PyEncoder { inner: Encoder::new(&codecs, device).py()?.strict(strict), device })
    }

    /// Prepares chunks, which may have any shapes and types, to be encoded.
    fn prepare(
        &self,
        py: Python<'_>,
        chunks: Vec<PyRef<'_, PyNdBuffer>>,
        scratch_limit: Option<usize>,
    ) -> PyResult<PyEncoderBatch> {
        let chunks = chunks.iter().map(|chunk| chunk.inner.clone()).collect();
        let batch = py.unlocked(|| self.inner.prepare(chunks, scratch_limit)).py()?;
        Ok(PyEncoderBatch { inner: Mutex::new(batch), device: self.device })
    }
}

impl PyEncoderBatch {
    fn lock(&self) -> MutexGuard<'_, EncoderBatch> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyEncoderBatch {
    fn __len__(&self, py: Python<'_>) -> usize {
        py.unlocked(|| self.lock().len())
    }

    /// Bytes of device memory that encoding the batch uses in addition to the chunks and the encoded chunks (frames).
    #[getter]
    fn scratch_bytes(&self, py: Python<'_>) -> usize {
        py.unlocked(|| self.lock().scratch_bytes())
    }

    /// The reason why one of the encoder's codecs runs on the host; `None` if all of them run on the device.
    #[getter]
    fn via_host(&self, py: Python<'_>) -> Option<String> {
        py.unlocked(|| self.lock().via_host().map(String::from))
    }

    /// Submits the encoding of the batch of chunks to a CUDA stream, without waiting. `stream` is a `CUstream` as an
    /// integer, and `owner` keeps it alive.
    fn run(&self, py: Python<'_>, stream: usize, owner: Py<PyAny>) -> PyResult<()> {
        // SAFETY: only `cuzarr.codecs` calls this. It passes the handle of a stream of this device that belongs to `owner`,
        // or of one of CUDA's own streams.
        let stream = unsafe { callers_stream(self.device, stream, owner) }?;
        let token = Watches::current().token();
        here(py, || self.lock().run_under(&stream, &token))
    }

    /// Waits until the batch is encoded, and returns for each chunk `None` or an exception.
    fn check(&self, py: Python<'_>) -> PyResult<Vec<Option<Py<PyAny>>>> {
        py.unlocked(|| self.lock().check()).py().map(exceptions)
    }

    /// Waits until the batch is encoded, and returns the frames as byte arrays on the device.
    fn frames(&self, py: Python<'_>) -> PyResult<Vec<PyNdBuffer>> {
        let frames = py.unlocked(|| self.lock().frames()).py()?;
        let array = |frame: cuzarr_device::Buffer| -> PyResult<PyNdBuffer> {
            let layout = Layout::contiguous(&[frame.size_bytes()], 1, Order::C).py()?;
            Ok(PyNdBuffer { inner: NdBuffer::from_parts(frame, DType::UINT8, layout).py()? })
        };
        frames.into_iter().map(array).collect()
    }
}
