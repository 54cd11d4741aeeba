//! Tables of references, files of Icechunk and entries of the cache, damaged at random: nothing panics.

#[path = "../../../fuzz/bodies/cache.rs"]
mod cache;
#[path = "../../../fuzz/bodies/icechunk.rs"]
mod icechunk;
#[path = "../../../fuzz/bodies/kerchunk.rs"]
mod kerchunk;
#[path = "../../../fuzz/bodies/mutation.rs"]
mod mutation;

use cuzarr_remote::internal::flat_content;

#[test]
fn damaged_tables_never_panic() {
    let seeds = [
        r#"{"x": ["/data/a", 0, 4], "y": "text", ".zgroup": {"zarr_format": 2}}"#,
        r#"{"version": 1, "templates": {"u": "s3://b"}, "refs": {"a/0": ["{{u}}/f", 10, 20], "b": "base64:AAEC", "c": ["{{u}}"]}}"#,
    ];
    let tokens = [
        "null",
        "-1",
        "1e30",
        "18446744073709551616",
        "[]",
        "{}",
        "\"{{u}}\"",
        "\"{{\"",
        "\"base64:=\"",
        "\"\"",
        "\"..\"",
        "{\"u\": 1}",
    ];
    mutation::campaign(&seeds, &tokens, 1500, kerchunk::check);
}

#[test]
fn damaged_files_of_icechunk_never_panic() {
    let mut seeds = Vec::new();
    for repository in ["icechunk-1", "icechunk-2"] {
        for folder in ["", "snapshots", "manifests"] {
            let folder = format!("{}/tests/data/{repository}/{folder}", env!("CARGO_MANIFEST_DIR"));
            let files =
                std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
            let contents = files.filter_map(|path| flat_content(&std::fs::read(path).unwrap()));
            seeds.extend(contents);
        }
    }
    assert!(seeds.len() >= 10, "{} seeds", seeds.len());
    mutation::campaign(&seeds, &["\0\0\0\0", "\u{7f}\u{7f}\u{7f}\u{7f}", "\u{4}\0\0\0"], 300, icechunk::check);
}

#[test]
fn damaged_entries_of_the_cache_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    // The last line is the CRC-32C of the bytes.
    let lines = format!("cuzarr cache 2\ns3://b full k\n\"1\"\n17\n12\n{}\n", 0u32);
    assert_eq!(cache::check(folder.path(), lines.as_bytes()), 0, "the checksum is wrong");
    let checksum = cache::CHECKSUM;
    let seed = format!("cuzarr cache 2\ns3://b full k\n\"1\"\n17\n12\n{checksum}\n");
    let tokens = ["18446744073709551615", "-1", "0", "\n", "\"\u{1}\"", "13", " "];
    mutation::campaign(&[seed], &tokens, 600, |lines| cache::check(folder.path(), lines));
}
