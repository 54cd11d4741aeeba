//! Filled parts of a slab cross the bus while others are still being filled.
//!
//! The slab is divided into sections. A section crosses when all of it was carved and no piece in it lives any more;
//! neighbours that are ready cross in one copy. So the bus starts early, and has little left to do when the last piece comes.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::driver::nvtx;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::lock::lock;
use crate::memory::buffer::Buffer;
use crate::memory::copy::require_device;
use crate::memory::slab::Slab;
use crate::memory::slab::copies::Copies;
use crate::stream::Stream;

/// Bytes of a section: copies of fewer, with marks between them, leave gaps on the bus.
const SECTION_BYTES: usize = 16 << 20;

/// Where a slab's bytes go.
pub(super) struct Forward {
    dst: Buffer,
    stream: Stream,
    state: Mutex<State>,
    sent: Arc<Mutex<Sent>>,
}

struct State {
    carved_bytes: usize,
    /// Whether no more pieces will be carved. Then the last section is copied as soon as all of it is filled, even if
    /// it is short.
    closed: bool,
    sections: Vec<Section>,
}

/// The copies of one slab or of several.
#[derive(Default)]
pub(super) struct Sent {
    pub(super) copied: Vec<Copied>,
    pub(super) stopped: bool,
    failure: Option<Error>,
}

impl Sent {
    /// Takes all copies, which have `carved_bytes` once every piece was filled.
    pub(super) fn take(&mut self, carved_bytes: usize) -> Result<Vec<Copied>> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let sent: usize = self.copied.iter().map(|copy| copy.size_bytes).sum();
        if sent < carved_bytes {
            let message = format!("pieces with {} bytes are still being filled", carved_bytes - sent);
            return Err(Error::invalid(message));
        }
        Ok(std::mem::take(&mut self.copied))
    }
}

#[derive(Clone, Copy, Default)]
struct Section {
    /// Bytes that will not be written any more.
    settled_bytes: usize,
    sent: bool,
}

/// One copy of a slab's bytes. Timed events mark its start and its end.
#[derive(Clone)]
pub struct Copied {
    /// The mark before the copy.
    pub start: Event,
    /// The mark behind the copy.
    pub end: Event,
    /// The number of bytes.
    pub size_bytes: usize,
}

impl Slab {
    /// From now on, filled bytes cross to `dst` on `stream`, section by section: the thread that drops the last piece of a
    /// section puts the copy on the stream. [`Slab::finish_upload`] sends the rest. The slab has room for no more bytes than
    /// `dst` any more.
    ///
    /// # Errors
    /// `InvalidArgument` when pieces were carved already; `MemorySpace` when `dst` is not on the stream's device.
    pub fn upload_as_filled(&mut self, dst: &Buffer, stream: &Stream) -> Result<()> {
        self.upload_beside(dst, stream, Arc::default())
    }

    /// Like `upload_as_filled`, with the copies of other slabs in `sent`.
    pub(super) fn upload_beside(&mut self, dst: &Buffer, stream: &Stream, sent: Arc<Mutex<Sent>>) -> Result<()> {
        if self.carved_bytes > 0 {
            return Err(Error::invalid(format!("{} bytes of the slab were carved already", self.carved_bytes)));
        }
        require_device(stream, dst)?;
        dst.require_writable()?;
        self.size_bytes = self.size_bytes.min(dst.size_bytes());
        let sections = vec![Section::default(); self.size_bytes.div_ceil(SECTION_BYTES)];
        let state = Mutex::new(State { carved_bytes: 0, closed: false, sections });
        let forward = Forward { dst: dst.clone(), stream: stream.clone(), state, sent };
        self.lease
            .forward
            .set(forward)
            .map_err(|_| Error::invalid("the slab's filled parts cross by themselves already"))
    }

    /// Stops further copies, because their bytes are not wanted.
    pub fn stop_upload(&self) {
        if let Some(forward) = self.lease.forward.get() {
            lock(&forward.sent).stopped = true;
        }
    }

