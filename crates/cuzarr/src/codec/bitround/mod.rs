//! # `bitround`
//!
//! Floats rounded to `keepbits` bits of mantissa, half to even; read as they are.
//!
//! - Specification: <https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/bitround>,
//!   <https://numcodecs.readthedocs.io/en/stable/filter/bitround.html>
//! - Names: v3 `bitround`, `numcodecs.bitround`; v2 `bitround`
//! - Compatible: zarr-python, numcodecs, zarrs (floats)
//! - Native: everywhere; reading needs nothing, and writing rounds as a step of the tail.
//!
//! ```
//! # use cuzarr::codec::{ChunkSpec, Chain};
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "bitround", "configuration": {"keepbits": 10}});
//! # let spec = ChunkSpec::new(vec![4], DataType::Float64, FillValue::Element(vec![0; 8]));
//! # let bytes = Extension::from_json(&serde_json::json!({"name": "bytes", "configuration": {"endian": "little"}}), "codecs")?;
//! # Chain::from_extensions(&[Extension::from_json(&codec, "codecs")?, bytes], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```

use cuzarr_device::{DType, ElementStep};

use super::configuration::Configuration;
use super::elements::Stepped;
use super::open::{Opened, Request};
use crate::Result;

/// Opens the codec from its configuration.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let configuration = Configuration::new(request.name, request.configuration, &["keepbits"])?;
    let dtype = request.spec.dtype()?;
    let mantissa = match dtype {
        DType::FLOAT16 => 10,
        DType::BFLOAT16 => 7,
        DType::FLOAT32 => 23,
        DType::FLOAT64 => 52,
        other => return Err(configuration.invalid(format!("takes floats, got {other}"))),
    };
    if configuration.get("keepbits").is_none() {
        return Err(configuration.invalid("'keepbits' is missing"));
    }
    let kept = configuration.integer("keepbits", 0..=mantissa, 0)?;
    let round = ElementStep::RoundBits { dtype, dropped_bits: (mantissa - kept) as u32 };
    Ok(Opened::array(Stepped {
        name: "bitround",
        decoded: dtype,
        encoded_dtype: dtype,
        encoded: request.spec.clone(),
        read: Vec::new(),
        write: if kept == mantissa { Vec::new() } else { vec![round] },
    }))
}
