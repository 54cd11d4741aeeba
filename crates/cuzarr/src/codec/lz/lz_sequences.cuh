// The input of the engine that copies (lz.cu), from entropy decoders: the sequences of a unit, with the places they write to.
//
// Sequences are sorted by `out`, without gaps: the first begins at 0, each ends where the next begins, and behind the
// last stands a sentinel that begins where the unit's output ends. A sequence may cover no byte. The kernels that write
// sequences check them, and report a unit with impossible ones; the engine leaves such a unit alone.
#pragma once
#include "cuzarr/kernel.cuh"

/// A bit of `literals`: they lie in the unit's second memory of literals, in scratch.
#define CUZARR_LZ_SCRATCH 0x80000000u

/// Literals, then a match. A match of no bytes has its `match` where the next sequence begins.
struct alignas(16) LzSequence {
    u32 out;       // where in the unit's output its literals go
    u32 literals;  // where they lie in one of the unit's memories of literals
    u32 match;     // where in the output its match begins
    u32 offset;    // how far back that repeats: from 1 to `match`; below its length, it repeats itself
};
static_assert(sizeof(LzSequence) == 16, "as decoders count them");

/// The sentinel behind the last sequence.
CUZARR_DEVICE LzSequence lz_sentinel(u32 unit_bytes) { return {unit_bytes, 0, unit_bytes, 0}; }

// A second form takes half of the memory. It is for decoders whose literals already lie in their places: only matches,
// 8 bytes each. Bytes between two matches are literals. Behind the last one stands a match of no bytes, where the
// unit's output ends.

/// Packs a match: where it begins (32 bits), how many bytes it has (16), and how far back it repeats (16).
CUZARR_DEVICE u64 lz_match(u32 match, u32 bytes, u32 offset) { return (u64)offset << 48 | (u64)bytes << 32 | match; }
CUZARR_DEVICE u32 lz_match_end(u64 match) { return (u32)match + ((u32)(match >> 32) & 0xffff); }

// A third form takes half of the memory, too. It is for decoders whose sequences are short and come in blocks of at
// most 128 KiB: 8 bytes each, in bundles of 32. Behind a bundle's last sequence stand zeros. A warp reads a bundle and
// adds up where each sequence begins.

/// Number of sequences in a bundle. A lane takes one.
#define CUZARR_LZ_BUNDLE 32u

/// Packs a sequence of a bundle: its number of literals (17 bits), the bytes of its match (18), and how far back that
/// repeats (29).
CUZARR_DEVICE u64 lz_brief(u32 literals, u32 match, u32 offset) { return (u64)offset << 35 | (u64)match << 17 | literals; }
/// Maximum literals of such a sequence.
#define CUZARR_LZ_BRIEF_LITERALS 0x1ffffu
/// Offsets are smaller than this.
#define CUZARR_LZ_BRIEF_OFFSETS 0x20000000u

/// Where the first sequence of a bundle begins. The unit's next bundle begins where this one ends.
struct alignas(8) LzBundle {
    u32 out;       // where in the unit's output its literals go
    u32 literals;  // where they lie in one of the unit's memories of literals
};
static_assert(sizeof(LzBundle) == 8, "as decoders count them");
