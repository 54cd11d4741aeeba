// Decodes the coded literals of zstd's blocks to scratch.
//
// One lane decodes a stream of Huffman codes; a block has four streams. Few blocks get a warp each. With many, four or
// eight share a warp, so that an instruction serves all its lanes. Stored literals stay in the source.
//
// A symbol costs a load from the table in shared memory and a shift, one after the other: about 45 cycles. Four
// symbols, at most 44 bits, come from one window and are stored as one word.
#pragma once
#include "codec/zstd/bit_window.cuh"
#include "codec/zstd/zstd.cuh"

#define CUZARR_ZSTD_TREE_ENTRIES (1u << CUZARR_ZSTD_TREE_BITS)

/// Returns the entry of the code that `top` begins with.
CUZARR_DEVICE u32 huffman_entry(SharedPlace table, u32 bits, u64 top) {
    return load_shared_u16(table, 2 * window_peek(top, bits));
}

/// Decodes one symbol.
CUZARR_DEVICE u8 huffman_symbol(BitWindow& window, SharedPlace table, u32 bits) {
    u32 entry = huffman_entry(table, bits, window.top);
    window_take(window, entry >> 8);
    return (u8)entry;
}

/// Decodes `count` symbols. Returns false if the stream does not end with the last one.
CUZARR_DEVICE bool huffman_stream(const u8* src, u32 size, SharedPlace table, u32 bits, u8* to, u32 count) {
    BitWindow window;
    if (!window_open(window, src, size)) return false;
    const u8* end = to + count;
    // Symbols before the first aligned word.
    while (to < end && (u64)to & 3) *to++ = huffman_symbol(window, table, bits);
    for (; end - to >= 4; to += 4) {
        u64 top = window.top;
        u32 word = 0, taken = 0;
        for (u32 i = 0; i < 4; ++i) {
            u32 entry = huffman_entry(table, bits, top);
            word |= (entry & 255) << 8 * i;
            top <<= entry >> 8;
            taken += entry >> 8;
        }
        *(u32*)to = word;
        window_take(window, taken);
    }
    while (to < end) *to++ = huffman_symbol(window, table, bits);
    return window.at == window.begin;
}

/// Decodes the lane's stream of a block, if it has one.
CUZARR_DEVICE void huffman_literals(const ZstdTask& task, u32 index, u32 stream, SharedPlace table, u32 bits) {
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

/// Writes the literals of a block if they are all the same. They begin at multiples of 16 and have room up to the next
/// multiple.
CUZARR_DEVICE void same_literals(const ZstdTask& task, const ZstdBlock& block, u32 lane) {
    u32 word = task.src[block.src + block.literals_at] * 0x01010101u, units = (block.literal_bytes + 15) / 16;
    uint4* to = (uint4*)(task.literals + block.literals);
    for (u32 unit = lane; unit < units; unit += CUZARR_WARP) to[unit] = uint4{word, word, word, word};
}

/// Decodes one group of blocks, by a warp. `space` has room for a table of each block.
template <u32 BLOCKS>
CUZARR_DEVICE void decode_literals(const ZstdTask& task, u32 group, u32* space, u32 lane) {
    u32 part = lane / 4, bits = 0;
    SharedPlace own_table = shared_place(space + part % BLOCKS * (CUZARR_ZSTD_TREE_ENTRIES / 2));
    for (u32 i = 0; i < BLOCKS && group * BLOCKS + i < task.with_literals_count; ++i) {
        const ZstdBlock& block = task.blocks[task.with_literals[group * BLOCKS + i]];
        if (zstd_is_damaged(task, block.unit)) continue;
        if (block.literals_kind != CUZARR_ZSTD_HUFFMAN) {
            same_literals(task, block, lane);
            continue;
        }
        const u32* slot = task.trees + (u64)block.tree * CUZARR_ZSTD_TREE_WORDS;
        u32 table_bits = slot[CUZARR_ZSTD_TREE_WORDS - 1];
        u32* table = space + i * (CUZARR_ZSTD_TREE_ENTRIES / 2);
        for (u32 word = lane; word < 1u << table_bits >> 1; word += CUZARR_WARP) table[word] = slot[word];
        if (part == i) bits = table_bits;
    }
    warp_barrier(CUZARR_ALL_LANES);
    if (part < BLOCKS && bits) {
        huffman_literals(task, task.with_literals[group * BLOCKS + part], lane % 4, own_table, bits);
    }
}
