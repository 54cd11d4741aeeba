//! Stores far away: each request takes a while, so many are on their way at the same time, and small shards that are wanted
//! take one each.

mod model;

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use cuzarr::internal::store::testing::{Observed, Operation};
use cuzarr::plan::{AxisSelection, Selection};
use cuzarr::run::Stage;
use cuzarr::store::{ByteRange, MemoryStore, Store, StoreExt};
use cuzarr::{Array, ArrayOptions, ArraySelection, Error, ErrorKind, read_all};
use cuzarr_device::{Device, NdBuffer, Order};
use model::{Dice, Story, bytes_codec, devices, metadata, sharding, zstd_codec};
use serde_json::{Value, json};

const INDEX_BYTES: u64 = 16 * 4 + 4;
const BRIEFLY: Duration = Duration::from_millis(1);

fn region(start: u64, extent: u64) -> Selection {
    Selection::region(&[start], &[extent]).unwrap()
}

fn whole(story: &Story) -> Selection {
    Selection::all(story.metadata.shape())
}

/// Two and a half shards of 4 inner chunks of 8 `uint16` elements, all written, and then far away.
fn written(codecs: Value, location: &str) -> (Story, Arc<MemoryStore>, Arc<Observed>) {
    let near = Arc::new(MemoryStore::new());
    let codecs = sharding(&[8], codecs, location);
    let mut story = Story::new(metadata(&[80], &[32], "uint16", json!(9), codecs), near.clone());
    story.write(Device::Cpu, &whole(&story), &(1..81u16).flat_map(u16::to_le_bytes).collect::<Vec<_>>());
    let far = Arc::new(Observed::new(near.clone()).with_read_delay(BRIEFLY));
    story.store = far.clone();
    (story, near, far)
}

fn zstd() -> Value {
    json!([bytes_codec("little"), zstd_codec()])
}

fn ranges(store: &Observed) -> Vec<ByteRange> {
    store.take_reads().into_iter().map(|(_, range)| range).collect()
}

/// Lets no write go on before so many are under way at the same time, or a long time has passed.
struct Gate {
    under_way: Mutex<usize>,
    opened: Condvar,
    wanted: usize,
}

impl Gate {
    fn pass(&self) -> Option<Error> {
        let mut under_way = self.under_way.lock().unwrap();
        *under_way += 1;
        self.opened.notify_all();
        let closed = |under_way: &mut usize| *under_way < self.wanted;
        let waited = self.opened.wait_timeout_while(under_way, Duration::from_secs(20), closed).unwrap().1;
        waited.timed_out().then(|| Error::new(ErrorKind::StoreFailed, "others never came"))
    }
}

#[test]
fn many_objects_are_written_at_a_time() {
    let sharded = sharding(&[8], zstd(), "end");
    for (device, codecs, shape) in
        devices().into_iter().flat_map(|device| [(device, zstd(), 8), (device, sharded.clone(), 16)])
    {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let gate = Gate { under_way: Mutex::new(0), opened: Condvar::new(), wanted: 40 };
        let far =
            Observed::new(Arc::clone(&inner)).with_read_delay(BRIEFLY).with_failure(move |operation| match operation {
                Operation::Write(..) => gate.pass(),
                _ => None,
            });
        let mut story = Story::new(metadata(&[50 * shape], &[shape], "uint16", json!(0), codecs), Arc::new(far));
        assert_eq!(story.options.threads, 3, "threads do not wait for a store");
        story.write(device, &whole(&story), &5u16.to_ne_bytes().repeat(50 * shape as usize));
        story.store = inner;
        story.check(device, &whole(&story), "far away");
    }
}

