//! Opening a codec: the request made from metadata, and the opened codec.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::host::{ArrayToArray, ArrayToBytes, BytesToBytes, VariableToBytes};
use super::size::Size;
use super::spec::ChunkSpec;
use crate::Result;

/// The input for opening a codec: its name, its configuration and the data that it encodes.
pub(crate) struct Request<'a> {
    /// The codec's name as metadata spells it.
    pub(crate) name: &'a str,
    pub(crate) configuration: &'a Map<String, Value>,
    pub(crate) zarr_format: u8,
    /// The shape, data type and fill value of the array that this codec encodes. For a bytes→bytes codec, the array
    /// before the array→bytes codec.
    pub(crate) spec: &'a ChunkSpec,
    /// The size of the bytes that this codec encodes, as far as it is known.
    pub(crate) decoded: Size,
    /// Bytes of an element of the array; `None` for variable length.
    pub(crate) element_bytes: Option<usize>,
}

/// An opened codec, by kind: array→array, array→bytes (for elements of fixed or variable length), or bytes→bytes.
#[derive(Clone, Debug)]
pub(crate) enum Opened {
    Array(Arc<dyn ArrayToArray>),
    Serializer(Arc<dyn ArrayToBytes>),
    Variable(Arc<dyn VariableToBytes>),
    Bytes(Arc<dyn BytesToBytes>),
}

/// A function by which a codec opens the codecs inside it.
pub(crate) type OpenCodec<'a> = &'a dyn Fn(&Request<'_>) -> Result<Opened>;

impl Opened {
    pub(crate) fn bytes(codec: impl BytesToBytes + 'static) -> Opened {
        Opened::Bytes(Arc::new(codec))
    }

    pub(crate) fn array(codec: impl ArrayToArray + 'static) -> Opened {
        Opened::Array(Arc::new(codec))
    }

    pub(crate) fn serializer(codec: impl ArrayToBytes + 'static) -> Opened {
        Opened::Serializer(Arc::new(codec))
    }
}
