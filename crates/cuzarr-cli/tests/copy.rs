//! `cuzarr copy` and `cuzarr rechunk` as a user meets them, also when they are killed.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cuzarr::meta::ArrayMetadata;
use cuzarr::node::{Array, ArrayOptions};
use cuzarr::plan::Selection;
use cuzarr::store::{LocalStore, Store, StoreExt};
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

/// The exit status of an error: 2 for wrong arguments.
fn status_of(kind: &str) -> i32 {
    if kind == "InvalidArgument" || kind == "SelectionInvalid" { 2 } else { 1 }
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
    array.write_buffer(&Selection::all(&SHAPE), &value).unwrap();
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
    assert!(open(&to).read_buffer(&Selection::all(&SHAPE)).unwrap().all_equal(&value, false).unwrap());
    let leftovers: Vec<_> = std::fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!leftovers.iter().any(|name| name.to_string_lossy().starts_with(".cuzarr")), "{leftovers:?}");
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
    assert!(open(&to).read_buffer(&Selection::all(&SHAPE)).unwrap().all_equal(&value, false).unwrap());
    let chain = directory.path().join("chain");
    let codecs = r#"["bytes", {"name": "gzip", "configuration": {"level": 1}}, "crc32c"]"#;
    let copied = cuzarr(&["copy", text(&from), text(&chain), "--codecs", codecs]);
    assert_eq!(copied.status.code(), Some(0), "{copied:?}");
    assert!(std::fs::read_to_string(chain.join("zarr.json")).unwrap().contains("crc32c"));
    assert!(open(&chain).read_buffer(&Selection::all(&SHAPE)).unwrap().all_equal(&value, false).unwrap());
    for (arguments, kind) in [
        (vec!["copy", text(&from), "/nowhere", "--codecs", "gzip", "--json"], "InvalidArgument"),
        (vec!["copy", text(&from), "/nowhere", "--codecs", codecs, "--zarr-format", "2", "--json"], "InvalidArgument"),
        (vec!["copy", text(&from), text(&from), "--overwrite", "--json"], "InvalidArgument"),
        (vec!["copy", text(&from), text(&to), "--json"], "ContainsArray"),
        (vec!["rechunk", text(&from), "/nowhere", "--chunks", "1,2", "--json"], "InvalidArgument"),
    ] {
        let output = cuzarr(&arguments);
        assert_eq!(
            (output.status.code(), &json(&output)["error"]["kind"]),
            (Some(status_of(kind)), &kind.into()),
            "{arguments:?}"
        );
    }
    assert_eq!(cuzarr(&["rechunk", text(&from), text(&to), "--chunks", "0,1"]).status.code(), Some(2));
}

#[test]
fn a_report_of_a_finished_copy_says_that_it_is_complete() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    source(&from);
    for arguments in [vec!["copy"], vec!["rechunk", "--chunks", "96,16,16", "--memory-limit", "2 MiB", "--overwrite"]] {
        let report = json(&cuzarr(&[&arguments[..], &[text(&from), text(&to), "--json"]].concat()));
        let copy = &report["copies"][0];
        assert_eq!(copy["complete"], json!(true), "{report:#}");
        let passes = copy["passes"].as_array().unwrap();
        assert!(!passes.is_empty() && passes.iter().all(|pass| pass["finished"] == pass["regions"]), "{report:#}");
    }
    let again = [text(&from), text(&to), "--resume", "--json"];
    let report = json(&cuzarr(&[&["rechunk", "--chunks", "96,16,16"][..], &again].concat()));
    assert_eq!(report["copies"][0]["complete"], json!(true), "{report:#}");
}

