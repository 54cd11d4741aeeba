//! One batch of a read into device memory, and how far it is.
//!
//! ```text
//! Fetching ── the thread that ends the last unit ──> Fetched ── the calling thread ──> Taken: it decodes, and is placed
//! ```
//!
//! While a batch is fetched any thread fills any part of its memory. The thread that ends its last unit prepares it, without a word
//! from the calling thread, which takes it from then on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuzarr_device::{Buffer, Device, Slab, SlabPiece, pool};

use super::Target;
use super::slab_plan::{SlabPlan, in_place};
use crate::codec::native::Native;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{self, Fill, Route};
use crate::run::read::in_flight::BatchRoute;
use crate::run::read::route::host::{Stored, check_missing, foreign_memory};
use crate::run::read::route::kernels::{Decoding, InSlab, Place, Ready, StoredUnits, decode};
use crate::run::read::route::resident::ResidentReads;
use crate::run::report::Stage;
use crate::run::schedule::budget::Held;
use crate::store::Lease;

/// What a read into device memory does with one batch.
pub(crate) struct DeviceBatch {
    pub(super) target: Arc<Target>,
    pub(super) way: Way,
    /// Piece of the slab and offset in it, for each unit.
    pub(super) units: Vec<(usize, usize)>,
    pub(super) state: Mutex<State>,
}

/// How bytes that come in host memory get to the device: the route that the batch was launched with.
pub(super) enum Way {
    /// The host decodes into pieces of a slab, all passes, or so many of them, and kernels do the others.
    Slab(Option<(usize, Arc<Native>)>),
    /// They cross the bus as they are stored.
    Kernels(Decoding),
}

/// How far a batch is.
pub(super) enum State {
    /// Threads bring its bytes.
    Fetching(Fetching),
    /// All of it came.
    Fetched(Fetched),
    /// The calling thread has it.
    Taken,
}

/// A batch whose bytes come.
pub(super) struct Fetching {
    /// What was reserved for it.
    pub(super) held: Held,
    pub(super) bytes: FetchingBytes,
    pub(super) resident: ResidentReads,
}

/// Where bytes come to.
pub(super) enum FetchingBytes {
    Slab(Pieces),
    Kernels(StoredUnits),
}

/// A batch of which all came, to be placed.
pub(super) struct Fetched {
    pub(super) held: Held,
    pub(super) bytes: FetchedBytes,
    pub(super) resident: ResidentReads,
}

/// What came.
pub(super) enum FetchedBytes {
    Slab(Pieces),
    Kernels(Result<Box<Ready>>),
}

/// Where the bytes of one batch lie in its slab.
pub(super) struct Pieces {
    /// With the device memory that its bytes go to as they come.
    pub(super) slab: Option<(Slab, Buffer)>,
    /// One for each read when stored bytes are packed bytes, else one for each unit.
    pieces: Vec<Option<SlabPiece>>,
    /// Where each unit's packed bytes begin.
    pub(super) unit_offsets: Vec<usize>,
}

impl Pieces {
    /// Pieces of a slab for all reads and units of a batch.
    pub(super) fn carve(mut slab: Option<(Slab, Buffer)>, plan: &SlabPlan) -> Result<Pieces> {
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
        let begin = |piece: usize| pieces[piece].as_ref().map_or(0, SlabPiece::offset_bytes);
        let unit_offsets = plan.units.iter().map(|&(piece, offset)| begin(piece) + offset).collect();
        Ok(Pieces { slab, pieces, unit_offsets })
    }

    fn take(&mut self, piece: usize) -> Result<SlabPiece> {
        let piece = self.pieces.get_mut(piece).and_then(Option::take);
        piece.ok_or_else(|| Error::new(ErrorKind::StoreFailed, "the store asked twice for the memory of one item"))
    }

    /// Gives up the pieces of what did not come: a slab whose upload ends has no other user. Without anything to upload, nothing
    /// more crosses the bus.
    fn clear(&mut self, is_wanted: bool) {
        if let Some((slab, _)) = self.slab.as_ref().filter(|_| !is_wanted) {
            slab.stop_upload();
        }
        self.pieces.clear();
    }
}

