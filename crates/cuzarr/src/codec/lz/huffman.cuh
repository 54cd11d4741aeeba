// Huffman codes of limited length, made by a warp, for every encoder.
//
//     sort the symbols by how often they come; join the two rarest, again and again; cut what is too long
//
// Prior art: Huffman's two queues of sorted weights; JPEG's annex K.3 for codes that are too long.
#pragma once
#include "cuzarr/warp.cuh"

/// More than the depths that a tree can have: counts grow at least as Fibonacci numbers, and stay below 2^20.
#define CUZARR_HUFFMAN_DEPTHS 40u

/// Shared memory of one code.
template <u32 SYMBOLS>
struct HuffmanSpace {
    u32 counts[SYMBOLS];       // how often each symbol comes: from the caller
    u32 weights[2 * SYMBOLS];  // of leaves, rarest first, and of the nodes that join
    u16 parents[2 * SYMBOLS];
    u16 sorted[SYMBOLS];
    u8 depths[2 * SYMBOLS];
    u8 lengths[SYMBOLS];       // of words, in bits; 0: does not come
    u32 by_length[CUZARR_HUFFMAN_DEPTHS];
};

/// Sorts the symbols that occur, the rarest first, by all lanes. Returns their number.
template <u32 SYMBOLS>
CUZARR_DEVICE u32 huffman_sort(HuffmanSpace<SYMBOLS>& space, u32 lane) {
    // The symbols that occur, in their order, in memory where nodes and their parents will be.
    u32 used = 0, *counts = space.weights + SYMBOLS;
    for (u32 first = 0; first < SYMBOLS; first += CUZARR_WARP) {
        u32 symbol = first + lane, count = symbol < SYMBOLS ? space.counts[symbol] : 0;
        u32 votes = warp_ballot(CUZARR_ALL_LANES, count != 0), place = used + votes_below(votes, lane);
        if (symbol < SYMBOLS) space.lengths[symbol] = 0;
        if (count) counts[place] = count, space.parents[place] = (u16)symbol;
        used += count_ones(votes);
    }
    warp_barrier(CUZARR_ALL_LANES);
    for (u32 i = lane; i < used; i += CUZARR_WARP) {
        u32 count = counts[i], rank = 0;
        for (u32 k = 0; k < used; ++k) rank += counts[k] < count || (counts[k] == count && k < i) ? 1 : 0;
        space.sorted[rank] = space.parents[i], space.weights[rank] = count;
    }
    warp_barrier(CUZARR_ALL_LANES);
    return used;
}

/// Finds the lengths of code words, at most `most` bits, from `used` sorted symbols, at least two. One lane calls.
/// Returns the longest length.
template <u32 SYMBOLS>
CUZARR_DEVICE u32 huffman_lengths(HuffmanSpace<SYMBOLS>& space, u32 used, u32 most) {
    // Nodes follow the leaves, and are in order of weight, too.
    u32 leaf = 0, node = used, made = used, root = 2 * used - 2;
    for (; made <= root; ++made) {
        u32 sum = 0;
        for (u32 i = 0; i < 2; ++i) {
            bool is_leaf = leaf < used && (node == made || space.weights[leaf] <= space.weights[node]);
            u32 rarest = is_leaf ? leaf++ : node++;
            sum += space.weights[rarest];
            space.parents[rarest] = (u16)made;
        }
        space.weights[made] = sum;
    }
    for (u32 i = 0; i < CUZARR_HUFFMAN_DEPTHS; ++i) space.by_length[i] = 0;
    space.depths[root] = 0;
    for (u32 i = root; i-- > 0;) {
        space.depths[i] = (u8)(space.depths[space.parents[i]] + 1);
        if (i < used) space.by_length[space.depths[i]] += 1;
    }
    // Two leaves that are too deep: one takes their parent's place, the other one goes beside a leaf further up.
    for (u32 depth = CUZARR_HUFFMAN_DEPTHS - 1; depth > most; --depth) {
        while (space.by_length[depth]) {
            u32 up = depth - 2;
            while (!space.by_length[up]) --up;
            space.by_length[depth] -= 2, space.by_length[depth - 1] += 1;
            space.by_length[up + 1] += 2, space.by_length[up] -= 1;
        }
    }
    u32 longest = 0, index = 0;
    for (u32 length = most; length > 0; --length) {
        if (space.by_length[length] && !longest) longest = length;
        for (u32 i = 0; i < space.by_length[length]; ++i) space.lengths[space.sorted[index++]] = (u8)length;
    }
    return longest;
}
