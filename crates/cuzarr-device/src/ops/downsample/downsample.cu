// Downsampling: boxes of elements become one element each. It is their mean, their largest, their most frequent
// element, or a mean of the box and its surroundings with the weights of a Gaussian.
//
// One thread makes one element of the result. It finds where its box begins, and counts through the box in C order, so
// that sums round as on the CPU. Means of integers are exact: whole parts and remainders of the quotients are added
// separately, and ties go to the even number.
//
// Floor: the bytes of source and result / 3.3 TB/s on an H100. Neighbouring threads read neighbouring boxes, so all
// bytes of a row are used while they are in the cache. The mode reads its box once for every element of it.
#include "cuzarr/nan.cuh"

/// One dimension. `Axis` in cuda.rs.
struct Axis {
    u64 src_extent;
    u64 dst_extent;
    u64 factor;
    u64 src_stride;  // elements between neighbours in the source
    u64 before;      // elements of the source before the first box
    u64 reach;       // elements beside a box that belong to it, on each side
};
static_assert(sizeof(Axis) == 48, "as downsample/cuda.rs has it");

#define CUZARR_DOWNSAMPLE_AXES 8u
#define CUZARR_MEAN 0u
#define CUZARR_MAX 1u

/// The elements of one box, visited in C order.
struct Box {
    u64 first;
    u32 extent[CUZARR_DOWNSAMPLE_AXES];
    u32 skipped[CUZARR_DOWNSAMPLE_AXES];  // elements that would belong to it, but lie before the source
    u32 at[CUZARR_DOWNSAMPLE_AXES];
    u32 count;
    u32 axes;

    CUZARR_DEVICE Box(const Axis* axis, u32 ndim, u64 index) {
        first = 0;
        count = 1;
        axes = ndim;
        for (u32 dim = ndim; dim-- > 0;) {
            u64 place = axis[dim].before + index % axis[dim].dst_extent * axis[dim].factor;
            index /= axis[dim].dst_extent;
            u64 end = place + axis[dim].factor + axis[dim].reach;
            u64 begin = place < axis[dim].reach ? 0 : place - axis[dim].reach;
            skipped[dim] = (u32)(begin + axis[dim].reach - place);
            extent[dim] = (u32)((end < axis[dim].src_extent ? end : axis[dim].src_extent) - begin);
            first += begin * axis[dim].src_stride;
            count *= extent[dim];
        }
    }

    CUZARR_DEVICE void begin() {
        for (u32 dim = 0; dim < axes; dim++) at[dim] = 0;
    }

    CUZARR_DEVICE u64 element(const Axis* axis) const {
        u64 element = first;
        for (u32 dim = 0; dim < axes; dim++) element += at[dim] * axis[dim].src_stride;
        return element;
    }

    CUZARR_DEVICE void next() {
        for (u32 dim = axes; dim-- > 0;) {
            if (++at[dim] < extent[dim]) return;
            at[dim] = 0;
        }
    }
};

/// The mean of a box of integers. `Wide` is the type in which quotients are added.
template <class T, class Wide>
CUZARR_DEVICE T mean_of_integers(const T* src, const Axis* axis, Box& box) {
    Wide whole = 0;
    u64 rest = 0;
    box.begin();
    for (u32 turn = 0; turn < box.count; turn++, box.next()) {
        Wide value = (Wide)src[box.element(axis)], quotient = value / (Wide)box.count;
        Wide left = value - quotient * (Wide)box.count;
        if (left < 0) {
            left += (Wide)box.count;
            quotient -= 1;
        }
        whole += quotient;
        rest += (u64)left;
    }
    whole += (Wide)(rest / box.count);
    rest %= box.count;
    if (2 * rest > box.count || (2 * rest == box.count && (whole & 1))) whole += 1;
    return (T)whole;
}

template <class T>
CUZARR_DEVICE T mean_of_floats(const T* src, const Axis* axis, Box& box) {
    double sum = 0;
    box.begin();
    for (u32 turn = 0; turn < box.count; turn++, box.next()) sum += (double)src[box.element(axis)];
    return canonical((T)(sum / (double)box.count));
}

/// The largest element; NaN if there is one.
template <class T>
CUZARR_DEVICE T largest(const T* src, const Axis* axis, Box& box) {
    box.begin();
    T best = src[box.element(axis)];
    for (u32 turn = 0; turn < box.count; turn++, box.next()) {
        T value = src[box.element(axis)];
        if (value > best || value != value) best = value;
    }
    return best;
}

/// The most frequent element; if there are several, the smallest.
template <class T>
CUZARR_DEVICE T most_frequent(const T* src, const Axis* axis, Box& box) {
    T best = 0;
    u32 most = 0;
    Box other = box;
    box.begin();
    for (u32 turn = 0; turn < box.count; turn++, box.next()) {
        T value = src[box.element(axis)];
        if (most > 0 && value == best) continue;
        u32 times = 0;
        other.begin();
        for (u32 again = 0; again < other.count; again++, other.next()) times += src[other.element(axis)] == value;
        if (times > most || (times == most && value < best)) {
            best = value;
            most = times;
        }
    }
    return best;
}

