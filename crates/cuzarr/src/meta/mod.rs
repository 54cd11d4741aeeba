//! Zarr v2 and v3 metadata of arrays and groups: parsing, checking, editing and writing documents. This module does no
//! I/O and uses no device.
//!
//! ```
//! use cuzarr::meta::{ArrayMetadata, DataType, FillValue};
//! # fn main() -> cuzarr::Result<()> {
//! let mut array = ArrayMetadata::from_json(
//!     br#"{
//!         "zarr_format": 3, "node_type": "array", "shape": [10, 20], "data_type": "float32",
//!         "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [5, 8]}},
//!         "chunk_key_encoding": {"name": "default"}, "fill_value": "NaN", "codecs": ["bytes"],
//!         "note": {"must_understand": false}
//!     }"#,
//! )?;
//! assert_eq!(array.data_type(), &DataType::Float32);
//! assert_eq!(array.chunk_grid().chunk_counts(array.shape())?, [2, 3]);
//! assert_eq!(array.chunk_key_encoding().key(&[1, 2]), "c/1/2");
//! assert_eq!(array.fill_value(), &FillValue::Element(f32::NAN.to_le_bytes().to_vec()));
//! array.set_shape(vec![12, 20])?;
//! assert!(String::from_utf8_lossy(&array.to_json()).contains("note"));
//! # Ok(())
//! # }
//! ```
//!
//! - A document is kept as its author wrote it (order of members, spelling of numbers, unknown members), and setters
//!   edit it in place. [`ArrayMetadata::documents`] returns what to store, and under which names.
//! - Every error names the member, the value found and what was expected, as [`ErrorKind::MetadataInvalid`],
//!   [`ErrorKind::UnsupportedFeature`] or [`ErrorKind::UnknownDataType`].
//! - Codecs are only parsed into names and configurations here. The codec chain interprets them.
//!
//! Specifications: <https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html>,
//! <https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html>. Where they leave something open, we follow zarr-python
//! 3.4.

mod array;
mod cf;
mod chunk_key;
pub(crate) mod chunking;
mod documents;
mod dtype;
pub(crate) mod encoding;
mod extension;
mod fill;
mod grid;
mod group;
mod json;
mod multiscales;
mod names;
pub(crate) mod node;
mod outline;
mod parsing;
mod rectilinear;
mod small_float;
mod times;
mod v2;
mod v3;
mod xarray;

#[cfg(test)]
mod golden_tests;

pub use array::{ArrayMetadata, CodecsMetadata, NewArray, Order};
pub use cf::{Decoding, Mark};
pub use chunk_key::{ChunkKeyEncoding, Separator};
pub use documents::consolidated::{Consolidated, EntryChange, edit_consolidated};
pub use documents::{Documents, NodeDocuments};
pub use dtype::{DataType, Endian, Field, SwapUnit, TimeUnit};
pub use extension::Extension;
pub use fill::FillValue;
pub use grid::{ChunkGrid, RegularGrid};
pub use group::GroupMetadata;
pub(crate) use json::abbreviate;
pub use json::{Json, Object};
pub use multiscales::{
    CoordinateSystems, IMAGE_LABELS, ImageAxis, ImageLevel, MultiscaleConvention, Multiscales, label_names,
};
pub use node::NodeMetadata;
pub use outline::Outline;
pub use rectilinear::{Edges, RectilinearGrid, Run};
pub use times::TimeScale;
pub use xarray::{Translated, translate};

use serde_json::{Map, Value};

use crate::{Error, ErrorKind, Result};

/// The version of the Zarr storage format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ZarrFormat {
    /// Zarr format 2, with the documents `.zarray`, `.zgroup` and `.zattrs`.
    V2,
    /// Zarr format 3, with the document `zarr.json`.
    V3,
}

impl ZarrFormat {
    /// The format as a number: 2 or 3.
    pub const fn number(self) -> u8 {
        match self {
            ZarrFormat::V2 => 2,
            ZarrFormat::V3 => 3,
        }
    }
}

/// The error for a member of a metadata document that breaks its specification.
pub(crate) fn invalid(member: &str, got: &Value, expected: &str) -> Error {
    Error::new(
        ErrorKind::MetadataInvalid,
        format!("member '{member}': got {}, expected {expected}", json::abbreviate(got)),
    )
}

/// Returns a member of a document, or an error if it is missing.
pub(crate) fn required<'a>(document: &'a Map<String, Value>, member: &str) -> Result<&'a Value> {
    document.get(member).ok_or_else(|| Error::new(ErrorKind::MetadataInvalid, format!("member '{member}' is missing")))
}

/// Checks that the document's `zarr_format` is `expected`.
pub(crate) fn check_format(document: &Map<String, Value>, expected: ZarrFormat) -> Result<()> {
    let got = required(document, "zarr_format")?;
    if got.as_u64() == Some(u64::from(expected.number())) {
        return Ok(());
    }
    Err(invalid("zarr_format", got, &expected.number().to_string()))
}

/// Maximum number of dimensions of an array, as in NumPy 2; arrays with more are refused.
pub const MAX_NDIM: usize = 64;
/// Largest length of a dimension of an array; arrays with longer dimensions are refused. Python's lengths and NumPy's
/// indices are limited to it, so a larger array could be opened but not indexed.
pub const MAX_EXTENT: u64 = i64::MAX as u64;

/// Parses a shape: a list of non-negative integers.
pub(crate) fn parse_shape(value: &Value, member: &str) -> Result<Vec<u64>> {
    let Value::Array(elements) = value else {
        return Err(invalid(member, value, "an array of non-negative integers"));
    };
    check_ndim(elements.len(), member)?;
    let expected = format!("an array of integers from 0 to {MAX_EXTENT}");
    let extent = |element: &Value| element.as_u64().filter(|&extent| extent <= MAX_EXTENT);
    elements.iter().map(|element| extent(element).ok_or_else(|| invalid(member, value, &expected))).collect()
}

/// Refuses more dimensions than an array can have.
fn check_ndim(ndim: usize, member: &str) -> Result<()> {
    if ndim <= MAX_NDIM {
        return Ok(());
    }
    let message = format!("member '{member}': got {ndim} dimensions, expected at most {MAX_NDIM}");
    Err(Error::new(ErrorKind::UnsupportedFeature, message))
}

/// Refuses a shape with too many dimensions or too long ones.
pub(crate) fn check_shape(shape: &[u64], member: &str) -> Result<()> {
    check_ndim(shape.len(), member)?;
    match shape.iter().find(|&&extent| extent > MAX_EXTENT) {
        None => Ok(()),
        Some(extent) => Err(invalid(member, &Value::from(*extent), &format!("extents of at most {MAX_EXTENT}"))),
    }
}
