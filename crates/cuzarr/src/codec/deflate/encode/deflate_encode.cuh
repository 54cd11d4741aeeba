// The data that the kernels of deflate encoding hand to each other, and the walk through a block's sequences.
#pragma once
#include "codec/batch/encode/encoded.cuh"
#include "codec/lz/find/lz_find.cuh"

/// Threads of the kernels that have a block of threads for each block.
#define CUZARR_DEFLATE_THREADS 256u

/// Symbols of literals and lengths, of distances, and of the code that describes both (RFC 1951, 3.2.5 and 3.2.7).
#define CUZARR_DEFLATE_SYMBOLS 286u
#define CUZARR_DEFLATE_OFFSETS 30u
#define CUZARR_DEFLATE_DESCRIBING 19u
#define CUZARR_DEFLATE_BOTH (CUZARR_DEFLATE_SYMBOLS + CUZARR_DEFLATE_OFFSETS)
#define CUZARR_DEFLATE_END 256u
/// Counters of a block: symbols, then distances; a multiple of 4 bytes.
#define CUZARR_DEFLATE_COUNTERS 316u
static_assert(CUZARR_DEFLATE_COUNTERS == CUZARR_DEFLATE_BOTH, "counters of a block");
/// Minimum and maximum bytes of the pieces in which a match is written.
#define CUZARR_DEFLATE_LEAST_PIECE 3u
#define CUZARR_DEFLATE_MOST_PIECE 258u

/// Kinds of blocks (RFC 1951, 3.2.3).
#define CUZARR_DEFLATE_STORED 0u
#define CUZARR_DEFLATE_FIXED 1u
#define CUZARR_DEFLATE_DYNAMIC 2u

/// Maximum words of a block's header: the lengths of its codes one by one, with 7 bits and 7 behind, and the fields
/// before them.
#define CUZARR_DEFLATE_HEADER_WORDS 142u
static_assert(32 * CUZARR_DEFLATE_HEADER_WORDS >= 17 + 3 * CUZARR_DEFLATE_DESCRIBING + 14 * CUZARR_DEFLATE_BOTH, "a block's header");

/// How a block's symbols and distances are written.
struct DeflateCodes {
    u32 words[CUZARR_DEFLATE_BOTH];           // deflate_word
    u32 header[CUZARR_DEFLATE_HEADER_WORDS];  // what stands before the first symbol, but for the bit of the last block
};

/// Packs bits, lowest first, and their number.
CUZARR_DEVICE u32 deflate_word(u32 bits, u32 count) { return bits | count << 24; }
CUZARR_DEVICE u32 word_bits(u32 word) { return word & 0xffffff; }
CUZARR_DEVICE u32 word_count(u32 word) { return word >> 24; }

/// The kind, the sizes and the place of an encoded block.
struct DeflateMade {
    u32 kind;         // CUZARR_DEFLATE_STORED and so on
    u32 header_bits;
    u32 bits;         // of all of it; a stored one's depend on where it begins
    u32 at;           // the bit of the frame that it begins with
};

#define CUZARR_DEFLATE_CODES_BYTES 1832u
#define CUZARR_DEFLATE_MADE_BYTES 16u
static_assert(sizeof(DeflateCodes) == CUZARR_DEFLATE_CODES_BYTES && sizeof(DeflateMade) == CUZARR_DEFLATE_MADE_BYTES, "as the host counts them");

/// Maximum bytes of a frame's header.
#define CUZARR_DEFLATE_HEADER_BYTES 16u

/// The arguments of the kernels: `DeflateTask` in codec/deflate/encode/cuda.rs.
struct DeflateEncode {
    const u8* src;
    const LzFoundBlock* counts;
    LzFound* sequences;    // `before` becomes where the match begins
    u16* counters;
    DeflateCodes* codes;
    DeflateMade* made;
    EncodedFrame* frames;
    const u32* checksums;  // of chunks
    u8* out;
    LzBlocks blocks;
    u8 header[CUZARR_DEFLATE_HEADER_BYTES];  // of each frame
    u32 header_bytes;
    u32 trailer_bytes;     // 0; 4: zlib's checksum, the highest byte first; 8: gzip's, the lowest first, and the size
};
static_assert(sizeof(DeflateEncode) == 128, "as the host writes it");

CUZARR_DEVICE const u8* block_src(const DeflateEncode& task, u32 block) {
    return task.src + block / task.blocks.chunk_blocks * task.blocks.stride + block_begin(task.blocks, block);
}

