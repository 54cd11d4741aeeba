//! The memory limit holds: what a read or write takes on a device beside its result, and in pinned memory, as our pool and
//! the driver see it. In a program of its own, because it watches numbers of the process.

mod model;

use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuzarr::ErrorKind;
use cuzarr::compute::{Changes, ComputeOptions, Copy, Existing, Expr, Op, ReduceOp, Reduction};
use cuzarr::meta::ArrayMetadata;
use cuzarr::node::{Array, ArrayOptions};
use cuzarr::plan::Selection;
use cuzarr::run::Options;
use cuzarr::store::{GpuMemoryStore, MemoryStore};
use cuzarr_device::{Buffer, DType, Device, NdBuffer, Order, Stream, pool};
use model::{Dice, Story, bytes_codec, devices, kernel_devices, metadata, say_skipped, sharding, zstd_codec};
use serde_json::{Value, json};

const SIDE: u64 = 512;
const CHUNK: u64 = 64;
const CHUNK_BYTES: u64 = CHUNK * CHUNK * 4;
/// Tables of kernels, statuses: what is not counted because it is small beside everything else.
const TABLES_BYTES: u64 = 64 << 10;
/// Small limits are rounded up to whole ones.
const UNIT_BYTES: u64 = 2 << 20;
/// The ring that carries tables of kernels.
const TABLES_IN_PINNED_BYTES: u64 = 64 << 20;

/// Numbers of the process mean something while one test at a time uses devices.
fn alone() -> MutexGuard<'static, ()> {
    static DEVICES: Mutex<()> = Mutex::new(());
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn blosc() -> Value {
    json!({"name": "blosc", "configuration":
        {"cname": "lz4", "clevel": 5, "shuffle": "noshuffle", "typesize": 4, "blocksize": 4096}})
}

fn chains() -> Vec<Value> {
    let with = |codec: Value| json!([bytes_codec("little"), codec]);
    vec![
        json!([bytes_codec("little")]),
        with(zstd_codec()),
        with(blosc()),
        sharding(&[CHUNK / 2, CHUNK / 2], with(blosc()), "end"),
    ]
}

/// The most that our pool gave on `device` while `work` ran, beyond what was in use before.
fn peak(device: Device, work: impl FnOnce()) -> u64 {
    pool::trim(device).unwrap();
    pool::reset_peak(device);
    let before = pool::stats(device).used_bytes;
    work();
    pool::stats(device).peak_bytes - before
}

/// The same for work within a small limit, of which is also seen that it took no more of the driver.
fn peak_within(limit: u64, device: Device, work: impl FnOnce()) -> u64 {
    pool::trim(device).unwrap();
    let before = pool::stats(device);
    let peak = peak(device, work);
    let now = pool::stats(device);
    let kept = now.held_bytes - before.held_bytes;
    println!("within {limit}: {peak} counted, {kept} kept, {} refusals", now.refusals - before.refusals);
    assert!(kept > 0 && kept <= limit.next_multiple_of(UNIT_BYTES), "{device} gave {kept} bytes, allowed {limit}");
    peak
}

#[test]
fn device_memory_beside_the_result_stays_below_the_limit() {
    let _alone = alone();
    let all = Selection::all(&[SIDE, SIDE]);
    // Long rows of one number: kernels for the CPU decode those in little time.
    let value: Vec<u8> = (0..SIDE * SIDE).flat_map(|at| ((at / 100) as u32).to_le_bytes()).collect();
    for codecs in chains() {
        let metadata = metadata(&[SIDE, SIDE], &[CHUNK, CHUNK], "uint32", json!(0), codecs.clone());
        let mut story = Story::new(metadata, Arc::new(MemoryStore::new()));
        for device in kernel_devices() {
            for limit in [5 * CHUNK_BYTES, 16 * CHUNK_BYTES, 64 * CHUNK_BYTES] {
                (story.options.memory_limit_bytes, story.options.strict) = (limit, true);
                let source = NdBuffer::from_host(device, DType::UINT32, &[SIDE as usize; 2], Order::C, &value).unwrap();
                let (access, written) = (story.access(Device::Cpu), story.engine.memory(device));
                let wrote = peak_within(limit, device, || {
                    story.engine.write(&access, &story.store, &all, &source, &story.options).unwrap();
                });
                assert!(wrote <= limit + TABLES_BYTES, "{codecs}: writing took {wrote}, allowed {limit}");
                story.elements.clone_from(&value);
                let out = NdBuffer::empty(device, DType::UINT32, &[SIDE as usize; 2], Order::C).unwrap();
                let access = story.access(device);
                let read = peak_within(limit, device, || {
                    story.engine.read(&access, &story.store, &all, &out, &story.options).unwrap();
                });
                assert!(read <= limit + TABLES_BYTES, "{codecs}: reading took {read}, allowed {limit}");
                assert!(read > 0, "something is watched");
                assert_eq!(out.to_host_bytes(Order::C).unwrap(), value);
                assert_eq!(written.used_bytes(), 0);
            }
        }
    }
}

