// Reads the bits of a stream from its end, as zstd's Huffman and FSE streams need it. The highest set bit of the last
// byte marks where the bits begin, and bits that are read first lie highest.
//
// The reader holds 64 bits. The 64 behind them are three words, loaded when the reader moved here, and joined when it
// moves on. So a load has all the time between two symbols, and never delays the next symbol.
#pragma once
#include "cuzarr/kernel.cuh"

/// Number of bytes in front of a stream that may be read. The headers before the first stream of a frame are longer.
#define CUZARR_WINDOW_BEFORE 11u

struct BitWindow {
    const u32* words;       // the aligned word that holds the stream's first byte, and what follows
    i32 begin;              // the stream's first bit, counted from there
    i32 at;                 // bits below this one are unread; below `begin` when more was taken than there is
    u64 top;                // bits [at - 64, at), those below `begin` unspecified
    u32 low, middle, high;  // words that hold bits [at - 128, at - 64)
    i32 last;               // the word with the stream's last byte
    u32 cut;                // that word, without what lies behind the stream
};

/// Loads the words behind. For words before the stream, other words are loaded, whose bits are never used. The stream's
/// first word is loaded only if more follow: it may also be the last one, with bytes behind the stream.
CUZARR_DEVICE void window_load(BitWindow& window) {
    i32 index = (window.at - 128) >> 5;
    const u32* from = window.words + (index < -2 ? -2 : index);
    window.low = from[0], window.middle = from[1], window.high = from[index < -2 ? 1 : 2];
}

CUZARR_DEVICE u64 window_behind(const BitWindow& window) {
    return funnel_shift_right(window.low, window.middle, window.high, (u32)window.at);
}

/// Returns the words that hold bits [at - 64, at) of a stream; zeros outside the stream.
CUZARR_DEVICE void window_words(const u32* words, i32 last, u32 cut, i32 at, u32 word[3]) {
    i32 index = (at - 64) >> 5;
    for (i32 i = 0; i < 3; ++i) {
        i32 place = index + i;
        word[i] = place > last || place < 0 ? 0 : place == last ? cut : words[place];
    }
}

/// Bits [at - 64, at) of a stream, wherever they lie.
CUZARR_DEVICE u64 window_bits(const u32* words, i32 last, u32 cut, i32 at) {
    u32 word[3];
    window_words(words, last, cut, at, word);
    return funnel_shift_right(word[0], word[1], word[2], (u32)at);
}

/// Goes to a place in the stream.
CUZARR_DEVICE void window_move(BitWindow& window, i32 at) {
    window.at = at;
    window.top = window_bits(window.words, window.last, window.cut, at);
    u32 word[3];
    window_words(window.words, window.last, window.cut, at - 64, word);
    window.low = word[0], window.middle = word[1], window.high = word[2];
}

/// Opens `size` bytes at `src`, which may lie at any address behind CUZARR_WINDOW_BEFORE bytes; false when the mark is missing.
/// Nothing behind the stream is read.
CUZARR_DEVICE bool window_open(BitWindow& window, const u8* src, u32 size) {
    if (size == 0 || src[size - 1] == 0) return false;
    u32 skew = (u32)((u64)src & 3), bytes = skew + size;
    window.words = (const u32*)(src - skew);
    window.begin = (i32)(8 * skew);
    window.at = (i32)(8 * (bytes - 1) + 31 - count_leading_zeros((u32)src[size - 1]));
    i32 last = (i32)((bytes - 1) >> 2);
    u32 cut = 0;
    for (u32 i = 0; i < bytes - 4 * (u32)last; ++i) cut |= (u32)((const u8*)window.words)[4 * (u32)last + i] << 8 * i;
    window.last = last, window.cut = cut;
    window_move(window, window.at);
    return true;
}

/// The first `count` bits, at most 31, as a number.
CUZARR_DEVICE u32 window_peek(u64 top, u32 count) { return funnel_shift_left((u32)(top >> 32), 0, count); }

/// Takes `count` bits. After more than 64 bits, the window does not hold the bits that follow: see `window_move`.
CUZARR_DEVICE void window_take(BitWindow& window, u32 count) {
    window.top = shift_left(window.top, count) | shift_right(window_behind(window), 64 - count);
    window.at -= (i32)count;
    window_load(window);
}
