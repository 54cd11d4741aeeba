//! The write route of chunks in device memory that kernels encode. Some are first merged with old elements by kernels.
//! Frames cross the bus, unless the store keeps values on the device.

use std::sync::mpsc::Sender;

use cuzarr_device::Device;

use crate::codec::Program;
use crate::error::{ErrorKind, Result};
use crate::plan::DeviceEncoding;
use crate::run::write::downloads::Outgoing;
use crate::run::write::event::Event;
use crate::run::write::object::at_chunk;
use crate::run::write::route::encode::{EncodedBatch, Encoders, FrameAt};
use crate::run::write::route::host::submit;
use crate::run::write::route::merge::{Changed, OldChunks};
use crate::run::write::route::resident;
use crate::run::write::writing::{Leaf, LeafValue, Writing};

/// The write route for chunks that kernels encode.
pub(crate) struct Kernels {
    encoders: Encoders,
    /// The queue that fetches old elements of chunks; `None` if kernels merge no chunks.
    old_chunks: Option<OldChunks>,
    /// Whether the store accepts encoded chunks in device memory, so that they are not copied to the host.
    keeps_frames: bool,
}

impl Kernels {
    pub(crate) fn new(
        writing: &Writing,
        program: &Program,
        encoding: &DeviceEncoding,
        (keeps_frames, old_bytes): (bool, usize),
        (device, events): (Device, &Sender<Event>),
    ) -> Result<Kernels> {
        let encoders = Encoders::new(writing, program, device, encoding);
        let old_chunks = encoders.old_chunks(encoding.old_bound_bytes, old_bytes, events)?;
        Ok(Kernels { encoders, old_chunks, keeps_frames })
    }

    /// Adds a chunk, to be encoded by kernels, whose elements the write replaces completely.
    pub(crate) fn add(&mut self, outgoing: &mut Outgoing<'_>, leaf: Leaf) -> Result<()> {
        self.add_changed(outgoing, (leaf, None))
    }

    /// Adds a chunk, to be encoded by kernels, of which the write replaces only some elements. It goes on when its old
    /// elements have come.
    pub(crate) fn merge(&mut self, outgoing: &mut Outgoing<'_>, leaf: Leaf) -> Result<()> {
        if let Some(old_chunks) = &mut self.old_chunks {
            old_chunks.fetch(outgoing.writing, leaf);
        }
        self.merge_fetched(outgoing)
    }

    /// Adds the chunks whose old elements were fetched, to be encoded.
    pub(crate) fn merge_fetched(&mut self, outgoing: &mut Outgoing<'_>) -> Result<()> {
        while let Some(changed) = self.old_chunks.as_mut().and_then(OldChunks::try_next) {
            self.add_changed(outgoing, changed)?;
        }
        Ok(())
    }

    fn add_changed(&mut self, outgoing: &mut Outgoing<'_>, changed: Changed) -> Result<()> {
        match self.encoders.add(outgoing.writing, changed)? {
            Some(kind) => self.encode(outgoing, kind),
            None => Ok(()),
        }
    }

    /// Waits for the next chunk whose old elements are fetched, and passes it on to be encoded. Returns false if there
    /// is none.
    fn wait_for_old(&mut self, outgoing: &mut Outgoing<'_>) -> Result<bool> {
        let Some(old_chunks) = &mut self.old_chunks else { return Ok(false) };
        let Some(changed) = old_chunks.next(outgoing.writing)? else { return Ok(false) };
        self.add_changed(outgoing, changed)?;
        Ok(true)
    }

    /// Begins to encode a batch of the waiting chunks of group `kind`, as soon as the device has room for the batch.
    fn encode(&mut self, outgoing: &mut Outgoing<'_>, kind: usize) -> Result<()> {
        while self.encoders.is_full() {
            self.take_frames(outgoing)?;
        }
        self.encoders.begin(outgoing.writing, outgoing.elements, &outgoing.down.ring, kind)
    }

    /// Waits until kernels have encoded the oldest batch, and brings its frames to the host or to the store. Returns
    /// false if there is none.
    fn take_frames(&mut self, outgoing: &mut Outgoing<'_>) -> Result<bool> {
        let Outgoing { writing, down, .. } = outgoing;
        // After this, the memory of the previous batch is free.
        down.hand_all_over(writing)?;
        let Some(EncodedBatch { buffer, leaves, empty, refused, undecoded }) = self.encoders.take()? else {
            return Ok(false);
        };
        for (leaf, stored, error) in undecoded {
            match &mut self.old_chunks {
                Some(old_chunks) if error.kind() == ErrorKind::Unsupported => {
                    old_chunks.decode_on_host(writing, leaf, stored);
                }
                _ => at_chunk(Err(error), &leaf.chunk.name)?,
            }
        }
        refused.into_iter().for_each(|(leaf, packed)| submit(writing, leaf, LeafValue::Packed(packed)));
        empty.into_iter().for_each(|leaf| submit(writing, leaf, LeafValue::Blank));
        let stays = |frame: &FrameAt| self.keeps_frames && frame.leaf.place.is_object();
        let (resident, frames): (Vec<_>, Vec<_>) = leaves.into_iter().partition(stays);
        resident::keep(&buffer, resident, &down.copies)?;
        down.bring_frames(writing, &buffer, frames)?;
        Ok(true)
    }

    /// Moves waiting chunks one step further: takes the frames of a batch, or fetched old elements of a chunk. Returns
    /// false if there are none.
    pub(crate) fn advance(&mut self, outgoing: &mut Outgoing<'_>) -> Result<bool> {
        Ok(self.take_frames(outgoing)? || self.wait_for_old(outgoing)?)
    }

    /// Encodes all waiting chunks with kernels, and brings their frames to the host or to the store.
    pub(crate) fn flush(&mut self, outgoing: &mut Outgoing<'_>) -> Result<()> {
        loop {
            while self.wait_for_old(outgoing)? {}
            while let Some(kind) = self.encoders.waiting() {
                self.encode(outgoing, kind)?;
            }
            while self.take_frames(outgoing)? {}
            // Chunks that kernels could not decode are added again.
            if !self.old_chunks.as_ref().is_some_and(OldChunks::is_waiting) {
                return Ok(());
            }
        }
    }

    /// Whether chunks wait to be encoded.
    pub(crate) fn has_leaves(&self) -> bool {
        self.encoders.waiting().is_some()
    }

    /// Returns the CUDA streams of this write to the process's pool, after all their work has ended.
    pub(crate) fn give_back(&mut self, writing: &Writing) {
        self.encoders.give_back(writing);
    }

    /// Drops all chunks that kernels have not encoded yet, because the write has failed.
    pub(crate) fn abandon(&mut self) {
        self.encoders.abandon();
        self.old_chunks = None;
    }
}