#[test]
fn a_copy_that_an_older_version_began_is_only_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let value = source(&from);
    std::fs::create_dir(&to).unwrap();
    std::fs::write(to.join(".cuzarr-copy.json"), b"{}").unwrap();
    for option in [&[][..], &["--resume"]] {
        let output = cuzarr(&[&["copy", text(&from), text(&to), "--json"], option].concat());
        let error = &json(&output)["error"];
        assert_eq!((output.status.code(), &error["kind"]), (Some(1), &"ContainsArray".into()), "{output:?}");
        assert_eq!(error["hint"], "begin again with --overwrite");
    }
    let output = cuzarr(&["copy", text(&from), text(&to), "--overwrite"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(open(&to).read_buffer(&Selection::all(&SHAPE)).unwrap().all_equal(&value, false).unwrap());
    assert!(!to.join(".cuzarr-copy.json").exists());
}

#[test]
fn files_that_are_no_stores_are_refused_by_every_command() {
    let directory = tempfile::tempdir().unwrap();
    let from = directory.path().join("from");
    source(&from);
    let place = |name: &str| directory.path().join(name);
    std::fs::write(place("real.zip"), b"PK\x05\x06").unwrap();
    std::fs::write(place("unnamed"), b"PK\x03\x04....").unwrap();
    std::fs::write(place("notes.txt"), b"notes").unwrap();
    std::fs::create_dir(place("folder.zip")).unwrap();
    let before = std::fs::read_dir(directory.path()).unwrap().count();
    let check = |arguments: &[&str], kind: &str, message: &str, hint: &str| {
        let output = cuzarr(&[arguments, &["--json"]].concat());
        let error = &json(&output)["error"];
        let expected = (Some(status_of(kind)), &kind.into());
        assert_eq!((output.status.code(), &error["kind"]), expected, "{arguments:?} {output:?}");
        assert!(error["message"].as_str().unwrap().contains(message), "{arguments:?} {error:#}");
        assert!(error["hint"].as_str().unwrap_or("").contains(hint), "{arguments:?} {error:#}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), before, "{arguments:?} wrote something");
    };
    let document = from.join("zarr.json");
    for (name, kind, message, hint) in [
        (
            place("notes.txt"),
            "InvalidArgument",
            "is a file, expected a directory",
            "a directory that contains zarr.json",
        ),
        (document, "InvalidArgument", "is a file, expected a directory", text(&from)),
    ] {
        let name = text(&name);
        let target = place("target");
        let target = text(&target);
        for command in ["info", "tree", "validate", "stats", "preview"] {
            check(&[command, name], kind, message, hint);
        }
        check(&["info", &format!("file://{name}")], kind, message, hint);
        check(&["bench", "read", name], kind, message, hint);
        check(&["copy", name, target], kind, message, hint);
        check(&["eval", "u + 1", &format!("u={name}"), "-o", target], kind, message, hint);
    }
    for name in ["new.zip", "real.zip", "new.ZIP", "new.ozx"] {
        check(&["demo", "--keep", text(&place(name))], "Unsupported", "is not a directory", "write to a directory");
    }
    for name in ["real.zip", "unnamed"] {
        check(&["copy", text(&from), text(&place(name))], "StoreFailed", "no ZIP file", "");
    }
    for (name, message) in [("real.zip", "no ZIP file"), ("unnamed", "no ZIP file"), ("none.zip", "nothing")] {
        let output = cuzarr(&["info", text(&place(name)), "--json"]);
        assert_ne!(output.status.code(), Some(0), "{output:?}");
        let error = &json(&output)["error"];
        assert!(name == "none.zip" || error["message"].as_str().unwrap().contains(message), "{error:#}");
    }
    let into = cuzarr(&["copy", text(&from), text(&place("folder.zip"))]);
    assert_eq!(into.status.code(), Some(0), "a directory may have any name: {into:?}");
}

#[test]
fn zip_files_are_read_as_directories_are() {
    let directory = tempfile::tempdir().unwrap();
    let (from, packed) = (directory.path().join("from"), directory.path().join("packed.zip"));
    source(&from);
    pack(&from, &packed);
    let answer = |arguments: &[&str]| {
        let output = cuzarr(&[arguments, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{arguments:?} {output:?}");
        json(&output)
    };
    let chained = format!("zip::file://{}", text(&packed));
    for zip in [text(&packed), &chained] {
        assert_eq!(answer(&["info", zip])["shape"], answer(&["info", text(&from)])["shape"]);
        let count = |path: &str| answer(&["stats", path])["arrays"][0]["count"].clone();
        assert_eq!(count(zip), count(text(&from)));
    }
    let back = directory.path().join("back");
    answer(&["copy", text(&packed), text(&back)]);
    assert_eq!(
        answer(&["stats", text(&back)])["arrays"][0]["max"],
        answer(&["stats", text(&from)])["arrays"][0]["max"]
    );
}

/// Packs a directory into a ZIP file of stored members.
fn pack(from: &Path, to: &Path) {
    let store = LocalStore::new(from).unwrap();
    let (mut file, mut entries) = (Vec::new(), Vec::new());
    let keys = store.list("").unwrap();
    for key in &keys {
        let value = store.get(key).unwrap().unwrap();
        let header_at = file.len() as u32;
        // Everything between the version that is needed and the name.
        let mut common = [0; 26];
        common[0] = 20;
        common[10..14].copy_from_slice(&crc32fast::hash(&value).to_le_bytes());
        common[14..18].copy_from_slice(&(value.len() as u32).to_le_bytes());
        common[18..22].copy_from_slice(&(value.len() as u32).to_le_bytes());
        common[22..24].copy_from_slice(&(key.len() as u16).to_le_bytes());
        file.extend_from_slice(&[&b"PK\x03\x04"[..], &common, key.as_bytes(), &value].concat());
        let rest = [&[0; 10][..], &header_at.to_le_bytes(), key.as_bytes()].concat();
        entries.extend_from_slice(&[&b"PK\x01\x02\x14\0"[..], &common, &rest].concat());
    }
    let (count, directory_at) = (keys.len() as u16, file.len() as u32);
    let counts = [&[0; 4][..], &count.to_le_bytes(), &count.to_le_bytes()].concat();
    let directory = [(entries.len() as u32).to_le_bytes(), directory_at.to_le_bytes()].concat();
    file.extend_from_slice(&[&entries[..], b"PK\x05\x06", &counts, &directory, &[0, 0]].concat());
    std::fs::write(to, file).unwrap();
}

#[test]
fn statistics_are_those_of_the_elements_and_are_drawn() {
    let directory = tempfile::tempdir().unwrap();
    let (from, picture) = (directory.path().join("from"), directory.path().join("histogram.png"));
    let value = source(&from);
    let values: Vec<f64> = value.host_slice::<u32>().unwrap().iter().map(|&value| f64::from(value)).collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let output = cuzarr(&["stats", text(&from), "--json", "--png", text(&picture)]);
    let found = &json(&output)["arrays"][0];
    let number = |name: &str| found[name].as_f64().unwrap();
    let largest = values.iter().copied().fold(0.0, f64::max);
    assert_eq!((number("count"), number("max")), (values.len() as f64, largest), "{found:#}");
    assert!((number("mean") - mean).abs() < 1e-6 * mean);
    let (start, width) = (found["histogram"]["start"].as_f64().unwrap(), found["histogram"]["width"].as_f64().unwrap());
    for (number, count) in found["histogram"]["counts"].as_array().unwrap().iter().enumerate() {
        let low = start + width * number as f64;
        let inside = values.iter().filter(|value| (low..low + width).contains(value)).count();
        assert_eq!(count.as_u64(), Some(inside as u64), "from {low}");
    }
    let decoder = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(&picture).unwrap()));
    let mut reader = decoder.read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut pixels).unwrap();
    let count = |colour: [u8; 3]| pixels.as_chunks::<3>().0.iter().filter(|pixel| **pixel == colour).count();
    assert!(count([46, 92, 160]) > 1000 && count([0; 3]) > 500, "bars, axes and letters");
    let readable = cuzarr(&["stats", text(&from)]);
    let readable = String::from_utf8_lossy(&readable.stdout);
    assert!(readable.contains('█') && readable.starts_with(&format!("{}: uint32", text(&from))), "{readable}");
    let nothing = directory.path().join("nothing");
    let name = format!("u={}", text(&from));
    cuzarr(&["eval", "u / 0.0 * 0.0", &name, "-o", text(&nothing)]);
    let readable = cuzarr(&["stats", text(&nothing)]);
    let readable = String::from_utf8_lossy(&readable.stdout);
    assert!(readable.contains("nothing to look at") && !readable.contains("inf "), "{readable}");
    let constant = directory.path().join("constant");
    cuzarr(&["eval", "u * 0.0 + 5e300", &name, "-o", text(&constant)]);
    for array in [&nothing, &constant] {
        for command in ["stats", "preview"] {
            let drawn = cuzarr(&[command, text(array), "--png", text(&picture)]);
            assert_eq!(drawn.status.code(), Some(0), "{command} {drawn:?}");
        }
    }
}

#[test]
fn pictures_are_not_drawn_by_a_dry_run_nor_where_they_cannot_be() {
    let directory = tempfile::tempdir().unwrap();
    let (from, picture) = (directory.path().join("from"), directory.path().join("new.png"));
    source(&from);
    let lost = directory.path().join("nowhere/new.png");
    for (command, option) in [(&["stats"][..], "--png"), (&["preview"], "--png"), (&["bench", "read"], "--plot")] {
        let run = |path: &Path, more: &[&str]| {
            cuzarr(&[command, &[text(&from), option, text(path), "--json"], more].concat())
        };
        let planned = run(&picture, &["--dry-run"]);
        let document = json(&planned);
        assert_eq!((planned.status.code(), &document["dry_run"]), (Some(0), &json!(true)), "{command:?} {document:#}");
        let named = [&document["png"], &document["plot"]].iter().any(|name| **name == json!(text(&picture)));
        assert!(named && !picture.exists(), "{command:?} {document:#}");
        let refused = run(&lost, &[]);
        let error = json(&refused)["error"].clone();
        assert_eq!((refused.status.code(), &error["kind"]), (Some(1), &json!("StoreFailed")), "{command:?}");
        assert!(error["message"].as_str().unwrap().contains("nowhere"), "{error:#}");
    }
    let kept = directory.path().join("kept");
    let planned = json(&cuzarr(&["demo", "--device", "cpu", "--keep", text(&kept), "--dry-run", "--json"]));
    assert!(planned["arrays"].as_array().unwrap().len() >= 4 && !kept.exists(), "{planned:#}");
}

#[test]
fn a_preview_has_the_elements_of_the_plane() {
    let directory = tempfile::tempdir().unwrap();
    let (from, picture) = (directory.path().join("from"), directory.path().join("plane.png"));
    source(&from);
    let output = cuzarr(&["preview", text(&from), "--slice", "3,::2,10:42", "--png", text(&picture), "--json"]);
    let document = json(&output);
    assert_eq!((&document["rows"], &document["columns"]), (&json!(64), &json!(32)), "{document:#}");
    let decoder = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(&picture).unwrap()));
    let mut reader = decoder.read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    let plane = open(&from).read_buffer(&Selection::region(&[3, 0, 10], &[1, 128, 32]).unwrap()).unwrap();
    // Eight pixels for each number, behind the numbers of rows and below the title.
    assert!(info.width > 84 + 32 * 8 && info.height > 64 * 8);
    let light = |at: usize| {
        let pixel = (44 + at / 32 * 8 + 4) * info.width as usize + 84 + at % 32 * 8 + 4;
        pixels[pixel * 3..][..3].iter().map(|&part| u32::from(part)).sum::<u32>()
    };
    let values = plane.host_slice::<u32>().unwrap();
    let (brightest, darkest) = (
        (0..64 * 32).max_by_key(|&at| values[at / 32 * 64 + at % 32]).unwrap(),
        (0..64 * 32).min_by_key(|&at| values[at / 32 * 64 + at % 32]).unwrap(),
    );
    assert!(light(brightest) > 500 && light(darkest) < 170, "the largest is light, the smallest dark");
    // Letters of the axes, and the colours of the bar.
    let colours: std::collections::HashSet<&[u8]> = pixels.chunks_exact(3).collect();
    assert!(
        colours.len() > 200
            && pixels.chunks_exact(3).filter(|pixel| pixel[0] < 60 && pixel[1] < 60 && pixel[2] < 60).count() > 300
    );
    let grey = cuzarr(&["preview", text(&from), "--png", text(&picture), "--cmap", "grey"]);
    assert_eq!(grey.status.code(), Some(0), "{grey:?}");
    let drawn = cuzarr(&["preview", text(&from), "--width", "40"]);
    assert_eq!(String::from_utf8_lossy(&drawn.stdout).lines().filter(|line| line.len() == 32).count(), 32, "{drawn:?}");
    let wrong = cuzarr(&["preview", text(&from), "--slice", "1,2,3", "--json"]);
    assert_eq!(json(&wrong)["error"]["kind"], "SelectionInvalid");
}

