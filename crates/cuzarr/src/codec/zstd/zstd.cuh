// Shared by the kernels of zstd: the tables that the host makes from the headers of frames and blocks
// (crates/cuzarr/src/codec/zstd/scan.rs), and the scratch that kernels hand on.
//
// A unit holds one chunk: frames, one behind the other. Blocks are numbered over all units; blocks that decode to
// nothing are left out. The host has checked the sizes in the tables against each other and against the units' ranges.
// Kernels check the contents of the streams.
#pragma once
#include "codec/lz/lz_sequences.cuh"
#include "codec/zstd/zstd_damage.cuh"

#define CUZARR_ZSTD_BLOCK_BYTES (128u << 10)

struct ZstdUnit {
    u64 src, dst;          // where its bytes begin, in source and target
    u64 literals;          // where its blocks' literals begin, in scratch
    u64 first_bundle;      // and its bundles of sequences
    u32 src_bytes, dst_bytes;
    u32 first_frame, frames;
    u32 bundles, reserved;
};

#define CUZARR_ZSTD_UNKNOWN (~0ull)

struct ZstdFrame {
    u64 content_bytes;     // CUZARR_ZSTD_UNKNOWN when the header does not say
    u64 checksum;          // where in the source its checksum lies; CUZARR_ZSTD_UNKNOWN without
    u32 unit, at;          // where in the unit it begins
    u32 first_block, blocks;
};

#define CUZARR_ZSTD_RAW 0u
#define CUZARR_ZSTD_RLE 1u
#define CUZARR_ZSTD_HUFFMAN 2u
/// The kinds of sequences' tables, numbered as in RFC 8878, section 3.1.1.3.2.1.
#define CUZARR_ZSTD_PREDEFINED 0u
#define CUZARR_ZSTD_CODED 2u
#define CUZARR_ZSTD_REPEAT 3u

/// A block. Raw and RLE blocks are literals without sequences.
struct ZstdBlock {
    u64 src;               // where its content begins, in the source
    u64 literals;          // where its literals go, in scratch, unless they are taken from the source
    u64 first_sequence;    // in scratch: a bundle's first
    u32 src_bytes;
    u32 unit;
    u8 literals_kind;      // CUZARR_ZSTD_RAW, RLE, HUFFMAN
    u8 streams;            // of Huffman codes: 1 or 4
    u8 own_tree;           // whether a description of the Huffman code stands in front of them
    u8 modes;              // of the sequences' tables, as stored
    u32 literal_bytes;     // decoded
    u32 literals_at;       // in the content
    u32 literals_src_bytes;
    u32 sequences;
    u32 sequences_at;      // of what follows the modes, in the content
    u32 tree;              // slot of its Huffman table
    u32 own_tables;        // slot that its descriptions of sequences' tables are built in
    u32 tables[3];         // slots of its tables for literal lengths, offsets and match lengths
    u32 most_bytes;        // that it may decode to, by its frame's window
};
static_assert(sizeof(ZstdUnit) == 56 && sizeof(ZstdFrame) == 32 && sizeof(ZstdBlock) == 80, "as table.rs writes them");

/// What kernels have found out about a block.
struct ZstdResult {
    u32 out_bytes;         // decoded, when it has sequences
    u32 tree_bytes;        // of the description of its Huffman code
    u32 tables_bytes;      // of those of its sequences' tables; ~0 when they are damaged
    u32 repeats_out[3];    // repeat offsets behind it, see ZSTD_SYMBOLIC
    u32 out_at;            // where it goes, from its unit's beginning
    u32 frame_at;          // where its frame goes
    u32 repeats_in[3];
    u32 tail;              // literals behind its last sequence
};
static_assert(sizeof(ZstdResult) == 48, "as table.rs counts them");

/// A slot of Huffman tables: 2^bits entries `symbol | bits << 8`, and at the end `bits`, 0 when the table is damaged.
#define CUZARR_ZSTD_TREE_BITS 11u
#define CUZARR_ZSTD_TREE_WORDS ((1u << CUZARR_ZSTD_TREE_BITS) / 2 + 4)

/// A slot of sequences' tables: entries for literal lengths, offsets and match lengths, then the logs of the three
/// tables; CUZARR_ZSTD_NO_TABLE for a missing table.
#define CUZARR_ZSTD_OFFSETS_AT 512u
#define CUZARR_ZSTD_MATCHES_AT 768u
#define CUZARR_ZSTD_LOGS_AT 1280u
#define CUZARR_ZSTD_TABLE_WORDS 1284u
#define CUZARR_ZSTD_NO_TABLE 255u

/// Where the entries of a kind of table begin in its slot. Kinds are 0 literal lengths, 1 offsets, 2 match lengths.
CUZARR_DEVICE u32 zstd_table_at(u32 kind) {
    return kind == 0 ? 0 : kind == 1 ? CUZARR_ZSTD_OFFSETS_AT : CUZARR_ZSTD_MATCHES_AT;
}

/// Number of bits that follow a code, and with it make a length.
CUZARR_CONSTANT(u8, ZSTD_LITERAL_LENGTH_EXTRA, 36) = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0,  0,  0,  0,  0,  1,  1,
                                                 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
CUZARR_CONSTANT(u8, ZSTD_MATCH_LENGTH_EXTRA, 53) = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0,  0,  0,
                                               0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,  1,  1,  1,
                                               2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

