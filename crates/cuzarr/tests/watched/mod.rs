//! What work takes of a device and of pinned memory, as our pool and the driver see it. Tests of memory limits share this.

#![allow(dead_code)] // each test file uses its part

use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuzarr_device::{Buffer, Device, internal, pool};
use serde_json::{Value, json};

use super::model::{devices, say_skipped};

pub const SIDE: u64 = 512;
pub const CHUNK: u64 = 64;
pub const CHUNK_BYTES: u64 = CHUNK * CHUNK * 4;
/// Tables of kernels, statuses: what is not counted because it is small beside everything else.
pub const TABLES_BYTES: u64 = 64 << 10;
/// Small limits are rounded up to whole ones.
pub const UNIT_BYTES: u64 = 2 << 20;
/// The ring that carries tables of kernels.
pub const TABLES_IN_PINNED_BYTES: u64 = 64 << 20;

/// Numbers of the process mean something while one test at a time uses devices.
pub fn alone() -> MutexGuard<'static, ()> {
    static DEVICES: Mutex<()> = Mutex::new(());
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn blosc() -> Value {
    json!({"name": "blosc", "configuration":
        {"cname": "lz4", "clevel": 5, "shuffle": "noshuffle", "typesize": 4, "blocksize": 4096}})
}

/// The most that our pool gave on `device` while `work` ran, beyond what was in use before.
pub fn peak(device: Device, work: impl FnOnce()) -> u64 {
    pool::trim(device).unwrap();
    pool::reset_peak(device);
    let before = pool::stats(device).used_bytes;
    work();
    pool::stats(device).peak_bytes - before
}

/// The same for work within a small limit, of which is also seen that it took no more of the driver.
pub fn peak_within(limit: u64, device: Device, work: impl FnOnce()) -> u64 {
    pool::trim(device).unwrap();
    let before = pool::stats(device);
    let peak = peak(device, work);
    let now = pool::stats(device);
    let kept = now.held_bytes - before.held_bytes;
    println!("within {limit}: {peak} counted, {kept} kept, {} refusals", now.refusals - before.refusals);
    assert!(kept > 0 && kept <= limit.next_multiple_of(UNIT_BYTES), "{device} gave {kept} bytes, allowed {limit}");
    peak
}

/// Memory of the device until it gives no more: of pools, and of what small limits take.
pub fn fill_up(device: Device) -> Vec<Buffer> {
    let mut held = fill_once(device);
    let _within = internal::pool::within(device, 1);
    held.extend(fill_once(device));
    held
}

pub fn fill_once(device: Device) -> Vec<Buffer> {
    let (mut held, mut size_bytes) = (Vec::new(), 1usize << 40);
    while size_bytes >= 256 {
        match internal::pool::allocate_on(device, size_bytes) {
            Ok(block) => held.push(block),
            Err(error) => {
                assert_eq!(error.kind(), cuzarr_device::ErrorKind::OutOfMemory, "{error}");
                size_bytes /= 2;
            }
        }
    }
    held
}

/// What the driver takes for itself meanwhile, for streams and events.
pub const DRIVERS_OWN_BYTES: u64 = 4 << 20;

/// What the driver may miss beside results.
pub fn allowed(limit: u64) -> u64 {
    limit.next_multiple_of(UNIT_BYTES) + DRIVERS_OWN_BYTES
}

/// The GPU, if there is one that nobody else uses.
pub fn gpu_alone() -> Option<Device> {
    let device = Device::Cuda(0);
    if !devices().contains(&device) || std::env::var_os("CUZARR_REQUIRE_GPU").is_none() {
        say_skipped("no GPU, or CUZARR_REQUIRE_GPU is not set");
        return None;
    }
    Some(device)
}

/// The most that was taken while work ran three times.
pub struct Taken {
    /// By our pool, as it counts.
    pub counted: u64,
    /// Of the device, as its driver tells.
    pub device: u64,
    /// Of pinned memory, as Linux tells: the driver takes it from shared memory.
    pub pinned: u64,
    /// Times that the pool had no room in one piece within the limit.
    pub refusals: u64,
}

impl Display for Taken {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [counted, device, pinned] = [self.counted, self.device, self.pinned].map(|bytes| bytes >> 20);
        write!(f, "{counted} MiB counted, {device} missed by the driver, {pinned} pinned, {} refusals", self.refusals)
    }
}

/// What `work` takes; nothing where others took or gave back memory of the device meanwhile.
pub fn watched(device: Device, work: &(dyn Fn() + Sync)) -> Option<Taken> {
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
pub fn outside(device: Device) -> (u64, u64) {
    let (free, total) = pool::memory_info(device).unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let shared = status.lines().find_map(|line| line.strip_prefix("RssShmem:")).unwrap();
    let kibibytes: u64 = shared.trim().trim_end_matches(" kB").parse().unwrap();
    (total - free, kibibytes << 10)
}

/// The most of what [`outside`] tells while `work` runs three times.
pub fn most_taken(device: Device, work: &(dyn Fn() + Sync)) -> (u64, u64) {
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
