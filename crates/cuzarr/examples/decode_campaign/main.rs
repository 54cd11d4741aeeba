//! How many frames a device decodes and encodes without a fault: a campaign for every format, each frame compared with the host.
//!
//!     cargo run --release -p cuzarr --example decode_campaign -- --device cuda:0 --seed 1
//!     cargo run --release -p cuzarr --example decode_campaign -- --mode mutated --format zstd --frames 10000000 --seconds 90
//!
//! `--mode valid|mutated|encoded|filters`; `--format` lz4, zstd, gzip, zlib, deflate, blosc or several of them with commas between (all by default);
//! `--frames N` and `--seconds N` end the campaign of a format; `--most-bytes N` of a decoded frame; `--batch N` frames together
//! at most; `--threads N`; `--lanes N` rounds at a time; `--round N` does that round only, as a finding names it, and
//! `--frame N` only the damaged frame of that number with its neighbours.
//!
//! Valid frames are made by the formats' own libraries, with every level and parameter. Damaged ones are intact frames with
//! bits flipped, cut, spliced, or given hostile headers: the device must refuse what the host refuses, and give the same
//! bytes where it does not; memory around outputs must stay as it was. `encoded` frames are made by the device from chunks of all kinds;
//! the libraries and the device must decode them. `filters` tries chains of filters and checksums, every
//! other frame damaged, in one campaign without a format. Prints a line of JSON a format; exits with 1 when one has
//! failures, with 3 when a device did not come back.

mod campaign;

use std::time::Duration;

use campaign::{FORMATS, Settings, encoded, filters, mutated, run, valid};
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_device::Device;
use serde_json::{Value, json};

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

fn campaigns() -> Result<(String, Vec<Settings>)> {
    let (mut mode, mut names) = ("valid".to_string(), "lz4,zstd,gzip,zlib,deflate,blosc".to_string());
    let (mut most_bytes, mut batch) = (None, None);
    let mut settings = Settings {
        device: Device::Cuda(0),
        format: FORMATS[0],
        seed: 1,
        frames: u64::MAX,
        seconds: 60,
        rounds: 0..u64::MAX,
        frame: None,
        most_bytes: 0,
        batch: 0,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        lanes: 3,
        patience: Duration::from_secs(20),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| invalid(format!("'{name}' needs a value")))?;
        let number = || value.parse::<u64>().map_err(|_| invalid(format!("'{name}' needs a number, got '{value}'")));
        match name.as_str() {
            "--mode" => mode = value,
            "--format" => names = value,
            "--device" => settings.device = value.parse()?,
            "--seed" => settings.seed = number()?,
            "--frames" => settings.frames = number()?,
            "--seconds" => settings.seconds = number()?,
            "--most-bytes" => most_bytes = Some(number()? as usize),
            "--batch" => batch = Some(number()? as usize),
            "--threads" => settings.threads = number()? as usize,
            "--lanes" => settings.lanes = number()? as usize,
            "--frame" => settings.frame = Some(number()? as usize),
            "--round" => settings.rounds = number()?..number()? + 1,
            _ => return Err(invalid(format!("unknown option '{name}'"))),
        }
    }
    let (most, frames) = match mode.as_str() {
        "valid" => (8 << 20, 2000),
        "mutated" | "encoded" | "filters" => (1 << 20, 100_000),
        other => return Err(invalid(format!("unknown mode '{other}'"))),
    };
    settings.most_bytes = most_bytes.unwrap_or(most);
    settings.batch = batch.unwrap_or(frames);
    let find = |name: &str| {
        let known = FORMATS.into_iter().find(|format| format.name() == name);
        let format = known.ok_or_else(|| invalid(format!("unknown format '{name}'")))?;
        Ok(Settings { format, ..settings.clone() })
    };
    if mode == "filters" {
        return Ok((mode, vec![settings]));
    }
    Ok((mode, names.split(',').map(find).collect::<Result<_>>()?))
}

fn report(mode: &str, settings: &Settings, outcome: Value) {
    let name = if mode == "filters" { "chains" } else { settings.format.name() };
    println!(
        "{}",
        json!({"mode": mode, "format": name, "device": settings.device.to_string(), "seed": settings.seed,
        "most_bytes": settings.most_bytes, "batch": settings.batch, "outcome": outcome})
    );
}

fn main() -> std::process::ExitCode {
    let (mode, campaigns) = match campaigns() {
        Ok(campaigns) => campaigns,
        Err(error) => {
            eprintln!("{error}");
            return std::process::ExitCode::FAILURE;
        }
    };
    let mut failed = false;
    for settings in campaigns {
        let round = match &mode[..] {
            "valid" => valid::round,
            "mutated" => mutated::round,
            "encoded" => encoded::round,
            _ => filters::round,
        };
        let outcome = run(&settings, round);
        failed |= !outcome.failures.is_empty();
        report(&mode, &settings, outcome.to_json());
    }
    if failed { std::process::ExitCode::FAILURE } else { std::process::ExitCode::SUCCESS }
}
