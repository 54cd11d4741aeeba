// zstd, second pass: the literals of all blocks, into scratch.
//
// A stream of Huffman codes is one lane's work, four streams a block. While few blocks are there each gets a warp of its own;
// of many, eight share one, so that an instruction serves all its lanes. Literals that are stored or all the same are copied
// by the whole warp.
//
// A symbol costs a look into the table in shared memory and a shift, one waiting for the other: about 45 cycles. Four of
// them, 44 bits at most, come from one window and leave as one word.
#include "cuzarr/bit_window.cuh"
#include "cuzarr/lz.cuh"
#include "cuzarr/zstd.cuh"

#define CUZARR_ZSTD_TREE_ENTRIES (1u << CUZARR_ZSTD_TREE_BITS)

/// Decodes `count` symbols; false when the stream does not end with the last one.
CUZARR_DEVICE bool huffman_stream(const u8* src, u32 size, const u16* table, u32 bits, u8* to, u32 count) {
    BitWindow window;
    if (!window_open(window, src, size)) return false;
    u32 drop = 32 - bits, done = 0;
    // Until words can be stored.
    for (; done < count && ((u64)(to + done) & 3); ++done) {
        u32 entry = table[(u32)(window.top >> 32) >> drop];
        to[done] = (u8)entry;
        window_take(window, entry >> 8);
    }
    for (; count - done >= 4; done += 4) {
        u64 top = window.top;
        u32 word = 0, taken = 0;
        for (u32 i = 0; i < 4; ++i) {
            u32 entry = table[(u32)(top >> 32) >> drop];
            word |= (entry & 255) << 8 * i;
            top <<= entry >> 8;
            taken += entry >> 8;
        }
        *(u32*)(to + done) = word;
        window_take(window, taken);
    }
    for (; done < count; ++done) {
        u32 entry = table[(u32)(window.top >> 32) >> drop];
        to[done] = (u8)entry;
        window_take(window, entry >> 8);
    }
    return window.at == window.begin;
}

/// The lane's stream of a block, if it has one.
CUZARR_DEVICE void huffman_literals(const ZstdTask& task, u32 index, u32 stream, const u16* table, u32 bits) {
    const ZstdBlock& block = task.blocks[index];
    if (stream >= block.streams) return;
    u32 tree_bytes = block.own_tree ? task.results[index].tree_bytes : 0;
    const u8* src = task.src + block.src + block.literals_at + tree_bytes;
    u32 size = block.literals_src_bytes - tree_bytes, count = block.literal_bytes, at = 0, first = 0;
    if (block.streams == 4) {
        // Sizes of the first three streams stand in front.
        u32 end = 6, sizes[4] = {0, 0, 0, 0};
        if (size < 6) return zstd_report(task, block, CUZARR_CUT_OFF);
        for (u32 i = 0; i < 3; ++i) end += sizes[i] = (u32)src[2 * i] | (u32)src[2 * i + 1] << 8;
        if (end > size) return zstd_report(task, block, CUZARR_CUT_OFF);
        sizes[3] = size - end;
        at = 6;
        for (u32 i = 0; i < stream; ++i) at += sizes[i];
        size = sizes[stream];
        u32 each = (count + 3) / 4;
        first = each * stream;
        if (first > count) return zstd_report(task, block, CUZARR_ZSTD_BAD_BITS);
        count = stream < 3 ? each : count - first;
    }
    u8* to = task.literals + block.literals + first;
    if (!huffman_stream(src + at, size, table, bits, to, count)) zstd_report(task, block, CUZARR_ZSTD_BAD_BITS);
}

/// Literals of a block that are stored, or all the same.
CUZARR_DEVICE void plain_literals(const ZstdTask& task, const ZstdBlock& block, u32 lane) {
    const u8* from = task.src + block.src + block.literals_at;
    u8* to = task.literals + block.literals;
    if (block.literals_kind == CUZARR_ZSTD_RAW) {
        copy_far(from, to, block.literal_bytes, lane);
    } else {
        // Literals begin at multiples of 16 and have room up to the next.
        u32 word = from[0] * 0x01010101u, units = (block.literal_bytes + 15) / 16;
        for (u32 unit = lane; unit < units; unit += CUZARR_WARP) ((uint4*)to)[unit] = uint4{word, word, word, word};
    }
}

template <u32 BLOCKS>
CUZARR_DEVICE void literals_of(const ZstdTask& task, u16* tables) {
    u32 lane = thread_index(), part = lane / 4, bits = 0;
    u32 groups = (task.block_count + BLOCKS - 1) / BLOCKS;
    for (u32 group = block_index(); group < groups; group += block_count()) {
        for (u32 i = 0; i < BLOCKS; ++i) {
            u32 index = group * BLOCKS + i;
            if (index >= task.block_count) break;
            const ZstdBlock& block = task.blocks[index];
            if (zstd_is_damaged(task, block.unit)) continue;
            if (block.literals_kind != CUZARR_ZSTD_HUFFMAN) {
                plain_literals(task, block, lane);
                continue;
            }
            const u32* slot = task.trees + (u64)block.tree * CUZARR_ZSTD_TREE_WORDS;
            u32 table_bits = slot[CUZARR_ZSTD_TREE_WORDS - 1];
            u32* table = (u32*)(tables + i * CUZARR_ZSTD_TREE_ENTRIES);
            for (u32 word = lane; word < 1u << table_bits >> 1; word += CUZARR_WARP) table[word] = slot[word];
            if (part == i) bits = table_bits;
        }
        warp_barrier(CUZARR_ALL_LANES);
        u32 index = group * BLOCKS + part;
        if (part < BLOCKS && bits) {
            huffman_literals(task, index, lane % 4, tables + part * CUZARR_ZSTD_TREE_ENTRIES, bits);
        }
        bits = 0;
        warp_barrier(CUZARR_ALL_LANES);
    }
}

CUZARR_KERNEL(zstd_literals_1, const ZstdTask task) {
    CUZARR_SHARED(u16, tables, CUZARR_ZSTD_TREE_ENTRIES);
    literals_of<1>(task, tables);
}

CUZARR_KERNEL(zstd_literals_8, const ZstdTask task) {
    CUZARR_SHARED(u16, tables, 8 * CUZARR_ZSTD_TREE_ENTRIES);
    literals_of<8>(task, tables);
}
