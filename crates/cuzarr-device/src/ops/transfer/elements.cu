// Moves regions whose elements change on the way: any packing, any steps, any alignment. For what the fast kernels
// cannot do.
//
// elements_scatter, for each element of the block's tiles:
//     split its number into coordinates, both offsets
//     read it from packed memory (bytes, bytes of a shuffled chunk, or a bit), apply every step, store it
// elements_gather does the same with the two sides exchanged. Packed bits are set atomically, since several threads may
// write bits of one byte. The steps are interpreted: all threads of a launch take the same branches.
//
// elements_quads handles four elements at once that are neighbours on both sides. bits_scatter and bits_gather handle
// 32 or 8 packed bits that fill bytes. The place is computed once, and all of them are read and stored at once.
//
// listed_scatter and listed_gather move elements selected by index lists:
//     split the element's number in its box into coordinates
//     along a dimension with a list, take both numbers from that entry of the table instead of the coordinate
//     add numbers times strides
//     then go on as elements_scatter and elements_gather do
//
// Floor: (packed + target bytes) / 4.3 TB/s on an H200. A cast costs some 100 instructions per element; for 4-byte
// elements that is about three times the floor.
#include "cuzarr/elements.cuh"
#include "cuzarr/regions.cuh"

enum { PACKING_PLAIN, PACKING_SHUFFLED, PACKING_BITS };

/// The layout of packed memory. `Packed` in step/cuda.rs.
struct Packed {
    u32 packing;
    u32 unit;     // bytes of a shuffled unit
    u32 aligned;  // whether elements of packed memory may be read whole
    u32 strided_aligned;  // and those of the nd-buffer
};
static_assert(sizeof(Packed) == 16 && sizeof(Step) == 16 && sizeof(Steps) == 272, "as step/cuda.rs has them");

/// Position of byte `at` of a chunk after shuffling.
CUZARR_DEVICE u64 shuffled_place(u64 at, u64 units, u32 unit) {
    u64 number = at / unit;
    return number < units ? (at - number * unit) * units + number : at;
}

