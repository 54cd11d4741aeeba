//! Streams for the time of a call, used again and again: making one takes as long as reading a small chunk.

use std::sync::{Arc, Mutex, PoisonError};

use cuzarr_device::{Device, Stream};

use crate::error::Result;

/// Unused streams that are kept at most.
const KEPT: usize = 32;

/// Where streams come from and go back to. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Streams(Arc<Mutex<Vec<Stream>>>);

impl Streams {
    /// A stream of `device` that nobody else uses.
    ///
    /// # Errors
    /// Those of [`Stream::new`].
    pub(crate) fn take(&self, device: Device) -> Result<Stream> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = free.iter().position(|stream| stream.device() == device).map(|at| free.swap_remove(at));
        drop(free);
        Ok(kept.map_or_else(|| Stream::new(device), Ok)?)
    }

    /// Takes back a stream on which nothing is under way and that its user does not use any more.
    pub(crate) fn give_back(&self, stream: &Stream) {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < KEPT {
            free.push(stream.clone());
        }
    }
}
