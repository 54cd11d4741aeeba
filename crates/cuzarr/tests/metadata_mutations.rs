//! Real documents, damaged at random: nothing panics, and whatever is still accepted can be rewritten.

#[path = "../../../fuzz/bodies/metadata.rs"]
mod body;

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

/// xorshift64*: https://doi.org/10.1145/2845077
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let mixed = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        if limit == 0 { 0 } else { mixed as usize % limit }
    }
}

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

/// The range of a token near `at`: up to the next of JSON's own characters on both sides.
fn token_at(text: &[u8], at: usize) -> std::ops::Range<usize> {
    let ends = |byte: &u8| b",:[]{}\n".contains(byte);
    let start = text[..at].iter().rposition(ends).map_or(0, |last| last + 1);
    let end = text[at..].iter().position(ends).map_or(text.len(), |next| at + next);
    start..end
}

fn mutate(text: &mut Vec<u8>, others: &[String], random: &mut Random) {
    let at = random.below(text.len());
    match random.below(7) {
        0 => text.insert(at, random.below(256) as u8),
        1 if !text.is_empty() => drop(text.remove(at)),
        2 if !text.is_empty() => text[at] ^= 1 << random.below(8),
        3 => text.truncate(at),
        4 => {
            let end = (at + random.below(40)).min(text.len());
            let piece = text[at..end].to_vec();
            let to = random.below(text.len());
            text.splice(to..to, piece);
        }
        5 => {
            let other = others[random.below(others.len())].as_bytes();
            let from = token_at(other, random.below(other.len()));
            let range = token_at(text, at);
            text.splice(range, other[from].iter().copied());
        }
        _ => {
            let range = token_at(text, at);
            text.splice(range, TOKENS[random.below(TOKENS.len())].bytes());
        }
    }
}

#[test]
fn real_documents_are_accepted() {
    for text in documents() {
        assert!(body::check(text.as_bytes()) > 0, "{text}");
    }
}

#[test]
fn damaged_documents_never_panic() {
    let all = documents();
    let mut random = Random(0x5eed);
    let (mut accepted, mut tried) = (0, 0);
    for text in &all {
        for _ in 0..60 {
            let mut damaged = text.clone().into_bytes();
            for _ in 0..=random.below(3) {
                mutate(&mut damaged, &all, &mut random);
            }
            accepted += usize::from(body::check(&damaged) > 0);
            tried += 1;
        }
    }
    // Both ways through the parsers must have been gone often.
    assert!(accepted * 10 > tried && accepted * 10 < tried * 9, "accepted {accepted} of {tried}");
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
