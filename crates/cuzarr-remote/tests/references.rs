//! Tables of references and Icechunk repositories, opened by URL: files on disk and behind a web server.
//!
//! `data/icechunk-1` and `data/icechunk-2` were written by the package icechunk 2.3.0, in formats 1 and 2: two commits, a tag, inline,
//! native and virtual chunks.

mod server;

use std::path::Path;
use std::sync::Arc;

use cuzarr::node::{Array, ArrayOptions, Consolidation, Group};
use cuzarr::store::{ByteRange, ReadRequest, Registry, Store, StoreExt};
use cuzarr::{ErrorKind, Selection};
use cuzarr_remote::reference::{ReferenceTable, Rules, open_table};
use cuzarr_remote::{StorageOptions, registry, registry_with};
use server::{Fault, Kind, Server};

fn bytes(count: usize) -> Vec<u8> {
    (0..count as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

fn with_options(options: &[(&str, &str)]) -> Registry {
    registry_with(StorageOptions::from_iter(options.iter().copied()))
}

/// An array of `chunks` chunks of `size` bytes, which lie in one file with gaps of three bytes.
fn table_of(url: &str, chunks: usize, size: usize) -> String {
    table_with_gaps(url, chunks, size, 3)
}

fn table_with_gaps(url: &str, chunks: usize, size: usize, gap: usize) -> String {
    let document = format!(
        r#"{{\"zarr_format\": 2, \"shape\": [{}], \"chunks\": [{size}], \"dtype\": \"|u1\", \"compressor\": null, \"fill_value\": 0, \"filters\": null, \"order\": \"C\"}}"#,
        chunks * size
    );
    let chunk = |at: usize| format!(r#""t/{at}": ["{url}", {}, {size}]"#, at * (size + gap));
    let chunks = (0..chunks).map(chunk).collect::<Vec<_>>().join(", ");
    format!(r#"{{"version": 1, "refs": {{".zgroup": "{{\"zarr_format\": 2}}", "t/.zarray": "{document}", {chunks}}}}}"#)
}

/// The elements of such an array.
fn elements(file: &[u8], chunks: usize, size: usize) -> Vec<u8> {
    (0..chunks).flat_map(|at| file[at * (size + 3)..][..size].to_vec()).collect()
}

fn read(store: Arc<dyn Store>, path: &str) -> cuzarr::Result<Vec<u8>> {
    let array = Array::open(store, path, ArrayOptions::default())?;
    Ok(array.read::<u8>(&Selection::all(array.shape()))?.to_vec())
}

#[test]
fn a_table_in_a_directory_reads_its_own_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let file = bytes(5000);
    std::fs::write(path("a.nc"), &file).unwrap();
    std::fs::write(path("refs.json"), table_of(&path("a.nc"), 40, 100)).unwrap();
    for url in [format!("reference::{}", path("refs.json")), format!("reference://{}", path("refs.json"))] {
        let store = registry().open(&url).unwrap();
        assert!(read(Arc::clone(&store), "t").unwrap() == elements(&file, 40, 100));
        assert_eq!(store.list("").unwrap().len(), 42);
        assert_eq!(store.list_dir("").unwrap().prefixes, ["t"]);
        assert_eq!(store.size_bytes("t/1").unwrap(), Some(100));
        assert_eq!(store.get("t/40").unwrap(), None);
        let suffix = store.get_range("t/1", ByteRange::Suffix { size_bytes: 3 }).unwrap().unwrap();
        assert_eq!(suffix, file[200..203]);
        assert!(store.get_range("t/1", ByteRange::Span { offset: 99, size_bytes: 2 }).is_err(), "it ends in the chunk");
        assert_eq!(store.write("t/0", b"1").unwrap_err().kind(), ErrorKind::ReadOnly);
    }
    let part = registry().open(&format!("reference://t::{}", path("refs.json"))).unwrap();
    assert_eq!(part.size_bytes("0").unwrap(), Some(100));
    std::fs::remove_file(path("a.nc")).unwrap();
    let error = read(registry().open(&format!("reference::{}", path("refs.json"))).unwrap(), "t").unwrap_err();
    assert!(format!("{error:?}").contains("a.nc"), "{error:?}");
}

#[test]
fn a_table_is_named_by_any_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let file = bytes(5000);
    std::fs::write(path("a.nc"), &file).unwrap();
    std::fs::write(path("refs.json"), table_of(&path("a.nc"), 40, 100)).unwrap();
    let plain = registry().open(&format!("reference::{}", path("refs.json"))).unwrap();
    for name in ["./refs.json", "below/../refs.json"] {
        let store = registry().open(&format!("reference::{}", path(name))).unwrap();
        assert!(read(Arc::clone(&store), "t").unwrap() == elements(&file, 40, 100), "{name}");
        assert_eq!(store.identity(), plain.identity());
    }
    let hint = |name: &str| {
        let error = registry().open(&format!("reference::{}", path(name))).map(|_| ()).unwrap_err();
        assert!(error.message().contains("there is no such file"), "{error}");
        error.hint().map(str::to_string)
    };
    assert_eq!(hint("none.json"), None);
    assert!(hint("none.parq").unwrap().contains("Parquet"));
}

#[test]
fn a_table_cannot_read_what_the_user_did_not_name() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let secret = other.path().join("secret").display().to_string();
    std::fs::write(&secret, bytes(400)).unwrap();
    let table = folder.path().join("refs.json").display().to_string();
    std::fs::write(&table, table_of(&secret, 3, 100)).unwrap();
    let url = format!("reference::{table}");
    let error = read(registry().open(&url).unwrap(), "t").unwrap_err();
    let allow = format!("file://{}/", other.path().display());
    assert!(error.hint().unwrap().ends_with(&format!("allow={allow}")), "{error:?}");
    for options in [[("allow", &*allow)], [("remote_protocol", "file")]] {
        assert!(read(with_options(&options).open(&url).unwrap(), "t").is_ok(), "{options:?}");
    }
    // A link out of the allowed folder leads nowhere.
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&secret, &link).unwrap();
    std::fs::write(&table, table_of(&link.display().to_string(), 3, 100)).unwrap();
    assert!(read(registry().open(&url).unwrap(), "t").is_err());
}

