// Counts elements by the values of their keys. `count/mod.rs` explains it, and `count/cpu.rs` gives the same numbers.
//
// Neighbouring threads read neighbouring elements: a thread's elements lie one whole grid apart. Every block keeps a
// small table of counters in shared memory, and adds it to global memory at the end. If the slot of a counter is taken
// by another counter, the thread adds to global memory at once. So neither many elements of one value nor many
// different values are slow.
//
// If there is one result with few bins, the bins and their edges lie in shared memory. Each counter exists several
// times, so that lanes of a warp seldom wait for each other. Most bins have the same width, so the bin is guessed from
// the element's value. If the edges contradict the guess, the bin is searched.
//
// Floor: the bytes of the elements / 3.3 TB/s on an H100.
#include "program/arithmetic.cuh"
#include "count/keys.cuh"

#define CUZARR_COUNT_AXES 8u
#define CUZARR_COUNT_SLOTS 4096u
/// Number of elements that a thread loads before it counts the first.
#define CUZARR_COUNT_AT_ONCE 4u
#define CUZARR_NONE (~0ull)
/// Largest number of bins that are counted in shared memory, and the number of counters there.
#define CUZARR_FEW_BINS 1024u
#define CUZARR_BIN_COUNTERS 4096u
/// Bytes that a thread loads at a time, and the number of such loads before it counts the first element.
#define CUZARR_COUNT_PACK 16u
#define CUZARR_COUNT_PACKS 2u

/// The place of the elements, and the edges or intervals by which they are counted. `CountJob` in cuda.rs.
struct Job {
    u64 origin;
    u64 first_output;
    u64 outputs;
    u64 reduced;
    u64 kept_shape[CUZARR_COUNT_AXES];
    u64 over_shape[CUZARR_COUNT_AXES];
    i64 kept_strides[CUZARR_COUNT_AXES];
    i64 over_strides[CUZARR_COUNT_AXES];
    keys::Keys keys;
    u64* counters;     // those of each element of the result in turn; then one for its NaN
    const u64* table;  // edges, or the first key of each interval
    u64 edges;         // 0: by digits
    u32 kept_axes;
    u32 over_axes;
    u32 is_across;  // neighbouring elements of the result are neighbours in memory
    u32 intervals;
    u32 shift;
    u32 bits;
    double first_edge;  // these two guess an element's bin
    double bins_per_unit;
};

CUZARR_DEVICE i64 offset(u64 number, u32 axes, const u64* shape, const i64* strides) {
    i64 sum = 0;
#pragma unroll 1
    for (u32 axis = axes - 1; axis > 0; --axis) {
        u64 up = number / shape[axis];
        sum += (i64)(number - up * shape[axis]) * strides[axis];
        number = up;
    }
    return sum + (i64)number * strides[0];
}

/// Adds one to a counter: in the block's table if the counter has a slot there, else in global memory.
CUZARR_DEVICE void add(const Job& job, u32* tags, u32* counts, u64 counter) {
    u32 slot = (u32)(counter ^ (counter >> 12)) & (CUZARR_COUNT_SLOTS - 1), tag = (u32)counter + 1;
    u32 known = volatile_load(&tags[slot]);
    if (known == 0) {
        known = atomic_compare_exchange(&tags[slot], 0, tag);
        if (known == 0) known = tag;
    }
    if (known == tag) {
        atomic_add(&counts[slot], 1u);
    } else {
        atomic_add(&job.counters[counter], (u64)1);
    }
}

/// Returns the index of a key's counter among the counters of one element of the result. CUZARR_NONE if the key lies
/// outside the edges and intervals.
CUZARR_DEVICE u64 counter_of(const Job& job, u64 output, u32 interval, u64 key) {
    if (job.edges == 0) {
        u64 first = job.table[output * job.intervals + interval], digit = (key - first) >> job.shift;
        return digit >> job.bits == 0 && first != ~0ull ? ((u64)interval << job.bits) + digit : CUZARR_NONE;
    }
    if (key > job.table[job.edges - 1]) return CUZARR_NONE;
    // The number of edges, without the last one, that are at most the key.
    u64 low = 0, high = job.edges - 1;
#pragma unroll 1
    while (low < high) {
        u64 middle = (low + high) / 2;
        if (job.table[middle] <= key) low = middle + 1; else high = middle;
    }
    return low - 1;
}

