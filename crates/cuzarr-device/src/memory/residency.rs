//! How much of a file is in the page cache.

use std::fs::File;
use std::ops::Range;

/// Number of bytes of a file's `range` that lie in the page cache, in whole pages. Nothing is read. `None` on Linux
/// before 6.5, and for a file of another user, since the answer would reveal that user's reads.
#[cfg(target_os = "linux")]
pub fn resident_bytes(file: &File, range: Range<u64>) -> Option<u64> {
    use crate::c_layout::c_layout;
    use std::ffi::{c_long, c_uint};
    use std::os::fd::AsRawFd;

    /// Number of the system call `cachestat`, the same on all architectures.
    const NUMBER: c_long = 451;

    #[repr(C)]
    struct ResidentSpan {
        offset: u64,
        size_bytes: u64,
    }

    /// Numbers of a file's pages in the page cache, as the system call `cachestat` reports them.
    #[repr(C)]
    #[derive(Default)]
    struct Counts {
        cached: u64,
        dirty: u64,
        written_back: u64,
        evicted: u64,
        recently_evicted: u64,
    }

    // `cachestat_range` and `cachestat` in linux/mman.h.
    c_layout! { ResidentSpan: 16 bytes { offset at 0, size_bytes at 8 } }
    c_layout! {
        Counts: 40 bytes { cached at 0, dirty at 8, written_back at 16, evicted at 24, recently_evicted at 32 }
    }

    unsafe extern "C" {
        fn syscall(number: c_long, ...) -> c_long;
    }

    let span = ResidentSpan { offset: range.start, size_bytes: range.end.saturating_sub(range.start) };
    if span.size_bytes == 0 {
        return Some(0); // the system call takes 0 as "up to the end of the file"
    }
    let (mut counts, file, flags) = (Counts::default(), file.as_raw_fd() as c_uint, 0 as c_uint);
    // SAFETY: `file` is open. Both structures have the layout of the call, as was checked above, and live through it.
    // The call writes only the second one. A system that does not know the call touches neither.
    let failed = unsafe { syscall(NUMBER, file, &raw const span, &raw mut counts, flags) };
    (failed == 0).then(|| counts.cached * rustix::param::page_size() as u64)
}

/// Always `None` here: only Linux 6.5 and later can tell which parts of a file are in the page cache.
#[cfg(not(target_os = "linux"))]
pub fn resident_bytes(_file: &File, _range: Range<u64>) -> Option<u64> {
    None
}
