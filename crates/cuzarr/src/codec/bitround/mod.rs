//! # `bitround`: rounds numbers when they are written, so that they compress well
//!
//! Writing rounds numbers to a few significant bits, half to even. Reading does not change them.
//!
//! - A float keeps `keepbits` bits of its mantissa; so do both parts of a complex number.
//! - An integer keeps `keepbits` bits, counted from the highest bit that is set; so does a date or a span of time. In a
//!   negative number, the highest set bit is the sign, so negative numbers near zero lose most of their bits. A number
//!   that would leave the type or change its sign is rounded down.
//!
//! - Specification: <https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/bitround>,
//!   <https://numcodecs.readthedocs.io/en/stable/filter/bitround.html>
//! - Names: v3 `bitround`, `numcodecs.bitround`; v2 `bitround`. numcodecs' codec takes floats only.
//! - Compatible: zarr-python and numcodecs (floats); zarrs, which lets a positive integer become negative
//! - Native: everywhere; reading needs nothing, and writing rounds as a step of the tail.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "bitround", "configuration": {"keepbits": 10}});
//! # let spec = ChunkSpec::new(vec![4], DataType::Float64, FillValue::Element(vec![0; 8]));
//! # let bytes = Extension::from_json(&serde_json::json!({"name": "bytes", "configuration": {"endian": "little"}}), "codecs")?;
//! # Chain::from_extensions(&[Extension::from_json(&codec, "codecs")?, bytes], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```

use cuzarr_device::{DType, DTypeKind, ElementStep, SmallNumber};

use super::configuration::Configuration;
use super::elements::{Stepped, is_float};
use super::open::{Opened, Request};
use crate::Result;

/// Opens the codec `bitround` from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let configuration = Configuration::new(request.name, request.configuration, &["keepbits"])?;
    let dtype = request.spec.dtype()?;
    let is_numcodecs = request.zarr_format == 2 || request.name == "numcodecs.bitround";
    if is_numcodecs && !is_float(dtype) {
        return Err(configuration.invalid(format!("takes floats, got {dtype}")));
    }
    if configuration.get("keepbits").is_none() {
        return Err(configuration.invalid("'keepbits' is missing"));
    }
    let round = match (dtype.kind(), mantissa_bits(dtype)) {
        (_, Some(mantissa)) => {
            let kept = configuration.integer("keepbits", 0..=mantissa, 0)?;
            (kept < mantissa).then_some(ElementStep::RoundBits { dtype, dropped_bits: (mantissa - kept) as u32 })
        }
        (DTypeKind::Int | DTypeKind::UInt, _) => {
            let kept = configuration.integer("keepbits", 1..=i64::from(u32::MAX), 1)?;
            let width = 8 * dtype.size_bytes() as i64;
            (kept < width).then_some(ElementStep::RoundInteger { dtype, kept_bits: kept as u32 })
        }
        _ => return Err(configuration.invalid(format!("takes numbers and times, got {dtype}"))),
    };
    Ok(Opened::array(Stepped {
        name: "bitround",
        decoded: dtype,
        encoded_dtype: dtype,
        encoded: request.spec.clone(),
        read: Vec::new(),
        write: round.into_iter().collect(),
    }))
}

/// Stored bits of a float's mantissa, or of the mantissa of either part of a complex number.
fn mantissa_bits(dtype: DType) -> Option<i64> {
    match (dtype.kind(), dtype.swap_unit_bytes()) {
        _ if dtype == DType::small(SmallNumber::ComplexFloat16) => Some(10),
        _ if dtype == DType::small(SmallNumber::ComplexBFloat16) => Some(7),
        (DTypeKind::BFloat, _) => Some(7),
        (DTypeKind::Float, 2) => Some(10),
        (DTypeKind::Float | DTypeKind::Complex, 4) => Some(23),
        (DTypeKind::Float | DTypeKind::Complex, _) => Some(52),
        _ => None,
    }
}
