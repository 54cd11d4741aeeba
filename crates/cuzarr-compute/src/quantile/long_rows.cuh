// Quantiles of many rows that are too long to be sorted in shared memory. A block searches one row, or several
// neighbouring rows, digit by digit. It counts the elements by the highest digit of their keys. Then it takes those
// that share this digit with the wanted element, and counts them by their next digit, and so on. So a row is read once
// for each digit, mostly from the cache. It is read once more if the answer lies between the wanted element and a
// larger one.
//
// Every lane of a warp has its own counters, and the counters of different lanes lie in different banks of shared
// memory. So lanes do not wait for each other if many elements have the same value. If neighbouring rows are neighbours
// in memory, each lane counts for its own row. Otherwise all lanes count for one row, and their counters are added.
//
// Floor: the bytes of the elements / 3.3 TB/s on an H100, for each pass that the cache does not hold.
#pragma once
#include "quantile/rows.cuh"

/// Largest number of threads in a block.
#define CUZARR_SEARCH_THREADS 1024u

namespace rows {

const u32 DIGIT_BITS = 8, DIGITS = 1u << DIGIT_BITS;
/// Number of digits whose counts are added up together in the search for the wanted digit.
const u32 BAND = 32, BANDS = DIGITS / BAND;
const u32 COUNTERS = DIGITS * CUZARR_WARP;

/// Shared memory of a block's threads.
struct Search {
    u32* counters;  // COUNTERS: for each digit one of each lane. Later the keys of CUZARR_SEARCH_THREADS threads
    u32* bands;     // BANDS for each lane
    u32* digit;     // of each lane's row: the digit of the wanted element
    u32* before;    // elements of this digit before the wanted element
    u32* count;     // elements of this digit
    u32* nans;
};
/// Number of words of shared memory that a search takes.
const u32 SEARCH_WORDS = COUNTERS + (BANDS + 4) * CUZARR_WARP;

/// Returns the sum over the lanes that count for one row. These lanes lie `rows` apart.
CUZARR_DEVICE u32 sum_of_lanes(u32 own, u32 rows) {
    for (u32 apart = rows; apart < CUZARR_WARP; apart *= 2) own += warp_shuffle_xor(CUZARR_ALL_LANES, own, apart);
    return own;
}

/// Finds the digit of element number `rank` of the counted elements, for each lane's row.
CUZARR_DEVICE void find_digit(const Search& search, u32 rows, u32 rank) {
    u32 lane = thread_index() % CUZARR_WARP, warp = thread_index() / CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    for (u32 band = warp; band < BANDS; band += warps) {
        u32 sum = 0;
#pragma unroll 8
        for (u32 digit = band * BAND; digit < (band + 1) * BAND; ++digit) sum += search.counters[digit * CUZARR_WARP + lane];
        search.bands[band * CUZARR_WARP + lane] = sum_of_lanes(sum, rows);
    }
    block_barrier();
    if (warp == 0) {
        u32 band = 0, left = rank, found = DIGITS - 1, before = 0, count = 0;
        while (band + 1 < BANDS && left >= search.bands[band * CUZARR_WARP + lane]) left -= search.bands[band++ * CUZARR_WARP + lane];
#pragma unroll 4
        for (u32 digit = band * BAND, at = 0; at < BAND; ++at, ++digit) {
            u32 own = sum_of_lanes(search.counters[digit * CUZARR_WARP + lane], rows);
            if (count == 0 && left < own) {
                found = digit;
                before = left;
                count = own;
            } else if (count == 0) {
                left -= own;
            }
        }
        search.digit[lane] = found;
        search.before[lane] = before;
        search.count[lane] = count;
    }
    block_barrier();
}

/// Returns the smallest of the threads' keys, for each lane's row.
template <class K> CUZARR_DEVICE K least_of_lanes(K* least, K own, u32 rows) {
    least[thread_index()] = own;
    block_barrier();
    for (u32 half = thread_count() / 2; half >= rows; half /= 2) {
        if (thread_index() < half && least[thread_index() + half] < least[thread_index()]) {
            least[thread_index()] = least[thread_index() + half];
        }
        block_barrier();
    }
    return least[thread_index() % rows];
}

/// A thread's share of a row.
template <class T, u32 KEPT, u32 REDUCED> struct Row {
    typedef typename Bits<sizeof(T)>::type Raw;
    const reduce::Where<KEPT, REDUCED>& where;
    const Rows& rows;
    u64 base, elems;

    template <class Take> CUZARR_DEVICE void each_key(Take take) const {
        const u32 step = thread_count() / rows.tile_rows;
#pragma unroll 8
        for (u64 at = thread_index() / rows.tile_rows; at < elems; at += step) {
            Raw key = 0, raw = *(const Raw*)(base + (u64)reduce::offset<REDUCED>(at, where.reduced_shape, where.reduced_strides));
            bool is_number = keys::narrow_key_of(rows.keys, raw, &key);
            take(is_number, key);
        }
    }
};

/// Computes the answers of all rows for a single probability.
template <class T, bool IS_ELEMENT, u32 KEPT, u32 REDUCED>
CUZARR_DEVICE void search(const reduce::Where<KEPT, REDUCED>& where, const Rows& rows, typename Answer<T, IS_ELEMENT>::type* out,
                          u32* words) {
    typedef Answer<T, IS_ELEMENT> Answer;
    typedef typename Bits<sizeof(T)>::type Raw;
    const u32 BITS = 8 * sizeof(T), height = rows.tile_rows, lane = thread_index() % CUZARR_WARP;
    u32* lanes = words + COUNTERS + BANDS * CUZARR_WARP;
    Search search = {words, words + COUNTERS, lanes, lanes + CUZARR_WARP, lanes + 2 * CUZARR_WARP, lanes + 3 * CUZARR_WARP};
    for (u64 first_row = (u64)block_index() * height; first_row < where.outputs; first_row += (u64)block_count() * height) {
        const u64 row = first_row + thread_index() % height;
        const bool is_row = row < where.outputs;
        const u64 base = where.origin + (is_row ? (u64)reduce::offset<KEPT>(row, where.kept_shape, where.kept_strides) : 0);
        const u64 elems = is_row ? where.reduced : 0;
        const Row<T, KEPT, REDUCED> own = {where, rows, base, elems};
        if (thread_index() < CUZARR_WARP) search.nans[lane] = 0;
        Raw low = 0, same = 0;  // the known bits of the wanted key, and a mask of them
        Place place = {0, 0, 0};
        u32 rank = 0, missing = 0;
#pragma unroll 1
        for (u32 shift = BITS - DIGIT_BITS;; shift -= DIGIT_BITS) {
            for (u32 at = thread_index(); at < COUNTERS; at += thread_count()) search.counters[at] = 0;
            block_barrier();
            own.each_key([&](bool is_number, Raw key) {
                if (is_number && ((key ^ low) & same) == 0) {
                    atomic_add(&search.counters[(u32)(key >> shift) % DIGITS * CUZARR_WARP + lane], 1u);
                }
                if (same == 0 && !is_number) atomic_add(&search.nans[lane % height], 1u);
            });
            block_barrier();
            if (same == 0) {
                missing = search.nans[lane % height];
                u32 count = (u32)elems - missing;
                if (count) place = rows.places[rows.skips_nan ? count - 1 : 0];
                rank = place.first;
            }
            find_digit(search, height, rank);
            low |= (Raw)((Raw)search.digit[lane] << shift);
            same |= (Raw)((Raw)(DIGITS - 1) << shift);
            rank = search.before[lane];
            if (shift == 0) break;
        }
        // The second wanted element has the key of the first one, or the next larger key.
        Raw second = low;
        const bool is_last = place.second != place.first && rank + 1 >= search.count[lane];
        if (thread_index() < CUZARR_WARP) search.nans[lane] = warp_ballot(CUZARR_ALL_LANES, is_last);
        block_barrier();
        if (search.nans[0]) {
            Raw least = (Raw)~(Raw)0;
            own.each_key([&](bool is_number, Raw key) { least = is_number && key > low && key < least ? key : least; });
            least = least_of_lanes((Raw*)search.counters, least, height);
            if (is_last) second = least;
        }
        if (thread_index() < height && is_row) {
            bool has_answer = missing < where.reduced && (missing == 0 || rows.skips_nan);
            out[row] = has_answer ? Answer::of(rows, low, second, place.share) : Answer::nan(rows);
        }
        block_barrier();
    }
}

}  // namespace rows
