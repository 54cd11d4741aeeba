//! # `transpose`: reorders the dimensions of chunks
//!
//! Reorders dimensions: dimension `i` of the encoded array is dimension `order[i]` of the decoded one.
//!
//! - Specification: <https://zarr-specs.readthedocs.io/en/latest/v3/codecs/transpose/index.html>
//! - Names: v3 `transpose`, also with `order` `"C"` or `"F"` as early writers made it; v2's `order: F` is opened as this
//! - Compatible: zarr-python, zarrs, tensorstore
//! - Native: everywhere, as the strides of the scatter.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "transpose", "configuration": {"order": [1, 0]}});
//! # let spec = ChunkSpec::new(vec![4, 2], DataType::UInt8, FillValue::Element(vec![0]));
//! # Chain::from_extensions(&[Extension::from_json(&codec, "codecs")?, Extension::new("bytes", Default::default())], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```

mod cpu;

use serde_json::Value;

use super::ChunkSpec;
use super::configuration::Configuration;
use super::open::{Opened, Request};
use crate::Result;

/// Opens the codec `transpose` from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let configuration = Configuration::new(request.name, request.configuration, &["order"])?;
    let ndim = request.spec.shape.len();
    let order: Vec<usize> = match configuration.get("order") {
        Some(Value::String(text)) if text == "C" => (0..ndim).collect(),
        Some(Value::String(text)) if text == "F" => (0..ndim).rev().collect(),
        _ => configuration
            .extents("order")?
            .into_iter()
            .map(|axis| usize::try_from(axis).unwrap_or(usize::MAX))
            .collect(),
    };
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if sorted != (0..ndim).collect::<Vec<_>>() {
        return Err(configuration.invalid(format!("'order' is {order:?}, expected a permutation of {ndim} dimensions")));
    }
    Ok(open_axes(request.spec, order))
}

/// Opens a `transpose` codec with the order `axes`, which must be a permutation.
pub(crate) fn open_axes(spec: &ChunkSpec, axes: Vec<usize>) -> Opened {
    let shape = axes.iter().map(|&axis| spec.shape[axis]).collect();
    let encoded = ChunkSpec { shape, ..spec.clone() };
    Opened::array(cpu::Transpose { decoded_shape: spec.shape.clone(), axes, encoded })
}
