//! Reading: what is fetched, what goes wrong, and what is left behind then.

mod model;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cuzarr::internal::store::testing::{Observed, Operation};
use cuzarr::plan::{AxisSelection, Selection};
use cuzarr::store::{ByteRange, Capabilities, Condition, Identity, Lock, MemoryStore, Payload, Stat, Store, StoreExt};
use cuzarr::{CancellationToken, Error, ErrorKind};
use cuzarr_device::{DType, Device, NdBuffer, Order};
use model::{Dice, Story, bytes_codec, devices, metadata, zstd_codec};
use serde_json::json;

fn little() -> serde_json::Value {
    json!([bytes_codec("little")])
}

/// A story of 6 x 4 chunks of 5 x 4 `int16` elements, all written.
fn written(codecs: serde_json::Value) -> (Story, Arc<Observed>) {
    let store = Arc::new(Observed::new(Arc::new(MemoryStore::new())));
    let mut story = Story::new(metadata(&[30, 16], &[5, 4], "int16", json!(-1), codecs), store.clone());
    let all = Selection::all(&[30, 16]);
    let value: Vec<u8> = (0..30 * 16u16).flat_map(u16::to_le_bytes).collect();
    story.write(Device::Cpu, &all, &value);
    store.take_operations();
    (story, store)
}

fn region(start: &[u64], extent: &[u64]) -> Selection {
    Selection::region(start, extent).unwrap()
}

#[test]
fn only_chunks_with_selected_elements_are_read() {
    let (story, store) = written(json!([bytes_codec("little"), zstd_codec()]));
    story.check(Device::Cpu, &region(&[4, 3], &[2, 2]), "four corners");
    let mut keys: Vec<String> = store.take_reads().into_iter().map(|(key, _)| key).collect();
    keys.sort();
    assert_eq!(keys, ["a/c/0/0", "a/c/0/1", "a/c/1/0", "a/c/1/1"]);
    let axis = |start, step| AxisSelection { start, count: 2, step, dropped: false };
    let jumps = Selection::new(vec![axis(0, 20), axis(2, 9)]).unwrap();
    story.check(Device::Cpu, &jumps, "a step over chunks");
    assert_eq!(store.take_reads().len(), 4);
}

#[test]
fn only_the_wanted_bytes_of_an_uncompressed_chunk_are_read() {
    let (mut story, store) = written(little());
    story.options.coalesce_gap_bytes = 0;
    story.check(Device::Cpu, &region(&[7, 0], &[2, 4]), "two rows");
    assert_eq!(store.take_reads(), [("a/c/1/0".into(), ByteRange::Span { offset: 16, size_bytes: 16 })]);
    story.check(Device::Cpu, &region(&[5, 1], &[5, 1]), "a column");
    assert_eq!(store.take_reads().len(), 5);
    story.options.coalesce_gap_bytes = 6;
    story.check(Device::Cpu, &region(&[5, 1], &[5, 1]), "a column, over the gaps");
    assert_eq!(store.take_reads(), [("a/c/1/0".into(), ByteRange::Span { offset: 2, size_bytes: 34 })]);
}

/// An array whose chunks have many blocks, and the bytes that reading each first row of them decodes.
fn read_parts_of_chunks(data_type: &str, codecs: serde_json::Value, expected: Option<u64>) {
    let (shape, chunks) = ([40, 33, 29], [20, 33, 29]);
    let what = codecs.to_string();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let mut story = Story::new(metadata(&shape, &chunks, data_type, json!(3), codecs), store);
    let mut dice = Dice(77);
    let all = Selection::all(&shape);
    let mut byte = |at: usize| if dice.chance(40) { dice.below(256) as u8 } else { (at / 64) as u8 };
    let value: Vec<u8> = (0..story.elements.len()).map(&mut byte).collect();
    story.write(Device::Cpu, &all, &value);
    for _ in 0..60 {
        let selection = story.random_selection(&mut dice);
        story.check(Device::Cpu, &selection, &what);
    }
    let axis = |start, count, step| AxisSelection { start, count, step, dropped: false };
    let rows = Selection::new(vec![axis(0, 2, 20), axis(0, 33, 1), axis(0, 29, 1)]).unwrap();
    story.check(Device::Cpu, &rows, &what);
    let out = NdBuffer::empty(Device::Cpu, story.dtype, &[2, 33, 29], Order::C).unwrap();
    let report = story.engine.read(&story.access(Device::Cpu), &story.store, &rows, &out, &story.options).unwrap();
    let decoded_bytes = report.stage(cuzarr::run::Stage::Decode).size_bytes;
    assert_eq!(decoded_bytes, expected.unwrap_or(value.len() as u64), "{what}");
}

