// Chains of tiles, by which sequences of literals and matches become bytes. The kernels of `codec/lz` share this file.
#pragma once
#include "codec/lz/lz.cuh"
#include "codec/lz/lz_sequences.cuh"
#include "cuzarr/status.cuh"
#include "cuzarr/warp.cuh"

/// Bytes of a tile that a thread owns.
#define CUZARR_LZ_OWN 32u
/// Maximum threads of a block, and maximum bytes of a tile.
#define CUZARR_LZ_THREADS 256u
#define CUZARR_LZ_TILE (CUZARR_LZ_THREADS * CUZARR_LZ_OWN)

/// Number of groups of 4 bytes that a thread owns.
#define CUZARR_LZ_GROUPS 8u
/// A link from here on is a literal, its lowest byte. A link below CUZARR_LZ_TILE is a byte of this tile. A link
/// between is the position of an earlier byte of the unit, plus CUZARR_LZ_TILE.
#define CUZARR_LZ_LITERAL 0xffffff00u
/// Number of a thread's groups that are loaded at the same time.
#define CUZARR_LZ_TOGETHER 4u

/// The values of a tile's flag. DONE: its bytes or marks are there. FINAL: its bytes are there, and it has no marks.
/// Only the first CUZARR_LZ_FINALS tiles of a segment may be final.
#define CUZARR_LZ_DONE 1u
#define CUZARR_LZ_FINAL 2u
#define CUZARR_LZ_FINALS 1024u

/// Consecutive tiles of a unit: all of them, or a segment's. `LzChain` in mod.rs.
struct LzChain {
    u64 dst;               // where the unit's output begins
    u64 literals;          // its memory of literals, in the source
    u64 scratch_literals;  // its second one, in scratch
    u64 first_sequence;    // a bundle's first, where they come in bundles
    u64 first_mark;        // of the chain's first byte
    u32 unit;              // number of its count
    u32 status;            // and of its status
    u32 begin;             // in the unit's output
    u32 bytes;
    u32 first_flag;        // of the chain's tiles
    u32 tiles_before;      // of the unit
};

/// One tile of a chain.
struct LzTile {
    u32 chain, tile;
};
static_assert(sizeof(LzChain) == 64 && sizeof(LzTile) == 8, "as mod.rs writes them");

/// Returns the last of `count` items that begins at `at` or before; the first one always does. A whole warp searches,
/// with 32 probes at a time. `out_of(number)` returns where an item begins.
template <class OutOf>
CUZARR_DEVICE u32 lz_find(u32 count, u32 at, u32 lane, OutOf out_of) {
    u32 low = 0, high = count;
    while (high - low > 1) {
        u32 step = (high - low + CUZARR_WARP - 1) / CUZARR_WARP, probe = low + lane * step;
        u32 votes = warp_ballot(CUZARR_ALL_LANES, probe < high && out_of(probe) <= at);
        low += highest_bit(votes | 1) * step;
        high = high - low < step ? high : low + step;
    }
    return low;
}

/// A reader of a unit's sequences for a tile, if they are `LzSequence`s. Lanes of a warp read neighbours.
struct LzPlain {
    const LzSequence* sequences;
    u32 count;
    /// A sequence, and where it ends.
    struct Loaded {
        LzSequence own;
        u32 end;
    };

    /// Returns where reading begins for the tile that begins at `at`; pass it to `skip`. `first` becomes the sequence
    /// that `at` belongs to. All lanes of a warp call.
    CUZARR_DEVICE u32 find(u32 at, u32 lane, LzSequence& first) const {
        u32 number = lz_find(count, at, lane, [&](u32 index) { return sequences[index].out; });
        first = sequences[number];
        return number;
    }
    CUZARR_DEVICE void skip(u32 number) { sequences += number, count -= number; }

    /// Loads sequence `next`, a multiple of CUZARR_WARP plus the lane's number.
    CUZARR_DEVICE Loaded load(u32 next) const {
        return {sequences[next < count ? next : count], sequences[next < count ? next + 1 : count].out};
    }
    /// Opens a loaded sequence. Returns whether it lies before `tile_end`; `more` is whether any lane's of the warp
    /// does.
    CUZARR_DEVICE bool open(const Loaded& loaded, u32 next, u32, u32 tile_end, LzSequence& own, u32& end, bool& more) const {
        own = loaded.own, end = loaded.end;
        bool is_in = next < count && own.out < tile_end;
        more = warp_ballot(CUZARR_ALL_LANES, is_in) != 0;
        return is_in;
    }
    /// Reads sequence `number`, for all lanes of a warp.
    CUZARR_DEVICE void one(u32 number, u32, LzSequence& own, u32& end) const {
        own = sequences[number], end = sequences[number + 1].out;
    }
};

/// Like `LzPlain`, if there are only matches. `skipped` of the `count` are already passed.
struct LzMatches {
    const u64* matches;
    u32 count, skipped;
    struct Loaded {
        u64 own, before;
    };

    CUZARR_DEVICE u32 find(u32 at, u32 lane, LzSequence& first) const {
        u32 number = lz_find(count, at, lane, [&](u32 index) { return index ? lz_match_end(matches[index - 1]) : 0; }), end;
        one(number, lane, first, end);
        return number;
    }
    CUZARR_DEVICE void skip(u32 number) { skipped += number; }

