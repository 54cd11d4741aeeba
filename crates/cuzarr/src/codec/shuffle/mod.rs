//! # `numcodecs.shuffle`: shuffles the bytes of elements, so that they compress well
//!
//! Byte shuffle: the first bytes of all elements, then their second bytes, and so on.
//!
//! - Specification: <https://numcodecs.readthedocs.io/en/stable/filter/shuffle.html>
//! - Names: v3 `numcodecs.shuffle`, `shuffle`; v2 `shuffle`
//! - Compatible: zarr-python, numcodecs, zarrs
//! - Native: everywhere; as the packing of the tail when it is the first codec after the array→bytes codec, otherwise as
//!   a pass of its own.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}});
//! # let spec = ChunkSpec::new(vec![4], DataType::UInt8, FillValue::Element(vec![0]));
//! # Chain::from_extensions(&[Extension::new("bytes", Default::default()), Extension::from_json(&codec, "codecs")?], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```

mod cpu;

use super::configuration::Configuration;
use super::open::{Opened, Request};
use crate::Result;

/// Opens the codec `shuffle` from its configuration in the metadata. Without `elementsize`, a v3 codec takes the size
/// of the array's elements, a v2 filter numcodecs' default of 4.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let configuration = Configuration::new(request.name, request.configuration, &["elementsize"])?;
    let default = if request.zarr_format == 2 { 4 } else { request.element_bytes.unwrap_or(4) as i64 };
    let unit_bytes = configuration.integer("elementsize", 0..=i32::MAX.into(), default)?.max(1) as usize;
    if let Some(bytes) = request.decoded.bound().filter(|bytes| bytes % unit_bytes as u64 != 0) {
        let message = format!("'elementsize' {unit_bytes} does not divide the chunk's {bytes} bytes");
        return Err(configuration.invalid(message));
    }
    Ok(Opened::bytes(cpu::Shuffle { unit_bytes }))
}
