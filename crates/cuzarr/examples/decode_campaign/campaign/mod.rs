//! Campaigns of frames through the decoders and encoders of a device, each frame compared with what the host says of it.
//!
//! Work is divided into rounds. Everything in a round follows from the seed and the round's number, so a finding is
//! repeated by that round alone.
#![allow(dead_code)] // the program and the test use a part each

pub mod damage;
pub mod data;
pub mod device;
pub mod encoded;
pub mod filters;
pub mod levels;
pub mod mutated;
pub mod random;
pub mod reference;
pub mod valid;
pub mod writers;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cuzarr_device::Device;
use serde_json::{Value, json};

pub use reference::Format;

pub const FORMATS: [Format; 7] =
    [Format::Lz4, Format::Lz4Raw, Format::Zstd, Format::Gzip, Format::Zlib, Format::Deflate, Format::Blosc];

/// What a campaign does.
#[derive(Clone, Debug)]
pub struct Settings {
    pub device: Device,
    pub format: Format,
    pub seed: u64,
    /// Frames after which no new round begins.
    pub frames: u64,
    pub seconds: u64,
    /// Rounds to do, when not all of them.
    pub rounds: std::ops::Range<u64>,
    /// Of damaged frames of a round, this one and those beside it, when not all of them.
    pub frame: Option<usize>,
    /// Most decoded bytes of a frame.
    pub most_bytes: usize,
    /// Damaged frames of a batch; intact ones are counted by their bytes.
    pub batch: usize,
    pub threads: usize,
    /// Rounds that are under way at a time, so that threads and device are busy together.
    pub lanes: usize,
    /// Longest that a device may take for a batch.
    pub patience: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub frames: u64,
    pub decoded_bytes: u64,
    pub over_1_mib: u64,
    pub batches: u64,
    /// Frames of each writer, of each damage, and what happened to them.
    pub counts: BTreeMap<String, u64>,
    pub failures: Vec<Value>,
    pub slowest_batch: Duration,
}

/// Failures told in full; others are counted.
const MOST_TOLD: usize = 20;

impl Outcome {
    pub fn count(&mut self, what: &str) {
        self.count_of(what, 1);
    }

    pub fn count_of(&mut self, what: &str, more: u64) {
        match self.counts.get_mut(what) {
            Some(count) => *count += more,
            None => drop(self.counts.insert(what.to_string(), more)),
        }
    }

    pub fn fail(&mut self, failure: Value) {
        self.count("failures");
        if self.failures.len() < MOST_TOLD {
            self.failures.push(failure);
        }
    }

    pub fn add(&mut self, other: Outcome) {
        self.frames += other.frames;
        self.decoded_bytes += other.decoded_bytes;
        self.over_1_mib += other.over_1_mib;
        self.batches += other.batches;
        self.slowest_batch = self.slowest_batch.max(other.slowest_batch);
        for (what, count) in other.counts {
            *self.counts.entry(what).or_default() += count;
        }
        self.failures.extend(other.failures);
        self.failures.truncate(MOST_TOLD);
    }

    pub fn to_json(&self) -> Value {
        json!({"frames": self.frames, "decoded_bytes": self.decoded_bytes, "over_1_mib": self.over_1_mib,
            "batches": self.batches, "counts": self.counts, "failures": self.failures,
            "slowest_batch_ms": self.slowest_batch.as_millis() as u64})
    }
}

/// Does `work` for every number below `count`, by several threads.
pub fn parallel<T: Send>(count: usize, threads: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    const STRIDE: usize = 8;
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(count)));
    let run = || {
        let mut mine = Vec::new();
        loop {
            let start = next.fetch_add(STRIDE, Ordering::Relaxed);
            if start >= count {
                break;
            }
            mine.extend((start..count.min(start + STRIDE)).map(|number| (number, work(number))));
        }
        done.lock().unwrap().extend(mine);
    };
    std::thread::scope(|scope| {
        let others = threads.min(count.div_ceil(STRIDE)).saturating_sub(1);
        (0..others).for_each(|_| drop(scope.spawn(run)));
        run();
    });
    let mut done = done.into_inner().unwrap();
    done.sort_unstable_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Does rounds until there are enough frames or time is up. A device that fails, or does not come back in time, ends the
/// campaign; the outcome then says in which round.
pub fn run(settings: &Settings, round: impl Fn(&Settings, u64, &mut Outcome) -> cuzarr::Result<()> + Sync) -> Outcome {
    let (began, next, all) = (Instant::now(), Mutex::new(settings.rounds.clone()), Mutex::new(Outcome::default()));
    let lane = || {
        loop {
            let enough = all.lock().unwrap().frames >= settings.frames;
            if enough || began.elapsed() >= Duration::from_secs(settings.seconds) {
                break;
            }
            let Some(number) = next.lock().unwrap().next() else { break };
            let mut outcome = Outcome::default();
            if let Err(error) = round(settings, number, &mut outcome) {
                outcome.fail(json!({"round": number, "seed": settings.seed, "device": error.to_string()}));
                *next.lock().unwrap() = 0..0;
            }
            all.lock().unwrap().add(outcome);
        }
    };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if device::longest_wait() > settings.patience {
                    let next = next.lock().unwrap().start;
                    eprintln!("{:?} does not come back, seed {}, before round {next}", settings.format, settings.seed);
                    std::process::exit(3);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let lanes: Vec<_> = (1..settings.lanes).map(|_| scope.spawn(lane)).collect();
        lane();
        lanes.into_iter().for_each(|lane| drop(lane.join()));
        over.store(true, Ordering::Relaxed);
    });
    all.into_inner().unwrap()
}
