// Decodes the sequences of zstd's blocks to scratch, with one lane for each block's states.
//
// A block's stream cannot be entered in the middle (states never meet again). So its states come one after the other,
// and a batch takes as long as its longest block. One lane only follows this chain: three table lookups (30 cycles),
// the sum of their bits, a shift, a mask and an addition, about 80 cycles.
//
//     entry of each state -> bits of all -> shift, mask, add -> next states
//
// The lane writes the states and their place into a ring in shared memory. Other warps take 32 of them at a time, one
// for each lane, and make lengths and offsets from them: 64 bits from the place on hold everything needed. The repeat
// offset of each sequence is found by a scan over the changes of the repeat offsets.
//
// Blocks share the warp of chains, because one instruction serves all lanes. The order of the list keeps blocks of
// about the same length together. The next words of the streams lie in shared memory, too.
//
// Repeat offsets that come from the block before stay symbolic (see ZSTD_SYMBOLIC), as in DirectStorage's zstd decoder
// (MIT). Format: RFC 8878, sections 3.1.1.3.2.1 and 3.1.1.5.
#pragma once
#include "codec/zstd/bit_window.cuh"
#include "codec/zstd/zstd.cuh"

CUZARR_CONSTANT(u32, LITERAL_LENGTH_BASE, 36) = {0,  1,  2,  3,  4,  5,  6,  7,   8,   9,   10,   11,
                                                 12, 13, 14, 15, 16, 18, 20, 22,  24,  28,  32,   40,
                                                 48, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};
/// Lengths less 3, as in the sequences in scratch.
CUZARR_CONSTANT(u32, MATCH_LENGTH_BASE, 53) = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,   10,  11,  12,  13,   14,   15,   16,   17,
                                               18, 19, 20, 21, 22, 23, 24, 25, 26, 27,  28,  29,  30,  31,   32,   34,   36,   38,
                                               40, 44, 48, 56, 64, 80, 96, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};

/// Words of a block's tables in shared memory: 512 entries for literal lengths, as many for match lengths, 256 for offsets.
#define CUZARR_ZSTD_SPACE_WORDS 1280u
/// Number of sequences that the chain is ahead. A ring has twice as many places.
#define CUZARR_ZSTD_AHEAD CUZARR_WARP
/// Number of words of a block's stream in shared memory. The first CUZARR_ZSTD_STAGE_AGAIN words are repeated behind
/// the last.
#define CUZARR_ZSTD_STAGE_WORDS 256u
#define CUZARR_ZSTD_STAGE_AGAIN 2u
#define CUZARR_ZSTD_STAGE_ROOM (CUZARR_ZSTD_STAGE_WORDS + CUZARR_ZSTD_STAGE_AGAIN)
/// Number of words below a sequence's window that may be read until the end of the second step from its own: 2 x 32
/// sequences and itself, of at most 89 bits, and a window.
#define CUZARR_ZSTD_STAGE_BELOW 188
/// The bit of a base's word from which on it holds the number of bits that follow.
#define CUZARR_ZSTD_EXTRA_AT 24u
#define CUZARR_ZSTD_MATCH_BASES_AT 64u
#define CUZARR_ZSTD_BASES_WORDS 128u

/// The facts about a block that the warps share.
struct SequenceChain {
    const u32* words;  // of its stream, see BitWindow
    i32 last;
    u32 cut;
    u32 index;         // of the block
    u32 count;         // of its sequences; 0 when it cannot be decoded
    i32 at;            // where its first one's bits end, less 64
};

