// The second pass of deflate encoding: the codes of a block, and whether it is dynamic, fixed or stored. A warp takes
// each block.
//
//     Huffman codes of at most 15 bits for symbols and for distances, from their counts
//     their lengths, one behind the other, become runs, and those get a code of at most 7 bits
//     the smallest of the three kinds is taken; a stored block when it is no larger wherever it begins
#include "codec/deflate/encode/deflate_encode.cuh"
#include "codec/lz/bits.cuh"
#include "codec/lz/huffman.cuh"

#define CUZARR_DEFLATE_WORD_BITS 15u
#define CUZARR_DEFLATE_DESCRIBING_BITS 7u

/// The order in which a block's header holds the lengths of the describing code.
CUZARR_CONSTANT(u8, DESCRIBING_ORDER, CUZARR_DEFLATE_DESCRIBING) = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};

struct TreesSpace {
    HuffmanSpace<CUZARR_DEFLATE_SYMBOLS> symbols;
    HuffmanSpace<CUZARR_DEFLATE_OFFSETS> offsets;
    HuffmanSpace<CUZARR_DEFLATE_DESCRIBING> describing;
    u32 words[CUZARR_DEFLATE_DESCRIBING];
    u32 next[CUZARR_DEFLATE_WORD_BITS + 1];
    u16 runs[CUZARR_DEFLATE_BOTH];  // describing symbol | what follows it << 8
    u32 run_count;
    u32 header[CUZARR_DEFLATE_HEADER_WORDS];
};

/// Finds the lengths of a code's words, by all lanes. Old decoders want codes of at least two words, so missing symbols
/// are counted once.
template <u32 SYMBOLS>
CUZARR_DEVICE void find_lengths(HuffmanSpace<SYMBOLS>& space, u32 most, u32 lane) {
    u32 used = huffman_sort(space, lane);
    if (used < 2) {
        if (lane == 0) {
            for (u32 i = 0; used < 2; ++i) {
                if (!space.counts[i]) space.counts[i] = 1, used += 1;
            }
        }
        warp_barrier(CUZARR_ALL_LANES);
        used = huffman_sort(space, lane);
    }
    if (lane == 0) huffman_lengths(space, used, most);
    warp_barrier(CUZARR_ALL_LANES);
}

/// Assigns the words of a code (RFC 1951, 3.2.2), by all lanes: words of one length follow the order of symbols.
template <u32 SYMBOLS>
CUZARR_DEVICE void give_words(const HuffmanSpace<SYMBOLS>& space, u32* next, u32* words, u32 lane) {
    if (lane == 0) {
        u32 first = 0;
        for (u32 length = 1; length <= CUZARR_DEFLATE_WORD_BITS; ++length) {
            next[length] = first;
            first = (first + space.by_length[length]) << 1;
        }
    }
    warp_barrier(CUZARR_ALL_LANES);
    for (u32 first = 0; first < SYMBOLS; first += CUZARR_WARP) {
        u32 symbol = first + lane, length = symbol < SYMBOLS ? space.lengths[symbol] : 0;
        u32 same = warp_match(CUZARR_ALL_LANES, length), word = length ? next[length] + votes_below(same, lane) : 0;
        warp_barrier(CUZARR_ALL_LANES);
        if (length && votes_below(same, lane) == 0) next[length] += count_ones(same);
        warp_barrier(CUZARR_ALL_LANES);
        if (symbol < SYMBOLS) words[symbol] = deflate_word(length ? reverse_bits(word) >> (32 - length) : 0, length);
    }
}

