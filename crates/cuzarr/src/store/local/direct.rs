//! Reads that bypass the page cache (`O_DIRECT`): bytes that are not in memory come from the drive in large aligned
//! parts.
//!
//! The parts are read into our own huge pages (landings) and copied from there, so the target needs no alignment. A
//! drive is slower if one read is scattered over many pages, or if reads lie far apart. Measured on a virtual drive
//! (virtio, 16 files of 64 MiB):
//!
//! | read | GB/s |
//! |---|---|
//! | into huge pages, 4 threads | 2.6 |
//! | into huge pages, 16 threads | 1.8 |
//! | into pages of 4 KiB, 4 threads | 1.8 |
//! | through the page cache | 1.5 |
//! | `io_uring` into registered huge pages, rings of 4 / 8 / 16 reads | 2.1 / 2.2 / 2.0 |
//!
//! `io_uring` is not used: it is not faster, and the reading threads exist anyway.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use cuzarr_device::internal::resident_bytes;
use cuzarr_device::{Buffer, Device, HostBytesMut, PerProcess};
use rustix::fs::OFlags;

/// Size in bytes of the smallest read that bypasses the page cache. Smaller reads go through the cache: their
/// neighbours are probably needed soon, perhaps by other processes.
pub(super) const LEAST_BYTES: usize = 64 << 10;

/// Alignment of offsets, sizes and addresses that every drive accepts.
const ALIGNMENT_BYTES: u64 = 4096;

/// Number of threads that may read around the page cache at once; a further thread waits for a short time. This keeps a
/// drive's queue full; with more, reads would lie further apart.
const MOST_READERS: usize = 4;

/// Maximum time that a thread waits for its turn to read around the page cache. After that, a thread reads anyway:
/// another drive may hang.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// Size of one read around the page cache, and of a landing, which is the memory that it fills: a huge page. Landings
/// are allocated in pairs.
const LANDING_BYTES: usize = 2 << 20;

/// Whether most of a range of a file is outside the page cache; false if the system does not say. A non-blocking read
/// (`RWF_NOWAIT`) could say it too, but would start reading the range through the page cache.
pub(super) fn is_cold(file: &File, range: Range<u64>) -> bool {
    let size_bytes = range.end - range.start;
    resident_bytes(file, range).is_some_and(|resident| resident < size_bytes / 2)
}

/// Counts `size_bytes` more bytes that this process reads through the page cache. Returns whether the cache has room
/// for them. It has none once the process has read more than half of the memory that was free at first: bytes would
/// then leave the cache before they are needed again.
pub(super) fn page_cache_has_room(size_bytes: usize) -> bool {
    static READ: AtomicU64 = AtomicU64::new(0);
    static ROOM: OnceLock<u64> = OnceLock::new();
    let read = READ.fetch_add(size_bytes as u64, Ordering::Relaxed);
    read < *ROOM.get_or_init(|| free_memory_bytes() / 2)
}

/// Bytes of memory that the machine can still use, or the limit of this process's cgroup if that is smaller.
fn free_memory_bytes() -> u64 {
    let available = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    let of_group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    available.map_or(0, |kib| kib << 10).min(of_group.unwrap_or(u64::MAX))
}

/// Opens the file once more, with a handle that bypasses the page cache; `None` if its file system does not support
/// that.
pub(super) fn open(file: &File) -> Option<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path).ok()
}

/// Fills `bytes` with the file's bytes from `offset` on, around the page cache. `file` comes from [`open`].
///
/// # Errors
/// `UnexpectedEof` when the file ends too early; else the system's error.
pub(super) fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    let mut landing = take_landing().map_err(io::Error::other)?;
    let filled = fill_by(&mut landing, file, bytes, offset);
    landings().push(landing);
    filled
}

