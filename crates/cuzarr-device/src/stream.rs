//! Streams: in which order a device does what it is asked.
//!
//! A [`Stream`] of `cpu` does everything at once, so code above is written once. Memory may be dropped as soon as the work
//! that uses it has been put on a stream: memory of our pool is given back in the order of the streams that used it, and
//! memory of other owners is kept until the stream has passed. Two streams are ordered only by [`Stream::wait`].
//!
//! What a stream writes may be read by the host only after [`Stream::synchronize`] or [`Event::synchronize`].

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use crate::device::Device;
use crate::driver::backend::RawStream;
use crate::driver::context::{Context, lock};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::memory::buffer::{Buffer, Owner};
use crate::memory::lease::{Access, Lease};
use crate::memory::pool::PooledMemory;

/// A queue of work on one device. Clones are the same queue; any thread may use it.
#[derive(Clone)]
pub struct Stream(Arc<Inner>);

enum Inner {
    Host,
    Queue(Queue),
}

struct Queue {
    context: &'static Context,
    raw: RawStream,
    /// Whether we made the stream and so end it.
    owned: bool,
    _foreign_owner: Option<Owner>,
    /// Memory of other owners that work on this stream still uses.
    kept: Mutex<Vec<(Event, Buffer)>>,
    urgent: OnceLock<Stream>,
}

impl Drop for Queue {
    fn drop(&mut self) {
        let kept = std::mem::take(&mut *lock(&self.kept));
        // SAFETY: a live stream. When waiting fails the device is lost, and then it no longer touches memory.
        if !kept.is_empty() && unsafe { self.context.backend.synchronize_stream(self.raw) }.is_err() {
            std::mem::forget(kept);
        }
        if self.owned {
            // SAFETY: ours, and this is its last use. The driver lets work that is under way finish. A failure here means
            // that the device failed, which the next call on it reports.
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
            return Ok(Stream(Arc::new(Inner::Host)));
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
            return Ok(Stream(Arc::new(Inner::Host)));
        }
        Ok(Self::queue(Context::get(device)?, 0, false, None))
    }

    /// Wraps somebody else's stream: a `CUstream` as an integer, with CUDA's 0, 1 (legacy) and 2 (per thread).
    ///
    /// # Errors
    /// `DeviceUnavailable` when the device cannot be used; `InvalidArgument` for a handle on `cpu`.
    ///
    /// # Safety
    /// `handle` is a stream of `device` that lives until `owner` is dropped.
    pub unsafe fn from_raw(device: Device, handle: usize, owner: Option<Owner>) -> Result<Stream> {
        match (device, handle) {
            (Device::Cpu, 0) => Ok(Stream(Arc::new(Inner::Host))),
            (Device::Cpu, _) => Err(Error::invalid("cpu has no streams to wrap")),
            _ => Ok(Self::queue(Context::get(device)?, handle, false, owner)),
        }
    }

    fn queue(context: &'static Context, raw: RawStream, owned: bool, foreign_owner: Option<Owner>) -> Stream {
        Stream(Arc::new(Inner::Queue(Queue {
            context,
            raw,
            owned,
            _foreign_owner: foreign_owner,
            kept: Mutex::default(),
            urgent: OnceLock::new(),
        })))
    }

    /// A queue beside this one, the same each time, whose kernels go before those of ordinary queues that have not begun: for those
    /// that need long for little, and would wait for all blocks of another queue's large launch. Events order the two. A stream
    /// that is wrapped, and the host, are their own.
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
        // SAFETY: a live stream.
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
            // SAFETY: a live stream.
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

    /// As [`Stream::record`], with a time that [`Event::elapsed_ms`] reads. Costs a little more.
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

    /// Copies host bytes into a buffer; returns when they are there.
    ///
    /// # Errors
    /// `InvalidArgument` when sizes differ, `MemorySpace` when the buffer is not on this stream's device, `DeviceFailed`.
    pub fn h2d(&self, src: &[u8], dst: &Buffer) -> Result<()> {
        require_equal_sizes(src.len(), dst.size_bytes())?;
        // SAFETY: the slice outlives the copy, which is waited for.
        unsafe { self.h2d_async(src.as_ptr(), dst) }?;
        self.synchronize()
    }

    /// Copies a buffer into host memory; returns when it is there.
    ///
    /// # Errors
    /// As [`Stream::h2d`].
    pub fn d2h(&self, src: &Buffer, dst: &mut [u8]) -> Result<()> {
        require_equal_sizes(src.size_bytes(), dst.len())?;
        // SAFETY: the slice outlives the copy, which is waited for.
        unsafe { self.d2h_async(src, dst.as_mut_ptr()) }?;
        self.synchronize()
    }

