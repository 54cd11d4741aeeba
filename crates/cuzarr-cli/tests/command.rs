//! The command as a user meets it: arguments in, text or JSON and an exit status out.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Output};

use cuzarr::internal::is_printable;
use serde_json::Value;

fn cuzarr(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cuzarr")).args(arguments).output().expect("the command starts")
}

fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

/// Small demo arrays, kept in `directory`.
fn demo(directory: &Path, more: &[&str]) -> Output {
    demo_of("4", directory, more)
}

fn demo_of(size_mib: &str, directory: &Path, more: &[&str]) -> Output {
    let size =
        ["demo", "--json", "--device", "cpu", "--size-mib", size_mib, "--budget-mib", "48", "--keep", text(directory)];
    cuzarr(&[&size, more].concat())
}

#[test]
fn demo_verifies_every_element_and_reports_stages() {
    let directory = tempfile::tempdir().unwrap();
    let output = demo_of("64", directory.path(), &[]);
    let document = json(&output);
    assert_eq!(document["verified"], true, "{document:#}");
    assert_eq!(output.status.code(), Some(0));
    let arrays = document["arrays"].as_array().unwrap();
    assert!(arrays.len() >= 4);
    for array in arrays {
        assert!(array["array_bytes"].as_u64().unwrap() > document["budget_bytes"].as_u64().unwrap());
        assert!(array["read_within_budget_seconds"].as_f64() > Some(0.0), "{array:#}");
        let stages = array["stages"]["stages"].as_array().unwrap();
        assert!(stages.iter().any(|stage| stage["stage"] == "fetch" && stage["size_bytes"].as_u64() > Some(0)));
    }
}

#[test]
fn hints_say_what_to_do_next_on_this_command_line() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| text(&directory.path().join(name)).to_string();
    for name in ["a.zarr", "b.zarr"] {
        cuzarr::Array::builder([4, 4], cuzarr::prelude::DataType::UInt8)
            .chunks([4, 4])
            .create(place(name).as_str())
            .unwrap();
    }
    std::fs::create_dir(place("empty")).unwrap();
    std::fs::write(place("notes.txt"), "notes").unwrap();
    let (a, b) = (place("a.zarr"), place("b.zarr"));
    for (arguments, expected) in [
        (vec!["info", &place("elsewhere")], "there is no 'elsewhere' in"),
        (vec!["info", &place("no/where")], "there is no directory"),
        (vec!["info", &place("empty")], "use a directory that contains zarr.json"),
        (vec!["info", &place("b.zar")], "did you mean"),
        (vec!["copy", &a, &place("notes.txt")], "choose another name"),
        (vec!["copy", &a, &b], "replace it with --overwrite"),
        (vec!["pyramid", &a, &b], "replace it with --overwrite"),
        (vec!["eval", "x + 1", &format!("x={a}"), "-o", &b], "replace it with --overwrite"),
        (vec!["rechunk", &a, &place("c.zarr"), "--chunks", "2,2", "--memory-limit", "1"], "raise --memory-limit"),
    ] {
        let output = cuzarr(&[&arguments[..], &["--json"]].concat());
        let hint = json(&output)["error"]["hint"].as_str().unwrap_or_default().to_string();
        assert!(hint.contains(expected), "{arguments:?}: {hint}");
        let shown = String::from_utf8(output.stderr).unwrap();
        assert!(shown.contains(&format!("hint: {hint}")) && !shown.contains('`'), "{shown}");
    }
}

#[test]
fn demo_ends_with_three_next_steps() {
    let output = cuzarr(&["demo", "--device", "cpu", "--size-mib", "4", "--budget-mib", "48"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, next) = text.split_once("\nnext\n").expect("the demo says what to do next");
    assert_eq!(next.trim_end().lines().count(), 3, "{text}");
    assert!(next.contains("cuzarr doctor") && text.contains("within 48.00 MiB"), "{text}");
}

#[test]
fn the_reason_of_a_failure_is_told_once() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let failed = cuzarr(&["man", "--json", text(&file.join("pages"))]);
    let told = String::from_utf8(failed.stderr.clone()).unwrap();
    assert_eq!(told.matches("Not a directory").count(), 1, "{told}");
    assert_eq!(json(&failed)["error"]["message"].as_str().unwrap().matches("Not a directory").count(), 1);
}

