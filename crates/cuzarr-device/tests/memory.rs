//! Pools, streams, events and slabs, on the host and on every device there is.

mod device;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use cuzarr_device::internal::{SlabPiece, SlabRing};
use cuzarr_device::{Buffer, DType, Device, DeviceAllocator, ErrorKind, NdBuffer, Order, Stream, internal, pool};
use device::{Random, devices, say_skipped};

fn all_devices() -> Vec<Device> {
    let mut all = devices();
    all.push(Device::Cpu);
    all
}

#[test]
fn bytes_go_to_a_device_and_come_back() {
    for device in all_devices() {
        let stream = Stream::new(device).unwrap();
        let bytes = Random::new(1).bytes(100_000);
        let [first, second] = [0, 1].map(|_| internal::pool::allocate(bytes.len(), &stream).unwrap());
        stream.h2d(&bytes, &first).unwrap();
        stream.d2d(&first, &second).unwrap();
        stream.memset(&first, 9).unwrap();
        let mut back = vec![0; bytes.len()];
        stream.d2h(&second, &mut back).unwrap();
        assert!(back == bytes);
        stream.d2h(&first, &mut back).unwrap();
        assert!(back.iter().all(|&byte| byte == 9));
    }
}

#[test]
fn copies_of_the_wrong_size_or_device_are_refused() {
    for device in devices() {
        let stream = Stream::new(device).unwrap();
        let memory = internal::pool::allocate(16, &stream).unwrap();
        assert_eq!(stream.h2d(&[0; 15], &memory).unwrap_err().kind(), ErrorKind::InvalidArgument);
        let host = Buffer::from_vec(vec![0; 16]);
        assert_eq!(stream.h2d(&[0; 16], &host).unwrap_err().kind(), ErrorKind::MemorySpace);
        assert_eq!(stream.memset(&host, 1).unwrap_err().kind(), ErrorKind::MemorySpace);
        assert_eq!(stream.d2d(&host, &memory).unwrap_err().kind(), ErrorKind::MemorySpace);
    }
}

/// For tests that trim the pool, or that would notice.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[test]
fn the_pool_counts_what_it_gives_and_gets_back() {
    let _alone = alone();
    for device in devices() {
        let before = pool::stats(device);
        let memory = pool::Pool.allocate(device, 12_345_678).unwrap();
        let during = pool::stats(device);
        assert!(during.allocations > before.allocations && during.peak_bytes >= 12_345_678);
        drop(memory);
        pool::trim(device).unwrap();
        let info = device.memory_info().unwrap();
        assert!(info.free_bytes > 0 && info.free_bytes <= info.total_bytes);
    }
}

#[test]
fn bytes_go_from_one_gpu_to_another() {
    let two = [Device::Cuda(0), Device::Cuda(1)];
    if let Some(error) = two.iter().find_map(|&device| Stream::new(device).err()) {
        say_skipped(&format!("two GPUs are needed: {}", error.message()));
        return;
    }
    let bytes = Random::new(4).bytes((64 << 20) + 77);
    for (from, to) in [(two[0], two[1]), (two[1], two[0])] {
        let target = Buffer::zeroed(to, bytes.len()).unwrap();
        for device in two {
            let source = Buffer::from_bytes(from, &bytes).unwrap();
            let stream = Stream::new(device).unwrap();
            stream.d2d(&source, &target).unwrap();
            // In stream order: what is written behind the copy is not copied, and memory may be dropped meanwhile.
            let spoiler = Stream::new(from).unwrap();
            spoiler.wait(&stream.record().unwrap()).unwrap();
            spoiler.memset(&source, 0xEE).unwrap();
            drop(source);
            stream.synchronize().unwrap();
            assert!(target.to_vec().unwrap() == bytes, "{from} to {to} on a stream of {device}");
            Stream::legacy(to).unwrap().memset(&target, 0).unwrap();
            to.synchronize().unwrap();
        }
    }
}

