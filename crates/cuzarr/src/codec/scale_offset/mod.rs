//! # `scale_offset`: stores scaled numbers in the array's own type
//!
//! `(x - offset) * scale` in the array's own type; read as `x / scale + offset`.
//!
//! - Specification: <https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/scale_offset>
//! - Names: v3 `scale_offset`
//! - Compatible: zarr-python 3.4
//! - Native: everywhere; for floats as steps of the tail. An integer that does not fit, or does not divide evenly, is an error.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "scale_offset", "configuration": {"offset": 5, "scale": 0.5}});
//! # let spec = ChunkSpec::new(vec![4], DataType::Float32, FillValue::Element(vec![0; 4]));
//! # let bytes = Extension::from_json(&serde_json::json!({"name": "bytes", "configuration": {"endian": "little"}}), "codecs")?;
//! # Chain::from_extensions(&[Extension::from_json(&codec, "codecs")?, bytes], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```

mod cpu;

use cuzarr_device::{Arithmetic, DType, ElementStep};
use serde_json::Value;

use super::ChunkSpec;
use super::configuration::Configuration;
use super::elements::{Stepped, is_float, is_real};
use super::host::ArrayToArray;
use super::open::{Opened, Request};
use crate::Result;
use crate::meta::{DataType, FillValue, ZarrFormat};

/// Opens the codec `scale_offset` from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let configuration = Configuration::new(request.name, request.configuration, &["offset", "scale"])?;
    let spec = request.spec;
    let dtype = spec.dtype()?;
    let dates = *spec.data_type != DataType::try_from(dtype)?;
    if !is_real(dtype) || dates {
        return Err(configuration.invalid(format!("takes integers and floats, got {:?}", spec.data_type)));
    }
    let scalar = |key: &str, default: i64| {
        let value = configuration.get(key).cloned().unwrap_or(Value::from(default));
        match FillValue::from_json(&value, &spec.data_type, ZarrFormat::V3) {
            Ok(FillValue::Element(bytes)) => Ok(bytes),
            _ => Err(configuration.invalid(format!("'{key}' is {value}, which {dtype} cannot hold"))),
        }
    };
    let (offset, scale) = (scalar("offset", 0)?, scalar("scale", 1)?);
    if is_zero(&scale, dtype)? {
        return Err(configuration.invalid("'scale' is 0"));
    }
    match is_float(dtype) {
        true => Ok(Opened::array(with_encoded_fill(float_steps(spec, dtype, &offset, &scale))?)),
        false => Ok(Opened::array(with_encoded_fill(cpu::ScaleOffset::new(spec, dtype, &offset, &scale))?)),
    }
}

fn is_zero(scale: &[u8], dtype: DType) -> Result<bool> {
    let mut wide = [0; 8];
    cuzarr_device::internal::cpu::cast::cast(dtype, DType::FLOAT64, scale, &mut wide)?;
    Ok(f64::from_ne_bytes(wide) == 0.0)
}

fn float_steps(spec: &ChunkSpec, dtype: DType, offset: &[u8], scale: &[u8]) -> Stepped {
    let step = |operation, bytes: &[u8]| {
        let mut operand = [0; 8];
        operand[..bytes.len()].copy_from_slice(bytes);
        ElementStep::Arithmetic { operation, dtype, operand }
    };
    Stepped {
        name: "scale_offset",
        decoded: dtype,
        encoded_dtype: dtype,
        encoded: spec.clone(),
        read: vec![step(Arithmetic::Divide, scale), step(Arithmetic::Add, offset)],
        write: vec![step(Arithmetic::Subtract, offset), step(Arithmetic::Multiply, scale)],
    }
}

/// A codec whose encoded fill value can be set.
pub(crate) trait EncodedFill: ArrayToArray {
    /// The shape, type and fill value of this codec's encoded array, to be changed in place.
    fn encoded_mut(&mut self) -> &mut ChunkSpec;
}

impl EncodedFill for Stepped {
    fn encoded_mut(&mut self) -> &mut ChunkSpec {
        &mut self.encoded
    }
}

/// Replaces the codec's fill value by its encoded form, which is made as for any element. As in zarr-python, it is an
/// error if that fails.
pub(crate) fn with_encoded_fill<C: EncodedFill>(mut codec: C) -> Result<C> {
    let encoded = codec.encoded_mut().clone();
    let size = encoded.data_type.size_bytes().unwrap_or(0);
    let FillValue::Element(fill) = &*encoded.fill_value else { return Ok(codec) };
    let mut bytes = vec![0; size];
    codec.encode_into(fill, &mut bytes)?;
    codec.encoded_mut().fill_value = FillValue::Element(bytes).into();
    Ok(codec)
}
