//! What the machine could do at best for an array: the page cache into pinned memory, the bus, the decoders, each alone and
//! in the same run as the reads that are measured against them.

use std::any::Any;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use cuzarr::node::Array;
use cuzarr::plan::Selection;
use cuzarr::run::{Pool, Stage};
use cuzarr::store::{ByteRange, GpuMemoryStore, Lease, ReadOutcome, ReadRequest, ReadSink, Store, StoreExt};
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_device::{Device, Slab, SlabPiece, SlabRing, Stream, pool};
use serde_json::json;

use crate::output;

/// Stored bytes that are fetched at a time, and copied: pinning more takes longer than reading it.
const ROUND_BYTES: u64 = 256 << 20;
/// Bytes of one copy, as reads make them.
const COPY_BYTES: usize = 16 << 20;
/// How often each part is measured; the best counts, after one that does not.
const TURNS: usize = 4;

/// GB/s of array that each part of the machine allows.
pub struct Roofline {
    fetch: f64,
    bus: Option<f64>,
    decode: Option<f64>,
}

impl Roofline {
    /// Measures what reads of all of `array` are bound by. On `cpu` there is no bus.
    pub fn measure(array: &Array, array_bytes: u64) -> Result<Roofline> {
        let keys = array.stored_chunks()?;
        let mut sizes = Vec::with_capacity(keys.len());
        for key in &keys {
            sizes.push(array.store().size_bytes(key)?.unwrap_or(0));
        }
        let stored_bytes: u64 = sizes.iter().sum();
        if stored_bytes == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, "nothing is stored, so there is nothing to measure"));
        }
        let ratio = array_bytes as f64 / stored_bytes as f64;
        let device = array.device();
        let fetch = fetch(array, &keys, &sizes)? * ratio;
        let bus = if device == Device::Cpu { None } else { Some(bus(device)? * ratio) };
        Ok(Roofline { fetch, bus, decode: decode(array, &keys, array_bytes)? })
    }

    /// The seconds that each part takes at best for so many bytes of array.
    pub fn seconds(&self, array_bytes: u64) -> Vec<(Stage, f64)> {
        let parts = [(Stage::Fetch, Some(self.fetch)), (Stage::Upload, self.bus), (Stage::Decode, self.decode)];
        let known = parts.into_iter().filter_map(|(stage, rate)| Some((stage, rate?)));
        known.map(|(stage, rate)| (stage, array_bytes as f64 / rate / 1e9)).collect()
    }

    /// What the slowest part allows.
    pub fn bound(&self) -> f64 {
        [Some(self.fetch), self.bus, self.decode].into_iter().flatten().fold(f64::INFINITY, f64::min)
    }

    pub fn to_json(&self, rate: f64) -> serde_json::Value {
        json!({
            "fetch_gb_s": self.fetch, "bus_gb_s": self.bus, "decode_gb_s": self.decode, "bound_gb_s": self.bound(),
            "achieved": rate / self.bound(),
        })
    }

    /// One line for people.
    pub fn line(&self, rate: f64) -> String {
        let part = |name: &str, value: Option<f64>| value.map(|value| format!("{name} {value:.1}"));
        let parts = [part("fetch", Some(self.fetch)), part("bus", self.bus), part("decode", self.decode)];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let share = 100.0 * rate / self.bound();
        format!("at best, GB/s of array: {}; this read reached {share:.0} % of the slowest", parts.join(", "))
    }
}

fn best(turns: usize, mut seconds: impl FnMut() -> Result<f64>) -> Result<f64> {
    (0..turns).try_fold(f64::INFINITY, |best, turn| {
        let seconds = seconds()?;
        Ok(if turn == 0 { best } else { f64::min(best, seconds) })
    })
}

/// Lends slabs, and tells of items that ended.
struct Sink {
    pieces: Vec<Mutex<Option<SlabPiece>>>,
    ended: Mutex<Sender<Result<()>>>,
}

struct InSlab(SlabPiece);

impl Lease for InSlab {
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn split_off(&mut self, at: usize) -> Option<Box<dyn Lease>> {
        Some(Box::new(InSlab(self.0.split_off(at))))
    }
}

