// The first pass of deflate encoding: where matches begin, and how often each symbol occurs. A block of threads takes
// each block of data.
#include "codec/deflate/encode/deflate_encode.cuh"

/// Sets `before` of each sequence to where its match begins.
CUZARR_DEVICE void place_matches(LzFound* sequences, u32 count, u32* sums) {
    u32 covered = 0;
    for (u32 first = 0; first < count; first += thread_count()) {
        u32 index = first + thread_index(), total;
        LzFound sequence = index < count ? sequences[index] : LzFound{0, 0, 0, 0};
        u32 begin = covered + block_sum_before(sequence.literals + sequence.match, sums, &total);
        if (index < count) sequences[index].before = (u16)(begin + sequence.literals);
        covered += total;
    }
    block_barrier();
}

CUZARR_KERNEL(deflate_encode_count, const DeflateEncode task) {
    CUZARR_SHARED(u32, counters, CUZARR_DEFLATE_COUNTERS);
    CUZARR_SHARED(u32, sums, CUZARR_DEFLATE_THREADS / CUZARR_WARP);
    u32 thread = thread_index(), threads = thread_count();
    for (u32 block = block_index(); block < block_count_of(task.blocks); block += block_count()) {
        if (!is_wanted(task.blocks, block)) continue;
        for (u32 i = thread; i < CUZARR_DEFLATE_COUNTERS; i += threads) counters[i] = i == CUZARR_DEFLATE_END;
        place_matches(task.sequences + (u64)block * task.blocks.most_sequences, task.counts[block].sequences, sums);
        walk(
            share_of(task, block), [&](u32 byte) { atomic_add(counters + byte, 1u); },
            [&](u32 length, u32 offset) {
                u32 extra;
                atomic_add(counters + length_symbol(length, &extra), 1u);
                atomic_add(counters + CUZARR_DEFLATE_SYMBOLS + offset_symbol(offset, &extra), 1u);
            }
        );
        block_barrier();
        u16* to = task.counters + (u64)block * CUZARR_DEFLATE_COUNTERS;
        for (u32 i = thread; i < CUZARR_DEFLATE_COUNTERS; i += threads) to[i] = (u16)counters[i];
        block_barrier();
    }
}
