// One element at a time: conversions and arithmetic with the results of NumPy on x86-64, bit for bit.
//
// A GPU rounds as a CPU does, but it has one NaN of its own, saturates out-of-range conversions, and knows neither 16-bit
// format without headers. So NaNs, conversions to integers and the 16-bit formats are spelled out here.
#pragma once
#include "cuzarr/nan.cuh"

/// The bits of an element of up to 16 bytes.
struct Value {
    u64 low, high;
};

/// Element types. `Code` in elements.rs.
enum {
    BOOL, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64,
    FLOAT16, BFLOAT16, FLOAT32, FLOAT64, COMPLEX64, COMPLEX128, OPAQUE
};

/// The operation of a step. `Step` in step/cuda.rs.
enum {
    STEP_SWAP, STEP_CAST, STEP_ADD, STEP_SUBTRACT, STEP_MULTIPLY, STEP_DIVIDE, STEP_ROUND, STEP_ROUND_BITS, STEP_ROUND_INTEGER
};

struct Step {
    u8 operation;
    u8 from;  // the type of arithmetic and of rounding, too
    u8 to;
    u8 unit;  // bytes that a swap reverses together, or of what is rounded
    u32 reserved;
    u64 operand;
};

#define CUZARR_MAX_STEPS 16

struct Steps {
    u32 count;
    u32 src_bytes;  // of the element before the first step
    u32 dst_bytes;  // and after the last
    u32 reserved;
    Step steps[CUZARR_MAX_STEPS];
};

CUZARR_DEVICE u64 widen_float(u32 bits) {
    if (is_nan_32(bits)) {
        return (u64)(bits >> 31) << 63 | 0x7ff8000000000000ull | (u64)(bits & 0x7fffffu) << 29;
    }
    return bits_of((double)float_of(bits));
}

CUZARR_DEVICE u32 narrow_double(u64 bits) {
    if (is_nan_64(bits)) return (u32)(bits >> 63) << 31 | 0x7fc00000u | ((u32)(bits >> 29) & 0x7fffffu);
    return bits_of((float)double_of(bits));
}

CUZARR_DEVICE u32 float_of_half(u32 half) {
    u32 sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31, fraction = half & 0x3ffu;
    if (exponent == 31) return sign | 0x7f800000u | fraction << 13;
    if (exponent) return sign | (exponent + 112) << 23 | fraction << 13;
    if (!fraction) return sign;
    u32 shift = count_leading_zeros(fraction) - 21;  // moves the leading one to bit 10
    return sign | (113 - shift) << 23 | (fraction << shift & 0x3ffu) << 13;
}

/// Exact; a signalling NaN stays one, as NumPy leaves it.
CUZARR_DEVICE u64 double_of_half(u32 half) {
    if ((half & 0x7fffu) <= 0x7c00u) return bits_of((double)float_of(float_of_half(half)));
    return (u64)(half >> 15) << 63 | 0x7ff0000000000000ull | (u64)(half & 0x3ffu) << 42;
}

/// Rounds `fraction` (its leading one included) down by `shift` bits, to the nearest, ties to even.
CUZARR_DEVICE u64 round_shift(u64 fraction, u32 shift) {
    if (shift > 63) return 0;
    u64 kept = fraction >> shift, rest = fraction & ((1ull << shift) - 1), half = 1ull << shift >> 1;
    return kept + (rest > half || (rest == half && (kept & 1) && half));
}

/// A finite number, infinity or NaN with `bits` fraction bits as a half, rounded once.
CUZARR_DEVICE u32 half_of_parts(u32 sign, i32 exponent, u64 fraction, u32 bits, bool special) {
    if (special) {
        if (!fraction) return sign << 15 | 0x7c00u;
        u32 kept = (u32)(fraction >> (bits - 10));
        return sign << 15 | 0x7c00u | (kept ? kept : 1);
    }
    // `exponent` is unbiased, `fraction` holds its leading one at `bits`. A carry out of rounding walks into the exponent.
    if (exponent > 15) return sign << 15 | 0x7c00u;
    if (exponent >= -14) {
        return sign << 15 | (((u32)(exponent + 14) << 10) + (u32)round_shift(fraction, bits - 10));
    }
    i32 shift = (i32)bits - 10 + (-14 - exponent);
    return sign << 15 | (u32)round_shift(fraction, (u32)shift);
}

