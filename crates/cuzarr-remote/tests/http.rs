//! The store against web servers, with and without ranges; archives and groups behind HTTP, by the requests that they take.

mod server;

use std::sync::Arc;
use std::time::Duration;

use cuzarr::display::{Display, group_info};
use cuzarr::meta::DataType;
use cuzarr::node::{Array, ArrayOptions, Consolidation, Group, consolidate_metadata};
use cuzarr::store::{ByteRange, Condition, MemoryStore, Payload, Store, StoreExt};
use cuzarr::{ErrorKind, Selection};
use cuzarr_remote::{StorageOptions, registry, registry_with};
use server::{Fault, Kind, Server, Tags};

fn bytes(count: usize) -> Vec<u8> {
    (0..count as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

#[test]
fn a_server_with_ranges_is_read_in_parts() {
    let server = Server::start(Kind::Files);
    let value = bytes(100_000);
    server.put("data/in it/v%", &value);
    let store = registry().open(&format!("{}/data/in%20it/", server.url())).unwrap();
    assert!(store.get("v%").unwrap().as_ref() == Some(&value));
    let span = ByteRange::Span { offset: 99_000, size_bytes: 1000 };
    assert!(store.get_range("v%", span).unwrap().as_deref() == Some(&value[99_000..]));
    assert!(store.get_range("v%", ByteRange::Suffix { size_bytes: 7 }).unwrap().as_deref() == Some(&value[99_993..]));
    assert_eq!(store.get("missing").unwrap(), None);
    assert_eq!(store.size_bytes("v%").unwrap(), Some(100_000));
    assert!(store.capabilities().read_only);
    let refusals = [
        store.write("w", b"1").unwrap_err(),
        store.delete("v%").unwrap_err(),
        store.put("w", Payload::Bytes(b"1"), &Condition::Absent).unwrap_err(),
    ];
    assert!(refusals.iter().all(|error| error.kind() == ErrorKind::ReadOnly));
    let list = store.list("").unwrap_err();
    assert_eq!(list.kind(), ErrorKind::Unsupported);
    assert!(list.hint().unwrap().contains("consolidated metadata"));
}

#[test]
fn a_server_without_ranges_gives_whole_values_and_parts_when_it_is_allowed() {
    let server = Server::start(Kind::BareFiles);
    let value = bytes((9 << 20) + 3);
    server.put("data/v", &value);
    server.put("data/empty", b"");
    let url = format!("{}/data", server.url());
    let store = registry().open(&url).unwrap();
    assert!(store.get("v").unwrap().as_ref() == Some(&value));
    assert_eq!(store.get("empty").unwrap(), Some(vec![]));
    server.take_log();
    assert!(store.get("v").unwrap().as_ref() == Some(&value));
    assert_eq!(server.take_log().len(), 1, "the server is not asked for a range again");
    let span = ByteRange::Span { offset: 9 << 20, size_bytes: 3 };
    let error = store.get_range("v", span).unwrap_err();
    assert!(error.message().contains("ignores range requests"), "{error}");
    assert!(error.hint().unwrap().contains("whole_values=true"));
    let whole = registry_with(StorageOptions::from_iter([("whole_values", "true")])).open(&url).unwrap();
    assert!(whole.get_range("v", span).unwrap().as_deref() == Some(&value[9 << 20..]));
    assert!(
        whole.get_range("v", ByteRange::Suffix { size_bytes: 5 }).unwrap().as_deref()
            == Some(&value[value.len() - 5..])
    );
    assert!(whole.get_range("v", ByteRange::Span { offset: 9 << 20, size_bytes: 4 }).is_err());
}

#[test]
fn a_body_without_a_tag_is_read_again_when_it_breaks_off() {
    let server = Server::start(Kind::BareFiles);
    let value = bytes(200_000);
    server.put("v", &value);
    let store = registry().open(&server.url()).unwrap();
    server.set_faults(|request| (request.number < 2).then_some(Fault::BreakAfter(70_000)));
    assert!(store.get("v").unwrap().as_ref() == Some(&value));
    server.set_faults(|_| Some(Fault::BreakAfter(70_000)));
    let error = store.get("v").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreFailed, "{error}");
}

#[test]
fn a_value_that_changes_before_its_body_is_read_again_is_refused() {
    let server = Server::start(Kind::Files);
    server.set_tags(Tags::Date);
    server.put("v", &bytes(200_000));
    let store = registry().open(&server.url()).unwrap();
    let writer = server.clone();
    server.set_faults(move |request| match request.number {
        0 => Some(Fault::BreakAfter(70_000)),
        _ => {
            writer.put("v", &[0; 200_000]);
            None
        }
    });
    let error = store.get("v").unwrap_err();
    assert_eq!(error.message(), "the value was changed while it was read");
    assert_eq!(error.hint(), Some("read again"));
    assert!(error.trail().iter().any(|place| place.contains("key 'v'")), "{error}");
}

#[test]
fn headers_and_a_query_reach_the_server_and_no_message() {
    let server = Server::start(Kind::Files);
    server.put("data/v", b"1");
    let options = StorageOptions::from_iter([("headers.Authorization", "Bearer hush")]);
    let store = registry_with(options).open(&format!("{}/data?signature=hush", server.url())).unwrap();
    assert_eq!(store.get("v").unwrap().as_deref(), Some(&b"1"[..]));
    let log = server.take_log();
    assert_eq!((log[0].headers["authorization"].as_str(), log[0].query["signature"].as_str()), ("Bearer hush", "hush"));
    server.set_faults(|_| Some(Fault::Status(403, None)));
    let error = store.get("v").unwrap_err();
    assert!(!format!("{error:?} {error} {store:?}").contains("hush"), "{error:?}");
}

/// A server that refuses requests without a signature.
fn signed() -> Server {
    let server = Server::start(Kind::Files);
    let has_signature = |request: &server::Request| request.query.get("sig").is_some_and(|sig| sig == "hush/1");
    server.set_faults(move |request| (!has_signature(request)).then_some(Fault::Status(403, None)));
    server.put("in it/x y.zip", include_bytes!("../../cuzarr/tests/data/zip/deflated.zip"));
    server.put(
        "in it/refs.json",
        br#"{"version": 1, "refs": {"a": "text", "b": ["https://elsewhere/b?sig=hush", 0, 4]}}"#,
    );
    server.put("in it/v", b"1");
    server
}

#[test]
fn files_inside_signed_urls_are_read_and_no_message_shows_the_signature() {
    let server = signed();
    let opened =
        |scheme: &str, name: &str| registry().open(&format!("{scheme}::{}/in%20it/{name}?sig=hush/1", server.url()));
    let (archive, table) = (opened("zip", "x%20y.zip").unwrap(), opened("reference", "refs.json").unwrap());
    assert_eq!(archive.list("").unwrap().len(), 4);
    assert!(archive.get("a/long").unwrap().is_some());
    assert_eq!(table.get("a").unwrap().as_deref(), Some(&b"text"[..]));
    let refused = table.get("b").unwrap_err();
    let missing =
        [opened("zip", "none").map(|_| ()), opened("reference", "none").map(|_| ()), opened("other", "v").map(|_| ())];
    server.set_faults(|_| Some(Fault::Status(403, None)));
    let failed = archive.get("a/long").unwrap_err();
    let shown = format!("{archive:?} {table:?} {refused:?} {missing:?} {failed:?} {failed}");
    assert!(!shown.contains("hush"), "{shown}");
}

#[test]
fn a_query_may_be_an_option() {
    let server = signed();
    let options = || StorageOptions::from_iter([("http.query", "sig=hush/1")]);
    let store = registry_with(options()).open(&format!("{}/in%20it", server.url())).unwrap();
    assert_eq!(store.get("v").unwrap().as_deref(), Some(&b"1"[..]));
    let archive = registry_with(options()).open(&format!("zip::{}/in%20it/x%20y.zip", server.url())).unwrap();
    assert_eq!(archive.list("").unwrap().len(), 4);
    let own = registry_with(options()).open(&format!("{}/in%20it?sig=other", server.url())).unwrap();
    assert!(own.get("v").is_err(), "the query of the URL counts more");
    assert!(!format!("{:?} {store:?}", options()).contains("hush"));
}

#[test]
fn a_member_of_an_archive_takes_three_requests_after_the_directory() {
    let server = Server::start(Kind::Files);
    server.put("deep/x.zip", include_bytes!("../../cuzarr/tests/data/zip/deflated.zip"));
    let store = registry().open(&format!("zip::{}/deep/x.zip", server.url())).unwrap();
    let opening = server.take_log().len();
    assert!(opening <= 3, "opening takes {opening} requests");
    let keys = store.list("").unwrap();
    assert_eq!((keys.len(), server.take_log().len()), (4, 0));
    for key in &keys {
        assert!(store.get(key).unwrap().is_some());
        assert!(server.take_log().len() <= 3, "'{key}'");
    }
    let part = registry().open(&format!("zip://a::{}/deep/x.zip", server.url())).unwrap();
    assert_eq!(part.list("").unwrap().len(), 3);
}

/// A hierarchy of 50 arrays with consolidated metadata.
fn hierarchy() -> Arc<dyn Store> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    for number in 0..50u8 {
        let array = Array::builder([4], DataType::UInt8).chunks([2]).compressor("none");
        let array = array.create_in(Arc::clone(&store), &format!("a{number}")).unwrap();
        array.write(&Selection::all(&[4]), &[number; 4]).unwrap();
    }
    consolidate_metadata(Arc::clone(&store), "", None, ArrayOptions::default()).unwrap();
    store
}

