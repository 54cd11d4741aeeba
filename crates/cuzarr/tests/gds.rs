//! Reading and writing by cuFile: on a GPU with NVIDIA's library where it is installed, without a GPU with one of our own
//! (`fake_cufile.c`), into memory of `simt`. What a process loaded it keeps, so each story runs in a process of its own.

mod model;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use cuzarr::ErrorKind;
use cuzarr::plan::Selection;
use cuzarr::run::Stage;
use cuzarr::store::{Gds, GdsStore, LocalOptions, LocalStore, Store, StoreExt};
use cuzarr_device::internal::CuFile;
use cuzarr_device::{Buffer, Device, NdBuffer, Order};
use model::{
    Dice, Story, bytes_codec, devices, make_library, metadata, random_metadata, say_skipped, sharding, zstd_codec,
};
use serde_json::{Value, json};

const CHILD: &str = "CUZARR_GDS_CHILD";

fn is_child(name: &str) -> bool {
    std::env::var_os(CHILD).is_some_and(|own| own == name)
}

/// The library for tests.
fn fake(directory: &Path) -> PathBuf {
    let library = directory.join("libcufile.so.0");
    make_library("fake_cufile", &library);
    library
}

/// Runs a test of this file in a process with these variables and the library for tests; gives what it said, and the calls
/// of the library.
fn child(name: &str, variables: &[(&str, &str)]) -> (String, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let output = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, name)
        .env("CUZARR_CUFILE_LIBRARY", fake(directory.path()))
        .env("CUZARR_FAKE_CUFILE_LOG", &log)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let words = [output.stdout, output.stderr].map(|words| String::from_utf8_lossy(&words).into_owned()).concat();
    assert!(output.status.success(), "{words}");
    if let Some((_, reason)) = words.lines().find_map(|line| line.strip_prefix("skipped: ")?.split_once(": ")) {
        say_skipped(reason);
    }
    let calls = std::fs::read_to_string(&log).unwrap_or_default();
    (words, calls.lines().map(String::from).collect())
}

fn count(calls: &[String], call: &str) -> usize {
    calls.iter().filter(|line| *line == call).count()
}

fn has_simt() -> bool {
    match Buffer::empty(Device::Simt, 1) {
        Ok(_) => true,
        Err(error) => {
            say_skipped(&error.to_string());
            false
        }
    }
}

fn store(directory: &Path, gds: Gds) -> Arc<GdsStore> {
    Arc::new(GdsStore::new(directory.join("root"), gds, LocalOptions::default()).unwrap())
}

fn written(store: Arc<dyn Store>, device: Device, codecs: Value) -> Story {
    let mut story = Story::new(metadata(&[150, 140], &[40, 50], "int32", json!(-7), codecs), store);
    let value: Vec<u8> = (0..110 * 140).flat_map(|at: i32| (at / 7 + at % 5).to_le_bytes()).collect();
    story.write(device, &Selection::region(&[0, 0], &[110, 140]).unwrap(), &value);
    story
}

/// What holds with any cuFile, on `device`.
fn check_everything(device: Device) {
    let all = Selection::all(&[150, 140]);
    let lz4 = json!({"name": "numcodecs.lz4", "configuration": {"acceleration": 1}});
    for codecs in [
        json!([bytes_codec("little")]),
        json!([bytes_codec("big"), lz4]),
        json!([bytes_codec("little"), zstd_codec()]),
        sharding(&[20, 25], json!([bytes_codec("little")]), "end"),
        sharding(&[8, 10], json!([bytes_codec("little"), lz4]), "start"),
    ] {
        for from in [Device::Cpu, device] {
            let directory = tempfile::tempdir().unwrap();
            let mut story = written(store(directory.path(), Gds::On), from, codecs.clone());
            let context = format!("{codecs} from {from}");
            story.check(device, &all, &context);
            story.check(Device::Cpu, &all, &context);
            let mut dice = Dice(5);
            (0..3).for_each(|_| story.check(device, &story.random_selection(&mut dice), &context));
            story.store = Arc::new(LocalStore::new(directory.path().join("root")).unwrap());
            story.check(Device::Cpu, &all, &context);
        }
    }
    for seed in 0..25 {
        let (directory, mut dice) = (tempfile::tempdir().unwrap(), Dice(seed));
        let mut story = Story::new(random_metadata(&mut dice), store(directory.path(), Gds::On));
        for _ in 0..2 {
            let selection = story.random_selection(&mut dice);
            let value = story.random_value(&mut dice, &selection);
            story.write(dice.pick(&[Device::Cpu, device]), &selection, &value);
            story.check(device, &story.random_selection(&mut dice), &format!("seed {seed}"));
        }
    }
}

