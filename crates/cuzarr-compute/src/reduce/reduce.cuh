// Reductions: for each element of the result, the states of segments of the elements that it is made of.
//
// A segment is walked by LANES lanes, each of which takes every LANES-th of its elements in order: by a block, whose threads are
// PACK lanes each, neighbours, or by one thread, which is one lane. The lanes' states are merged two by two, the upper half into
// the lower, those of a thread first. States of segments are joined two by two, neighbours first, by a kernel of their own. Nothing depends on how many blocks run, nor on how many elements are loaded at once, and
// compute/reduce/cpu.rs of the crate cuzarr does the same in the same order: results are the same bits.
#pragma once
#include "reduce/accumulators.cuh"

namespace reduce {

/// Elements that a thread takes of a segment.
const u32 THREAD_STEPS = 256;
/// Threads of a block; the host launches as many.
const u32 BLOCK_THREADS = 256;
/// Lanes of each thread of a block: neighbours, which are one load where they lie side by side.
const u32 PACK = 4;
/// Elements that a lane of a block takes of a segment.
const u32 LANE_STEPS = THREAD_STEPS / PACK;

/// Where elements lie: KEPT dimensions of the result, REDUCED ones of what it is made of.
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

/// Takes the element that is number `step` of its lane. Where none is left out, lanes are begun and counted by their callers.
template <bool SKIP, class A, class X> CUZARR_DEVICE void take(A& state, X x, u32 step) {
    if (SKIP) {
        if (ops::is_nan(x)) return;
        if (!state.count) state.begin(x, step);
        ++state.count;
    }
    state.take(x, step);
}

/// The state of what a thread of a block takes of a segment.
template <class A, class T, bool SKIP, u32 KEPT, u32 REDUCED>
CUZARR_DEVICE typename Lane<A, T>::State thread_of_block(const Where<KEPT, REDUCED>& where, u64 output, u64 segment) {
    typedef Lane<A, T> Lane;
    typedef ops::Pack<T, PACK> Packed;
    const u32 ROW = BLOCK_THREADS * PACK;
    typename Lane::State states[PACK];
    u64 base = where.origin + (u64)offset<KEPT>(output, where.kept_shape, where.kept_strides);
    u64 first = segment * ROW * LANE_STEPS + thread_index() * PACK;
    u64 left = first < where.reduced ? where.reduced - first : 0;
    auto element = [&](u64 at) {
        return Lane::element(*(const T*)(base + (u64)offset<REDUCED>(at, where.reduced_shape, where.reduced_strides)));
    };
    // Steps that all lanes of the thread take.
    u32 steps = left < PACK ? 0 : left / ROW >= LANE_STEPS ? LANE_STEPS : (u32)((left - PACK) / ROW) + 1;
    u64 done = (u64)steps * ROW;
    u32 more = steps < LANE_STEPS && done < left ? (u32)(left - done) : 0;
    if (!SKIP) {
#pragma unroll
        for (u32 at = 0; at < PACK; ++at) {
            if (at < left) states[at].begin(element(first + at), 0);
            states[at].count = steps + (at < more);
        }
    }
    if (REDUCED == 1 && where.reduced_strides[0] == (i64)sizeof(T) && base % sizeof(Packed) == 0) {
        const Packed* packs = (const Packed*)base + first / PACK;
#pragma unroll 4
        for (u32 step = 0; step < steps; ++step) {
            Packed pack = packs[step * BLOCK_THREADS];
#pragma unroll
            for (u32 at = 0; at < PACK; ++at) take<SKIP>(states[at], Lane::element(pack.at[at]), step);
        }
    } else {
#pragma unroll 2
        for (u32 step = 0; step < steps; ++step) {
#pragma unroll
            for (u32 at = 0; at < PACK; ++at) take<SKIP>(states[at], element(first + (u64)step * ROW + at), step);
        }
    }
#pragma unroll
    for (u32 at = 0; at < PACK; ++at) {
        if (at < more) take<SKIP>(states[at], element(first + done + at), steps);
        settle(states[at], first + at, ROW);
    }
#pragma unroll
    for (u32 half = PACK / 2; half; half /= 2) {
#pragma unroll
        for (u32 at = 0; at < half; ++at) states[at].merge(states[at + half]);
    }
    return states[0];
}

/// A block for each segment of each element of the result. Where these have several segments, their states are kept for somebody
/// who joins them; else `end(output, state)` is called once for each, by one thread.
template <class A, class T, bool SKIP, u32 KEPT, u32 REDUCED, class End>
CUZARR_DEVICE void by_blocks(const Where<KEPT, REDUCED>& where, State* states, typename Lane<A, T>::State* threads, End end) {
    u32 thread = thread_index();
    for (u64 job = block_index(); job < where.outputs * where.segments; job += block_count()) {
        threads[thread] = thread_of_block<A, T, SKIP>(where, job / where.segments, job % where.segments);
        block_barrier();
        for (u32 half = BLOCK_THREADS / 2; half; half /= 2) {
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

/// The state of a segment of an element of the result, by one thread.
template <class A, class T, bool SKIP, u32 KEPT, u32 REDUCED>
CUZARR_DEVICE State thread_alone(const Where<KEPT, REDUCED>& where, u64 output, u64 segment) {
    typedef Lane<A, T> Lane;
    typename Lane::State state;
    u64 base = where.origin + (u64)offset<KEPT>(output, where.kept_shape, where.kept_strides);
    u64 first = segment * THREAD_STEPS, left = first < where.reduced ? where.reduced - first : 0;
    u32 steps = left < THREAD_STEPS ? (u32)left : THREAD_STEPS;
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

/// As by blocks, with a thread for each segment; neighbours take neighbouring elements of the result.
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

/// A thread for each element of the result: joins its segments two by two, in place.
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

/// Segments that a thread of a block joins, and that a block does: `JOINED` in compute/reduce/cuda.rs.
const u32 THREAD_JOINED = 16;
const u32 BLOCK_JOINED = BLOCK_THREADS * THREAD_JOINED;

/// Joins COUNT states, a power of two, or as many of them as there are: one at least.
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

/// The same by blocks, each of which joins BLOCK_JOINED segments: an element has several results where it has more.
template <class A, class End>
CUZARR_DEVICE void join_by_blocks(u64 outputs, u64 segments, const State* states, A* threads, End end) {
    u64 rows = (segments + BLOCK_JOINED - 1) / BLOCK_JOINED;
    u32 thread = thread_index();
    for (u64 job = block_index(); job < outputs * rows; job += block_count()) {
        u64 first = job % rows * BLOCK_JOINED, left = segments - first;
        u32 count = left < BLOCK_JOINED ? (u32)left : BLOCK_JOINED, own = thread * THREAD_JOINED;
        const State* row = states + job / rows * segments + first;
        if (own < count) threads[thread] = Tree<A, THREAD_JOINED>::of(row + own, count - own);
        block_barrier();
        for (u32 width = 1; width * THREAD_JOINED < count; width *= 2) {
            u32 other = thread + width;
            if (thread % (2 * width) == 0 && other < BLOCK_THREADS && other * THREAD_JOINED < count) threads[thread].merge(threads[other]);
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

const u32 MOST_AXES = 8;

/// A region: dimensions of the result, and those that are reduced. `Part` in compute/reduce/cuda.rs.
struct Part {
    u64 outputs;
    Axis kept[MOST_AXES], reduced[MOST_AXES];
    u32 kept_axes, reduced_axes;
};

/// The number in the whole array's C order of what has a number in the region's.
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

/// Merges the state of an element of a region's result into those of the whole result, which are all zero where there was none
/// before.
template <class A> CUZARR_DEVICE void merge_part(const Part& part, u64 output, const State& state, State* all) {
    u64 whole = whole_number(output, part.kept, part.kept_axes);
    A own, other;
    own.set(all[whole]);
    other.set(state);
    move_place(other, part);
    own.merge(other);
    all[whole] = own.state();
}

/// What a result is made of its state: the numbers of `Answer` in compute/reduce/cuda.rs.
enum Answer { VALUE, MEAN, MEAN_OF_BOTH, VARIANCE, DEVIATION, EXTREME, PLACE, ANY, ALL };

CUZARR_DEVICE double variance(const State& state, double ddof) {
    double squares = double_of(state.at[2]), count = (double)state.at[1] - ddof;
    return (squares < 0 ? 0 : squares) / (count < 0 ? 0 : count);
}

/// An element in its widest type, of the words that are known of it.
template <class W> CUZARR_DEVICE W answer_of(u64 first, u64) {
    W value;
    unword(first, value);
    return value;
}
template <> CUZARR_DEVICE ops::Complex<double> answer_of(u64 first, u64 second) {
    return {double_of(first), double_of(second)};
}

/// As it lies in memory, rounded once.
template <class T> struct Stored {
    template <class W> CUZARR_DEVICE static T of(W x) { return ops::Cast<T>::of(x); }
};
template <> struct Stored<ops::Half> {
    template <class W> CUZARR_DEVICE static ops::Half of(W x) { return ops::Half{ops::half_bits(x)}; }
};
template <> struct Stored<ops::BFloat> {
    template <class W> CUZARR_DEVICE static ops::BFloat of(W x) { return ops::BFloat{ops::bfloat_bits(x)}; }
};

/// An element of a result, which is W before it is converted to T, from its state.
template <class W, class T> CUZARR_DEVICE T finished(u32 answer, double ddof, const State& state) {
    double count = (double)state.at[1];
    u64 first = state.at[0], second = state.at[2];
    switch (answer) {
        case MEAN_OF_BOTH: second = bits_of(double_of(second) / count);  // and the first part:
        case MEAN: first = bits_of(double_of(first) / count); break;
        case VARIANCE: first = bits_of(variance(state, ddof)); break;
        case DEVIATION: first = bits_of(sqrt(variance(state, ddof))); break;
        // Nothing but NaN was left out.
        case EXTREME: first = state.at[1] ? first : 0x7ff8000000000000ull; break;
        case PLACE: first = second; break;
        case ANY: first = first > 0; break;
        case ALL: first = first == state.at[1]; break;
        default: break;
    }
    return Stored<T>::of(answer_of<W>(first, second));
}

/// All elements of a result, from their states.
template <class W, class T> CUZARR_DEVICE void finish(u64 outputs, u32 answer, double ddof, const State* states, T* out) {
    u64 step = (u64)block_count() * thread_count();
    for (u64 output = (u64)block_index() * thread_count() + thread_index(); output < outputs; output += step) {
        out[output] = finished<W, T>(answer, ddof, states[output]);
    }
}

}  // namespace reduce
