// Decodes blocks of zfp that all have the same number of bits. One thread decodes each block.
//
//     from bit `number of the block × bits of a block` on:
//     floats: one bit, of which 0 says zeros; the exponent of the largest value
//     planes of coefficients, from the highest one down, while there are bits (planes.rs)
//     coefficients to integers: out of their order, out of base -2, lifted back along each axis
//     floats: integers times a power of two
//     values that the chunk has to their place
//
// Up to three dimensions, all values of a block stay in registers: loops over them are unrolled, and their order is known when
// the kernel is compiled. Arithmetic wraps around, so it is unsigned.
// <https://zfp.readthedocs.io/en/latest/algorithm.html>
#include "codec/zfp/zfp_order.cuh"
#include "cuzarr/kernel.cuh"

/// How often a loop over `values` values is unrolled: fully, if they are few enough to stay in registers.
CUZARR_DEVICE constexpr u32 zfp_unrolled(u32 values) { return values > 64 ? 1 : values; }

/// Chunks of one shape. `ZfpChunks` in cuda.rs.
struct ZfpChunks {
    u32 extents[4];  // the fastest axis first
    u32 blocks;      // of zfp, in a chunk
    u32 groups;      // of threads, for a chunk
    u32 frame_bytes;
    u32 bits;  // of a block
    u32 planes;
    i32 least_exponent;
};
static_assert(sizeof(ZfpChunks) == 40, "ZfpChunks");

template <u32 NDIM>
struct ZfpOrder;

