// Packs numbers of a few bits from elements of whole bytes, and unpacks them, for the codec `packbits`. Packed numbers
// follow each other without gaps.
//
// Eight numbers fill as many whole bytes as each number has bits. So a thread handles eight elements at once, an octet,
// and no two threads write the same byte.
//
//     for each octet: load its bytes, move the bits of each number down and repeat their sign, store eight elements; or the inverse
//
// Floor: the bytes of both sides / memory.
#include "cuzarr/elements.cuh"

/// The fields that are packed, and the size of the work. `BitsTask` in cuda.rs.
struct BitsTask {
    u64 elems;  // of each chunk
    u32 count;  // of chunks
    u32 elem_bytes;
    u32 elem_bits;  // of the bytes' bits, those that an element has
    u32 first;      // bit that is kept
    u32 width;      // bits that are kept
    u32 is_signed;
    u32 has_quads;  // whether all elements lie as load_quad and store_quad want them
    u32 reserved;
};

/// The places of one chunk. `BitsEntry` in cuda.rs.
struct BitsSpan {
    u64 packed_offset;
    u64 elems_offset;
};
static_assert(sizeof(BitsTask) == 40 && sizeof(BitsSpan) == 16, "as bits/cuda.rs has them");

CUZARR_DEVICE u64 low_bits(u32 count) { return ~0ull >> (64 - count); }

/// Number of octets that a thread handles in a tile.
#define CUZARR_BITS_OCTETS 4u

/// Returns `width` bits that begin at bit `at`.
CUZARR_DEVICE u64 bits_at(const u8* packed, u32 at, u32 width) {
    const u8* from = packed + at / 8;
    u32 shift = at % 8, bytes = (shift + width + 7) / 8;
    u64 bits = 0;
    for (u32 byte = 0; byte < bytes && byte < 8; ++byte) bits |= (u64)from[byte] << 8 * byte;
    bits >>= shift;
    if (bytes > 8) bits |= (u64)from[8] << (64 - shift);
    return bits & low_bits(width);
}

/// Unpacks the octet at `from`.
CUZARR_DEVICE void unpack_octet(const BitsTask& task, const u8* from, u8* to, u32 elems) {
    Value values[8];
#pragma unroll
    for (u32 k = 0; k < 8; ++k) {
        u64 kept = k < elems ? bits_at(from, k * task.width, task.width) : 0;
        if (task.is_signed && kept >> (task.width - 1)) kept |= ~low_bits(task.width);
        values[k].low = kept << task.first & low_bits(task.elem_bits), values[k].high = 0;
    }
    if (elems == 8 && task.has_quads) {
        store_quad(to, values, task.elem_bytes);
        store_quad(to + 4 * task.elem_bytes, values + 4, task.elem_bytes);
        return;
    }
#pragma unroll
    for (u32 k = 0; k < 8; ++k) {
        if (k < elems) store_value(to + k * task.elem_bytes, values[k], task.elem_bytes, true);
    }
}

/// Packs the octet of elements at `from`.
CUZARR_DEVICE void pack_octet(const BitsTask& task, const u8* from, u8* to, u32 elems) {
    Value values[8];
    if (elems == 8 && task.has_quads) {
        load_quad(from, task.elem_bytes, values);
        load_quad(from + 4 * task.elem_bytes, task.elem_bytes, values + 4);
    } else {
#pragma unroll
        for (u32 k = 0; k < 8; ++k) {
            values[k].low = k < elems ? load_value(from + k * task.elem_bytes, task.elem_bytes, true).low : 0;
        }
    }
    // Fewer than 8 bits wait before each put, and a put adds at most 32.
    u64 waiting = 0;
    u32 count = 0;
#pragma unroll
    for (u32 k = 0; k < 8; ++k) {
        u64 bits = values[k].low >> task.first & low_bits(task.width);
        for (u32 rest = k < elems ? task.width : 0; rest > 0;) {
            u32 put = rest < 32 ? rest : 32;
            waiting |= (bits & 0xffffffffull) << count;
            bits >>= 32, rest -= put;
            for (count += put; count >= 8; count -= 8) *to++ = (u8)waiting, waiting >>= 8;
        }
    }
    if (count > 0) *to = (u8)waiting;
}

/// Calls `octet(packed, elements, count)` for every octet of every chunk.
template <class F>
CUZARR_DEVICE void for_octets(const BitsSpan* spans, const BitsTask& task, const F& octet) {
    u32 threads = thread_count(), tile_octets = CUZARR_BITS_OCTETS * threads;
    u64 tiles = (task.elems + 8ull * tile_octets - 1) / (8ull * tile_octets);
    for (u64 tile = block_index(); tile < tiles * task.count; tile += block_count()) {
        const BitsSpan& span = spans[tile / tiles];
        u64 first = tile % tiles * tile_octets + thread_index();
        for (u32 round = 0; round < CUZARR_BITS_OCTETS; ++round) {
            u64 number = first + (u64)round * threads;
            if (8 * number >= task.elems) break;
            u64 left = task.elems - 8 * number;
            octet(span.packed_offset + number * task.width, span.elems_offset + 8 * number * task.elem_bytes, left < 8 ? (u32)left : 8);
        }
    }
}

CUZARR_KERNEL(bits_unpack, const u8* src, u8* dst, const BitsSpan* spans, BitsTask task) {
    for_octets(spans, task, [&](u64 packed, u64 elems, u32 count) { unpack_octet(task, src + packed, dst + elems, count); });
}

CUZARR_KERNEL(bits_pack, const u8* src, u8* dst, const BitsSpan* spans, BitsTask task) {
    for_octets(spans, task, [&](u64 packed, u64 elems, u32 count) { pack_octet(task, src + elems, dst + packed, count); });
}
