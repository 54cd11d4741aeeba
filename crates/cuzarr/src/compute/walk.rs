//! One region read ahead, one written behind: reading, working and writing at the same time, each in a thread of its own.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;

use crate::error::{Error, ErrorKind, Result};

/// Reads item after item in a thread of its own, one ahead, and hands what it read to `work` in this one. At most two
/// values exist at a time: the one that is read and the one that is worked on.
///
/// # Errors
/// The first failure of either; nothing is read behind it.
pub(crate) fn relay<I: Send, T: Send>(
    items: impl Iterator<Item = Result<I>> + Send,
    read: impl Fn(&I) -> Result<T> + Send,
    mut work: impl FnMut(I, T) -> Result<()>,
) -> Result<()> {
    std::thread::scope(|scope| {
        let (sender, receiver): (SyncSender<Result<(I, T)>>, Receiver<_>) = sync_channel(0);
        let reader = move || {
            for item in items {
                let outcome = item.and_then(|item| read(&item).map(|value| (item, value)));
                let failed = outcome.is_err();
                // Nobody takes it when the work failed.
                if sender.send(outcome).is_err() || failed {
                    return;
                }
            }
        };
        Builder::new().name("cuzarr-read".into()).spawn_scoped(scope, reader).map_err(|error| no_thread(&error))?;
        for outcome in receiver {
            let (item, value) = outcome?;
            work(item, value)?;
        }
        Ok(())
    })
}

/// Works through items of any number: each is read, worked on and written, the next one being read and the former one
/// written meanwhile, by threads of their own; `work` runs in the caller's. At most four values exist at a time: one that is
/// read, one that is worked on, what comes of it, and what came of the former one.
///
/// ```
/// use cuzarr::compute::{Regions, walk};
/// let regions = Regions::new(&[10], vec![4])?;
/// let mut sums = Vec::new();
/// let read = |region: &cuzarr::compute::Region| Ok((region.start[0]..region.start[0] + region.extent[0]).collect::<Vec<u64>>());
/// walk(regions.from(0), read, |_, values| Ok(values.iter().sum::<u64>()), |_, sum| Ok(sums.push(sum)))?;
/// assert_eq!(sums, [6, 22, 17]);
/// # Ok::<(), cuzarr::Error>(())
/// ```
///
/// # Errors
/// The first failure of the three.
pub fn walk<I: Send, T: Send, U: Send>(
    items: impl Iterator<Item = Result<I>> + Send,
    read: impl Fn(&I) -> Result<T> + Send,
    mut work: impl FnMut(&I, T) -> Result<U>,
    mut write: impl FnMut(I, U) -> Result<()> + Send,
) -> Result<()> {
    std::thread::scope(|scope| {
        let (sender, receiver): (SyncSender<(I, U)>, Receiver<_>) = sync_channel(0);
        let writer = move || receiver.into_iter().try_for_each(|(item, made)| write(item, made));
        let writer = Builder::new().name("cuzarr-write".into()).spawn_scoped(scope, writer);
        let writer = writer.map_err(|error| no_thread(&error))?;
        let worked = relay(items, read, |item, value| {
            let made = work(&item, value)?;
            let ended = || Error::new(ErrorKind::Cancelled, "writing ended early");
            sender.send((item, made)).map_err(|_| ended())
        });
        drop(sender);
        // What ended the writer is why the others ended.
        match writer.join() {
            Ok(written) => written.and(worked),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn no_thread(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("the system gives no more threads: {error}"))
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
        relay((0..50).map(Ok), read, |item, value| {
            seen.push((item, value));
            alive.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, (0..50).map(|item| (item, item * 10)).collect::<Vec<_>>());
        assert!(most.load(Ordering::SeqCst) <= 2);
    }

    #[test]
    fn three_steps_keep_their_order() {
        let mut written = Vec::new();
        walk(
            (0..20).map(Ok),
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
                (0..1000usize).map(Ok),
                |item| check(*item, read_fails, "read"),
                |item, _| check(*item, work_fails, "work"),
                |item, _| check(item, write_fails, "write").map(|_| ()),
            );
            outcome.unwrap_err().message().to_string()
        };
        assert_eq!([run(3, 2000, 2000), run(2000, 3, 2000), run(2000, 2000, 3)], ["read", "work", "write"]);
    }
}
