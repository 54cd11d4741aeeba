//! # `numcodecs.delta`
//!
//! The first element, then differences between neighbours in C order, optionally in a smaller type.
//!
//! - Specification: <https://numcodecs.readthedocs.io/en/stable/filter/delta.html>
//! - Names: v3 `numcodecs.delta`, `delta`; v2 `delta`
//! - Compatible: zarr-python, numcodecs
//! - Native: everywhere, as a pass of its own: integers by a scan, floats one after the other, since the order decides how
//!   they round. Differences are taken there before LZ4 is encoded there.
//!
//! ```
//! # use cuzarr::codec::{ChunkSpec, Chain};
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "numcodecs.delta", "configuration": {"dtype": "<i4", "astype": "<i2"}});
//! # let spec = ChunkSpec::new(vec![4], DataType::Int32, FillValue::Element(vec![0; 4]));
//! # let bytes = Extension::from_json(&serde_json::json!({"name": "bytes", "configuration": {"endian": "little"}}), "codecs")?;
//! # Chain::from_extensions(&[Extension::from_json(&codec, "codecs")?, bytes], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```
//!
//! Integers wrap. Sums are taken in the decoded type, one after the other, as `numpy.cumsum` does.

mod cpu;

use cuzarr_device::cpu::cast::is_supported;

use super::configuration::Configuration;
use super::elements::{input_dtype, is_real, output_spec};
use super::open::{Opened, Request};
use crate::Result;

/// Opens the codec from its configuration.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let configuration = Configuration::new(request.name, request.configuration, &["dtype", "astype"])?;
    let decoded = input_dtype(&configuration, request, "dtype")?;
    let encoded_dtype = configuration.numpy_dtype("astype")?.map_or(decoded, |view| view.dtype);
    if !is_real(decoded) || !is_supported(encoded_dtype, decoded) {
        return Err(configuration.invalid(format!("takes integers and floats, got {decoded} and {encoded_dtype}")));
    }
    let encoded = output_spec(request.spec, encoded_dtype)?;
    Ok(Opened::array(cpu::Delta { decoded, encoded_dtype, encoded }))
}
