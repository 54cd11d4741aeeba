//! Metadata of one array, of format 2 or 3. [`v2`](super::v2) and [`v3`](super::v3) parse and build the documents.

use serde_json::{Map, Value, json};

use super::chunk_key::ChunkKeyEncoding;
use super::dtype::{DataType, Endian};
use super::extension::Extension;
use super::fill::FillValue;
use super::grid::{ChunkGrid, RegularGrid, product};
use super::json::{Json, Object, object_from_map, object_to_map, object_to_text};
use super::rectilinear::RectilinearGrid;
use super::{ZarrFormat, check_shape, invalid, names};
use crate::{Error, ErrorKind, Result};

/// Order of the elements inside a v2 chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// C order: the last dimension varies fastest.
    C,
    /// F order: the first dimension varies fastest.
    F,
}

/// The codecs of an array, in the form of v3 or of v2 metadata.
#[derive(Clone, Debug, PartialEq)]
pub enum CodecsMetadata {
    /// The codecs of a v3 array, in order of encoding.
    V3(Vec<Extension>),
    /// The filters, compressor, order and byte order of a v2 array.
    V2 {
        /// The filters of a v2 array, in order of encoding. Each has an `id`.
        filters: Vec<Map<String, Value>>,
        /// The compressor of a v2 array, which is applied after the filters. It has an `id`.
        compressor: Option<Map<String, Value>>,
        /// Order of the elements inside a chunk.
        order: Order,
        /// Byte order of the elements of a v2 array, if the data type is plain. The fields of a structure have their
        /// own.
        endian: Endian,
    },
}

/// The settings of a new array's metadata; see [`ArrayMetadata::new`].
#[derive(Clone, Debug)]
pub struct NewArray {
    /// The shape of the array: its length along each dimension.
    pub shape: Vec<u64>,
    /// The data type of the array's elements.
    pub data_type: DataType,
    /// The data type as JSON for a v3 document, if it should be spelled differently from our own spelling. It must mean
    /// the same type.
    pub data_type_words: Option<Value>,
    /// Extents of one chunk (of one shard, if the codecs make shards).
    pub chunk_shape: Vec<u64>,
    /// Value of elements that were never written.
    pub fill_value: FillValue,
    /// The codecs, in the form of v3 or of v2 metadata. They also decide the format.
    pub codecs: CodecsMetadata,
    /// How the key of a chunk is made from its position in the chunk grid. `None` means `c/0/0` in v3, and `0.0` in v2.
    /// A v2 array can only have [`ChunkKeyEncoding::V2`].
    pub chunk_key_encoding: Option<ChunkKeyEncoding>,
    /// The attributes that the user gave the array, without Zarr's own metadata.
    pub attributes: Map<String, Value>,
    /// The names of the array's dimensions; only a v3 array can have any.
    pub dimension_names: Option<Vec<Option<String>>>,
}

impl NewArray {
    /// Makes settings with the default fill value and chunk keys, no attributes, and no names of dimensions.
    pub fn plain(shape: &[u64], data_type: DataType, chunk_shape: &[u64], codecs: CodecsMetadata) -> NewArray {
        NewArray {
            shape: shape.to_vec(),
            fill_value: FillValue::default_of(&data_type),
            data_type,
            data_type_words: None,
            chunk_shape: chunk_shape.to_vec(),
            codecs,
            chunk_key_encoding: None,
            attributes: Map::new(),
            dimension_names: None,
        }
    }
}

/// Checked metadata of one array, with the documents from which it was read.
#[derive(Clone, Debug)]
pub struct ArrayMetadata {
    pub(super) format: ZarrFormat,
    pub(super) shape: Vec<u64>,
    pub(super) data_type: DataType,
    pub(super) chunk_grid: ChunkGrid,
    pub(super) chunk_key_encoding: ChunkKeyEncoding,
    pub(super) fill_value: FillValue,
    pub(super) codecs: CodecsMetadata,
    pub(super) attributes: Map<String, Value>,
    pub(super) dimension_names: Option<Vec<Option<String>>>,
    /// The content of `zarr.json` or `.zarray` that will be stored.
    pub(super) document: Object,
    /// The content of `.zattrs` that will be stored; unused in v3.
    pub(super) zattrs: Object,
}

impl ArrayMetadata {
    /// The Zarr format of the array: v2 or v3.
    pub fn zarr_format(&self) -> ZarrFormat {
        self.format
    }

