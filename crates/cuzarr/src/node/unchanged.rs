//! Checks that arrays are still stored as they were opened.

use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::{Value, json};

use super::Array;
use super::documents::{self, Consolidation};
use super::path::ancestors;
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::meta::node::{self, Documents, ZARR_JSON, ZARRAY};
use crate::meta::{ArrayMetadata, CodecsMetadata, NodeDocuments, NodeMetadata, ZarrFormat};
use crate::store::{ByteRange, ReadRequest, Store, StoreExt};

/// Checks that the stored documents of arrays still have the shape, data type, chunks, codecs and fill value that the
/// arrays had when they were opened. Attributes and names of dimensions may differ.
///
/// Reads one document for each array, as one batch per store. If the metadata came from a group's consolidated copy, it
/// is enough that a group above still describes the array in this way.
///
/// # Errors
/// `ArrayNotFound` when an array was deleted; `ShapeMismatch`, `DTypeMismatch` or `InvalidArgument` when it was changed, all with
/// `hint`; what the stores report.
pub fn check_unchanged(arrays: &[&Array], hint: &str) -> Result<()> {
    let mut stores: IndexMap<*const (), Vec<&Array>> = IndexMap::new();
    for array in arrays {
        stores.entry(Arc::as_ptr(array.store()).cast()).or_default().push(array);
    }
    let stores: Vec<Vec<&Array>> = stores.into_values().collect();
    let store = |own: &Vec<&Array>| own.first().map(|array| Arc::clone(array.store()));
    let Some(slowest) = stores.iter().filter_map(store).max_by_key(|store| store.capabilities().far) else {
        return Ok(());
    };
    documents::each(&*slowest, &stores, |own| check_in_store(own, hint))?;
    Ok(())
}

fn check_in_store(arrays: &[&Array], hint: &str) -> Result<()> {
    let Some(store) = arrays.first().map(|array| &**array.store()) else { return Ok(()) };
    let name = |array: &Array| match array.metadata().zarr_format() {
        ZarrFormat::V2 => ZARRAY,
        ZarrFormat::V3 => ZARR_JSON,
    };
    let request = |array: &&Array| ReadRequest { key: node::key(array.path(), name(array)), range: ByteRange::Full };
    let stored = store.get_many_at_most(arrays.iter().map(request).collect(), documents::limit_bytes());
    for (array, bytes) in arrays.iter().zip(stored) {
        let found = bytes.and_then(|bytes| parsed(name(array), bytes)).at(|| documents::place(store, array.path()))?;
        let Some((kind, change)) = change(array.metadata(), found.as_ref()) else { continue };
        if array.trusts_consolidated && is_consolidated_so(store, array.path(), array.metadata())? {
            continue;
        }
        let message = format!("{store}: array '/{}' is not what it was when it was opened: {change}", array.path());
        return Err(Error::new(kind, message).with_hint(hint));
    }
    Ok(())
}

fn parsed(name: &'static str, bytes: Option<Vec<u8>>) -> Result<Option<NodeMetadata>> {
    let documents = match name {
        ZARRAY => Documents { zarray: bytes.as_deref(), ..Documents::default() },
        _ => Documents { zarr_json: bytes.as_deref(), ..Documents::default() },
    };
    NodeDocuments::parse(&documents)?.map(|documents| documents.check()).transpose().at(|| name)
}

/// Returns the first difference between an open array's metadata and the stored metadata that affects elements, as an
/// error kind and a text.
fn change(own: &ArrayMetadata, stored: Option<&NodeMetadata>) -> Option<(ErrorKind, String)> {
    let Some(NodeMetadata::Array(stored)) = stored else {
        let what = if stored.is_some() { "a group took its place" } else { "it was deleted" };
        return Some((ErrorKind::ArrayNotFound, what.to_owned()));
    };
    let chunks = |one: &ArrayMetadata| format!("{:?}", one.chunk_grid().chunk_shape());
    let codecs = |one: &ArrayMetadata| codecs_json(one.codecs()).to_string();
    let differs = |what: &str, was: String, is: String| match was == is {
        true => format!("its {what} changed"),
        false => format!("its {what} was {was}, and is {is}"),
    };
    Some(match () {
        () if own.shape() != stored.shape() => {
            let change = differs("shape", format!("{:?}", own.shape()), format!("{:?}", stored.shape()));
            (ErrorKind::ShapeMismatch, change)
        }
        () if own.data_type() != stored.data_type() => {
            let change = differs("data type", own.data_type().to_string(), stored.data_type().to_string());
            (ErrorKind::DTypeMismatch, change)
        }
        () if own.chunk_grid() != stored.chunk_grid() => {
            (ErrorKind::InvalidArgument, differs("chunk shape", chunks(own), chunks(stored)))
        }
        () if own.chunk_key_encoding() != stored.chunk_key_encoding() => {
            let keys = |one: &ArrayMetadata| one.chunk_key_encoding().to_json().to_string();
            (ErrorKind::InvalidArgument, differs("chunk key encoding", keys(own), keys(stored)))
        }
        () if own.codecs() != stored.codecs() => {
            (ErrorKind::InvalidArgument, differs("list of codecs", codecs(own), codecs(stored)))
        }
        () if own.fill_value() != stored.fill_value() => {
            let fill = |one: &ArrayMetadata| {
                let value = one.fill_value().to_json(one.data_type(), one.zarr_format());
                value.unwrap_or(Value::Null).to_string()
            };
            (ErrorKind::InvalidArgument, differs("fill value", fill(own), fill(stored)))
        }
        () => return None,
    })
}

fn codecs_json(codecs: &CodecsMetadata) -> Value {
    match codecs {
        CodecsMetadata::V3(codecs) => codecs.iter().map(|codec| codec.to_json()).collect(),
        CodecsMetadata::V2 { filters, compressor, order, endian } => {
            json!({ "filters": filters, "compressor": compressor, "order": format!("{order:?}"), "endian": format!("{endian:?}") })
        }
    }
}

/// Whether the consolidated metadata of any group above describes the array in the same way as `own`.
fn is_consolidated_so(store: &dyn Store, path: &str, own: &ArrayMetadata) -> Result<bool> {
    for group in ancestors(path) {
        let found = documents::find(store, group, Some(own.zarr_format()), &Consolidation::WhenPresent)?;
        let Some(NodeMetadata::Group(group_metadata)) = found.map(|found| found.metadata) else { continue };
        let relative = if group.is_empty() { path } else { &path[group.len() + 1..] };
        let Some(consolidated) = group_metadata.consolidated() else { continue };
        if change(own, consolidated.node(relative)?.as_ref()).is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}