#[test]
fn redirections_lead_where_the_user_allowed_and_nothing_else_is_asked() {
    let (own, other) = (Server::start(Kind::Files), Server::start(Kind::Files));
    let file = bytes(400);
    other.put("b.nc", &file);
    own.put("private/b.nc", &file);
    own.put("data/refs.json", table_of(&format!("{}/data/a.nc", own.url()), 3, 100).as_bytes());
    let url = format!("reference::{}/data/refs.json", own.url());
    let targets = [format!("{}/b.nc?sig=hush", other.url()), format!("{}/private/b.nc", own.url())];
    for target in targets {
        let to = target.clone();
        own.set_faults(move |request| (request.path == "data/a.nc").then(|| Fault::Redirect(to.clone())));
        let error = read(registry().open(&url).unwrap(), "t").unwrap_err();
        assert!(error.to_string().contains("the server redirects: the reference to"), "{error}");
        let allow = format!("{}/", target.split('/').take(3).collect::<Vec<_>>().join("/"));
        assert!(error.hint().unwrap().ends_with(&format!("allow={allow}")), "{error:?}");
        assert!(!format!("{error:?}").contains("hush"));
        let asked = [own.take_log(), other.take_log()].concat();
        assert!(asked.iter().all(|request| !request.path.ends_with("b.nc")), "{asked:?}");
        assert!(read(with_options(&[("allow", &allow)]).open(&url).unwrap(), "t").unwrap() == elements(&file, 3, 100));
        own.take_log();
        other.take_log();
    }
}

#[test]
fn options_that_no_scheme_knows_are_refused_by_every_scheme() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("refs.json"), r#"{"a": "text"}"#).unwrap();
    std::fs::write(path("x.zip"), include_bytes!("../../cuzarr/tests/data/zip/stored.zip")).unwrap();
    let repository = format!("icechunk::{}/tests/data/icechunk-2", env!("CARGO_MANIFEST_DIR"));
    let urls = [
        folder.path().display().to_string(),
        format!("file://{}", folder.path().display()),
        "memory://options".to_string(),
        format!("zip::{}", path("x.zip")),
        format!("reference::{}", path("refs.json")),
        repository.clone(),
        "s3://bucket/a".to_string(),
        "gs://bucket/a".to_string(),
        "az://container/a".to_string(),
        "https://host/a".to_string(),
    ];
    for url in &urls {
        let error = with_options(&[("timout", "5")]).open(url).map(|_| ()).unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::InvalidArgument, "unknown storage option 'timout'"),
            "{url}"
        );
        assert!(error.hint().unwrap().starts_with("did you mean 'timeout'?"), "{url}: {error:?}");
    }
    for url in &urls[..6] {
        assert!(with_options(&[("timeout", "5"), ("s3.anon", "true")]).open(url).is_ok(), "{url}");
    }
    let error = with_options(&[("branch", "x")]).open(&repository).map(|_| ()).unwrap_err();
    assert!(error.hint().unwrap().contains("icechunk://branch.NAME::URL"), "{error:?}");
}

