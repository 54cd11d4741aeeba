//! The store against a server with the interface of S3: its promises, its requests, and what it does when answers go wrong.

mod server;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use cuzarr::meta::DataType;
use cuzarr::node::{Array, ArrayOptions, ArrayResize, resize_all};
use cuzarr::store::{
    ByteRange, Condition, InlineWorkers, LOCK_NAME, Lease, Payload, ReadOutcome, ReadRequest, ReadSink, Store,
    StoreExt, conformance,
};
use cuzarr::{Error, ErrorKind, Result, Selection};
use cuzarr_remote::{CredentialSource, Credentials, StorageOptions, cache_info, registry_with};
use server::{Fault, Kind, Server};

fn options(server: &Server) -> StorageOptions {
    StorageOptions::from_iter([
        ("key", "test"),
        ("secret", "test-secret"),
        ("endpoint_url", &server.url()),
        ("region", "us-east-1"),
    ])
}

fn open_with(server: &Server, more: &[(&str, &str)]) -> Arc<dyn Store> {
    let mut options = options(server);
    more.iter().for_each(|(name, value)| options.set(*name, *value));
    registry_with(options).open("s3://bucket/root").unwrap()
}

fn open(server: &Server) -> Arc<dyn Store> {
    open_with(server, &[])
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

#[test]
fn conforms() {
    conformance::run(&|| open(&Server::start(Kind::S3)));
}

#[test]
fn a_large_value_comes_in_parts_at_once_of_one_version() {
    let server = Server::start(Kind::S3);
    let value = bytes((20 << 20) + 5);
    server.put("bucket/root/large", &value);
    server.set_latency(Duration::from_millis(20));
    let store = open(&server);
    let sink = Arc::new(Divisible::new(value.len()));
    store.read(
        [ReadRequest { key: "large".into(), range: ByteRange::Full }].into(),
        Arc::clone(&sink) as Arc<dyn ReadSink>,
        &InlineWorkers,
    );
    sink.wait().unwrap();
    assert!(*sink.bytes.lock().unwrap() == value);
    let log = server.take_log();
    let mut ranges: Vec<_> = log.iter().map(|request| request.headers["range"].clone()).collect();
    ranges.sort_unstable();
    assert_eq!(ranges, ["bytes=0-8388607", "bytes=16777216-20971524", "bytes=8388608-16777215"]);
    assert_eq!(log.iter().map(|request| request.round).max(), Some(2), "the other parts come at once");
    let tagged = log.iter().filter(|request| request.headers.contains_key("if-match")).count();
    assert_eq!(tagged, 2, "the other parts are of the version of the first");
}

#[test]
fn a_span_is_divided_into_larger_parts_than_a_whole_value() {
    let server = Server::start(Kind::S3);
    let value = bytes(36 << 20);
    server.put("bucket/root/large", &value);
    let store = open(&server);
    let ranges_of = |range: ByteRange| {
        let (offset, size_bytes) = range.resolve(value.len() as u64).unwrap();
        let expected = &value[offset as usize..(offset + size_bytes) as usize];
        assert!(store.get_range("large", range).unwrap().as_deref() == Some(expected), "{range:?}");
        let mut ranges: Vec<_> = server.take_log().iter().map(|request| request.headers["range"].clone()).collect();
        ranges.sort_unstable();
        ranges
    };
    assert_eq!(ranges_of(ByteRange::Span { offset: 5, size_bytes: 16 << 20 }), ["bytes=5-16777220"]);
    assert_eq!(
        ranges_of(ByteRange::Span { offset: 5, size_bytes: 33 << 20 }),
        ["bytes=16777221-33554436", "bytes=33554437-34603012", "bytes=5-16777220"]
    );
    assert_eq!(ranges_of(ByteRange::From { offset: 20 << 20 }), ["bytes=20971520-29360127", "bytes=29360128-37748735"]);
}

/// Memory that can be divided, as a slab can.
struct Divisible {
    bytes: Arc<Mutex<Vec<u8>>>,
    sender: Mutex<mpsc::Sender<Result<()>>>,
    receiver: Mutex<mpsc::Receiver<Result<()>>>,
}

impl Divisible {
    fn new(size_bytes: usize) -> Divisible {
        let (sender, receiver) = mpsc::channel();
        Divisible {
            bytes: Arc::new(Mutex::new(vec![0; size_bytes])),
            sender: Mutex::new(sender),
            receiver: Mutex::new(receiver),
        }
    }

    fn wait(&self) -> Result<()> {
        self.receiver.lock().unwrap().recv_timeout(Duration::from_secs(30)).unwrap()
    }
}

struct Part {
    all: Arc<Mutex<Vec<u8>>>,
    own: Vec<u8>,
    at: usize,
}

impl Lease for Part {
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.own
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }

    fn split_off(&mut self, at: usize) -> Option<Box<dyn Lease>> {
        Some(Box::new(Part { all: Arc::clone(&self.all), own: self.own.split_off(at), at: self.at + at }))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.all.lock().unwrap()[self.at..self.at + self.own.len()].copy_from_slice(&self.own);
    }
}