/// As many large frames as a slab has room for would take more scratch memory than the limit allows.
#[test]
fn large_frames_are_decoded_as_few_at_a_time_as_the_limit_allows() {
    let _alone = alone();
    let (rows, chunk_rows) = (1800, 600);
    let value: Vec<u8> = (0..rows * SIDE).flat_map(|at| ((at / 1000) as u32).to_le_bytes()).collect();
    let codecs = json!([bytes_codec("little"), zstd_codec()]);
    let metadata = metadata(&[rows, SIDE], &[chunk_rows, SIDE], "uint32", json!(0), codecs);
    let (mut story, all) = (Story::new(metadata, Arc::new(MemoryStore::new())), Selection::all(&[rows, SIDE]));
    story.write(Device::Cpu, &all, &value);
    for device in kernel_devices() {
        for chunks in [12, 16, 24] {
            let limit = chunks * chunk_rows * SIDE * 4;
            (story.options.memory_limit_bytes, story.options.strict) = (limit, true);
            let out = NdBuffer::empty(device, DType::UINT32, &[rows as usize, SIDE as usize], Order::C).unwrap();
            let access = story.access(device);
            let read = peak_within(limit, device, || {
                story.engine.read(&access, &story.store, &all, &out, &story.options).unwrap();
            });
            assert!(read <= limit + TABLES_BYTES, "reading took {read}, allowed {limit}");
            assert_eq!(out.to_host_bytes(Order::C).unwrap(), value);
        }
    }
}

/// Frames that lie in the device's memory: decoders' scratch memory counts, and where a limit leaves no room for it the host
/// decodes.
#[test]
fn reads_from_device_memory_stay_below_the_limit() {
    let _alone = alone();
    // Short copies and some bytes between them, of which decoders' tables are large.
    let mut dice = Dice(5);
    let value: Vec<u8> = (0..600 * SIDE).flat_map(|_| (dice.below(40) as u32).to_le_bytes()).collect();
    let lz4 = json!({"name": "numcodecs.lz4", "configuration": {"acceleration": 1}});
    // The second kind of chunks is large for a decoder, and there is one of them.
    for (codec, rows, chunk, limits) in [
        (zstd_codec(), CHUNK, [CHUNK, CHUNK], [3, 8, 40]),
        (lz4.clone(), CHUNK, [CHUNK, CHUNK], [3, 8, 40]),
        (lz4, 600, [600, SIDE], [3, 5, 13]),
    ] {
        let value = &value[..(rows * SIDE * 4) as usize];
        let codecs = json!([bytes_codec("little"), codec]);
        let chunk_bytes = chunk[0] * chunk[1] * 4;
        for device in kernel_devices() {
            let metadata = metadata(&[rows, SIDE], &chunk, "uint32", json!(0), codecs.clone());
            let mut story = Story::new(metadata, Arc::new(GpuMemoryStore::new(device)));
            let all = Selection::all(&[rows, SIDE]);
            story.write(Device::Cpu, &all, value);
            for limit in limits.map(|chunks| chunks * chunk_bytes) {
                story.options.memory_limit_bytes = limit;
                let out = NdBuffer::empty(device, DType::UINT32, &[rows as usize, SIDE as usize], Order::C).unwrap();
                let access = story.access(device);
                let read = peak(device, || {
                    story.engine.read(&access, &story.store, &all, &out, &story.options).unwrap();
                });
                assert!(read <= limit + TABLES_BYTES, "{codecs}: reading took {read}, allowed {limit}");
                assert_eq!(out.to_host_bytes(Order::C).unwrap(), value);
                assert_eq!(story.engine.memory(device).used_bytes(), 0);
            }
        }
    }
}

