//! Array metadata for Python: reading stored documents, and making the documents of a new array from arguments.

use std::sync::{Arc, OnceLock};

use cuzarr::internal::meta::encoding::{self, IndexLocation};
use cuzarr::internal::meta::node::ZATTRS;
use cuzarr::internal::node::{with_data_type_words, with_grid, with_optional_dimension_names, with_stored_fill_value};
use cuzarr::meta::{
    ArrayMetadata, ChunkKeyEncoding, CodecsMetadata, DataType, Endian, Extension, FillValue, Json, Multiscales,
    NodeDocuments, NodeMetadata, Order, Outline, ZarrFormat,
};
use cuzarr::node::Array;
use cuzarr::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use serde_json::{Map, Value};

use crate::chunk_grid::{PyChunkGrid, parse_chunks, parse_shards};
use crate::error::{IntoPython, PyResult};
use crate::json::{self, Names};
use crate::nodes::{format, parse_documents, to_dict};

/// The metadata documents of an array. Their contents are parsed when they are needed.
#[pyclass(name = "ArrayMetadata", module = "cuzarr._core", frozen)]
pub struct PyArrayMetadata {
    documents: NodeDocuments,
    outline: OnceLock<Outline>,
    checked: OnceLock<Arc<ArrayMetadata>>,
}

impl PyArrayMetadata {
    pub fn new(documents: NodeDocuments) -> Self {
        PyArrayMetadata { documents, outline: OnceLock::new(), checked: OnceLock::new() }
    }

    /// The array's metadata documents.
    pub fn documents(&self) -> &NodeDocuments {
        &self.documents
    }

    /// Parses and checks the array's metadata, without the attributes.
    pub fn checked(&self) -> PyResult<&Arc<ArrayMetadata>> {
        self.check().py()
    }

    fn check(&self) -> cuzarr::Result<&Arc<ArrayMetadata>> {
        if let Some(checked) = self.checked.get() {
            return Ok(checked);
        }
        let NodeMetadata::Array(metadata) = self.documents.without_attributes().check()? else {
            return Err(not_an_array("the documents"));
        };
        Ok(self.checked.get_or_init(|| Arc::new(*metadata)))
    }

    /// The array's shape, chunk grid and dimension names. Even arrays that cannot be used have one.
    fn outline(&self) -> PyResult<&Outline> {
        if let Some(outline) = self.outline.get() {
            return Ok(outline);
        }
        let outline = match self.check() {
            Ok(metadata) if self.has_plain_attributes() => Outline::from(&**metadata),
            _ => self.documents.outline().py()?,
        };
        Ok(self.outline.get_or_init(|| outline))
    }

    /// Whether the document's attributes are absent or a JSON object. [`PyArrayMetadata::check`] does not check them.
    fn has_plain_attributes(&self) -> bool {
        let (_, document) = self.documents.members()[0];
        self.documents.attributes().is_some() || document.get("attributes").is_none_or(|given| *given == Json::Null)
    }

    /// Makes the metadata documents of an array without attributes.
    fn of(metadata: ArrayMetadata) -> PyArrayMetadata {
        let documents = NodeDocuments::from(&NodeMetadata::Array(Box::new(metadata.clone())));
        let checked = OnceLock::from(Arc::new(metadata));
        PyArrayMetadata { documents, outline: OnceLock::new(), checked }
    }

    fn with_attributes_of(mut self, attributes: &Bound<'_, PyDict>) -> PyResult<PyArrayMetadata> {
        *self.documents.attributes_mut().py()? = json::from_dict(attributes)?;
        Ok(self)
    }
}

pub fn not_an_array(what: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("{what} describe a group, expected an array"))
}

#[pymethods]
impl PyArrayMetadata {
    /// Makes metadata from an array's documents, given by name.
    #[staticmethod]
    fn from_documents(documents: &Bound<'_, PyDict>) -> PyResult<Self> {
        let documents = parse_documents(documents)?;
        if documents.is_array() { Ok(PyArrayMetadata::new(documents)) } else { Err(not_an_array("the documents")).py() }
    }

    #[getter]
    fn zarr_format(&self) -> u8 {
        self.documents.zarr_format().number()
    }

