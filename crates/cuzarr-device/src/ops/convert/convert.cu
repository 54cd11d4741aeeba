// Checked conversion of the elements of whole chunks. Elements that have no value in the new type are reported. For the
// codec `cast_value` if it narrows or maps, and for `scale_offset` on integers, in both directions.
//
//     for each element: the pair it is a key of, if any; else its number, rounded, divided exactly or multiplied, if it fits; else a report
//
// A number is a sign and a 64-bit magnitude, which can hold every sum and quotient of two 64-bit integers. Floats are
// rounded like integers, on their own bits. The rules are those of `cast_value/cpu.rs` and `scale_offset/cpu.rs`.
//
// Floor: the bytes of both sides / memory; 64-bit division costs more (some 100 instructions an element).
#include "cuzarr/elements.cuh"
#include "cuzarr/status.cuh"

enum { RULE_CAST, RULE_UNSCALE, RULE_SCALE };
/// `Rounding` in mod.rs.
enum { NEAREST_EVEN, TOWARDS_ZERO, TOWARDS_POSITIVE, TOWARDS_NEGATIVE, NEAREST_AWAY };
/// `OutOfRange` in mod.rs.
enum { RANGE_ERROR, RANGE_CLAMP, RANGE_WRAP };

/// The conversion that a launch does. `ConvertTask` in cuda.rs.
struct ConvertTask {
    u64 elems;  // of each chunk
    u32 count;  // of chunks
    u32 from, to;
    u32 from_bytes, to_bytes;
    u32 rule;
    u32 rounding;
    u32 out_of_range;
    u64 offset, scale;
    u32 pairs;   // sorted by their keys; behind them those of zeros and of NaN
    u32 others;  // 1: any zero becomes the first of those; 2: any NaN the second
};

/// An element and its replacement, as bits. `Pair` in cuda.rs.
struct ConvertPair {
    u64 key, value;
};

/// The places of one chunk. `ConvertEntry` in cuda.rs.
struct ConvertSpan {
    u64 src_offset;
    u64 dst_offset;
    u32 status;
    u32 reserved;
};
static_assert(sizeof(ConvertTask) == 64 && sizeof(ConvertPair) == 16 && sizeof(ConvertSpan) == 24, "as convert/cuda.rs has them");

/// Number of elements that a thread handles in a tile.
#define CUZARR_CONVERT_ELEMS 8u

/// An integer between -2^64 and 2^64. If `beyond`, the number is larger, and only its low bits and its sign are kept.
struct Wide {
    u64 magnitude;
    bool negative;
    bool beyond;
};

CUZARR_DEVICE Wide wide_of(u64 bits, u32 type) {
    u64 extended = sign_extend(bits, type);
    Wide wide = {extended, is_signed(type) && extended >> 63, false};
    if (wide.negative) wide.magnitude = 0 - extended;
    return wide;
}

CUZARR_DEVICE Wide wide_sum(Wide a, Wide b) {
    Wide sum = {a.magnitude + b.magnitude, a.negative, false};
    if (a.negative == b.negative) {
        sum.beyond = sum.magnitude < a.magnitude;
    } else if (a.magnitude >= b.magnitude) {
        sum.magnitude = a.magnitude - b.magnitude;
    } else {
        sum.magnitude = b.magnitude - a.magnitude, sum.negative = b.negative;
    }
    return sum;
}

/// The largest magnitude that a type has on one side of zero.
CUZARR_DEVICE u64 largest(u32 type, u32 bytes, bool negative) {
    if (is_signed(type)) return (1ull << (8 * bytes - 1)) - (negative ? 0 : 1);
    return negative ? 0 : ~0ull >> (64 - 8 * bytes);
}

CUZARR_DEVICE bool fits(Wide wide, u32 type, u32 bytes) {
    return !wide.beyond && (wide.magnitude == 0 || wide.magnitude <= largest(type, bytes, wide.negative));
}

/// The bits of an element that holds the number; only its low bits if it does not fit.
CUZARR_DEVICE u64 bits_of_wide(Wide wide, u32 type) {
    return truncate_bits(wide.negative ? 0 - wide.magnitude : wide.magnitude, type);
}

/// Whether the digits that are cut off below `kept` round it away from zero.
CUZARR_DEVICE bool rounds_up(u64 kept, bool above_half, bool half, bool any, bool negative, u32 rounding) {
    switch (rounding) {
        case NEAREST_EVEN: return above_half || (half && (kept & 1));
        case NEAREST_AWAY: return above_half || half;
        case TOWARDS_POSITIVE: return any && !negative;
        case TOWARDS_NEGATIVE: return any && negative;
        default: return false;
    }
}

