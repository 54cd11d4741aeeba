// Running sums of whole chunks, which decode `delta`, and differences, which encode it. Integers wrap, so their sums
// may be computed in any order. Floats round, so they are added one after the other, as on the CPU.
//
// integers, in tiles of 2 KiB a warp:
//     delta_totals: the sum of every tile
//     delta_offsets: one warp per chunk: replaces each total by the sum of all tiles before (only if a chunk has
//         several tiles)
//     delta_sums: each warp reads its 2 KiB, scans them in registers, and adds the sums of the warps and tiles before
// floats: delta_floats: one warp per chunk: lanes load and store 32 elements at once, and all of them carry the same
// sum
// differences: delta_differences: each thread handles 16 bytes, and reads the element before them
//
// Floor: three times the bytes / 3.3 TB/s on an H100 (twice if each chunk has one tile). Floats: some 6 cycles for each
// element of a chunk; a chunk of 4-byte floats gets 1 GB/s, however many other chunks there are.
#include "cuzarr/elements.cuh"
#include "cuzarr/search.cuh"
#include "cuzarr/warp.cuh"

/// The places of one chunk. `DeltaEntry` in cuda.rs.
struct Chunk {
    u64 src_offset;  // a multiple of 16, as all offsets here
    u64 dst_offset;
    u64 bytes;
    u32 first_tile;  // tiles are numbered through over all chunks
    u32 reserved;
};
static_assert(sizeof(Chunk) == 32, "as delta/cuda.rs has it");

/// Number of 16-byte loads of each lane in a tile, and the bytes of a warp's tile.
#define CUZARR_DELTA_ROUNDS 4u
#define CUZARR_DELTA_WARP_BYTES (512u * CUZARR_DELTA_ROUNDS)

CUZARR_DEVICE u32 chunk_of_tile(const Chunk* chunks, u32 count, u32 tile) {
    return last_from(count, tile, [=](u32 chunk) { return chunks[chunk].first_tile; });
}

/// Loads 16 bytes as two words. Bytes at or behind `rest` count as zero.
CUZARR_DEVICE Value load_sixteen(const u8* from, i64 rest) {
    if (rest >= 16) return load_value(from, 16, true);
    return load_value(from, rest > 0 ? (u32)rest : 0, false);
}

CUZARR_DEVICE void store_sixteen(u8* to, Value value, i64 rest) {
    if (rest >= 16) store_value(to, value, 16, true);
    else if (rest > 0) store_value(to, value, (u32)rest, false);
}

/// Replaces the elements of a word by their running sums, which begin with `sum`. `sum` becomes the last one.
template <class T>
CUZARR_DEVICE u64 scan_word(u64 word, T& sum) {
    u64 scanned = 0;
#pragma unroll
    for (u32 bit = 0; bit < 64; bit += 8 * sizeof(T)) {
        sum = (T)(sum + (T)(word >> bit));
        scanned |= (u64)sum << bit;
    }
    return scanned;
}

template <class T>
CUZARR_DEVICE T total_of(Value value) {
    T sum = 0;
    scan_word(value.low, sum);
    scan_word(value.high, sum);
    return sum;
}

template <class T>
CUZARR_DEVICE Value scan_value(Value value, T sum) {
    Value scanned;
    scanned.low = scan_word(value.low, sum);
    scanned.high = scan_word(value.high, sum);
    return scanned;
}

/// Returns the sum of all lanes below. `total` becomes the sum of all lanes.
template <class T>
CUZARR_DEVICE T sum_below(T value, u32 lane, T& total) {
    T sum = inclusive_sum(value, lane);
    total = warp_shuffle(CUZARR_ALL_LANES, sum, 31);
    return (T)(sum - value);
}

