//! Decoding by kernels: encoded chunks lie one behind the other in a slab, as they come, and cross the bus so; a batch
//! decodes them beside each other. Several batches decode at once, on streams of their own: a warp that decodes a stream in
//! order takes milliseconds, however few there are.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cuzarr_device::{Buffer, Device, Slab, SlabPiece, Stream, TransferBox, pool};

use super::call::Call;
use super::report::Stage;
use crate::codec::Program;
use crate::codec::batch::{self, Format};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Batch;

/// Decoded chunks begin at multiples of this.
const ALIGNMENT_BYTES: usize = 256;
/// Batches that decode at once.
const STREAMS: usize = 16;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the bytes of one unit lie in the slab.
#[derive(Clone, Copy)]
pub(super) struct Place {
    offset_bytes: usize,
    size_bytes: usize,
    /// Whether kernels have to decode them; else they are packed.
    encoded: bool,
}

/// The slab of one batch, filled in any order by any thread.
pub(super) struct Dense {
    slab: Mutex<Option<Slab>>,
    places: Mutex<Vec<Option<Place>>>,
}

impl Dense {
    pub(super) fn new(slab: Option<Slab>, units: usize) -> Dense {
        Dense { slab: Mutex::new(slab), places: Mutex::new(vec![None; units]) }
    }

    /// Room for the bytes of a unit.
    fn carve(&self, unit: usize, size_bytes: usize, encoded: bool) -> Result<SlabPiece> {
        let piece = lock(&self.slab).as_mut().and_then(|slab| slab.carve(size_bytes));
        let piece = piece.ok_or_else(|| {
            Error::new(ErrorKind::DeviceFailed, format!("a slab has no {size_bytes} bytes left for a planned chunk"))
        })?;
        lock(&self.places)[unit] = Some(Place { offset_bytes: piece.offset_bytes(), size_bytes, encoded });
        Ok(piece)
    }

    /// Takes in what is stored for a unit: as it is when kernels decode it, else decoded.
    pub(super) fn land(
        &self,
        format: Format,
        program: &Program,
        call: &Call,
        unit: usize,
        stored: &[u8],
    ) -> Result<()> {
        let packed_bytes = program.packed_size_bytes();
        // A frame that is larger than its chunk has no room planned, and nothing to gain.
        let encoded = stored.len() <= packed_bytes && format.knows(stored, packed_bytes);
        if encoded {
            self.carve(unit, stored.len(), true)?.copy_from_slice(stored);
            return Ok(());
        }
        let mut packed = self.carve(unit, packed_bytes, false)?;
        call.counters.time(Stage::Decode, packed_bytes as u64, || program.decode(stored, &mut packed))
    }

    /// The slab, when nobody fills it any more.
    pub(super) fn take(&self) -> Option<Slab> {
        lock(&self.slab).take()
    }
}

/// A batch that was put on a stream, to be checked when it is done.
pub(super) struct Pending {
    batch: batch::Batch,
    names: Vec<String>,
    codec: String,
}

impl Pending {
    /// Hands what is damaged to the call. Waits for the batch.
    pub(super) fn check(mut self, call: &Call) {
        match self.batch.check() {
            Ok(results) => {
                let failed =
                    results.into_iter().zip(self.names).filter_map(|(result, name)| Some((result.err()?, name)));
                failed.for_each(|(error, name)| call.fail(error.at(format!("codec '{}'", self.codec)).at(name)));
            }
            Err(error) => call.fail(error),
        }
    }
}

/// Packed bytes on the device, and the boxes that lie in them.
pub(super) type Packed = (Buffer, Vec<TransferBox>);

/// The streams that batches decode on, in turn.
pub(super) struct Decoders {
    device: Device,
    streams: Vec<Stream>,
    next: usize,
}

impl Decoders {
    pub(super) fn new(device: Device) -> Decoders {
        Decoders { device, streams: Vec::new(), next: 0 }
    }

    /// Waits for all of them.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.streams.iter().try_for_each(|stream| Ok(stream.synchronize()?))
    }

    /// The next stream in turn.
    pub(super) fn stream(&mut self) -> Result<Stream> {
        self.next = (self.next + 1) % STREAMS;
        while self.streams.len() <= self.next {
            self.streams.push(Stream::new(self.device)?);
        }
        Ok(self.streams[self.next].clone())
    }

    /// Uploads a slab on `copies` and decodes what `landed` there; `scatters` then waits for both. Returns the packed bytes,
    /// and the batch to be checked.
    pub(super) fn run(
        &mut self,
        dense: &Dense,
        (plan, landed): (&Batch, &[usize]),
        (program, format): (&Program, Format),
        (copies, scatters): (&Stream, &Stream),
        call: &Call,
    ) -> Result<(Vec<Packed>, Option<Pending>)> {
        let Some(mut slab) = dense.take() else { return Ok((Vec::new(), None)) };
        let places = lock(&dense.places).clone();
        let placed = landed.iter().filter_map(|&unit| Some((&plan.units[unit], places[unit]?)));
        let (encoded, packed): (Vec<_>, Vec<_>) = placed.partition(|(_, place)| place.encoded);
        let size_bytes = slab.carved_bytes();
        if encoded.is_empty() && packed.is_empty() {
            return Ok((Vec::new(), None));
        }
        let arena = pool::allocate(size_bytes, copies)?;
        let boxes = packed.iter().map(|(unit, place)| unit.transfer_box(place.offset_bytes)).collect();
        let mut results: Vec<Packed> = vec![(arena.clone(), boxes)];
        let mut pending = None;
        if encoded.is_empty() {
            call.counters.time(Stage::Upload, size_bytes as u64, || slab.upload(0..size_bytes, &arena, copies))?;
        } else {
            let chunk_bytes = program.packed_size_bytes();
            let stride = chunk_bytes.next_multiple_of(ALIGNMENT_BYTES);
            let stream = self.stream()?;
            let decoded = pool::allocate(stride * encoded.len(), &stream)?;
            let units: Vec<batch::Unit> = encoded
                .iter()
                .enumerate()
                .map(|(index, (_, place))| batch::Unit {
                    src: place.offset_bytes..place.offset_bytes + place.size_bytes,
                    dst: index * stride..index * stride + chunk_bytes,
                })
                .collect();
            let host = slab.bytes()?.get(..size_bytes);
            let mut batch = batch::Batch::prepare(format, &arena, &decoded, &units, host)?;
            call.counters.time(Stage::Upload, size_bytes as u64, || slab.upload(0..size_bytes, &arena, copies))?;
            stream.wait(&copies.record()?)?;
            let decoded_bytes = (chunk_bytes * encoded.len()) as u64;
            call.counters.time(Stage::Decode, decoded_bytes, || batch.run(&stream))?;
            scatters.wait(&stream.record()?)?;
            let boxes = encoded.iter().enumerate().map(|(index, (unit, _))| unit.transfer_box(index * stride));
            results.push((decoded, boxes.collect()));
            let names = encoded.iter().map(|(unit, _)| unit.name.to_string()).collect();
            pending = Some(Pending { batch, names, codec: program.device_codec().to_string() });
        }
        scatters.wait(&copies.record()?)?;
        results.retain(|(_, boxes)| !boxes.is_empty());
        Ok((results, pending))
    }
}
