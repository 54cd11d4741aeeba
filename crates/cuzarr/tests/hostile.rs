//! Stored bytes that ask for much: documents with absurd numbers, frames that decode to far more than they have. Each is
//! refused by name, or handled within little memory. In a program of its own, because it watches the memory of the process.

mod model;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuzarr::codec::{ChunkSpec, VariableElements};
use cuzarr::display::{Display, array_info};
use cuzarr::internal::codec::Chain;
use cuzarr::internal::node::chain;
use cuzarr::meta::{DataType, Extension, FillValue};
use cuzarr::node::{Array, ArrayOptions};
use cuzarr::plan::{AxisSelection, Selection};
use cuzarr::store::{MemoryStore, Store, StoreExt};
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_device::{DType, Device, NdBuffer, Order};
use serde_json::{Value, json};

/// What a document below 1 MB may take, whatever it says.
const MOST_BYTES: u64 = 100 << 20;

/// What a call may take. The address sanitizer, which runs with the kernels for the CPU, keeps freed memory for a while (256 MiB).
fn most_bytes() -> u64 {
    let sanitized = std::env::var("LD_PRELOAD").is_ok_and(|libraries| libraries.contains("asan"));
    if sanitized { MOST_BYTES + (256 << 20) } else { MOST_BYTES }
}

/// The most memory that the process ever had while `work` ran, beyond what it had before.
fn peak_bytes(work: impl FnOnce()) -> u64 {
    let bytes = |name: &str| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_start_matches(':').trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
    };
    // Forgets the peak of what was before.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = bytes("VmRSS");
    work();
    bytes("VmHWM").saturating_sub(before)
}

/// The memory of the process means something while one test at a time is at work.
fn alone() -> MutexGuard<'static, ()> {
    static PROCESS: Mutex<()> = Mutex::new(());
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn document(shape: &[u64], chunks: &[u64], data_type: Value, fill: Value, codecs: Value) -> Value {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": fill, "codecs": codecs,
    })
}

fn old_document(dtype: Value) -> Value {
    json!({"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": dtype, "fill_value": null, "order": "C",
        "compressor": null, "filters": null})
}

fn little() -> Value {
    json!([model::bytes_codec("little")])
}

fn plain(shape: &[u64], chunks: &[u64]) -> Value {
    document(shape, chunks, json!("int8"), json!(0), little())
}

/// A structure in which each level has the one below twice.
fn doubled(levels: usize) -> Value {
    (0..levels).fold(json!("<i2"), |inner, _| json!([["a", inner], ["b", inner]]))
}

/// A structure whose every level repeats the one below by its shape.
fn repeated(levels: usize, leaf: &str) -> Value {
    (0..levels).fold(json!(leaf), |inner, _| json!([["a", inner, [2]], ["b", "|i1"]]))
}

fn store_of(document: &Value) -> Arc<dyn Store> {
    let store = Arc::new(MemoryStore::new());
    let name = if document["zarr_format"] == 3 { "zarr.json" } else { ".zarray" };
    store.write(name, document.to_string().as_bytes()).unwrap();
    store
}

fn opened(document: &Value) -> Result<Array> {
    Array::open(store_of(document), "", ArrayOptions::default())
}

/// One element, the first.
fn first(array: &Array) -> Selection {
    let axis = AxisSelection { start: 0, count: 1, step: 1, dropped: false };
    Selection::new(vec![axis; array.shape().len()]).unwrap()
}

/// Everything that can be asked of an array without naming elements; errors are as good as answers.
fn ask(array: &Array) {
    let metadata = array.metadata();
    let _ = (metadata.elems(), metadata.chunk_grid().chunk_count(array.shape()), metadata.data_type().to_string());
    let _ = (chain(array).is_ok(), array.chunk_shape().is_ok(), array.stored_chunks(), array.nchunks_initialized());
    let _ = (array_info(array, false).map(|info| info.to_text()), array_info(array, true).map(|info| info.to_text()));
    for selection in [Selection::all(array.shape()), first(array)] {
        let _ = array.explain(&selection).map(|explanation| explanation.to_string());
        let _ = array.explain_write(&selection).map(|explanation| explanation.to_string());
    }
}

