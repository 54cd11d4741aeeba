// The first pass of zstd decoding: the tables of Huffman and FSE codes that blocks describe, each by one warp.
//
// Work items are the predefined tables, then the blocks that describe a Huffman code, then the blocks with sequences.
// One lane reads a description (a few hundred steps); all lanes fill its table.
#include "codec/zstd/bit_window.cuh"
#include "codec/zstd/fse.cuh"
#include "codec/zstd/zstd.cuh"
#include "codec/zstd/zstd_predefined.cuh"

#define CUZARR_ZSTD_SYMBOLS 256u

/// A warp's shared memory.
struct TableSpace {
    FseSpace fse;
    u32 weight_states[1u << CUZARR_ZSTD_WEIGHT_LOG];  // symbol | bits << 8 | next << 16
    u8 weights[CUZARR_ZSTD_SYMBOLS + 4];
    u8 sorted[CUZARR_ZSTD_SYMBOLS];   // symbols by weight
    u16 entries_before[16];           // of all symbols of smaller weight
    u16 symbols_before[16];
    u32 count, bits, used;
};

CUZARR_DEVICE u32 extra_bits(u32 kind, u32 symbol) {
    return kind == 0 ? ZSTD_LITERAL_LENGTH_EXTRA[symbol] : kind == 1 ? symbol : ZSTD_MATCH_LENGTH_EXTRA[symbol];
}
CUZARR_DEVICE u32 symbols_of(u32 kind) { return kind == 0 ? 36 : kind == 1 ? 32 : 53; }

/// Builds a sequences' table from the counts in shared memory, by all lanes.
CUZARR_DEVICE void build_table(FseSpace& fse, u32* slot, u32 kind, u32 lane) {
    u32* table = slot + zstd_table_at(kind);
    fse_build(fse, lane, [&](u32 state, u32 symbol, u32 bits, u32 next) {
        table[state] = zstd_entry(kind, next, symbol, extra_bits(kind, symbol), bits);
    });
    if (lane == 0) slot[CUZARR_ZSTD_LOGS_AT + kind] = fse.log;
}

CUZARR_DEVICE void predefined_tables(FseSpace& fse, u32* slot, u32 lane) {
    for (u32 kind = 0; kind < 3; ++kind) {
        predefined_counts(fse, kind, lane);
        warp_barrier(CUZARR_ALL_LANES);
        build_table(fse, slot, kind, lane);
    }
}

/// Builds the tables that a block describes, in the block's order.
CUZARR_DEVICE void sequence_tables(const ZstdTask& task, FseSpace& fse, u32 index, u32 lane) {
    const ZstdBlock& block = task.blocks[index];
    u32* slot = task.tables + (u64)block.own_tables * CUZARR_ZSTD_TABLE_WORDS;
    const u8* src = task.src + block.src + block.sequences_at;
    u32 size = block.src_bytes - block.sequences_at, used = 0;
    for (u32 kind = 0; kind < 3; ++kind) {
        u32 mode = block.modes >> (6 - 2 * kind) & 3;
        if (mode == CUZARR_ZSTD_PREDEFINED || mode == CUZARR_ZSTD_REPEAT) continue;
        if (mode == CUZARR_ZSTD_RLE) {
            u32 symbol = used < size ? src[used] : ~0u;
            bool known = symbol < symbols_of(kind);
            if (lane == 0) {
                if (known) slot[zstd_table_at(kind)] = zstd_entry(kind, 0, symbol, extra_bits(kind, symbol), 0);
                slot[CUZARR_ZSTD_LOGS_AT + kind] = known ? 0 : CUZARR_ZSTD_NO_TABLE;
            }
            if (!known) used = ~0u;
            else ++used;
        } else {
            if (lane == 0) fse_read(fse, src + used, size - used, symbols_of(kind), kind == 1 ? 8 : 9);
            warp_barrier(CUZARR_ALL_LANES);
            u32 read = fse.used;
            if (read) {
                build_table(fse, slot, kind, lane);
                used += read;
            } else {
                used = ~0u;
            }
            warp_barrier(CUZARR_ALL_LANES);
        }
        if (used != ~0u) continue;
        // The sections behind a damaged table cannot be found.
        for (u32 rest = kind + lane; rest < 3; rest += CUZARR_WARP) {
            u32 rest_mode = block.modes >> (6 - 2 * rest) & 3;
            if (rest_mode != CUZARR_ZSTD_PREDEFINED && rest_mode != CUZARR_ZSTD_REPEAT)
                slot[CUZARR_ZSTD_LOGS_AT + rest] = CUZARR_ZSTD_NO_TABLE;
        }
        if (lane == 0) zstd_report(task, block, CUZARR_ZSTD_BAD_TABLE);
        break;
    }
    if (lane == 0) task.results[index].tables_bytes = used;
}

/// Reads weights that are coded by FSE, with two states that take turns. Returns false if they are damaged. One lane
/// calls.
CUZARR_DEVICE bool coded_weights(TableSpace& space, const u8* src, u32 size) {
    BitWindow window;
    if (!window_open(window, src, size)) return false;
    u32 log = space.fse.log, states[2], count = 0;
    for (u32 i = 0; i < 2; ++i) {
        states[i] = window_peek(window.top, log);
        window_take(window, log);
    }
    if (window.at < window.begin) return false;
    for (u32 turn = 0;; turn ^= 1) {
        u32 entry = space.weight_states[states[turn]], bits = entry >> 8 & 255;
        if (count >= CUZARR_ZSTD_SYMBOLS - 2) return false;
        space.weights[count++] = (u8)entry;
        if (window.at - window.begin < (i32)bits) {
            // There are no bits for another state: the other state gives the last weight.
            space.weights[count++] = (u8)space.weight_states[states[turn ^ 1]];
            break;
        }
        states[turn] = (entry >> 16) + window_peek(window.top, bits);
        window_take(window, bits);
    }
    space.count = count;
    return true;
}

