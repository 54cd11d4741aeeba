//! Every command on awkward data: all kinds of types, odd names, nothing at all, damage. And what commands must not do to it.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use cuzarr::internal::is_printable;
use serde_json::{Value, json};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cuzarr"));
    command.args(arguments).env_remove("COLUMNS").env_remove("NO_COLOR");
    command
}

/// With a signal not ignored, which a shell's jobs in the background and `nohup` do, or ignored.
fn command_that(disposition: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.arg(disposition).arg(env!("CARGO_BIN_EXE_cuzarr")).args(arguments);
    command
}

fn cuzarr(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the command starts")
}

fn document(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The status, and the kind and message of the error, of a command with `--json`.
fn refusal(arguments: &[&str]) -> (i32, String, String) {
    let output = cuzarr(&[arguments, &["--json"]].concat());
    let error = document(&output)["error"].clone();
    let text = |name: &str| format!("{} {}", error[name].as_str().unwrap_or(""), error["hint"].as_str().unwrap_or(""));
    (output.status.code().unwrap(), error["kind"].as_str().unwrap_or("").to_string(), text("message"))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// An array of one chunk, with these bytes.
fn array(place: &Path, data_type: &Value, shape: &[u64], bytes: &[u8]) {
    let fill = match data_type.as_str().unwrap_or("") {
        "bool" => json!(false),
        "string" => json!(""),
        "complex64" | "complex128" => json!([0.0, 0.0]),
        _ if data_type["name"] == "numpy.datetime64" || data_type["name"] == "numpy.timedelta64" => json!("NaT"),
        "r16" => json!([0, 0]),
        _ => json!(0),
    };
    let codec = if data_type == "string" {
        json!("vlen-utf8")
    } else {
        json!({"name": "bytes", "configuration": {"endian": "little"}})
    };
    let chunk: Vec<u64> = shape.iter().map(|&extent| extent.max(1)).collect();
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": data_type, "fill_value": fill,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}}, "codecs": [codec],
    });
    fs::create_dir_all(place).unwrap();
    fs::write(place.join("zarr.json"), document.to_string()).unwrap();
    if !bytes.is_empty() {
        let zeros = vec!["0"; shape.len()];
        fs::write(place.join([&["c"], &zeros[..]].concat().join(".")), bytes).unwrap();
    }
}

