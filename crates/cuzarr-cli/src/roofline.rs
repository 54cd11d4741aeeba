//! The roofline of an array: how fast storage, bus and decoders each would be alone. The parts are copies from the page
//! cache to pinned memory, the bus, and the decoders. They are measured in the same run as the read that is compared
//! with them.

use std::any::Any;
use std::ops::Range;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use cuzarr::internal::codec::Chain;
use cuzarr::internal::node::chain;
use cuzarr::node::Array;
use cuzarr::run::{Decoder, Frames, Stage, Threads};
use cuzarr::store::{ByteRange, Lease, ReadOutcome, ReadRequest, ReadSink, Store, StoreExt};
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_device::internal::{Slab, SlabPiece, SlabRing, pool};
use cuzarr_device::{Buffer, Device, Layout, NdBuffer, Order, Stream};
use serde_json::json;

use crate::output;

/// Bytes that one round of the storage measurement fetches: a large round, and one that stays in the processor's cache.
/// The small one is for machines that are limited by memory.
const ROUND_BYTES: [u64; 2] = [256 << 20, 64 << 20];
/// Size in bytes of each copy over the bus, the same as in reads.
const COPY_BYTES: usize = 16 << 20;
/// Alignment in bytes of compressed frames in device memory.
const FRAME_ALIGNMENT_BYTES: usize = 256;
/// Largest size in bytes of the decoders' scratch memory, which frames and chunks do not count towards.
const SCRATCH_BYTES: usize = 8 << 30;
/// Number of times that each of storage, bus and decoders is measured, after one time to warm up. The best one counts.
const TURNS: usize = 4;

/// The speed in GB/s of decoded array that each part of the machine allows: storage, bus and decoders.
pub struct Roofline {
    fetch: f64,
    bus: Option<f64>,
    decode: Option<f64>,
}

impl Roofline {
    /// Measures how fast the machine could read the whole `array` at best. On `cpu` there is no bus.
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

    /// Returns for each part of the machine the least seconds that it needs for `array_bytes` of decoded array.
    pub fn seconds(&self, array_bytes: u64) -> Vec<(Stage, f64)> {
        let parts = [(Stage::Fetch, Some(self.fetch)), (Stage::Upload, self.bus), (Stage::Decode, self.decode)];
        let known = parts.into_iter().filter_map(|(stage, rate)| Some((stage, rate?)));
        known.map(|(stage, rate)| (stage, array_bytes as f64 / rate / 1e9)).collect()
    }

    /// Returns the speed of the slowest part of the machine, in GB/s of decoded array.
    pub fn bound(&self) -> f64 {
        [Some(self.fetch), self.bus, self.decode].into_iter().flatten().fold(f64::INFINITY, f64::min)
    }

    pub fn to_json(&self, rate: f64) -> serde_json::Value {
        json!({
            "fetch_gb_s": self.fetch, "bus_gb_s": self.bus, "decode_gb_s": self.decode, "bound_gb_s": self.bound(),
            "achieved": rate / self.bound(),
        })
    }

    /// Returns a line of text for people that compares the speed of a read with what storage, bus and decoders allow.
    /// `rate` is the speed of the read that is compared.
    pub fn line(&self, rate: f64) -> String {
        let part = |name: &str, value: Option<f64>| value.map(|value| format!("{name} {value:.1}"));
        let parts = [part("fetch", Some(self.fetch)), part("bus", self.bus), part("decode", self.decode)];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let share = 100.0 * rate / self.bound();
        format!("at best, GB/s of array: {}; this read reached {share:.0} % of the slowest stage", parts.join(", "))
    }
}

fn best(turns: usize, mut seconds: impl FnMut() -> Result<f64>) -> Result<f64> {
    (0..turns).try_fold(f64::INFINITY, |best, turn| {
        let seconds = seconds()?;
        Ok(if turn == 0 { best } else { f64::min(best, seconds) })
    })
}

/// The receiver of stored values whose fetching is measured: it lends pinned memory for them, and reports the end of
/// each.
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
        // Without a receiver, no thread is waiting any more.
        let _ = self.ended.lock().unwrap_or_else(PoisonError::into_inner).send(outcome.map(drop));
    }
}

/// Measures the speed of storage: GB/s of stored bytes from the store into pinned memory, with as many threads as reads
/// use.
fn fetch(array: &Array, keys: &[String], sizes: &[u64]) -> Result<f64> {
    let rates = ROUND_BYTES.map(|round_bytes| fetch_by(array, keys, sizes, round_bytes));
    rates.into_iter().try_fold(0.0, |best, rate| Ok(f64::max(best, rate?)))
}