/// Shifts out the `cut` lowest bits of `magnitude`, and rounds.
CUZARR_DEVICE u64 rounded_shift(u64 magnitude, u32 cut, bool negative, u32 rounding) {
    if (cut == 0) return magnitude;
    u64 kept = cut < 64 ? magnitude >> cut : 0, low = cut < 64 ? magnitude & ((1ull << cut) - 1) : magnitude;
    u64 middle = cut <= 64 ? 1ull << (cut - 1) : 0;
    bool half = middle && low == middle, above = middle && low > middle;
    return kept + rounds_up(kept, above, half, low != 0, negative, rounding);
}

/// A finite number other than zero: `significand`, which has 53 bits, times 2^`exponent`.
struct Parts {
    u64 significand;
    i32 exponent;
};

CUZARR_DEVICE Parts parts_of(u64 bits) {
    i32 exponent = (i32)(bits >> 52 & 2047);
    u64 fraction = bits & 0xfffffffffffffull;
    Parts parts = {fraction | 1ull << 52, exponent - 1075};
    if (exponent == 0) {
        u32 up = count_leading_zeros(fraction) - 11;
        parts.significand = fraction << up, parts.exponent = -1074 - (i32)up;
    }
    return parts;
}

/// Rounds a finite double to an integer.
CUZARR_DEVICE Wide round_to_wide(u64 bits, u32 rounding) {
    Wide wide = {0, (bits >> 63) != 0, false};
    if (bits << 1 == 0) return wide;
    Parts parts = parts_of(bits);
    if (parts.exponent < 0) {
        wide.magnitude = rounded_shift(parts.significand, (u32)-parts.exponent, wide.negative, rounding);
    } else {
        wide.magnitude = shift_left(parts.significand, (u32)parts.exponent);
        // From here on, 53 bits reach 2^64 and more.
        wide.beyond = parts.exponent > 11;
    }
    return wide;
}

CUZARR_DEVICE double power_of_two(i32 exponent) { return double_of((u64)(exponent + 1023) << 52); }

/// The number of bits of a float's significand; below, the exponent of the first power of two beyond its range.
CUZARR_DEVICE u32 digits_of(u32 type) {
    return type == FLOAT16 ? 11 : type == BFLOAT16 ? 8 : type == FLOAT32 ? 24 : 53;
}
CUZARR_DEVICE i32 beyond_of(u32 type) { return type == FLOAT16 ? 16 : type == FLOAT64 ? 1024 : 128; }

/// `kept` times 2^`exponent` with its sign, as the bits of a double. Infinite if it is beyond the type's range.
CUZARR_DEVICE u64 float_of_kept(u64 kept, i32 exponent, bool negative, u32 type, bool& infinite) {
    double value = (double)kept * power_of_two(exponent);
    i32 beyond = beyond_of(type);
    infinite = beyond < 1024 && value >= power_of_two(beyond);
    u64 bits = infinite ? 0x7ff0000000000000ull : bits_of(value);
    return bits | (u64)negative << 63;
}

/// Rounds an integer to a float of `type`. The result is in a double.
CUZARR_DEVICE u64 round_wide_to_float(Wide wide, u32 type, u32 rounding, bool& infinite) {
    u32 bits = wide.magnitude ? 64 - count_leading_zeros(wide.magnitude) : 0, digits = digits_of(type);
    u32 cut = bits > digits ? bits - digits : 0;
    u64 kept = rounded_shift(wide.magnitude, cut, wide.negative, rounding);
    return float_of_kept(kept, (i32)cut, wide.negative, type, infinite);
}

/// Rounds a double to a float of a narrower type. The result is in a double. Infinities, NaN and zeros are unchanged.
CUZARR_DEVICE u64 round_double_to_float(u64 bits, u32 type, u32 rounding, bool& infinite) {
    infinite = false;
    if ((bits >> 52 & 2047) == 2047 || bits << 1 == 0 || type == FLOAT64) return bits;
    bool negative = bits >> 63;
    Parts parts = parts_of(bits);
    i32 top = parts.exponent + 52, beyond = beyond_of(type), smallest = 2 - beyond;
    if (top >= beyond) {
        infinite = true;
        return 0x7ff0000000000000ull | (u64)negative << 63;
    }
    i32 exponent = (top > smallest ? top : smallest) - ((i32)digits_of(type) - 1);
    u64 kept = rounded_shift(parts.significand, (u32)(exponent - parts.exponent), negative, rounding);
    return float_of_kept(kept, exponent, negative, type, infinite);
}