fn group(place: &Path) {
    fs::create_dir_all(place).unwrap();
    fs::write(place.join("zarr.json"), r#"{"zarr_format": 3, "node_type": "group", "attributes": {}}"#).unwrap();
}

fn words<const N: usize>(numbers: &[[u8; N]]) -> Vec<u8> {
    numbers.concat()
}

fn dates(name: &str, unit: &str) -> Value {
    json!({"name": name, "configuration": {"unit": unit, "scale_factor": 1}})
}

const DAYS: [i64; 4] = [19_782, i64::MIN, -1, 0];

/// Arrays of every kind, in a group with odd members, and places that are no arrays.
fn awkward(root: &Path) -> Vec<PathBuf> {
    let all = root.join("all");
    group(&all);
    let floats: Vec<u8> = words(&[1.5, f32::NAN, f32::INFINITY, -0.25].map(f32::to_le_bytes));
    let large = words(&[i64::MAX, i64::MAX - 1, (1 << 53) + 1, i64::MIN].map(i64::to_le_bytes));
    let unsigned = words(&[u64::MAX, 0, (1 << 53) + 1, 1 << 63].map(u64::to_le_bytes));
    let complex = words(&[1.0, 2.0, f64::NAN, -0.5, 0.0, f64::INFINITY, -3.0, -4.0].map(f64::to_le_bytes));
    let days = words(&DAYS.map(i64::to_le_bytes));
    for (name, data_type, shape, bytes) in [
        ("bool", json!("bool"), &[2u64, 2][..], vec![1, 0, 0, 1]),
        ("int8", json!("int8"), &[2, 2], vec![1, 255, 128, 127]),
        ("int64", json!("int64"), &[2, 2], large.clone()),
        ("uint64", json!("uint64"), &[2, 2], unsigned),
        ("float16", json!("float16"), &[2, 2], vec![0, 0x3c, 0, 0x7c, 0, 0x7e, 1, 0]),
        ("float32", json!("float32"), &[2, 2], floats),
        ("complex", json!("complex128"), &[2, 2], complex),
        ("days", dates("numpy.datetime64", "D"), &[2, 2], days.clone()),
        ("spans", dates("numpy.timedelta64", "s"), &[2, 2], days),
        ("raw", json!("r16"), &[2, 2], vec![0; 8]),
        ("strings", json!("string"), &[2], b"\x02\0\0\0\x01\0\0\0a\x01\0\0\0b".to_vec()),
        ("empty", json!("float64"), &[0, 3], Vec::new()),
        ("scalar", json!("int64"), &[], large[16..24].to_vec()),
        ("missing", json!("int32"), &[2, 2], Vec::new()),
        ("short", json!("int32"), &[2, 2], vec![1, 2, 3]),
        ("a\nfake  complete  0\tb", json!("uint8"), &[2, 2], vec![1, 2, 3, 4]),
        ("x\u{1b}[31m", json!("uint8"), &[2, 2], vec![1, 2, 3, 4]),
    ] {
        array(&all.join(name), &data_type, shape, &bytes);
    }
    let place = |name: &str| root.join(name);
    group(&place("nothing in it"));
    group(&place("damaged"));
    for (name, text) in [("damaged/array", "{"), ("unknown", r#"{"zarr_format": 3, "node_type": "array"}"#)] {
        fs::create_dir_all(place(name)).unwrap();
        fs::write(place(name).join("zarr.json"), text).unwrap();
    }
    fs::write(place("notes.txt"), "no store").unwrap();
    let mut places: Vec<PathBuf> = fs::read_dir(&all).unwrap().map(|entry| entry.unwrap().path()).collect();
    places.retain(|place| place.is_dir());
    places.sort();
    places.extend(["all", "nothing in it", "damaged", "unknown", "notes.txt", "not there"].map(place));
    places
}

/// All files and what they contain.
fn contents(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut files, mut folders) = (BTreeMap::new(), vec![root.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// The number of files below a folder. Files may come and go meanwhile.
fn count_files(folder: &Path) -> usize {
    let count = |path: PathBuf| if path.is_dir() { count_files(&path) } else { 1 };
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| count(entry.path())).sum()
}

/// What holds for every command, whatever it is given.
fn check(arguments: &[&str], output: &Output) {
    let shown = || format!("{arguments:?} {}", String::from_utf8_lossy(&output.stderr));
    let status = output.status.code().unwrap_or(-1);
    assert!((0..=2).contains(&status), "{status}: {}", shown());
    let told = String::from_utf8_lossy(&output.stderr);
    for words in ["panicked", "Some(", "None", "Err(", "invalid digit", "invalid float", "at line"] {
        assert!(!told.contains(words), "{words}: {}", shown());
    }
    for stream in [&output.stdout, &output.stderr] {
        let text = std::str::from_utf8(stream).expect("text");
        assert!(text.chars().all(|one| one == '\n' || is_printable(one)), "{}", shown());
    }
    if !arguments.contains(&"--json") {
        assert!(status == 0 || !told.is_empty() || !output.stdout.is_empty(), "{}", shown());
        return;
    }
    let error = document(output)["error"].clone();
    if error.is_null() {
        assert!(status < 2, "{}", shown());
        return;
    }
    let is_usage = error["kind"] == "InvalidArgument" || error["kind"] == "SelectionInvalid";
    assert_eq!(status, if is_usage { 2 } else { 1 }, "{error} {}", shown());
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{}", shown());
}

#[test]
fn every_command_answers_or_refuses_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("in");
    fs::create_dir_all(&root).unwrap();
    let places = awkward(&root);
    let before = contents(&root);
    std::thread::scope(|scope| {
        for (number, some) in places.chunks(places.len().div_ceil(4)).enumerate() {
            let out = directory.path().join(number.to_string());
            scope.spawn(move || some.iter().for_each(|place| every_command(place, &out)));
        }
    });
    assert!(contents(&root) == before, "a source was changed");
}

/// Runs all commands on a place. They write into the directory `out`.
fn every_command(place: &Path, out: &Path) {
    let (target, png) = (out.join("target"), out.join("picture.png"));
    let (path, named) = (text(place), format!("u={}", text(place)));
    let (target, png) = (text(&target), text(&png));
    for arguments in [
        &["info", path][..],
        &["info", "--complete", path],
        &["tree", path],
        &["validate", path],
        &["stats", path],
        &["stats", "--raw", path],
        &["stats", "--dry-run", path],
        &["stats", "--png", png, path],
        &["preview", path],
        &["preview", "--raw", "--width", "7", "--png", png, path],
        &["eval", "u", &named],
        &["eval", "u", &named, "--raw"],
        &["eval", "u + 1", &named, "-o", target],
        &["copy", path, target],
        &["copy", path, target, "--zarr-format", "2", "--compressor", "none"],
        &["rechunk", path, target, "--chunks", "1,1"],
        &["rechunk", path, target, "--chunks", "-1", "--dry-run"],
        &["pyramid", path, target, "--axes", "yx", "--levels", "1"],
        &["bench", "read", path, "--repeat", "1", "--verify"],
    ] {
        fs::create_dir_all(out).unwrap();
        let arguments = [arguments, if arguments.len() % 2 == 0 { &["--json"] } else { &[][..] }].concat();
        check(&arguments, &cuzarr(&arguments));
        fs::remove_dir_all(out).unwrap();
    }
}

#[test]
fn wrong_values_are_usage_errors_in_json_too() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("a");
    array(&place, &json!("uint8"), &[2, 2], &[1, 2, 3, 4]);
    let (path, target) = (text(&place), text(&directory.path().join("t")).to_string());
    for wrong in [
        &["copy", path, &target, "--memory-limit", "lots"][..],
        &["copy", path, &target, "--compressor", "zip"],
        &["copy", path, &target, "--codecs", "gzip"],
        &["copy", path, &target, "--zarr-format", "4"],
        &["copy", path, &target, "--device", "tpu"],
        &["copy", path, &target, "--overwrite", "--resume"],
        &["copy", path],
        &["rechunk", path, &target, "--chunks", "0"],
        &["rechunk", path, &target, "--chunks", "1,2,3"],
        &["rechunk", path, &target, "--chunks", "time=1"],
        &["preview", path, "--slice", "a"],
        &["preview", path, "--slice", "5,5"],
        &["preview", path, "--min", "low"],
        &["preview", path, "--min", "2", "--max", "1"],
        &["preview", path, "--level", "-1"],
        &["preview", path, "--level", "1"],
        &["preview", path, "--png", "x.gif"],
        &["pyramid", path, &target, "--scale", "a,b"],
        &["pyramid", path, &target, "--scale", "0,1"],
        &["pyramid", path, &target, "--scale", "inf,1"],
        &["pyramid", path, &target, "--method", "worst"],
        &["pyramid", path, &target, "--factors", "2,x"],
        &["eval", "1 +", path],
        &["eval", "open(u)", &format!("u={path}")],
        &["eval", "u", &format!("u={path}"), "-o", &target, "--chunks", "time=5"],
        &["bench", "read", path, "--repeat", "0"],
        &["tree", path, "--level", "many"],
        &["inof", path],
        &["info", path, "--no-such-option"],
    ] {
        let (status, kind, message) = refusal(wrong);
        assert_eq!(status, 2, "{wrong:?} {kind} {message}");
        assert!(kind == "InvalidArgument" || kind == "SelectionInvalid", "{wrong:?} {kind}");
        let readable = cuzarr(wrong);
        check(wrong, &readable);
        assert!(readable.stdout.is_empty() && readable.status.code() == Some(2), "{readable:?}");
    }
    assert!(!Path::new(&target).exists());
    let page = stdout(&cuzarr(&["man"]));
    assert!(page.contains("EXIT STATUS") && page.contains("wrong arguments"), "{page}");
}

#[test]
fn printed_elements_keep_what_stored_ones_keep() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join("all").join(name);
    awkward(directory.path());
    let print = |name: &str, expression: &str| {
        let named = format!("u={}", text(&place(name)));
        let output = cuzarr(&["eval", expression, &named]);
        assert!(output.status.success(), "{output:?}");
        (document(&cuzarr(&["eval", expression, &named, "--json"]))["values"].clone(), stdout(&output))
    };
    let expected = json!([[i64::MAX, i64::MAX - 1], [9_007_199_254_740_993i64, i64::MIN]]);
    assert_eq!(print("int64", "u").0, expected);
    assert_eq!(print("uint64", "max(u)"), (json!(u64::MAX), format!("{}\n", u64::MAX)));
    assert_eq!(print("int64", "u > 0"), (json!([[true, true], [true, false]]), "[[true,true],[true,false]]\n".into()));
    let (values, shown) = print("complex", "u");
    assert_eq!(values, json!([[[1.0, 2.0], ["NaN", -0.5]], [[0.0, "Infinity"], [-3.0, -4.0]]]));
    assert_eq!(shown, "[[1.0+2.0j,nan-0.5j],[0.0+infj,-3.0-4.0j]]\n");
    assert_eq!(print("float32", "u").1, "[[1.5,nan],[inf,-0.25]]\n");
    for name in ["days", "spans"] {
        let named = format!("u={}", text(&place(name)));
        let (status, kind, message) = refusal(&["eval", "u", &named]);
        assert_eq!((status, kind.as_str()), (1, "Unsupported"));
        assert!(message.contains("datetime64[D]") || message.contains("timedelta64[s]"), "{message}");
        let raw = document(&cuzarr(&["eval", "u", &named, "--raw", "--json"]))["values"].clone();
        assert_eq!(raw, json!([[DAYS[0], DAYS[1]], [DAYS[2], DAYS[3]]]));
        assert_eq!(refusal(&["preview", text(&place(name))]).1, "Unsupported");
    }
}

