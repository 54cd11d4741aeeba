//! Reports of calls: bytes, seconds and counts of each stage, and its idle time.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cuzarr_device::internal::Copied;
use cuzarr_device::{Event, Stream, profile};

use crate::error::{Error, Result};
use crate::store::{Traffic, TrafficCounts};

/// A stage of a read or write, whose time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The stage in which stored bytes are read from the store.
    Fetch,
    /// The stage in which chunks are decoded, by the host or by kernels.
    Decode,
    /// The stage in which bytes are copied from host memory to device memory.
    Upload,
    /// The stage in which elements of decoded chunks are moved to their positions in the result.
    Scatter,
    /// The stage in which missing chunks are filled with the fill value in the result.
    Fill,
    /// The stage in which elements to write are moved from the caller's memory into contiguous chunks.
    Gather,
    /// The stage in which bytes are copied from device memory to host memory.
    Download,
    /// The stage in which chunks are encoded, by the host or by kernels.
    Encode,
    /// The stage in which encoded chunks and shards are written to the store.
    Flush,
}

impl Stage {
    /// All stages of reads and writes, those of reads first.
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

    /// The stage's name as it appears in reports, such as `fetch`.
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

/// The time and the bytes of one stage in one call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageReport {
    /// Bytes that the stage read, moved, decoded or wrote; for the stage `encode`, the bytes before encoding.
    pub size_bytes: u64,
    /// Seconds that the stage took, summed over all threads or over a device's streams.
    pub seconds: f64,
    /// Number of reads, chunks, copies or kernel launches in this stage.
    pub count: u64,
    /// Seconds in which at least one thread or stream worked on this stage.
    pub busy_seconds: f64,
}

/// One read, copy, launch or other step that belongs to a stage, with its begin and end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The stage to which this step of the call belongs.
    pub stage: Stage,
    /// When the step began, in nanoseconds from the beginning of the call.
    pub start_ns: u64,
    /// When the step ended, in nanoseconds from the beginning of the call.
    pub end_ns: u64,
    /// Bytes that this step read, moved, decoded or wrote; for a step of the stage `encode`, the bytes before encoding.
    pub size_bytes: u64,
}

/// Measurements of one read or write: the time of each stage, and the requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    stages: [StageReport; Stage::ALL.len()],
    /// Seconds from the start of the call to its return.
    pub wall_seconds: f64,
    /// Counts of requests to a server, if the store has one.
    pub traffic: TrafficCounts,
    /// Number of chunks that came from the chunk cache.
    pub cached_chunks: u64,
    /// Every single read, copy and launch of the call, in the order in which they ended; empty unless the option
    /// `trace` is set.
    pub spans: Vec<Span>,
}

impl Report {
    /// The time that one stage took in this call, and its number of bytes.
    pub fn stage(&self, stage: Stage) -> StageReport {
        self.stages[stage as usize]
    }

    /// The stages in which the call did any work, those of reads first.
    pub fn stages(&self) -> impl Iterator<Item = (Stage, StageReport)> + '_ {
        Stage::ALL.into_iter().map(|stage| (stage, self.stage(stage))).filter(|(_, report)| report.count > 0)
    }

    /// Makes the report of a traced call from its single reads, copies and launches.
    #[cfg(test)]
    pub(crate) fn of(spans: &[Span]) -> Report {
        let counters = Counters::new(true);
        spans.iter().for_each(|span| counters.add_span(*span));
        counters.report()
    }

    /// Seconds of the call in which no thread or stream worked on this stage.
    pub fn idle_seconds(&self, stage: Stage) -> f64 {
        (self.wall_seconds - self.stage(stage).busy_seconds).max(0.0)
    }

    /// The report as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        let stages = self.stages().map(|(stage, report)| {
            serde_json::json!({
                "stage": stage.name(),
                "size_bytes": report.size_bytes,
                "seconds": report.seconds,
                "count": report.count,
                "busy_seconds": report.busy_seconds,
                "idle_seconds": self.idle_seconds(stage),
            })
        });
        let mut json = serde_json::json!({ "wall_seconds": self.wall_seconds, "stages": stages.collect::<Vec<_>>() });
        if self.cached_chunks > 0 {
            json["cached_chunks"] = self.cached_chunks.into();
        }
        if self.traffic.requests > 0 {
            let TrafficCounts { requests, retries, received_bytes, sent_bytes, first_byte_seconds } = self.traffic;
            json["traffic"] = serde_json::json!({
                "requests": requests,
                "retries": retries,
                "received_bytes": received_bytes,
                "sent_bytes": sent_bytes,
                "first_byte_seconds": first_byte_seconds,
            });
        }
        json
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<9} {:>9} {:>11} {:>10} {:>10}", "stage", "count", "MiB", "seconds", "idle")?;
        for (stage, report) in self.stages() {
            let mib = report.size_bytes as f64 / f64::from(1 << 20);
            let idle = self.idle_seconds(stage);
            writeln!(f, "{:<9} {:>9} {mib:>11.1} {:>10.4} {idle:>10.4}", stage.name(), report.count, report.seconds)?;
        }
        write!(f, "{:<9} {:>9} {:>11} {:>10.4}", "wall", "", "", self.wall_seconds)?;
        if self.cached_chunks > 0 {
            write!(f, "\n{} chunks from the chunk cache", self.cached_chunks)?;
        }
        let TrafficCounts { requests, retries, received_bytes, sent_bytes, first_byte_seconds } = self.traffic;
        if requests == 0 {
            return Ok(());
        }
        let mib = (received_bytes + sent_bytes) as f64 / f64::from(1 << 20);
        write!(
            f,
            "\n{requests} requests, {retries} of them made again, {mib:.1} MiB, {:.1} ms to the first byte",
            first_byte_seconds * 1e3
        )
    }
}