/// The weighted sum of a box's elements, divided by the sum of the weights inside the source. A weight is the product
/// of one weight for each dimension; `weights` has those of one dimension after the other.
template <class T>
CUZARR_DEVICE double weighed(const T* src, const Axis* axis, const double* weights, Box& box) {
    double sum = 0, all = 1;
    const double* own = weights;
    for (u32 dim = 0; dim < box.axes; dim++) {
        double inside = 0;
        for (u32 at = 0; at < box.extent[dim]; at++) inside += own[box.skipped[dim] + at];
        all *= inside;
        own += axis[dim].factor + 2 * axis[dim].reach;
    }
    box.begin();
    for (u32 turn = 0; turn < box.count; turn++, box.next()) {
        double weight = 1;
        own = weights;
        for (u32 dim = 0; dim < box.axes; dim++) {
            weight *= own[box.skipped[dim] + box.at[dim]];
            own += axis[dim].factor + 2 * axis[dim].reach;
        }
        sum += weight * (double)src[box.element(axis)];
    }
    return sum / all;
}

CUZARR_DEVICE double rounded(double value, double) { return canonical(value); }
CUZARR_DEVICE float rounded(double value, float) { return canonical((float)value); }
/// For integers of at most 32 bits, whose mean lies among them.
CUZARR_DEVICE i64 rounded(double value, i64) { return (i64)round_half_even(value); }

#define CUZARR_GAUSSIAN(name, T, Kind)                                                                                 \
    CUZARR_KERNEL(gaussian_##name, const T* src, T* dst, const Axis* axis, const double* weights, u32 ndim,            \
                  u64 count) {                                                                                        \
        u64 step = (u64)thread_count() * block_count();                                                               \
        for (u64 index = (u64)block_index() * thread_count() + thread_index(); index < count; index += step) {         \
            Box box(axis, ndim, index);                                                                               \
            dst[index] = (T)rounded(weighed<T>(src, axis, weights, box), (Kind)0);                                     \
        }                                                                                                             \
    }

#define CUZARR_DOWNSAMPLE_INTEGERS(name, T, Wide)                                                                     \
    CUZARR_KERNEL(downsample_##name, const T* src, T* dst, const Axis* axis, u32 ndim, u64 count, u32 method) {        \
        u64 step = (u64)thread_count() * block_count();                                                               \
        for (u64 index = (u64)block_index() * thread_count() + thread_index(); index < count; index += step) {         \
            Box box(axis, ndim, index);                                                                               \
            if (method == CUZARR_MEAN) dst[index] = mean_of_integers<T, Wide>(src, axis, box);                         \
            else if (method == CUZARR_MAX) dst[index] = largest<T>(src, axis, box);                                    \
            else dst[index] = most_frequent<T>(src, axis, box);                                                       \
        }                                                                                                             \
    }

#define CUZARR_DOWNSAMPLE_FLOATS(name, T)                                                                             \
    CUZARR_KERNEL(downsample_##name, const T* src, T* dst, const Axis* axis, u32 ndim, u64 count, u32 method) {        \
        u64 step = (u64)thread_count() * block_count();                                                               \
        for (u64 index = (u64)block_index() * thread_count() + thread_index(); index < count; index += step) {         \
            Box box(axis, ndim, index);                                                                               \
            dst[index] = method == CUZARR_MEAN ? mean_of_floats<T>(src, axis, box) : canonical(largest<T>(src, axis, box)); \
        }                                                                                                             \
    }

CUZARR_DOWNSAMPLE_INTEGERS(int8, i8, i64)
CUZARR_DOWNSAMPLE_INTEGERS(int16, i16, i64)
CUZARR_DOWNSAMPLE_INTEGERS(int32, i32, i64)
CUZARR_DOWNSAMPLE_INTEGERS(int64, i64, i64)
CUZARR_DOWNSAMPLE_INTEGERS(uint8, u8, u64)
CUZARR_DOWNSAMPLE_INTEGERS(uint16, u16, u64)
CUZARR_DOWNSAMPLE_INTEGERS(uint32, u32, u64)
CUZARR_DOWNSAMPLE_INTEGERS(uint64, u64, u64)
CUZARR_DOWNSAMPLE_FLOATS(float32, float)
CUZARR_DOWNSAMPLE_FLOATS(float64, double)
CUZARR_GAUSSIAN(int8, i8, i64)
CUZARR_GAUSSIAN(int16, i16, i64)
CUZARR_GAUSSIAN(int32, i32, i64)
CUZARR_GAUSSIAN(uint8, u8, i64)
CUZARR_GAUSSIAN(uint16, u16, i64)
CUZARR_GAUSSIAN(uint32, u32, i64)
CUZARR_GAUSSIAN(float32, float, float)
CUZARR_GAUSSIAN(float64, double, double)
