//! Reads a large value, or a large range of it, with several threads, each of which fills a part of the memory. Its
//! memory is divided, and the thread that ends the last part ends the item.
//!
//! One thread copies from the page cache at about a tenth of the speed of all threads together. And a device cannot
//! start before it has the first large chunk.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::object::Object;
use super::{Lease, ReadOutcome, Workers};
use crate::error::{Error, ErrorKind, Result};

/// Size of the parts into which a large read is divided among threads, in bytes. A thread fills it in about a fifth of
/// a millisecond.
pub(super) const PART_BYTES: usize = 1 << 20;
/// Smallest part for which another thread is woken, in bytes, when there are fewer reads than threads.
const LEAST_PART_BYTES: usize = 1 << 18;

/// The size of the parts into which a read of `size_bytes` is divided if `threads` threads could fill it.
pub(super) fn part_bytes(size_bytes: usize, threads: usize) -> usize {
    size_bytes.div_ceil(threads.max(1)).next_multiple_of(4096).clamp(LEAST_PART_BYTES, PART_BYTES)
}

/// A function that is called once, with the outcome of the divided read.
type PartEnd = Box<dyn FnOnce(Result<ReadOutcome>) + Send>;

/// One large read whose memory is divided into parts, so that several threads can fill it.
pub(super) struct Parts<O: Object> {
    object: Arc<O>,
    /// Whether the read must fail if the value changes during the read.
    watched: bool,
    waiting: Mutex<VecDeque<Part>>,
    remaining: AtomicUsize,
    result: Mutex<FilledPart>,
}

struct Part {
    /// Whether this is the first part of the read's memory, which is handed back for the whole memory when all parts
    /// are filled.
    first: bool,
    offset: u64,
    lease: Box<dyn Lease>,
}

struct FilledPart {
    first: Option<Box<dyn Lease>>,
    failure: Option<Error>,
    end: Option<PartEnd>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<O: Object + 'static> Parts<O> {
    /// Divides `lease`, the memory for a read that starts at byte `offset` of the value, into parts of `part_bytes` for
    /// several threads. Returns `lease` itself if it cannot be divided.
    pub(super) fn divide(
        object: &Arc<O>,
        offset: u64,
        part_bytes: usize,
        watched: bool,
        mut lease: Box<dyn Lease>,
        end: impl FnOnce(Result<ReadOutcome>) + Send + 'static,
    ) -> Result<Arc<Parts<O>>, Box<dyn Lease>> {
        let size_bytes = lease.bytes().len();
        let mut waiting = VecDeque::new();
        // The loop goes down to 0, so the first part has no bytes. It is kept until the item ends, and its bytes would
        // wait.
        for at in (0..size_bytes).step_by(part_bytes).rev() {
            match lease.split_off(at) {
                Some(lease) => waiting.push_front(Part { first: false, offset: offset + at as u64, lease }),
                // If the memory cannot be split here, it stays with the part before it.
                None if waiting.is_empty() => return Err(lease),
                None => {}
            }
        }
        waiting.push_front(Part { first: true, offset, lease });
        let remaining = AtomicUsize::new(waiting.len());
        let result = Mutex::new(FilledPart { first: None, failure: None, end: Some(Box::new(end)) });
        Ok(Arc::new(Parts { object: Arc::clone(object), watched, waiting: Mutex::new(waiting), remaining, result }))
    }

    /// Fills the parts of the read's memory with up to `threads` threads, one part per job. Between two parts, a thread
    /// can run jobs that were queued earlier.
    pub(super) fn fill(self: Arc<Self>, workers: &Arc<dyn Workers>, threads: usize) {
        for _ in 0..threads.min(lock(&self.waiting).len()) {
            Arc::clone(&self).spawn_part(Arc::clone(workers));
        }
    }

    fn spawn_part(self: Arc<Self>, workers: Arc<dyn Workers>) {
        let lent = Arc::clone(&workers);
        workers.spawn(Box::new(move || {
            if self.fill_one() {
                self.spawn_part(lent);
            }
        }));
    }

    /// Fills the next part of the read's memory that no thread has taken. Returns whether more parts wait.
    fn fill_one(&self) -> bool {
        let mut waiting = lock(&self.waiting);
        let (part, others_wait) = (waiting.pop_front(), !waiting.is_empty());
        drop(waiting);
        let Some(mut part) = part else { return false };
        let failed = lock(&self.result).failure.is_some();
        let read = if failed { Ok(()) } else { self.object.read_exact_at(part.lease.bytes(), part.offset) };
        let mut result = lock(&self.result);
        if let Err(error) = read {
            result.failure.get_or_insert(error);
        }
        if part.first {
            result.first = Some(part.lease);
            drop(result);
        } else {
            drop(result);
            drop(part.lease);
        }
        if self.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.end();
        }
        others_wait
    }

    fn end(&self) {
        let mut result = lock(&self.result);
        let (first, failure, end) = (result.first.take(), result.failure.take(), result.end.take());
        drop(result);
        let Some(end) = end else { return };
        let outcome = match (failure, first) {
            (None, Some(lease)) if self.watched => self.object.check_unchanged().map(|()| ReadOutcome::Filled(lease)),
            (None, Some(lease)) => Ok(ReadOutcome::Filled(lease)),
            (Some(error), _) => Err(error),
            (None, None) => Err(Error::new(ErrorKind::StoreFailed, "a part of the read was lost")),
        };
        end(outcome);
    }
}