#[test]
fn only_the_wanted_blocks_of_a_compressed_chunk_are_decoded() {
    let blosc = |cname: &str, shuffle: &str| {
        json!({"name": "blosc", "configuration":
            {"cname": cname, "clevel": 5, "shuffle": shuffle, "typesize": 2, "blocksize": 1000}})
    };
    for shuffle in ["noshuffle", "shuffle", "bitshuffle"] {
        for cname in ["lz4", "zstd", "zlib", "blosclz"] {
            // A row has 1914 bytes.
            read_parts_of_chunks("int16", json!([bytes_codec("little"), blosc(cname, shuffle)]), Some(2 * 2000));
        }
    }
    let lz4 = || blosc("lz4", "shuffle");
    read_parts_of_chunks("int16", json!([bytes_codec("big"), lz4()]), Some(2 * 2000));
    read_parts_of_chunks("int16", json!([bytes_codec("big"), lz4(), {"name": "crc32c"}]), Some(2 * 2000));
    let order = json!({"name": "transpose", "configuration": {"order": [1, 2, 0]}});
    read_parts_of_chunks("int16", json!([order, bytes_codec("little"), lz4()]), None);
    let inner = json!([bytes_codec("little"), lz4()]);
    read_parts_of_chunks("int16", model::sharding(&[10, 33, 29], inner, "end"), Some(2 * 2000));
}

#[test]
fn chunks_whose_parts_depend_on_others_are_decoded_whole() {
    let little = || bytes_codec("little");
    let blosc = json!({"name": "blosc", "configuration":
        {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 2, "blocksize": 1000}});
    let shuffle = json!({"name": "numcodecs.shuffle", "configuration": {"elementsize": 2}});
    let delta = json!({"name": "numcodecs.delta", "configuration": {"dtype": "<i2"}});
    for codecs in [
        json!([little(), shuffle, blosc]),
        json!([delta, little(), blosc]),
        json!([little(), zstd_codec()]),
        json!([little(), {"name": "gzip", "configuration": {"level": 1}}]),
    ] {
        read_parts_of_chunks("int16", codecs, None);
    }
}

#[test]
fn arrays_without_dimensions_or_elements_are_read() {
    for device in devices() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut scalar = Story::new(metadata(&[], &[], "float64", json!(1.5), little()), store);
        scalar.check(device, &Selection::all(&[]), "scalar, missing");
        scalar.write(device, &Selection::all(&[]), &7.25f64.to_ne_bytes());
        scalar.check(device, &Selection::all(&[]), "scalar");
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut empty = Story::new(metadata(&[0, 3], &[2, 2], "uint8", json!(0), little()), store);
        empty.write(device, &Selection::all(&[0, 3]), &[]);
        empty.check(device, &Selection::all(&[0, 3]), "no elements");
    }
}