#[test]
fn documents_with_absurd_numbers_are_handled_in_little_memory() {
    let _alone = alone();
    let longest = i64::MAX as u64;
    let unsupported = Some(ErrorKind::UnsupportedFeature);
    let invalid = Some(ErrorKind::MetadataInvalid);
    let transposes = vec![json!({"name": "transpose", "configuration": {"order": [0]}}); 12_000];
    let compressors = vec![json!({"name": "gzip", "configuration": {"level": 1}}); 15_000];
    let large = |codecs: Vec<Value>| {
        let codecs = [codecs, vec![json!("bytes")]].concat();
        document(&[1], &[1], json!("r134217728"), json!([0]), json!(codecs))
    };
    let many: Vec<Value> = (0..30_000).map(|number| json!([format!("f{number}"), "|i1"])).collect();
    let cases = [
        ("an extent of 2^63", plain(&[longest + 1], &[1]), invalid),
        ("an extent of 2^64 - 1", plain(&[u64::MAX], &[u64::MAX]), invalid),
        ("nothing beside 2^64 - 1", plain(&[0, u64::MAX], &[1, 1]), invalid),
        ("nothing beside the longest", plain(&[0, longest], &[0, 1]), None),
        ("the longest", plain(&[longest], &[1]), None),
        ("the longest in one chunk", plain(&[longest], &[longest]), None),
        ("more elements than can be counted", plain(&[longest, longest], &[1, longest]), None),
        ("chunks of too many bytes", document(&[longest], &[longest], json!("int16"), json!(0), little()), invalid),
        ("64 dimensions", plain(&[2; 64], &[1; 64]), None),
        ("65 dimensions", plain(&[1; 65], &[1; 65]), unsupported),
        ("100 000 dimensions", plain(&vec![1; 100_000], &vec![1; 100_000]), unsupported),
        ("elements of 64 MiB", document(&[4], &[4], json!("r536870912"), json!([0]), little()), invalid),
        ("elements of 16 MiB", large(vec![]), None),
        ("elements of 16 MiB in 12 000 codecs", large(transposes), None),
        (
            "a chain of 15 000 compressors",
            {
                let codecs = [vec![json!("bytes")], compressors].concat();
                document(&[4], &[4], json!("int8"), json!(0), json!(codecs))
            },
            None,
        ),
        ("a structure of 30 000 fields", old_document(json!(many)), None),
        ("a structure that doubles 14 times", old_document(doubled(14)), None),
        ("a structure that repeats 15 times", old_document(repeated(15, "|i1")), None),
        ("a structure that repeats 20 times", old_document(repeated(20, "<i4")), unsupported),
        ("a structure that repeats 60 times", old_document(repeated(60, "|i1")), invalid),
        (
            "shards of 2^60 chunks",
            document(&[1 << 60], &[1 << 60], json!("int8"), json!(0), model::sharding(&[1], little(), "end")),
            invalid,
        ),
        (
            "shards of 2^40 chunks",
            document(&[1 << 40], &[1 << 40], json!("int8"), json!(0), model::sharding(&[1], little(), "end")),
            None,
        ),
    ];
    for (what, document, expected) in cases {
        assert!(document.to_string().len() < 1 << 20, "{what}: a document of less than 1 MB");
        let mut got = None;
        let peak = peak_bytes(|| match opened(&document).and_then(|array| chain(&array).map(|_| array.clone())) {
            Ok(array) => ask(&array),
            Err(error) => got = Some(error),
        });
        assert!(peak < most_bytes(), "{what}: {} MB", peak >> 20);
        assert_eq!(got.as_ref().map(Error::kind), expected, "{what}: {got:?}");
        assert!(got.is_none_or(|error| error.to_string().len() < 10_000), "{what}: a message to read");
    }
}

#[test]
fn an_element_of_a_huge_array_is_read_and_written_alone() {
    let _alone = alone();
    for shape in [vec![1, 1 << 32], vec![1 << 32, 1], vec![1 << 62], vec![1 << 40; 3]] {
        let chunks = vec![1; shape.len()];
        let array = opened(&document(&shape, &chunks, json!("uint16"), json!(7), little())).unwrap();
        let one = first(&array);
        assert_eq!(array.read_buffer(&one).unwrap().to_host_bytes(Order::C).unwrap(), 7u16.to_le_bytes(), "{shape:?}");
        let value = NdBuffer::full(Device::Cpu, DType::UINT16, &vec![1; shape.len()], Order::C, &[5, 0]).unwrap();
        array.write_buffer(&one, &value).unwrap();
        assert_eq!(array.read_buffer(&one).unwrap().to_host_bytes(Order::C).unwrap(), 5u16.to_le_bytes(), "{shape:?}");
        assert_eq!(array.stored_chunks().unwrap().len(), 1, "{shape:?}");
    }
}

