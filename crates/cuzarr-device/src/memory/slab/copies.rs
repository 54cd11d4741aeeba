//! Records the pending copies from and into a slab of pinned memory.

use std::sync::Mutex;

use crate::error::Result;
use crate::event::Event;
use crate::lock::lock;
use crate::stream::Stream;

/// For each stream, the last copy that reads the slab and the last copy that writes it.
#[derive(Default)]
pub(super) struct Copies(Mutex<Vec<UnderWay>>);

/// A copy from or into a slab that was submitted on a stream.
struct UnderWay {
    stream: Stream,
    /// Whether the copy writes the slab (device to host) instead of reading it.
    into: bool,
    done: Event,
}

impl Copies {
    /// Records a copy, from the slab or into it, that was just submitted on `stream`. If that fails, waits until the
    /// copy is done.
    pub(super) fn note(&self, stream: &Stream, into: bool) -> Result<()> {
        let done = match stream.record() {
            Ok(event) => event,
            // Without a mark, it would be unknown when the copy is done.
            Err(error) => return stream.synchronize().and(Err(error)),
        };
        self.note_done(stream, into, done);
        Ok(())
    }

    /// Like [`Copies::note`], but for a copy behind which the event `done` was already recorded.
    pub(super) fn note_done(&self, stream: &Stream, into: bool, done: Event) {
        let mut copies = lock(&self.0);
        match copies.iter_mut().find(|copy| copy.into == into && copy.stream.is_same_queue(stream)) {
            Some(copy) => copy.done = done,
            None => copies.push(UnderWay { stream: stream.clone(), into, done }),
        }
    }

    /// Removes and returns the events of all copies, which the ring must wait for before it reuses the slab.
    pub(super) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *lock(&self.0)).into_iter().map(|copy| copy.done).collect()
    }

    /// Blocks until all copies from and into the slab are done; with `only_into`, only until copies into it are done.
    /// Their marks are kept until then, for other threads that wait. If waiting fails, they are kept for good, since
    /// the device may still access the slab.
    pub(super) fn wait(&self, only_into: bool) -> Result<()> {
        let is_awaited = |copy: &UnderWay| copy.into || !only_into;
        let marks: Vec<Event> =
            lock(&self.0).iter().filter(|copy| is_awaited(copy)).map(|copy| copy.done.clone()).collect();
        marks.iter().try_for_each(Event::synchronize)?;
        lock(&self.0).retain(|copy| !is_awaited(copy) || !copy.done.is_done().unwrap_or(false));
        Ok(())
    }
}
