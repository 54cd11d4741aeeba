// Counting elements by the values of their keys: see compute/count/mod.rs of the crate cuzarr, whose host twin gives the same
// numbers.
//
// A thread takes elements that lie a whole grid apart, so that neighbouring threads read neighbouring elements. Every block
// keeps a small table of the counters that it met first in shared memory, and adds it to memory at the end; what finds its slot
// taken is added to memory at once. So neither many elements of one value nor many different values are slow.
//
// Floor: the bytes of the elements / 3.3 TB/s on an H100.
#include "cuzarr/keys.cuh"

#define CUZARR_COUNT_AXES 8u
#define CUZARR_COUNT_SLOTS 4096u
/// Elements that a thread has on their way.
#define CUZARR_COUNT_AT_ONCE 4u
#define CUZARR_NONE (~0ull)

/// Where elements lie and what they are counted by. `Job` in cuda.rs.
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
    u64* counters;     // of each element of the result in turn; then one for its NaN
    const u64* table;  // edges, or the first key of each interval
    u64 edges;         // 0: by digits
    u32 kept_axes;
    u32 over_axes;
    u32 is_across;  // neighbouring elements of the result are neighbours in memory
    u32 intervals;
    u32 shift;
    u32 bits;
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

/// Adds one to a counter, in the block's table where it has the counter.
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

/// The counter of a key among those of its element of the result; none between the edges or in an interval: CUZARR_NONE.
CUZARR_DEVICE u64 counter_of(const Job& job, u64 output, u32 interval, u64 key) {
    if (job.edges == 0) {
        u64 first = job.table[output * job.intervals + interval], digit = (key - first) >> job.shift;
        return digit >> job.bits == 0 && first != ~0ull ? ((u64)interval << job.bits) + digit : CUZARR_NONE;
    }
    if (key > job.table[job.edges - 1]) return CUZARR_NONE;
    // How many edges but the last are not above it.
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

/// The bits of an element, and which element of the result it belongs to.
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
        // A row: all loads before the first count.
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