#[test]
fn an_object_that_a_store_far_away_refuses_is_named() {
    let far =
        Observed::new(Arc::new(MemoryStore::new())).with_read_delay(BRIEFLY).with_failure(
            |operation| match operation {
                Operation::Write(key, _) if key.ends_with("c/7") => {
                    Some(Error::new(ErrorKind::StoreFailed, "not yours"))
                }
                Operation::Write(key, _) if key.ends_with("c/9") => panic!("on purpose"),
                _ => None,
            },
        );
    let story = Story::new(metadata(&[80], &[8], "uint16", json!(0), zstd()), Arc::new(far));
    for (chunk, message) in [(7, "not yours"), (9, "panicked")] {
        let error = story.try_write(Device::Cpu, &region(8 * chunk, 8), &5u16.to_ne_bytes().repeat(8)).unwrap_err();
        assert!(error.message().contains(message), "{error}");
        assert!(error.trail().iter().any(|place| place.contains(&format!("c/{chunk}"))), "{error}");
    }
}

#[test]
fn hundreds_of_chunks_are_asked_for_at_a_time() {
    for device in devices() {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut story = Story::new(metadata(&[500 * 8], &[8], "uint16", json!(0), zstd()), Arc::clone(&inner));
        story.write(Device::Cpu, &whole(&story), &5u16.to_ne_bytes().repeat(500 * 8));
        let far = Arc::new(Observed::new(inner).with_read_delay(Duration::from_millis(400)));
        story.store = far.clone();
        assert_eq!(story.options.threads, 3, "threads do not wait for a store");
        story.check(device, &whole(&story), "from far away");
        assert!(far.most_in_flight() >= 300, "{} at a time", far.most_in_flight());
    }
}

#[test]
fn small_shards_take_one_request_each() {
    for device in devices() {
        for location in ["end", "start"] {
            for codecs in [zstd(), json!([bytes_codec("big")])] {
                let (story, _, far) = written(codecs, location);
                for turn in ["first", "again"] {
                    story.check(device, &whole(&story), turn);
                    assert_eq!(ranges(&far), [ByteRange::Full; 3], "{turn}");
                }
                story.check(device, &region(5, 40), "parts of two shards, more than half of them");
                assert_eq!(ranges(&far), [ByteRange::Full; 2]);
            }
        }
    }
}

#[test]
fn what_is_read_is_counted_once() {
    let (story, _, far) = written(json!([bytes_codec("little")]), "end");
    let out = NdBuffer::empty(Device::Cpu, story.dtype, &[80], Order::C).unwrap();
    let access = story.access(Device::Cpu);
    let report = story.engine.read(&access, &story.store, &whole(&story), &out, &story.options).unwrap();
    let (_, fetched) = report.stages().find(|(stage, _)| *stage == Stage::Fetch).unwrap();
    // Elements, and an index of each shard.
    assert_eq!(fetched.size_bytes, 80 * 2 + 3 * INDEX_BYTES);
    assert_eq!(far.read_bytes(), far_bytes(&story));
}

#[test]
fn fetching_takes_as_long_as_the_store_does() {
    let delay = Duration::from_millis(60);
    for selection in [region(0, 80), region(40, 8)] {
        let (mut story, near, _) = written(zstd(), "end");
        story.store = Arc::new(Observed::new(near).with_read_delay(delay));
        let out = NdBuffer::empty(Device::Cpu, story.dtype, &[selection.shape()[0] as usize], Order::C).unwrap();
        let access = story.access(Device::Cpu);
        let report = story.engine.read(&access, &story.store, &selection, &out, &story.options).unwrap();
        let (_, fetched) = report.stages().find(|(stage, _)| *stage == Stage::Fetch).unwrap();
        let requests = if selection.shape()[0] == 80 { 1.0 } else { 2.0 };
        assert!(fetched.busy_seconds >= requests * delay.as_secs_f64(), "{fetched:?}");
    }
}

/// Bytes of all objects.
fn far_bytes(story: &Story) -> u64 {
    let keys = story.store.list("a/c").unwrap();
    keys.iter().map(|key| story.store.size_bytes(key).unwrap().unwrap()).sum()
}