template <class T>
CUZARR_DEVICE void delta_totals(const u8* src, const Chunk* chunks, u32 count, u32 tiles, u64* totals) {
    CUZARR_SHARED(u64, partial, 32);
    u32 lane = thread_index() % CUZARR_WARP, warp = thread_index() / CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    for (u32 tile = block_index(); tile < tiles; tile += block_count()) {
        const Chunk& chunk = chunks[chunk_of_tile(chunks, count, tile)];
        u64 at = ((u64)(tile - chunk.first_tile) * warps + warp) * CUZARR_DELTA_WARP_BYTES + lane * 16;
        T sum = 0, total;
        for (u32 round = 0; round < CUZARR_DELTA_ROUNDS; ++round) {
            u64 place = at + round * 512;
            sum = (T)(sum + total_of<T>(load_sixteen(src + chunk.src_offset + place, (i64)(chunk.bytes - place))));
        }
        sum_below(sum, lane, total);
        if (lane == 0) partial[warp] = total;
        block_barrier();
        if (thread_index() == 0) {
            for (u32 other = 1; other < warps; ++other) total = (T)(total + (T)partial[other]);
            totals[tile] = total;
        }
        block_barrier();
    }
}

template <class T>
CUZARR_DEVICE void delta_sums(
    const u8* src, u8* dst, const Chunk* chunks, u32 count, u32 tiles, const u64* offsets
) {
    CUZARR_SHARED(u64, partial, 32);
    u32 lane = thread_index() % CUZARR_WARP, warp = thread_index() / CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    for (u32 tile = block_index(); tile < tiles; tile += block_count()) {
        const Chunk& chunk = chunks[chunk_of_tile(chunks, count, tile)];
        u64 at = ((u64)(tile - chunk.first_tile) * warps + warp) * CUZARR_DELTA_WARP_BYTES + lane * 16;
        Value values[CUZARR_DELTA_ROUNDS];
        T before[CUZARR_DELTA_ROUNDS], carried = 0;
#pragma unroll
        for (u32 round = 0; round < CUZARR_DELTA_ROUNDS; ++round) {
            u64 place = at + round * 512;
            values[round] = load_sixteen(src + chunk.src_offset + place, (i64)(chunk.bytes - place));
        }
#pragma unroll
        for (u32 round = 0; round < CUZARR_DELTA_ROUNDS; ++round) {
            T total;
            before[round] = (T)(carried + sum_below(total_of<T>(values[round]), lane, total));
            carried = (T)(carried + total);
        }
        if (lane == 0) partial[warp] = carried;
        block_barrier();
        T offset = offsets ? (T)offsets[tile] : (T)0;
        for (u32 other = 0; other < warp; ++other) offset = (T)(offset + (T)partial[other]);
#pragma unroll
        for (u32 round = 0; round < CUZARR_DELTA_ROUNDS; ++round) {
            u64 place = at + round * 512;
            Value scanned = scan_value<T>(values[round], (T)(offset + before[round]));
            store_sixteen(dst + chunk.dst_offset + place, scanned, (i64)(chunk.bytes - place));
        }
        block_barrier();
    }
}

/// Wraps in 64 bits; narrower types use the low bits.
CUZARR_KERNEL(delta_offsets, u64* totals, const Chunk* chunks, u32 count, u32 tiles) {
    u32 lane = thread_index() % CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    u32 step = block_count() * warps;
    for (u32 index = block_index() * warps + thread_index() / CUZARR_WARP; index < count; index += step) {
        u32 first = chunks[index].first_tile, end = index + 1 < count ? chunks[index + 1].first_tile : tiles;
        u64 carried = 0, total;
        for (u32 tile = first; tile < end; tile += CUZARR_WARP) {
            u64 own = tile + lane < end ? totals[tile + lane] : 0, below = sum_below(own, lane, total);
            if (tile + lane < end) totals[tile + lane] = carried + below;
            carried += total;
        }
    }
}

#define CUZARR_DELTA(type, bytes)                                                                                       \
    CUZARR_KERNEL(delta_totals_##bytes, const u8* src, const Chunk* chunks, u32 count, u32 tiles, u64* totals) {         \
        delta_totals<type>(src, chunks, count, tiles, totals);                                                          \
    }                                                                                                                   \
    CUZARR_KERNEL(                                                                                                      \
        delta_sums_##bytes, const u8* src, u8* dst, const Chunk* chunks, u32 count, u32 tiles, const u64* offsets        \
    ) {                                                                                                                 \
        delta_sums<type>(src, dst, chunks, count, tiles, offsets);                                                      \
    }

CUZARR_DELTA(u8, 1)
CUZARR_DELTA(u16, 2)
CUZARR_DELTA(u32, 4)
CUZARR_DELTA(u64, 8)

