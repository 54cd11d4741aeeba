// NaNs on their bits. `ops/nan.rs` is the CPU's twin.
#pragma once
#include "cuzarr/kernel.cuh"

CUZARR_DEVICE bool is_nan_32(u32 bits) { return (bits & 0x7fffffffu) > 0x7f800000u; }
CUZARR_DEVICE bool is_nan_64(u64 bits) { return (bits & 0x7fffffffffffffffull) > 0x7ff0000000000000ull; }

/// The number, or in the place of any NaN the canonical one: positive, quiet, without a payload. Results of computations leave a
/// kernel by this function, because processors give their NaNs different signs and payloads.
CUZARR_DEVICE float canonical(float x) { return is_nan_32(bits_of(x)) ? float_of(0x7fc00000u) : x; }
CUZARR_DEVICE double canonical(double x) { return is_nan_64(bits_of(x)) ? double_of(0x7ff8000000000000ull) : x; }
