// zstd, second pass: the sequences and literals of all blocks, by groups.
//
// What takes longest begins first: sequences, of blocks that have many. Of few blocks, `zstd_entropy_few` runs each chain in a
// warp of its own, which steps faster than eight in one, and decodes literals beside them; `zstd_entropy` as well, in groups. Of
// many, `zstd_literals` does it by itself: more of its groups fit on a multiprocessor.
#include "cuzarr/zstd_literals.cuh"
#include "cuzarr/zstd_sequences.cuh"

/// Blocks of data whose sequences a block of threads decodes, with a warp for each and one more: `sequences_of_group` in cuda.rs.
#ifdef CUZARR_SIMT
#define CUZARR_ZSTD_SEQUENCES 2
#else
#define CUZARR_ZSTD_SEQUENCES 8
#endif
/// Blocks of data whose literals a warp decodes: LITERALS in cuda.rs.
#define CUZARR_ZSTD_LITERALS 4

/// Words for the tables of a group of literals.
#define CUZARR_ZSTD_LITERALS_WORDS (CUZARR_ZSTD_LITERALS * CUZARR_ZSTD_TREE_ENTRIES / 2)

/// Shared memory of a group of either kind.
template <u32 BLOCKS>
union EntropySpace {
    SequenceSpace<BLOCKS> sequences;
    u32 trees[CUZARR_ZSTD_LITERALS_WORDS];
};
#ifndef CUZARR_SIMT
static_assert(sizeof(EntropySpace<CUZARR_ZSTD_SEQUENCES>) == 54080, "as cuda.rs asks for");
#endif

/// The sequences of `BLOCKS` blocks, or the literals of as many as a warp decodes.
template <u32 BLOCKS>
CUZARR_DEVICE void decode_group(const ZstdTask& task, EntropySpace<BLOCKS>& space) {
    u32 groups = (task.with_sequences_count + BLOCKS - 1) / BLOCKS, group = block_index();
    if (group < groups) {
        decode_sequences(task, group, space.sequences);
    } else if (thread_index() < CUZARR_WARP) {
        decode_literals<CUZARR_ZSTD_LITERALS>(task, group - groups, space.trees, thread_index());
    }
}

CUZARR_KERNEL_SIZED((1 + CUZARR_ZSTD_SEQUENCES) * CUZARR_WARP, 4, zstd_entropy, const ZstdTask task) {
    CUZARR_SHARED_ASKED(EntropySpace<CUZARR_ZSTD_SEQUENCES>, space, 1);
    decode_group(task, *space);
}

CUZARR_KERNEL_SIZED(2 * CUZARR_WARP, 1, zstd_entropy_few, const ZstdTask task) {
    CUZARR_SHARED(EntropySpace<1>, space, 1);
    decode_group(task, *space);
}

/// A warp a group.
CUZARR_KERNEL(zstd_literals, const ZstdTask task) {
    CUZARR_SHARED(u32, tables, CUZARR_ZSTD_LITERALS_WORDS);
    decode_literals<CUZARR_ZSTD_LITERALS>(task, block_index(), tables, thread_index());
}
