//! Shards that are replaced between the requests for their index and for their chunks, on every kind of server.

mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cuzarr::meta::DataType;
use cuzarr::node::{Array, ArrayOptions};
use cuzarr::store::{MemoryStore, Store, StoreExt};
use cuzarr::{ErrorKind, Selection};
use cuzarr_remote::{StorageOptions, registry_with};
use server::{Kind, Server, Tags};

const INNER: u64 = 1 << 10;

/// The files of an array of one shard whose 16 inner chunks hold this value.
fn files(value: u8) -> Vec<(String, Vec<u8>)> {
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let shape = [16 * INNER];
    let builder = Array::builder(shape, DataType::UInt8).chunks([INNER]).shards(shape).compressor("none");
    let array = builder.create_in(Arc::clone(&memory), "a").unwrap();
    array.write(&Selection::all(&shape), &vec![value; shape[0] as usize]).unwrap();
    let keys = memory.list("").unwrap();
    keys.into_iter().map(|key| (key.clone(), memory.get(&key).unwrap().unwrap())).collect()
}

fn replaced_between_index_and_chunks(kind: Kind, folder: &str, open: impl Fn(&str) -> Arc<dyn Store>) {
    replaced_on(Server::start(kind), kind, folder, open, files);
}

fn replaced_on(
    server: Server,
    kind: Kind,
    folder: &str,
    open: impl Fn(&str) -> Arc<dyn Store>,
    files: fn(u8) -> Vec<(String, Vec<u8>)>,
) {
    let put = |server: &Server, value: u8| {
        files(value).into_iter().for_each(|(key, bytes)| server.put(&format!("{folder}/{key}"), &bytes));
    };
    put(&server, 1);
    let array = Array::open(open(&server.url()), "a", ArrayOptions::default()).unwrap();
    let third = Selection::region(&[3 * INNER], &[INNER]).unwrap();
    let range = format!("bytes={}-{}", 3 * INNER, 4 * INNER - 1);
    let (writer, is_first) = (server.clone(), AtomicBool::new(true));
    let folder = folder.to_string();
    let shard = format!("{folder}/a/c/0");
    server.set_faults(move |request| {
        // The index was answered. Its shard is another one before its chunk is.
        let is_chunk = request.path == shard && request.headers.get("range") == Some(&range);
        if is_chunk && is_first.swap(false, Ordering::SeqCst) {
            files(2).into_iter().for_each(|(key, bytes)| writer.put(&format!("{folder}/{key}"), &bytes));
        }
        None
    });
    let error = array.read::<u8>(&third).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreFailed, "{kind:?}: {error}");
    let message = "the shard was replaced by another writer since its index was read";
    assert!(error.to_string().contains(message), "{kind:?}: {error}");
    assert_eq!(error.hint(), Some("read again"));
    assert_eq!(array.read::<u8>(&third).unwrap()[..], [2; INNER as usize], "{kind:?}: read again");
    // Between two reads: the index that was kept is of the old version.
    put(&server, 3);
    assert_eq!(array.read::<u8>(&third).unwrap()[..], [3; INNER as usize], "{kind:?}: a new shard");
}

fn store(url: &str, options: &[(&str, &str)]) -> Arc<dyn Store> {
    registry_with(StorageOptions::from_iter(options.iter().copied())).open(url).unwrap()
}

#[test]
fn a_shard_of_two_versions_is_an_error_on_s3() {
    replaced_between_index_and_chunks(Kind::S3, "bucket/root", |server| {
        let keys = [("key", "test"), ("secret", "test-secret"), ("region", "us-east-1"), ("endpoint_url", server)];
        store("s3://bucket/root", &keys)
    });
}

#[test]
fn a_shard_of_two_versions_is_an_error_on_google_cloud_storage() {
    replaced_between_index_and_chunks(Kind::Gcs, "bucket/root", |server| {
        store("gs://bucket/root", &[("token", "test-token"), ("endpoint_url", server)])
    });
}

#[test]
fn a_shard_of_two_versions_is_an_error_on_azure() {
    replaced_between_index_and_chunks(Kind::Azure, "container/root", |server| {
        store("az://container/root", &[("account_name", "me"), ("anon", "true"), ("endpoint", server)])
    });
}

#[test]
fn a_shard_of_two_versions_is_an_error_on_a_web_server() {
    replaced_between_index_and_chunks(Kind::Files, "data", |server| store(&format!("{server}/data"), &[]));
}

#[test]
fn a_shard_of_two_versions_is_an_error_where_weak_tags_or_dates_differ() {
    for tags in [Tags::Weak, Tags::Date] {
        let server = Server::start(Kind::Files);
        server.set_tags(tags);
        replaced_on(server, Kind::Files, "data", |server| store(&format!("{server}/data"), &[]), files);
    }
}

/// Shards with bytes before their index that belong to no chunk, as many as the value says.
fn files_of_other_sizes(value: u8) -> Vec<(String, Vec<u8>)> {
    let mut files = files(value);
    for (key, bytes) in &mut files {
        if key == "a/c/0" {
            bytes.splice(16 * INNER as usize..16 * INNER as usize, vec![0; value.into()]);
        }
    }
    files
}

#[test]
fn a_shard_of_two_versions_is_an_error_where_only_sizes_differ() {
    let server = Server::start(Kind::Files);
    server.set_tags(Tags::Nothing);
    replaced_on(server, Kind::Files, "data", |server| store(&format!("{server}/data"), &[]), files_of_other_sizes);
}

/// The parts of an archive, too: its directory is of one version, and a member of another.
#[test]
fn an_archive_of_two_versions_is_an_error_where_weak_tags_differ() {
    let archive = include_bytes!("../../cuzarr/tests/data/zip/stored.zip");
    let server = Server::start(Kind::Files);
    server.set_tags(Tags::Weak);
    server.put("x.zip", archive);
    let store = store(&format!("zip::{}/x.zip", server.url()), &[]);
    assert!(store.get("a/c/0/1").unwrap().is_some());
    server.put("x.zip", archive);
    let error = store.get("a/c/0/1").unwrap_err();
    assert!(error.message().contains("replaced since it was opened"), "{error}");
}
