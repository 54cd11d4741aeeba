// One piece of an LZ4 block, encoded by one warp: greedy matching through a hash table in shared memory.
//
// A block is cut into pieces, so that many warps work on it. Matches end in their piece, and begin there or in so much of
// what comes before it, its history, that positions fit 16 bits; literals do not care about pieces: those behind a piece's
// last match are joined with those before the first match of a later piece when the block is put together. So a piece gives
//
//     lead     how many literals stand before its first match
//     tail     encoded bytes from that match's offset on, to the end of its last match
//     trail    how many literals follow
//
// and the first token, whose number of literals is not known yet, is written by whoever joins the pieces.
//
//     a window of 32 positions, one a lane:
//         hash of 4 bytes -> the nearest lane before with the same 4 bytes, or else the table's position, if the bytes there
//         are the same; then the positions go into the table
//         for each match of the window, in order, that begins behind the one before: lengthen it, all lanes 4 bytes each;
//         write the sequence
//         no match: go on; after some windows with gaps between the positions, which grow, as in liblz4
//
// A table is emptied first and the first lane of a hash wins, so the same bytes give the same frame on every run, and what
// repeats a run of one byte finds its beginning, from where the repeat is longest.
//
// Prior art: liblz4's LZ4_compress_fast (BSD-2-Clause) for hash and skipping, nvCOMP for a window of a warp.
#pragma once
#include "codec/batch/frames.cuh"
#include "codec/lz/lz.cuh"

/// Entries of a piece's table, of 2 bytes.
#ifndef CUZARR_LZ4_TABLE_BITS
#define CUZARR_LZ4_TABLE_BITS 11u
#endif
#define CUZARR_LZ4_TABLE (1u << CUZARR_LZ4_TABLE_BITS)
/// liblz4's rules for the end of a block: no match begins in the last 12 bytes, or reaches into the last 5.
#define CUZARR_LZ4_NO_BEGIN 12u
#define CUZARR_LZ4_NO_MATCH 5u
#define CUZARR_LZ4_LEAST_MATCH 4u
/// A token's half that says that bytes of length follow.
#define CUZARR_LZ4_MORE 15u

/// What a piece came to: 32 bytes.
struct Lz4Piece {
    u32 lead, tail, trail;
    u32 match;  // what the first token says of its match; CUZARR_LZ4_NO_SEQUENCE when the piece is all literals
    u32 carry;  // literals of pieces before that belong to the first token
    u32 at;     // where the first token goes, in the encoded block
    u32 reserved[2];
};

#define CUZARR_LZ4_NO_SEQUENCE 16u

/// Bytes of length that follow a token for `length`.
CUZARR_DEVICE u32 lz4_more_bytes(u32 length) {
    return length < CUZARR_LZ4_MORE ? 0 : (length - CUZARR_LZ4_MORE) / 255 + 1;
}

CUZARR_DEVICE u32 lz4_nibble(u32 length) { return length < CUZARR_LZ4_MORE ? length : CUZARR_LZ4_MORE; }

/// Writes them, and returns how many they are.
CUZARR_DEVICE u32 lz4_write_more(u8* to, u32 length, u32 lane) {
    u32 count = lz4_more_bytes(length);
    for (u32 i = lane; i < count; i += CUZARR_WARP) to[i] = i + 1 < count ? 255 : (u8)((length - CUZARR_LZ4_MORE) % 255);
    return count;
}

CUZARR_DEVICE u32 lz4_hash(u32 word) { return word * 2654435761u >> (32 - CUZARR_LZ4_TABLE_BITS); }

/// How many bytes from `a` and `b` on are the same, up to `most`. Up to 3 bytes behind `most` are read.
CUZARR_DEVICE u32 lz4_common(const u8* a, const u8* b, u32 most, u32 lane) {
    for (u32 done = 0;; done += 4 * CUZARR_WARP) {
        u32 at = done + 4 * lane, left = at < most ? most - at : 0, same = 0;
        if (left) {
            u32 differ = load_4<false>(a + at) ^ load_4<false>(b + at);
            same = count_trailing_zeros(differ) / 8;
            same = same < left ? same : left;
        }
        u32 ends = warp_ballot(CUZARR_ALL_LANES, same < 4);
        if (ends) {
            u32 last = count_trailing_zeros(ends);
            return done + 4 * last + warp_shuffle(CUZARR_ALL_LANES, same, last);
        }
    }
}

/// How many bytes before `a` and `b` are the same, up to `most` and a warp's lanes.
CUZARR_DEVICE u32 lz4_common_before(const u8* a, const u8* b, u32 most, u32 lane) {
    bool same = lane < most && *(a - 1 - lane) == *(b - 1 - lane);
    return count_trailing_zeros(~warp_ballot(CUZARR_ALL_LANES, same));
}

/// Writes a sequence behind the piece's first: returns its bytes. Short ones, which are most, by one store.
CUZARR_DEVICE u32 lz4_write_sequence(u8* to, const u8* literals, u32 count, u32 offset, u32 match, u32 lane) {
    if (count < CUZARR_LZ4_MORE && match < CUZARR_LZ4_MORE) {
        u32 byte = lane == 0 ? count << 4 | match : lane == count + 1 ? offset & 255 : offset >> 8;
        if (lane > 0 && lane <= count) byte = literals[lane - 1];
        if (lane < count + 3) to[lane] = (u8)byte;
        return count + 3;
    }
    u8* at = to;
    if (lane == 0) *at = (u8)(lz4_nibble(count) << 4 | lz4_nibble(match));
    at += 1;
    at += lz4_write_more(at, count, lane);
    copy_far(literals, at, count, lane);
    at += count;
    if (lane < 2) at[lane] = (u8)(offset >> 8 * lane);
    at += 2;
    at += lz4_write_more(at, match, lane);
    return (u32)(at - to);
}