#[test]
fn an_impossible_allocation_says_what_was_asked_and_what_is_free() {
    // The pool trims itself before it gives up.
    let _alone = alone();
    for device in devices() {
        let error = internal::pool::allocate_on(device, 1 << 60).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        assert!(error.message().contains(&(1u64 << 60).to_string()) && error.message().contains("free"), "{error}");
        // The device still works.
        assert!(internal::pool::allocate_on(device, 16).is_ok());
    }
    assert_eq!(internal::pool::allocate_on(Device::Cpu, usize::MAX / 2).unwrap_err().kind(), ErrorKind::OutOfMemory);
}

/// The stream that brings bytes goes on bringing others while kernels of another stream use the first ones, whose memory is
/// given back and out again meanwhile.
#[test]
fn memory_that_was_filled_on_one_stream_is_used_on_another_and_comes_back_in_time() {
    for device in devices() {
        let [copies, kernels] = [0, 1].map(|_| Stream::new(device).unwrap());
        let bytes: Vec<Vec<u8>> = (0..40u8).map(|round| vec![round; 1 << 20]).collect();
        let results: Vec<Buffer> = bytes
            .iter()
            .map(|bytes| {
                let arena = internal::pool::allocate(bytes.len(), &copies).unwrap();
                for half in [0..bytes.len() / 2, bytes.len() / 2..bytes.len()] {
                    // SAFETY: the bytes live until both streams were waited for.
                    unsafe { copies.h2d_async(bytes[half.clone()].as_ptr(), &arena.slice(half).unwrap()) }.unwrap();
                }
                kernels.wait(&copies.record().unwrap()).unwrap();
                let result = internal::pool::allocate_on(device, bytes.len()).unwrap();
                kernels.d2d(&arena, &result).unwrap();
                result
            })
            .collect();
        [copies, kernels].iter().for_each(|stream| stream.synchronize().unwrap());
        assert!(results.iter().zip(&bytes).all(|(result, bytes)| result.to_vec().unwrap() == *bytes), "{device}");
    }
}

#[test]
fn memory_may_be_dropped_while_other_streams_use_it() {
    for device in devices() {
        let [first, second] = [0, 1].map(|_| Stream::new(device).unwrap());
        let results: Vec<Buffer> = (0..20u8)
            .map(|round| {
                let scratch = internal::pool::allocate(1 << 20, &first).unwrap();
                first.memset(&scratch, round).unwrap();
                let marked = first.record().unwrap();
                let result = internal::pool::allocate_on(device, 1 << 20).unwrap();
                second.wait(&marked).unwrap();
                second.d2d(&scratch, &result).unwrap();
                // `scratch` ends here, perhaps before the copy began; its memory must not be given to the next round first.
                result
            })
            .collect();
        second.synchronize().unwrap();
        for (round, result) in results.iter().enumerate() {
            assert!(result.to_vec().unwrap().iter().all(|&byte| byte == round as u8), "round {round} on {device}");
        }
    }
}

/// Memory of another owner: its drop is counted.
struct Foreign {
    _memory: Buffer,
    dropped: Arc<AtomicUsize>,
}

impl Drop for Foreign {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn memory_of_other_owners_is_kept_until_the_stream_has_passed() {
    for device in devices() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let stream = Stream::new(device).unwrap();
        {
            let memory = internal::pool::allocate_on(device, 64).unwrap();
            let (address, owner) = (memory.address(), Foreign { _memory: memory, dropped: Arc::clone(&dropped) });
            // SAFETY: the owner holds the memory.
            let foreign = unsafe { Buffer::from_raw(device, address, 64, Box::new(owner)) };
            stream.memset(&foreign, 3).unwrap();
        }
        stream.synchronize().unwrap();
        assert_eq!(dropped.load(Ordering::SeqCst), 1, "{device}");
    }
}

