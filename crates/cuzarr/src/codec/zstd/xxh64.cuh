// XXH64 with seed 0, by one warp: four lanes carry the four chains that the hash has, 32 bytes a round. The chains cannot be
// cut, so a frame goes at about 2 GB/s, however many threads there are; many frames go side by side.
//
// https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
#pragma once
#include "cuzarr/kernel.cuh"

#define CUZARR_XXH_1 0x9e3779b185ebca87ull
#define CUZARR_XXH_2 0xc2b2ae3d27d4eb4full
#define CUZARR_XXH_3 0x165667b19e3779f9ull
#define CUZARR_XXH_4 0x85ebca77c2b2ae63ull
#define CUZARR_XXH_5 0x27d4eb2f165667c5ull

CUZARR_DEVICE u64 rotate_left(u64 value, u32 by) { return value << by | value >> (64 - by); }
CUZARR_DEVICE u64 xxh64_round(u64 chain, u64 word) {
    return rotate_left(chain + word * CUZARR_XXH_2, 31) * CUZARR_XXH_1;
}
/// Loads a little-endian word of 8 or 4 bytes from any address.
CUZARR_DEVICE u64 load_word(const u8* from, u32 bytes) {
    u64 word = 0;
    if (bytes == 8 && ((u64)from & 7) == 0) return *(const u64*)from;
    for (u32 i = 0; i < bytes; ++i) word |= (u64)from[i] << 8 * i;
    return word;
}

/// Returns the XXH64 of `size` bytes. All lanes call with the same arguments and get the same hash.
CUZARR_DEVICE u64 xxh64(const u8* from, u32 size, u32 lane) {
    u32 stripes = size / 32, part = lane % 4;
    u64 hash = CUZARR_XXH_5;
    if (stripes) {
        u64 chain = part == 0 ? CUZARR_XXH_1 + CUZARR_XXH_2 : part == 1 ? CUZARR_XXH_2 : part == 2 ? 0 : 0 - CUZARR_XXH_1;
        const u8* at = from + 8 * part;
        u32 stripe = 0;
        // Eight loads run at the same time: one after the other, each would wait for memory.
        for (; stripe + 8 <= stripes; stripe += 8, at += 256) {
            u64 words[8];
            for (u32 i = 0; i < 8; ++i) words[i] = load_word(at + 32 * i, 8);
            for (u32 i = 0; i < 8; ++i) chain = xxh64_round(chain, words[i]);
        }
        for (; stripe < stripes; ++stripe, at += 32) chain = xxh64_round(chain, load_word(at, 8));
        u64 chains[4];
        for (u32 i = 0; i < 4; ++i) chains[i] = warp_shuffle(CUZARR_ALL_LANES, chain, i);
        hash = rotate_left(chains[0], 1) + rotate_left(chains[1], 7) + rotate_left(chains[2], 12) + rotate_left(chains[3], 18);
        for (u32 i = 0; i < 4; ++i) hash = (hash ^ xxh64_round(0, chains[i])) * CUZARR_XXH_1 + CUZARR_XXH_4;
    }
    hash += size;
    u32 done = 32 * stripes;
    for (; size - done >= 8; done += 8) {
        hash = rotate_left(hash ^ xxh64_round(0, load_word(from + done, 8)), 27) * CUZARR_XXH_1 + CUZARR_XXH_4;
    }
    for (; size - done >= 4; done += 4) {
        hash = rotate_left(hash ^ load_word(from + done, 4) * CUZARR_XXH_1, 23) * CUZARR_XXH_2 + CUZARR_XXH_3;
    }
    for (; done < size; ++done) hash = rotate_left(hash ^ from[done] * CUZARR_XXH_5, 11) * CUZARR_XXH_1;
    hash = (hash ^ hash >> 33) * CUZARR_XXH_2;
    hash = (hash ^ hash >> 29) * CUZARR_XXH_3;
    return hash ^ hash >> 32;
}
