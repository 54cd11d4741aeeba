//! The outline of an array: its extents and chunks, without checks of anything else.

use serde_json::{Map, Value};

use super::array::{ArrayMetadata, CodecsMetadata};
use super::extension::Extension;
use super::grid::ChunkGrid;

/// The shape, chunks and dimension names of an array. It also exists for an array whose data type or codecs are
/// unknown.
///
/// ```
/// use cuzarr::meta::{Documents, NodeDocuments};
/// let zarray = br#"{"zarr_format": 2, "shape": [4, 6], "chunks": [2, 6], "dtype": "unheard_of"}"#;
/// let found = NodeDocuments::parse(&Documents { zarray: Some(zarray), ..Documents::default() })?.unwrap();
/// let outline = found.outline()?;
/// assert_eq!((outline.shape, outline.chunk_grid.chunk_shape()), (vec![4, 6], &[2, 6][..]));
/// # Ok::<(), cuzarr::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Outline {
    /// The shape of the array: its length along each dimension.
    pub shape: Vec<u64>,
    /// The grid of chunks (of shards, if the array has them).
    pub chunk_grid: ChunkGrid,
    /// The shape of the chunks inside a shard, if sharding is the only codec.
    pub inner_chunk_shape: Option<Vec<u64>>,
    /// Names of the dimensions, one for each; `None` if there are none.
    pub dimension_names: Option<Vec<Option<String>>>,
    /// Whether the stored chunk shape has zeros, which the grid replaces.
    pub(super) is_repaired: bool,
    /// The user's attributes, for a v3 array only.
    pub(super) attributes: Map<String, Value>,
}

impl From<&ArrayMetadata> for Outline {
    fn from(metadata: &ArrayMetadata) -> Outline {
        let inner_chunk_shape = match metadata.codecs() {
            CodecsMetadata::V3(codecs) if codecs.len() == 1 => Extension::inner_chunk_shape(codecs),
            _ => None,
        };
        Outline {
            shape: metadata.shape().to_vec(),
            chunk_grid: metadata.chunk_grid().clone(),
            inner_chunk_shape,
            dimension_names: metadata.dimension_names().map(<[_]>::to_vec),
            is_repaired: false, // by now
            attributes: metadata.attributes().clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Documents, NodeDocuments};
    use super::*;
    use crate::{ErrorKind, Result};

    fn outline(members: &str) -> Result<Outline> {
        let text = format!(r#"{{"zarr_format": 3, "node_type": "array", "data_type": "unheard_of", {members}}}"#);
        let found = NodeDocuments::parse(&Documents { zarr_json: Some(text.as_bytes()), ..Documents::default() });
        found?.expect("a document").outline()
    }

    const GRID: &str =
        r#""shape": [0, 6], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0, 6]}}"#;

    #[test]
    fn an_unknown_data_type_does_not_matter() {
        let found = outline(&format!(r#"{GRID}, "dimension_names": ["y", null]"#)).unwrap();
        assert_eq!((found.shape, found.chunk_grid.chunk_shape()), (vec![0, 6], &[1, 6][..]));
        assert_eq!((found.inner_chunk_shape, found.is_repaired), (None, true));
        assert_eq!(found.dimension_names, Some(vec![Some("y".into()), None]));
    }

    #[test]
    fn chunks_inside_of_shards_are_known_where_sharding_is_the_whole_chain() {
        let sharding = r#"{"name": "sharding_indexed", "configuration": {"chunk_shape": [3, 2]}}"#;
        let of = |codecs: &str| outline(&format!(r#"{GRID}, "codecs": [{codecs}]"#)).unwrap().inner_chunk_shape;
        assert_eq!(of(sharding), Some(vec![3, 2]));
        assert_eq!(of(&format!(r#"{sharding}, {{"name": "crc32c"}}"#)), None);
    }

    #[test]
    fn what_the_outline_is_made_of_is_checked() {
        for wrong in [
            r#""shape": [-1]"#.to_owned(),
            r#""shape": [4], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 2]}}"#.to_owned(),
            format!(r#"{GRID}, "dimension_names": ["x"]"#),
            format!(r#"{GRID}, "attributes": 3"#),
        ] {
            assert_eq!(outline(&wrong).unwrap_err().kind(), ErrorKind::MetadataInvalid, "{wrong}");
        }
    }
}
