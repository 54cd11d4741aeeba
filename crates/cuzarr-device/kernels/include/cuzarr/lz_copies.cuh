// Sequences of a tile become bytes, a lane a sequence, for data whose sequences are short.
//
//     take the next sequence -> are the bytes there that it repeats? -> copy literals and match -> mark its bytes as there
//
// A lane whose bytes are not there yet asks again while the others go on. A sequence repeats only what is before it, and lanes
// take them in their order, so the first that is not done can always go on. Bytes of the tile lie in shared memory, beside a bit
// for each that is there; earlier tiles of the chain say by their flags that they are done. Long sequences are copied by the
// whole warp.
#pragma once
#include "cuzarr/lz_sequences.cuh"

/// Most bytes of a sequence that one lane copies.
#define CUZARR_LZ_SHORT 32u
/// Tiles in front of one whose flags a warp holds, a bit each: those before are waited for.
#define CUZARR_LZ_RECENT 32u

/// A tile while it is made.
struct LzCopies {
    u8* unit;             // the unit's output
    u32 begin, size;      // of the tile, in it
    u32 tile, tile_log;   // number in the chain, which begins with the unit, and 2^log bytes
    const u32* flags;     // of the chain's tiles
    u8* bytes;            // of the tile, in shared memory
    u32* there;           // a bit for each
};

/// Part of a sequence that lies in the tile: from `at` on `literals` bytes from `from`, then `matches` that repeat `offset` back.
/// Places are the unit's.
struct LzPiece {
    const u8* from;
    u32 at, literals, matches, offset;
};

/// Which of the tiles before are done: bit i says it of the one 1 + i before. All lanes call.
CUZARR_DEVICE u32 lz_recent(const LzCopies& copies, u32 lane) {
    bool done = copies.tile <= lane || volatile_load(copies.flags + copies.tile - 1 - lane) != 0;
    return warp_ballot(CUZARR_ALL_LANES, done);
}

/// Waits for all tiles that are further back than `lz_recent` looks. One of them waited likewise, so it is enough to look at as
/// many, the last of the recent ones among them.
CUZARR_DEVICE void lz_wait_far(const LzCopies& copies, u32 lane) {
    u32 back = CUZARR_LZ_RECENT + lane;
    for (;;) {
        bool done = copies.tile < back || volatile_load(copies.flags + copies.tile - back) != 0;
        if (warp_ballot(CUZARR_ALL_LANES, done) == CUZARR_ALL_LANES) break;
        spin_yield();
    }
}

/// Whether the bytes from `first` to `end` of the tile are there.
CUZARR_DEVICE bool lz_there(const u32* there, u32 first, u32 end) {
    while (first < end) {
        u32 bit = first % 32, count = 32 - bit;
        if (count > end - first) count = end - first;
        u32 mask = (count == 32 ? 0xffffffffu : (1u << count) - 1) << bit;
        if ((volatile_load(there + first / 32) & mask) != mask) return false;
        first += count;
    }
    return true;
}

/// Whether what a piece repeats is there, as far as others bring it.
CUZARR_DEVICE bool lz_ready(const LzCopies& copies, const LzPiece& piece, u32 recent) {
    u32 match = piece.at + piece.literals, first = match - piece.offset, end = first + piece.matches;
    end = end < piece.at ? end : piece.at;
    if (piece.matches == 0 || first >= end) return true;
    if (first < copies.begin) {
        u32 last = (end < copies.begin ? end : copies.begin) - 1;
        u32 near = copies.tile - 1 - (last >> copies.tile_log), far = copies.tile - 1 - (first >> copies.tile_log);
        if (near < CUZARR_LZ_RECENT) {
            u32 mask = 0xffffffffu << near;
            if (far < CUZARR_LZ_RECENT - 1) mask &= (2u << far) - 1;
            if ((recent & mask) != mask) return false;
        }
        first = copies.begin;
    }
    return lz_there(copies.there, first - copies.begin, end < copies.begin ? 0 : end - copies.begin);
}

/// Up to four bytes of `word` into the tile.
CUZARR_DEVICE void lz_put(u8* to, u32 word, u32 count) {
#pragma unroll
    for (u32 k = 0; k < 4; ++k) {
        if (k < count) to[k] = (u8)(word >> 8 * k);
    }
}

/// A short piece, by one lane.
CUZARR_DEVICE void lz_copy_short(const LzCopies& copies, const LzPiece& piece) {
    u8* to = copies.bytes + (piece.at - copies.begin);
    for (u32 done = 0; done < piece.literals; done += 4) {
        u32 bytes[4] = {0, 0, 0, 0};
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            if (done + k < piece.literals) bytes[k] = piece.from[done + k];
        }
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            if (done + k < piece.literals) to[done + k] = (u8)bytes[k];
        }
    }
    to += piece.literals;
    u32 first = piece.at + piece.literals - piece.offset;
    if (first + piece.matches <= copies.begin && first + piece.matches + 8 <= copies.begin + copies.size) {
        // Whole words from before the tile.
        const u8* from = copies.unit + first;
        u32 skew = (u32)((u64)from & 3), selector = 0x3210u + 0x1111u * skew;
        const u32* words = (const u32*)(from - skew);
        for (u32 done = 0; done < piece.matches; done += 8, words += 2) {
            u32 low = load_new(words), middle = load_new(words + 1), high = load_new(words + 2);
            lz_put(to + done, permute_bytes(low, middle, selector), piece.matches - done);
            if (done + 4 < piece.matches) lz_put(to + done + 4, permute_bytes(middle, high, selector), piece.matches - done - 4);
        }
        return;
    }
    const u8* near = copies.bytes - copies.begin;
    for (u32 done = 0; done < piece.matches; ++done) {
        u32 place = first + done;
        to[done] = place < copies.begin ? load_new(copies.unit + place) : near[place];
    }
}