#define CUZARR_ZFP_ORDER(ndim, size)                      \
    template <>                                           \
    struct ZfpOrder<ndim> {                               \
        CUZARR_DEVICE static constexpr u32 place(u32 i) { \
            const u8 order[size] = {CUZARR_ZFP_ORDER_##ndim}; \
            return order[i];                              \
        }                                                 \
    }
CUZARR_ZFP_ORDER(1, 4);
CUZARR_ZFP_ORDER(2, 16);
CUZARR_ZFP_ORDER(3, 64);

CUZARR_CONSTANT(u8, ZFP_PLACES_4, 256) = {CUZARR_ZFP_ORDER_4};

template <>
struct ZfpOrder<4> {
    CUZARR_DEVICE static u32 place(u32 i) { return ZFP_PLACES_4[i]; }
};

/// A reader of a frame's bits, lowest first, from bytes at any address. Behind the end, it reads zeros.
struct ZfpBits {
    const u32* words;
    u32 whole;  // words before the one that the bytes end in
    u32 tail;   // bytes in that one
    u32 next;
    u64 held;
    u32 held_bits;
};

CUZARR_DEVICE u32 zfp_word(const ZfpBits& bits, u32 index) {
    if (index < bits.whole) return bits.words[index];
    u32 word = 0;
    const u8* tail = (const u8*)(bits.words + bits.whole);
    for (u32 i = 0; index == bits.whole && i < bits.tail; ++i) word |= (u32)tail[i] << 8 * i;
    return word;
}

CUZARR_DEVICE ZfpBits zfp_bits(const u8* bytes, u32 size, u64 first) {
    u32 skew = (u32)((u64)bytes & 3);
    first += 8 * skew;
    u32 word = (u32)(first / 32), shift = (u32)(first % 32);
    ZfpBits bits = {(const u32*)(bytes - skew) + word, (skew + size) / 4 - word, (skew + size) % 4, 1, 0, 32 - shift};
    bits.held = zfp_word(bits, 0) >> shift;
    return bits;
}

/// Returns the next 32 bits.
CUZARR_DEVICE u32 zfp_peek(ZfpBits& bits) {
    if (bits.held_bits < 32) {
        bits.held |= (u64)zfp_word(bits, bits.next++) << bits.held_bits;
        bits.held_bits += 32;
    }
    return (u32)bits.held;
}

/// Skips at most 32 bits that `zfp_peek` returned.
CUZARR_DEVICE void zfp_skip(ZfpBits& bits, u32 count) {
    bits.held >>= count;
    bits.held_bits -= count;
}

CUZARR_DEVICE u32 zfp_read(ZfpBits& bits, u32 count) {
    u32 read = (u32)(zfp_peek(bits) & ((1ull << count) - 1));
    zfp_skip(bits, count);
    return read;
}

CUZARR_DEVICE u32 zfp_least(u32 a, u32 b) { return a < b ? a : b; }

/// Skips bits up to and including the next 1, but at most `limit` bits. Returns the number of zeros; `found` says
/// whether there was a 1.
CUZARR_DEVICE u32 zfp_zeros(ZfpBits& bits, u32 limit, bool& found) {
    u32 zeros = 0;
    found = false;
    while (zeros < limit && !found) {
        u32 ahead = zfp_peek(bits), room = zfp_least(limit - zeros, 32);
        u32 run = ahead ? count_trailing_zeros(ahead) : 32;
        found = run < room;
        run = zfp_least(run, room);
        zfp_skip(bits, run);
        if (found) zfp_skip(bits, 1);
        zeros += run;
    }
    return zeros;
}

/// Decodes the coefficients of a block, from at most `left` bits.
template <class U, u32 SIZE>
CUZARR_DEVICE void zfp_planes(ZfpBits& bits, u32 left, u32 planes, U* coefficients) {
    const u32 width = 8 * sizeof(U), parts = (SIZE + 63) / 64;
#pragma unroll zfp_unrolled(SIZE)
    for (u32 i = 0; i < SIZE; ++i) coefficients[i] = 0;
    u32 known = 0;
    for (u32 bit = width; left > 0 && bit > width - zfp_least(planes, width);) {
        bit -= 1;
        u64 plane[parts];
        u32 verbatim = zfp_least(known, left);
        left -= verbatim;
#pragma unroll
        for (u32 part = 0; part < parts; ++part) {
            u32 count = zfp_least(verbatim > 64 * part ? verbatim - 64 * part : 0, 64);
            u32 low = zfp_least(count, 32);
            plane[part] = zfp_read(bits, low);
            plane[part] |= (u64)zfp_read(bits, count - low) << 32;
        }
        while (left > 0 && known < SIZE) {
            left -= 1;
            if (zfp_read(bits, 1) == 0) break;
            bool found;
            u32 zeros = zfp_zeros(bits, zfp_least(left, SIZE - 1 - known), found);
            left -= zeros + found;
            known += zeros;
            plane[parts == 1 ? 0 : known / 64] |= 1ull << known % 64;
            known += 1;
        }
        // Coefficients without a bit so far have none here.
#pragma unroll zfp_unrolled(SIZE)
        for (u32 i = 0; i < SIZE; ++i) {
            if (parts > 1 && i >= known) break;
            coefficients[i] |= (U)(plane[i / 64] >> (i % 64) & 1) << bit;
        }
    }
}

CUZARR_DEVICE u32 zfp_half(u32 x) { return (u32)((i32)x >> 1); }
CUZARR_DEVICE u64 zfp_half(u64 x) { return (u64)((i64)x >> 1); }

/// Lifts all lines along an axis back.
template <class U, u32 SIZE, u32 STRIDE>
CUZARR_DEVICE void zfp_lift(U* block) {
#pragma unroll zfp_unrolled(SIZE)
    for (u32 line = 0; line < SIZE / 4; ++line) {
        u32 first = line / STRIDE * STRIDE * 4 + line % STRIDE;
        U x = block[first], y = block[first + STRIDE], z = block[first + 2 * STRIDE], w = block[first + 3 * STRIDE];
        y += zfp_half(w), w -= zfp_half(y);
        y += w, w += w, w -= y;
        z += x, x += x, x -= z;
        y += z, z += z, z -= y;
        w += x, x += x, x -= w;
        block[first] = x, block[first + STRIDE] = y, block[first + 2 * STRIDE] = z, block[first + 3 * STRIDE] = w;
    }
}

/// Decodes the integers of a block.
template <class U, u32 NDIM>
CUZARR_DEVICE void zfp_integers(ZfpBits& bits, u32 left, u32 planes, U* block) {
    const u32 size = 1u << 2 * NDIM;
    const U odd_bits = (U)0xaaaaaaaaaaaaaaaaull;
    U coefficients[size];
    zfp_planes<U, size>(bits, left, planes, coefficients);
#pragma unroll zfp_unrolled(size)
    for (u32 i = 0; i < size; ++i) block[ZfpOrder<NDIM>::place(i)] = (coefficients[i] ^ odd_bits) - odd_bits;
    if constexpr (NDIM > 3) zfp_lift<U, size, 64>(block);
    if constexpr (NDIM > 2) zfp_lift<U, size, 16>(block);
    if constexpr (NDIM > 1) zfp_lift<U, size, 4>(block);
    zfp_lift<U, size, 1>(block);
}

/// How values of a type are decoded. `Bits` is the integer type of their bits.
template <class T>
struct ZfpValues {
    typedef T Bits;

    template <u32 NDIM>
    CUZARR_DEVICE static void decode(ZfpBits& bits, const ZfpChunks& chunks, T* block) {
        zfp_integers<T, NDIM>(bits, chunks.bits, chunks.planes, block);
    }
};

CUZARR_DEVICE float zfp_float(u32 bits) { return float_of(bits); }
CUZARR_DEVICE double zfp_float(u64 bits) { return double_of(bits); }

/// Floats with EXPONENT_BITS bits of exponent and FRACTION_BITS of fraction.
template <class F, class U, class I, u32 EXPONENT_BITS, u32 FRACTION_BITS>
struct ZfpFloats {
    typedef U Bits;

    /// 2^power; 0 below the smallest float.
    CUZARR_DEVICE static F power_of_two(i32 power) {
        i32 biased = power + (1 << (EXPONENT_BITS - 1)) - 1;
        i32 subnormal = biased - 1 + (i32)FRACTION_BITS;
        return zfp_float(biased > 0 ? (U)biased << FRACTION_BITS : subnormal >= 0 ? (U)1 << subnormal : (U)0);
    }

    template <u32 NDIM>
    CUZARR_DEVICE static void decode(ZfpBits& bits, const ZfpChunks& chunks, U* block) {
        const u32 size = 1u << 2 * NDIM;
        if (zfp_read(bits, 1) == 0) {
#pragma unroll zfp_unrolled(size)
            for (u32 i = 0; i < size; ++i) block[i] = 0;
            return;
        }
        i32 exponent = (i32)zfp_read(bits, EXPONENT_BITS) - ((1 << (EXPONENT_BITS - 1)) - 1);
        // Computed in 64 bits, because the least exponent may be any number.
        i64 planes = (i64)exponent - chunks.least_exponent + 2 * (i32)NDIM + 2;
        planes = planes < 0 ? 0 : planes > chunks.planes ? chunks.planes : planes;
        zfp_integers<U, NDIM>(bits, chunks.bits - 1 - EXPONENT_BITS, (u32)planes, block);
        F scale = power_of_two(exponent - (i32)(8 * sizeof(U) - 2));
#pragma unroll zfp_unrolled(size)
        for (u32 i = 0; i < size; ++i) block[i] = bits_of(scale * (F)(I)block[i]);
    }
};

template <>
struct ZfpValues<float> : ZfpFloats<float, u32, i32, 8, 23> {};
template <>
struct ZfpValues<double> : ZfpFloats<double, u64, i64, 11, 52> {};

template <class T, u32 NDIM>
CUZARR_DEVICE void zfp_decode(const u8* src, u8* dst, const u64* places, const ZfpChunks& chunks) {
    typedef typename ZfpValues<T>::Bits U;
    const u32 size = 1u << 2 * NDIM;
    u32 chunk = block_index() / chunks.groups;
    u32 number = block_index() % chunks.groups * thread_count() + thread_index();
    if (number >= chunks.blocks) return;
    ZfpBits bits = zfp_bits(src + places[2 * chunk], chunks.frame_bytes, (u64)number * chunks.bits);
    U block[size];
    ZfpValues<T>::template decode<NDIM>(bits, chunks, block);
    u32 first[NDIM], rest = number;
#pragma unroll
    for (u32 axis = 0; axis < NDIM; ++axis) {
        u32 blocks = (chunks.extents[axis] + 3) / 4;
        first[axis] = rest % blocks * 4;
        rest /= blocks;
    }
    U* to = (U*)(dst + places[2 * chunk + 1]);
#pragma unroll zfp_unrolled(size)
    for (u32 i = 0; i < size; ++i) {
        bool is_own = true;
        u32 element = 0;
#pragma unroll
        for (u32 back = 0; back < NDIM; ++back) {
            u32 axis = NDIM - 1 - back, at = first[axis] + (i >> 2 * axis & 3);
            is_own = is_own && at < chunks.extents[axis];
            element = element * chunks.extents[axis] + at;
        }
        if (is_own) to[element] = block[i];
    }
}

#define CUZARR_ZFP_DECODE(name, type, ndim)                                                         \
    CUZARR_KERNEL(name, const u8* src, u8* dst, const u64* places, ZfpChunks chunks) {              \
        zfp_decode<type, ndim>(src, dst, places, chunks);                                           \
    }
CUZARR_ZFP_DECODE(zfp_int32_1, u32, 1)
CUZARR_ZFP_DECODE(zfp_int32_2, u32, 2)
CUZARR_ZFP_DECODE(zfp_int32_3, u32, 3)
CUZARR_ZFP_DECODE(zfp_int32_4, u32, 4)
CUZARR_ZFP_DECODE(zfp_int64_1, u64, 1)
CUZARR_ZFP_DECODE(zfp_int64_2, u64, 2)
CUZARR_ZFP_DECODE(zfp_int64_3, u64, 3)
CUZARR_ZFP_DECODE(zfp_int64_4, u64, 4)
CUZARR_ZFP_DECODE(zfp_float32_1, float, 1)
CUZARR_ZFP_DECODE(zfp_float32_2, float, 2)
CUZARR_ZFP_DECODE(zfp_float32_3, float, 3)
CUZARR_ZFP_DECODE(zfp_float32_4, float, 4)
CUZARR_ZFP_DECODE(zfp_float64_1, double, 1)
CUZARR_ZFP_DECODE(zfp_float64_2, double, 2)
CUZARR_ZFP_DECODE(zfp_float64_3, double, 3)
CUZARR_ZFP_DECODE(zfp_float64_4, double, 4)
