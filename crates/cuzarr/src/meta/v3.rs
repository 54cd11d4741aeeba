//! v3 documents: `zarr.json` of arrays and groups.
//! <https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html#array-metadata>

use serde_json::{Map, Value, json};

use super::array::{ArrayMetadata, CodecsMetadata, NewArray, check_chunk_shape, check_rectilinear};
use super::chunk_key::{ChunkKeyEncoding, Separator};
use super::dtype::DataType;
use super::extension::Extension;
use super::fill::FillValue;
use super::grid::StoredGrid;
use super::group::GroupMetadata;
use super::json::{Json, Object, object_to_map};
use super::names::CONSOLIDATED;
use super::outline::Outline;
use super::{ZarrFormat, check_format, invalid, parse_shape, required};
use crate::{Error, ErrorKind, Result};

const ARRAY_MEMBERS: [&str; 11] = [
    "zarr_format",
    "node_type",
    "shape",
    "data_type",
    "chunk_grid",
    "chunk_key_encoding",
    "fill_value",
    "codecs",
    "attributes",
    "dimension_names",
    "storage_transformers",
];
const GROUP_MEMBERS: [&str; 4] = ["zarr_format", "node_type", "attributes", CONSOLIDATED];

/// Parses a v3 array from the members of its `zarr.json`.
pub(super) fn parse_array(mut document: Object) -> Result<ArrayMetadata> {
    let members = object_to_map(&document);
    let Outline { shape, chunk_grid, is_repaired, dimension_names, attributes, .. } = parse_outline(&members)?;
    check_extra_members(&members, &ARRAY_MEMBERS)?;
    check_storage_transformers(&members)?;
    let data_type = DataType::from_v3(required(&members, "data_type")?)?;
    let fill_value = FillValue::from_json(required(&members, "fill_value")?, &data_type, ZarrFormat::V3)?;
    let codecs = parse_codecs(required(&members, "codecs")?)?;
    chunk_grid.chunk_size_bytes(data_type.size_bytes().unwrap_or(1))?;
    if is_repaired {
        document.insert("chunk_grid".into(), Json::from_value(&chunk_grid.to_json())?);
    }
    Ok(ArrayMetadata {
        format: ZarrFormat::V3,
        chunk_key_encoding: ChunkKeyEncoding::from_json(required(&members, "chunk_key_encoding")?)?,
        attributes,
        dimension_names,
        codecs: CodecsMetadata::V3(codecs),
        shape,
        data_type,
        chunk_grid,
        fill_value,
        document,
        zattrs: Object::new(),
    })
}

/// Reads the shape, chunks and dimension names of an array from the members of its `zarr.json`.
pub(super) fn parse_outline(members: &Map<String, Value>) -> Result<Outline> {
    check_format(members, ZarrFormat::V3)?;
    check_node_type(members, "array")?;
    let shape = parse_shape(required(members, "shape")?, "shape")?;
    let codecs = required(members, "codecs").and_then(parse_codecs).unwrap_or_default();
    let inner = Extension::inner_chunk_shape(&codecs);
    let (chunk_grid, is_repaired) = match StoredGrid::from_v3(required(members, "chunk_grid")?)? {
        StoredGrid::Regular(sizes) => {
            check_chunk_shape(&sizes, &shape, inner.as_deref(), "chunk_grid.configuration.chunk_shape")?
        }
        StoredGrid::Rectilinear(grid) => (check_rectilinear(grid, &shape, inner.as_deref())?, false),
    };
    let dimension_names = parse_dimension_names(members, shape.len())?;
    let attributes = parse_attributes(members)?;
    let inner = inner.filter(|_| codecs.len() == 1);
    Ok(Outline { shape, chunk_grid, inner_chunk_shape: inner, dimension_names, is_repaired, attributes })
}

/// Parses a v3 group from the members of its `zarr.json`, without consolidated metadata.
pub(super) fn parse_group(document: Object) -> Result<GroupMetadata> {
    let members = object_to_map(&document);
    check_format(&members, ZarrFormat::V3)?;
    check_node_type(&members, "group")?;
    check_extra_members(&members, &GROUP_MEMBERS)?;
    let attributes = parse_attributes(&members)?;
    Ok(GroupMetadata { format: ZarrFormat::V3, attributes, consolidated: None, document, zattrs: Object::new() })
}