#[test]
fn a_pyramid_is_made_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    source(&from);
    let arguments =
        ["pyramid", text(&from), text(&to), "--levels", "3", "--method", "max", "--scale", "1,0.7,0.7", "--json"];
    let plan = json(&cuzarr(&[&arguments[..], &["--dry-run"]].concat()));
    assert_eq!(plan["levels"][2]["shape"], json!([24, 32, 32]), "{plan:#}");
    let coarse = json(&cuzarr(&[
        "pyramid",
        text(&from),
        text(&to),
        "--scale",
        "1,0.5,0.5",
        "--levels",
        "2",
        "--dry-run",
        "--json",
    ]));
    assert_eq!(coarse["levels"][1]["shape"][0], coarse["levels"][0]["shape"][0], "z is as coarse as y and x later");
    let wrong = json(&cuzarr(&["pyramid", text(&from), text(&to), "--ome-version", "0.3", "--json"]));
    assert_eq!(wrong["error"]["kind"], "InvalidArgument");
    assert!(!to.exists());
    assert_eq!(cuzarr(&arguments).status.code(), Some(0));
    let image = json(&cuzarr(&["info", text(&to), "--json"]));
    assert_eq!((&image["image"], &image["levels"][2]["path"]), (&json!("OME-Zarr 0.5"), &json!("2")));
    let again = directory.path().join("again");
    let made = cuzarr(&["pyramid", text(&to), text(&again), "--ome-version", "0.4", "--levels", "2"]);
    assert_eq!(made.status.code(), Some(0));
    let old = json(&cuzarr(&["info", text(&again), "--json"]));
    assert_eq!((&old["image"], &old["zarr_format"]), (&json!("OME-Zarr 0.4"), &json!(2)));
    let level = open(&to.join("1"));
    let whole = open(&from).read_buffer(&Selection::region(&[0, 0, 0], &[2, 2, 2]).unwrap()).unwrap();
    let first = level.read_buffer(&Selection::region(&[0, 0, 0], &[1, 1, 1]).unwrap()).unwrap();
    assert_eq!(first.host_slice::<u32>().unwrap()[0], *whole.host_slice::<u32>().unwrap().iter().max().unwrap());
    assert_eq!(json(&cuzarr(&arguments))["error"]["kind"], "ContainsGroup");
}

