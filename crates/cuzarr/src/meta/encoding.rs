//! The codecs of new arrays, for which the user gave only a short name or nothing.

use serde_json::{Map, Value, json};

use super::{DataType, Extension};
use crate::{Error, ErrorKind, Result};

/// The compressor of a new array if the user chose none. It is the same as in zarr-python.
pub fn default_compressor() -> Extension {
    let members = [("level".to_string(), json!(0)), ("checksum".to_string(), json!(false))];
    Extension::new("zstd", Map::from_iter(members))
}

/// The compressors inside Blosc, by their names in metadata.
const BLOSC_COMPRESSORS: [&str; 6] = ["lz4", "lz4hc", "blosclz", "zstd", "zlib", "snappy"];

/// Parses a short name of a compressor, which may have a level after a colon (`none`, `zstd`, `zstd:5`, `gzip:1`,
/// `lz4`, `blosc`). For Blosc, it may also have an inner compressor (`blosc:lz4`, `blosc:zstd:3`). The JSON of a codec
/// is accepted too.
///
/// # Errors
/// `InvalidArgument` for other names.
pub fn compressor_named(text: &str) -> Result<Vec<Extension>> {
    let (name, level) = text.split_once(':').unwrap_or((text, ""));
    let unknown = || {
        let message = format!("unknown compressor '{text}'");
        let near = crate::error::nearest(name, ["none", "zstd", "gzip", "lz4", "blosc"]).filter(|near| *near != name);
        let near = near.map_or_else(String::new, |near| format!("did you mean '{near}'? "));
        Error::new(ErrorKind::InvalidArgument, message).with_hint(format!(
            "{near}use none, zstd, gzip, lz4, blosc or blosc:lz4, with a level as in 'zstd:5', or the codec's JSON"
        ))
    };
    if text.trim_start().starts_with('{') {
        let value: Value = serde_json::from_str(text).map_err(|error| unknown().with_source(error))?;
        return Ok(vec![Extension::from_json(&value, "compressors")?]);
    }
    let (cname, level) = match level.split_once(':') {
        Some((cname, level)) if name == "blosc" => (cname, level),
        None if name == "blosc" && BLOSC_COMPRESSORS.contains(&level) => (level, ""),
        _ => ("lz4", level),
    };
    if !BLOSC_COMPRESSORS.contains(&cname) {
        return Err(unknown());
    }
    let level = |default: i64| if level.is_empty() { Ok(default) } else { level.parse().map_err(|_| unknown()) };
    let configuration = match name {
        "none" => return Ok(Vec::new()),
        "zstd" => json!({"level": level(3)?, "checksum": false}),
        "gzip" => json!({"level": level(5)?}),
        "lz4" => json!({"acceleration": level(1)?}),
        "blosc" => json!({"cname": cname, "clevel": level(5)?, "shuffle": "shuffle", "blocksize": 0}),
        _ => return Err(unknown()),
    };
    let name = if name == "lz4" { "numcodecs.lz4" } else { name };
    let codec = json!({"name": name, "configuration": configuration});
    Ok(vec![Extension::from_json(&codec, "compressors")?])
}

/// The codec that turns a new array's elements into bytes, if the user chose none.
pub fn serializer(data_type: &DataType) -> Extension {
    match data_type {
        DataType::VariableString => Extension::new("vlen-utf8", Map::new()),
        DataType::VariableBytes => Extension::new("vlen-bytes", Map::new()),
        other if other.swap_units().is_empty() => Extension::new("bytes", Map::new()),
        _ => Extension::new("bytes", Map::from_iter([("endian".to_string(), json!("little"))])),
    }
}

/// All codecs of a new v3 array, if the user chose none.
pub fn default_codecs(data_type: &DataType) -> Vec<Extension> {
    vec![serializer(data_type), default_compressor()]
}

/// The filters of a v2 array, if the user chose none: elements of variable length need one to become bytes.
pub fn object_filters(data_type: &DataType) -> Vec<Map<String, Value>> {
    let id = match data_type {
        DataType::VariableString => "vlen-utf8",
        DataType::VariableBytes => "vlen-bytes",
        _ => return Vec::new(),
    };
    vec![Map::from_iter([("id".to_string(), Value::from(id))])]
}

/// Where a shard has its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexLocation {
    /// The index stands before the chunks of the shard.
    Start,
    /// The index stands after the chunks of the shard.
    End,
}

/// Completes a codec's configuration with settings that follow from the data type: the byte order, and for Blosc the
/// element size. Existing settings stay.
pub fn completed(codec: &Extension, data_type: &DataType) -> Extension {
    let mut codec = codec.clone();
    if codec.name == "bytes" && codec.configuration.is_empty() && serializer(data_type).name == "bytes" {
        return serializer(data_type);
    }
    let shuffles = codec.configuration.get("shuffle").is_none_or(|shuffle| shuffle != "noshuffle");
    if codec.name == "blosc" && shuffles && !codec.configuration.contains_key("typesize") {
        let size_bytes = data_type.size_bytes().unwrap_or(1).min(255);
        codec.configuration.insert("typesize".into(), json!(size_bytes));
    }
    codec
}

/// Converts a v3 compressor to its v2 form. If v2 has no such compressor, returns the default one.
pub fn to_v2(codec: &Extension) -> Map<String, Value> {
    let mut members = Map::from_iter([("id".to_string(), json!(codec.name))]);
    members.extend(codec.configuration.clone());
    match codec.name.as_str() {
        // `false` is the default, and tensorstore does not support this member.
        "zstd" if members.get("checksum") == Some(&json!(false)) => drop(members.shift_remove("checksum")),
        "zstd" | "gzip" => {}
        "blosc" => {
            let shuffle = match members.get("shuffle").and_then(Value::as_str) {
                Some("noshuffle") => 0,
                Some("bitshuffle") => 2,
                _ => 1,
            };
            members.insert("shuffle".into(), json!(shuffle));
            // numcodecs takes the size from the elements.
            drop(members.shift_remove("typesize"));
        }
        name => match name.strip_prefix("numcodecs.") {
            Some(id) => drop(members.insert("id".into(), json!(id))),
            None => members = to_v2(&default_compressor()),
        },
    }
    members
}

/// Makes the sharding codec, with inner chunks of `chunk_shape` that are encoded with `codecs`.
///
/// # Errors
/// `MetadataInvalid`.
pub fn sharding(chunk_shape: &[u64], codecs: &[Extension], index_location: IndexLocation) -> Result<Extension> {
    let index_location = if index_location == IndexLocation::Start { "start" } else { "end" };
    let codecs: Vec<Value> = codecs.iter().map(Extension::to_json).collect();
    let sharding = json!({"name": "sharding_indexed", "configuration": {
        "chunk_shape": chunk_shape, "codecs": codecs,
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
        "index_location": index_location,
    }});
    Extension::from_json(&sharding, "codecs")
}
