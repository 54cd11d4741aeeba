//! Golden chunks and their metadata, damaged at random: nothing panics.

#[path = "../../../fuzz/bodies/codecs.rs"]
mod body;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

const GOLDEN: [&str; 3] = [
    include_str!("data/zarr-python-3.4.2-numcodecs-0.17.1/golden.jsonl"),
    include_str!("data/tensorstore-0.1.86/golden.jsonl"),
    include_str!("data/libzfp-1.0.1/golden.jsonl"),
];

/// What is put in the place of a member.
fn tokens() -> Vec<Value> {
    vec![
        json!(null),
        json!(0),
        json!(-1),
        json!(1),
        json!(2),
        json!(7),
        json!(1e300),
        json!(0.5),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(1u64 << 40),
        json!(""),
        json!("<f4"),
        json!(">i2"),
        json!("|V0"),
        json!("NaN"),
        json!([]),
        json!([0]),
        json!([1, 0]),
        json!({}),
        json!([[0, 1]]),
        json!("gzip"),
        json!("end"),
        json!(true),
        json!("start"),
        json!({"name": "bytes"}),
        json!("int64"),
        json!("|b1"),
        json!([1u64 << 62, 4]),
        json!("S99999999999"),
    ]
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

/// Replaces, doubles or removes something below `value`, chosen at random.
fn mutate(value: &mut Value, random: &mut Random, tokens: &[Value]) {
    let deeper = random.below(6) != 0;
    match value {
        Value::Object(members) if deeper && !members.is_empty() => {
            let key = members.keys().nth(random.below(members.len())).cloned().unwrap_or_default();
            match random.below(12) {
                0 => drop(members.shift_remove(&key)),
                _ => mutate(&mut members[&key], random, tokens),
            }
        }
        Value::Array(list) if deeper && !list.is_empty() => {
            let at = random.below(list.len());
            match random.below(8) {
                0 => drop(list.remove(at)),
                1 => list.push(list[at].clone()),
                _ => mutate(&mut list[at], random, tokens),
            }
        }
        other => *other = tokens[random.below(tokens.len())].clone(),
    }
}

#[test]
fn damaged_golden_chunks_never_panic() {
    let tokens = tokens();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut decoded, mut tried) = (0, 0);
    for line in GOLDEN.iter().flat_map(|lines| lines.lines()) {
        let line: Value = serde_json::from_str(line).unwrap();
        let document = line.get("zarr.json").unwrap_or(&line[".zarray"]);
        let stored = BASE64.decode(line["stored"].as_str().unwrap()).unwrap();
        assert!(body::check(&[document.to_string().as_bytes(), &[0], &stored].concat()), "{document}");
        for round in 0..16 {
            let (mut document, mut stored) = (document.clone(), stored.clone());
            if round % 4 != 0 {
                mutate(&mut document, &mut random, &tokens);
            }
            for _ in 0..random.below(3) {
                let at = random.below(stored.len());
                match random.below(3) {
                    0 => stored.truncate(at),
                    1 if !stored.is_empty() => stored[at] ^= 1 << random.below(8),
                    _ => stored.extend_from_within(..at),
                }
            }
            decoded += usize::from(body::check(&[document.to_string().as_bytes(), &[0], &stored].concat()));
            tried += 1;
        }
    }
    // Some are still readable and some are not, or the mutations would be too strong or too weak.
    assert!((tried / 20..tried).contains(&decoded), "{decoded} of {tried} decoded");
}
