//! Events: marks in a stream that can be waited for and that measure time.

use std::sync::Arc;
use std::time::Instant;

use crate::driver::backend::{RawEvent, RawStream};
use crate::driver::context::Context;
use crate::error::{Error, Result};

/// A mark in a stream, which the stream passes when all work before the mark is done. Clones refer to the same mark.
#[derive(Clone)]
pub struct Event(Arc<EventInner>);

enum EventInner {
    Host(Instant),
    Mark { context: &'static Context, raw: RawEvent },
}

impl Drop for EventInner {
    fn drop(&mut self) {
        if let EventInner::Mark { context, raw } = self {
            // SAFETY: `record` made the event. Only this value has it, and is dropped once. The driver keeps the event
            // for streams that still wait for it.
            let _ = unsafe { context.backend.destroy_event(*raw) };
        }
    }
}

impl Event {
    /// A mark that is already passed, for a device that does each piece of work before the call returns.
    pub(crate) fn now() -> Event {
        Event(Arc::new(EventInner::Host(Instant::now())))
    }

    pub(crate) fn record(context: &'static Context, stream: RawStream, timing: bool) -> Result<Event> {
        let event = Event(Arc::new(EventInner::Mark { context, raw: context.backend.create_event(timing)? }));
        if let EventInner::Mark { raw, .. } = &*event.0 {
            // SAFETY: the event was made just now in this context. The caller keeps `stream`, which belongs to it,
            // alive.
            unsafe { context.backend.record(*raw, stream) }?;
        }
        Ok(event)
    }

    /// Makes later work on a backend's stream wait until this event is reached.
    pub(crate) fn hold_back(&self, context: &'static Context, stream: RawStream) -> Result<()> {
        match &*self.0 {
            EventInner::Host(_) => Ok(()),
            // SAFETY: `self` keeps the event alive, the caller the stream. The driver accepts events of other contexts.
            EventInner::Mark { raw, .. } => unsafe { context.backend.wait(stream, *raw) },
        }
    }

    /// Blocks the calling thread until the stream has passed this event's mark.
    ///
    /// # Errors
    /// `DeviceFailed`
    pub fn synchronize(&self) -> Result<()> {
        match &*self.0 {
            EventInner::Host(_) => Ok(()),
            // SAFETY: `self` keeps the event alive.
            EventInner::Mark { context, raw } => unsafe { context.backend.synchronize_event(*raw) },
        }
    }

    /// Whether the stream has passed this event's mark, so that all work before the mark is done.
    ///
    /// # Errors
    /// `DeviceFailed`
    pub fn is_done(&self) -> Result<bool> {
        match &*self.0 {
            EventInner::Host(_) => Ok(true),
            // SAFETY: `self` keeps the event alive.
            EventInner::Mark { context, raw } => unsafe { context.backend.event_is_done(*raw) },
        }
    }

    /// Milliseconds between the passing of this event's mark and the passing of the mark of `later`. Both must come
    /// from [`Stream::record_timed`](crate::Stream::record_timed) and have been passed.
    ///
    /// # Errors
    /// `InvalidArgument` for marks of two devices, `DeviceFailed` when a mark has no time or was not passed.
    pub fn elapsed_ms(&self, later: &Event) -> Result<f32> {
        match (&*self.0, &*later.0) {
            (EventInner::Host(start), EventInner::Host(end)) => {
                Ok(end.saturating_duration_since(*start).as_secs_f32() * 1e3)
            }
            (EventInner::Mark { context, raw: start }, EventInner::Mark { context: other, raw: end })
                if context.device == other.device =>
            {
                // SAFETY: `self` and `later` keep the events alive; both are of one context, as was compared.
                unsafe { context.backend.elapsed_ms(*start, *end) }
            }
            _ => Err(Error::invalid("cannot take the time between events of two devices")),
        }
    }
}
