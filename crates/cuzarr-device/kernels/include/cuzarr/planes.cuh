// Elements whose bytes or bits lie in planes: between registers that hold planes and registers that hold elements. Byte
// planes are those of HDF5's and Blosc's shuffle, bit planes those of bitshuffle: plane 8j+k holds bit k of byte j of every
// element, least significant bit first.
#pragma once
#include "cuzarr/kernel.cuh"

/// Bytes 0 and 1 of two words in turns: those of `a` first.
CUZARR_DEVICE u32 interleave_low(u32 a, u32 b) { return permute_bytes(a, b, 0x5140); }
/// Bytes 2 and 3 of two words in turns.
CUZARR_DEVICE u32 interleave_high(u32 a, u32 b) { return permute_bytes(a, b, 0x7362); }

/// Transposes 4 x 4 bytes: word `k` receives byte `k` of each word. Its own inverse.
CUZARR_DEVICE void transpose_bytes(u32* words) {
    u32 a = interleave_low(words[0], words[1]), b = interleave_high(words[0], words[1]);
    u32 c = interleave_low(words[2], words[3]), d = interleave_high(words[2], words[3]);
    words[0] = permute_bytes(a, c, 0x5410), words[1] = permute_bytes(a, c, 0x7632);
    words[2] = permute_bytes(b, d, 0x5410), words[3] = permute_bytes(b, d, 0x7632);
}

/// Transposes 8 x 8 bits, whose rows are the bytes of x (Hacker's Delight, 7-3). Its own inverse.
CUZARR_DEVICE u64 transpose_bits(u64 x) {
    u64 t = (x ^ x >> 7) & 0x00aa00aa00aa00aaull;
    x ^= t ^ t << 7;
    t = (x ^ x >> 14) & 0x0000cccc0000ccccull;
    x ^= t ^ t << 14;
    t = (x ^ x >> 28) & 0x00000000f0f0f0f0ull;
    return x ^ t ^ t << 28;
}

/// Byte `byte` of each of a group's 8 elements, from the 8 planes that hold its bits. `from` is the group's byte of plane 0,
/// `plane_bytes` the size of a plane.
template <class Size>
CUZARR_DEVICE u64 load_bit_planes(const u8* from, Size plane_bytes, u32 byte) {
    u64 bits = 0;
    for (u32 plane = 0; plane < 8; ++plane) bits |= (u64)from[(byte * 8ull + plane) * plane_bytes] << 8 * plane;
    return transpose_bits(bits);
}

/// Joins a group of 8 elements of `unit` bytes from their bit planes.
template <class Size>
CUZARR_DEVICE void bitunshuffle_group(const u8* from, u8* to, Size plane_bytes, u32 unit) {
    for (u32 byte = 0; byte < unit; ++byte) {
        u64 bits = load_bit_planes(from, plane_bytes, byte);
        for (u32 element = 0; element < 8; ++element) to[(u64)element * unit + byte] = (u8)(bits >> 8 * element);
    }
}

/// Joins a group of 8 elements in registers, and stores 8 bytes at a time: `to` is a multiple of 8.
template <int Bytes, class Size>
CUZARR_DEVICE void bitunshuffle_group(const u8* from, u64* to, Size plane_bytes) {
    u64 columns[Bytes];
#pragma unroll
    for (u32 byte = 0; byte < Bytes; ++byte) columns[byte] = load_bit_planes(from, plane_bytes, byte);
#pragma unroll
    for (u32 word = 0; word < Bytes; ++word) {
        u64 joined = 0;
#pragma unroll
        for (u32 k = 0; k < 8; ++k) {
            // Byte k of this word is byte `place % Bytes` of element `place / Bytes`.
            u32 place = word * 8 + k;
            joined |= (columns[place % Bytes] >> 8 * (place / Bytes) & 255) << 8 * k;
        }
        to[word] = joined;
    }
}