#[test]
fn child_reads_and_writes() {
    if is_child("child_reads_and_writes") && has_simt() {
        check_everything(Device::Simt);
    }
}

#[test]
fn arrays_are_the_same_by_cufile() {
    let (words, calls) = child("child_reads_and_writes", &[]);
    let numbers = ["open", "read", "write"].map(|call| count(&calls, call));
    let used = numbers[0] == 1 && numbers[1] > 100 && numbers[2] > 10;
    assert!(used || words.contains("skipped"), "{numbers:?} {words}");
}

/// Why NVIDIA's library takes no file of the temporary folder: in a container without its host's description of drives.
fn refuses_files_here(device: Device) -> Option<String> {
    let directory = tempfile::tempdir().unwrap();
    let story = written(store(directory.path(), Gds::Auto), Device::Cpu, json!([bytes_codec("little")]));
    let by_cufile: Arc<dyn Store> = store(directory.path(), Gds::On);
    let out = NdBuffer::empty(device, story.dtype, &[150, 140], Order::C).unwrap();
    let all = Selection::all(&[150, 140]);
    let error = story.engine.read(&story.access(device), &by_cufile, &all, &out, &story.options).err()?;
    error.message().contains("/run/udev").then(|| error.to_string())
}

#[test]
fn arrays_are_the_same_by_nvidias_cufile() {
    // In the process of the test itself: whatever library is installed.
    for device in devices().into_iter().filter(|device| matches!(device, Device::Cuda(_))) {
        match CuFile::get() {
            Ok(cufile) => {
                println!("cuFile at {}, direct: {}", cufile.path().display(), cufile.is_direct());
                if let Some(reason) = refuses_files_here(device) {
                    say_skipped(&reason.to_string());
                    continue;
                }
                check_everything(device);
            }
            Err(error) => say_skipped(&error.to_string()),
        }
    }
}

#[test]
fn child_reads_twice() {
    if !is_child("child_reads_twice") || !has_simt() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let story = written(store(directory.path(), Gds::On), Device::Cpu, json!([bytes_codec("little")]));
    for _ in 0..3 {
        story.check(Device::Simt, &Selection::all(&[150, 140]), "again");
    }
    let report = {
        let out = NdBuffer::empty(Device::Simt, story.dtype, &[150, 140], Order::C).unwrap();
        let all = Selection::all(&[150, 140]);
        story.engine.read(&story.access(Device::Simt), &story.store, &all, &out, &story.options).unwrap()
    };
    assert_eq!(report.stage(Stage::Upload).size_bytes, 0);
    // A value that is replaced is another file.
    story.store.write("a/c/0/0", &[1; 8000]).unwrap();
    let read = story.try_read(Device::Simt, &Selection::region(&[0, 0], &[1, 1]).unwrap()).unwrap();
    assert_eq!(read, [1; 4]);
}

#[test]
fn a_file_is_registered_once() {
    let (words, calls) = child("child_reads_twice", &[]);
    // 9 chunks, one of them replaced.
    assert!(count(&calls, "register") == 10 || words.contains("skipped"), "{calls:?}");
}

#[test]
fn child_leaves_it_to_us() {
    if !is_child("child_leaves_it_to_us") || !has_simt() {
        return;
    }
    for gds in [Gds::Auto, Gds::Off] {
        let directory = tempfile::tempdir().unwrap();
        let story = written(store(directory.path(), gds), Device::Simt, json!([bytes_codec("little")]));
        story.check(Device::Simt, &Selection::all(&[150, 140]), "by slabs");
    }
}

