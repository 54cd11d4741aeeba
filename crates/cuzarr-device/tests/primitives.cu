// The primitives of cuzarr/kernel.cuh and warp.cuh, each checked against what it must give: the test of `simt` itself, and of the headers
// on a GPU. Every kernel writes one number a thread, or nothing but mischief.
#include "cuzarr/warp.cuh"

/// out[i] = sum of in over the block, by a tree in shared memory.
CUZARR_KERNEL(primitives_block_sum, const u32* in, u32* out) {
    CUZARR_SHARED(u32, partial, 256);
    u32 thread = thread_index(), global = block_index() * thread_count() + thread;
    partial[thread] = in[global];
    block_barrier();
    for (u32 step = thread_count() / 2; step; step /= 2) {
        if (thread < step) partial[thread] += partial[thread + step];
        block_barrier();
    }
    out[global] = partial[0];
}

/// out[i] = inclusive sum of in over the warp, by shuffles, plus the lanes below that vote yes.
CUZARR_KERNEL(primitives_warp_scan, const u32* in, u32* out) {
    u32 global = block_index() * thread_count() + thread_index(), lane = thread_index() % CUZARR_WARP;
    u32 sum = inclusive_sum(in[global], lane);
    u32 votes = warp_ballot(CUZARR_ALL_LANES, in[global] & 1);
    u64 wide = warp_shuffle_xor(CUZARR_ALL_LANES, (u64)lane << 40, 1u) >> 40;
    out[global] = sum + votes_below(votes, lane) * 1000000 + (wide == (lane ^ 1) ? 0 : 1);
}

/// Half of a warp works while the other half does not, and each half talks among itself.
CUZARR_KERNEL(primitives_half_warps, u32* out) {
    u32 lane = thread_index() % CUZARR_WARP, lanes = lane < 16 ? 0x0000ffffu : 0xffff0000u;
    u32 value = lane;
    if (lane < 16) value = warp_shuffle_down(lanes, value, 1);
    else value = warp_shuffle(lanes, value, 31);
    warp_barrier(CUZARR_ALL_LANES);
    out[block_index() * thread_count() + thread_index()] = value;
}

/// Every thread takes a ticket; blocks wait in turn for the block before, which all of them being resident allows.
CUZARR_KERNEL(primitives_chain, u32* turn, u32* tickets, u32* out) {
    CUZARR_SHARED(u32, place, 1);
    if (thread_index() == 0) {
        // Not the block's own number: blocks that started earlier must never wait for ones that did not.
        place[0] = atomic_add(tickets, 1u);
        while (volatile_load(turn) != place[0]) spin_yield();
        device_fence();
        out[place[0]] = place[0] ? out[place[0] - 1] + 1 : 1;
        device_fence();
        volatile_store(turn, place[0] + 1);
    }
    block_barrier();
}

/// Bits of bytes that several threads own.
CUZARR_KERNEL(primitives_bits, u8* bytes) {
    u32 global = block_index() * thread_count() + thread_index();
    u8 bit = (u8)(1u << (global & 7));
    bool on = global % 3 == 0;
    atomic_set_bits(bytes + (global >> 3), on ? bit : 0, on ? 0 : bit);
}

/// A barrier that half of the threads never reach: an error in `simt`, undefined on a GPU.
CUZARR_KERNEL(primitives_deadlock, u32* out) {
    if (thread_index() % CUZARR_WARP < 16) warp_barrier(CUZARR_ALL_LANES);
    out[thread_index()] = 1;
}

/// Reads one element behind its memory: for seeing that `simt` sees it.
CUZARR_KERNEL(primitives_overrun, const u32* in, u32* out, u32 count) {
    if (thread_index() == 0) out[0] = in[count];
}
