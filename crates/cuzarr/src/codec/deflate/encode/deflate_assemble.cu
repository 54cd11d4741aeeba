// The last passes of deflate encoding: where blocks begin, and their bits.
//
// A block may begin at any bit. A stored block ends at a whole byte, so its length depends on where it begins; a scan
// follows that (`Extent`). A block of threads makes a block in shared memory, from the bit of a word that it begins
// with; each thread writes from the place that a sum gives. Words that two blocks share are zeros first, and joined by
// OR.
#include "codec/deflate/encode/deflate_encode.cuh"
#include "codec/lz/bits.cuh"

/// How successive blocks move the position: `before` bits on; if some of them are stored, then on to a whole byte and
/// `behind` bits further.
struct Extent {
    u32 before, behind, is_stored;
};

CUZARR_DEVICE u32 whole_bytes(u32 bits) { return (bits + 7) & ~7u; }
CUZARR_DEVICE u32 end_of(const Extent& extent, u32 at) {
    return extent.is_stored ? whole_bytes(at + extent.before) + extent.behind : at + extent.before;
}
CUZARR_DEVICE Extent joined(const Extent& first, const Extent& second) {
    if (!first.is_stored) return {first.before + second.before, second.behind, second.is_stored};
    u32 behind = first.behind + second.before;
    return {first.before, second.is_stored ? whole_bytes(behind) + second.behind : behind, 1};
}
CUZARR_DEVICE Extent extent_of(const DeflateEncode& task, u32 block) {
    const DeflateMade& made = task.made[block];
    if (made.kind != CUZARR_DEFLATE_STORED) return {made.bits, 0, 0};
    return {3, 32 + 8 * block_bytes(task.blocks, block), 1};
}

CUZARR_KERNEL(deflate_encode_sizes, const DeflateEncode task) {
    u32 lane = thread_index();
    for (u32 chunk = block_index(); chunk < task.blocks.chunks; chunk += block_count()) {
        u32 at = 8 * task.header_bytes, blocks = blocks_of(task.blocks, chunk);
        for (u32 first = 0; first < blocks; first += CUZARR_WARP) {
            u32 block = chunk * task.blocks.chunk_blocks + first + lane;
            bool is_one = first + lane < blocks;
            Extent extent = is_one ? extent_of(task, block) : Extent{0, 0, 0};
            for (u32 by = 1; by < CUZARR_WARP; by *= 2) {
                Extent other = {
                    warp_shuffle_up(CUZARR_ALL_LANES, extent.before, by), warp_shuffle_up(CUZARR_ALL_LANES, extent.behind, by),
                    warp_shuffle_up(CUZARR_ALL_LANES, extent.is_stored, by)};
                if (lane >= by) extent = joined(other, extent);
            }
            u32 end = end_of(extent, at), begin = warp_shuffle_up(CUZARR_ALL_LANES, end, 1);
            if (is_one) task.made[block].at = lane ? begin : at;
            at = warp_shuffle(CUZARR_ALL_LANES, end, CUZARR_WARP - 1);
        }
        if (lane == 0) task.frames[chunk] = {0, blocks ? whole_bytes(at) / 8 + task.trailer_bytes : 0, 0};
    }
}

/// Number of words that a block touches, from the one that it begins in.
CUZARR_DEVICE u32 block_words(const DeflateEncode& task, u32 block, u32 at) {
    return (end_of(extent_of(task, block), at) - at / 32 * 32 + 31) / 32;
}
CUZARR_DEVICE u32* block_to(const DeflateEncode& task, u32 block, u32 at) {
    return (u32*)(task.out + task.frames[block / task.blocks.chunk_blocks].at) + at / 32;
}

/// Sets the words that a block may share with others to zero. One thread takes each block.
CUZARR_KERNEL(deflate_encode_clear, const DeflateEncode task) {
    u32 step = block_count() * thread_count();
    for (u32 block = block_index() * thread_count() + thread_index(); block < block_count_of(task.blocks); block += step) {
        if (!is_wanted(task.blocks, block)) continue;
        u32 at = task.made[block].at, *to = block_to(task, block, at);
        to[0] = to[block_words(task, block, at) - 1] = 0;
    }
}

struct WriteSpace {
    u32 words[CUZARR_FIND_BLOCK_BYTES / 4 + 4];
    u32 symbols[CUZARR_DEFLATE_BOTH];
    u32 lengths[CUZARR_DEFLATE_MOST_PIECE + 1];  // of pieces: word and what follows it
    u32 sums[CUZARR_DEFLATE_THREADS / CUZARR_WARP];
};

/// Returns a distance's word, and the bits that follow it.
CUZARR_DEVICE u32 offset_word(const u32* symbols, u32 offset) {
    u32 extra, word = symbols[CUZARR_DEFLATE_SYMBOLS + offset_symbol(offset, &extra)], count = word_count(word);
    // Up to 28 bits, which leave no room for their number.
    return word_bits(word) | ((offset - 1) & ((1u << extra) - 1)) << count;
}
CUZARR_DEVICE u32 offset_bits(const u32* symbols, u32 offset) {
    u32 extra, word = symbols[CUZARR_DEFLATE_SYMBOLS + offset_symbol(offset, &extra)];
    return word_count(word) + extra;
}

