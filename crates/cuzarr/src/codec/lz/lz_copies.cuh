// Turns the sequences of a tile into bytes, one lane for each sequence, for data whose sequences are short.
//
//     literals -> are the bytes there that the match repeats? -> copy it, mark its bytes as there, or put it aside
//     what was put aside, again and again, until nothing is left
//
// A match repeats only what is before it, so the first of the tile that is not done can always go on. Bytes of the tile lie in
// shared memory, beside a bit for each that is there; earlier tiles of the chain say by their flags that they are done. Long runs
// are copied by the whole warp.
#pragma once
#include "codec/lz/lz_sequences.cuh"
#include "cuzarr/warp.cuh"

/// Maximum bytes of a run that one lane copies.
#define CUZARR_LZ_SHORT 32u
/// Number of tiles before a tile whose flags a warp holds, one bit each. The tile waits for all tiles before these.
#define CUZARR_LZ_RECENT 32u
/// Number of matches that a warp puts aside before it tries them again.
#define CUZARR_LZ_ASIDE 128u

/// A tile while it is made.
struct LzCopies {
    u8* unit;             // the unit's output
    u32 begin, size;      // of the tile, in it
    u32 tile, tile_log;   // number in the chain, which begins with the unit, and 2^log bytes
    const u32* flags;     // of the chain's tiles
    u8* bytes;            // of the tile, in shared memory
    u32* there;           // a bit for each
};

/// A match, or its part in the tile: `bytes` from `at` on, which repeat those `offset` back. Positions are the unit's.
struct LzMatch {
    u32 at, bytes, offset;
};

/// Returns which of the tiles before are done: bit i is for the tile 1 + i before. All lanes call.
CUZARR_DEVICE u32 lz_recent(const LzCopies& copies, u32 lane) {
    bool done = copies.tile <= lane || volatile_load(copies.flags + copies.tile - 1 - lane) != 0;
    return warp_ballot(CUZARR_ALL_LANES, done);
}

/// Waits for all tiles that are further back than `lz_recent` looks. Each of them waited in the same way. So it is
/// enough to look at CUZARR_WARP of them, with the last of the recent ones.
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

/// Whether the bytes that a match repeats are there, except those that it writes itself.
CUZARR_DEVICE bool lz_ready(const LzCopies& copies, const LzMatch& match, u32 recent) {
    u32 first = match.at - match.offset, end = first + match.bytes;
    end = end < match.at ? end : match.at;
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
    return end <= copies.begin || lz_there(copies.there, first - copies.begin, end - copies.begin);
}

/// Marks `count` bytes from `first` on as there, at most 32.
CUZARR_DEVICE void lz_mark(u32* there, u32 first, u32 count) {
    u32 bit = first % 32, mask = count == 32 ? 0xffffffffu : (1u << count) - 1;
    atomic_or(there + first / 32, mask << bit);
    if (bit + count > 32) atomic_or(there + first / 32 + 1, mask >> (32 - bit));
}

/// Marks `count` bytes from `at` on as there, by all lanes, after the stores of all.
CUZARR_DEVICE void lz_mark_long(const LzCopies& copies, u32 at, u32 count, u32 lane) {
    block_fence();
    warp_barrier(CUZARR_ALL_LANES);
    for (u32 done = 32 * lane; done < count; done += 32 * CUZARR_WARP) {
        lz_mark(copies.there, at - copies.begin + done, count - done < 32 ? count - done : 32);
    }
}

/// Writes up to four bytes of `word` to the tile.
CUZARR_DEVICE void lz_put(u8* to, u32 word, u32 count) {
#pragma unroll
    for (u32 k = 0; k < 4; ++k) {
        if (k < count) to[k] = (u8)(word >> 8 * k);
    }
}

