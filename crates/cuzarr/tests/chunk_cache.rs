//! The chunk cache: chunks that are read again come from memory, and never show what is no longer stored.

mod model;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cuzarr::internal::run::{Engine, tuning};
use cuzarr::internal::store::testing::{Observed, Operation};
use cuzarr::meta::ArrayMetadata;
use cuzarr::plan::{Selection, SliceArg};
use cuzarr::store::{MemoryStore, Prefixed, Store, StoreExt};
use cuzarr::{Array, ArrayOptions, ErrorKind};
use cuzarr_device::{DType, Device, NdBuffer, Order};
use model::{Dice, bytes_codec, devices, metadata, sharding, zstd_codec};
use serde_json::{Value, json};

/// An array with cache, a store that counts its reads, and the elements that the array must have.
struct Cached {
    store: Arc<Observed>,
    kept: Arc<dyn Store>,
    array: Array,
    read_before: AtomicU64,
}

fn options(device: Device) -> ArrayOptions {
    ArrayOptions::default().with_device(device).with_chunk_cache(true).with_threads(3)
}

impl Cached {
    fn new(metadata: &ArrayMetadata, device: Device, far: bool) -> Cached {
        let kept: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let store = Observed::new(Arc::clone(&kept));
        let store = Arc::new(if far { store.with_read_delay(Duration::from_millis(1)) } else { store });
        let same: Arc<dyn Store> = store.clone();
        let array = Array::create(same, "a", metadata.clone(), false, options(device)).unwrap();
        Cached { store, kept, array, read_before: AtomicU64::new(0) }
    }

    fn write(&self, selection: &Selection, value: &[u8]) {
        write(&self.array, selection, value);
    }

    /// Reads, and compares with what an array without cache reads.
    fn check(&self, selection: &Selection, what: &str) {
        let read = bytes(&self.array, selection);
        assert!(read == bytes(&self.plain(), selection), "{what}: {selection}: wrong elements");
    }

    /// Opens the array without cache, behind the observed store.
    fn plain(&self) -> Array {
        Array::open(Arc::clone(&self.kept), "a", ArrayOptions::default()).unwrap()
    }

    /// Bytes that the store was asked for since the last call. A request for a version asks for none.
    fn asked_bytes(&self) -> u64 {
        let now = self.store.read_bytes();
        now - self.read_before.swap(now, Ordering::Relaxed)
    }
}

fn write(array: &Array, selection: &Selection, value: &[u8]) {
    let shape: Vec<usize> = selection.shape().iter().map(|&extent| extent as usize).collect();
    let dtype = array.metadata().data_type().device_dtype().unwrap();
    let value = NdBuffer::from_host(Device::Cpu, dtype, &shape, Order::C, value).unwrap();
    array.write_buffer(selection, &value).unwrap();
}

fn bytes(array: &Array, selection: &Selection) -> Vec<u8> {
    array.read_buffer(selection).unwrap().to_host_bytes(Order::C).unwrap()
}

fn random_bytes(dice: &mut Dice, count: usize) -> Vec<u8> {
    (0..count).map(|_| dice.below(5) as u8).collect()
}

fn random_box(dice: &mut Dice, shape: &[u64]) -> Selection {
    let (start, extent): (Vec<u64>, Vec<u64>) = shape
        .iter()
        .map(|&extent| {
            let start = dice.below(extent);
            (start, 1 + dice.below(extent - start))
        })
        .unzip();
    Selection::region(&start, &extent).unwrap()
}

/// The tests share the caches of the process, and some clear them, so they run one after the other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn used(device: Device) -> u64 {
    Engine::get().cache_use(device).chunks
}

fn chains() -> Vec<(&'static str, Value)> {
    vec![
        ("zstd", json!([bytes_codec("little"), zstd_codec()])),
        ("plain", json!([bytes_codec("little")])),
        ("big", json!([bytes_codec("big"), {"name": "gzip", "configuration": {"level": 1}}])),
        (
            "transposed",
            json!([{"name": "transpose", "configuration": {"order": [1, 0]}}, bytes_codec("little"), zstd_codec()]),
        ),
        ("shards", sharding(&[4, 5], json!([bytes_codec("little"), zstd_codec()]), "end")),
        ("plain shards", sharding(&[4, 5], json!([bytes_codec("little")]), "start")),
    ]
}

