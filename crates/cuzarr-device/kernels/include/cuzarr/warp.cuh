// Computations of all lanes of a warp together, and the bits of their votes.
#pragma once
#include "cuzarr/kernel.cuh"

/// The number of the lowest bit that is set: not for 0.
CUZARR_DEVICE u32 lowest_bit(u32 bits) { return 31 - count_leading_zeros(bits & (0 - bits)); }
/// The number of the highest bit that is set: not for 0.
CUZARR_DEVICE u32 highest_bit(u32 bits) { return 31 - count_leading_zeros(bits); }

/// A bit for each lane below this one.
CUZARR_DEVICE u32 lanes_below(u32 lane) { return (1u << lane) - 1; }
/// How many of the lanes below voted.
CUZARR_DEVICE u32 votes_below(u32 votes, u32 lane) { return count_ones(votes & lanes_below(lane)); }

/// The sum of the values of this lane and all lanes below. All lanes call.
template <class T>
CUZARR_DEVICE T inclusive_sum(T value, u32 lane) {
    for (u32 by = 1; by < CUZARR_WARP; by *= 2) {
        T other = warp_shuffle_up(CUZARR_ALL_LANES, value, by);
        if (lane >= by) value = (T)(value + other);
    }
    return value;
}

/// The sum of the values of all lanes. All lanes call.
CUZARR_DEVICE u32 warp_sum(u32 value) {
    for (u32 by = CUZARR_WARP / 2; by > 0; by /= 2) value += warp_shuffle_xor(CUZARR_ALL_LANES, value, by);
    return value;
}