/// Where no piece of the limit's memory is large enough for decoders, because others' blocks lie in between, reads and writes are
/// right all the same, and take no more of the device.
#[test]
fn reads_and_writes_are_right_where_memory_is_in_pieces() {
    let _alone = alone();
    let all = Selection::all(&[SIDE / 4, SIDE]);
    let value: Vec<u8> = (0..SIDE * SIDE / 4).flat_map(|at| ((at / 100) as u32).to_le_bytes()).collect();
    let shape = [SIDE as usize / 4, SIDE as usize];
    for codecs in chains() {
        let metadata = metadata(&[SIDE / 4, SIDE], &[CHUNK, CHUNK], "uint32", json!(0), codecs.clone());
        let mut story = Story::new(metadata, Arc::new(MemoryStore::new()));
        for device in kernel_devices() {
            let limit = 2 * UNIT_BYTES;
            (story.options.memory_limit_bytes, story.options.strict) = (limit, true);
            let out = NdBuffer::empty(device, DType::UINT32, &shape, Order::C).unwrap();
            let source = NdBuffer::from_host(device, DType::UINT32, &shape, Order::C, &value).unwrap();
            pool::trim(device).unwrap();
            let stream = Stream::new(device).unwrap();
            let _within = pool::within(device, limit);
            let before = pool::stats(device);
            // Small blocks with holes of less than a chunk between them.
            let of = |size_bytes| pool::allocate(size_bytes, &stream).unwrap();
            let hole_bytes = CHUNK_BYTES / 2;
            let parts: Vec<_> = (0..limit / (hole_bytes + 256)).map(|_| (of(256), of(hole_bytes as usize))).collect();
            let small: Vec<Buffer> = parts.into_iter().map(|(small, _)| small).collect();
            story.engine.write(&story.access(device), &story.store, &all, &source, &story.options).unwrap();
            story.engine.read(&story.access(device), &story.store, &all, &out, &story.options).unwrap();
            let now = pool::stats(device);
            assert!(now.refusals > before.refusals, "{codecs}: something is tested");
            let kept = now.held_bytes - before.held_bytes;
            assert!(kept <= limit, "{codecs}: {device} gave {kept} bytes, allowed {limit}");
            assert_eq!(out.to_host_bytes(Order::C).unwrap(), value, "{codecs}");
            drop(small);
            story.elements.clone_from(&value);
            story.check(Device::Cpu, &all, "what was written");
        }
    }
}

/// What one call keeps to spare for decoding must not be what another waits for.
#[test]
fn calls_side_by_side_share_a_limit_that_is_enough_for_one() {
    let _alone = alone();
    let side = 2 * CHUNK;
    let all = Selection::all(&[side, side]);
    let value: Vec<u8> = (0..side * side).flat_map(|at| ((at / 100) as u32).to_le_bytes()).collect();
    let metadata = metadata(&[side; 2], &[CHUNK; 2], "uint32", json!(0), json!([bytes_codec("little"), blosc()]));
    let mut story = Story::new(metadata, Arc::new(MemoryStore::new()));
    story.write(Device::Cpu, &all, &value);
    for device in kernel_devices() {
        // A call takes 4 chunks at first, 2 of them to spare, and 2 for each further batch.
        for limit in [7 * CHUNK_BYTES, 9 * CHUNK_BYTES] {
            (story.options.memory_limit_bytes, story.options.strict) = (limit, true);
            let out = || NdBuffer::empty(device, DType::UINT32, &[side as usize; 2], Order::C).unwrap();
            let (access, outs) = (story.access(device), [out(), out(), out()]);
            let read = peak(device, || {
                std::thread::scope(|scope| {
                    for out in &outs {
                        scope.spawn(|| story.engine.read(&access, &story.store, &all, out, &story.options).unwrap());
                    }
                });
            });
            assert!(read <= limit + 3 * TABLES_BYTES, "reading took {read}, allowed {limit}");
            assert!(outs.iter().all(|out| out.to_host_bytes(Order::C).unwrap() == value));
            assert_eq!(story.engine.memory(device).used_bytes(), 0);
        }
    }
}

