//! Any bytes as any metadata document: nothing may panic, and what is accepted must survive being asked and rewritten.
//! Shared by the fuzz target and by the tests, which run it on seeds and on mutations under stable Rust.

use cuzarr::internal::codec::Chain;
use cuzarr::meta::{
    ArrayMetadata, ChunkKeyEncoding, CodecsMetadata, Consolidated, DataType, Documents, Endian, EntryChange, FillValue,
    GroupMetadata, NewArray, NodeDocuments, NodeMetadata, ZarrFormat, edit_consolidated,
};
use cuzarr_device::Device;
use serde_json::Value;

/// Tries `bytes` as every document. Returns how many readings were accepted.
pub fn check(bytes: &[u8]) -> usize {
    let attempts = [
        Documents { zarr_json: Some(bytes), ..Documents::default() },
        Documents { zarray: Some(bytes), ..Documents::default() },
        Documents { zgroup: Some(bytes), zattrs: Some(bytes), zmetadata: Some(bytes), ..Documents::default() },
        Documents { zgroup: Some(br#"{"zarr_format": 2}"#), zmetadata: Some(bytes), ..Documents::default() },
        Documents { zgroup: Some(br#"{"zarr_format": 2}"#), zattrs: Some(bytes), ..Documents::default() },
    ];
    let mut accepted = 0;
    for documents in &attempts {
        if let Ok(Some(node)) = NodeMetadata::from_documents(documents) {
            check_node(&node);
            accepted += 1;
        }
    }
    if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
        check_value(&value);
    }
    check_edits(bytes);
    accepted
}

/// An edit of what is consolidated leaves JSON, in which nothing is left to edit.
fn check_edits(bytes: &[u8]) {
    for format in [ZarrFormat::V2, ZarrFormat::V3] {
        for path in ["", "a", "a/b"] {
            let change = [EntryChange { path: path.into(), node: None }];
            if let Ok(Some(edited)) = edit_consolidated(format, bytes, &change) {
                let documents = Documents { zarr_json: Some(&edited), ..Documents::default() };
                NodeDocuments::parse(&documents).expect("an edit leaves an object");
                assert_eq!(edit_consolidated(format, &edited, &change).expect("it can be edited again"), None);
            }
        }
    }
}

fn check_node(node: &NodeMetadata) {
    let documents = node.documents();
    let mut written = Documents::default();
    for (name, bytes) in &documents {
        written.set(name, bytes);
    }
    let again = NodeMetadata::from_documents(&written).expect("what was written must be readable");
    let again = again.expect("what was written is a node");
    assert_eq!(again.documents(), documents, "writing again changes nothing");
    match (node, &again) {
        (NodeMetadata::Array(array), NodeMetadata::Array(again)) => check_array(array, again),
        (NodeMetadata::Group(group), NodeMetadata::Group(again)) => check_group(group, again),
        _ => panic!("an array became a group, or the other way round"),
    }
}

fn check_array(array: &ArrayMetadata, again: &ArrayMetadata) {
    assert_eq!(array.shape(), again.shape());
    assert_eq!(array.data_type(), again.data_type());
    assert_eq!(array.chunk_grid(), again.chunk_grid());
    assert_eq!(array.fill_value(), again.fill_value());
    assert_eq!(array.codecs(), again.codecs());
    let _ = (array.elems(), Chain::new(array).map(|chain| chain.describe(Device::Cpu)));

    let grid = array.chunk_grid();
    let counts = grid.chunk_counts(array.shape()).expect("the grid has the array's dimensions");
    let _ = grid.chunk_count(array.shape());
    let elem_size = array.data_type().size_bytes();
    grid.chunk_size_bytes(elem_size.unwrap_or(1)).expect("a chunk that memory cannot hold is refused on reading");
    if counts.iter().all(|&count| count > 0) {
        let last: Vec<u64> = counts.iter().map(|count| count - 1).collect();
        let region = grid.chunk_region(&last, array.shape()).expect("the last chunk is in the grid");
        let ends: Vec<u64> = region.iter().map(|range| range.end).collect();
        assert_eq!(ends, array.shape(), "the last chunk ends with the array");
        let key = array.chunk_key_encoding().key(&last);
        assert_eq!(array.chunk_key_encoding().parse_key(&key, last.len()), Some(last));
    }
    let element = array.fill_value().element(array.data_type());
    assert!(elem_size.is_none_or(|size| size == element.len()));
    check_data_type(array.data_type());
    check_rebuilt(array);
}

/// A new array of the same parts must be like the one that was read.
fn check_rebuilt(array: &ArrayMetadata) {
    let is_v3 = matches!(array.codecs(), CodecsMetadata::V3(_));
    let rebuilt = ArrayMetadata::new(NewArray {
        shape: array.shape().to_vec(),
        data_type: array.data_type().clone(),
        chunk_shape: array.chunk_grid().chunk_shape().to_vec(),
        fill_value: array.fill_value().clone(),
        codecs: array.codecs().clone(),
        chunk_key_encoding: Some(*array.chunk_key_encoding()),
        attributes: array.attributes().clone(),
        dimension_names: array.dimension_names().map(<[_]>::to_vec),
    })
    .expect("parts that were read make an array");
    assert_eq!(rebuilt.data_type(), array.data_type());
    // v2 writes every NaN as "NaN", so only v3 gives back the bits.
    if is_v3 {
        assert_eq!(rebuilt.fill_value(), array.fill_value());
    }
}

fn check_group(group: &GroupMetadata, again: &GroupMetadata) {
    assert_eq!(group.attributes(), again.attributes());
    assert_eq!(group.consolidated(), again.consolidated());
    let Some(consolidated) = group.consolidated() else {
        return;
    };
    let _ = consolidated.children("").count();
    for path in consolidated.paths() {
        let _ = consolidated.node(path);
    }
    check_consolidated_again(consolidated);
}

fn check_consolidated_again(consolidated: &Consolidated) {
    let nodes: Vec<(String, NodeMetadata)> = consolidated
        .paths()
        .filter_map(|path| Some((path.to_owned(), consolidated.node(path).ok().flatten()?)))
        .collect();
    let by_path = nodes.iter().map(|(path, node)| (path.clone(), NodeDocuments::from(node)));
    let again = Consolidated::from_nodes(consolidated.zarr_format(), by_path).expect("nodes of one format");
    assert_eq!(again.paths().len(), nodes.len());
}

fn check_data_type(data_type: &DataType) {
    let size = data_type.size_bytes();
    for unit in data_type.swap_units().iter().chain(&data_type.stored_swap_units(Endian::Big)) {
        assert!(unit.offset + unit.unit_bytes * unit.count <= size.unwrap_or(0), "a unit lies inside the element");
    }
    let _ = (data_type.numpy_descr(), data_type.field_offsets(), data_type.device_dtype());
}

/// `value` as every member that has a parser of its own.
fn check_value(value: &Value) {
    let _ = ChunkKeyEncoding::from_json(value);
    let _ = DataType::from_v3(value).map(|data_type| check_data_type(&data_type));
    for object_codec in [None, Some("vlen-utf8")] {
        if let Ok((data_type, endian)) = DataType::from_v2(value, object_codec) {
            check_data_type(&data_type);
            let (again, _) = DataType::from_v2(&data_type.to_v2(endian), object_codec).expect("a name that is written");
            assert_eq!(again.size_bytes(), data_type.size_bytes());
        }
    }
    for name in ["bool", "int8", "uint64", "float16", "bfloat16", "float64", "complex64", "string", "bytes", "r16"] {
        let data_type = DataType::from_v3(&Value::from(name)).expect("a known name");
        for format in [ZarrFormat::V2, ZarrFormat::V3] {
            if let Ok(fill) = FillValue::from_json(value, &data_type, format) {
                let written = fill.to_json(&data_type, format).expect("what was read can be written");
                let again = FillValue::from_json(&written, &data_type, format).expect("what was written can be read");
                assert!(format == ZarrFormat::V2 || again == fill, "{name}: {value}");
            }
        }
    }
}