impl DeviceBatch {
    /// What the calling thread has to place; `None` for a batch of a call that failed, whose memory is given back.
    pub(super) fn take(&self) -> Option<Fetched> {
        let state = std::mem::replace(&mut *self.state(), State::Taken);
        let is_wanted = !self.target.call.is_cancelled();
        match state {
            State::Fetched(fetched) if is_wanted => return Some(fetched),
            State::Fetched(Fetched { bytes: FetchedBytes::Slab(mut pieces), .. })
            | State::Fetching(Fetching { bytes: FetchingBytes::Slab(mut pieces), .. }) => pieces.clear(false),
            State::Fetched(_) | State::Fetching(_) | State::Taken => {}
        }
        None
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with a batch that is fetched.
    fn fetching<T>(&self, work: impl FnOnce(&mut Fetching) -> Result<T>) -> Result<T> {
        match &mut *self.state() {
            State::Fetching(fetching) => work(fetching),
            State::Fetched(_) | State::Taken => {
                Err(Error::new(ErrorKind::StoreFailed, "the store spoke of a batch whose reads had all ended"))
            }
        }
    }

    fn piece(&self, piece: usize) -> Result<SlabPiece> {
        self.fetching(|fetching| match &mut fetching.bytes {
            FetchingBytes::Slab(pieces) => pieces.take(piece),
            FetchingBytes::Kernels(_) => Err(foreign_memory()),
        })
    }

    /// Notes where a unit is that kernels are to decode.
    fn put(&self, unit: usize, place: Place) -> Result<()> {
        self.fetching(|fetching| match &mut fetching.bytes {
            FetchingBytes::Kernels(stored) => {
                stored.put(unit, place);
                Ok(())
            }
            FetchingBytes::Slab(_) => Err(foreign_memory()),
        })
    }
}

/// Packed bytes of a read's units.
fn packed_bytes(batch: &plan::Batch, read: usize) -> usize {
    batch.units[batch.reads[read].units.clone()].iter().map(|unit| unit.packed_size_bytes).sum()
}

impl BatchRoute for DeviceBatch {
    fn lease(&self, batch: &plan::Batch, read: usize, size_bytes: usize) -> Result<Box<dyn Lease>> {
        let in_slab = match &self.way {
            Way::Kernels(_) => self.fetching(|fetching| match &mut fetching.bytes {
                FetchingBytes::Kernels(stored) => stored.lease(size_bytes),
                FetchingBytes::Slab(_) => Ok(None),
            })?,
            Way::Slab(_) if self.target.stored_is_packed() && in_place(batch, &batch.reads[read]).is_some() => {
                let (piece, _) = self.units[batch.reads[read].units.start];
                Some(InSlab::new(0, self.piece(piece)?))
            }
            Way::Slab(_) => None,
        };
        match in_slab {
            Some(lease) => Ok(Box::new(lease)),
            None => Ok(Stored::take(&self.target.call, size_bytes, packed_bytes(batch, read))?),
        }
    }

    fn arrived(&self, batch: &plan::Batch, read: usize, lease: Box<dyn Lease>) -> Result<Option<Box<Stored>>> {
        let other = match lease.into_any().downcast::<Stored>() {
            Ok(stored) => return Ok(Some(stored)),
            Err(other) => other,
        };
        let lease = other.downcast::<InSlab>().map_err(|_| foreign_memory())?;
        if let Way::Kernels(decoding) = &self.way {
            decoding.look(batch, &batch.reads[read], &lease, |unit, place| self.put(unit, place))?;
        }
        Ok(None)
    }

    fn complete(&self, _batch: &plan::Batch, landed: &[usize]) {
        // The other units ended, so no other thread fills the batch, or waits for its state.
        let mut state = self.state();
        *state = match std::mem::replace(&mut *state, State::Taken) {
            State::Fetching(Fetching { held, bytes, resident }) => {
                let bytes = match (bytes, &self.way) {
                    (FetchingBytes::Kernels(stored), Way::Kernels(decoding)) => {
                        FetchedBytes::Kernels(decoding.prepare(stored, landed, &self.target.call).map(Box::new))
                    }
                    (FetchingBytes::Slab(mut pieces), _) => {
                        pieces.clear(!landed.is_empty());
                        FetchedBytes::Slab(pieces)
                    }
                    (FetchingBytes::Kernels(_), Way::Slab(_)) => FetchedBytes::Kernels(Err(foreign_memory())),
                };
                State::Fetched(Fetched { held, bytes, resident })
            }
            other => other,
        };
    }

    fn device(&self) -> Device {
        self.target.resident_device()
    }

    fn lease_on_device(&self, batch: &plan::Batch, read: usize, size_bytes: usize) -> Result<Buffer> {
        let (call, counted_bytes) = (&self.target.call, packed_bytes(batch, read));
        self.fetching(|fetching| fetching.resident.reserve_for(call, size_bytes, counted_bytes))?;
        Ok(pool::in_flight(|| Buffer::empty(self.target.device, size_bytes))?)
    }

    fn arrived_on_device(&self, _batch: &plan::Batch, read: usize, bytes: Buffer) -> Result<()> {
        if bytes.device() != self.device() || self.device() == Device::Cpu {
            let message = format!("the store handed over memory of {}, asked for {}", bytes.device(), self.device());
            return Err(Error::new(ErrorKind::StoreFailed, message));
        }
        self.fetching(|fetching| {
            fetching.resident.put(read, bytes);
            Ok(())
        })
    }

    fn land(&self, _batch: &plan::Batch, unit: usize, stored: &[u8]) -> Result<()> {
        let Target { call, program, .. } = &*self.target;
        let hybrid = match &self.way {
            // The slab had no room for it.
            Way::Kernels(_) => return self.put(unit, Place::Packed(decode(program, call, stored)?)),
            Way::Slab(hybrid) => hybrid,
        };
        let mut packed = self.piece(self.units[unit].0)?;
        if self.target.stored_is_packed() {
            packed.copy_from_slice(stored);
            return Ok(());
        }
        call.counters.time(Stage::Decode, packed.len() as u64, || match hybrid {
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

impl Way {
    /// The way of a batch by `route`, where `decoding` says how kernels would decode it.
    pub(super) fn by(route: &Route, decoding: impl FnOnce(Arc<Native>) -> Result<Decoding>) -> Result<Way> {
        Ok(match route {
            Route::Host => Way::Slab(None),
            Route::Hybrid { host_passes, native } => Way::Slab(Some((*host_passes, Arc::clone(native)))),
            Route::Kernels(native) => Way::Kernels(decoding(Arc::clone(native))?),
        })
    }
}