CUZARR_DEVICE void take(const Job& job, u32* tags, u32* counts, u64 output, u64 raw) {
    u64 key = 0, each = job.edges ? job.edges - 1 : (u64)job.intervals << job.bits;
    bool is_number = keys::key_of(job.keys, raw, &key);
    u32 intervals = is_number && !job.edges ? job.intervals : 1;
#pragma unroll 1
    for (u32 interval = 0; interval < intervals; ++interval) {
        u64 counter = is_number ? counter_of(job, output, interval, key) : 0;
        if (counter == CUZARR_NONE) continue;
        add(job, tags, counts, is_number ? output * each + counter : job.outputs * each + output);
    }
}

/// Returns the bits of an element, and the number of the element of the result that it belongs to.
template <class T> CUZARR_DEVICE u64 load(const Job& job, u64 number, u64* output) {
    u64 at = number;
    *output = 0;
    if (job.is_across) {
        at = number / job.outputs;
        *output = number - at * job.outputs;
    } else if (job.outputs > 1) {
        *output = number / job.reduced;
        at = number - *output * job.reduced;
    }
    i64 kept = offset(job.first_output + *output, job.kept_axes, job.kept_shape, job.kept_strides);
    i64 over = offset(at, job.over_axes, job.over_shape, job.over_strides);
    return (u64) * (const T*)(job.origin + (u64)(kept + over));
}

template <class T> CUZARR_DEVICE void count(const Job& job, u32* tags, u32* counts) {
    for (u32 slot = thread_index(); slot < CUZARR_COUNT_SLOTS; slot += thread_count()) tags[slot] = counts[slot] = 0;
    block_barrier();
    u64 all = job.outputs * job.reduced, step = (u64)block_count() * thread_count();
    u64 number = (u64)block_index() * thread_count() + thread_index();
    if (job.outputs == 1 && job.over_axes == 1) {
        // The elements are one row.
        const u64 origin = job.origin + (u64)offset(job.first_output, job.kept_axes, job.kept_shape, job.kept_strides);
#pragma unroll 1
        for (; number + (CUZARR_COUNT_AT_ONCE - 1) * step < all; number += CUZARR_COUNT_AT_ONCE * step) {
            u64 raw[CUZARR_COUNT_AT_ONCE];
#pragma unroll
            for (u32 at = 0; at < CUZARR_COUNT_AT_ONCE; ++at) {
                raw[at] = *(const T*)(origin + (number + at * step) * (u64)job.over_strides[0]);
            }
#pragma unroll
            for (u32 at = 0; at < CUZARR_COUNT_AT_ONCE; ++at) take(job, tags, counts, 0, raw[at]);
        }
    }
#pragma unroll 1
    for (; number < all; number += step) {
        u64 output;
        u64 raw = load<T>(job, number, &output);
        take(job, tags, counts, output, raw);
    }
    block_barrier();
    for (u32 slot = thread_index(); slot < CUZARR_COUNT_SLOTS; slot += thread_count()) {
        if (tags[slot]) atomic_add(&job.counters[tags[slot] - 1], (u64)counts[slot]);
    }
}

/// The type in which an element's bin is guessed.
template <class T> struct Guess { typedef float type; };
template <> struct Guess<u64> { typedef double type; };

CUZARR_DEVICE float float_as(u32 raw, float) { return float_of(raw); }
CUZARR_DEVICE double float_as(u64 raw, double) { return double_of(raw); }
/// The guess for half floats is poor, so their bins are mostly searched.
CUZARR_DEVICE float float_as(u16 raw, float) { return (float)raw; }
CUZARR_DEVICE float float_as(u8 raw, float) { return (float)raw; }

CUZARR_DEVICE i64 signed_of(u8 raw) { return (i8)raw; }
CUZARR_DEVICE i64 signed_of(u16 raw) { return (i16)raw; }
CUZARR_DEVICE i64 signed_of(u32 raw) { return (i32)raw; }
CUZARR_DEVICE i64 signed_of(u64 raw) { return (i64)raw; }

/// The bins of a single result, in shared memory.
template <class T> struct Binning {
    typedef typename Guess<T>::type G;
    keys::Keys keys;
    const T* edges;  // their keys
    u32* counters;   // `copies` of every bin's counter, of one for elements outside, and of one for NaN
    u32 bins, copies;
    T lowest, highest;
    G first, scale;

    /// Returns the bin of an element: `bins` for elements outside, `bins + 1` for NaN.
    CUZARR_DEVICE u32 of(T raw) const {
        T key = 0;
        if (!keys::narrow_key_of(keys, raw, &key)) return bins + 1;
        if (key < lowest || key > highest) return bins;
        G value = keys.kind == keys::FLOAT ? float_as(raw, G(0)) : keys.kind == keys::SIGNED ? (G)signed_of(raw) : (G)raw;
        G place = (value - first) * scale, last = (G)(bins - 1);
        // `place` is NaN where edges are infinite.
        u32 bin = place > 0 ? (u32)(place < last ? place : last) : 0;
        if (edges[bin] <= key && key < edges[bin + 1]) return bin;
        u32 low = 0, high = bins;
        while (low < high) {
            u32 middle = (low + high) / 2;
            if (edges[middle] <= key) low = middle + 1; else high = middle;
        }
        return low - 1;
    }
    CUZARR_DEVICE void take(T raw) const { atomic_add(&counters[of(raw) * copies + (thread_index() & (copies - 1))], 1u); }
};

