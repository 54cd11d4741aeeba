//! What one array or group is: the rows of zarr-python's `info`.

use serde_json::Value;

use super::Description;
use crate::error::Result;
use crate::meta::{CodecsMetadata, Extension, Order};
use crate::node::{Array, Group};
use crate::store::Store;

/// Describes an array; `complete` also looks at every stored chunk.
///
/// # Errors
/// What the codecs lack; what the store reports.
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
    info.add("fill_value", "Fill value", fill.clone(), fill.to_string());
    add_shape(&mut info, "shape", "Shape", array.shape());
    if let Some(shards) = array.shard_shape()? {
        add_shape(&mut info, "shard_shape", "Shard shape", &shards);
    }
    add_shape(&mut info, "chunk_shape", "Chunk shape", &array.chunk_shape()?);
    if let Some(names) = metadata.dimension_names() {
        let text: Vec<&str> = names.iter().map(|name| name.as_deref().unwrap_or("-")).collect();
        info.add("dimension_names", "Dimension names", names.to_vec(), text.join(", "));
    }
    add_store(&mut info, &**array.store());
    add_codecs(&mut info, metadata.codecs());
    let element_bytes = metadata.data_type().size_bytes().unwrap_or(0) as u64;
    let size_bytes = metadata.elems()?.saturating_mul(element_bytes);
    info.add("nbytes", "No. bytes", size_bytes, readable(size_bytes));
    if complete {
        let stored = array.nbytes_stored()?;
        info.add("nbytes_stored", "No. bytes stored", stored, readable(stored));
        let ratio = if stored == 0 { 0.0 } else { size_bytes as f64 / stored as f64 };
        info.add("storage_ratio", "Storage ratio", ratio, format!("{ratio:.1}"));
        let chunks = array.nchunks_initialized()?;
        info.add("nchunks_initialized", "Chunks initialized", chunks, chunks.to_string());
    }
    Ok(info)
}

/// Describes a group; `complete` also counts its direct and indirect members.
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
    if complete {
        let (mut arrays, mut groups) = (0u64, 0u64);
        group.walk(None, &mut |_, metadata| {
            let counter = if metadata?.as_array().is_some() { &mut arrays } else { &mut groups };
            *counter += 1;
            Ok(())
        })?;
        info.add("members", "No. members", arrays + groups, (arrays + groups).to_string());
        info.add("arrays", "No. arrays", arrays, arrays.to_string());
        info.add("groups", "No. groups", groups, groups.to_string());
    }
    Ok(info)
}

fn add_shape(info: &mut Description, key: &'static str, label: &'static str, shape: &[u64]) {
    let extents: Vec<String> = shape.iter().map(u64::to_string).collect();
    info.add(key, label, shape.to_vec(), format!("({})", extents.join(", ")));
}

fn add_store(info: &mut Description, store: &dyn Store) {
    let read_only = store.is_read_only();
    info.add("read_only", "Read-only", read_only, if read_only { "True" } else { "False" });
    info.add_text("store", "Store", store.to_string());
}

fn add_codecs(info: &mut Description, codecs: &CodecsMetadata) {
    match codecs {
        CodecsMetadata::V3(codecs) => {
            let json: Vec<Value> = codecs.iter().map(Extension::to_json).collect();
            let text: Vec<String> = json.iter().map(Value::to_string).collect();
            info.add("codecs", "Codecs", json, text.join(" → "));
        }
        CodecsMetadata::V2 { filters, compressor, order, .. } => {
            info.add_text("order", "Order", if *order == Order::C { "C" } else { "F" });
            let filters: Vec<Value> = filters.iter().cloned().map(Value::Object).collect();
            let text: Vec<String> = filters.iter().map(Value::to_string).collect();
            info.add(
                "filters",
                "Filters",
                filters,
                if text.is_empty() { "none".to_string() } else { text.join(" → ") },
            );
            let compressor = compressor.clone().map_or(Value::Null, Value::Object);
            let text = if compressor.is_null() { "none".to_string() } else { compressor.to_string() };
            info.add("compressor", "Compressor", compressor, text);
        }
    }
}

/// `33554432 (32.0M)`, as zarr-python writes it.
fn readable(bytes: u64) -> String {
    let units = [(1u64 << 50, "P"), (1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    match units.into_iter().find(|(size, _)| bytes >= *size) {
        Some((size, unit)) => format!("{bytes} ({:.1}{unit})", bytes as f64 / size as f64),
        None => bytes.to_string(),
    }
}