#[test]
fn what_is_read_again_is_not_fetched_again() {
    let _alone = alone();
    let mut dice = Dice(1);
    for device in devices() {
        for (name, codecs) in chains() {
            for far in [false, true] {
                let what = format!("{device}: {name}: far {far}");
                let cached =
                    Cached::new(&metadata(&[13, 21], &[8, 10], "uint16", json!(7), codecs.clone()), device, far);
                cached.write(&Selection::region(&[0, 0], &[9, 21]).unwrap(), &random_bytes(&mut dice, 9 * 21 * 2));
                let all = Selection::all(&[13, 21]);
                cached.check(&all, &what);
                cached.asked_bytes();
                cached.check(&all, &what);
                let is_plain = device == Device::Cpu && name.starts_with("plain") && !far;
                assert_eq!(cached.asked_bytes() > 0, is_plain, "{what}");
                for _ in 0..10 {
                    let part = random_box(&mut dice, &[13, 21]);
                    cached.check(&part, &what);
                }
                assert!(is_plain || cached.asked_bytes() == 0, "{what}: parts");
            }
        }
    }
}

#[test]
fn one_row_after_the_other_decodes_each_chunk_once() {
    let _alone = alone();
    let mut dice = Dice(2);
    for device in devices() {
        let cached = Cached::new(
            &metadata(&[64, 33], &[16, 33], "int32", json!(0), json!([bytes_codec("little"), zstd_codec()])),
            device,
            false,
        );
        let all = random_bytes(&mut dice, 64 * 33 * 4);
        cached.write(&Selection::all(&[64, 33]), &all);
        let stored: u64 = (0..4).map(|row| cached.kept.size_bytes(&format!("a/c/{row}/0")).unwrap().unwrap()).sum();
        cached.asked_bytes();
        for row in 0..64 {
            let row = Selection::from_slices(&[SliceArg::Index(row)], cached.array.shape()).unwrap();
            cached.check(&row, "rows");
        }
        assert_eq!(cached.asked_bytes(), stored, "{device}");
    }
}

#[test]
fn one_entry_serves_every_type() {
    let _alone = alone();
    let mut dice = Dice(3);
    for device in devices() {
        let codecs = json!([bytes_codec("little"), zstd_codec()]);
        let cached = Cached::new(&metadata(&[40], &[20], "int16", json!(0), codecs), device, false);
        let all = Selection::all(&[40]);
        cached.write(&all, &random_bytes(&mut dice, 80));
        cached.check(&all, "own type");
        cached.asked_bytes();
        for dtype in [DType::FLOAT32, DType::INT64, DType::INT16] {
            let out = NdBuffer::empty(device, dtype, &[40], Order::C).unwrap();
            cached.array.read_into(&all, &out).unwrap();
            let plain = cached.plain();
            let expected = NdBuffer::empty(Device::Cpu, dtype, &[40], Order::C).unwrap();
            plain.read_into(&all, &expected).unwrap();
            assert_eq!(out.to_host_bytes(Order::C).unwrap(), expected.to_host_bytes(Order::C).unwrap(), "{dtype}");
        }
        assert_eq!(cached.asked_bytes(), 0, "{device}");
    }
}

#[test]
fn writes_of_this_process_and_of_others_are_seen() {
    let _alone = alone();
    let mut dice = Dice(4);
    for device in devices() {
        for (name, codecs) in chains() {
            let cached = Cached::new(&metadata(&[13, 21], &[8, 10], "uint16", json!(7), codecs.clone()), device, false);
            let all = Selection::all(&[13, 21]);
            for round in 0..12 {
                cached.check(&all, &format!("{device}: {name}: round {round}"));
                let part = random_box(&mut dice, &[13, 21]);
                let value = random_bytes(&mut dice, part.len().unwrap() as usize * 2);
                match round % 3 {
                    0 => cached.write(&part, &value),
                    // Another handle, whose store does not know this one.
                    1 => write(&cached.plain(), &part, &value),
                    _ => {
                        let chunks: Vec<String> = cached.kept.list("a/c").unwrap();
                        if let Some(key) = chunks.first() {
                            cached.kept.delete(key).unwrap();
                        }
                    }
                }
                cached.check(&part, &format!("{device}: {name}: part of round {round}"));
            }
        }
    }
}

