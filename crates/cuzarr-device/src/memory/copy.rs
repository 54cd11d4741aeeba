//! Copies of flat bytes between memories on any devices, in stream order or immediately.

use crate::device::Device;
use crate::driver::context::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::buffer::Buffer;
use crate::memory::lease::Access;
use crate::memory::pool::pooled::PooledMemory;
use crate::stream::Stream;

impl Stream {
    /// Copies bytes of host memory to a buffer on this stream's device. Returns when the bytes are there.
    ///
    /// # Errors
    /// `InvalidArgument` when sizes differ, `MemorySpace` when the buffer is not on this stream's device, `DeviceFailed`.
    pub fn h2d(&self, src: &[u8], dst: &Buffer) -> Result<()> {
        require_equal_sizes(src.len(), dst.size_bytes())?;
        // SAFETY: the slice has the buffer's size, as was checked, and is borrowed until the stream has passed the copy.
        unsafe { self.h2d_async(src.as_ptr(), dst) }?;
        self.synchronize()
    }

    /// Copies all bytes of a buffer on this stream's device to host memory. Returns when the bytes are there.
    ///
    /// # Errors
    /// Those of [`Stream::h2d`].
    pub fn d2h(&self, src: &Buffer, dst: &mut [u8]) -> Result<()> {
        require_equal_sizes(src.size_bytes(), dst.len())?;
        // SAFETY: the slice has the buffer's size, as was checked, and is borrowed alone until the stream has passed the copy.
        unsafe { self.d2h_async(src, dst.as_mut_ptr()) }?;
        self.synchronize()
    }

    /// Copies one buffer to another, in stream order. Between two GPUs, the driver chooses the fastest connection. If
    /// the driver cannot copy directly, the bytes go through the host, and this call returns when the copy is done.
    ///
    /// # Errors
    /// Those of [`Stream::h2d`].
    pub fn d2d(&self, src: &Buffer, dst: &Buffer) -> Result<()> {
        require_equal_sizes(src.size_bytes(), dst.size_bytes())?;
        dst.require_writable()?;
        let size_bytes = src.size_bytes();
        let Some(context) = self.context() else {
            require_device(self, src)?;
            require_device(self, dst)?;
            let _leases = Buffer::lease_for_copy(src, src.footprint(), dst, dst.footprint())?;
            // SAFETY: both are host memory of this size, as was compared, and leased; `copy` allows views of one block to
            // overlap.
            unsafe { std::ptr::copy(src.address() as *const u8, dst.address() as *mut u8, size_bytes) };
            return Ok(());
        };
        if [src, dst].iter().any(|buffer| buffer.device() != context.device) {
            if [src, dst].iter().all(|buffer| matches!(buffer.device(), Device::Cuda(_))) {
                return self.copy_between_gpus(context, src, dst);
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
        unsafe { context.backend.d2d(src.address(), dst.address(), size_bytes, self.raw_handle()) }?;
        self.end_use(&[src, dst])
    }

    fn copy_between_gpus(&self, context: &Context, src: &Buffer, dst: &Buffer) -> Result<()> {
        if src.size_bytes() == 0 {
            return Ok(());
        }
        let (from, to) = (Context::get(src.device())?, Context::get(dst.device())?);
        if let (Some(from_peer), Some(to_peer)) = (from.backend.peer(), to.backend.peer()) {
            self.begin_use(src)?;
            self.begin_use(dst)?;
            let opened = from.backend.open_to(to_peer).and_then(|()| to.backend.open_to(from_peer));
            let (from, to, size_bytes) = (src.address(), dst.address(), src.size_bytes());
            // SAFETY: memory of this size on either GPU, which lives until the stream has passed (`begin_use`, `end_use`).
            let copy =
                || unsafe { context.backend.copy_peer(from, from_peer, to, to_peer, size_bytes, self.raw_handle()) };
            let copied = opened.and_then(|()| copy());
            if copied.is_ok() {
                return self.end_use(&[src, dst]);
            }
            // The driver refuses memory of another library's pool that was not opened to this GPU. The code below
            // copies such memory through the host. If the device is lost, the calls below report it again.
        }
        self.synchronize()?;
        copy_by_host(src, dst)
    }

    /// Sets every byte of a buffer to `byte`, in stream order.
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
        let Some(context) = self.context() else {
            let _lease = dst.lease(Access::Write)?;
            // SAFETY: host memory of this size, as `Buffer` promises, leased for writing.
            unsafe { std::ptr::write_bytes(dst.address() as *mut u8, byte, size_bytes) };
            return Ok(());
        };
        self.begin_use(dst)?;
        // SAFETY: device memory of this size, alive until the stream has passed (`begin_use`, `end_use`).
        unsafe { context.backend.memset(dst.address(), byte, size_bytes, self.raw_handle()) }?;
        self.end_use(&[dst])
    }

    /// Copies `dst.size_bytes()` host bytes to the buffer in stream order. On `cpu`, the copy is done when this
    /// returns.
    ///
    /// # Errors
    /// Those of [`Stream::h2d`]. Even on an error, the copy no longer runs when this returns.
    ///
    /// # Safety
    /// `src` points to `dst.size_bytes()` readable bytes, which stay unchanged until the stream has passed the copy.
    pub unsafe fn h2d_async(&self, src: *const u8, dst: &Buffer) -> Result<()> {
        require_device(self, dst)?;
        dst.require_writable()?;
        let size_bytes = dst.size_bytes();
        if size_bytes == 0 {
            return Ok(());
        }
        let Some(context) = self.context() else {
            let _lease = dst.lease(Access::Write)?;
            // SAFETY: the caller promises the source; the buffer is leased host memory of this size.
            unsafe { std::ptr::copy(src, dst.address() as *mut u8, size_bytes) };
            return Ok(());
        };
        self.begin_use(dst)?;
        // SAFETY: the caller promises the source; the buffer is device memory of this size, alive until the stream has passed.
        unsafe { context.backend.h2d(src, dst.address(), size_bytes, self.raw_handle()) }?;
        let noted = dst.owner().downcast_ref::<PooledMemory>().map_or(Ok(()), |pooled| pooled.note_end(self));
        noted.and_then(|()| self.end_use(&[dst])).or_else(|error| self.synchronize().and(Err(error)))
    }

    /// Copies a buffer to host memory in stream order. On `cpu`, the copy is done when this returns.
    ///
    /// # Errors
    /// Those of [`Stream::h2d`]. Even on an error, the copy no longer runs when this returns.
    ///
    /// # Safety
    /// `dst` points to `src.size_bytes()` writable bytes, which no other code touches until the stream has passed the
    /// copy.
    pub unsafe fn d2h_async(&self, src: &Buffer, dst: *mut u8) -> Result<()> {
        require_device(self, src)?;
        let size_bytes = src.size_bytes();
        if size_bytes == 0 {
            return Ok(());
        }
        let Some(context) = self.context() else {
            let _lease = src.lease(Access::Read)?;
            // SAFETY: the caller promises the target; the buffer is leased host memory of this size.
            unsafe { std::ptr::copy(src.address() as *const u8, dst, size_bytes) };
            return Ok(());
        };
        self.begin_use(src)?;
        // SAFETY: the caller promises the target; the buffer is device memory of this size, alive until the stream has passed.
        unsafe { context.backend.d2h(src.address(), dst, size_bytes, self.raw_handle()) }?;
        self.end_use(&[src]).or_else(|error| self.synchronize().and(Err(error)))
    }
}

impl Buffer {
    /// Copies all bytes of `source`, on any device, into this memory. Both may be views of the same block.
    ///
    /// # Errors
    /// `InvalidArgument` when the sizes differ or this buffer is read-only.
    pub fn copy_from(&self, source: &Buffer) -> Result<()> {
        if self.size_bytes() != source.size_bytes() {
            let (got, expected) = (source.size_bytes(), self.size_bytes());
            return Err(Error::invalid(format!("cannot copy {got} bytes into a buffer of {expected}")));
        }
        buffer_to_buffer(source, self)
    }