#[test]
fn a_limit_that_is_too_small_is_named_and_leaves_the_device_usable() {
    let _alone = alone();
    let metadata = metadata(&[SIDE, SIDE], &[SIDE, SIDE], "uint32", json!(0), json!([bytes_codec("little"), blosc()]));
    let mut story = Story::new(metadata, Arc::new(MemoryStore::new()));
    let value = vec![7; (SIDE * SIDE * 4) as usize];
    story.write(Device::Cpu, &Selection::all(&[SIDE, SIDE]), &value);
    for device in kernel_devices() {
        story.options.memory_limit_bytes = SIDE * SIDE;
        let error = story.try_read(device, &Selection::all(&[SIDE, SIDE])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
        assert!(error.to_string().contains(&format!("the memory limit is {}", SIDE * SIDE)), "{error}");
        let all = Selection::all(&[SIDE, SIDE]);
        let error = story.try_write(device, &all, &value).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BudgetExceeded, "{error}");
        story.options.memory_limit_bytes = 1 << 30;
        story.check(device, &Selection::all(&[SIDE, SIDE]), "after the refusal");
    }
}

/// Memory of the device until it gives no more: of pools, and of what small limits take.
fn fill_up(device: Device) -> Vec<Buffer> {
    let mut held = fill_once(device);
    let _within = pool::within(device, 1);
    held.extend(fill_once(device));
    held
}

fn fill_once(device: Device) -> Vec<Buffer> {
    let (mut held, mut size_bytes) = (Vec::new(), 1usize << 40);
    while size_bytes >= 256 {
        match pool::allocate_on(device, size_bytes) {
            Ok(block) => held.push(block),
            Err(error) => {
                assert_eq!(error.kind(), cuzarr_device::ErrorKind::OutOfMemory, "{error}");
                size_bytes /= 2;
            }
        }
    }
    held
}

#[test]
fn a_full_device_is_an_error_that_leaves_it_usable() {
    let _alone = alone();
    let all = Selection::all(&[SIDE / 2, SIDE]);
    let value: Vec<u8> = (0..SIDE * SIDE / 2).flat_map(|at| ((at / 100) as u32).to_le_bytes()).collect();
    let stories = chains().into_iter().map(|codecs| {
        let metadata = metadata(&[SIDE / 2, SIDE], &[CHUNK, CHUNK], "uint32", json!(0), codecs);
        let mut story = Story::new(metadata, Arc::new(MemoryStore::new()));
        story.write(Device::Cpu, &all, &value);
        story.options.strict = true;
        story
    });
    let stories: Vec<Story> = stories.collect();
    for device in kernel_devices() {
        let shape = [SIDE as usize / 2, SIDE as usize];
        let source = NdBuffer::from_host(device, DType::UINT32, &shape, Order::C, &value).unwrap();
        let out = NdBuffer::empty(device, DType::UINT32, &shape, Order::C).unwrap();
        let read = |story: &Story| {
            story.engine.read(&story.access(device), &story.store, &all, &out, &story.options).map(|_| ())
        };
        let write = |story: &Story| {
            story.engine.write(&story.access(device), &story.store, &all, &source, &story.options).map(|_| ())
        };
        for room_bytes in [0, 4 * CHUNK_BYTES] {
            // What it holds is there when everything else is taken.
            let room = pool::allocate_on(device, room_bytes as usize).unwrap();
            let full = fill_up(device);
            drop(room);
            for story in &stories {
                for error in [read(story).unwrap_err(), write(story).unwrap_err()] {
                    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
                    assert!(error.hint().is_some_and(|hint| hint.contains("memory_limit")), "{error:?}");
                    assert_eq!(story.engine.memory(device).used_bytes(), 0);
                }
            }
            drop(full);
            for story in &stories {
                read(story).unwrap();
                assert_eq!(out.to_host_bytes(Order::C).unwrap(), value, "after the refusals");
                write(story).unwrap();
                story.check(Device::Cpu, &all, "what was written after the refusals");
            }
        }
    }
}

type Run<'a> = dyn Fn() -> cuzarr::Result<()> + Sync + 'a;

/// Work on an array within a limit, region by region.
struct Work {
    source: Array,
    target: Array,
    device: Device,
    limit: u64,
}

impl Work {
    fn new(device: Device, limit: u64, metadata: &ArrayMetadata, value: &NdBuffer) -> Work {
        let options = ArrayOptions { device, memory_limit_bytes: limit, threads: 2, ..ArrayOptions::default() };
        let create =
            |path| Array::create(Arc::new(MemoryStore::new()), path, metadata.clone(), false, options.clone()).unwrap();
        let (source, target) = (create("source"), create("target"));
        let host = ArrayOptions { device: Device::Cpu, memory_limit_bytes: 1 << 30, ..options.clone() };
        source.with_options(host).write(&Selection::all(source.shape()), value).unwrap();
        Work { source, target, device, limit }
    }

