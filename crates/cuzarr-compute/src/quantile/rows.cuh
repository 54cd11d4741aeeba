// Quantiles of many short rows. A block loads the keys of several rows into shared memory, sorts each row there, and
// takes the wanted elements. `quantile/cuda.rs` decides which rows are short.
//
// Rows are sorted by K. Batcher's bitonic network (1968). They are padded to a power of two with keys that come last.
//
// Floor: the bytes of the elements / 3.3 TB/s on an H100; rows of 1024 go through 55 steps in shared memory.
#pragma once
#include "count/keys.cuh"
#include "reduce/reduce.cuh"

/// Size of the keys that a block sorts at a time, in bytes.
#define CUZARR_TILE_BYTES (32u << 10)
/// Largest number of rows in a tile.
#define CUZARR_TILE_ROWS 256u

namespace rows {

/// The two elements of a sorted row between which an answer lies, and its distance from the first one as a share.
struct Place {
    u32 first, second;
    double share;
};

/// The layout of the rows, and the wanted answers. `quantile/cuda.rs` writes it field by field.
struct Rows {
    keys::Keys keys;
    u64 nan;              // the bits of NaN, where elements have one
    const Place* places;  // for each probability; of rows of one number, of two, ..., or only of whole rows
    u32 probabilities;
    u32 width;      // the power of two that a row is filled up to
    u32 tile_rows;  // a power of two
    u32 is_across;  // neighbouring rows are neighbours in memory
    u32 skips_nan;
    u32 is_middle;  // whether answers between two elements lie in their middle
};

template <u32 BYTES> struct Bits { typedef u64 type; };
template <> struct Bits<1> { typedef u8 type; };
template <> struct Bits<2> { typedef u16 type; };
template <> struct Bits<4> { typedef u32 type; };
/// The type of keys in shared memory.
template <u32 BYTES> struct Key { typedef u32 type; };
template <> struct Key<8> { typedef u64 type; };

/// Returns the value at a share of the way from one element to another, in the same steps as on the CPU.
template <class T> CUZARR_DEVICE double between(const Rows& rows, u64 first, u64 second, double share) {
    typedef typename Bits<sizeof(T)>::type Raw;
    Raw raws[2] = {(Raw)keys::raw_of(rows.keys, first), (Raw)keys::raw_of(rows.keys, second)};
    double a = ops::Cast<double>::of(ops::load(*(const T*)&raws[0])), b = ops::Cast<double>::of(ops::load(*(const T*)&raws[1]));
    if (first == second || share == 0) return a;
    if (rows.is_middle) return (a + b) / 2;
    // Integers are subtracted as keys, because binary64 may have rounded them.
    double distance = rows.keys.kind == keys::FLOAT ? b - a : (double)(second - first);
    if (share == 1) return b;
    return share >= 0.5 ? b - distance * (1 - share) : a + distance * share;
}

/// Answers of a row. Elements are given as their bits, values between two elements as binary64.
template <class T, bool IS_ELEMENT> struct Answer {
    typedef typename Bits<sizeof(T)>::type type;
    CUZARR_DEVICE static type of(const Rows& rows, u64 first, u64, double) { return (type)keys::raw_of(rows.keys, first); }
    CUZARR_DEVICE static type nan(const Rows& rows) { return (type)rows.nan; }
};
template <class T> struct Answer<T, false> {
    typedef double type;
    CUZARR_DEVICE static double of(const Rows& rows, u64 first, u64 second, double share) {
        return canonical(between<T>(rows, first, second, share));
    }
    CUZARR_DEVICE static double nan(const Rows&) { return double_of(0x7ff8000000000000ull); }
};

/// Sorts every row of a tile.
template <class K> CUZARR_DEVICE void sort(K* tile, u32 count, u32 width) {
#pragma unroll 1
    for (u32 run = 2; run <= width; run *= 2) {
#pragma unroll 1
        for (u32 step = run / 2; step; step /= 2) {
            for (u32 pair = thread_index(); pair < count / 2; pair += thread_count()) {
                u32 low = 2 * pair - (pair & (step - 1)), high = low + step;
                K a = tile[low], b = tile[high];
                bool is_upwards = (low & (width - 1) & run) == 0;
                if ((a > b) == is_upwards) {
                    tile[low] = b;
                    tile[high] = a;
                }
            }
            block_barrier();
        }
    }
}

/// Loads the keys of a tile's rows into shared memory, and counts the NaN elements of each row.
template <class T, class K, u32 KEPT, u32 REDUCED>
CUZARR_DEVICE void load(const reduce::Where<KEPT, REDUCED>& where, const Rows& rows, u64 first_row, K* tile, u32* nans) {
    typedef typename Bits<sizeof(T)>::type Raw;
    const u32 width = rows.width, height = rows.tile_rows;
    for (u32 row = thread_index(); row < height; row += thread_count()) nans[row] = 0;
    block_barrier();
    for (u32 number = thread_index(); number < width * height; number += thread_count()) {
        u32 row = rows.is_across ? number % height : number / width, at = rows.is_across ? number / height : number % width;
        u64 key = ~0ull;
        if (at < where.reduced && first_row + row < where.outputs) {
            i64 kept = reduce::offset<KEPT>(first_row + row, where.kept_shape, where.kept_strides);
            i64 over = reduce::offset<REDUCED>(at, where.reduced_shape, where.reduced_strides);
            u64 raw = *(const Raw*)(where.origin + (u64)(kept + over));
            if (!keys::key_of(rows.keys, raw, &key)) atomic_add(&nans[row], 1u);
        }
        tile[row * width + at] = (K)key;
    }
    block_barrier();
}

/// Computes the answers of all rows for each probability in turn.
template <class T, bool IS_ELEMENT, u32 KEPT, u32 REDUCED>
CUZARR_DEVICE void select(const reduce::Where<KEPT, REDUCED>& where, const Rows& rows, typename Answer<T, IS_ELEMENT>::type* out,
                          typename Key<sizeof(T)>::type* tile, u32* nans) {
    typedef Answer<T, IS_ELEMENT> Answer;
    const u32 width = rows.width, height = rows.tile_rows;
    for (u64 first_row = (u64)block_index() * height; first_row < where.outputs; first_row += (u64)block_count() * height) {
        load<T>(where, rows, first_row, tile, nans);
        sort(tile, width * height, width);
        for (u32 number = thread_index(); number < height * rows.probabilities; number += thread_count()) {
            u32 row = number % height, probability = number / height;
            if (first_row + row >= where.outputs) continue;
            u32 missing = nans[row], count = (u32)where.reduced - missing;
            typename Answer::type* answer = out + probability * where.outputs + first_row + row;
            if (count == 0 || (missing && !rows.skips_nan)) {
                *answer = Answer::nan(rows);
            } else {
                Place place = rows.places[(rows.skips_nan ? count - 1 : 0) * rows.probabilities + probability];
                const auto* own = tile + row * width;
                *answer = Answer::of(rows, own[place.first], own[place.second], place.share);
            }
        }
        block_barrier();
    }
}

}  // namespace rows