/// Adds the last weight, and sorts the symbols by weight. Returns false if no code has these weights. One lane calls.
CUZARR_DEVICE bool sort_weights(TableSpace& space) {
    u32 sum = 0, count = space.count, ranks[16];
    for (u32 i = 0; i < 16; ++i) ranks[i] = 0;
    for (u32 i = 0; i < count; ++i) {
        u32 weight = space.weights[i];
        if (weight > CUZARR_ZSTD_TREE_BITS) return false;
        if (weight) sum += 1u << (weight - 1);
        ++ranks[weight];
    }
    if (sum == 0) return false;
    u32 bits = 32 - count_leading_zeros(sum), left = (1u << bits) - sum;
    if (bits > CUZARR_ZSTD_TREE_BITS || left & (left - 1)) return false;
    u32 last = 32 - count_leading_zeros(left);
    space.weights[count++] = (u8)last;
    ++ranks[last];
    // A code is a tree: its longest words come in pairs.
    if (ranks[1] < 2 || ranks[1] & 1) return false;
    u32 entries = 0, symbols = 0;
    for (u32 weight = 1; weight < 16; ++weight) {
        space.entries_before[weight] = (u16)entries, space.symbols_before[weight] = (u16)symbols;
        entries += ranks[weight] << (weight - 1), symbols += ranks[weight];
        ranks[weight] = symbols - ranks[weight];
    }
    for (u32 i = 0; i < count; ++i) {
        if (space.weights[i]) space.sorted[ranks[space.weights[i]]++] = (u8)i;
    }
    space.bits = bits;
    return true;
}

/// Builds the Huffman table that a block describes.
CUZARR_DEVICE void huffman_table(const ZstdTask& task, TableSpace& space, u32 index, u32 lane) {
    const ZstdBlock& block = task.blocks[index];
    u32* slot = task.trees + (u64)block.tree * CUZARR_ZSTD_TREE_WORDS;
    const u8* src = task.src + block.src + block.literals_at;
    u32 size = block.literals_src_bytes, head = src[0], used = 0;
    if (head >= 128) {
        u32 count = head - 127;
        used = 1 + (count + 1) / 2;
        if (used <= size) {
            for (u32 i = lane; i < count; i += CUZARR_WARP) space.weights[i] = src[1 + i / 2] >> (i & 1 ? 0 : 4) & 15;
            if (lane == 0) space.count = count;
        }
    } else {
        used = 1 + head;
        if (lane == 0) {
            space.count = space.fse.used = 0;
            if (used <= size) fse_read(space.fse, src + 1, head, CUZARR_FSE_SYMBOLS, CUZARR_ZSTD_WEIGHT_LOG);
        }
        warp_barrier(CUZARR_ALL_LANES);
        u32 read = space.fse.used;
        if (read) {
            fse_build(space.fse, lane, [&](u32 state, u32 symbol, u32 bits, u32 next) {
                space.weight_states[state] = symbol | bits << 8 | next << 16;
            });
            if (lane == 0 && !coded_weights(space, src + 1 + read, head - read)) space.count = 0;
        }
    }
    if (lane == 0) space.used = 0;
    warp_barrier(CUZARR_ALL_LANES);
    if (lane == 0 && used <= size && space.count && sort_weights(space)) space.used = used;
    warp_barrier(CUZARR_ALL_LANES);
    bool intact = space.used != 0;
    u32 bits = intact ? space.bits : 0;
    u16* table = (u16*)slot;
    for (u32 entry = lane; intact && entry < 1u << bits; entry += CUZARR_WARP) {
        u32 weight = 1;
        while (weight < bits && entry >= space.entries_before[weight + 1]) ++weight;
        u32 symbol = space.sorted[space.symbols_before[weight] + ((entry - space.entries_before[weight]) >> (weight - 1))];
        table[entry] = (u16)(symbol | (bits + 1 - weight) << 8);
    }
    if (lane == 0) {
        slot[CUZARR_ZSTD_TREE_WORDS - 1] = bits;
        task.results[index].tree_bytes = used;
        if (!intact) zstd_report(task, block, CUZARR_ZSTD_BAD_TABLE);
    }
    warp_barrier(CUZARR_ALL_LANES);
}

CUZARR_KERNEL(zstd_tables, const ZstdTask task) {
    CUZARR_SHARED(TableSpace, space, 1);
    u32 lane = thread_index(), items = 1 + task.with_tree_count + task.with_sequences_count;
    for (u32 item = block_index(); item < items; item += block_count()) {
        if (item == 0) predefined_tables(space->fse, task.tables, lane);
        else if (item <= task.with_tree_count) huffman_table(task, *space, task.with_tree[item - 1], lane);
        else sequence_tables(task, space->fse, task.with_sequences[item - 1 - task.with_tree_count], lane);
        warp_barrier(CUZARR_ALL_LANES);
    }
}