/// A writer of one thread's bits, to whole words one after the other.
struct BitRow {
    u32* words;
    u32 at;    // the next word
    u32 held;  // bits that wait, fewer than 32
    u64 bits;
};
CUZARR_DEVICE void row_put(BitRow& row, u32 value, u32 count) {
    row.bits |= (u64)value << row.held;
    row.held += count;
    if (row.held >= 32) {
        atomic_or(row.words + row.at, (u32)row.bits);
        row.at += 1, row.held -= 32, row.bits >>= 32;
    }
}
CUZARR_DEVICE void row_end(BitRow& row) {
    if ((u32)row.bits) atomic_or(row.words + row.at, (u32)row.bits);
}

/// Writes the bits of a coded block, from bit `place` of the words on.
CUZARR_DEVICE void write_coded(WriteSpace& space, const DeflateEncode& task, const DeflateMade& made, u32 block, u32 place) {
    const DeflateCodes& codes = task.codes[block];
    u32 thread = thread_index(), threads = thread_count();
    for (u32 i = thread; i < CUZARR_DEFLATE_BOTH; i += threads) space.symbols[i] = codes.words[i];
    block_barrier();
    for (u32 i = CUZARR_DEFLATE_LEAST_PIECE + thread; i <= CUZARR_DEFLATE_MOST_PIECE; i += threads) {
        u32 extra, word = space.symbols[length_symbol(i, &extra)], count = word_count(word);
        u32 more = (i - CUZARR_DEFLATE_LEAST_PIECE) & ((1u << extra) - 1);
        space.lengths[i] = deflate_word(word_bits(word) | more << count, count + extra);
    }
    for (u32 i = thread; i < (made.header_bits + 31) / 32; i += threads) {
        u32 left = made.header_bits - 32 * i;
        put_bits(space.words, place + 32 * i, codes.header[i], left < 32 ? left : 32);
    }
    block_barrier();
    DeflateShare share = share_of(task, block);
    u32 bits = 0, total;
    walk(
        share, [&](u32 byte) { bits += word_count(space.symbols[byte]); },
        [&](u32 length, u32 offset) { bits += word_count(space.lengths[length]) + offset_bits(space.symbols, offset); }
    );
    u32 at = place + made.header_bits + block_sum_before(bits, space.sums, &total);
    BitRow row = {space.words, at / 32, at % 32, 0};
    walk(
        share, [&](u32 byte) { row_put(row, word_bits(space.symbols[byte]), word_count(space.symbols[byte])); },
        [&](u32 length, u32 offset) {
            row_put(row, word_bits(space.lengths[length]), word_count(space.lengths[length]));
            row_put(row, offset_word(space.symbols, offset), offset_bits(space.symbols, offset));
        }
    );
    row_end(row);
    if (thread == 0) {
        u32 end = space.symbols[CUZARR_DEFLATE_END];
        put_bits(space.words, place + made.header_bits + total, word_bits(end), word_count(end));
    }
}

/// Writes a stored block (RFC 1951, 3.2.4), in the same way.
CUZARR_DEVICE void write_stored(WriteSpace& space, const DeflateEncode& task, u32 block, u32 place) {
    u32 size = block_bytes(task.blocks, block), at = whole_bytes(place + 3);
    const u8* src = block_src(task, block);
    if (thread_index() == 0) put_bits(space.words, at, size | (~size & 0xffff) << 16, 32);
    for (u32 i = thread_index(); i < (size + 3) / 4; i += thread_count()) {
        put_bits(space.words, at + 32 + 32 * i, block_word(src, 4 * i, size), 32);
    }
}

CUZARR_KERNEL(deflate_encode_write, const DeflateEncode task) {
    CUZARR_SHARED(WriteSpace, spaces, 1);
    WriteSpace& space = *spaces;
    u32 thread = thread_index(), threads = thread_count();
    for (u32 block = block_index(); block < block_count_of(task.blocks); block += block_count()) {
        if (!is_wanted(task.blocks, block)) continue;
        const DeflateMade made = task.made[block];
        u32 place = made.at % 32, words = block_words(task, block, made.at);
        for (u32 i = thread; i < words + 1; i += threads) space.words[i] = 0;
        block_barrier();
        if (thread == 0 && is_last(task.blocks, block)) put_bits(space.words, place, 1, 1);
        if (made.kind == CUZARR_DEFLATE_STORED) write_stored(space, task, block, place);
        else write_coded(space, task, made, block, place);
        block_barrier();
        u32* to = block_to(task, block, made.at);
        for (u32 i = thread; i < words; i += threads) {
            if (i == 0 || i + 1 == words) atomic_or(to + i, space.words[i]);
            else to[i] = space.words[i];
        }
        block_barrier();
    }
}

/// Writes the header and the trailer of each frame. One thread takes each frame.
CUZARR_KERNEL(deflate_encode_finish, const DeflateEncode task) {
    u32 step = block_count() * thread_count();
    for (u32 chunk = block_index() * thread_count() + thread_index(); chunk < task.blocks.chunks; chunk += step) {
        if (!task.blocks.sizes[chunk]) continue;
        u8* frame = task.out + task.frames[chunk].at;
        for (u32 i = 0; i < task.header_bytes; ++i) frame[i] = task.header[i];
        u8* trailer = frame + task.frames[chunk].size - task.trailer_bytes;
        bool is_zlib = task.trailer_bytes == 4;
        for (u32 i = 0; i < task.trailer_bytes; ++i) {
            u32 value = i < 4 ? task.checksums[chunk] : task.blocks.sizes[chunk];
            trailer[i] = (u8)(value >> 8 * (is_zlib ? 3 - i : i % 4));
        }
    }
}