/// Adds a warp's elements one after the other, if none of them is NaN. Otherwise returns false and leaves `carried`
/// unchanged. All elements are fetched before the first addition, so that each costs only the addition, which waits for
/// the one before.
template <class F>
CUZARR_DEVICE bool sum_numbers(F element, F& carried, F& mine, u32 lane) {
    F elements[CUZARR_WARP], sum = carried;
#pragma unroll
    for (u32 k = 0; k < CUZARR_WARP; ++k) elements[k] = warp_shuffle(CUZARR_ALL_LANES, element, k);
#pragma unroll
    for (u32 k = 0; k < CUZARR_WARP; ++k) {
        sum = sum + elements[k];
        mine = k == lane ? sum : mine;
    }
    // If any element is NaN, the sum is NaN, too.
    if (sum != sum) return false;
    carried = sum;
    return true;
}

/// Floats of 4 and 8 bytes: how they are read, and added with the CPU's rules for NaN.
struct Single {
    typedef float Number;
    CUZARR_DEVICE Number number(u64 bits) const { return float_of((u32)bits); }
    CUZARR_DEVICE u64 bits(Number number) const { return bits_of(number); }
    CUZARR_DEVICE u64 add(u64 sum, u64 next) const { return arithmetic_32((u32)sum, (u32)next, STEP_ADD); }
};
struct Double {
    typedef double Number;
    CUZARR_DEVICE Number number(u64 bits) const { return double_of(bits); }
    CUZARR_DEVICE u64 bits(Number number) const { return bits_of(number); }
    CUZARR_DEVICE u64 add(u64 sum, u64 next) const { return arithmetic_64(sum, next, STEP_ADD); }
};

/// Adds elements one after the other, with the CPU's rules for NaN. `first` says that the first element begins the
/// chunk; it is taken unchanged.
template <class Add>
CUZARR_DEVICE u64 sum_any(u64 element, u32 count, bool first, u64& carried, u32 lane, Add add) {
    u64 mine = 0;
#pragma unroll 1
    for (u32 k = 0; k < count; ++k) {
        u64 next = warp_shuffle(CUZARR_ALL_LANES, element, k);
        carried = first && k == 0 ? next : add(carried, next);
        if (k == lane) mine = carried;
    }
    return mine;
}

template <class Float>
CUZARR_DEVICE void delta_floats(const u8* src, u8* dst, const Chunk* chunks, u32 count, u32 element_bytes, Float format) {
    u32 lane = thread_index() % CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    u32 step = block_count() * warps;
    for (u32 index = block_index() * warps + thread_index() / CUZARR_WARP; index < count; index += step) {
        const Chunk& chunk = chunks[index];
        u64 elems = chunk.bytes / element_bytes, carried = 0;
        const u8* from = src + chunk.src_offset + (u64)lane * element_bytes;
        u64 ahead = lane < elems ? load_value(from, element_bytes, true).low : 0;
        for (u64 first = 0; first < elems; first += CUZARR_WARP) {
            u64 element = ahead, next = first + CUZARR_WARP + lane;
            u32 inside = elems - first < CUZARR_WARP ? (u32)(elems - first) : CUZARR_WARP;
            // The next elements are loaded while these are summed.
            ahead = next < elems ? load_value(from + (first + CUZARR_WARP) * element_bytes, element_bytes, true).low : 0;
            typename Float::Number sum = format.number(carried), mine = 0;
            u64 result;
            // Adding -0 changes nothing, so lanes without an element add it.
            typename Float::Number own = lane < inside ? format.number(element) : -format.number(0);
            if (first && sum_numbers(own, sum, mine, lane)) {
                carried = format.bits(sum), result = format.bits(mine);
            } else {
                result = sum_any(element, inside, first == 0, carried, lane,
                                 [&](u64 a, u64 b) { return format.add(a, b); });
            }
            Value value = {result, 0};
            if (lane < inside) {
                store_value(dst + chunk.dst_offset + (first + lane) * element_bytes, value, element_bytes, true);
            }
        }
    }
}