/// Without branches but for what is no number: in the sum with 0.5, whose last bit is worth as much as a half's smallest number,
/// the hardware rounds.
CUZARR_DEVICE u32 half_of_float(u32 bits) {
    u32 sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return half_of_parts(bits >> 31, 0, bits & 0x7fffffu, 23, true);
    u32 below = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
    // The exponent is rebased from 127 to 15; a carry out of rounding walks into it.
    u32 normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1)) >> 13;
    return sign | (magnitude < 0x38800000u ? below : magnitude < 0x47800000u ? normal : 0x7c00u);
}

CUZARR_DEVICE u32 half_of_double(u64 bits) {
    u32 sign = (u32)(bits >> 63), exponent = (u32)(bits >> 52) & 2047;
    u64 fraction = bits & 0xfffffffffffffull;
    if (exponent == 2047) return half_of_parts(sign, 0, fraction, 52, true);
    if (exponent == 0) return sign << 15;
    return half_of_parts(sign, (i32)exponent - 1023, fraction | 1ull << 52, 52, false);
}

CUZARR_DEVICE u32 bfloat_of_float(u32 bits) {
    if (is_nan_32(bits)) return bits >> 31 ? 0xffc0u : 0x7fc0u;
    return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}

/// The conversion of a double as x86-64's cvttsd2si does it: whatever does not fit is the most negative integer.
CUZARR_DEVICE i64 truncate_64(double x) {
    return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? (i64)x : (i64)0x8000000000000000ull;
}

CUZARR_DEVICE i32 truncate_32(double x) {
    return x > -2147483649.0 && x < 2147483648.0 ? (i32)x : (i32)0x80000000u;
}

CUZARR_DEVICE u64 truncate_u64(double x) {
    if (x >= 9223372036854775808.0) return (u64)truncate_64(x - 9223372036854775808.0) ^ 0x8000000000000000ull;
    return (u64)truncate_64(x);
}

CUZARR_DEVICE u64 integer_of_double(double x, u32 to) {
    switch (to) {
        case INT8: case UINT8: return (u8)truncate_32(x);
        case INT16: case UINT16: return (u16)truncate_32(x);
        case INT32: return (u32)truncate_32(x);
        case UINT32: return (u32)truncate_64(x);
        case INT64: return (u64)truncate_64(x);
        default: return truncate_u64(x);
    }
}

CUZARR_DEVICE u64 truncate_bits(u64 bits, u32 type) {
    switch (type) {
        case INT8: case UINT8: return (u8)bits;
        case INT16: case UINT16: return (u16)bits;
        case INT32: case UINT32: return (u32)bits;
        default: return bits;
    }
}

CUZARR_DEVICE u64 sign_extend(u64 bits, u32 type) {
    switch (type) {
        case INT8: return (u64)(i64)(i8)bits;
        case INT16: return (u64)(i64)(i16)bits;
        case INT32: return (u64)(i64)(i32)bits;
        default: return bits;
    }
}

CUZARR_DEVICE bool is_signed(u32 type) { return type >= INT8 && type <= INT64; }
CUZARR_DEVICE bool is_integer(u32 type) { return type <= UINT64; }

/// A real float of any width as single precision; exact for the 16-bit formats.
CUZARR_DEVICE u32 float_bits(u64 bits, u32 type) {
    switch (type) {
        case FLOAT16: return float_of_half((u32)bits);
        case BFLOAT16: return (u32)bits << 16;
        case FLOAT64: return narrow_double(bits);
        default: return (u32)bits;
    }
}

CUZARR_DEVICE u64 cast_integer(u64 bits, u32 from, u32 to) {
    bits = from == BOOL ? bits != 0 : sign_extend(bits, from);
    bool negative = is_signed(from);
    if (to == BOOL) return bits != 0;
    if (is_integer(to)) return truncate_bits(bits, to);
    if (to == FLOAT64) return bits_of(negative ? (double)(i64)bits : (double)bits);
    u32 single = bits_of(negative ? (float)(i64)bits : (float)bits);
    if (to == FLOAT16) return half_of_float(single);
    return to == BFLOAT16 ? bfloat_of_float(single) : single;
}

