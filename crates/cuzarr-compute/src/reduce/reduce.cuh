// Reductions. The elements that make up one element of the result are divided into segments, and each segment gives a
// state.
//
// A segment is processed by the lanes of a block, or by one thread, which is then the only lane. Each lane takes every
// n-th element of the segment in order, where n is the number of lanes. A thread of a block has CUZARR_REDUCE_PACK
// neighbouring lanes. At the end, the states of lanes are merged pairwise, the upper half into the lower half, and the
// lanes of each thread first. Another kernel joins the states of segments pairwise, neighbours first.
//
// The order of operations does not depend on the number of blocks, nor on how many elements are loaded at once. `reduce/cpu.rs`
// works in the same order, so the results of CPU and GPU are the same bits.
#pragma once
#include "reduce/accumulators.cuh"

/// Number of elements of a segment that a thread takes.
#define CUZARR_REDUCE_STEPS 256u
/// Number of threads in a block. The host launches as many.
#define CUZARR_REDUCE_THREADS 256u
/// Number of neighbouring lanes of each thread of a block. If their elements are neighbours in memory, one load brings
/// all.
#define CUZARR_REDUCE_PACK 4u
/// Number of segments that a thread of a block joins.
#define CUZARR_REDUCE_JOINED 16u
/// Largest number of dimensions of a region, both of the result's and of the reduced ones.
#define CUZARR_REDUCE_AXES 8u

