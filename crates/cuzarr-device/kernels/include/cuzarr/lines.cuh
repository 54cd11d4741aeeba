// The lines of a packed array along one dimension.
#pragma once
#include "cuzarr/kernel.cuh"

/// Three dimensions: those before an axis, the axis, and those behind it. `Lines` in ops/lines.rs.
struct Lines {
    u64 outer, extent, inner;
};

/// Calls `action` with numbers below `count`, each in one thread of the grid.
template <class Action>
CUZARR_DEVICE void for_each_number(u64 count, Action action) {
    const u64 step = (u64)block_count() * thread_count();
    for (u64 at = (u64)block_index() * thread_count() + thread_index(); at < count; at += step) action(at);
}