    fn options(&self) -> ComputeOptions<'_> {
        ComputeOptions { device: self.device, memory_limit_bytes: self.limit, threads: 2, ..Default::default() }
    }

    fn mean(&self, axes: Option<Vec<usize>>) -> cuzarr::Result<()> {
        let of = Expr::array(self.source.clone())?;
        of.reduce(&Reduction::new(ReduceOp::Mean, axes), &self.options()).map(drop)
    }

    fn rechunk(&self) -> cuzarr::Result<()> {
        let changes = Changes { chunks: Some(vec![None, Some(16)]), ..Changes::default() };
        let metadata = changes.apply(self.source.metadata())?;
        Copy::new(&self.source, Arc::new(MemoryStore::new()), "", metadata, Existing::Refuse)?.run(&|_| ()).map(drop)
    }

    fn roots(&self) -> cuzarr::Result<()> {
        let of = Expr::array(self.source.clone())?;
        Expr::apply(Op::Sqrt, &[of.into()])?.store(&self.target, &self.options())
    }

    fn all(&self) -> [(&'static str, Box<Run<'_>>); 4] {
        [
            ("rechunk", Box::new(|| self.rechunk())),
            ("mean of columns", Box::new(|| self.mean(Some(vec![0])))),
            ("mean of all", Box::new(|| self.mean(None))),
            ("square roots", Box::new(|| self.roots())),
        ]
    }
}

/// Bytes and elements of a float32 array of `SIDE` by `SIDE`.
fn floats() -> (ArrayMetadata, NdBuffer) {
    let codecs = json!([bytes_codec("little"), zstd_codec()]);
    let value: Vec<u8> = (0..SIDE * SIDE).flat_map(|at| ((at / 100) as f32).to_ne_bytes()).collect();
    let value = NdBuffer::from_host(Device::Cpu, DType::FLOAT32, &[SIDE as usize; 2], Order::C, &value).unwrap();
    (metadata(&[SIDE, SIDE], &[CHUNK, CHUNK], "float32", json!(0.0), codecs), value)
}

#[test]
fn work_out_of_core_stays_below_the_limit() {
    let _alone = alone();
    let (metadata, value) = floats();
    for device in kernel_devices() {
        for limit in [32 * CHUNK_BYTES, 128 * CHUNK_BYTES] {
            for (name, work) in Work::new(device, limit, &metadata, &value).all() {
                let took = peak_within(limit, device, || work().unwrap());
                assert!(took > 0 && took <= limit + TABLES_BYTES, "{name} on {device} took {took}, allowed {limit}");
            }
        }
    }
}

#[test]
fn work_out_of_core_on_a_full_device_is_an_error_that_leaves_it_usable() {
    let _alone = alone();
    let (metadata, value) = floats();
    for device in kernel_devices() {
        let work = Work::new(device, 32 * CHUNK_BYTES, &metadata, &value);
        // Streams, events and kernels are made while there is room.
        work.all().iter().for_each(|(_, work)| work().unwrap());
        let full = fill_up(device);
        for (name, work) in work.all() {
            let error = work().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{name}: {error}");
            assert!(error.hint().is_some_and(|hint| hint.contains("memory_limit")), "{name}: {error:?}");
        }
        drop(full);
        work.all().iter().for_each(|(name, work)| work().unwrap_or_else(|error| panic!("{name}: {error}")));
    }
}

/// What the driver takes for itself meanwhile, for streams and events.
const DRIVERS_OWN_BYTES: u64 = 4 << 20;

/// What the driver may miss beside results.
fn allowed(limit: u64) -> u64 {
    limit.next_multiple_of(UNIT_BYTES) + DRIVERS_OWN_BYTES
}

/// The GPU, if there is one that nobody else uses.
fn gpu_alone() -> Option<Device> {
    let device = Device::Cuda(0);
    if !devices().contains(&device) || std::env::var_os("CUZARR_REQUIRE_GPU").is_none() {
        say_skipped("no GPU, or CUZARR_REQUIRE_GPU is not set");
        return None;
    }
    Some(device)
}

