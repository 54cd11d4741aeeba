// The sequences of zstd's blocks, into scratch, one lane a block.
//
// A block's stream cannot be entered in the middle (states never meet again), so its states come one after the other, and a
// batch takes as long as its longest block. That chain is all that one lane does: three looks into tables (30 cycles), the sum
// of their bits, a shift, a mask and an addition, about 80 cycles.
//
//     entry of each state -> bits of all -> shift, mask, add -> next states
//
// It writes the states and their place into a ring in shared memory. Other warps take 32 of them at a time, a lane each, and make
// lengths and offsets of them: 64 bits from the place on hold what is needed. Which of the last offsets a sequence repeats is a
// scan over what each does to them.
//
// While few blocks are there, each has a chain's warp of its own. Of many, four or eight share one: what bounds then is the
// number of instructions, and one serves all lanes. The order of the list keeps blocks of about the same length together.
//
// Repeat offsets stay symbolic where they come from the block before (see ZSTD_SYMBOLIC), as DirectStorage's zstd decoder has
// them (MIT). Format: RFC 8878, sections 3.1.1.3.2.1 and 3.1.1.5.
#pragma once
#include "cuzarr/bit_window.cuh"
#include "cuzarr/zstd.cuh"

CUZARR_CONSTANT(u32, LITERAL_LENGTH_BASE, 36) = {0,  1,  2,  3,  4,  5,  6,  7,   8,   9,   10,   11,
                                                 12, 13, 14, 15, 16, 18, 20, 22,  24,  28,  32,   40,
                                                 48, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};
/// Less 3, as sequences are kept.
CUZARR_CONSTANT(u32, MATCH_LENGTH_BASE, 53) = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,   10,  11,  12,  13,   14,   15,   16,   17,
                                               18, 19, 20, 21, 22, 23, 24, 25, 26, 27,  28,  29,  30,  31,   32,   34,   36,   38,
                                               40, 44, 48, 56, 64, 80, 96, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};

/// Words of a block's tables in shared memory.
#define CUZARR_ZSTD_SPACE_WORDS CUZARR_ZSTD_LOGS_AT
/// Sequences that the chain is ahead: a ring has twice as many places.
#define CUZARR_ZSTD_AHEAD CUZARR_WARP
/// Pieces of 32 bytes that are asked for in front of a chain.
#define CUZARR_ZSTD_SECTORS 24u
#define CUZARR_ZSTD_MATCH_BASES_AT 64u
#define CUZARR_ZSTD_BASES_WORDS 128u

/// What the warps share about a block.
struct SequenceChain {
    const u32* words;  // of its stream, see BitWindow
    i32 last;
    u32 cut;
    u32 index;         // of the block
    u32 count;         // of its sequences; 0 when it cannot be decoded
};

/// Shared memory of a block of threads.
struct SequenceSpace {
    u32* tables;           // CUZARR_ZSTD_SPACE_WORDS a block
    u64* ring;             // 2 * CUZARR_ZSTD_AHEAD a block: the place in the stream, and the three states
    SequenceChain* chains;
    u32* bases;            // of lengths
};

/// Puts the bases of lengths where `look_up` finds them.
CUZARR_DEVICE void load_bases(u32* bases) {
    for (u32 i = thread_index(); i < 53; i += thread_count()) {
        bases[CUZARR_ZSTD_MATCH_BASES_AT + i] = MATCH_LENGTH_BASE[i];
        if (i < 36) bases[i] = LITERAL_LENGTH_BASE[i];
    }
}

/// Copies a block's tables to shared memory, by all threads; false when one of them is damaged.
CUZARR_DEVICE bool load_tables(const ZstdTask& task, const ZstdBlock& block, u32* space, u32 logs[3]) {
    bool known = true;
    for (u32 kind = 0; kind < 3; ++kind) {
        const u32* slot = task.tables + (u64)block.tables[kind] * CUZARR_ZSTD_TABLE_WORDS;
        u32 log = slot[CUZARR_ZSTD_LOGS_AT + kind], at = zstd_table_at(kind);
        known = known && log != CUZARR_ZSTD_NO_TABLE;
        u32 size = log == CUZARR_ZSTD_NO_TABLE ? 0 : 1u << log;
        for (u32 entry = thread_index(); entry < size; entry += thread_count()) space[at + entry] = slot[at + entry];
        logs[kind] = log;
    }
    return known;
}

