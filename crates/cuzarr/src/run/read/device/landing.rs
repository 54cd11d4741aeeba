//! What comes for a batch of a read into device memory: where it lies in slabs of pinned memory, and who decodes it.

use std::sync::{Arc, Mutex, PoisonError};

use cuzarr_device::{Buffer, Device, Slab, SlabPiece};

use super::Target;
use crate::codec::native::Native;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{Batch, Fill, Route};
use crate::run::read::device::slab_plan::{SlabPlan, in_place};
use crate::run::read::in_flight::Landing;
use crate::run::read::route::host::{Stored, check_missing, foreign_memory};
use crate::run::read::route::kernels::{Dense, InSlab};
use crate::run::read::route::resident::ResidentReads;
use crate::run::report::Stage;
use crate::store::Lease;

/// Where the bytes of one batch lie in its slab.
pub(crate) struct Pieces {
    /// One for each read when stored bytes are packed bytes, else one for each unit.
    pieces: Vec<Mutex<Option<SlabPiece>>>,
    /// Where each unit's packed bytes begin.
    pub(crate) unit_offsets: Vec<usize>,
    /// What kernels do behind the bus with what the host decoded, and how many passes that leaves to the host.
    pub(crate) hybrid: Option<(usize, Arc<Native>)>,
    /// Instead of all that, when kernels decode.
    pub(crate) dense: Option<Dense>,
}

/// Pieces of a slab for all reads and units of a batch.
pub(crate) fn carve(
    slab: Option<(Slab, Buffer)>,
    plan: &SlabPlan,
    route: &Route,
) -> Result<(Option<(Slab, Buffer)>, Pieces)> {
    let mut slab = slab;
    let mut pieces = Vec::with_capacity(plan.piece_bytes.len());
    for &size_bytes in &plan.piece_bytes {
        let piece = match &mut slab {
            Some((slab, _)) => slab.carve(size_bytes),
            None => None,
        };
        if piece.is_none() && slab.is_some() {
            let message = format!("a slab has no {size_bytes} bytes left for a piece that was planned");
            return Err(Error::new(ErrorKind::DeviceFailed, message));
        }
        pieces.push(piece);
    }
    let unit_offsets = plan
        .units
        .iter()
        .map(|&(piece, offset)| pieces[piece].as_ref().map_or(0, |piece: &SlabPiece| piece.offset_bytes()) + offset);
    let unit_offsets = unit_offsets.collect();
    let hybrid = match route {
        Route::Hybrid { host_passes, native } => Some((*host_passes, Arc::clone(native))),
        _ => None,
    };
    Ok((slab, Pieces { pieces: pieces.into_iter().map(Mutex::new).collect(), unit_offsets, hybrid, dense: None }))
}

impl Pieces {
    pub(crate) fn dense(dense: Dense) -> Pieces {
        Pieces { pieces: Vec::new(), unit_offsets: Vec::new(), hybrid: None, dense: Some(dense) }
    }

    fn take(&self, piece: usize) -> Result<SlabPiece> {
        let piece = self.pieces.get(piece).and_then(|slot| slot.lock().unwrap_or_else(PoisonError::into_inner).take());
        piece.ok_or_else(|| Error::new(ErrorKind::StoreFailed, "the store asked twice for the memory of one item"))
    }

    pub(crate) fn clear(&self) {
        for slot in &self.pieces {
            slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }
}

/// What is done with what comes for a batch, by whichever thread brings it.
pub(crate) struct DeviceLanding {
    pub(crate) target: Arc<Target>,
    pub(crate) pieces: Arc<Pieces>,
    pub(crate) resident: Arc<ResidentReads>,
    pub(crate) units: Vec<(usize, usize)>,
    pub(crate) stored_is_packed: bool,
}

impl Landing for DeviceLanding {
    fn lease(&self, batch: &Batch, read: usize, size_bytes: usize) -> Result<Box<dyn Lease>> {
        let read = &batch.reads[read];
        if let Some(dense) = &self.pieces.dense
            && let Some(lease) = dense.lease(size_bytes)?
        {
            return Ok(Box::new(lease));
        }
        if self.stored_is_packed && in_place(batch, read).is_some() {
            let (piece, _) = self.units[read.units.start];
            return Ok(Box::new(InSlab::new(0, self.pieces.take(piece)?)));
        }
        let counted = batch.units[read.units.clone()].iter().map(|unit| unit.packed_size_bytes).sum();
        Ok(Stored::take(&self.target.call, size_bytes, counted)?)
    }

    fn arrived(&self, batch: &Batch, read: usize, lease: Box<dyn Lease>) -> Result<Option<Box<Stored>>> {
        let other = match lease.into_any().downcast::<Stored>() {
            Ok(stored) => return Ok(Some(stored)),
            Err(other) => other,
        };
        let lease = other.downcast::<InSlab>().map_err(|_| foreign_memory())?;
        if let Some(dense) = &self.pieces.dense {
            dense.arrived(batch, &batch.reads[read], &lease)?;
        }
        Ok(None)
    }

    fn complete(&self, _batch: &Batch, landed: &[usize]) {
        if let Some(dense) = &self.pieces.dense {
            dense.prepare(landed, &self.target.call);
        }
    }

    fn device(&self) -> Device {
        self.resident.device()
    }

    fn lease_on_device(&self, batch: &Batch, read: usize, size_bytes: usize) -> Result<Buffer> {
        let counted = batch.units[batch.reads[read].units.clone()].iter().map(|unit| unit.packed_size_bytes).sum();
        self.resident.lease(size_bytes, counted)
    }

    fn arrived_on_device(&self, _batch: &Batch, read: usize, bytes: Buffer) -> Result<()> {
        self.resident.arrived(read, bytes)
    }

    fn land(&self, _batch: &Batch, unit: usize, stored: &[u8]) -> Result<()> {
        if let Some(dense) = &self.pieces.dense {
            return dense.land(&self.target.program, &self.target.call, unit, stored);
        }
        let mut packed = self.pieces.take(self.units[unit].0)?;
        if self.stored_is_packed {
            packed.copy_from_slice(stored);
            return Ok(());
        }
        let (program, size_bytes) = (&self.target.program, packed.len() as u64);
        self.target.call.counters.time(Stage::Decode, size_bytes, || match &self.pieces.hybrid {
            Some((host_passes, native)) => {
                let decoded = native.input_bytes().and_then(|size_bytes| packed.get_mut(..size_bytes));
                program.decode_host_passes(*host_passes, stored, decoded.unwrap_or_default())
            }
            None => program.decode(stored, &mut packed),
        })
    }

    fn fill(&self, _number: usize, fill: &Fill) -> Result<()> {
        // The boxes themselves are filled on the device, when the batch is placed.
        check_missing(self.target.read_missing, fill)
    }
}