/// The most that was taken while work ran three times.
struct Taken {
    /// By our pool, as it counts.
    counted: u64,
    /// Of the device, as its driver tells.
    device: u64,
    /// Of pinned memory, as Linux tells: the driver takes it from shared memory.
    pinned: u64,
    /// Times that the pool had no room in one piece within the limit.
    refusals: u64,
}

impl Display for Taken {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [counted, device, pinned] = [self.counted, self.device, self.pinned].map(|bytes| bytes >> 20);
        write!(f, "{counted} MiB counted, {device} missed by the driver, {pinned} pinned, {} refusals", self.refusals)
    }
}

/// What `work` takes; nothing where others took or gave back memory of the device meanwhile.
fn watched(device: Device, work: &(dyn Fn() + Sync)) -> Option<Taken> {
    pool::trim(device).unwrap();
    pool::reset_peak(device);
    let (before, stats) = (outside(device), pool::stats(device));
    let most = most_taken(device, work);
    pool::trim(device).unwrap();
    let after = outside(device);
    if after.0.abs_diff(before.0) > DRIVERS_OWN_BYTES {
        say_skipped(&format!("others use {device}, {} bytes were missing and {} are", before.0, after.0));
        return None;
    }
    let now = pool::stats(device);
    Some(Taken {
        counted: now.peak_bytes - stats.used_bytes,
        device: most.0.saturating_sub(before.0),
        pinned: most.1.saturating_sub(before.1),
        refusals: now.refusals - stats.refusals,
    })
}

/// Bytes of the device that are not free, and of shared memory that this process has.
fn outside(device: Device) -> (u64, u64) {
    let (free, total) = pool::memory_info(device).unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let shared = status.lines().find_map(|line| line.strip_prefix("RssShmem:")).unwrap();
    let kibibytes: u64 = shared.trim().trim_end_matches(" kB").parse().unwrap();
    (total - free, kibibytes << 10)
}