    /// Says that nothing more will be carved of a slab whose filled parts cross by themselves. The rest crosses as soon as it
    /// is filled.
    pub(super) fn close(&self) {
        if let Some(forward) = self.lease.forward.get() {
            lock(&forward.state).closed = true;
            forward.send(self.lease.address(), &self.lease.copies);
        }
    }

    /// Puts the copy of all that was carved and has not crossed yet on the stream of [`Slab::upload_as_filled`]; gives all
    /// copies of the slab.
    ///
    /// # Errors
    /// `InvalidArgument` while a piece lives or without that call, `DeviceFailed`, also for copies that were sent before.
    pub fn finish_upload(&mut self) -> Result<Vec<Copied>> {
        self.require_no_pieces()?;
        let none = || Error::invalid("the slab has no target for its filled parts");
        let forward = self.lease.forward.get().ok_or_else(none)?;
        self.close();
        let carved_bytes = lock(&forward.state).carved_bytes;
        lock(&forward.sent).take(carved_bytes)
    }
}

impl Forward {
    /// Notes that a piece ends at byte `end`, and that the bytes of `gap` before it are never written.
    pub(super) fn carved(&self, gap: Range<usize>, end: usize) {
        let mut state = lock(&self.state);
        state.settle(gap);
        state.carved_bytes = end;
    }

    /// Says that `range` of the slab at `address` will not be written any more.
    pub(super) fn filled(&self, address: usize, copies: &Copies, range: Range<usize>) {
        lock(&self.state).settle(range);
        self.send(address, copies);
    }

    /// Sends the sections that are ready, neighbours together.
    fn send(&self, address: usize, copies: &Copies) {
        if lock(&self.sent).stopped {
            return;
        }
        // Its own statement: threads that carve and fill need the lock meanwhile.
        let ready = lock(&self.state).take_ready();
        for range in ready {
            let copied = self.copy(address, copies, range);
            let mut sent = lock(&self.sent);
            match copied {
                Ok(copied) => sent.copied.push(copied),
                Err(error) => sent.failure = Some(error),
            }
        }
    }

    fn copy(&self, address: usize, copies: &Copies, range: Range<usize>) -> Result<Copied> {
        let size_bytes = range.len();
        let _range = nvtx::range("upload", size_bytes as u64);
        let (address, dst) = (address + range.start, self.dst.slice(range)?);
        let start = self.stream.record_timed()?;
        // SAFETY: inside the slab, as `carved` counted. Every piece of the range was dropped and none is carved there again; what
        // else writes a slab waits for the mark that `note_done` leaves below.
        unsafe { self.stream.h2d_async(address as *const u8, &dst) }?;
        match self.stream.record_timed() {
            Ok(end) => {
                copies.note_done(&self.stream, false, end.clone());
                Ok(Copied { start, end, size_bytes })
            }
            // Without a mark it would not be known when the copy is done.
            Err(error) => self.stream.synchronize().and(Err(error)),
        }
    }
}

impl State {
    /// The bytes of sections that are ready and were not sent, which count as sent from here on.
    fn take_ready(&mut self) -> Vec<Range<usize>> {
        let mut ranges = Vec::<Range<usize>>::new();
        for (number, section) in self.sections.iter_mut().enumerate() {
            let at = number * SECTION_BYTES;
            let end = self.carved_bytes.min(at + SECTION_BYTES);
            let is_whole = self.closed || end == at + SECTION_BYTES;
            if section.sent || end <= at || !is_whole || section.settled_bytes < end - at {
                continue;
            }
            section.sent = true;
            match ranges.last_mut() {
                Some(last) if last.end == at => last.end = end,
                _ => ranges.push(at..end),
            }
        }
        ranges
    }

    fn settle(&mut self, range: Range<usize>) {
        let mut at = range.start;
        while at < range.end {
            let section = at / SECTION_BYTES;
            let end = range.end.min((section + 1) * SECTION_BYTES);
            self.sections[section].settled_bytes += end - at;
            at = end;
        }
    }
}