#[test]
fn lists_of_a_shards_chunks_are_in_the_budget() {
    let _alone = alone();
    let shards = model::sharding(&[1], little(), "end");
    let array = opened(&document(&[1 << 32], &[1 << 32], json!("int8"), json!(0), shards.clone())).unwrap();
    let value = NdBuffer::full(Device::Cpu, DType::INT8, &[1], Order::C, &[5]).unwrap();
    let peak = peak_bytes(|| {
        let error = array.write_buffer(&first(&array), &value).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BudgetExceeded, "{error}");
    });
    assert!(peak < most_bytes(), "{} MB", peak >> 20);
    // So many as real shards have are no reason to refuse.
    let array = opened(&document(&[1 << 17], &[1 << 17], json!("int8"), json!(0), shards)).unwrap();
    array.write_buffer(&first(&array), &value).unwrap();
    assert_eq!(array.read_buffer(&first(&array)).unwrap().to_host_bytes(Order::C).unwrap(), [5]);
}

#[test]
fn a_chunk_of_more_strings_than_memory_holds_is_refused() {
    let _alone = alone();
    let array = opened(&document(&[1 << 40], &[1 << 40], json!("string"), json!(""), json!(["vlen-utf8"]))).unwrap();
    let mut one = VariableElements::default();
    one.push(b"x");
    let error = array.write_variable(&first(&array), &one).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BudgetExceeded, "{error}");
    let error = array.read_variable(&Selection::all(array.shape())).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::OutOfMemory | ErrorKind::Cancelled), "{error}");
}

/// What codecs make of this many zeros, which begin like a chunk of one empty string. It takes a moment, so it is made once each.
const BOMB_BYTES: usize = 192 << 20;
/// What a variable-length chunk may decode to here.
const LIMIT_BYTES: u64 = 8 << 20;

fn compressors() -> Vec<Value> {
    vec![
        json!({"name": "gzip", "configuration": {"level": 6}}),
        json!({"name": "numcodecs.zlib", "configuration": {"level": 6}}),
        json!({"name": "numcodecs.bz2", "configuration": {"level": 9}}),
        json!({"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}),
        model::zstd_codec(),
        json!({"name": "blosc", "configuration":
            {"cname": "zstd", "clevel": 5, "shuffle": "noshuffle", "typesize": 1, "blocksize": 0}}),
    ]
}

fn extensions(codecs: &[Value]) -> Vec<Extension> {
    codecs.iter().map(|codec| Extension::from_json(codec, "codecs").unwrap()).collect()
}

/// The bytes that `codecs` make of a chunk that begins with `head` and goes on with zeros.
fn bomb(head: &[u8], codecs: &[Value]) -> Vec<u8> {
    let codecs = [&[json!("bytes")], codecs].concat();
    let spec = ChunkSpec::new(vec![BOMB_BYTES as u64], DataType::UInt8, FillValue::Element(vec![0]));
    let chain = Chain::from_extensions(&extensions(&codecs), spec).unwrap();
    let mut chunk = vec![0; BOMB_BYTES];
    chunk[..head.len()].copy_from_slice(head);
    chain.bind(Device::Cpu).unwrap().encode(&chunk).unwrap()
}

#[test]
fn a_frame_of_strings_decodes_to_no_more_than_its_limit() {
    let _alone = alone();
    for codec in compressors() {
        let stored = bomb(&[1, 0, 0, 0], std::slice::from_ref(&codec));
        let text = |codecs: Value, chunks: &[u64]| document(&[1], chunks, json!("string"), json!("x"), codecs);
        for codecs in [json!(["vlen-utf8", codec.clone()]), json!(["vlen-utf8", codec.clone(), "crc32c"])] {
            let sealed = codecs.as_array().map_or(0, Vec::len) == 3;
            let stored = if sealed { sealed_with_crc32c(&stored) } else { stored.clone() };
            let array = opened(&text(codecs.clone(), &[1])).unwrap();
            array.store().write("c/0", &stored).unwrap();
            let all = Selection::all(&[1]);
            let options = |limit, memory| {
                ArrayOptions::default().with_variable_limit_bytes(limit).with_memory_limit_bytes(memory)
            };
            // The array's own limit, and the budget where that is less.
            for (limit, memory, hint) in
                [(LIMIT_BYTES, 1 << 30, "variable_chunk_max_bytes"), (1 << 40, 2 * LIMIT_BYTES, "memory_limit")]
            {
                let array = array.with_options(options(limit, memory));
                let peak = peak_bytes(|| {
                    let error = array.read_variable(&all).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::BudgetExceeded, "{codecs}: {error}");
                    assert!(error.to_string().contains(hint), "{codecs}: {error}");
                });
                assert!(peak < 6 * LIMIT_BYTES + (16 << 20), "{codecs}: {} MB", peak >> 20);
            }
            // Elements are replaced only after the chunk was read.
            let mut one = VariableElements::default();
            one.push(b"y");
            let two = opened(&document(&[2], &[2], json!("string"), json!("x"), codecs.clone())).unwrap();
            two.store().write("c/0", &stored).unwrap();
            let error = two.with_options(options(LIMIT_BYTES, 1 << 30)).write_variable(&first(&two), &one).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BudgetExceeded, "{codecs}: {error}");
        }
    }
}

