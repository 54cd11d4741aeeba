//! New arrays by the builder, and opening by URL.

use std::sync::Arc;

use cuzarr::meta::{CodecsMetadata, Extension, FillValue, TimeUnit};
use cuzarr::prelude::*;
use serde_json::{Map, Value, json};

fn document(array: &Array) -> Value {
    serde_json::from_slice(&array.metadata().to_json()).unwrap()
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

#[test]
fn what_is_not_said_is_what_zarr_python_chooses() {
    let array = Array::builder([1000, 1000], DataType::Float64).create_in(memory(), "a").unwrap();
    assert_eq!(
        document(&array),
        json!({
            "zarr_format": 3, "node_type": "array", "shape": [1000, 1000], "data_type": "float64", "fill_value": 0.0,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [250, 250]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}},
                {"name": "zstd", "configuration": {"level": 0, "checksum": false}}],
            "attributes": {}, "storage_transformers": []
        })
    );
    let array = Array::builder([10], DataType::Int8).zarr_format(ZarrFormat::V2).create_in(memory(), "a").unwrap();
    assert_eq!(
        document(&array),
        json!({
            "zarr_format": 2, "shape": [10], "chunks": [10], "dtype": "|i1", "fill_value": 0, "order": "C", "filters": null,
            "dimension_separator": ".", "compressor": {"id": "zstd", "level": 0}
        })
    );
}

#[test]
fn what_is_said_is_in_the_metadata() {
    let array = Array::builder([100, 60], DataType::Float32)
        .chunks([5, 10])
        .shards([50, 30])
        .compressor("blosc:7")
        .fill_value(f32::NAN)
        .dimension_names(["y", "x"])
        .attribute("units", "K")
        .attributes(Map::from_iter([("scale".to_string(), json!(2))]))
        .create_in(memory(), "deep/er/a")
        .unwrap();
    assert_eq!((array.chunk_shape().unwrap(), array.shard_shape().unwrap()), (vec![5, 10], Some(vec![50, 30])));
    let document = document(&array);
    assert_eq!(document["fill_value"], "NaN");
    assert_eq!(document["dimension_names"], json!(["y", "x"]));
    assert_eq!(document["attributes"], json!({"units": "K", "scale": 2}));
    let inner = &document["codecs"][0]["configuration"]["codecs"];
    assert_eq!(
        inner[1]["configuration"],
        json!({
            "cname": "lz4", "clevel": 7, "shuffle": "shuffle", "blocksize": 0, "typesize": 4
        })
    );
    let all = Selection::all(array.shape());
    array.write(&Selection::region(&[3, 4], &[1, 2]).unwrap(), &[1.0_f32, 2.0]).unwrap();
    let read = array.read::<f32>(&all).unwrap();
    assert_eq!(read.iter().filter(|element| element.is_nan()).count(), 5998);
    assert_eq!([read.element(&[3, 4]), read.element(&[3, 5])], [Some(&1.0), Some(&2.0)]);
}

