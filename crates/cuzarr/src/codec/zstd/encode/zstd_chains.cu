// The third pass of zstd encoding: the states that code sequences, by a lane for each kind of code of each block.
//
// States are followed from the last sequence to the first, as a decoder goes the other way. What each step takes is written
// down, so that the bits themselves are put together by many threads later.
#include "codec/zstd/encode/zstd_encode.cuh"

/// Blocks of a warp, by three lanes each: more would leave part of a multiprocessor's shared memory unused.
#define CUZARR_ZSTD_CHAIN_BLOCKS 5u
/// Number of sequences whose records are loaded at the same time.
#define CUZARR_ZSTD_CHAIN_STEP 4u

struct ChainSpace {
    u16 cells[CUZARR_ZSTD_LOGS_AT];
    u32 symbols[3 * CUZARR_ZSTD_CODES];
};

CUZARR_KERNEL(zstd_encode_chains, const ZstdEncode task) {
    CUZARR_SHARED(ChainSpace, spaces, CUZARR_ZSTD_CHAIN_BLOCKS);
    u32 lane = thread_index(), blocks = block_count_of(task.blocks), groups = (blocks + CUZARR_ZSTD_CHAIN_BLOCKS - 1) / CUZARR_ZSTD_CHAIN_BLOCKS;
    for (u32 group = block_index(); group < groups; group += block_count()) {
        u32 first = group * CUZARR_ZSTD_CHAIN_BLOCKS;
        for (u32 i = 0; i < CUZARR_ZSTD_CHAIN_BLOCKS && first + i < blocks; ++i) {
            if (!is_wanted(task.blocks, first + i) || !task.made[first + i].sequences) continue;
            const ZstdCodes& codes = task.codes[first + i];
            for (u32 k = lane; k < CUZARR_ZSTD_LOGS_AT / 2; k += CUZARR_WARP) ((u32*)spaces[i].cells)[k] = ((const u32*)codes.cells)[k];
            for (u32 k = lane; k < 3 * CUZARR_ZSTD_CODES; k += CUZARR_WARP) spaces[i].symbols[k] = codes.symbols[k];
        }
        warp_barrier(CUZARR_ALL_LANES);
        u32 own = lane / 3, kind = lane % 3, block = first + own, count = 0;
        if (own < CUZARR_ZSTD_CHAIN_BLOCKS && block < blocks && is_wanted(task.blocks, block)) count = task.made[block].sequences;
        if (count && task.made[block].logs[kind]) {
            const uint4* records = (const uint4*)(task.records + (u64)block * task.blocks.most_sequences);
            u64* to = (u64*)(task.states + ((u64)block * 3 + kind) * task.blocks.most_sequences);
            const u16* cells = spaces[own].cells + zstd_table_at(kind);
            const u32* symbols = spaces[own].symbols + kind * CUZARR_ZSTD_CODES;
            u32 shift = record_shift(kind), taken = 0, step = (count - 1) / CUZARR_ZSTD_CHAIN_STEP;
            // The last sequence takes no bits: it begins with the first of its states.
            u32 state = first_state(cells, symbols[record_code(((const u64*)records)[count - 1], kind)]);
            u32 used = count - 1 - step * CUZARR_ZSTD_CHAIN_STEP;
            uint4 low = records[2 * step], high = records[2 * step + 1];
            for (;; --step, used = CUZARR_ZSTD_CHAIN_STEP) {
                const u32 four[CUZARR_ZSTD_CHAIN_STEP] = {low.x, low.z, high.x, high.z};
                u32 now[CUZARR_ZSTD_CHAIN_STEP];
                // Bytes behind the last record are not codes, but index inside the table.
                for (u32 k = 0; k < CUZARR_ZSTD_CHAIN_STEP; ++k) now[k] = symbols[four[k] >> shift & 63];
                if (step) low = records[2 * step - 2], high = records[2 * step - 1];
                u64 made = 0;
                for (u32 k = CUZARR_ZSTD_CHAIN_STEP; k-- > 0;) {
                    if (k >= used) continue;
                    u32 bits = encode_state(cells, now[k], &state);
                    taken += bits >> 12;
                    made |= (u64)bits << 16 * k;
                }
                to[step] = made;
                if (step == 0) break;
            }
            task.made[block].state_bits[kind] = taken + task.made[block].logs[kind];
            task.made[block].last_states[kind] = state & ((1u << task.made[block].logs[kind]) - 1);
        } else if (count) {
            task.made[block].state_bits[kind] = task.made[block].last_states[kind] = 0;
        }
        warp_barrier(CUZARR_ALL_LANES);
    }
}