#[test]
fn neighbours_behind_a_server_come_by_one_request() {
    let server = Server::start(Kind::Files);
    let file = bytes(500_000);
    server.put("data/a b.nc", &file);
    let location = format!("{}/data/a%20b.nc", server.url());
    server.put("data/refs.json", table_of(&location, 40, 10_000).as_bytes());
    let store = registry().open(&format!("reference::{}/data/refs.json", server.url())).unwrap();
    server.take_log();
    assert!(read(Arc::clone(&store), "t").unwrap() == elements(&file, 40, 10_000));
    let requests = server.take_log();
    assert_eq!(requests.iter().filter(|request| request.path.ends_with("a b.nc")).count(), 1, "{requests:?}");
    // One value of a batch that is too short fails alone.
    let request =
        |key: &str, size_bytes| ReadRequest { key: key.into(), range: ByteRange::Span { offset: 0, size_bytes } };
    let read = store.get_many(vec![request("t/0", 100), request("t/1", 20_000), request("t/2", 10_000)]);
    assert!(read[0].is_ok() && read[1].is_err() && read[2].as_ref().is_ok_and(|value| value.is_some()));
}

#[test]
fn contiguous_chunks_take_one_request_for_16_mib() {
    const MIB: usize = 1 << 20;
    let server = Server::start(Kind::Files);
    let file = bytes(48 * MIB);
    server.put("data/a.nc", &file);
    for size in [4096, MIB / 4, MIB, 8 * MIB, 16 * MIB, 48 * MIB] {
        let table = table_with_gaps(&format!("{}/data/a.nc", server.url()), file.len() / size, size, 0);
        server.put("data/refs.json", table.as_bytes());
        let store = registry().open(&format!("reference::{}/data/refs.json", server.url())).unwrap();
        server.take_log();
        assert!(read(store, "t").unwrap() == file, "chunks of {size} bytes");
        let requests = server.take_log();
        let mut ranges: Vec<_> = requests.iter().map(|request| request.headers["range"].as_str()).collect();
        ranges.sort_unstable();
        assert_eq!(ranges, ["bytes=0-16777215", "bytes=16777216-33554431", "bytes=33554432-50331647"], "{size}");
    }
}

#[test]
fn headers_go_to_the_host_of_the_table_alone() {
    let (own, other) = (Server::start(Kind::Files), Server::start(Kind::Files));
    let file = bytes(400);
    other.put("a.nc", &file);
    own.put("refs.json", table_of(&format!("{}/a.nc", other.url()), 3, 100).as_bytes());
    let url = format!("reference::{}/refs.json", own.url());
    let allow = other.url();
    let options = [("headers.Authorization", "Bearer SECRET"), ("allow", &*allow)];
    let has_header =
        |server: &Server| server.take_log().iter().any(|request| request.headers.contains_key("authorization"));
    assert!(read(with_options(&options).open(&url).unwrap(), "t").unwrap() == elements(&file, 3, 100));
    assert!(has_header(&own) && !has_header(&other));
    let options = [("remote_options.headers.Authorization", "Bearer SECRET"), ("allow", &*allow)];
    assert!(read(with_options(&options).open(&url).unwrap(), "t").is_ok());
    assert!(!has_header(&own) && has_header(&other));
}

#[test]
fn a_table_of_a_program_names_nothing_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a").display().to_string();
    std::fs::write(&path, bytes(200)).unwrap();
    let json = table_of(&path, 1, 100);
    let open = |options: &[(&str, &str)]| {
        let table = ReferenceTable::from_json(json.as_bytes()).unwrap();
        let options = StorageOptions::from_iter(options.iter().copied());
        Arc::new(open_table(table, None, &registry(), &options).unwrap()) as Arc<dyn Store>
    };
    let error = read(open(&[]), "t").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(read(open(&[("allow", &path)]), "t").is_ok(), "a file can be allowed alone");
    assert!(Rules::new().allow("s3://bucket").unwrap().check("s3://bucket/a").is_ok());
}

fn data(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name).display().to_string()
}

