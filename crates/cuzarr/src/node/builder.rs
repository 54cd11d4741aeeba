//! The builder of new arrays.

use std::sync::Arc;

use cuzarr_device::{DType, HostElement, bytes_of};
use serde_json::{Map, Value};

use super::ArrayOptions;
use super::array::Array;
use crate::error::{Error, ErrorKind, Result};
use crate::meta::encoding::{
    completed, compressor_named, default_compressor, guess_chunks, serializer, sharding, to_v2,
};
use crate::meta::{
    ArrayMetadata, CodecsMetadata, DataType, Endian, Extension, FillValue, NewArray, Order, RectilinearGrid, ZarrFormat,
};
use crate::store::{Registry, Store};

/// A builder of a new array; see [`Array::builder`].
///
/// Errors of all steps come from the last one: [`create`](ArrayBuilder::create), [`create_in`](ArrayBuilder::create_in) or
/// [`metadata`](ArrayBuilder::metadata).
#[derive(Debug)]
#[must_use = "a builder does nothing until `create`, `create_in` or `metadata`"]
pub struct ArrayBuilder {
    shape: Vec<u64>,
    data_type: DataType,
    chunks: Option<Vec<u64>>,
    shards: Option<Vec<u64>>,
    edges: Option<Vec<Vec<u64>>>,
    codecs: Codecs,
    fill_value: Option<Fill>,
    zarr_format: ZarrFormat,
    attributes: Map<String, Value>,
    dimension_names: Option<Vec<Option<String>>>,
    overwrite: bool,
    options: ArrayOptions,
}

#[derive(Debug)]
enum Codecs {
    Default,
    Compressor(String),
    All(Vec<Extension>),
}

#[derive(Debug)]
enum Fill {
    /// The value's type and bytes.
    Element(DType, Vec<u8>),
    Json(Value),
}

impl Array {
    /// Begins a new array of this shape and data type. Its defaults are format 3, chunks of a suitable size, no shards, zstd
    /// as the compressor, and zero as the fill value.
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
            chunks: None,
            shards: None,
            edges: None,
            codecs: Codecs::Default,
            fill_value: None,
            zarr_format: ZarrFormat::V3,
            attributes: Map::new(),
            dimension_names: None,
            overwrite: false,
            options: ArrayOptions::default(),
        }
    }
}

impl ArrayBuilder {
    /// Sets the shape of a chunk, the unit that is decoded.
    pub fn chunks(mut self, shape: impl Into<Vec<u64>>) -> ArrayBuilder {
        self.chunks = Some(shape.into());
        self
    }

    /// Sets the shape of a shard, the stored object that holds many chunks. Its extents are multiples of a chunk's.
    pub fn shards(mut self, shape: impl Into<Vec<u64>>) -> ArrayBuilder {
        self.shards = Some(shape.into());
        self
    }