    /// The shape of the array: its length along each dimension.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Number of dimensions of the array.
    pub fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements; an error if it does not fit `u64`.
    pub fn elems(&self) -> Result<u64> {
        let message = || format!("member 'shape': got more elements than can be counted, {:?}", self.shape);
        product(&self.shape).ok_or_else(|| Error::new(ErrorKind::MetadataInvalid, message()))
    }

    /// The data type of the array's elements.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// The grid of chunks (of shards, if the array has them).
    pub fn chunk_grid(&self) -> &ChunkGrid {
        &self.chunk_grid
    }

    /// How the key of a chunk is made from its position in the chunk grid.
    pub fn chunk_key_encoding(&self) -> &ChunkKeyEncoding {
        &self.chunk_key_encoding
    }

    /// Value of elements that were never written.
    pub fn fill_value(&self) -> &FillValue {
        &self.fill_value
    }

    /// The codecs of the array, in the form of v3 or of v2 metadata.
    pub fn codecs(&self) -> &CodecsMetadata {
        &self.codecs
    }

    /// The attributes that the user gave the array, without Zarr's own metadata. Python writes numbers that are not
    /// finite as `NaN` and `Infinity`; they are strings here. [`attributes_json`](Self::attributes_json) returns them
    /// as they were written.
    pub fn attributes(&self) -> &Map<String, Value> {
        &self.attributes
    }

    /// The name of the unfinished work that writes this array, such as `store`.
    pub fn unfinished_work(&self) -> Option<&str> {
        names::unfinished_work(&self.attributes)
    }

    /// The user's attributes as JSON text. Numbers are spelled as they were written.
    pub fn attributes_json(&self) -> String {
        self.attribute_members().map_or_else(|| "{}".to_owned(), |members| object_to_text(members, None))
    }

    /// The user's attributes in their stored form, which keeps the spelling of numbers; `None` if there are none.
    pub(super) fn attribute_members(&self) -> Option<&Object> {
        match self.format {
            ZarrFormat::V2 => Some(&self.zattrs),
            ZarrFormat::V3 => attributes_member(&self.document),
        }
    }

    /// Names of the dimensions, one for each. v2 has none.
    pub fn dimension_names(&self) -> Option<&[Option<String>]> {
        self.dimension_names.as_deref()
    }

    /// Changes the array's shape, but not its number of dimensions. If a rectilinear grid ends before the new shape, it
    /// gets one more chunk.
    pub fn set_shape(&mut self, shape: Vec<u64>) -> Result<()> {
        if shape.len() != self.ndim() {
            return Err(Error::new(
                ErrorKind::ShapeMismatch,
                format!("new shape: got {} dimensions, expected {}", shape.len(), self.ndim()),
            ));
        }
        check_shape(&shape, "shape")?;
        if let Some(grid) = self.chunk_grid.rectilinear() {
            let inner = match &self.codecs {
                CodecsMetadata::V3(codecs) => Extension::inner_chunk_shape(codecs),
                CodecsMetadata::V2 { .. } => None,
            };
            let grid = check_rectilinear(grid.grown(&shape, inner.as_deref()), &shape, inner.as_deref())?;
            grid.chunk_size_bytes(self.data_type.size_bytes().unwrap_or(1))?;
            if grid != self.chunk_grid {
                self.set_chunk_grid(grid)?;
            }
        }
        self.document.insert("shape".into(), Json::from_value(&json!(shape))?);
        self.shape = shape;
        Ok(())
    }

    fn set_chunk_grid(&mut self, grid: ChunkGrid) -> Result<()> {
        self.document.insert("chunk_grid".into(), Json::from_value(&grid.to_json())?);
        self.chunk_grid = grid;
        Ok(())
    }

    /// Replaces the chunk grid of a v3 array with a rectilinear one.
    ///
    /// # Errors
    /// `InvalidArgument` for a v2 array; `MetadataInvalid` when the grid does not cover the shape, or its chunks are
    /// not multiples of the chunks inside shards.
    pub fn set_rectilinear_grid(&mut self, grid: RectilinearGrid) -> Result<()> {
        let CodecsMetadata::V3(codecs) = &self.codecs else {
            return Err(Error::new(ErrorKind::InvalidArgument, "Zarr v2 arrays have no rectilinear chunk grid"));
        };
        let grid = check_rectilinear(grid, &self.shape, Extension::inner_chunk_shape(codecs).as_deref())?;
        grid.chunk_size_bytes(self.data_type.size_bytes().unwrap_or(1))?;
        self.set_chunk_grid(grid)
    }

