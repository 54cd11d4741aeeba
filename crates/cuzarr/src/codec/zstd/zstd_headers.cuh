// The walk through the headers of zstd frames: it looks where `scan.rs` looks.
#pragma once
#include "codec/batch/headers/headers.cuh"

/// The first four bytes of a frame. A skippable frame begins with SKIPPABLE, but for the lowest four bits.
#define CUZARR_ZSTD_MAGIC 0xfd2fb528u
#define CUZARR_ZSTD_SKIPPABLE 0x184d2a50u

/// Where the sequences' header stands in a compressed block whose content begins at `at`; `end` if it is nowhere.
CUZARR_DEVICE u32 headers_of_block(const HeaderWalk& walk, u32 at, u32 end) {
    if (at >= end) return end;
    u32 first = walk.frame[at], kind = first & 3, format = first >> 2 & 3, header, compressed;
    if (kind < 2) {
        header = format == 1 ? 2 : format == 3 ? 3 : 1;
        if (header > end - at) return end;
        u32 regenerated = walk.number(at, header) >> (format == 1 || format == 3 ? 4 : 3);
        compressed = kind == 0 ? regenerated : 1;
    } else {
        header = format < 2 ? 3 : format + 2;
        if (header > end - at) return end;
        u64 number = walk.number(at, header < 4 ? header : 4);
        if (header == 5) number |= (u64)walk.frame[at + 4] << 32;
        u32 bits = format < 2 ? 10 : format == 2 ? 14 : 18;
        compressed = (u32)(number >> 4 >> bits) & ((1u << bits) - 1);
    }
    at += header;
    return compressed < end - at ? at + compressed : end;
}

/// Lists the blocks of a zstd frame from `at` on. Returns where they end, or `end` if they do not.
CUZARR_DEVICE u32 headers_of_blocks(const HeaderWalk& walk, u32 at, u32 end) {
    for (;;) {
        if (end - at < 3) return end;
        if (!walk.take(at)) return end;
        u32 header = walk.number(at, 3), kind = header >> 1 & 3, stored = kind == 1 ? 1 : header >> 3;
        at += 3;
        if (kind == 3 || stored > end - at) return end;
        if (kind == 2) {
            u32 sequences = headers_of_block(walk, at, at + stored);
            if (sequences < at + stored && !walk.take(sequences)) return end;
        }
        at += stored;
        if (header & 1) return at;
    }
}

/// Lists all zstd frames (RFC 8878, section 3.1.1) of bytes [at, end).
CUZARR_DEVICE void headers_of_zstd(const HeaderWalk& walk, u32 at, u32 end) {
    while (at < end) {
        if (!walk.take(at) || end - at < 5) return;
        u32 magic = walk.number(at, 4);
        if ((magic & ~15u) == CUZARR_ZSTD_SKIPPABLE) {
            if (end - at < 8) return;
            u32 size = walk.number(at + 4, 4);
            at += 8;
            if (size > end - at) return;
            at += size;
            continue;
        }
        if (magic != CUZARR_ZSTD_MAGIC) return;
        u32 descriptor = walk.frame[at + 4], single = descriptor >> 5 & 1, size = descriptor >> 6, dictionary = descriptor & 3;
        u32 header = 5 + (1 - single) + (dictionary == 3 ? 4 : dictionary) + (size ? 1u << size : single);
        if (header > end - at) {
            if (end - at > CUZARR_HEADER_BYTES) walk.take(at + CUZARR_HEADER_BYTES);
            return;
        }
        if (header > CUZARR_HEADER_BYTES && !walk.take(at + CUZARR_HEADER_BYTES)) return;
        at = headers_of_blocks(walk, at + header, end);
        u32 checksum = descriptor & 4;
        if (checksum > end - at) return;
        at += checksum;
    }
}
