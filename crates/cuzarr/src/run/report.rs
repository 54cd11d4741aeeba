//! What a call did, stage by stage: bytes, seconds, how often.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A stage of the way of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Reading from the store.
    Fetch,
    /// Host codecs, reading.
    Decode,
    /// Host memory to device memory.
    Upload,
    /// Packed elements to their places.
    Scatter,
    /// Fill values for missing chunks.
    Fill,
    /// Elements from their places to packed memory.
    Gather,
    /// Device memory to host memory.
    Download,
    /// Host codecs, writing.
    Encode,
    /// Writing to the store.
    Flush,
}

impl Stage {
    /// Every stage, reading first.
    pub const ALL: [Stage; 9] = [
        Stage::Fetch,
        Stage::Decode,
        Stage::Upload,
        Stage::Scatter,
        Stage::Fill,
        Stage::Gather,
        Stage::Download,
        Stage::Encode,
        Stage::Flush,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Fetch => "fetch",
            Stage::Decode => "decode",
            Stage::Upload => "upload",
            Stage::Scatter => "scatter",
            Stage::Fill => "fill",
            Stage::Gather => "gather",
            Stage::Download => "download",
            Stage::Encode => "encode",
            Stage::Flush => "flush",
        }
    }
}

/// What one stage did in one call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageReport {
    /// Bytes that came out of the stage.
    pub size_bytes: u64,
    /// Seconds spent, added over all threads; for work on a device, those of putting it on the stream and waiting.
    pub seconds: f64,
    /// How often: reads, chunks, copies, launches.
    pub count: u64,
}

/// What one call did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    stages: [StageReport; Stage::ALL.len()],
    /// Seconds from the call to its return.
    pub wall_seconds: f64,
}

impl Report {
    /// What one stage did.
    pub fn stage(&self, stage: Stage) -> StageReport {
        self.stages[stage as usize]
    }

    /// The stages that did something, in order.
    pub fn stages(&self) -> impl Iterator<Item = (Stage, StageReport)> + '_ {
        Stage::ALL.into_iter().map(|stage| (stage, self.stage(stage))).filter(|(_, report)| report.count > 0)
    }

    /// The report as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        let stages = self.stages().map(|(stage, report)| {
            serde_json::json!({
                "stage": stage.name(),
                "size_bytes": report.size_bytes,
                "seconds": report.seconds,
                "count": report.count,
            })
        });
        serde_json::json!({ "wall_seconds": self.wall_seconds, "stages": stages.collect::<Vec<_>>() })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<9} {:>9} {:>11} {:>10}", "stage", "count", "MiB", "seconds")?;
        for (stage, report) in self.stages() {
            let mib = report.size_bytes as f64 / f64::from(1 << 20);
            writeln!(f, "{:<9} {:>9} {mib:>11.1} {:>10.4}", stage.name(), report.count, report.seconds)?;
        }
        write!(f, "{:<9} {:>9} {:>11} {:>10.4}", "wall", "", "", self.wall_seconds)
    }
}

/// Counts while a call runs, from every thread.
#[derive(Default)]
pub(crate) struct Counters {
    stages: [StageCounter; Stage::ALL.len()],
}

#[derive(Default)]
struct StageCounter {
    size_bytes: AtomicU64,
    nanoseconds: AtomicU64,
    count: AtomicU64,
}

impl Counters {
    pub(crate) fn add(&self, stage: Stage, size_bytes: u64, time: Duration) {
        let counter = &self.stages[stage as usize];
        counter.size_bytes.fetch_add(size_bytes, Ordering::Relaxed);
        counter.nanoseconds.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        counter.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Does `work` and counts it, whether it fails or not.
    pub(crate) fn time<T>(&self, stage: Stage, size_bytes: u64, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.add(stage, size_bytes, start.elapsed());
        result
    }

    pub(crate) fn report(&self, wall: Duration) -> Report {
        let stages = std::array::from_fn(|index| {
            let counter = &self.stages[index];
            StageReport {
                size_bytes: counter.size_bytes.load(Ordering::Relaxed),
                seconds: counter.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9,
                count: counter.count.load(Ordering::Relaxed),
            }
        });
        Report { stages, wall_seconds: wall.as_secs_f64() }
    }
}