    /// Replaces the dimension names of a v3 array.
    pub fn set_dimension_names(&mut self, names: Vec<Option<String>>) -> Result<()> {
        if self.format == ZarrFormat::V2 || names.len() != self.ndim() {
            let message = format!("dimension names {names:?}: expected {} of a v3 array", self.ndim());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        self.document.insert("dimension_names".into(), Json::from_value(&json!(names))?);
        self.dimension_names = Some(names);
        Ok(())
    }

    /// Replaces all attributes of the array.
    pub fn set_attributes(&mut self, attributes: Map<String, Value>) -> Result<()> {
        self.replace_attributes(object_from_map(&attributes)?);
        Ok(())
    }

    /// Replaces all attributes of the array with the members of the JSON object in `text`. Numbers keep their spelling,
    /// including `NaN`.
    pub fn set_attributes_json(&mut self, text: &str) -> Result<()> {
        self.replace_attributes(Json::parse_object(text.as_bytes())?);
        Ok(())
    }

    pub(super) fn replace_attributes(&mut self, attributes: Object) {
        self.attributes = object_to_map(&attributes);
        match self.format {
            ZarrFormat::V2 => self.zattrs = attributes,
            ZarrFormat::V3 => drop(self.document.insert("attributes".into(), Json::Object(attributes))),
        }
    }

    /// The bytes of `zarr.json` or `.zarray`, with the layout of zarr-python.
    pub fn to_json(&self) -> Vec<u8> {
        to_bytes(&self.document)
    }

    /// Every document to store: its name below the array's path, and its bytes.
    pub fn documents(&self) -> Vec<(&'static str, Vec<u8>)> {
        match self.format {
            ZarrFormat::V2 => vec![(names::ZARRAY, self.to_json()), (names::ZATTRS, to_bytes(&self.zattrs))],
            ZarrFormat::V3 => vec![(names::ZARR_JSON, self.to_json())],
        }
    }
}

/// Number of spaces that indent one level of a stored document.
pub(super) const INDENT: Option<usize> = Some(2);

/// The text of a metadata document as it is stored, in bytes.
pub(super) fn to_bytes(document: &Object) -> Vec<u8> {
    object_to_text(document, INDENT).into_bytes()
}

/// The user's attributes in a v3 document, if they are an object.
pub(super) fn attributes_member(document: &Object) -> Option<&Object> {
    match document.get("attributes") {
        Some(Json::Object(members)) => Some(members),
        _ => None,
    }
}

/// The chunk grid for the chunk shape that is stored, and whether zeros in that shape had to be replaced. Older writers
/// stored 0 for empty dimensions. As in zarr-python, 0 is read as 1, or as the size of an inner chunk. This is safe,
/// because no chunk can have been stored.
pub(super) fn check_chunk_shape(
    stored: &[u64],
    shape: &[u64],
    inner: Option<&[u64]>,
    member: &str,
) -> Result<(ChunkGrid, bool)> {
    if stored.len() != shape.len() {
        return Err(invalid(member, &json!(stored), &format!("{} sizes, as in 'shape'", shape.len())));
    }
    let size_of = |(axis, (&size, &length)): (usize, (&u64, &u64))| match (size, length) {
        (0, 0) => Ok(inner.and_then(|inner| inner.get(axis).copied()).unwrap_or(1).max(1)),
        (0, _) => Err(invalid(member, &json!(stored), "chunk sizes of at least 1")),
        _ => Ok(size),
    };
    let sizes = stored.iter().zip(shape).enumerate().map(size_of).collect::<Result<Vec<_>>>()?;
    let changed = sizes != stored;
    Ok((ChunkGrid::Regular(RegularGrid::new(sizes)?), changed))
}

/// Checks that a rectilinear grid fits the array's shape, and the inner chunks of its shards.
pub(super) fn check_rectilinear(grid: RectilinearGrid, shape: &[u64], inner: Option<&[u64]>) -> Result<ChunkGrid> {
    let member = "chunk_grid.configuration.chunk_shapes";
    grid.check_covers(shape, member)?;
    if let Some(inner) = inner {
        grid.check_multiples(inner, member)?;
    }
    Ok(ChunkGrid::Rectilinear(grid))
}