#[test]
fn buffers_that_lie_side_by_side_are_joined() {
    for device in all_devices() {
        let block = Buffer::from_bytes(device, &(0..60).collect::<Vec<u8>>()).unwrap();
        let part = |start: usize, end: usize| block.slice(start..end).unwrap();
        // Memory that the same address names, but of another owner.
        let wrapped = |start: usize, end: usize| {
            let (part, owner) = (part(start, end), Box::new(block.clone()));
            // SAFETY: the owner holds the memory.
            unsafe { Buffer::from_raw(device, part.address(), part.size_bytes(), owner) }
        };
        let kinds: [&dyn Fn(usize, usize) -> Buffer; 2] = [&part, &wrapped];
        for (number, part) in kinds.into_iter().enumerate() {
            if number == 1 && device == Device::Cpu {
                // Leases are counted for each block of host memory apart.
                assert!(Buffer::joined(&[part(0, 10), part(10, 20)]).is_none());
                continue;
            }
            let (joined, offsets) = Buffer::joined(&[part(30, 40), part(10, 25), part(5, 5), part(25, 30)]).unwrap();
            assert_eq!((joined.address() - block.address(), offsets), (10, vec![20, 0, 0, 15]), "{device}");
            assert_eq!(joined.to_vec().unwrap(), (10..40).collect::<Vec<u8>>(), "{device}");
            assert!(!joined.is_read_only());
            assert!(Buffer::joined(&[part(0, 10), part(11, 20)]).is_none(), "{device}: a gap");
            assert!(Buffer::joined(&[part(0, 10), part(9, 20)]).is_none(), "{device}: twice the same byte");
            let (joined, _) = Buffer::joined(&[part(0, 10), part(10, 20).into_read_only()]).unwrap();
            assert!(joined.is_read_only());
        }
        assert!(Buffer::joined(&[]).is_none());
    }
}

#[test]
fn events_measure_and_order() {
    for device in all_devices() {
        let stream = Stream::new(device).unwrap();
        let memory = internal::pool::allocate(1 << 20, &stream).unwrap();
        let start = stream.record_timed().unwrap();
        stream.memset(&memory, 1).unwrap();
        let end = stream.record_timed().unwrap();
        end.synchronize().unwrap();
        assert!(start.is_done().unwrap() && end.is_done().unwrap());
        assert!(start.elapsed_ms(&end).unwrap() >= 0.0);
        stream.synchronize().unwrap();
        assert!(stream.is_idle().unwrap());
    }
}

#[test]
fn shared_memory_is_returned_once_the_device_is_idle() {
    for device in devices() {
        let memory = internal::pool::allocate_on(device, 4096).unwrap();
        internal::pool::mark_shared(&memory);
        drop(memory);
        device.synchronize().unwrap();
    }
}

#[test]
fn a_wrapped_stream_is_the_stream_itself() {
    for device in devices() {
        let own = Stream::new(device).unwrap();
        // SAFETY: `own` outlives it.
        let wrapped = unsafe { Stream::from_raw(device, own.raw_handle(), Some(Box::new(own.clone()))) }.unwrap();
        assert!(wrapped.is_same_queue(&own));
        assert!(!Stream::new(device).unwrap().is_same_queue(&own));
    }
    // SAFETY: the host has no stream of this number, which is the error.
    assert!(unsafe { Stream::from_raw(Device::Cpu, 7, None) }.is_err());
}

#[test]
fn many_threads_use_one_device_at_once() {
    for device in devices() {
        std::thread::scope(|threads| {
            for thread in 0..8u64 {
                threads.spawn(move || {
                    let stream = Stream::new(device).unwrap();
                    for round in 0..10 {
                        let mut random = Random::new(thread * 100 + round);
                        let bytes = random.bytes(3 * 1000 * 4);
                        let array = NdBuffer::from_host(device, DType::FLOAT32, &[3, 1000], Order::C, &bytes).unwrap();
                        let turned = array.transpose(&[1, 0]).unwrap().copy(Order::C).unwrap();
                        let back = turned.transpose(&[1, 0]).unwrap().to_host_bytes(Order::C).unwrap();
                        assert!(back == bytes);
                        let memory = internal::pool::allocate(10_000, &stream).unwrap();
                        stream.memset(&memory, round as u8).unwrap();
                    }
                });
            }
        });
    }
}

