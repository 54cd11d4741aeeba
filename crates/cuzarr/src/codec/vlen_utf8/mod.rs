//! # `vlen-utf8`: encodes strings of any length
//!
//! Strings in UTF-8: first their number, then the size and the bytes of each string.
//!
//! - Specification: <https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/vlen-utf8>
//! - Names: v3 `vlen-utf8`, `numcodecs.vlen-utf8`; v2 `vlen-utf8`, as the first filter or the compressor of dtype `|O`
//! - Compatible: zarr-python, numcodecs, zarrs
//! - Native: cpu. Elements of variable length live in host memory only.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "vlen-utf8"});
//! # let spec = ChunkSpec::new(vec![4], DataType::VariableString, FillValue::Element(vec![]));
//! # Chain::from_extensions(&[Extension::from_json(&codec, "codecs")?], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```

use std::sync::Arc;

use super::configuration::Configuration;
use super::open::{Opened, Request};
use super::vlen::VLen;
use crate::Result;
use crate::meta::DataType;

/// Opens the codec `vlen_utf8` from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let configuration = Configuration::new(request.name, request.configuration, &[])?;
    match *request.spec.data_type {
        DataType::VariableString => Ok(Opened::Variable(Arc::new(VLen { name: "vlen-utf8", text: true }))),
        ref other => Err(configuration.invalid(format!("takes elements of variable length, got {other:?}"))),
    }
}