    /// Copies the buffer's bytes from any device to a host vector.
    ///
    /// # Errors
    /// `OutOfMemory`, `DeviceFailed`.
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        if self.device().is_host_accessible() {
            return Ok(self.host_bytes()?.to_vec());
        }
        let mut bytes = try_zeroed_vec(self.size_bytes())?;
        Stream::legacy(self.device())?.d2h(self, &mut bytes)?;
        Ok(bytes)
    }
}

/// Copies between two buffers of the same size, which may overlap. Returns when the bytes are there.
pub(crate) fn buffer_to_buffer(source: &Buffer, target: &Buffer) -> Result<()> {
    target.require_writable()?;
    match (source.device(), target.device()) {
        (Device::Cpu, Device::Cpu) => Stream::legacy(Device::Cpu)?.d2d(source, target),
        (Device::Cpu, device) => {
            let _source = source.lease(Access::Read)?;
            let stream = Stream::legacy(device)?;
            // SAFETY: `copy_from` checked that both have one size; the source is leased until the stream has passed the copy.
            unsafe { stream.h2d_async(source.address() as *const u8, target) }?;
            stream.synchronize()
        }
        (device, Device::Cpu) => {
            let _target = target.lease(Access::Write)?;
            let stream = Stream::legacy(device)?;
            // SAFETY: as above; the target is leased for writing.
            unsafe { stream.d2h_async(source, target.address() as *mut u8) }?;
            stream.synchronize()
        }
        (device, other) => {
            let (from, to) = (source.address(), target.address());
            let size_bytes = source.size_bytes();
            let stream = Stream::legacy(device)?;
            if device == other && from < to + size_bytes && to < from + size_bytes && from != to {
                // Device copies must not overlap, so the bytes go through another buffer. It is as large as a result,
                // so it comes from the results' pool.
                let apart = Buffer::empty(device, size_bytes)?;
                stream.d2d(source, &apart)?;
                stream.d2d(&apart, target)?;
            } else if (device, from) != (other, to) {
                if device != other {
                    // Makes the copy wait for earlier work on the target's legacy stream.
                    stream.wait(&Stream::legacy(other)?.record()?)?;
                }
                stream.d2d(source, target)?;
            }
            stream.synchronize()
        }
    }
}

/// Returns a vector of zeros, or an error (instead of an abort) if there is no memory.
pub(crate) fn try_zeroed_vec(size_bytes: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(size_bytes)
        .map_err(|_| Error::new(ErrorKind::OutOfMemory, format!("the host has no {size_bytes} bytes left")))?;
    bytes.resize(size_bytes, 0);
    Ok(bytes)
}

/// Size in bytes of the host buffer through which a copy between two devices goes; more bytes go one buffer after the
/// other.
const PIECE_BYTES: usize = 16 << 20;

/// Copies between two devices through the host, piece by piece. Both buffers must have the same size.
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
