// Byte and bit shuffles. Chunks that are shuffled by element are moved directly to and from strided memory; others are
// shuffled on their own.
//
// unshuffle, for each element of the block's tiles: read its bytes, one from each plane of the chunk (consecutive
// threads read consecutive bytes of a plane, so every access is coalesced), join them, swap if requested, store.
// shuffle does the same with the two sides exchanged.
//
// unshuffle_quads and shuffle_quads handle four neighbouring elements at once, if planes and array are aligned for it:
// 4 bytes of each plane are read as a word, 4 x 4 bytes are transposed in registers, and 16 bytes are stored at once.
//
// bitunshuffle, for each group of 8 elements: for each byte of the element read 8 bytes, one from each of its bit planes,
// transpose the 8 x 8 bits in a register; then store the group, which is contiguous. The layout is that of bitshuffle and
// Blosc: plane 8j+k holds bit k of byte j of every element, least significant bit first; elements that do not fill a group of
// 8 follow unchanged, which the host copies.
//
// Floor: 2 x bytes moved / 4.3 TB/s on an H200.
#include "cuzarr/planes.cuh"
#include "cuzarr/regions.cuh"
#include "cuzarr/search.cuh"

CUZARR_DEVICE u32 byte_at(u16 x, u32 k) { return x >> 8 * k & 255; }
CUZARR_DEVICE u32 byte_at(u32 x, u32 k) { return x >> 8 * k & 255; }
CUZARR_DEVICE u32 byte_at(u64 x, u32 k) { return (u32)(x >> 8 * k) & 255; }

/// One element.
template <int Bytes>
struct Single {
    typename Word<Bytes>::Type value;

    CUZARR_DEVICE void load_planes(const u8* from, u64 plane_bytes) {
        typedef typename Word<Bytes>::Type T;
        value = 0;
#pragma unroll
        for (u32 plane = 0; plane < Bytes; ++plane) value = (T)(value | (T)((T)from[plane * plane_bytes] << 8 * plane));
    }
    CUZARR_DEVICE void store_planes(u8* to, u64 plane_bytes) const {
#pragma unroll
        for (u32 plane = 0; plane < Bytes; ++plane) to[plane * plane_bytes] = (u8)byte_at(value, plane);
    }
    CUZARR_DEVICE void load(const u8* from, u32 unit) {
        value = swap_bytes(*(const typename Word<Bytes>::Type*)from, unit);
    }
    CUZARR_DEVICE void store(u8* to, u32 unit) { *(typename Word<Bytes>::Type*)to = swap_bytes(value, unit); }
};

/// Four elements, as one word of each plane.
template <int Bytes>
struct Planes {
    u32 planes[Bytes];

    CUZARR_DEVICE void load_planes(const u8* from, u64 plane_bytes) {
#pragma unroll
        for (u32 plane = 0; plane < Bytes; ++plane) planes[plane] = *(const u32*)(from + plane * plane_bytes);
    }
    CUZARR_DEVICE void store_planes(u8* to, u64 plane_bytes) const {
#pragma unroll
        for (u32 plane = 0; plane < Bytes; ++plane) *(u32*)(to + plane * plane_bytes) = planes[plane];
    }
};

/// Four elements of 4, 8 or 16 bytes. In memory, they are accessed 16 bytes at a time.
template <int Bytes>
struct Quad : Planes<Bytes> {
    using Planes<Bytes>::planes;

    CUZARR_DEVICE void transpose() {
#pragma unroll
        for (u32 first = 0; first < Bytes; first += 4) transpose_bytes(planes + first);
    }
    CUZARR_DEVICE void store(u8* to, u32 unit) {
        transpose();
#pragma unroll
        for (u32 vector = 0; vector < Bytes / 4; ++vector) {
            uint4 words = {planes[place(4 * vector)], planes[place(4 * vector + 1)], planes[place(4 * vector + 2)],
                           planes[place(4 * vector + 3)]};
            ((uint4*)to)[vector] = swap_bytes(words, unit);
        }
    }
    CUZARR_DEVICE void load(const u8* from, u32 unit) {
#pragma unroll
        for (u32 vector = 0; vector < Bytes / 4; ++vector) {
            uint4 words = swap_bytes(((const uint4*)from)[vector], unit);
            planes[place(4 * vector)] = words.x, planes[place(4 * vector + 1)] = words.y;
            planes[place(4 * vector + 2)] = words.z, planes[place(4 * vector + 3)] = words.w;
        }
        transpose();
    }
    /// Index in `planes` of the word that is number `at` in memory. `planes` has the words with bytes 4g to 4g+3 of the
    /// four elements side by side.
    CUZARR_DEVICE static u32 place(u32 at) { return at % (Bytes / 4) * 4 + at / (Bytes / 4); }
};

