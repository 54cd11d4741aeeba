//! Reads, processes and writes many items at the same time, in separate threads. While one item is worked on, the next
//! is read and the previous result is written.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuzarr_device::internal::Threads;

use crate::cancellation::{CancellationToken, POLL_INTERVAL};
use crate::error::{Error, ErrorKind, Result};

/// Runs `work` on another thread, and returns its result. If the token is cancelled, this returns without waiting for
/// `work`.
///
/// # Errors
/// `Cancelled`; those of `work`.
pub fn apart<T: Send + 'static>(
    cancellation: &CancellationToken,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (sender, result) = channel();
    // This fails only when the caller was cancelled.
    Threads::callers().submit(Box::new(move || drop(sender.send(work()))));
    let none = || Error::new(ErrorKind::Cancelled, "the call ended without a result");
    cancellation.receive(&result)?.ok_or_else(none)?
}

/// Runs `work` on another thread, and waits until it has ended, also when the token is cancelled.
///
/// # Errors
/// Those of `work`, which sees a cancellation when this thread sees it; `OutOfMemory` if the system refuses a thread.
pub fn aside<T: Send>(cancellation: &CancellationToken, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let mut made = None;
    let other = || work().map(|value| made = Some(value));
    beside(cancellation, other, || Ok(()))?;
    made.ok_or_else(|| Error::new(ErrorKind::Cancelled, "the call ended without a result"))
}

/// Runs `other` on another thread while `work` runs on this one; returns when both have ended.
///
/// # Errors
/// The error of `other`, unless it is `Cancelled` and `work` failed for another reason; else the error of `work`.
pub(crate) fn beside(
    cancellation: &CancellationToken,
    other: impl FnOnce() -> Result<()> + Send,
    work: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let (sender, ended) = channel();
    let (worked, other) = Threads::callers().scope(|scope| {
        scope.spawn(move || drop(sender.send(other()))).map_err(|error| no_thread(&error))?;
        let worked = work();
        // Both threads see a cancellation, so `other` ends soon. After a panic it sends nothing.
        let other = loop {
            match ended.recv_timeout(POLL_INTERVAL) {
                Ok(other) => break other,
                Err(RecvTimeoutError::Disconnected) => break Ok(()),
                Err(RecvTimeoutError::Timeout) => drop(cancellation.check()),
            }
        };
        Ok::<_, Error>((worked, other))
    })?;
    let is_reason = |error: &Error| error.kind() != ErrorKind::Cancelled;
    match (other, worked) {
        (Err(other), Err(worked)) if is_reason(&worked) && !is_reason(&other) => Err(worked),
        (other, worked) => other.and(worked),
    }
}

fn no_thread(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("the system refuses another thread: {error}"))
}

/// Reads items in separate threads, `ahead` at a time, and passes each value to `work` in the calling thread, in order.
/// At most `ahead + 1` values exist at a time: those that are being read, and the one that is worked on.
///
/// # Errors
/// The first failure of a read or of `work`. No further read begins after it.
pub fn relay<I: Send, T: Send>(
    cancellation: &CancellationToken,
    mut items: impl Iterator<Item = Result<I>>,
    ahead: usize,
    read: impl Fn(&I) -> Result<T> + Sync,
    mut work: impl FnMut(I, T) -> Result<()>,
) -> Result<()> {
    let read = &read;
    Threads::callers().scope(|scope| {
        let mut begun: VecDeque<Receiver<Result<(I, T)>>> = VecDeque::with_capacity(ahead);
        let mut begin = |begun: &mut VecDeque<_>| -> Result<()> {
            while begun.len() < ahead {
                let Some(item) = items.next().transpose()? else { break };
                let (sender, receiver) = channel();
                // This fails only if the work failed.
                let reader = move || drop(sender.send(read(&item).map(|value| (item, value))));
                scope.spawn(reader).map_err(|error| no_thread(&error))?;
                begun.push_back(receiver);
            }
            Ok(())
        };
        begin(&mut begun)?;
        while let Some(next) = begun.pop_front() {
            let ended = || Error::new(ErrorKind::Cancelled, "reading ended early");
            let (item, value) = cancellation.receive(&next)?.ok_or_else(ended)??;
            begin(&mut begun)?;
            work(item, value)?;
        }
        Ok(())
    })
}

