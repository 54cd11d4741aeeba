//! Host memory that each thread keeps for the bytes of a chunk between two codecs, so that chunks do not pay for fresh
//! pages.

use std::cell::RefCell;

use crate::{Error, ErrorKind, Result};

/// Maximum size of a scratch buffer that a thread keeps for later use; larger buffers are freed.
const KEPT_BYTES: usize = 64 << 20;

thread_local! {
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` on `size_bytes` bytes of this thread's scratch memory, whose content is unspecified (but initialised).
pub(crate) fn with<T>(size_bytes: usize, work: impl FnOnce(&mut [u8]) -> Result<T>) -> Result<T> {
    let mut memory = FREE.with_borrow_mut(Vec::pop).unwrap_or_default();
    if memory.len() < size_bytes {
        memory.try_reserve_exact(size_bytes - memory.len()).map_err(|_| {
            Error::new(ErrorKind::OutOfMemory, format!("no {size_bytes} bytes of host memory for a chunk"))
        })?;
        memory.resize(size_bytes, 0);
    }
    let result = work(&mut memory[..size_bytes]);
    if memory.capacity() <= KEPT_BYTES {
        FREE.with_borrow_mut(|free| free.push(memory));
    }
    result
}
