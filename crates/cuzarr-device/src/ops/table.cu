// Brings a table of a launch from pinned host memory, which the GPU reads where it is.
//
// A copy engine would take it as well, but behind whatever large copies are queued there, and a decoder needs several small
// tables one after the other: it would wait for as many slabs to cross the bus.
#include "cuzarr/kernel.cuh"

/// `words` words of 8 bytes, then `rest` bytes.
CUZARR_KERNEL(table_fetch, const u8* src, u8* dst, u64 words, u32 rest) {
    const u64 thread = (u64)block_index() * thread_count() + thread_index();
    for (u64 at = thread; at < words; at += (u64)block_count() * thread_count()) ((u64*)dst)[at] = ((const u64*)src)[at];
    if (thread < rest) dst[words * 8 + thread] = src[words * 8 + thread];
}
