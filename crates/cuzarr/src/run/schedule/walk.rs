//! Reading, working and writing at the same time, in separate threads: while one item is worked on, the next is read and the one
//! before is written.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;

use crate::error::{Error, ErrorKind, Result};

/// Reads items in separate threads, `ahead` at a time, and hands each value to `work` in the calling thread, in order. At most
/// `ahead + 1` values exist at a time: those that are being read and the one that is worked on.
///
/// # Errors
/// The first failure of either. No further read begins after it.
pub fn relay<I: Send, T: Send>(
    mut items: impl Iterator<Item = Result<I>>,
    ahead: usize,
    read: impl Fn(&I) -> Result<T> + Sync,
    mut work: impl FnMut(I, T) -> Result<()>,
) -> Result<()> {
    let read = &read;
    std::thread::scope(|scope| {
        let mut begun: VecDeque<Receiver<Result<(I, T)>>> = VecDeque::with_capacity(ahead);
        let mut begin = |begun: &mut VecDeque<_>| -> Result<()> {
            while begun.len() < ahead {
                let Some(item) = items.next().transpose()? else { break };
                let (sender, receiver) = sync_channel(1);
                let reader = move || {
                    // This fails only when the work failed.
                    let _ = sender.send(read(&item).map(|value| (item, value)));
                };
                let builder = Builder::new().name("cuzarr-read".into());
                builder.spawn_scoped(scope, reader).map_err(|error| no_thread(&error))?;
                begun.push_back(receiver);
            }
            Ok(())
        };
        begin(&mut begun)?;
        while let Some(next) = begun.pop_front() {
            let (item, value) = next.recv().map_err(|_| Error::new(ErrorKind::Cancelled, "reading ended early"))??;
            begin(&mut begun)?;
            work(item, value)?;
        }
        Ok(())
    })
}

/// Works through any number of items: each is read, worked on and written. Separate threads read `ahead` items at a time and
/// write the former one; `work` runs in the calling thread. At most `ahead + 3` values exist at a time: those that are being
/// read, the one that is worked on, its result, and the result before it.
///
/// ```
/// use cuzarr::plan::{Region, Regions};
/// use cuzarr::internal::run::walk;
/// let regions = Regions::new(&[10], vec![4])?;
/// let mut sums = Vec::new();
/// let read = |region: &Region| Ok((region.start[0]..region.start[0] + region.extent[0]).collect::<Vec<u64>>());
/// walk(regions.from(0), 1, read, |_, values| Ok(values.iter().sum::<u64>()), |_, sum| Ok(sums.push(sum)))?;
/// assert_eq!(sums, [6, 22, 17]);
/// # Ok::<(), cuzarr::Error>(())
/// ```
///
/// # Errors
/// The first failure of the three.
pub fn walk<I: Send, T: Send, U: Send>(
    items: impl Iterator<Item = Result<I>>,
    ahead: usize,
    read: impl Fn(&I) -> Result<T> + Sync,
    mut work: impl FnMut(&I, T) -> Result<U>,
    write: impl FnMut(I, U) -> Result<()> + Send,
) -> Result<()> {
    write_behind(write, |hand_on| {
        relay(items, ahead, read, |item, value| {
            let made = work(&item, value)?;
            hand_on(item, made)
        })
    })
}

/// Runs `work` with a function that hands items on. A separate thread writes each item while `work` continues with the next.
///
/// # Errors
/// The first failure of the two.
pub fn write_behind<I: Send, U: Send>(
    mut write: impl FnMut(I, U) -> Result<()> + Send,
    work: impl FnOnce(&mut dyn FnMut(I, U) -> Result<()>) -> Result<()>,
) -> Result<()> {
    std::thread::scope(|scope| {
        let (sender, receiver): (SyncSender<(I, U)>, Receiver<_>) = sync_channel(0);
        let writer = move || receiver.into_iter().try_for_each(|(item, made)| write(item, made));
        let writer = Builder::new().name("cuzarr-write".into()).spawn_scoped(scope, writer);
        let writer = writer.map_err(|error| no_thread(&error))?;
        let worked = work(&mut |item, made| {
            let ended = |_| Error::new(ErrorKind::Cancelled, "writing ended early");
            sender.send((item, made)).map_err(ended)
        });
        drop(sender);
        // The writer's error is the reason why the others ended.
        match writer.join() {
            Ok(written) => written.and(worked),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

pub(crate) fn no_thread(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("the system refuses another thread: {error}"))
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
            relay((0..50).map(Ok), ahead, read, |item, value| {
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
