//! Copies from and into a slab that are under way.

use std::sync::Mutex;

use crate::error::Result;
use crate::event::Event;
use crate::lock::lock;
use crate::stream::Stream;

/// The last copy from, and the last into a slab on each stream.
#[derive(Default)]
pub(super) struct Copies(Mutex<Vec<UnderWay>>);

/// A copy that was put on a stream.
struct UnderWay {
    stream: Stream,
    /// Whether it writes the slab.
    into: bool,
    done: Event,
}

impl Copies {
    /// Marks a copy, from the slab or into it, that was the last work put on `stream`. When that fails, the copy is done.
    pub(super) fn note(&self, stream: &Stream, into: bool) -> Result<()> {
        let done = match stream.record() {
            Ok(event) => event,
            // Without a mark it would not be known when the copy is done.
            Err(error) => return stream.synchronize().and(Err(error)),
        };
        self.note_done(stream, into, done);
        Ok(())
    }

    /// Like [`Copies::note`], with the mark behind the copy.
    pub(super) fn note_done(&self, stream: &Stream, into: bool, done: Event) {
        let mut copies = lock(&self.0);
        match copies.iter_mut().find(|copy| copy.into == into && copy.stream.is_same_queue(stream)) {
            Some(copy) => copy.done = done,
            None => copies.push(UnderWay { stream: stream.clone(), into, done }),
        }
    }

    /// All marks, for the ring to wait for.
    pub(super) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *lock(&self.0)).into_iter().map(|copy| copy.done).collect()
    }

    /// Blocks until all copies, or all copies into the slab, are done. Their marks stay until then, for other threads that wait;
    /// when waiting fails they stay for good, since the device may still reach the slab.
    pub(super) fn wait(&self, only_into: bool) -> Result<()> {
        let is_awaited = |copy: &UnderWay| copy.into || !only_into;
        let marks: Vec<Event> =
            lock(&self.0).iter().filter(|copy| is_awaited(copy)).map(|copy| copy.done.clone()).collect();
        marks.iter().try_for_each(Event::synchronize)?;
        lock(&self.0).retain(|copy| !is_awaited(copy) || !copy.done.is_done().unwrap_or(false));
        Ok(())
    }
}
