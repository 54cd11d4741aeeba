//! A description of one array or group, with the rows that zarr-python's `info` has.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::{Description, shape_text, unfinished_text, with_work};
use crate::error::{ErrorKind, Result};
use crate::meta::node::UNFINISHED;
use crate::meta::{ChunkGrid, CodecsMetadata, Extension, IMAGE_LABELS, Multiscales, NodeMetadata, Order, label_names};
use crate::node::{Array, Group, Node};
use crate::store::Store;

/// Maximum number of characters of a value that are shown. A fill value may have megabytes.
const LONGEST_VALUE: usize = 200;

/// Maximum number of attributes and members that are shown to people.
const MOST_LISTED: usize = 12;

/// Describes an array. `complete` also examines every stored chunk.
///
/// # Errors
/// `Unsupported` for codecs that are missing; what the store reports.
pub fn array_info(array: &Array, complete: bool) -> Result<Description> {
    let metadata = array.metadata();
    let mut info = Description::default();
    info.add_text("type", "Type", "Array");
    info.add(
        "zarr_format",
        "Zarr format",
        metadata.zarr_format().number(),
        metadata.zarr_format().number().to_string(),
    );
    info.add_text("data_type", "Data type", metadata.data_type().to_string());
    let fill = metadata.fill_value().to_json(metadata.data_type(), metadata.zarr_format())?;
    let fill_text = plain(&fill);
    info.add("fill_value", "Fill value", fill, fill_text);
    add_shape(&mut info, "shape", "Shape", array.shape());
    let shards = array.shard_shape()?;
    if let Some(shards) = &shards {
        add_stored_shape(&mut info, "shard_shape", "Shard shape", shards, metadata.chunk_grid());
        add_shape(&mut info, "chunk_shape", "Chunk shape", &array.chunk_shape()?);
    } else {
        add_stored_shape(&mut info, "chunk_shape", "Chunk shape", &array.chunk_shape()?, metadata.chunk_grid());
    }
    if let Some(names) = metadata.dimension_names() {
        let text: Vec<&str> = names.iter().map(|name| name.as_deref().unwrap_or("-")).collect();
        info.add("dimension_names", "Dimension names", names.to_vec(), text.join(", "));
    }
    let is_f = match metadata.codecs() {
        CodecsMetadata::V2 { order, .. } => *order == Order::F,
        CodecsMetadata::V3(_) => array.options().order == cuzarr_device::Order::F,
    };
    info.add_text("order", "Order", if is_f { "F" } else { "C" });
    add_store(&mut info, &**array.store());
    add_codecs(&mut info, array)?;
    let shards = shards.is_some();
    // The size of variable-length elements is not known before they are read.
    let element_bytes = metadata.data_type().size_bytes().map(|size| size as u64);
    let size_bytes = element_bytes.and_then(|element| metadata.elems().ok()?.checked_mul(element));
    match size_bytes {
        Some(size_bytes) => info.add("nbytes", "No. bytes", size_bytes, readable(size_bytes)),
        None if element_bytes.is_some() => info.add("nbytes", "No. bytes", Value::Null, "more than 2^64"),
        None => {}
    }
    add_work(&mut info, metadata.unfinished_work());
    add_attributes(&mut info, metadata.attributes());
    if complete {
        let stored = array.nbytes_stored()?;
        info.add("nbytes_stored", "No. bytes stored", stored, readable(stored));
        if let Some(size_bytes) = size_bytes.filter(|_| stored > 0) {
            let ratio = size_bytes as f64 / stored as f64;
            info.add("storage_ratio", "Storage ratio", ratio, format!("{ratio:.1}"));
        }
        let label = if shards { "Shards Initialized" } else { "Chunks Initialized" };
        let chunks = array.nchunks_initialized()?;
        info.add("nchunks_initialized", label, chunks, chunks.to_string());
    }
    Ok(info)
}

/// Describes a group. `complete` also counts its direct and indirect members.
///
/// # Errors
/// What the store reports.
pub fn group_info(group: &Group, complete: bool) -> Result<Description> {
    let mut info = Description::default();
    info.add_text("name", "Name", group.name());
    info.add_text("type", "Type", "Group");
    let format = group.metadata().zarr_format().number();
    info.add("zarr_format", "Zarr format", format, format.to_string());
    add_store(&mut info, &**group.store());
    let consolidated = group.consolidated().is_some();
    info.add("consolidated", "Consolidated", consolidated, if consolidated { "True" } else { "False" });
    add_work(&mut info, group.metadata().unfinished_work());
    add_image(&mut info, group);
    add_attributes(&mut info, group.metadata().attributes());
    add_members(&mut info, group)?;
    if complete {
        let (mut arrays, mut groups, mut unreadable) = (0u64, 0u64, 0u64);
        group.walk(None, &mut |_, metadata| {
            match metadata {
                Ok(NodeMetadata::Array(_)) => arrays += 1,
                Ok(NodeMetadata::Group(_)) => groups += 1,
                Err(_) => unreadable += 1,
            }
            Ok(())
        })?;
        info.add("members", "No. members", arrays + groups, (arrays + groups).to_string());
        info.add("arrays", "No. arrays", arrays, arrays.to_string());
        info.add("groups", "No. groups", groups, groups.to_string());
        if unreadable > 0 {
            info.add("unreadable", "No. unreadable", unreadable, unreadable.to_string());
        }
    }
    Ok(info)
}