/// A piece by all lanes.
CUZARR_DEVICE void lz_copy_long(const LzCopies& copies, const LzPiece& piece, u32 lane) {
    u8* to = copies.bytes + (piece.at - copies.begin);
    for (u32 done = lane; done < piece.literals; done += CUZARR_WARP) to[done] = piece.from[done];
    warp_barrier(CUZARR_ALL_LANES);
    to += piece.literals;
    u32 first = piece.at + piece.literals - piece.offset, step = CUZARR_WARP % piece.offset, at = lane % piece.offset;
    const u8* near = copies.bytes - copies.begin;
    // What overlaps itself repeats its first `offset` bytes.
    for (u32 done = lane; done < piece.matches; done += CUZARR_WARP) {
        u32 place = first + (piece.offset < piece.matches ? at : done);
        to[done] = place < copies.begin ? load_new(copies.unit + place) : near[place];
        at += step;
        if (at >= piece.offset) at -= piece.offset;
    }
}

/// Says that bytes from `first` on are there: up to 32 of them.
CUZARR_DEVICE void lz_mark(u32* there, u32 first, u32 count) {
    u32 bit = first % 32, mask = count == 32 ? 0xffffffffu : (1u << count) - 1;
    atomic_or(there + first / 32, mask << bit);
    if (bit + count > 32) atomic_or(there + first / 32 + 1, mask >> (32 - bit));
}

/// What one lane holds, at all of them.
CUZARR_DEVICE LzPiece lz_of_lane(const LzPiece& piece, u32 lane) {
    return {
        (const u8*)warp_shuffle(CUZARR_ALL_LANES, (u64)piece.from, lane), warp_shuffle(CUZARR_ALL_LANES, piece.at, lane),
        warp_shuffle(CUZARR_ALL_LANES, piece.literals, lane), warp_shuffle(CUZARR_ALL_LANES, piece.matches, lane),
        warp_shuffle(CUZARR_ALL_LANES, piece.offset, lane),
    };
}

/// Makes all bytes of a tile, which are zero bits so far in `there`. `sequences` begin with the one that its first byte belongs
/// to, `count` are left of the unit; `literals_of(sequence)` says where a sequence's literals lie.
template <class Literals>
CUZARR_DEVICE void lz_copy_tile(const LzCopies& copies, const LzSequence* sequences, u32 count, Literals literals_of) {
    u32 lane = thread_index() % CUZARR_WARP, next = thread_index(), tile_end = copies.begin + copies.size;
    lz_wait_far(copies, lane);
    u32 recent = lz_recent(copies, lane);
    LzPiece piece = {(const u8*)0, 0, 0, 0, 1};
    bool pending = false, more = true;
    for (;;) {
        if (!pending && more) {
            more = false;
            if (next < count) {
                LzSequence sequence = sequences[next];
                if (sequence.out < tile_end) {
                    u32 end = sequences[next + 1].out, at = sequence.out;
                    end = end < tile_end ? end : tile_end;
                    at = at > copies.begin ? at : copies.begin;
                    u32 match = sequence.match > at ? sequence.match : at;
                    match = match < end ? match : end;
                    piece = {literals_of(sequence) + (at - sequence.out), at, match - at, end - match, match < end ? sequence.offset : 1};
                    pending = more = true;
                    next += thread_count();
                }
            }
        }
        if (!warp_ballot(CUZARR_ALL_LANES, pending)) break;
        bool ready = pending && lz_ready(copies, piece, recent);
        block_fence();
        bool is_long = piece.literals + piece.matches > CUZARR_LZ_SHORT;
        if (ready && !is_long) {
            lz_copy_short(copies, piece);
            block_fence();
            lz_mark(copies.there, piece.at - copies.begin, piece.literals + piece.matches);
        }
        for (u32 votes = warp_ballot(CUZARR_ALL_LANES, ready && is_long); votes; votes &= votes - 1) {
            LzPiece other = lz_of_lane(piece, count_trailing_zeros(votes));
            lz_copy_long(copies, other, lane);
            block_fence();
            warp_barrier(CUZARR_ALL_LANES);
            u32 first = other.at - copies.begin, bytes = other.literals + other.matches;
            for (u32 done = 32 * lane; done < bytes; done += 32 * CUZARR_WARP) {
                lz_mark(copies.there, first + done, bytes - done < 32 ? bytes - done : 32);
            }
        }
        if (ready) pending = false;
        if (warp_ballot(CUZARR_ALL_LANES, pending)) recent = lz_recent(copies, lane);
    }
}
