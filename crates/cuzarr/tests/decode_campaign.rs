//! A short campaign of every format, on every device with kernels: intact frames of all writers, damaged ones, and the device's own.
//! `examples/decode_campaign` does the same for as long as wanted.

#[path = "../examples/decode_campaign/campaign/mod.rs"]
mod campaign;
mod model;

use std::time::Duration;

use campaign::{FORMATS, Format, Outcome, Settings, encoded, filters, mutated, run, valid};
use cuzarr_device::Device;

fn settings(device: Device, format: Format) -> Settings {
    // A device that is a CPU takes its time.
    let (rounds, most_bytes, batch) = if device == Device::Simt { (0..1, 5000, 40) } else { (0..2, 1 << 18, 500) };
    let patience = Duration::from_secs(600);
    Settings {
        device,
        format,
        seed: 7,
        frames: u64::MAX,
        seconds: 60,
        rounds,
        frame: None,
        most_bytes,
        batch,
        threads: 2,
        lanes: 1,
        patience,
    }
}

fn without_failures(outcome: Outcome, what: &str) -> Outcome {
    assert!(outcome.failures.is_empty(), "{what}: {}", outcome.to_json());
    assert!(outcome.frames > 0, "{what}");
    outcome
}

fn devices() -> impl Iterator<Item = Device> {
    model::kernel_devices().into_iter()
}

#[test]
fn frames_of_every_writer_decode() {
    for (device, format) in devices().flat_map(|device| FORMATS.map(|format| (device, format))) {
        let outcome = run(&settings(device, format), valid::round);
        without_failures(outcome, &format!("{device}: {format:?}"));
    }
}

#[test]
fn damaged_frames_are_answered_as_by_the_host() {
    for (device, format) in devices().flat_map(|device| FORMATS.map(|format| (device, format))) {
        let most = settings(device, format);
        // The fourth round is of batches of few.
        for rounds in [0..1, 3..4] {
            let outcome = run(&Settings { rounds, batch: 4 * most.batch, ..most.clone() }, mutated::round);
            let outcome = without_failures(outcome, &format!("{device}: {format:?}"));
            let counted = |what: &str| outcome.counts.get(what).copied().unwrap_or(0);
            // Damage that nobody minds, or that nobody gets past, finds nothing.
            assert!(
                counted("both take") > 0 && counted("both refuse") > 0,
                "{device}: {format:?}: {}",
                outcome.to_json()
            );
        }
    }
}

#[test]
fn frames_that_the_device_makes_decode_everywhere() {
    for (device, format) in devices().flat_map(|device| FORMATS.map(|format| (device, format))) {
        let outcome = run(&settings(device, format), encoded::round);
        let outcome = without_failures(outcome, &format!("{device}: {format:?}"));
        assert_eq!(outcome.counts["via host"], 0, "{device}: {format:?}: {}", outcome.to_json());
    }
}

#[test]
fn chains_of_filters_and_checksums_give_the_hosts_elements() {
    for device in devices() {
        let outcome = run(&settings(device, Format::Lz4), filters::round);
        let outcome = without_failures(outcome, &format!("{device}: filters"));
        assert!(["both take", "both refuse"].iter().all(|what| outcome.counts[*what] > 0), "{}", outcome.to_json());
        assert!(outcome.counts["via host"] < outcome.frames / 4, "{}", outcome.to_json());
    }
}

#[test]
fn failures_are_found_and_told() {
    let mut outcome = Outcome::default();
    (0..30).for_each(|number| outcome.fail(number.into()));
    assert_eq!((outcome.failures.len(), outcome.counts["failures"]), (20, 30));
}
