//! What every store promises, as a suite that every back end calls from its tests:
//!
//! ```
//! # use std::sync::Arc;
//! # use cuzarr::store::{MemoryStore, conformance};
//! conformance::run(&|| Arc::new(MemoryStore::new()));
//! ```
//!
//! A broken promise panics, with the case's name first: this module is test code that is public so that stores written
//! elsewhere can use it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use cuzarr_device::{Buffer, Device};

use super::{
    ByteRange, Capabilities, Condition, Identity, InlineWorkers, Key, Lease, Listing, MemoryStore, OpenValues, Payload,
    ReadOutcome, ReadRequest, ReadSink, Stat, Store, StoreExt, Version, Workers,
};
use crate::error::{Error, ErrorKind, Result};

type Case = fn(&Arc<dyn Store>);

/// Every case with its name.
pub const CASES: &[(&str, Case)] = &[
    ("reads what was written", reads_what_was_written),
    ("replaces a value by a shorter one", replaces_value_by_shorter_one),
    ("keeps empty values apart from missing ones", keeps_empty_values),
    ("reads every kind of range", reads_every_kind_of_range),
    ("refuses ranges beyond the end", refuses_ranges_beyond_the_end),
    ("refuses texts that are no keys", refuses_invalid_keys),
    ("keeps odd but valid keys", keeps_odd_keys),
    ("finishes every item of a mixed batch once", finishes_every_item_once),
    ("finishes large batches on many threads", finishes_large_batches),
    ("passes on what reserve refuses", passes_on_refusals),
    ("reserves nothing for missing keys", reserves_nothing_for_missing_keys),
    ("finishes items whose jobs are never run", finishes_dropped_jobs),
    ("reads an empty batch", reads_empty_batch),
    ("deletes values and prefixes", deletes_values_and_prefixes),
    ("lists one level and all levels", lists_levels),
    ("writes once when many write if absent", writes_once_if_absent),
    ("shows readers whole values only", shows_whole_values),
    ("keeps values of megabytes", keeps_large_values),
    ("lets writers and deleters race", lets_writers_and_deleters_race),
    ("tells one identity", tells_one_identity),
    ("tells versions apart", tells_versions_apart),
    ("writes over one version alone", writes_over_one_version),
    ("does what its capabilities say", does_what_its_capabilities_say),
];

/// Runs every case, each on a store that `make` returns: empty and writable.
///
/// # Panics
/// When a promise is broken.
pub fn run(make: &dyn Fn() -> Arc<dyn Store>) {
    for (name, case) in CASES {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(&make())));
        if let Err(panic) = outcome {
            eprintln!("store conformance: case '{name}' failed");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Runs the checks of a layer: `wrap` gives a store that is a view of the whole of the given one, or of a part. What was asked of
/// the layer must arrive behind it, and what the store says about itself must come through.
///
/// # Panics
/// When the layer keeps something back.
pub fn forwards(wrap: &dyn Fn(Arc<dyn Store>) -> Arc<dyn Store>) {
    for (far, conditional_writes, divides_reads) in [(true, false, true), (false, true, false), (true, true, false)] {
        for (deletes, transactional) in [(true, false), (false, true)] {
            let said =
                Capabilities { read_only: false, deletes, conditional_writes, transactional, far, divides_reads };
            let inner = Arc::new(Behind { values: MemoryStore::new(), said, heard: Mutex::default() });
            let layer = wrap(Arc::clone(&inner) as Arc<dyn Store>);
            let read_only = layer.capabilities().read_only;
            assert_eq!(layer.capabilities(), Capabilities { read_only, ..said });
            assert!(layer.is_on(Device::Simt) && !layer.is_on(Device::Cpu));
            assert!(layer.identity().overlaps(&inner.values.identity()), "the layer is about other values");
            if !read_only {
                forwards_writes(&layer, &inner);
            }
            let sink = Arc::new(Asked::default());
            layer.read(
                vec![request("asked", ByteRange::Full)].into(),
                Arc::clone(&sink) as Arc<dyn ReadSink>,
                &InlineWorkers,
            );
            assert_eq!(
                *sink.0.lock().unwrap(),
                ["check", "open_values", "opened 0", "device", "reserve_on_device 0", "done 0"]
            );
        }
    }
}

fn forwards_writes(layer: &Arc<dyn Store>, inner: &Behind) {
    ok(layer.write_buffer("a", &Buffer::from_vec(vec![1])));
    ok(layer.put("a", Payload::Bytes(&[1, 2]), &Condition::Absent));
    ok(layer.delete_many(&["a".into(), "b".into()]));
    ok(layer.delete_prefix("p"));
    assert_eq!(inner.heard.lock().unwrap()[..2], ["buffer of 1, Always", "bytes of 2, Absent"]);
    let deleted: Vec<String> = inner.heard.lock().unwrap()[2..].to_vec();
    assert!(deleted.iter().any(|heard| heard == "delete 2 keys"), "one batch became many: {deleted:?}");
    assert!(deleted.iter().any(|heard| heard == "delete prefix"), "{deleted:?}");
}

/// A store behind a layer, which hears what comes through.
#[derive(Debug)]
struct Behind {
    values: MemoryStore,
    said: Capabilities,
    heard: Mutex<Vec<String>>,
}

impl Behind {
    fn hear(&self, what: String) {
        self.heard.lock().unwrap().push(what);
    }
}

impl fmt::Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.values, f)
    }
}