#[test]
fn statistics_of_large_integers_and_dates_are_exact() {
    let directory = tempfile::tempdir().unwrap();
    awkward(directory.path());
    let stats = |name: &str, more: &[&str]| {
        let path = directory.path().join("all").join(name);
        let output = cuzarr(&[&["stats", text(&path), "--json"], more].concat());
        let readable = stdout(&cuzarr(&[&["stats", text(&path)], more].concat()));
        (document(&output)["arrays"][0].clone(), readable)
    };
    let counted = |found: &Value| {
        let counts = found["histogram"]["counts"].as_array().unwrap();
        counts.iter().map(|count| count.as_u64().unwrap()).sum::<u64>()
    };
    for (name, least, greatest) in [("int64", json!(i64::MIN), json!(i64::MAX)), ("uint64", json!(0), json!(u64::MAX))]
    {
        let (found, readable) = stats(name, &[]);
        assert_eq!((&found["min"], &found["max"]), (&least, &greatest), "{name}");
        assert_eq!(counted(&found), 4, "{name}: {found}");
        assert!(readable.contains(&format!("max {greatest}")), "{readable}");
    }
    let (found, readable) = stats("days", &[]);
    assert_eq!((&found["min"], &found["max"], &found["nan"]), (&json!("1969-12-31"), &json!("2024-02-29"), &json!(1)));
    assert_eq!((&found["units"], counted(&found)), (&json!("D"), 3));
    assert!(readable.contains("missing 1") && readable.contains("min 1969-12-31  max 2024-02-29"), "{readable}");
    assert_eq!(stats("spans", &[]).0["min"], "-1 s");
    assert_eq!(stats("days", &["--raw"]).0["min"], json!(i64::MIN));
    let (found, _) = stats("float32", &[]);
    assert_eq!((&found["min"], &found["max"], &found["infinite"]), (&json!(-0.25), &json!("Infinity"), &json!(1)));
}

