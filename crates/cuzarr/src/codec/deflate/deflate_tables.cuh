// Huffman codes of deflate (RFC 1951, 3.2), turned into tables by one warp.
//
// A table is indexed by the next bits of the stream, lowest first. An entry describes a symbol, or, for longer words,
// names a second table:
//
//     bits 0-3    bits of the word; of a second table: by how many bits it is looked up
//     bits 4-7    further bits, which are added to the value
//     bits 8-23   the literal; the least length or distance; the second table's place behind the first level
//     bit 28      neither literal nor match: the end of the block (256), or bits that are no word
//     bit 29      a literal
//     bit 30      a second table
//
// No lane handles symbols one by one. Symbols are sorted by length, and each lane finds the symbols of its entries from
// the limits of the lengths: in a canonical code, words of one length follow each other, and shorter ones come first.
#pragma once
#include "cuzarr/kernel.cuh"

#define CUZARR_DEFLATE_LITERAL_BITS 10u
#define CUZARR_DEFLATE_DISTANCE_BITS 8u
/// Maximum entries that complete codes of 286 and 32 symbols need for these bits (`enough.c` of zlib counts them).
#define CUZARR_DEFLATE_LITERAL_ENTRIES 1334u
#define CUZARR_DEFLATE_DISTANCE_ENTRIES 402u
#define CUZARR_DEFLATE_LITERALS 288u
#define CUZARR_DEFLATE_DISTANCES 32u
#define CUZARR_DEFLATE_NO_CODE 0xfffu
#define CUZARR_DEFLATE_SPECIAL (1u << 28)
#define CUZARR_DEFLATE_LITERAL (1u << 29)
#define CUZARR_DEFLATE_SECOND (1u << 30)
#define CUZARR_DEFLATE_MOST_BITS 15u

/// Shared memory for building, beside the tables.
struct DeflateBuilding {
    u8 lengths[CUZARR_DEFLATE_LITERALS + CUZARR_DEFLATE_DISTANCES];  // of literals, then of distances
    u8 sequence[CUZARR_DEFLATE_LITERALS + CUZARR_DEFLATE_DISTANCES]; // as the stream has them
    u16 sorted[CUZARR_DEFLATE_LITERALS];                             // symbols by length
    u16 counts[2][16];                                               // of each length, in each half of the symbols
};

/// The words of a code. Words of length l, moved to 15 bits, are below limits[l - 1] >> 16, and not below those of
/// shorter words. The lower half of a limit is the number of words of at most l bits.
struct DeflateCode {
    u32 limits[CUZARR_DEFLATE_MOST_BITS];
};

CUZARR_DEVICE u32 min_of(u32 a, u32 b) { return a < b ? a : b; }
CUZARR_DEVICE u32 max_of(u32 a, u32 b) { return a > b ? a : b; }

CUZARR_DEVICE u32 reverse_15(u32 bits) { return reverse_bits(bits) >> 17; }

/// Marks those of the four bytes of `word`, each below 16, that equal `value`: with bit 7 of each.
CUZARR_DEVICE u32 equal_bytes(u32 word, u32 value) {
    return ~((word ^ value * 0x01010101u) + 0x7f7f7f7fu) & 0x80808080u;
}

/// Returns the symbol whose word stands at the beginning of the 15 bits `word`, and its length; length 16 if there is
/// none.
CUZARR_DEVICE u32 deflate_symbol(const DeflateBuilding& building, const DeflateCode& code, u32 word, u32& length) {
    u32 shorter = 0, start = 0, sought = word << 16 | 0xffffu;
    // All limits are compared, so that no comparison waits for another.
#pragma unroll
    for (u32 l = 0; l < CUZARR_DEFLATE_MOST_BITS; ++l) {
        if (sought >= code.limits[l]) ++shorter, start = code.limits[l];
    }
    length = shorter + 1;
    if (length > CUZARR_DEFLATE_MOST_BITS) return CUZARR_DEFLATE_NO_CODE;
    return building.sorted[(start & 0xffffu) + ((word - (start >> 16)) >> (CUZARR_DEFLATE_MOST_BITS - length))];
}

/// The meaning of a code's symbols.
enum class DeflateAlphabet { Literals, Distances, Lengths };

/// Returns the entry of a symbol whose word has `bits` bits.
CUZARR_DEVICE u32 deflate_entry(DeflateAlphabet alphabet, u32 symbol, u32 bits) {
    u32 special = CUZARR_DEFLATE_SPECIAL | symbol << 8 | bits;
    if (alphabet == DeflateAlphabet::Lengths) return symbol > 18 ? special : symbol << 8 | bits;
    if (alphabet == DeflateAlphabet::Distances) {
        if (symbol > 29) return special;
        u32 extra = symbol < 2 ? 0 : symbol / 2 - 1;
        return (1 + (symbol < 2 ? symbol : (2 + symbol % 2) << extra)) << 8 | extra << 4 | bits;
    }
    if (symbol < 256) return CUZARR_DEFLATE_LITERAL | symbol << 8 | bits;
    if (symbol == 256 || symbol > 285) return special;
    u32 code = symbol - 257, extra = code < 8 || code == 28 ? 0 : code / 4 - 1;
    return (3 + (code < 8 ? code : code == 28 ? 255 : (4 + code % 4) << extra)) << 8 | extra << 4 | bits;
}

