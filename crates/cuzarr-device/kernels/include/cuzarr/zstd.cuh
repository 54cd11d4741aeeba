// What the kernels of zstd share: the tables that the host makes of frames' and blocks' headers
// (crates/cuzarr/src/codec/zstd/scan.rs), and the scratch they hand on.
//
// A unit is what metadata calls one chunk: frames, one behind the other. Blocks are numbered through over all units, those
// that decode to nothing left out. Sizes in the tables were checked against each other and against the units' places; what
// the streams themselves say is checked here.
#pragma once
#include "cuzarr/status.cuh"

#define CUZARR_ZSTD_BLOCK_BYTES (128u << 10)

struct ZstdUnit {
    u64 src, dst;          // where its bytes begin, in source and target
    u32 src_bytes, dst_bytes;
    u32 first_frame, frames;
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
/// Of sequences' tables: as RFC 8878, section 3.1.1.3.2.1 numbers them.
#define CUZARR_ZSTD_PREDEFINED 0u
#define CUZARR_ZSTD_CODED 2u
#define CUZARR_ZSTD_REPEAT 3u

/// A block, or what is left of it: raw and RLE blocks are literals without sequences.
struct ZstdBlock {
    u64 src;               // where its content begins, in the source
    u64 literals;          // where its literals go, in scratch
    u64 first_sequence;    // in scratch
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
    u32 reserved;
};
static_assert(sizeof(ZstdUnit) == 32 && sizeof(ZstdFrame) == 32 && sizeof(ZstdBlock) == 80, "as table.rs writes them");

/// What kernels find out about a block.
struct ZstdResult {
    u32 out_bytes;         // decoded, when it has sequences
    u32 tree_bytes;        // of the description of its Huffman code
    u32 tables_bytes;      // of those of its sequences' tables; ~0 when they are damaged
    u32 repeats_out[3];    // repeat offsets behind it, see ZSTD_SYMBOLIC
    u32 out_at;            // where it goes, from its unit's beginning
    u32 frame_at;          // where its frame goes
    u32 repeats_in[3];
    u32 reserved;
};
static_assert(sizeof(ZstdResult) == 48, "as table.rs counts them");

/// A slot of Huffman tables: 2^bits entries `symbol | bits << 8`, and at the end `bits`, 0 when the table is damaged.
#define CUZARR_ZSTD_TREE_BITS 11u
#define CUZARR_ZSTD_TREE_WORDS ((1u << CUZARR_ZSTD_TREE_BITS) / 2 + 4)

/// A slot of sequences' tables: entries for literal lengths, offsets and match lengths, then the three tables' logs;
/// CUZARR_ZSTD_NO_TABLE for what is not there.
#define CUZARR_ZSTD_OFFSETS_AT 512u
#define CUZARR_ZSTD_MATCHES_AT 768u
#define CUZARR_ZSTD_LOGS_AT 1280u
#define CUZARR_ZSTD_TABLE_WORDS 1284u
#define CUZARR_ZSTD_NO_TABLE 255u

/// Where the entries of a kind of table begin in its slot. 0 literal lengths, 1 offsets, 2 match lengths.
CUZARR_DEVICE u32 zstd_table_at(u32 kind) {
    return kind == 0 ? 0 : kind == 1 ? CUZARR_ZSTD_OFFSETS_AT : CUZARR_ZSTD_MATCHES_AT;
}

/// An entry of a sequences' table, everything that its state says: what to add the next state's bits to (9 bits), the symbol
/// (6), how many bits the symbol takes itself (5), how many the next state takes (4), and their sum (8).
CUZARR_DEVICE u32 zstd_entry(u32 next, u32 symbol, u32 extra, u32 bits) {
    return next | symbol << 9 | extra << 15 | bits << 20 | (extra + bits) << 24;
}
CUZARR_DEVICE u32 zstd_next(u32 entry) { return entry & 511; }
CUZARR_DEVICE u32 zstd_symbol(u32 entry) { return entry >> 9 & 63; }
CUZARR_DEVICE u32 zstd_extra(u32 entry) { return entry >> 15 & 31; }
CUZARR_DEVICE u32 zstd_state_bits(u32 entry) { return entry >> 20 & 15; }
CUZARR_DEVICE u32 zstd_all_bits(u32 entry) { return entry >> 24; }

/// A sequence in scratch: the literals' length (17 bits), the match's less 3 (17), its offset (30).
///
/// Until the blocks before are known, an offset may be one of the three repeat offsets that the block began with, less a
/// number: SYMBOLIC, which one (2 bits), the number (26).
#define CUZARR_ZSTD_SYMBOLIC (3u << 28)
/// Numbers that are real: what is further back is before the beginning of every unit that kernels take.
#define CUZARR_ZSTD_FAR (CUZARR_ZSTD_SYMBOLIC - 1)

CUZARR_DEVICE u64 zstd_sequence(u32 literals, u32 match_less_3, u32 offset) {
    return (u64)offset << 34 | (u64)match_less_3 << 17 | literals;
}
CUZARR_DEVICE u32 zstd_literals(u64 sequence) { return (u32)sequence & 0x1ffff; }
CUZARR_DEVICE u32 zstd_match(u64 sequence) { return ((u32)(sequence >> 17) & 0x1ffff) + 3; }
CUZARR_DEVICE u32 zstd_offset(u64 sequence) { return (u32)(sequence >> 34); }

/// An offset less a number; 0, which no match has, when it is not larger.
CUZARR_DEVICE u32 zstd_less(u32 offset, u32 number) {
    if (offset >= CUZARR_ZSTD_SYMBOLIC) return offset + number;
    return offset > number ? offset - number : 0;
}

/// What an offset is when the block began with these.
CUZARR_DEVICE u32 zstd_resolve(u32 offset, u32 first, u32 second, u32 third) {
    if (offset < CUZARR_ZSTD_SYMBOLIC) return offset;
    u32 slot = offset >> 26 & 3;
    return zstd_less(slot == 0 ? first : slot == 1 ? second : third, offset & ((1u << 26) - 1));
}

/// All that the kernels work on. `ZstdTask` in cuda.rs.
struct ZstdTask {
    const u8* src;
    u8* dst;
    const ZstdUnit* units;
    const ZstdFrame* frames;
    const ZstdBlock* blocks;
    const u32* with_tree;      // blocks that describe a Huffman code
    const u32* with_sequences; // blocks that have sequences, those with many first
    ZstdResult* results;
    u8* literals;
    u64* sequences;
    u32* trees;
    u32* tables;
    u64* statuses;
    u32 unit_count, frame_count, block_count, with_tree_count, with_sequences_count, reserved;
};

/// Records damage of a block, at its beginning.
CUZARR_DEVICE void zstd_report(const ZstdTask& task, const ZstdBlock& block, u32 damage) {
    report(task.statuses, block.unit, damage, (u32)(block.src - task.units[block.unit].src));
}

/// Whether something was reported of a unit: the same for all lanes, though others may be reporting.
CUZARR_DEVICE bool zstd_is_damaged(const ZstdTask& task, u32 unit) {
    return warp_shuffle(CUZARR_ALL_LANES, task.statuses[unit] != 0 ? 1u : 0u, 0u) != 0;
}