#[test]
fn pieces_of_a_slab_are_filled_by_many_threads_and_uploaded_together() {
    for device in all_devices() {
        let stream = Stream::new(device).unwrap();
        let ring = SlabRing::new(device, 1 << 20, 2 << 20).unwrap();
        let mut slab = ring.acquire(0).unwrap();
        let pieces: Vec<_> = (0..16).map(|_| slab.carve(10_001).unwrap()).collect();
        let offsets: Vec<usize> = pieces.iter().map(|piece| piece.offset_bytes()).collect();
        assert!(offsets.iter().all(|offset| offset.is_multiple_of(256)));
        let arena = internal::pool::allocate(1 << 20, &stream).unwrap();
        let early = slab.upload(0..16, &arena.slice(..16).unwrap(), &stream).unwrap_err();
        assert_eq!(early.kind(), ErrorKind::InvalidArgument);
        std::thread::scope(|threads| {
            for (number, mut piece) in pieces.into_iter().enumerate() {
                threads.spawn(move || piece.fill(number as u8));
            }
        });
        let size = slab.carved_bytes();
        slab.upload(0..size, &arena.slice(..size).unwrap(), &stream).unwrap();
        drop(slab);
        stream.synchronize().unwrap();
        let bytes = arena.to_vec().unwrap();
        for (number, offset) in offsets.into_iter().enumerate() {
            assert!(bytes[offset..offset + 10_001].iter().all(|&byte| byte == number as u8));
        }
    }
}

#[test]
fn filled_parts_of_a_slab_cross_while_others_are_filled() {
    const SECTION_BYTES: usize = 16 << 20;
    for device in all_devices() {
        let stream = Stream::new(device).unwrap();
        let ring = SlabRing::new(device, 1 << 20, 64 << 20).unwrap();
        let mut slab = ring.acquire(48 << 20).unwrap();
        let arena = internal::pool::allocate(44 << 20, &stream).unwrap();
        stream.memset(&arena, 0xEE).unwrap();
        slab.upload_as_filled(&arena, &stream).unwrap();
        assert_eq!(slab.room_bytes(), 44 << 20);
        // The second piece begins 768 bytes before the second section, and the last one lies in that, too.
        let pieces = [SECTION_BYTES - 1000, SECTION_BYTES, 99].map(|size_bytes| slab.carve(size_bytes).unwrap());
        let [mut first, mut second, mut last] = pieces;
        let mut rest = second.split_off(1000);
        [&mut first, &mut second, &mut rest, &mut last].into_iter().zip(1..).for_each(|(piece, byte)| piece.fill(byte));
        let arrived = || {
            stream.synchronize().unwrap();
            arena.to_vec().unwrap()
        };
        drop((first, last));
        assert_eq!(arrived()[..2], [0xEE; 2], "a piece that is being filled lies in the first section too");
        drop(second);
        let bytes = arrived();
        assert!(bytes[..SECTION_BYTES - 1000].iter().all(|&byte| byte == 1), "a full section crosses by itself");
        assert!(bytes[SECTION_BYTES - 768..SECTION_BYTES].iter().all(|&byte| byte == 2));
        assert!(bytes[SECTION_BYTES..].iter().all(|&byte| byte == 0xEE), "one that has room does not");
        assert_eq!(slab.finish_upload().err().map(|error| error.kind()), Some(ErrorKind::InvalidArgument));
        drop(rest);
        let (carved, copied) = (slab.carved_bytes(), slab.finish_upload().unwrap());
        assert_eq!(copied.iter().map(|copy| copy.size_bytes).sum::<usize>(), carved);
        drop(slab);
        let bytes = arrived();
        assert!(bytes[SECTION_BYTES..SECTION_BYTES + 232].iter().all(|&byte| byte == 2));
        assert!(bytes[SECTION_BYTES + 232..2 * SECTION_BYTES - 768].iter().all(|&byte| byte == 3));
        assert!(bytes[carved - 99..carved].iter().all(|&byte| byte == 4));
        assert!(bytes[carved..].iter().all(|&byte| byte == 0xEE));
    }
}