#[test]
fn pictures_are_not_written_over_what_is_read_nor_over_other_files() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    let source = place("a");
    array(&source, &json!("uint8"), &[2, 2], &[1, 2, 3, 4]);
    assert!(cuzarr(&["copy", text(&source), text(&place("z.zip"))]).status.success());
    let packed = place("packed.png");
    fs::copy(place("z.zip"), &packed).unwrap();
    std::os::unix::fs::symlink(&packed, place("link.png")).unwrap();
    fs::hard_link(&packed, place("hard.png")).unwrap();
    std::os::unix::fs::symlink(&source, place("way")).unwrap();
    fs::write(place("notes.png"), "notes").unwrap();
    fs::write(place("data.png"), b"\x89HDF\r\n\x1a\n and more").unwrap();
    let pipe = tempfile::tempdir().unwrap();
    let pipe = pipe.path().join("pipe.png");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let before = contents(directory.path());
    for command in [&["stats"][..], &["preview"], &["bench", "read", "--repeat", "1"]] {
        let option = if command[0] == "bench" { "--plot" } else { "--png" };
        let refuse = |source: &Path, picture: &Path, more: &[&str], status: i32, words: &str| {
            let arguments = [command, &[text(source), option, text(picture)], more].concat();
            let (got, _, message) = refusal(&arguments);
            assert!(got == status && message.contains(words), "{arguments:?}: {got} {message}");
        };
        refuse(&place("z.zip"), &place("z.zip"), &["--overwrite"], 2, "use a name that ends in");
        for picture in ["packed.png", "link.png", "hard.png"] {
            refuse(&packed, &place(picture), &["--overwrite"], 2, "belongs to what is read");
        }
        for folder in [&source, &place("way")] {
            refuse(&source, &folder.join("new.png"), &[], 2, "belongs to what is read");
            refuse(&place("way"), &folder.join("new.png"), &["--overwrite"], 2, "belongs to what is read");
        }
        refuse(&source, &place("notes.png"), &[], 1, "--overwrite");
        refuse(&source, &place("notes.png"), &["--dry-run"], 1, "--overwrite");
        refuse(&source, &pipe, &[], 1, "it exists and is not a picture");
        refuse(&source, &place("data.png"), &["--overwrite"], 1, "it is an HDF5 file");
    }
    assert!(contents(directory.path()) == before);
    let draw =
        |more: &[&str]| cuzarr(&[&["preview", text(&source), "--png", text(&place("notes.png"))], more].concat());
    assert!(draw(&["--overwrite"]).status.success());
    assert!(fs::read(place("notes.png")).unwrap().starts_with(b"\x89PNG"));
    assert!(draw(&[]).status.success(), "a picture is drawn again");
}

