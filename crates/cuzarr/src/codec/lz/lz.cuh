// Copies that a warp does together: literals from a compressed stream, and matches, which repeat what was just written.
// All lanes call with the same arguments. The caller checks bounds.
#pragma once
#include "cuzarr/kernel.cuh"

/// Minimum offset of a far match: the bytes that a round of the warp reads were written before the round.
#define CUZARR_FAR_BYTES 576u
/// Bytes that a warp moves in one round.
#define CUZARR_ROUND_BYTES (CUZARR_WARP * 16u)

/// Loads 16 bytes from any address, by the aligned words that hold them. Touches up to 3 bytes before and behind.
CUZARR_DEVICE uint4 load_16(const u8* from) {
    u32 skew = (u32)((u64)from & 3);
    const u32* words = (const u32*)(from - skew);
    uint4 value;
    value.x = words[0], value.y = words[1], value.z = words[2], value.w = words[3];
    if (skew) {
        u32 last = words[4], selector = 0x3210u + 0x1111u * skew;
        value.x = permute_bytes(value.x, value.y, selector);
        value.y = permute_bytes(value.y, value.z, selector);
        value.z = permute_bytes(value.z, value.w, selector);
        value.w = permute_bytes(value.w, last, selector);
    }
    return value;
}

/// Loads 4 bytes from any address, in the same way. `New`: others may have stored them while this block ran.
template <bool New>
CUZARR_DEVICE u32 load_4(const u8* from) {
    u32 skew = (u32)((u64)from & 3);
    const u32* words = (const u32*)(from - skew);
    u32 low = New ? load_new(words) : words[0];
    if (skew == 0) return low;
    u32 high = New ? load_new(words + 1) : words[1];
    return permute_bytes(low, high, 0x3210u + 0x1111u * skew);
}

/// Copies `count` bytes; `from` either lies in other memory or at least CUZARR_FAR_BYTES before `to`, and at least 3 bytes
/// behind the beginning of its allocation's first aligned word. Nothing behind `from + count` is read.
///
/// Copies a few bytes until `to` is aligned, then 16 a lane, then the rest by bytes.
CUZARR_DEVICE void copy_far(const u8* from, u8* to, u32 count, u32 lane) {
    u32 head = (u32)(0 - (u64)to) & 15;
    head = head < count ? head : count;
    if (lane < head) to[lane] = from[lane];
    from += head, to += head, count -= head;
    // The last word of load_16 may reach 3 bytes further than the 16.
    u32 units = count >= 4 ? (count - 4) / 16 : 0;
    for (u32 first = 0; first < units; first += CUZARR_WARP) {
        u32 unit = first + lane;
        // Lanes see what others wrote in the round before.
        warp_barrier(CUZARR_ALL_LANES);
        if (unit < units) *(uint4*)(to + unit * 16) = load_16(from + unit * 16);
    }
    warp_barrier(CUZARR_ALL_LANES);
    u32 rest = units * 16 + lane;
    if (rest < count) to[rest] = from[rest];
}

/// Writes the rest of a match of `count` bytes whose first 32 are written. `to` is where the match begins, `offset` how
/// far back it repeats.
///
/// Bytes that repeat every `offset` bytes repeat at every multiple of it, too: bytes are written one by one until there is a
/// multiple that is far enough back, and from there on 16 at a time.
CUZARR_DEVICE void finish_match(u8* to, u32 offset, u32 count, u32 lane) {
    u32 done = CUZARR_WARP, distance = offset;
    if (offset < CUZARR_FAR_BYTES) {
        distance = (CUZARR_FAR_BYTES + offset - 1) / offset * offset;
        done = distance < count ? distance : count;
        const u8* pattern = to - offset;
        u32 step = CUZARR_WARP % offset, at = lane % offset;
        for (u32 i = lane; i < done; i += CUZARR_WARP) {
            if (i >= CUZARR_WARP) to[i] = pattern[at];
            at += step;
            if (at >= offset) at -= offset;
        }
    }
    if (done >= count) return;
    warp_barrier(CUZARR_ALL_LANES);
    copy_far(to + done - distance, to + done, count - done, lane);
}
