// The second pass of zstd decoding: the sequences and literals of all blocks, by groups.
//
// The longest work begins first: the sequences of blocks that have many. Chains that share a warp step more slowly the
// more they are (54 nanoseconds for two, 68 for eight), but with many blocks, warps are scarce. So the fewer blocks
// there are, the fewer share a warp. With few blocks, literals are decoded beside sequences. With many, `zstd_literals`
// decodes them separately: more of its groups fit on a multiprocessor.
#include "codec/zstd/zstd_literals.cuh"
#include "codec/zstd/zstd_sequences.cuh"

/// Number of blocks of data whose sequences a block of threads decodes, with a warp for each and one more: `ZstdGroup`
/// in cuda.rs, which reads the first of two definitions.
#ifndef CUZARR_SIMT
#define CUZARR_ZSTD_MANY 8
#else
#define CUZARR_ZSTD_MANY 2
#endif
#define CUZARR_ZSTD_SOME 4
#define CUZARR_ZSTD_FEW 2
/// Number of blocks of data whose literals a warp decodes, beside sequences and by themselves.
#define CUZARR_ZSTD_LITERALS_BESIDE 4
#define CUZARR_ZSTD_LITERALS 1

/// Words for the tables of a group of literals.
#define CUZARR_ZSTD_LITERALS_WORDS(blocks) ((blocks) * CUZARR_ZSTD_TREE_ENTRIES / 2)

/// Shared memory of a group of either kind.
template <u32 BLOCKS, u32 WORDS>
union EntropySpace {
    SequenceSpace<BLOCKS, WORDS> sequences;
    u32 trees[CUZARR_ZSTD_LITERALS_WORDS(CUZARR_ZSTD_LITERALS_BESIDE)];
};
/// With many blocks, there is no room for entries of two words.
typedef EntropySpace<CUZARR_ZSTD_MANY, 1> SpaceOfMany;
typedef EntropySpace<CUZARR_ZSTD_SOME, 2> SpaceOfSome;
typedef EntropySpace<CUZARR_ZSTD_FEW, 2> SpaceOfFew;
#ifndef CUZARR_SIMT
static_assert(sizeof(SpaceOfMany) == 54080, "as cuda.rs asks for");
#endif

/// Decodes the sequences of `BLOCKS` blocks, or the literals of as many blocks as a warp decodes.
template <u32 BLOCKS, u32 WORDS>
CUZARR_DEVICE void decode_group(const ZstdTask& task, EntropySpace<BLOCKS, WORDS>& space) {
    u32 groups = (task.with_sequences_count + BLOCKS - 1) / BLOCKS, group = block_index();
    if (group < groups) {
        decode_sequences(task, group, space.sequences);
    } else if (thread_index() < CUZARR_WARP) {
        decode_literals<CUZARR_ZSTD_LITERALS_BESIDE>(task, group - groups, space.trees, thread_index());
    }
}

CUZARR_KERNEL_SIZED((1 + CUZARR_ZSTD_MANY) * CUZARR_WARP, 4, zstd_entropy, const ZstdTask task) {
    CUZARR_SHARED_ASKED(SpaceOfMany, space, 1);
    decode_group(task, *space);
}

CUZARR_KERNEL_SIZED((1 + CUZARR_ZSTD_SOME) * CUZARR_WARP, 4, zstd_entropy_some, const ZstdTask task) {
    CUZARR_SHARED(SpaceOfSome, space, 1);
    decode_group(task, *space);
}

CUZARR_KERNEL_SIZED((1 + CUZARR_ZSTD_FEW) * CUZARR_WARP, 4, zstd_entropy_few, const ZstdTask task) {
    CUZARR_SHARED(SpaceOfFew, space, 1);
    decode_group(task, *space);
}

/// Decodes literals only. One warp takes each group.
CUZARR_KERNEL(zstd_literals, const ZstdTask task) {
    CUZARR_SHARED(u32, tables, CUZARR_ZSTD_LITERALS_WORDS(CUZARR_ZSTD_LITERALS));
    decode_literals<CUZARR_ZSTD_LITERALS>(task, block_index(), tables, thread_index());
}