template <class Box>
CUZARR_DEVICE Value load_packed(const u8* packed, const Box& region, const Packed& how, i64 at, u32 bytes) {
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

template <class Box>
CUZARR_DEVICE void store_packed(u8* packed, const Box& region, const Packed& how, i64 at, Value value, u32 bytes) {
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
    for_each_place(regions, walk, [&](const Region& region, const Place& place) {
        if (Gather) {
            Value value = apply(steps, load_value(src + place.src, steps.src_bytes, how.strided_aligned));
            store_packed(dst, region, how, place.dst, value, steps.dst_bytes);
        } else {
            Value value = apply(steps, load_packed(src, region, how, place.src, steps.src_bytes));
            store_value(dst + place.dst, value, steps.dst_bytes, how.strided_aligned);
        }
    });
}

CUZARR_KERNEL(elements_scatter, const u8* src, u8* dst, const Region* regions, Walk walk, Packed how, Steps steps) {
    move_elements<false>(src, dst, regions, walk, how, steps);
}

CUZARR_KERNEL(elements_gather, const u8* src, u8* dst, const Region* regions, Walk walk, Packed how, Steps steps) {
    move_elements<true>(src, dst, regions, walk, how, steps);
}

/// A box with lists in some dimensions. `ListedBox` in transfer/cuda.rs.
struct ListedBox {
    u64 first_tile;
    i64 packed;         // offset of the first element along the dimensions without lists, in bytes or bits
    i64 array;          // and in the nd-buffer, in bytes
    i64 chunk_offset;   // as in Region
    u64 chunk_bytes;
    u32 elems;          // below 2^31
    u32 reserved;
    u32 extents[CUZARR_MAX_NDIM];
    u32 entries[CUZARR_MAX_NDIM];  // the first entry of the dimension's list
};

/// The values that the boxes of a launch share. `ListedWalk` in transfer/cuda.rs.
struct ListedWalk {
    u64 tiles;
    u32 box_count;
    u32 ndim;
    u32 listed;         // a bit for each dimension with a list
    u32 wide;           // whether numbers of entries have 8 bytes instead of 4
    i64 packed_strides[CUZARR_MAX_NDIM];
    i64 array_strides[CUZARR_MAX_NDIM];
};

static_assert(sizeof(ListedBox) == 112 && sizeof(ListedWalk) == 152, "as transfer/cuda.rs has them");

/// An entry of a list: the element's number in its packed chunk, and its index in the nd-buffer.
struct Entry {
    i64 packed;
    i64 array;
};

CUZARR_DEVICE Entry load_entry(const u8* entries, u32 wide, u32 number) {
    if (wide) {
        const u64* pair = (const u64*)entries + 2 * (u64)number;
        return {(i64)pair[0], (i64)pair[1]};
    }
    u64 pair = ((const u64*)entries)[number];
    return {(i64)(pair & 0xffffffffu), (i64)(pair >> 32)};
}

template <bool Gather>
CUZARR_DEVICE void move_listed(
    const u8* src, u8* dst, const ListedBox* boxes, const u8* entries, const ListedWalk& walk, const Packed& how,
    const Steps& steps
) {
    const u32 tile_elems = thread_count() * CUZARR_UNROLL;
    u64 block = block_index(), blocks = block_count();
    u64 each = walk.tiles / blocks, rest = walk.tiles % blocks;
    u64 tile = block * each + (block < rest ? block : rest);
    u64 end = tile + each + (block < rest ? 1 : 0);
    // The last box that begins at or before the first tile.
    u32 low = 0, high = walk.box_count;
    while (tile < end && high - low > 1) {
        u32 middle = low + (high - low) / 2;
        if (boxes[middle].first_tile <= tile) low = middle;
        else high = middle;
    }
    for (; tile < end; ++tile) {
        while (low + 1 < walk.box_count && tile >= boxes[low + 1].first_tile) ++low;
        const ListedBox& box = boxes[low];
        u32 first = (u32)(tile - box.first_tile) * tile_elems + thread_index();
        for (u32 k = 0; k < CUZARR_UNROLL; ++k) {
            u32 index = first + k * thread_count();
            if (index >= box.elems) break;
            i64 packed = box.packed, array = box.array;
            for (u32 dimension = walk.ndim; dimension-- > 0;) {
                u32 quotient = dimension ? index / box.extents[dimension] : 0;
                u32 at = index - quotient * box.extents[dimension];
                Entry entry = {(i64)at, (i64)at};
                if (walk.listed >> dimension & 1) entry = load_entry(entries, walk.wide, box.entries[dimension] + at);
                packed += entry.packed * walk.packed_strides[dimension];
                array += entry.array * walk.array_strides[dimension];
                index = quotient;
            }
            if (Gather) {
                Value value = apply(steps, load_value(src + array, steps.src_bytes, how.strided_aligned));
                store_packed(dst, box, how, packed, value, steps.dst_bytes);
            } else {
                Value value = apply(steps, load_packed(src, box, how, packed, steps.src_bytes));
                store_value(dst + array, value, steps.dst_bytes, how.strided_aligned);
            }
        }
    }
}

CUZARR_KERNEL(
    listed_scatter, const u8* src, u8* dst, const ListedBox* boxes, const u8* entries, ListedWalk walk, Packed how,
    Steps steps
) {
    move_listed<false>(src, dst, boxes, entries, walk, how, steps);
}

CUZARR_KERNEL(
    listed_gather, const u8* src, u8* dst, const ListedBox* boxes, const u8* entries, ListedWalk walk, Packed how,
    Steps steps
) {
    move_listed<true>(src, dst, boxes, entries, walk, how, steps);
}

/// Regions count groups of four elements, whose first element is aligned for accesses of up to 16 bytes.
CUZARR_KERNEL(elements_quads, const u8* src, u8* dst, const Region* regions, Walk walk, Steps steps) {
    for_each_place(regions, walk, [&](const Region&, const Place& place) {
        Value values[4];
        load_quad(src + place.src, steps.src_bytes, values);
        apply_to_quad(steps, values);
        store_quad(dst + place.dst, values, steps.dst_bytes);
    });
}

/// Returns the 8 bits of a byte as 8 bytes, the highest bit first.
CUZARR_DEVICE u64 spread_bits(u8 bits) {
    u64 chosen = bits * 0x0101010101010101ull & 0x0102040810204080ull;
    return (chosen + 0x7f7f7f7f7f7f7f7full) >> 7 & 0x0101010101010101ull;
}

/// The inverse of `spread_bits`: every byte that is not 0 sets a bit. Bit 0 of byte `i` goes to bit `7 - i` of the
/// highest byte.
CUZARR_DEVICE u8 join_bits(u64 bytes) {
    u64 set = (((bytes & 0x7f7f7f7f7f7f7f7full) + 0x7f7f7f7f7f7f7f7full) | bytes) >> 7 & 0x0101010101010101ull;
    return (u8)(set * 0x8040201008040201ull >> 56);
}

/// Regions count groups of 8 one-byte elements. On the packed side, places are in bits.
CUZARR_KERNEL(bits_scatter_1, const u8* src, u8* dst, const Region* regions, Walk walk) {
    for_each_place(regions, walk, [&](const Region& region, const Place& place) {
        *(u64*)(dst + place.dst) = spread_bits(src[region.chunk_offset + (place.src >> 3)]);
    });
}

CUZARR_KERNEL(bits_gather_1, const u8* src, u8* dst, const Region* regions, Walk walk) {
    for_each_place(regions, walk, [&](const Region& region, const Place& place) {
        dst[region.chunk_offset + (place.dst >> 3)] = join_bits(*(const u64*)(src + place.src));
    });
}

/// Regions count groups of 32 elements: four packed bytes, which may be unaligned.
CUZARR_KERNEL(bits_scatter_4, const u8* src, u8* dst, const Region* regions, Walk walk) {
    for_each_place(regions, walk, [&](const Region& region, const Place& place) {
        const u8* from = src + region.chunk_offset + (place.src >> 3);
        u64 low[2] = {spread_bits(from[0]), spread_bits(from[2])}, high[2] = {spread_bits(from[1]), spread_bits(from[3])};
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            uint4 words = {(u32)low[half], (u32)(low[half] >> 32), (u32)high[half], (u32)(high[half] >> 32)};
            ((uint4*)(dst + place.dst))[half] = words;
        }
    });
}

CUZARR_KERNEL(bits_gather_4, const u8* src, u8* dst, const Region* regions, Walk walk) {
    for_each_place(regions, walk, [&](const Region& region, const Place& place) {
        u8* to = dst + region.chunk_offset + (place.dst >> 3);
        uint4 halves[2] = {((const uint4*)(src + place.src))[0], ((const uint4*)(src + place.src))[1]};
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            to[2 * half] = join_bits((u64)halves[half].y << 32 | halves[half].x);
            to[2 * half + 1] = join_bits((u64)halves[half].w << 32 | halves[half].z);
        }
    });
}
