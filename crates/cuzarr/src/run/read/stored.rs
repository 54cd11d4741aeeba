//! Scratch memory for stored bytes that a route decodes later, and the check of missing chunks that all routes share.

use std::any::Any;

use crate::error::{Error, ErrorKind, Result};
use crate::plan::Fill;
use crate::run::context::Context;
use crate::run::schedule::budget::Reserved;
use crate::run::schedule::scratch::ScratchBlock;
use crate::store::Lease;

/// Scratch memory for the stored bytes of one read; it reserves extra memory if more bytes come than were expected.
pub(crate) struct Stored {
    block: ScratchBlock,
    _extra: Option<Reserved>,
}

impl Stored {
    /// Converts the memory that the store hands back to its type: scratch memory (`Ok`), or the route's own memory `L`
    /// (`Err`).
    pub(crate) fn or<L: Any>(lease: Box<dyn Lease>) -> Result<std::result::Result<Box<Stored>, Box<L>>> {
        match lease.into_any().downcast::<Stored>() {
            Ok(stored) => Ok(Ok(stored)),
            Err(other) => other.downcast().map(Err).map_err(|_| foreign_memory()),
        }
    }

    /// Takes scratch memory into which a store will read `size_bytes` stored bytes. The batch's reservation includes
    /// `counted_bytes` of them.
    pub(crate) fn take(call: &Context, size_bytes: usize, counted_bytes: usize) -> Result<Box<Stored>> {
        // Incompressible bytes grow a little, because of headers and stored blocks.
        let expected = counted_bytes + counted_bytes / 16 + (1 << 16);
        let extra = match size_bytes.saturating_sub(expected) as u64 {
            0 => None,
            extra => {
                Some(call.memory.host.try_take(extra, call.limit_bytes).ok_or_else(|| too_large(call, size_bytes))?)
            }
        };
        Ok(Box::new(Stored { block: call.scratch.take(size_bytes)?, _extra: extra }))
    }
}

fn too_large(call: &Context, size_bytes: usize) -> Error {
    let (used, limit) = (call.memory.host.used_bytes(), call.limit_bytes);
    let message =
        format!("a stored chunk has {size_bytes} bytes, {used} bytes are in flight, the memory limit is {limit}");
    Error::new(ErrorKind::BudgetExceeded, message).with_hint("raise `memory_limit`")
}

impl std::ops::Deref for Stored {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.block
    }
}

impl Lease for Stored {
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.block
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

pub(crate) fn foreign_memory() -> Error {
    Error::new(ErrorKind::StoreFailed, "the store returned memory that was not lent to it")
}

/// Checks that a missing chunk may be read as the fill value.
///
/// # Errors
/// `ChunkNotFound` when it may not.
pub(crate) fn check_missing(read_missing: bool, fill: &Fill) -> Result<()> {
    if read_missing {
        return Ok(());
    }
    let error = Error::new(ErrorKind::ChunkNotFound, "the chunk does not exist");
    Err(error.at(fill.name.to_string()).with_hint("set array.read_missing_chunks to get the fill value instead"))
}
