//! How fast a device copies, scatters and maps elements, sums and checks bytes, every answer checked against the CPU.
//!
//!     cargo run --release --example device_bench -- [--device cuda:0] [--mib 512] [--repeat 5] [--only TEXT] [--json FILE]
//!
//! Prints one line a case: GB/s of array (decoded bytes) and of traffic (bytes read and written), the best of the repeats.

mod filters;

use std::time::Instant;

use cuzarr_device::internal::shuffle;
use cuzarr_device::internal::shuffle::{Shuffle, Span};
use cuzarr_device::internal::{SlabRing, pool, transfer};
use cuzarr_device::{
    Arithmetic, Buffer, DType, Device, ElementStep, Error, NdBuffer, Order, Packing, Result, Stream, Tail, Transfer,
    TransferBox,
};

struct Options {
    device: Device,
    bytes: usize,
    repeat: usize,
    only: String,
    json: Option<String>,
}

struct Record {
    name: String,
    array_bytes: usize,
    traffic_bytes: usize,
    best_ms: f64,
    verified: bool,
}

impl Record {
    fn gigabytes(&self, bytes: usize) -> f64 {
        bytes as f64 / self.best_ms / 1e6
    }

    fn print(&self) {
        let (array, traffic) = (self.gigabytes(self.array_bytes), self.gigabytes(self.traffic_bytes));
        let checked = if self.verified { "" } else { "  WRONG" };
        println!(
            "{:<44} {array:>9.1} GB/s array {traffic:>9.1} GB/s traffic {:>9.3} ms{checked}",
            self.name, self.best_ms
        );
    }

    fn json(&self) -> String {
        format!(
            "{{\"name\": \"{}\", \"array_gb_s\": {:.2}, \"traffic_gb_s\": {:.2}, \"best_ms\": {:.4}, \"verified\": {}}}",
            self.name,
            self.gigabytes(self.array_bytes),
            self.gigabytes(self.traffic_bytes),
            self.best_ms,
            self.verified
        )
    }
}

struct Bench {
    options: Options,
    stream: Stream,
    records: Vec<Record>,
}

impl Bench {
    fn wants(&self, name: &str) -> bool {
        name.contains(&self.options.only)
    }

    /// Best time of one run in milliseconds, after one that warms up.
    fn time(&self, mut run: impl FnMut(&Stream) -> Result<()>) -> Result<f64> {
        run(&self.stream)?;
        self.stream.synchronize()?;
        let mut best = f64::INFINITY;
        for _ in 0..self.options.repeat {
            let (start, began) = (self.stream.record_timed()?, Instant::now());
            run(&self.stream)?;
            let end = self.stream.record_timed()?;
            end.synchronize()?;
            let on_device = f64::from(start.elapsed_ms(&end)?);
            best = best.min(if on_device > 0.0 { on_device } else { began.elapsed().as_secs_f64() * 1e3 });
        }
        Ok(best)
    }

    fn record(&mut self, name: String, array_bytes: usize, traffic_bytes: usize, best_ms: f64, verified: bool) {
        let record = Record { name, array_bytes, traffic_bytes, best_ms, verified };
        record.print();
        self.records.push(record);
    }
}

/// Bytes that do not repeat soon; cheap to make.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_ne_bytes());
    }
    bytes.truncate(count);
    bytes
}