#[test]
fn an_expression_of_arrays_is_stored_or_printed() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let value = source(&from);
    let name = format!("u={}", text(&from));
    let arguments = ["eval", "u * 2.5 - 1", &name, "-o", text(&to), "--json"];
    let plan = json(&cuzarr(&[&arguments[..], &["--dry-run"]].concat()));
    assert_eq!((&plan["dtype"], &plan["chunk_shape"]), (&json!("float64"), &json!([1, 128, 128])), "{plan:#}");
    assert!(!to.exists());
    assert_eq!(cuzarr(&arguments).status.code(), Some(0));
    let stored = open(&to).read_buffer(&Selection::all(&SHAPE)).unwrap();
    let elements = value.host_slice::<u32>().unwrap();
    let expected = elements.iter().map(|&value| f64::from(value) * 2.5 - 1.0);
    assert!(stored.host_slice::<f64>().unwrap().iter().copied().eq(expected));
    let printed = json(&cuzarr(&["eval", "max(u, axis=0) > 0", &name, "--json", "--dry-run"]));
    assert_eq!(printed["shape"], json!([128, 128]));
    let mean = json(&cuzarr(&["eval", "mean(u)", &name, "--json"]))["values"].as_f64().unwrap();
    let values = value.host_slice::<u32>().unwrap();
    let expected = values.iter().map(|&value| f64::from(value)).sum::<f64>() / values.len() as f64;
    assert!((mean - expected).abs() < 1e-9 * expected);
    let negative = json(&cuzarr(&["eval", "-mean(u)**2", &name, "--json"]))["values"].as_f64().unwrap();
    assert!((negative + mean * mean).abs() < 1e-9 * mean * mean, "an expression may begin with a sign");
    for (arguments, kind) in [
        (vec!["eval", "u +", &name, "--json"], "InvalidArgument"),
        (vec!["eval", "open(u)", &name, "--json"], "InvalidArgument"),
        (vec!["eval", "0 < u < 3", &name, "--json"], "InvalidArgument"),
        (vec!["eval", "u", &name, "--json"], "InvalidArgument"),
        (vec!["eval", "u", &name, &name, "--json"], "InvalidArgument"),
        (vec!["eval", "u + 1", &name, "-o", text(&from), "--overwrite", "--json"], "InvalidArgument"),
        (vec!["eval", "u + mean(u)", &name, "-o", text(&from.join("inside")), "--json"], "InvalidArgument"),
        (vec!["eval", "u + 1", &name, "-o", text(&to), "--json"], "ContainsArray"),
    ] {
        let output = cuzarr(&arguments);
        assert_eq!(
            (output.status.code(), &json(&output)["error"]["kind"]),
            (Some(status_of(kind)), &kind.into()),
            "{arguments:?}"
        );
    }
    let kept = open(&from).read_buffer(&Selection::all(&SHAPE)).unwrap();
    assert!(kept.all_equal(&value, false).unwrap(), "a refused target is not deleted before");
}