#[test]
fn of_shards_that_are_hardly_wanted_or_large_the_index_is_read_first() {
    let (mut story, _, far) = written(zstd(), "end");
    story.check(Device::Cpu, &region(40, 8), "one of four inner chunks");
    let reads = ranges(&far);
    assert!(reads.len() == 2 && reads[0] == ByteRange::Suffix { size_bytes: INDEX_BYTES }, "{reads:?}");
    story.options.coalesce_max_bytes = 63;
    story.check(Device::Cpu, &whole(&story), "shards above the size of a joined read");
    assert_eq!(ranges(&far)[..3], [ByteRange::Suffix { size_bytes: INDEX_BYTES }; 3]);
    story.options.coalesce_max_bytes = 4 << 20;
    story.options.memory_limit_bytes = 64 * 191;
    story.check(Device::Cpu, &whole(&story), "more than a share of the memory");
    assert_eq!(ranges(&far)[..3], [ByteRange::Suffix { size_bytes: INDEX_BYTES }; 3]);
}

#[test]
fn a_missing_shard_is_fill_value_or_an_error() {
    for device in devices() {
        let (mut story, near, far) = written(zstd(), "end");
        near.delete("a/c/1").unwrap();
        story.elements[32 * 2..64 * 2].copy_from_slice(&9u16.to_ne_bytes().repeat(32));
        story.check(device, &whole(&story), "a shard is missing");
        assert_eq!(ranges(&far), [ByteRange::Full; 3]);
        story.options.read_missing_chunks = false;
        let error = story.try_read(device, &whole(&story)).unwrap_err();
        assert_eq!((error.kind(), &*error.trail()[0]), (ErrorKind::ChunkNotFound, "chunk 'a/c/1'"));
    }
}

#[test]
fn shards_in_shards_are_read_at_once() {
    for device in devices() {
        let codecs = sharding(&[8, 4], sharding(&[2, 2], json!([bytes_codec("big"), zstd_codec()]), "start"), "end");
        let near: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut story = Story::new(metadata(&[30, 20], &[16, 8], "int32", json!(5), codecs), Arc::clone(&near));
        let value: Vec<u8> = (0..11 * 9).flat_map(|number: i32| number.to_ne_bytes()).collect();
        story.write(device, &Selection::region(&[3, 5], &[11, 9]).unwrap(), &value);
        let far = Arc::new(Observed::new(near).with_read_delay(BRIEFLY));
        story.store = far.clone();
        story.check(device, &whole(&story), "nested");
        assert_eq!(ranges(&far), [ByteRange::Full; 6]);
    }
}

#[test]
fn random_boxes_are_the_same_from_far_away() {
    for device in devices() {
        let mut dice = Dice(11);
        let (story, ..) = written(zstd(), "end");
        for turn in 0..40 {
            let start = dice.below(80);
            let axis = AxisSelection { start, step: 1 + dice.below(4), count: 0, dropped: false };
            let count = dice.below((80 - start).div_ceil(axis.step) + 1);
            let selection = Selection::new(vec![AxisSelection { count, ..axis }]).unwrap();
            story.check(device, &selection, &format!("turn {turn}"));
        }
    }
}

#[test]
fn an_object_that_is_larger_than_its_metadata_allows_is_read_by_its_index() {
    for device in devices() {
        let (story, near, far) = written(zstd(), "end");
        let sound = near.get("a/c/1").unwrap().unwrap();
        let index = sound.len() - INDEX_BYTES as usize;
        let padded = [&sound[..index], &[0; 5000], &sound[index..]].concat();
        near.write("a/c/1", &padded).unwrap();
        story.check(device, &whole(&story), "a shard with a gap");
        let reads = ranges(&far);
        assert_eq!(reads[..3], [ByteRange::Full; 3]);
        assert_eq!(reads[3..6], [ByteRange::Suffix { size_bytes: INDEX_BYTES }; 3]);
    }
}

