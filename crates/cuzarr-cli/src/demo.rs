//! `cuzarr demo`: writes and reads arrays whose values come from a formula.
//!
//! The arrays are written with several codecs, sharded and unsharded. Each is read back into device memory twice: as
//! fast as the machine allows, and within a memory limit that is smaller than the array. Every element of both reads is
//! compared with the formula.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use cuzarr::internal::cores;
use cuzarr::meta::{ArrayMetadata, DataType, Extension};
use cuzarr::node::{Array, ArrayOptions};
use cuzarr::plan::Selection;
use cuzarr::run::Report;
use cuzarr::store::{LocalStore, Store};
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_device::{DType, Device, NdBuffer, Order};
use serde_json::{Map, Value, json};

use crate::output::{self, Output};
use crate::{Verdict, interrupt, nodes};

const CHUNK: [u64; 3] = [4, 256, 512];
const SHARD: [u64; 3] = [8, 512, 512];
const PLANE: [u64; 2] = [512, 1024];
/// Number of times that an array is read into a GPU; the fastest time is shown. A read takes milliseconds, and the
/// first one also loads the kernels.
const GPU_READS: usize = 4;

#[derive(Args)]
pub struct Demo {
    /// Device to read into: cpu or cuda:N [default: a GPU if there is one]
    #[arg(long)]
    device: Option<Device>,
    /// Size of each array in MiB, rounded up to whole shards (default: 1024 on a GPU, 128 on the CPU)
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=65536))]
    size_mib: Option<u64>,
    /// Memory limit of the second read, in MiB; smaller than the array, so that the read has to stream
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=65536))]
    budget_mib: u64,
    /// Keep the arrays in this directory instead of a temporary one
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Replace arrays of the demo's names in that directory
    #[arg(long, requires = "keep")]
    overwrite: bool,
    /// Change one stored byte before reading, to see the demo fail
    #[arg(long)]
    flip_a_byte: bool,
    /// Show which arrays would be written, then stop
    #[arg(long)]
    dry_run: bool,
}

/// How one of the demo's arrays is stored.
struct Case {
    name: &'static str,
    codec: Option<(&'static str, Value)>,
    sharded: bool,
}

/// The measurements and findings for one of the demo's arrays.
struct Outcome {
    case: &'static str,
    array_bytes: u64,
    stored_bytes: u64,
    write_seconds: f64,
    read_seconds: f64,
    /// Seconds of the second read, within the memory limit; `None` if the first read failed.
    budget_seconds: Option<f64>,
    verified: bool,
    failure: Option<Error>,
    report: Option<Report>,
}

impl Demo {
    pub fn run(self, output: &mut Output) -> Result<Verdict> {
        if let Some(keep) = &self.keep {
            nodes::target_directory(&keep.to_string_lossy())?;
        }
        if self.dry_run {
            return self.show_plan(output);
        }
        let temporary = tempfile::tempdir().map_err(|error| io("make a temporary directory", error))?;
        interrupt::remove_at_the_end(temporary.path().to_path_buf());
        let root = self.keep.as_deref().unwrap_or(temporary.path());
        let device = self.device.unwrap_or_else(best_device);
        let cases = cases();
        let mut outcomes = Vec::new();
        for (index, case) in cases.iter().enumerate() {
            output.progress(&format!("demo: {}", case.name), index as u64, cases.len() as u64);
            outcomes.push(self.play(root, device, case)?);
        }
        let verified = outcomes.iter().all(|outcome| outcome.verified);
        let document = json!({
            "verified": verified,
            "device": device.to_string(),
            "budget_bytes": self.budget_mib << 20,
            "arrays": outcomes.iter().map(Outcome::to_json).collect::<Vec<_>>(),
        });
        output.answer(&document, &self.text(device, &outcomes));
        Ok(if verified { Verdict::Passed } else { Verdict::Failed })
    }