/// Turns the lengths of `symbols` and `offsets` words into runs, and counts the symbols that describe them. One lane
/// calls.
CUZARR_DEVICE void find_runs(TreesSpace& space, u32 symbols, u32 offsets) {
    u32 all = symbols + offsets, runs = 0;
    for (u32 i = 0; i < CUZARR_DEFLATE_DESCRIBING; ++i) space.describing.counts[i] = 0;
    const auto length_at = [&](u32 at) -> u32 { return at < symbols ? space.symbols.lengths[at] : space.offsets.lengths[at - symbols]; };
    const auto put = [&](u32 symbol, u32 more) {
        space.runs[runs++] = (u16)(symbol | more << 8);
        space.describing.counts[symbol] += 1;
    };
    for (u32 at = 0; at < all;) {
        u32 length = length_at(at), same = 1;
        while (at + same < all && length_at(at + same) == length) ++same;
        at += same;
        if (length) put(length, 0), same -= 1;
        while (same >= 3) {
            u32 most = length ? 6 : same < 11 ? 10 : 138, run = same < most ? same : most;
            put(length ? 16 : run < 11 ? 17 : 18, run - (run < 11 || length ? 3 : 11));
            same -= run;
        }
        for (; same > 0; --same) put(length, 0);
    }
    space.run_count = runs;
}

/// Number of bits that follow a describing symbol.
CUZARR_DEVICE u32 run_extra(u32 symbol) { return symbol < 16 ? 0 : symbol == 16 ? 2 : symbol == 17 ? 3 : 7; }

/// Returns the last symbol that has a word, and at least `least`.
template <u32 SYMBOLS>
CUZARR_DEVICE u32 last_used(const HuffmanSpace<SYMBOLS>& space, u32 least, u32 lane) {
    u32 last = least;
    for (u32 first = 0; first < SYMBOLS; first += CUZARR_WARP) {
        u32 votes = warp_ballot(CUZARR_ALL_LANES, first + lane < SYMBOLS && space.lengths[first + lane] != 0);
        if (votes && first + highest_bit(votes) > last) last = first + highest_bit(votes);
    }
    return last;
}

/// Makes a dynamic block's header, by all lanes. Returns its number of bits.
CUZARR_DEVICE u32 describe(TreesSpace& space, u32 lane) {
    u32 symbols = last_used(space.symbols, CUZARR_DEFLATE_END, lane) + 1, offsets = last_used(space.offsets, 0, lane) + 1;
    for (u32 i = lane; i < CUZARR_DEFLATE_HEADER_WORDS; i += CUZARR_WARP) space.header[i] = 0;
    if (lane == 0) find_runs(space, symbols, offsets);
    warp_barrier(CUZARR_ALL_LANES);
    find_lengths(space.describing, CUZARR_DEFLATE_DESCRIBING_BITS, lane);
    give_words(space.describing, space.next, space.words, lane);
    warp_barrier(CUZARR_ALL_LANES);
    u32 length = lane < CUZARR_DEFLATE_DESCRIBING ? space.describing.lengths[DESCRIBING_ORDER[lane]] : 0;
    u32 lengths = highest_bit(warp_ballot(CUZARR_ALL_LANES, length != 0 || lane == 3)) + 1;
    if (lane == 0) {
        put_bits(space.header, 1, CUZARR_DEFLATE_DYNAMIC, 2);
        put_bits(space.header, 3, (symbols - CUZARR_DEFLATE_END - 1) | (offsets - 1) << 5 | (lengths - 4) << 10, 14);
    }
    if (lane < lengths) put_bits(space.header, 17 + 3 * lane, length, 3);
    u32 at = 17 + 3 * lengths;
    for (u32 first = 0; first < space.run_count; first += CUZARR_WARP) {
        u32 run = first + lane < space.run_count ? space.runs[first + lane] : 0xffff, value = 0, bits = 0;
        if (run != 0xffff) {
            u32 word = space.words[run & 255];
            value = word_bits(word) | run >> 8 << word_count(word);
            bits = word_count(word) + run_extra(run & 255);
        }
        u32 sum = inclusive_sum(bits, lane);
        put_bits(space.header, at + sum - bits, value, bits);
        at += warp_shuffle(CUZARR_ALL_LANES, sum, CUZARR_WARP - 1);
    }
    warp_barrier(CUZARR_ALL_LANES);
    return at;
}

