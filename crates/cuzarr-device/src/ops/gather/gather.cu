// Elements of a packed array by indices along a dimension, which are on the device.
//
// A thread takes an element of the result: it reads its index, and copies the element in units.
//
// Floor: indices and elements read, elements written / 4.3 TB/s on an H200.
#include "cuzarr/lines.cuh"

/// The shapes of a call. `Listed` in gather/mod.rs.
struct Listed {
    Lines array;
    u64 listed;                              // elements of a line of the result
    u64 outer_stride, stride, inner_stride;  // of the indices
};

/// A unit of 16 bytes.
struct Wide {
    u64 low, high;
};

/// One of the indices that lie outside is written to `outside`. It is not 0: lines have elements.
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