    /// Writes, reads and checks one of the demo's arrays. Corrupt data is an outcome, not an error.
    fn play(&self, root: &Path, device: Device, case: &Case) -> Result<Outcome> {
        let store: Arc<dyn Store> = Arc::new(LocalStore::new(root)?);
        let plain = ArrayOptions::default().with_device(device).with_cancellation(interrupt::cancellation());
        let metadata = case.metadata(self.planes(device))?;
        let array = Array::create(store.clone(), case.name, metadata, self.overwrite, plain.clone())
            .map_err(|error| error.with_hint("use `overwrite`, or another directory"))?;
        let write_seconds = write(&array, device)?;
        let stored_bytes = array.nbytes_stored()?;
        if self.flip_a_byte {
            flip_a_byte(&root.join(case.name))?;
        }
        let mut outcome = Outcome {
            case: case.name,
            array_bytes: self.array_bytes(device),
            stored_bytes,
            write_seconds,
            read_seconds: f64::INFINITY,
            budget_seconds: None,
            verified: true,
            failure: None,
            report: None,
        };
        let times = if device == Device::Cpu { 1 } else { GPU_READS };
        for turn in 0..times {
            // Computing the true elements takes longer than a read. So only the first and the last read are compared
            // with them.
            let seconds = outcome.read(&array, turn == 0 || turn + 1 == times)?;
            outcome.read_seconds = outcome.read_seconds.min(seconds);
            if !outcome.verified {
                return Ok(outcome);
            }
        }
        outcome.report = array.last_report();
        let within = plain.with_memory_limit_bytes(self.budget_mib << 20);
        let streamed = Array::open(store, case.name, within)?;
        outcome.budget_seconds = Some(outcome.read(&streamed, true)?);
        Ok(outcome)
    }

    /// Returns the extent of the demo array's first dimension.
    fn planes(&self, device: Device) -> u64 {
        let plane_bytes = PLANE[0] * PLANE[1] * 4;
        let size_mib = self.size_mib.unwrap_or(if device == Device::Cpu { 128 } else { 1024 });
        (size_mib << 20).div_ceil(plane_bytes).next_multiple_of(SHARD[0])
    }

    fn array_bytes(&self, device: Device) -> u64 {
        self.planes(device) * PLANE[0] * PLANE[1] * 4
    }

    fn show_plan(&self, output: &mut Output) -> Result<Verdict> {
        let device = self.device.unwrap_or_else(best_device);
        let names: Vec<&str> = cases().iter().map(|case| case.name).collect();
        let document = json!({
            "dry_run": true, "device": device.to_string(), "directory": self.keep, "array_bytes": self.array_bytes(device),
            "budget_bytes": self.budget_mib << 20, "arrays": names,
        });
        let place = self.keep.as_ref().map_or("a temporary directory".into(), |keep| keep.display().to_string());
        output.answer(&document, &format!("{}{} in {place}", self.title(device), names.join(", ")));
        Ok(Verdict::Passed)
    }

    fn title(&self, device: Device) -> String {
        let fastest = if device == Device::Cpu {
            String::new()
        } else {
            format!("; read GB/s is the fastest of {GPU_READS} reads")
        };
        format!(
            "float32 arrays of {} in chunks of {}, read into {device} and compared element by element{fastest}\n\n",
            output::bytes(self.array_bytes(device)),
            output::bytes(CHUNK.iter().product::<u64>() * 4),
        )
    }