#[test]
fn demo_with_a_flipped_byte_fails_and_says_where() {
    let directory = tempfile::tempdir().unwrap();
    let output = demo(directory.path(), &["--flip-a-byte"]);
    let document = json(&output);
    assert_eq!((output.status.code(), &document["verified"]), (Some(1), &Value::Bool(false)));
    for array in document["arrays"].as_array().unwrap() {
        let error = array["error"].as_str().unwrap_or_default();
        assert!(error.contains("crc32c"), "{array:#}");
    }
}

/// A group whose names and attributes try to steer a terminal, with one array that is damaged.
fn hostile(directory: &Path) {
    let array = |shape: &str| {
        format!(
            r#"{{"zarr_format": 3, "node_type": "array", "shape": {shape}, "data_type": "uint8", "fill_value": 0,
            "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [4, 4]}}}},
            "chunk_key_encoding": {{"name": "default"}}, "codecs": ["bytes"],
            "dimension_names": ["\u001b[2J", "x\u202e"], "attributes": {{"a\u009b31m": "\u001b]0;owned\u0007"}}}}"#
        )
    };
    let group = r#"{"zarr_format": 3, "node_type": "group", "attributes": {"\u001b[31m": "\r"}}"#;
    let write = |name: &str, document: &str| {
        std::fs::create_dir_all(directory.join(name)).unwrap();
        std::fs::write(directory.join(name).join("zarr.json"), document).unwrap();
    };
    write("", group);
    write("\u{1b}]0;owned\u{7}", &array("[4, 4]"));
    write("a\rb\nc", &array("[4, 4]"));
    write("\u{202e}gpj.\u{9b}1m", &array("[8, 8]"));
    write("broken\u{1b}[8m", &array("\"\\u001b[8m\""));
    std::fs::create_dir_all(directory.join("a\rb\nc/c/0")).unwrap();
    std::fs::write(directory.join("a\rb\nc/c/0/0"), b"short").unwrap();
}

#[test]
fn names_and_attributes_of_a_store_do_not_steer_the_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("place");
    hostile(&place);
    let inner = |name: &str| text(&place.join(name)).to_string();
    let short = inner("a\rb\nc");
    let commands = [
        vec!["info", text(&place)],
        vec!["tree", text(&place)],
        vec!["validate", text(&place)],
        vec!["stats", text(&place)],
        vec!["info", &short],
        vec!["stats", &short],
        vec!["stats", "--dry-run", &short],
        vec!["preview", &short],
        vec!["preview", "--dry-run", &short],
        vec!["validate", &short],
        vec!["copy", &short, text(&place)],
        vec!["copy", "--dry-run", text(&place), text(directory.path())],
    ];
    for command in commands {
        for more in [&[][..], &["--json"]] {
            let output = cuzarr(&[&command, more].concat());
            for stream in [&output.stdout, &output.stderr] {
                let shown = std::str::from_utf8(stream).expect("text");
                let steers = shown.chars().find(|&one| one != '\n' && !is_printable(one));
                assert_eq!(steers, None, "{command:?} {more:?}: {shown:?}");
            }
            if !more.is_empty() {
                json(&output);
            }
        }
    }
    let tree = cuzarr(&["tree", text(&place)]);
    assert!(String::from_utf8_lossy(&tree.stdout).contains(r"a\u{d}b\u{a}c"), "{tree:?}");
    assert!(json(&cuzarr(&["tree", "--json", text(&place)]))["members"]["a\rb\nc"].is_object());
}

#[test]
fn validate_finds_the_damaged_chunk_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    demo(directory.path(), &[]);
    let whole = cuzarr(&["validate", "--json", text(&directory.path().join("zstd-sharded"))]);
    assert_eq!((whole.status.code(), &json(&whole)["valid"]), (Some(0), &Value::Bool(true)));
    demo(directory.path(), &["--flip-a-byte", "--overwrite"]);
    let damaged = cuzarr(&["validate", "--json", text(&directory.path().join("none"))]);
    let document = json(&damaged);
    assert_eq!((damaged.status.code(), &document["valid"]), (Some(1), &Value::Bool(false)));
    assert_eq!(document["arrays"][0]["bad"].as_array().unwrap().len(), 1, "{document:#}");
    assert_eq!(document["arrays"][0]["bad"][0]["kind"], "ChecksumMismatch");
}