/// For 2-byte floats, which are widened, added and rounded each time.
CUZARR_KERNEL(delta_floats_2, const u8* src, u8* dst, const Chunk* chunks, u32 count, u32 type) {
    u32 lane = thread_index() % CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    u32 step = block_count() * warps;
    for (u32 index = block_index() * warps + thread_index() / CUZARR_WARP; index < count; index += step) {
        const Chunk& chunk = chunks[index];
        u64 elems = chunk.bytes / 2, carried = 0;
        for (u64 first = 0; first < elems; first += CUZARR_WARP) {
            u32 inside = elems - first < CUZARR_WARP ? (u32)(elems - first) : CUZARR_WARP;
            u64 place = (first + lane) * 2;
            u64 element = lane < inside ? load_value(src + chunk.src_offset + place, 2, true).low : 0;
            u64 result = sum_any(element, inside, first == 0, carried, lane,
                                 [&](u64 a, u64 b) { return arithmetic(a, b, type, STEP_ADD); });
            Value value = {result, 0};
            if (lane < inside) store_value(dst + chunk.dst_offset + place, value, 2, true);
        }
    }
}

CUZARR_KERNEL(delta_floats_4, const u8* src, u8* dst, const Chunk* chunks, u32 count, u32) {
    delta_floats(src, dst, chunks, count, 4, Single());
}

CUZARR_KERNEL(delta_floats_8, const u8* src, u8* dst, const Chunk* chunks, u32 count, u32) {
    delta_floats(src, dst, chunks, count, 8, Double());
}

/// Replaces each element of a word by its difference from the element before. `before` is the one before the first.
template <class T>
CUZARR_DEVICE u64 differ_word(u64 word, T& before, u32 type) {
    u64 differences = 0;
    if (is_integer(type)) {
#pragma unroll
        for (u32 bit = 0; bit < 64; bit += 8 * sizeof(T)) {
            T own = (T)(word >> bit);
            differences |= (u64)(T)(own - before) << bit;
            before = own;
        }
        return differences;
    }
#pragma unroll 1
    for (u32 bit = 0; bit < 64; bit += 8 * sizeof(T)) {
        T own = (T)(word >> bit);
        differences |= (u64)(T)arithmetic(own, before, type, STEP_SUBTRACT) << bit;
        before = own;
    }
    return differences;
}

/// Source and target must not overlap: a thread reads the element before its bytes, which another thread handles.
template <class T>
CUZARR_DEVICE void delta_differences(const u8* src, u8* dst, const Chunk* chunks, u32 count, u32 tiles, u32 type) {
    u32 lane = thread_index() % CUZARR_WARP, warp = thread_index() / CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    for (u32 tile = block_index(); tile < tiles; tile += block_count()) {
        const Chunk& chunk = chunks[chunk_of_tile(chunks, count, tile)];
        u64 at = ((u64)(tile - chunk.first_tile) * warps + warp) * CUZARR_DELTA_WARP_BYTES + lane * 16;
        for (u32 round = 0; round < CUZARR_DELTA_ROUNDS; ++round) {
            u64 place = at + round * 512;
            if (place >= chunk.bytes) break;
            const u8* from = src + chunk.src_offset + place;
            Value value = load_sixteen(from, (i64)(chunk.bytes - place)), differences;
            T before = place ? (T)load_value(from - sizeof(T), sizeof(T), true).low : (T)0;
            differences.low = differ_word(value.low, before, type);
            differences.high = differ_word(value.high, before, type);
            // The first element is copied unchanged.
            if (place == 0) differences.low = (differences.low & ~(u64)(T)~(T)0) | (u64)(T)value.low;
            store_sixteen(dst + chunk.dst_offset + place, differences, (i64)(chunk.bytes - place));
        }
    }
}

#define CUZARR_DIFFERENCES(type, bytes)                                                                                 \
    CUZARR_KERNEL(                                                                                                      \
        delta_differences_##bytes, const u8* src, u8* dst, const Chunk* chunks, u32 count, u32 tiles, u32 code          \
    ) {                                                                                                                 \
        delta_differences<type>(src, dst, chunks, count, tiles, code);                                                  \
    }

CUZARR_DIFFERENCES(u8, 1)
CUZARR_DIFFERENCES(u16, 2)
CUZARR_DIFFERENCES(u32, 4)
CUZARR_DIFFERENCES(u64, 8)