fn fill_by(landing: &mut [u8], file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        let (at, rest) = (offset + filled as u64, &mut bytes[filled..]);
        let before = (at % ALIGNMENT_BYTES) as usize;
        let wanted = (before + rest.len()).next_multiple_of(ALIGNMENT_BYTES as usize).min(landing.len());
        let turn = DirectTurn::wait();
        let read = file.read_at(&mut landing[..wanted], at - before as u64);
        drop(turn);
        let count = match read {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            count => count?.min(before + rest.len()),
        };
        if count <= before {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        rest[..count - before].copy_from_slice(&landing[before..count]);
        filled += count - before;
    }
    Ok(())
}

/// Unused memory blocks, aligned so that drives can write into them directly, for reads around the page cache.
fn landings() -> MutexGuard<'static, Vec<HostBytesMut>> {
    static LANDINGS: PerProcess<Mutex<Vec<HostBytesMut>>> = PerProcess::new();
    LANDINGS.get().lock().unwrap_or_else(PoisonError::into_inner)
}

fn take_landing() -> cuzarr_device::Result<HostBytesMut> {
    if let Some(landing) = landings().pop() {
        return Ok(landing);
    }
    let mut both = Buffer::empty(Device::Cpu, 2 * LANDING_BYTES)?.host_bytes_mut()?;
    landings().push(both.split_off(LANDING_BYTES));
    Ok(both)
}

/// Counts the threads that read around the page cache now, so that there are not too many.
#[derive(Default)]
struct Readers {
    count: Mutex<usize>,
    ended: Condvar,
}

static READERS: PerProcess<Readers> = PerProcess::new();

/// The turn of one thread to read around the page cache; only a few threads have one at a time. Dropping it lets
/// another thread read.
struct DirectTurn;

impl DirectTurn {
    fn wait() -> DirectTurn {
        let readers = READERS.get();
        let count = readers.count.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |count: &mut usize| *count >= MOST_READERS;
        let waited = readers.ended.wait_timeout_while(count, LONGEST_WAIT, full);
        *waited.unwrap_or_else(PoisonError::into_inner).0 += 1;
        DirectTurn
    }
}

impl Drop for DirectTurn {
    fn drop(&mut self) {
        let readers = READERS.get();
        *readers.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        readers.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The byte that test files have at the offset `at`.
    fn byte(at: u64) -> u8 {
        (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
    }

    /// Makes a file that is not in the page cache, with handles for both ways of reading. It lies in the working
    /// directory, which is more often on a real file system than the directory of temporary files.
    fn cold_file(size_bytes: u64) -> (tempfile::NamedTempFile, File, Option<File>) {
        let named = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let bytes: Vec<u8> = (0..size_bytes).map(byte).collect();
        std::fs::write(named.path(), bytes).unwrap();
        let file = File::open(named.path()).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let around = open(&file);
        (named, file, around)
    }

    #[test]
    fn reads_any_range_around_the_page_cache() {
        let size_bytes = 5 * LANDING_BYTES as u64 / 2 + 1237;
        let (_named, file, around) = cold_file(size_bytes);
        let Some(around) = around else { return println!("skipped: this file system has no O_DIRECT") };
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        let mut ranges = vec![0..size_bytes, 0..0, size_bytes - 1..size_bytes, 4095..4097, 4096..8192, 1..size_bytes];
        ranges.extend((0..60).map(|_| {
            let start = random(size_bytes);
            start..start + random(size_bytes - start)
        }));
        for range in ranges {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            read_exact_at(&around, &mut bytes, range.start).unwrap();
            assert!(bytes.iter().zip(range.clone()).all(|(&got, at)| got == byte(at)), "{range:?}");
        }
        let mut bytes = vec![0; 5000];
        let beyond = read_exact_at(&around, &mut bytes, size_bytes - 4999).unwrap_err();
        assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof);
        if resident_bytes(&file, 0..size_bytes).is_some() {
            assert!(is_cold(&file, 0..size_bytes), "nothing of that went through the page cache");
        }
    }

    #[test]
    fn what_was_read_through_the_page_cache_is_not_cold() {
        let (_named, file, _) = cold_file(300_000);
        file.read_exact_at(&mut vec![0; 300_000], 0).unwrap();
        assert!(!is_cold(&file, 0..300_000) && !is_cold(&file, 100..200));
    }
}