/// Places of 4 bytes from `from` on, before `end`, go into the table; not those inside of a run of equal elements of up to 8
/// bytes, whose beginning is the better place.
CUZARR_DEVICE void lz4_enter(const u8* from, u32 end, u16* table, u32 lane) {
    u32 before = 0;
    for (u32 at = 0; at < end; at += CUZARR_WARP) {
        u32 place = at + lane;
        u32 word = place < end ? load_4<false>(from + place) : 0, hash = lz4_hash(word);
        u32 near = warp_shuffle(CUZARR_ALL_LANES, word, (lane + 24) % CUZARR_WARP);
        u32 far = warp_shuffle(CUZARR_ALL_LANES, before, (lane + 24) % CUZARR_WARP);
        bool inside = place < end && (place < 8 || (lane < 8 ? far : near) != word);
        before = word;
        u32 peers = warp_match(CUZARR_ALL_LANES, inside ? hash : ~lane);
        if (inside && !(peers & ((1u << lane) - 1))) table[hash] = (u16)place;
        warp_barrier(CUZARR_ALL_LANES);
    }
}

/// Encodes bytes [begin, begin + size) of a block of `block_bytes` to `tail`. `table` is the warp's own. `history` and `size`
/// are 64 KiB at most together.
CUZARR_DEVICE Lz4Piece lz4_encode_piece(
    const u8* block, u32 block_bytes, u32 begin, u32 history, u32 size, u16* table, u8* tail, u32 lane
) {
    Lz4Piece piece = {size, 0, size, CUZARR_LZ4_NO_SEQUENCE, 0, 0, {0, 0}};
    u32 rest = block_bytes - begin;
    if (rest <= CUZARR_LZ4_NO_BEGIN) return piece;
    // Where no match may begin any more, and where it has to end.
    u32 match_end = rest - CUZARR_LZ4_NO_MATCH < size ? rest - CUZARR_LZ4_NO_MATCH : size;
    u32 last = rest - CUZARR_LZ4_NO_BEGIN + 1;
    if (match_end < CUZARR_LZ4_LEAST_MATCH) return piece;
    u32 stop = match_end - CUZARR_LZ4_LEAST_MATCH + 1;
    stop = stop < last ? stop : last;
    // From here on, places count from the history's beginning.
    match_end += history, stop += history;
    for (u32 i = lane; i < CUZARR_LZ4_TABLE / 2; i += CUZARR_WARP) ((u32*)table)[i] = 0;
    warp_barrier(CUZARR_ALL_LANES);
    const u8* from = block + begin - history;
    lz4_enter(from, history, table, lane);
    u32 at = history, anchor = history, written = 0, step = 1, misses = 0;
    while (at < stop) {
        u32 place = at + lane * step;
        bool inside = place < stop;
        u32 word = inside ? load_4<false>(from + place) : 0;
        u32 hash = lz4_hash(word);
        u32 peers = warp_match(CUZARR_ALL_LANES, inside ? hash : ~lane);
        u32 below = peers & ((1u << lane) - 1), nearest = below ? 31 - count_leading_zeros(below) : lane;
        bool near = warp_shuffle(CUZARR_ALL_LANES, word, nearest) == word && below;
        u32 candidate = near ? at + nearest * step : table[hash];
        // An empty entry is the first place, which is looked at like any other.
        bool hit = inside && (near || (candidate < place && load_4<false>(from + candidate) == word));
        warp_barrier(CUZARR_ALL_LANES);
        if (inside && !below) table[hash] = (u16)place;
        u32 hits = warp_ballot(CUZARR_ALL_LANES, hit);
        warp_barrier(CUZARR_ALL_LANES);
        if (!hits) {
            at += step * CUZARR_WARP;
            misses += 1;
            step = 1 + misses / 2;
            continue;
        }
        for (; hits; hits &= warp_ballot(CUZARR_ALL_LANES, place >= anchor)) {
            u32 first = count_trailing_zeros(hits);
            u32 match = warp_shuffle(CUZARR_ALL_LANES, place, first);
            u32 source = warp_shuffle(CUZARR_ALL_LANES, candidate, first);
            u32 length = lz4_common(
                from + match + CUZARR_LZ4_LEAST_MATCH, from + source + CUZARR_LZ4_LEAST_MATCH,
                match_end - match - CUZARR_LZ4_LEAST_MATCH, lane
            );
            if (step > 1) {
                u32 most = match - anchor < source ? match - anchor : source;
                u32 before = lz4_common_before(from + match, from + source, most, lane);
                match -= before, source -= before, length += before;
            }
            u32 offset = match - source;
            if (piece.match == CUZARR_LZ4_NO_SEQUENCE) {
                piece.lead = match - history;
                piece.match = lz4_nibble(length);
                if (lane < 2) tail[lane] = (u8)(offset >> 8 * lane);
                written = 2 + lz4_write_more(tail + 2, length, lane);
            } else {
                written += lz4_write_sequence(tail + written, from + anchor, match - anchor, offset, length, lane);
            }
            anchor = match + length + CUZARR_LZ4_LEAST_MATCH;
        }
        at += step * CUZARR_WARP;
        at = at > anchor ? at : anchor;
        step = 1, misses = 0;
    }
    piece.tail = written;
    piece.trail = history + size - anchor;
    return piece;
}
