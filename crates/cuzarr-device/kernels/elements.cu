// Regions whose elements change on the way: any packing, any steps, any alignment. What the fast kernels do not take.
//
// elements_scatter, for each element of the block's tiles:
//     split its number into coordinates, both offsets
//     read it from packed memory (bytes, bytes of a shuffled chunk, or a bit), apply every step, store it
// elements_gather is the same with the two sides exchanged; packed bits of one byte are set atomically, since several
// threads own them. The steps are interpreted: each switch takes the same way in all threads of a launch.
//
// Floor: (packed + target bytes) / 4.3 TB/s on an H200; one cast of 4-byte elements costs some 100 instructions each, about
// three times that floor.
#include "cuzarr/elements.cuh"
#include "cuzarr/regions.cuh"

enum { PACKING_PLAIN, PACKING_SHUFFLED, PACKING_BITS };

/// How packed memory is laid out. `Packed` in transfer.rs.
struct Packed {
    u32 packing;
    u32 unit;     // bytes of a shuffled unit
    u32 aligned;  // whether elements of packed memory may be read whole
    u32 strided_aligned;  // and those of the nd-buffer
};

/// Where byte `at` of a shuffled chunk went.
CUZARR_DEVICE u64 shuffled_place(u64 at, u64 units, u32 unit) {
    u64 number = at / unit;
    return number < units ? (at - number * unit) * units + number : at;
}

CUZARR_DEVICE Value load_packed(const u8* packed, const Region& region, const Packed& how, i64 at, u32 bytes) {
    if (how.packing == PACKING_PLAIN) return load_value(packed + at, bytes, how.aligned);
    const u8* chunk = packed + region.chunk_offset;
    Value value = {0, 0};
    if (how.packing == PACKING_BITS) {
        value.low = chunk[at >> 3] >> (7 - (at & 7)) & 1;
        return value;
    }
    u64 units = region.chunk_bytes / how.unit;
    for (u32 k = 0; k < bytes; ++k) {
        u64 byte = chunk[shuffled_place((u64)at + k, units, how.unit)];
        if (k < 8) value.low |= byte << 8 * k;
        else value.high |= byte << 8 * (k - 8);
    }
    return value;
}

CUZARR_DEVICE void store_packed(u8* packed, const Region& region, const Packed& how, i64 at, Value value, u32 bytes) {
    if (how.packing == PACKING_PLAIN) {
        store_value(packed + at, value, bytes, how.aligned);
        return;
    }
    u8* chunk = packed + region.chunk_offset;
    if (how.packing == PACKING_BITS) {
        u8 bit = (u8)(128u >> (at & 7));
        bool on = (value.low & 0xff) != 0;
        atomic_set_bits(chunk + (at >> 3), on ? bit : 0, on ? 0 : bit);
        return;
    }
    u64 units = region.chunk_bytes / how.unit;
    for (u32 k = 0; k < bytes; ++k) chunk[shuffled_place((u64)at + k, units, how.unit)] = byte_of(value, k);
}

template <bool Gather>
CUZARR_DEVICE void move_elements(
    const u8* src, u8* dst, const Region* regions, const Walk& walk, const Packed& how, const Steps& steps
) {
    const u32 tile_elems = thread_count() * CUZARR_UNROLL;
    for (Tiles tiles(regions, walk); !tiles.done(); tiles.next(regions, walk)) {
        const Region& region = regions[tiles.region];
        u32 first = (u32)(tiles.tile - region.first_tile) * tile_elems + thread_index();
        for (u32 k = 0; k < CUZARR_UNROLL; ++k) {
            u32 index = first + k * thread_count();
            if (index >= region.elems) break;
            Place place = place_of(region, walk, walk.ndim, index);
            if (Gather) {
                Value value = apply(steps, load_value(src + place.src, steps.src_bytes, how.strided_aligned));
                store_packed(dst, region, how, place.dst, value, steps.dst_bytes);
            } else {
                Value value = apply(steps, load_packed(src, region, how, place.src, steps.src_bytes));
                store_value(dst + place.dst, value, steps.dst_bytes, how.strided_aligned);
            }
        }
    }
}

CUZARR_KERNEL(elements_scatter, const u8* src, u8* dst, const Region* regions, Walk walk, Packed how, Steps steps) {
    move_elements<false>(src, dst, regions, walk, how, steps);
}

CUZARR_KERNEL(elements_gather, const u8* src, u8* dst, const Region* regions, Walk walk, Packed how, Steps steps) {
    move_elements<true>(src, dst, regions, walk, how, steps);
}
