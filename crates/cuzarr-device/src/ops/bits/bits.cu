// Numbers of a few bits, one directly behind the other, to and from elements of whole bytes: the codec `packbits`.
//
// bits_unpack, for each element: the bytes that its bits lie in, its bits moved down and their sign repeated. Consecutive threads take
// consecutive elements, so they read the same few bytes.
//
// bits_pack, for each packed byte: the elements that have bits in it, so that no two threads write one byte.
//
// Floor: the bytes of both sides / memory.
#include "cuzarr/elements.cuh"

/// What is kept of every element. `Task` in cuda.rs.
struct BitsTask {
    u64 elems;  // of each chunk
    u32 count;  // of chunks
    u32 elem_bytes;
    u32 elem_bits;  // of the bytes' bits, those that an element has
    u32 first;      // bit that is kept
    u32 width;      // bits that are kept
    u32 is_signed;
};

/// `Entry` in cuda.rs.
struct BitsSpan {
    u64 packed_offset;
    u64 elems_offset;
};
static_assert(sizeof(BitsTask) == 32 && sizeof(BitsSpan) == 16, "as bits/cuda.rs has them");

CUZARR_DEVICE u64 low_bits(u32 count) { return ~0ull >> (64 - count); }

/// `width` bits from bit `at` on.
CUZARR_DEVICE u64 bits_at(const u8* packed, u64 at, u32 width) {
    const u8* from = packed + at / 8;
    u32 shift = (u32)(at % 8), bytes = (shift + width + 7) / 8;
    u64 bits = 0;
    for (u32 byte = 0; byte < bytes && byte < 8; ++byte) bits |= (u64)from[byte] << 8 * byte;
    bits >>= shift;
    if (bytes > 8) bits |= (u64)from[8] << (64 - shift);
    return bits & low_bits(width);
}

CUZARR_KERNEL(bits_unpack, const u8* src, u8* dst, const BitsSpan* spans, BitsTask task) {
    u64 step = (u64)block_count() * thread_count(), total = task.elems * task.count;
    for (u64 number = (u64)block_index() * thread_count() + thread_index(); number < total; number += step) {
        const BitsSpan& span = spans[number / task.elems];
        u64 index = number % task.elems;
        u64 kept = bits_at(src + span.packed_offset, index * task.width, task.width);
        if (task.is_signed && kept >> (task.width - 1)) kept |= ~low_bits(task.width);
        Value value = {kept << task.first & low_bits(task.elem_bits), 0};
        store_value(dst + span.elems_offset + index * task.elem_bytes, value, task.elem_bytes, true);
    }
}

CUZARR_KERNEL(bits_pack, const u8* src, u8* dst, const BitsSpan* spans, BitsTask task) {
    u64 packed_bits = task.elems * task.width, packed_bytes = (packed_bits + 7) / 8;
    u64 step = (u64)block_count() * thread_count(), total = packed_bytes * task.count;
    for (u64 number = (u64)block_index() * thread_count() + thread_index(); number < total; number += step) {
        const BitsSpan& span = spans[number / packed_bytes];
        u64 byte = number % packed_bytes, begin = 8 * byte, end = begin + 8 < packed_bits ? begin + 8 : packed_bits;
        u32 joined = 0;
        for (u64 index = begin / task.width; index * task.width < end; ++index) {
            const u8* from = src + span.elems_offset + index * task.elem_bytes;
            u64 bits = load_value(from, task.elem_bytes, true).low >> task.first & low_bits(task.width), at = index * task.width;
            joined |= (u32)(at < begin ? bits >> (begin - at) : bits << (at - begin));
        }
        dst[span.packed_offset + byte] = (u8)joined;
    }
}
