// Turns the marks of `lz_marks` into bytes, once all segments before are bytes: see lz.cu.
#include "codec/lz/lz_chains.cuh"
#include "cuzarr/status.cuh"

/// Replaces marks that are places by the bytes there, one load for each.
CUZARR_DEVICE void lz_gather_bytes(const u8* unit, u32 count, u32 (*groups)[4], const u32* ats) {
#pragma unroll
    for (u32 group = 0; group < CUZARR_LZ_TOGETHER; ++group) {
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            u32 from = groups[group][k] - CUZARR_LZ_TILE;
            if (ats[group] + k < count && groups[group][k] < CUZARR_LZ_LITERAL) groups[group][k] = unit[from];
        }
    }
}

/// Like `lz_gather_bytes`, for tiles where most bytes are open, in short runs. Their sources mostly lie in one or two
/// aligned words, and each word is loaded once. Touches up to 3 bytes around a place.
CUZARR_DEVICE void lz_gather_words(const u8* unit, u32 count, u32 (*groups)[4], const u32* ats) {
    u32 skew = (u32)((u64)unit & 3), words[CUZARR_LZ_TOGETHER][4];
    const u32* base = (const u32*)(unit - skew);
    auto is_open = [&](u32 group, u32 k) { return ats[group] + k < count && groups[group][k] < CUZARR_LZ_LITERAL; };
    auto word = [&](u32 group, u32 k) { return (groups[group][k] - CUZARR_LZ_TILE + skew) / 4; };
    auto is_again = [&](u32 group, u32 k) { return k && is_open(group, k - 1) && word(group, k) == word(group, k - 1); };
#pragma unroll
    for (u32 group = 0; group < CUZARR_LZ_TOGETHER; ++group) {
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            if (is_open(group, k) && !is_again(group, k)) words[group][k] = base[word(group, k)];
        }
    }
#pragma unroll
    for (u32 group = 0; group < CUZARR_LZ_TOGETHER; ++group) {
        u32 held = 0, bytes[4];
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            bytes[k] = groups[group][k];
            if (!is_open(group, k)) continue;
            if (!is_again(group, k)) held = words[group][k];
            bytes[k] = held >> (groups[group][k] - CUZARR_LZ_TILE + skew) % 4 * 8;
        }
#pragma unroll
        for (u32 k = 0; k < 4; ++k) groups[group][k] = bytes[k];
    }
}

/// Turns a tile's marks into bytes. `settled` counts the tiles of each unit whose bytes are there. Tiles of a segment
/// wait for all tiles before the segment.
template <bool Words>
CUZARR_DEVICE void lz_settle_tile(
    const u32* marks, u8* dst, const LzChain* chains, const LzTile* tiles, const u64* statuses, u32* ticket, const u32* done, u32* settled
) {
    CUZARR_SHARED(u32, shared, 1);
    u32 thread = thread_index(), tile_bytes = thread_count() * CUZARR_LZ_OWN;
    if (thread == 0) shared[0] = atomic_add(ticket, 1u);
    block_barrier();
    LzTile tile = tiles[shared[0]];
    LzChain chain = chains[tile.chain];
    if (statuses[chain.status]) return;
    u32 begin = chain.begin + tile.tile * tile_bytes, size = chain.bytes - tile.tile * tile_bytes;
    size = size < tile_bytes ? size : tile_bytes;
    u8* unit = dst + chain.dst;
    marks += chain.first_mark;
    // A tile that waits for this one waits for all before it.
    bool is_final = done[chain.first_flag + tile.tile] == CUZARR_LZ_FINAL;
    if (is_final) size = 0;
    u32 bytes[CUZARR_LZ_GROUPS][4];
#pragma unroll
    for (u32 group = 0; group < CUZARR_LZ_GROUPS; ++group) {
        u32 at = (group * thread_count() + thread) * 4;
        if (at >= size) continue;
        uint4 four = *(const uint4*)(marks + (begin - chain.begin) + at);
        bytes[group][0] = four.x, bytes[group][1] = four.y, bytes[group][2] = four.z, bytes[group][3] = four.w;
    }
    if (thread == 0) {
        while (volatile_load(settled + chain.unit) < chain.tiles_before) spin_yield();
        // With the barrier, this orders other blocks' stores before this block's loads, which may use the first-level
        // cache.
        device_fence();
    }
    block_barrier();
#pragma unroll
    for (u32 first = 0; first < CUZARR_LZ_GROUPS; first += CUZARR_LZ_TOGETHER) {
        u32 ats[CUZARR_LZ_TOGETHER];
#pragma unroll
        for (u32 group = 0; group < CUZARR_LZ_TOGETHER; ++group) ats[group] = ((first + group) * thread_count() + thread) * 4;
        if (Words) lz_gather_words(unit, size, bytes + first, ats);
        else lz_gather_bytes(unit, size, bytes + first, ats);
    }
#pragma unroll
    for (u32 group = 0; group < CUZARR_LZ_GROUPS; ++group) {
        u32 at = (group * thread_count() + thread) * 4;
        if (at < size) lz_store(unit + begin + at, bytes[group], size - at);
    }
    block_barrier();
    if (thread == 0) {
        device_fence();
        atomic_add(settled + chain.unit, 1u);
    }
}

CUZARR_KERNEL(
    lz_settle, const u32* marks, u8* dst, const LzChain* chains, const LzTile* tiles, const u64* statuses, u32* ticket, const u32* done, u32* settled
) {
    lz_settle_tile<false>(marks, dst, chains, tiles, statuses, ticket, done, settled);
}

/// Like `lz_settle`, for short sequences.
CUZARR_KERNEL(
    lz_settle_short, const u32* marks, u8* dst, const LzChain* chains, const LzTile* tiles, const u64* statuses, u32* ticket, const u32* done, u32* settled
) {
    lz_settle_tile<true>(marks, dst, chains, tiles, statuses, ticket, done, settled);
}