fn bus(bench: &mut Bench) -> Result<()> {
    let device = bench.options.device;
    for slab_bytes in [1 << 20, 4 << 20, 16 << 20] {
        let total = bench.options.bytes.min(256 << 20) / slab_bytes * slab_bytes;
        if total == 0 || !bench.wants("h2d d2h") {
            continue;
        }
        let ring = SlabRing::new(device, slab_bytes, 4 * slab_bytes)?;
        let bytes = noise(slab_bytes);
        let memory = pool::allocate_on(device, total)?;
        // Slabs are filled once: this measures the bus, not the host's memory.
        let mut slabs = (0..4).map(|_| ring.acquire(0)).collect::<Result<Vec<_>>>()?;
        for slab in &mut slabs {
            slab.bytes_mut()?[..slab_bytes].copy_from_slice(&bytes);
        }
        let parts = (0..total / slab_bytes).map(|at| memory.slice(at * slab_bytes..(at + 1) * slab_bytes));
        let parts = parts.collect::<Result<Vec<Buffer>>>()?;
        let up = bench.time(|stream| {
            parts.iter().enumerate().try_for_each(|(at, part)| slabs[at % 4].upload(0..slab_bytes, part, stream))
        })?;
        let verified = parts.iter().try_fold(true, |all, part| Ok::<bool, Error>(all && part.to_vec()? == bytes))?;
        bench.record(format!("h2d pinned, {} MiB slabs", slab_bytes >> 20), total, total, up, verified);
        let down = bench.time(|stream| {
            parts.iter().enumerate().try_for_each(|(at, part)| slabs[at % 4].download(part, 0, stream))
        })?;
        let verified =
            slabs.iter().try_fold(true, |all, slab| Ok::<bool, Error>(all && slab.bytes()?[..slab_bytes] == bytes))?;
        bench.record(format!("d2h pinned, {} MiB slabs", slab_bytes >> 20), total, total, down, verified);
    }
    if bench.wants("d2d") {
        let bytes = noise(bench.options.bytes);
        let source = Buffer::from_bytes(device, &bytes)?;
        let target = pool::allocate_on(device, bytes.len())?;
        let time = bench.time(|stream| stream.d2d(&source, &target))?;
        let verified = target.to_vec()? == bytes;
        bench.record("d2d".to_string(), bytes.len(), 2 * bytes.len(), time, verified);
    }
    between_gpus(bench)
}

/// To the GPU of the next number and back, where there is one.
fn between_gpus(bench: &mut Bench) -> Result<()> {
    let Device::Cuda(number) = bench.options.device else { return Ok(()) };
    let (here, there) = (bench.options.device, Device::Cuda(number + 1));
    if !bench.wants("between GPUs") || there.initialize().is_err() {
        return Ok(());
    }
    let mut size_bytes = 64 << 10;
    while size_bytes <= bench.options.bytes {
        let bytes = noise(size_bytes);
        let source = Buffer::from_bytes(here, &bytes)?;
        let (target, back) = (Buffer::zeroed(there, size_bytes)?, Buffer::zeroed(here, size_bytes)?);
        let to = bench.time(|stream| stream.d2d(&source, &target))?;
        let from = bench.time(|stream| stream.d2d(&target, &back))?;
        let verified = back.to_vec()? == bytes;
        bench.record(format!("between GPUs, {} KiB", size_bytes >> 10), size_bytes, size_bytes, to, verified);
        bench.record(format!("between GPUs, {} KiB, back", size_bytes >> 10), size_bytes, size_bytes, from, verified);
        size_bytes *= 16;
    }
    Ok(())
}

/// An array of about `bytes` bytes cut into chunks, as one transfer.
struct Scene {
    shape: Vec<usize>,
    transfer: Transfer,
    packed_bytes: usize,
}

fn scene(bytes: usize, tail: Tail, chunk: [usize; 3], transposed: bool, ragged: bool) -> Scene {
    let element = tail.packed.size_bytes();
    let chunk_elems: usize = chunk.iter().product();
    let count = (bytes / element / chunk_elems).max(1);
    // A grid of n x 4 x 4 chunks, or a row of them when there are few.
    let grid = if count >= 16 { [count / 16, 4, 4] } else { [count, 1, 1] };
    let cut = usize::from(ragged);
    let shape: Vec<usize> = (0..3).map(|axis| grid[axis] * chunk[axis] - if axis == 0 { 0 } else { cut }).collect();
    let packed_strides = match transposed {
        false => vec![(chunk[1] * chunk[2]) as isize, chunk[2] as isize, 1],
        true => vec![1, chunk[0] as isize, (chunk[0] * chunk[1]) as isize],
    };
    let chunk_bytes = chunk_elems * element;
    let mut boxes = Vec::new();
    for number in 0..grid.iter().product::<usize>() {
        let at = [number / (grid[1] * grid[2]), number / grid[2] % grid[1], number % grid[2]];
        let start: Vec<usize> = (0..3).map(|axis| at[axis] * chunk[axis]).collect();
        let extent = (0..3).map(|axis| chunk[axis].min(shape[axis] - start[axis])).collect();
        boxes.push(TransferBox {
            packed_offset_bytes: number * chunk_bytes,
            packed_size_bytes: chunk_bytes,
            packed_first_elem: 0,
            start,
            extent,
        });
    }
    let packed_bytes = boxes.len() * chunk_bytes;
    Scene { shape, transfer: Transfer { tail, packed_strides, lists: None, boxes }, packed_bytes }
}

