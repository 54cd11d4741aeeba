// The second pass of zstd encoding: the codes of a block's literals and sequences, and their sizes, by a warp for each
// block.
//
//     literals: raw when there are few, RLE when all are the same; else a Huffman code of at most 11 bits (codec/lz/huffman.cuh):
//         describe it by weights, coded by FSE or four bits each
//     for literal lengths, offsets and match lengths: one symbol alone, the predefined table, or one of the block's own,
//         whichever takes the fewest bits
#include "codec/lz/huffman.cuh"
#include "codec/zstd/encode/zstd_encode.cuh"
#include "codec/zstd/zstd_predefined.cuh"

/// Number of weights of a code, with 0 for symbols that do not occur.
#define CUZARR_ZSTD_WEIGHTS (CUZARR_ZSTD_TREE_BITS + 1)

struct TreeSpace : HuffmanSpace<CUZARR_ZSTD_BYTES> {
    u8 described[CUZARR_ZSTD_BYTES / 2 + 4];
    u32 described_bytes;
};

struct TablesSpace {
    TreeSpace tree;
    FseSpace fse;
    u32 counts[3][CUZARR_ZSTD_CODES];
    i16 own[3][CUZARR_ZSTD_CODES];         // normalised
    u8 text[3][CUZARR_ZSTD_TABLE_BYTES];   // descriptions
    u32 text_bytes[3];
    u32 logs[3], modes[3], symbols[3];
    u16 weight_cells[1u << CUZARR_ZSTD_WEIGHT_LOG];
    u32 weight_symbols[CUZARR_ZSTD_WEIGHTS + 1];
    i16 weight_counts[CUZARR_ZSTD_CODES];
};

/// A writer of bits, from the lowest bit of a byte on, for one lane.
struct BitText {
    u8* to;
    u32 bytes, held;
    u64 bits;
};

CUZARR_DEVICE void text_put(BitText& text, u32 value, u32 count) {
    text.bits |= (u64)value << text.held;
    for (text.held += count; text.held >= 8; text.held -= 8, text.bits >>= 8) text.to[text.bytes++] = (u8)text.bits;
}

CUZARR_DEVICE void text_end(BitText& text) {
    if (text.held) text.to[text.bytes++] = (u8)text.bits;
}

/// Shares 2^log states among the symbols that occur, in proportion to their counts, at least one for each. One lane
/// calls.
CUZARR_DEVICE void normalise(const u32* counts, u32 symbols, u32 total, u32 log, i16* shares) {
    u32 size = 1u << log, given = 0, largest = 0;
    for (u32 i = 0; i < symbols; ++i) {
        u32 share = counts[i] ? (u32)(((u64)counts[i] * 2 * size + total) / (2 * total)) : 0;
        share = counts[i] && !share ? 1 : share;
        shares[i] = (i16)share;
        given += share;
        if (counts[i] > counts[largest]) largest = i;
    }
    // The most common symbol gets the states that are left over. If too many were given, they are taken back one by
    // one, where that costs least.
    if (given <= size) {
        shares[largest] = (i16)(shares[largest] + (i32)(size - given));
        return;
    }
    for (; given > size; --given) {
        u32 from = largest;
        u64 least = ~0ull;
        for (u32 i = 0; i < symbols; ++i) {
            if (shares[i] < 2) continue;
            // The bits that the symbol then takes more.
            u64 cost = (u64)counts[i] * (log_1024((u32)shares[i]) - log_1024((u32)shares[i] - 1));
            if (cost < least) least = cost, from = i;
        }
        --shares[from];
    }
}

/// Writes the description of a table (RFC 8878, section 4.1.1), which fse_read reads. One lane calls.
CUZARR_DEVICE u32 describe(const i16* shares, u32 symbols, u32 log, u8* to) {
    BitText text = {to, 0, 0, 0};
    text_put(text, log - 5, 4);
    i32 remaining = (1 << log) + 1, threshold = 1 << log;
    u32 width = log + 1;
    for (u32 symbol = 0; remaining > 1 && symbol < symbols;) {
        i32 share = shares[symbol++], spare = 2 * threshold - 1 - remaining, value = share + 1;
        if (value < spare) text_put(text, (u32)value, width - 1);
        else text_put(text, (u32)(value < threshold ? value : value + spare), width);
        remaining -= share;
        if (share == 0) {
            u32 zeros = 0;
            while (symbol < symbols && shares[symbol] == 0) ++zeros, ++symbol;
            for (; zeros >= 3; zeros -= 3) text_put(text, 3, 2);
            text_put(text, zeros, 2);
        }
        while (remaining < threshold) threshold >>= 1, --width;
    }
    text_end(text);
    return text.bytes;
}