    fn text(&self, device: Device, outcomes: &[Outcome]) -> String {
        let mut text = self.title(device);
        let rows: Vec<Vec<String>> = outcomes.iter().map(Outcome::row).collect();
        let within = format!("within {}", output::bytes(self.budget_mib << 20));
        text += &output::table(&["array", "ratio", "write GB/s", "read GB/s", &within, "every element"], &rows);
        for outcome in outcomes {
            if let Some(report) = &outcome.report {
                text += &format!("\n\nstages of reading {}\n{report}", outcome.case);
            }
            if let Some(failure) = &outcome.failure {
                text += &format!("\n\n{}: {failure}", outcome.case);
            }
        }
        text + &next_steps(device)
    }
}

/// Returns text for the end of the demo: commands that the user can try next.
fn next_steps(device: Device) -> String {
    let rows = [
        ("see what this machine has and lacks", "cuzarr doctor".to_string()),
        ("measure your own array", format!("cuzarr bench read PATH --device {device} --roofline")),
        ("read it in Python", format!("cuzarr.open_array(\"PATH\", mode=\"r\", device=\"{device}\")[:]")),
    ];
    let width = rows.iter().map(|(what, _)| what.len()).max().unwrap_or(0);
    rows.iter().fold("\n\nnext".to_string(), |text, (what, command)| format!("{text}\n  {what:width$}  {command}"))
}

impl Case {
    fn metadata(&self, planes: u64) -> Result<ArrayMetadata> {
        let mut codecs = vec![extension("bytes", json!({"endian": "little"}))];
        if let Some((name, configuration)) = &self.codec {
            codecs.push(extension(name, configuration.clone()));
        }
        // With the checksum, a flipped byte is an error whatever the codec, and also without one.
        codecs.push(extension("crc32c", json!({})));
        let array = Array::builder([planes, PLANE[0], PLANE[1]], DataType::Float32).chunks(CHUNK).codecs(codecs);
        if self.sharded { array.shards(SHARD).metadata() } else { array.metadata() }
    }
}

impl Outcome {
    /// Reads the whole array and returns the seconds that this took. With `check`, wrong elements and damaged data are
    /// recorded.
    fn read(&mut self, array: &Array, check: bool) -> Result<f64> {
        let started = Instant::now();
        let result = array.read_buffer(&Selection::all(array.metadata().shape()));
        let seconds = started.elapsed().as_secs_f64();
        match result {
            Ok(values) => self.verified &= !check || is_true(&values)?,
            Err(error) if error.kind() == ErrorKind::Cancelled => return Err(error),
            Err(error) => {
                self.verified = false;
                self.failure = Some(error);
            }
        }
        Ok(seconds)
    }

    fn to_json(&self) -> Value {
        json!({
            "array": self.case,
            "verified": self.verified,
            "array_bytes": self.array_bytes,
            "stored_bytes": self.stored_bytes,
            "write_seconds": self.write_seconds,
            "read_seconds": self.read_seconds,
            "read_within_budget_seconds": self.budget_seconds,
            "error": self.failure.as_ref().map(ToString::to_string),
            "stages": self.report.as_ref().map(Report::to_json),
        })
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.case.to_string(),
            format!("{:.2}", self.array_bytes as f64 / self.stored_bytes.max(1) as f64),
            format!("{:.2}", output::gigabytes_per_second(self.array_bytes, self.write_seconds)),
            format!("{:.2}", output::gigabytes_per_second(self.array_bytes, self.read_seconds)),
            self.budget_seconds.map_or("-".to_string(), |seconds| {
                format!("{:.2}", output::gigabytes_per_second(self.array_bytes, seconds))
            }),
            if self.verified { "right" } else { "WRONG" }.to_string(),
        ]
    }
}