#[test]
fn every_short_name_of_a_compressor_is_one() {
    for format in [ZarrFormat::V2, ZarrFormat::V3] {
        for name in ["none", "zstd", "zstd:9", "gzip:1", "blosc", r#"{"name": "zstd", "configuration": {"level": 1}}"#]
        {
            let array = Array::builder([40], DataType::UInt16).chunks([7]).compressor(name).zarr_format(format);
            let array = array.create_in(memory(), "a").unwrap();
            let elements: Vec<u16> = (0..40).collect();
            array.write(&Selection::all(&[40]), &elements).unwrap();
            assert_eq!(array.read::<u16>(&Selection::all(&[40])).unwrap()[..], elements, "{name}");
        }
    }
}

#[test]
fn codecs_are_completed_by_what_follows_from_the_elements() {
    let codecs = [Extension::new("bytes", Map::new()), Extension::new("crc32c", Map::new())];
    let metadata = Array::builder([4], DataType::Int16).codecs(codecs).metadata().unwrap();
    let CodecsMetadata::V3(codecs) = metadata.codecs() else { panic!("format 3") };
    assert_eq!(codecs[0].configuration["endian"], "little");
    assert_eq!(codecs[1].name, "crc32c");
}

#[test]
fn types_without_numbers_are_created_in_both_formats() {
    let time = DataType::DateTime64 { unit: TimeUnit::Second, scale_factor: 1 };
    for format in [ZarrFormat::V2, ZarrFormat::V3] {
        let array = Array::builder([3], DataType::VariableString).zarr_format(format).fill_value_json("none");
        let array = array.create_in(memory(), "a").unwrap();
        assert_eq!(array.read_variable(&Selection::all(&[3])).unwrap().get(1), Some(&b"none"[..]));
        let array = Array::builder([2], time.clone()).zarr_format(format).fill_value_json("NaT");
        let array = array.create_in(memory(), "a").unwrap();
        assert_eq!(array.read::<i64>(&Selection::all(&[2])).unwrap()[..], [i64::MIN; 2]);
        let array = Array::builder([2], time.clone()).zarr_format(format).fill_value(7_i64);
        assert_eq!(array.metadata().unwrap().fill_value(), &FillValue::Element(7_i64.to_le_bytes().to_vec()));
    }
    let half: DataType = "float16".parse().unwrap();
    assert_eq!(DataType::try_from(DType::FLOAT16).unwrap(), half);
    assert_eq!("flaot16".parse::<DataType>().unwrap_err().kind(), ErrorKind::UnknownDataType);
    for dtype in DType::NUMBERS {
        assert_eq!(DataType::try_from(dtype).unwrap().device_dtype(), Some(dtype));
    }
}

#[test]
fn numbers_that_only_move_are_created_and_keep_their_bits() {
    for number in SmallNumber::all() {
        let data_type: DataType = number.name().parse().unwrap();
        assert_eq!(data_type, DataType::Small(number));
        let (store, all) = (memory(), Selection::all(&[5]));
        let array = Array::builder([5], data_type.clone()).chunks([2]).create_in(Arc::clone(&store), "a").unwrap();
        let dtype = data_type.device_dtype().unwrap();
        let bytes: Vec<u8> = (0..5 * dtype.size_bytes()).map(|at| (at * 37 + 11) as u8).collect();
        let elements = NdBuffer::from_host(Device::Cpu, dtype, &[5], Order::C, &bytes).unwrap();
        array.write_buffer(&all, &elements).unwrap();
        let array = Array::open(store, "a", ArrayOptions::default()).unwrap();
        assert_eq!(array.metadata().data_type(), &data_type);
        let read = array.read_buffer(&all).unwrap();
        assert_eq!((read.dtype(), read.to_host_bytes(Order::C).unwrap()), (dtype, bytes), "{number}");
        // Nobody computes with them, and nobody takes their bytes for integers.
        assert!(read.astype(DType::FLOAT32, Order::C).is_err(), "{number}");
        assert_eq!(array.read::<u8>(&all).unwrap_err().kind(), ErrorKind::DTypeMismatch, "{number}");
    }
}

#[test]
fn arrays_without_dimensions_or_elements_are_created() {
    let one = Array::builder([], DataType::Int32).fill_value(5).create_in(memory(), "a").unwrap();
    assert_eq!(one.read::<i32>(&Selection::all(&[])).unwrap()[..], [5]);
    let none = Array::builder([0, 4], DataType::Int32).create_in(memory(), "a").unwrap();
    assert_eq!(none.read::<i32>(&Selection::all(&[0, 4])).unwrap().shape(), [0, 4]);
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_stored() {
    let array = || Array::builder([8, 8], DataType::Int32);
    let v2 = || array().zarr_format(ZarrFormat::V2);
    for (builder, kind, word) in [
        (array().chunks([4, 4]).shards([6, 8]), ErrorKind::InvalidArgument, "[6, 8]"),
        (array().chunks([4, 4]).shards([8]), ErrorKind::InvalidArgument, "[8]"),
        (array().chunks([0, 4]).shards([8, 8]), ErrorKind::InvalidArgument, "[0, 4]"),
        (array().chunks([4]), ErrorKind::MetadataInvalid, "chunk_shape"),
        (array().compressor("lz5"), ErrorKind::InvalidArgument, "unknown compressor 'lz5'"),
        (array().compressor("zstd:fast"), ErrorKind::InvalidArgument, "'zstd:fast'"),
        (array().fill_value(1.5_f32), ErrorKind::DTypeMismatch, "float32"),
        (array().fill_value_json("many"), ErrorKind::MetadataInvalid, "fill_value"),
        (array().dimension_names(["x"]), ErrorKind::MetadataInvalid, "dimension_names"),
        (array().codecs([]), ErrorKind::MetadataInvalid, "such as 'bytes'"),
        (v2().chunks([4, 4]).shards([8, 8]), ErrorKind::InvalidArgument, "shards"),
        (v2().dimension_names(["y", "x"]), ErrorKind::InvalidArgument, "dimension names"),
        (v2().codecs([]), ErrorKind::InvalidArgument, "codecs"),
    ] {
        let store = memory();
        let error = builder.create_in(Arc::clone(&store), "a").unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(word), "{word}: {error}");
        assert_eq!(store.list("").unwrap(), Vec::<String>::new());
    }
}

#[test]
fn what_is_there_is_only_replaced_when_asked() {
    let store = memory();
    let create = |overwrite| {
        let array = Array::builder([2], DataType::UInt8).fill_value(1_u8).overwrite(overwrite);
        array.create_in(Arc::clone(&store), "a")
    };
    let all = Selection::all(&[2]);
    create(false).unwrap().write(&all, &[7_u8, 8]).unwrap();
    assert_eq!(create(false).unwrap_err().kind(), ErrorKind::ContainsArray);
    assert_eq!(create(true).unwrap().read::<u8>(&all).unwrap()[..], [1, 1]);
}

#[test]
fn urls_are_created_and_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let root = create_group(&path("data.zarr")).unwrap();
    Array::builder([3], DataType::Int16).create(&path("data.zarr/numbers")).unwrap();
    assert_eq!(root.array("numbers").unwrap().shape(), [3]);
    let url = format!("file://{}", path("data.zarr"));
    assert!(matches!(open(&url).unwrap(), Node::Group(_)));
    assert!(matches!(open(&format!("{url}/numbers")).unwrap(), Node::Array(_)));
    assert_eq!(open_group(&url).unwrap().array("numbers").unwrap().shape(), [3]);
    let numbers = open_array(&path("data.zarr/numbers")).unwrap();
    numbers.write(&Selection::all(&[3]), &[1_i16, 2, 3]).unwrap();
    let again = open_array(&format!("{url}/numbers")).unwrap();
    assert_eq!(again.read::<i16>(&Selection::all(&[3])).unwrap()[..], [1, 2, 3]);
    assert_eq!(create_group(&url).unwrap_err().kind(), ErrorKind::ContainsGroup);
    assert_eq!(open_array(&url).unwrap_err().kind(), ErrorKind::ArrayNotFound);
    assert_eq!(open_group(&format!("{url}/numbers")).unwrap_err().kind(), ErrorKind::GroupNotFound);
    assert_eq!(open(&path("nothing")).unwrap_err().kind(), ErrorKind::NodeNotFound);
    assert!(!folder.path().join("nothing").exists(), "looking makes no directory");
    assert_eq!(open("nowhere://a").unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn groups_have_the_settings_that_were_said() {
    let store = memory();
    let group = Group::builder().create_in(Arc::clone(&store), "plain").unwrap();
    let document: Value = serde_json::from_slice(&group.metadata().to_json()).unwrap();
    assert_eq!(document, json!({"attributes": {}, "zarr_format": 3, "node_type": "group"}));

    let options = ArrayOptions::default().with_memory_limit_bytes(1 << 20);
    let group = Group::builder()
        .zarr_format(ZarrFormat::V2)
        .attribute("title", "winds")
        .attributes(Map::from_iter([("year".to_string(), json!(2026))]))
        .options(options);
    let group = group.create_in(Arc::clone(&store), "deep/er").unwrap();
    assert_eq!(group.options().memory_limit_bytes, 1 << 20);
    assert_eq!(store.get("deep/er/.zgroup").unwrap().as_deref(), Some(&b"{\n  \"zarr_format\": 2\n}"[..]));
    let zattrs: Value = serde_json::from_slice(&store.get("deep/er/.zattrs").unwrap().unwrap()).unwrap();
    assert_eq!(zattrs, json!({"title": "winds", "year": 2026}));
    assert!(store.exists("deep/.zgroup").unwrap(), "groups above are created");
}

#[test]
fn a_group_is_replaced_only_when_asked() {
    let store = memory();
    Array::builder([4], DataType::Int16).create_in(Arc::clone(&store), "a").unwrap();
    let error = Group::builder().create_in(Arc::clone(&store), "a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ContainsArray);
    Group::builder().overwrite(true).create_in(Arc::clone(&store), "a").unwrap();
    assert_eq!(Group::builder().create_in(store, "a").unwrap_err().kind(), ErrorKind::ContainsGroup);
}

#[test]
fn a_stream_of_regions_is_written_in_order() {
    let array = Array::builder([10, 4], DataType::Int32).chunks([3, 4]).create_in(memory(), "a").unwrap();
    let regions = Regions::new(array.shape(), vec![3, 4]).unwrap().from(0).collect::<Result<Vec<_>>>().unwrap();
    let elements = |region: &cuzarr::plan::Region| {
        let first = region.start[0] as i32 * 4;
        let shape: Vec<usize> = region.extent.iter().map(|&extent| extent as usize).collect();
        let bytes: Vec<u8> = (first..first + region.elems() as i32).flat_map(i32::to_ne_bytes).collect();
        Ok(NdBuffer::from_host(Device::Cpu, DType::INT32, &shape, Order::C, &bytes)?)
    };
    let mut made = Vec::new();
    array
        .write_stream(&regions, |region| {
            made.push(region.start[0]);
            elements(region)
        })
        .unwrap();
    assert_eq!(made, [0, 3, 6, 9]);
    assert_eq!(*array.read::<i32>(&Selection::all(array.shape())).unwrap(), (0..40).collect::<Vec<_>>()[..]);

    // What fails is said, whichever side it is on; nothing is made after that.
    let failed = array.write_stream(&regions, |region| match region.start[0] {
        3 => Err(Error::new(ErrorKind::Cancelled, "enough")),
        start => {
            assert!(start < 3);
            elements(region)
        }
    });
    assert_eq!(failed.unwrap_err().message(), "enough");
    let error = array.write_stream(&regions, |_| elements(&regions[0])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
}
