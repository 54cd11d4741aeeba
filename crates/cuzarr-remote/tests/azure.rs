//! The store against a server that reads as Azure's blobs do: no range counts from the end, so the size of a value is asked for.

mod server;

use std::sync::Arc;

use cuzarr::Selection;
use cuzarr::meta::DataType;
use cuzarr::node::{Array, ArrayOptions};
use cuzarr::store::{ByteRange, MemoryStore, Store, StoreExt};
use cuzarr_remote::{StorageOptions, registry_with};
use server::{Kind, Server};

fn open(server: &Server) -> Arc<dyn Store> {
    let options = [("account_name", "me"), ("anon", "true"), ("endpoint", &server.url())];
    registry_with(StorageOptions::from_iter(options)).open("az://container/root").unwrap()
}

/// The methods of the requests since the last call, sorted.
fn methods(server: &Server) -> Vec<String> {
    let mut methods: Vec<_> = server.take_log().into_iter().map(|request| request.method).collect();
    methods.sort_unstable();
    methods
}

#[test]
fn the_size_of_a_value_is_asked_for_once_until_it_changes() {
    let server = Server::start(Kind::Azure);
    let store = open(&server);
    let tail = |expected: &[u8]| {
        let found = store.get_range("k", ByteRange::Suffix { size_bytes: 3 }).unwrap();
        assert_eq!(found.as_deref(), Some(expected));
    };
    server.put("container/root/k", b"0123456789");
    (0..3).for_each(|_| tail(b"789"));
    assert_eq!(methods(&server), ["GET", "GET", "GET", "HEAD"]);
    server.put("container/root/k", b"abcdefghijkl");
    tail(b"jkl");
    assert_eq!(methods(&server), ["GET", "GET", "HEAD"], "the first request is for the version that was known");
    tail(b"jkl");
    assert_eq!(methods(&server), ["GET"]);
    assert_eq!(store.get_range("none", ByteRange::Suffix { size_bytes: 3 }).unwrap(), None);
    assert_eq!(methods(&server), ["HEAD"]);
}

#[test]
fn a_shard_takes_one_question_for_its_size() {
    const SHARDS: u64 = 8;
    let server = Server::start(Kind::Azure);
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let builder = Array::builder([SHARDS * 64], DataType::UInt8).chunks([4]).shards([64]).compressor("none");
    let values: Vec<u8> = (0..SHARDS * 64).map(|at| at as u8).collect();
    let all = Selection::all(&[SHARDS * 64]);
    builder.create_in(Arc::clone(&memory), "a").unwrap().write(&all, &values).unwrap();
    for key in memory.list("").unwrap() {
        server.put(&format!("container/root/{key}"), &memory.get(&key).unwrap().unwrap());
    }
    let array = Array::open(open(&server), "a", ArrayOptions::default()).unwrap();
    server.take_log();
    // A quarter of a shard is read by its index.
    let part = |shard: u64| Selection::region(&[shard * 64 + 8], &[16]).unwrap();
    for shard in 0..SHARDS {
        assert_eq!(array.read::<u8>(&part(shard)).unwrap()[..], values[(shard * 64 + 8) as usize..][..16]);
        assert_eq!(methods(&server), ["GET", "GET", "HEAD"], "the size, the index and its chunks");
    }
    // The index is kept, and only its version is asked for.
    assert_eq!(array.read::<u8>(&part(0)).unwrap()[..], values[8..24]);
    assert_eq!(methods(&server), ["GET", "HEAD"]);
}
