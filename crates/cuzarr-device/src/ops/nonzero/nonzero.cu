// Positions of the bytes of a mask that are not 0.
//
// A warp handles a tile of the mask, each lane a run of its bytes.
//     nonzero_count: count the lane's bytes that are set; the warp's sum is the tile's count
//     (the host adds up the counts, which gives the start of each tile's positions)
//     nonzero_write: count again; the sum of the lanes below gives the start of the lane's positions
//
// Floor: the mask's bytes, twice / 4.3 TB/s on an H200, and the numbers.
#include "cuzarr/warp.cuh"

#define TILE_BYTES 4096u
#define LANE_BYTES (TILE_BYTES / CUZARR_WARP)

/// Returns a word with a 1 in the lowest bit of each byte that is not 0 in `word`.
CUZARR_DEVICE u64 set_bytes(u64 word) {
    return (((word & 0x7f7f7f7f7f7f7f7full) + 0x7f7f7f7f7f7f7f7full) | word) >> 7 & 0x0101010101010101ull;
}

/// Counts the bytes that are not 0. `mask` must be a multiple of 8.
CUZARR_DEVICE u32 count_set(const u8* mask, u64 first, u64 end) {
    u32 count = 0;
    u64 at = first;
    for (; at + 8 <= end; at += 8) count += (u32)(set_bytes(*(const u64*)(mask + at)) * 0x0101010101010101ull >> 56);
    for (; at < end; ++at) count += mask[at] != 0;
    return count;
}

/// Calls `action` for each tile of this warp, with the tile's number, the lane's bytes from `first` to `end`, and the
/// lane.
template <class Action>
CUZARR_DEVICE void for_each_tile(u64 size, Action action) {
    u32 warps = thread_count() / CUZARR_WARP, lane = thread_index() % CUZARR_WARP;
    u64 tiles = (size + TILE_BYTES - 1) / TILE_BYTES;
    u64 tile = (u64)block_index() * warps + thread_index() / CUZARR_WARP;
    for (; tile < tiles; tile += (u64)block_count() * warps) {
        u64 first = tile * TILE_BYTES + (u64)lane * LANE_BYTES;
        if (first > size) first = size;
        action(tile, first, first + LANE_BYTES < size ? first + LANE_BYTES : size, lane);
    }
}

CUZARR_KERNEL(nonzero_count, const u8* mask, u64 size, u32* counts) {
    for_each_tile(size, [&](u64 tile, u64 first, u64 end, u32 lane) {
        u32 count = warp_sum(count_set(mask, first, end));
        if (lane == 0) counts[tile] = count;
    });
}

CUZARR_KERNEL(nonzero_write, const u8* mask, u64 size, const u64* starts, u64* numbers) {
    for_each_tile(size, [&](u64 tile, u64 first, u64 end, u32 lane) {
        u32 own = count_set(mask, first, end);
        u64* next = numbers + starts[tile] + (inclusive_sum(own, lane) - own);
        for (u64 at = first; own > 0 && at < end; ++at) {
            if (mask[at] == 0) continue;
            *next++ = at;
            --own;
        }
    });
}
