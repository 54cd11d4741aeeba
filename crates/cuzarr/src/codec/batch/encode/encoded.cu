// Kernels that the encoders of all codecs share: which chunks are encoded at all, and where their frames lie.
#include "codec/batch/encode/encoded.cuh"
#include "cuzarr/warp.cuh"

/// Compares `compared[chunk]` bytes of each chunk with `blank`, 16 bytes for each thread at a time. Chunks that differ
/// get `encoded[chunk]` as their size in `sizes`, which are 0 at first.
CUZARR_KERNEL(
    encode_differs, const u8* chunks, const u8* blank, u64 stride, u32 count, const u32* compared, const u32* encoded, u32* sizes
) {
    for (u32 chunk = block_index(); chunk < count; chunk += block_count()) {
        const u8* from = chunks + chunk * stride;
        u32 size = compared[chunk];
        for (u32 first = 0; first < size; first += thread_count() * 16) {
            // A thread that finds a difference tells its block through `sizes`. If others see it late, that only costs
            // a step.
            if (volatile_load(sizes + chunk)) break;
            u32 begin = first + thread_index() * 16, end = begin + 16 < size ? begin + 16 : size;
            bool same = true;
            if (begin + 16 <= size) {
                const uint4 a = *(const uint4*)(from + begin), b = *(const uint4*)(blank + begin);
                same = a.x == b.x && a.y == b.y && a.z == b.z && a.w == b.w;
            } else {
                for (u32 at = begin; at < end; ++at) same = same && from[at] == blank[at];
            }
            if (!same) volatile_store(sizes + chunk, encoded[chunk]);
        }
    }
}

CUZARR_DEVICE u64 aligned(u64 size) { return (size + CUZARR_FRAME_ALIGNMENT - 1) & ~(u64)(CUZARR_FRAME_ALIGNMENT - 1); }

/// Number of entries that a lane loads at the same time.
#define CUZARR_ENCODED_ENTRIES 8u

/// Fills in where each frame begins, in entries that hold the frames' sizes. One warp does it.
CUZARR_KERNEL(encode_places, EncodedFrame* frames, u32 count) {
    u32 lane = thread_index();
    u64 begin = 0;
    for (u32 first = 0; first < count; first += CUZARR_WARP * CUZARR_ENCODED_ENTRIES) {
        u32 own = first + lane * CUZARR_ENCODED_ENTRIES, sizes[CUZARR_ENCODED_ENTRIES];
        u64 sum = 0;
        for (u32 i = 0; i < CUZARR_ENCODED_ENTRIES; ++i) sizes[i] = own + i < count ? frames[own + i].size : 0;
        for (u32 i = 0; i < CUZARR_ENCODED_ENTRIES; ++i) sum += aligned(sizes[i]);
        u64 end = inclusive_sum(sum, lane), at = begin + end - sum;
        for (u32 i = 0; i < CUZARR_ENCODED_ENTRIES; ++i) {
            if (own + i < count) frames[own + i].at = at;
            at += aligned(sizes[i]);
        }
        begin += warp_shuffle(CUZARR_ALL_LANES, end, CUZARR_WARP - 1);
    }
}