/// Shared memory of a block of threads. An entry has `WORDS` words: one, or a second one with the place where the next
/// states begin, so that the chain need not compute it.
template <u32 BLOCKS, u32 WORDS>
struct alignas(16) SequenceSpace {
    u32 tables[BLOCKS * CUZARR_ZSTD_SPACE_WORDS * WORDS];      // all blocks' of one kind, then those of the next: see `tables_place`
    u64 ring[BLOCKS][2][CUZARR_ZSTD_AHEAD];            // see `chain_run`
    u32 stage[BLOCKS][CUZARR_ZSTD_STAGE_ROOM];         // word i of the stream lies at i % CUZARR_ZSTD_STAGE_WORDS
    SequenceChain chains[BLOCKS];
    u32 bases[CUZARR_ZSTD_BASES_WORDS];                // of lengths
};

/// Returns where the entries of a block begin in `tables`, in bytes. Each place is a multiple of its table's size.
template <u32 BLOCKS, u32 WORDS>
CUZARR_DEVICE u32 tables_place(u32 kind, u32 i) {
    return WORDS * (kind == 0 ? 2048 * i : kind == 2 ? 2048 * (BLOCKS + i) : 4096 * BLOCKS + 1024 * i);
}

/// Loads the bases of lengths to shared memory, for the warps that make sequences.
CUZARR_DEVICE void load_bases(u32* bases) {
    for (u32 i = thread_index(); i < 53; i += thread_count()) {
        bases[CUZARR_ZSTD_MATCH_BASES_AT + i] = MATCH_LENGTH_BASE[i] | (u32)ZSTD_MATCH_LENGTH_EXTRA[i] << CUZARR_ZSTD_EXTRA_AT;
        if (i < 36) bases[i] = LITERAL_LENGTH_BASE[i] | (u32)ZSTD_LITERAL_LENGTH_EXTRA[i] << CUZARR_ZSTD_EXTRA_AT;
    }
}

/// Copies block `i`'s tables to shared memory, by all threads. Returns false if one of them is damaged.
template <u32 BLOCKS, u32 WORDS>
CUZARR_DEVICE bool load_tables(const ZstdTask& task, const ZstdBlock& block, u32* tables, u32 i, u32 logs[3]) {
    bool known = true;
    for (u32 kind = 0; kind < 3; ++kind) {
        const u32* slot = task.tables + (u64)block.tables[kind] * CUZARR_ZSTD_TABLE_WORDS;
        u32 log = slot[CUZARR_ZSTD_LOGS_AT + kind];
        known = known && log != CUZARR_ZSTD_NO_TABLE;
        u32 size = log == CUZARR_ZSTD_NO_TABLE ? 0 : 1u << log;
        const u32* from = slot + zstd_table_at(kind);
        u32 place = tables_place<BLOCKS, WORDS>(kind, i), *to = tables + place / 4;
        for (u32 entry = thread_index(); entry < size; entry += thread_count()) {
            to[WORDS * entry] = from[entry];
            if (WORDS == 2) to[2 * entry + 1] = place + 2 * zstd_next_place(from[entry]);
        }
        logs[kind] = log;
    }
    return known;
}

/// Entries of three states.
struct SequenceEntries {
    u32 literal, offset, match;
};

/// Like `SequenceEntries`, with the places where the next states begin, if entries hold them.
struct ChainEntries {
    u32 literal, offset, match, literal_next, offset_next, match_next;
};

CUZARR_DEVICE SequenceEntries look_up(SharedPlace tables, u32 literal, u32 offset, u32 match) {
    return {load_shared_u32<0>(tables, literal), load_shared_u32<0>(tables, offset), load_shared_u32<0>(tables, match)};
}

template <u32 WORDS>
CUZARR_DEVICE ChainEntries look_up_chain(SharedPlace tables, u32 literal, u32 offset, u32 match) {
    if (WORDS == 1) {
        SequenceEntries entries = look_up(tables, literal, offset, match);
        return {entries.literal, entries.offset, entries.match, 0, 0, 0};
    }
    u64 of = load_shared_u64(tables, offset), ml = load_shared_u64(tables, match), ll = load_shared_u64(tables, literal);
    return {(u32)ll, (u32)of, (u32)ml, (u32)(ll >> 32), (u32)(of >> 32), (u32)(ml >> 32)};
}