#[test]
fn far_objects_are_trusted_for_a_time_but_not_beyond_own_writes() {
    let _alone = alone();
    let codecs = json!([bytes_codec("little"), zstd_codec()]);
    for device in devices() {
        let cached = Cached::new(&metadata(&[40], &[20], "uint8", json!(7), codecs.clone()), device, true);
        let (all, first) = (Selection::all(&[40]), Selection::region(&[0], &[20]).unwrap());
        cached.write(&first, &[1; 20]);
        cached.check(&all, "first");
        cached.store.take_operations();
        cached.check(&all, "again");
        let asked = cached.store.take_operations();
        let is_chunk = |operation: &Operation| match operation {
            Operation::Read(request) => request.key.starts_with("a/c"),
            Operation::Size(key) => key.starts_with("a/c"),
            _ => false,
        };
        assert!(!asked.iter().any(is_chunk), "{device}: the missing chunk is trusted too: {asked:?}");
        // Another process writes. It is seen when the entries are old enough.
        let elsewhere: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let other = Array::create(Arc::clone(&elsewhere), "a", cached.array.metadata().clone(), false, options(device));
        write(&other.unwrap(), &all, &[2; 40]);
        for key in elsewhere.list("a/c").unwrap() {
            cached.kept.write(&key, &elsewhere.get(&key).unwrap().unwrap()).unwrap();
        }
        assert_eq!(bytes(&cached.array, &all), [[1; 20], [7; 20]].concat(), "{device}: still trusted");
        let asking = options(device).with_chunk_cache_max_age(Duration::ZERO);
        let asking = cached.array.clone().with_options(asking);
        assert_eq!(bytes(&asking, &all), [2; 40], "{device}: asked each time");
        // Own writes and deletions are seen at once, through any handle.
        let same: Arc<dyn Store> = cached.store.clone();
        let below: Arc<dyn Store> = Arc::new(Prefixed::new(same, "a").unwrap());
        write(&Array::open(below, "", options(device)).unwrap(), &first, &[3; 20]);
        assert_eq!(bytes(&cached.array, &first), [3; 20], "{device}: own write");
        let mut shrunk = cached.array.clone();
        shrunk.resize(vec![10]).unwrap();
        shrunk.resize(vec![40]).unwrap();
        assert_eq!(bytes(&shrunk, &Selection::region(&[20], &[20]).unwrap()), [7; 20], "{device}: own deletion");
    }
}

#[test]
fn a_missing_chunk_that_appears_without_a_version_is_seen() {
    let _alone = alone();
    let kept: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let far: Arc<dyn Store> =
        Arc::new(Observed::new(Arc::clone(&kept)).with_read_delay(Duration::from_millis(1)).without_versions());
    let metadata = metadata(&[20], &[10], "uint8", json!(7), json!([bytes_codec("little")]));
    let asking = options(Device::Cpu).with_chunk_cache_max_age(Duration::ZERO);
    let array = Array::create(far, "a", metadata, false, asking).unwrap();
    let all = Selection::all(&[20]);
    for _ in 0..2 {
        assert_eq!(bytes(&array, &all), [7; 20]);
    }
    // As another process writes it.
    kept.write("a/c/1", &[3; 10]).unwrap();
    assert_eq!(bytes(&array, &all), [[7; 10], [3; 10]].concat());
}

#[test]
fn a_far_shard_that_another_process_replaces_is_read_anew_where_the_cache_lacks_chunks() {
    let _alone = alone();
    let codecs = sharding(&[10], json!([bytes_codec("little"), zstd_codec()]), "end");
    for device in devices() {
        let cached = Cached::new(&metadata(&[80], &[40], "uint8", json!(7), codecs.clone()), device, true);
        let (all, part) = (Selection::all(&[80]), Selection::region(&[5], &[20]).unwrap());
        cached.write(&all, &[1; 80]);
        cached.check(&part, "first");
        let elsewhere: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let other = Array::create(Arc::clone(&elsewhere), "a", cached.array.metadata().clone(), false, options(device));
        write(&other.unwrap(), &all, &(0..80).collect::<Vec<u8>>());
        for key in elsewhere.list("a/c").unwrap() {
            cached.kept.write(&key, &elsewhere.get(&key).unwrap().unwrap()).unwrap();
        }
        assert_eq!(bytes(&cached.array, &part), [1; 20], "{device}: still trusted");
        cached.check(&all, "a chunk that was not read before");
        cached.check(&part, "all chunks are of one shard");
    }
}

#[test]
fn a_full_cache_takes_no_memory_from_reads() {
    let _alone = alone();
    let mut dice = Dice(5);
    let codecs = json!([bytes_codec("little"), zstd_codec()]);
    for device in devices() {
        Engine::get().clear_cache(device);
        let cached = Cached::new(&metadata(&[1 << 20], &[1 << 16], "uint8", json!(0), codecs.clone()), device, false);
        let all = Selection::all(&[1 << 20]);
        cached.write(&all, &random_bytes(&mut dice, 1 << 20));
        // The cache may have all of the limit. Then reads of other chunks still get what they need.
        let limit = 6 << 20;
        for size in [limit, limit / 4, 1 << 17, 1 << 10, 0] {
            let limited = options(device).with_memory_limit_bytes(limit).with_chunk_cache_bytes(size);
            let array = cached.array.clone().with_options(limited);
            let expected = bytes(&cached.plain(), &all);
            for _ in 0..3 {
                assert!(bytes(&array, &all) == expected, "{device}: {size}");
                assert!(Engine::get().cache_use(device).size_bytes <= size.max(limit), "{device}: {size}");
            }
            for _ in 0..20 {
                let part = random_box(&mut dice, &[1 << 20]);
                let read = bytes(&array, &part);
                assert!(read == bytes(&cached.plain(), &part), "{device}: {size}: {part}");
            }
        }
        Engine::get().clear_cache(device);
        assert_eq!(used(device), 0);
    }
}

