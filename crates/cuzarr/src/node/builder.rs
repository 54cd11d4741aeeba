//! The builder of new arrays, which sets their properties step by step.

use std::sync::Arc;

use cuzarr_device::{DType, HostElement, bytes_of};
use serde_json::{Map, Value};

use super::ArrayOptions;
use super::array::Array;
use crate::error::{Error, ErrorKind, Result};
use crate::meta::chunking::{Chunking, Chunks, Lengths, Shards, chunking};
use crate::meta::encoding::{
    IndexLocation, completed, compressor_named, default_codecs, default_compressor, object_filters, serializer,
    sharding, to_v2,
};
use crate::meta::{
    ArrayMetadata, ChunkGrid, ChunkKeyEncoding, CodecsMetadata, DataType, Endian, Extension, FillValue, NewArray,
    Order, ZarrFormat,
};
use crate::store::{Registry, Store};

/// Sets the properties of a new array step by step, and creates it; see [`Array::builder`].
///
/// Errors in any step are reported by the last one: [`create`](ArrayBuilder::create),
/// [`create_in`](ArrayBuilder::create_in) or [`metadata`](ArrayBuilder::metadata).
#[derive(Debug)]
#[must_use = "a builder does nothing until `create`, `create_in` or `metadata`"]
pub struct ArrayBuilder {
    shape: Vec<u64>,
    data_type: DataType,
    data_type_words: Option<Value>,
    chunks: Option<Chunks>,
    shards: Option<Shards>,
    edges: Option<Chunks>,
    index_location: IndexLocation,
    codecs: BuilderCodecs,
    fill_value: Option<BuilderFill>,
    zarr_format: ZarrFormat,
    order: Order,
    endian: Endian,
    chunk_key_encoding: Option<ChunkKeyEncoding>,
    attributes: Map<String, Value>,
    dimension_names: Option<Vec<Option<String>>>,
    overwrite: bool,
    options: ArrayOptions,
}

#[derive(Debug)]
enum BuilderCodecs {
    Default,
    Compressor(String),
    All(Vec<Extension>),
    V2 { filters: Vec<Map<String, Value>>, compressor: Option<Map<String, Value>> },
}

#[derive(Debug)]
enum BuilderFill {
    /// A fill value from Rust: its data type and its bytes.
    Element(DType, Vec<u8>),
    Json(Value),
    Stored(FillValue),
}

impl Array {
    /// Begins to build a new array of this shape and data type. The defaults are format 3, chunks of a suitable size,
    /// no shards, zstd as the compressor, and zero as the fill value.
    ///
    /// ```
    /// use cuzarr::meta::DataType;
    /// use cuzarr::node::Array;
    ///
    /// let array = Array::builder([365, 180, 360], DataType::Float32)
    ///     .chunks([1, 90, 90])
    ///     .shards([73, 180, 360])
    ///     .compressor("zstd:5")
    ///     .fill_value(f32::NAN)
    ///     .dimension_names(["time", "latitude", "longitude"])
    ///     .attribute("units", "K")
    ///     .create("memory://climate/temperature")?;
    /// assert_eq!(array.chunk_shape()?, [1, 90, 90]);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    pub fn builder(shape: impl Into<Vec<u64>>, data_type: DataType) -> ArrayBuilder {
        ArrayBuilder {
            shape: shape.into(),
            data_type,
            data_type_words: None,
            chunks: None,
            shards: None,
            edges: None,
            index_location: IndexLocation::End,
            codecs: BuilderCodecs::Default,
            fill_value: None,
            zarr_format: ZarrFormat::V3,
            order: Order::C,
            endian: Endian::Little,
            chunk_key_encoding: None,
            attributes: Map::new(),
            dimension_names: None,
            overwrite: false,
            options: ArrayOptions::default(),
        }
    }
}

