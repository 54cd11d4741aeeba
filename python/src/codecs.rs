//! Codecs from Python's registries (numcodecs, zarr-python), for names that are not built in.

use std::fmt;
use std::sync::Arc;

use cuzarr::codec::{ChunkSpec, ExternalCodec, ExternalCodecs, ExternalKind, ExternalRequest, HostCodec, set_external};
use cuzarr::meta::{DataType, FillValue};
use cuzarr::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::ending::attach;
use crate::error::{PyResult, from_python};

/// Makes the Rust library look up codecs in Python if it does not have them itself.
pub fn install() {
    set_external(Some(Arc::new(Registries)));
}

struct Registries;

type Opened = (String, Py<PyAny>, Option<Vec<u64>>, Option<String>);

impl ExternalCodecs for Registries {
    fn open(&self, request: &ExternalRequest<'_>) -> cuzarr::Result<Option<ExternalCodec>> {
        let opened = attach(|py| {
            find(py, request)
                .map_err(|error| from_python(py, ErrorKind::UnknownCodec, "looking it up in Python failed", error))
        })?;
        let Some((role, codec, shape, data_type)) = opened else { return Ok(None) };
        let kind = match (role.as_str(), shape, data_type) {
            ("array_array", Some(shape), Some(data_type)) => {
                ExternalKind::ArrayToArray(encoded_spec(shape, &data_type)?)
            }
            ("array_bytes", ..) => ExternalKind::ArrayToBytes,
            _ => ExternalKind::BytesToBytes,
        };
        Ok(Some(ExternalCodec { kind, codec: Arc::new(PythonCodec { codec, name: request.name.to_string() }) }))
    }
}

fn find(py: Python<'_>, request: &ExternalRequest<'_>) -> PyResult<Option<Opened>> {
    let configuration = serde_json::Value::Object(request.configuration.clone()).to_string();
    let data_type = request.spec.data_type.to_v3().map_or_else(|_| "null".to_string(), |json| json.to_string());
    let shape = PyTuple::new(py, &request.spec.shape)?;
    // Codecs do not know data types, so codecs that need one get a function that parses it.
    let parse = py.import("cuzarr._metadata.dtype")?.getattr("from_json_v3")?;
    let found = py.import("cuzarr.codecs.hosts")?.getattr("open_codec")?.call1((
        request.name,
        configuration,
        request.zarr_format,
        shape,
        data_type,
        parse,
    ))?;
    found.extract()
}

fn encoded_spec(shape: Vec<u64>, data_type: &str) -> cuzarr::Result<ChunkSpec> {
    let json = serde_json::from_str(data_type)
        .map_err(|error| Error::new(ErrorKind::UnknownDataType, format!("encoded type {data_type}: {error}")))?;
    let data_type = DataType::from_v3(&json)?;
    let fill_value = FillValue::Element(vec![0; data_type.size_bytes().unwrap_or(0)]);
    Ok(ChunkSpec::new(shape, data_type, fill_value))
}

/// A codec that is implemented in Python, as a codec of the Rust library. Each call takes the interpreter's lock.
struct PythonCodec {
    codec: Py<PyAny>,
    name: String,
}

impl PythonCodec {
    fn call(&self, method: &str, kind: ErrorKind, input: &[u8]) -> cuzarr::Result<Vec<u8>> {
        attach(|py| {
            let output = self.codec.bind(py).call_method1(method, (PyBytes::new(py, input),));
            output
                .and_then(|output| output.extract::<Vec<u8>>())
                .map_err(|error| from_python(py, kind, &format!("{method} failed"), error))
        })
    }
}

impl fmt::Debug for PythonCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PythonCodec({})", self.name)
    }
}

impl HostCodec for PythonCodec {
    fn decode(&self, encoded: &[u8]) -> cuzarr::Result<Vec<u8>> {
        self.call("decode", ErrorKind::ChunkCorrupt, encoded)
    }

    fn encode(&self, decoded: &[u8]) -> cuzarr::Result<Vec<u8>> {
        self.call("encode", ErrorKind::EncodeFailed, decoded)
    }
}