/// Four elements of 2 bytes.
template <>
struct Quad<2> : Planes<2> {
    CUZARR_DEVICE void store(u8* to, u32 unit) {
        u64 low = interleave_low(planes[0], planes[1]), high = interleave_high(planes[0], planes[1]);
        *(u64*)to = swap_bytes(high << 32 | low, unit);
    }
    CUZARR_DEVICE void load(const u8* from, u32 unit) {
        u64 elements = swap_bytes(*(const u64*)from, unit);
        planes[0] = permute_bytes((u32)elements, (u32)(elements >> 32), 0x6420);
        planes[1] = permute_bytes((u32)elements, (u32)(elements >> 32), 0x7531);
    }
};

/// `Group` is one element, or four; in that case regions count in fours.
template <class Group, int Bytes>
CUZARR_DEVICE void unshuffle(const u8* src, u8* dst, const Region* regions, const Walk& walk, u32 unit) {
    const u32 tile_groups = thread_count() * CUZARR_UNROLL;
    for (Tiles tiles(regions, walk); !tiles.done(); tiles.next(regions, walk)) {
        const Region& region = regions[tiles.region];
        const u8* chunk = src + region.chunk_offset;
        u32 first = (u32)(tiles.tile - region.first_tile) * tile_groups + thread_index();
        Group groups[CUZARR_UNROLL];
        i64 targets[CUZARR_UNROLL];
#pragma unroll
        for (u32 k = 0; k < CUZARR_UNROLL; ++k) {
            u32 index = first + k * thread_count();
            if (index < region.elems) {
                Place place = place_of(region, walk, walk.ndim, index);
                groups[k].load_planes(chunk + (u64)place.src / Bytes, region.chunk_bytes / Bytes);
                targets[k] = place.dst;
            }
        }
#pragma unroll
        for (u32 k = 0; k < CUZARR_UNROLL; ++k) {
            u32 index = first + k * thread_count();
            if (index < region.elems) groups[k].store(dst + targets[k], unit);
        }
    }
}

template <class Group, int Bytes>
CUZARR_DEVICE void shuffle(const u8* src, u8* dst, const Region* regions, const Walk& walk, u32 unit) {
    const u32 tile_groups = thread_count() * CUZARR_UNROLL;
    for (Tiles tiles(regions, walk); !tiles.done(); tiles.next(regions, walk)) {
        const Region& region = regions[tiles.region];
        u8* chunk = dst + region.chunk_offset;
        u32 first = (u32)(tiles.tile - region.first_tile) * tile_groups + thread_index();
        Group groups[CUZARR_UNROLL];
        i64 targets[CUZARR_UNROLL];
#pragma unroll
        for (u32 k = 0; k < CUZARR_UNROLL; ++k) {
            u32 index = first + k * thread_count();
            if (index < region.elems) {
                Place place = place_of(region, walk, walk.ndim, index);
                groups[k].load(src + place.src, unit);
                targets[k] = place.dst;
            }
        }
#pragma unroll
        for (u32 k = 0; k < CUZARR_UNROLL; ++k) {
            u32 index = first + k * thread_count();
            if (index < region.elems) {
                groups[k].store_planes(chunk + (u64)targets[k] / Bytes, region.chunk_bytes / Bytes);
            }
        }
    }
}

#define CUZARR_SHUFFLE(name, group, bytes)                                                                              \
    CUZARR_KERNEL(un##name##_##bytes, const u8* src, u8* dst, const Region* regions, Walk walk, u32 unit) {              \
        unshuffle<group<bytes>, bytes>(src, dst, regions, walk, unit);                                                  \
    }                                                                                                                   \
    CUZARR_KERNEL(name##_##bytes, const u8* src, u8* dst, const Region* regions, Walk walk, u32 unit) {                  \
        shuffle<group<bytes>, bytes>(src, dst, regions, walk, unit);                                                    \
    }

