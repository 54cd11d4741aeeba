//! Describes how the chunks of a request from zarr-python are encoded.

use std::sync::{Arc, Mutex, PoisonError};

use cuzarr::internal::codec::Chain;
use cuzarr::internal::run::Access;
use cuzarr::meta::ArrayMetadata;
use cuzarr::store::ByteRange;
use cuzarr_device::Device;
use pyo3::prelude::*;

use crate::error::{IntoPython, PyResult};

/// Whether a codec is built into the Rust library. `name` is its name in metadata of `zarr_format`.
#[pyfunction]
pub fn has_codec(name: &str, zarr_format: u8) -> bool {
    cuzarr::codec::is_built_in(name, zarr_format)
}

/// The format of chunks: their shape, element type and codec chain, independent of a store.
#[pyclass(name = "Chunks", module = "cuzarr._core", frozen)]
pub struct PyChunks {
    pub(super) metadata: ArrayMetadata,
    pub(super) chain: Arc<Chain>,
    /// The codec chain prepared for each device on which these chunks were decoded or encoded so far.
    accesses: Mutex<Vec<Arc<Access>>>,
}

#[pymethods]
impl PyChunks {
    /// Describes the format of chunks by an array that has one chunk: `document` is its `zarr.json` or `.zarray`. For
    /// every level of sharding, `write_orders` lists the C-order numbers of inner chunks in the order in which they are
    /// written.
    #[new]
    fn new(document: &[u8], zarr_format: u8, write_orders: Vec<Vec<u32>>) -> PyResult<Self> {
        let metadata = match zarr_format {
            2 => ArrayMetadata::from_json_v2(document, None),
            _ => ArrayMetadata::from_json(document),
        };
        let metadata = metadata.py()?;
        let orders: Vec<Arc<[u32]>> = write_orders.into_iter().map(Arc::from).collect();
        let chain = Chain::new(&metadata).and_then(|chain| chain.with_write_orders(&orders)).py()?;
        Ok(PyChunks { metadata, chain: Arc::new(chain), accesses: Mutex::default() })
    }

    /// Name of the element type in device memory; `None` for elements of variable length.
    #[getter]
    fn dtype(&self) -> Option<String> {
        self.metadata.data_type().device_dtype().map(|dtype| dtype.to_string())
    }

    /// Whether a chunk is a shard, which contains chunks itself.
    #[getter]
    fn is_sharded(&self) -> bool {
        self.chain.sharding().is_some()
    }

    /// Whether a shard begins with its index.
    #[getter]
    fn index_is_first(&self) -> bool {
        self.chain.sharding().is_some_and(|sharding| matches!(sharding.index_range(), ByteRange::Span { .. }))
    }

    fn __repr__(&self) -> String {
        let (shape, data_type) = (self.metadata.shape(), self.metadata.data_type());
        format!("<cuzarr._core.Chunks {data_type} {shape:?}>")
    }
}

impl PyChunks {
    /// Returns the codec chain of these chunks, prepared for decoding and encoding on a device.
    pub(super) fn access(&self, device: Device) -> cuzarr::Result<Arc<Access>> {
        let mut accesses = self.accesses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(access) = accesses.iter().find(|access| access.device() == device) {
            return Ok(Arc::clone(access));
        }
        let access = Arc::new(Access::new(&self.metadata, "", Arc::clone(&self.chain), device)?);
        accesses.push(Arc::clone(&access));
        Ok(access)
    }
}
