//! `cuzarr copy` and `cuzarr rechunk` as a user meets them, also when they are killed.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cuzarr::meta::ArrayMetadata;
use cuzarr::node::{Array, ArrayOptions};
use cuzarr::plan::Selection;
use cuzarr::store::LocalStore;
use cuzarr_device::{DType, Device, NdBuffer, Order};
use serde_json::{Value, json};

const SHAPE: [u64; 3] = [96, 128, 128];

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cuzarr"));
    command.args(arguments);
    command
}

fn cuzarr(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the command starts")
}

fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

fn open(path: &Path) -> Array {
    Array::open(Arc::new(LocalStore::new(path).unwrap()), "", ArrayOptions::default()).unwrap()
}

fn source(path: &Path) -> NdBuffer {
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": SHAPE, "data_type": "uint32", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 128, 128]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "zstd", "configuration": {"level": 1, "checksum": false}}],
    });
    let metadata = ArrayMetadata::from_json(document.to_string().as_bytes()).unwrap();
    let store = Arc::new(LocalStore::new(path).unwrap());
    let array = Array::create(store, "", metadata, false, ArrayOptions::default()).unwrap();
    // Hashed numbers, so that compressing takes its time.
    let elems = SHAPE.iter().product::<u64>() as u32;
    let bytes: Vec<u8> = (1..=elems).flat_map(|at| (at.wrapping_mul(2_654_435_761) >> 8).to_ne_bytes()).collect();
    let shape = SHAPE.map(|extent| extent as usize);
    let value = NdBuffer::from_host(Device::Cpu, DType::UINT32, &shape, Order::C, &bytes).unwrap();
    array.write(&Selection::all(&SHAPE), &value).unwrap();
    value
}

/// Every stored chunk, with what tells whether it was written again.
fn objects(path: &Path) -> BTreeMap<String, std::time::SystemTime> {
    let array = open_unfinished(path);
    let chunks = array.stored_chunks().unwrap();
    chunks.into_iter().map(|key| (key.clone(), path.join(key).metadata().unwrap().modified().unwrap())).collect()
}

fn open_unfinished(path: &Path) -> Array {
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": SHAPE, "data_type": "uint32", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [96, 16, 16]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    });
    let metadata = ArrayMetadata::from_json(document.to_string().as_bytes()).unwrap();
    Array::from_metadata(Arc::new(LocalStore::new(path).unwrap()), "", metadata, ArrayOptions::default()).unwrap()
}

#[test]
fn a_killed_rechunk_is_resumed_and_right() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let value = source(&from);
    let arguments = [
        "rechunk",
        text(&from),
        text(&to),
        "--chunks",
        "-1,16,16",
        "--compressor",
        "zstd:19",
        "--memory-limit",
        "2 MiB",
    ];
    let mut child = command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    while objects(&to).len() < 5 {
        assert!(child.try_wait().unwrap().is_none() && Instant::now() < deadline, "it ended before it could be killed");
        std::thread::sleep(Duration::from_millis(1));
    }
    // SIGKILL: nothing of the process runs any more.
    child.kill().unwrap();
    child.wait().unwrap();
    let before = objects(&to);
    assert!(before.len() < 64, "all was done before it was killed");
    assert!(!to.join("zarr.json").exists(), "there is no array that could be read half-written");
    let plain = cuzarr(&[&arguments[..], &["--json"]].concat());
    assert_eq!((plain.status.code(), &json(&plain)["error"]["kind"]), (Some(1), &"ContainsArray".into()));
    let resumed = cuzarr(&[&arguments[..], &["--resume", "--json"]].concat());
    assert_eq!(resumed.status.code(), Some(0), "{resumed:?}");
    let after = objects(&to);
    assert!(before.iter().all(|(key, written)| after.get(key) == Some(written)), "finished chunks were written again");
    assert_eq!(after.len(), 64);
    assert!(open(&to).read(&Selection::all(&SHAPE)).unwrap().all_equal(&value, false).unwrap());
    let leftovers: Vec<_> = std::fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!leftovers.iter().any(|name| name.to_string_lossy().starts_with(".cuzarr-copy")), "{leftovers:?}");
}

#[test]
fn a_dry_run_shows_the_plan_and_writes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    source(&from);
    let plan = json(&cuzarr(&["rechunk", text(&from), text(&to), "--chunks", "96,16,16", "--dry-run", "--json"]));
    let pass = &plan["copies"][0]["passes"][0];
    assert_eq!(
        (pass["target_chunks"].clone(), pass["source_reads"].as_f64()),
        (json!([96, 16, 16]), Some(1.0)),
        "{plan:#}"
    );
    assert!(!to.exists());
    let readable =
        cuzarr(&["rechunk", text(&from), text(&to), "--chunks", "96,16,16", "--shards", "-1,-1,-1", "--dry-run"]);
    assert!(String::from_utf8_lossy(&readable.stdout).contains("[96,128,128]"), "{readable:?}");
}

#[test]
fn copies_to_the_other_format_and_refuses_nonsense() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let value = source(&from);
    let copied = cuzarr(&["copy", text(&from), text(&to), "--zarr-format", "2", "--compressor", "none", "--json"]);
    assert_eq!(copied.status.code(), Some(0), "{copied:?}");
    assert!(json(&copied)["gigabytes_per_second"].as_f64().unwrap() > 0.0);
    assert!(to.join(".zarray").exists());
    assert!(open(&to).read(&Selection::all(&SHAPE)).unwrap().all_equal(&value, false).unwrap());
    for (arguments, kind) in [
        (vec!["copy", text(&from), text(&from), "--overwrite", "--json"], "InvalidArgument"),
        (vec!["copy", text(&from), text(&to), "--json"], "ContainsArray"),
        (vec!["rechunk", text(&from), "/nowhere", "--chunks", "1,2", "--json"], "InvalidArgument"),
    ] {
        let output = cuzarr(&arguments);
        assert_eq!((output.status.code(), &json(&output)["error"]["kind"]), (Some(1), &kind.into()), "{arguments:?}");
    }
    assert_eq!(cuzarr(&["rechunk", text(&from), text(&to), "--chunks", "0,1"]).status.code(), Some(2));
}