/// A group with two fields over time and place, and a line of times.
fn fields(path: &Path) {
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(path).unwrap());
    cuzarr::node::Group::create(
        Arc::clone(&store),
        "",
        cuzarr::meta::ZarrFormat::V3,
        serde_json::Map::new(),
        false,
        ArrayOptions::default(),
    )
    .unwrap();
    for (name, shape, names) in [
        ("t2m", vec![6u64, 4], vec!["time", "lat"]),
        ("msl", vec![6, 4], vec!["time", "lat"]),
        ("lat", vec![4], vec!["lat"]),
    ] {
        let chunks: Vec<u64> = shape.iter().map(|_| 2).collect();
        let document = json!({
            "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "uint8", "fill_value": 0,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
            "chunk_key_encoding": {"name": "default"}, "codecs": ["bytes"], "dimension_names": names,
        });
        let metadata = ArrayMetadata::from_json(document.to_string().as_bytes()).unwrap();
        let array = Array::create(Arc::clone(&store), name, metadata, false, ArrayOptions::default()).unwrap();
        let extents: Vec<usize> = shape.iter().map(|&extent| extent as usize).collect();
        let bytes: Vec<u8> = (1..=extents.iter().product::<usize>() as u8).collect();
        let value = NdBuffer::from_host(Device::Cpu, DType::UINT8, &extents, Order::C, &bytes).unwrap();
        array.write_buffer(&Selection::all(&shape), &value).unwrap();
    }
}

