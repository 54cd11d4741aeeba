// Chains of tiles, by which sequences of literals and matches become bytes: what the kernels of `codec/lz` share.
#pragma once
#include "cuzarr/lz.cuh"
#include "cuzarr/lz_sequences.cuh"
#include "cuzarr/status.cuh"

/// Bytes of a tile that a thread owns.
#define CUZARR_LZ_OWN 32u
/// Most threads of a block, and most bytes of a tile.
#define CUZARR_LZ_THREADS 256u
#define CUZARR_LZ_TILE (CUZARR_LZ_THREADS * CUZARR_LZ_OWN)

/// Consecutive tiles of a unit: all of them, or a segment's. `Chain` in mod.rs.
struct LzChain {
    u64 dst;               // where the unit's output begins
    u64 literals;          // its memory of literals, in the source
    u64 scratch_literals;  // its second one, in scratch
    u64 first_sequence;
    u64 first_mark;
    u32 unit;              // number of its count
    u32 status;            // and of its status
    u32 begin;             // in the unit's output
    u32 bytes;
    u32 first_flag;        // of the chain's tiles
    u32 tiles_before;      // of the unit
};

/// One tile of a chain.
struct LzTile {
    u32 chain, tile;
};

/// The last sequence that begins at `at` or before; by a whole warp, 32 probes at a time.
CUZARR_DEVICE u32 lz_find(const LzSequence* sequences, u32 count, u32 at, u32 lane) {
    u32 low = 0, high = count;
    while (high - low > 1) {
        u32 step = (high - low + CUZARR_WARP - 1) / CUZARR_WARP, probe = low + lane * step;
        u32 votes = warp_ballot(CUZARR_ALL_LANES, probe < high && sequences[probe].out <= at);
        low += (31 - count_leading_zeros(votes | 1)) * step;
        high = high - low < step ? high : low + step;
    }
    return low;
}

/// Where the literals of a sequence lie.
CUZARR_DEVICE const u8* lz_literals(const LzChain& chain, const u8* src, const u8* scratch, u32 literals) {
    return (literals & CUZARR_LZ_SCRATCH ? scratch + chain.scratch_literals : src + chain.literals) + (literals & ~CUZARR_LZ_SCRATCH);
}

/// A whole tile of literals of one sequence, a warp's share each.
CUZARR_DEVICE void lz_copy(const u8* from, u8* to, u32 size) {
    u32 warps = thread_count() / CUZARR_WARP, share = ((size + warps - 1) / warps + 15) / 16 * 16;
    u32 first = thread_index() / CUZARR_WARP * share;
    if (first < size) copy_far(from + first, to + first, size - first < share ? size - first : share, thread_index() % CUZARR_WARP);
}