#[test]
fn a_huge_sparse_array_costs_what_is_selected() {
    for device in devices() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let shape = [1 << 40, 1 << 38];
        let codecs = json!([bytes_codec("little"), zstd_codec()]);
        let story_metadata = metadata(&shape, &[1 << 8, 1 << 8], "uint16", json!(9), codecs);
        let access = |device| {
            let chain = Arc::new(cuzarr::internal::codec::Chain::new(&story_metadata).unwrap());
            cuzarr::internal::run::Access::new(&story_metadata, "a", chain, device).unwrap()
        };
        let (engine, options) = (cuzarr::internal::run::Engine::new(2), cuzarr::run::Options::default());
        let place = region(&[(1 << 39) + 250, (1 << 37) + 3], &[10, 2]);
        let value = NdBuffer::full(device, DType::UINT16, &[10, 2], Order::C, &5u16.to_ne_bytes()).unwrap();
        engine.write(&access(Device::Cpu), &store, &place, &value, &options).unwrap();
        assert_eq!(store.list("a").unwrap().len(), 2);
        let around = region(&[(1 << 39) + 249, (1 << 37) + 2], &[12, 4]);
        let out = NdBuffer::empty(device, DType::UINT16, &[12, 4], Order::C).unwrap();
        engine.read(&access(device), &store, &around, &out, &options).unwrap();
        let read = out.to_host_bytes(Order::C).unwrap();
        let read: Vec<u16> = read.chunks(2).map(|pair| u16::from_ne_bytes([pair[0], pair[1]])).collect();
        let inside = |row: usize, column: usize| (1..11).contains(&row) && (1..3).contains(&column);
        let expected: Vec<u16> = (0..48).map(|at| if inside(at / 4, at % 4) { 5 } else { 9 }).collect();
        assert_eq!(read, expected);
    }
}

#[test]
fn results_may_lie_in_any_order_in_memory() {
    let (story, _) = written(little());
    for codecs in [little(), json!([bytes_codec("big"), zstd_codec()])] {
        let (story, _) = written(codecs);
        let all = Selection::all(&[30, 16]);
        let out = NdBuffer::empty(Device::Cpu, story.dtype, &[30, 16], Order::F).unwrap();
        story.engine.read(&story.access(Device::Cpu), &story.store, &all, &out, &story.options).unwrap();
        assert!(out.to_host_bytes(Order::C).unwrap() == story.elements);
    }
    let wide = NdBuffer::zeroed(Device::Cpu, story.dtype, &[40, 40], Order::C).unwrap();
    let window = wide.region(&[5, 10], &[10, 8], &[1, 2]).unwrap();
    let selection = region(&[3, 2], &[10, 8]);
    story.engine.read(&story.access(Device::Cpu), &story.store, &selection, &window, &story.options).unwrap();
    assert!(window.to_host_bytes(Order::C).unwrap() == story.expected(&selection));
    let total: u64 = wide.to_host_bytes(Order::C).unwrap().iter().map(|&byte| u64::from(byte)).sum();
    let part: u64 = story.expected(&selection).iter().map(|&byte| u64::from(byte)).sum();
    assert_eq!(total, part, "nothing beside the window was touched");
}

#[test]
fn results_that_do_not_fit_are_refused() {
    let (story, _) = written(little());
    let kind = |dtype, shape: &[usize]| {
        let out = NdBuffer::empty(Device::Cpu, dtype, shape, Order::C).unwrap();
        let all = Selection::all(&[30, 16]);
        story.engine.read(&story.access(Device::Cpu), &story.store, &all, &out, &story.options).unwrap_err().kind()
    };
    assert_eq!(kind(DType::INT16, &[30, 15]), ErrorKind::ShapeMismatch);
    assert_eq!(kind(DType::UINT16, &[30, 16]), ErrorKind::DTypeMismatch);
    let outside = story.try_read(Device::Cpu, &region(&[30, 0], &[1, 1])).unwrap_err();
    assert_eq!(outside.kind(), ErrorKind::SelectionInvalid);
}

#[test]
fn missing_chunks_are_errors_when_they_must_not_be_missing() {
    for device in devices() {
        let (mut story, store) = written(little());
        store.delete("a/c/2/1").unwrap();
        story.options.read_missing_chunks = false;
        let error = story.try_read(device, &Selection::all(&[30, 16])).unwrap_err();
        assert_eq!((error.kind(), error.trail()), (ErrorKind::ChunkNotFound, &["chunk 'a/c/2/1'".to_string()][..]));
        assert_eq!(story.engine.memory(device).used_bytes(), 0);
        story.check(device, &region(&[0, 0], &[5, 16]), "chunks that exist");
    }
}