/// Reads, processes and writes items, with reading and writing in threads of their own. Separate threads read `ahead`
/// items at a time and write the results before; `work` runs in the calling thread. At most `ahead + 2` values and the
/// results that `behind` writes exist at a time: `ahead` that are being read, the one that is worked on, and its result.
///
/// ```
/// use cuzarr::plan::{Region, Regions};
/// use cuzarr::internal::run::{Behind, walk};
/// let regions = Regions::new(&[10], vec![4])?;
/// let mut sums = Vec::new();
/// let read = |region: &Region| Ok((region.start[0]..region.start[0] + region.extent[0]).collect::<Vec<u64>>());
/// let token = cuzarr::CancellationToken::new();
/// walk(&token, regions.from(0), 1, read, |_, values| Ok(values.iter().sum::<u64>()), Behind::in_order(|_, sum| Ok(sums.push(sum))))?;
/// assert_eq!(sums, [6, 22, 17]);
/// # Ok::<(), cuzarr::Error>(())
/// ```
///
/// # Errors
/// The first failure of `read`, `work` or `behind`.
pub fn walk<I: Send, T: Send, U: Send, V: Send>(
    cancellation: &CancellationToken,
    items: impl Iterator<Item = Result<I>>,
    ahead: usize,
    read: impl Fn(&I) -> Result<T> + Sync,
    mut work: impl FnMut(&I, T) -> Result<U>,
    behind: Behind<impl Fn(&I, U) -> Result<V> + Sync, impl FnMut(I, V) -> Result<()> + Send>,
) -> Result<()> {
    behind.run(cancellation, |hand_on| {
        relay(cancellation, items, ahead, read, |item, value| {
            let made = work(&item, value)?;
            hand_on(item, made)
        })
    })
}

/// Writes items behind the thread that makes them, several at a time.
pub struct Behind<W, D> {
    /// Number of items that are written at a time.
    pub at_once: usize,
    /// Writes an item. Several threads call it at a time.
    pub write: W,
    /// Called with each written item, in the order in which the items were handed over.
    pub done: D,
}

impl<I, U, D> Behind<fn(&I, U) -> Result<U>, D> {
    /// Passes items to `done` one after the other.
    pub fn in_order(done: D) -> Self {
        Behind { at_once: 1, write: |_, made| Ok(made), done }
    }
}

impl<W, D> Behind<W, D> {
    /// Runs `work`, and writes the items that it hands over meanwhile. `work` waits while `at_once` items are written.
    ///
    /// # Errors
    /// The first failure of `work`, of `write` or of `done`. No further item is written after it.
    pub fn run<I: Send, U: Send, V: Send>(
        self,
        cancellation: &CancellationToken,
        work: impl FnOnce(&mut dyn FnMut(I, U) -> Result<()>) -> Result<()>,
    ) -> Result<()>
    where
        W: Fn(&I, U) -> Result<V> + Sync,
        D: FnMut(I, V) -> Result<()> + Send,
    {
        let Behind { at_once, write, done } = self;
        let ((sender, items), (free, is_free)) = (channel(), channel());
        let (items, written) = (Mutex::new(items), Mutex::new(InOrder { next: 0, early: BTreeMap::new(), done }));
        let failed = AtomicBool::new(false);
        let write_items = |free: Sender<()>| -> Result<()> {
            while free.send(()).is_ok() {
                let Ok((number, item, made)) = held(&items).recv() else { break };
                if failed.load(Ordering::Relaxed) {
                    break;
                }
                let outcome = write(&item, made).and_then(|made| held(&written).push(number, item, made));
                failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
                outcome?;
            }
            Ok(())
        };
        let writers = || {
            let frees = std::iter::repeat_n(free, at_once.max(1));
            Threads::callers().map(at_once, frees, write_items).into_iter().collect()
        };
        beside(cancellation, writers, move || {
            let mut numbers = 0..;
            work(&mut |item, made| {
                let ended = || Error::new(ErrorKind::Cancelled, "writing ended early");
                cancellation.receive(&is_free)?.ok_or_else(ended)?;
                let number: usize = numbers.next().unwrap_or_default();
                sender.send((number, item, made)).map_err(|_| ended())
            })
        })
    }
}