/// Adds a row for the attributes: names and values for people, the object for programs.
fn add_attributes(info: &mut Description, attributes: &Map<String, Value>) {
    let mut attributes = attributes.clone();
    attributes.shift_remove(UNFINISHED);
    if attributes.is_empty() {
        return;
    }
    let texts: Vec<String> =
        attributes.iter().take(MOST_LISTED).map(|(name, value)| format!("{name}: {}", plain(value))).collect();
    let text = listed(texts, attributes.len());
    info.add("attributes", "Attributes", attributes, text);
}

/// Adds a row for the unfinished work that writes the node.
fn add_work(info: &mut Description, work: Option<&str>) {
    if let Some(work) = work {
        info.add("unfinished", "Unfinished", work, format!("{work}; repeat the call that began it with resume"));
    }
}

/// Adds a row for the direct members: names and shapes.
fn add_members(info: &mut Description, group: &Group) -> Result<()> {
    let (mut texts, mut members) = (Vec::new(), Map::new());
    let walked = group.walk(Some(0), &mut |name, metadata| {
        let (text, value) = match metadata {
            Ok(NodeMetadata::Array(array)) => {
                let work = array.unfinished_work();
                let text = format!("{name} {}{}", shape_text(array.shape()), unfinished_text(work));
                (text, with_work(json!({"type": "array", "shape": array.shape()}), work))
            }
            Ok(NodeMetadata::Group(group)) => {
                let work = group.unfinished_work();
                (format!("{name}/{}", unfinished_text(work)), with_work(json!({"type": "group"}), work))
            }
            Err(error) => (format!("{name} (unreadable)"), json!({"type": "unreadable", "error": error.message()})),
        };
        texts.push(text);
        members.insert(name.to_string(), value);
        Ok(())
    });
    match walked {
        // Web servers cannot list.
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            info.add("direct_members", "Members", Value::Null, "unknown: the store cannot list them");
            return Ok(());
        }
        walked => walked?,
    }
    let count = texts.len();
    texts.truncate(MOST_LISTED);
    info.add("direct_members", "Members", members, if count == 0 { "none".into() } else { listed(texts, count) });
    Ok(())
}

/// Joins texts, and says how many of `count` are left out.
fn listed(texts: Vec<String>, count: usize) -> String {
    let more = count - texts.len();
    let text = texts.join(", ");
    if more > 0 { format!("{text}, and {more} more") } else { text }
}

/// Adds rows for a group that is an image with several scales. Attributes that do not fit their convention are
/// mentioned, but are not an error: the group can still be described.
fn add_image(info: &mut Description, group: &Group) {
    let image = match Multiscales::of(group.metadata().attributes()) {
        Ok(Some(image)) => image,
        Ok(None) => return,
        Err(error) => return info.add("image", "Image", Value::Null, format!("unreadable: {}", error.message())),
    };
    info.add_text("image", "Image", image.title());
    if !image.axes.is_empty() {
        let axes: Vec<String> = image
            .axes
            .iter()
            .map(|axis| axis.unit.as_ref().map_or_else(|| axis.name.clone(), |unit| format!("{} ({unit})", axis.name)))
            .collect();
        let names: Vec<&str> = image.axes.iter().map(|axis| axis.name.as_str()).collect();
        info.add("axes", "Axes", names, axes.join(", "));
    }
    let (mut texts, mut levels) = (Vec::new(), Vec::new());
    for level in &image.levels {
        let (shape, text) = match group.get(&level.path) {
            Ok(Node::Array(array)) => (Some(array.shape().to_vec()), shape_text(array.shape())),
            Ok(Node::Group(_)) => (None, "(group)".to_string()),
            Err(_) => (None, "no array".to_string()),
        };
        texts.push(format!("{} {text}", level.path));
        levels.push(json!({
            "path": level.path, "shape": shape, "scale": level.scale, "translation": level.translation,
        }));
    }
    info.add("levels", "Levels", levels, texts.join(", "));
    let channels = image.channels();
    if !channels.is_empty() {
        info.add("channels", "Channels", channels.clone(), channels.join(", "));
    }
    let labels = match group.get(IMAGE_LABELS) {
        Ok(Node::Group(labels)) => label_names(labels.metadata().attributes()),
        _ => Vec::new(),
    };
    if !labels.is_empty() {
        info.add("labels", "Labels", labels.clone(), labels.join(", "));
    }
}

