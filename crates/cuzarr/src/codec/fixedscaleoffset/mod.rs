//! # `numcodecs.fixedscaleoffset`: stores scaled numbers in a smaller type
//!
//! `round((x - offset) * scale)`, converted to a smaller type; read as `x / scale + offset`.
//!
//! - Specification: <https://numcodecs.readthedocs.io/en/stable/filter/fixedscaleoffset.html>
//! - Names: v3 `numcodecs.fixedscaleoffset`, `fixedscaleoffset`; v2 `fixedscaleoffset`
//! - Compatible: zarr-python, numcodecs, zarrs
//! - Native: everywhere, as steps of the tail.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "numcodecs.fixedscaleoffset", "configuration":
//!     {"offset": 1000, "scale": 10, "dtype": "<f8", "astype": "|u1"}});
//! # let spec = ChunkSpec::new(vec![4], DataType::Float64, FillValue::Element(vec![0; 8]));
//! # Chain::from_extensions(&[Extension::from_json(&codec, "codecs")?, Extension::new("bytes", Default::default())], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```
//!
//! Arithmetic is done in the type to which NumPy promotes. Integers are divided in float64. A float array keeps its own
//! type. Integers minus or times JSON integers stay integers, and wrap.

use cuzarr_device::{Arithmetic, DType, ElementStep};
use serde_json::Number;

use super::configuration::Configuration;
use super::elements::{Stepped, arithmetic, cast_step, input_dtype, is_float, is_real, output_spec, round_step};
use super::open::{Opened, Request};
use crate::Result;

/// Opens the codec `fixedscaleoffset` from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let known = ["offset", "scale", "dtype", "astype"];
    let configuration = Configuration::new(request.name, request.configuration, &known)?;
    let decoded = input_dtype(&configuration, request, "dtype")?;
    let encoded_dtype = configuration.numpy_dtype("astype")?.map_or(decoded, |view| view.dtype);
    if !is_real(decoded) || !is_real(encoded_dtype) {
        return Err(configuration.invalid(format!("takes integers and floats, got {decoded} and {encoded_dtype}")));
    }
    let (offset, scale) = (configuration.number("offset")?, configuration.number("scale")?);
    let encoded = output_spec(request.spec, encoded_dtype)?;
    let read = read_steps(encoded_dtype, decoded, offset, scale)?;
    let write = write_steps(decoded, encoded_dtype, offset, scale)?;
    Ok(Opened::array(Stepped { name: "numcodecs.fixedscaleoffset", decoded, encoded_dtype, encoded, read, write }))
}

fn read_steps(encoded: DType, decoded: DType, offset: &Number, scale: &Number) -> Result<Vec<ElementStep>> {
    let wide = if is_float(encoded) { encoded } else { DType::FLOAT64 };
    let mut steps: Vec<_> = cast_step(encoded, wide).into_iter().collect();
    steps.push(arithmetic(Arithmetic::Divide, wide, scale)?);
    steps.push(arithmetic(Arithmetic::Add, wide, offset)?);
    steps.extend(cast_step(wide, decoded));
    Ok(steps)
}

fn write_steps(decoded: DType, encoded: DType, offset: &Number, scale: &Number) -> Result<Vec<ElementStep>> {
    let mut steps = Vec::new();
    let mut current = decoded;
    for (operation, number) in [(Arithmetic::Subtract, offset), (Arithmetic::Multiply, scale)] {
        // NumPy: an integer array with a Python float becomes float64.
        if !is_float(current) && number.is_f64() {
            steps.extend(cast_step(current, DType::FLOAT64));
            current = DType::FLOAT64;
        }
        steps.push(arithmetic(operation, current, number)?);
    }
    if is_float(current) {
        steps.push(round_step(current));
    }
    steps.extend(cast_step(current, encoded));
    Ok(steps)
}
