// Reductions: for each element of the result, the states of segments of the elements that it is made of.
//
// A segment is walked by LANES lanes (a block, or one thread), each of which takes every LANES-th of its elements, LANE_STEPS at
// most, in order; the lanes' states are merged two by two, the upper half into the lower. Nothing depends on how many blocks
// run, and compute/reduce/cpu.rs of the crate cuzarr does the same in the same order: results are the same bits.
#pragma once
#include "cuzarr/arithmetic.cuh"

namespace reduce {

/// Elements that a lane takes of a segment.
const u32 LANE_STEPS = 256;
/// Lanes of a block; the host launches as many threads.
const u32 BLOCK_LANES = 256;

/// What elements are while they are reduced.
CUZARR_DEVICE double widen(float x) { return x; }
CUZARR_DEVICE double widen(double x) { return x; }
CUZARR_DEVICE double widen(ops::Half x) { return ops::load(x); }
CUZARR_DEVICE double widen(ops::BFloat x) { return ops::load(x); }
CUZARR_DEVICE i64 widen(bool x) { return x; }
CUZARR_DEVICE i64 widen(i8 x) { return x; }
CUZARR_DEVICE i64 widen(i16 x) { return x; }
CUZARR_DEVICE i64 widen(i32 x) { return x; }
CUZARR_DEVICE i64 widen(i64 x) { return x; }
CUZARR_DEVICE u64 widen(u8 x) { return x; }
CUZARR_DEVICE u64 widen(u16 x) { return x; }
CUZARR_DEVICE u64 widen(u32 x) { return x; }
CUZARR_DEVICE u64 widen(u64 x) { return x; }
CUZARR_DEVICE ops::Complex<double> widen(ops::Complex<float> x) { return {x.re, x.im}; }
CUZARR_DEVICE ops::Complex<double> widen(ops::Complex<double> x) { return x; }

CUZARR_DEVICE u64 word(double x) { return bits_of(x); }
CUZARR_DEVICE u64 word(i64 x) { return (u64)x; }
CUZARR_DEVICE u64 word(u64 x) { return x; }
CUZARR_DEVICE void unword(u64 word, double& x) { x = double_of(word); }
CUZARR_DEVICE void unword(u64 word, i64& x) { x = (i64)word; }
CUZARR_DEVICE void unword(u64 word, u64& x) { x = word; }

/// Three words, whatever they mean.
struct State {
    u64 at[3];
};

template <class V> struct Sum {
    V sum = 0;
    u64 count = 0;
    CUZARR_DEVICE void take(V x, u64) { sum = ops::add(sum, x); ++count; }
    CUZARR_DEVICE void merge(const Sum& other) { sum = ops::add(sum, other.sum); count += other.count; }
    CUZARR_DEVICE State state() const { return {{word(sum), count, 0}}; }
    CUZARR_DEVICE void set(const State& state) { unword(state.at[0], sum); count = state.at[1]; }
};

struct ComplexSum {
    double re = 0, im = 0;
    u64 count = 0;
    CUZARR_DEVICE void take(ops::Complex<double> x, u64) { re += x.re; im += x.im; ++count; }
    CUZARR_DEVICE void merge(const ComplexSum& other) { re += other.re; im += other.im; count += other.count; }
    CUZARR_DEVICE State state() const { return {{word(re), count, word(im)}}; }
    CUZARR_DEVICE void set(const State& state) { unword(state.at[0], re); count = state.at[1]; unword(state.at[2], im); }
};

template <class V> struct Product {
    V product = 1;
    u64 count = 0;
    CUZARR_DEVICE void take(V x, u64) { product = ops::multiply(product, x); ++count; }
    CUZARR_DEVICE void merge(const Product& other) {
        // A state that is all zero is one of no elements, too.
        product = count ? ops::multiply(product, other.product) : other.product;
        count += other.count;
    }
    CUZARR_DEVICE State state() const { return {{word(product), count, 0}}; }
    CUZARR_DEVICE void set(const State& state) { unword(state.at[0], product); count = state.at[1]; }
};

/// Number, mean, and sum of squared distances from the mean. A lane takes distances from its first element, which lies among
/// its elements and so is never much further from their mean than they are (their squares lose a few bits at most).
struct Moments {
    double first = 0, sum = 0, squares = 0;
    u64 count = 0;
    CUZARR_DEVICE void take(double x, u64) {
        if (!count) first = x;
        double distance = x - first;
        sum += distance;
        squares += distance * distance;
        ++count;
    }
    CUZARR_DEVICE void take(i64 x, u64 at) { take((double)x, at); }
    CUZARR_DEVICE void take(u64 x, u64 at) { take((double)x, at); }
    /// From a lane's sums to mean (`first`) and squares about it.
    CUZARR_DEVICE void settle() {
        if (!count) return;
        double shift = sum / (double)count;
        squares = squares - sum * shift;
        first = first + shift;
        sum = 0;
    }
    /// T. Chan, G. Golub, R. LeVeque (1979).
    CUZARR_DEVICE void merge(const Moments& other) {
        if (!other.count) return;
        if (!count) { *this = other; return; }
        double own = (double)count, others = (double)other.count, all = own + others, distance = other.first - first;
        first = first + distance * (others / all);
        squares = squares + other.squares + distance * distance * (own * others / all);
        count += other.count;
    }
    CUZARR_DEVICE State state() const { return {{word(first), count, word(squares)}}; }
    CUZARR_DEVICE void set(const State& state) { unword(state.at[0], first); count = state.at[1]; unword(state.at[2], squares); }
};

/// The least or greatest element and where it first is. A NaN wins over all others.
template <class V, bool LEAST> struct Extreme {
    V best = 0;
    u64 place = 0, count = 0;
    CUZARR_DEVICE bool beats(V x, V y) const { return ops::is_nan(x) ? !ops::is_nan(y) : LEAST ? x < y : x > y; }
    CUZARR_DEVICE void take(V x, u64 at) {
        if (!count || beats(x, best)) { best = x; place = at; }
        ++count;
    }
    CUZARR_DEVICE void merge(const Extreme& other) {
        if (other.count && (!count || beats(other.best, best) || (!beats(best, other.best) && other.place < place))) {
            best = other.best;
            place = other.place;
        }
        count += other.count;
    }
    CUZARR_DEVICE State state() const { return {{word(best), count, place}}; }
    CUZARR_DEVICE void set(const State& state) { unword(state.at[0], best); count = state.at[1]; place = state.at[2]; }
};

/// How many are not 0, of how many.
struct Count {
    u64 nonzero = 0, count = 0;
    template <class V> CUZARR_DEVICE void take(V x, u64) { nonzero += ops::Cast<bool>::of(x); ++count; }
    CUZARR_DEVICE void merge(const Count& other) { nonzero += other.nonzero; count += other.count; }
    CUZARR_DEVICE State state() const { return {{nonzero, count, 0}}; }
    CUZARR_DEVICE void set(const State& state) { nonzero = state.at[0]; count = state.at[1]; }
};

template <class A> CUZARR_DEVICE void settle(A&) {}
CUZARR_DEVICE void settle(Moments& moments) { moments.settle(); }

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

/// The state of the elements that a lane takes of a segment.
template <class A, class T, bool SKIP, u32 LANES, u32 KEPT, u32 REDUCED>
CUZARR_DEVICE A lane_state(const Where<KEPT, REDUCED>& where, u64 output, u64 segment, u32 lane) {
    A state;
    u64 base = where.origin + (u64)offset<KEPT>(output, where.kept_shape, where.kept_strides);
    u64 first = segment * LANES * LANE_STEPS + lane;
    u64 left = first < where.reduced ? (where.reduced - first + LANES - 1) / LANES : 0;
    u32 steps = left < LANE_STEPS ? (u32)left : LANE_STEPS;
#pragma unroll 8
    for (u32 step = 0; step < steps; ++step) {
        u64 at = first + (u64)step * LANES;
        auto x = widen(*(const T*)(base + (u64)offset<REDUCED>(at, where.reduced_shape, where.reduced_strides)));
        if (!(SKIP && ops::is_nan(x))) state.take(x, at);
    }
    settle(state);
    return state;
}

/// A block for each segment of each element of the result.
template <class A, class T, bool SKIP, u32 KEPT, u32 REDUCED>
CUZARR_DEVICE void by_blocks(const Where<KEPT, REDUCED>& where, State* states, A* lanes) {
    u32 lane = thread_index();
    for (u64 job = block_index(); job < where.outputs * where.segments; job += block_count()) {
        lanes[lane] = lane_state<A, T, SKIP, BLOCK_LANES>(where, job / where.segments, job % where.segments, lane);
        block_barrier();
        for (u32 half = BLOCK_LANES / 2; half; half /= 2) {
            if (lane < half) lanes[lane].merge(lanes[lane + half]);
            block_barrier();
        }
        if (lane == 0) states[job] = lanes[0].state();
        block_barrier();
    }
}

/// A thread for each segment of each element of the result; neighbours take neighbouring elements of the result.
template <class A, class T, bool SKIP, u32 KEPT, u32 REDUCED>
CUZARR_DEVICE void by_threads(const Where<KEPT, REDUCED>& where, State* states) {
    u64 step = (u64)block_count() * thread_count();
    for (u64 job = (u64)block_index() * thread_count() + thread_index(); job < where.outputs * where.segments; job += step) {
        u64 output = job % where.outputs, segment = job / where.outputs;
        states[output * where.segments + segment] = lane_state<A, T, SKIP, 1>(where, output, segment, 0).state();
    }
}

/// A thread for each element of the result: joins its segments two by two, in place, into `joined`.
template <class A> CUZARR_DEVICE void join(u64 outputs, u64 segments, State* states, State* joined) {
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
        joined[output] = row[0];
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

/// Merges the states of a region into those of the whole result, which are all zero where there was none before.
template <class A> CUZARR_DEVICE void merge_part(const Part& part, const State* states, State* all) {
    u64 step = (u64)block_count() * thread_count();
    for (u64 output = (u64)block_index() * thread_count() + thread_index(); output < part.outputs; output += step) {
        u64 whole = whole_number(output, part.kept, part.kept_axes);
        A own, other;
        own.set(all[whole]);
        other.set(states[output]);
        move_place(other, part);
        own.merge(other);
        all[whole] = own.state();
    }
}

/// What a result is made of its state: the numbers of `Answer` in compute/reduce/cuda.rs.
enum Answer { VALUE, BOTH, MEAN, MEAN_OF_BOTH, VARIANCE, DEVIATION, EXTREME, PLACE, ANY, ALL };

CUZARR_DEVICE double variance(const State& state, double ddof) {
    double squares = double_of(state.at[2]), count = (double)state.at[1] - ddof;
    return (squares < 0 ? 0 : squares) / (count < 0 ? 0 : count);
}

/// The elements of a result in their widest type, from their states.
CUZARR_DEVICE void finish(u64 outputs, u32 answer, double ddof, const State* states, u64* out) {
    u64 step = (u64)block_count() * thread_count();
    for (u64 output = (u64)block_index() * thread_count() + thread_index(); output < outputs; output += step) {
        State state = states[output];
        double count = (double)state.at[1];
        switch (answer) {
            case BOTH: out[2 * output] = state.at[0]; out[2 * output + 1] = state.at[2]; break;
            case MEAN: out[output] = bits_of(double_of(state.at[0]) / count); break;
            case MEAN_OF_BOTH:
                out[2 * output] = bits_of(double_of(state.at[0]) / count);
                out[2 * output + 1] = bits_of(double_of(state.at[2]) / count);
                break;
            case VARIANCE: out[output] = bits_of(variance(state, ddof)); break;
            case DEVIATION: out[output] = bits_of(sqrt(variance(state, ddof))); break;
            // Nothing but NaN was left out.
            case EXTREME: out[output] = state.at[1] ? state.at[0] : 0x7ff8000000000000ull; break;
            case PLACE: out[output] = state.at[2]; break;
            case ANY: out[output] = state.at[0] > 0; break;
            case ALL: out[output] = state.at[0] == state.at[1]; break;
            default: out[output] = state.at[0];
        }
    }
}

}  // namespace reduce