impl ArrayBuilder {
    /// Sets the shape of a chunk, the box of elements that is decoded as a whole.
    pub fn chunks(mut self, shape: impl Into<Vec<u64>>) -> ArrayBuilder {
        self.chunks = Some(Chunks::of_shape(&shape.into()));
        self
    }

    /// Sets the shape of a shard, the stored object that holds many chunks. Its extents must be multiples of those of a
    /// chunk.
    pub fn shards(mut self, shape: impl Into<Vec<u64>>) -> ArrayBuilder {
        self.shards = Some(Shards { chunks: Chunks::of_shape(&shape.into()), target_bytes: None });
        self
    }

    /// Sets the shapes of chunks and shards, in the forms that the Python package accepts.
    pub(crate) fn grid(mut self, chunks: Chunks, shards: Option<Shards>) -> ArrayBuilder {
        (self.chunks, self.shards) = (Some(chunks), shards);
        self
    }

    /// Sets whether the index of a shard lies at its start or at its end. The default is the end.
    pub(crate) fn index_location(mut self, location: IndexLocation) -> ArrayBuilder {
        self.index_location = location;
        self
    }

    /// Sets the JSON that the metadata document has for the data type, when the spelling differs from cuzarr's own.
    pub(crate) fn data_type_words(mut self, words: Value) -> ArrayBuilder {
        self.data_type_words = Some(words);
        self
    }

    /// Sets how the keys of stored chunks are made. The default is `c/0/0`, and `0.0` in format 2.
    pub fn chunk_key_encoding(mut self, encoding: ChunkKeyEncoding) -> ArrayBuilder {
        self.chunk_key_encoding = Some(encoding);
        self
    }

    /// Sets the order of elements inside a chunk. Only format 2 stores one.
    pub fn order(mut self, order: Order) -> ArrayBuilder {
        self.order = order;
        self
    }

    /// Sets the byte order of stored elements in Zarr format 2; format 3 has a codec for it.
    pub fn endian(mut self, endian: Endian) -> ArrayBuilder {
        self.endian = endian;
        self
    }