/// The lane's chain of states: the places of the next sequence's entries in `tables`, and where its bits end, less 64.
struct StateChain {
    u32 literal, offset, match;
    i32 at;
    u32 literal_base, offset_base, match_base;  // where its tables begin
    u32 state_bits;  // that the last sequence would have taken, had another one followed
};

template <u32 BLOCKS, u32 WORDS>
CUZARR_DEVICE bool chain_open(StateChain& chain, BitWindow& window, const u8* src, u32 size, u32 i, const u32 logs[3]) {
    if (!window_open(window, src, size)) return false;
    u32 states[3];
    for (u32 kind = 0; kind < 3; ++kind) {
        states[kind] = window_peek(window.top, logs[kind]);
        window_take(window, logs[kind]);
    }
    chain.literal_base = tables_place<BLOCKS, WORDS>(0, i);
    chain.offset_base = tables_place<BLOCKS, WORDS>(1, i);
    chain.match_base = tables_place<BLOCKS, WORDS>(2, i);
    chain.literal = chain.literal_base + 4 * WORDS * states[0];
    chain.offset = chain.offset_base + 4 * WORDS * states[1];
    chain.match = chain.match_base + 4 * WORDS * states[2];
    chain.at = window.at - 64, chain.state_bits = 0;
    return true;
}

/// Moves to the next states: the entries' bases plus the lowest bits of `low`, where those of the offset come last.
template <u32 WORDS>
CUZARR_DEVICE void chain_next(StateChain& chain, const ChainEntries& entries, u32 low) {
    u32 offset_bits = zstd_state_bits(entries.offset), match_bits = zstd_state_bits(entries.match);
    u32 literal_bits = zstd_state_bits(entries.literal);
    u32 offset = WORDS == 2 ? entries.offset_next : zstd_next_place(entries.offset) | chain.offset_base;
    u32 match = WORDS == 2 ? entries.match_next : zstd_next_place(entries.match) | chain.match_base;
    u32 literal = WORDS == 2 ? entries.literal_next : zstd_next_place(entries.literal) | chain.literal_base;
    chain.offset = offset + 4 * WORDS * low_bits(low, offset_bits);
    chain.match = match + 4 * WORDS * low_bits(funnel_shift_right(low, 0, offset_bits), match_bits);
    chain.literal = literal + 4 * WORDS * low_bits(funnel_shift_right(low, 0, offset_bits + match_bits), literal_bits);
}

/// Returns where the word that holds a bit lies in a stage.
CUZARR_DEVICE u32 stage_place(i32 bit) { return (u32)(bit >> 3) & (4 * CUZARR_ZSTD_STAGE_WORDS - 4); }

/// Takes one sequence of the chain: puts its states into place `at` of the ring, and goes on to the next states.
/// Returns the sum of the entries. If that is negative, the sequence takes more than a window, and the states are wrong
/// until `chain_far`.
template <u32 WORDS>
CUZARR_DEVICE u32 chain_step(
    StateChain& chain, ChainEntries& entries, SharedPlace tables, SharedPlace stage, SharedPlace ring, u32 at
) {
    u32 place = stage_place(chain.at);
    entries = look_up_chain<WORDS>(tables, chain.literal, chain.offset, chain.match);
    u32 words[3] = {load_shared_u32<0>(stage, place), load_shared_u32<4>(stage, place), load_shared_u32<8>(stage, place)};
    u32 states = chain.literal | chain.offset << 16, state = chain.match | (u32)chain.at << 16;
    store_shared_u64(ring, at, (u64)state << 32 | states);
    u64 top = funnel_shift_right(words[0], words[1], words[2], (u32)chain.at);
    u32 sum = entries.literal + entries.offset + entries.match;
    i32 left = zstd_left(sum);
    chain.at += left - 64;
    chain_next<WORDS>(chain, entries, (u32)shift_right(top, (u32)left));
    return sum;
}

