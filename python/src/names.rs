//! Names of devices, element types and compressors in Python.

use cuzarr::internal::meta::encoding;
use cuzarr::meta::Extension;
use cuzarr::{Error, ErrorKind};
use cuzarr_device::{DType, Device, SmallNumber};
use pyo3::pyfunction;

use crate::error::{IntoPython, PyResult};

/// Parses the name of an element type: `float32`, `int4`, `opaque12`.
pub fn parse_dtype(name: &str) -> PyResult<DType> {
    if let Some(size_bytes) = name.strip_prefix("opaque").and_then(|size| size.parse().ok()) {
        return Ok(DType::opaque(size_bytes));
    }
    let unknown = || Error::new(ErrorKind::InvalidArgument, format!("unknown element type '{name}'"));
    let number = DType::NUMBERS.into_iter().find(|dtype| dtype.to_string() == name);
    number.or_else(|| SmallNumber::from_name(name).map(DType::small)).ok_or_else(unknown).py()
}

/// Parses the name of a device.
pub fn parse_device(name: &str) -> PyResult<Device> {
    name.parse::<Device>().py()
}

/// The codecs that a short name such as `zstd:5` stands for, as JSON of this Zarr format.
#[pyfunction]
pub fn compressors_named(text: &str, zarr_format: u8) -> PyResult<String> {
    let codecs = encoding::compressor_named(text).py()?;
    let json = |codec: &Extension| if zarr_format == 2 { encoding::to_v2(codec).into() } else { codec.to_json() };
    Ok(codecs.iter().map(json).collect::<serde_json::Value>().to_string())
}
