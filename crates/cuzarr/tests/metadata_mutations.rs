//! Real documents, damaged at random: nothing panics, and whatever is still accepted can be rewritten.

#[path = "../../../fuzz/bodies/metadata.rs"]
mod body;
#[path = "../../../fuzz/bodies/mutation.rs"]
mod mutation;

use serde_json::Value;

const DOCUMENTS: [&str; 2] =
    [include_str!("data/zarr-python-3.4.2/metadata.json"), include_str!("data/zarr-python-2.18.7/metadata.json")];

/// What is put in the place of a value, or into the middle of one.
const TOKENS: [&str; 40] = [
    "null",
    "true",
    "0",
    "1",
    "-1",
    "-0",
    "1.5",
    "1e999",
    "NaN",
    "-Infinity",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775809",
    "9223372036854775807",
    "2147483648",
    "1e-400",
    "\"\"",
    "\"NaN\"",
    "\"0x7fc00001\"",
    "\"0xffffffffffffffff\"",
    "\"AAAA\"",
    "\"é\\ud83d\\ude00\"",
    "\"\\u0000\"",
    "[]",
    "{}",
    "[[]]",
    "[0]",
    "[1, 1]",
    "[4294967296, 4294967296]",
    "{\"name\": \"r8\"}",
    "\"<U1\"",
    "\">M8[3ns]\"",
    "\"|V2147483647\"",
    "[[\"a\", \"<i4\", [65536, 65536]]]",
    "{\"must_understand\": false}",
    "[[[[[[[[[[[[[[[[[[[[[[[[",
    "{\"a\":{\"a\":{\"a\":",
    "\"struct\"",
    "{\"name\": \"struct\", \"configuration\": {\"fields\": [[\"a\", \"r64\"]]}}",
    ",",
];

fn documents() -> Vec<String> {
    let cases = DOCUMENTS.iter().flat_map(|text| serde_json::from_str::<Vec<Value>>(text).unwrap());
    let mut all: Vec<String> = cases
        .flat_map(|case| case["documents"].as_object().unwrap().clone())
        .map(|(_, text)| text.as_str().unwrap().to_owned())
        .collect();
    all.sort();
    all.dedup();
    all
}

#[test]
fn damaged_documents_never_panic() {
    mutation::campaign(&documents(), &TOKENS, 60, body::check);
}

#[test]
fn seeds_never_panic() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/metadata");
    let seeds: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(seeds.len() >= 8, "{seeds:?}");
    for path in seeds {
        body::check(&std::fs::read(path).unwrap());
    }
}