#[test]
fn a_target_around_a_table_that_is_read_is_not_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("d");
    fs::create_dir(&folder).unwrap();
    let array = json!({"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "|u1", "fill_value": 0, "order": "C",
        "filters": null, "compressor": null});
    let table = json!({"version": 1, "refs": {".zgroup": r#"{"zarr_format": 2}"#, "v/.zarray": array.to_string(), "v/0": "ab"}});
    fs::write(folder.join("t.json"), table.to_string()).unwrap();
    let (url, before) = (format!("reference::{}", text(&folder.join("t.json"))), contents(&folder));
    let named = format!("u={url}");
    for arguments in [
        &["copy", &url, text(&folder), "--overwrite"][..],
        &["rechunk", &url, text(&folder), "--chunks", "1", "--overwrite"],
        &["copy", &url, text(&folder.join("t.json")), "--overwrite"],
        &["eval", "u", &named, "-o", text(&folder), "--overwrite"],
    ] {
        let (status, kind, message) = refusal(arguments);
        assert!(status != 0 && !kind.is_empty(), "{arguments:?} {message}");
        assert!(contents(&folder) == before, "{arguments:?}");
    }
    // The form that names an array inside of a table or an archive.
    let wrong = format!("{url}/v");
    let (status, _, message) = refusal(&["stats", &wrong]);
    let right = format!("reference://v::{}", text(&folder.join("t.json")));
    assert!(status != 0 && message.contains(&right), "{message}");
    assert!(cuzarr(&["stats", &right]).status.success());
    let zip = directory.path().join("g.zip");
    assert!(cuzarr(&["copy", &url, text(&zip)]).status.success());
    for wrong in [format!("zip::{}/v", text(&zip)), format!("{}/v", text(&zip))] {
        let (status, _, message) = refusal(&["stats", &wrong]);
        let right = format!("zip://v::{}", text(&zip));
        assert!(status != 0 && message.contains(&right), "{message}");
        assert!(cuzarr(&["stats", &right]).status.success());
    }
}

#[test]
fn a_demo_replaces_no_arrays_unasked() {
    let directory = tempfile::tempdir().unwrap();
    array(&directory.path().join("zstd"), &json!("uint8"), &[2, 2], &[1, 2, 3, 4]);
    let before = contents(&directory.path().join("zstd"));
    let (status, kind, _) = refusal(&["demo", "--device", "cpu", "--size-mib", "1", "--keep", text(directory.path())]);
    assert_eq!((status, kind.as_str()), (1, "ContainsArray"));
    assert!(contents(&directory.path().join("zstd")) == before);
}

/// An array whose elements take a while to compress well, in many chunks.
fn slow(place: &Path) {
    let names: Vec<u8> =
        (0..96u32 * 128 * 128).flat_map(|at| (at.wrapping_mul(2_654_435_761) >> 8).to_le_bytes()).collect();
    array(place, &json!("uint32"), &[96, 128, 128], &names);
}

/// Waits until a command has stored something below a place, and is not ready.
fn wait_for_chunks(child: &mut std::process::Child, place: &Path) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while fs::read_dir(place).map_or(0, |entries| entries.count()) < 2 {
        assert!(child.try_wait().unwrap().is_none() && Instant::now() < deadline, "it ended before it was stopped");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn signal(child: &std::process::Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn a_killed_computation_is_no_array_until_it_is_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    slow(&from);
    let named = format!("u={}", text(&from));
    let arguments = [
        "eval",
        "u + u",
        &named,
        "-o",
        text(&to),
        "--chunks",
        "2,128,128",
        "--compressor",
        "zstd:19",
        "--memory-limit",
        "8 MiB",
    ];
    for stop in ["-KILL", "-INT"] {
        let mut evaluation = command_that("--default-signal=INT", &arguments);
        let mut child = evaluation.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_for_chunks(&mut child, &to);
        signal(&child, stop);
        let ended = child.wait_with_output().unwrap();
        if stop == "-INT" {
            let told = String::from_utf8_lossy(&ended.stderr);
            assert!(
                ended.status.signal() == Some(2) && told.contains("interrupted") && told.contains("--resume"),
                "{told}"
            );
        }
        assert!(!to.join("zarr.json").exists(), "half an array can be opened");
        for command in ["info", "validate", "stats"] {
            let (status, kind, message) = refusal(&[command, text(&to)]);
            assert_eq!((status, kind.as_str()), (1, "NodeNotFound"), "{command}");
            assert!(message.contains("unfinished") && message.contains("--resume"), "{message}");
        }
        assert_eq!(refusal(&arguments).1, "ContainsArray");
        assert_eq!(refusal(&[&arguments[..], &["--dry-run"]].concat()).1, "ContainsArray");
        let more = if stop == "-INT" { "--resume" } else { "--overwrite" };
        if stop == "-KILL" {
            let dry = cuzarr(&[&arguments[..], &["--resume", "--dry-run"]].concat());
            assert!(dry.status.success(), "{dry:?}");
            fs::remove_dir_all(&to).unwrap();
            continue;
        }
        let ended = cuzarr(&[&arguments[..], &[more]].concat());
        assert!(ended.status.success(), "{ended:?}");
    }
    let names: Vec<String> =
        contents(&to).keys().map(|path| path.file_name().unwrap().to_string_lossy().into()).collect();
    assert!(!names.iter().any(|name| name.starts_with(".cuzarr")), "{names:?}");
    let two = format!("t={}", text(&to));
    let right = cuzarr(&["eval", "all(t == u + u)", &named, &two, "--json"]);
    assert_eq!(document(&right)["values"], true);
    let (status, kind, message) = refusal(&[&arguments[..], &["--resume"]].concat());
    assert_eq!((status, kind.as_str()), (1, "ContainsArray"));
    assert!(message.contains("complete"), "{message}");
}

#[test]
fn a_computation_keeps_shards_and_takes_chunks_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let (from, sharded) = (directory.path().join("from"), directory.path().join("sharded"));
    array(&from, &json!("uint8"), &[8, 8], &[7; 64]);
    let mut metadata: Value = serde_json::from_slice(&fs::read(from.join("zarr.json")).unwrap()).unwrap();
    metadata["dimension_names"] = json!(["time", "x"]);
    fs::write(from.join("zarr.json"), metadata.to_string()).unwrap();
    let shards = ["rechunk", text(&from), text(&sharded), "--chunks", "2,2", "--shards", "4,8"];
    assert!(cuzarr(&shards).status.success());
    let named = format!("u={}", text(&sharded));
    let shapes = |name: &str, more: &[&str]| {
        let to = directory.path().join(name);
        let output = cuzarr(&[&["eval", "u + 1", &named, "-o", text(&to)], more].concat());
        assert!(output.status.success(), "{output:?}");
        let info = document(&cuzarr(&["info", "--json", text(&to)]));
        (info["chunk_shape"].clone(), info["shard_shape"].clone())
    };
    assert_eq!(shapes("kept", &[]), (json!([2, 2]), json!([4, 8])));
    assert_eq!(shapes("named", &["--chunks", "time=5"]), (json!([5, 2]), Value::Null));
    assert_eq!(shapes("given", &["--chunks", "1,-1", "--shards", "time=4"]), (json!([1, 8]), json!([4, 8])));
    assert_eq!(shapes("none", &["--shards", "none"]), (json!([2, 2]), Value::Null));
    let kept = directory.path().join("kept");
    let again = ["eval", "u + 1", &named, "-o", text(&kept), "--dry-run"];
    assert_eq!(refusal(&again).1, "ContainsArray", "a dry run refuses what the run refuses");
}

#[test]
fn chunks_that_fit_no_array_of_a_group_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    awkward(directory.path());
    fs::remove_dir_all(directory.path().join("all/short")).unwrap();
    let (all, to) = (directory.path().join("all"), directory.path().join("to"));
    for option in ["--chunks", "--shards"] {
        let chunks: &[&str] = if option == "--shards" { &["--chunks", "1,1"] } else { &[] };
        let (status, kind, message) = refusal(&[&["rechunk", text(&all), text(&to), option, "2,2,2"], chunks].concat());
        assert_eq!((status, kind.as_str()), (2, "InvalidArgument"));
        assert!(message.contains("3 dimensions") && message.contains("0, 1, 2"), "{message}");
    }
    assert!(!to.exists());
    let rows = stdout(&cuzarr(&["copy", text(&all), text(&to), "--dry-run"]));
    let arrays = fs::read_dir(&all).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count();
    assert_eq!(rows.lines().count(), arrays + 1, "a name makes no rows: {rows}");
}

#[test]
fn a_full_disk_is_a_failure_and_a_closed_pipe_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("a");
    array(&place, &json!("uint8"), &[2, 2], &[1, 2, 3, 4]);
    for arguments in [
        &["info", text(&place)][..],
        &["info", "--json", text(&place)],
        &["preview", text(&place)],
        &["--help"],
        &["--version"],
        &["man"],
        &["completions", "bash"],
        &["info", "--json", "nowhere"],
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command(arguments).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(1) && told.contains("cannot write to standard output"),
            "{arguments:?} {told}"
        );
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command(arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(i32::from(arguments.contains(&"nowhere"))), "{arguments:?} {output:?}");
        assert!(!String::from_utf8_lossy(&output.stderr).contains("standard output"), "{arguments:?}");
    }
}