    CUZARR_DEVICE Loaded load(u32 next) const {
        u32 number = skipped + next;
        if (number >= count) return {0, 0};
        return {matches[number], number ? matches[number - 1] : 0};
    }
    CUZARR_DEVICE bool open(const Loaded& loaded, u32 next, u32, u32 tile_end, LzSequence& own, u32& end, bool& more) const {
        own.out = own.literals = lz_match_end(loaded.before);
        own.match = (u32)loaded.own, own.offset = (u32)(loaded.own >> 48), end = lz_match_end(loaded.own);
        bool is_in = skipped + next < count && own.out < tile_end;
        more = warp_ballot(CUZARR_ALL_LANES, is_in) != 0;
        return is_in;
    }
    CUZARR_DEVICE void one(u32 number, u32, LzSequence& own, u32& end) const {
        bool more;
        open(load(number), number, 0, 0, own, end, more);
    }
};

/// Like `LzPlain`, if sequences come in bundles. `count` counts bundles.
struct LzBundled {
    const u64* briefs;
    const LzBundle* bundles;
    u32 count;
    struct Loaded {
        u64 brief;
        LzBundle bundle;
    };

    CUZARR_DEVICE u32 find(u32 at, u32 lane, LzSequence& first) const {
        u32 number = lz_find(count, at, lane, [&](u32 index) { return bundles[index].out; }), end;
        bool more;
        open({briefs[number * CUZARR_LZ_BUNDLE + lane], bundles[number]}, 0, at, at + 1, first, end, more);
        u32 votes = warp_ballot(CUZARR_ALL_LANES, first.out <= at && at < end);
        give(first, end, votes ? count_trailing_zeros(votes) : 0);
        return number;
    }
    CUZARR_DEVICE void skip(u32 number) { briefs += (u64)number * CUZARR_LZ_BUNDLE, bundles += number, count -= number; }

    CUZARR_DEVICE Loaded load(u32 next) const {
        u32 number = next / CUZARR_LZ_BUNDLE;
        return number < count ? Loaded{briefs[next], bundles[number]} : Loaded{0, {0xffffffffu, 0}};
    }
    /// Leaves out sequences that end before `begin`.
    CUZARR_DEVICE bool open(const Loaded& loaded, u32, u32 begin, u32 tile_end, LzSequence& own, u32& end, bool& more) const {
        u32 lane = thread_index() % CUZARR_WARP;
        u32 literals = (u32)loaded.brief & CUZARR_LZ_BRIEF_LITERALS, match = (u32)(loaded.brief >> 17) & 0x3ffff;
        u32 bytes = literals + match, ends = bytes, literal_ends = literals;
        more = loaded.bundle.out < tile_end;
        if (warp_ballot(CUZARR_ALL_LANES, bytes >= 2048) == 0) {
            // Both sums of 32 have 16 bits.
            u32 both = bytes << 16 | literals;
            for (u32 step = 1; step < CUZARR_WARP; step *= 2) {
                u32 before = warp_shuffle_up(CUZARR_ALL_LANES, both, step);
                if (lane >= step) both += before;
            }
            ends = both >> 16, literal_ends = both & 0xffff;
        } else {
            for (u32 step = 1; step < CUZARR_WARP; step *= 2) {
                u32 before = warp_shuffle_up(CUZARR_ALL_LANES, ends, step);
                u32 literals_before = warp_shuffle_up(CUZARR_ALL_LANES, literal_ends, step);
                if (lane >= step) ends += before, literal_ends += literals_before;
            }
        }
        end = loaded.bundle.out + ends;
        own.out = end - bytes, own.match = end - match;
        own.literals = loaded.bundle.literals + (literal_ends - literals), own.offset = (u32)(loaded.brief >> 35);
        return bytes && own.out < tile_end && end > begin;
    }
    CUZARR_DEVICE void one(u32 number, u32 lane, LzSequence& own, u32& end) const {
        bool more;
        open(load(number / CUZARR_LZ_BUNDLE * CUZARR_LZ_BUNDLE + lane), 0, 0, 0, own, end, more);
        give(own, end, number % CUZARR_LZ_BUNDLE);
    }
    /// Gives the sequence of lane `from` to each lane.
    CUZARR_DEVICE static void give(LzSequence& own, u32& end, u32 from) {
        own.out = warp_shuffle(CUZARR_ALL_LANES, own.out, from), own.literals = warp_shuffle(CUZARR_ALL_LANES, own.literals, from);
        own.match = warp_shuffle(CUZARR_ALL_LANES, own.match, from), own.offset = warp_shuffle(CUZARR_ALL_LANES, own.offset, from);
        end = warp_shuffle(CUZARR_ALL_LANES, end, from);
    }
};

/// Where the literals of a sequence lie.
CUZARR_DEVICE const u8* lz_literals(const LzChain& chain, const u8* src, const u8* scratch, u32 literals) {
    return (literals & CUZARR_LZ_SCRATCH ? scratch + chain.scratch_literals : src + chain.literals) + (literals & ~CUZARR_LZ_SCRATCH);
}

/// Copies a tile that is all literals of one sequence. Each warp copies a share.
CUZARR_DEVICE void lz_copy(const u8* from, u8* to, u32 size) {
    u32 warps = thread_count() / CUZARR_WARP, share = ((size + warps - 1) / warps + 15) / 16 * 16;
    u32 first = thread_index() / CUZARR_WARP * share;
    if (first < size) copy_far(from + first, to + first, size - first < share ? size - first : share, thread_index() % CUZARR_WARP);
}

/// Stores four bytes to their place, or `count` of them if that is less.
CUZARR_DEVICE void lz_store(u8* to, const u32* bytes, u32 count) {
    if (count >= 4 && (u64)to % 4 == 0) {
        *(u32*)to = (bytes[0] & 255) | (bytes[1] & 255) << 8 | (bytes[2] & 255) << 16 | bytes[3] << 24;
    } else {
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            if (k < count) to[k] = (u8)bytes[k];
        }
    }
}