#[test]
fn rechunking_by_names_changes_the_named_dimensions_and_copies_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let (from, by_name, only) = ["from", "by_name", "only"].map(|name| directory.path().join(name)).into();
    fields(&from);
    let chunks = |path: &Path| ["t2m", "msl", "lat"].map(|name| open(&path.join(name)).chunk_shape().unwrap());
    let output = cuzarr(&["rechunk", text(&from), text(&by_name), "--chunks", "time=-1"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(chunks(&by_name), [vec![6, 2], vec![6, 2], vec![2]]);
    let output = cuzarr(&["rechunk", text(&from), text(&only), "--chunks", "time=3,lat=-1", "--only", "t2m"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(chunks(&only), [vec![3, 4], vec![2, 2], vec![2]]);
    for copy in [&by_name, &only] {
        for (name, shape) in [("t2m", vec![6, 4]), ("msl", vec![6, 4]), ("lat", vec![4])] {
            let everything = Selection::all(&shape);
            let [one, other] = [&from, copy].map(|path| open(&path.join(name)).read_buffer(&everything).unwrap());
            assert!(one.all_equal(&other, false).unwrap(), "{name}");
        }
    }
}

#[test]
fn names_that_no_array_has_are_refused_with_the_nearest_one() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    fields(&from);
    let refused = |more: &[&str], hint: &str| {
        let output = cuzarr(&[&["rechunk", text(&from), text(&to), "--json"], more].concat());
        let error = &json(&output)["error"];
        assert_eq!((output.status.code(), &error["kind"]), (Some(2), &"InvalidArgument".into()), "{more:?}");
        assert_eq!(error["hint"], hint, "{more:?}");
        assert!(!to.exists(), "{more:?}");
    };
    refused(&["--chunks", "tiem=-1"], "did you mean 'time'?");
    refused(&["--chunks", "time=-1", "--only", "t2n"], "did you mean 't2m'?");
    for wrong in ["time", "time=0", "time=none", "time=1,time=2", "time=-1,3"] {
        let output = cuzarr(&["rechunk", text(&from), text(&to), "--chunks", wrong]);
        assert_eq!(output.status.code(), Some(2), "{wrong}");
    }
    let output = cuzarr(&["rechunk", text(&from.join("t2m")), text(&to), "--chunks", "time=2", "--only", "t2m"]);
    assert_eq!(output.status.code(), Some(2), "an array has no arrays: {output:?}");
}

#[test]
fn progress_is_written_as_lines_where_there_is_no_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let from = directory.path().join("from");
    source(&from);
    let run = |name: &str, more: &[&str]| {
        let output = cuzarr(&[&["copy", text(&from), text(&directory.path().join(name))], more].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(run("quiet", &[]), "");
    let lines = run("told", &["--progress"]);
    let first = lines.lines().next().unwrap();
    assert!(first.contains(" of 6.00 MiB (") && first.contains("B/s, ") && first.ends_with(" left"), "{lines}");
    assert!(!lines.contains('\r') && lines.ends_with('\n'), "{lines:?}");
}