    /// Copies one buffer to another, in stream order. Between two GPUs the bytes take the way that joins them, which the driver
    /// finds; memory that it cannot reach so goes by way of the host, and is there when this returns.
    ///
    /// # Errors
    /// As [`Stream::h2d`].
    pub fn d2d(&self, src: &Buffer, dst: &Buffer) -> Result<()> {
        require_equal_sizes(src.size_bytes(), dst.size_bytes())?;
        dst.require_writable()?;
        let size_bytes = src.size_bytes();
        let Some(queue) = self.queue_or_host() else {
            require_device(self, src)?;
            require_device(self, dst)?;
            let _leases = Lease::for_copy((src, src.footprint()), (dst, dst.footprint()))?;
            // SAFETY: both are leased host memory of this size; `copy` allows views of one block to overlap.
            unsafe { std::ptr::copy(src.address() as *const u8, dst.address() as *mut u8, size_bytes) };
            return Ok(());
        };
        if [src, dst].iter().any(|buffer| buffer.device() != queue.context.device) {
            if [src, dst].iter().all(|buffer| matches!(buffer.device(), Device::Cuda(_))) {
                return self.copy_between_gpus(queue, src, dst);
            }
            let message =
                format!("cannot copy from {} to {} on a stream of {}", src.device(), dst.device(), self.device());
            return Err(Error::new(ErrorKind::MemorySpace, message));
        }
        if size_bytes == 0 {
            return Ok(());
        }
        self.begin_use(src)?;
        self.begin_use(dst)?;
        // SAFETY: both are device memory of this size, and live until the stream has passed (`begin_use`, `end_use`).
        unsafe { queue.context.backend.d2d(src.address(), dst.address(), size_bytes, queue.raw) }?;
        self.end_use(&[src, dst])
    }

    fn copy_between_gpus(&self, queue: &Queue, src: &Buffer, dst: &Buffer) -> Result<()> {
        if src.size_bytes() == 0 {
            return Ok(());
        }
        let (from, to) = (Context::get(src.device())?, Context::get(dst.device())?);
        if let (Some(from_peer), Some(to_peer)) = (from.backend.peer(), to.backend.peer()) {
            self.begin_use(src)?;
            self.begin_use(dst)?;
            let opened = from.backend.open_to(to_peer).and_then(|()| to.backend.open_to(from_peer));
            let (from, to) = ((src.address(), from_peer), (dst.address(), to_peer));
            // SAFETY: memory of this size on either GPU, which lives until the stream has passed (`begin_use`, `end_use`).
            let copy = || unsafe { queue.context.backend.copy_peer(from, to, src.size_bytes(), queue.raw) };
            let copied = opened.and_then(|()| copy());
            if copied.is_ok() {
                return self.end_use(&[src, dst]);
            }
            // Refused, as memory of another library's pool is that nobody opened. A lost device says so again below.
        }
        self.synchronize()?;
        copy_by_host(src, dst)
    }

    /// Sets every byte of a buffer, in stream order.
    ///
    /// # Errors
    /// `MemorySpace` when the buffer is not on this stream's device, `DeviceFailed`.
    pub fn memset(&self, dst: &Buffer, byte: u8) -> Result<()> {
        require_device(self, dst)?;
        dst.require_writable()?;
        let size_bytes = dst.size_bytes();
        if size_bytes == 0 {
            return Ok(());
        }
        let Some(queue) = self.queue_or_host() else {
            let _lease = dst.lease(Access::Write)?;
            // SAFETY: leased host memory of this size.
            unsafe { std::ptr::write_bytes(dst.address() as *mut u8, byte, size_bytes) };
            return Ok(());
        };
        self.begin_use(dst)?;
        // SAFETY: device memory of this size, alive until the stream has passed.
        unsafe { queue.context.backend.memset(dst.address(), byte, size_bytes, queue.raw) }?;
        self.end_use(&[dst])
    }

    /// Copies `dst.size_bytes()` host bytes in stream order. On `cpu`, at once.
    ///
    /// # Errors
    /// As [`Stream::h2d`].
    ///
    /// # Safety
    /// `src` names that many readable bytes, unchanged until the stream has passed.
    pub unsafe fn h2d_async(&self, src: *const u8, dst: &Buffer) -> Result<()> {
        require_device(self, dst)?;
        dst.require_writable()?;
        let size_bytes = dst.size_bytes();
        if size_bytes == 0 {
            return Ok(());
        }
        let Some(queue) = self.queue_or_host() else {
            let _lease = dst.lease(Access::Write)?;
            // SAFETY: the caller promises the source; the buffer is leased host memory of this size.
            unsafe { std::ptr::copy(src, dst.address() as *mut u8, size_bytes) };
            return Ok(());
        };
        self.begin_use(dst)?;
        // SAFETY: as above, on the device.
        unsafe { queue.context.backend.h2d(src, dst.address(), size_bytes, queue.raw) }?;
        if let Some(pooled) = dst.owner().downcast_ref::<PooledMemory>() {
            pooled.note_end(self)?;
        }
        self.end_use(&[dst])
    }

