// Copies the table of a launch from pinned host memory, which the GPU can read directly.
//
// A copy engine would first copy the large slabs that are queued. A decoder needs several small tables one after the
// other, so each of them would wait for slabs.
#include "cuzarr/kernel.cuh"

/// Copies `words` words of 8 bytes, then `rest` bytes.
CUZARR_KERNEL(table_fetch, const u8* src, u8* dst, u64 words, u32 rest) {
    const u64 thread = (u64)block_index() * thread_count() + thread_index();
    for (u64 at = thread; at < words; at += (u64)block_count() * thread_count()) ((u64*)dst)[at] = ((const u64*)src)[at];
    if (thread < rest) dst[words * 8 + thread] = src[words * 8 + thread];
}