impl Store for Behind {
    fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, _workers: &dyn Workers) {
        // Asks all that a store may ask a sink.
        for index in 0..batch.len() {
            ok(sink.check());
            assert!(sink.open_values().is_none());
            ok(sink.opened(index, Version::numbered(0)));
            assert_eq!(sink.device(), Device::Simt);
            assert!(sink.reserve_on_device(index, 1).is_err());
            sink.done(index, Ok(ReadOutcome::Missing));
        }
    }

    fn put(&self, _key: &Key, value: Payload<'_>, condition: &Condition) -> Result<bool> {
        let kind = if matches!(value, Payload::Buffer(_)) { "buffer" } else { "bytes" };
        self.hear(format!("{kind} of {}, {condition:?}", value.size_bytes()));
        Ok(true)
    }

    fn delete_many(&self, keys: &[String]) -> Result<()> {
        self.hear(format!("delete {} keys", keys.len()));
        Ok(())
    }

    fn delete_prefix(&self, _prefix: &Key) -> Result<()> {
        self.hear("delete prefix".into());
        Ok(())
    }

    fn stat(&self, key: &Key) -> Result<Option<Stat>> {
        self.values.stat(key)
    }

    fn list_dir(&self, prefix: &Key) -> Result<Listing> {
        self.values.list_dir(prefix)
    }

    fn list(&self, prefix: &Key) -> Result<Vec<String>> {
        self.values.list(prefix)
    }

    fn identity(&self) -> Identity {
        self.values.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.said
    }

    fn is_on(&self, device: Device) -> bool {
        device == Device::Simt
    }
}

/// A sink that keeps what it was asked.
#[derive(Default)]
struct Asked(Mutex<Vec<String>>);

impl Asked {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }
}

#[deny(clippy::missing_trait_methods)]
impl ReadSink for Asked {
    fn check(&self) -> Result<()> {
        self.note("check");
        Ok(())
    }

    fn reserve(&self, index: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
        self.note(format!("reserve {index}"));
        Ok(Box::new(vec![0; size_bytes as usize]))
    }

    fn open_values(&self) -> Option<&OpenValues> {
        self.note("open_values");
        None
    }

    fn opened(&self, index: usize, _version: Version) -> Result<()> {
        self.note(format!("opened {index}"));
        Ok(())
    }

    fn device(&self) -> Device {
        self.note("device");
        Device::Simt
    }

    fn reserve_on_device(&self, index: usize, _size_bytes: u64) -> Result<Buffer> {
        self.note(format!("reserve_on_device {index}"));
        Err(Error::new(ErrorKind::MemorySpace, "this sink only listens"))
    }

    fn done(&self, index: usize, _outcome: Result<ReadOutcome>) {
        self.note(format!("done {index}"));
    }
}

fn tells_one_identity(store: &Arc<dyn Store>) {
    let identity = store.identity();
    ok(store.write("a/b", b"1"));
    assert_eq!(store.identity(), identity, "writing made it another store");
    assert!(identity.has_same_chunks(&identity) && identity.overlaps(&identity.below("a")));
    assert!(identity.below("a") != identity && !identity.below("a").overlaps(&identity.below("b")));
    assert!(!identity.overlaps(&MemoryStore::new().identity()));
}