/// Ends the read with an error if a thread panicked before it had filled its part. Otherwise a caller would wait for it
/// forever.
impl<O: Object> Drop for Parts<O> {
    fn drop(&mut self) {
        let end = self.result.get_mut().unwrap_or_else(PoisonError::into_inner).end.take();
        if let Some(end) = end {
            end(Err(Error::new(ErrorKind::StoreFailed, "a part of the read was lost")));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::sync::mpsc;

    use super::*;

    /// Memory for tests: a vector that can be divided into parts.
    struct Divisible {
        all: Arc<Mutex<Vec<u8>>>,
        part: Vec<u8>,
        at: usize,
    }

    impl Lease for Divisible {
        fn bytes(&mut self) -> &mut [u8] {
            &mut self.part
        }

        fn into_any(self: Box<Self>) -> Box<dyn Any> {
            self
        }

        fn split_off(&mut self, at: usize) -> Option<Box<dyn Lease>> {
            let part = self.part.split_off(at);
            Some(Box::new(Divisible { all: Arc::clone(&self.all), part, at: self.at + at }))
        }
    }

    impl Drop for Divisible {
        fn drop(&mut self) {
            lock(&self.all)[self.at..self.at + self.part.len()].copy_from_slice(&self.part);
        }
    }

    /// A value for tests: its byte `i` is `i % 251`. Reading at or after `broken` fails or panics.
    struct Value {
        broken: u64,
        panics: bool,
        changed: bool,
    }

    impl Object for Value {
        fn size_bytes(&self) -> u64 {
            u64::MAX
        }

        fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
            if offset + bytes.len() as u64 > self.broken {
                assert!(!self.panics, "on purpose");
                return Err(Error::new(ErrorKind::StoreFailed, "broken"));
            }
            bytes.iter_mut().zip(offset..).for_each(|(byte, at)| *byte = (at % 251) as u8);
            Ok(())
        }

        fn check_unchanged(&self) -> Result<()> {
            if self.changed { Err(Error::new(ErrorKind::StoreFailed, "changed")) } else { Ok(()) }
        }
    }

    struct Threads;

    impl Workers for Threads {
        fn spawn(&self, job: Box<dyn FnOnce() + Send>) {
            std::thread::spawn(job);
        }

        fn count(&self) -> usize {
            3
        }
    }

    fn read(value: Value, size_bytes: usize, whole: bool) -> (Result<()>, Vec<u8>) {
        let all = Arc::new(Mutex::new(vec![0; size_bytes]));
        let lease = Box::new(Divisible { all: Arc::clone(&all), part: vec![0; size_bytes], at: 0 });
        let (sender, ended) = mpsc::channel();
        let end = move |outcome: Result<ReadOutcome>| sender.send(outcome.map(drop)).unwrap();
        let parts = Parts::divide(&Arc::new(value), 7, PART_BYTES, whole, lease, end).ok().unwrap();
        let workers: Arc<dyn Workers> = Arc::new(Threads);
        // Lent threads survive a panic, and so must this one.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| parts.fill(&workers, 3)));
        let outcome = ended.recv().unwrap();
        assert!(ended.recv().is_err(), "an item ends once");
        let bytes = lock(&all).clone();
        (outcome, bytes)
    }

    #[test]
    fn several_threads_fill_one_item() {
        for size_bytes in [PART_BYTES + 1, 2 * PART_BYTES, 5 * PART_BYTES + 3] {
            let (outcome, bytes) = read(Value { broken: u64::MAX, panics: false, changed: false }, size_bytes, true);
            outcome.unwrap();
            assert!(bytes.iter().zip(7u64..).all(|(&byte, at)| byte == (at % 251) as u8));
        }
    }

    #[test]
    fn parts_share_a_read_among_idle_threads() {
        let of = |size_bytes, threads| part_bytes(size_bytes, threads);
        assert_eq!([of(1 << 30, 64), of(8 << 20, 1), of(8 << 20, 0)], [PART_BYTES; 3]);
        assert_eq!([of(1 << 20, 16), of(3, 4), of(0, 1)], [LEAST_PART_BYTES; 3]);
        assert_eq!(of(3 << 20, 8), (3 << 20) / 8);
    }

    #[test]
    fn a_part_that_fails_fails_the_item() {
        let size_bytes = 4 * PART_BYTES;
        for panics in [false, true] {
            let broken = Value { broken: 3 * PART_BYTES as u64, panics, changed: false };
            assert_eq!(read(broken, size_bytes, false).0.unwrap_err().kind(), ErrorKind::StoreFailed);
        }
        let changed = || Value { broken: u64::MAX, panics: false, changed: true };
        assert_eq!(read(changed(), size_bytes, true).0.unwrap_err().message(), "changed");
        read(changed(), size_bytes, false).0.unwrap();
    }
}