CUZARR_SHUFFLE(shuffle, Single, 2)
CUZARR_SHUFFLE(shuffle, Single, 4)
CUZARR_SHUFFLE(shuffle, Single, 8)
CUZARR_SHUFFLE(shuffle_quads, Quad, 2)
CUZARR_SHUFFLE(shuffle_quads, Quad, 4)
CUZARR_SHUFFLE(shuffle_quads, Quad, 8)
CUZARR_SHUFFLE(shuffle_quads, Quad, 16)

/// One span of bytes that is bit-shuffled on its own: a chunk, or a block of one. `GroupSpan` in cuda.rs.
struct Span {
    u64 src_offset;
    u64 dst_offset;
    u64 first_group;  // groups of 8 elements are numbered through over all spans
    u64 groups;
};
static_assert(sizeof(Span) == 32, "as shuffle/cuda.rs has it");

CUZARR_DEVICE const Span& span_of(const Span* spans, u32 count, u64 group) {
    return spans[last_from(count, group, [=](u32 span) { return spans[span].first_group; })];
}

/// Each thread handles one group, so consecutive threads read consecutive bytes of a plane.
CUZARR_KERNEL(
    bitunshuffle, const u8* src, u8* dst, const Span* spans, u32 span_count, u64 groups, u32 unit
) {
    u64 stride = (u64)block_count() * thread_count();
    for (u64 group = (u64)block_index() * thread_count() + thread_index(); group < groups; group += stride) {
        const Span& span = span_of(spans, span_count, group);
        u64 at = group - span.first_group;
        const u8* from = src + span.src_offset + at;
        bitunshuffle_group(from, dst + span.dst_offset + at * 8 * unit, span.groups, unit);
    }
}

/// Like `bitunshuffle`, for targets that are a multiple of 8.
template <int Bytes>
CUZARR_DEVICE void bitunshuffle_words(const u8* src, u8* dst, const Span* spans, u32 span_count, u64 groups) {
    u64 stride = (u64)block_count() * thread_count();
    for (u64 group = (u64)block_index() * thread_count() + thread_index(); group < groups; group += stride) {
        const Span& span = span_of(spans, span_count, group);
        u64 at = group - span.first_group;
        const u8* from = src + span.src_offset + at;
        bitunshuffle_group<Bytes>(from, (u64*)(dst + span.dst_offset + at * 8 * Bytes), span.groups);
    }
}

#define CUZARR_BITUNSHUFFLE(bytes)                                                                                      \
    CUZARR_KERNEL(                                                                                                      \
        bitunshuffle_##bytes, const u8* src, u8* dst, const Span* spans, u32 span_count, u64 groups, u32               \
    ) {                                                                                                                 \
        bitunshuffle_words<bytes>(src, dst, spans, span_count, groups);                                                 \
    }

CUZARR_BITUNSHUFFLE(1)
CUZARR_BITUNSHUFFLE(2)
CUZARR_BITUNSHUFFLE(4)
CUZARR_BITUNSHUFFLE(8)

CUZARR_KERNEL(
    bitshuffle, const u8* src, u8* dst, const Span* spans, u32 span_count, u64 groups, u32 unit
) {
    u64 stride = (u64)block_count() * thread_count();
    for (u64 group = (u64)block_index() * thread_count() + thread_index(); group < groups; group += stride) {
        const Span& span = span_of(spans, span_count, group);
        u64 at = group - span.first_group;
        const u8* from = src + span.src_offset + at * 8 * unit;
        u8* to = dst + span.dst_offset + at;
        for (u32 byte = 0; byte < unit; ++byte) {
            u64 bits = 0;
            for (u32 element = 0; element < 8; ++element) bits |= (u64)from[(u64)element * unit + byte] << 8 * element;
            bits = transpose_bits(bits);
            for (u32 plane = 0; plane < 8; ++plane) to[(byte * 8ull + plane) * span.groups] = (u8)(bits >> 8 * plane);
        }
    }
}