/// Entries of three states in the tables at `tables`.
struct SequenceEntries {
    u32 literal, offset, match;
};

CUZARR_DEVICE SequenceEntries look_up(SharedPlace tables, u32 literal, u32 offset, u32 match) {
    return {
        load_shared_u32<0>(tables, 4 * literal),
        load_shared_u32<4 * CUZARR_ZSTD_OFFSETS_AT>(tables, 4 * offset),
        load_shared_u32<4 * CUZARR_ZSTD_MATCHES_AT>(tables, 4 * match),
    };
}

/// The lane's chain of states.
struct StateChain {
    BitWindow window;
    u32 literal, offset, match;
    u32 state_bits;  // that the last sequence would have taken, had another one followed
};

CUZARR_DEVICE bool chain_open(StateChain& chain, const u8* src, u32 size, const u32 logs[3]) {
    if (!window_open(chain.window, src, size)) return false;
    u32 states[3];
    for (u32 kind = 0; kind < 3; ++kind) {
        states[kind] = window_peek(chain.window.top, logs[kind]);
        window_take(chain.window, logs[kind]);
    }
    chain.literal = states[0], chain.offset = states[1], chain.match = states[2], chain.state_bits = 0;
    return true;
}

/// The next states: what the entries say, and the lowest bits of `low`, those of the offset's last.
CUZARR_DEVICE void chain_next(StateChain& chain, const SequenceEntries& entries, u32 low) {
    u32 offset_bits = zstd_state_bits(entries.offset), match_bits = zstd_state_bits(entries.match);
    u32 literal_bits = zstd_state_bits(entries.literal);
    chain.offset = zstd_next(entries.offset) + low_bits(low, offset_bits);
    low = funnel_shift_right(low, 0, offset_bits & 31);
    chain.match = zstd_next(entries.match) + low_bits(low, match_bits);
    low = funnel_shift_right(low, 0, match_bits & 31);
    chain.literal = zstd_next(entries.literal) + low_bits(low, literal_bits);
}

/// Goes from place `at` over more bits than a window has, 64 to 127.
CUZARR_DEVICE void chain_far(StateChain& chain, const SequenceEntries& entries, i32 at, u32 count) {
    window_move(chain.window, at);
    u32 below = count - 64;
    u32 low = (u32)(chain.window.top << below | shift_right(window_behind(chain.window), 64 - below));
    window_move(chain.window, at - (i32)count);
    chain_next(chain, entries, low);
}

/// Writes the next `count` states into the ring, from byte `at` of it on.
///
/// The loop goes on as if no sequence took more bits than a window has, for a branch would stand on the path from one to the
/// next. The few that do are done again.
CUZARR_DEVICE void chain_run(StateChain& own, SharedPlace tables, SharedPlace ring, u32 at, u32 count) {
    StateChain chain = own;
    SequenceEntries entries = {0, 0, 0};
    u32 all = 0;
    i32 place = 0;
    for (u32 end = at + 8 * count; at < end; at += 8) {
        for (;; at += 8) {
            entries = look_up(tables, chain.literal, chain.offset, chain.match);
            place = chain.window.at;
            store_shared_u64(ring, at, (u64)(u32)place << 32 | chain.literal | chain.offset << 9 | chain.match << 18);
            all = zstd_all_bits(entries.literal + entries.offset + entries.match);
            u32 low = (u32)shift_right(chain.window.top, 64 - all);
            window_take(chain.window, all);
            chain_next(chain, entries, low);
            if (all >= 64 || at + 8 >= end) break;
        }
        if (all >= 64) chain_far(chain, entries, place, all);
    }
    chain.state_bits = all - zstd_extra(entries.literal) - zstd_extra(entries.offset) - zstd_extra(entries.match);
    own = chain;
}

/// What a warp that makes sequences of states has of a block.
struct SequenceSums {
    Repeats repeats;
    u32 literals, out;  // a lane's share
};