CUZARR_DEVICE u64 cast_float(u64 bits, u32 from, u32 to) {
    if (to == BOOL) {
        u64 magnitude = from == FLOAT64 ? bits << 1 : from == FLOAT32 ? (u64)((u32)bits << 1) : (bits & 0x7fffu);
        return magnitude != 0;
    }
    if (is_integer(to)) {
        double x = from == FLOAT64 ? double_of(bits) : (double)float_of(float_bits(bits, from));
        return integer_of_double(x, to);
    }
    switch (to) {
        case FLOAT64: return from == FLOAT16 ? double_of_half((u32)bits) : widen_float(float_bits(bits, from));
        case FLOAT32: return float_bits(bits, from);
        case BFLOAT16: return bfloat_of_float(float_bits(bits, from));
        default: break;
    }
    if (from == FLOAT64) return half_of_double(bits);
    u32 single = float_bits(bits, from);
    // ml_dtypes drops the payload of a NaN.
    if (from == BFLOAT16 && is_nan_32(single)) return (single >> 16 & 0x8000u) | 0x7e00u;
    return half_of_float(single);
}

CUZARR_DEVICE u64 cast_real(u64 bits, u32 from, u32 to) {
    if (from == to) return bits;
    return is_integer(from) ? cast_integer(bits, from, to) : cast_float(bits, from, to);
}

/// The type of a complex number's parts; of any other type, itself.
CUZARR_DEVICE u32 part_of(u32 type) {
    if (type == COMPLEX64) return FLOAT32;
    return type == COMPLEX128 ? (u32)FLOAT64 : type;
}

/// Both parts of a complex number as the bits of `part`.
CUZARR_DEVICE Value complex_parts(Value value, u32 type) {
    if (type == COMPLEX128) return value;
    Value parts = {value.low & 0xffffffffu, value.low >> 32};
    return parts;
}

CUZARR_DEVICE Value cast(Value value, u32 from, u32 to) {
    if (from == to) return value;
    u32 from_part = part_of(from), to_part = part_of(to);
    Value parts = {value.low, 0};
    if (from_part != from) parts = complex_parts(value, from);
    Value result = {cast_real(parts.low, from_part, to_part), 0};
    if (to_part == to) {
        if (to == BOOL && from_part != from) result.low |= cast_real(parts.high, from_part, BOOL);
        return result;
    }
    u64 imaginary = from_part != from ? cast_real(parts.high, from_part, to_part) : 0;
    if (to == COMPLEX64) result.low |= imaginary << 32;
    else result.high = imaginary;
    return result;
}

/// The NaN that x86-64 gives: the first operand's, quieted, else the second's, else its own.
CUZARR_DEVICE u32 nan_of(u32 a, u32 b) {
    if (is_nan_32(a)) return a | 0x400000u;
    return is_nan_32(b) ? b | 0x400000u : 0xffc00000u;
}
CUZARR_DEVICE u64 nan_of(u64 a, u64 b) {
    if (is_nan_64(a)) return a | 1ull << 51;
    return is_nan_64(b) ? b | 1ull << 51 : 0xfff8000000000000ull;
}

template <class F>
CUZARR_DEVICE F compute(F a, F b, u32 operation) {
    switch (operation) {
        case STEP_ADD: return a + b;
        case STEP_SUBTRACT: return a - b;
        case STEP_MULTIPLY: return a * b;
        case STEP_DIVIDE: return a / b;
        default: return round_half_even(a);
    }
}

CUZARR_DEVICE u32 arithmetic_32(u32 a, u32 b, u32 operation) {
    u32 result = bits_of(compute(float_of(a), float_of(b), operation));
    return is_nan_32(result) ? nan_of(a, operation == STEP_ROUND ? a : b) : result;
}

CUZARR_DEVICE u64 arithmetic_64(u64 a, u64 b, u32 operation) {
    u64 result = bits_of(compute(double_of(a), double_of(b), operation));
    return is_nan_64(result) ? nan_of(a, operation == STEP_ROUND ? a : b) : result;
}

