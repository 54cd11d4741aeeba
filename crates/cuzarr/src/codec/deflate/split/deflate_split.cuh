// Decodes large deflate streams with many warps: the tables that the kernels of deflate_split.cu hand to each other.
//
// A stream is cut where dynamic blocks begin. Their headers hold so much that must fit that nearly every place of a
// stream that could be one is one. A false place only costs work, because only regions that are reached from the
// stream's beginning count. Blocks of the fixed codes have no such headers, but their codes are known: a decoder that
// begins anywhere in one falls into step. So such a block is cut at symbols, too; if the region before does not arrive
// there, it goes on:
//
//     find      every bit where a header could begin                    (a warp a slot of 1 KiB)
//     verify    those whose codes are codes: the first one of each slot; and, in one slot of some, where the fixed codes
//               have symbols throughout                                 (a thread a place)
//     begin     the first block of each stream                          (a warp a frame)
//     measure   from each to the next, through blocks of other kinds: where each lane's symbols begin, how many bytes and
//               matches they make, and places to enter it (some warps a region)
//     chain     from region to region: where each one's bytes and sequences go   (a warp a frame)
//     emit      literals to their places, and matches                            (a warp an entry)
//
// Then the engine of `codec/lz` copies what the sequences repeat. A frame for which this fails, because it is damaged
// or has several members, is decoded in order by deflate_frames, which also reports the damage.
//
// Prior art: block finding of rapidgzip (Knespel and Brunst, HPDC 2023) and pugz (Kerbiriou and Chikhi, 2019).
#pragma once
#include "codec/deflate/deflate_container.cuh"
#include "codec/lz/lz_sequences.cuh"

/// Bits of a slot, in which at most one region begins.
#define CUZARR_DEFLATE_SLOT_BITS 8192u
/// A bit of a region's place: the place is inside a block of the fixed codes.
#define CUZARR_DEFLATE_INSIDE 0x80000000u
/// Number of bits that are skipped to fall into step with the fixed codes. The CUZARR_DEFLATE_CHECKED_BITS behind them
/// must be symbols.
#define CUZARR_DEFLATE_STEP_BITS 1024u
#define CUZARR_DEFLATE_CHECKED_BITS 2048u

/// How a region ends.
#define CUZARR_DEFLATE_LINKED 1u  // where another begins
#define CUZARR_DEFLATE_FINAL 2u   // with the stream
#define CUZARR_DEFLATE_BROKEN 3u
#define CUZARR_DEFLATE_HOW 3u
/// A flag beside CUZARR_DEFLATE_LINKED: the region ends inside the stream's last block.
#define CUZARR_DEFLATE_LAST 4u

/// A region, from one beginning to the next: 40 bytes, all bits set before. There is one for each slot, and one for
/// each frame's first block.
struct DeflateRegion {
    u32 start, end;  // bits; with CUZARR_DEFLATE_INSIDE or without
    u32 bytes;       // decoded
    u32 sequences;   // one for each match, and one for each entry
    u32 state;
    u32 at;          // where the bytes go; none when it is not reached
    u32 first_sequence;
    /// Where the block that the region begins in ends, and the region's bytes and sequences until there. If that is the
    /// stream's last block, the stream ends there. None: the block does not end in the region.
    u32 block_end, block_bytes, block_sequences;
};

/// A place to begin at inside a region: 28 bytes.
struct DeflateEntry {
    u32 region;
    u32 header;       // bit where its block begins
    u32 table;        // where the block's tables are kept; none: to be made again
    u32 first_round;  // none: a stored block
    u32 rounds;
    u32 at;           // bytes of the region before it
    u32 sequences;    // and sequences
};

/// 32 segments of a block: 136 bytes.
struct DeflateRound {
    u32 position;  // bit where the first begins
    u32 stop;      // bit that no symbol begins at or behind
    /// For each segment: how many bits behind its beginning its first symbol is (6 bits), its bytes (16) and matches
    /// (8). The highest bit is set if the segment counts.
    u32 segments[CUZARR_WARP];
};

/// The number of the fixed codes' tables.
#define CUZARR_DEFLATE_FIXED 0u
/// Words that are kept for a block: its tables of literals and distances, and the bit of its first symbol.
#define CUZARR_DEFLATE_KEPT_DISTANCES (CUZARR_DEFLATE_LITERAL_ENTRIES + 2)
#define CUZARR_DEFLATE_KEPT_WORDS (CUZARR_DEFLATE_KEPT_DISTANCES + CUZARR_DEFLATE_DISTANCE_ENTRIES + 2)