fn scatter_and_gather(bench: &mut Bench, name: &str, scene: &Scene) -> Result<()> {
    if !bench.wants(name) {
        return Ok(());
    }
    let device = bench.options.device;
    let dtype = scene.transfer.tail.dtype;
    let bytes = noise(scene.packed_bytes);
    let packed = Buffer::from_bytes(device, &bytes)?;
    let target = NdBuffer::zeroed(device, dtype, &scene.shape, Order::C)?;
    let time = bench.time(|stream| transfer::scatter_on(&packed, &scene.transfer, &target, stream))?;
    let expected = NdBuffer::zeroed(Device::Cpu, dtype, &scene.shape, Order::C)?;
    transfer::scatter_host(&bytes, &scene.transfer, &expected)?;
    let verified = target.to_host_bytes(Order::C)? == expected.buffer().host_bytes()?;
    let size = target.size_bytes();
    bench.record(format!("scatter {name}"), size, size + scene.packed_bytes, time, verified);
    let again = Buffer::zeroed(device, scene.packed_bytes)?;
    let time = bench.time(|stream| transfer::gather_on(&target, &scene.transfer, &again, stream))?;
    let mut expected_packed = vec![0; scene.packed_bytes];
    transfer::gather_host(&expected, &scene.transfer, &mut expected_packed)?;
    let verified = again.to_vec()? == expected_packed;
    bench.record(format!("gather  {name}"), size, size + scene.packed_bytes, time, verified);
    Ok(())
}

fn transfers(bench: &mut Bench) -> Result<()> {
    let bytes = bench.options.bytes;
    for dtype in [DType::UINT8, DType::INT16, DType::FLOAT32, DType::FLOAT64, DType::COMPLEX128] {
        let width = dtype.size_bytes();
        let chunk = [8, 128, 128];
        let plain = Tail::plain(dtype);
        scatter_and_gather(
            bench,
            &format!("plain {dtype} {chunk:?}"),
            &scene(bytes, plain.clone(), chunk, false, false),
        )?;
        scatter_and_gather(
            bench,
            &format!("plain {dtype} {chunk:?} ragged"),
            &scene(bytes, plain.clone(), chunk, false, true),
        )?;
        let transposed = scene(bytes, plain.clone(), [64, 64, 64], true, false);
        scatter_and_gather(bench, &format!("transposed {dtype} [64, 64, 64]"), &transposed)?;
        if width == 1 {
            continue;
        }
        let swap = ElementStep::SwapBytes { unit_bytes: dtype.swap_unit_bytes() };
        let swapped = Tail { steps: vec![swap], ..plain.clone() };
        scatter_and_gather(bench, &format!("swapped {dtype} {chunk:?}"), &scene(bytes, swapped, chunk, false, false))?;
        let shuffled = Tail { packing: Packing::Shuffled { unit_bytes: width }, ..plain.clone() };
        scatter_and_gather(
            bench,
            &format!("shuffled {dtype} {chunk:?}"),
            &scene(bytes, shuffled, chunk, false, false),
        )?;
    }
    for (from, to) in
        [(DType::INT16, DType::FLOAT32), (DType::FLOAT64, DType::FLOAT32), (DType::FLOAT32, DType::FLOAT16)]
    {
        let cast = Tail { steps: vec![ElementStep::Cast { from, to }], dtype: to, ..Tail::plain(from) };
        scatter_and_gather(
            bench,
            &format!("cast {from} to {to}"),
            &scene(bytes / 2, cast, [8, 128, 128], false, false),
        )?;
    }
    // The steps by which numcodecs' `fixedscaleoffset` decodes.
    let operand = |value: f32| std::array::from_fn(|at| if at < 4 { value.to_ne_bytes()[at] } else { 0 });
    let step = |operation, value| ElementStep::Arithmetic { operation, dtype: DType::FLOAT32, operand: operand(value) };
    let cast = ElementStep::Cast { from: DType::INT16, to: DType::FLOAT32 };
    let steps = vec![cast, step(Arithmetic::Divide, 100.0), step(Arithmetic::Add, 273.15)];
    let scaled = Tail { steps, dtype: DType::FLOAT32, ..Tail::plain(DType::INT16) };
    scatter_and_gather(
        bench,
        "cast and scaled int16 to float32",
        &scene(bytes / 2, scaled, [8, 128, 128], false, false),
    )?;
    let small = scene(bytes, Tail::plain(DType::FLOAT32), [1, 32, 32], false, false);
    scatter_and_gather(bench, "plain float32 [1, 32, 32] many", &small)?;
    let bits = Tail { packing: Packing::Bits, ..Tail::plain(DType::BOOL) };
    let mut bits = scene(bytes / 4, bits, [8, 128, 128], false, false);
    // A chunk of bits is an eighth of a chunk of bytes.
    bits.packed_bytes /= 8;
    for item in &mut bits.transfer.boxes {
        item.packed_offset_bytes /= 8;
        item.packed_size_bytes /= 8;
    }
    scatter_and_gather(bench, "bits bool", &bits)
}