CUZARR_DEVICE u64 arithmetic_integer(u64 a, u64 b, u32 type, u32 operation) {
    a = sign_extend(a, type), b = sign_extend(b, type);
    u64 result = a;
    switch (operation) {
        case STEP_ADD: result = a + b; break;
        case STEP_SUBTRACT: result = a - b; break;
        case STEP_MULTIPLY: result = a * b; break;
        case STEP_DIVIDE:
            // Division by zero gives zero, and the one quotient that overflows wraps, as on the CPU device.
            if (b == 0) result = 0;
            else if (!is_signed(type)) result = a / b;
            else result = b == ~0ull ? 0 - a : (u64)((i64)a / (i64)b);
            break;
        default: break;
    }
    return truncate_bits(result, type);
}

CUZARR_DEVICE u64 arithmetic(u64 a, u64 b, u32 type, u32 operation) {
    if (is_integer(type)) return arithmetic_integer(a, b, type, operation);
    if (type == FLOAT64) return arithmetic_64(a, b, operation);
    u32 result = arithmetic_32(float_bits(a, type), float_bits(b, type), operation);
    if (type == FLOAT16) return half_of_float(result);
    return type == BFLOAT16 ? bfloat_of_float(result) : result;
}

CUZARR_DEVICE u64 reverse_u64(u64 x) {
    return (u64)permute_bytes((u32)x, 0, 0x0123) << 32 | permute_bytes((u32)(x >> 32), 0, 0x0123);
}

CUZARR_DEVICE Value swap_value(Value value, u32 unit) {
    Value swapped = value;
    switch (unit) {
        case 2:
            swapped.low = (value.low & 0x00ff00ff00ff00ffull) << 8 | (value.low >> 8 & 0x00ff00ff00ff00ffull);
            swapped.high = (value.high & 0x00ff00ff00ff00ffull) << 8 | (value.high >> 8 & 0x00ff00ff00ff00ffull);
            break;
        case 4:
            swapped.low = reverse_u64(value.low), swapped.high = reverse_u64(value.high);
            swapped.low = swapped.low << 32 | swapped.low >> 32, swapped.high = swapped.high << 32 | swapped.high >> 32;
            break;
        case 8: swapped.low = reverse_u64(value.low), swapped.high = reverse_u64(value.high); break;
        case 16: swapped.low = reverse_u64(value.high), swapped.high = reverse_u64(value.low); break;
        default: break;
    }
    return swapped;
}

/// The lowest `dropped` bits of a float of `bytes` bytes rounded away, half to even. `round_bits` in step/bits.rs.
CUZARR_DEVICE u64 round_bits(u64 bits, u32 bytes, u32 dropped) {
    if (dropped == 0) return bits;
    u64 half = (1ull << (dropped - 1)) - 1;
    return (bits + (bits >> dropped & 1) + half) >> dropped << dropped & ~0ull >> (64 - 8 * bytes);
}

/// A float, or both parts of a complex number, rounded.
CUZARR_DEVICE Value round_float(Value value, const Step& step) {
    u32 bytes = step.unit, dropped = (u32)step.operand;
    if (step.from == COMPLEX64) {
        value.low = round_bits(value.low >> 32, bytes, dropped) << 32 | round_bits(value.low & 0xffffffffu, bytes, dropped);
        return value;
    }
    value.low = round_bits(value.low, bytes, dropped);
    if (step.from == COMPLEX128) value.high = round_bits(value.high, bytes, dropped);
    return value;
}

/// Rounds so that at most `kept` bits remain from the highest one that is set. `round_integers` in step/bits.rs.
CUZARR_DEVICE u64 round_integer(u64 bits, const Step& step) {
    u32 kept = (u32)step.operand, width = 8 * step.unit, length = 64 - count_leading_zeros(bits);
    if (length <= kept) return bits;
    u32 dropped = length - kept;
    u64 largest = ~0ull >> (64 - width + (is_signed(step.from) && length < width));
    u64 sum = bits + (bits >> dropped & 1) + (1ull << (dropped - 1)) - 1;
    if (sum < bits || sum > largest) sum = largest;
    return sum >> dropped << dropped;
}

CUZARR_DEVICE Value apply(const Steps& steps, Value value) {
    for (u32 at = 0; at < steps.count; ++at) {
        const Step& step = steps.steps[at];
        if (step.operation == STEP_SWAP) value = swap_value(value, step.unit);
        else if (step.operation == STEP_CAST) value = cast(value, step.from, step.to);
        else if (step.operation == STEP_ROUND_BITS) value = round_float(value, step);
        else if (step.operation == STEP_ROUND_INTEGER) value.low = round_integer(value.low, step);
        else value.low = arithmetic(value.low, step.operand, step.from, step.operation);
    }
    return value;
}

