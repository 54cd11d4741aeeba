//! How memory gets to know the streams that use it.

use crate::error::Result;
use crate::memory::buffer::Buffer;
use crate::memory::pool::pooled::PooledMemory;
use crate::stream::Stream;

impl Stream {
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
        let mut foreign = buffers.iter().filter(|buffer| !buffer.owner().is::<PooledMemory>()).peekable();
        if foreign.peek().is_none() {
            return Ok(());
        }
        self.keep(foreign.map(|buffer| buffer.keeper()))
    }
}
