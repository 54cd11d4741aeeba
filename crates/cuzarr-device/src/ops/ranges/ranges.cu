// Copies many ranges of memory, such as rows of variable length.
//
// copy_ranges: each warp takes one piece after the other, and copies it in units; neighbouring lanes copy neighbouring
// units.
//
// Floor: 2 x bytes moved / 4.3 TB/s on an H200.
#include "cuzarr/kernel.cuh"

/// A part of a range. `RangePiece` in ranges/cuda.rs.
struct RangePiece {
    u64 src, dst, units;
};
static_assert(sizeof(RangePiece) == 24, "as cuda.rs has it");

/// A unit of 16 bytes.
struct Wide {
    u64 low, high;
};

template <class Unit>
CUZARR_DEVICE void copy_ranges(const RangePiece* pieces, u64 count) {
    const u32 lane = thread_index() % CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    for (u64 at = (u64)block_index() * warps + thread_index() / CUZARR_WARP; at < count; at += (u64)block_count() * warps) {
        const RangePiece piece = pieces[at];
        const Unit* src = (const Unit*)piece.src;
        Unit* dst = (Unit*)piece.dst;
        for (u64 unit = lane; unit < piece.units; unit += CUZARR_WARP) dst[unit] = src[unit];
    }
}

#define RANGES_KERNEL(Unit, bytes)                                                                                       \
    CUZARR_KERNEL(copy_ranges_##bytes, const RangePiece* pieces, u64 count) { copy_ranges<Unit>(pieces, count); }

RANGES_KERNEL(u8, 1)
RANGES_KERNEL(u16, 2)
RANGES_KERNEL(u32, 4)
RANGES_KERNEL(u64, 8)
RANGES_KERNEL(Wide, 16)
