//! Tests that read many items from a store: each item must end exactly once, on any thread.

use std::collections::HashMap;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use super::{bytes, ok, request};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{ByteRange, InlineWorkers, Lease, ReadOutcome, ReadRequest, ReadSink, Store, StoreExt, Workers};

/// All outcomes that came for each item of a batch, keyed by the item's number. A correct store gives exactly one.
type Outcomes = HashMap<usize, Vec<Result<Option<Vec<u8>>>>>;

/// A sink for tests that keeps every outcome of each item, and the sizes that were reserved.
struct Watcher {
    limit_bytes: u64,
    reserved: Mutex<Vec<u64>>,
    outcomes: Mutex<Outcomes>,
    ended: Sender<usize>,
}

impl ReadSink for Watcher {
    fn reserve(&self, _index: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
        self.reserved.lock().unwrap().push(size_bytes);
        if size_bytes > self.limit_bytes {
            return Err(Error::new(ErrorKind::BudgetExceeded, "no budget"));
        }
        Ok(Box::new(vec![0xAA; size_bytes as usize]))
    }

    fn done(&self, index: usize, outcome: Result<ReadOutcome>) {
        let outcome = outcome.map(|outcome| match outcome {
            ReadOutcome::Filled(mut lease) => Some(lease.bytes().to_vec()),
            ReadOutcome::OnDevice(_) => panic!("the bytes were wanted on the host"),
            ReadOutcome::Missing => None,
        });
        self.outcomes.lock().unwrap().entry(index).or_default().push(outcome);
        let _ = self.ended.send(index);
    }
}

type WriteJob = Box<dyn FnOnce() + Send>;

/// Worker threads for tests, which live longer than the batch, like those of an engine.
struct Threads {
    jobs: Sender<WriteJob>,
    handles: Vec<std::thread::JoinHandle<()>>,
}

impl Threads {
    fn new(count: usize) -> Self {
        let (jobs, queue) = mpsc::channel::<WriteJob>();
        let queue = Arc::new(Mutex::new(queue));
        let work = |queue: Arc<Mutex<Receiver<WriteJob>>>| {
            move || {
                while let Some(job) = next_job(&queue) {
                    job();
                }
            }
        };
        let handles = (0..count).map(|_| std::thread::spawn(work(Arc::clone(&queue)))).collect();
        Threads { jobs, handles }
    }

    fn finish(self) {
        drop(self.jobs);
        for handle in self.handles {
            handle.join().expect("a store's job panicked");
        }
    }
}

fn next_job(queue: &Mutex<Receiver<WriteJob>>) -> Option<WriteJob> {
    queue.lock().unwrap().recv().ok()
}

impl Workers for Threads {
    fn spawn(&self, job: WriteJob) {
        self.jobs.send(job).expect("the threads are there until `finish`");
    }

    fn count(&self) -> usize {
        self.handles.len()
    }
}

/// Reads a batch, and waits for every item. Returns the sizes that were reserved, and the outcomes of each item.
fn read_all(
    store: &Arc<dyn Store>,
    batch: Vec<ReadRequest>,
    workers: &dyn Workers,
    limit: u64,
) -> (Vec<u64>, Outcomes) {
    let (sender, ended) = mpsc::channel();
    let watcher =
        Arc::new(Watcher { limit_bytes: limit, reserved: Mutex::default(), outcomes: Mutex::default(), ended: sender });
    let count = batch.len();
    store.read(batch.into(), Arc::clone(&watcher) as Arc<dyn ReadSink>, workers);
    for _ in 0..count {
        ended.recv().expect("the watcher lives");
    }
    let reserved = std::mem::take(&mut *watcher.reserved.lock().unwrap());
    let outcomes = std::mem::take(&mut *watcher.outcomes.lock().unwrap());
    (reserved, outcomes)
}