fn tells_versions_apart(store: &Arc<dyn Store>) {
    let version = |key: &Key| ok(store.stat(key)).expect("the value is there").version;
    ok(store.write("k", &bytes(1, 10)));
    assert_eq!(ok(store.stat("k")).map(|stat| stat.size_bytes), Some(10));
    assert_eq!(ok(store.stat("missing")), None);
    let Some(first) = version("k") else { return };
    assert_eq!(version("k").as_ref(), Some(&first), "nothing changed");
    ok(store.write("k", &bytes(2, 11)));
    let second = version("k").expect("the store knows versions");
    assert!(!second.has_same_bytes(&first), "the value was replaced");
    let sink = Arc::new(Versions::default());
    store.read(vec![request("k", ByteRange::Full)].into(), Arc::clone(&sink) as Arc<dyn ReadSink>, &InlineWorkers);
    if let Some(opened) = sink.0.lock().unwrap().first() {
        assert!(
            opened.has_same_bytes(&second),
            "the version of what is read is another one than that of what is there"
        );
    }
}

/// A sink that keeps the versions that it hears of.
#[derive(Default)]
struct Versions(Mutex<Vec<Version>>);

impl ReadSink for Versions {
    fn reserve(&self, _index: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
        Ok(Box::new(vec![0; size_bytes as usize]))
    }

    fn opened(&self, _index: usize, version: Version) -> Result<()> {
        self.0.lock().unwrap().push(version);
        Ok(())
    }

    fn done(&self, _index: usize, _outcome: Result<ReadOutcome>) {}
}

fn writes_over_one_version(store: &Arc<dyn Store>) {
    ok(store.write("k", b"first"));
    let put = |value: &[u8], condition: &Condition| store.put("k", Payload::Bytes(value), condition);
    if !store.capabilities().conditional_writes {
        let error = put(b"x", &Condition::Unchanged(Version::numbered(0))).expect_err("a condition was ignored");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(ok(store.get("k")).as_deref(), Some(&b"first"[..]));
        return;
    }
    let first = Condition::Unchanged(ok(store.stat("k")).and_then(|stat| stat.version).expect("a version"));
    assert!(ok(put(b"second", &first)));
    assert!(!ok(put(b"third", &first)), "another writer was there");
    assert_eq!(ok(store.get("k")).as_deref(), Some(&b"second"[..]));
    ok(store.delete("k"));
    assert!(!ok(put(b"fourth", &first)), "the value is gone");
    assert_eq!(ok(store.get("k")), None);
}

fn does_what_its_capabilities_say(store: &Arc<dyn Store>) {
    let said = store.capabilities();
    assert_eq!(store.capabilities(), said, "capabilities do not change");
    assert!(!said.read_only && said.deletes, "the suite writes and deletes");
    assert!(!store.is_on(Device::Cpu), "memory of the host is no device");
    ok(store.write("k", b"1"));
    ok(store.delete("k"));
    assert!(!ok(store.exists("k")));
}

fn bytes(seed: u8, count: usize) -> Vec<u8> {
    (0..count).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

fn ok<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("store failed: {error}"))
}

fn request(key: &str, range: ByteRange) -> ReadRequest {
    ReadRequest { key: key.to_string(), range }
}

fn reads_what_was_written(store: &Arc<dyn Store>) {
    assert_eq!(ok(store.get("zarr.json")), None);
    assert!(!ok(store.exists("a/b/c")));
    ok(store.write("a/b/c", &bytes(1, 1000)));
    ok(store.write("zarr.json", b"{}"));
    assert_eq!(ok(store.get("a/b/c")), Some(bytes(1, 1000)));
    assert_eq!(ok(store.get("zarr.json")).as_deref(), Some(&b"{}"[..]));
    assert_eq!(ok(store.size_bytes("a/b/c")), Some(1000));
    assert_eq!(ok(store.get("a/b")), None, "a prefix is not a value");
    assert_eq!(ok(store.size_bytes("a")), None, "a prefix is not a value");
    assert_eq!(ok(store.get("zarr.json/below")), None, "nothing lies below a value");
}

fn replaces_value_by_shorter_one(store: &Arc<dyn Store>) {
    ok(store.write("k", &bytes(1, 5000)));
    ok(store.write("k", b"short"));
    assert_eq!(ok(store.get("k")).as_deref(), Some(&b"short"[..]));
}

