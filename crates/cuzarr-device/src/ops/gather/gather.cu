// Reads and writes elements of an array at indices along a dimension. The indices are on the device.
//
// gather:      each thread makes an element of the result: reads its index, and copies the element in units.
// gather_last: finds, for each element of a line, the last index that names it, counted from 1.
// scatter:     each thread takes a value, and writes it if its index is the last one that names the element.
//
// Floor: indices and elements read, elements written / 4.3 TB/s on an H200.
#include "cuzarr/lines.cuh"

/// The shapes of a gather. `Listed` in gather/mod.rs.
struct Listed {
    Lines array;
    u64 listed;                              // elements of a line of the result
    u64 outer_stride, stride, inner_stride;  // of the indices
};

/// A unit of 16 bytes.
struct Wide {
    u64 low, high;
};

/// If an index is out of range, writes it to `outside`. It is never 0, since lines have elements.
template <class Unit>
CUZARR_DEVICE void gather(const Unit* src, const i64* indices, Unit* dst, i64* outside, Listed of, u64 units) {
    const u64 inner = of.array.inner, extent = of.array.extent;
    for_each_number(of.array.outer * of.listed * inner, [&](u64 at) {
        const u64 column = at % inner, rest = at / inner, place = rest % of.listed, line = rest / of.listed;
        const i64 asked = indices[line * of.outer_stride + place * of.stride + column * of.inner_stride];
        const u64 index = (u64)asked + (asked < 0 ? extent : 0);
        if (index >= extent) {
            *outside = asked;
            return;
        }
        const Unit* from = src + ((line * extent + index) * inner + column) * units;
        for (u64 unit = 0; unit < units; ++unit) dst[at * units + unit] = from[unit];
    });
}

#define GATHER_KERNEL(Unit, bytes)                                                                                       \
    CUZARR_KERNEL(gather_##bytes, const Unit* src, const i64* indices, Unit* dst, i64* outside, Listed of, u64 units) {  \
        gather(src, indices, dst, outside, of, units);                                                                   \
    }

GATHER_KERNEL(u8, 1)
GATHER_KERNEL(u16, 2)
GATHER_KERNEL(u32, 4)
GATHER_KERNEL(u64, 8)
GATHER_KERNEL(Wide, 16)

/// The shapes of a scatter. `Written` in gather/mod.rs.
struct Written {
    Lines lines;
    u64 listed;                             // how many indices
    i64 outer_stride, stride, inner_stride;  // of the lines, in bytes
};

/// If an index is out of range, writes it to `outside`. It is never 0, since lines have elements.
CUZARR_KERNEL(gather_last, const i64* indices, u64* last, i64* outside, u64 count, u64 extent) {
    for_each_number(count, [&](u64 at) {
        const i64 asked = indices[at];
        const u64 index = (u64)asked + (asked < 0 ? extent : 0);
        if (index >= extent) {
            *outside = asked;
            return;
        }
        atomic_max(last + index, at + 1);
    });
}

template <class Unit>
CUZARR_DEVICE void scatter(const Unit* values, const i64* indices, const u64* last, u64 lines, Written of, u64 units) {
    const u64 inner = of.lines.inner;
    for_each_number(of.lines.outer * of.listed * inner, [&](u64 at) {
        const u64 column = at % inner, rest = at / inner, place = rest % of.listed, line = rest / of.listed;
        const i64 asked = indices[place];
        const u64 index = (u64)asked + (asked < 0 ? of.lines.extent : 0);
        if (last[index] != place + 1) return;
        const i64 offset = (i64)line * of.outer_stride + (i64)index * of.stride + (i64)column * of.inner_stride;
        Unit* to = (Unit*)(lines + (u64)offset);
        for (u64 unit = 0; unit < units; ++unit) to[unit] = values[at * units + unit];
    });
}

#define SCATTER_KERNEL(Unit, bytes)                                                                                       \
    CUZARR_KERNEL(scatter_##bytes, const Unit* values, const i64* indices, const u64* last, u64 lines, Written of,        \
                  u64 units) {                                                                                            \
        scatter(values, indices, last, lines, of, units);                                                                 \
    }

SCATTER_KERNEL(u8, 1)
SCATTER_KERNEL(u16, 2)
SCATTER_KERNEL(u32, 4)
SCATTER_KERNEL(u64, 8)
SCATTER_KERNEL(Wide, 16)
