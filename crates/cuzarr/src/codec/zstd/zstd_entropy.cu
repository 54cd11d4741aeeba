// zstd, second pass: the sequences and literals of all blocks, by groups of one, four or eight.
//
// What takes longest begins first: sequences, of blocks that have many. Literals fill what they leave idle.
#include "cuzarr/zstd_literals.cuh"
#include "cuzarr/zstd_sequences.cuh"

/// Has 1 + MAKERS warps, for the sequences of BLOCKS blocks, or the literals of LITERALS. Tables of Huffman codes lie where those
/// of sequences do.
#define CUZARR_ZSTD_ENTROPY(BLOCKS, MAKERS, LITERALS)                                          \
    CUZARR_KERNEL(zstd_entropy_##BLOCKS, const ZstdTask task) {                                \
        CUZARR_SHARED(u32, tables, BLOCKS * CUZARR_ZSTD_SPACE_WORDS);                          \
        CUZARR_SHARED(u64, ring, BLOCKS * 2 * CUZARR_ZSTD_AHEAD);                              \
        CUZARR_SHARED(SequenceChain, chains, BLOCKS);                                          \
        CUZARR_SHARED(u32, bases, CUZARR_ZSTD_BASES_WORDS);                                    \
        u32 groups = (task.with_sequences_count + BLOCKS - 1) / BLOCKS, group = block_index(); \
        if (group < groups) {                                                                  \
            decode_sequences<BLOCKS, MAKERS>(task, group, {tables, ring, chains, bases});      \
        } else if (thread_index() < CUZARR_WARP) {                                             \
            decode_literals<LITERALS>(task, group - groups, tables, thread_index());           \
        }                                                                                      \
    }

CUZARR_ZSTD_ENTROPY(1, 1, 1)
CUZARR_ZSTD_ENTROPY(4, 2, 4)
CUZARR_ZSTD_ENTROPY(8, 4, 4)
