// Running sums and products along a dimension, in place, of 64-bit integers (which wrap), doubles and complex doubles.
//
// A line is cut into segments, and each thread handles one segment.
//     scan_totals:   compute the total of each segment
//     (the totals are scanned in the same way, until a line is a single segment)
//     scan_segments: begin with the total of all segments before, and go through the segment
// cpu.rs combines in the same order, so that floats have the same bits there.
//
// Floor: the elements, read twice and written once / 4.3 TB/s on an H200.
#include "cuzarr/lines.cuh"
#include "cuzarr/nan.cuh"

/// Number of elements in a segment.
#define CUZARR_SCAN_SEGMENT 32
/// The operation.
#define CUZARR_SCAN_SUM 0
#define CUZARR_SCAN_PRODUCT 1

struct Complex {
    double real, imaginary;
};

CUZARR_DEVICE u64 combine(u64 a, u64 b, u32 operation) { return operation == CUZARR_SCAN_SUM ? a + b : a * b; }
CUZARR_DEVICE double combine(double a, double b, u32 operation) { return operation == CUZARR_SCAN_SUM ? a + b : a * b; }
CUZARR_DEVICE Complex combine(Complex a, Complex b, u32 operation) {
    if (operation == CUZARR_SCAN_SUM) return {a.real + b.real, a.imaginary + b.imaginary};
    return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
}

CUZARR_DEVICE u64 canonical(u64 a) { return a; }
CUZARR_DEVICE Complex canonical(Complex a) { return {canonical(a.real), canonical(a.imaginary)}; }

/// Calls `action` for each segment, with its number among all, its number in the line, its first element and its
/// length.
template <class Action>
CUZARR_DEVICE void for_each_segment(Lines lines, Action action) {
    const u64 segments = (lines.extent + CUZARR_SCAN_SEGMENT - 1) / CUZARR_SCAN_SEGMENT;
    for_each_number(lines.outer * segments * lines.inner, [&](u64 at) {
        const u64 column = at % lines.inner, rest = at / lines.inner;
        const u64 segment = rest % segments, first = segment * CUZARR_SCAN_SEGMENT, left = lines.extent - first;
        const u64 element = (rest / segments * lines.extent + first) * lines.inner + column;
        action(at, segment, element, left < CUZARR_SCAN_SEGMENT ? left : CUZARR_SCAN_SEGMENT);
    });
}

template <class T>
CUZARR_DEVICE void total(const T* values, T* totals, Lines lines, u32 operation) {
    for_each_segment(lines, [&](u64 at, u64, u64 element, u64 count) {
        T sum = values[element];
        for (u64 place = 1; place < count; ++place) sum = combine(sum, values[element + place * lines.inner], operation);
        totals[at] = sum;
    });
}

template <class T>
CUZARR_DEVICE void run_through(T* values, const T* totals, Lines lines, u32 operation) {
    for_each_segment(lines, [&](u64 at, u64 segment, u64 element, u64 count) {
        T sum = values[element];
        if (segment > 0) sum = combine(totals[at - lines.inner], sum, operation);
        values[element] = canonical(sum);
        for (u64 place = 1; place < count; ++place) {
            T* value = values + element + place * lines.inner;
            sum = combine(sum, *value, operation);
            *value = canonical(sum);
        }
    });
}

/// `totals` has one element for each segment. `scan_segments` reads it only if lines have several segments; it must be
/// scanned already.
#define SCAN_KERNELS(type, name)                                                                          \
    CUZARR_KERNEL(scan_totals_##name, const type* values, type* totals, Lines lines, u32 operation) {     \
        total(values, totals, lines, operation);                                                          \
    }                                                                                                     \
    CUZARR_KERNEL(scan_segments_##name, type* values, const type* totals, Lines lines, u32 operation) {   \
        run_through(values, totals, lines, operation);                                                    \
    }

SCAN_KERNELS(u64, int64)
SCAN_KERNELS(double, float64)
SCAN_KERNELS(Complex, complex128)