/// Bits of a symbol, and of a distance, in a fixed block (RFC 1951, 3.2.6).
CUZARR_DEVICE u32 fixed_length(u32 symbol) { return symbol < 144 ? 8 : symbol < 256 ? 9 : symbol < 280 ? 7 : 8; }
#define CUZARR_DEFLATE_FIXED_OFFSET 5u

CUZARR_DEVICE u32 fixed_word(u32 symbol) {
    u32 length = fixed_length(symbol);
    u32 word = symbol < 144 ? 0x30 + symbol : symbol < 256 ? 0x190 + symbol - 144 : symbol < 280 ? symbol - 256 : 0xc0 + symbol - 280;
    return deflate_word(reverse_bits(word) >> (32 - length), length);
}

CUZARR_KERNEL(deflate_encode_trees, const DeflateEncode task) {
    CUZARR_SHARED(TreesSpace, spaces, 1);
    TreesSpace& space = *spaces;
    u32 lane = thread_index();
    for (u32 block = block_index(); block < block_count_of(task.blocks); block += block_count()) {
        if (!is_wanted(task.blocks, block)) continue;
        const u16* counters = task.counters + (u64)block * CUZARR_DEFLATE_COUNTERS;
        for (u32 i = lane; i < CUZARR_DEFLATE_SYMBOLS; i += CUZARR_WARP) space.symbols.counts[i] = counters[i];
        if (lane < CUZARR_DEFLATE_OFFSETS) space.offsets.counts[lane] = counters[CUZARR_DEFLATE_SYMBOLS + lane];
        warp_barrier(CUZARR_ALL_LANES);
        find_lengths(space.symbols, CUZARR_DEFLATE_WORD_BITS, lane);
        find_lengths(space.offsets, CUZARR_DEFLATE_WORD_BITS, lane);
        u32 header = describe(space, lane), dynamic = 0, fixed = 0;
        for (u32 i = lane; i < CUZARR_DEFLATE_SYMBOLS; i += CUZARR_WARP) {
            u32 count = counters[i];
            dynamic += count * (space.symbols.lengths[i] + symbol_extra(i)), fixed += count * (fixed_length(i) + symbol_extra(i));
        }
        if (lane < CUZARR_DEFLATE_OFFSETS) {
            u32 count = counters[CUZARR_DEFLATE_SYMBOLS + lane];
            dynamic += count * (space.offsets.lengths[lane] + offset_extra(lane));
            fixed += count * (CUZARR_DEFLATE_FIXED_OFFSET + offset_extra(lane));
        }
        dynamic = header + warp_sum(dynamic), fixed = 3 + warp_sum(fixed);
        u32 stored = 35 + 8 * block_bytes(task.blocks, block), least = dynamic < fixed ? dynamic : fixed;
        u32 kind = stored < least ? CUZARR_DEFLATE_STORED : dynamic < fixed ? CUZARR_DEFLATE_DYNAMIC : CUZARR_DEFLATE_FIXED;
        DeflateCodes& codes = task.codes[block];
        if (kind == CUZARR_DEFLATE_DYNAMIC) {
            give_words(space.symbols, space.next, codes.words, lane);
            warp_barrier(CUZARR_ALL_LANES);
            give_words(space.offsets, space.next, codes.words + CUZARR_DEFLATE_SYMBOLS, lane);
            for (u32 i = lane; i < (header + 31) / 32; i += CUZARR_WARP) codes.header[i] = space.header[i];
        } else {
            header = 3;
            for (u32 i = lane; i < CUZARR_DEFLATE_SYMBOLS; i += CUZARR_WARP) codes.words[i] = fixed_word(i);
            if (lane < CUZARR_DEFLATE_OFFSETS) codes.words[CUZARR_DEFLATE_SYMBOLS + lane] = deflate_word(reverse_bits(lane) >> 27, CUZARR_DEFLATE_FIXED_OFFSET);
            if (lane == 0) codes.header[0] = kind << 1;
        }
        if (lane == 0) task.made[block] = {kind, header, least, 0};
        warp_barrier(CUZARR_ALL_LANES);
    }
}