/// The outcome of a frame: 8 bytes, zero before.
struct DeflateState {
    u32 split;     // 1: goes this way
    u32 measured;  // KiB, of true and false regions
};

/// The lengths of the lists that kernels fill, and how far other kernels are with them; zero before.
struct DeflateCounts {
    u32 places, regions, entries, rounds, tables, measured, emitted;
    u32 reserved[9];
};

struct DeflatePlaceFound {
    u32 frame, position;
};

static_assert(sizeof(DeflateRegion) == 40 && sizeof(DeflateEntry) == 28 && sizeof(DeflateRound) == 136 &&
              sizeof(DeflateState) == 8 && sizeof(DeflateCounts) == 64 && sizeof(DeflatePlaceFound) == 8,
              "as cuda.rs counts them");

/// The lists in scratch memory. `Tables` in codec/deflate/split/cuda.rs.
struct DeflateSplit {
    DeflateCounts* counts;
    DeflateState* states;
    DeflateRegion* regions;
    u32* listed;  // regions
    DeflatePlaceFound* places;
    DeflateEntry* entries;
    DeflateRound* rounds;
    u32* tables;
    u64* skipped;      // what the engine that copies takes for a frame's status: not zero unless the frame goes this way
    u64* matches;          // see `lz_match`
    u32* match_counts;     // of each frame
    u32 most_places, most_entries, most_rounds, most_tables;
    u32 entry_rounds;  // of an entry, at most
    u32 inside_slots;  // one slot of so many may have a beginning inside a block
};

// A frame's entry in the table: first_stream and streams number its slots and, behind them, its first region;
// work_offset is the number of its first sequence, block_bytes how many it has room for.

CUZARR_DEVICE u32 deflate_slot(u32 position) { return (position & ~CUZARR_DEFLATE_INSIDE) / CUZARR_DEFLATE_SLOT_BITS; }

/// Returns the region that begins at `position`, inside a block or not; none if there is no such region.
CUZARR_DEVICE u32 deflate_region_at(const DeflateSplit& split, const Frame& frame, u32 position) {
    u32 slot = deflate_slot(position);
    if (slot + 1 >= frame.streams) return CUZARR_DEFLATE_NONE;
    u32 region = (u32)frame.first_stream + slot;
    return split.regions[region].start == position ? region : CUZARR_DEFLATE_NONE;
}

/// Returns the next place behind `position` at which a region begins inside a block, if it is near; else none.
CUZARR_DEVICE u32 deflate_next_inside(const DeflateSplit& split, const Frame& frame, u32 position) {
    u32 first = (u32)frame.first_stream, region = (first + deflate_slot(position)) / split.inside_slots * split.inside_slots;
    for (u32 i = 0; i < 2; ++i, region += split.inside_slots) {
        if (region < first || region + 1 >= first + frame.streams) continue;
        u32 start = split.regions[region].start, place = start & ~CUZARR_DEFLATE_INSIDE;
        if (start != CUZARR_DEFLATE_NONE && place != start && place > position) return place;
    }
    return CUZARR_DEFLATE_NONE;
}

/// Takes the next number of a list that warps share.
CUZARR_DEVICE u32 deflate_take(u32* taken, u32 lane) {
    u32 number = lane == 0 ? atomic_add(taken, 1u) : 0;
    return warp_shuffle(CUZARR_ALL_LANES, number, 0u);
}

/// Whether a dynamic block could begin, by its first 17 bits and the lengths of the code that describes its codes,
/// which must use up all words. `quarters` holds the share of four lengths.
CUZARR_DEVICE bool deflate_could_begin(const u8* quarters, u32 w0, u32 w1, u32 w2) {
    u32 lengths = 4 + (w0 >> 13 & 15);
    u64 bits = funnel_shift_right(w0, w1, w2, 17);
    bits &= (1ull << 3 * lengths) - 1;
    u32 used = 0;
#pragma unroll
    for (u32 i = 0; i < 60; i += 12) used += quarters[bits >> i & 4095];
    return used == 128;
}

/// Returns the share of four lengths of 3 bits, in 128ths of all words. It saturates.
CUZARR_DEVICE u8 deflate_quarter(u32 bits) {
    u32 used = 0;
    for (u32 i = 0; i < 12; i += 3) {
        u32 length = bits >> i & 7;
        used += length ? 128u >> length : 0;
    }
    return (u8)min_of(used, 255);
}