#[test]
fn bench_reads_and_verifies_what_the_demo_wrote() {
    let directory = tempfile::tempdir().unwrap();
    demo(directory.path(), &[]);
    let path = directory.path().join("blosc-lz4-sharded");
    let plot = directory.path().join("read.svg");
    let plain = ["bench", "read", "--json", "--verify", "--roofline", "--repeat", "2", "--plot", text(&plot)];
    let output = cuzarr(&[&plain[..], &[text(&path)]].concat());
    let document = json(&output);
    assert_eq!((output.status.code(), &document["verified"]), (Some(0), &Value::Bool(true)), "{document:#}");
    assert_eq!(document["seconds"].as_array().unwrap().len(), 2);
    assert!(document["gigabytes_per_second"].as_f64().unwrap() > 0.0);
    let (rate, roofline) = (document["gigabytes_per_second"].as_f64().unwrap(), &document["roofline"]);
    let (bound, achieved) = (roofline["bound_gb_s"].as_f64().unwrap(), roofline["achieved"].as_f64().unwrap());
    let parts = ["fetch_gb_s", "decode_gb_s"].map(|part| roofline[part].as_f64().unwrap());
    assert!(parts[0].min(parts[1]) == bound && (achieved * bound - rate).abs() < 1e-6 * rate);
    let svg = std::fs::read_to_string(&plot).unwrap();
    assert!(svg.contains("at best, GB/s of array: fetch"));
    assert!(svg.starts_with("<svg") && svg.contains(">fetch<") && svg.matches("<rect x").count() > 10);
    assert!(svg.contains("<title>fetch at best: ") && svg.contains("<title>decode at best: "), "the roofline is drawn");
    draws_png_files_and_refuses_other_names(directory.path(), &path);
}

fn draws_png_files_and_refuses_other_names(directory: &Path, path: &Path) {
    let plot = directory.join("read.PNG");
    let output = cuzarr(&["bench", "read", "--repeat", "1", "--plot", text(&plot), text(path)]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("at best, GB/s of array: fetch"), "{output:?}");
    let mut reader = png::Decoder::new(BufReader::new(File::open(&plot).unwrap())).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    let count = |colour: [u8; 3]| pixels.as_chunks::<3>().0.iter().filter(|pixel| **pixel == colour).count();
    assert!(info.width == 1200 && info.height > 100);
    let dark = pixels.as_chunks::<3>().0.iter().filter(|pixel| pixel.iter().all(|&part| part < 0x80)).count();
    assert!(dark > 500, "letters: {dark}");
    // What is at best, and bars of fetching and decoding, on white.
    for (colour, least) in [([0x22; 3], 3), ([0x4c, 0x78, 0xa8], 6), ([0xf5, 0x85, 0x18], 6), ([255; 3], 9999)] {
        assert!(count(colour) >= least, "{colour:?}: {}", count(colour));
    }
    let refused = cuzarr(&["bench", "read", "--json", "--plot", "read.gif", text(path)]);
    assert_eq!(json(&refused)["error"]["kind"], "InvalidArgument");
}

#[test]
fn info_names_shape_codecs_and_stored_bytes() {
    let directory = tempfile::tempdir().unwrap();
    demo(directory.path(), &[]);
    let path = directory.path().join("zstd-sharded");
    let document = json(&cuzarr(&["info", "--json", "--complete", text(&path)]));
    assert_eq!(document["shard_shape"], serde_json::json!([8, 512, 512]));
    assert_eq!(document["chunk_shape"], serde_json::json!([4, 256, 512]));
    assert!(document["nbytes_stored"].as_u64().unwrap() < document["nbytes"].as_u64().unwrap());
    let readable = cuzarr(&["info", text(&path)]);
    assert!(String::from_utf8_lossy(&readable.stdout).contains("Shard shape"), "{readable:?}");
}

