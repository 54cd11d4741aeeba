//! The store against a server with the XML interface of Google Cloud Storage, whose conditions compare generations instead of entity tags.

mod server;

use std::sync::Arc;

use cuzarr::Selection;
use cuzarr::meta::DataType;
use cuzarr::node::{Array, ArrayOptions};
use cuzarr::store::{ByteRange, Condition, Payload, Store, StoreExt, conformance};
use cuzarr_remote::{StorageOptions, registry_with};
use server::{Fault, Kind, Server};

fn open_at(url: &str) -> Arc<dyn Store> {
    let options = [("token", "test-token"), ("endpoint_url", url), ("max_retries", "1")];
    registry_with(StorageOptions::from_iter(options)).open("gs://bucket/root").unwrap()
}

fn open(server: &Server) -> Arc<dyn Store> {
    open_at(&server.url())
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

#[test]
fn conforms() {
    conformance::run(&|| open(&Server::start(Kind::Gcs)));
}

#[test]
fn writes_compare_generations_and_not_entity_tags() {
    let server = Server::start(Kind::Gcs);
    let (one, other) = (open(&server), open(&server));
    one.write("k", b"0").unwrap();
    let seen = one.stat("k").unwrap().unwrap().version.unwrap();
    // The value is another one now, with the same bytes and so with the same entity tag.
    other.write("k", b"0").unwrap();
    let put = |store: &Arc<dyn Store>, version| store.put("k", Payload::Bytes(b"1"), &Condition::Unchanged(version));
    assert!(!put(&one, seen).unwrap());
    let now = one.stat("k").unwrap().unwrap().version.unwrap();
    assert!(put(&one, now.clone()).unwrap() && !put(&other, now).unwrap());
    assert!(!one.write_if_absent("k", b"2").unwrap() && one.write_if_absent("new", b"2").unwrap());
    let gone = one.stat("new").unwrap().unwrap().version.unwrap();
    one.delete("new").unwrap();
    assert!(!one.put("new", Payload::Bytes(b"3"), &Condition::Unchanged(gone)).unwrap(), "a deleted value was written");
    let conditions: Vec<_> = server.take_log().into_iter().filter(|request| request.method == "PUT").collect();
    let wanted: Vec<_> = conditions
        .iter()
        .map(|request| request.headers.get("x-goog-if-generation-match").map(String::as_str))
        .collect();
    assert_eq!(wanted, [None, None, Some("1"), Some("2"), Some("2"), Some("0"), Some("0"), Some("4")]);
}

#[test]
fn writers_of_parts_of_one_object_lose_nothing() {
    let server = Server::start(Kind::Gcs);
    // Two names of the server, so that the writers share no lock.
    let open = |host: &str| open_at(&server.url().replace("127.0.0.1", host));
    for shards in [None, Some([64])] {
        let path = if shards.is_some() { "sharded" } else { "plain" };
        let builder = Array::builder([64], DataType::UInt8).chunks([if shards.is_some() { 8 } else { 64 }]);
        let builder = shards.into_iter().fold(builder, |builder, shards| builder.shards(shards));
        builder.create_in(open("127.0.0.1"), path).unwrap();
        std::thread::scope(|threads| {
            for (first, host) in ["127.0.0.1", "localhost"].into_iter().enumerate() {
                let array = Array::open(open(host), path, ArrayOptions::default()).unwrap();
                threads.spawn(move || {
                    for at in (first as u64..64).step_by(2) {
                        array.write(&Selection::region(&[at], &[1]).unwrap(), &[at as u8 + 1]).unwrap();
                    }
                });
            }
        });
        let array = Array::open(open("localhost"), path, ArrayOptions::default()).unwrap();
        let found = array.read::<u8>(&Selection::all(&[64])).unwrap();
        assert_eq!(found[..], (1..=64).collect::<Vec<u8>>()[..], "{path}");
    }
}

#[test]
fn a_large_value_is_written_in_parts_and_read_by_ranges() {
    let server = Server::start(Kind::Gcs);
    let store = open(&server);
    let value = bytes((64 << 20) + 7);
    store.write("large", &value).unwrap();
    let parts = server.take_log().iter().filter(|request| request.query.contains_key("partNumber")).count();
    assert_eq!(parts, 5);
    assert!(store.get("large").unwrap().as_ref() == Some(&value), "the value of 64 MiB is another one");
    let tail = store.get_range("large", ByteRange::Suffix { size_bytes: 5 }).unwrap();
    assert_eq!(tail.as_deref(), Some(&value[value.len() - 5..]));
    server.set_faults(|request| {
        let is_third = request.query.get("partNumber").is_some_and(|number| number == "3");
        is_third.then_some(Fault::Status(403, None))
    });
    let error = store.write("broken", &value).unwrap_err();
    assert!(error.message().contains("permission denied"), "{error}");
    assert_eq!(
        (server.get("bucket/root/broken"), server.open_uploads()),
        (None, 0),
        "parts of a failed upload are removed"
    );
}

#[test]
fn lists_and_deletes_go_past_one_page_and_over_missing_keys() {
    let server = Server::start(Kind::Gcs);
    let store = open(&server);
    let keys: Vec<String> = (0..20).map(|number| format!("c/{number:02}")).collect();
    keys.iter().for_each(|key| store.write(key, b"1").unwrap());
    assert_eq!(store.list("c").unwrap(), keys);
    assert_eq!(store.list_dir("").unwrap().prefixes, ["c"]);
    store.delete_many(&[&keys[..5], &["missing".to_string()]].concat()).unwrap();
    assert_eq!(store.list("c").unwrap(), keys[5..]);
    store.delete_prefix("c").unwrap();
    assert!(store.list("").unwrap().is_empty());
}

#[test]
fn a_token_is_sent_and_never_shown() {
    let server = Server::start(Kind::Gcs);
    let store = open(&server);
    store.write("k", b"1").unwrap();
    assert!(server.take_log().iter().all(|request| request.headers["authorization"] == "Bearer test-token"));
    let anonymous = StorageOptions::from_iter([("token", "anon"), ("endpoint_url", &server.url())]);
    let error = registry_with(anonymous).open("gs://bucket/root").unwrap().get("k").unwrap_err();
    assert!(error.message().contains("credentials were refused"), "{error}");
    server.set_faults(|_| Some(Fault::Status(403, None)));
    assert!(!format!("{store:?} {:?}", store.get("k").unwrap_err()).contains("test-token"));
}