    /// Sets a rectilinear grid, whose chunks differ in length. `edges` has the length of every chunk along each
    /// dimension, or of every shard if [`ArrayBuilder::chunks`] is set too.
    ///
    /// ```
    /// use cuzarr::prelude::*;
    ///
    /// let months = Array::builder([59, 4], DataType::UInt8).edges([vec![31, 28], vec![4]]).create("memory://months")?;
    /// assert_eq!(months.metadata().chunk_grid().chunk_of(&[58, 0])?, [1, 0]);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    pub fn edges(mut self, edges: impl Into<Vec<Vec<u64>>>) -> ArrayBuilder {
        let listed =
            |edges: Vec<u64>| Lengths::Listed(edges.iter().map(|&edge| edge.try_into().unwrap_or(i64::MAX)).collect());
        self.edges = Some(Chunks::Along(edges.into().into_iter().map(listed).collect()));
        self
    }

    /// Sets the compressor: `zstd`, `gzip` or `blosc`, with a level as in `zstd:5`; `none`; or the JSON of a Zarr v3 codec.
    pub fn compressor(mut self, name: impl Into<String>) -> ArrayBuilder {
        self.codecs = BuilderCodecs::Compressor(name.into());
        self
    }

    /// Sets all codecs of a chunk, in the order of encoding, by their names in Zarr v3. They replace the compressor.
    pub fn codecs(mut self, codecs: impl IntoIterator<Item = Extension>) -> ArrayBuilder {
        self.codecs = BuilderCodecs::All(codecs.into_iter().collect());
        self
    }

    /// Sets filters and compressor of format 2, each an object with an `id`.
    pub fn codecs_v2(
        mut self,
        filters: Vec<Map<String, Value>>,
        compressor: Option<Map<String, Value>>,
    ) -> ArrayBuilder {
        self.codecs = BuilderCodecs::V2 { filters, compressor };
        self
    }

    /// Sets the value of elements that were never written. It must have the array's type.
    pub fn fill_value<T: HostElement>(mut self, value: T) -> ArrayBuilder {
        self.fill_value = Some(BuilderFill::Element(T::DTYPE, bytes_of(&[value]).to_vec()));
        self
    }

    /// Sets the value of elements that were never written, in the JSON form of metadata documents. This also works for
    /// strings, times and structures.
    pub fn fill_value_json(mut self, value: impl Into<Value>) -> ArrayBuilder {
        self.fill_value = Some(BuilderFill::Json(value.into()));
        self
    }

    /// Sets the value of elements that were never written, as parsed from metadata.
    pub(crate) fn stored_fill_value(mut self, value: FillValue) -> ArrayBuilder {
        self.fill_value = Some(BuilderFill::Stored(value));
        self
    }

    /// Sets the storage format: Zarr version 2 or 3. The default is 3.
    pub fn zarr_format(mut self, format: ZarrFormat) -> ArrayBuilder {
        self.zarr_format = format;
        self
    }

    /// Adds one attribute to the array.
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<Value>) -> ArrayBuilder {
        self.attributes.insert(name.into(), value.into());
        self
    }

    /// Adds attributes to the array.
    pub fn attributes(mut self, attributes: Map<String, Value>) -> ArrayBuilder {
        self.attributes.extend(attributes);
        self
    }

    /// Sets the names of the array's dimensions. Only format 3 has names.
    pub fn dimension_names(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> ArrayBuilder {
        self.dimension_names = Some(names.into_iter().map(|name| Some(name.into())).collect());
        self
    }

    /// Sets the names of the dimensions; `None` for a dimension without a name.
    pub(crate) fn optional_dimension_names(mut self, names: Vec<Option<String>>) -> ArrayBuilder {
        self.dimension_names = Some(names);
        self
    }

    /// Sets whether an existing node at the array's path is deleted. By default, an existing node is an error.
    pub fn overwrite(mut self, overwrite: bool) -> ArrayBuilder {
        self.overwrite = overwrite;
        self
    }

    /// Sets the options of the `Array` that the builder returns, such as its device. They are not stored.
    pub fn options(mut self, options: ArrayOptions) -> ArrayBuilder {
        self.options = options;
        self
    }

    /// Creates the array at a path or URL that [`Registry::new`] can open. Does not create groups above it; for those,
    /// use [`create_group`](crate::create_group).
    ///
    /// # Errors
    /// Those of [`Registry::open`], [`ArrayBuilder::metadata`] and [`Array::create`].
    pub fn create(self, url: &str) -> Result<Array> {
        self.create_in(Registry::new().open(url)?, "")
    }

    /// Creates the array at a path in a store, and the missing groups above it.
    ///
    /// # Errors
    /// Those of [`ArrayBuilder::metadata`] and [`Array::create`].
    pub fn create_in(self, store: Arc<dyn Store>, path: &str) -> Result<Array> {
        let (overwrite, options) = (self.overwrite, self.options.clone());
        Array::create(store, path, self.metadata()?, overwrite, options)
    }

    /// Returns the metadata of the array, without storing anything.
    ///
    /// # Errors
    /// `InvalidArgument` for shards that are not multiples of chunks, an unknown compressor, and settings that format 2 lacks;
    /// `DTypeMismatch` for a fill value of another type; `MetadataInvalid` for metadata that breaks the specification.
    pub fn metadata(mut self) -> Result<ArrayMetadata> {
        if self.zarr_format == ZarrFormat::V2 {
            self.check_v2()?;
        }
        if let Some(edges) = self.edges.take() {
            if self.chunks.is_some() {
                self.shards = Some(Shards { chunks: edges, target_bytes: None });
            } else {
                self.chunks = Some(edges);
            }
        }
        // The shape of chunks with variable-length elements is chosen by the number of elements.
        let element_bytes = self.data_type.size_bytes().unwrap_or(1);
        let chunks = self.chunks.take().unwrap_or(Chunks::Auto);
        let Chunking { inner, stored, is_sharded } =
            chunking(&self.shape, element_bytes, &chunks, self.shards.as_ref())?;
        let codecs = match self.zarr_format {
            ZarrFormat::V2 => self.check_v2_grid(&stored).and_then(|()| self.codecs_v2_metadata())?,
            ZarrFormat::V3 if is_sharded => {
                CodecsMetadata::V3(vec![sharding(&inner, &self.codecs_v3()?, self.index_location)?])
            }
            ZarrFormat::V3 => CodecsMetadata::V3(self.codecs_v3()?),
        };
        let fill_value = self.fill()?;
        let mut new = NewArray::plain(&self.shape, self.data_type, stored.chunk_shape(), codecs);
        (new.attributes, new.dimension_names) = (self.attributes, self.dimension_names);
        (new.chunk_key_encoding, new.data_type_words) = (self.chunk_key_encoding, self.data_type_words);
        new.fill_value = fill_value.unwrap_or(new.fill_value);
        let mut metadata = ArrayMetadata::new(new)?;
        if let ChunkGrid::Rectilinear(grid) = stored {
            metadata.set_rectilinear_grid(grid)?;
        }
        Ok(metadata)
    }

    fn check_v2_grid(&self, stored: &ChunkGrid) -> Result<()> {
        match stored {
            ChunkGrid::Regular(_) => Ok(()),
            ChunkGrid::Rectilinear(_) => Err(lacks("rectilinear chunk grid")),
        }
    }

    fn check_v2(&self) -> Result<()> {
        let wrong = match self {
            _ if self.shards.is_some() => "shards",
            _ if self.dimension_names.is_some() => "dimension names",
            _ if matches!(self.codecs, BuilderCodecs::All(_)) => "list of codecs",
            _ => return Ok(()),
        };
        Err(lacks(wrong))
    }

    fn compressors(&self) -> Result<Vec<Extension>> {
        match &self.codecs {
            BuilderCodecs::Compressor(name) => compressor_named(name),
            _ => Ok(vec![default_compressor()]),
        }
    }

    fn codecs_v3(&self) -> Result<Vec<Extension>> {
        let codecs = match &self.codecs {
            BuilderCodecs::All(codecs) => codecs.clone(),
            BuilderCodecs::Default => default_codecs(&self.data_type),
            _ => [vec![serializer(&self.data_type)], self.compressors()?].concat(),
        };
        Ok(codecs.iter().map(|codec| completed(codec, &self.data_type)).collect())
    }

    fn codecs_v2_metadata(&self) -> Result<CodecsMetadata> {
        let (filters, compressor) = match &self.codecs {
            BuilderCodecs::V2 { filters, compressor } => (filters.clone(), compressor.clone()),
            _ => (object_filters(&self.data_type), self.compressors()?.first().map(to_v2)),
        };
        Ok(CodecsMetadata::V2 { filters, compressor, order: self.order, endian: self.endian })
    }

    fn fill(&self) -> Result<Option<FillValue>> {
        match &self.fill_value {
            None => Ok(None),
            Some(BuilderFill::Stored(value)) => Ok(Some(value.clone())),
            Some(BuilderFill::Json(value)) => FillValue::from_json(value, &self.data_type, self.zarr_format).map(Some),
            Some(BuilderFill::Element(dtype, bytes)) if Some(*dtype) == self.data_type.device_dtype() => {
                Ok(Some(FillValue::Element(bytes.clone())))
            }
            Some(BuilderFill::Element(dtype, _)) => {
                let message = format!("fill value: got {dtype}, the array has elements of type {}", self.data_type);
                let hint = "give it the array's type, or use `fill_value_json`";
                Err(Error::new(ErrorKind::DTypeMismatch, message).with_hint(hint))
            }
        }
    }
}

fn lacks(what: &str) -> Error {
    let message = format!("format 2 has no {what}");
    Error::new(ErrorKind::InvalidArgument, message).with_hint("leave it out, or create the array in format 3")
}
