// The bits of a deflate stream, lowest first, from bytes at any address.
#pragma once
#include "cuzarr/kernel.cuh"

/// Encoded bytes. Positions are bits from the aligned word that holds the first byte; below 2^31.
struct DeflateInput {
    const u32* words;
    u32 whole;  // words before the one that the bytes end in
    u32 tail;   // the bytes in that one
    u32 begin, end;
};

CUZARR_DEVICE DeflateInput deflate_input(const u8* bytes, u32 size) {
    u32 skew = (u32)((u64)bytes & 3);
    DeflateInput input = {(const u32*)(bytes - skew), (skew + size) / 4, 0, skew * 8, (skew + size) * 8};
    const u8* tail = (const u8*)(input.words + input.whole);
    for (u32 i = 0; i < (skew + size) % 4; ++i) {
        if (tail + i >= bytes) input.tail |= (u32)tail[i] << 8 * i;
    }
    return input;
}

CUZARR_DEVICE u32 deflate_word(const DeflateInput& input, u32 index) {
    return index < input.whole ? input.words[index] : index == input.whole ? input.tail : 0;
}

/// A position in the encoded bits. Behind their end, zeros are read.
struct DeflateBits {
    u32 position;
    u32 low, high, next;  // the word of the position, and those behind it
};

CUZARR_DEVICE DeflateBits deflate_seek(const DeflateInput& input, u32 position) {
    u32 word = position / 32;
    DeflateBits bits = {
        position, deflate_word(input, word), deflate_word(input, word + 1), deflate_word(input, word + 2)};
    return bits;
}

/// Returns the next 32 bits.
CUZARR_DEVICE u32 deflate_peek(const DeflateBits& bits) { return funnel_shift_right(bits.low, bits.high, bits.position % 32); }

/// Skips at most 32 bits.
CUZARR_DEVICE void deflate_skip(const DeflateInput& input, DeflateBits& bits, u32 count) {
    u32 before = bits.position / 32;
    bits.position += count;
    if (bits.position / 32 != before) {
        bits.low = bits.high, bits.high = bits.next;
        bits.next = deflate_word(input, before + 3);
    }
}
