//! Builds the codec chain of an array from its metadata.

use super::chain::Chain;
use super::{ChunkSpec, v2};
use crate::Result;
use crate::meta::{ArrayMetadata, CodecsMetadata};

impl Chain {
    /// Makes the chain of codecs by which the chunks of an array are stored. For format 2, the chain consists of the
    /// order, the filters, the byte order and the compressor. For a rectilinear grid, it is the chain of the largest
    /// chunk.
    ///
    /// # Errors
    /// `UnknownCodec`, or `MetadataInvalid` and `UnsupportedFeature` naming the codec.
    pub fn new(metadata: &ArrayMetadata) -> Result<Chain> {
        Chain::for_chunks(metadata, metadata.chunk_grid().chunk_shape().to_vec())
    }

    /// Like [`Chain::new`], but for decoded chunks of another shape.
    ///
    /// # Errors
    /// Those of [`Chain::new`].
    pub(crate) fn for_chunks(metadata: &ArrayMetadata, shape: Vec<u64>) -> Result<Chain> {
        let spec = ChunkSpec::new(shape, metadata.data_type().clone(), metadata.fill_value().clone());
        match metadata.codecs() {
            CodecsMetadata::V3(codecs) => Chain::from_extensions(codecs, spec),
            CodecsMetadata::V2 { .. } => v2::chain(metadata.codecs(), spec),
        }
    }
}