/// Reads an element; a whole one at once where memory is aligned for it.
CUZARR_DEVICE Value load_value(const u8* from, u32 bytes, bool aligned) {
    Value value = {0, 0};
    if (aligned) {
        switch (bytes) {
            case 1: value.low = *from; return value;
            case 2: value.low = *(const u16*)from; return value;
            case 4: value.low = *(const u32*)from; return value;
            case 8: value.low = *(const u64*)from; return value;
            case 16: {
                uint4 words = *(const uint4*)from;
                value.low = (u64)words.y << 32 | words.x, value.high = (u64)words.w << 32 | words.z;
                return value;
            }
            default: break;
        }
    }
    for (u32 at = 0; at < bytes; ++at) {
        if (at < 8) value.low |= (u64)from[at] << 8 * at;
        else value.high |= (u64)from[at] << 8 * (at - 8);
    }
    return value;
}

CUZARR_DEVICE u8 byte_of(Value value, u32 at) {
    return (u8)(at < 8 ? value.low >> 8 * at : value.high >> 8 * (at - 8));
}

CUZARR_DEVICE void store_value(u8* to, Value value, u32 bytes, bool aligned) {
    if (aligned) {
        switch (bytes) {
            case 1: *to = (u8)value.low; return;
            case 2: *(u16*)to = (u16)value.low; return;
            case 4: *(u32*)to = (u32)value.low; return;
            case 8: *(u64*)to = value.low; return;
            case 16: {
                uint4 words;
                words.x = (u32)value.low, words.y = (u32)(value.low >> 32);
                words.z = (u32)value.high, words.w = (u32)(value.high >> 32);
                *(uint4*)to = words;
                return;
            }
            default: break;
        }
    }
    for (u32 at = 0; at < bytes; ++at) to[at] = byte_of(value, at);
}

/// The casts that arrays are stored with, as `case`: with both types known the compiler leaves nothing but the conversion.
#define CUZARR_CASTS_TO_FLOATS(case, from) case(from, FLOAT32) case(from, FLOAT64)
#define CUZARR_CASTS_FROM_FLOAT(case, from)                                                                              \
    case(from, INT8) case(from, INT16) case(from, INT32) case(from, UINT8) case(from, UINT16) case(from, FLOAT16)
#define CUZARR_CASTS(case)                                                                                              \
    CUZARR_CASTS_TO_FLOATS(case, INT8) CUZARR_CASTS_TO_FLOATS(case, INT16) CUZARR_CASTS_TO_FLOATS(case, INT32)           \
    CUZARR_CASTS_TO_FLOATS(case, UINT8) CUZARR_CASTS_TO_FLOATS(case, UINT16)                                            \
    CUZARR_CASTS_FROM_FLOAT(case, FLOAT32) CUZARR_CASTS_FROM_FLOAT(case, FLOAT64)                                       \
    case(FLOAT32, FLOAT64) case(FLOAT64, FLOAT32) case(FLOAT16, FLOAT32) case(BFLOAT16, FLOAT32) case(FLOAT32, BFLOAT16)

CUZARR_DEVICE void cast_quad(Value* values, u32 from, u32 to) {
    switch (from << 4 | to) {
#define CUZARR_CAST_CASE(from_type, to_type)                                                                            \
    case from_type << 4 | to_type:                                                                                      \
        _Pragma("unroll") for (u32 k = 0; k < 4; ++k) {                                                                 \
            values[k].low = cast_real(values[k].low, from_type, to_type);                                               \
        }                                                                                                               \
        break;
        CUZARR_CASTS(CUZARR_CAST_CASE)
#undef CUZARR_CAST_CASE
        default:
#pragma unroll
            for (u32 k = 0; k < 4; ++k) values[k] = cast(values[k], from, to);
    }
}

/// Arithmetic of a type and an operation that are known, or of any.
#define CUZARR_ARITHMETIC_QUAD(type, operation)                                                                         \
    _Pragma("unroll") for (u32 k = 0; k < 4; ++k) {                                                                     \
        values[k].low = arithmetic(values[k].low, step.operand, type, operation);                                       \
    }