/// Finds the replacement of an element: that of its bits, else that of any zero or any NaN.
CUZARR_DEVICE bool mapped(const ConvertTask& task, const ConvertPair* pairs, u64 bits, u64& result) {
    u32 low = 0;
    for (u32 high = task.pairs; low < high;) {
        u32 middle = low + (high - low) / 2;
        if (pairs[middle].key < bits) low = middle + 1;
        else high = middle;
    }
    bool found = low < task.pairs && pairs[low].key == bits;
    if (!found && task.others) {
        u64 wide = cast_real(bits, task.from, FLOAT64);
        bool zero = wide << 1 == 0 && task.others & 1, nan = is_nan_64(wide) && task.others & 2;
        low = task.pairs + nan, found = zero || nan;
    }
    if (found) result = pairs[low].value;
    return found;
}

CUZARR_DEVICE bool cast_checked(const ConvertTask& task, const ConvertPair* pairs, u64 bits, u64& result) {
    if (task.pairs && mapped(task, pairs, bits, result)) return true;
    bool from_integer = is_integer(task.from);
    if (!is_integer(task.to)) {
        bool infinite = false;
        u64 rounded = from_integer
            ? round_wide_to_float(wide_of(bits, task.from), task.to, task.rounding, infinite)
            : round_double_to_float(cast_real(bits, task.from, FLOAT64), task.to, task.rounding, infinite);
        result = cast_real(rounded, FLOAT64, task.to);
        return !(infinite && task.out_of_range == RANGE_ERROR);
    }
    Wide wide;
    if (from_integer) {
        wide = wide_of(bits, task.from);
    } else {
        u64 number = cast_real(bits, task.from, FLOAT64);
        if ((number >> 52 & 2047) == 2047) return false;
        wide = round_to_wide(number, task.rounding);
    }
    if (!fits(wide, task.to, task.to_bytes)) {
        if (task.out_of_range == RANGE_ERROR) return false;
        if (task.out_of_range == RANGE_CLAMP) {
            wide.magnitude = largest(task.to, task.to_bytes, wide.negative);
        }
    }
    result = bits_of_wide(wide, task.to);
    return true;
}

/// `x / scale + offset`, if the quotient is whole and the sum fits.
CUZARR_DEVICE bool unscale_checked(const ConvertTask& task, u64 bits, u64& result) {
    Wide number = wide_of(bits, task.from), scale = wide_of(task.scale, task.from);
    Wide quotient = {number.magnitude / scale.magnitude, number.negative != scale.negative, false};
    if (quotient.magnitude * scale.magnitude != number.magnitude) return false;
    Wide sum = wide_sum(quotient, wide_of(task.offset, task.from));
    result = bits_of_wide(sum, task.to);
    return fits(sum, task.to, task.to_bytes);
}

/// `(x - offset) * scale`, if it fits.
CUZARR_DEVICE bool scale_checked(const ConvertTask& task, u64 bits, u64& result) {
    Wide offset = wide_of(task.offset, task.from), scale = wide_of(task.scale, task.from);
    offset.negative = !offset.negative;
    Wide product = wide_sum(wide_of(bits, task.from), offset);
    product.beyond = product.beyond || multiply_high(product.magnitude, scale.magnitude) != 0;
    product.magnitude *= scale.magnitude;
    product.negative = product.negative != scale.negative;
    result = bits_of_wide(product, task.to);
    return fits(product, task.to, task.to_bytes);
}

CUZARR_DEVICE bool convert_element(const ConvertTask& task, const ConvertPair* pairs, u64 bits, u64& result) {
    switch (task.rule) {
        case RULE_UNSCALE: return unscale_checked(task, bits, result);
        case RULE_SCALE: return scale_checked(task, bits, result);
        default: return cast_checked(task, pairs, bits, result);
    }
}

/// Spans must begin at whole elements on both sides.
CUZARR_KERNEL(
    convert_checked, const u8* src, u8* dst, const ConvertSpan* spans, const ConvertPair* pairs, u64* statuses, ConvertTask task
) {
    u32 threads = thread_count(), tile_elems = CUZARR_CONVERT_ELEMS * threads;
    u64 tiles = (task.elems + tile_elems - 1) / tile_elems;
    for (u64 tile = block_index(); tile < tiles * task.count; tile += block_count()) {
        const ConvertSpan& span = spans[tile / tiles];
        u64 first = tile % tiles * tile_elems + thread_index();
        for (u32 round = 0; round < CUZARR_CONVERT_ELEMS; ++round) {
            u64 index = first + (u64)round * threads;
            if (index >= task.elems) break;
            u64 at = index * task.from_bytes, result = 0;
            u64 bits = load_value(src + span.src_offset + at, task.from_bytes, true).low;
            bool known = convert_element(task, pairs, bits, result);
            if (!known) report(statuses, span.status, CUZARR_NO_VALUE, at < 0xffffffffull ? (u32)at : 0xffffffffu);
            Value value = {result, 0};
            store_value(dst + span.dst_offset + index * task.to_bytes, value, task.to_bytes, true);
        }
    }
}