/// Corrects the states behind a sequence of more than 64 bits, by loading their own bits.
template <u32 WORDS>
CUZARR_DEVICE void chain_far(StateChain& chain, const ChainEntries& entries, SharedPlace stage) {
    u32 place = stage_place(chain.at + 64);
    u32 low = load_shared_u32<0>(stage, place), high = load_shared_u32<4>(stage, place);
    chain_next<WORDS>(chain, entries, funnel_shift_right(low, high, (u32)chain.at));
}

/// Number of sequences between two checks whether one was too long.
#define CUZARR_ZSTD_STRIDE 4u

/// Writes the next `count` states into the ring, from byte `at` of it on. The lower word holds the places of the
/// literal's and the offset's entries, 16 bits each; the upper word the place of the match's entry, and the lowest 16
/// bits of where the sequence's bits end.
///
/// A few are done at a time, as if no sequence took more than 64 bits: a branch would delay each state. If one did take
/// more, they are done again.
template <u32 WORDS>
CUZARR_DEVICE void chain_run(StateChain& own, SharedPlace tables, SharedPlace stage, SharedPlace ring, u32 at, u32 count) {
    StateChain chain = own;
    ChainEntries entries = {0, 0, 0, 0, 0, 0};
    u32 end = at + 8 * count;
    while (at < end) {
        StateChain before = chain;
        u32 sums = 0, next = at + 8 * CUZARR_ZSTD_STRIDE;
        if (next <= end) {
#pragma unroll
            for (u32 k = 0; k < CUZARR_ZSTD_STRIDE; ++k) sums |= chain_step<WORDS>(chain, entries, tables, stage, ring, at + 8 * k);
        }
        if (next > end || (i32)sums < 0) {
            chain = before;
            next = next < end ? next : end;
            for (u32 again = at; again < next; again += 8) {
                if ((i32)chain_step<WORDS>(chain, entries, tables, stage, ring, again) < 0) chain_far<WORDS>(chain, entries, stage);
            }
        }
        at = next;
    }
    chain.state_bits = (entries.literal & 31) + (entries.offset & 31) + (entries.match & 31);
    own = chain;
}

/// Returns a word of a stream; zero outside the stream.
CUZARR_DEVICE u32 stream_word(const SequenceChain& chain, i32 index) {
    if (index < 0 || index > chain.last) return 0;
    return index == chain.last ? chain.cut : chain.words[index];
}

CUZARR_DEVICE void stage_store(u32* stage, i32 index, u32 word) {
    u32 place = (u32)index % CUZARR_ZSTD_STAGE_WORDS;
    stage[place] = word;
    if (place < CUZARR_ZSTD_STAGE_AGAIN) stage[CUZARR_ZSTD_STAGE_WORDS + place] = word;
}

/// Loads words of a stream into its stage, by one warp, until `staged` is no longer above `target`. Words above
/// `staged` are there.
CUZARR_DEVICE void stage_words(const SequenceChain& chain, u32* stage, i32& staged, i32 target, u32 lane) {
    for (; staged > target; staged -= (i32)CUZARR_WARP) {
        i32 index = staged - (i32)lane;
        stage_store(stage, index, stream_word(chain, index));
    }
}

/// The state of a warp that makes the sequences of a block.
struct SequenceSums {
    Repeats repeats;
    u32 literals, out;  // a lane's share
    i32 at;             // where the bits of the sequences made last began to end, less 64
    i32 staged;         // words above are in the stage
};

/// The change of the three repeat offsets by sequences, none of which repeats the first less one. One byte for each
/// offset: which old one it is (0 to 2), or 128 and the lane with the new one.
#define CUZARR_ZSTD_KEEPS 0x020100u

CUZARR_DEVICE u32 compose_slots(u32 before, u32 after) {
    u32 brought = (after >> 7 & 0x010101u) * 255u, from = (after & ~brought) | (0x060504u & brought);
    return permute_bytes(before, after, (from & 0xf) | (from >> 4 & 0xf0) | (from >> 8 & 0xf00));
}

