//! Memory of work within limits. In a program of its own, because limits and their numbers are those of the process.

mod device;

use std::sync::{Mutex, MutexGuard, PoisonError};

use cuzarr_device::{Buffer, Stream, internal, pool};
use device::{Random, devices};

/// One test at a time uses devices.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Limits change while memory taken within another one is in use, freed behind work of its stream, and outlives its work.
#[test]
fn work_within_different_limits_goes_on_side_by_side() {
    let _alone = alone();
    for device in devices() {
        let worker = |number: u8| {
            let stream = Stream::new(device).unwrap();
            let mut kept: Option<(u8, Buffer)> = None;
            for turn in 0..60 {
                let limit = [20, 33, 64, 520, 700][usize::from(number + turn) % 5];
                let _within = internal::pool::within(device, limit << 20);
                let block = internal::pool::allocate((1 + usize::from(turn) % 4) << 20, &stream).unwrap();
                stream.memset(&block, number ^ turn).unwrap();
                if let Some((value, before)) = kept.replace((number ^ turn, block)) {
                    assert!(before.to_vec().unwrap().iter().all(|&byte| byte == value), "{device}");
                }
            }
        };
        std::thread::scope(|scope| (0..6).for_each(|number| drop(scope.spawn(move || worker(number)))));
        assert_eq!(pool::stats(device).used_bytes, 0, "{device}");
    }
}

/// Within a small limit the device gives no more than the limit, however blocks lie; what finds no room in one piece is memory
/// all the same.
#[test]
fn a_small_limit_holds_however_blocks_lie() {
    let _alone = alone();
    for device in devices() {
        pool::trim(device).unwrap();
        let stream = Stream::new(device).unwrap();
        let (limit, mib) = (9 << 20, 1 << 20);
        let before = pool::stats(device);
        let within = internal::pool::within(device, limit);
        let mut blocks: Vec<Buffer> = (0..9).map(|_| internal::pool::allocate(mib, &stream).unwrap()).collect();
        let held = pool::stats(device).held_bytes - before.held_bytes;
        assert!(held >= limit && held <= limit.next_multiple_of(2 << 20), "{device}: {held}");
        // Every other one, and two that lie beside each other somewhere.
        for at in [7, 5, 3, 1, 0] {
            drop(blocks.remove(at));
        }
        let source = Buffer::from_bytes(device, &Random::new(3).bytes(3 * mib)).unwrap();
        for (size_bytes, has_room) in [(mib, true), (2 * mib, true), (3 * mib, false), (2 * mib + 8, false)] {
            let refusals = pool::stats(device).refusals;
            let block = internal::pool::allocate(size_bytes, &stream).unwrap();
            assert_eq!(pool::stats(device).refusals == refusals, has_room, "{device}: {size_bytes}");
            stream.memset(&block, 1).unwrap();
            stream.d2d(&source.slice(..size_bytes).unwrap(), &block).unwrap();
            let other = Stream::new(device).unwrap();
            other.wait(&stream.record().unwrap()).unwrap();
            let back = internal::pool::allocate(size_bytes / 8, &other).unwrap();
            other.d2d(&block.slice(size_bytes / 2..size_bytes / 2 + size_bytes / 8).unwrap(), &back).unwrap();
            drop(block);
            let range = size_bytes / 2..size_bytes / 2 + size_bytes / 8;
            assert!(back.to_vec().unwrap() == source.slice(range).unwrap().to_vec().unwrap(), "{device}: {size_bytes}");
        }
        let now = pool::stats(device).held_bytes - source.size_bytes() as u64 - before.held_bytes;
        assert!(now <= held + (2 << 20), "{device}: {now} bytes were taken of the driver");
        drop((blocks, within, source));
        // All of it in one piece again, and another size when a limit says so.
        for limit in [9usize, 4, 700, 9] {
            let _within = internal::pool::within(device, (limit as u64) << 20);
            let refusals = pool::stats(device).refusals;
            drop(internal::pool::allocate(limit.min(9) << 20, &stream).unwrap());
            assert_eq!(pool::stats(device).refusals, refusals, "{device}: {limit} MiB");
        }
        pool::trim(device).unwrap();
        assert_eq!(pool::stats(device).held_bytes, before.held_bytes, "{device}");
    }
}