impl ReadSink for Sink {
    fn reserve(&self, index: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
        let piece = self.pieces[index].lock().unwrap_or_else(PoisonError::into_inner).take();
        match piece.filter(|piece| piece.len() as u64 == size_bytes) {
            Some(piece) => Ok(Box::new(InSlab(piece))),
            None => Err(Error::new(ErrorKind::StoreFailed, "a value changed while it was measured")),
        }
    }

    fn done(&self, _index: usize, outcome: Result<ReadOutcome>) {
        // Without a receiver nobody waits any more.
        let _ = self.ended.lock().unwrap_or_else(PoisonError::into_inner).send(outcome.map(drop));
    }
}

/// GB/s of stored bytes from the store into pinned memory, by as many threads as reads have.
fn fetch(array: &Array, keys: &[String], sizes: &[u64]) -> Result<f64> {
    let most = sizes.iter().copied().max().unwrap_or(0).max(ROUND_BYTES) as usize;
    let ring = SlabRing::new(array.device(), most, most)?;
    let threads = Pool::new(array.options().threads);
    let seconds = best(TURNS, || {
        let (mut seconds, mut from) = (0.0, 0);
        while from < keys.len() {
            let mut slab = ring.acquire(0)?;
            let fits = |slab: &mut Slab, at: usize| slab.carve(sizes[at] as usize);
            let pieces: Vec<SlabPiece> = (from..keys.len()).map_while(|at| fits(&mut slab, at)).collect();
            let to = from + pieces.len();
            seconds += fetch_round(array.store(), &keys[from..to], pieces, &threads)?;
            from = to;
        }
        Ok(seconds)
    })?;
    Ok(output::gigabytes_per_second(sizes.iter().sum(), seconds))
}

fn fetch_round(store: &Arc<dyn Store>, keys: &[String], pieces: Vec<SlabPiece>, threads: &Pool) -> Result<f64> {
    let batch = keys.iter().map(|key| ReadRequest { key: key.clone(), range: ByteRange::Full }).collect();
    let (sender, ended) = channel();
    let pieces = pieces.into_iter().map(|piece| Mutex::new(Some(piece))).collect();
    let sink = Arc::new(Sink { pieces, ended: Mutex::new(sender) });
    let started = Instant::now();
    store.read(batch, sink, threads);
    ended.into_iter().take(keys.len()).collect::<Result<()>>()?;
    Ok(started.elapsed().as_secs_f64())
}

/// GB/s from pinned memory to the device, one copy behind the other.
fn bus(device: Device) -> Result<f64> {
    const COPIES: usize = 16;
    let ring = SlabRing::new(device, COPY_BYTES, COPY_BYTES)?;
    let (stream, mut slab) = (Stream::new(device)?, ring.acquire(0)?);
    let target = pool::allocate(COPY_BYTES, &stream)?;
    slab.bytes_mut()?.fill(1);
    let seconds = best(TURNS, || {
        let started = Instant::now();
        for _ in 0..COPIES {
            slab.upload(0..COPY_BYTES, &target, &stream)?;
        }
        stream.synchronize()?;
        Ok(started.elapsed().as_secs_f64())
    })?;
    Ok(output::gigabytes_per_second((COPIES * COPY_BYTES) as u64, seconds))
}

/// GB/s of array where what is stored lies in the device's memory already; `None` when it has no room for that.
fn decode(array: &Array, keys: &[String], array_bytes: u64) -> Result<Option<f64>> {
    let device = array.device();
    if device.memory_info().is_ok_and(|memory| memory.free_bytes < 3 * array_bytes) {
        return Ok(None);
    }
    let store = GpuMemoryStore::new(device);
    for key in keys {
        store.write(key, &array.store().get(key)?.unwrap_or_default())?;
    }
    let resident = array.with_store(Arc::new(store));
    let everything = Selection::all(array.shape());
    let seconds = best(TURNS, || {
        let started = Instant::now();
        resident.read(&everything)?;
        Ok(started.elapsed().as_secs_f64())
    })?;
    Ok(Some(output::gigabytes_per_second(array_bytes, seconds)))
}