fn keeps_empty_values(store: &Arc<dyn Store>) {
    ok(store.write("empty", b""));
    assert_eq!(ok(store.get("empty")), Some(vec![]));
    assert_eq!(ok(store.size_bytes("empty")), Some(0));
    assert_eq!(ok(store.get_range("empty", ByteRange::Suffix { size_bytes: 8 })), Some(vec![]));
    assert_eq!(ok(store.get_range("empty", ByteRange::Span { offset: 0, size_bytes: 0 })), Some(vec![]));
}

fn reads_every_kind_of_range(store: &Arc<dyn Store>) {
    let value = bytes(7, 100);
    ok(store.write("v", &value));
    let cases = [
        (ByteRange::Full, 0..100),
        (ByteRange::Span { offset: 0, size_bytes: 100 }, 0..100),
        (ByteRange::Span { offset: 10, size_bytes: 5 }, 10..15),
        (ByteRange::Span { offset: 100, size_bytes: 0 }, 100..100),
        (ByteRange::From { offset: 0 }, 0..100),
        (ByteRange::From { offset: 99 }, 99..100),
        (ByteRange::From { offset: 100 }, 100..100),
        (ByteRange::Suffix { size_bytes: 0 }, 100..100),
        (ByteRange::Suffix { size_bytes: 7 }, 93..100),
        (ByteRange::Suffix { size_bytes: u64::MAX }, 0..100),
    ];
    for (range, expected) in cases {
        assert_eq!(ok(store.get_range("v", range)).as_deref(), Some(&value[expected]), "{range:?}");
        assert_eq!(ok(store.get_range("missing", range)), None, "{range:?} of a missing key");
    }
}

fn refuses_ranges_beyond_the_end(store: &Arc<dyn Store>) {
    ok(store.write("v", &bytes(7, 100)));
    for range in [
        ByteRange::Span { offset: 0, size_bytes: 101 },
        ByteRange::Span { offset: 101, size_bytes: 0 },
        ByteRange::Span { offset: 1, size_bytes: u64::MAX },
        ByteRange::Span { offset: u64::MAX, size_bytes: 1 },
        ByteRange::From { offset: 101 },
        ByteRange::From { offset: u64::MAX },
    ] {
        let error = store.get_range("v", range).expect_err("a range beyond the end was read");
        assert_eq!(error.kind(), ErrorKind::StoreFailed, "{range:?}: {error}");
    }
}

fn refuses_invalid_keys(store: &Arc<dyn Store>) {
    for key in ["", "/", "/etc/hostname", "a/", "a//b", ".", "..", "../a", "a/../../b", "a/./b", "a\0b", "..\\a"] {
        let refusals = [
            store.get(key).err(),
            store.get_range(key, ByteRange::Suffix { size_bytes: 1 }).err(),
            store.write(key, b"x").err(),
            store.write_if_absent(key, b"x").err(),
            store.delete(key).err(),
            store.size_bytes(key).err(),
        ];
        let kinds = refusals.map(|error| error.map(|error| error.kind()));
        assert_eq!(kinds, [Some(ErrorKind::KeyInvalid); 6], "{key:?}");
        if !key.is_empty() {
            let refusals = [store.delete_prefix(key).err(), store.list_dir(key).err(), store.list(key).err()];
            let kinds = refusals.map(|error| error.map(|error| error.kind()));
            assert_eq!(kinds, [Some(ErrorKind::KeyInvalid); 3], "{key:?}");
        }
    }
    ok(store.write("good", b"1"));
    let items = store.get_many(vec![request("../bad", ByteRange::Full), request("good", ByteRange::Full)]);
    assert!(items[0].is_err() && matches!(&items[1], Ok(Some(_))), "a bad key fails its own item only");
    assert_eq!(ok(store.list("")), ["good"]);
}

fn keeps_odd_keys(store: &Arc<dyn Store>) {
    let long = "x".repeat(200);
    let keys =
        ["a b", "ü/ñ/漢", "..a/b..", ".zarray", "%2e%2e/x", "~/$HOME", "c/0.1", "-", "#", "?a=b", "[0-9]*", &long];
    for (i, key) in keys.iter().enumerate() {
        ok(store.write(key, &bytes(i as u8, 10)));
    }
    for (i, key) in keys.iter().enumerate() {
        assert_eq!(ok(store.get(key)), Some(bytes(i as u8, 10)), "{key:?}");
    }
    let mut sorted: Vec<String> = keys.map(String::from).to_vec();
    sorted.sort_unstable();
    assert_eq!(ok(store.list("")), sorted);
}

