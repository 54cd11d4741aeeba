// Bits of a stream that is read from its end, as Huffman and FSE streams of zstd are: the last byte's highest set bit marks
// where they begin, and what is read first lies highest.
//
// 128 bits are at hand in registers: 64 that the reader looks at and 64 behind them. Words are loaded a whole window before
// their bits are looked at, so that a load never stands on the path from one symbol to the next.
#pragma once
#include "cuzarr/kernel.cuh"

struct BitWindow {
    const u32* words;  // the aligned word that holds the stream's first byte, and what follows
    i32 begin;         // the stream's first bit, counted from there
    i32 at;            // bits below this one are unread; negative when more was taken than there is
    u64 top;           // bits [at - 64, at), those below `begin` unspecified
    u64 behind;        // bits [at - 128, at - 64)
};

/// Word `index` of the stream, 0 before it. The caller knows that it is whole.
CUZARR_DEVICE u32 window_word(const u32* words, i32 index) { return index < 0 ? 0 : words[index]; }

/// 64 bits from bit `from` on, all of them in words that end before the stream does.
CUZARR_DEVICE u64 window_bits(const u32* words, i32 from) {
    i32 index = from >> 5;
    u32 shift = (u32)from & 31;
    u32 low = window_word(words, index), middle = window_word(words, index + 1), high = window_word(words, index + 2);
    return (u64)funnel_shift_right(middle, high, shift) << 32 | funnel_shift_right(low, middle, shift);
}

/// Opens `size` bytes at `src`, which may lie at any address and behind at least 3 bytes that may be read; false when the mark
/// is missing. Nothing behind the stream is read.
CUZARR_DEVICE bool window_open(BitWindow& window, const u8* src, u32 size) {
    if (size == 0 || src[size - 1] == 0) return false;
    u32 skew = (u32)((u64)src & 3), bytes = skew + size;
    window.words = (const u32*)(src - skew);
    window.begin = (i32)(8 * skew);
    window.at = (i32)(8 * (bytes - 1) + 31 - count_leading_zeros((u32)src[size - 1]));
    // The last word may be cut by the stream's end.
    i32 last = (i32)((bytes - 1) >> 2);
    u32 cut = 0;
    for (u32 i = 0; i < bytes - 4 * (u32)last; ++i) cut |= (u32)((const u8*)window.words)[4 * (u32)last + i] << 8 * i;
    u64 parts[2];
    for (i32 part = 0; part < 2; ++part) {
        i32 from = window.at - 64 * (part + 1), index = from >> 5;
        u32 shift = (u32)from & 31, word[3];
        for (i32 i = 0; i < 3; ++i) {
            i32 place = index + i;
            word[i] = place > last ? 0 : place == last ? cut : window_word(window.words, place);
        }
        parts[part] = (u64)funnel_shift_right(word[1], word[2], shift) << 32 | funnel_shift_right(word[0], word[1], shift);
    }
    window.top = parts[0], window.behind = parts[1];
    return true;
}

/// The first `count` bits, at most 32, as a number.
CUZARR_DEVICE u32 window_peek(u64 top, u32 count) { return (u32)(top >> 1 >> (63 - count)); }

/// Takes `count` bits, at most 63.
CUZARR_DEVICE void window_take(BitWindow& window, u32 count) {
    window.top = window.top << count | window.behind >> 1 >> (63 - count);
    window.at -= (i32)count;
    window.behind = window_bits(window.words, window.at - 128);
}

/// Takes up to 127 bits: slower, for what rarely happens.
CUZARR_DEVICE void window_take_many(BitWindow& window, u32 count) {
    u32 first = count < 63 ? count : 63;
    window_take(window, first);
    while (count > first) {
        u32 more = count - first < 63 ? count - first : 63;
        window_take(window, more);
        first += more;
    }
}
