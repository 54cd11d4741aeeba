//! The store against a server with the interface of S3: its promises, its requests, and what it does when answers go wrong.

mod server;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use cuzarr::store::{
    ByteRange, Condition, InlineWorkers, Lease, Payload, ReadOutcome, ReadRequest, ReadSink, Store, StoreExt,
    conformance,
};
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_remote::{StorageOptions, registry_with};
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
    assert!((32..=64).contains(&server.most_in_flight()), "{} at once", server.most_in_flight());
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

#[test]
fn a_value_that_changes_between_its_parts_is_refused() {
    let server = Server::start(Kind::S3);
    server.put("bucket/root/large", &bytes(20 << 20));
    let store = open(&server);
    // The server ignores `If-Match`, and another version has another tag.
    server.set_faults(|request| (request.headers["range"] != "bytes=0-8388607").then_some(Fault::OtherTag));
    let error = store.get("large").unwrap_err();
    assert!(error.message().contains("the value was changed while it was read"), "{error}");
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
    assert!(begun.elapsed() < Duration::from_millis(300), "{:?}", begun.elapsed());
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