/// The times, bytes and counts of a running call for each of its stages, which all threads of the call update.
pub(crate) struct Counters {
    begun: Instant,
    traffic: Traffic,
    stages: [Mutex<StageCounter>; Stage::ALL.len()],
    cached_chunks: AtomicU64,
    /// Work that was enqueued on a device and is not known to have ended.
    under_way: Mutex<Timeline>,
    /// Every single read, copy and launch so far, when the call is traced.
    spans: Option<Mutex<Vec<Span>>>,
}

#[derive(Default)]
struct StageCounter {
    size_bytes: u64,
    nanoseconds: u64,
    count: u64,
    busy: Busy,
}

/// The intervals of time in which at least one thread or stream worked on one stage of the call. `join` sorts them, and
/// joins those that overlap.
#[derive(Default)]
struct Busy(Vec<(u64, u64)>);

/// Maximum number of time intervals that are kept for one stage. When it is reached, overlapping intervals are joined,
/// and then neighbours if there are still too many.
const KEPT_INTERVALS: usize = 4096;

impl Busy {
    fn add(&mut self, start_ns: u64, end_ns: u64) {
        match self.0.last_mut() {
            // Most work continues the last interval.
            Some(last) if start_ns >= last.0 && start_ns <= last.1 => last.1 = last.1.max(end_ns),
            _ => self.0.push((start_ns, end_ns)),
        }
        if self.0.len() >= KEPT_INTERVALS {
            self.join();
            // If too many intervals remain, the work was many short pieces, far apart. Then neighbouring intervals are
            // joined in pairs.
            while self.0.len() > KEPT_INTERVALS / 2 {
                self.0 = self.0.chunks(2).map(|pair| (pair[0].0, pair[pair.len() - 1].1)).collect();
            }
        }
    }

    fn join(&mut self) {
        self.0.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::with_capacity(self.0.len());
        for &(start, end) in &self.0 {
            match joined.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => joined.push((start, end)),
            }
        }
        self.0 = joined;
    }

    fn nanoseconds(&mut self) -> u64 {
        self.join();
        self.0.iter().map(|(start, end)| end - start).sum()
    }
}

/// Pairs of CUDA events that mark when work on a device began and ended, to measure its time.
#[derive(Default)]
struct Timeline {
    /// The first event of the call on the device, and its time in nanoseconds from the beginning of the call.
    origin: Option<(Event, u64)>,
    timed: Vec<Timed>,
}