impl ReadSink for Divisible {
    fn reserve(&self, _index: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
        Ok(Box::new(Part { all: Arc::clone(&self.bytes), own: vec![0; size_bytes as usize], at: 0 }))
    }

    fn done(&self, _index: usize, outcome: Result<ReadOutcome>) {
        let outcome = outcome.map(drop);
        self.sender.lock().unwrap().send(outcome).unwrap();
    }
}

#[test]
fn many_small_values_are_requested_at_once_up_to_the_limit() {
    let server = Server::start(Kind::S3);
    for number in 0..200 {
        server.put(&format!("bucket/root/c/{number}"), &bytes(number));
    }
    server.set_latency(Duration::from_millis(30));
    let requests = || (0..200).map(|at| ReadRequest { key: format!("c/{at}"), range: ByteRange::Full }).collect();
    let store = open(&server);
    for (number, value) in store.get_many(requests()).into_iter().enumerate() {
        assert_eq!(value.unwrap(), Some(bytes(number)));
    }
    assert!((32..=128).contains(&server.most_in_flight()), "{} at once", server.most_in_flight());
    let server = Server::start(Kind::S3);
    server.set_latency(Duration::from_millis(2));
    open_with(&server, &[("max_requests", "5")]).get_many(requests());
    assert_eq!(server.most_in_flight(), 5);
}

#[test]
fn faults_of_the_server_are_mended_or_told_and_never_read() {
    let server = Server::start(Kind::S3);
    let value = bytes(300_000);
    server.put("bucket/root/v", &value);
    let store = open_with(&server, &[("max_retries", "3"), ("retry_timeout", "5"), ("timeout", "1")]);
    let first = |fault: Fault| {
        let count = AtomicUsize::new(0);
        server.set_faults(move |request| {
            let is_first = request.method == "GET" && count.fetch_add(1, Ordering::Relaxed) == 0;
            is_first.then(|| fault.clone())
        });
        store.get("v")
    };
    let mended = [
        Fault::Status(503, None),
        Fault::Status(500, None),
        Fault::Status(429, Some(1)),
        Fault::BreakAfter(0),
        Fault::BreakAfter(100_000),
        Fault::Delay(Duration::from_millis(1500)),
        Fault::Drip(Duration::from_millis(50)),
    ];
    for fault in mended {
        let got = first(fault.clone()).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert!(got.as_ref() == Some(&value), "{fault:?}");
    }
    let error = first(Fault::ShortLength(1000)).unwrap_err();
    assert!(error.message().contains("the body ended after 299000 of 300000 bytes"), "{error}");
}

#[test]
fn a_refused_request_lends_its_place_while_it_pauses() {
    let server = Server::start(Kind::S3);
    (0..10).for_each(|number| server.put(&format!("bucket/root/c/{number}"), &bytes(100)));
    let store = open_with(&server, &[("max_requests", "5")]);
    let first = AtomicUsize::new(0);
    server.set_faults(move |request| match request.path.as_str() {
        "bucket/root/c/0" => (first.fetch_add(1, Ordering::Relaxed) == 0).then_some(Fault::Status(503, Some(1))),
        // These keep the other places longer than the refused request pauses.
        "bucket/root/c/1" | "bucket/root/c/2" | "bucket/root/c/3" | "bucket/root/c/4" => {
            Some(Fault::Delay(Duration::from_secs(2)))
        }
        _ => None,
    });
    let requests = (0..10).map(|at| ReadRequest { key: format!("c/{at}"), range: ByteRange::Full }).collect();
    assert!(store.get_many(requests).into_iter().all(|value| value.unwrap() == Some(bytes(100))));
    let log = server.take_log();
    let paths: Vec<_> = log.iter().map(|request| request.path.trim_start_matches("bucket/root/c/")).collect();
    assert_eq!((paths.len(), paths.last()), (11, Some(&"0")), "others went meanwhile: {paths:?}");
}

