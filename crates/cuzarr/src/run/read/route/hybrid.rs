//! The read route on which the host undoes the last codecs of each chunk, or all codecs, and kernels undo the others.
//! All cores decode chunks into pieces of a slab of pinned memory, and the pieces cross the bus when they are filled.
//! If the host only undoes the last passes of encoding, kernels undo the others on the device. Chunks that are stored
//! in packed form are fetched directly into the slab.

use std::sync::Arc;

use cuzarr_device::internal::{Slab, SlabPiece};
use cuzarr_device::{Buffer, Stream};

use crate::codec::batch::{HostCopy, ScratchLimit};
use crate::codec::native::Source;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{Batch, Fill, Read, Unit};
use crate::run::natives::Natives;
use crate::run::read::device::target::{Target, packed};
use crate::run::read::in_flight::{BatchRoute, DeviceRoute, Life, Packed, State};
use crate::run::read::route::kernels::{InSlab, LaunchedDecoding};
use crate::run::read::stored::{Stored, check_missing};
use crate::run::report::Stage;
use crate::run::schedule::budget::Held;
use crate::store::Lease;

/// Alignment of the pieces of a slab, each of which one thread fills.
pub(crate) const PIECE_ALIGNMENT_BYTES: usize = 256;
/// Alignment of each chunk's decoded bytes in a slab. It aligns elements of any type.
pub(crate) const ELEMENT_ALIGNMENT_BYTES: usize = 16;

/// A batch that the host decodes into a slab, fully or partly, before the slab is copied to the device.
pub(crate) struct HybridBatch {
    target: Arc<Target>,
    /// The kernels that undo the encoding steps that the host did not undo; `None` when the host undoes all.
    rest: Option<Arc<Natives>>,
    /// For each chunk of the batch, the number of its slab piece, and the offset of its decoded bytes in the slab.
    units: Vec<(usize, usize)>,
    life: Life<Fetching, Fetched, Decoding>,
}

/// Data of a batch while threads fill the pieces of its slab.
struct Fetching {
    held: Held,
    slab: Option<(Slab, Buffer)>,
    /// The slab pieces not yet taken: one for each read when chunks are uncompressed, else one for each chunk.
    pieces: Vec<Option<SlabPiece>>,
}

/// Data of a batch whose slab is full, while the slab is copied to the device.
struct Fetched {
    held: Held,
    slab: Option<(Slab, Buffer)>,
    landed: Vec<usize>,
}

/// Data of a batch while kernels undo the encoding steps that the host did not undo.
struct Decoding {
    launched: Option<LaunchedDecoding>,
    _held: Held,
}

/// How the chunks of a batch are laid out in its slab, and the size of the slab.
pub(crate) struct SlabPlan {
    piece_bytes: Vec<usize>,
    /// For each chunk of the batch, the number of its slab piece, and the offset of its decoded bytes in that piece.
    units: Vec<(usize, usize)>,
    pub(crate) total_bytes: usize,
}

impl SlabPlan {
    pub(crate) fn new(batch: &Batch, stored_is_packed: bool) -> SlabPlan {
        let mut plan = SlabPlan { piece_bytes: Vec::new(), units: Vec::new(), total_bytes: 0 };
        for read in &batch.reads {
            match stored_is_packed.then(|| in_place(batch, read)).flatten() {
                Some(offsets) => {
                    let end = offsets.iter().zip(read.units.clone());
                    let size = end.map(|(offset, unit)| offset + batch.units[unit].packed_size_bytes).max();
                    plan.units.extend(offsets.iter().map(|&offset| (plan.piece_bytes.len(), offset)));
                    plan.push(size.unwrap_or(0));
                }
                None => {
                    for unit in read.units.clone() {
                        plan.units.push((plan.piece_bytes.len(), 0));
                        plan.push(batch.units[unit].packed_size_bytes);
                    }
                }
            }
        }
        plan
    }

    fn push(&mut self, size_bytes: usize) {
        self.total_bytes = self.total_bytes.next_multiple_of(PIECE_ALIGNMENT_BYTES) + size_bytes;
        self.piece_bytes.push(size_bytes);
    }
}

/// Returns the offsets at which the chunks of a read lie in the memory of the read, if all offsets are aligned.
fn in_place(batch: &Batch, read: &Read) -> Option<Vec<usize>> {
    let offsets: Vec<usize> =
        read.units.clone().map(|unit| batch.unit_span(read, unit).map_or(0, |(from, _)| from)).collect();
    let aligned = offsets.iter().all(|offset| offset.is_multiple_of(ELEMENT_ALIGNMENT_BYTES));
    aligned.then_some(offsets)
}

impl HybridBatch {
    /// Makes a batch whose bytes will be put into pieces of `slab`. Without a slab, the batch has no bytes.
    pub(crate) fn new(
        target: &Arc<Target>,
        rest: Option<Arc<Natives>>,
        plan: SlabPlan,
        mut slab: Option<(Slab, Buffer)>,
        held: Held,
    ) -> Result<HybridBatch> {
        let mut pieces = Vec::with_capacity(plan.piece_bytes.len());
        for &size_bytes in &plan.piece_bytes {
            let piece = slab.as_mut().and_then(|(slab, _)| slab.carve(size_bytes));
            if piece.is_none() && slab.is_some() {
                let message = format!("a slab has too little room for a planned piece of {size_bytes} bytes");
                return Err(Error::new(ErrorKind::DeviceFailed, message));
            }
            pieces.push(piece);
        }
        let begin = |piece: usize| pieces[piece].as_ref().map_or(0, SlabPiece::offset_bytes);
        let units = plan.units.into_iter().map(|(piece, offset)| (piece, begin(piece) + offset)).collect();
        let life = Life::new(Fetching { held, slab, pieces });
        Ok(HybridBatch { target: Arc::clone(target), rest, units, life })
    }