#[test]
fn missing_paths_are_errors_with_kind_and_status() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nothing");
    for command in ["info", "tree", "validate"] {
        let output = cuzarr(&[command, "--json", text(&path)]);
        assert_eq!(
            (output.status.code(), &json(&output)["error"]["kind"]),
            (Some(1), &"NodeNotFound".into()),
            "{command}"
        );
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("cuzarr: "));
    }
    assert_eq!(cuzarr(&["no-such-command"]).status.code(), Some(2));
    let url = format!("file://{}", text(&path));
    assert_eq!(json(&cuzarr(&["info", "--json", &url]))["error"]["kind"], "NodeNotFound");
    assert_eq!(json(&cuzarr(&["info", "--json", "ftp://bucket/x"]))["error"]["kind"], "Unsupported");
}

#[test]
fn doctor_answers_with_and_without_a_gpu() {
    let output = cuzarr(&["doctor", "--json"]);
    let document = json(&output);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(document["gpu_usable"].as_bool().unwrap(), document["gpu_problem"].is_null());
    assert!(String::from_utf8_lossy(&cuzarr(&["doctor"]).stdout).contains("CUDA driver"));
}

#[test]
fn doctor_says_what_adds_each_missing_thing() {
    let text = String::from_utf8(cuzarr(&["doctor"]).stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("[missing]")) {
        let remedy = lines.get(number + 1).is_some_and(|next| next.trim_start().starts_with("add "));
        assert!(remedy, "{line}");
    }
    for library in json(&cuzarr(&["doctor", "--json"]))["libraries"].as_array().unwrap() {
        assert_eq!(library["problem"].is_null(), library["remedy"].is_null(), "{library}");
    }
}

#[test]
fn unreadable_members_are_listed_and_do_not_hide_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &str| {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    let array = |codec: &str| {
        format!(
            r#"{{"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "int8", "fill_value": 0,
                "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [2]}}}},
                "chunk_key_encoding": {{"name": "default"}}, "codecs": ["{codec}"]}}"#
        )
    };
    write("zarr.json", r#"{"zarr_format": 3, "node_type": "group"}"#);
    write("good/zarr.json", &array("bytes"));
    write("strange/zarr.json", &array("from-the-future"));
    write("broken/zarr.json", "{");
    let root = text(directory.path());
    let output = cuzarr(&["validate", "--json", root]);
    let document = json(&output);
    assert_eq!((output.status.code(), &document["valid"]), (Some(1), &Value::Bool(false)));
    let bad: Vec<_> =
        document["arrays"].as_array().unwrap().iter().map(|array| (&array["array"], &array["bad"])).collect();
    assert_eq!(bad.len(), 3, "{document:#}");
    assert_eq!((bad[0].0, &bad[0].1[0]["kind"]), (&Value::from("/broken"), &Value::from("MetadataInvalid")));
    assert_eq!((bad[1].0, bad[1].1.as_array().unwrap().len()), (&Value::from("/good"), 0));
    assert_eq!((bad[2].0, &bad[2].1[0]["kind"]), (&Value::from("/strange"), &Value::from("UnknownCodec")));
    let tree = json(&cuzarr(&["tree", "--json", root]));
    assert_eq!(tree["members"]["broken"]["type"], "unreadable");
    assert_eq!(tree["members"]["good"]["data_type"], "int8");
    let info = json(&cuzarr(&["info", "--complete", "--json", root]));
    assert_eq!((&info["arrays"], &info["unreadable"]), (&Value::from(2), &Value::from(1)));
}

/// A plane of packed numbers, as netCDF's tools write them: 0, 1, missing, 3.
fn packed(directory: &Path) {
    let document = r#"{"zarr_format": 3, "node_type": "array", "shape": [2, 2], "data_type": "int16", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 2]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}], "dimension_names": ["y", "x"],
        "attributes": {"scale_factor": 0.5, "add_offset": 10.0, "_FillValue": -32767, "units": "K"}}"#;
    std::fs::create_dir_all(directory.join("c/0")).unwrap();
    std::fs::write(directory.join("zarr.json"), document).unwrap();
    let bytes: Vec<u8> = [0i16, 1, -32767, 3].into_iter().flat_map(i16::to_le_bytes).collect();
    std::fs::write(directory.join("c/0/0"), bytes).unwrap();
}

