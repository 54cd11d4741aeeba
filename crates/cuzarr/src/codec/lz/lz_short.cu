// Makes the tiles of many units whose sequences are short, with one lane for each sequence instead of each byte as in
// lz.cu. A tile that waits for the one before takes longer than in lz.cu.
#include "codec/lz/lz_chains.cuh"
#include "codec/lz/lz_copies.cuh"

/// Stores a tile from shared memory, by all threads.
CUZARR_DEVICE void lz_store_tile(u8* to, const u8* bytes, u32 size) {
    for (u32 at = 16 * thread_index(); at < size; at += 16 * thread_count()) {
        if (at + 16 <= size && (u64)to % 16 == 0) {
            *(uint4*)(to + at) = *(const uint4*)(bytes + at);
        } else {
            for (u32 k = at; k < size && k < at + 16; ++k) to[k] = bytes[k];
        }
    }
}

/// Takes 32 registers a thread, so that a multiprocessor has as many warps as it can hold.
CUZARR_KERNEL_SIZED(
    CUZARR_LZ_THREADS, 8, lz_short, const u8* src, const u8* scratch, u8* dst, const LzChain* chains, const LzTile* tiles, const u64* briefs,
    const LzBundle* bundles, const u32* counts, const u64* statuses, u32* ticket, u32* done
) {
    CUZARR_SHARED(uint4, bytes, CUZARR_LZ_TILE / 16);
    CUZARR_SHARED(u32, there, CUZARR_LZ_TILE / 32);
    CUZARR_SHARED(u64, aside, CUZARR_LZ_THREADS / CUZARR_WARP * CUZARR_LZ_ASIDE);
    // The ticket, where sequences begin, and of the first one `out`, `literals` and `match`.
    CUZARR_SHARED(u32, shared, 5);
    u32 thread = thread_index(), tile_bytes = thread_count() * CUZARR_LZ_OWN;
    if (thread == 0) shared[0] = atomic_add(ticket, 1u);
    there[thread] = 0;
    block_barrier();
    LzTile tile = tiles[shared[0]];
    LzChain chain = chains[tile.chain];
    if (statuses[chain.status]) return;
    LzCopies copies = {dst + chain.dst, tile.tile * tile_bytes, chain.bytes - tile.tile * tile_bytes, tile.tile,
                       highest_bit(tile_bytes), done + chain.first_flag, (u8*)bytes, there};
    copies.size = copies.size < tile_bytes ? copies.size : tile_bytes;
    LzBundled sequences = {briefs + chain.first_sequence * CUZARR_LZ_BUNDLE, bundles + chain.first_sequence, counts[chain.unit]};
    if (thread < CUZARR_WARP) {
        LzSequence first;
        u32 number = sequences.find(copies.begin, thread, first);
        if (thread == 0) shared[1] = number, shared[2] = first.out, shared[3] = first.literals, shared[4] = first.match;
    }
    block_barrier();
    sequences.skip(shared[1]);
    if (shared[4] >= copies.begin + copies.size) {
        const u8* literals = lz_literals(chain, src, scratch, shared[3]);
        lz_copy(literals + (copies.begin - shared[2]), copies.unit + copies.begin, copies.size);
    } else {
        u64* own = aside + thread / CUZARR_WARP * CUZARR_LZ_ASIDE;
        lz_copy_tile(copies, sequences, own, [&](const LzSequence& sequence) {
            return lz_literals(chain, src, scratch, sequence.literals);
        });
        block_barrier();
        lz_store_tile(copies.unit + copies.begin, copies.bytes, copies.size);
    }
    block_barrier();
    if (thread == 0) {
        device_fence();
        volatile_store(done + chain.first_flag + tile.tile, 1);
    }
}