struct Timed {
    stage: Stage,
    size_bytes: u64,
    start: Event,
    end: Event,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Counters {
    pub(crate) fn new(traced: bool) -> Counters {
        Counters {
            begun: Instant::now(),
            traffic: Traffic::default(),
            stages: Default::default(),
            cached_chunks: AtomicU64::new(0),
            under_way: Mutex::default(),
            spans: traced.then(Mutex::default),
        }
    }

    /// Nanoseconds since the call began.
    pub(crate) fn elapsed_ns(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// Adds work on the host that has just ended, and that took `time`, to the counters of its stage.
    pub(crate) fn add(&self, stage: Stage, size_bytes: u64, time: Duration) {
        let end_ns = self.elapsed_ns();
        self.add_span(Span { stage, start_ns: end_ns.saturating_sub(time.as_nanos() as u64), end_ns, size_bytes });
    }

    fn add_span(&self, span: Span) {
        let mut counter = lock(&self.stages[span.stage as usize]);
        counter.size_bytes += span.size_bytes;
        counter.nanoseconds += span.end_ns - span.start_ns;
        counter.count += 1;
        counter.busy.add(span.start_ns, span.end_ns);
        drop(counter);
        if let Some(spans) = &self.spans {
            lock(spans).push(span);
        }
    }

    /// Counts chunks that came from the chunk cache.
    pub(crate) fn add_cached(&self, chunks: usize) {
        self.cached_chunks.fetch_add(chunks as u64, Ordering::Relaxed);
    }

    /// Runs `work` and counts its time, even if it fails.
    pub(crate) fn time<T>(&self, stage: Stage, size_bytes: u64, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let _range = profile::range(stage.name(), size_bytes);
        let result = if matches!(stage, Stage::Fetch | Stage::Flush) { self.traffic.watch(work) } else { work() };
        self.add(stage, size_bytes, start.elapsed());
        result
    }

    /// Runs `work`, and counts the requests to servers that it begins.
    pub(crate) fn watch<T>(&self, work: impl FnOnce() -> T) -> T {
        self.traffic.watch(work)
    }

    /// Marks on a stream the time from which work on its device is measured. `stream` must be idle.
    ///
    /// # Errors
    /// `DeviceFailed`
    pub(crate) fn begin_on(&self, stream: &Stream) -> Result<()> {
        let mark = stream.record_timed()?;
        lock(&self.under_way).origin.get_or_insert((mark, self.elapsed_ns()));
        Ok(())
    }

    /// Runs `work`, which enqueues work on `stream`, and counts the time that the device takes for it.
    pub(crate) fn time_on<T, E: Into<Error>>(
        &self,
        stage: Stage,
        size_bytes: u64,
        stream: &Stream,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T> {
        let start = stream.record_timed()?;
        let begun_ns = self.elapsed_ns();
        let _range = profile::range(stage.name(), size_bytes);
        let done = work().map_err(Into::into)?;
        let end = stream.record_timed()?;
        let mut timeline = lock(&self.under_way);
        timeline.origin.get_or_insert_with(|| (start.clone(), begun_ns));
        timeline.timed.push(Timed { stage, size_bytes, start, end });
        Ok(done)
    }

    /// Counts the time of copies, whose begin and end were marked by events.
    pub(crate) fn add_copies(&self, stage: Stage, copies: Vec<Copied>) {
        let mut timeline = lock(&self.under_way);
        let timed = copies.into_iter().map(|Copied { start, end, size_bytes }| {
            let size_bytes = size_bytes as u64;
            Timed { stage, size_bytes, start, end }
        });
        timeline.timed.extend(timed);
    }

    /// Adds the time of work that devices have finished by now to the counters of its stage.
    ///
    /// # Errors
    /// `DeviceFailed`
    pub(crate) fn settle(&self) -> Result<()> {
        let mut timeline = lock(&self.under_way);
        let Some((origin, origin_ns)) = timeline.origin.clone() else { return Ok(()) };
        let timed = std::mem::take(&mut timeline.timed);
        drop(timeline);
        let since = |mark: &Event| -> Result<u64> { Ok((origin.elapsed_ms(mark)?.max(0.0) * 1e6) as u64) };
        for work in timed {
            if !work.end.is_done()? {
                lock(&self.under_way).timed.push(work);
                continue;
            }
            let (start_ns, end_ns) = (origin_ns + since(&work.start)?, origin_ns + since(&work.end)?);
            let Timed { stage, size_bytes, .. } = work;
            self.add_span(Span { stage, start_ns, end_ns: end_ns.max(start_ns), size_bytes });
        }
        Ok(())
    }

    pub(crate) fn report(&self) -> Report {
        let stages = std::array::from_fn(|index| {
            let mut counter = lock(&self.stages[index]);
            StageReport {
                size_bytes: counter.size_bytes,
                seconds: counter.nanoseconds as f64 / 1e9,
                count: counter.count,
                busy_seconds: counter.busy.nanoseconds() as f64 / 1e9,
            }
        });
        let spans = self.spans.as_ref().map_or(Vec::new(), |spans| lock(spans).clone());
        let cached_chunks = self.cached_chunks.load(Ordering::Relaxed);
        let (wall_seconds, traffic) = (self.begun.elapsed().as_secs_f64(), self.traffic.counts());
        Report { stages, wall_seconds, traffic, cached_chunks, spans }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_at_work_counts_once_however_many_work() {
        let counters = Counters::new(true);
        for (start_ns, end_ns) in [(0, 10), (5, 8), (20, 30), (25, 40), (3, 12)] {
            counters.add_span(Span { stage: Stage::Fetch, start_ns, end_ns, size_bytes: 2 });
        }
        let report = counters.report();
        let fetch = report.stage(Stage::Fetch);
        assert_eq!((fetch.size_bytes, fetch.count, report.spans.len()), (10, 5, 5));
        assert!((fetch.busy_seconds - 32e-9).abs() < 1e-15 && (fetch.seconds - 47e-9).abs() < 1e-15);
        assert!(Counters::new(false).report().spans.is_empty());
    }

    #[test]
    fn intervals_without_end_take_bounded_memory() {
        let mut busy = Busy::default();
        for at in 0..100_000 {
            busy.add(at * 10, at * 10 + 5);
        }
        assert!(busy.0.len() < KEPT_INTERVALS);
        assert!((500_000..=1_000_000).contains(&busy.nanoseconds()));
    }
}
