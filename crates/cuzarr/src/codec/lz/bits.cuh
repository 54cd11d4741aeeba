// Bits that many threads write together in shared memory.
#pragma once
#include "cuzarr/kernel.cuh"

/// Puts `count` bits of `value` at bit `at` of `words`. The words must be 0 there; so must the other bits of `value`.
CUZARR_DEVICE void put_bits(u32* words, u32 at, u64 value, u32 count) {
    if (count == 0) return;
    u32 word = at / 32, shift = at % 32;
    u64 low = value << shift;
    if ((u32)low) atomic_or(words + word, (u32)low);
    if ((u32)(low >> 32)) atomic_or(words + word + 1, (u32)(low >> 32));
    if (shift + count > 64) {
        u32 high = (u32)(value >> (64 - shift));
        if (high) atomic_or(words + word + 2, high);
    }
}
