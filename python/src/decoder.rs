//! Decoders that decode compressed chunks (frames) that Python passes into memory that Python passes, without a Zarr
//! array.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuzarr::run::{Decoder, DecoderBatch, Frames};
use cuzarr_device::{Buffer, Device, Stream};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::ending::Unlocked;
use crate::error::{IntoPython, PyResult, exceptions};
use crate::interrupt::here;
use crate::names::parse_device;
use crate::ndbuffer::PyNdBuffer;
use crate::watch::Watches;

/// A decoder for a codec, or a chain of codecs, on one device.
#[pyclass(name = "Decoder", module = "cuzarr._core", frozen)]
pub struct PyDecoder {
    inner: Decoder,
}

/// A batch of compressed frames that is ready to be decoded, as often as wanted.
#[pyclass(name = "DecoderBatch", module = "cuzarr._core", frozen)]
pub struct PyDecoderBatch {
    inner: Mutex<DecoderBatch>,
    device: Device,
}

fn bytes_of(array: &PyNdBuffer) -> PyResult<Buffer> {
    array.inner.as_buffer().py()
}

/// Wraps another library's stream, given as a `CUstream` integer.
///
/// # Safety
/// The handle is a stream of `device` that `owner` keeps alive, or one of CUDA's own streams.
pub(crate) unsafe fn callers_stream(device: Device, stream: usize, owner: Py<PyAny>) -> PyResult<Stream> {
    match device {
        // SAFETY: the caller's promise is the one that is asked for here.
        Device::Cuda(_) => unsafe { Stream::from_raw(device, stream, Some(Box::new(owner))) }.py(),
        device => Stream::new(device).py(),
    }
}

#[pymethods]
impl PyDecoder {
    /// Makes a decoder that decodes chunks of the given codecs on one device. `codecs` is JSON: one codec, or a list of
    /// them.
    #[new]
    fn new(codecs: &str, device: &str) -> PyResult<Self> {
        let codecs = serde_json::from_str(codecs).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(PyDecoder { inner: Decoder::new(&codecs, parse_device(device)?).py()? })
    }

    /// Prepares compressed chunks (frames) that lie in separate buffers, each to be decoded into its own output array.
    fn prepare(
        &self,
        py: Python<'_>,
        frames: Vec<PyRef<'_, PyNdBuffer>>,
        outs: Vec<PyRef<'_, PyNdBuffer>>,
        scratch_limit: Option<usize>,
    ) -> PyResult<PyDecoderBatch> {
        let frames = frames.iter().map(|frame| bytes_of(frame)).collect::<PyResult<Vec<_>>>()?;
        self.prepare_frames(py, Frames::Apart(frames), &outs, scratch_limit)
    }

    /// Prepares compressed chunks (frames) that all lie in one buffer, at given offsets. `ranges` has the offset and
    /// size of each.
    fn prepare_slab(
        &self,
        py: Python<'_>,
        slab: &PyNdBuffer,
        ranges: Vec<(usize, usize)>,
        outs: Vec<PyRef<'_, PyNdBuffer>>,
        scratch_limit: Option<usize>,
    ) -> PyResult<PyDecoderBatch> {
        let range = |(offset, size): (usize, usize)| -> PyResult<Range<usize>> {
            let end =
                offset.checked_add(size).ok_or_else(|| PyValueError::new_err("offset + size of a frame overflows"))?;
            Ok(offset..end)
        };
        let ranges = ranges.into_iter().map(range).collect::<PyResult<Vec<_>>>()?;
        self.prepare_frames(py, Frames::Slab { buffer: bytes_of(slab)?, ranges }, &outs, scratch_limit)
    }
}

impl PyDecoder {
    fn prepare_frames(
        &self,
        py: Python<'_>,
        frames: Frames,
        outs: &[PyRef<'_, PyNdBuffer>],
        scratch_limit: Option<usize>,
    ) -> PyResult<PyDecoderBatch> {
        let device = outs.first().map_or(Device::Cpu, |out| out.inner.device());
        let outs = outs.iter().map(|out| out.inner.clone()).collect();
        let batch = py.unlocked(|| self.inner.prepare(frames, outs, scratch_limit)).py()?;
        Ok(PyDecoderBatch { inner: Mutex::new(batch), device })
    }
}

impl PyDecoderBatch {
    fn lock(&self) -> MutexGuard<'_, DecoderBatch> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyDecoderBatch {
    fn __len__(&self, py: Python<'_>) -> usize {
        py.unlocked(|| self.lock().len())
    }

    /// Bytes of device memory that the batch uses for decoding.
    #[getter]
    fn scratch_bytes(&self, py: Python<'_>) -> usize {
        py.unlocked(|| self.lock().scratch_bytes())
    }

    /// The reason why host threads decode; `None` if the device decodes.
    #[getter]
    fn via_host(&self, py: Python<'_>) -> Option<&'static str> {
        py.unlocked(|| self.lock().via_host())
    }

    /// Submits the decoding of the batch of frames to a CUDA stream, without waiting. `stream` is a `CUstream` as an
    /// integer, and `owner` keeps it alive.
    fn run(&self, py: Python<'_>, stream: usize, owner: Py<PyAny>) -> PyResult<()> {
        if py.unlocked(|| self.lock().is_empty()) {
            return Ok(());
        }
        // SAFETY: only `cuzarr.codecs` calls this. It passes the handle of a stream of this device that belongs to `owner`,
        // or of one of CUDA's own streams.
        let stream = unsafe { callers_stream(self.device, stream, owner) }?;
        let token = Watches::current().token();
        here(py, || self.lock().run_under(&stream, &token))
    }

    /// Waits until the batch is decoded, and returns for each frame `None` or an exception.
    fn check(&self, py: Python<'_>) -> PyResult<Vec<Option<Py<PyAny>>>> {
        py.unlocked(|| self.lock().check()).py().map(exceptions)
    }
}
