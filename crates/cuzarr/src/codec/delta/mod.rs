//! # `numcodecs.delta`: stores differences between neighbouring elements
//!
//! Stores the first element, then differences between neighbours in C order, optionally in a smaller type.
//!
//! - Specification: <https://numcodecs.readthedocs.io/en/stable/filter/delta.html>
//! - Names: v3 `numcodecs.delta`, `delta`; v2 `delta`
//! - Compatible: zarr-python, numcodecs
//! - Native: everywhere, as a pass of its own: integers by a scan, floats one after the other, because the order decides how
//!   they round. A device that encodes chunks takes the differences, too.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "numcodecs.delta", "configuration": {"dtype": "<i4", "astype": "<i2"}});
//! # let spec = ChunkSpec::new(vec![4], DataType::Int32, FillValue::Element(vec![0; 4]));
//! # let bytes = Extension::from_json(&serde_json::json!({"name": "bytes", "configuration": {"endian": "little"}}), "codecs")?;
//! # Chain::from_extensions(&[Extension::from_json(&codec, "codecs")?, bytes], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```
//!
//! Integers wrap. Differences are taken in the decoded type, and are then converted to the encoded one. Sums are taken
//! one after the other, in the type that NumPy promotes both to. They are then converted to the decoded type. numcodecs
//! does the same by `numpy.cumsum`. So floats whose differences are stored as wider floats are rounded once, after the
//! sum.

mod cpu;

use cuzarr_device::internal::cpu::cast::is_supported;
use cuzarr_device::{DType, DTypeKind};

use super::configuration::Configuration;
use super::elements::{input_dtype, is_float, is_real, output_spec};
use super::open::{Opened, Request};
use crate::Result;

/// Opens the codec `delta` from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let configuration = Configuration::new(request.name, request.configuration, &["dtype", "astype"])?;
    let decoded = input_dtype(&configuration, request, "dtype")?;
    let encoded_dtype = configuration.numpy_dtype("astype")?.map_or(decoded, |view| view.dtype);
    if !is_real(decoded) || !is_supported(encoded_dtype, decoded) {
        return Err(configuration.invalid(format!("takes integers and floats, got {decoded} and {encoded_dtype}")));
    }
    let encoded = output_spec(request.spec, encoded_dtype)?;
    let sum = sum_dtype(decoded, encoded_dtype);
    Ok(Opened::array(cpu::Delta { decoded, encoded_dtype, sum, encoded }))
}

/// The type in which differences are summed: the one that NumPy promotes both types to. Sums of integers are taken in the decoded
/// type where they wrap to the same bits. Only the real parts of complex numbers count.
fn sum_dtype(decoded: DType, encoded: DType) -> DType {
    let encoded = match encoded.kind() {
        DTypeKind::Complex if encoded.size_bytes() == 8 => DType::FLOAT32,
        DTypeKind::Complex => DType::FLOAT64,
        _ => encoded,
    };
    let wider = |a: DType, b: DType| if a.size_bytes() < b.size_bytes() { b } else { a };
    // The float type to which NumPy promotes `float` and an integer type.
    let with_integer = |float: DType, integer: DType| match integer.size_bytes() {
        1 => float,
        2 => wider(DType::FLOAT32, float),
        _ => DType::FLOAT64,
    };
    match (is_float(decoded), is_float(encoded)) {
        (true, true) if decoded != encoded && decoded.size_bytes() == encoded.size_bytes() => DType::FLOAT32,
        (true, true) => wider(decoded, encoded),
        (true, false) => with_integer(decoded, encoded),
        (false, true) => with_integer(encoded, decoded),
        (false, false) => {
            let is_widest = |dtype: DType| dtype == DType::UINT64;
            let is_signed = |dtype: DType| dtype.kind() == DTypeKind::Int;
            let has_no_common =
                (is_widest(decoded) && is_signed(encoded)) || (is_signed(decoded) && is_widest(encoded));
            if has_no_common { DType::FLOAT64 } else { decoded }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deltas are summed in the type of `numpy.promote_types` for the decoded and the encoded type. Only integers are
    /// summed in the decoded type where this gives the same bits.
    #[test]
    fn sums_are_taken_in_numpys_common_type() {
        for (decoded, encoded, expected) in [
            (DType::FLOAT32, DType::FLOAT64, DType::FLOAT64),
            (DType::FLOAT64, DType::FLOAT32, DType::FLOAT64),
            (DType::FLOAT16, DType::FLOAT32, DType::FLOAT32),
            (DType::FLOAT16, DType::INT8, DType::FLOAT16),
            (DType::FLOAT16, DType::UINT16, DType::FLOAT32),
            (DType::FLOAT32, DType::INT32, DType::FLOAT64),
            (DType::FLOAT32, DType::BOOL, DType::FLOAT32),
            (DType::INT8, DType::FLOAT16, DType::FLOAT16),
            (DType::INT32, DType::FLOAT32, DType::FLOAT64),
            (DType::INT16, DType::COMPLEX64, DType::FLOAT32),
            (DType::FLOAT32, DType::COMPLEX128, DType::FLOAT64),
            (DType::INT32, DType::INT64, DType::INT32),
            (DType::UINT64, DType::UINT8, DType::UINT64),
            (DType::UINT64, DType::INT8, DType::FLOAT64),
            (DType::INT32, DType::UINT64, DType::FLOAT64),
            (DType::BFLOAT16, DType::FLOAT16, DType::FLOAT32),
        ] {
            assert_eq!(sum_dtype(decoded, encoded), expected, "{decoded} stored as {encoded}");
        }
    }
}
