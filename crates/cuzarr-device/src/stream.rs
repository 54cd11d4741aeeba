//! Streams: queues that order the work of a device.
//!
//! A [`Stream`] of `cpu` does everything at once, so code above is written once. Memory may be dropped as soon as the work
//! that uses it has been put on a stream: memory of our pool is given back in the order of the streams that used it, and
//! memory of other owners is kept until the stream has passed. Two streams are ordered only by [`Stream::wait`].
//!
//! The host may read bytes that a stream writes only after [`Stream::synchronize`] or [`Event::synchronize`].

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use crate::device::Device;
use crate::driver::backend::RawStream;
use crate::driver::context::Context;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::lock::lock;

/// A queue of work on one device. Clones are the same queue; any thread may use it.
#[derive(Clone)]
pub struct Stream(Arc<StreamInner>);

enum StreamInner {
    Host,
    Queue(Queue),
}

struct Queue {
    context: &'static Context,
    raw: RawStream,
    /// Whether this crate made the stream, and so ends it.
    owned: bool,
    _foreign_owner: Option<Box<dyn Any + Send + Sync>>,
    /// Memory that work on this stream still uses, and the mark behind that work; oldest first.
    kept: Mutex<Vec<(Event, Arc<dyn Any + Send + Sync>)>>,
    urgent: OnceLock<Stream>,
}

impl Drop for Queue {
    fn drop(&mut self) {
        let kept = std::mem::take(&mut *lock(&self.kept));
        // SAFETY: the stream lives: ours until `destroy_stream` below, a wrapped one until its owner is dropped behind this. When
        // waiting fails, the memory is kept for good.
        if !kept.is_empty() && unsafe { self.context.backend.synchronize_stream(self.raw) }.is_err() {
            std::mem::forget(kept);
        }
        if self.owned {
            // SAFETY: `Stream::queue` was told that we made the stream, and this value, dropped once, alone has it. The
            // driver lets work that is under way finish. A failure here means that the device failed, which the next call on
            // it reports.
            let _ = unsafe { self.context.backend.destroy_stream(self.raw) };
        }
    }
}

impl Stream {
    /// A new queue, independent of all others.
    ///
    /// # Errors
    /// `DeviceUnavailable` when the device cannot be used.
    pub fn new(device: Device) -> Result<Stream> {
        if device == Device::Cpu {
            return Ok(Stream(Arc::new(StreamInner::Host)));
        }
        let context = Context::get(device)?;
        Ok(Self::queue(context, context.backend.create_stream(false)?, true, None))
    }

    /// The device's legacy default stream, with which all blocking streams are ordered.
    ///
    /// # Errors
    /// `DeviceUnavailable` when the device cannot be used.
    pub fn legacy(device: Device) -> Result<Stream> {
        if device == Device::Cpu {
            return Ok(Stream(Arc::new(StreamInner::Host)));
        }
        Ok(Self::queue(Context::get(device)?, 0, false, None))
    }

    /// Wraps another library's stream: a `CUstream` as an integer, with CUDA's 0, 1 (legacy) and 2 (per thread).
    ///
    /// # Errors
    /// `DeviceUnavailable` when the device cannot be used; `InvalidArgument` for a handle on `cpu`.
    ///
    /// # Safety
    /// `handle` is a stream of `device` that lives until `owner` is dropped.
    pub unsafe fn from_raw(device: Device, handle: usize, owner: Option<Box<dyn Any + Send + Sync>>) -> Result<Stream> {
        match (device, handle) {
            (Device::Cpu, 0) => Ok(Stream(Arc::new(StreamInner::Host))),
            (Device::Cpu, _) => Err(Error::invalid("cpu has no streams to wrap")),
            _ => Ok(Self::queue(Context::get(device)?, handle, false, owner)),
        }
    }

    fn queue(
        context: &'static Context,
        raw: RawStream,
        owned: bool,
        foreign_owner: Option<Box<dyn Any + Send + Sync>>,
    ) -> Stream {
        Stream(Arc::new(StreamInner::Queue(Queue {
            context,
            raw,
            owned,
            _foreign_owner: foreign_owner,
            kept: Mutex::default(),
            urgent: OnceLock::new(),
        })))
    }