fn fetch_by(array: &Array, keys: &[String], sizes: &[u64], round_bytes: u64) -> Result<f64> {
    let most = sizes.iter().copied().max().unwrap_or(0).max(round_bytes) as usize;
    let ring = SlabRing::new(array.device(), most, most)?;
    let threads = Threads::new(array.options().threads);
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

fn fetch_round(store: &Arc<dyn Store>, keys: &[String], pieces: Vec<SlabPiece>, threads: &Threads) -> Result<f64> {
    let batch = keys.iter().map(|key| ReadRequest { key: key.clone(), range: ByteRange::Full }).collect();
    let (sender, ended) = channel();
    let pieces = pieces.into_iter().map(|piece| Mutex::new(Some(piece))).collect();
    let sink = Arc::new(Sink { pieces, ended: Mutex::new(sender) });
    let started = Instant::now();
    store.read(batch, sink, threads);
    ended.into_iter().take(keys.len()).collect::<Result<()>>()?;
    Ok(started.elapsed().as_secs_f64())
}

/// Measures the speed of the bus: GB/s from pinned memory to the device, one copy after the other.
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

/// Measures the speed of the decoders alone, in GB/s of decoded array. The stored bytes already lie in device memory,
/// and are decoded into memory that is already allocated, one chunk after the other. `None` if the device has too
/// little memory, and for elements of variable length.
fn decode(array: &Array, keys: &[String], array_bytes: u64) -> Result<Option<f64>> {
    let (device, chain) = (array.device(), chain(array)?);
    let mut chunk = chain.as_ref();
    while let Some(sharding) = chunk.sharding() {
        chunk = sharding.inner();
    }
    if chunk.is_variable() {
        return Ok(None);
    }
    let (mut slab, mut ranges) = (Vec::new(), Vec::new());
    for key in keys {
        let object = array.store().get(key)?.unwrap_or_default();
        add_frames(chain, &object, slab.len(), &mut ranges)?;
        slab.extend(object);
        slab.resize(slab.len().next_multiple_of(FRAME_ALIGNMENT_BYTES), 0);
    }
    let program = chunk.bind(device)?;
    let dtype = program.tail().dtype;
    let shape: Vec<usize> = chunk.spec().shape.iter().map(|&extent| extent as usize).collect();
    let chunk_bytes = shape.iter().product::<usize>() * dtype.size_bytes();
    let total_bytes = chunk_bytes.saturating_mul(ranges.len());
    let scratch_bytes = if device == Device::Cpu { 0 } else { SCRATCH_BYTES };
    let wanted_bytes = slab.len().saturating_add(total_bytes).saturating_add(scratch_bytes) as u64;
    if ranges.is_empty() || device.memory_info().is_ok_and(|memory| memory.free_bytes < wanted_bytes) {
        return Ok(None);
    }
    let target = Buffer::empty(device, total_bytes)?;
    let layout = Layout::contiguous(&shape, dtype.size_bytes(), Order::C)?;
    let out = |at: usize| NdBuffer::from_parts(target.slice(at..at + chunk_bytes)?, dtype, layout.clone());
    let outs = (0..ranges.len()).map(|number| out(number * chunk_bytes)).collect::<cuzarr_device::Result<Vec<_>>>()?;
    let frames = Frames::Slab { buffer: Buffer::from_bytes(device, &slab)?, ranges };
    let mut batch = Decoder::of_chunks(chunk, device).prepare(frames, outs, Some(scratch_bytes))?;
    let stream = Stream::new(device)?;
    let seconds = best(TURNS, || {
        let started = Instant::now();
        batch.run(&stream)?;
        stream.synchronize()?;
        let seconds = started.elapsed().as_secs_f64();
        batch.check()?.into_iter().collect::<Result<Vec<()>>>()?;
        Ok(seconds)
    })?;
    Ok(Some(output::gigabytes_per_second(array_bytes, seconds)))
}

/// Adds the byte ranges of the compressed frames in a stored object: the whole object, or the inner chunks of a shard.
/// The object begins at byte `at`.
fn add_frames(chain: &Chain, object: &[u8], at: usize, ranges: &mut Vec<Range<usize>>) -> Result<()> {
    let Some(sharding) = chain.sharding() else {
        ranges.push(at..at + object.len());
        return Ok(());
    };
    let size = (sharding.index_size_bytes() as usize).min(object.len());
    let index = match sharding.index_range() {
        ByteRange::Suffix { .. } => &object[object.len() - size..],
        _ => &object[..size],
    };
    let index = sharding.decode_index(index)?;
    index.validate(object.len() as u64)?;
    for (offset, size) in (0..index.len()).filter_map(|linear| index.get(linear)) {
        // The index was validated, so the chunk lies inside the object.
        let (from, to) = (offset as usize, (offset + size) as usize);
        add_frames(sharding.inner(), &object[from..to], at + from, ranges)?;
    }
    Ok(())
}