/// Returns the symbol of a piece's length. `extra` gets the number of bits that follow it: the lowest ones of the
/// length less 3.
CUZARR_DEVICE u32 length_symbol(u32 length, u32* extra) {
    u32 more = length - CUZARR_DEFLATE_LEAST_PIECE;
    *extra = 0;
    if (length == CUZARR_DEFLATE_MOST_PIECE) return CUZARR_DEFLATE_SYMBOLS - 1;
    if (more >= 4) *extra = highest_bit(more) - 2;
    return CUZARR_DEFLATE_END + 1 + 4 * *extra + (more >> *extra);
}
/// Returns the symbol of a distance. `extra` gets the number of bits that follow it: the lowest ones of the distance
/// less 1.
CUZARR_DEVICE u32 offset_symbol(u32 offset, u32* extra) {
    u32 more = offset - 1;
    *extra = 0;
    if (more >= 2) *extra = highest_bit(more) - 1;
    return 2 * *extra + (more >> *extra);
}
/// Number of bits that follow a symbol; `offset_extra` is for distances.
CUZARR_DEVICE u32 symbol_extra(u32 symbol) {
    u32 code = symbol - CUZARR_DEFLATE_END - 1;
    return symbol <= CUZARR_DEFLATE_END || code < 8 || code == 28 ? 0 : code / 4 - 1;
}
CUZARR_DEVICE u32 offset_extra(u32 symbol) { return symbol < 2 ? 0 : symbol / 2 - 1; }

/// Returns the size of the next piece of a match that has `left` bytes left. It never leaves too few bytes for another
/// piece.
CUZARR_DEVICE u32 next_piece(u32 left) {
    if (left <= CUZARR_DEFLATE_MOST_PIECE) return left;
    return left < CUZARR_DEFLATE_MOST_PIECE + CUZARR_DEFLATE_LEAST_PIECE ? left - CUZARR_DEFLATE_LEAST_PIECE : CUZARR_DEFLATE_MOST_PIECE;
}

/// A thread's part of a block: the literals and matches that begin at positions [begin, end).
struct DeflateShare {
    const u8* src;
    const LzFound* sequences;
    u32 count;
    u32 size;
    u32 begin, end;
    u32 first;  // the first sequence whose match begins here or behind
    u32 from;   // the first position that no earlier match covers
};

/// Returns the calling thread's part. The places of matches must be known.
CUZARR_DEVICE DeflateShare share_of(const DeflateEncode& task, u32 block) {
    u32 size = block_bytes(task.blocks, block), share = ((size + thread_count() - 1) / thread_count() + 3) / 4 * 4;
    u32 begin = thread_index() * share, end = begin + share;
    begin = begin < size ? begin : size, end = end < size ? end : size;
    const LzFound* sequences = task.sequences + (u64)block * task.blocks.most_sequences;
    u32 count = task.counts[block].sequences, first = 0;
    for (u32 last = count; first < last;) {
        u32 middle = (first + last) / 2;
        if (sequences[middle].before < begin) first = middle + 1;
        else last = middle;
    }
    u32 covered = first ? (u32)sequences[first - 1].before + sequences[first - 1].match : 0;
    return {block_src(task, block), sequences, count, size, begin, end, first, covered > begin ? covered : begin};
}

/// Returns the 4 bytes of a block from `at` on, a multiple of 4; zeros behind the end.
CUZARR_DEVICE u32 block_word(const u8* src, u32 at, u32 size) {
    if (at + 4 <= size) return *(const u32*)(src + at);
    u32 word = 0;
    for (u32 k = 0; at + k < size; ++k) word |= (u32)src[at + k] << 8 * k;
    return word;
}

/// Walks through a share: calls `literal(byte)`, and `piece(length, offset)` for the pieces of each match.
template <class Literal, class Piece>
CUZARR_DEVICE void walk(const DeflateShare& share, Literal literal, Piece piece) {
    u32 index = share.first, at = share.from, word = 0, known = ~0u;
    const LzFound none = {0, 0, 0, 0xffff};
    LzFound next = index < share.count ? share.sequences[index] : none;
    while (at < share.end) {
        if (at == next.before) {
            for (u32 left = next.match; left > 0;) {
                u32 bytes = next_piece(left);
                piece(bytes, next.offset);
                left -= bytes;
            }
            at += next.match;
            next = ++index < share.count ? share.sequences[index] : none;
        } else {
            if (at / 4 != known) known = at / 4, word = block_word(share.src, 4 * known, share.size);
            literal(word >> at % 4 * 8 & 255);
            ++at;
        }
    }
}