/// Makes the encoding table for the shares in `fse`, by all lanes. `cells` are states of 2^log and more, symbol by
/// symbol.
CUZARR_DEVICE void encoding_table(FseSpace& fse, u16* cells, u32* symbols, u32 lane) {
    u32 log = fse.log;
    if (lane == 0) {
        u32 first = 0;
        for (u32 symbol = 0; symbol < fse.symbols; ++symbol) {
            u32 count = fse.counts[symbol] < 0 ? 1 : (u32)fse.counts[symbol];
            symbols[symbol] = count ? encoding_symbol(log, count, first) : 0;
            first += count;
        }
    }
    warp_barrier(CUZARR_ALL_LANES);
    fse_build(fse, lane, [&](u32 state, u32 symbol, u32 bits, u32 next) {
        // The state's number among those of its symbol, counted from their number on.
        u32 number = (next + (1u << log)) >> bits;
        cells[(symbols[symbol] >> 15) + number - CUZARR_FSE_STATES] = (u16)(state + (1u << log));
    });
}

/// Writes the weights of the Huffman code, coded by FSE with two states that take turns. Returns the size, or 0 if that
/// is not possible. One lane calls.
CUZARR_DEVICE u32 coded_weights(const TablesSpace& space, const u8* lengths, u32 longest, u32 count, u32 header, u8* to) {
    BitText text = {to, header, 0, 0};
    u32 states[2] = {0, 0};
    for (u32 i = count; i-- > 0;) {
        if (text.bytes > 127) return 0;
        u32 weight = lengths[i] ? longest + 1 - lengths[i] : 0;
        if (i + 2 >= count) {
            states[i & 1] = first_state(space.weight_cells, space.weight_symbols[weight]);
            continue;
        }
        u32 taken = encode_state(space.weight_cells, space.weight_symbols[weight], &states[i & 1]);
        text_put(text, taken & 0xfff, taken >> 12);
    }
    text_put(text, states[1] & ((1u << space.fse.log) - 1), space.fse.log);
    text_put(text, states[0] & ((1u << space.fse.log) - 1), space.fse.log);
    text_put(text, 1, 1);
    text_end(text);
    return text.bytes;
}

/// Describes the code by the lengths of its symbols up to the last one that occurs, whose weight follows from the
/// others. Returns false if the code cannot be described. All lanes call.
CUZARR_DEVICE bool describe_tree(TablesSpace& space, u32 last, u32 longest, u32 lane) {
    TreeSpace& tree = space.tree;
    if (lane == 0) {
        u32 counts[CUZARR_ZSTD_WEIGHTS], distinct = 0, symbols = 0;
        for (u32 i = 0; i < CUZARR_ZSTD_WEIGHTS; ++i) counts[i] = 0;
        for (u32 i = 0; i < last; ++i) counts[tree.lengths[i] ? longest + 1 - tree.lengths[i] : 0] += 1;
        for (u32 i = 0; i < CUZARR_ZSTD_WEIGHTS; ++i) {
            if (counts[i]) distinct += 1, symbols = i + 1;
        }
        space.fse.symbols = distinct > 1 ? symbols : 0;
        space.fse.log = last < 64 ? 5 : CUZARR_ZSTD_WEIGHT_LOG;
        tree.described_bytes = 0;
        if (distinct > 1) {
            normalise(counts, symbols, last, space.fse.log, space.fse.counts);
            tree.described_bytes = describe(space.fse.counts, symbols, space.fse.log, tree.described + 1);
        }
    }
    warp_barrier(CUZARR_ALL_LANES);
    if (space.fse.symbols) encoding_table(space.fse, space.weight_cells, space.weight_symbols, lane);
    warp_barrier(CUZARR_ALL_LANES);
    if (lane == 0) {
        u32 coded = 0, plain = last <= 128 ? 1 + (last + 1) / 2 : ~0u;
        if (space.fse.symbols) coded = coded_weights(space, tree.lengths, longest, last, tree.described_bytes, tree.described + 1);
        bool is_coded = coded && coded < 128 && 1 + coded < plain;
        tree.described[0] = (u8)(is_coded ? coded : 127 + last);
        tree.described_bytes = is_coded ? 1 + coded : plain == ~0u ? 0 : plain;
        if (!is_coded && tree.described_bytes) {
            for (u32 i = 0; i < last; i += 2) {
                u32 first = tree.lengths[i] ? longest + 1 - tree.lengths[i] : 0, second = 0;
                if (i + 1 < last && tree.lengths[i + 1]) second = longest + 1 - tree.lengths[i + 1];
                tree.described[1 + i / 2] = (u8)(first << 4 | second);
            }
        }
    }
    warp_barrier(CUZARR_ALL_LANES);
    return tree.described_bytes != 0;
}