/// Whether a dynamic block begins at `position`: reads its header as `deflate_dynamic` does, by one thread.
CUZARR_DEVICE bool deflate_begins(const DeflateInput& input, u32 position) {
    u32 head = deflate_peek(deflate_seek(input, position + 3));
    u32 literals = 257 + (head & 31), count = literals + 1 + (head >> 5 & 31), told = 4 + (head >> 10 & 15);
    DeflateBits bits = deflate_seek(input, position + 17);
    // Lengths of the 19 symbols, 3 bits each.
    u64 lengths = 0;
    for (u32 i = 0; i < told; ++i) {
        u32 symbol = i < 3 ? 16 + i : i == 3 ? 0 : i % 2 ? 7 - (i - 5) / 2 : 8 + (i - 4) / 2;
        lengths |= (u64)(deflate_peek(bits) & 7) << 3 * symbol;
        deflate_skip(input, bits, 3);
    }
    // Symbols by length, 5 bits each; limits as in DeflateCode, of words of 7 bits.
    u64 sorted[2] = {0, 0};
    u32 limits[7], used = 0, codes = 0;
#pragma unroll
    for (u32 l = 1; l <= 7; ++l) {
        for (u32 symbol = 0; symbol < 19; ++symbol) {
            if ((lengths >> 3 * symbol & 7) != l) continue;
            sorted[codes / 12] |= (u64)symbol << codes % 12 * 5;
            ++codes, used += 128u >> l;
        }
        limits[l - 1] = used << 16 | codes;
    }
    if (used != 128) return false;
    u32 last = 0, end_length = 0, all = 1u << CUZARR_DEFLATE_MOST_BITS, literal_words = 0, distance_words = 0, distances = 0;
    for (u32 at = 0; at < count;) {
        u32 window = deflate_peek(bits), sought = reverse_bits(window) >> 25 << 16 | 0xffffu, shorter = 0, start = 0;
#pragma unroll
        for (u32 l = 0; l < 7; ++l) {
            if (sought >= limits[l]) ++shorter, start = limits[l];
        }
        if (shorter > 6) return false;
        u32 index = (start & 0xffffu) + (((sought >> 16) - (start >> 16)) >> (6 - shorter)), length = shorter + 1;
        u32 symbol = (u32)(sorted[index / 12] >> index % 12 * 5) & 31;
        u32 repeats = 1, value = symbol;
        if (symbol >= 16) {
            u32 extra = symbol == 16 ? 2 : symbol == 17 ? 3 : 7;
            repeats = (symbol == 18 ? 11 : 3) + (window >> length & ((1u << extra) - 1));
            value = symbol == 16 ? last : 0;
            if (symbol == 16 && at == 0) return false;
            length += extra;
        }
        if (repeats > count - at || bits.position >= input.end) return false;
        u32 words = value ? all >> value : 0, to_literals = at < literals ? min_of(repeats, literals - at) : 0;
        literal_words += words * to_literals, distance_words += words * (repeats - to_literals);
        if (value) distances += repeats - to_literals;
        if (at <= 256 && at + repeats > 256) end_length = value;
        if (literal_words > all || distance_words > all) return false;
        last = value, at += repeats;
        deflate_skip(input, bits, length);
    }
    bool one_distance = distances == 0 || (distances == 1 && distance_words == all / 2);
    return end_length && literal_words == all && (distance_words == all || one_distance);
}

/// Returns a place behind `position` where a symbol of the fixed codes begins, if a block of them is there: a decoder
/// that begins anywhere falls into step, and then only symbols may follow. Returns none if that is not so.
CUZARR_DEVICE u32 deflate_inside(const DeflateInput& input, u32 position) {
    u32 in_step = position + CUZARR_DEFLATE_STEP_BITS, end = in_step + CUZARR_DEFLATE_CHECKED_BITS;
    if (position < input.begin || end >= input.end) return CUZARR_DEFLATE_NONE;
    DeflateBits bits = deflate_seek(input, position);
    while (bits.position < end) {
        u32 window = deflate_peek(bits), entry = deflate_fixed_literal(window), used = entry & 15;
        bool literal = entry & CUZARR_DEFLATE_LITERAL, special = entry & CUZARR_DEFLATE_SPECIAL, symbol = true;
        if (special) {
            // Behind the end of a block, another block of the fixed codes must follow.
            symbol = (entry >> 8 & 0xffff) == 256 && (window >> 8 & 3) == 1;
            used += 3;
        } else if (!literal) {
            used += entry >> 4 & 15;
            u32 second = deflate_fixed_distance(window >> used);
            symbol = !(second & CUZARR_DEFLATE_SPECIAL);
            used += 5 + (second >> 4 & 15);
        }
        if (!symbol && bits.position >= in_step) return CUZARR_DEFLATE_NONE;
        deflate_skip(input, bits, symbol ? used : 1);
    }
    return bits.position;
}
