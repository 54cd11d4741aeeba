// zstd, third pass: the sequences of all blocks, into scratch, one lane a block.
//
// A block's stream cannot be entered in the middle (states never meet again), so its sequences come one after the other, and
// a batch takes as long as its longest block. What stands between two sequences: three looks into tables (30 cycles), the sum
// of their bits, a shift, a mask and an addition, about 90 cycles. Everything else (lengths, offsets, the loads of further
// bits, the store) waits aside.
//
//     entry of each state -> bits of all -> shift, mask, add -> next states
//
// While few blocks are there, each has a warp of its own. Of many, four or eight share one: what bounds then is the number of
// instructions, and one serves all lanes. The order of the list keeps blocks of about the same length together.
//
// Repeat offsets stay symbolic where they come from the block before (see ZSTD_SYMBOLIC), as DirectStorage's zstd decoder has
// them (MIT). Format: RFC 8878, sections 3.1.1.3.2.1 and 3.1.1.5.
#include "cuzarr/bit_window.cuh"
#include "cuzarr/zstd.cuh"

CUZARR_CONSTANT(u32, LITERAL_LENGTH_BASE, 36) = {0,  1,  2,  3,  4,  5,  6,  7,   8,   9,   10,   11,
                                                 12, 13, 14, 15, 16, 18, 20, 22,  24,  28,  32,   40,
                                                 48, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};
/// Less 3, as sequences are kept.
CUZARR_CONSTANT(u32, MATCH_LENGTH_BASE, 53) = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,   10,  11,  12,  13,   14,   15,   16,   17,
                                               18, 19, 20, 21, 22, 23, 24, 25, 26, 27,  28,  29,  30,  31,   32,   34,   36,   38,
                                               40, 44, 48, 56, 64, 80, 96, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};

struct LengthBases {
    u32 literals[36], matches[53];
};

/// Decodes a block's sequences into `to`, with the tables at `tables` in shared memory; returns the damage.
CUZARR_DEVICE u32 decode_sequences(
    const u8* src, u32 size, const u32* tables, const u32 logs[3], const LengthBases& bases, u32 count, u32 literal_bytes,
    u64* to, ZstdResult& result
) {
    BitWindow window;
    if (!window_open(window, src, size)) return CUZARR_ZSTD_BAD_BITS;
    u32 states[3];
    for (u32 kind = 0; kind < 3; ++kind) {
        states[kind] = window_peek(window.top, logs[kind]);
        window_take(window, logs[kind]);
    }
    u32 literal = states[0], offset = states[1], match = states[2];
    u32 first = CUZARR_ZSTD_SYMBOLIC, second = first | 1u << 26, third = first | 2u << 26;
    u32 out = 0, literals = 0, state_bits = 0;
    for (u32 index = 0; index < count; ++index) {
        u32 by_literal = tables[literal], by_offset = tables[CUZARR_ZSTD_OFFSETS_AT + offset];
        u32 by_match = tables[CUZARR_ZSTD_MATCHES_AT + match];
        u32 all = zstd_all_bits(by_literal) + zstd_all_bits(by_offset) + zstd_all_bits(by_match);
        u32 offset_extra = zstd_extra(by_offset), match_extra = zstd_extra(by_match);
        u64 top = window.top;
        u32 literal_bits = zstd_state_bits(by_literal), match_bits = zstd_state_bits(by_match);
        u32 offset_bits = zstd_state_bits(by_offset);
        // The bits of the next states lie lowest of all, those of the offset's last.
        u32 low;
        if (all < 64) {
            low = (u32)(top >> 1 >> (63 - all));
            window_take(window, all);
        } else {
            u32 below = all - 64;
            low = (u32)(top << below | window.behind >> 1 >> (63 - below));
            window_take_many(window, all);
        }
        offset = zstd_next(by_offset) + (low & ((1u << offset_bits) - 1));
        low >>= offset_bits;
        match = zstd_next(by_match) + (low & ((1u << match_bits) - 1));
        low >>= match_bits;
        literal = zstd_next(by_literal) + (low & ((1u << literal_bits) - 1));
        state_bits = literal_bits + match_bits + offset_bits;

        u32 value = (1u << offset_extra) + window_peek(top, offset_extra);
        top <<= offset_extra;
        u32 match_less_3 = bases.matches[zstd_symbol(by_match)] + window_peek(top, match_extra);
        top <<= match_extra;
        u32 run = bases.literals[zstd_symbol(by_literal)] + window_peek(top, zstd_extra(by_literal));
        // Which of the last offsets: 0 to 2, and 3 for the first less one; or a new one.
        bool fresh = value > 3;
        u32 which = fresh ? 3 : value - 1 + (run == 0);
        u32 back = value - 3 < CUZARR_ZSTD_FAR ? value - 3 : CUZARR_ZSTD_FAR;
        if (!fresh) back = which == 0 ? first : which == 1 ? second : which == 2 ? third : zstd_less(first, 1);
        third = which >= 2 ? second : third;
        second = which >= 1 ? first : second;
        first = back;
        to[index] = zstd_sequence(run, match_less_3, back);
        literals += run;
        out += run + match_less_3 + 3;
        if (out > CUZARR_ZSTD_BLOCK_BYTES) return CUZARR_TOO_LONG;
    }
    // Behind the last sequence no state follows.
    if (window.at + (i32)state_bits != window.begin) return CUZARR_ZSTD_BAD_BITS;
    if (literals > literal_bytes) return CUZARR_CUT_OFF;
    out += literal_bytes - literals;
    if (out > CUZARR_ZSTD_BLOCK_BYTES) return CUZARR_TOO_LONG;
    result.out_bytes = out;
    result.repeats_out[0] = first, result.repeats_out[1] = second, result.repeats_out[2] = third;
    return CUZARR_INTACT;
}