/// Makes the `zarr.json` of a new array, with members in zarr-python's order.
pub(super) fn array_document(new: &NewArray, codecs: &[Extension]) -> Result<Object> {
    let default_keys = ChunkKeyEncoding::Default { separator: Separator::Slash };
    let mut members = Map::new();
    members.insert("shape".into(), json!(new.shape));
    let words = new.data_type_words.clone().map_or_else(|| new.data_type.to_v3(), Ok)?;
    // Readers of the old name `structured` expect a structure as base64.
    let fill_value = match words.get("name").is_some_and(|name| name == "structured") {
        true => new.fill_value.to_base64(&new.data_type)?,
        false => new.fill_value.to_json(&new.data_type, ZarrFormat::V3)?,
    };
    members.insert("data_type".into(), words);
    members.insert("chunk_grid".into(), grid_json(&new.chunk_shape));
    members.insert("chunk_key_encoding".into(), new.chunk_key_encoding.unwrap_or(default_keys).to_json());
    members.insert("fill_value".into(), fill_value);
    members.insert("codecs".into(), codecs.iter().map(Extension::to_json).collect());
    members.insert("attributes".into(), Value::Object(new.attributes.clone()));
    if let Some(names) = &new.dimension_names {
        members.insert("dimension_names".into(), json!(names));
    }
    members.insert("zarr_format".into(), json!(3));
    members.insert("node_type".into(), json!("array"));
    members.insert("storage_transformers".into(), json!([]));
    super::json::object_from_map(&members)
}

/// Makes the `zarr.json` of a new group.
pub(super) fn group_document(attributes: Object) -> Object {
    let zarr_format = Json::Number("3".into());
    let node_type = Json::String("group".into());
    [("attributes", Json::Object(attributes)), ("zarr_format", zarr_format), ("node_type", node_type)]
        .map(|(name, member)| (name.to_owned(), member))
        .into_iter()
        .collect()
}

fn grid_json(chunk_shape: &[u64]) -> Value {
    json!({"name": "regular", "configuration": {"chunk_shape": chunk_shape}})
}

fn check_node_type(members: &Map<String, Value>, expected: &str) -> Result<()> {
    let got = required(members, "node_type")?;
    if got == expected { Ok(()) } else { Err(invalid("node_type", got, &format!("\"{expected}\""))) }
}

/// Refuses members of a document that are not `known`, unless they say that they need not be understood.
fn check_extra_members(members: &Map<String, Value>, known: &[&str]) -> Result<()> {
    for (name, member) in members {
        let optional = member.get("must_understand") == Some(&Value::Bool(false));
        if !optional && !known.contains(&name.as_str()) {
            let expected = "only members that are known, or an object with \"must_understand\": false";
            return Err(Error::new(
                ErrorKind::UnsupportedFeature,
                format!("member '{name}': got {}, expected {expected}", super::json::abbreviate(member)),
            ));
        }
    }
    Ok(())
}

fn check_storage_transformers(members: &Map<String, Value>) -> Result<()> {
    let transformers = match members.get("storage_transformers") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(transformers)) => transformers,
        Some(other) => return Err(invalid("storage_transformers", other, "an array")),
    };
    let Some(first) = transformers.first() else {
        return Ok(());
    };
    let name = Extension::from_json(first, "storage_transformers[0]")?.name;
    Err(Error::new(
        ErrorKind::UnsupportedFeature,
        format!("member 'storage_transformers': got '{name}', expected none"),
    ))
}

fn parse_codecs(value: &Value) -> Result<Vec<Extension>> {
    let Value::Array(entries) = value else {
        return Err(invalid("codecs", value, "an array"));
    };
    entries.iter().enumerate().map(|(index, entry)| Extension::from_json(entry, &format!("codecs[{index}]"))).collect()
}

fn parse_attributes(members: &Map<String, Value>) -> Result<Map<String, Value>> {
    match members.get("attributes") {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(attributes)) => Ok(attributes.clone()),
        Some(other) => Err(invalid("attributes", other, "an object")),
    }
}

fn parse_dimension_names(members: &Map<String, Value>, ndim: usize) -> Result<Option<Vec<Option<String>>>> {
    let value = match members.get("dimension_names") {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let parse = |name: &Value| match name {
        Value::Null => Some(None),
        Value::String(name) => Some(Some(name.clone())),
        _ => None,
    };
    let names: Option<Vec<_>> = value.as_array().and_then(|names| names.iter().map(parse).collect());
    match names {
        Some(names) if names.len() == ndim => Ok(Some(names)),
        _ => Err(invalid("dimension_names", value, &format!("an array of {ndim} strings or nulls"))),
    }
}

#[cfg(test)]
mod tests;
