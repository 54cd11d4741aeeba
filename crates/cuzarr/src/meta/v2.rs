//! v2 documents: `.zarray`, `.zgroup`, `.zattrs`. <https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html>

use serde_json::{Map, Value, json};

use super::array::{ArrayMetadata, CodecsMetadata, NewArray, Order, check_chunk_shape};
use super::chunk_key::{ChunkKeyEncoding, Separator};
use super::dtype::DataType;
use super::dtype::v2::OBJECT_CODECS;
use super::fill::FillValue;
use super::group::GroupMetadata;
use super::json::{Json, Object, object_from_map, object_to_map};
use super::outline::Outline;
use super::{ZarrFormat, check_format, invalid, parse_shape, required};
use crate::{Error, ErrorKind, Result};

/// Parses a v2 array from the members of its `.zarray` and `.zattrs`. Unknown members are kept.
pub(super) fn parse_array(mut document: Object, zattrs: Object) -> Result<ArrayMetadata> {
    let members = object_to_map(&document);
    let Outline { shape, chunk_grid, is_repaired, .. } = parse_outline(&members)?;
    let filters = parse_filters(members.get("filters"))?;
    let compressor = match members.get("compressor") {
        None | Some(Value::Null) => None,
        Some(value) => Some(parse_codec(value, "compressor")?),
    };
    let object_codec = filters.iter().chain(&compressor).filter_map(codec_id).find(|id| OBJECT_CODECS.contains(id));
    let (data_type, endian) = DataType::from_v2(required(&members, "dtype")?, object_codec)?;
    let fill_value = FillValue::from_json(required(&members, "fill_value")?, &data_type, ZarrFormat::V2)?;
    let order = match required(&members, "order")? {
        Value::String(order) if order == "C" => Order::C,
        Value::String(order) if order == "F" => Order::F,
        other => return Err(invalid("order", other, "\"C\" or \"F\"")),
    };
    let separator = match members.get("dimension_separator") {
        None => Separator::Dot,
        Some(value) => Separator::from_json(value, "dimension_separator")?,
    };
    chunk_grid.chunk_size_bytes(data_type.size_bytes().unwrap_or(1))?;
    if is_repaired {
        document.insert("chunks".into(), Json::from_value(&json!(chunk_grid.chunk_shape()))?);
    }
    Ok(ArrayMetadata {
        format: ZarrFormat::V2,
        shape,
        data_type,
        chunk_grid,
        chunk_key_encoding: ChunkKeyEncoding::V2 { separator },
        fill_value,
        codecs: CodecsMetadata::V2 { filters, compressor, order, endian },
        attributes: object_to_map(&zattrs),
        dimension_names: None,
        document,
        zattrs,
    })
}

/// Reads the shape, chunks and dimension names of an array from the members of its `.zarray`.
pub(super) fn parse_outline(members: &Map<String, Value>) -> Result<Outline> {
    check_format(members, ZarrFormat::V2)?;
    let shape = parse_shape(required(members, "shape")?, "shape")?;
    let stored_chunks = parse_shape(required(members, "chunks")?, "chunks")?;
    let (chunk_grid, is_repaired) = check_chunk_shape(&stored_chunks, &shape, None, "chunks")?;
    Ok(Outline {
        shape,
        chunk_grid,
        is_repaired,
        inner_chunk_shape: None,
        dimension_names: None,
        attributes: Map::new(),
    })
}

/// Parses a v2 group from the members of its `.zgroup` and `.zattrs`, without consolidated metadata.
pub(super) fn parse_group(document: Object, zattrs: Object) -> Result<GroupMetadata> {
    check_format(&object_to_map(&document), ZarrFormat::V2)?;
    let attributes = object_to_map(&zattrs);
    Ok(GroupMetadata { format: ZarrFormat::V2, attributes, consolidated: None, document, zattrs })
}

/// Makes the `.zarray` of a new array, with members in zarr-python's order.
pub(super) fn array_document(new: &NewArray) -> Result<Object> {
    let CodecsMetadata::V2 { filters, compressor, order, endian } = &new.codecs else {
        return Err(Error::new(ErrorKind::InvalidArgument, "codecs: got those of v3, expected those of v2"));
    };
    if new.dimension_names.is_some() {
        let message = "dimension names: got some for a v2 array, expected none: v2 cannot store them";
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    let separator = match new.chunk_key_encoding {
        None => Separator::Dot,
        Some(ChunkKeyEncoding::V2 { separator }) => separator,
        Some(ChunkKeyEncoding::Default { .. }) => {
            let message = "chunk key encoding: got 'default' for a v2 array, expected 'v2'";
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
    };
    let mut members = Map::new();
    members.insert("shape".into(), json!(new.shape));
    members.insert("chunks".into(), json!(new.chunk_shape));
    members.insert("dtype".into(), new.data_type.to_v2(*endian));
    members.insert("fill_value".into(), new.fill_value.to_json(&new.data_type, ZarrFormat::V2)?);
    members.insert("order".into(), json!(if *order == Order::C { "C" } else { "F" }));
    members.insert("filters".into(), if filters.is_empty() { Value::Null } else { json!(filters) });
    members.insert("dimension_separator".into(), json!(separator.as_str()));
    members.insert("compressor".into(), json!(compressor));
    members.insert("zarr_format".into(), json!(2));
    object_from_map(&members)
}

/// Makes the `.zgroup` of a new group.
pub(super) fn group_document() -> Object {
    [("zarr_format".to_owned(), Json::Number("2".into()))].into_iter().collect()
}

fn codec_id(codec: &Map<String, Value>) -> Option<&str> {
    codec.get("id").and_then(Value::as_str)
}

fn parse_codec(value: &Value, member: &str) -> Result<Map<String, Value>> {
    match value {
        Value::Object(codec) if codec_id(codec).is_some() => Ok(codec.clone()),
        _ => Err(invalid(member, value, "an object with an \"id\"")),
    }
}

fn parse_filters(value: Option<&Value>) -> Result<Vec<Map<String, Value>>> {
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(filters)) => {
            let parse = |(index, filter)| parse_codec(filter, &format!("filters[{index}]"));
            filters.iter().enumerate().map(parse).collect()
        }
        Some(other) => Err(invalid("filters", other, "null or an array")),
    }
}

#[cfg(test)]
mod tests;