/// Makes sequences of the states in a ring, a lane each; what is behind `count` counts for nothing.
CUZARR_DEVICE void make_sequences(
    const SequenceChain& chain, SharedPlace tables, SharedPlace bases, u64 place, u64* to, u32 count, SequenceSums& sums, u32 lane
) {
    bool mine = lane < count;
    u32 states = mine ? (u32)place : 0;
    SequenceEntries entries = look_up(tables, states & 511, states >> 9 & 511, states >> 18 & 511);
    u64 top = mine ? window_bits(chain.words, chain.last, chain.cut, (i32)(place >> 32)) : 0;
    u32 match_base = load_shared_u32<4 * CUZARR_ZSTD_MATCH_BASES_AT>(bases, 4 * zstd_symbol(entries.match));
    u32 literal_base = load_shared_u32<0>(bases, 4 * zstd_symbol(entries.literal));
    u32 offset_extra = zstd_extra(entries.offset), match_extra = zstd_extra(entries.match);
    // A one in front of the bits, and the bits.
    u32 value = funnel_shift_left((u32)(top >> 32), 1, offset_extra);
    u32 match_less_3 = match_base + window_peek(top << offset_extra, match_extra);
    u32 run = literal_base + window_peek(top << (offset_extra + match_extra), zstd_extra(entries.literal));
    // A new offset; or one of the last, 0 to 2, or 3 for the first less one.
    Repeats repeats = zstd_unchanged();
    u32 which = value > 3 ? 4 : value - 1 + (run == 0);
    u32 back = value - 3 < CUZARR_ZSTD_FAR ? value - 3 : CUZARR_ZSTD_FAR;
    if (which < 4) back = which == 1 ? repeats.second : which == 2 ? repeats.third : zstd_less(repeats.first, which == 3);
    if (mine && which > 0) repeats = {back, repeats.first, which >= 2 ? repeats.second : repeats.third};
    repeats = compose(sums.repeats, scan_repeats(repeats, lane));
    sums.repeats = shuffle_repeats(repeats, CUZARR_WARP - 1);
    if (!mine) return;
    to[lane] = zstd_sequence(run, match_less_3, repeats.first);
    sums.literals += run;
    sums.out += run + match_less_3 + 3;
}

/// What a block's sequences come to, by the warp that made them.
CUZARR_DEVICE void sum_sequences(const ZstdTask& task, u32 index, const SequenceSums& sums, u32 lane) {
    const ZstdBlock& block = task.blocks[index];
    u32 literals = sums.literals, out = sums.out;
    // A lane's share may be large, but more than a block may be is enough to know.
    literals = literals < 2 * CUZARR_ZSTD_BLOCK_BYTES ? literals : 2 * CUZARR_ZSTD_BLOCK_BYTES;
    out = out < 2 * CUZARR_ZSTD_BLOCK_BYTES ? out : 2 * CUZARR_ZSTD_BLOCK_BYTES;
    for (u32 mask = 1; mask < CUZARR_WARP; mask *= 2) {
        literals += warp_shuffle_xor(CUZARR_ALL_LANES, literals, mask);
        out += warp_shuffle_xor(CUZARR_ALL_LANES, out, mask);
    }
    if (lane != 0) return;
    u32 tail = block.literal_bytes - literals;
    if (literals > block.literal_bytes) return zstd_report(task, block, CUZARR_CUT_OFF);
    if (out + tail > CUZARR_ZSTD_BLOCK_BYTES) return zstd_report(task, block, CUZARR_TOO_LONG);
    ZstdResult& result = task.results[index];
    result.tail = tail, result.out_bytes = out + tail;
    result.repeats_out[0] = sums.repeats.first, result.repeats_out[1] = sums.repeats.second;
    result.repeats_out[2] = sums.repeats.third;
}

