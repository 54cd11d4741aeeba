//! Host memory that this crate allocates.
//!
//! Large memory comes directly from the system, in huge pages if it grants them. With small pages, a result of 1 GiB
//! would cost a quarter of a million page faults, which take longer than decoding into it.

use std::alloc;
use std::ptr::NonNull;

#[cfg(target_os = "linux")]
use rustix::mm::{self, MapFlags, ProtFlags};

use crate::error::{Error, ErrorKind, Result};

/// Alignment of host memory in bytes: a cache line, and the widest vector registers.
const ALIGNMENT_BYTES: usize = 64;

/// Host memory of at least this size is mapped from the system (`mmap`) instead of taken from the allocator.
#[cfg(target_os = "linux")]
const MAPPED_BYTES: usize = 4 << 20;

/// Size of huge pages on x86-64, and on aarch64 with 4 KiB pages.
#[cfg(target_os = "linux")]
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A block of host memory, which is freed when this value is dropped.
pub(crate) struct HostMemory {
    pointer: NonNull<u8>,
    source: Source,
}

enum Source {
    Allocator(alloc::Layout),
    #[cfg(target_os = "linux")]
    Mapping {
        size_bytes: usize,
    },
}

// SAFETY: it only owns the memory, which any thread may free; buffers that access the memory hold leases.
unsafe impl Send for HostMemory {}
// SAFETY: nothing is read or written through a shared reference to the owner.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Allocates host memory of zeros, which safe code may read before anything was written.
    ///
    /// # Errors
    /// `OutOfMemory`
    pub(crate) fn zeroed(size_bytes: usize) -> Result<HostMemory> {
        #[cfg(target_os = "linux")]
        if size_bytes >= MAPPED_BYTES {
            return HostMemory::map(size_bytes).ok_or_else(|| out_of_memory(size_bytes));
        }
        let layout = alloc::Layout::from_size_align(size_bytes.max(1), ALIGNMENT_BYTES);
        let layout = layout.map_err(|_| out_of_memory(size_bytes))?;
        // SAFETY: the layout's size is not zero.
        let pointer = NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).ok_or_else(|| out_of_memory(size_bytes))?;
        Ok(HostMemory { pointer, source: Source::Allocator(layout) })
    }

    /// Maps zero pages from the system, aligned to huge pages.
    #[cfg(target_os = "linux")]
    fn map(size_bytes: usize) -> Option<HostMemory> {
        let size_bytes = size_bytes.checked_next_multiple_of(HUGE_PAGE_BYTES)?;
        let wide = size_bytes.checked_add(HUGE_PAGE_BYTES)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the mapping is new and only this function knows it. Only its ends are unmapped, outside the returned
        // memory.
        unsafe {
            let base = mm::mmap_anonymous(std::ptr::null_mut(), wide, access, MapFlags::PRIVATE).ok()?;
            let address = base as usize;
            let start = address.next_multiple_of(HUGE_PAGE_BYTES);
            let (before, after) = (start - address, address + wide - (start + size_bytes));
            // A failed `munmap` only wastes addresses, and a failed advice only costs huge pages.
            if before > 0 {
                let _ = mm::munmap(base, before);
            }
            if after > 0 {
                let _ = mm::munmap((start + size_bytes) as *mut _, after);
            }
            advise_huge_pages(start, size_bytes);
            Some(HostMemory { pointer: NonNull::new(start as *mut u8)?, source: Source::Mapping { size_bytes } })
        }
    }

    /// The address of the block's first byte.
    pub(crate) fn address(&self) -> usize {
        self.pointer.as_ptr() as usize
    }
}

/// Asks the system to back large memory with huge pages. This is a hint, and may fail.
pub(crate) fn advise_huge_pages(address: usize, size_bytes: usize) {
    #[cfg(target_os = "linux")]
    if size_bytes >= MAPPED_BYTES {
        let start = address.next_multiple_of(HUGE_PAGE_BYTES);
        let end = (address + size_bytes) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        // SAFETY: the advice changes neither what the memory holds nor who may use it.
        let _ = unsafe { mm::madvise(start as *mut _, end.saturating_sub(start), mm::Advice::LinuxHugepage) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (address, size_bytes);
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: `zeroed` allocated or mapped the memory with exactly this size. The owner is dropped once.
        unsafe {
            match self.source {
                Source::Allocator(layout) => alloc::dealloc(self.pointer.as_ptr(), layout),
                #[cfg(target_os = "linux")]
                Source::Mapping { size_bytes } => {
                    let _ = mm::munmap(self.pointer.as_ptr().cast(), size_bytes);
                }
            }
        }
    }
}

fn out_of_memory(size_bytes: usize) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("the host has no {size_bytes} bytes left"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_any_size_is_aligned_zero_and_writable_to_the_end() {
        for size_bytes in [0, 1, 63, 4096, (4 << 20) - 1, 4 << 20, (9 << 20) + 1] {
            let memory = HostMemory::zeroed(size_bytes).unwrap();
            assert_eq!(memory.address() % ALIGNMENT_BYTES, 0);
            // SAFETY: this many bytes, which no other code knows, zeroed.
            let bytes = unsafe { std::slice::from_raw_parts_mut(memory.address() as *mut u8, size_bytes) };
            assert!(bytes.iter().all(|&byte| byte == 0), "{size_bytes}");
            bytes.fill(7);
            assert!(bytes.last().is_none_or(|&byte| byte == 7));
        }
        assert_eq!(HostMemory::zeroed(usize::MAX).err().map(|error| error.kind()), Some(ErrorKind::OutOfMemory));
        assert_eq!(HostMemory::zeroed(1 << 60).err().map(|error| error.kind()), Some(ErrorKind::OutOfMemory));
    }
}