#[test]
fn a_consolidated_group_of_50_arrays_opens_in_three_rounds() {
    let server = Server::start(Kind::Files);
    let stored = hierarchy();
    for key in stored.list("").unwrap() {
        server.put(&format!("h/{key}"), &stored.get(&key).unwrap().unwrap());
    }
    server.set_latency(Duration::from_millis(10));
    let store = registry().open(&format!("{}/h", server.url())).unwrap();
    let group = Group::open(store, "", None, Consolidation::WhenPresent, ArrayOptions::default()).unwrap();
    let members = group.members(None).unwrap();
    assert_eq!(members.len(), 50);
    let rounds = server.take_log().iter().map(|request| request.round).max();
    assert!(rounds <= Some(3), "{rounds:?} rounds");
    let array = group.array("a7").unwrap();
    assert_eq!(array.read::<u8>(&Selection::all(&[4])).unwrap()[..], [7; 4]);
}

#[test]
fn a_group_whose_members_cannot_be_listed_is_described_all_the_same() {
    let server = Server::start(Kind::Files);
    server.put("data/zarr.json", br#"{"zarr_format": 3, "node_type": "group", "attributes": {"title": "maps"}}"#);
    let store = registry().open(&format!("{}/data", server.url())).unwrap();
    let group = Group::open(store, "", None, Consolidation::WhenPresent, ArrayOptions::default()).unwrap();
    let info = group_info(&group, false).unwrap();
    assert!(info.to_text().contains("title: maps"), "{}", info.to_text());
    assert!(info.to_text().contains("the store cannot list them") && info.to_json()["direct_members"].is_null());
}