#[test]
fn damaged_chunks_are_named() {
    for device in devices() {
        for codecs in
            [little(), json!([bytes_codec("little"), zstd_codec()]), json!([bytes_codec("big"), {"name": "crc32c"}])]
        {
            let (story, store) = written(codecs.clone());
            let sound = store.get("a/c/3/2").unwrap().unwrap();
            let mut flipped = sound.clone();
            flipped[sound.len() - 1] ^= 0x40;
            let longer = [&sound[..], &[0]].concat();
            let has_checksum = codecs.as_array().unwrap().len() > 1;
            let mut damages = vec![sound[..sound.len() - 1].to_vec(), Vec::new(), longer];
            if has_checksum {
                damages.push(flipped);
            }
            for damage in damages {
                store.write("a/c/3/2", &damage).unwrap();
                let error = story.try_read(device, &Selection::all(&[30, 16])).unwrap_err();
                let corrupt = matches!(error.kind(), ErrorKind::ChunkCorrupt | ErrorKind::ChecksumMismatch);
                assert!(corrupt, "{codecs}, {} bytes: {error:?}", damage.len());
                assert_eq!(error.trail()[0], "chunk 'a/c/3/2'");
                assert_eq!(story.engine.memory(device).used_bytes(), 0);
            }
            store.write("a/c/3/2", &sound).unwrap();
            story.check(device, &Selection::all(&[30, 16]), "after the repair");
        }
    }
}

#[test]
fn a_part_of_a_chunk_that_is_cut_off_is_corrupt() {
    for device in devices() {
        let (story, store) = written(little());
        let sound = store.get("a/c/1/1").unwrap().unwrap();
        store.write("a/c/1/1", &sound[..30]).unwrap();
        story.check(device, &region(&[5, 4], &[3, 4]), "the rows that are there");
        let error = story.try_read(device, &region(&[8, 4], &[1, 4])).unwrap_err();
        assert_eq!((error.kind(), error.trail()), (ErrorKind::ChunkCorrupt, &["chunk 'a/c/1/1'".to_string()][..]));
        assert_eq!(error.message(), "the object has 30 bytes, expected at least 32");
    }
}

#[test]
fn a_store_that_fails_in_the_middle_fails_the_call_and_nothing_more() {
    for device in devices() {
        let (story, _) = written(json!([bytes_codec("little"), zstd_codec()]));
        let failures = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&failures);
        let failing = Observed::new(Arc::clone(&story.store)).with_failure(move |operation| match operation {
            Operation::Read(request) if request.key.ends_with("/3") => {
                counter.fetch_add(1, Ordering::Relaxed);
                Some(Error::new(ErrorKind::StoreFailed, "the cable is cut"))
            }
            _ => None,
        });
        let story = Story { store: Arc::new(failing), ..story };
        let error = story.try_read(device, &Selection::all(&[30, 16])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreFailed);
        assert!(error.to_string().contains("the cable is cut") && error.trail()[0].starts_with("chunk 'a/c/"));
        assert_eq!(error.others().len() + 1, failures.load(Ordering::Relaxed).min(16));
        assert_eq!(story.engine.memory(device).used_bytes(), 0);
        story.check(device, &region(&[0, 0], &[30, 12]), "the chunks that the store still has");
    }
}

#[test]
fn a_cancelled_read_ends_without_its_result() {
    for device in devices() {
        let (mut story, _) = written(json!([bytes_codec("little"), zstd_codec()]));
        let token = CancellationToken::new();
        story.options.cancellation = CancellationToken::under(vec![token.clone()]);
        let cancelling = Observed::new(Arc::clone(&story.store)).with_failure(move |operation| {
            if matches!(operation, Operation::Read(request) if request.key == "a/c/0/0") {
                token.cancel();
            }
            None
        });
        let mut story = Story { store: Arc::new(cancelling), ..story };
        let all = Selection::all(&[30, 16]);
        assert_eq!(story.try_read(device, &all).unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(story.engine.memory(device).used_bytes(), 0);
        story.options.cancellation = CancellationToken::new();
        let again = story.try_read(device, &region(&[5, 0], &[25, 16]));
        assert!(again.is_ok(), "another call has another token");
    }
}

/// A store that forgets some of what it was asked, as one does whose thread dies.
#[derive(Debug)]
struct Forgetful(MemoryStore);

impl std::fmt::Display for Forgetful {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("forgetful")
    }
}

