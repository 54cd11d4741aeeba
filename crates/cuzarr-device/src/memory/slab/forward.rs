//! Uploads the filled parts of a slab while others are still being filled.
//!
//! The slab is divided into sections. A section is ready when pieces were carved up to its end and all of them were
//! dropped. It is then uploaded; one copy moves neighbouring sections that are ready. So the bus starts early, and
//! little is left to copy when the last piece is filled.

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

/// Size in bytes of the sections of a slab, each of which is uploaded once it is filled. Smaller copies, with marks
/// between them, would leave the bus idle at times.
const SECTION_BYTES: usize = 16 << 20;

/// Where the filled bytes of a slab are uploaded to, and how far the upload is.
pub(super) struct Forward {
    dst: Buffer,
    stream: Stream,
    state: Mutex<State>,
    sent: Arc<Mutex<Sent>>,
}

struct State {
    carved_bytes: usize,
    /// Whether no more pieces of memory will be cut from the slab for threads to fill. The last section is then copied
    /// once it is filled, even if it is short.
    closed: bool,
    sections: Vec<Section>,
}

/// The uploads that were submitted for one slab or for a series of slabs.
#[derive(Default)]
pub(super) struct Sent {
    pub(super) copied: Vec<Copied>,
    pub(super) stopped: bool,
    failure: Option<Error>,
}

impl Sent {
    /// Removes and returns the list of all submitted copies. Fails if they cover less than `carved_bytes`: then some
    /// pieces are not filled yet.
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
    /// Number of bytes of the section that are final: nothing will write them any more.
    settled_bytes: usize,
    sent: bool,
}

/// One copy of a slab's bytes to a device. Timed events mark its start and its end.
#[derive(Clone)]
pub struct Copied {
    /// The event on the upload's stream just before the copy.
    pub start: Event,
    /// The event on the upload's stream just behind the copy.
    pub end: Event,
    /// Number of bytes that were copied.
    pub size_bytes: usize,
}

impl Slab {
    /// Lets the slab's bytes be uploaded to `dst` on `stream` from now on, section by section, as threads fill them.
    /// The thread that drops the last piece of a section submits its copy. [`Slab::finish_upload`] sends the rest. The
    /// slab's size is reduced to that of `dst`.
    ///
    /// # Errors
    /// `InvalidArgument` when pieces were carved already; `MemorySpace` when `dst` is not on the stream's device.
    pub fn upload_as_filled(&mut self, dst: &Buffer, stream: &Stream) -> Result<()> {
        self.upload_beside(dst, stream, Arc::default())
    }

    /// Like `upload_as_filled`, but records the copies in `sent`, a list that several slabs of a series share.
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

    /// Prevents further uploads of the slab's filled bytes. Call it when their bytes are no longer needed.
    pub fn stop_upload(&self) {
        if let Some(forward) = self.lease.forward.get() {
            lock(&forward.sent).stopped = true;
        }
    }

    /// Declares that no more pieces are carved from a slab that is uploaded as it is filled. The rest is uploaded as
    /// soon as it is filled.
    pub(super) fn close(&self) {
        if let Some(forward) = self.lease.forward.get() {
            lock(&forward.state).closed = true;
            forward.send(self.lease.address(), &self.lease.copies);
        }
    }

    /// Submits the copy of all carved bytes that were not uploaded yet, on the stream of [`Slab::upload_as_filled`].
    /// Returns all copies of the slab.
    ///
    /// # Errors
    /// `InvalidArgument` while a piece lives or without that call. `DeviceFailed`, also for copies that were submitted
    /// before.
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
    /// Records that pieces for threads to fill were carved from the slab up to its byte `end`. The bytes of `gap`
    /// before the new piece will never be written.
    pub(super) fn carved(&self, gap: Range<usize>, end: usize) {
        let mut state = lock(&self.state);
        state.settle(gap);
        state.carved_bytes = end;
    }

    /// Notes that the bytes `range` of the slab at `address` are final, and uploads the sections that are now filled.
    pub(super) fn filled(&self, address: usize, copies: &Copies, range: Range<usize>) {
        lock(&self.state).settle(range);
        self.send(address, copies);
    }

    /// Uploads the sections of the slab that are filled and were not uploaded yet. Neighbours go in one copy.
    fn send(&self, address: usize, copies: &Copies) {
        if lock(&self.sent).stopped {
            return;
        }
        // This is a separate statement so that the lock is released: threads that carve and fill need it during the
        // copies.
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
        // SAFETY: the range lies inside the slab, as `carved` counted. Every piece of it was dropped, and none is
        // carved there again. All other code that writes a slab waits for the mark that `note_done` leaves below.
        unsafe { self.stream.h2d_async(address as *const u8, &dst) }?;
        match self.stream.record_timed() {
            Ok(end) => {
                copies.note_done(&self.stream, false, end.clone());
                Ok(Copied { start, end, size_bytes })
            }
            // Without a mark, it would be unknown when the copy is done.
            Err(error) => self.stream.synchronize().and(Err(error)),
        }
    }
}

impl State {
    /// Returns the byte ranges of the slab's sections that are filled and not sent yet, and marks these sections as
    /// sent.
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
