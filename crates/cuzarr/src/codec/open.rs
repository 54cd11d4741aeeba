//! Opening a codec: what it gets from metadata, and what it becomes.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::host::{ArrayToArray, ArrayToBytes, BytesToBytes, VariableToBytes};
use super::size::Size;
use super::spec::ChunkSpec;
use crate::Result;

/// The name, the configuration and the surroundings that a codec is opened with.
pub(crate) struct Request<'a> {
    /// The codec's name as metadata spells it.
    pub(crate) name: &'a str,
    pub(crate) configuration: &'a Map<String, Value>,
    pub(crate) zarr_format: u8,
    /// The array before this codec; behind the array→bytes codec the array that was before that one.
    pub(crate) spec: &'a ChunkSpec,
    /// How many bytes reach this codec.
    pub(crate) decoded: Size,
    /// Bytes of an element of the array, where they are equal.
    pub(crate) element_bytes: Option<usize>,
}

/// An opened codec.
#[derive(Clone, Debug)]
pub(crate) enum Opened {
    Array(Arc<dyn ArrayToArray>),
    Serializer(Arc<dyn ArrayToBytes>),
    Variable(Arc<dyn VariableToBytes>),
    Bytes(Arc<dyn BytesToBytes>),
}

/// Opens a codec that another one holds.
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
