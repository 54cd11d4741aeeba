//! Results in host memory of chunks that the device has decoded. Decoded chunks come back through slabs of pinned
//! memory. Each worker thread takes a piece of them at a time: it downloads the piece into a slab of its own, and puts
//! the elements into the results. So downloads and copies into the results go on side by side, and no slab waits for
//! another one.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cuzarr_device::internal::{ElementBox, Part, SlabRing, Writer};
use cuzarr_device::{Device, NdBuffer, Stream, Transfer};

use super::DeviceResult;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Spacing;
use crate::run::context::Context;
use crate::run::pieces::{Piece, piece_bytes, pieces};
use crate::run::read::in_flight::{Packed, PackedBytes};
use crate::run::read::out::Extent;
use crate::run::report::Stage;
use crate::run::schedule::countdown::{Countdown, Ticket};

/// Memory of the host that receives decoded chunks from a device.
pub(crate) struct HostOuts {
    call: Arc<Context>,
    writers: Vec<Writer>,
    ring: SlabRing,
    copies: Stream,
    piece_bytes: usize,
}

/// The work of one thread on one result.
enum Work {
    Scatter(Piece),
    Fill(Extent, Vec<u8>),
}

impl HostOuts {
    /// Prepares results for chunks that come from `device`. `spacings` has the arrangement of each result.
    ///
    /// # Errors
    /// `InvalidArgument` when results are read-only, in use, or overlap.
    pub(super) fn new<'a>(
        call: &Arc<Context>,
        outs: &[NdBuffer],
        spacings: impl Iterator<Item = &'a Spacing>,
        device: Device,
    ) -> Result<HostOuts> {
        let writers = outs.iter().zip(spacings).map(|(out, spacing)| Ok(out.writer_by(spacing.lists.clone())?));
        let writers = writers.collect::<Result<_>>()?;
        let (copies, piece_bytes) = (call.streams.take(device)?, piece_bytes(call));
        let ring = SlabRing::new(device, piece_bytes, usize::try_from(call.limit_bytes).unwrap_or(usize::MAX))?;
        Ok(HostOuts { call: Arc::clone(call), writers, ring, copies, piece_bytes })
    }

    /// Size of the pinned memory that the pieces of a batch take at a time. `chunk_bytes` is the size of its largest
    /// chunk: some chunks cannot be divided into pieces.
    pub(super) fn pinned_bytes(&self, packed_bytes: usize, chunk_bytes: usize) -> usize {
        packed_bytes.min(self.call.threads.saturating_mul(self.piece_bytes.max(chunk_bytes)))
    }

    /// Passes decoded chunks to threads that bring them to the results, and boxes without a chunk to threads that fill
    /// them. The kernels that decode the chunks have ended. The countdown ends when all elements are in their place.
    ///
    /// # Errors
    /// `InvalidArgument` when boxes overlap those of an earlier batch that is not done.
    pub(super) fn place(
        &mut self,
        results: &[DeviceResult],
        packed: Vec<Packed>,
        fills: BTreeMap<usize, Vec<Extent>>,
    ) -> Result<Countdown> {
        let mut works = BTreeMap::<usize, Vec<Work>>::new();
        for Packed { out, bytes, layout, boxes, .. } in packed {
            let DeviceResult { tail, spacing, .. } = &results[out];
            let boxes = match bytes {
                PackedBytes::Together(buffer) => vec![(buffer, boxes)],
                PackedBytes::Each(buffers) => {
                    buffers.into_iter().zip(boxes.into_iter().map(|item| vec![item])).collect()
                }
            };
            let strides = spacing.strides(&layout);
            for (buffer, boxes) in boxes {
                let empty = Transfer {
                    tail: tail.clone(),
                    packed_strides: strides.to_vec(),
                    lists: spacing.lists.clone(),
                    boxes: Vec::new(),
                };
                let pieces = pieces(&buffer, &empty, boxes, self.piece_bytes);
                works.entry(out).or_default().extend(pieces.into_iter().map(Work::Scatter));
            }
        }
        for (out, boxes) in fills {
            let fill = |extent| Work::Fill(extent, results[out].fill.clone());
            works.entry(out).or_default().extend(boxes.into_iter().map(fill));
        }
        // All boxes are lent before the first thread begins, so that no thread works on after an error.
        let mut lent = Vec::new();
        for (out, works) in works {
            let parts = self.writers[out].lend(works.iter().map(Work::boxes).collect())?;
            for (number, work) in works.into_iter().enumerate() {
                lent.push((work, parts.part(number)?));
            }
        }
        let (countdown, ticket) = Countdown::new();
        for (work, part) in lent {
            let (call, ring, copies) = (Arc::clone(&self.call), self.ring.clone(), self.copies.clone());
            let ticket = ticket.clone();
            self.call.submit(false, move || run(&call, &ring, &copies, work, part, ticket));
        }
        Ok(countdown)
    }

    /// Returns the CUDA stream of the downloads for reuse, after all of them have ended.
    pub(super) fn give_back(&self) -> Result<()> {
        self.copies.synchronize()?;
        self.call.streams.give_back(&self.copies);
        Ok(())
    }
}

impl Work {
    fn boxes(&self) -> Vec<ElementBox> {
        let one = |start: &Vec<usize>, extent: &Vec<usize>| ElementBox { start: start.clone(), extent: extent.clone() };
        match self {
            Work::Scatter(piece) => piece.transfer.boxes.iter().map(|item| one(&item.start, &item.extent)).collect(),
            Work::Fill((start, extent), _) => vec![one(start, extent)],
        }
    }
}

/// Does the work of one thread. Failures are reported to the call.
fn run(call: &Context, ring: &SlabRing, copies: &Stream, work: Work, mut part: Part, ticket: Ticket) {
    let work = || -> Result<()> {
        match work {
            _ if call.is_cancelled() => Ok(()),
            Work::Scatter(piece) => bring(&piece, call, ring, copies, &mut part),
            Work::Fill((start, extent), element) => {
                let size_bytes = (extent.iter().product::<usize>() * element.len()) as u64;
                Ok(call.counters.time(Stage::Fill, size_bytes, || part.fill(&start, &extent, &element))?)
            }
        }
    };
    let outcome = catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::DeviceFailed, "a copy panicked; please report this")));
    if let Err(error) = outcome {
        call.fail(error);
    }
    // The countdown ends after the part, so that the results are free when it ends.
    drop(part);
    drop(ticket);
}

/// Downloads a piece of decoded chunks into a slab, and puts its elements into the part of the result that `part` lends.
fn bring(piece: &Piece, call: &Context, ring: &SlabRing, copies: &Stream, part: &mut Part) -> Result<()> {
    let Piece { packed, range, transfer } = piece;
    let (mut slab, size_bytes) = (ring.acquire(range.len())?, range.len() as u64);
    let packed = packed.slice(range.clone())?;
    let bytes = call.counters.time(Stage::Download, size_bytes, || {
        slab.download(&packed, 0, copies)?;
        slab.bytes()
    })?;
    Ok(call.counters.time(Stage::Scatter, size_bytes, || part.scatter(&bytes[..range.len()], transfer))?)
}