/// Assigns the words of the code. The longest ones begin at 0; those of one length follow the order of symbols. One
/// lane calls.
CUZARR_DEVICE void code_words(TreeSpace& tree, u32 longest, u16* words) {
    u32 next[CUZARR_ZSTD_TREE_BITS + 2], first = 0;
    for (u32 length = longest; length > 0; --length) {
        next[length] = first;
        first = (first + tree.by_length[length]) >> 1;
    }
    for (u32 i = 0; i < CUZARR_ZSTD_BYTES; ++i) {
        u32 length = tree.lengths[i];
        words[i] = (u16)(length ? next[length]++ | length << 12 : 0);
    }
}

/// Chooses how a block's literals are written.
CUZARR_DEVICE void code_literals(TablesSpace& space, const u16* counters, ZstdCodes& codes, ZstdMade& made, u32 lane) {
    TreeSpace& tree = space.tree;
    u32 literals = made.literals, used = 0, last = 0;
    for (u32 i = lane; i < CUZARR_ZSTD_BYTES; i += CUZARR_WARP) {
        u32 count = 0;
        for (u32 k = 0; k < CUZARR_ZSTD_STREAMS; ++k) count += counters[k * CUZARR_ZSTD_BYTES + i];
        tree.counts[i] = count;
        if (count) used += 1, last = i;
    }
    used = warp_sum(used);
    for (u32 by = 16; by > 0; by /= 2) {
        u32 other = warp_shuffle_xor(CUZARR_ALL_LANES, last, by);
        last = other > last ? other : last;
    }
    u32 kind = used == 1 && literals > 1 ? CUZARR_ZSTD_RLE : CUZARR_ZSTD_RAW;
    warp_barrier(CUZARR_ALL_LANES);
    if (used > 1 && literals >= CUZARR_ZSTD_LEAST_TREE) {
        huffman_sort(tree, lane);
        u32 longest = 0;
        if (lane == 0) {
            longest = huffman_lengths(tree, used, CUZARR_ZSTD_TREE_BITS);
            code_words(tree, longest, codes.words);
        }
        longest = warp_shuffle(CUZARR_ALL_LANES, longest, 0);
        warp_barrier(CUZARR_ALL_LANES);
        bool is_described = describe_tree(space, last, longest, lane);
        u32 sizes[CUZARR_ZSTD_STREAMS], sum = tree.described_bytes + (stream_count(literals) == 1 ? 0 : 6);
        for (u32 k = 0; k < CUZARR_ZSTD_STREAMS; ++k) {
            u32 bits = 0;
            for (u32 i = lane; i < CUZARR_ZSTD_BYTES; i += CUZARR_WARP) {
                bits += counters[k * CUZARR_ZSTD_BYTES + i] * tree.lengths[i];
            }
            // A bit marks a stream's end.
            sizes[k] = warp_sum(bits) / 8 + 1;
            if (k < stream_count(literals)) sum += sizes[k];
        }
        if (is_described && sum < literals) {
            kind = CUZARR_ZSTD_HUFFMAN;
            for (u32 i = lane; i < tree.described_bytes; i += CUZARR_WARP) codes.tree[i] = tree.described[i];
            if (lane == 0) {
                made.tree_bytes = tree.described_bytes;
                for (u32 k = 0; k < CUZARR_ZSTD_STREAMS; ++k) made.stream_bytes[k] = sizes[k];
            }
        }
    }
    if (lane == 0) made.literals_kind = kind;
    warp_barrier(CUZARR_ALL_LANES);
}

