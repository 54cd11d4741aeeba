// The container of a deflate stream: none, zlib's (RFC 1950) or gzip's header and trailer (RFC 1952).
#pragma once
#include "cuzarr/checksum.cuh"
#include "codec/deflate/deflate.cuh"

/// `Container` in codec/deflate/container.rs.
#define CUZARR_DEFLATE_RAW 0u
#define CUZARR_DEFLATE_ZLIB 1u
#define CUZARR_DEFLATE_GZIP 2u

/// Frames of this many bytes and more are left to the host: positions are bits, in 32-bit numbers.
#define CUZARR_DEFLATE_MOST_BYTES (1u << 28)

/// Bytes of a frame's target that a warp checks at a time, once they are decoded.
#define CUZARR_DEFLATE_TILE (16u << 10)

/// The comparison that remains after a frame is decoded: the checksum of its bytes from `begin` on. 16 bytes.
struct DeflateTrailer {
    u32 begin;
    u32 expected;
    u32 at;      // byte of the frame that the checksum stands at
    u32 wanted;  // 0: nothing to compare
};
static_assert(sizeof(DeflateTrailer) == 16, "as cuda.rs counts them");

/// The state of a frame's decoding: a byte of the frame, and the damage there.
struct DeflatePlace {
    u32 at;
    u32 damage;
};

/// Returns the place behind the next zero of a gzip header's text; behind the end if there is none.
CUZARR_DEVICE u32 deflate_pass_text(const u8* frame, u32 size, u32 at, u32 lane) {
    for (; at < size; at += CUZARR_WARP) {
        u32 zeros = warp_ballot(CUZARR_ALL_LANES, lane < size - at && frame[at + lane] == 0);
        if (zeros) return at + count_trailing_zeros(zeros) + 1;
    }
    return size + 1;
}

/// Checks the header that begins at `place.at`, and moves behind it.
CUZARR_DEVICE void deflate_header(const u8* frame, u32 size, u32 container, DeflatePlace& place, u32 lane) {
    if (container == CUZARR_DEFLATE_RAW) return;
    u32 at = place.at;
    place.damage = CUZARR_CUT_OFF;
    if (container == CUZARR_DEFLATE_ZLIB) {
        if (size - at < 2) return;
        u32 method = frame[at], flags = frame[at + 1];
        place.damage = CUZARR_BAD_HEADER;
        // Deflate, a window of at most 32 KiB, no preset dictionary.
        if ((method & 15) != 8 || method >> 4 > 7 || flags & 32 || (method << 8 | flags) % 31) return;
        place.at = at + 2, place.damage = 0;
        return;
    }
    if (size - at < 10) return;
    u32 flags = frame[at + 3];
    place.damage = CUZARR_BAD_HEADER;
    if (frame[at] != 0x1f || frame[at + 1] != 0x8b || frame[at + 2] != 8 || flags & 0xe0) return;
    place.damage = CUZARR_CUT_OFF;
    at += 10;
    if (flags & 4) {
        if (size - at < 2) return;
        u32 extra = frame[at] | (u32)frame[at + 1] << 8;
        if (extra > size - at - 2) return;
        at += 2 + extra;
    }
    for (u32 texts = (flags >> 3 & 1) + (flags >> 4 & 1); texts > 0 && at <= size; --texts) {
        at = deflate_pass_text(frame, size, at, lane);
    }
    if (flags & 2) at += 2;
    if (at > size) return;
    place.at = at, place.damage = 0;
}

/// Reads the trailer at `place.at` of a stream that decoded to [begin, end) of its frame's bytes.
CUZARR_DEVICE DeflateTrailer deflate_trailer(
    const u8* frame, u32 size, u32 container, u32 begin, u32 end, DeflatePlace& place
) {
    DeflateTrailer trailer = {begin, 0, place.at, 0};
    u32 bytes = container == CUZARR_DEFLATE_RAW ? 0 : container == CUZARR_DEFLATE_ZLIB ? 4 : 8;
    if (bytes == 0) return trailer;
    place.damage = CUZARR_CUT_OFF;
    if (size - place.at < bytes) return trailer;
    trailer.expected = load_u32(frame + place.at), trailer.wanted = 1;
    if (container == CUZARR_DEFLATE_ZLIB) trailer.expected = permute_bytes(trailer.expected, 0, 0x0123);
    place.damage = CUZARR_OTHER_SIZE;
    if (container == CUZARR_DEFLATE_GZIP && load_u32(frame + place.at + 4) != end - begin) return trailer;
    place.at += bytes, place.damage = 0;
    return trailer;
}

/// Returns the place behind the zeros that follow a gzip member.
CUZARR_DEVICE u32 deflate_pass_zeros(const u8* frame, u32 size, u32 at, u32 lane) {
    for (; at < size; at += CUZARR_WARP) {
        u32 others = warp_ballot(CUZARR_ALL_LANES, lane >= size - at || frame[at + lane] != 0);
        if (others) return min_of(at + count_trailing_zeros(others), size);
    }
    return size;
}