/// The offset that a slot stands for.
CUZARR_DEVICE u32 slot_offset(u32 slot, u32 back, const Repeats& before) {
    u32 brought = warp_shuffle(CUZARR_ALL_LANES, back, slot & 31);
    return slot & 128 ? brought : slot == 0 ? before.first : slot == 1 ? before.second : before.third;
}

/// Returns the offset of each lane's sequence, and sets `repeats` to those behind the last one. `which` says what the
/// offset is: one of the three (0 to 2), the first less one (3), or a new one (4), `back`.
CUZARR_DEVICE u32 last_offsets(u32 which, u32 back, Repeats& repeats, u32 lane) {
    if (warp_ballot(CUZARR_ALL_LANES, which == 3)) {
        Repeats own = zstd_unchanged();
        if (which < 4) back = which == 1 ? own.second : which == 2 ? own.third : zstd_less(own.first, which == 3);
        if (which > 0) own = {back, own.first, which >= 2 ? own.second : own.third};
        own = compose(repeats, scan_repeats(own, lane));
        repeats = shuffle_repeats(own, CUZARR_WARP - 1);
        return own.first;
    }
    u32 slots = which == 0 ? CUZARR_ZSTD_KEEPS : which == 1 ? 0x020001u : which == 2 ? 0x010002u : 0x010080u | lane;
    for (u32 step = 1; step < CUZARR_WARP; step *= 2) {
        u32 before = warp_shuffle_up(CUZARR_ALL_LANES, slots, step);
        if (lane >= step) slots = compose_slots(before, slots);
    }
    u32 offset = slot_offset(slots & 255, back, repeats), last = warp_shuffle(CUZARR_ALL_LANES, slots, CUZARR_WARP - 1);
    Repeats before = repeats;
    repeats.first = slot_offset(last & 255, back, before);
    repeats.second = slot_offset(last >> 8 & 255, back, before);
    repeats.third = slot_offset(last >> 16 & 255, back, before);
    return offset;
}

/// Makes sequences from the states in a ring, one for each lane. States from `count` on are ignored.
CUZARR_DEVICE void make_sequences(
    const SequenceChain& chain, SharedPlace tables, SharedPlace bases, u64 states, i32 at, u64* to, u32 count, SequenceSums& sums,
    u32 lane
) {
    bool mine = lane < count;
    SequenceEntries entries = {0, 0, 0};
    if (mine) entries = look_up(tables, (u32)states & 0xffff, (u32)states >> 16, (u32)(states >> 32) & 0xffff);
    u64 top = mine ? window_bits(chain.words, chain.last, chain.cut, at + 64) : 0;
    u32 match_base = load_shared_u32<4 * CUZARR_ZSTD_MATCH_BASES_AT>(bases, 4 * zstd_symbol(entries.match));
    u32 literal_base = load_shared_u32<0>(bases, 4 * zstd_symbol(entries.literal));
    u32 offset_extra = zstd_symbol(entries.offset), match_extra = match_base >> CUZARR_ZSTD_EXTRA_AT;
    u32 literal_extra = literal_base >> CUZARR_ZSTD_EXTRA_AT;
    match_base &= (1u << CUZARR_ZSTD_EXTRA_AT) - 1, literal_base &= (1u << CUZARR_ZSTD_EXTRA_AT) - 1;
    // The value: a 1, and the bits behind it.
    u32 value = funnel_shift_left((u32)(top >> 32), 1, offset_extra);
    u32 match_less_3 = match_base + window_peek(top << offset_extra, match_extra);
    u32 run = literal_base + window_peek(top << (offset_extra + match_extra), literal_extra);
    // 4 for a new offset, 0 to 2 for a repeat offset, 3 for the first less one.
    u32 which = !mine ? 0 : value > 3 ? 4 : value - 1 + (run == 0);
    u32 back = value - 3 < CUZARR_ZSTD_FAR ? value - 3 : CUZARR_ZSTD_FAR;
    u32 offset = last_offsets(which, back, sums.repeats, lane);
    if (!mine) return;
    to[lane] = zstd_sequence(run, match_less_3, offset);
    sums.literals += run;
    sums.out += run + match_less_3 + 3;
}

