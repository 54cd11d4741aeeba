// Many N-d regions in one launch: the table that `src/ops/regions/lower.rs` writes, and how a block walks through it.
//
// A region is a box of elements with an offset in two memories. Regions of one launch share the strides. The elements of a
// region are numbered in C order and cut into tiles; tiles of all regions are numbered through, and every block takes a run
// of consecutive tiles, so it searches the table once and then only steps forward.
#pragma once
#include "cuzarr/kernel.cuh"

#define CUZARR_MAX_NDIM 8
/// Elements that one thread moves in one tile: loads in flight.
#define CUZARR_UNROLL 4

/// One box. `Region` in regions.rs.
struct Region {
    u64 first_tile;
    i64 src_offset;    // bytes from the base address
    i64 dst_offset;
    i64 chunk_offset;  // where the packed chunk begins, when its elements are not simply strided
    u64 chunk_bytes;   // and its size
    u32 elems;         // below 2^31
    u32 rows;          // of the matrix in the two last dimensions, for transposing
    u32 columns;
    u32 reserved;
    u32 extents[CUZARR_MAX_NDIM];  // slowest first; of tiles in the last two when transposing
    u32 magics[CUZARR_MAX_NDIM];   // division by an extent is (multiply_high(n, magic) + n) >> shift, for n below 2^31
    u32 shifts[CUZARR_MAX_NDIM];
};

/// The strides and counts that the regions of one launch share. `Walk` in lower.rs.
struct Walk {
    u64 tiles;
    u32 region_count;
    u32 ndim;
    i64 src_strides[CUZARR_MAX_NDIM];  // bytes
    i64 dst_strides[CUZARR_MAX_NDIM];
};

/// Where one element lies in both memories.
struct Place {
    i64 src;
    i64 dst;
};

/// The tiles of one block.
struct Tiles {
    u64 tile, end;
    u32 region;

    CUZARR_DEVICE Tiles(const Region* regions, const Walk& walk) {
        u64 block = block_index(), blocks = block_count();
        u64 each = walk.tiles / blocks, rest = walk.tiles % blocks;
        tile = block * each + (block < rest ? block : rest);
        end = tile + each + (block < rest ? 1 : 0);
        // The last region that begins at or before the first tile.
        u32 low = 0, high = walk.region_count;
        while (tile < end && high - low > 1) {
            u32 middle = low + (high - low) / 2;
            if (regions[middle].first_tile <= tile) low = middle;
            else high = middle;
        }
        region = low;
    }

    CUZARR_DEVICE bool done() const { return tile >= end; }

    CUZARR_DEVICE void next(const Region* regions, const Walk& walk) {
        ++tile;
        if (region + 1 < walk.region_count && tile >= regions[region + 1].first_tile) ++region;
    }
};

CUZARR_DEVICE u32 divide(const Region& region, u32 dimension, u32 n) {
    return (multiply_high(n, region.magics[dimension]) + n) >> region.shifts[dimension];
}

/// Splits `index` (C order over the dimensions before `ndim`) into both offsets; `index` may not exceed their product.
CUZARR_DEVICE Place place_of(const Region& region, const Walk& walk, u32 ndim, u32 index) {
    Place place = {region.src_offset, region.dst_offset};
    for (u32 dimension = ndim; dimension-- > 1;) {
        u32 quotient = divide(region, dimension, index);
        u32 at = index - quotient * region.extents[dimension];
        place.src += (i64)at * walk.src_strides[dimension];
        place.dst += (i64)at * walk.dst_strides[dimension];
        index = quotient;
    }
    if (ndim) {
        place.src += (i64)index * walk.src_strides[0];
        place.dst += (i64)index * walk.dst_strides[0];
    }
    return place;
}

/// Calls `body(region, place)` for every element that is this thread's, one after the other.
template <class Body>
CUZARR_DEVICE void for_each_place(const Region* regions, const Walk& walk, Body body) {
    const u32 tile_elems = thread_count() * CUZARR_UNROLL;
    for (Tiles tiles(regions, walk); !tiles.done(); tiles.next(regions, walk)) {
        const Region& region = regions[tiles.region];
        u32 first = (u32)(tiles.tile - region.first_tile) * tile_elems + thread_index();
        for (u32 k = 0; k < CUZARR_UNROLL; ++k) {
            u32 index = first + k * thread_count();
            if (index >= region.elems) break;
            body(region, place_of(region, walk, walk.ndim, index));
        }
    }
}

/// The unsigned integer (or, for 16, the vector) that moves an element of this many bytes in one access.
template <int Bytes> struct Word;
template <> struct Word<1> { typedef u8 Type; };
template <> struct Word<2> { typedef u16 Type; };
template <> struct Word<4> { typedef u32 Type; };
template <> struct Word<8> { typedef u64 Type; };
template <> struct Word<16> { typedef uint4 Type; };

CUZARR_DEVICE u32 swap_u32(u32 x, u32 unit) {
    if (unit == 2) return permute_bytes(x, 0, 0x2301);
    return permute_bytes(x, 0, 0x0123);  // 4, or a half of 8, or a quarter of 16
}

/// Reverses the bytes of every unit of 2, 4, 8 or 16 in a word that holds whole units; unit 1 changes nothing.
CUZARR_DEVICE u8 swap_bytes(u8 x, u32) { return x; }
CUZARR_DEVICE u16 swap_bytes(u16 x, u32 unit) { return unit == 2 ? (u16)(x << 8 | x >> 8) : x; }
CUZARR_DEVICE u32 swap_bytes(u32 x, u32 unit) { return unit == 1 ? x : swap_u32(x, unit); }
CUZARR_DEVICE u64 swap_bytes(u64 x, u32 unit) {
    if (unit == 1) return x;
    u32 low = swap_u32((u32)x, unit), high = swap_u32((u32)(x >> 32), unit);
    return unit == 8 ? (u64)low << 32 | high : (u64)high << 32 | low;
}
CUZARR_DEVICE uint4 swap_bytes(uint4 x, u32 unit) {
    if (unit == 1) return x;
    u32 a = swap_u32(x.x, unit), b = swap_u32(x.y, unit), c = swap_u32(x.z, unit), d = swap_u32(x.w, unit);
    uint4 swapped;
    switch (unit) {
        case 8: swapped.x = b, swapped.y = a, swapped.z = d, swapped.w = c; break;
        case 16: swapped.x = d, swapped.y = c, swapped.z = b, swapped.w = a; break;
        default: swapped.x = a, swapped.y = b, swapped.z = c, swapped.w = d;
    }
    return swapped;
}
