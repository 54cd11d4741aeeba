//! Commands that write to local ZIP files, also when they are killed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cuzarr::meta::DataType;
use cuzarr::node::{Array, ArrayOptions};
use cuzarr::plan::Selection;
use cuzarr::store::{LocalStore, Registry};
use cuzarr_device::{DType, Device, NdBuffer, Order};
use serde_json::{Value, json};

const SHAPE: [u64; 3] = [96, 64, 64];

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cuzarr"));
    command.args(arguments).arg("--json");
    command
}

fn run(arguments: &[&str]) -> (i32, Value) {
    let Output { status, stdout, stderr } = command(arguments).output().expect("the command starts");
    let document = serde_json::from_slice(&stdout).unwrap_or_else(|error| {
        panic!("{arguments:?}: {error}: {} {}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr))
    });
    (status.code().unwrap_or(-1), document)
}

/// The command's JSON, when it succeeds.
fn answer(arguments: &[&str]) -> Value {
    let (status, document) = run(arguments);
    assert_eq!(status, 0, "{arguments:?} {document:#}");
    document
}

/// The kind of the command's error.
fn refusal(arguments: &[&str]) -> String {
    let (status, document) = run(arguments);
    let kind = document["error"]["kind"].as_str().unwrap().to_string();
    assert_eq!(status, if kind == "InvalidArgument" { 2 } else { 1 }, "{arguments:?} {document:#}");
    kind
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

fn source(path: &Path) -> NdBuffer {
    let store = Arc::new(LocalStore::new(path).unwrap());
    let metadata = Array::builder(SHAPE, DataType::try_from(DType::UINT32).unwrap()).chunks([1, 64, 64]).metadata();
    let array = Array::create(store, "", metadata.unwrap(), false, ArrayOptions::default()).unwrap();
    // Hashed numbers, so that compressing takes its time.
    let elems = SHAPE.iter().product::<u64>() as u32;
    let bytes: Vec<u8> = (1..=elems).flat_map(|at| (at.wrapping_mul(2_654_435_761) >> 8).to_ne_bytes()).collect();
    let shape = SHAPE.map(|extent| extent as usize);
    let value = NdBuffer::from_host(Device::Cpu, DType::UINT32, &shape, Order::C, &bytes).unwrap();
    array.write_buffer(&Selection::all(&SHAPE), &value).unwrap();
    value
}

fn has(zip: &Path, path: &str, value: &NdBuffer) -> bool {
    let store = Registry::new().open(text(zip)).unwrap();
    let array = Array::open(store, path, ArrayOptions::default()).unwrap();
    array.read_buffer(&Selection::all(&SHAPE)).unwrap().all_equal(value, false).unwrap()
}

fn partials(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "partial")).collect()
}

/// Bytes of the file that a process writes in a folder, which may have no name.
fn written_bytes(process: u32, folder: &Path) -> u64 {
    let size = |path: &Path| path.metadata().map_or(0, |file| file.len());
    let open =
        std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_nameless = |path: &PathBuf| {
        std::fs::read_link(path)
            .is_ok_and(|target| target.starts_with(folder) && target.to_string_lossy().ends_with(" (deleted)"))
    };
    let nameless = open.filter(is_nameless).map(|path| size(&path)).max();
    nameless.max(partials(folder).iter().map(|path| size(path)).max()).unwrap_or(0)
}

#[test]
fn commands_write_to_zip_files() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    let from = place("from");
    let value = source(&from);
    let (copied, image, sum) = (place("copied.zip"), place("image.ozx"), place("sum.zip"));
    answer(&["copy", text(&from), text(&copied), "--dry-run"]);
    assert!(!copied.exists());
    answer(&["copy", text(&from), text(&copied)]);
    assert!(has(&copied, "", &value));
    assert_eq!(answer(&["validate", text(&copied)])["valid"], true);

    assert_eq!(refusal(&["copy", text(&from), text(&copied)]), "ContainsArray");
    assert_eq!(
        refusal(&["rechunk", text(&copied), text(&copied), "--chunks", "8,8,8", "--overwrite"]),
        "InvalidArgument"
    );
    let rechunk = ["rechunk", text(&from), text(&copied), "--chunks", "-1,16,16", "--shards", "-1,32,32"];
    assert_eq!(refusal(&[&rechunk[..], &["--resume"]].concat()), "Unsupported");
    let before = std::fs::metadata(&copied).unwrap().len();
    answer(&[&rechunk[..], &["--overwrite", "--memory-limit", "8 MiB"]].concat());
    assert!(has(&copied, "", &value));
    let after = std::fs::metadata(&copied).unwrap().len();
    assert!(after < before + before / 2, "the old values are left in the file: {before} and {after} bytes");

    answer(&["pyramid", text(&from), text(&image), "--axes", "z,y,x"]);
    assert!(has(&image, "0", &value));
    let bytes = std::fs::read(&image).unwrap();
    let comment = json!({"ome": {"version": "0.5", "zipFile": {"centralDirectory": {"jsonFirst": true}}}}).to_string();
    assert!(bytes.ends_with(comment.as_bytes()), "OME-Zarr's RFC 9 wants a comment");
    // Labels are added to an image that is there.
    answer(&["pyramid", text(&from), text(&image), "--axes", "zyx", "--labels", "cells"]);
    assert!(has(&image, "0", &value) && has(&image, "labels/cells/0", &value));

    answer(&["eval", "u + u", &format!("u={}", text(&from)), "-o", text(&sum)]);
    assert_eq!(answer(&["stats", text(&sum)])["arrays"][0]["count"], json!(SHAPE.iter().product::<u64>()));
    let inside = format!("zip://in/side::file://{}", text(&sum));
    answer(&["copy", text(&from), &inside]);
    assert!(has(&sum, "in/side", &value));
    assert_eq!(answer(&["info", text(&sum)])["shape"], json!(SHAPE));
    assert_eq!(partials(directory.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_killed_command_leaves_the_old_archive_or_none() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    let (from, new, old) = (place("from"), place("new.zip"), place("old.zip"));
    let value = source(&from);
    answer(&["copy", text(&from), text(&old)]);
    let before = std::fs::read(&old).unwrap();
    for target in [&new, &old] {
        let overwrite: &[&str] = if target == &old { &["--overwrite"] } else { &[] };
        let arguments =
            [&["rechunk", text(&from), text(target), "--chunks", "-1,8,8", "--compressor", "zstd:19"], overwrite]
                .concat();
        let mut child = command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(120);
        // Some chunks are written, and not all: they take more than 500 kB.
        while written_bytes(child.id(), directory.path()) < 20_000 {
            assert!(child.try_wait().unwrap().is_none() && Instant::now() < deadline, "it ended too soon");
            std::thread::sleep(Duration::from_millis(1));
        }
        // SIGKILL: nothing of the process runs any more.
        child.kill().unwrap();
        child.wait().unwrap();
        // Where files need no names, nothing is left.
        let left = partials(directory.path());
        assert!(left.len() <= 1, "{left:?}");
        if target == &old {
            assert!(std::fs::read(&old).unwrap() == before, "the old archive is whole");
        } else {
            assert!(!new.exists(), "there is no half archive");
        }
        left.iter().for_each(|path| std::fs::remove_file(path).unwrap());
        answer(&arguments);
        assert!(has(target, "", &value));
        assert_eq!(partials(directory.path()), Vec::<PathBuf>::new());
        let store = Registry::new().open(text(target)).unwrap();
        assert_eq!(store.list("").unwrap().len(), 65);
    }
}