fn whole_arrays(bench: &mut Bench) -> Result<()> {
    let device = bench.options.device;
    let bytes = noise(bench.options.bytes);
    for unit in [2, 4, 8] {
        for kind in [Shuffle::Bytes, Shuffle::Bits] {
            let name = format!("unshuffle {kind:?} of {unit}");
            if !bench.wants(&name) {
                continue;
            }
            let source = Buffer::from_bytes(device, &bytes)?;
            let target = pool::allocate_on(device, bytes.len())?;
            let span = |at: usize| Span { src_offset_bytes: at << 20, dst_offset_bytes: at << 20, size_bytes: 1 << 20 };
            let spans: Vec<Span> = (0..bytes.len() >> 20).map(span).collect();
            let time = bench.time(|stream| shuffle::unshuffle(kind, &source, &target, &spans, unit, stream))?;
            let host = Buffer::from_vec(bytes.clone());
            let expected = Buffer::empty(Device::Cpu, bytes.len())?;
            shuffle::unshuffle(kind, &host, &expected, &spans, unit, &Stream::new(Device::Cpu)?)?;
            let verified = target.to_vec()? == expected.host_bytes()?;
            bench.record(name, bytes.len(), 2 * bytes.len(), time, verified);
        }
    }
    let shape = [bytes.len() / 4];
    let array = NdBuffer::from_host(device, DType::UINT32, &shape, Order::C, &bytes[..shape[0] * 4])?;
    if bench.wants("all_equal") {
        let other = array.copy(Order::C)?;
        let mut equal = true;
        let time = bench.time(|_| {
            equal &= array.all_equal(&other, false)?;
            Ok(())
        })?;
        bench.record("all_equal uint32".to_string(), bytes.len(), 2 * bytes.len(), time, equal);
    }
    if bench.wants("fill") {
        let whole = [(vec![0], shape.to_vec())];
        let time = bench.time(|stream| transfer::fill_boxes_on(&array, None, &whole, &[1, 2, 3, 4], stream))?;
        let verified = array.all_equal_element(&[1, 2, 3, 4], false)?;
        bench.record("fill uint32".to_string(), bytes.len(), bytes.len(), time, verified);
    }
    Ok(())
}

fn options() -> std::result::Result<Options, String> {
    let mut options = Options { device: Device::Cuda(0), bytes: 512 << 20, repeat: 5, only: String::new(), json: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || value.parse::<usize>().map_err(|_| format!("{word}: '{value}' is not a number"));
        match word.as_str() {
            "--device" => options.device = value.parse().map_err(|error: Error| error.to_string())?,
            "--mib" => options.bytes = number()?.max(1) << 20,
            "--repeat" => options.repeat = number()?.max(1),
            "--only" => options.only = value,
            "--json" => options.json = Some(value),
            _ => return Err(format!("unknown option {word}")),
        }
    }
    Ok(options)
}

fn run() -> std::result::Result<bool, String> {
    let options = options()?;
    let words = |error: Error| error.to_string();
    let stream = Stream::new(options.device).map_err(words)?;
    let mut bench = Bench { options, stream, records: Vec::new() };
    for scenario in [bus, transfers, whole_arrays, filters::checksums, filters::running_sums] {
        scenario(&mut bench).map_err(words)?;
    }
    let verified = bench.records.iter().all(|record| record.verified);
    if let Some(path) = &bench.options.json {
        let records: Vec<String> = bench.records.iter().map(Record::json).collect();
        let (device, mib) = (bench.options.device, bench.options.bytes >> 20);
        let text = format!(
            "{{\"device\": \"{device}\", \"mib\": {mib}, \"verified\": {verified}, \"cases\": [\n  {}\n]}}\n",
            records.join(",\n  ")
        );
        std::fs::write(path, text).map_err(|error| format!("cannot write {path}: {error}"))?;
    }
    Ok(verified)
}

fn main() -> std::process::ExitCode {
    match run() {
        Ok(true) => std::process::ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("some answers are wrong");
            std::process::ExitCode::FAILURE
        }
        Err(words) => {
            eprintln!("{words}");
            std::process::ExitCode::FAILURE
        }
    }
}