/// Loads the tables of a group of blocks, by all threads, and opens a stream in each of the first lanes.
template <u32 BLOCKS>
CUZARR_DEVICE void open_chains(const ZstdTask& task, u32 group, const SequenceSpace& space, StateChain& chain) {
    for (u32 i = 0; i < BLOCKS; ++i) {
        u32 number = group * BLOCKS + i, index = 0, logs[3] = {0, 0, 0};
        bool known = number < task.with_sequences_count;
        if (known) {
            index = task.with_sequences[number];
            known = load_tables(task, task.blocks[index], space.tables + i * CUZARR_ZSTD_SPACE_WORDS, logs);
        }
        if (thread_index() != i) continue;
        SequenceChain& shared = space.chains[i];
        shared.index = index, shared.count = 0;
        if (!known || task.statuses[task.blocks[index].unit]) continue;
        const ZstdBlock& block = task.blocks[index];
        u32 at = block.sequences_at + task.results[index].tables_bytes;
        if (!chain_open(chain, task.src + block.src + at, block.src_bytes - at, logs)) {
            zstd_report(task, block, CUZARR_ZSTD_BAD_BITS);
            continue;
        }
        shared.words = chain.window.words, shared.last = chain.window.last, shared.cut = chain.window.cut;
        shared.count = block.sequences;
    }
}

/// A group of blocks: the first warp runs chains, the others make sequences, of what the chains left a step before.
template <u32 BLOCKS, u32 MAKERS>
CUZARR_DEVICE void decode_sequences(const ZstdTask& task, u32 group, const SequenceSpace& space) {
    u32 lane = thread_index() % CUZARR_WARP, warp = thread_index() / CUZARR_WARP, steps = 0;
    StateChain chain = {};
    load_bases(space.bases);
    open_chains<BLOCKS>(task, group, space, chain);
    block_barrier();
    for (u32 i = 0; i < BLOCKS; ++i) {
        u32 needed = (space.chains[i].count + CUZARR_ZSTD_AHEAD - 1) / CUZARR_ZSTD_AHEAD;
        steps = needed > steps ? needed : steps;
    }
    SharedPlace bases = shared_place(space.bases), own_tables = shared_place(space.tables + lane % BLOCKS * CUZARR_ZSTD_SPACE_WORDS);
    SharedPlace own_ring = shared_place(space.ring + lane % BLOCKS * 2 * CUZARR_ZSTD_AHEAD);
    u32 own_count = warp == 0 && lane < BLOCKS ? space.chains[lane].count : 0;
    SequenceSums sums[BLOCKS / MAKERS];
    for (u32 k = 0; k < BLOCKS / MAKERS; ++k) sums[k] = {zstd_unchanged(), 0, 0};
    for (u32 step = 0; step <= steps; ++step) {
        u32 base = step * CUZARR_ZSTD_AHEAD, half = step & 1;
        if (warp == 0) {
            u32 left = own_count > base ? own_count - base : 0;
            if (left) chain_run(chain, own_tables, own_ring, half * 8 * CUZARR_ZSTD_AHEAD, left < CUZARR_ZSTD_AHEAD ? left : CUZARR_ZSTD_AHEAD);
        } else if (step > 0) {
            base -= CUZARR_ZSTD_AHEAD;
            for (u32 k = 0; k < BLOCKS / MAKERS; ++k) {
                u32 i = k * MAKERS + warp - 1;
                const SequenceChain& other = space.chains[i];
                if (other.count <= base) continue;
                u64 place = space.ring[(2 * i + (half ^ 1)) * CUZARR_ZSTD_AHEAD + lane];
                u32 left = other.count - base;
                u64* to = task.sequences + task.blocks[other.index].first_sequence + base;
                // The chain is up to two steps ahead: what it will come to next should be near.
                i32 ahead = ((i32)(warp_shuffle(CUZARR_ALL_LANES, place, 0u) >> 32) >> 5) - 8 * (i32)lane;
                if (lane < CUZARR_ZSTD_SECTORS && ahead > 0) prefetch(other.words + ahead);
                SharedPlace tables = shared_place(space.tables + i * CUZARR_ZSTD_SPACE_WORDS);
                make_sequences(other, tables, bases, place, to, left, sums[k], lane);
            }
        }
        block_barrier();
    }
    if (warp == 0) {
        if (own_count && chain.window.at + (i32)chain.state_bits != chain.window.begin) {
            zstd_report(task, task.blocks[space.chains[lane].index], CUZARR_ZSTD_BAD_BITS);
        }
        return;
    }
    for (u32 k = 0; k < BLOCKS / MAKERS; ++k) {
        u32 i = k * MAKERS + warp - 1;
        if (space.chains[i].count) sum_sequences(task, space.chains[i].index, sums[k], lane);
    }
}
