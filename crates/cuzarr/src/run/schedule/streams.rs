//! CUDA streams that are lent to calls. They are reused, because making a stream takes as long as reading a small
//! chunk.

use std::sync::{Arc, Mutex, PoisonError};

use cuzarr_device::{Device, Stream};

use crate::error::Result;

/// Maximum number of unused CUDA streams that are kept for reuse; further ones are destroyed.
const KEPT: usize = 32;

/// Number of batches of one call that kernels decode at once.
const DECODING: usize = 4;

/// CUDA streams that no call uses now, kept for reuse by any call. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Streams(Arc<Mutex<Vec<Stream>>>);

impl Streams {
    /// Takes a stream of `device` that no other call uses.
    ///
    /// # Errors
    /// Those of [`Stream::new`].
    pub(crate) fn take(&self, device: Device) -> Result<Stream> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = free.iter().position(|stream| stream.device() == device).map(|at| free.swap_remove(at));
        drop(free);
        Ok(kept.map_or_else(|| Stream::new(device), Ok)?)
    }

    /// Takes back a stream that its user no longer needs, after all its work has ended.
    pub(crate) fn give_back(&self, stream: &Stream) {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < KEPT {
            free.push(stream.clone());
        }
    }
}

/// The CUDA streams on which kernels decode the batches of one call. Batches use them in turn.
pub(crate) struct Decoders {
    device: Device,
    source: Streams,
    streams: Vec<Stream>,
    next: usize,
}

impl Decoders {
    pub(crate) fn new(device: Device, source: &Streams) -> Decoders {
        Decoders { device, source: source.clone(), streams: Vec::new(), next: 0 }
    }

    /// Returns the CUDA stream on which the next batch decodes.
    pub(crate) fn next(&mut self) -> Result<Stream> {
        self.next = (self.next + 1) % DECODING;
        while self.streams.len() <= self.next {
            self.streams.push(self.source.take(self.device)?);
        }
        Ok(self.streams[self.next].clone())
    }

    /// Waits for all work on the CUDA streams of this call.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.streams.iter().try_for_each(|stream| Ok(stream.synchronize()?))
    }

    /// Returns the call's CUDA streams for reuse, after all their work has ended.
    pub(crate) fn give_back(&mut self) {
        self.streams.drain(..).for_each(|stream| self.source.give_back(&stream));
    }
}