/// From outside: free memory of the device, as the driver tells it, sampled while reads and writes run.
#[test]
fn the_driver_sees_no_more_than_result_and_limit() {
    let _alone = alone();
    let Some(device) = gpu_alone() else { return };
    let side = 8192;
    let all = Selection::all(&[side, side]);
    let value: Vec<u8> = (0..side * side).flat_map(|at| ((at / 100) as u32).to_le_bytes()).collect();
    let mut problems = Vec::new();
    for codecs in chains() {
        let metadata = metadata(&[side, side], &[1024, 1024], "uint32", json!(0), codecs.clone());
        let mut story = Story::new(metadata, Arc::new(MemoryStore::new()));
        story.try_write(Device::Cpu, &all, &value).unwrap();
        story.elements.clone_from(&value);
        story.options.strict = true;
        let access = story.access(device);
        let empty = || NdBuffer::empty(device, DType::UINT32, &[side as usize; 2], Order::C).unwrap();
        let options = |limit| Options { memory_limit_bytes: limit, ..story.options.clone() };
        let read = |out: &NdBuffer, limit: u64| {
            story.engine.read(&access, &story.store, &all, out, &options(limit)).unwrap();
        };
        let write = |out: &NdBuffer, limit: u64| {
            story.engine.write(&access, &story.store, &all, out, &options(limit)).unwrap();
        };
        for limit in [24 << 20, 64 << 20, 256 << 20] {
            // Loading kernels takes memory that stays.
            let out = empty();
            read(&out, limit);
            write(&out, limit);
            drop(out);
            let mut watch = |what: &str, result_bytes: u64, work: &(dyn Fn() + Sync)| {
                let Some(took) = watched(device, work) else { return };
                let line = format!("{what} within {} MiB: {took}: {codecs}", limit >> 20);
                println!("{line}");
                assert!(took.counted <= result_bytes + limit + TABLES_BYTES, "{line}");
                if took.device > result_bytes + allowed(limit) || took.device < result_bytes {
                    problems.push(line.clone());
                }
                if took.pinned > limit + TABLES_IN_PINNED_BYTES || took.pinned == 0 {
                    problems.push(line);
                }
            };
            watch("reading", value.len() as u64, &|| read(&empty(), limit));
            let out = empty();
            watch("reading into memory that is there", 0, &|| read(&out, limit));
            assert_eq!(out.to_host_bytes(Order::C).unwrap(), value);
            watch("writing", 0, &|| write(&out, limit));
        }
        story.check(Device::Cpu, &Selection::region(&[side - 1500, 5], &[1500, 3000]).unwrap(), "what was written");
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

/// Memory that one stream frees while it has much to do is taken again by another one, instead of more from the driver.
#[test]
fn what_is_in_flight_takes_no_more_of_the_driver_than_its_limit() {
    let _alone = alone();
    let (limit, block_bytes) = (64 << 20, 4 << 20);
    for device in kernel_devices() {
        pool::trim(device).unwrap();
        let sum = pool::allocate_on(device, 4 * block_bytes).unwrap();
        let before = pool::stats(device).held_bytes;
        let _within = pool::within(device, limit);
        let [copies, kernels] = [(); 2].map(|()| Stream::new(device).unwrap());
        let mut most = 0;
        for turn in 0..100 {
            let block = pool::allocate(block_bytes, &copies).unwrap();
            copies.memset(&block, turn).unwrap();
            kernels.wait(&copies.record().unwrap()).unwrap();
            for _ in 0..if device == Device::Simt { 1 } else { 32 } {
                kernels.memset(&sum, 0xff).unwrap();
            }
            kernels.d2d(&block, &sum.slice(..block_bytes).unwrap()).unwrap();
            most = most.max(pool::stats(device).held_bytes - before);
        }
        kernels.synchronize().unwrap();
        let expected = [vec![99; block_bytes], vec![0xff; 3 * block_bytes]].concat();
        assert_eq!(sum.to_vec().unwrap(), expected);
        assert!(most > 0 && most <= limit, "{device}: {most} bytes were taken of the driver, allowed {limit}");
    }
}

#[test]
fn work_with_a_lower_limit_gives_back_what_was_kept_under_a_higher_one() {
    let _alone = alone();
    let Some(device) = gpu_alone() else { return };
    let (side, low) = (4096, 48 << 20);
    let metadata = metadata(&[side; 2], &[512; 2], "uint32", json!(0), json!([bytes_codec("little"), blosc()]));
    let mut story = Story::new(metadata, Arc::new(MemoryStore::new()));
    let value = vec![5; (side * side * 4) as usize];
    story.write(Device::Cpu, &Selection::all(&[side; 2]), &value);
    let out = NdBuffer::empty(device, DType::UINT32, &[side as usize; 2], Order::C).unwrap();
    let held = [2 << 30, low].map(|limit| {
        story.options.memory_limit_bytes = limit;
        let access = story.access(device);
        let all = Selection::all(&[side; 2]);
        story.engine.read(&access, &story.store, &all, &out, &story.options).unwrap();
        let stats = pool::stats(device);
        (stats.held_bytes - stats.used_bytes, stats.pinned_bytes)
    });
    println!("beside what is in use, and pinned, with a high and a low limit: {held:?}");
    assert!(held[1].0 <= allowed(low) && held[1].1 <= low + TABLES_IN_PINNED_BYTES, "{held:?}");
}

#[test]
fn the_driver_sees_no_more_than_the_limit_of_work_out_of_core() {
    let _alone = alone();
    let Some(device) = gpu_alone() else { return };
    let side = 8192;
    let codecs = json!([bytes_codec("little"), zstd_codec()]);
    let metadata = metadata(&[side, side], &[512, 512], "float32", json!(0.0), codecs);
    let value: Vec<u8> = (0..side * side).flat_map(|at| ((at / 100) as f32).to_ne_bytes()).collect();
    let value = NdBuffer::from_host(Device::Cpu, DType::FLOAT32, &[side as usize; 2], Order::C, &value).unwrap();
    let mut problems = Vec::new();
    for limit in [32 << 20, 128 << 20, 512 << 20] {
        let work = Work::new(device, limit, &metadata, &value);
        for (name, work) in &work.all() {
            let work = || work().unwrap();
            work();
            let Some(took) = watched(device, &work) else { continue };
            let line = format!("{name}: {took}, of {} MiB", limit >> 20);
            println!("{line}");
            if took.device > allowed(limit) || took.pinned > limit + TABLES_IN_PINNED_BYTES {
                problems.push(line);
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

/// The most of what [`outside`] tells while `work` runs three times.
fn most_taken(device: Device, work: &(dyn Fn() + Sync)) -> (u64, u64) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = (0, 0);
            while !done.load(Ordering::Acquire) {
                let now = outside(device);
                most = (now.0.max(most.0), now.1.max(most.1));
            }
            most
        });
        (0..3).for_each(|_| work());
        done.store(true, Ordering::Release);
        watcher.join().unwrap()
    })
}
