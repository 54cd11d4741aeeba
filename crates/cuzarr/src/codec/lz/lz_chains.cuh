// Chains of tiles, by which sequences of literals and matches become bytes: what the kernels of `codec/lz` share.
#pragma once
#include "codec/lz/lz.cuh"
#include "codec/lz/lz_sequences.cuh"
#include "cuzarr/status.cuh"
#include "cuzarr/warp.cuh"

/// Bytes of a tile that a thread owns.
#define CUZARR_LZ_OWN 32u
/// Most threads of a block, and most bytes of a tile.
#define CUZARR_LZ_THREADS 256u
#define CUZARR_LZ_TILE (CUZARR_LZ_THREADS * CUZARR_LZ_OWN)

/// Groups of 4 of the bytes that a thread owns.
#define CUZARR_LZ_GROUPS 8u
/// A link from here on is a literal, its lowest byte. Below CUZARR_LZ_TILE: a byte of this tile. Between: CUZARR_LZ_TILE more
/// than the place of an earlier byte of the unit.
#define CUZARR_LZ_LITERAL 0xffffff00u
/// Groups of a thread whose loads are on their way at the same time.
#define CUZARR_LZ_TOGETHER 4u

/// The values of a tile's flag: its bytes or marks are there; its bytes are there, and it has no marks. Of those a segment has at most so
/// many, among its first tiles.
#define CUZARR_LZ_DONE 1u
#define CUZARR_LZ_FINAL 2u
#define CUZARR_LZ_FINALS 1024u

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
static_assert(sizeof(LzChain) == 64 && sizeof(LzTile) == 8, "as mod.rs writes them");

/// The last sequence that begins at `at` or before; by a whole warp, 32 probes at a time.
CUZARR_DEVICE u32 lz_find(const LzSequence* sequences, u32 count, u32 at, u32 lane) {
    u32 low = 0, high = count;
    while (high - low > 1) {
        u32 step = (high - low + CUZARR_WARP - 1) / CUZARR_WARP, probe = low + lane * step;
        u32 votes = warp_ballot(CUZARR_ALL_LANES, probe < high && sequences[probe].out <= at);
        low += highest_bit(votes | 1) * step;
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

/// Four bytes, or what there is of them, to their place.
CUZARR_DEVICE void lz_store(u8* to, const u32* bytes, u32 count) {
    if (count >= 4 && (u64)to % 4 == 0) {
        *(u32*)to = (bytes[0] & 255) | (bytes[1] & 255) << 8 | (bytes[2] & 255) << 16 | bytes[3] << 24;
    } else {
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            if (k < count) to[k] = (u8)bytes[k];
        }
    }
}