    /// The array's metadata documents by name, as they are stored.
    fn stored<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stored = to_dict(py, &self.documents, &mut Names::default())?;
        if self.documents.zarr_format() == ZarrFormat::V2 && !stored.contains(ZATTRS)? {
            stored.set_item(ZATTRS, PyDict::new(py))?;
        }
        Ok(stored)
    }

    /// The array's main metadata document (`zarr.json` or `.zarray`), without the attributes.
    fn document<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let document = self.documents.without_attributes();
        let [(_, members), ..] = &document.members()[..] else { return Ok(PyDict::new(py)) };
        json::to_dict(py, members, &mut Names::default())
    }

    /// The array's attributes.
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        match self.documents.attributes() {
            Some(attributes) => json::to_dict(py, attributes, &mut Names::default()),
            None => Ok(PyDict::new(py)),
        }
    }

    /// The array's shape.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.outline()?.shape)
    }

    /// The chunk grid of the stored objects: of the shards, if there are any, else of the chunks.
    #[getter]
    fn grid(&self) -> PyResult<PyChunkGrid> {
        Ok(PyChunkGrid(self.outline()?.chunk_grid.clone()))
    }

    /// Whether the grid is rectilinear: chunks may have different lengths along a dimension.
    #[getter]
    fn is_rectilinear(&self) -> PyResult<bool> {
        Ok(self.outline()?.chunk_grid.rectilinear().is_some())
    }

    /// The shape of the largest stored object: a chunk, or a shard.
    #[getter]
    fn stored_chunks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.outline()?.chunk_grid.chunk_shape())
    }

    /// The shape of the chunks inside shards; `None` without shards.
    #[getter]
    fn inner_chunks<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.outline()?.inner_chunk_shape.as_ref().map(|shape| PyTuple::new(py, shape)).transpose()
    }

    /// The names of the array's dimensions; `None` if the metadata document names none.
    #[getter]
    fn dimension_names<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.outline()?.dimension_names.as_ref().map(|names| PyTuple::new(py, names)).transpose()
    }

    /// The order in which a chunk stores its elements: `C` (row-major) or `F` (column-major).
    #[getter]
    fn order(&self) -> PyResult<&'static str> {
        Ok(match self.checked()?.codecs() {
            CodecsMetadata::V2 { order: Order::F, .. } => "F",
            _ => "C",
        })
    }

    /// The name and the separator of the chunk key encoding.
    #[getter]
    fn chunk_key(&self) -> PyResult<(&'static str, &'static str)> {
        let encoding = self.checked()?.chunk_key_encoding();
        let name = if matches!(encoding, ChunkKeyEncoding::V2 { .. }) { "v2" } else { "default" };
        Ok((name, encoding.separator().as_str()))
    }

    /// The data type in two forms: a JSON description for `numpy.dtype`, with lists instead of tuples; and the value in
    /// a v3 document (`None` for v2).
    fn data_type<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let checked = self.checked()?;
        let described = match checked.codecs() {
            CodecsMetadata::V2 { endian, .. } => described(checked.data_type(), *endian),
            CodecsMetadata::V3(_) => checked.data_type().numpy_descr(),
        };
        let words = self.documents.members().first().and_then(|(_, members)| members.get("data_type"));
        let words = words.map_or_else(|| Ok(py.None().into_bound(py)), |words| json::to_python(py, words))?;
        Ok((json::to_value(py, &described)?, words))
    }

    /// The bytes of the fill value; `None` if v2 leaves it undefined.
    fn fill_element<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(match self.checked()?.fill_value() {
            FillValue::Element(bytes) => Some(PyBytes::new(py, bytes)),
            FillValue::Undefined => None,
        })
    }

    /// The key at which a chunk or shard is stored, relative to the array. `chunk` is its index in the grid.
    fn encode_chunk_key(&self, chunk: Vec<u64>) -> PyResult<String> {
        Ok(self.checked()?.chunk_key_encoding().key(&chunk))
    }

    /// Returns those of `keys` that belong to chunks or shards of the array, with their indices in the grid.
    fn decode_chunk_keys<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<(Bound<'py, PyAny>, Bound<'py, PyTuple>)>> {
        let (encoding, outline) = (self.checked()?.chunk_key_encoding(), self.outline()?);
        let counts = outline.chunk_grid.chunk_counts(&outline.shape).py()?;
        let mut found = Vec::new();
        for key in keys.try_iter()? {
            let key = key?;
            if let Some(chunk) = encoding.parse_key(key.extract()?, counts.len())
                && chunk.iter().zip(&counts).all(|(at, count)| at < count)
            {
                found.push((key, PyTuple::new(py, chunk)?));
            }
        }
        Ok(found)
    }

    /// Returns a copy of this metadata with another shape.
    fn with_shape(&self, shape: Vec<u64>) -> PyResult<Self> {
        let mut metadata = (**self.checked()?).clone();
        metadata.set_shape(shape).py()?;
        let mut made = PyArrayMetadata::of(metadata);
        if self.documents.attributes().is_some() {
            made.documents.take_attributes_of(&self.documents).py()?;
        }
        Ok(made)
    }

    /// Returns a copy of this metadata with other attributes.
    fn with_attributes(&self, attributes: &Bound<'_, PyDict>) -> PyResult<Self> {
        let (outline, checked) = (self.outline.clone(), self.checked.clone());
        PyArrayMetadata { documents: self.documents.clone(), outline, checked }.with_attributes_of(attributes)
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("<cuzarr._core.ArrayMetadata shape={:?}>", self.outline()?.shape))
    }
}