/// Stores the sums over a block's sequences, by the warp that made them.
CUZARR_DEVICE void sum_sequences(const ZstdTask& task, u32 index, const SequenceSums& sums, u32 lane) {
    const ZstdBlock& block = task.blocks[index];
    u32 literals = sums.literals, out = sums.out;
    // A lane's share may be large. It is enough to know that it is more than a block may have.
    literals = literals < 2 * CUZARR_ZSTD_BLOCK_BYTES ? literals : 2 * CUZARR_ZSTD_BLOCK_BYTES;
    out = out < 2 * CUZARR_ZSTD_BLOCK_BYTES ? out : 2 * CUZARR_ZSTD_BLOCK_BYTES;
    for (u32 mask = 1; mask < CUZARR_WARP; mask *= 2) {
        literals += warp_shuffle_xor(CUZARR_ALL_LANES, literals, mask);
        out += warp_shuffle_xor(CUZARR_ALL_LANES, out, mask);
    }
    if (lane != 0) return;
    u32 tail = block.literal_bytes - literals;
    if (literals > block.literal_bytes) return zstd_report(task, block, CUZARR_CUT_OFF);
    if (out + tail > CUZARR_ZSTD_BLOCK_BYTES) return zstd_report(task, block, CUZARR_ZSTD_LARGE_BLOCK);
    ZstdResult& result = task.results[index];
    result.tail = tail, result.out_bytes = out + tail;
    result.repeats_out[0] = sums.repeats.first, result.repeats_out[1] = sums.repeats.second;
    result.repeats_out[2] = sums.repeats.third;
}

/// Loads the tables of a group of blocks, by all threads, and opens a stream in each of the first lanes.
template <u32 BLOCKS, u32 WORDS>
CUZARR_DEVICE void open_chains(const ZstdTask& task, u32 group, SequenceSpace<BLOCKS, WORDS>& space, StateChain& chain, i32& begin) {
    for (u32 i = 0; i < BLOCKS; ++i) {
        u32 number = group * BLOCKS + i, index = 0, logs[3] = {0, 0, 0};
        bool known = number < task.with_sequences_count;
        if (known) {
            index = task.with_sequences[number];
            known = load_tables<BLOCKS, WORDS>(task, task.blocks[index], space.tables, i, logs);
        }
        if (thread_index() != i) continue;
        SequenceChain& shared = space.chains[i];
        shared.index = index, shared.count = 0;
        if (!known || task.statuses[task.blocks[index].unit]) continue;
        const ZstdBlock& block = task.blocks[index];
        u32 at = block.sequences_at + task.results[index].tables_bytes;
        BitWindow window;
        if (!chain_open<BLOCKS, WORDS>(chain, window, task.src + block.src + at, block.src_bytes - at, i, logs)) {
            zstd_report(task, block, CUZARR_ZSTD_BAD_BITS);
            continue;
        }
        begin = window.begin;
        shared.words = window.words, shared.last = window.last, shared.cut = window.cut;
        shared.count = block.sequences, shared.at = chain.at;
    }
}