#[test]
fn packed_numbers_are_decoded_unless_raw_ones_are_wanted() {
    let directory = tempfile::tempdir().unwrap();
    packed(directory.path());
    let path = text(directory.path());
    let stats = |more: &[&str]| json(&cuzarr(&[&["stats", "--json", path], more].concat()))["arrays"][0].clone();
    let (decoded, raw) = (stats(&[]), stats(&["--raw"]));
    assert_eq!((&decoded["min"], &decoded["max"], &decoded["nan"]), (&10.0.into(), &11.5.into(), &1.into()));
    assert_eq!((&decoded["units"], &decoded["mean"]), (&"K".into(), &((10.0 + 10.5 + 11.5) / 3.0).into()));
    assert_eq!(
        (&raw["min"], &raw["max"], &raw["nan"], &raw["units"]),
        (&(-32767).into(), &3.into(), &0.into(), &Value::Null)
    );
    let shown = String::from_utf8(cuzarr(&["stats", path]).stdout).unwrap();
    assert!(shown.contains("decoded: -32767.0 as missing, times 0.5, plus 10.0 (--raw: as stored)"), "{shown}");
    let preview = |more: &[&str]| json(&cuzarr(&[&["preview", "--json", path], more].concat()));
    assert_eq!((&preview(&[])["min"], &preview(&[])["units"]), (&10.0.into(), &"K".into()));
    assert_eq!(preview(&["--raw"])["min"], -32767.0);
    let eval =
        |more: &[&str]| json(&cuzarr(&[&["eval", "--json", "nanmax(t) + 1", &format!("t={path}")], more].concat()));
    assert_eq!((&eval(&[])["values"], &eval(&["--raw"])["values"]), (&12.5.into(), &4.into()));
    let mean = cuzarr(&["eval", "mean(t)", &format!("t={path}")]);
    assert_eq!(String::from_utf8_lossy(&mean.stdout), "nan\n", "missing elements are NaN, by name");
    let told = String::from_utf8_lossy(&mean.stderr);
    assert!(told.contains("missing elements count as NaN") && told.contains("nanmean"), "{told}");
    let mean = json(&cuzarr(&["eval", "--json", "mean(t)", &format!("t={path}")]));
    assert_eq!(mean["values"], "NaN");
}