    /// A second queue beside this one, the same at each call. Its kernels start before kernels of ordinary queues that have
    /// not begun. It is for kernels that take long for little work, and would otherwise wait for all blocks of a large launch
    /// of another queue. Events order the two queues. For a wrapped stream, and on the host, it is the stream itself.
    ///
    /// # Errors
    /// `DeviceFailed`
    pub fn urgent(&self) -> Result<Stream> {
        let Some(queue) = self.queue_or_host().filter(|queue| queue.owned) else { return Ok(self.clone()) };
        if let Some(urgent) = queue.urgent.get() {
            return Ok(urgent.clone());
        }
        let made = Self::queue(queue.context, queue.context.backend.create_stream(true)?, true, None);
        // When two threads come here at once, the first one's stays.
        Ok(queue.urgent.get_or_init(|| made).clone())
    }

    /// Where the work is done.
    pub fn device(&self) -> Device {
        self.queue_or_host().map_or(Device::Cpu, |queue| queue.context.device)
    }

    /// The `CUstream` as an integer; 0 on `cpu` and for the legacy default stream.
    pub fn raw_handle(&self) -> usize {
        self.queue_or_host().map_or(0, |queue| queue.raw)
    }

    /// Blocks until everything put on this stream is done.
    ///
    /// # Errors
    /// `DeviceFailed`, also for failures of earlier work on the device.
    pub fn synchronize(&self) -> Result<()> {
        let Some(queue) = self.queue_or_host() else { return Ok(()) };
        let kept = std::mem::take(&mut *lock(&queue.kept));
        // SAFETY: `self` keeps the stream alive.
        let done = unsafe { queue.context.backend.synchronize_stream(queue.raw) };
        if done.is_err() {
            lock(&queue.kept).extend(kept);
        }
        done
    }

    /// Whether everything put on this stream is done.
    ///
    /// # Errors
    /// `DeviceFailed`, also for failures of earlier work on the device.
    pub fn is_idle(&self) -> Result<bool> {
        match self.queue_or_host() {
            // SAFETY: `self` keeps the stream alive.
            Some(queue) => unsafe { queue.context.backend.stream_is_idle(queue.raw) },
            None => Ok(true),
        }
    }

    /// A mark behind everything put on this stream so far.
    ///
    /// # Errors
    /// `DeviceFailed`
    pub fn record(&self) -> Result<Event> {
        self.mark(false)
    }

    /// Like [`Stream::record`], with a time that [`Event::elapsed_ms`] reads. Costs a little more.
    ///
    /// # Errors
    /// `DeviceFailed`
    pub fn record_timed(&self) -> Result<Event> {
        self.mark(true)
    }

    fn mark(&self, timing: bool) -> Result<Event> {
        match self.queue_or_host() {
            None => Ok(Event::now()),
            Some(queue) => Event::record(queue.context, queue.raw, timing),
        }
    }

    /// Lets later work on this stream begin only after `event`. Does not block.
    ///
    /// # Errors
    /// `DeviceFailed`
    pub fn wait(&self, event: &Event) -> Result<()> {
        match self.queue_or_host() {
            Some(queue) => event.hold_back(queue.context, queue.raw),
            // The host takes part in no queue: it must have the event behind it before it goes on.
            None => event.synchronize(),
        }
    }

    /// Keeps memory alive until the stream has passed the work that was put on it so far. On an error the stream has passed.
    pub(crate) fn keep(&self, memory: impl Iterator<Item = Arc<dyn Any + Send + Sync>>) -> Result<()> {
        let Some(queue) = self.queue_or_host() else { return Ok(()) };
        // Without a mark it would not be known when the work is done.
        let event = self.record().or_else(|error| self.synchronize().and(Err(error)))?;
        let mut finished = Vec::new();
        {
            let mut kept = lock(&queue.kept);
            // Oldest first; a failed query keeps everything.
            let done = kept.iter().take_while(|(event, _)| event.is_done().unwrap_or(false)).count();
            finished.extend(kept.drain(..done));
            kept.extend(memory.map(|memory| (event.clone(), memory)));
        }
        // Outside the lock: the drop of foreign memory may do anything, use this stream too.
        drop(finished);
        Ok(())
    }

    /// Whether this and `other` are one queue.
    pub fn is_same_queue(&self, other: &Stream) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.device() == other.device() && self.raw_handle() == other.raw_handle())
    }

    pub(crate) fn context(&self) -> Option<&'static Context> {
        self.queue_or_host().map(|queue| queue.context)
    }

    fn queue_or_host(&self) -> Option<&Queue> {
        match &*self.0 {
            StreamInner::Host => None,
            StreamInner::Queue(queue) => Some(queue),
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({}, {:#x})", self.device(), self.raw_handle())
    }
}