/// As the codec `crc32c` stores it.
fn sealed_with_crc32c(stored: &[u8]) -> Vec<u8> {
    let spec = ChunkSpec::new(vec![stored.len() as u64], DataType::UInt8, FillValue::Element(vec![0]));
    let chain = Chain::from_extensions(&extensions(&[json!("bytes"), json!("crc32c")]), spec).unwrap();
    chain.bind(Device::Cpu).unwrap().encode(stored).unwrap()
}

#[test]
fn chunks_within_the_limit_are_read_by_many_threads_in_a_small_budget() {
    let _alone = alone();
    // Each decodes to much more than its share, so each is decoded alone.
    let document = document(&[8], &[1], json!("string"), json!(""), json!(["vlen-utf8", model::zstd_codec()]));
    let options = ArrayOptions::default().with_memory_limit_bytes(24 << 20).with_threads(8);
    let array = opened(&document).unwrap().with_options(options);
    let mut elements = VariableElements::default();
    (0..8u8).for_each(|number| elements.push(&vec![b'a' + number; 4 << 20]));
    array.write_variable(&Selection::all(&[8]), &elements).unwrap();
    assert_eq!(array.read_variable(&Selection::all(&[8])).unwrap(), elements);
}

#[test]
fn what_readers_would_refuse_is_not_written() {
    let _alone = alone();
    let document = document(&[1], &[1], json!("string"), json!(""), json!(["vlen-utf8"]));
    let options = ArrayOptions::default().with_variable_limit_bytes(1000);
    let array = opened(&document).unwrap().with_options(options);
    for (size_bytes, fits) in [(992, true), (993, false)] {
        let mut elements = VariableElements::default();
        elements.push(&vec![b'x'; size_bytes]);
        let written = array.write_variable(&Selection::all(&[1]), &elements);
        assert_eq!(
            written.as_ref().err().map(Error::kind),
            (!fits).then_some(ErrorKind::BudgetExceeded),
            "{written:?}"
        );
        assert_eq!(array.read_variable(&Selection::all(&[1])).unwrap().data.len(), 992);
    }
}

#[test]
fn frames_inside_frames_stay_near_the_size_of_their_chunk() {
    let _alone = alone();
    // Twelve compressors, each of which could make twice as much of what it is given.
    let gzip = json!({"name": "gzip", "configuration": {"level": 6}});
    let codecs = [vec![json!("bytes")], vec![gzip.clone(); 12]].concat();
    let array = opened(&document(&[1 << 20], &[1 << 20], json!("int8"), json!(0), json!(codecs))).unwrap();
    let mut stored = bomb(&[], std::slice::from_ref(&gzip));
    for _ in 0..1 {
        let spec = ChunkSpec::new(vec![stored.len() as u64], DataType::UInt8, FillValue::Element(vec![0]));
        let chain = Chain::from_extensions(&extensions(&[json!("bytes"), gzip.clone()]), spec).unwrap();
        stored = chain.bind(Device::Cpu).unwrap().encode(&stored).unwrap();
    }
    array.store().write("c/0", &stored).unwrap();
    let peak = peak_bytes(|| {
        let error = array.read_buffer(&first(&array)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ChunkCorrupt, "{error}");
    });
    assert!(peak < 32 << 20, "{} MB", peak >> 20);
}
