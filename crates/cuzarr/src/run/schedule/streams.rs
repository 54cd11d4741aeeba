//! Streams for the time of a call, used again and again: making one takes as long as reading a small chunk.

use std::sync::{Arc, Mutex, PoisonError};

use cuzarr_device::{Device, Stream};

use crate::error::Result;

/// Unused streams that are kept at most.
const KEPT: usize = 32;

/// Batches of one call that decode at once.
const DECODING: usize = 4;

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

/// The streams that the batches of one call decode on, in turn.
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

    /// The next stream in turn.
    pub(crate) fn next(&mut self) -> Result<Stream> {
        self.next = (self.next + 1) % DECODING;
        while self.streams.len() <= self.next {
            self.streams.push(self.source.take(self.device)?);
        }
        Ok(self.streams[self.next].clone())
    }

    /// Waits for all of them.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.streams.iter().try_for_each(|stream| Ok(stream.synchronize()?))
    }

    /// Gives the streams back, on which nothing is under way any more.
    pub(crate) fn give_back(&mut self) {
        self.streams.drain(..).for_each(|stream| self.source.give_back(&stream));
    }
}