/// Starts a demo, and waits until it has stored something.
fn begun_demo(disposition: &str, directory: &Path) -> std::process::Child {
    let mut demo = command_that(disposition, &["demo", "--device", "cpu", "--size-mib", "512"]);
    let mut child = demo.env("TMPDIR", directory).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    while count_files(directory) < 3 {
        assert!(child.try_wait().unwrap().is_none() && Instant::now() < deadline, "it ended before it was stopped");
        std::thread::sleep(Duration::from_millis(1));
    }
    child
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let child = begun_demo("--default-signal=INT", directory.path());
    signal(&child, "-INT");
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.signal(), Some(2), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("interrupted"));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let child = begun_demo("--ignore-signal=HUP", directory.path());
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & 1, 1, "{status}");
    signal(&child, "-HUP");
    signal(&child, "-TERM");
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.signal(), Some(15), "{ended:?}");
}

#[test]
fn a_preview_follows_the_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("a");
    array(&place, &json!("uint8"), &[4, 200], &[9; 800]);
    let drawn = command(&["preview", text(&place)]).env("COLUMNS", "40").output().unwrap();
    let widest = stdout(&drawn).lines().skip(2).map(|line| line.chars().count()).max();
    assert!(widest.is_some_and(|widest| widest <= 40 && widest > 20), "{drawn:?}");
    if Command::new("script").arg("--version").output().is_err() {
        println!("skipped: no program 'script', which gives a terminal");
        return;
    }
    let on_a_terminal = |no_colour: &str| {
        let call = format!("{} preview '{}'", env!("CARGO_BIN_EXE_cuzarr"), text(&place));
        let mut terminal = Command::new("script");
        terminal
            .args(["-qec", &call, "/dev/null"])
            .env("NO_COLOR", no_colour)
            .env_remove("COLUMNS")
            .stdin(Stdio::null());
        stdout(&terminal.output().unwrap())
    };
    assert!(on_a_terminal("").contains("\u{1b}[38;2;") && !on_a_terminal("1").contains("\u{1b}[38;2;"));
}
