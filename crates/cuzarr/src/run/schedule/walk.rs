//! Reads, processes and writes many items at the same time, in separate threads. While one item is worked on, the next
//! is read and the previous result is written.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

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
/// items at a time and write the previous result; `work` runs in the calling thread. At most `ahead + 3` values exist
/// at a time: `ahead` that are being read, the one that is worked on, its result, and the result before it.
///
/// ```
/// use cuzarr::plan::{Region, Regions};
/// use cuzarr::internal::run::walk;
/// let regions = Regions::new(&[10], vec![4])?;
/// let mut sums = Vec::new();
/// let read = |region: &Region| Ok((region.start[0]..region.start[0] + region.extent[0]).collect::<Vec<u64>>());
/// let token = cuzarr::CancellationToken::new();
/// walk(&token, regions.from(0), 1, read, |_, values| Ok(values.iter().sum::<u64>()), |_, sum| Ok(sums.push(sum)))?;
/// assert_eq!(sums, [6, 22, 17]);
/// # Ok::<(), cuzarr::Error>(())
/// ```
///
/// # Errors
/// The first failure of `read`, `work` or `write`.
pub fn walk<I: Send, T: Send, U: Send>(
    cancellation: &CancellationToken,
    items: impl Iterator<Item = Result<I>>,
    ahead: usize,
    read: impl Fn(&I) -> Result<T> + Sync,
    mut work: impl FnMut(&I, T) -> Result<U>,
    write: impl FnMut(I, U) -> Result<()> + Send,
) -> Result<()> {
    write_behind(cancellation, write, |hand_on| {
        relay(cancellation, items, ahead, read, |item, value| {
            let made = work(&item, value)?;
            hand_on(item, made)
        })
    })
}

/// Runs `work`, and writes the items that `work` hands over meanwhile. A separate thread writes each item while `work`
/// continues with the next.
///
/// # Errors
/// The first failure of `work` or of the writer.
pub fn write_behind<I: Send, U: Send>(
    cancellation: &CancellationToken,
    mut write: impl FnMut(I, U) -> Result<()> + Send,
    work: impl FnOnce(&mut dyn FnMut(I, U) -> Result<()>) -> Result<()>,
) -> Result<()> {
    let ((sender, items), (free, is_free)) = (channel(), channel());
    let writer = move || {
        while free.send(()).is_ok()
            && let Ok((item, made)) = items.recv()
        {
            write(item, made)?;
        }
        Ok(())
    };
    beside(cancellation, writer, move || {
        work(&mut |item, made| {
            let ended = || Error::new(ErrorKind::Cancelled, "writing ended early");
            cancellation.receive(&is_free)?.ok_or_else(ended)?;
            sender.send((item, made)).map_err(|_| ended())
        })
    })
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
            |item, made| {
                written.push((item, made));
                Ok(())
            },
        )
        .unwrap();
        assert_eq!(written, (0..20).map(|item| (item, (item + 1) * item)).collect::<Vec<_>>());
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
                |item, _| check(item, write_fails, "write").map(|_| ()),
            );
            outcome.unwrap_err().message().to_string()
        };
        assert_eq!([run(3, 2000, 2000), run(2000, 3, 2000), run(2000, 2000, 3)], ["read", "work", "write"]);
    }
}
