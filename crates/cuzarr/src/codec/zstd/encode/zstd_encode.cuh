// The data that the kernels of zstd encoding hand to each other.
#pragma once
#include "codec/batch/encode/encoded.cuh"
#include "codec/lz/find/lz_find.cuh"
#include "codec/zstd/fse.cuh"
#include "codec/zstd/zstd.cuh"

/// Counters of a block: its literals by the stream that they go to, then the codes of literal lengths, offsets and match
/// lengths.
#define CUZARR_ZSTD_STREAMS 4u
#define CUZARR_ZSTD_BYTES 256u
#define CUZARR_ZSTD_CODES 64u
#define CUZARR_ZSTD_COUNTERS 1216u
static_assert(CUZARR_ZSTD_COUNTERS == CUZARR_ZSTD_STREAMS * CUZARR_ZSTD_BYTES + 3 * CUZARR_ZSTD_CODES, "counters of a block");
/// From this many literals on, there are four streams; otherwise one.
#define CUZARR_ZSTD_FOUR_STREAMS 256u
/// Minimum number of literals for which a tree is worth it.
#define CUZARR_ZSTD_LEAST_TREE 48u

/// 1024 times the binary logarithm of 1 to 65535, with an error of at most 8: chords, and a parabola above them.
CUZARR_DEVICE u32 log_1024(u32 value) {
    u32 log = 31 - count_leading_zeros(value), part = ((value - (1u << log)) << 10) >> log;
    return 1024 * log + part + (part * (1024 - part) >> 10) * 352 / 1024;
}

/// A record is a sequence that is ready to be written: the codes of its literals' length (6 bits), match length (6) and
/// offset (6), then the extra bits of these codes, in this order.
#define CUZARR_ZSTD_EXTRA_AT 18u
CUZARR_DEVICE u32 record_shift(u32 kind) { return kind == 0 ? 0 : kind == 1 ? 12 : 6; }
CUZARR_DEVICE u32 record_code(u64 record, u32 kind) { return (u32)record >> record_shift(kind) & 63; }
CUZARR_DEVICE u32 record_extra_bits(u64 record) {
    return ZSTD_LITERAL_LENGTH_EXTRA[record_code(record, 0)] + ZSTD_MATCH_LENGTH_EXTRA[record_code(record, 2)] + record_code(record, 1);
}

/// Packs the bits that a state gives up, and their number.
CUZARR_DEVICE u32 state_bits(u32 bits, u32 count) { return bits | count << 12; }

/// Maximum bytes of the description of a Huffman code, and of a table of sequences.
#define CUZARR_ZSTD_TREE_BYTES 132u
#define CUZARR_ZSTD_TABLE_BYTES 92u

/// The tables of a block, as they are used to encode.
struct ZstdCodes {
    u16 cells[CUZARR_ZSTD_LOGS_AT];       // of a symbol's states, from the first on: the state behind; zstd_table_at
    u32 symbols[3 * CUZARR_ZSTD_CODES];   // encoding_symbol
    u16 words[CUZARR_ZSTD_BYTES];         // of bytes: Huffman code | its bits << 12
    u8 tree[CUZARR_ZSTD_TREE_BYTES];
    u8 tables[3 * CUZARR_ZSTD_TABLE_BYTES];  // one behind the other
};

/// Packs how a symbol is encoded from a state, which is at least 2^log. It takes `most` bits, or one less if the state
/// is below `limit`. The rest of the state, with an offset, is the number of its cell.
CUZARR_DEVICE u32 encoding_symbol(u32 log, u32 count, u32 first) {
    u32 most = log - (31 - count_leading_zeros(count)), limit = count << most;
    return limit | most << 11 | (first + CUZARR_FSE_STATES - count) << 15;
}

/// Returns the first of a symbol's states. A chain that begins with it takes no bits.
CUZARR_DEVICE u32 first_state(const u16* cells, u32 symbol) {
    return cells[(symbol >> 15) + ((symbol & 0x7ff) >> (symbol >> 11 & 15)) - CUZARR_FSE_STATES];
}
/// Encodes a symbol, changes the state, and returns `state_bits`.
CUZARR_DEVICE u32 encode_state(const u16* cells, u32 symbol, u32* state) {
    u32 before = *state, bits = (symbol >> 11 & 15) - (before < (symbol & 0x7ff) ? 1 : 0);
    *state = cells[(symbol >> 15) + (before >> bits) - CUZARR_FSE_STATES];
    return state_bits(before & ((1u << bits) - 1), bits);
}