template <u32 Type>
CUZARR_DEVICE void arithmetic_quad(Value* values, const Step& step) {
    switch (step.operation) {
        case STEP_ADD: CUZARR_ARITHMETIC_QUAD(Type, STEP_ADD) break;
        case STEP_SUBTRACT: CUZARR_ARITHMETIC_QUAD(Type, STEP_SUBTRACT) break;
        case STEP_MULTIPLY: CUZARR_ARITHMETIC_QUAD(Type, STEP_MULTIPLY) break;
        case STEP_DIVIDE: CUZARR_ARITHMETIC_QUAD(Type, STEP_DIVIDE) break;
        default: CUZARR_ARITHMETIC_QUAD(Type, STEP_ROUND)
    }
}

CUZARR_DEVICE void apply_to_quad(const Steps& steps, Value* values) {
    for (u32 at = 0; at < steps.count; ++at) {
        const Step& step = steps.steps[at];
        if (step.operation == STEP_CAST) {
            cast_quad(values, step.from, step.to);
        } else if (step.operation == STEP_SWAP) {
#pragma unroll
            for (u32 k = 0; k < 4; ++k) values[k] = swap_value(values[k], step.unit);
        } else if (step.operation == STEP_ROUND_BITS) {
#pragma unroll
            for (u32 k = 0; k < 4; ++k) values[k] = round_float(values[k], step);
        } else if (step.operation == STEP_ROUND_INTEGER) {
#pragma unroll
            for (u32 k = 0; k < 4; ++k) values[k].low = round_integer(values[k].low, step);
        } else if (step.from == FLOAT32) {
            arithmetic_quad<FLOAT32>(values, step);
        } else if (step.from == FLOAT64) {
            arithmetic_quad<FLOAT64>(values, step);
        } else {
            CUZARR_ARITHMETIC_QUAD(step.from, step.operation)
        }
    }
}

/// Four elements that lie side by side, from memory that is aligned for accesses of up to 16 bytes.
CUZARR_DEVICE void load_quad(const u8* from, u32 bytes, Value* values) {
#pragma unroll
    for (u32 k = 0; k < 4; ++k) values[k].high = 0;
    switch (bytes) {
        case 1: {
            u32 all = *(const u32*)from;
#pragma unroll
            for (u32 k = 0; k < 4; ++k) values[k].low = all >> 8 * k & 0xff;
            break;
        }
        case 2: {
            u64 all = *(const u64*)from;
#pragma unroll
            for (u32 k = 0; k < 4; ++k) values[k].low = all >> 16 * k & 0xffff;
            break;
        }
        case 4: {
            uint4 all = *(const uint4*)from;
            values[0].low = all.x, values[1].low = all.y, values[2].low = all.z, values[3].low = all.w;
            break;
        }
        case 8:
#pragma unroll
            for (u32 half = 0; half < 2; ++half) {
                uint4 two = ((const uint4*)from)[half];
                values[2 * half].low = (u64)two.y << 32 | two.x;
                values[2 * half + 1].low = (u64)two.w << 32 | two.z;
            }
            break;
        default:
#pragma unroll
            for (u32 k = 0; k < 4; ++k) values[k] = load_value(from + 16 * k, 16, true);
    }
}

CUZARR_DEVICE void store_quad(u8* to, const Value* values, u32 bytes) {
    switch (bytes) {
        case 1: {
            u32 all = 0;
#pragma unroll
            for (u32 k = 0; k < 4; ++k) all |= ((u32)values[k].low & 0xff) << 8 * k;
            *(u32*)to = all;
            break;
        }
        case 2: {
            u64 all = 0;
#pragma unroll
            for (u32 k = 0; k < 4; ++k) all |= (values[k].low & 0xffff) << 16 * k;
            *(u64*)to = all;
            break;
        }
        case 4: {
            uint4 all = {(u32)values[0].low, (u32)values[1].low, (u32)values[2].low, (u32)values[3].low};
            *(uint4*)to = all;
            break;
        }
        case 8:
#pragma unroll
            for (u32 half = 0; half < 2; ++half) {
                u64 low = values[2 * half].low, high = values[2 * half + 1].low;
                uint4 two = {(u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32)};
                ((uint4*)to)[half] = two;
            }
            break;
        default:
#pragma unroll
            for (u32 k = 0; k < 4; ++k) store_value(to + 16 * k, values[k], 16, true);
    }
}