/// Returns the entry of the fixed code's word that these bits begin with (RFC 1951, 3.2.6).
CUZARR_DEVICE u32 deflate_fixed_literal(u32 bits) {
    u32 word = reverse_bits(bits) >> 23, symbol = 144 + word - 0x190, length = 9;
    if (word >> 2 < 0x18) symbol = 256 + (word >> 2), length = 7;
    else if (word >> 1 < 0xc0) symbol = (word >> 1) - 0x30, length = 8;
    else if (word >> 1 < 0xc8) symbol = 280 + (word >> 1) - 0xc0, length = 8;
    return deflate_entry(DeflateAlphabet::Literals, symbol, length);
}
CUZARR_DEVICE u32 deflate_fixed_distance(u32 bits) {
    return deflate_entry(DeflateAlphabet::Distances, reverse_bits(bits) >> 27, 5);
}

/// Returns the entry for the next bits of the stream.
CUZARR_DEVICE u32 deflate_look_up(const u32* table, u32 root, u32 bits) {
    u32 entry = table[bits & ((1u << root) - 1)];
    if (entry & CUZARR_DEFLATE_SECOND) {
        entry = table[(1u << root) + (entry >> 8 & 0xffff) + (bits >> root & ((1u << (entry & 15)) - 1))];
    }
    return entry;
}

/// Makes the table of the code that `lengths` describe: a multiple of 8 lengths, at a multiple of 4 bytes. `root` bits
/// index the first level. Returns false if the lengths are no code: too many words, or too few, except for a single
/// word of one bit and none at all, which zlib accepts, too.
CUZARR_DEVICE bool deflate_table(
    DeflateBuilding& building, const u8* lengths, u32 symbols, DeflateAlphabet alphabet, u32 root, u32* table, u32 entries,
    u32 lane
) {
    const u32* words = (const u32*)lengths;
    u32 length = lane % 16, half = lane / 16, half_words = symbols / 8;
    words += half * half_words;
    u32 count = 0;
    for (u32 i = 0; i < half_words; ++i) count += count_ones(equal_bytes(words[i], length));
    building.counts[half][length] = (u16)count;
    warp_barrier(CUZARR_ALL_LANES);
    DeflateCode code;
    u32 used = 0, place = 0, codes = 0;
#pragma unroll
    for (u32 l = 1; l <= CUZARR_DEFLATE_MOST_BITS; ++l) {
        u32 first = building.counts[0][l], both = first + building.counts[1][l];
        if (l == length) place = codes + (half ? first : 0);
        codes += both;
        used += both << (CUZARR_DEFLATE_MOST_BITS - l);
        code.limits[l - 1] = used << 16 | codes;
    }
    const u32 all = 1u << CUZARR_DEFLATE_MOST_BITS;
    bool complete = used == all, single = codes == 0 || (codes == 1 && used == all / 2);
    if (!complete && !single) return false;
    if (length > 0) {
        for (u32 i = 0; i < half_words; ++i) {
            u32 equal = equal_bytes(words[i], length);
            while (equal) {
                u32 bit = count_trailing_zeros(equal);
                equal &= equal - 1;
                building.sorted[place++] = (u16)((half * half_words + i) * 4 + bit / 8);
            }
        }
    }
    warp_barrier(CUZARR_ALL_LANES);
    for (u32 index = lane; index < 1u << root; index += CUZARR_WARP) {
        u32 word = reverse_15(index), word_length;
        u32 symbol = deflate_symbol(building, code, word, word_length);
        if (word_length > CUZARR_DEFLATE_MOST_BITS) word_length = CUZARR_DEFLATE_MOST_BITS;
        else if (word_length > root) continue;
        table[index] = deflate_entry(alphabet, symbol, word_length);
    }
    if (!complete) {
        warp_barrier(CUZARR_ALL_LANES);
        return true;
    }
    // Words longer than `root` bits come last. Those with the same first bits share a second table, and later tables
    // are no smaller. So the limits give the number of tables of each size, and the place of each table.
    u32 low = CUZARR_DEFLATE_MOST_BITS - root, first_prefix = 0;
#pragma unroll
    for (u32 l = 1; l <= CUZARR_DEFLATE_MOST_BITS; ++l) {
        if (l == root) first_prefix = code.limits[l - 1] >> 16 >> low;
    }
    for (u32 prefix = first_prefix + lane; prefix < 1u << root; prefix += CUZARR_WARP) {
        u32 at = 1u << root, before = first_prefix, bits = 0;
#pragma unroll
        for (u32 l = 1; l <= CUZARR_DEFLATE_MOST_BITS; ++l) {
            if (l <= root || bits) continue;
            u32 behind = code.limits[l - 1] >> 16 >> low, mine = prefix;
            if (prefix < behind) bits = l - root;
            else mine = behind;
            at += (mine - before) << (l - root);
            before = mine;
        }
        if (at + (1u << bits) > entries) continue;  // not so for any complete code
        table[reverse_15(prefix << low)] = CUZARR_DEFLATE_SECOND | (at - (1u << root)) << 8 | bits;
        for (u32 index = 0; index < 1u << bits; ++index) {
            u32 word_length, word = prefix << low | reverse_15(index) >> root;
            u32 symbol = deflate_symbol(building, code, word, word_length);
            table[at + index] = deflate_entry(alphabet, symbol, word_length);
        }
    }
    warp_barrier(CUZARR_ALL_LANES);
    return true;
}
