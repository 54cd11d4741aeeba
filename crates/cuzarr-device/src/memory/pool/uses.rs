//! Records which streams use which memory of the pools, so that memory is reused only after the work on it.

use crate::error::Result;
use crate::memory::buffer::Buffer;
use crate::memory::pool::pooled::PooledMemory;
use crate::stream::Stream;

impl Stream {
    /// Announces that the next work on this stream uses `buffer`. The stream waits for the allocation, and the memory
    /// is freed only after the stream's work. Other crates call this for each buffer before a launch.
    ///
    /// # Errors
    /// `MemorySpace` when the host would have to reach device memory, `DeviceFailed`.
    pub fn begin_use(&self, buffer: &Buffer) -> Result<()> {
        match buffer.owner().downcast_ref::<PooledMemory>() {
            Some(pooled) => pooled.note_use(self),
            None => Ok(()),
        }
    }

    /// Ends the uses that [`Stream::begin_use`] announced, after the work was put on the stream. Keeps memory that is
    /// not from our pool alive until the stream has passed.
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