#[test]
fn a_refused_chunk_keeps_no_others_waiting() {
    const CHUNKS: u64 = 1500;
    let server = Server::start(Kind::S3);
    let array = Array::builder([CHUNKS], DataType::UInt8).chunks([1]).compressor("none").create_in(open(&server), "a");
    let array = array.unwrap();
    (0..CHUNKS).for_each(|at| server.put(&format!("bucket/root/a/c/{at}"), &[at as u8]));
    server.take_log();
    let first = AtomicUsize::new(0);
    server.set_faults(move |request| {
        let is_first = request.path.ends_with("/c/0") && first.fetch_add(1, Ordering::Relaxed) == 0;
        is_first.then_some(Fault::Status(503, Some(6)))
    });
    let found = array.read::<u8>(&Selection::all(&[CHUNKS])).unwrap();
    assert!(found[..] == (0..CHUNKS).map(|at| at as u8).collect::<Vec<_>>()[..]);
    let log = server.take_log();
    let again = log.iter().rposition(|request| request.path.ends_with("/c/0"));
    assert!(again > Some(1200), "{again:?}: only some of the other chunks were asked for meanwhile");
}

#[test]
fn an_error_tells_the_place_the_reason_and_the_deadline_but_no_secret() {
    let server = Server::start(Kind::S3);
    server.put("bucket/root/v", b"1");
    let store = open_with(&server, &[("max_retries", "2"), ("retry_timeout", "7")]);
    let error_of = |status: u16| {
        server.set_faults(move |_| Some(Fault::Status(status, None)));
        store.get("v").unwrap_err()
    };
    let shown = error_of(503).to_string();
    assert!(shown.contains("s3://bucket") && shown.contains("key 'root/v'"), "{shown}");
    assert!(shown.contains("2 retries, deadline 7s") && shown.contains("InjectedFault"), "{shown}");
    let denied = error_of(403);
    assert!(denied.message().contains("permission denied: InjectedFault"), "{denied}");
    assert!(error_of(401).message().contains("credentials were refused"));
    server.set_faults(|_| Some(Fault::Delay(Duration::from_secs(2))));
    let slow = open_with(&server, &[("max_retries", "1"), ("timeout", "0.2")]);
    assert!(slow.get("v").unwrap_err().message().contains("timed out (1 retries"));
    let gone = registry_with(StorageOptions::from_iter([
        ("key", "test"),
        ("secret", "test-secret"),
        ("endpoint_url", "http://127.0.0.1:1"),
        ("max_retries", "1"),
    ]));
    let unreachable = gone.open("s3://bucket/root").unwrap().get("v").unwrap_err();
    assert!(unreachable.message().contains("cannot connect (1 retries"), "{unreachable}");
    for error in [denied, unreachable] {
        assert!(!format!("{error:?}").contains("test-secret"));
    }
}

/// A server that refuses to list, and then also to read what it does not have, as S3 does.
fn server_that_does_not_list() -> Arc<Server> {
    let server = Arc::new(Server::start(Kind::S3));
    let known = Arc::clone(&server);
    server.set_faults(move |request| {
        let is_list = request.path.trim_matches('/') == "bucket" && request.method == "GET";
        let is_read = matches!(request.method.as_str(), "GET" | "HEAD");
        let is_denied = is_list || (is_read && known.get(request.path.trim_matches('/')).is_none());
        is_denied.then_some(Fault::Status(403, None))
    });
    server
}