    /// Copies a buffer to host memory in stream order. On `cpu`, at once.
    ///
    /// # Errors
    /// As [`Stream::h2d`].
    ///
    /// # Safety
    /// `dst` names `src.size_bytes()` writable bytes that nobody else touches until the stream has passed.
    pub unsafe fn d2h_async(&self, src: &Buffer, dst: *mut u8) -> Result<()> {
        require_device(self, src)?;
        let size_bytes = src.size_bytes();
        if size_bytes == 0 {
            return Ok(());
        }
        let Some(queue) = self.queue_or_host() else {
            let _lease = src.lease(Access::Read)?;
            // SAFETY: the caller promises the target; the buffer is leased host memory of this size.
            unsafe { std::ptr::copy(src.address() as *const u8, dst, size_bytes) };
            return Ok(());
        };
        self.begin_use(src)?;
        // SAFETY: as above, on the device.
        unsafe { queue.context.backend.d2h(src.address(), dst, size_bytes, queue.raw) }?;
        self.end_use(&[src])
    }

    /// Tells a buffer, before work is put on this stream, that the work will use it: orders this stream behind the
    /// allocation, and the memory's return behind this stream. Launches in other crates call it for each buffer.
    ///
    /// # Errors
    /// `MemorySpace` when the host would have to reach device memory, `DeviceFailed`.
    pub fn begin_use(&self, buffer: &Buffer) -> Result<()> {
        match buffer.owner().downcast_ref::<PooledMemory>() {
            Some(pooled) => pooled.note_use(self),
            None => Ok(()),
        }
    }

    /// The other half of [`Stream::begin_use`], after the work was put on the stream: memory that is not of our pool is
    /// kept until the stream has passed.
    ///
    /// # Errors
    /// `DeviceFailed`
    pub fn end_use(&self, buffers: &[&Buffer]) -> Result<()> {
        let Some(queue) = self.queue_or_host() else { return Ok(()) };
        let mut foreign = buffers.iter().filter(|buffer| !buffer.owner().is::<PooledMemory>()).peekable();
        if foreign.peek().is_none() {
            return Ok(());
        }
        let event = self.record()?;
        let mut finished = Vec::new();
        {
            let mut kept = lock(&queue.kept);
            // Oldest first; a failed query keeps everything.
            let done = kept.iter().take_while(|(event, _)| event.is_done().unwrap_or(false)).count();
            finished.extend(kept.drain(..done));
            kept.extend(foreign.map(|buffer| (event.clone(), (*buffer).clone())));
        }
        // Outside the lock: a foreign owner's drop may do anything, use this stream too.
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
            Inner::Host => None,
            Inner::Queue(queue) => Some(queue),
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({}, {:#x})", self.device(), self.raw_handle())
    }
}

/// What a copy by way of the host takes there.
const PIECE_BYTES: usize = 16 << 20;

/// Copies between two devices, a piece at a time; both have the same size.
fn copy_by_host(src: &Buffer, dst: &Buffer) -> Result<()> {
    let (down, up) = (Stream::legacy(src.device())?, Stream::legacy(dst.device())?);
    let mut piece = vec![0; src.size_bytes().min(PIECE_BYTES)];
    for start in (0..src.size_bytes()).step_by(PIECE_BYTES) {
        let end = src.size_bytes().min(start + PIECE_BYTES);
        let part = &mut piece[..end - start];
        down.d2h(&src.slice(start..end)?, part)?;
        up.h2d(part, &dst.slice(start..end)?)?;
    }
    Ok(())
}

fn require_equal_sizes(src_bytes: usize, dst_bytes: usize) -> Result<()> {
    if src_bytes == dst_bytes {
        return Ok(());
    }
    Err(Error::invalid(format!("cannot copy {src_bytes} bytes into {dst_bytes} bytes")))
}

pub(crate) fn require_device(stream: &Stream, buffer: &Buffer) -> Result<()> {
    if stream.device() == buffer.device() {
        return Ok(());
    }
    let message = format!("the buffer is on {}, the stream on {}", buffer.device(), stream.device());
    Err(Error::new(ErrorKind::MemorySpace, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_by_the_host_are_whole_whatever_their_size() {
        for size_bytes in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, 2 * PIECE_BYTES + 5] {
            let src = Buffer::from_vec((0..size_bytes).map(|at| (at / 3) as u8).collect());
            let dst = Buffer::zeroed(Device::Cpu, size_bytes).unwrap();
            copy_by_host(&src, &dst).unwrap();
            assert!(src.equals(&dst).unwrap(), "{size_bytes}");
        }
    }
}
