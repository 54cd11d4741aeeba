//! Streams: queues that order the work of a device.
//!
//! A [`Stream`] of `cpu` does each piece of work before the call returns, so the same code works on every device.
//! Memory may be dropped as soon as the work that uses it is on a stream. Memory from our pool is freed in the order of
//! the streams that used it. Other memory is kept until the stream has done the work. Two streams are ordered only by
//! [`Stream::wait`].
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

/// A queue of work on one device, which does the work in the order in which it was submitted. Clones are the same
/// queue, and any thread may use it.
#[derive(Clone)]
pub struct Stream(Arc<StreamInner>);

enum StreamInner {
    Host,
    Queue(Queue),
}

struct Queue {
    context: &'static Context,
    raw: RawStream,
    /// Whether this crate made the stream, and so destroys it.
    owned: bool,
    _foreign_owner: Option<Box<dyn Any + Send + Sync>>,
    /// Memory that work on this stream still uses, with the event behind that work. Oldest first.
    kept: Mutex<Vec<(Event, Arc<dyn Any + Send + Sync>)>>,
    urgent: OnceLock<Stream>,
}

impl Drop for Queue {
    fn drop(&mut self) {
        let kept = std::mem::take(&mut *lock(&self.kept));
        // SAFETY: the stream is alive. Our own stream is destroyed only below; the owner of a wrapped stream is dropped
        // after this function. If waiting fails, the memory is never freed.
        if !kept.is_empty() && unsafe { self.context.backend.synchronize_stream(self.raw) }.is_err() {
            std::mem::forget(kept);
        }
        if self.owned {
            // SAFETY: `owned` says that we made the stream. Only this value has it, and it is dropped once. The driver
            // first finishes running work. If this fails, the device has failed, and the next call on it reports that.
            let _ = unsafe { self.context.backend.destroy_stream(self.raw) };
        }
    }
}

impl Stream {
    /// Makes a new stream on `device`, independent of all other streams.
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

    /// Returns the device's legacy default stream, which is ordered with all blocking streams.
    ///
    /// # Errors
    /// `DeviceUnavailable` when the device cannot be used.
    pub fn legacy(device: Device) -> Result<Stream> {
        if device == Device::Cpu {
            return Ok(Stream(Arc::new(StreamInner::Host)));
        }
        Ok(Self::queue(Context::get(device)?, 0, false, None))
    }

    /// Wraps another library's stream: a `CUstream` as an integer, or CUDA's 0 and 1 (legacy) and 2 (per thread).
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

    /// Returns this stream's second queue, which has a higher priority and is the same one at each call. Its kernels
    /// start before waiting kernels of ordinary queues. Use it for long kernels that need few blocks: otherwise they
    /// would wait for all blocks of a large launch. Order the two queues by events. For a wrapped stream and on the
    /// host, returns the stream itself.
    ///
    /// # Errors
    /// `DeviceFailed`
    pub fn urgent(&self) -> Result<Stream> {
        let Some(queue) = self.queue_or_host().filter(|queue| queue.owned) else { return Ok(self.clone()) };
        if let Some(urgent) = queue.urgent.get() {
            return Ok(urgent.clone());
        }
        let made = Self::queue(queue.context, queue.context.backend.create_stream(true)?, true, None);
        // If two threads get here at once, the first one's queue is kept.
        Ok(queue.urgent.get_or_init(|| made).clone())
    }

    /// The device that does the work on this stream.
    pub fn device(&self) -> Device {
        self.queue_or_host().map_or(Device::Cpu, |queue| queue.context.device)
    }

    /// The `CUstream` as an integer; 0 on `cpu` and for the legacy default stream.
    pub fn raw_handle(&self) -> usize {
        self.queue_or_host().map_or(0, |queue| queue.raw)
    }

    /// Blocks until all work on this stream is done.
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

    /// Whether all work on this stream is done.
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

    /// Records an event behind all work that was submitted to this stream so far.
    ///
    /// # Errors
    /// `DeviceFailed`
    pub fn record(&self) -> Result<Event> {
        self.mark(false)
    }

    /// Records an event like [`Stream::record`], together with the time that [`Event::elapsed_ms`] needs. Costs a
    /// little more.
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

    /// Makes later work on this stream wait for `event`. Does not block, except on `cpu`.
    ///
    /// # Errors
    /// `DeviceFailed`
    pub fn wait(&self, event: &Event) -> Result<()> {
        match self.queue_or_host() {
            Some(queue) => event.hold_back(queue.context, queue.raw),
            // The host is no queue, so it must wait itself.
            None => event.synchronize(),
        }
    }

    /// Keeps memory alive until the stream has done all work submitted so far. If this fails, that work is already
    /// done.
    pub(crate) fn keep(&self, memory: impl Iterator<Item = Arc<dyn Any + Send + Sync>>) -> Result<()> {
        let Some(queue) = self.queue_or_host() else { return Ok(()) };
        // Without a mark, it would be unknown when the work is done.
        let event = self.record().or_else(|error| self.synchronize().and(Err(error)))?;
        let mut finished = Vec::new();
        {
            let mut kept = lock(&queue.kept);
            // Takes finished work from the front. If a query fails, everything is kept.
            let done = kept.iter().take_while(|(event, _)| event.is_done().unwrap_or(false)).count();
            finished.extend(kept.drain(..done));
            kept.extend(memory.map(|memory| (event.clone(), memory)));
        }
        // Dropped outside the lock: the destructor of foreign memory may run any code, and that code may use this
        // stream.
        drop(finished);
        Ok(())
    }

    /// Whether the two streams are the same queue.
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
