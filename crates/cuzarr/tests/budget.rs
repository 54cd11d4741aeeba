//! The memory limit holds: what a read or write takes on a device beside its result, and in pinned memory, as our pool and
//! the driver see it. In a program of its own, because it watches numbers of the process.

mod model;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuzarr::ErrorKind;
use cuzarr::compute::{Changes, ComputeOptions, Copy, Existing, Expr, Op, ReduceOp, Reduction};
use cuzarr::node::{Array, ArrayOptions};
use cuzarr::plan::Selection;
use cuzarr::store::{GpuMemoryStore, MemoryStore};
use cuzarr_device::{Buffer, DType, Device, NdBuffer, Order, pool};
use model::{Dice, Story, bytes_codec, devices, metadata, sharding, zstd_codec};
use serde_json::{Value, json};

const SIDE: u64 = 512;
const CHUNK: u64 = 64;
const CHUNK_BYTES: u64 = CHUNK * CHUNK * 4;
/// Tables of kernels, statuses: what is not counted because it is small beside everything else.
const TABLES_BYTES: u64 = 64 << 10;
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

#[test]
fn device_memory_beside_the_result_stays_below_the_limit() {
    let _alone = alone();
    let all = Selection::all(&[SIDE, SIDE]);
    // Long rows of one number: kernels for the CPU decode those in little time.
    let value: Vec<u8> = (0..SIDE * SIDE).flat_map(|at| ((at / 100) as u32).to_le_bytes()).collect();
    for codecs in chains() {
        let metadata = metadata(&[SIDE, SIDE], &[CHUNK, CHUNK], "uint32", json!(0), codecs.clone());
        let mut story = Story::new(metadata, Arc::new(MemoryStore::new()));
        for device in devices().into_iter().filter(|&device| device != Device::Cpu) {
            for limit in [5 * CHUNK_BYTES, 16 * CHUNK_BYTES, 64 * CHUNK_BYTES] {
                (story.options.memory_limit_bytes, story.options.strict) = (limit, true);
                let source = NdBuffer::from_host(device, DType::UINT32, &[SIDE as usize; 2], Order::C, &value).unwrap();
                let (access, written) = (story.access(Device::Cpu), story.engine.memory(device));
                let wrote = peak(device, || {
                    story.engine.write(&access, &story.store, &all, &source, &story.options).unwrap();
                });
                assert!(wrote <= limit + TABLES_BYTES, "{codecs}: writing took {wrote}, allowed {limit}");
                story.elements.clone_from(&value);
                let out = NdBuffer::empty(device, DType::UINT32, &[SIDE as usize; 2], Order::C).unwrap();
                let access = story.access(device);
                let read = peak(device, || {
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
    for device in devices().into_iter().filter(|&device| device != Device::Cpu) {
        for chunks in [12, 16, 24] {
            let limit = chunks * chunk_rows * SIDE * 4;
            (story.options.memory_limit_bytes, story.options.strict) = (limit, true);
            let out = NdBuffer::empty(device, DType::UINT32, &[rows as usize, SIDE as usize], Order::C).unwrap();
            let access = story.access(device);
            let read = peak(device, || {
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
        for device in devices().into_iter().filter(|&device| device != Device::Cpu) {
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
    for device in devices().into_iter().filter(|&device| device != Device::Cpu) {
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
    for device in devices().into_iter().filter(|&device| device != Device::Cpu) {
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

/// Memory of the device until it gives no more.
fn fill_up(device: Device) -> Vec<Buffer> {
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
    for device in devices().into_iter().filter(|&device| device != Device::Cpu) {
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

#[test]
fn work_out_of_core_stays_below_the_limit() {
    let _alone = alone();
    let codecs = json!([bytes_codec("little"), zstd_codec()]);
    let metadata = metadata(&[SIDE, SIDE], &[CHUNK, CHUNK], "float32", json!(0.0), codecs);
    let value: Vec<u8> = (0..SIDE * SIDE).flat_map(|at| ((at / 100) as f32).to_ne_bytes()).collect();
    for device in devices().into_iter().filter(|&device| device != Device::Cpu) {
        for limit in [32 * CHUNK_BYTES, 128 * CHUNK_BYTES] {
            let options = ArrayOptions { device, memory_limit_bytes: limit, threads: 2, ..ArrayOptions::default() };
            let create =
                |path| Array::create(Arc::new(MemoryStore::new()), path, metadata.clone(), false, options).unwrap();
            let (source, target) = (create("source"), create("target"));
            let elements =
                NdBuffer::from_host(Device::Cpu, DType::FLOAT32, &[SIDE as usize; 2], Order::C, &value).unwrap();
            source.write(&Selection::all(source.shape()), &elements).unwrap();
            let computing = ComputeOptions { device, memory_limit_bytes: limit, threads: 2, ..Default::default() };
            let of = || Expr::array(source.clone()).unwrap();
            let mean = |axes| drop(of().reduce(&Reduction::new(ReduceOp::Mean, axes), &computing).unwrap());
            let rechunk = || {
                let changes = Changes { chunks: Some(vec![None, Some(16)]), ..Changes::default() };
                let metadata = changes.apply(source.metadata()).unwrap();
                let copy = Copy::new(&source, Arc::new(MemoryStore::new()), "", metadata, Existing::Refuse).unwrap();
                copy.run(&|_| ()).unwrap();
            };
            let store = || Expr::apply(Op::Sqrt, &[of().into()]).unwrap().store(&target, &computing).unwrap();
            let work: [(&str, &dyn Fn()); 4] = [
                ("rechunk", &rechunk),
                ("mean of columns", &|| mean(Some(vec![0]))),
                ("mean of all", &|| mean(None)),
                ("square roots", &store),
            ];
            for (name, work) in work {
                let took = peak(device, work);
                assert!(took > 0 && took <= limit + TABLES_BYTES, "{name} on {device} took {took}, allowed {limit}");
            }
        }
    }
}

/// From outside: free memory of the device, as the driver tells it, sampled while reads and writes run. The pool takes memory
/// in larger pieces than it gives, and others use the device too.
#[test]
fn the_driver_sees_no_more_than_result_and_limit() {
    let _alone = alone();
    const SLACK_BYTES: u64 = 96 << 20;
    let device = Device::Cuda(0);
    if !devices().contains(&device) || std::env::var_os("CUZARR_REQUIRE_GPU").is_none() {
        println!("skipped: no GPU");
        return;
    }
    let (side, limit) = (8192, 128 << 20);
    let all = Selection::all(&[side, side]);
    let value: Vec<u8> = (0..side * side).flat_map(|at| ((at / 100) as u32).to_le_bytes()).collect();
    let mut problems = Vec::new();
    for codecs in chains() {
        let metadata = metadata(&[side, side], &[1024, 1024], "uint32", json!(0), codecs.clone());
        let mut story = Story::new(metadata, Arc::new(MemoryStore::new()));
        story.try_write(Device::Cpu, &all, &value).unwrap();
        story.elements.clone_from(&value);
        (story.options.memory_limit_bytes, story.options.strict) = (limit, true);
        let access = story.access(device);
        let empty = || NdBuffer::empty(device, DType::UINT32, &[side as usize; 2], Order::C).unwrap();
        let read = |out: &NdBuffer| story.engine.read(&access, &story.store, &all, out, &story.options).map(|_| ());
        let write = |out: &NdBuffer| story.engine.write(&access, &story.store, &all, out, &story.options).map(|_| ());
        // Loading kernels takes memory that stays.
        let out = empty();
        read(&out).unwrap();
        write(&out).unwrap();
        drop(out);
        pool::trim(device).unwrap();
        let mut watch = |what: &str, result_bytes: u64, work: &(dyn Fn() -> cuzarr::Result<()> + Sync)| {
            pool::trim(device).unwrap();
            pool::reset_peak(device);
            let before = pool::stats(device).used_bytes;
            let took = least_free(device, work);
            let counted = pool::stats(device).peak_bytes - before;
            let line = format!("{codecs}: {what}: {} MiB as the driver sees it, {} counted", took >> 20, counted >> 20);
            println!("{line}");
            assert!(counted <= result_bytes + limit + TABLES_BYTES, "{line}");
            // The driver takes more from the system before it gives out again what a stream has freed and not passed.
            if took > result_bytes + 2 * limit + SLACK_BYTES || took < result_bytes {
                problems.push(line);
            }
        };
        watch("reading", value.len() as u64, &|| read(&empty()));
        let out = empty();
        watch("reading into memory that is there", 0, &|| read(&out));
        assert_eq!(out.to_host_bytes(Order::C).unwrap(), value);
        watch("writing", 0, &|| write(&out));
        let pinned_bytes = pool::stats(device).pinned_bytes;
        assert!(pinned_bytes <= limit + TABLES_IN_PINNED_BYTES, "{pinned_bytes} pinned bytes, allowed {limit}");
        story.check(Device::Cpu, &Selection::region(&[side - 1500, 5], &[1500, 3000]).unwrap(), "what was written");
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

/// By how much free memory shrinks at most while `work` runs three times.
fn least_free(device: Device, work: &(dyn Fn() -> cuzarr::Result<()> + Sync)) -> u64 {
    let free = || pool::memory_info(device).unwrap().0;
    let (before, done) = (free(), AtomicBool::new(false));
    let least = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut least = u64::MAX;
            while !done.load(Ordering::Acquire) {
                least = least.min(free());
            }
            least
        });
        let outcomes: Vec<_> = (0..3).map(|_| work()).collect();
        done.store(true, Ordering::Release);
        assert!(outcomes.into_iter().all(|outcome| outcome.is_ok()));
        watcher.join().unwrap()
    });
    before - least.min(before)
}