/// The same errors as of a store at hand.
#[test]
fn damaged_shards_are_named() {
    for device in devices() {
        let (mut story, near, far) = written(zstd(), "end");
        let sound = near.get("a/c/1").unwrap().unwrap();
        let index = sound.len() - INDEX_BYTES as usize;
        let flipped = |at: usize| {
            let mut bytes = sound.clone();
            bytes[at] ^= 0xff;
            bytes
        };
        let mut leaving = sound.clone();
        leaving[index..index + 8].copy_from_slice(&5000u64.to_le_bytes());
        let checksum = crc32c::crc32c(&leaving[index..sound.len() - 4]);
        leaving[sound.len() - 4..].copy_from_slice(&checksum.to_le_bytes());
        for damage in [Vec::new(), sound[..20].to_vec(), flipped(index + 3), flipped(10), leaving] {
            near.write("a/c/1", &damage).unwrap();
            story.store = near.clone();
            let expected = story.try_read(device, &whole(&story)).unwrap_err();
            story.store = far.clone();
            let error = story.try_read(device, &whole(&story)).unwrap_err();
            assert_eq!((error.kind(), error.trail()), (expected.kind(), expected.trail()), "{error:?}");
            assert_eq!(story.engine.memory(device).used_bytes(), 0);
            story.check(device, &region(0, 32), "another shard");
        }
    }
}

#[test]
fn a_request_that_fails_is_not_the_end() {
    for device in devices() {
        for lasting in [false, true] {
            let (mut story, near, _) = written(zstd(), "end");
            let fails = move |operation: &Operation| match operation {
                Operation::Read(request) if request.key == "a/c/1" && (lasting || request.range == ByteRange::Full) => {
                    Some(Error::new(ErrorKind::StoreFailed, "the line is down"))
                }
                _ => None,
            };
            story.store = Arc::new(Observed::new(near).with_read_delay(BRIEFLY).with_failure(fails));
            match lasting {
                false => story.check(device, &whole(&story), "in parts"),
                true => {
                    let error = story.try_read(device, &whole(&story)).unwrap_err();
                    assert_eq!((error.kind(), error.message()), (ErrorKind::StoreFailed, "the line is down"));
                }
            }
        }
    }
}

#[test]
fn small_shards_of_many_arrays_are_requested_together() {
    let near: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let codecs = sharding(&[8], zstd(), "end");
    let far = Arc::new(Observed::new(Arc::clone(&near)).with_read_delay(Duration::from_millis(20)).with_failure(
        // One shard of one array cannot be read whole, so its parts are.
        |operation| match operation {
            Operation::Read(request) if request.key == "v3/c/1" && request.range == ByteRange::Full => {
                Some(Error::new(ErrorKind::StoreFailed, "not all at once"))
            }
            _ => None,
        },
    ));
    let store: Arc<dyn Store> = far.clone();
    let whole = Selection::all(&[64]);
    for device in devices() {
        let options = || ArrayOptions::default().with_device(device);
        let arrays: Vec<Array> = (0..12u16)
            .map(|number| {
                let metadata = metadata(&[64], &[32], "uint16", json!(0), codecs.clone());
                let array = Array::create(near.clone(), &format!("v{number}"), metadata, true, options()).unwrap();
                let value: Vec<u16> = (0..64).map(|at| 1 + 100 * number + at).collect();
                array.write_buffer(&whole, &NdBuffer::from_slice(Device::Cpu, &value, &[64]).unwrap()).unwrap();
                Array::open(store.clone(), &format!("v{number}"), options()).unwrap()
            })
            .collect();
        let reads: Vec<_> = arrays.iter().map(|array| ArraySelection::new(array, whole.clone())).collect();
        let found = read_all(&reads).unwrap();
        for (number, found) in found.iter().enumerate() {
            let expected: Vec<u8> = (0..64u16).flat_map(|at| (1 + 100 * number as u16 + at).to_le_bytes()).collect();
            assert_eq!(found.to_host_bytes(Order::C).unwrap(), expected, "{device}: array {number}");
        }
        // The one that fails ends at once.
        assert_eq!(far.most_in_flight(), 23, "{device}: the shards of all arrays");
    }
}