/// An entry of a sequences' table, with everything that its state says. From the lowest bit on: the number of bits of
/// the next state (5 bits), the symbol (6), two unused bits, the number that the next state's bits are added to (9),
/// two unused bits, and a share less the bits of symbol and next state together (8). The shares of the three kinds add
/// up to 64. So the highest byte of the sum of three entries is how many of 64 bits a sequence leaves; it is negative
/// if the sequence takes more.
CUZARR_DEVICE u32 zstd_entry(u32 kind, u32 next, u32 symbol, u32 extra, u32 bits) {
    u32 share = kind == 1 ? 22 : 21;
    return bits | symbol << 5 | next << 13 | (share - extra - bits) << 24;
}
/// The bits of 64 that a sequence leaves, from the sum of its entries.
CUZARR_DEVICE i32 zstd_left(u32 entries) { return (i32)entries >> 24; }
/// The number is in the lowest five bits, which is all that shifts look at.
CUZARR_DEVICE u32 zstd_state_bits(u32 entry) { return entry; }
/// Four times the number that the next state's bits are added to: its place in a table of words.
CUZARR_DEVICE u32 zstd_next_place(u32 entry) { return entry >> 11 & 0x7fc; }
CUZARR_DEVICE u32 zstd_symbol(u32 entry) { return entry >> 5 & 63; }

/// A sequence in scratch: the literals' length (17 bits), the match's length less 3 (17), its offset (30).
/// `zstd_finish` replaces it by an `lz_brief`.
///
/// Until the blocks before are known, an offset may be one of the three repeat offsets that the block began with, less
/// a number: SYMBOLIC, which one (2 bits), the number (26).
#define CUZARR_ZSTD_SYMBOLIC (3u << 28)
/// The largest real offset. Larger ones would reach before the beginning of every unit that kernels take.
#define CUZARR_ZSTD_FAR (CUZARR_ZSTD_SYMBOLIC - 1)

CUZARR_DEVICE u64 zstd_sequence(u32 literals, u32 match_less_3, u32 offset) {
    return (u64)offset << 34 | (u64)match_less_3 << 17 | literals;
}
CUZARR_DEVICE u32 zstd_literals(u64 sequence) { return (u32)sequence & 0x1ffff; }
CUZARR_DEVICE u32 zstd_match(u64 sequence) { return ((u32)(sequence >> 17) & 0x1ffff) + 3; }
CUZARR_DEVICE u32 zstd_offset(u64 sequence) { return (u32)(sequence >> 34); }

/// An offset less a number; 0, which no match has, if the offset is not larger.
CUZARR_DEVICE u32 zstd_less(u32 offset, u32 number) {
    if (offset >= CUZARR_ZSTD_SYMBOLIC) return offset + number;
    return offset > number ? offset - number : 0;
}

/// The value of an offset if the block began with these repeat offsets.
CUZARR_DEVICE u32 zstd_resolve(u32 offset, u32 first, u32 second, u32 third) {
    if (offset < CUZARR_ZSTD_SYMBOLIC) return offset;
    u32 slot = offset >> 26 & 3;
    return zstd_less(slot == 0 ? first : slot == 1 ? second : third, offset & ((1u << 26) - 1));
}

/// The change of the repeat offsets by some sequences. Each new one is a number, or an old one less a number.
struct Repeats {
    u32 first, second, third;
};

CUZARR_DEVICE Repeats zstd_unchanged() {
    return {CUZARR_ZSTD_SYMBOLIC, CUZARR_ZSTD_SYMBOLIC | 1u << 26, CUZARR_ZSTD_SYMBOLIC | 2u << 26};
}

CUZARR_DEVICE Repeats compose(const Repeats& before, const Repeats& after) {
    return {
        zstd_resolve(after.first, before.first, before.second, before.third),
        zstd_resolve(after.second, before.first, before.second, before.third),
        zstd_resolve(after.third, before.first, before.second, before.third),
    };
}

/// Gives the value of lane `from` to each lane.
CUZARR_DEVICE Repeats shuffle_repeats(const Repeats& repeats, u32 from) {
    return {
        warp_shuffle(CUZARR_ALL_LANES, repeats.first, from),
        warp_shuffle(CUZARR_ALL_LANES, repeats.second, from),
        warp_shuffle(CUZARR_ALL_LANES, repeats.third, from),
    };
}

/// Returns the change by all lanes up to each one, in their order.
CUZARR_DEVICE Repeats scan_repeats(Repeats repeats, u32 lane) {
    for (u32 step = 1; step < CUZARR_WARP; step *= 2) {
        Repeats before = shuffle_repeats(repeats, lane >= step ? lane - step : lane);
        if (lane >= step) repeats = compose(before, repeats);
    }
    return repeats;
}

/// The arguments of the kernels: `KernelTask` in cuda.rs.
struct ZstdTask {
    const u8* src;
    u8* dst;
    const ZstdUnit* units;
    const ZstdFrame* frames;
    const ZstdBlock* blocks;
    const u32* with_tree;      // blocks that describe a Huffman code
    const u32* with_literals;  // blocks whose literals have to be decoded, those with many first
    const u32* with_sequences; // blocks that have sequences, those with many first
    ZstdResult* results;
    u8* literals;
    u64* sequences;
    u32* trees;
    u32* tables;
    u64* statuses;
    LzBundle* bundles;         // of the sequences, for the engine that copies
    u32* bundle_counts;        // of each unit
    u32 unit_count, frame_count, block_count, with_tree_count, with_literals_count, with_sequences_count;
};

/// Records damage of a block, at its beginning.
CUZARR_DEVICE void zstd_report(const ZstdTask& task, const ZstdBlock& block, u32 damage) {
    report(task.statuses, block.unit, damage, (u32)(block.src - task.units[block.unit].src));
}

/// Whether damage was reported for a unit. All lanes get the same answer, though others may be reporting.
CUZARR_DEVICE bool zstd_is_damaged(const ZstdTask& task, u32 unit) {
    return warp_shuffle(CUZARR_ALL_LANES, task.statuses[unit] != 0 ? 1u : 0u, 0u) != 0;
}