fn cases() -> Vec<Case> {
    let zstd = || Some(("zstd", json!({"level": 3, "checksum": false})));
    let lz4 = json!({"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0});
    vec![
        Case { name: "none", codec: None, sharded: false },
        Case { name: "zstd", codec: zstd(), sharded: false },
        Case { name: "zstd-sharded", codec: zstd(), sharded: true },
        Case { name: "blosc-lz4-sharded", codec: Some(("blosc", lz4)), sharded: true },
        Case { name: "gzip", codec: Some(("gzip", json!({"level": 1}))), sharded: false },
    ]
}

fn extension(name: &str, configuration: Value) -> Extension {
    let configuration = match configuration {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    Extension::new(name, configuration)
}

/// Returns the demo array's value at `index` (in C order): waves along the two inner dimensions, plus noise that gives
/// codecs work.
fn truth(index: u64) -> f32 {
    let (column, row) = (index % PLANE[1], index / PLANE[1] % PLANE[0]);
    let wave = (column * 3 % 2048).abs_diff(1024) + (row * 5 % 1024).abs_diff(512);
    let mut noise = index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    noise = (noise ^ (noise >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (25_000 + wave + (noise >> 60)) as f32 / 100.0
}

/// Returns the elements `start..start + count` that the demo array should have, as bytes.
fn truth_bytes(start: u64, count: u64) -> Vec<u8> {
    let mut bytes = vec![0; count as usize * 4];
    let part = (count as usize).div_ceil(cores()).max(1);
    std::thread::scope(|scope| {
        for (number, part_bytes) in bytes.chunks_mut(part * 4).enumerate() {
            let first = start + (number * part) as u64;
            scope.spawn(move || {
                for (index, element) in (first..).zip(part_bytes.chunks_exact_mut(4)) {
                    element.copy_from_slice(&truth(index).to_ne_bytes());
                }
            });
        }
    });
    bytes
}

/// Writes the demo array from device memory, one row of shards at a time. Returns the seconds that the writes took,
/// without the time to make the values.
fn write(array: &Array, device: Device) -> Result<f64> {
    let mut seconds = 0.0;
    let shape = array.metadata().shape().to_vec();
    let extent = [SHARD[0], shape[1], shape[2]];
    let elems: u64 = extent.iter().product();
    let lens = extent.map(|extent| extent as usize);
    for plane in (0..shape[0]).step_by(SHARD[0] as usize) {
        interrupt::check()?;
        let values = truth_bytes(plane * shape[1] * shape[2], elems);
        let values = NdBuffer::from_host(device, DType::FLOAT32, &lens, Order::C, &values)?;
        let started = Instant::now();
        array.write_buffer(&Selection::region(&[plane, 0, 0], &extent)?, &values)?;
        seconds += started.elapsed().as_secs_f64();
    }
    Ok(seconds)
}

/// Whether every element has the value that the demo's formula gives.
fn is_true(values: &NdBuffer) -> Result<bool> {
    let plane = values.shape()[1] * values.shape()[2];
    let step = SHARD[0] as usize;
    for first in (0..values.shape()[0]).step_by(step) {
        let extent = [step.min(values.shape()[0] - first), values.shape()[1], values.shape()[2]];
        let got = values.region(&[first, 0, 0], &extent, &[1, 1, 1])?.to_host_bytes(Order::C)?;
        if got != truth_bytes((first * plane) as u64, (extent[0] * plane) as u64) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Changes one byte in the middle of the array's largest object.
fn flip_a_byte(directory: &Path) -> Result<()> {
    let mut largest = (0, PathBuf::new());
    let mut pending = vec![directory.to_path_buf()];
    while let Some(directory) = pending.pop() {
        let entries = std::fs::read_dir(&directory).map_err(|error| io("list the array", error))?;
        for entry in entries {
            let entry = entry.map_err(|error| io("list the array", error))?;
            let kind = entry.metadata().map_err(|error| io("list the array", error))?;
            if kind.is_dir() {
                pending.push(entry.path());
            } else if kind.len() > largest.0 {
                largest = (kind.len(), entry.path());
            }
        }
    }
    let mut bytes = std::fs::read(&largest.1).map_err(|error| io("read a chunk", error))?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&largest.1, bytes).map_err(|error| io("write a chunk", error))
}

/// Returns the first GPU, or the CPU if there is none.
fn best_device() -> Device {
    if cuzarr_device::probe().unusable.is_none() { Device::Cuda(0) } else { Device::Cpu }
}

fn io(what: &str, error: std::io::Error) -> Error {
    Error::new(ErrorKind::StoreFailed, format!("could not {what}: {error}")).telling(error)
}