/// Copies the literals of each lane's sequence, `count` of them, to byte `at` of the unit. All lanes call.
CUZARR_DEVICE void lz_put_literals(const LzCopies& copies, const u8* from, u32 at, u32 count, u32 lane) {
    bool is_long = count > CUZARR_LZ_SHORT;
    if (count && !is_long) {
        u8* to = copies.bytes + (at - copies.begin);
        for (u32 done = 0; done < count; done += 4) {
            u32 bytes[4] = {0, 0, 0, 0};
#pragma unroll
            for (u32 k = 0; k < 4; ++k) {
                if (done + k < count) bytes[k] = from[done + k];
            }
#pragma unroll
            for (u32 k = 0; k < 4; ++k) {
                if (done + k < count) to[done + k] = (u8)bytes[k];
            }
        }
        block_fence();
        lz_mark(copies.there, at - copies.begin, count);
    }
    for (u32 votes = warp_ballot(CUZARR_ALL_LANES, is_long); votes; votes &= votes - 1) {
        u32 which = count_trailing_zeros(votes);
        const u8* its = (const u8*)warp_shuffle(CUZARR_ALL_LANES, (u64)from, which);
        u32 its_at = warp_shuffle(CUZARR_ALL_LANES, at, which), its_count = warp_shuffle(CUZARR_ALL_LANES, count, which);
        for (u32 done = lane; done < its_count; done += CUZARR_WARP) copies.bytes[its_at - copies.begin + done] = its[done];
        lz_mark_long(copies, its_at, its_count, lane);
    }
}

/// Copies a short match, by one lane.
CUZARR_DEVICE void lz_copy_short(const LzCopies& copies, const LzMatch& match) {
    u8* to = copies.bytes + (match.at - copies.begin);
    u32 first = match.at - match.offset;
    if (first + match.bytes <= copies.begin && first + match.bytes + 8 <= copies.begin + copies.size) {
        // Copies whole words from before the tile.
        const u8* from = copies.unit + first;
        u32 skew = (u32)((u64)from & 3), selector = 0x3210u + 0x1111u * skew;
        const u32* words = (const u32*)(from - skew);
        for (u32 done = 0; done < match.bytes; done += 8, words += 2) {
            u32 low = load_new(words), middle = load_new(words + 1), high = load_new(words + 2);
            lz_put(to + done, permute_bytes(low, middle, selector), match.bytes - done);
            if (done + 4 < match.bytes) lz_put(to + done + 4, permute_bytes(middle, high, selector), match.bytes - done - 4);
        }
        return;
    }
    // First the part before the tile, with eight bytes loaded at a time, then the part in it.
    u32 before = first < copies.begin ? copies.begin - first : 0;
    before = before < match.bytes ? before : match.bytes;
    for (u32 done = 0; done < before; done += 8) {
        u32 bytes[8];
#pragma unroll
        for (u32 k = 0; k < 8; ++k) bytes[k] = done + k < before ? load_new(copies.unit + first + done + k) : 0;
#pragma unroll
        for (u32 k = 0; k < 8; ++k) {
            if (done + k < before) to[done + k] = (u8)bytes[k];
        }
    }
    const u8* from = copies.bytes + (i32)(first - copies.begin);
    for (u32 done = before; done < match.bytes; ++done) to[done] = from[done];
}

/// Copies a match, by all lanes.
CUZARR_DEVICE void lz_copy_long(const LzCopies& copies, const LzMatch& match, u32 lane) {
    u8* to = copies.bytes + (match.at - copies.begin);
    u32 first = match.at - match.offset, step = CUZARR_WARP % match.offset, ahead = lane % match.offset;
    const u8* near = copies.bytes - copies.begin;
    // A match that overlaps itself repeats its first `offset` bytes.
    for (u32 done = lane; done < match.bytes; done += CUZARR_WARP) {
        u32 place = first + (match.offset < match.bytes ? ahead : done);
        to[done] = place < copies.begin ? load_new(copies.unit + place) : near[place];
        ahead += step;
        if (ahead >= match.offset) ahead -= match.offset;
    }
    lz_mark_long(copies, match.at, match.bytes, lane);
}