namespace reduce {

/// Number of elements of a segment that a lane of a block takes.
const u32 LANE_STEPS = CUZARR_REDUCE_STEPS / CUZARR_REDUCE_PACK;

/// The layout of the elements. KEPT dimensions belong to the result; REDUCED dimensions are reduced.
template <u32 KEPT, u32 REDUCED> struct Where {
    u64 origin, outputs, reduced, segments;
    u64 kept_shape[KEPT], reduced_shape[REDUCED];
    i64 kept_strides[KEPT], reduced_strides[REDUCED];
};

template <u32 RANK> CUZARR_DEVICE i64 offset(u64 number, const u64* shape, const i64* strides) {
    i64 offset = 0;
#pragma unroll
    for (u32 axis = RANK - 1; axis > 0; --axis) {
        u64 up = number / shape[axis];
        offset += (i64)(number - up * shape[axis]) * strides[axis];
        number = up;
    }
    return offset + (i64)number * strides[0];
}

/// Adds an element to its lane, in which it is number `step`. Without SKIP, the caller has begun and counted the lane.
template <bool SKIP, class A, class X> CUZARR_DEVICE void take(A& state, X x, u32 step) {
    if (SKIP) {
        if (ops::is_nan(x)) return;
        if (!state.count) state.begin(x, step);
        ++state.count;
    }
    state.take(x, step);
}

/// Computes the state of the elements of a segment that a thread of a block takes.
template <class A, class T, bool SKIP, u32 KEPT, u32 REDUCED>
CUZARR_DEVICE typename Lane<A, T>::State thread_of_block(const Where<KEPT, REDUCED>& where, u64 output, u64 segment) {
    typedef Lane<A, T> Lane;
    typedef ops::Pack<T, CUZARR_REDUCE_PACK> Packed;
    const u32 ROW = CUZARR_REDUCE_THREADS * CUZARR_REDUCE_PACK;
    typename Lane::State states[CUZARR_REDUCE_PACK];
    u64 base = where.origin + (u64)offset<KEPT>(output, where.kept_shape, where.kept_strides);
    u64 first = segment * ROW * LANE_STEPS + thread_index() * CUZARR_REDUCE_PACK;
    u64 left = first < where.reduced ? where.reduced - first : 0;
    auto element = [&](u64 at) {
        return Lane::element(*(const T*)(base + (u64)offset<REDUCED>(at, where.reduced_shape, where.reduced_strides)));
    };
    // Number of steps that all lanes of the thread take.
    u32 steps = left < CUZARR_REDUCE_PACK ? 0 : left / ROW >= LANE_STEPS ? LANE_STEPS : (u32)((left - CUZARR_REDUCE_PACK) / ROW) + 1;
    u64 done = (u64)steps * ROW;
    u32 more = steps < LANE_STEPS && done < left ? (u32)(left - done) : 0;
    if (!SKIP) {
#pragma unroll
        for (u32 at = 0; at < CUZARR_REDUCE_PACK; ++at) {
            if (at < left) states[at].begin(element(first + at), 0);
            states[at].count = steps + (at < more);
        }
    }
    if (REDUCED == 1 && where.reduced_strides[0] == (i64)sizeof(T) && base % sizeof(Packed) == 0) {
        const Packed* packs = (const Packed*)base + first / CUZARR_REDUCE_PACK;
#pragma unroll 4
        for (u32 step = 0; step < steps; ++step) {
            Packed pack = packs[step * CUZARR_REDUCE_THREADS];
#pragma unroll
            for (u32 at = 0; at < CUZARR_REDUCE_PACK; ++at) take<SKIP>(states[at], Lane::element(pack.at[at]), step);
        }
    } else {
#pragma unroll 2
        for (u32 step = 0; step < steps; ++step) {
#pragma unroll
            for (u32 at = 0; at < CUZARR_REDUCE_PACK; ++at) take<SKIP>(states[at], element(first + (u64)step * ROW + at), step);
        }
    }
#pragma unroll
    for (u32 at = 0; at < CUZARR_REDUCE_PACK; ++at) {
        if (at < more) take<SKIP>(states[at], element(first + done + at), steps);
        settle(states[at], first + at, ROW);
    }
#pragma unroll
    for (u32 half = CUZARR_REDUCE_PACK / 2; half; half /= 2) {
#pragma unroll
        for (u32 at = 0; at < half; ++at) states[at].merge(states[at + half]);
    }
    return states[0];
}

/// Reduces with one block for each segment. If elements of the result have several segments, the states are stored, and
/// another kernel joins them. Otherwise one thread calls `end(output, state)` for each element.
template <class A, class T, bool SKIP, u32 KEPT, u32 REDUCED, class End>
CUZARR_DEVICE void by_blocks(const Where<KEPT, REDUCED>& where, State* states, typename Lane<A, T>::State* threads, End end) {
    u32 thread = thread_index();
    for (u64 job = block_index(); job < where.outputs * where.segments; job += block_count()) {
        threads[thread] = thread_of_block<A, T, SKIP>(where, job / where.segments, job % where.segments);
        block_barrier();
        for (u32 half = CUZARR_REDUCE_THREADS / 2; half; half /= 2) {
            if (thread < half) threads[thread].merge(threads[thread + half]);
            block_barrier();
        }
        if (thread == 0) {
            if (where.segments == 1) {
                end(job, threads[0].state());
            } else {
                states[job] = threads[0].state();
            }
        }
        block_barrier();
    }
}

/// Computes the state of one segment with one thread.
template <class A, class T, bool SKIP, u32 KEPT, u32 REDUCED>
CUZARR_DEVICE State thread_alone(const Where<KEPT, REDUCED>& where, u64 output, u64 segment) {
    typedef Lane<A, T> Lane;
    typename Lane::State state;
    u64 base = where.origin + (u64)offset<KEPT>(output, where.kept_shape, where.kept_strides);
    u64 first = segment * CUZARR_REDUCE_STEPS, left = first < where.reduced ? where.reduced - first : 0;
    u32 steps = left < CUZARR_REDUCE_STEPS ? (u32)left : CUZARR_REDUCE_STEPS;
    auto element = [&](u64 at) {
        return Lane::element(*(const T*)(base + (u64)offset<REDUCED>(at, where.reduced_shape, where.reduced_strides)));
    };
    if (!SKIP && steps) {
        state.begin(element(first), 0);
        state.count = steps;
    }
#pragma unroll 8
    for (u32 step = 0; step < steps; ++step) take<SKIP>(state, element(first + step), step);
    settle(state, first, 1);
    return state.state();
}

/// Like `by_blocks`, but with one thread for each segment. Neighbouring threads take neighbouring elements of the
/// result.
template <class A, class T, bool SKIP, u32 KEPT, u32 REDUCED, class End>
CUZARR_DEVICE void by_threads(const Where<KEPT, REDUCED>& where, State* states, End end) {
    u64 step = (u64)block_count() * thread_count();
    for (u64 job = (u64)block_index() * thread_count() + thread_index(); job < where.outputs * where.segments; job += step) {
        u64 output = job % where.outputs, segment = job / where.outputs;
        State state = thread_alone<A, T, SKIP>(where, output, segment);
        if (where.segments == 1) {
            end(output, state);
        } else {
            states[output * where.segments + segment] = state;
        }
    }
}

/// Joins the segments of each element of the result pairwise, in place. One thread joins all segments of an element.
template <class A, class End> CUZARR_DEVICE void join(u64 outputs, u64 segments, State* states, End end) {
    u64 step = (u64)block_count() * thread_count();
    for (u64 output = (u64)block_index() * thread_count() + thread_index(); output < outputs; output += step) {
        State* row = states + output * segments;
        for (u64 left = segments; left > 1; left = (left + 1) / 2) {
            for (u64 pair = 0; pair < (left + 1) / 2; ++pair) {
                A own, other;
                own.set(row[2 * pair]);
                if (2 * pair + 1 < left) {
                    other.set(row[2 * pair + 1]);
                    own.merge(other);
                }
                row[pair] = own.state();
            }
        }
        end(output, row[0]);
    }
}

/// Number of segments that a block joins.
const u32 BLOCK_JOINED = CUZARR_REDUCE_THREADS * CUZARR_REDUCE_JOINED;

/// Joins the first COUNT states, or all if there are fewer. There is at least one state; COUNT is a power of two.
template <class A, u32 COUNT> struct Tree {
    CUZARR_DEVICE static A of(const State* states, u32 count) {
        A own = Tree<A, COUNT / 2>::of(states, count);
        if (count > COUNT / 2) own.merge(Tree<A, COUNT / 2>::of(states + COUNT / 2, count - COUNT / 2));
        return own;
    }
};
template <class A> struct Tree<A, 1> {
    CUZARR_DEVICE static A of(const State* states, u32) {
        A own;
        own.set(states[0]);
        return own;
    }
};

/// Like `join`, but a block joins BLOCK_JOINED segments. An element with more segments gets several results.
template <class A, class End>
CUZARR_DEVICE void join_by_blocks(u64 outputs, u64 segments, const State* states, A* threads, End end) {
    u64 rows = (segments + BLOCK_JOINED - 1) / BLOCK_JOINED;
    u32 thread = thread_index();
    for (u64 job = block_index(); job < outputs * rows; job += block_count()) {
        u64 first = job % rows * BLOCK_JOINED, left = segments - first;
        u32 count = left < BLOCK_JOINED ? (u32)left : BLOCK_JOINED, own = thread * CUZARR_REDUCE_JOINED;
        const State* row = states + job / rows * segments + first;
        if (own < count) threads[thread] = Tree<A, CUZARR_REDUCE_JOINED>::of(row + own, count - own);
        block_barrier();
        for (u32 width = 1; width * CUZARR_REDUCE_JOINED < count; width *= 2) {
            u32 other = thread + width;
            if (thread % (2 * width) == 0 && other < CUZARR_REDUCE_THREADS && other * CUZARR_REDUCE_JOINED < count) threads[thread].merge(threads[other]);
            block_barrier();
        }
        if (thread == 0) end(job, threads[0].state());
        block_barrier();
    }
}

/// One dimension of a region, and the whole array's extent along it.
struct Axis {
    u64 extent, start, shape;
};

/// A region: the dimensions of the result, and the dimensions that are reduced. `Part` in reduce/cuda.rs.
struct Part {
    u64 outputs;
    Axis kept[CUZARR_REDUCE_AXES], reduced[CUZARR_REDUCE_AXES];
    u32 kept_axes, reduced_axes;
};

/// Converts the number of an element in the C order of the region to its number in the C order of the whole array.
CUZARR_DEVICE u64 whole_number(u64 number, const Axis* axes, u32 count) {
    u64 whole = 0, scale = 1;
#pragma unroll 1
    for (u32 axis = count; axis > 0; --axis) {
        u64 up = number / axes[axis - 1].extent;
        whole += (axes[axis - 1].start + number - up * axes[axis - 1].extent) * scale;
        scale *= axes[axis - 1].shape;
        number = up;
    }
    return whole;
}

template <class A> CUZARR_DEVICE void move_place(A&, const Part&) {}
template <class V, bool LEAST> CUZARR_DEVICE void move_place(Extreme<V, LEAST>& state, const Part& part) {
    state.place = whole_number(state.place, part.reduced, part.reduced_axes);
}

/// Merges the state of one element of a region's result into the states of the whole result. A state of the whole result is zero
/// before its first merge.
template <class A> CUZARR_DEVICE void merge_part(const Part& part, u64 output, const State& state, State* all) {
    u64 whole = whole_number(output, part.kept, part.kept_axes);
    A own, other;
    own.set(all[whole]);
    other.set(state);
    move_place(other, part);
    own.merge(other);
    all[whole] = own.state();
}

/// How a state becomes the result. The numbers are those of `Answer` in reduce/cuda.rs.
enum Answer { VALUE, MEAN, MEAN_OF_BOTH, VARIANCE, DEVIATION, NAN_VARIANCE, NAN_DEVIATION, EXTREME, PLACE, ANY, ALL };

CUZARR_DEVICE double variance(const State& state, double ddof) {
    double squares = double_of(state.at[2]), count = (double)state.at[1] - ddof;
    return (squares < 0 ? 0 : squares) / (count < 0 ? 0 : count);
}

/// The variance without NaN elements. It is NaN unless more than `ddof` elements were taken, as in NumPy's `nanvar`.
CUZARR_DEVICE double nan_variance(const State& state, double ddof) {
    return (double)state.at[1] > ddof ? variance(state, ddof) : double_of(0x7ff8000000000000ull);
}

/// Returns an element in its widest type from the words of its state.
template <class W> CUZARR_DEVICE W answer_of(u64 first, u64) {
    W value;
    unword(first, value);
    return value;
}
template <> CUZARR_DEVICE ops::Complex<double> answer_of(u64 first, u64 second) {
    return {double_of(first), double_of(second)};
}

/// An element as it is stored, rounded once. NaN is canonical even after the conversion, which makes its own NaN.
template <class T> struct Stored {
    template <class W> CUZARR_DEVICE static T of(W x) { return ops::canonical(ops::Cast<T>::of(x)); }
};
template <> struct Stored<ops::Half> {
    template <class W> CUZARR_DEVICE static ops::Half of(W x) { return ops::Half{ops::half_bits(x)}; }
};
template <> struct Stored<ops::BFloat> {
    template <class W> CUZARR_DEVICE static ops::BFloat of(W x) { return ops::BFloat{ops::bfloat_bits(x)}; }
};

/// Computes an element of the result from its state. It has type W before it is converted to T.
template <class W, class T> CUZARR_DEVICE T finished(u32 answer, double ddof, const State& state) {
    double count = (double)state.at[1];
    u64 first = state.at[0], second = state.at[2];
    switch (answer) {
        case MEAN_OF_BOTH: second = bits_of(double_of(second) / count);  // and the first part:
        case MEAN: first = bits_of(double_of(first) / count); break;
        case VARIANCE: first = bits_of(variance(state, ddof)); break;
        case DEVIATION: first = bits_of(sqrt(variance(state, ddof))); break;
        case NAN_VARIANCE: first = bits_of(nan_variance(state, ddof)); break;
        case NAN_DEVIATION: first = bits_of(sqrt(nan_variance(state, ddof))); break;
        // No element was taken, because all of them were NaN.
        case EXTREME: first = state.at[1] ? first : 0x7ff8000000000000ull; break;
        case PLACE: first = second; break;
        case ANY: first = first > 0; break;
        case ALL: first = first == state.at[1]; break;
        default: break;
    }
    return Stored<T>::of(ops::canonical(answer_of<W>(first, second)));
}

/// Computes all elements of a result from their states.
template <class W, class T> CUZARR_DEVICE void finish(u64 outputs, u32 answer, double ddof, const State* states, T* out) {
    u64 step = (u64)block_count() * thread_count();
    for (u64 output = (u64)block_index() * thread_count() + thread_index(); output < outputs; output += step) {
        out[output] = finished<W, T>(answer, ddof, states[output]);
    }
}

}  // namespace reduce