/// How each item ended: once, if the store keeps its promise.
type Outcomes = HashMap<usize, Vec<Result<Option<Vec<u8>>>>>;

/// Counts how often each item ended, and keeps how.
struct Watcher {
    limit_bytes: u64,
    reserved: Mutex<Vec<u64>>,
    outcomes: Mutex<Outcomes>,
    ended: Sender<usize>,
}

impl ReadSink for Watcher {
    fn reserve(&self, _index: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
        self.reserved.lock().unwrap().push(size_bytes);
        if size_bytes > self.limit_bytes {
            return Err(Error::new(ErrorKind::BudgetExceeded, "no budget"));
        }
        Ok(Box::new(vec![0xAA; size_bytes as usize]))
    }

    fn done(&self, index: usize, outcome: Result<ReadOutcome>) {
        let outcome = outcome.map(|outcome| match outcome {
            ReadOutcome::Filled(mut lease) => Some(lease.bytes().to_vec()),
            ReadOutcome::OnDevice(_) => panic!("the bytes were wanted on the host"),
            ReadOutcome::Missing => None,
        });
        self.outcomes.lock().unwrap().entry(index).or_default().push(outcome);
        let _ = self.ended.send(index);
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Threads that outlive the batch, as an engine's do.
struct Threads {
    jobs: Sender<Job>,
    handles: Vec<std::thread::JoinHandle<()>>,
}

impl Threads {
    fn new(count: usize) -> Self {
        let (jobs, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        let work = |queue: Arc<Mutex<Receiver<Job>>>| {
            move || {
                while let Some(job) = next_job(&queue) {
                    job();
                }
            }
        };
        let handles = (0..count).map(|_| std::thread::spawn(work(Arc::clone(&queue)))).collect();
        Threads { jobs, handles }
    }

    fn finish(self) {
        drop(self.jobs);
        for handle in self.handles {
            handle.join().expect("a store's job panicked");
        }
    }
}

fn next_job(queue: &Mutex<Receiver<Job>>) -> Option<Job> {
    queue.lock().unwrap().recv().ok()
}

impl Workers for Threads {
    fn spawn(&self, job: Job) {
        self.jobs.send(job).expect("the threads are there until `finish`");
    }

    fn count(&self) -> usize {
        self.handles.len()
    }
}

/// Reads a batch, waits for every item, and returns what was reserved and how each item ended.
fn read_all(
    store: &Arc<dyn Store>,
    batch: Vec<ReadRequest>,
    workers: &dyn Workers,
    limit: u64,
) -> (Vec<u64>, Outcomes) {
    let (sender, ended) = mpsc::channel();
    let watcher =
        Arc::new(Watcher { limit_bytes: limit, reserved: Mutex::default(), outcomes: Mutex::default(), ended: sender });
    let count = batch.len();
    store.read(batch.into(), Arc::clone(&watcher) as Arc<dyn ReadSink>, workers);
    for _ in 0..count {
        ended.recv().expect("the watcher lives");
    }
    let reserved = std::mem::take(&mut *watcher.reserved.lock().unwrap());
    let outcomes = std::mem::take(&mut *watcher.outcomes.lock().unwrap());
    (reserved, outcomes)
}

fn finishes_every_item_once(store: &Arc<dyn Store>) {
    ok(store.write("a", &bytes(1, 64)));
    ok(store.write("b/c", &bytes(2, 32)));
    let batch = vec![
        request("a", ByteRange::Full),
        request("missing", ByteRange::Full),
        request("a", ByteRange::Span { offset: 60, size_bytes: 10 }),
        request("b/c", ByteRange::From { offset: 30 }),
        request("../x", ByteRange::Full),
        request("a", ByteRange::Full),
        request("a", ByteRange::Suffix { size_bytes: 1 }),
    ];
    let threads = Threads::new(3);
    for workers in [&threads as &dyn Workers, &InlineWorkers] {
        let (_, outcomes) = read_all(store, batch.clone(), workers, u64::MAX);
        let shown: Vec<_> = (0..batch.len()).map(|i| outcomes[&i].iter().map(summary).collect::<Vec<_>>()).collect();
        assert_eq!(shown, [["64"], ["missing"], ["error"], ["2"], ["error"], ["64"], ["1"]].map(|case| case.to_vec()));
        assert_eq!(outcomes[&3][0].as_ref().unwrap().as_deref(), Some(&bytes(2, 32)[30..]));
    }
    threads.finish();
}

fn summary(outcome: &Result<Option<Vec<u8>>>) -> String {
    match outcome {
        Ok(Some(bytes)) => bytes.len().to_string(),
        Ok(None) => "missing".to_string(),
        Err(_) => "error".to_string(),
    }
}

fn finishes_large_batches(store: &Arc<dyn Store>) {
    let big = bytes(9, 1 << 16);
    ok(store.write("big", &big));
    for i in 0..40u8 {
        ok(store.write(&format!("c/{i}"), &bytes(i, 100 + i as usize)));
    }
    let mut batch = Vec::new();
    for i in 0..1000u64 {
        batch.push(request("big", ByteRange::Span { offset: i * 64, size_bytes: 64 }));
        batch.push(request(&format!("c/{}", i % 50), ByteRange::Full));
    }
    let threads = Threads::new(4);
    let (_, outcomes) = read_all(store, batch, &threads, u64::MAX);
    threads.finish();
    assert_eq!(outcomes.len(), 2000);
    for i in 0..1000usize {
        let (ranges, values) = (&outcomes[&(2 * i)], &outcomes[&(2 * i + 1)]);
        assert_eq!((ranges.len(), values.len()), (1, 1), "each item ends once");
        assert_eq!(ranges[0].as_ref().unwrap().as_deref(), Some(&big[i * 64..][..64]));
        let stored = (i % 50 < 40).then(|| bytes((i % 50) as u8, 100 + i % 50));
        assert_eq!(values[0].as_ref().unwrap(), &stored);
    }
}

fn passes_on_refusals(store: &Arc<dyn Store>) {
    ok(store.write("small", &bytes(1, 10)));
    ok(store.write("large", &bytes(1, 11)));
    let batch = vec![request("large", ByteRange::Full), request("small", ByteRange::Full)];
    let (_, outcomes) = read_all(store, batch, &InlineWorkers, 10);
    assert_eq!(outcomes[&0][0].as_ref().unwrap_err().kind(), ErrorKind::BudgetExceeded);
    assert_eq!(outcomes[&1][0].as_ref().unwrap().as_deref(), Some(&bytes(1, 10)[..]));
}

fn reserves_nothing_for_missing_keys(store: &Arc<dyn Store>) {
    ok(store.write("v", &bytes(1, 10)));
    let batch = vec![
        request("missing", ByteRange::Full),
        request("v", ByteRange::Span { offset: 5, size_bytes: u64::MAX }),
        request("v", ByteRange::Suffix { size_bytes: 1 << 60 }),
    ];
    let (reserved, _) = read_all(store, batch, &InlineWorkers, u64::MAX);
    assert_eq!(reserved, [10], "memory is asked for what is there, not for what is wanted");
}

fn finishes_dropped_jobs(store: &Arc<dyn Store>) {
    struct Dropping;
    impl Workers for Dropping {
        fn spawn(&self, job: Job) {
            drop(job);
        }

        fn count(&self) -> usize {
            2
        }
    }
    ok(store.write("v", b"1"));
    let batch = (0..100).map(|i| request("v", ByteRange::Span { offset: i % 2, size_bytes: 0 })).collect();
    let (_, outcomes) = read_all(store, batch, &Dropping, u64::MAX);
    assert!(outcomes.values().all(|ends| ends.len() == 1), "each item ends once");
}

fn reads_empty_batch(store: &Arc<dyn Store>) {
    assert!(store.get_many(Vec::new()).is_empty());
}

fn deletes_values_and_prefixes(store: &Arc<dyn Store>) {
    for key in ["a/x", "a/y/z", "ab", "a.b", "a0/x", "b"] {
        ok(store.write(key, b"1"));
    }
    ok(store.delete("b"));
    ok(store.delete("b"));
    ok(store.delete("never/there"));
    for key in ["many/a", "many/b/c", "many/d"] {
        ok(store.write(key, b"1"));
    }
    ok(store.delete_many(&["many/a", "never/there", "many/b/c", "many/a"].map(String::from)));
    ok(store.delete_many(&[]));
    assert_eq!(ok(store.list("many")), ["many/d"]);
    ok(store.delete("many/d"));
    ok(store.delete("a/y"));
    assert_eq!(ok(store.list("a")), ["a/x", "a/y/z"], "deleting a key leaves what lies below it");
    ok(store.delete_prefix("a"));
    ok(store.delete_prefix("a"));
    ok(store.delete_prefix("ab"));
    assert_eq!(ok(store.list("")), ["a.b", "a0/x", "ab"], "a prefix ends at a '/'");
    ok(store.delete_prefix(""));
    assert_eq!(ok(store.list("")), Vec::<String>::new());
    ok(store.write("again/x", b"1"));
    assert_eq!(ok(store.list("")), ["again/x"]);
}

fn lists_levels(store: &Arc<dyn Store>) {
    assert_eq!(ok(store.list_dir("")), Listing::default());
    assert_eq!(ok(store.list("nothing/here")), Vec::<String>::new());
    for key in ["zarr.json", "a/zarr.json", "a/c/0", "a/c/1", "a-b/zarr.json", "b"] {
        ok(store.write(key, b"1"));
    }
    let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
    let level = |keys: &[&str], prefixes: &[&str]| Listing { keys: names(keys), prefixes: names(prefixes) };
    assert_eq!(ok(store.list_dir("")), level(&["b", "zarr.json"], &["a", "a-b"]));
    assert_eq!(ok(store.list_dir("a")), level(&["a/zarr.json"], &["a/c"]));
    assert_eq!(ok(store.list_dir("a/c")), level(&["a/c/0", "a/c/1"], &[]));
    assert_eq!(ok(store.list_dir("b")), Listing::default(), "nothing lies below a value");
    assert_eq!(ok(store.list("a")), ["a/c/0", "a/c/1", "a/zarr.json"]);
    assert_eq!(ok(store.list("")), ["a-b/zarr.json", "a/c/0", "a/c/1", "a/zarr.json", "b", "zarr.json"]);
}

fn writes_once_if_absent(store: &Arc<dyn Store>) {
    let winners = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for i in 0..8u8 {
            let (store, winners) = (Arc::clone(store), &winners);
            scope.spawn(move || {
                if ok(store.write_if_absent("deep/key", &[i; 100])) {
                    winners.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(winners.into_inner(), 1);
    let value = ok(store.get("deep/key")).expect("somebody wrote");
    assert_eq!(value, vec![value[0]; 100]);
    assert!(!ok(store.write_if_absent("deep/key", b"late")));
    assert_eq!(ok(store.get("deep/key")), Some(value));
}

fn shows_whole_values(store: &Arc<dyn Store>) {
    const SIZE: usize = 1 << 18;
    let stop = AtomicBool::new(false);
    let key: &Key = "shared/value";
    ok(store.write(key, &vec![0; SIZE]));
    std::thread::scope(|scope| {
        let (writer, stop) = (Arc::clone(store), &stop);
        scope.spawn(move || {
            for i in 1..40u8 {
                ok(writer.write(key, &vec![i; SIZE + i as usize]));
            }
            stop.store(true, Ordering::Release);
        });
        while !stop.load(Ordering::Acquire) {
            let value = ok(store.get(key)).expect("the value is always there");
            let (first, expected) = (value[0], SIZE + value[0] as usize);
            assert!(value.iter().all(|&byte| byte == first), "a reader saw two values at once");
            assert_eq!(value.len(), expected, "a reader saw part of a value");
        }
    });
}

fn keeps_large_values(store: &Arc<dyn Store>) {
    let value = bytes(3, (9 << 20) + 1);
    ok(store.write("large", &value));
    assert!(ok(store.get("large")).as_deref() == Some(&value[..]));
    let range = ByteRange::Span { offset: 8 << 20, size_bytes: 1 << 20 };
    assert!(ok(store.get_range("large", range)).as_deref() == Some(&value[8 << 20..9 << 20]));
}

fn lets_writers_and_deleters_race(store: &Arc<dyn Store>) {
    std::thread::scope(|scope| {
        for thread in 0..2u8 {
            let store = Arc::clone(store);
            scope.spawn(move || {
                for i in 0..50u8 {
                    ok(store.write(&format!("p/q/{thread}/{i}"), &[i]));
                }
            });
        }
        let store = Arc::clone(store);
        scope.spawn(move || {
            for _ in 0..20 {
                ok(store.delete_prefix("p"));
            }
        });
    });
    ok(store.write("p/q/last", b"1"));
    assert_eq!(ok(store.get("p/q/last")).as_deref(), Some(&b"1"[..]));
    for key in ok(store.list("p")) {
        assert!(ok(store.exists(&key)), "listed '{key}' does not exist");
    }
}