    /// Sets a rectilinear grid: the length of every chunk along each dimension, or of every shard when
    /// [`ArrayBuilder::chunks`] is set too.
    ///
    /// ```
    /// use cuzarr::prelude::*;
    ///
    /// let months = Array::builder([59, 4], DataType::UInt8).edges([vec![31, 28], vec![4]]).create("memory://months")?;
    /// assert_eq!(months.metadata().chunk_grid().chunk_of(&[58, 0])?, [1, 0]);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    pub fn edges(mut self, edges: impl Into<Vec<Vec<u64>>>) -> ArrayBuilder {
        self.edges = Some(edges.into());
        self
    }

    /// Sets the compressor: `zstd`, `gzip` or `blosc`, with a level as in `zstd:5`; `none`; or the JSON of a Zarr v3 codec.
    pub fn compressor(mut self, name: impl Into<String>) -> ArrayBuilder {
        self.codecs = Codecs::Compressor(name.into());
        self
    }

    /// Sets all codecs of a chunk instead of a compressor, from elements to bytes, by their names in Zarr v3.
    pub fn codecs(mut self, codecs: impl IntoIterator<Item = Extension>) -> ArrayBuilder {
        self.codecs = Codecs::All(codecs.into_iter().collect());
        self
    }

    /// Sets the value of elements that were never written. It has the array's type.
    pub fn fill_value<T: HostElement>(mut self, value: T) -> ArrayBuilder {
        self.fill_value = Some(Fill::Element(T::DTYPE, bytes_of(&[value]).to_vec()));
        self
    }

    /// Sets the value of elements that were never written, in the JSON form of metadata. This also works for strings, times and
    /// structures.
    pub fn fill_value_json(mut self, value: impl Into<Value>) -> ArrayBuilder {
        self.fill_value = Some(Fill::Json(value.into()));
        self
    }

    /// Sets the storage format. The default is 3.
    pub fn zarr_format(mut self, format: ZarrFormat) -> ArrayBuilder {
        self.zarr_format = format;
        self
    }

    /// Adds an attribute.
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<Value>) -> ArrayBuilder {
        self.attributes.insert(name.into(), value.into());
        self
    }

    /// Adds attributes.
    pub fn attributes(mut self, attributes: Map<String, Value>) -> ArrayBuilder {
        self.attributes.extend(attributes);
        self
    }

    /// Names the dimensions. Only format 3 has names.
    pub fn dimension_names(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> ArrayBuilder {
        self.dimension_names = Some(names.into_iter().map(|name| Some(name.into())).collect());
        self
    }

    /// Sets whether an existing node at the array's place is deleted. Without it, an existing node is an error.
    pub fn overwrite(mut self, overwrite: bool) -> ArrayBuilder {
        self.overwrite = overwrite;
        self
    }

    /// Sets the options of the opened array. They are not stored.
    pub fn options(mut self, options: ArrayOptions) -> ArrayBuilder {
        self.options = options;
        self
    }

    /// Creates the array at a path or URL that [`Registry::new`] knows. Groups above it are left alone: make them with
    /// [`create_group`](crate::create_group).
    ///
    /// # Errors
    /// Those of [`Registry::open`], [`ArrayBuilder::metadata`] and [`Array::create`].
    pub fn create(self, url: &str) -> Result<Array> {
        self.create_in(Registry::new().open(url)?, "")
    }

    /// Creates the array at a path in a store, and the groups above it.
    ///
    /// # Errors
    /// Those of [`ArrayBuilder::metadata`] and [`Array::create`].
    pub fn create_in(self, store: Arc<dyn Store>, path: &str) -> Result<Array> {
        let (overwrite, options) = (self.overwrite, self.options.clone());
        Array::create(store, path, self.metadata()?, overwrite, options)
    }

    /// The metadata of the array, without storing anything.
    ///
    /// # Errors
    /// `InvalidArgument` for shards that are not multiples of chunks, an unknown compressor, and settings that format 2 lacks;
    /// `DTypeMismatch` for a fill value of another type; `MetadataInvalid` for metadata that breaks the specification.
    pub fn metadata(mut self) -> Result<ArrayMetadata> {
        if self.zarr_format == ZarrFormat::V2 {
            self.check_v2()?;
        }
        if let Some(edges) = self.edges.take() {
            let grid = RectilinearGrid::new(&edges)?;
            let largest = grid.largest_chunk().to_vec();
            if self.chunks.is_some() {
                self.shards = Some(largest);
            } else {
                self.chunks = Some(largest);
            }
            let mut metadata = self.metadata()?;
            metadata.set_rectilinear_grid(grid)?;
            return Ok(metadata);
        }
        let element_bytes = self.data_type.size_bytes().unwrap_or(0);
        let chunks =
            self.chunks.clone().unwrap_or_else(|| guess_chunks(&self.shape, element_bytes, self.shards.is_some()));
        let (outer, codecs) = match self.zarr_format {
            ZarrFormat::V2 => (chunks, self.codecs_v2()?),
            ZarrFormat::V3 => {
                let codecs = self.codecs_v3()?;
                match self.shards.clone() {
                    None => (chunks, CodecsMetadata::V3(codecs)),
                    Some(shards) => {
                        check_shards(&shards, &chunks)?;
                        (shards, CodecsMetadata::V3(vec![sharding(&chunks, &codecs)?]))
                    }
                }
            }
        };
        let fill_value = self.fill()?;
        let mut new = NewArray::plain(&self.shape, self.data_type, &outer, codecs);
        (new.attributes, new.dimension_names) = (self.attributes, self.dimension_names);
        new.fill_value = fill_value.unwrap_or(new.fill_value);
        ArrayMetadata::new(new)
    }

    fn check_v2(&self) -> Result<()> {
        let wrong = match self {
            _ if self.shards.is_some() => "shards",
            _ if self.edges.is_some() => "rectilinear chunk grid",
            _ if self.dimension_names.is_some() => "dimension names",
            _ if matches!(self.codecs, Codecs::All(_)) => "list of codecs",
            _ => return Ok(()),
        };
        let message = format!("an array of format 2 has no {wrong}");
        Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("leave them out, or create it in format 3"))
    }

    fn compressors(&self) -> Result<Vec<Extension>> {
        match &self.codecs {
            Codecs::Compressor(name) => compressor_named(name),
            _ => Ok(vec![default_compressor()]),
        }
    }

    fn codecs_v3(&self) -> Result<Vec<Extension>> {
        let codecs = match &self.codecs {
            Codecs::All(codecs) => codecs.clone(),
            _ => [vec![serializer(&self.data_type)], self.compressors()?].concat(),
        };
        Ok(codecs.iter().map(|codec| completed(codec, &self.data_type)).collect())
    }

    fn codecs_v2(&self) -> Result<CodecsMetadata> {
        let object_codec = match self.data_type {
            DataType::VariableString => Some("vlen-utf8"),
            DataType::VariableBytes => Some("vlen-bytes"),
            _ => None,
        };
        let filter = |id: &str| Map::from_iter([("id".to_string(), Value::from(id))]);
        Ok(CodecsMetadata::V2 {
            filters: object_codec.map(filter).into_iter().collect(),
            compressor: self.compressors()?.first().map(to_v2),
            order: Order::C,
            endian: Endian::Little,
        })
    }

    fn fill(&self) -> Result<Option<FillValue>> {
        match &self.fill_value {
            None => Ok(None),
            Some(Fill::Json(value)) => FillValue::from_json(value, &self.data_type, self.zarr_format).map(Some),
            Some(Fill::Element(dtype, bytes)) if Some(*dtype) == self.data_type.device_dtype() => {
                Ok(Some(FillValue::Element(bytes.clone())))
            }
            Some(Fill::Element(dtype, _)) => {
                let message = format!("fill value: got {dtype}, the array has elements of type {}", self.data_type);
                let hint = "give it the array's type, or use `fill_value_json`";
                Err(Error::new(ErrorKind::DTypeMismatch, message).with_hint(hint))
            }
        }
    }
}

fn check_shards(shards: &[u64], chunks: &[u64]) -> Result<()> {
    let fits = |(shard, chunk): (&u64, &u64)| shard.checked_rem(*chunk) == Some(0);
    if shards.len() == chunks.len() && shards.iter().zip(chunks).all(fits) {
        return Ok(());
    }
    let message = format!("shards of shape {shards:?} are not multiples of chunks of shape {chunks:?}");
    Err(Error::new(ErrorKind::InvalidArgument, message))
}