#[test]
fn a_series_of_slabs_fills_one_buffer() {
    for device in all_devices() {
        let stream = Stream::new(device).unwrap();
        let ring = SlabRing::new(device, 1 << 20, 64 << 20).unwrap();
        let dst = internal::pool::allocate(20 << 20, &stream).unwrap();
        stream.memset(&dst, 0xEE).unwrap();
        let mut series = ring.series(&dst, &stream);
        let mut random = Random::new(21);
        let mut expected: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut waiting: Vec<SlabPiece> = Vec::new();
        let mut sizes: Vec<usize> =
            (0..400).map(|_| random.bytes(2).iter().map(|&byte| usize::from(byte)).product()).collect();
        sizes.extend([0, 1, 1 << 18, (1 << 18) + 1, 600_000, 1 << 20, (1 << 20) + 1, 5 << 20, 0, 3]);
        for (number, size_bytes) in sizes.into_iter().enumerate() {
            let (at, mut piece) = series.carve(size_bytes).unwrap().unwrap();
            assert!(at.is_multiple_of(256) && piece.len() == size_bytes);
            let bytes = random.bytes(size_bytes);
            piece.copy_from_slice(&bytes);
            expected.push((at, bytes));
            // Pieces are given up in another order than they were carved.
            waiting.push(piece);
            if number % 3 == 0 {
                waiting.swap_remove(number % waiting.len());
            }
        }
        let held = series.finish().err().unwrap();
        assert_eq!(held.kind(), ErrorKind::InvalidArgument);
        assert!(held.message().contains("are still being filled"), "{held}");
        drop(waiting);
        let copied: usize = series.finish().unwrap().iter().map(|copy| copy.size_bytes).sum();
        assert!(copied <= series.carved_bytes());
        stream.synchronize().unwrap();
        let bytes = dst.to_vec().unwrap();
        for (at, piece) in expected {
            assert!(bytes[at..at + piece.len()] == piece);
        }
        assert!(bytes[series.carved_bytes()..].iter().all(|&byte| byte == 0xEE));
        assert!(series.carve(20 << 20).unwrap().is_none(), "the buffer has less room");
        drop(series);
        assert!(ring.try_acquire(64 << 20).unwrap().is_some(), "every slab came back");
    }
}

#[test]
fn slabs_of_a_series_come_back_while_it_goes_on() {
    for device in all_devices() {
        let stream = Stream::new(device).unwrap();
        // Room for three slabs, where the series needs twenty.
        let ring = SlabRing::new(device, 1 << 16, 3 << 16).unwrap();
        let dst = internal::pool::allocate(20 << 16, &stream).unwrap();
        let mut series = ring.series(&dst, &stream);
        for number in 0..80 {
            let (_, mut piece) = series.carve(1 << 14).unwrap().unwrap();
            piece.fill(number);
            drop(piece);
            stream.synchronize().unwrap();
        }
        series.finish().unwrap();
        stream.synchronize().unwrap();
        let bytes = dst.to_vec().unwrap();
        assert!(bytes.chunks(1 << 14).zip(0..).all(|(piece, number)| piece.iter().all(|&byte| byte == number)));
        assert!(ring.try_acquire(3 << 16).unwrap().is_some(), "all of them came back");
    }
}

#[test]
fn a_divided_piece_shows_all_bytes_once_its_parts_are_gone() {
    let ring = SlabRing::new(Device::Cpu, 1 << 20, 1 << 20).unwrap();
    let mut slab = ring.acquire(0).unwrap();
    let (mut first, mut other) = (slab.carve(100).unwrap(), slab.carve(50).unwrap());
    other.fill(9);
    assert_eq!(first.whole().map(<[u8]>::len), Some(100));
    let mut last = first.split_off(70);
    let mut middle = first.split_off(0);
    middle.fill(1);
    last.fill(2);
    assert!(first.is_empty() && first.whole().is_none() && last.whole().is_none());
    let rest = last.split_off(5);
    drop((middle, last));
    assert!(first.whole().is_none(), "the last part of a part is there still");
    drop(rest);
    assert_eq!(first.whole().unwrap(), [[1; 70].as_slice(), &[2; 30]].concat());
}

