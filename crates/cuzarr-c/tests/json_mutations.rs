//! Options and descriptions of C programs, damaged at random: nothing panics.

#[path = "../../../fuzz/bodies/c_json.rs"]
mod c_json;
#[allow(dead_code, reason = "the library opens stores by it, too")]
#[path = "../src/json.rs"]
mod json;
#[path = "../../../fuzz/bodies/mutation.rs"]
mod mutation;

#[test]
fn damaged_options_and_descriptions_never_panic() {
    let seeds = [
        r#"{"shape": [64, 48], "dtype": "float32", "chunks": [8, 7], "shards": [64, 49], "compressor": "zstd:5"}"#,
        r#"{"shape": [], "dtype": "int8", "fill_value": -1, "zarr_format": 2, "dimension_names": null}"#,
        r#"{"shape": [3], "dtype": {"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1}}}"#,
        r#"{"shape": [3, 0], "dtype": "complex64", "dimension_names": ["y", "x"], "codecs": ["bytes", {"name": "gzip", "configuration": {"level": 1}}]}"#,
        r#"{"attributes": {"a": [1, null, "b"]}, "overwrite": false}"#,
        r#"{"mode": "r", "threads": 4, "strict": true, "memory_limit_bytes": 1048576, "accelerator": "cuda:0"}"#,
        r#"{"storage_options": {"anon": true, "client_kwargs": {"region_name": "x"}}, "chunk_cache_max_age": 9}"#,
        r#"{"slots": 3, "resume": true, "region": {"start": [0, 16], "shape": [1000, 48]}}"#,
    ];
    let tokens = [
        "[",
        "]",
        "{",
        "}",
        "-1",
        "1e999",
        "18446744073709551616",
        "null",
        "\"",
        "0",
        "\u{e9}",
        ",",
        "9007199254740993",
    ];
    let writer = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok_and(|text| json::writer(Some(text)).is_ok());
    mutation::campaign(&seeds, &tokens, 600, |bytes| c_json::check(bytes) + usize::from(writer(bytes)));
}