#[test]
fn short_names_of_compressors_say_their_inner_ones() {
    let directory = tempfile::tempdir().unwrap();
    let (source, target) = (directory.path().join("a"), directory.path().join("b"));
    packed(&source);
    for (name, expected) in [
        ("blosc:zstd:3", r#""cname": "zstd""#),
        ("blosc:lz4", r#""cname": "lz4""#),
        ("blosc:7", r#""clevel": 7"#),
        ("lz4", r#""numcodecs.lz4""#),
    ] {
        let output = cuzarr(&["copy", text(&source), text(&target), "--compressor", name, "--overwrite"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let document: Value = serde_json::from_slice(&std::fs::read(target.join("zarr.json")).unwrap()).unwrap();
        let codecs = document["codecs"].to_string().replace("\":", "\": ");
        assert!(codecs.contains(expected), "{name}: {codecs}");
    }
    for wrong in ["blosc:brotli", "blosc:zstd:x", "zip"] {
        let output = cuzarr(&["copy", text(&source), text(&target), "--compressor", wrong, "--overwrite"]);
        assert!(String::from_utf8_lossy(&output.stderr).contains("use none, zstd, gzip, lz4"), "{wrong}");
    }
}

#[test]
fn validate_lists_stray_keys_and_says_where_damage_is_not_detected() {
    let directory = tempfile::tempdir().unwrap();
    demo(directory.path(), &[]);
    let before = json(&cuzarr(&["validate", "--json", text(directory.path())]));
    assert_eq!((&before["valid"], &before["stray_keys"]), (&true.into(), &serde_json::json!([])), "{before}");
    let path = directory.path().join("zstd-sharded");
    std::fs::write(path.join("notes.txt"), "mine").unwrap();
    std::fs::create_dir_all(path.join("c/99/0")).unwrap();
    std::fs::write(path.join("c/99/0/0"), "outside the grid").unwrap();
    let output = cuzarr(&["validate", "--json", text(directory.path())]);
    let document = json(&output);
    assert_eq!(output.status.code(), Some(0), "stray keys are no damage");
    assert_eq!(document["stray_keys"], serde_json::json!(["zstd-sharded/c/99/0/0", "zstd-sharded/notes.txt"]));
    let readable = String::from_utf8(cuzarr(&["validate", text(directory.path())]).stdout).unwrap();
    assert!(readable.contains("2 stray keys") && readable.contains("zstd-sharded/notes.txt"), "{readable}");
    // The demo's chunks have checksums. zstd writes none by itself.
    assert!(document["arrays"].as_array().unwrap().iter().all(|array| array["checksums"] == true), "{document}");
    let (checked, plain) = (directory.path().join("none"), directory.path().join("plain"));
    assert!(cuzarr(&["copy", text(&checked), text(&plain), "--compressor", "zstd"]).status.success());
    assert_eq!(json(&cuzarr(&["validate", "--json", text(&plain)]))["arrays"][0]["checksums"], false);
    let readable = String::from_utf8(cuzarr(&["validate", text(&plain)]).stdout).unwrap();
    assert!(readable.contains("no checksums: changed bytes"), "{readable}");
    std::fs::write(path.join("zarr.json"), "{").unwrap();
    let document = json(&cuzarr(&["validate", "--json", text(directory.path())]));
    assert_eq!(
        (&document["valid"], &document["stray_keys"]),
        (&false.into(), &serde_json::json!([])),
        "its chunks are its own"
    );
}

#[test]
fn info_shows_attributes_members_and_consolidation() {
    let directory = tempfile::tempdir().unwrap();
    demo(directory.path(), &[]);
    let document = json(&cuzarr(&["info", "--json", text(directory.path())]));
    assert!(document["consolidated"].is_boolean(), "{document}");
    assert_eq!(document["direct_members"]["zstd-sharded"]["type"], "array");
    let readable = String::from_utf8(cuzarr(&["info", text(directory.path())]).stdout).unwrap();
    assert!(readable.contains("Members") && readable.contains("zstd-sharded ("), "{readable}");
}

#[test]
fn misspelt_paths_and_compressors_are_answered_with_the_nearest_name() {
    let directory = tempfile::tempdir().unwrap();
    demo(directory.path(), &[]);
    let hint = |arguments: &[&str]| json(&cuzarr(arguments))["error"]["hint"].as_str().unwrap_or("").to_string();
    let right = directory.path().join("zstd-sharded");
    let wrong = directory.path().join("zstd-shraded");
    assert_eq!(hint(&["info", "--json", text(&wrong)]), format!("did you mean '{}'?", right.display()));
    let target = directory.path().join("target");
    let compressor = hint(&["copy", "--json", text(&right), text(&target), "--compressor", "ztsd:3"]);
    assert!(compressor.starts_with("did you mean 'zstd'? "), "{compressor}");
}

#[test]
fn shells_and_man_are_served_from_the_declarations_of_the_help() {
    for shell in ["bash", "zsh", "fish"] {
        let output = cuzarr(&["completions", shell]);
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && script.contains("rechunk") && script.contains("memory-limit"), "{shell}");
    }
    let page = String::from_utf8(cuzarr(&["man"]).stdout).unwrap();
    assert!(page.contains(".TH cuzarr 1") && page.contains("rechunk"), "{page}");
    let directory = tempfile::tempdir().unwrap();
    let document = json(&cuzarr(&["man", "--json", text(directory.path())]));
    let pages: Vec<&str> = document["pages"].as_array().unwrap().iter().filter_map(|page| page.as_str()).collect();
    for page in ["cuzarr.1", "cuzarr-rechunk.1", "cuzarr-bench-read.1"] {
        assert!(pages.contains(&page), "{pages:?}");
        let name = page.trim_end_matches(".1");
        let text = std::fs::read_to_string(directory.path().join(page)).unwrap();
        assert!(text.contains(&format!(".TH {name} 1")), "{text}");
    }
}