/// The kinds of a block.
#define CUZARR_ZSTD_BLOCK_RAW 0u
#define CUZARR_ZSTD_BLOCK_RLE 1u
#define CUZARR_ZSTD_BLOCK_CODED 2u

struct ZstdMade {
    u32 sequences, literals;
    u32 extra_bits;                          // of all sequences
    u32 is_run;                              // whether all its bytes are the same
    u32 literals_kind;                       // CUZARR_ZSTD_RAW, RLE, HUFFMAN
    u32 tree_bytes;
    u32 stream_bytes[CUZARR_ZSTD_STREAMS];   // the first alone when there are few literals
    u32 modes, tables_bytes;
    u32 logs[3];                             // 0 of a table of one symbol
    u32 state_bits[3];                       // of all sequences, those of the last states included
    u32 last_states[3];
    u32 kind;                                // CUZARR_ZSTD_BLOCK_CODED and so on
    u32 bytes;                               // of its content
    u32 at;                                  // where its header goes, in the frame
};

#define CUZARR_ZSTD_MADE_BYTES 96u
#define CUZARR_ZSTD_CODES_BYTES 4248u
static_assert(sizeof(ZstdMade) == CUZARR_ZSTD_MADE_BYTES && sizeof(ZstdCodes) == CUZARR_ZSTD_CODES_BYTES, "as the host counts them");

/// The arguments of the kernels: `ZstdTask` in codec/zstd/encode/cuda.rs.
struct ZstdEncode {
    const u8* src;
    const LzFoundBlock* counts;
    u64* records;            // LzFound first
    u8* literals;
    u16* states;             // of the three kinds, one behind the other
    u16* counters;
    ZstdCodes* codes;
    ZstdMade* made;
    EncodedFrame* frames;
    u8* out;
    LzBlocks blocks;
    u32 literal_stride;      // of a block, in bytes
    u32 checksum;            // whether frames end with one
};
static_assert(sizeof(ZstdEncode) == 120, "as the host writes it");

CUZARR_DEVICE const u8* block_src(const ZstdEncode& task, u32 block) {
    return task.src + block / task.blocks.chunk_blocks * task.blocks.stride + block_begin(task.blocks, block);
}
CUZARR_DEVICE u32 stream_count(u32 literals) { return literals < CUZARR_ZSTD_FOUR_STREAMS ? 1 : CUZARR_ZSTD_STREAMS; }
/// Number of literals of each stream but the last.
CUZARR_DEVICE u32 stream_literals(u32 literals) { return (literals + stream_count(literals) - 1) / stream_count(literals); }
/// Bytes of the header of a block's literals.
CUZARR_DEVICE u32 literals_header_bytes(u32 kind, u32 literals, u32 coded) {
    if (kind != CUZARR_ZSTD_HUFFMAN) return literals < 32 ? 1 : literals < 4096 ? 2 : 3;
    u32 most = literals > coded ? literals : coded;
    return most < 1024 ? 3 : most < 16384 ? 4 : 5;
}
/// Bytes of a block's literals behind their header.
CUZARR_DEVICE u32 literals_bytes(const ZstdMade& made) {
    if (made.literals_kind == CUZARR_ZSTD_RAW) return made.literals;
    if (made.literals_kind == CUZARR_ZSTD_RLE) return 1;
    u32 sum = made.tree_bytes + (stream_count(made.literals) == 1 ? 0 : 6);
    for (u32 i = 0; i < stream_count(made.literals); ++i) sum += made.stream_bytes[i];
    return sum;
}
/// Bytes that say how many sequences there are, and how their tables are described.
CUZARR_DEVICE u32 sequences_header_bytes(u32 sequences) {
    return sequences == 0 ? 1 : sequences < 128 ? 2 : 3;
}
CUZARR_DEVICE u32 frame_header_bytes(u32 chunk_bytes) { return chunk_bytes < 256 ? 6 : chunk_bytes <= 65536 ? 7 : 10; }