template <class T> CUZARR_DEVICE void count_bins(const Job& job, T* edges, u32* counters) {
    const u32 bins = (u32)job.edges - 1;
    u32 copies = CUZARR_WARP;
    while (copies > 1 && (bins + 2) * copies > CUZARR_BIN_COUNTERS) copies /= 2;
    for (u32 at = thread_index(); at < (bins + 2) * copies; at += thread_count()) counters[at] = 0;
    for (u32 at = thread_index(); at <= bins; at += thread_count()) edges[at] = (T)job.table[at];
    block_barrier();
    typedef typename Guess<T>::type G;
    const Binning<T> binning = {job.keys, edges, counters, bins, copies, edges[0], edges[bins], (G)job.first_edge, (G)job.bins_per_unit};
    const u64 origin = job.origin + (u64)offset(job.first_output, job.kept_axes, job.kept_shape, job.kept_strides);
    u64 step = (u64)block_count() * thread_count(), own = (u64)block_index() * thread_count() + thread_index(), done = 0;
    if (job.over_axes == 1 && job.over_strides[0] == (i64)sizeof(T) && origin % CUZARR_COUNT_PACK == 0) {
        const u32 LANES = CUZARR_COUNT_PACK / sizeof(T);
        typedef ops::Pack<T, LANES> Pack;
        const u64 packs = job.reduced / LANES;
        u64 number = own;
#pragma unroll 1
        for (; number + (CUZARR_COUNT_PACKS - 1) * step < packs; number += CUZARR_COUNT_PACKS * step) {
            Pack pack[CUZARR_COUNT_PACKS];
#pragma unroll
            for (u32 at = 0; at < CUZARR_COUNT_PACKS; ++at) pack[at] = ((const Pack*)origin)[number + at * step];
#pragma unroll
            for (u32 at = 0; at < CUZARR_COUNT_PACKS; ++at) {
#pragma unroll
                for (u32 lane = 0; lane < LANES; ++lane) binning.take(pack[at].at[lane]);
            }
        }
#pragma unroll 1
        for (; number < packs; number += step) {
            Pack pack = ((const Pack*)origin)[number];
#pragma unroll
            for (u32 lane = 0; lane < LANES; ++lane) binning.take(pack.at[lane]);
        }
        done = packs * LANES;
    }
#pragma unroll 1
    for (u64 number = done + own; number < job.reduced; number += step) {
        binning.take(*(const T*)(origin + (u64)offset(number, job.over_axes, job.over_shape, job.over_strides)));
    }
    block_barrier();
    for (u32 bin = thread_index(); bin < bins + 2; bin += thread_count()) {
        u64 sum = 0;
        // Each thread begins with another copy, so that threads use different banks of shared memory.
        for (u32 at = 0; at < copies; ++at) sum += counters[bin * copies + ((at + bin) & (copies - 1))];
        if (sum && bin != bins) atomic_add(&job.counters[bin < bins ? bin : bins], sum);
    }
}

#define CUZARR_COUNT(T)                                   \
    CUZARR_KERNEL(count_##T, Job job) {                   \
        CUZARR_SHARED(u32, tags, CUZARR_COUNT_SLOTS);     \
        CUZARR_SHARED(u32, counts, CUZARR_COUNT_SLOTS);   \
        count<T>(job, tags, counts);                      \
    }

CUZARR_COUNT(u8)
CUZARR_COUNT(u16)
CUZARR_COUNT(u32)
CUZARR_COUNT(u64)

#define CUZARR_COUNT_BINS(T)                                   \
    CUZARR_KERNEL(count_bins_##T, Job job) {                   \
        CUZARR_SHARED(T, edges, CUZARR_FEW_BINS + 1);          \
        CUZARR_SHARED(u32, counters, CUZARR_BIN_COUNTERS);     \
        count_bins<T>(job, edges, counters);                   \
    }

CUZARR_COUNT_BINS(u8)
CUZARR_COUNT_BINS(u16)
CUZARR_COUNT_BINS(u32)
CUZARR_COUNT_BINS(u64)
