//! # `numcodecs.astype`: stores elements in another type
//!
//! Converts elements to another type, like NumPy's `astype`.
//!
//! - Specification: <https://numcodecs.readthedocs.io/en/stable/filter/astype.html>
//! - Names: v3 `numcodecs.astype`, `astype`; v2 `astype`
//! - Compatible: zarr-python, numcodecs
//! - Native: everywhere, as a step of the tail.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "numcodecs.astype", "configuration":
//!     {"encode_dtype": "<f4", "decode_dtype": "<f8"}});
//! # let spec = ChunkSpec::new(vec![4], DataType::Float64, FillValue::Element(vec![0; 8]));
//! # let bytes = Extension::from_json(&serde_json::json!({"name": "bytes", "configuration": {"endian": "little"}}), "codecs")?;
//! # Chain::from_extensions(&[Extension::from_json(&codec, "codecs")?, bytes], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```

use cuzarr_device::internal::cpu::cast::is_supported;

use super::configuration::Configuration;
use super::elements::{Stepped, cast_step, input_dtype, output_spec};
use super::open::{Opened, Request};
use crate::Result;

/// Opens the codec `astype` from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let configuration = Configuration::new(request.name, request.configuration, &["encode_dtype", "decode_dtype"])?;
    let decoded = input_dtype(&configuration, request, "decode_dtype")?;
    let Some(encoded_dtype) = configuration.numpy_dtype("encode_dtype")?.map(|view| view.dtype) else {
        return Err(configuration.invalid("'encode_dtype' is missing"));
    };
    if decoded != encoded_dtype && !is_supported(decoded, encoded_dtype) {
        return Err(configuration.invalid(format!("{decoded} does not convert to {encoded_dtype}")));
    }
    let encoded = output_spec(request.spec, encoded_dtype)?;
    let read = cast_step(encoded_dtype, decoded).into_iter().collect();
    let write = cast_step(decoded, encoded_dtype).into_iter().collect();
    Ok(Opened::array(Stepped { name: "numcodecs.astype", decoded, encoded_dtype, encoded, read, write }))
}