#[test]
fn a_read_does_not_wait_for_memory_of_its_own_kept_chunks() {
    let _alone = alone();
    for device in devices() {
        for (limit, chunk) in [(700, 10), (1024, 10), (1500, 10), (2048, 10), (5000, 100), (20_000, 100)] {
            Engine::get().clear_cache(device);
            let codecs = json!([bytes_codec("little"), zstd_codec()]);
            let cached = Cached::new(&metadata(&[1000], &[chunk], "uint8", json!(0), codecs), device, false);
            let all = Selection::all(&[1000]);
            cached.write(&all, &(0..1000).map(|at| at as u8).collect::<Vec<_>>());
            cached.check(&Selection::region(&[0], &[800]).unwrap(), "kept");
            let limited = cached.array.with_options(options(device).with_memory_limit_bytes(limit));
            let plain = cached.plain().with_options(
                ArrayOptions::default().with_device(device).with_threads(3).with_memory_limit_bytes(limit),
            );
            // What can be read without the cache can be read with it.
            match plain.read_buffer(&all) {
                Ok(_) => cached.check(&all, &format!("{device}: limit {limit}")),
                Err(error) => assert_eq!(error.kind(), ErrorKind::BudgetExceeded),
            }
            if plain.read_buffer(&all).is_ok() {
                assert_eq!(bytes(&limited, &all), bytes(&cached.plain(), &all), "{device}: limit {limit}");
            }
        }
        Engine::get().clear_cache(device);
    }
}

#[test]
fn the_size_holds_also_while_a_batch_is_decoded() {
    let _alone = alone();
    for device in devices() {
        Engine::get().clear_cache(device);
        let codecs = json!([bytes_codec("little"), zstd_codec()]);
        let cached = Cached::new(&metadata(&[400_000], &[4000], "uint8", json!(0), codecs), device, false);
        let all = Selection::all(&[400_000]);
        cached.write(&all, &(0..400_000).map(|at| at as u8).collect::<Vec<_>>());
        let array = cached.array.with_options(options(device).with_chunk_cache_bytes(20_000));
        for _ in 0..2 {
            assert_eq!(bytes(&array, &all), bytes(&cached.plain(), &all));
            let used = Engine::get().cache_use(device);
            assert!(used.chunks > 0 && used.size_bytes <= 20_000, "{device}: {used:?}");
        }
        Engine::get().clear_cache(device);
    }
}

#[test]
fn threads_that_read_and_write_at_once_see_whole_values() {
    let _alone = alone();
    let codecs = json!([bytes_codec("little"), zstd_codec()]);
    for device in devices() {
        for far in [false, true] {
            let cached =
                Cached::new(&metadata(&[8, 1000], &[1, 1000], "uint64", json!(0), codecs.clone()), device, far);
            let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
            let row = |at: i64| Selection::from_slices(&[SliceArg::Index(at)], &[8, 1000]).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for value in 1..40u64 {
                        cached.write(&row(3), &value.to_le_bytes().repeat(1000));
                        written.store(value, Ordering::Release);
                    }
                    stop.store(true, Ordering::Release);
                });
                for _ in 0..4 {
                    scope.spawn(|| {
                        while !stop.load(Ordering::Acquire) {
                            let least = written.load(Ordering::Acquire);
                            let read = bytes(&cached.array, &row(3));
                            let first = u64::from_le_bytes(read[..8].try_into().unwrap());
                            assert!(read.chunks(8).all(|one| one == &read[..8]), "{device}: two values at once");
                            assert!(first >= least, "{device}: far {far}: got {first} after {least} was stored");
                            assert!(bytes(&cached.array, &row(5)).iter().all(|&byte| byte == 0));
                        }
                    });
                }
            });
            assert_eq!(bytes(&cached.array, &row(3)), 39u64.to_le_bytes().repeat(1000));
        }
    }
}