/// Makes the metadata of a new array from its shape, data type, chunks and codecs. `data_type` is a description for
/// `numpy.dtype` with lists instead of tuples; its byte order is used in v2. `data_type_words` is the data type of a v3
/// document. `codecs` is the chain of v3, or the filters and the compressor of v2; with `None`, defaults are used.
/// `fill_value` has the bytes of an element; with `is_undefined`, v2 has no fill value.
#[pyfunction]
#[pyo3(signature = (zarr_format, shape, data_type, *, data_type_words, chunks, shards, target_bytes, index_location, codecs, fill_value,
    is_undefined, order, chunk_key_encoding, dimension_names, attributes))]
#[expect(clippy::too_many_arguments, reason = "Python hands over each argument of create_array by itself")]
pub fn new_array(
    zarr_format: u8,
    shape: Vec<u64>,
    data_type: &Bound<'_, PyAny>,
    data_type_words: &Bound<'_, PyAny>,
    chunks: &Bound<'_, PyAny>,
    shards: &Bound<'_, PyAny>,
    target_bytes: Option<u64>,
    index_location: &str,
    codecs: Option<&Bound<'_, PyAny>>,
    fill_value: Option<Vec<u8>>,
    is_undefined: bool,
    order: &str,
    chunk_key_encoding: Option<(String, String)>,
    dimension_names: Option<Vec<Option<String>>>,
    attributes: &Bound<'_, PyDict>,
) -> PyResult<PyArrayMetadata> {
    let format = format(zarr_format);
    let (data_type, endian) = parse_data_type(data_type)?;
    let order = if order == "F" { Order::F } else { Order::C };
    let builder = Array::builder(shape, data_type).zarr_format(format).order(order).endian(endian);
    let (chunks, shards) = (parse_chunks(chunks)?, parse_shards(shards, target_bytes)?);
    let mut builder = with_grid(builder, chunks, shards, parse_index_location(index_location)?);
    if !data_type_words.is_none() {
        builder = with_data_type_words(builder, json::from_value(data_type_words)?);
    }
    if let Some((name, separator)) = chunk_key_encoding {
        builder = builder.chunk_key_encoding(parse_chunk_key_encoding(&name, &separator)?);
    }
    if let Some(codecs) = codecs {
        builder = match format {
            ZarrFormat::V3 => builder.codecs(parse_chain(codecs)?),
            ZarrFormat::V2 => {
                let (filters, compressor): Codecs<'_> = codecs.extract()?;
                let filters = filters.iter().map(parse_codec_v2).collect::<PyResult<_>>()?;
                builder.codecs_v2(filters, compressor.as_ref().map(parse_codec_v2).transpose()?)
            }
        };
    }
    match fill_value {
        Some(bytes) => builder = with_stored_fill_value(builder, FillValue::Element(bytes)),
        None if is_undefined => builder = with_stored_fill_value(builder, FillValue::Undefined),
        None => {}
    }
    if let Some(names) = dimension_names {
        builder = with_optional_dimension_names(builder, names);
    }
    // Parsed again, so that the array is exactly the one that later calls open.
    let documents = NodeDocuments::from(&NodeMetadata::Array(Box::new(builder.metadata().py()?)));
    PyArrayMetadata::new(documents).with_attributes_of(attributes)
}

/// An array's codecs as JSON: the codec chain of v3 (without a second value), or the filters and the compressor of v2.
type Codecs<'py> = (Vec<Bound<'py, PyAny>>, Option<Bound<'py, PyAny>>);

/// The default codecs of new arrays with a data type.
#[pyfunction]
pub fn default_codecs<'py>(py: Python<'py>, zarr_format: u8, data_type: &Bound<'py, PyAny>) -> PyResult<Codecs<'py>> {
    let (data_type, _) = parse_data_type(data_type)?;
    let object = |members: Map<String, Value>| json::to_value(py, &Value::Object(members));
    if format(zarr_format) == ZarrFormat::V2 {
        let filters = encoding::object_filters(&data_type).into_iter().map(object).collect::<PyResult<_>>()?;
        return Ok((filters, Some(object(encoding::to_v2(&encoding::default_compressor()))?)));
    }
    let chain = encoding::default_codecs(&data_type);
    Ok((chain.iter().map(|codec| json::to_value(py, &codec.to_json())).collect::<PyResult<_>>()?, None))
}