template <u32 BLOCKS>
CUZARR_DEVICE void sequences_of(const ZstdTask& task, u32* space, LengthBases& bases) {
    u32 lane = thread_index();
    for (u32 i = lane; i < 53; i += CUZARR_WARP) {
        bases.matches[i] = MATCH_LENGTH_BASE[i];
        if (i < 36) bases.literals[i] = LITERAL_LENGTH_BASE[i];
    }
    u32 groups = (task.with_sequences_count + BLOCKS - 1) / BLOCKS;
    for (u32 group = block_index(); group < groups; group += block_count()) {
        u32 logs[3] = {0, 0, 0};
        bool ready = false;
        for (u32 i = 0; i < BLOCKS && group * BLOCKS + i < task.with_sequences_count; ++i) {
            u32 index = task.with_sequences[group * BLOCKS + i];
            const ZstdBlock& block = task.blocks[index];
            if (zstd_is_damaged(task, block.unit)) continue;
            u32* part = space + i * CUZARR_ZSTD_LOGS_AT;
            bool known = true;
            for (u32 kind = 0; kind < 3; ++kind) {
                const u32* slot = task.tables + (u64)block.tables[kind] * CUZARR_ZSTD_TABLE_WORDS;
                u32 log = slot[CUZARR_ZSTD_LOGS_AT + kind], at = zstd_table_at(kind);
                known = known && log != CUZARR_ZSTD_NO_TABLE;
                u32 size = log == CUZARR_ZSTD_NO_TABLE ? 0 : 1u << log;
                for (u32 entry = lane; entry < size; entry += CUZARR_WARP) part[at + entry] = slot[at + entry];
                if (lane == i) logs[kind] = log;
            }
            if (lane == i) ready = known;
        }
        warp_barrier(CUZARR_ALL_LANES);
        if (ready) {
            u32 index = task.with_sequences[group * BLOCKS + lane];
            const ZstdBlock& block = task.blocks[index];
            ZstdResult& result = task.results[index];
            const u8* src = task.src + block.src + block.sequences_at + result.tables_bytes;
            u32 size = block.src_bytes - block.sequences_at - result.tables_bytes;
            u64* to = task.sequences + block.first_sequence;
            const u32* tables = space + lane * CUZARR_ZSTD_LOGS_AT;
            u32 damage =
                decode_sequences(src, size, tables, logs, bases, block.sequences, block.literal_bytes, to, result);
            if (damage) zstd_report(task, block, damage);
        }
        warp_barrier(CUZARR_ALL_LANES);
    }
}

#define CUZARR_ZSTD_SEQUENCES(BLOCKS)                                       \
    CUZARR_KERNEL(zstd_sequences_##BLOCKS, const ZstdTask task) {           \
        CUZARR_SHARED(u32, space, BLOCKS * CUZARR_ZSTD_LOGS_AT);            \
        CUZARR_SHARED(LengthBases, bases, 1);                               \
        sequences_of<BLOCKS>(task, space, *bases);                          \
    }

CUZARR_ZSTD_SEQUENCES(1)
CUZARR_ZSTD_SEQUENCES(4)
CUZARR_ZSTD_SEQUENCES(8)