pub(super) fn finishes_every_item_once(store: &Arc<dyn Store>) {
    ok(store.write("a", &bytes(1, 64)));
    ok(store.write("b/c", &bytes(2, 32)));
    let batch = vec![
        request("a", ByteRange::Full),
        request("missing", ByteRange::Full),
        request("a", ByteRange::Span { offset: 60, size_bytes: 10 }),
        request("b/c", ByteRange::From { offset: 30 }),
        request("../x", ByteRange::Full),
        request("a", ByteRange::Full),
        request("a", ByteRange::Suffix { size_bytes: 1 }),
    ];
    let threads = Threads::new(3);
    for workers in [&threads as &dyn Workers, &InlineWorkers] {
        let (_, outcomes) = read_all(store, batch.clone(), workers, u64::MAX);
        let shown: Vec<_> = (0..batch.len()).map(|i| outcomes[&i].iter().map(summary).collect::<Vec<_>>()).collect();
        assert_eq!(shown, [["64"], ["missing"], ["error"], ["2"], ["error"], ["64"], ["1"]].map(|case| case.to_vec()));
        assert_eq!(outcomes[&3][0].as_ref().unwrap().as_deref(), Some(&bytes(2, 32)[30..]));
    }
    threads.finish();
}

fn summary(outcome: &Result<Option<Vec<u8>>>) -> String {
    match outcome {
        Ok(Some(bytes)) => bytes.len().to_string(),
        Ok(None) => "missing".to_string(),
        Err(_) => "error".to_string(),
    }
}

pub(super) fn finishes_large_batches(store: &Arc<dyn Store>) {
    let big = bytes(9, 1 << 16);
    ok(store.write("big", &big));
    for i in 0..40u8 {
        ok(store.write(&format!("c/{i}"), &bytes(i, 100 + i as usize)));
    }
    let mut batch = Vec::new();
    for i in 0..1000u64 {
        batch.push(request("big", ByteRange::Span { offset: i * 64, size_bytes: 64 }));
        batch.push(request(&format!("c/{}", i % 50), ByteRange::Full));
    }
    let threads = Threads::new(4);
    let (_, outcomes) = read_all(store, batch, &threads, u64::MAX);
    threads.finish();
    assert_eq!(outcomes.len(), 2000);
    for i in 0..1000usize {
        let (ranges, values) = (&outcomes[&(2 * i)], &outcomes[&(2 * i + 1)]);
        assert_eq!((ranges.len(), values.len()), (1, 1), "each item ends once");
        assert_eq!(ranges[0].as_ref().unwrap().as_deref(), Some(&big[i * 64..][..64]));
        let stored = (i % 50 < 40).then(|| bytes((i % 50) as u8, 100 + i % 50));
        assert_eq!(values[0].as_ref().unwrap(), &stored);
    }
}

pub(super) fn passes_on_refusals(store: &Arc<dyn Store>) {
    ok(store.write("small", &bytes(1, 10)));
    ok(store.write("large", &bytes(1, 11)));
    let batch = vec![request("large", ByteRange::Full), request("small", ByteRange::Full)];
    let (_, outcomes) = read_all(store, batch, &InlineWorkers, 10);
    assert_eq!(outcomes[&0][0].as_ref().unwrap_err().kind(), ErrorKind::BudgetExceeded);
    assert_eq!(outcomes[&1][0].as_ref().unwrap().as_deref(), Some(&bytes(1, 10)[..]));
}

pub(super) fn reserves_nothing_for_missing_keys(store: &Arc<dyn Store>) {
    ok(store.write("v", &bytes(1, 10)));
    let batch = vec![
        request("missing", ByteRange::Full),
        request("v", ByteRange::Span { offset: 5, size_bytes: u64::MAX }),
        request("v", ByteRange::Suffix { size_bytes: 1 << 60 }),
    ];
    let (reserved, _) = read_all(store, batch, &InlineWorkers, u64::MAX);
    assert_eq!(reserved, [10], "memory is asked for what is there, not for what is wanted");
}

pub(super) fn finishes_dropped_jobs(store: &Arc<dyn Store>) {
    struct Dropping;
    impl Workers for Dropping {
        fn spawn(&self, job: WriteJob) {
            drop(job);
        }

        fn count(&self) -> usize {
            2
        }
    }
    ok(store.write("v", b"1"));
    let batch = (0..100).map(|i| request("v", ByteRange::Span { offset: i % 2, size_bytes: 0 })).collect();
    let (_, outcomes) = read_all(store, batch, &Dropping, u64::MAX);
    assert!(outcomes.values().all(|ends| ends.len() == 1), "each item ends once");
}

pub(super) fn reads_empty_batch(store: &Arc<dyn Store>) {
    assert!(store.get_many(Vec::new()).is_empty());
}
