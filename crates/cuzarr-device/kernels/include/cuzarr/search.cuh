// Looking up in tables whose lines say where each begins.
#pragma once
#include "cuzarr/kernel.cuh"

/// The last of `count` lines that begins at `at` or before, by `begin(line)`, which never falls. The first, when none does.
template <class At, class Begin>
CUZARR_DEVICE u32 last_from(u32 count, At at, Begin begin) {
    u32 low = 0, high = count;
    while (high - low > 1) {
        u32 middle = low + (high - low) / 2;
        if (begin(middle) <= at) low = middle;
        else high = middle;
    }
    return low;
}
