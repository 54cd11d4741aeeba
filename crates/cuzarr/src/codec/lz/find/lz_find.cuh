// The output of the match finder (lz_find.cu) for encoders: the sequences of blocks, and their number.
#pragma once
#include "cuzarr/kernel.cuh"
#include "cuzarr/warp.cuh"

/// Bytes of a block. Its matches may begin in earlier blocks of its chunk; they end in it.
#define CUZARR_FIND_BLOCK_BYTES 32768u
/// Minimum bytes of a match.
#define CUZARR_FIND_LEAST_MATCH 4u
/// Bytes of an `LzFound`, and of an `LzFoundBlock`.
#define CUZARR_FIND_ENTRY_BYTES 8u

/// Literals, then a match.
struct alignas(8) LzFound {
    u16 literals;
    u16 match;   // bytes of the match
    u16 offset;  // how far back it repeats
    u16 before;  // literals of the block's sequences before
};

/// A block: its number of sequences, and of literals. Bytes that no sequence covers are literals behind the last one.
struct alignas(8) LzFoundBlock {
    u32 sequences, literals;
};
static_assert(sizeof(LzFound) == CUZARR_FIND_ENTRY_BYTES && sizeof(LzFoundBlock) == 8, "as the host counts them");

/// Chunks, each cut into blocks. `Blocks` of codec/lz/find/mod.rs.
struct LzBlocks {
    u64 stride;          // bytes from one chunk to the next
    const u32* sizes;    // bytes of each chunk; 0: it is left out
    u32 chunks;
    u32 chunk_blocks;    // of the largest chunk: a smaller one has no bytes in its last ones
    u32 most_sequences;  // of a block: entries that it has room for
    u32 reserved;
};

CUZARR_DEVICE u32 block_count_of(const LzBlocks& blocks) { return blocks.chunks * blocks.chunk_blocks; }
/// Where the block begins in its chunk.
CUZARR_DEVICE u32 block_begin(const LzBlocks& blocks, u32 block) {
    return block % blocks.chunk_blocks * CUZARR_FIND_BLOCK_BYTES;
}
/// Bytes of its chunk from where the block begins.
CUZARR_DEVICE u32 bytes_from(const LzBlocks& blocks, u32 block) {
    u32 begin = block_begin(blocks, block), size = blocks.sizes[block / blocks.chunk_blocks];
    return begin < size ? size - begin : 0;
}
CUZARR_DEVICE u32 block_bytes(const LzBlocks& blocks, u32 block) {
    u32 rest = bytes_from(blocks, block);
    return rest < CUZARR_FIND_BLOCK_BYTES ? rest : CUZARR_FIND_BLOCK_BYTES;
}
CUZARR_DEVICE bool is_wanted(const LzBlocks& blocks, u32 block) { return bytes_from(blocks, block) != 0; }
/// Whether it is the last block of its chunk.
CUZARR_DEVICE bool is_last(const LzBlocks& blocks, u32 block) { return bytes_from(blocks, block) <= CUZARR_FIND_BLOCK_BYTES; }
/// Number of blocks of a chunk that have bytes.
CUZARR_DEVICE u32 blocks_of(const LzBlocks& blocks, u32 chunk) {
    return (blocks.sizes[chunk] + CUZARR_FIND_BLOCK_BYTES - 1) / CUZARR_FIND_BLOCK_BYTES;
}

/// Returns the sum of `value` over the threads before; `total` gets the sum of all. `sums` has a word for each warp.
/// All threads call.
CUZARR_DEVICE u32 block_sum_before(u32 value, u32* sums, u32* total) {
    u32 lane = thread_index() % CUZARR_WARP, warp = thread_index() / CUZARR_WARP, sum = inclusive_sum(value, lane);
    if (lane == CUZARR_WARP - 1) sums[warp] = sum;
    block_barrier();
    u32 before = 0, all = 0;
    for (u32 i = 0; i < thread_count() / CUZARR_WARP; ++i) {
        if (i < warp) before += sums[i];
        all += sums[i];
    }
    block_barrier();
    *total = all;
    return before + sum - value;
}