/// Chooses the table of a kind of code. One lane calls.
CUZARR_DEVICE void choose_table(TablesSpace& space, u32 kind, u32 total) {
    const u32* counts = space.counts[kind];
    i16* own = space.own[kind];
    u32 distinct = 0, symbols = 0;
    for (u32 i = 0; i < CUZARR_ZSTD_CODES; ++i) {
        if (counts[i]) distinct += 1, symbols = i + 1;
    }
    space.symbols[kind] = symbols;
    if (distinct == 1) {
        space.modes[kind] = CUZARR_ZSTD_RLE, space.logs[kind] = 0;
        space.text[kind][0] = (u8)(symbols - 1), space.text_bytes[kind] = 1;
        return;
    }
    // More states than the sequences need are not worth their description.
    u32 most = kind == 1 ? 8 : 9, log = 31 - count_leading_zeros(total - 1), least = 33 - count_leading_zeros(distinct - 1);
    log = log < 7 ? 5 : log - 2;
    log = log < least ? least : log;
    log = log < most ? log : most;
    normalise(counts, symbols, total, log, own);
    u32 bytes = describe(own, symbols, log, space.text[kind]);
    // The bits that all symbols take with either table, in 1024ths.
    u32 most_predefined = kind == 0 ? 36 : kind == 1 ? 29 : 53, predefined_log = kind == 1 ? 5 : 6;
    const i16* predefined = kind == 0 ? LITERAL_LENGTH_COUNTS : kind == 1 ? OFFSET_COUNTS : MATCH_LENGTH_COUNTS;
    u64 by_own = (u64)bytes * 8 * 1024, by_predefined = 0;
    for (u32 i = 0; i < symbols; ++i) {
        if (!counts[i]) continue;
        u32 share = i < most_predefined && predefined[i] > 0 ? (u32)predefined[i] : 1;
        by_own += (u64)counts[i] * (1024 * log - log_1024((u32)own[i]));
        by_predefined += (u64)counts[i] * (1024 * predefined_log - log_1024(share));
    }
    bool is_own = symbols > most_predefined || by_own < by_predefined;
    space.modes[kind] = is_own ? CUZARR_ZSTD_CODED : CUZARR_ZSTD_PREDEFINED;
    space.logs[kind] = is_own ? log : predefined_log;
    space.text_bytes[kind] = is_own ? bytes : 0;
}

/// Chooses how a block's sequences are written.
CUZARR_DEVICE void code_sequences(TablesSpace& space, const u16* counters, ZstdCodes& codes, ZstdMade& made, u32 lane) {
    for (u32 i = lane; i < 3 * CUZARR_ZSTD_CODES; i += CUZARR_WARP) {
        space.counts[i / CUZARR_ZSTD_CODES][i % CUZARR_ZSTD_CODES] = counters[CUZARR_ZSTD_STREAMS * CUZARR_ZSTD_BYTES + i];
    }
    warp_barrier(CUZARR_ALL_LANES);
    if (lane < 3) choose_table(space, lane, made.sequences);
    warp_barrier(CUZARR_ALL_LANES);
    for (u32 kind = 0; kind < 3; ++kind) {
        u32 mode = space.modes[kind];
        if (mode == CUZARR_ZSTD_RLE) continue;
        if (mode == CUZARR_ZSTD_PREDEFINED) {
            predefined_counts(space.fse, kind, lane);
        } else {
            for (u32 i = lane; i < space.symbols[kind]; i += CUZARR_WARP) space.fse.counts[i] = space.own[kind][i];
            if (lane == 0) space.fse.symbols = space.symbols[kind], space.fse.log = space.logs[kind];
        }
        warp_barrier(CUZARR_ALL_LANES);
        encoding_table(space.fse, codes.cells + zstd_table_at(kind), codes.symbols + kind * CUZARR_ZSTD_CODES, lane);
        warp_barrier(CUZARR_ALL_LANES);
    }
    if (lane == 0) {
        u32 bytes = 0;
        for (u32 kind = 0; kind < 3; ++kind) {
            for (u32 i = 0; i < space.text_bytes[kind]; ++i) codes.tables[bytes++] = space.text[kind][i];
            made.logs[kind] = space.logs[kind];
        }
        made.tables_bytes = bytes;
        made.modes = space.modes[0] << 6 | space.modes[1] << 4 | space.modes[2] << 2;
    }
    warp_barrier(CUZARR_ALL_LANES);
}

CUZARR_KERNEL(zstd_encode_trees, const ZstdEncode task) {
    CUZARR_SHARED(TablesSpace, space, 1);
    u32 lane = thread_index();
    for (u32 block = block_index(); block < block_count_of(task.blocks); block += block_count()) {
        if (!is_wanted(task.blocks, block)) continue;
        ZstdMade& made = task.made[block];
        ZstdCodes& codes = task.codes[block];
        const u16* counters = task.counters + (u64)block * CUZARR_ZSTD_COUNTERS;
        code_literals(*space, counters, codes, made, lane);
        if (made.sequences) code_sequences(*space, counters, codes, made, lane);
    }
}