/// Items that were written, some of them earlier than those before them.
struct InOrder<I, V, D> {
    /// Number of the item for which `done` is called next.
    next: usize,
    early: BTreeMap<usize, (I, V)>,
    done: D,
}

impl<I, V, D: FnMut(I, V) -> Result<()>> InOrder<I, V, D> {
    /// Adds an item that was written, and calls `done` for those whose turn it is.
    fn push(&mut self, number: usize, item: I, made: V) -> Result<()> {
        self.early.insert(number, (item, made));
        while let Some((item, made)) = self.early.remove(&self.next) {
            self.next += 1;
            (self.done)(item, made)?;
        }
        Ok(())
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn failure(text: &str) -> Error {
        Error::new(ErrorKind::StoreFailed, text)
    }

    #[test]
    fn items_arrive_in_order_and_few_at_a_time() {
        let (alive, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut seen = Vec::new();
        let read = |item: &usize| {
            let now = alive.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            Ok(item * 10)
        };
        for ahead in [1, 3] {
            seen.clear();
            relay(&CancellationToken::new(), (0..50).map(Ok), ahead, read, |item, value| {
                seen.push((item, value));
                alive.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            })
            .unwrap();
            assert_eq!(seen, (0..50).map(|item| (item, item * 10)).collect::<Vec<_>>());
            assert!(most.load(Ordering::SeqCst) <= ahead + 1);
        }
    }

    #[test]
    fn three_steps_keep_their_order() {
        let mut written = Vec::new();
        walk(
            &CancellationToken::new(),
            (0..20).map(Ok),
            1,
            |item: &i32| Ok(item + 1),
            |item, value| Ok(value * item),
            Behind::in_order(|item, made| {
                written.push((item, made));
                Ok(())
            }),
        )
        .unwrap();
        assert_eq!(written, (0..20).map(|item| (item, (item + 1) * item)).collect::<Vec<_>>());
    }

    #[test]
    fn several_items_are_written_at_a_time_and_done_in_order() {
        let (writing, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut done = Vec::new();
        let write = |item: &usize, made: usize| {
            most.fetch_max(writing.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // Items with even numbers end after the item behind them.
            std::thread::sleep(std::time::Duration::from_millis(if item.is_multiple_of(2) { 6 } else { 1 }));
            writing.fetch_sub(1, Ordering::SeqCst);
            Ok(made * 10)
        };
        let note = |item, made| {
            done.push((item, made));
            Ok(())
        };
        let behind = Behind { at_once: 2, write, done: note };
        behind.run(&CancellationToken::new(), |hand_on| (0..40).try_for_each(|item| hand_on(item, item))).unwrap();
        assert_eq!(done, (0..40).map(|item| (item, item * 10)).collect::<Vec<_>>());
        assert_eq!(most.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn nothing_is_done_behind_an_item_that_failed() {
        for failing in 0..5 {
            let mut done = Vec::new();
            let write = |item: &usize, ()| {
                // The item that fails takes longest.
                std::thread::sleep(std::time::Duration::from_millis(if *item == failing { 5 } else { 0 }));
                if *item == failing { Err(failure("write")) } else { Ok(()) }
            };
            let note = |item: usize, ()| {
                done.push(item);
                Ok(())
            };
            let behind = Behind { at_once: 3, write, done: note };
            let outcome =
                behind.run(&CancellationToken::new(), |hand_on| (0..100).try_for_each(|item| hand_on(item, ())));
            assert_eq!(outcome.unwrap_err().message(), "write");
            assert_eq!(done, (0..failing).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_failure_of_any_step_ends_the_others() {
        let run = |read_fails: usize, work_fails: usize, write_fails: usize| {
            let check = |item: usize, at: usize, what: &str| if item == at { Err(failure(what)) } else { Ok(item) };
            let outcome = walk(
                &CancellationToken::new(),
                (0..1000usize).map(Ok),
                1,
                |item| check(*item, read_fails, "read"),
                |item, _| check(*item, work_fails, "work"),
                Behind::in_order(|item, _| check(item, write_fails, "write").map(|_| ())),
            );
            outcome.unwrap_err().message().to_string()
        };
        assert_eq!([run(3, 2000, 2000), run(2000, 3, 2000), run(2000, 2000, 3)], ["read", "work", "write"]);
    }
}