#[test]
fn one_of_many_threads_fetches_a_chunk_for_all() {
    let _alone = alone();
    let mut dice = Dice(6);
    let codecs = json!([bytes_codec("little"), zstd_codec()]);
    for device in devices() {
        let cached = Cached::new(&metadata(&[1000], &[100], "uint8", json!(0), codecs.clone()), device, true);
        let all = Selection::all(&[1000]);
        for _ in 0..20 {
            cached.write(&all, &random_bytes(&mut dice, 1000));
            let expected = bytes(&cached.plain(), &all);
            let stored: u64 = (0..10).map(|at| cached.kept.size_bytes(&format!("a/c/{at}")).unwrap().unwrap()).sum();
            cached.asked_bytes();
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| assert!(bytes(&cached.array, &all) == expected));
                }
            });
            assert_eq!(cached.asked_bytes(), stored, "{device}");
        }
    }
}

#[test]
fn a_damaged_chunk_is_an_error_each_time_and_never_kept() {
    let _alone = alone();
    let codecs = json!([bytes_codec("little"), zstd_codec(), {"name": "crc32c"}]);
    for device in devices() {
        let cached = Cached::new(&metadata(&[4000], &[1000], "uint8", json!(0), codecs.clone()), device, false);
        let all = Selection::all(&[4000]);
        cached.write(&all, &vec![3; 4000]);
        let mut damaged = cached.kept.get("a/c/2").unwrap().unwrap();
        damaged[6] ^= 0x55;
        cached.kept.write("a/c/2", &damaged).unwrap();
        let array = {
            let mut options = options(device);
            tuning(&mut options).force_device = true;
            cached.array.clone().with_options(options)
        };
        for _ in 0..3 {
            let error = array.read_buffer(&all).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::ChunkCorrupt | ErrorKind::ChecksumMismatch), "{device}: {error}");
            assert!(error.to_string().contains("a/c/2"), "{error}");
        }
        cached.write(&Selection::region(&[2000], &[1000]).unwrap(), &vec![4; 1000]);
        cached.check(&all, "mended");
        cached.check(&all, "mended, again");
    }
}

#[test]
fn strings_are_kept_on_the_host() {
    let _alone = alone();
    let metadata = metadata(&[30], &[10], "string", json!("none"), json!([{"name": "vlen-utf8"}, zstd_codec()]));
    for far in [false, true] {
        let cached = Cached::new(&metadata, Device::Cpu, far);
        let text = |at: usize| format!("text {at} {}", "x".repeat(at));
        let mut written = cuzarr::codec::VariableElements::with_capacity(20);
        (0..20).for_each(|at| written.push(text(at).as_bytes()));
        cached.array.write_variable(&Selection::region(&[0], &[20]).unwrap(), &written).unwrap();
        let all = Selection::all(&[30]);
        for round in 0..3 {
            let read = cached.array.read_variable(&all).unwrap();
            for at in 0..30 {
                let expected = if at < 20 { text(at) } else { "none".into() };
                assert_eq!(read.get(at), Some(expected.as_bytes()), "round {round}");
            }
            let some = Selection::from_slices(&[SliceArg::Slice { start: Some(13), stop: None, step: Some(3) }], &[30]);
            let some = cached.array.read_variable(&some.unwrap()).unwrap();
            assert_eq!(some.get(2), Some(text(19).as_bytes()));
            assert!(round == 0 || cached.asked_bytes() == 0);
            cached.asked_bytes();
        }
    }
}

#[test]
fn random_programs_read_what_is_stored() {
    let _alone = alone();
    for device in devices() {
        for seed in 0..12 {
            let mut dice = Dice(seed);
            let (name, codecs) = dice.pick(&chains());
            let far = dice.chance(2);
            let cached = Cached::new(&metadata(&[13, 21], &[8, 10], "uint16", json!(7), codecs), device, far);
            for step in 0..30 {
                let part = random_box(&mut dice, &[13, 21]);
                if dice.chance(3) {
                    let value = random_bytes(&mut dice, part.len().unwrap() as usize * 2);
                    cached.write(&part, &value);
                }
                if dice.chance(10) {
                    Engine::get().clear_cache(device);
                }
                let other = random_box(&mut dice, &[13, 21]);
                let many = cached.array.read_many(&[part.clone(), other.clone(), part.clone()], None).unwrap();
                let plain = cached.plain();
                for (out, selection) in many.iter().zip([&part, &other, &part]) {
                    let read = out.to_host_bytes(Order::C).unwrap();
                    assert!(read == bytes(&plain, selection), "{device}: {name}: seed {seed}, step {step}");
                }
                cached.check(&other, &format!("seed {seed}, step {step}"));
            }
        }
    }
}
