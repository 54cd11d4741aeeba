//! # `numcodecs.quantize`: rounds floats when they are written
//!
//! Writing rounds floats to multiples of a power of two that keep `digits` decimal digits. Reading does not round.
//!
//! - Specification: <https://numcodecs.readthedocs.io/en/stable/filter/quantize.html>
//! - Names: v3 `numcodecs.quantize`, `quantize`; v2 `quantize`
//! - Compatible: zarr-python, numcodecs
//! - Native: everywhere, as steps of the tail.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "numcodecs.quantize", "configuration": {"digits": 3, "dtype": "<f8"}});
//! # let spec = ChunkSpec::new(vec![4], DataType::Float64, FillValue::Element(vec![0; 8]));
//! # let bytes = Extension::from_json(&serde_json::json!({"name": "bytes", "configuration": {"endian": "little"}}), "codecs")?;
//! # Chain::from_extensions(&[Extension::from_json(&codec, "codecs")?, bytes], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```

use cuzarr_device::{Arithmetic, DTypeKind};
use serde_json::Number;

use super::configuration::Configuration;
use super::elements::{Stepped, arithmetic, cast_step, input_dtype, output_spec, round_step};
use super::open::{Opened, Request};
use crate::Result;

/// Opens the codec `quantize` from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let configuration = Configuration::new(request.name, request.configuration, &["digits", "dtype", "astype"])?;
    let decoded = input_dtype(&configuration, request, "dtype")?;
    let encoded_dtype = configuration.numpy_dtype("astype")?.map_or(decoded, |view| view.dtype);
    if decoded.kind() != DTypeKind::Float || encoded_dtype.kind() != DTypeKind::Float {
        return Err(configuration.invalid(format!("takes floats, got {decoded} and {encoded_dtype}")));
    }
    if configuration.get("digits").is_none() {
        return Err(configuration.invalid("'digits' is missing"));
    }
    let digits = configuration.integer("digits", -300..=300, 0)?;
    let scale =
        Number::from_f64(scale(digits)).ok_or_else(|| configuration.invalid(format!("{digits} digits do not fit")))?;
    let write = [
        Some(arithmetic(Arithmetic::Multiply, decoded, &scale)?),
        Some(round_step(decoded)),
        Some(arithmetic(Arithmetic::Divide, decoded, &scale)?),
        cast_step(decoded, encoded_dtype),
    ];
    let encoded = output_spec(request.spec, encoded_dtype)?;
    Ok(Opened::array(Stepped {
        name: "numcodecs.quantize",
        decoded,
        encoded_dtype,
        encoded,
        read: cast_step(encoded_dtype, decoded).into_iter().collect(),
        write: write.into_iter().flatten().collect(),
    }))
}

/// The power of two that numbers are multiplied by before they are rounded. It is computed in the same order as in
/// numcodecs.
fn scale(digits: i64) -> f64 {
    let exponent = 10f64.powf(-digits as f64).log10();
    let exponent = if exponent < 0.0 { exponent.floor() } else { exponent.ceil() };
    let bits = 10f64.powf(-exponent).log2().ceil();
    bits.exp2()
}

#[cfg(test)]
mod tests {
    #[test]
    fn scales_are_those_of_numcodecs() {
        let scales: Vec<f64> = (-2..6).map(super::scale).collect();
        assert_eq!(scales, [0.015625, 0.125, 1.0, 16.0, 128.0, 1024.0, 16384.0, 131072.0]);
    }
}