/// Copies each lane's match, if it has one and the repeated bytes are there. Returns the lanes whose match has to wait.
/// All lanes call.
CUZARR_DEVICE u32 lz_try(const LzCopies& copies, const LzMatch& match, u32 recent, u32 lane) {
    bool has_one = match.bytes != 0, ready = has_one && lz_ready(copies, match, recent), is_long = match.bytes > CUZARR_LZ_SHORT;
    block_fence();
    if (ready && !is_long) {
        lz_copy_short(copies, match);
        block_fence();
        lz_mark(copies.there, match.at - copies.begin, match.bytes);
    }
    for (u32 votes = warp_ballot(CUZARR_ALL_LANES, ready && is_long); votes; votes &= votes - 1) {
        u32 which = count_trailing_zeros(votes);
        LzMatch other = {warp_shuffle(CUZARR_ALL_LANES, match.at, which), warp_shuffle(CUZARR_ALL_LANES, match.bytes, which),
                         warp_shuffle(CUZARR_ALL_LANES, match.offset, which)};
        lz_copy_long(copies, other, lane);
    }
    return warp_ballot(CUZARR_ALL_LANES, has_one && !ready);
}

/// Packs a match to put it aside: the offset, and the place in the tile and the length, which are below 2^16.
CUZARR_DEVICE u64 lz_packed(const LzCopies& copies, const LzMatch& match) {
    return (u64)match.offset << 32 | (match.at - copies.begin) << 16 | match.bytes;
}
CUZARR_DEVICE LzMatch lz_unpacked(const LzCopies& copies, u64 packed) {
    return {copies.begin + ((u32)packed >> 16), (u32)packed & 0xffff, (u32)(packed >> 32)};
}

/// Puts the matches of `lanes` behind the `count` that are put aside already.
CUZARR_DEVICE void lz_put_aside(u64* aside, u32& count, u64 packed, u32 lanes, u32 lane) {
    if (lanes >> lane & 1) aside[count + votes_below(lanes, lane)] = packed;
    count += count_ones(lanes);
}

/// Makes all bytes of a tile; their bits in `there` are 0 before. `sequences` begin with those that reach into the
/// tile. `aside` has room for CUZARR_LZ_ASIDE matches of the warp, and `literals_of(sequence)` returns where a
/// sequence's literals lie.
template <class Sequences, class Literals>
CUZARR_DEVICE void lz_copy_tile(const LzCopies& copies, const Sequences& sequences, u64* aside, Literals literals_of) {
    u32 lane = thread_index() % CUZARR_WARP, next = thread_index(), tile_end = copies.begin + copies.size, waiting = 0;
    // One warp reads the flags for all: thousands of threads that read the same flags wait for each other.
    if (thread_index() < CUZARR_WARP) lz_wait_far(copies, lane);
    block_barrier();
    u32 recent = lz_recent(copies, lane);
    for (bool more = true; more || waiting;) {
        while (more && waiting + CUZARR_WARP <= CUZARR_LZ_ASIDE) {
            LzSequence sequence;
            u32 end;
            bool is_in = sequences.open(sequences.load(next), next, copies.begin, tile_end, sequence, end, more);
            if (!more) break;
            more = warp_ballot(CUZARR_ALL_LANES, end >= tile_end) == 0;
            next += thread_count();
            if (!is_in) sequence = {tile_end, 0, tile_end, 1}, end = tile_end;
            // The part of it that lies in the tile.
            end = end < tile_end ? end : tile_end;
            u32 at = sequence.out > copies.begin ? sequence.out : copies.begin;
            u32 match = sequence.match > at ? sequence.match : at;
            match = match < end ? match : end;
            lz_put_literals(copies, literals_of(sequence) + (at - sequence.out), at, match - at, lane);
            LzMatch own = {match, end - match, sequence.offset};
            lz_put_aside(aside, waiting, lz_packed(copies, own), lz_try(copies, own, recent, lane), lane);
        }
        warp_barrier(CUZARR_ALL_LANES);
        if (recent != CUZARR_ALL_LANES) recent = lz_recent(copies, lane);
        u32 tried = waiting;
        waiting = 0;
        for (u32 first = 0; first < tried; first += CUZARR_WARP) {
            u64 packed = first + lane < tried ? aside[first + lane] : 0;
            u32 wait = lz_try(copies, lz_unpacked(copies, packed), recent, lane);
            // Behind the loads of all lanes: `lz_try` ends with a vote.
            lz_put_aside(aside, waiting, packed, wait, lane);
            warp_barrier(CUZARR_ALL_LANES);
        }
        if (waiting == tried) spin_yield();
    }
}