    /// Takes the piece of the slab into which a chunk is decoded or read.
    fn piece(&self, unit: usize) -> Result<SlabPiece> {
        let twice = || Error::new(ErrorKind::StoreFailed, "the store asked twice for the memory of one item");
        let (piece, _) = self.units[unit];
        self.life.fetching(|fetching| fetching.pieces.get_mut(piece).and_then(Option::take).ok_or_else(twice))
    }
}

impl BatchRoute for HybridBatch {
    fn lease(&self, batch: &Batch, number: usize, size_bytes: usize) -> Result<Box<dyn Lease>> {
        let read = &batch.reads[number];
        if self.target.stored_is_packed && in_place(batch, read).is_some() {
            return Ok(Box::new(InSlab::new(0, self.piece(read.units.start)?)));
        }
        let counted_bytes = batch.packed_bytes(number) + batch.gap_bytes(number);
        Ok(Stored::take(&self.target.call, size_bytes, counted_bytes)?)
    }

    fn arrived(&self, _batch: &Batch, _read: usize, lease: Box<dyn Lease>) -> Result<Option<Box<Stored>>> {
        Ok(Stored::or::<InSlab>(lease)?.ok())
    }

    fn land(&self, batch: &Batch, number: usize, stored: &[u8]) -> Result<()> {
        let (Target { call, stored_is_packed, .. }, unit) = (&*self.target, &batch.units[number]);
        let mut packed = self.piece(number)?;
        if *stored_is_packed {
            packed.copy_from_slice(stored);
            return Ok(());
        }
        let program = unit.layout.program()?;
        call.counters.time(Stage::Decode, packed.len() as u64, || match &self.rest {
            Some(natives) => {
                let input_bytes = natives.of(&unit.layout).and_then(|native| native.input_bytes());
                let decoded = input_bytes.and_then(|size_bytes| packed.get_mut(..size_bytes));
                program.decode_host_passes(natives.host_passes(), stored, decoded.unwrap_or_default())
            }
            None => program.decode(stored, &mut packed),
        })
    }

    fn fill(&self, _number: usize, fill: &Fill) -> Result<()> {
        // The device fills the box when the batch is placed.
        check_missing(self.target.read_missing, fill)
    }

    fn complete(&self, _batch: &Batch, landed: &[usize]) {
        let fetched = self.life.fetched(|Fetching { held, slab, pieces }| {
            if let (Some((slab, _)), true) = (&slab, landed.is_empty()) {
                slab.stop_upload();
            }
            // Dropped first, because no other owner may use a slab when its upload ends.
            drop(pieces);
            Ok(Fetched { held, slab, landed: landed.to_vec() })
        });
        if let Err(error) = fetched {
            self.target.call.fail(error);
        }
    }
}

impl DeviceRoute for HybridBatch {
    fn decode(&self, batch: &Batch, _copies: &Stream, scatters: &Stream) -> Result<Vec<Packed>> {
        self.life.decoding(|Fetched { held, slab, landed }| {
            let unit = |&unit: &usize| (&batch.units[unit], self.units[unit].1);
            let units = landed.iter().map(unit);
            let Some((mut slab, arena)) = slab.filter(|_| !landed.is_empty()) else {
                return Ok((Decoding { launched: None, _held: held }, Vec::new()));
            };
            let (Target { call, .. }, copied) = (&*self.target, slab.finish_upload()?);
            copied.iter().try_for_each(|copy| scatters.wait(&copy.end))?;
            call.counters.add_copies(Stage::Upload, copied);
            let Some(natives) = &self.rest else {
                return Ok((Decoding { launched: None, _held: held }, packed(&arena, units)));
            };
            let input_bytes = |unit: &Unit| natives.of(&unit.layout).and_then(|native| native.input_bytes());
            let ranges = units.clone().map(|(unit, at)| at..at + input_bytes(unit).unwrap_or(0)).collect();
            let source = Source { buffer: &arena, ranges, host: HostCopy::default() };
            let decoded_bytes: u64 = units.clone().map(|(unit, _)| unit.packed_size_bytes as u64).sum();
            let counted_bytes = natives.usual().scratch_copies().saturating_mul(decoded_bytes) as usize;
            let scratch = ScratchLimit { aim_bytes: counted_bytes, most_bytes: usize::MAX };
            let units = units.map(|(unit, _)| unit);
            let decoder = natives.prepare(units.clone(), source, scratch, scatters)?;
            let (packed, launched) = LaunchedDecoding::launch(call, decoder, units, scatters)?;
            Ok((Decoding { launched: Some(launched), _held: held }, packed))
        })
    }

    fn check(&self) -> Result<Vec<Packed>> {
        if let State::Decoding(Decoding { launched: Some(launched), .. }) = self.life.end() {
            launched.check(&self.target.call);
        }
        Ok(Vec::new())
    }

    fn give_up(&self) {
        // The batch is not placed, so nothing more crosses the bus.
        let ended = self.life.end();
        if let State::Fetching(Fetching { slab: Some((slab, _)), .. })
        | State::Fetched(Fetched { slab: Some((slab, _)), .. }) = &ended
        {
            slab.stop_upload();
        }
    }
}