fn add_shape(info: &mut Description, key: &'static str, label: &'static str, shape: &[u64]) {
    info.add(key, label, shape.to_vec(), shape_text(shape));
}

/// Adds the shape of stored chunks. For a rectilinear grid, adds the lengths along each dimension, as metadata writes
/// them.
fn add_stored_shape(info: &mut Description, key: &'static str, label: &'static str, shape: &[u64], grid: &ChunkGrid) {
    match grid.rectilinear() {
        None => add_shape(info, key, label, shape),
        Some(grid) => {
            let shapes = grid.to_json()["configuration"]["chunk_shapes"].take();
            let text = plain(&shapes);
            info.add(key, label, shapes, text);
        }
    }
}

fn add_store(info: &mut Description, store: &dyn Store) {
    let read_only = store.capabilities().read_only;
    info.add("read_only", "Read-only", read_only, if read_only { "True" } else { "False" });
    info.add_text("store", "Store", store.to_string());
}

/// Adds filters, serializer and compressors. For a sharded array these are the codecs of its inner chunks, as in zarr-python.
fn add_codecs(info: &mut Description, array: &Array) -> Result<()> {
    match array.metadata().codecs() {
        CodecsMetadata::V3(codecs) => {
            let mut chain = &**array.chain()?;
            let mut json: Vec<Value> = codecs.iter().map(Extension::to_json).collect();
            info.add_hidden("codecs", json.clone());
            while let Some(sharding) = chain.sharding() {
                // The chain can only be read for inner chunks if sharding is its only codec.
                let inner = json.first().and_then(|codec| codec.pointer("/configuration/codecs")?.as_array());
                (chain, json) = (sharding.inner(), inner.cloned().unwrap_or_default());
            }
            let (filters, rest) = json.split_at(chain.array_codec_count().min(json.len()));
            let (serializer, compressors) = rest.split_at(rest.len().min(1));
            add_codec_row(info, "filters", "Filters", filters);
            add_codec_row(info, "serializer", "Serializer", serializer);
            add_codec_row(info, "compressors", "Compressors", compressors);
        }
        CodecsMetadata::V2 { filters, compressor, .. } => {
            let json = |codecs: &[Map<String, Value>]| codecs.iter().cloned().map(Value::Object).collect::<Vec<_>>();
            add_codec_row(info, "filters", "Filters", &json(filters));
            add_codec_row(info, "compressors", "Compressors", &json(compressor.as_slice()));
        }
    }
    Ok(())
}

fn add_codec_row(info: &mut Description, key: &'static str, label: &'static str, codecs: &[Value]) {
    let text: Vec<String> = codecs.iter().map(codec_text).collect();
    info.add(key, label, codecs.to_vec(), if text.is_empty() { "none".to_string() } else { text.join(", ") });
}

/// Writes a codec as text, from the JSON of either format: `zstd(level=3, checksum=false)`.
fn codec_text(codec: &Value) -> String {
    let name = codec.as_str().or_else(|| codec["name"].as_str()).or_else(|| codec["id"].as_str()).unwrap_or("?");
    let own = codec.as_object().filter(|members| members.contains_key("id"));
    let members = own.or_else(|| codec["configuration"].as_object());
    let pairs = members.into_iter().flatten().filter(|(key, _)| *key != "id");
    let text: Vec<String> = pairs.map(|(key, value)| format!("{key}={}", plain(value))).collect();
    if text.is_empty() { name.to_string() } else { format!("{name}({})", text.join(", ")) }
}

/// Writes a JSON value as text: strings without quotes, and long values shortened.
fn plain(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| Cow::Owned(value.to_string()), Cow::Borrowed);
    match text.char_indices().nth(LONGEST_VALUE) {
        None => text.into_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Writes a number of bytes in zarr-python's form: `33554432 (32.0M)`.
fn readable(bytes: u64) -> String {
    let units = [(1u64 << 50, "P"), (1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    match units.into_iter().find(|(size, _)| bytes >= *size) {
        Some((size, unit)) => format!("{bytes} ({:.1}{unit})", bytes as f64 / size as f64),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn codecs_of_both_formats_are_written_alike() {
        let v3 = json!({"name": "zstd", "configuration": {"level": 3, "checksum": false}});
        assert_eq!(codec_text(&v3), "zstd(level=3, checksum=false)");
        assert_eq!(codec_text(&json!({"id": "blosc", "cname": "lz4"})), "blosc(cname=lz4)");
        assert_eq!([codec_text(&json!("crc32c")), codec_text(&json!({"name": "crc32c"}))], ["crc32c", "crc32c"]);
    }

    #[test]
    fn sizes_are_written_as_in_zarr_python() {
        assert_eq!([readable(1023), readable(1024), readable(32 << 20)], ["1023", "1024 (1.0K)", "33554432 (32.0M)"]);
    }
}
