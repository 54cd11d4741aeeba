//! The range lock: writes of this process to the same objects run one after the other, in the order in which they came.
//!
//! A write to a part of an object reads, merges and replaces the object. If two such writes ran at the same time, one
//! would be lost. A call waits for its turn before it takes memory or threads, and only for earlier calls. So no two
//! calls wait for each other.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::cancellation::{CancellationToken, POLL_INTERVAL};
use crate::error::Result;
use crate::store::Identity;

/// A box of stored objects that a call writes: from the first to the last along each dimension of the array's grid.
pub(crate) struct Objects {
    /// The identity of the array to which the stored objects belong. All writers of the array have the same.
    pub(crate) array: Identity,
    pub(crate) bounds: Vec<(u64, u64)>,
}

/// The queue in which write calls wait until earlier writes of this process to the same stored objects are done.
#[derive(Default)]
pub(crate) struct Turns {
    queue: Mutex<RangeQueue>,
    ended: Condvar,
}

#[derive(Default)]
struct RangeQueue {
    arrived: u64,
    /// The write calls in the order of arrival, each with its number and the objects that it writes to.
    writers: Vec<(u64, Vec<Objects>)>,
}

/// A lock on stored objects: while it exists, no other call of this process writes to them. Dropping it lets the next
/// call go on.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    number: u64,
    process: u32,
}

impl Objects {
    /// Whether two boxes may contain the same stored object: the arrays share chunks, and the boxes overlap.
    pub(crate) fn overlap(&self, other: &Objects) -> bool {
        let mut dimensions = self.bounds.iter().zip(&other.bounds);
        dimensions.all(|(one, other)| one.0 <= other.1 && other.0 <= one.1) && self.array.has_same_chunks(&other.array)
    }
}

impl RangeQueue {
    fn must_wait(&self, number: u64) -> bool {
        let Ok(place) = self.writers.binary_search_by_key(&number, |(number, _)| *number) else { return false };
        let (before, own) = (&self.writers[..place], &self.writers[place].1);
        before.iter().flat_map(|(_, objects)| objects).any(|other| own.iter().any(|objects| objects.overlap(other)))
    }

    fn leave(&mut self, number: u64) {
        self.writers.retain(|(other, _)| *other != number);
    }
}

impl Turns {
    /// Waits until all earlier calls are done with the stored objects `objects`; fails if the token is cancelled first.
    /// A call that writes to several arrays takes one turn for all of them. With one turn per array, two such calls
    /// could wait for each other.
    ///
    /// # Errors
    /// `Cancelled`
    pub(crate) fn take(self: &Arc<Self>, objects: Vec<Objects>, cancellation: &CancellationToken) -> Result<Turn> {
        let mut queue = self.lock();
        let number = queue.arrived;
        queue.arrived += 1;
        queue.writers.push((number, objects));
        while queue.must_wait(number) {
            queue = self.ended.wait_timeout(queue, POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
            // The token may call back to the caller, so the lock is released first.
            drop(queue);
            let checked = cancellation.check();
            queue = self.lock();
            if let Err(error) = checked {
                queue.leave(number);
                self.ended.notify_all();
                return Err(error);
            }
        }
        Ok(Turn { turns: Arc::clone(self), number, process: std::process::id() })
    }

    fn lock(&self) -> MutexGuard<'_, RangeQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            self.turns.lock().leave(self.number);
            self.turns.ended.notify_all();
        } // In a forked child another thread of the parent may have held the lock.
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    use super::*;
    use crate::error::ErrorKind;

    fn objects(array: &str, bounds: &[(u64, u64)]) -> Objects {
        Objects { array: Identity::address(array), bounds: bounds.to_vec() }
    }

    fn take(turns: &Arc<Turns>, array: &str, bounds: &[(u64, u64)]) -> Turn {
        turns.take(vec![objects(array, bounds)], &CancellationToken::new()).unwrap()
    }

    #[test]
    fn only_writers_of_the_same_objects_wait() {
        let turns = Arc::new(Turns::default());
        let _first = take(&turns, "a", &[(0, 3), (2, 2)]);
        // Each of these would wait forever.
        let _beside = take(&turns, "a", &[(0, 3), (3, 9)]);
        let _elsewhere = take(&turns, "b", &[(0, 3), (2, 2)]);
        let _scalar = take(&turns, "c", &[]);
    }

    #[test]
    fn who_came_first_is_served_first() {
        let turns = Arc::new(Turns::default());
        let first = take(&turns, "a", &[(0, 0)]);
        let (sender, receiver) = channel();
        let threads: Vec<_> = (1..=2)
            .map(|number| {
                let (theirs, sender) = (Arc::clone(&turns), sender.clone());
                let thread = std::thread::spawn(move || {
                    let turn = take(&theirs, "a", &[(0, number)]);
                    sender.send(number).unwrap();
                    drop(turn);
                });
                while turns.lock().arrived <= number {
                    std::thread::yield_now();
                }
                thread
            })
            .collect();
        assert_eq!(receiver.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
        drop(first);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [1, 2]);
        assert!(turns.lock().writers.is_empty());
    }

    #[test]
    fn several_arrays_are_one_turn() {
        let turns = Arc::new(Turns::default());
        let both = || vec![objects("a", &[(0, 0)]), objects("b", &[(3, 4)])];
        let first = turns.take(both(), &CancellationToken::new()).unwrap();
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        for bounds in [vec![objects("b", &[(4, 9)])], vec![objects("c", &[]), objects("a", &[(0, 2)])]] {
            assert_eq!(turns.take(bounds, &cancelled).err().unwrap().kind(), ErrorKind::Cancelled);
        }
        let _beside = turns.take(vec![objects("a", &[(1, 1)]), objects("b", &[(0, 2)])], &CancellationToken::new());
        drop(first);
        let _second = turns.take(vec![objects("b", &[(4, 4)])], &CancellationToken::new()).unwrap();
    }

    #[test]
    fn who_is_cancelled_waits_no_longer_and_holds_nobody_up() {
        let turns = Arc::new(Turns::default());
        let first = take(&turns, "a", &[(0, 0)]);
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        let error = turns.take(vec![objects("a", &[(0, 1)])], &cancelled).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        let _third = take(&turns, "a", &[(1, 1)]);
        drop(first);
        let _fourth = take(&turns, "a", &[(0, 0)]);
    }
}