#[test]
fn a_key_that_may_not_list_creates_appends_and_reads() {
    let server = server_that_does_not_list();
    let store = open_with(&server, &[("missing_when_denied", "true")]);
    assert_eq!(store.list("").unwrap_err().kind(), ErrorKind::PermissionDenied);
    let builder = |length: u64| Array::builder([length], DataType::UInt8).chunks([2]).compressor("none");
    let mut array = builder(4).create_in(Arc::clone(&store), "a").unwrap();
    array.resize(vec![6]).unwrap();
    array.write(&Selection::region(&[4], &[2]).unwrap(), &[1u8, 2]).unwrap();
    let found = Array::open(Arc::clone(&store), "a", ArrayOptions::default()).unwrap();
    assert_eq!(&found.read::<u8>(&Selection::all(&[6])).unwrap()[..], [0, 0, 0, 0, 1, 2]);
    // What a deleted array left is noticed all the same.
    server.put("bucket/root/b/c/1", &[7, 7]);
    assert_eq!(builder(4).create_in(Arc::clone(&store), "b").unwrap_err().kind(), ErrorKind::ContainsArray);
    assert!(builder(2).create_in(store, "b").is_ok());
}

#[test]
fn shapes_of_many_arrays_change_at_once_and_no_lock_is_left() {
    let server = Server::start(Kind::S3);
    let store = open(&server);
    let create = |number: usize| {
        let builder = Array::builder([2], DataType::UInt8).chunks([2]);
        builder.create_in(Arc::clone(&store), &format!("v{number}")).unwrap()
    };
    let mut arrays: Vec<Array> = (0..24).map(create).collect();
    server.set_latency(Duration::from_millis(5));
    server.take_log();
    resize_all(&mut arrays.iter_mut().map(|array| ArrayResize::new(array, [6])).collect::<Vec<_>>()).unwrap();
    let log = server.take_log();
    let of_root = |path: &&str| path.trim_matches('/') == "bucket/root/zarr.json";
    let of_root = log.iter().map(|request| request.path.as_str()).filter(of_root).count();
    assert!(of_root <= 3, "the group is looked at once for all: {of_root}");
    let of_locks = log.iter().filter(|request| request.method == "PUT" && request.path.ends_with(LOCK_NAME)).count();
    assert_eq!(of_locks, 24, "each array is locked");
    assert!(store.list("").unwrap().iter().all(|key| !key.ends_with(LOCK_NAME)), "and set free");
    assert!(server.most_in_flight() >= 8, "{}", server.most_in_flight());
    for (number, array) in arrays.iter().enumerate() {
        let stored = Array::open(Arc::clone(&store), &format!("v{number}"), ArrayOptions::default()).unwrap();
        assert_eq!([array.shape(), stored.shape()], [[6]; 2]);
    }
}

#[test]
fn what_may_not_be_read_is_an_error_unless_it_is_said_to_be_missing() {
    let server = server_that_does_not_list();
    let store = open(&server);
    let error = store.get("v").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.hint().unwrap().contains("missing_when_denied=true"), "{error}");
    let array = Array::builder([4], DataType::UInt8).chunks([2]).create_in(Arc::clone(&store), "a");
    assert_eq!(array.unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert!(server.get("bucket/root/a/zarr.json").is_none());
}

#[test]
fn a_value_that_changes_between_its_parts_is_refused() {
    let server = Server::start(Kind::S3);
    server.put("bucket/root/large", &bytes(20 << 20));
    let store = open(&server);
    // The server ignores `If-Match`, and another version has another tag.
    server.set_faults(|request| (request.headers["range"] != "bytes=0-8388607").then_some(Fault::OtherTag));
    let error = store.get("large").unwrap_err();
    assert!(error.message().contains("the value was changed while it was read"), "{error}");
    assert_eq!(error.hint(), Some("read again"));
}