impl Store for Forgetful {
    fn read(
        &self,
        _batch: Arc<[cuzarr::store::ReadRequest]>,
        sink: Arc<dyn cuzarr::store::ReadSink>,
        _workers: &dyn cuzarr::store::Workers,
    ) {
        drop(sink);
    }
    fn put(&self, key: &str, value: Payload<'_>, condition: &Condition) -> cuzarr::Result<bool> {
        self.0.put(key, value, condition)
    }
    fn begin(&self, key: &str, _size_bytes: u64) -> cuzarr::Result<Box<dyn cuzarr::store::Unfinished>> {
        cuzarr::store::no_parts(self, key)
    }
    fn delete_many(&self, keys: &[String]) -> cuzarr::Result<()> {
        self.0.delete_many(keys)
    }
    fn delete_prefix(&self, prefix: &str) -> cuzarr::Result<()> {
        self.0.delete_prefix(prefix)
    }
    fn stat(&self, key: &str) -> cuzarr::Result<Option<Stat>> {
        self.0.stat(key)
    }
    fn list_dir(&self, prefix: &str) -> cuzarr::Result<cuzarr::store::Listing> {
        self.0.list_dir(prefix)
    }
    fn list(&self, prefix: &str) -> cuzarr::Result<Vec<String>> {
        self.0.list(prefix)
    }
    fn identity(&self) -> Identity {
        self.0.identity()
    }
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
    fn is_on(&self, device: Device) -> bool {
        self.0.is_on(device)
    }

    fn try_lock(&self, prefix: &str) -> cuzarr::Result<Lock> {
        self.0.try_lock(prefix)
    }

    fn above(&self) -> Option<(Arc<dyn Store>, String)> {
        self.0.above()
    }
}

#[test]
fn a_store_that_forgets_a_read_is_not_waited_for() {
    let (story, _) = written(little());
    let story = Story { store: Arc::new(Forgetful(MemoryStore::new())), ..story };
    let error = story.try_read(Device::Cpu, &Selection::all(&[30, 16])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreFailed);
    assert_eq!(story.engine.memory(Device::Cpu).used_bytes(), 0);
}

#[test]
fn a_limit_below_one_chunk_is_a_named_error() {
    for device in devices() {
        let (mut story, _) = written(json!([bytes_codec("big"), zstd_codec()]));
        story.options.memory_limit_bytes = 30;
        let error = story.try_read(device, &Selection::all(&[30, 16])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BudgetExceeded, "{error}");
        assert!(error.hint().unwrap().contains("`memory_limit`"));
        let value = vec![1; 30 * 16 * 2];
        let error = story.try_write(device, &Selection::all(&[30, 16]), &value).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BudgetExceeded, "{error}");
        assert_eq!(story.engine.memory(device).used_bytes(), 0);
    }
}

#[test]
fn many_threads_read_one_array() {
    for device in devices() {
        let (mut story, _) = written(json!([bytes_codec("little"), zstd_codec()]));
        story.options.memory_limit_bytes = 4096;
        std::thread::scope(|scope| {
            for seed in 0..8 {
                let story = &story;
                scope.spawn(move || {
                    let mut dice = Dice(seed);
                    for _ in 0..5 {
                        let selection = story.random_selection(&mut dice);
                        let read = story.try_read(device, &selection).unwrap();
                        assert!(read == story.expected(&selection));
                    }
                });
            }
        });
        assert_eq!(story.engine.memory(device).used_bytes(), 0);
    }
}

#[test]
fn the_report_says_what_was_done() {
    let (story, _) = written(json!([bytes_codec("little"), zstd_codec()]));
    let out = NdBuffer::empty(Device::Cpu, story.dtype, &[30, 16], Order::C).unwrap();
    let all = Selection::all(&[30, 16]);
    let access = story.access(Device::Cpu);
    let report = story.engine.read(&access, &story.store, &all, &out, &story.options).unwrap();
    use cuzarr::run::Stage;
    assert_eq!((report.stage(Stage::Fetch).count, report.stage(Stage::Decode).count), (24, 24));
    assert_eq!(report.stage(Stage::Decode).size_bytes, 30 * 16 * 2);
    assert_eq!(report.stage(Stage::Upload).count, 0);
    assert!(report.to_string().contains("decode") && report.to_json()["stages"].is_array());
}
