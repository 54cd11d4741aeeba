// Bits of words.
#pragma once
#include "cuzarr/kernel.cuh"

/// The 8 x 8 bits of x, rows as bytes, exchanged (Hacker's Delight, 7-3).
CUZARR_DEVICE u64 transpose_bits(u64 x) {
    u64 t = (x ^ x >> 7) & 0x00aa00aa00aa00aaull;
    x ^= t ^ t << 7;
    t = (x ^ x >> 14) & 0x0000cccc0000ccccull;
    x ^= t ^ t << 14;
    t = (x ^ x >> 28) & 0x00000000f0f0f0f0ull;
    return x ^ t ^ t << 28;
}
