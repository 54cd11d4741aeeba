// What the encoders of all codecs share: which chunks are encoded at all, and where their frames lie.
#include "codec/batch/encode/encoded.cuh"
#include "cuzarr/warp.cuh"

/// Whether two elements of `bytes` bytes at most are NaNs. `kind`: 0 no floats, else bytes of a binary one; 3 bfloat16.
CUZARR_DEVICE bool is_nan(const u8* at, u32 kind) {
    if (kind == 2) return ((u32)at[0] | (u32)(at[1] & 0x7f) << 8) > 0x7c00u;
    if (kind == 3) return ((u32)at[0] | (u32)(at[1] & 0x7f) << 8) > 0x7f80u;
    if (kind == 4) return (load_u32(at) & 0x7fffffffu) > 0x7f800000u;
    u32 high = load_u32(at + 4) & 0x7fffffffu;
    return high > 0x7ff00000u || (high == 0x7ff00000u && load_u32(at) != 0);
}

/// Tells of each chunk whether it differs from `blank`, in 256 bytes a step of a block. NaNs of any bits are the same.
CUZARR_KERNEL(encode_differs, const u8* chunks, const u8* blank, u64 stride, u32 count, u32 size, u32 nan, u32* differs) {
    u32 unit = nan == 3 ? 2 : nan ? nan : 1;
    for (u32 chunk = block_index(); chunk < count; chunk += block_count()) {
        const u8* from = chunks + chunk * stride;
        for (u32 first = 0; first < size; first += thread_count() * 16) {
            // A thread that finds a difference tells the block by memory. Late news only cost a step.
            if (volatile_load(differs + chunk)) break;
            u32 begin = first + thread_index() * 16, end = begin + 16 < size ? begin + 16 : size;
            bool same = true;
            if (begin + 16 <= size) {
                const uint4 a = *(const uint4*)(from + begin), b = *(const uint4*)(blank + begin);
                same = a.x == b.x && a.y == b.y && a.z == b.z && a.w == b.w;
            }
            if (same && begin + 16 <= size) continue;
            for (u32 at = begin; at < end; at += unit) {
                bool equal = true;
                for (u32 k = 0; k < unit; ++k) equal = equal && from[at + k] == blank[at + k];
                if (!equal && !(nan && is_nan(from + at, nan) && is_nan(blank + at, nan))) volatile_store(differs + chunk, 1);
            }
        }
    }
}

CUZARR_DEVICE u64 aligned(u64 size) { return (size + CUZARR_FRAME_ALIGNMENT - 1) & ~(u64)(CUZARR_FRAME_ALIGNMENT - 1); }

/// Entries of a lane at a time, which are on their way together.
#define CUZARR_ENCODED_ENTRIES 8u

/// One warp completes all entries, whose sizes are there.
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