/// Does one step of a warp that makes sequences: loads the words for the step after the next into the stage, and makes
/// the sequences of the states that the chain left in `ring` a step before, from sequence `base` on.
CUZARR_DEVICE void make_step(
    const ZstdTask& task, const SequenceChain& chain, SharedPlace tables, SharedPlace bases, u32* stage, const u64* ring, u32 base,
    SequenceSums& sums, u32 lane
) {
    u32 left = chain.count - base;
    u64 states = ring[lane];
    // The lowest 16 bits of where the bits end are enough: it is at most 32 sequences from where it was.
    i32 at = sums.at - (i32)(((u32)sums.at - (u32)(states >> 48)) & 0xffff);
    sums.at = warp_shuffle(CUZARR_ALL_LANES, at, CUZARR_WARP - 1);
    i32 target = (sums.at >> 5) - CUZARR_ZSTD_STAGE_BELOW, first = sums.staged - (i32)lane;
    // These words are loaded while sequences are made.
    bool hungry = left > CUZARR_ZSTD_AHEAD && sums.staged > target;
    u32 word = hungry ? stream_word(chain, first) : 0;
    make_sequences(chain, tables, bases, states, at, task.sequences + task.blocks[chain.index].first_sequence + base, left, sums, lane);
    if (!hungry) return;
    stage_store(stage, first, word);
    sums.staged -= (i32)CUZARR_WARP;
    stage_words(chain, stage, sums.staged, target, lane);
}

/// Decodes the sequences of a group of blocks. The first warp runs the chains. One warp for each block makes sequences
/// from the states that its chain left a step before, and loads the next words of its stream for the chain.
template <u32 BLOCKS, u32 WORDS>
CUZARR_DEVICE void decode_sequences(const ZstdTask& task, u32 group, SequenceSpace<BLOCKS, WORDS>& space) {
    u32 lane = thread_index() % CUZARR_WARP, warp = thread_index() / CUZARR_WARP, steps = 0;
    StateChain chain = {};
    i32 begin = 0;
    load_bases(space.bases);
    open_chains(task, group, space, chain, begin);
    block_barrier();
    for (u32 i = 0; i < BLOCKS; ++i) {
        u32 needed = (space.chains[i].count + CUZARR_ZSTD_AHEAD - 1) / CUZARR_ZSTD_AHEAD;
        steps = needed > steps ? needed : steps;
    }
    // These belong to the chain that the lane runs, or that the warp makes sequences of.
    u32 own = warp == 0 ? lane % BLOCKS : warp - 1;
    const SequenceChain& shared = space.chains[own];
    u32* stage = space.stage[own];
    u64* ring = space.ring[own][0];
    SharedPlace bases = shared_place(space.bases), tables = shared_place(space.tables);
    SharedPlace stage_base = shared_place(stage), ring_base = shared_place(ring);
    u32 count = warp == 0 && lane >= BLOCKS ? 0 : shared.count;
    SequenceSums sums = {zstd_unchanged(), 0, 0, shared.at, (shared.at >> 5) + 2};
    if (warp > 0 && count) stage_words(shared, stage, sums.staged, (shared.at >> 5) - CUZARR_ZSTD_STAGE_BELOW, lane);
    block_barrier();
    for (u32 step = 0; step <= steps; ++step) {
        u32 base = step * CUZARR_ZSTD_AHEAD, half = step & 1;
        if (warp == 0) {
            u32 left = count > base ? count - base : 0;
            left = left < CUZARR_ZSTD_AHEAD ? left : CUZARR_ZSTD_AHEAD;
            if (left) chain_run<WORDS>(chain, tables, stage_base, ring_base, half * 8 * CUZARR_ZSTD_AHEAD, left);
        } else if (step > 0 && count > base - CUZARR_ZSTD_AHEAD) {
            make_step(task, shared, tables, bases, stage, ring + (half ^ 1) * CUZARR_ZSTD_AHEAD, base - CUZARR_ZSTD_AHEAD, sums, lane);
        }
        block_barrier();
    }
    if (count == 0) return;
    if (warp > 0) sum_sequences(task, shared.index, sums, lane);
    else if (chain.at + 64 + (i32)chain.state_bits != begin) zstd_report(task, task.blocks[shared.index], CUZARR_ZSTD_BAD_BITS);
}
