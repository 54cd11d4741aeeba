//! What a profiler is told: ranges of every stage, on every device. The profiler is one of our own (`fake_profiler.c`); a
//! process loads one at most, so each story runs in a process of its own.

mod model;

use std::collections::{HashMap, HashSet};
use std::process::Command;
use std::sync::Arc;

use cuzarr::internal::run::tuning;
use cuzarr::plan::Selection;
use cuzarr::store::MemoryStore;
use model::{Story, bytes_codec, devices, kernel_devices, make_library, metadata};
use serde_json::json;

const CHILD: &str = "CUZARR_PROFILE_CHILD";

/// Runs the test of this name in a process that a profiler listens to; gives what it heard.
fn listen(name: &str, compiled: bool) -> Vec<Vec<String>> {
    let directory = tempfile::tempdir().unwrap();
    let (library, log) = (directory.path().join("libprofiler.so"), directory.path().join("log"));
    if compiled {
        make_library("fake_profiler", &library);
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .env("NVTX_INJECTION64_PATH", &library)
        .env("CUZARR_FAKE_PROFILER_LOG", &log)
        .output()
        .unwrap();
    let words = [output.stdout, output.stderr].map(|words| String::from_utf8_lossy(&words).into_owned());
    assert!(output.status.success(), "{words:?}");
    let log = std::fs::read_to_string(&log).unwrap_or_default();
    log.lines().map(|line| line.split(' ').map(String::from).collect()).collect()
}

/// Writes and reads an array on every device.
fn work() {
    let blosc = json!({"name": "blosc", "configuration":
        {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}});
    let codecs = json!([bytes_codec("little"), blosc]);
    let all = Selection::all(&[64, 64]);
    let value: Vec<u8> = (0..64 * 64u32).flat_map(|at| (at / 9).to_ne_bytes()).collect();
    for device in devices() {
        let store = Arc::new(MemoryStore::new());
        let mut story = Story::new(metadata(&[64, 64], &[16, 64], "uint32", json!(0), codecs.clone()), store);
        tuning(&mut story.options).force_device = true;
        story.write(device, &all, &value);
        story.check(device, &all, "with a profiler");
    }
}

#[test]
fn a_profiler_hears_every_stage() {
    if std::env::var_os(CHILD).is_some() {
        return work();
    }
    let heard = listen("a_profiler_hears_every_stage", true);
    assert_eq!(heard[0][..3], ["domain", "0", "cuzarr"].map(String::from));
    let (mut open, mut pending) = (HashMap::<&str, usize>::new(), HashSet::new());
    let mut names = HashSet::new();
    for line in &heard[1..] {
        let [what, thread, name, size_bytes, number] = &line[..] else { panic!("{line:?}") };
        match what.as_str() {
            "push" => *open.entry(thread).or_default() += 1,
            "pop" => *open.get_mut(thread.as_str()).filter(|open| **open > 0).unwrap() -= 1,
            "start" => assert!(pending.insert(number)),
            "end" => assert!(pending.remove(number)),
            _ => panic!("{line:?}"),
        }
        if matches!(what.as_str(), "push" | "start") {
            names.insert(name.as_str());
            assert!(!["read", "write"].contains(&name.as_str()) || size_bytes == "16384", "{line:?}");
        }
    }
    assert!(open.values().all(|&open| open == 0) && pending.is_empty(), "every range ends");
    let mut expected = HashSet::from(["read", "write", "fetch", "decode", "gather", "encode", "flush"]);
    // Whole chunks are decoded in their place on the host; only devices scatter them.
    if !kernel_devices().is_empty() {
        expected.extend(["upload", "scatter", "download"]);
    }
    assert!(expected.is_subset(&names), "{names:?}");
}

#[test]
fn a_profiler_that_is_not_there_is_not_missed() {
    if std::env::var_os(CHILD).is_some() {
        return work();
    }
    assert!(listen("a_profiler_that_is_not_there_is_not_missed", false).is_empty());
}