/// Converts the data type of a v3 metadata document to the argument from which `numpy.dtype` makes it, with lists
/// instead of tuples.
#[pyfunction]
pub fn describe_v3<'py>(py: Python<'py>, words: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    json::to_value(py, &DataType::from_v3(&json::from_value(words)?).py()?.numpy_descr())
}

/// The multiscale image that a group's attributes describe; `None` if they describe none.
#[pyfunction]
pub fn multiscales<'py>(py: Python<'py>, attributes: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let attributes = json::from_value(attributes)?;
    let Some(image) = attributes.as_object().map(Multiscales::of).transpose().py()?.flatten() else { return Ok(None) };
    let axes =
        image.axes.iter().map(|axis| serde_json::json!({"name": axis.name, "type": axis.kind, "unit": axis.unit}));
    let levels = image.levels.iter();
    let levels = levels
        .map(|level| serde_json::json!({"path": level.path, "scale": level.scale, "translation": level.translation}));
    let described = serde_json::json!({
        "name": image.name, "version": image.version, "channels": image.channels(),
        "axes": axes.collect::<Vec<_>>(), "levels": levels.collect::<Vec<_>>(),
    });
    Ok(Some(json::to_value(py, &described)?))
}

/// Converts an argument of `numpy.dtype`, with lists instead of tuples, to the data type that a v3 metadata document
/// has.
#[pyfunction]
pub fn words_v3<'py>(py: Python<'py>, described: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    json::to_value(py, &parse_data_type(described)?.0.to_v3().py()?)
}

/// Converts a fill value from JSON, as metadata documents have it, to the bytes of one element. `data_type` is an
/// argument of `numpy.dtype`.
#[pyfunction]
pub fn fill_to_element<'py>(
    py: Python<'py>,
    value: &Bound<'py, PyAny>,
    data_type: &Bound<'py, PyAny>,
    zarr_format: u8,
) -> PyResult<Bound<'py, PyBytes>> {
    let (data_type, _) = parse_data_type(data_type)?;
    let fill = FillValue::from_json(&json::from_value(value)?, &data_type, format(zarr_format)).py()?;
    Ok(PyBytes::new(py, &fill.element(&data_type)))
}

/// Converts a fill value from the bytes of one element to JSON, as metadata documents have it.
#[pyfunction]
pub fn fill_to_json<'py>(
    py: Python<'py>,
    element: Vec<u8>,
    data_type: &Bound<'py, PyAny>,
    zarr_format: u8,
) -> PyResult<Bound<'py, PyAny>> {
    let (data_type, _) = parse_data_type(data_type)?;
    json::to_value(py, &FillValue::Element(element).to_json(&data_type, format(zarr_format)).py()?)
}

/// Converts a data type to the argument (as JSON) from which `numpy.dtype` makes it, with the byte order `endian`.
fn described(data_type: &DataType, endian: Endian) -> Value {
    match data_type {
        DataType::VariableString => Value::from("T"),
        other => other.to_v2(endian),
    }
}

fn parse_data_type(described: &Bound<'_, PyAny>) -> PyResult<(DataType, Endian)> {
    let described = json::from_value(described)?;
    match described.as_str() {
        Some("T") => Ok((DataType::VariableString, Endian::Little)),
        Some("|O") => Ok((DataType::VariableBytes, Endian::Little)),
        _ => DataType::from_v2(&described, None).py(),
    }
}

fn parse_chain(codecs: &Bound<'_, PyAny>) -> PyResult<Vec<Extension>> {
    let codec = |(index, codec): (usize, PyResult<Bound<'_, PyAny>>)| {
        Extension::from_json(&json::from_value(&codec?)?, &format!("codecs[{index}]")).py()
    };
    codecs.try_iter()?.enumerate().map(codec).collect()
}

fn parse_codec_v2(codec: &Bound<'_, PyAny>) -> PyResult<Map<String, Value>> {
    match json::from_value(codec)? {
        Value::Object(members) => Ok(members),
        other => {
            Err(Error::new(ErrorKind::InvalidArgument, format!("a codec of format 2 is {other}, expected an object")))
                .py()
        }
    }
}

fn parse_index_location(text: &str) -> PyResult<IndexLocation> {
    match text {
        "start" => Ok(IndexLocation::Start),
        "end" => Ok(IndexLocation::End),
        other => {
            let message = format!("index_location is '{other}', expected one of start, end");
            Err(Error::new(ErrorKind::InvalidArgument, message)).py()
        }
    }
}

fn parse_chunk_key_encoding(name: &str, separator: &str) -> PyResult<ChunkKeyEncoding> {
    let members = serde_json::json!({"name": name, "configuration": {"separator": separator}});
    ChunkKeyEncoding::from_json(&members).py()
}
