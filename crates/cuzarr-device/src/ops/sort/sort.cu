// Sorts each line of a packed array with a stable radix sort, from the lowest digit to the highest. The result is the
// order of the elements.
//
// All lines are sorted at once: first by key, 8 bits in a pass, then by the number of the line. A key is an unsigned
// number with the order of the elements. Zeros of both signs have the same key, and NaNs of either sign have the last
// one.
//     sort_keys:   makes the key and the place of each element
//     for each digit:
//         sort_count: a warp counts the digits of its tile
//         (a scan over the counts, by digit and then by tile, gives the start of the elements of each digit and tile)
//         sort_move:  a warp handles 32 elements at once; the lanes below with the same digit give the distance from
//             that start
//     sort_places: places in the array become places in the line
//
// Each warp has its own tile, so that nothing waits for other warps, and elements with equal digits stay in order.
//
// Floor: for each digit, keys are read twice and places once, and both are written / 4.3 TB/s on an H200.
#include "cuzarr/elements.cuh"
#include "cuzarr/lines.cuh"
#include "cuzarr/warp.cuh"

/// Number of values of a digit.
#define CUZARR_SORT_DIGITS 256u
/// Largest number of warps in a block.
#define MOST_WARPS 8u

/// The key of an element with `width` bits.
CUZARR_DEVICE u64 key_of(u64 bits, u32 type, u32 width, bool is_descending) {
    const u64 sign = 1ull << (width - 1), all = sign | (sign - 1);
    u64 key = bits;
    if (type == BOOL) key = bits != 0;
    if (is_signed(type)) key = bits ^ sign;
    if (type >= FLOAT16 && type <= FLOAT64) {
        const u64 magnitude = bits & (sign - 1);
        const u64 infinity = type == FLOAT16 ? 0x7c00u : type == BFLOAT16 ? 0x7f80u : type == FLOAT32 ? 0x7f800000u : 0x7ff0000000000000ull;
        if (magnitude > infinity) key = all;
        else if (magnitude == 0) key = sign;
        else key = bits & sign ? all - bits : bits | sign;
    }
    return is_descending ? all - key : key;
}

template <class Key>
CUZARR_DEVICE void make_keys(const u8* elements, Key* keys, u32* places, u64 count, u32 type, u32 size, u32 is_descending) {
    for_each_number(count, [&](u64 at) {
        u64 bits = size == 1   ? elements[at]
                   : size == 2 ? ((const u16*)elements)[at]
                   : size == 4 ? ((const u32*)elements)[at]
                               : ((const u64*)elements)[at];
        keys[at] = (Key)key_of(bits, type, size * 8, is_descending);
        places[at] = (u32)at;
    });
}

/// One pass. `Pass` in sort/cuda.rs.
struct Pass {
    u64 count;   // of elements
    u64 tile;    // elements of a warp's tile, a multiple of 32
    u64 tiles;
    u64 extent;  // elements of a line where the digit is one of the line's number; 0 where it is one of the key
    u64 shift;   // where the digit begins
};

template <class Key>
CUZARR_DEVICE u32 digit_of(const Key* keys, const u32* places, u64 at, Pass pass) {
    u64 number = pass.extent ? places[at] / pass.extent : (u64)keys[at];
    return (u32)(number >> pass.shift) & (CUZARR_SORT_DIGITS - 1);
}

/// Calls `action` for each tile of this warp, with its number, its first element, its end, and the warp's own table.
template <class Action>
CUZARR_DEVICE void for_each_tile(Pass pass, u32* tables, Action action) {
    const u32 warps = thread_count() / CUZARR_WARP, warp = thread_index() / CUZARR_WARP;
    for (u64 tile = (u64)block_index() * warps + warp; tile < pass.tiles; tile += (u64)block_count() * warps) {
        const u64 first = tile * pass.tile, end = first + pass.tile;
        action(tile, first, end < pass.count ? end : pass.count, tables + warp * CUZARR_SORT_DIGITS);
    }
}

template <class Key>
CUZARR_DEVICE void count_digits(const Key* keys, const u32* places, u64* counts, Pass pass, u32* tables) {
    const u32 lane = thread_index() % CUZARR_WARP;
    for_each_tile(pass, tables, [&](u64 tile, u64 first, u64 end, u32* table) {
        for (u32 digit = lane; digit < CUZARR_SORT_DIGITS; digit += CUZARR_WARP) table[digit] = 0;
        warp_barrier(CUZARR_ALL_LANES);
        for (u64 at = first + lane; at < end; at += CUZARR_WARP) atomic_add(table + digit_of(keys, places, at, pass), 1u);
        warp_barrier(CUZARR_ALL_LANES);
        for (u32 digit = lane; digit < CUZARR_SORT_DIGITS; digit += CUZARR_WARP) counts[digit * pass.tiles + tile] = table[digit];
        warp_barrier(CUZARR_ALL_LANES);
    });
}

/// `ends` has the running sums of the counts, by digit and tile.
template <class Key>
CUZARR_DEVICE void move_elements(const Key* keys, const u32* places, Key* to_keys, u32* to_places, const u64* ends, Pass pass, u32* tables) {
    const u32 lane = thread_index() % CUZARR_WARP;
    for_each_tile(pass, tables, [&](u64 tile, u64 first, u64 end, u32* table) {
        for (u32 digit = lane; digit < CUZARR_SORT_DIGITS; digit += CUZARR_WARP) {
            const u64 place = digit * pass.tiles + tile;
            table[digit] = place ? (u32)ends[place - 1] : 0;
        }
        warp_barrier(CUZARR_ALL_LANES);
        for (u64 begin = first; begin < end; begin += CUZARR_WARP) {
            const u64 at = begin + lane;
            const bool is_there = at < end;
            const u32 digit = is_there ? digit_of(keys, places, at, pass) : CUZARR_SORT_DIGITS;
            const u32 peers = warp_match(CUZARR_ALL_LANES, digit), below = votes_below(peers, lane);
            if (is_there) {
                const u32 to = table[digit] + below;
                to_places[to] = places[at];
                if (!pass.extent) to_keys[to] = keys[at];
            }
            warp_barrier(CUZARR_ALL_LANES);
            if (is_there && below == 0) table[digit] += count_ones(peers);
            warp_barrier(CUZARR_ALL_LANES);
        }
    });
}

#define SORT_KERNELS(Key, bytes)                                                                                              \
    CUZARR_KERNEL(sort_keys_##bytes, const u8* elements, Key* keys, u32* places, u64 count, u32 type, u32 size, u32 down) {    \
        make_keys(elements, keys, places, count, type, size, down);                                                           \
    }                                                                                                                         \
    CUZARR_KERNEL(sort_count_##bytes, const Key* keys, const u32* places, u64* counts, Pass pass) {                           \
        CUZARR_SHARED(u32, tables, MOST_WARPS * CUZARR_SORT_DIGITS);                                                          \
        count_digits(keys, places, counts, pass, tables);                                                                     \
    }                                                                                                                         \
    CUZARR_KERNEL(sort_move_##bytes, const Key* keys, const u32* places, Key* to_keys, u32* to_places, const u64* ends, Pass pass) { \
        CUZARR_SHARED(u32, tables, MOST_WARPS * CUZARR_SORT_DIGITS);                                                          \
        move_elements(keys, places, to_keys, to_places, ends, pass, tables);                                                  \
    }

SORT_KERNELS(u32, 4)
SORT_KERNELS(u64, 8)

CUZARR_KERNEL(sort_places, const u32* places, u64* result, u64 count, u64 extent) {
    for_each_number(count, [&](u64 at) { result[at] = places[at] % extent; });
}