#[test]
fn icechunk_repositories_of_both_formats_open_at_branches_and_tags() {
    for format in ["icechunk-1", "icechunk-2"] {
        let field = |url: &str| {
            let store = registry().open(url).unwrap();
            let array = Array::open(Arc::clone(&store), "t", ArrayOptions::default()).unwrap();
            let found = array.read::<i32>(&Selection::all(array.shape())).unwrap().to_vec();
            let small = Array::open(store, "deep/small", ArrayOptions::default()).unwrap();
            assert_eq!(small.read::<i32>(&Selection::all(small.shape())).unwrap().to_vec(), [5, 6, 7, 8]);
            found
        };
        let first: Vec<i32> = (0..70).collect();
        let second: Vec<i32> = [-1].into_iter().chain(1..70).collect();
        assert_eq!(field(&format!("icechunk::{}", data(format))), second, "{format}");
        assert_eq!(field(&format!("icechunk://{}", data(format))), second);
        assert_eq!(field(&format!("icechunk://branch.main::{}", data(format))), second);
        assert_eq!(field(&format!("icechunk://tag.v1::{}", data(format))), first);
        let store = registry().open(&format!("icechunk::{}", data(format))).unwrap();
        assert_eq!(store.list_dir("t").unwrap().prefixes, ["t/c"]);
        assert_eq!(store.list("").unwrap().len(), 5 + 9 + 2 + 2);
        let group = Group::open(store, "", None, Consolidation::WhenPresent, ArrayOptions::default()).unwrap();
        assert_eq!(group.metadata().attributes()["title"], "field");
        let error = registry().open(&format!("icechunk://tag.v2::{}", data(format))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    assert!(registry().open(&format!("icechunk::{}", data("."))).is_err());
}

#[test]
fn virtual_chunks_are_read_where_they_are_allowed() {
    let url = format!("icechunk::{}", data("icechunk-2"));
    let error = read(registry().open(&url).unwrap(), "virtual").unwrap_err();
    assert!(error.hint().unwrap().ends_with("allow=file:///tmp/cuzarr-icechunk/"), "{error:?}");
    let far = |options: &[(&str, &str)]| with_options(options).open(&url).unwrap().capabilities().far;
    assert!(!far(&[("allow", "/tmp/cuzarr-icechunk")]) && far(&[("allow", "/tmp/cuzarr-icechunk,s3://files")]));
    let error = read(with_options(&[("allow", "/tmp/cuzarr-icechunk")]).open(&url).unwrap(), "virtual").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreFailed, "the file is not there: {error:?}");
}

#[test]
fn a_repository_behind_a_server_opens_in_two_rounds() {
    let server = Server::start(Kind::Files);
    let root = Path::new(&data("icechunk-2")).to_path_buf();
    for folder in ["", "snapshots", "manifests", "chunks"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap().map(Result::unwrap) {
            if entry.path().is_file() {
                let name = entry.file_name().into_string().unwrap();
                server.put(&format!("repo/{folder}/{name}").replace("//", "/"), &std::fs::read(entry.path()).unwrap());
            }
        }
    }
    let store = registry().open(&format!("icechunk::{}/repo", server.url())).unwrap();
    assert_eq!(server.take_log().len(), 2, "the repository's file and the snapshot");
    let array = Array::open(store, "t", ArrayOptions::default()).unwrap();
    assert!(server.take_log().is_empty(), "the snapshot has the documents");
    assert_eq!(array.read::<i32>(&Selection::all(array.shape())).unwrap().to_vec()[1..], (1..70).collect::<Vec<_>>());
}

#[test]
fn damaged_repositories_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(&data("icechunk-2")).to_path_buf();
    let copy = |to: &Path| {
        for name in ["", "snapshots", "manifests", "chunks"] {
            std::fs::create_dir_all(to.join(name)).unwrap();
            for entry in
                std::fs::read_dir(source.join(name)).unwrap().map(Result::unwrap).filter(|e| e.path().is_file())
            {
                std::fs::copy(entry.path(), to.join(name).join(entry.file_name())).unwrap();
            }
        }
    };
    copy(folder.path());
    let url = format!("icechunk::{}", folder.path().display());
    let whole = std::fs::read(folder.path().join("repo")).unwrap();
    for cut in (0..whole.len()).step_by(7) {
        std::fs::write(folder.path().join("repo"), &whole[..cut]).unwrap();
        assert!(registry().open(&url).is_err(), "cut at {cut}");
    }
    std::fs::write(folder.path().join("repo"), &whole).unwrap();
    for entry in std::fs::read_dir(folder.path().join("manifests")).unwrap().map(Result::unwrap) {
        std::fs::write(entry.path(), b"no manifest").unwrap();
    }
    let store = registry().open(&url).unwrap();
    let error = Array::open(store, "t", ArrayOptions::default())
        .and_then(|array| array.read::<i32>(&Selection::all(array.shape())).map(|_| ()))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreFailed, "{error:?}");
}