#[test]
fn a_stream_has_one_urgent_queue_that_is_ordered_by_events() {
    for device in all_devices() {
        let stream = Stream::new(device).unwrap();
        let urgent = stream.urgent().unwrap();
        assert!(urgent.is_same_queue(&stream.urgent().unwrap()));
        let buffer = internal::pool::allocate(1 << 20, &stream).unwrap();
        stream.memset(&buffer, 1).unwrap();
        urgent.wait(&stream.record().unwrap()).unwrap();
        urgent.memset(&buffer, 2).unwrap();
        stream.wait(&urgent.record().unwrap()).unwrap();
        drop(urgent);
        let mut bytes = vec![0; 1 << 20];
        stream.d2h(&buffer, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 2));
    }
}

#[test]
fn a_slab_carries_bytes_back_from_the_device() {
    for device in all_devices() {
        let stream = Stream::new(device).unwrap();
        let ring = SlabRing::new(device, 4096, 4096).unwrap();
        let bytes = Random::new(8).bytes(3000);
        let memory = Buffer::from_bytes(device, &bytes).unwrap();
        let mut slab = ring.acquire(3000).unwrap();
        slab.download(&memory, 1000, &stream).unwrap();
        assert!(slab.bytes().unwrap()[1000..4000] == bytes);
        assert_eq!(slab.carved_bytes(), 4000);
        assert!(slab.download(&memory, 2000, &stream).is_err());
        slab.reset().unwrap();
        assert_eq!(slab.room_bytes(), 4096);
    }
}

/// On a GPU the copy is still under way when the first threads look.
#[test]
fn threads_that_look_at_a_slab_together_all_wait_for_what_comes_back() {
    const SIZE_BYTES: usize = 64 << 20;
    for device in all_devices() {
        let stream = Stream::new(device).unwrap();
        let memory = internal::pool::allocate(SIZE_BYTES, &stream).unwrap();
        let mut slab = SlabRing::new(device, SIZE_BYTES, SIZE_BYTES).unwrap().acquire(0).unwrap();
        for round in 1..=3 {
            stream.memset(&memory, round).unwrap();
            slab.download(&memory, 0, &stream).unwrap();
            let slab = &slab;
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(move || assert_eq!(slab.bytes().unwrap().last(), Some(&round), "{device}"));
                }
            });
        }
    }
}

#[test]
fn a_ring_blocks_at_its_limit_until_a_slab_returns() {
    for device in all_devices() {
        let ring = SlabRing::new(device, 1 << 16, 2 << 16).unwrap();
        let [first, second] = [0, 1].map(|_| ring.acquire(0).unwrap());
        assert!(ring.try_acquire(0).unwrap().is_none());
        let returned = AtomicUsize::new(0);
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| {
                let slab = ring.acquire(0).unwrap();
                assert_eq!(returned.load(Ordering::SeqCst), 1);
                drop(slab);
            });
            std::thread::sleep(Duration::from_millis(20));
            returned.store(1, Ordering::SeqCst);
            drop(first);
            waiting.join().unwrap();
        });
        drop(second);
        // Everything came back.
        assert!(ring.try_acquire(0).unwrap().is_some());
    }
}

#[test]
fn slabs_above_the_ordinary_size_come_up_to_the_limit() {
    let _alone = alone();
    for device in all_devices() {
        let ring = SlabRing::new(device, 1 << 16, 5 << 20).unwrap();
        let large = ring.acquire(3 << 20).unwrap();
        assert!(large.size_bytes() >= 3 << 20);
        let refused = ring.acquire((5 << 20) + 1).map(|_| ()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BudgetExceeded);
        assert!(refused.message().contains("5242881") && refused.message().contains("5242880"), "{refused}");
        assert!(SlabRing::new(device, 0, 1).is_err());
    }
}

#[test]
fn slabs_are_used_again_across_rings() {
    let _alone = alone();
    for device in devices() {
        let size = 3 << 20;
        let slab_address = || {
            let ring = SlabRing::new(device, size, size).unwrap();
            let slab = ring.acquire(0).unwrap();
            slab.bytes().unwrap().as_ptr() as usize
        };
        let first = slab_address();
        assert!((0..5).all(|_| slab_address() == first), "{device}");
        assert!(pool::stats(device).pinned_bytes >= size as u64);
    }
}
