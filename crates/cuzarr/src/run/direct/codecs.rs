//! The codecs of a decoder or an encoder, given by name or taken from an array.

use cuzarr_device::DType;
use serde_json::Value;

use crate::codec::{Chain, ChunkSpec};
use crate::error::{Error, ErrorKind, Result};
use crate::meta::{DataType, Extension, FillValue};

/// The codecs of an encoder or decoder, from which it makes a codec chain for each shape and type of chunks.
#[derive(Clone, Debug)]
pub(super) enum Codecs {
    /// Codecs as they are written in Zarr v3 metadata, for chunks of any shape and type.
    Named(Vec<Extension>),
    /// The codecs of one array, for the chunks of that array.
    Of(Box<Chain>),
}

impl Codecs {
    /// Parses codecs in the form of Zarr v3 metadata: one codec, or a list in the order of encoding.
    ///
    /// # Errors
    /// `MetadataInvalid` for JSON that is not a codec.
    pub(super) fn named(codecs: &Value) -> Result<Codecs> {
        let one = std::slice::from_ref(codecs);
        let codecs = codecs.as_array().map_or(one, Vec::as_slice).iter();
        let codecs: Result<Vec<_>> = codecs.map(|codec| Extension::from_json(codec, "codecs")).collect();
        Ok(Codecs::Named(codecs?))
    }

    /// Makes the codec chain for chunks of this shape and type. `what` says in an error what these chunks are to the
    /// caller.
    ///
    /// # Errors
    /// `ShapeMismatch` when the array has other chunks; errors of the codecs.
    pub(super) fn chain(&self, shape: &[usize], dtype: DType, what: &str) -> Result<Chain> {
        let shape: Vec<u64> = shape.iter().map(|&extent| extent as u64).collect();
        match self {
            Codecs::Named(codecs) => {
                let data_type = DataType::try_from(dtype)?;
                let fill_value = FillValue::default_of(&data_type);
                Chain::from_codecs(codecs, ChunkSpec::new(shape, data_type, fill_value))
            }
            Codecs::Of(chain) => {
                let (expected, element) = (&chain.spec().shape, chain.bind(cuzarr_device::Device::Cpu)?.tail().dtype);
                if shape != *expected || dtype != element {
                    let message =
                        format!("got an {what} of {dtype} {shape:?}, expected a chunk's {element} {expected:?}");
                    return Err(Error::new(ErrorKind::ShapeMismatch, message));
                }
                Ok((**chain).clone())
            }
        }
    }
}