#[test]
fn a_cancelled_read_ends_at_once() {
    struct Cancelled(Mutex<mpsc::Sender<ErrorKind>>, Instant);
    impl ReadSink for Cancelled {
        fn reserve(&self, _index: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
            Ok(Box::new(vec![0; size_bytes as usize]))
        }

        fn check(&self) -> Result<()> {
            let is_late = self.1.elapsed() > Duration::from_millis(100);
            if is_late { Err(Error::new(ErrorKind::Cancelled, "stop")) } else { Ok(()) }
        }

        fn done(&self, _index: usize, outcome: Result<ReadOutcome>) {
            self.0.lock().unwrap().send(outcome.err().unwrap().kind()).unwrap();
        }
    }
    let server = Server::start(Kind::S3);
    server.put("bucket/root/v", &bytes(100_000));
    server.set_faults(|_| Some(Fault::Drip(Duration::from_millis(10))));
    let (sender, receiver) = mpsc::channel();
    let begun = Instant::now();
    let batch = vec![ReadRequest { key: "v".into(), range: ByteRange::Full }; 100];
    open(&server).read(batch.into(), Arc::new(Cancelled(Mutex::new(sender), begun)), &InlineWorkers);
    for _ in 0..100 {
        assert_eq!(receiver.recv_timeout(Duration::from_secs(5)).unwrap(), ErrorKind::Cancelled);
    }
    // The value itself would take a quarter of an hour.
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[test]
fn a_large_value_is_written_in_parts_and_a_failed_one_leaves_none() {
    let server = Server::start(Kind::S3);
    let store = open_with(&server, &[("max_retries", "1")]);
    let value = bytes((64 << 20) + 7);
    store.write("large", &value).unwrap();
    assert!(server.get("bucket/root/large").as_ref() == Some(&value));
    let parts = server.take_log().iter().filter(|request| request.query.contains_key("partNumber")).count();
    assert_eq!(parts, 5);
    server.set_faults(|request| {
        let is_third = request.query.get("partNumber").is_some_and(|number| number == "3");
        is_third.then_some(Fault::Status(403, None))
    });
    let error = store.write("broken", &value).unwrap_err();
    assert!(error.message().contains("permission denied"), "{error}");
    assert_eq!(server.get("bucket/root/broken"), None);
    assert_eq!(server.open_uploads(), 0, "parts of a failed upload are removed");
}

#[test]
fn writers_of_one_version_cannot_both_win() {
    let server = Server::start(Kind::S3);
    let (one, other) = (open(&server), open(&server));
    one.write("k", b"0").unwrap();
    let seen = one.stat("k").unwrap().unwrap().version.unwrap();
    let put = |store: &Arc<dyn Store>| store.put("k", Payload::Bytes(b"1"), &Condition::Unchanged(seen.clone()));
    assert!(put(&one).unwrap() && !put(&other).unwrap());
}

#[test]
fn many_values_are_deleted_by_one_request() {
    let server = Server::start(Kind::S3);
    let store = open(&server);
    (0..20).for_each(|number| server.put(&format!("bucket/root/c/{number}"), b"1"));
    let keys: Vec<String> = (0..20).map(|number| format!("c/{number}")).collect();
    store.delete_many(&keys).unwrap();
    let log = server.take_log();
    assert_eq!(log.len(), 1);
    assert_eq!(log[0].method, "POST");
    assert_eq!(store.list("").unwrap(), Vec::<String>::new());
}

/// An array of 64 elements in one object, through a handle that shares no lock with other handles.
fn array_in(server: &Server, host: &str) -> Array {
    let url = server.url().replace("127.0.0.1", host);
    Array::open(open_with(server, &[("endpoint_url", &url)]), "a", ArrayOptions::default()).unwrap()
}

#[test]
fn writers_of_parts_of_one_object_lose_nothing() {
    for (is_sharded, host) in [(false, "localhost"), (true, "localhost")] {
        let server = Server::start(Kind::S3);
        let builder = Array::builder([64], DataType::UInt8).chunks([if is_sharded { 8 } else { 64 }]);
        let builder = if is_sharded { builder.shards([64]) } else { builder };
        builder.create_in(open(&server), "a").unwrap();
        std::thread::scope(|threads| {
            for (first, host) in ["127.0.0.1", host].into_iter().enumerate() {
                let array = array_in(&server, host);
                threads.spawn(move || {
                    for at in (first as u64..64).step_by(2) {
                        array.write(&Selection::region(&[at], &[1]).unwrap(), &[at as u8 + 1]).unwrap();
                    }
                });
            }
        });
        let found = array_in(&server, host).read::<u8>(&Selection::all(&[64])).unwrap();
        assert_eq!(found[..], (1..=64).collect::<Vec<u8>>()[..], "sharded: {is_sharded}");
        let log = server.take_log();
        let writes: Vec<_> =
            log.iter().filter(|request| request.method == "PUT" && request.path.contains("/c/")).collect();
        // The first write is of an object that is not there.
        let under = |name: &str| writes.iter().filter(|write| write.headers.contains_key(name)).count();
        let (changed, made) = (under("if-match"), under("if-none-match"));
        assert!(writes.len() >= 64 && changed + made == writes.len(), "every write is under a condition: {writes:?}");
    }
}

#[test]
fn a_write_that_always_comes_too_late_says_so() {
    let server = Server::start(Kind::S3);
    Array::builder([64], DataType::UInt8).chunks([64]).create_in(open(&server), "a").unwrap();
    let array = array_in(&server, "127.0.0.1");
    array.write(&Selection::all(&[64]), &[1u8; 64]).unwrap();
    server.set_faults(|request| request.headers.contains_key("if-match").then_some(Fault::Status(412, None)));
    let begun = Instant::now();
    let error = array.write(&Selection::region(&[3], &[1]).unwrap(), &[9u8]).unwrap_err();
    assert!(error.message().contains("other writers changed the object before each of"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(20));
    server.set_faults(|_| None);
    assert_eq!(array.read::<u8>(&Selection::all(&[64])).unwrap()[..], [1; 64]);
}

#[test]
fn a_part_that_empties_an_object_keeps_what_others_write() {
    let server = Server::start(Kind::S3);
    Array::builder([4], DataType::UInt8).chunks([4]).create_in(open(&server), "a").unwrap();
    let array = array_in(&server, "127.0.0.1");
    array.write(&Selection::region(&[1], &[1]).unwrap(), &[7u8]).unwrap();
    array.write(&Selection::region(&[1], &[1]).unwrap(), &[0u8]).unwrap();
    assert!(server.get("bucket/root/a/c/0").is_some(), "no store deletes under a condition");
    assert_eq!(array.read::<u8>(&Selection::all(&[4])).unwrap()[..], [0; 4]);
    array.write(&Selection::all(&[4]), &[0u8; 4]).unwrap();
    assert!(server.get("bucket/root/a/c/0").is_none());
}

#[test]
fn a_report_counts_requests_bytes_retries_and_time() {
    let server = Server::start(Kind::S3);
    let array = Array::builder([100], DataType::UInt8).chunks([10]).compressor("none").create_in(open(&server), "a");
    let array = array.unwrap();
    array.write(&Selection::all(&[100]), &[5u8; 100]).unwrap();
    let written = array.last_report().unwrap().traffic;
    assert_eq!((written.requests, written.sent_bytes, written.retries), (10, 100, 0));
    server.set_latency(Duration::from_millis(10));
    let first = AtomicUsize::new(0);
    server.set_faults(move |_| (first.fetch_add(1, Ordering::Relaxed) == 0).then_some(Fault::Status(503, None)));
    array.read::<u8>(&Selection::all(&[100])).unwrap();
    let report = array.last_report().unwrap();
    let read = report.traffic;
    assert_eq!((read.requests, read.received_bytes, read.retries), (11, 100, 1), "{report}");
    assert!(read.first_byte_seconds >= 0.01);
    assert!(
        report.to_string().contains("11 requests, 1 of them made again") && report.to_json()["traffic"].is_object()
    );
}

#[test]
fn bytes_between_wanted_chunks_of_a_shard_stay_within_the_memory_limit() {
    const INNER: u64 = 4 << 10;
    let server = Server::start(Kind::S3);
    let shape = [48 << 20];
    let values = bytes(shape[0] as usize);
    let builder = Array::builder(shape, DataType::UInt8).chunks([INNER]).shards(shape).compressor("gzip");
    builder.create_in(open(&server), "a").unwrap().write(&Selection::all(&shape), &values).unwrap();
    let options = ArrayOptions::default().with_memory_limit_bytes(8 << 20);
    let array = Array::open(open(&server), "a", options).unwrap();
    server.set_latency(Duration::from_millis(100));
    // An element of each fiftieth chunk: the gaps are small enough to be read over.
    let step = 50 * INNER;
    let slice = cuzarr::plan::SliceArg::Slice { start: None, stop: None, step: Some(step as i64) };
    let found = array.read::<u8>(&Selection::from_slices(&[slice], &shape).unwrap()).unwrap();
    assert!(found.iter().eq(values.iter().step_by(step as usize)));
}

/// Whether the server answers a request with a fault: one in twenty, always the same ones.
fn is_unlucky(number: usize) -> bool {
    (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 < u64::from(u32::MAX) / 20
}

#[test]
fn many_requests_with_faults_among_them_give_every_byte() {
    const VALUES: usize = 400;
    let server = Server::start(Kind::S3);
    (0..VALUES).for_each(|number| server.put(&format!("bucket/root/c/{number}"), &bytes(1000 + number)));
    let faults = [
        Fault::Status(503, None),
        Fault::Status(500, None),
        Fault::BreakAfter(500),
        Fault::Delay(Duration::from_millis(100)),
    ];
    for fault in faults {
        server.set_faults(move |request| is_unlucky(request.number).then(|| fault.clone()));
        let requests = (0..VALUES).map(|at| ReadRequest { key: format!("c/{at}"), range: ByteRange::Full }).collect();
        for (number, value) in open(&server).get_many(requests).into_iter().enumerate() {
            assert!(value.unwrap() == Some(bytes(1000 + number)), "{number}");
        }
    }
}

#[test]
fn the_cache_asks_whether_values_changed_and_keeps_their_bytes() {
    let (server, folder) = (Server::start(Kind::S3), tempfile::tempdir().unwrap());
    let place = folder.path().display().to_string();
    let store = open_with(&server, &[("cache", &place)]);
    let value = bytes(20 << 20);
    server.put("bucket/root/v", &value);
    server.put("bucket/root/w", &value[..1000]);
    let span = ByteRange::Span { offset: 100, size_bytes: 500 };
    let read = || {
        assert!(store.get("v").unwrap().as_ref() == Some(&value));
        assert!(store.get_range("w", span).unwrap().as_deref() == Some(&value[100..600]));
        server.take_log()
    };
    assert_eq!(read().len(), 4, "three parts and one");
    assert_eq!(cache_info(folder.path()).unwrap().entries, 2);
    let again = read();
    assert_eq!(again.iter().filter(|request| request.headers.contains_key("if-none-match")).count(), 2);
    assert_eq!(again.len(), 2, "nothing else is asked");
    server.put("bucket/root/w", &bytes(2000)[1000..]);
    assert!(store.get_range("w", span).unwrap().as_deref() == Some(&bytes(2000)[1100..1600]));
    // Damage on the disk.
    for folder in std::fs::read_dir(folder.path()).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let mut bytes = std::fs::read(&path).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
    }
    assert!(store.get("v").unwrap().as_ref() == Some(&value));
    assert_eq!(
        open_with(&server, &[("cache", &place), ("endpoint_url", &server.url().replace("127.0.0.1", "localhost"))])
            .get("missing")
            .unwrap(),
        None
    );
}

#[test]
fn a_program_renews_its_credentials() {
    struct Renewed(AtomicUsize);
    impl CredentialSource for Renewed {
        fn credentials(&self) -> Result<Credentials> {
            let number = self.0.fetch_add(1, Ordering::Relaxed);
            if number == 2 {
                return Err(Error::new(ErrorKind::StoreFailed, "no more"));
            }
            let values = [("access_key_id", format!("key{number}")), ("secret_access_key", "hush".into())];
            let values = values.map(|(name, value)| (name.to_string(), value)).into();
            // They end so soon that each request needs new ones.
            Ok(Credentials { values, expires_at: Some(std::time::SystemTime::now()) })
        }
    }
    let server = Server::start(Kind::S3);
    server.put("bucket/root/v", b"1");
    let mut options = StorageOptions::from_iter([("endpoint_url", server.url()), ("region", "us-east-1".into())]);
    options.set_credentials(Arc::new(Renewed(AtomicUsize::new(0))));
    let store = registry_with(options).open("s3://bucket/root").unwrap();
    (0..2).for_each(|_| assert_eq!(store.get("v").unwrap().as_deref(), Some(&b"1"[..])));
    let keys: Vec<_> = server.take_log().iter().map(|request| request.headers["authorization"].clone()).collect();
    assert!(keys[0].contains("Credential=key0/") && keys[1].contains("Credential=key1/"), "{keys:?}");
    let error = store.get("v").unwrap_err();
    assert!(error.to_string().contains("source of credentials failed: no more"), "{error}");
    assert!(!format!("{error:?} {store:?}").contains("hush"));
}
