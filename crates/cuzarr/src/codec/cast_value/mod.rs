//! # `cast_value`: stores elements in another numeric type
//!
//! Converts elements to another numeric type. The configuration decides about rounding and values out of range.
//!
//! - Specification: <https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/cast_value>
//! - Names: v3 `cast_value`
//! - Compatible: zarr-python 3.4 with cast-value-rs
//! - Native: cpu; GPUs, unless more than 65,536 scalars are mapped. The host finds elements that cannot be converted.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "cast_value", "configuration": {
//!     "data_type": "uint8", "rounding": "nearest-even", "out_of_range": "clamp",
//!     "scalar_map": {"encode": [["NaN", 0]], "decode": [[0, "NaN"]]}
//! }});
//! # let spec = ChunkSpec::new(vec![4], DataType::Float32, FillValue::Element(vec![0; 4]));
//! # Chain::from_extensions(&[Extension::from_json(&codec, "codecs")?, Extension::new("bytes", Default::default())], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```
//!
//! Scalars of `scalar_map` are replaced first. Then values are rounded. A value out of the target's range is an error,
//! or is clamped (floats to infinity), or wraps (integers). NaN and infinities cannot become integers.

mod cpu;
mod number;

use cuzarr_device::DType;
use cuzarr_device::internal::convert::{OutOfRange, Rounding};
use serde_json::Value;

use super::ChunkSpec;
use super::configuration::Configuration;
use super::elements::{is_float, is_real};
use super::open::{Opened, Request};
use super::scale_offset::with_encoded_fill;
use crate::Result;
use crate::meta::{DataType, FillValue, ZarrFormat};

const ROUNDINGS: &[(&str, Rounding)] = &[
    ("nearest-even", Rounding::NearestEven),
    ("towards-zero", Rounding::TowardsZero),
    ("towards-positive", Rounding::TowardsPositive),
    ("towards-negative", Rounding::TowardsNegative),
    ("nearest-away", Rounding::NearestAway),
];

/// Opens the codec `cast_value` from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let known = ["data_type", "rounding", "out_of_range", "scalar_map"];
    let configuration = Configuration::new(request.name, request.configuration, &known)?;
    let spec = request.spec;
    let Some(name) = configuration.get("data_type") else {
        return Err(configuration.invalid("'data_type' is missing"));
    };
    let data_type = DataType::from_v3(name)?;
    let (decoded, encoded) = (numeric(&configuration, &spec.data_type)?, numeric(&configuration, &data_type)?);
    let rounding = configuration.choice("rounding", ROUNDINGS)?.unwrap_or(Rounding::NearestEven);
    let choices = [("clamp", OutOfRange::Clamp), ("wrap", OutOfRange::Wrap)];
    let out_of_range = configuration.choice("out_of_range", &choices)?.unwrap_or(OutOfRange::Error);
    if out_of_range == OutOfRange::Wrap && is_float(encoded) {
        return Err(configuration.invalid(format!("'out_of_range' wrap is for integers, not {encoded}")));
    }
    let map = |direction| scalar_map(&configuration, direction, &spec.data_type, &data_type);
    let convert = |from, to, map| cpu::Conversion { from, to, rounding, out_of_range, map };
    let codec = cpu::CastValue {
        encode: convert(decoded, encoded, map("encode")?),
        decode: convert(encoded, decoded, map("decode")?),
        encoded: ChunkSpec { data_type: data_type.into(), ..spec.clone() },
    };
    Ok(Opened::array(with_encoded_fill(codec)?))
}

fn numeric(configuration: &Configuration<'_>, data_type: &DataType) -> Result<DType> {
    match data_type.device_dtype() {
        Some(dtype) if is_real(dtype) && DataType::try_from(dtype)? == *data_type => Ok(dtype),
        _ => Err(configuration.invalid(format!("takes integers and floats, got {data_type:?}"))),
    }
}

/// The pairs of `scalar_map` for one direction, as the bytes of an element and of the element that replaces it.
fn scalar_map(
    configuration: &Configuration<'_>,
    direction: &str,
    decoded: &DataType,
    encoded: &DataType,
) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let Some(map) = configuration.get("scalar_map") else { return Ok(Vec::new()) };
    let invalid =
        || configuration.invalid(format!("'scalar_map' is {map}, expected lists of pairs by 'encode' and 'decode'"));
    let members = map.as_object().ok_or_else(invalid)?;
    if members.keys().any(|key| key != "encode" && key != "decode") {
        return Err(invalid());
    }
    let pairs = match members.get(direction) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(pairs) => pairs.as_array().ok_or_else(invalid)?,
    };
    let (from, to) = if direction == "encode" { (decoded, encoded) } else { (encoded, decoded) };
    let scalar = |value: &Value, data_type: &DataType| match FillValue::from_json(value, data_type, ZarrFormat::V3) {
        Ok(FillValue::Element(bytes)) => Ok(bytes),
        _ => Err(configuration.invalid(format!("'scalar_map': {value} is not a value of {data_type:?}"))),
    };
    let pair = |pair: &Value| match pair.as_array().map(Vec::as_slice) {
        Some([key, value]) => Ok((scalar(key, from)?, scalar(value, to)?)),
        _ => Err(invalid()),
    };
    pairs.iter().map(pair).collect()
}
