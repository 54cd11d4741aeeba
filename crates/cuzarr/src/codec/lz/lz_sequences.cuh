// The input of the engine that copies (lz.cu), from entropy decoders: the sequences of a unit, with the places they write to.
//
// Sorted by `out`, without gaps: the first begins at 0, each ends where the next begins, and behind the last stands a
// sentinel that begins where the unit's output ends. A sequence may cover no byte. Who writes them checks them, and reports
// a unit whose sequences cannot be; the engine leaves such a unit alone.
#pragma once
#include "cuzarr/kernel.cuh"

/// In `literals`: they lie in the unit's second memory of literals, in scratch.
#define CUZARR_LZ_SCRATCH 0x80000000u

/// Literals, then a match. A match of no bytes has its `match` where the next sequence begins.
struct alignas(16) LzSequence {
    u32 out;       // where in the unit's output its literals go
    u32 literals;  // where they lie in one of the unit's memories of literals
    u32 match;     // where in the output its match begins
    u32 offset;    // how far back that repeats: from 1 to `match`; below its length, it repeats itself
};
static_assert(sizeof(LzSequence) == 16, "as decoders count them");

/// The one behind the last.
CUZARR_DEVICE LzSequence lz_sentinel(u32 unit_bytes) { return {unit_bytes, 0, unit_bytes, 0}; }
