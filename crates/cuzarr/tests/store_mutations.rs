//! ZIP files and URLs, damaged at random: nothing panics.

#[path = "../../../fuzz/bodies/mutation.rs"]
mod mutation;
#[path = "../../../fuzz/bodies/url.rs"]
mod url;
#[path = "../../../fuzz/bodies/zip.rs"]
mod zip;

#[test]
fn damaged_zip_files_never_panic() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/zip");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|ending| ending == "zip"));
    let seeds: Vec<_> = files.map(|path| std::fs::read(path).unwrap()).collect();
    assert!(seeds.len() >= 5);
    mutation::campaign(&seeds, &["PK\u{1}\u{2}", "PK\u{5}\u{6}", "PK\u{6}\u{6}", "\0\0\0\0"], 300, zip::check);
}

#[test]
fn damaged_urls_never_panic() {
    let seeds = [
        "/data/a.zarr",
        "file:///data/a.zarr",
        "s3://bucket/a/b?versionId=3",
        "zip::https://example.org/a%20b.zip?sig=x#part",
        "icechunk://branch.main::gs://bucket/repo",
        "reference::http://[::1]:8080/table.json",
        "zip://inner/a.zip::zip::memory://name",
    ];
    let tokens = ["::", "://", "%", "%zz", "%C3", "?", "#", "zip::", "a://", "\u{e9}", "/", "..", "@", "[::"];
    mutation::campaign(&seeds, &tokens, 400, url::check);
}
