//! # `numcodecs.packbits`: stores booleans as bits
//!
//! Booleans as bits, most significant first. The byte before them says how many bits of the last byte are padding.
//!
//! - Specification: <https://numcodecs.readthedocs.io/en/stable/filter/packbits.html>
//! - Names: v3 `numcodecs.packbits`; v2 `packbits`. zarr-extensions' `packbits`, which packs numbers of any width from arrays to
//!   bytes, is another codec (`registered.rs`), with kernels of its own (`cuzarr_device::internal::bits`).
//! - Compatible: zarr-python, numcodecs
//! - Native: everywhere, as the packing of the tail, if no other codec of whole chunks stands before it. A pass before the
//!   tail checks the first byte.
//!
//! ```
//! # use cuzarr::codec::ChunkSpec;
//! # use cuzarr::internal::codec::Chain;
//! # use cuzarr::meta::{DataType, Extension, FillValue};
//! let codec = serde_json::json!({"name": "numcodecs.packbits"});
//! # let spec = ChunkSpec::new(vec![4], DataType::Bool, FillValue::Element(vec![0]));
//! # Chain::from_extensions(&[Extension::from_json(&codec, "codecs")?, Extension::new("bytes", Default::default())], spec)?;
//! # Ok::<(), cuzarr::Error>(())
//! ```

mod cpu;
pub(crate) mod registered;

use super::ChunkSpec;
use super::configuration::Configuration;
use super::open::{Opened, Request};
use super::step::PackedBits;
use crate::Result;
use crate::meta::{DataType, FillValue};

pub(crate) const NAME: &str = "numcodecs.packbits";

/// Opens the codec `packbits` from its configuration in the metadata.
pub(crate) fn open(request: &Request<'_>) -> Result<Opened> {
    let configuration = Configuration::new(request.name, request.configuration, &[])?;
    let spec = request.spec;
    if *spec.data_type != DataType::Bool {
        return Err(configuration.invalid(format!("takes bool, got {:?}", spec.data_type)));
    }
    let header = PackedBits::of(spec.size_bytes()?);
    let encoded = ChunkSpec::new(vec![1 + header.bits_bytes as u64], DataType::UInt8, FillValue::Element(vec![0]));
    Ok(Opened::array(cpu::PackBits { header, encoded }))
}
