// States of reductions, which summarize the elements so far: sums, products, moments, extremes, counts.
// `reduce/state.rs` has the same states for the CPU, with the same operations in the same order.
#pragma once
#include "program/arithmetic.cuh"

namespace reduce {

/// Converts an element to the type in which it is reduced.
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

/// A state as three words, whose meaning depends on the accumulator.
struct State {
    u64 at[3];
};

template <class V> struct Sum {
    V sum = 0;
    u64 count = 0;
    CUZARR_DEVICE void begin(V, u32) {}
    CUZARR_DEVICE void take(V x, u32) { sum = ops::add(sum, x); }
    CUZARR_DEVICE void merge(const Sum& other) { sum = ops::add(sum, other.sum); count += other.count; }
    CUZARR_DEVICE State state() const { return {{word(sum), count, 0}}; }
    CUZARR_DEVICE void set(const State& state) { unword(state.at[0], sum); count = state.at[1]; }
};

struct ComplexSum {
    double re = 0, im = 0;
    u64 count = 0;
    CUZARR_DEVICE void begin(ops::Complex<double>, u32) {}
    CUZARR_DEVICE void take(ops::Complex<double> x, u32) { re += x.re; im += x.im; }
    CUZARR_DEVICE void merge(const ComplexSum& other) { re += other.re; im += other.im; count += other.count; }
    CUZARR_DEVICE State state() const { return {{word(re), count, word(im)}}; }
    CUZARR_DEVICE void set(const State& state) { unword(state.at[0], re); count = state.at[1]; unword(state.at[2], im); }
};

template <class V> struct Product {
    V product = 1;
    u64 count = 0;
    CUZARR_DEVICE void begin(V, u32) {}
    CUZARR_DEVICE void take(V x, u32) { product = ops::multiply(product, x); }
    CUZARR_DEVICE void merge(const Product& other) {
        // A state of zeros means that there were no elements.
        product = count ? ops::multiply(product, other.product) : other.product;
        count += other.count;
    }
    CUZARR_DEVICE State state() const { return {{word(product), count, 0}}; }
    CUZARR_DEVICE void set(const State& state) { unword(state.at[0], product); count = state.at[1]; }
};

/// Count, mean, and sum of squared distances from the mean. A lane measures distances from its first element. That is
/// one of its elements, so it is not much further from their mean than they are, and the squares lose a few bits at
/// most.
struct Moments {
    double first = 0, sum = 0, squares = 0;
    u64 count = 0;
    template <class X> CUZARR_DEVICE void begin(X x, u32) { first = (double)x; }
    template <class X> CUZARR_DEVICE void take(X x, u32) {
        double distance = (double)x - first;
        sum += distance;
        squares += distance * distance;
    }
    /// Converts a lane's sums to the mean (`first`) and the squares about it.
    CUZARR_DEVICE void settle() {
        if (!count) return;
        double shift = sum / (double)count;
        squares = squares - sum * shift;
        first = first + shift;
        sum = 0;
    }
    /// Merges by the formula of T. Chan, G. Golub, R. LeVeque (1979).
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

/// The narrowest type in which elements can be compared.
template <class T> struct Compared {
    typedef T type;
    CUZARR_DEVICE static T of(T x) { return x; }
};
template <> struct Compared<ops::Half> {
    typedef float type;
    CUZARR_DEVICE static float of(ops::Half x) { return ops::load(x); }
};
template <> struct Compared<ops::BFloat> {
    typedef float type;
    CUZARR_DEVICE static float of(ops::BFloat x) { return ops::load(x); }
};

/// The smallest or largest element, and the place of its first occurrence. NaN wins over all other elements. While a
/// lane takes elements, `place` is the number of the step.
template <class V, bool LEAST> struct Extreme {
    V best = 0;
    u64 place = 0, count = 0;
    CUZARR_DEVICE bool beats(V x, V y) const { return (LEAST ? x < y : x > y) || (x != x && y == y); }
    CUZARR_DEVICE void begin(V x, u32 step) { best = x; place = step; }
    CUZARR_DEVICE void take(V x, u32 step) {
        if (beats(x, best)) { best = x; place = step; }
    }
    CUZARR_DEVICE void merge(const Extreme& other) {
        if (other.count && (!count || beats(other.best, best) || (!beats(best, other.best) && other.place < place))) {
            best = other.best;
            place = other.place;
        }
        count += other.count;
    }
    CUZARR_DEVICE State state() const { return {{word(widen(best)), count, place}}; }
    CUZARR_DEVICE void set(const State& state) { unword(state.at[0], best); count = state.at[1]; place = state.at[2]; }
};

/// Number of elements that are not 0, and number of all elements.
struct Count {
    u64 nonzero = 0, count = 0;
    template <class V> CUZARR_DEVICE void begin(V, u32) {}
    template <class V> CUZARR_DEVICE void take(V x, u32) { nonzero += ops::Cast<bool>::of(x); }
    CUZARR_DEVICE void merge(const Count& other) { nonzero += other.nonzero; count += other.count; }
    CUZARR_DEVICE State state() const { return {{nonzero, count, 0}}; }
    CUZARR_DEVICE void set(const State& state) { nonzero = state.at[0]; count = state.at[1]; }
};

/// The state of type A while it takes elements of type T, and the type of these elements then.
template <class A, class T> struct Lane {
    typedef A State;
    CUZARR_DEVICE static auto element(T x) { return widen(x); }
};
template <class V, bool LEAST, class T> struct Lane<Extreme<V, LEAST>, T> {
    typedef Extreme<typename Compared<T>::type, LEAST> State;
    CUZARR_DEVICE static auto element(T x) { return Compared<T>::of(x); }
};

/// Finishes a lane that began at element `first`, and whose elements are `row` apart.
template <class A> CUZARR_DEVICE void settle(A&, u64, u64) {}
CUZARR_DEVICE void settle(Moments& moments, u64, u64) { moments.settle(); }
template <class V, bool LEAST> CUZARR_DEVICE void settle(Extreme<V, LEAST>& state, u64 first, u64 row) {
    if (state.count) state.place = first + state.place * row;
}

}  // namespace reduce