#[test]
fn without_the_kernel_module_slabs_are_faster_and_taken() {
    let (words, calls) = child("child_leaves_it_to_us", &[]);
    assert!(calls == ["open"] || words.contains("skipped"), "{calls:?}");
    let (words, calls) = child("child_leaves_it_to_us", &[("CUZARR_FAKE_CUFILE_DIRECT", "1")]);
    assert!(count(&calls, "read") > 0 || words.contains("skipped"), "{calls:?}");
    // File systems that cuFile refuses go by way of the host.
    let refused = [("CUZARR_FAKE_CUFILE_DIRECT", "1"), ("CUZARR_FAKE_CUFILE_REGISTER", "5027")];
    let (words, calls) = child("child_leaves_it_to_us", &refused);
    let by_host = count(&calls, "read") == 0 && count(&calls, "register") > 0;
    assert!(by_host || words.contains("skipped"), "{calls:?}");
}

#[test]
fn child_meets_a_failure() {
    if !is_child("child_meets_a_failure") || !has_simt() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), Gds::On);
    store.write("a/c/0/0", &[3; 8000]).unwrap();
    let story = Story::new(
        metadata(&[40, 50], &[40, 50], "int32", json!(-7), json!([bytes_codec("little")])),
        Arc::clone(&store) as Arc<dyn Store>,
    );
    let all = Selection::all(&[40, 50]);
    if let Err(error) = story.try_read(Device::Simt, &all) {
        assert!(error.to_string().contains("a/c/0/0"), "{error}");
        println!("reading: {:?}: {error}", error.kind());
    }
    assert_eq!(story.engine.memory(Device::Simt).used_bytes(), 0);
    if let Err(error) = story.try_write(Device::Simt, &all, &[4; 8000]) {
        assert!(error.to_string().contains("a/c/0/0"), "{error}");
        println!("writing: {:?}: {error}", error.kind());
        assert_eq!(store.get("a/c/0/0").unwrap().unwrap(), [3; 8000], "the old value stays");
        assert_eq!(std::fs::read_dir(store.root().join("a/c/0")).unwrap().count(), 1, "and nothing else does");
    }
}

#[test]
fn failures_name_the_chunk_and_leave_the_old_value() {
    let cases = [
        (("CUZARR_FAKE_CUFILE_READ", "-5008"), "the file system is not supported"),
        (("CUZARR_FAKE_CUFILE_READ", "0"), "the file is shorter"),
        (("CUZARR_FAKE_CUFILE_REGISTER", "5027"), "hint: set gds to 'auto'"),
        (("CUZARR_FAKE_CUFILE_REGISTER", "5027"), "/run/udev"),
        (("CUZARR_FAKE_CUFILE_WRITE", "1"), "writing"),
        (("CUZARR_FAKE_CUFILE_OPEN", "5001"), "nvidia-fs module is not loaded"),
        (("CUZARR_CUFILE_LIBRARY", "/nonexistent/libcufile.so"), "/nonexistent/libcufile.so"),
    ];
    for (variable, expected) in cases {
        let (words, _) = child("child_meets_a_failure", &[variable]);
        assert!(words.contains(expected) || words.contains("skipped"), "{variable:?}: {words}");
    }
}

#[test]
fn a_missing_library_is_told_with_a_hint() {
    let (words, _) = child("child_meets_a_failure", &[("CUZARR_CUFILE_LIBRARY", "/nonexistent/libcufile.so")]);
    let told = words.contains("LibraryMissing") && words.contains("hint:");
    assert!(told || words.contains("skipped"), "{words}");
}

#[test]
fn host_memory_is_not_for_cufile() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), Gds::On);
    assert!(!store.is_on(Device::Cpu));
    store.write_buffer("c/0", &Buffer::from_vec(vec![5; 9])).unwrap();
    assert_eq!(store.get("c/0").unwrap().unwrap(), [5; 9]);
    assert_eq!("perhaps".parse::<Gds>().unwrap_err().kind(), ErrorKind::ConfigInvalid);
}
