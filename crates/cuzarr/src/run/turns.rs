//! Writes of this process that touch the same objects go one after the other, in the order in which they came.
//!
//! An object of which a part is written is read, merged and replaced, so that of two calls that do so at once one would be
//! lost. A call waits for its turn before it takes memory or threads, and only for calls that came before it: nobody waits
//! for somebody who waits for him.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Objects of one array: those from the first to the last along each dimension of its grid.
pub(crate) struct Objects {
    /// Where the array is, the same for everybody who writes to it.
    pub(crate) array: PathBuf,
    pub(crate) bounds: Vec<(u64, u64)>,
}

/// Everybody who writes, or waits for it.
#[derive(Default)]
pub(crate) struct Turns {
    queue: Mutex<Queue>,
    ended: Condvar,
}

#[derive(Default)]
struct Queue {
    arrived: u64,
    /// In the order of arrival, which numbers them.
    writers: Vec<(u64, Objects)>,
}

/// The right to write to objects, until it is dropped.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    number: u64,
    process: u32,
}

impl Objects {
    fn overlap(&self, other: &Objects) -> bool {
        let mut dimensions = self.bounds.iter().zip(&other.bounds);
        self.array == other.array && dimensions.all(|(one, other)| one.0 <= other.1 && other.0 <= one.1)
    }
}

impl Queue {
    fn must_wait(&self, number: u64) -> bool {
        let Ok(place) = self.writers.binary_search_by_key(&number, |(number, _)| *number) else { return false };
        let (before, own) = (&self.writers[..place], &self.writers[place].1);
        before.iter().any(|(_, objects)| objects.overlap(own))
    }
}

impl Turns {
    /// Waits until everybody who came before is done with these objects.
    pub(crate) fn take(self: &Arc<Self>, objects: Objects) -> Turn {
        let mut queue = self.lock();
        let number = queue.arrived;
        queue.arrived += 1;
        queue.writers.push((number, objects));
        while queue.must_wait(number) {
            queue = self.ended.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        Turn { turns: Arc::clone(self), number, process: std::process::id() }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            self.turns.lock().writers.retain(|(number, _)| *number != self.number);
            self.turns.ended.notify_all();
        } // In a forked child another thread of the parent may have held the lock.
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    use super::*;

    fn objects(array: &str, bounds: &[(u64, u64)]) -> Objects {
        Objects { array: array.into(), bounds: bounds.to_vec() }
    }

    #[test]
    fn only_writers_of_the_same_objects_wait() {
        let turns = Arc::new(Turns::default());
        let _first = turns.take(objects("a", &[(0, 3), (2, 2)]));
        // Each of these would wait for ever.
        let _beside = turns.take(objects("a", &[(0, 3), (3, 9)]));
        let _elsewhere = turns.take(objects("b", &[(0, 3), (2, 2)]));
        let _scalar = turns.take(objects("c", &[]));
    }

    #[test]
    fn who_came_first_is_served_first() {
        let turns = Arc::new(Turns::default());
        let first = turns.take(objects("a", &[(0, 0)]));
        let (sender, receiver) = channel();
        let threads: Vec<_> = (1..=2)
            .map(|number| {
                let (theirs, sender) = (Arc::clone(&turns), sender.clone());
                let thread = std::thread::spawn(move || {
                    let turn = theirs.take(objects("a", &[(0, number)]));
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
}
