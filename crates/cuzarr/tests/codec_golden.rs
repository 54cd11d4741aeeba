//! Chunks as zarr-python and numcodecs, tensorstore's N5 and the C library of zfp store them: decoded to the same elements, encoded to the same bytes where only one
//! encoding is right, and otherwise to bytes that decode to what was encoded.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cuzarr::codec::VariableElements;
use cuzarr::internal::codec::Chain;
use cuzarr::meta::ArrayMetadata;
use serde_json::Value;

mod codec_support;

use codec_support::{decode, encode};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");

fn bytes(value: &Value) -> Vec<u8> {
    BASE64.decode(value.as_str().unwrap()).unwrap()
}

fn metadata(line: &Value) -> cuzarr::Result<ArrayMetadata> {
    match line.get("zarr.json") {
        Some(document) => ArrayMetadata::from_json(document.to_string().as_bytes()),
        None => ArrayMetadata::from_json_v2(line[".zarray"].to_string().as_bytes(), None),
    }
}

fn check_variable(chain: &Chain, line: &Value) -> Result<(), String> {
    let mut expected = VariableElements::default();
    line["elements"].as_array().unwrap().iter().for_each(|element| expected.push(&bytes(element)));
    let stored = bytes(&line["stored"]);
    let decoded = chain.decode_variable(&stored, 1 << 30).map_err(|error| format!("decode: {error:?}"))?;
    let encoded = chain.encode_variable(&expected).map_err(|error| format!("encode: {error:?}"))?;
    let again = chain.decode_variable(&encoded, 1 << 30).map_err(|error| format!("decode own: {error:?}"))?;
    match decoded == expected && again == expected && (line["exact"] == false || encoded == stored) {
        true => Ok(()),
        false => Err("other elements".into()),
    }
}

fn check(line: &Value, decoded: &[u8]) -> Result<(), String> {
    let metadata = metadata(line).map_err(|error| format!("metadata: {error:?}"))?;
    let chain = Chain::new(&metadata).map_err(|error| format!("chain: {error:?}"))?;
    if chain.is_variable() {
        return check_variable(&chain, line);
    }
    let stored = bytes(&line["stored"]);
    let got = decode(&chain, &stored).map_err(|error| format!("decode: {error:?}"))?;
    if got != decoded {
        return Err(format!("decoded {got:?}\n  expected {decoded:?}"));
    }
    let source = line.get("source").map_or(decoded.to_vec(), bytes);
    let encoded = encode(&chain, &source).map_err(|error| format!("encode: {error:?}"))?;
    if line["exact"] == true && encoded != stored {
        return Err(format!("encoded {encoded:?}\n  expected {stored:?}"));
    }
    let again = decode(&chain, &encoded).map_err(|error| format!("decode own: {error:?}"))?;
    if again != decoded {
        return Err("own encoding decodes to other elements".into());
    }
    let bound = chain.encoded_bound_bytes().unwrap_or(u64::MAX);
    match (stored.len().max(encoded.len()) as u64) <= bound {
        true => Ok(()),
        false => Err(format!("more than the bound of {bound} bytes")),
    }
}

/// All chunks of a file, of which there are more than `least`.
fn check_all(folder: &str, least: usize) {
    let text = fs::read_to_string(format!("{DATA}/{folder}/golden.jsonl")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut failures = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let decoded = match &line["decoded"] {
            Value::Number(earlier) => bytes(&lines[earlier.as_u64().unwrap() as usize]["decoded"]),
            Value::Null => Vec::new(),
            text => bytes(text),
        };
        if let Err(what) = check(line, &decoded) {
            let document = line.get("zarr.json").unwrap_or(&line[".zarray"]);
            failures.push(format!("line {}: {}: {document}\n  {what}", number + 1, line["name"]));
        }
    }
    assert!(lines.len() > least, "only {} lines", lines.len());
    assert!(failures.is_empty(), "{} of {} fail:\n{}", failures.len(), lines.len(), failures.join("\n"));
}

#[test]
fn chunks_of_zarr_python_decode_and_encode_alike() {
    check_all("zarr-python-3.4.2-numcodecs-0.17.1", 400);
}

#[test]
fn blocks_of_n5_decode_and_encode_alike() {
    check_all("tensorstore-0.1.86", 50);
}

#[test]
fn chunks_of_zfp_decode_and_encode_to_the_bytes_of_the_c_library() {
    check_all("libzfp-1.0.1", 150);
}
