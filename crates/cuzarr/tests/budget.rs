//! The memory limit holds: what a read or write takes on a device beside its result, and in pinned memory, as our pool and
//! the driver see it. In a program of its own, because it watches numbers of the process.

mod model;
mod watched;

use std::sync::Arc;

use cuzarr::ErrorKind;
use cuzarr::internal::run::tuning;
use cuzarr::plan::Selection;
use cuzarr::store::{GpuMemoryStore, MemoryStore};
use cuzarr_device::{Buffer, DType, Device, NdBuffer, Order, Stream, internal, pool};
use model::{Dice, Story, bytes_codec, kernel_devices, metadata, sharding, zstd_codec};
use serde_json::{Value, json};
use watched::*;

fn chains() -> Vec<Value> {
    let with = |codec: Value| json!([bytes_codec("little"), codec]);
    vec![
        json!([bytes_codec("little")]),
        with(zstd_codec()),
        with(blosc()),
        sharding(&[CHUNK / 2, CHUNK / 2], with(blosc()), "end"),
    ]
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
                story.options.memory_limit_bytes = limit;
                tuning(&mut story.options).force_device = true;
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
            story.options.memory_limit_bytes = limit;
            tuning(&mut story.options).force_device = true;
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
            story.options.memory_limit_bytes = limit;
            tuning(&mut story.options).force_device = true;
            let out = NdBuffer::empty(device, DType::UINT32, &shape, Order::C).unwrap();
            let source = NdBuffer::from_host(device, DType::UINT32, &shape, Order::C, &value).unwrap();
            pool::trim(device).unwrap();
            let stream = Stream::new(device).unwrap();
            let _within = internal::pool::within(device, limit);
            let before = pool::stats(device);
            // Small blocks with holes of less than a chunk between them.
            let of = |size_bytes| internal::pool::allocate(size_bytes, &stream).unwrap();
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
            story.options.memory_limit_bytes = limit;
            tuning(&mut story.options).force_device = true;
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

#[test]
fn a_full_device_is_an_error_that_leaves_it_usable() {
    let _alone = alone();
    let all = Selection::all(&[SIDE / 2, SIDE]);
    let value: Vec<u8> = (0..SIDE * SIDE / 2).flat_map(|at| ((at / 100) as u32).to_le_bytes()).collect();
    let stories = chains().into_iter().map(|codecs| {
        let metadata = metadata(&[SIDE / 2, SIDE], &[CHUNK, CHUNK], "uint32", json!(0), codecs);
        let mut story = Story::new(metadata, Arc::new(MemoryStore::new()));
        story.write(Device::Cpu, &all, &value);
        tuning(&mut story.options).force_device = true;
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
            let room = internal::pool::allocate_on(device, room_bytes as usize).unwrap();
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
        tuning(&mut story.options).force_device = true;
        let access = story.access(device);
        let empty = || NdBuffer::empty(device, DType::UINT32, &[side as usize; 2], Order::C).unwrap();
        let options = |limit| story.options.clone().with_memory_limit_bytes(limit);
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
        let sum = internal::pool::allocate_on(device, 4 * block_bytes).unwrap();
        let before = pool::stats(device).held_bytes;
        let _within = internal::pool::within(device, limit);
        let [copies, kernels] = [(); 2].map(|()| Stream::new(device).unwrap());
        let mut most = 0;
        for turn in 0..100 {
            let block = internal::pool::allocate(block_bytes, &copies).unwrap();
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
