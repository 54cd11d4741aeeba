// One LZ4 block, decoded by one warp, in order.
//
//     token    upper 4 bits: number of literals; lower 4: length of the match less 4; 15: bytes follow that are added, up to
//              and with the first below 255
//     literals, then the match's offset (u16, little-endian), then its length's further bytes
//     the last sequence has literals only
//
// Every lane reads one byte of the next 32. These hold nearly every sequence whole, so that token, length bytes,
// literals and offset come from one load, by shuffles and a ballot. While the bytes of a match are loaded, the next
// sequence is parsed. A sequence waits for one load from the stream and one from the output, and for nothing else.
//
// The rules at the end are liblz4's: a match ends at least 5 bytes before the end, and every sequence but the last
// leaves 12 bytes of output and 8 of input.
//
// Prior art: one warp for each stream, and run lengths by ballot, are from nvCOMP (2.2, BSD-3-Clause). Format:
// https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md
#pragma once
#include "codec/batch/frames.cuh"
#include "codec/lz/lz.cuh"
#include "cuzarr/warp.cuh"

#define CUZARR_LZ4_LAST_LITERALS 5u
#define CUZARR_LZ4_END_OUTPUT 12u
#define CUZARR_LZ4_END_INPUT 8u

/// One sequence. All lanes hold the same, except for `byte`.
struct Lz4Sequence {
    u32 damage;
    u32 begin;     // of the token
    u32 literals_at, literals;
    u32 offset, match;  // no match: the last one
    u32 next;
    u32 byte;      // byte `begin + lane` of the stream
};


/// Reads the further bytes of a length from `at` on, and moves `at` behind them; behind the end if they are cut off.
/// The result saturates, so that sums with it do not wrap.
CUZARR_DEVICE u32 lz4_length(const u8* src, u32 size, u32& at, u32 lane) {
    u64 length = 0;
    for (;;) {
        u32 byte = at < size && lane < size - at ? src[at + lane] : 0;
        u32 ends = warp_ballot(CUZARR_ALL_LANES, byte != 255);
        if (ends) {
            u32 last = lowest_bit(ends);
            length += 255u * last + warp_shuffle(CUZARR_ALL_LANES, byte, last);
            at += last + 1;
            break;
        }
        length += 255u * CUZARR_WARP;
        at += CUZARR_WARP;
    }
    return length < 0x7fffffffu ? (u32)length : 0x7fffffffu;
}

/// Parses the sequence at `begin`, which will be written from `out` on. Sizes are below 2^31.
CUZARR_DEVICE Lz4Sequence lz4_sequence(const u8* src, u32 size, u32 begin, u32 out, u32 out_size, u32 lane) {
    Lz4Sequence sequence = {CUZARR_CUT_OFF, begin, begin, 0, 0, 0, begin, 0};
    if (begin >= size) return sequence;
    u32 byte = lane < size - begin ? src[begin + lane] : 0;
    u32 ends = warp_ballot(CUZARR_ALL_LANES, byte != 255);
    u32 token = warp_shuffle(CUZARR_ALL_LANES, byte, 0u);
    u32 literals = token >> 4, at = begin + 1;
    if (literals == 15) {
        if (ends >> 1) {
            u32 last = 1 + lowest_bit(ends >> 1);
            literals += 255u * (last - 1) + warp_shuffle(CUZARR_ALL_LANES, byte, last);
            at = begin + last + 1;
        } else {
            literals += lz4_length(src, size, at, lane);
        }
    }
    sequence.byte = byte, sequence.literals_at = at, sequence.literals = literals;
    if (at > size || literals > size - at) return sequence;
    sequence.damage = CUZARR_TOO_LONG;
    if (literals > out_size - out) return sequence;
    u32 end = at + literals, out_end = out + literals;
    if (out_end + CUZARR_LZ4_END_OUTPUT > out_size || end + CUZARR_LZ4_END_INPUT > size) {
        sequence.next = end;
        sequence.damage = end != size ? CUZARR_TRAILING : out_end != out_size ? CUZARR_TOO_SHORT : CUZARR_INTACT;
        // An empty block is one token without a match's length.
        if (out_size == 0 && token) sequence.damage = CUZARR_TOO_LONG;
        return sequence;
    }
    // Here the offset and 6 more bytes are inside.
    u32 place = end - begin, offset;
    if (place + 2 <= CUZARR_WARP) {
        u32 low = warp_shuffle(CUZARR_ALL_LANES, byte, place);
        offset = low | warp_shuffle(CUZARR_ALL_LANES, byte, place + 1) << 8;
    } else {
        offset = (u32)src[end] | (u32)src[end + 1] << 8;
    }
    u32 match = token & 15;
    at = end + 2, place += 2;
    if (match == 15) {
        if (place < CUZARR_WARP && ends >> place) {
            u32 last = place + lowest_bit(ends >> place);
            match += 255u * (last - place) + warp_shuffle(CUZARR_ALL_LANES, byte, last);
            at = begin + last + 1;
        } else {
            match += lz4_length(src, size, at, lane);
        }
    }
    match += 4;
    sequence.offset = offset, sequence.next = at;
    if (offset == 0) sequence.damage = CUZARR_ZERO_OFFSET;
    else if (offset > out_end) sequence.damage = CUZARR_BEFORE_START;
    else if (match > out_size - out_end - CUZARR_LZ4_LAST_LITERALS) sequence.damage = CUZARR_TOO_LONG;
    else sequence.damage = CUZARR_INTACT, sequence.match = match;
    return sequence;
}

/// Decodes `size` bytes at `src` to exactly `out_size` at `dst`. Returns the damage, with its place in `at`.
///
/// Reads up to 3 bytes before `src`. They are there, because some header stands in front of every stream.
CUZARR_DEVICE u32 lz4_block(const u8* src, u32 size, u8* dst, u32 out_size, u32 lane, u32& at) {
    u32 out = 0;
    // Lane n knows 2^16 / n, rounded up: a division would stand between an offset and the load of its match. Exact for
    // numbers below 32.
    u32 inverse = lane ? (0xffffu + lane) / lane : 0;
    Lz4Sequence sequence = lz4_sequence(src, size, 0, 0, out_size, lane);
    while (sequence.damage == CUZARR_INTACT) {
        u32 shift = sequence.literals_at - sequence.begin, literals = sequence.literals;
        if (shift + literals <= CUZARR_WARP) {
            if (lane >= shift && lane < shift + literals) dst[out + lane - shift] = (u8)sequence.byte;
        } else {
            copy_far(src + sequence.literals_at, dst + out, literals, lane);
        }
        out += literals;
        u32 match = sequence.match, offset = sequence.offset;
        if (match == 0) return CUZARR_INTACT;
        warp_barrier(CUZARR_ALL_LANES);
        u32 back = lane;
        if (offset < CUZARR_WARP) {
            u32 periods = lane * warp_shuffle(CUZARR_ALL_LANES, inverse, offset) >> 16;
            back = lane - periods * offset;
        }
        u8 byte = 0;
        if (lane < match) byte = dst[out - offset + back];
        // Meanwhile, the next sequence is parsed: it needs none of this one's bytes.
        sequence = lz4_sequence(src, size, sequence.next, out + match, out_size, lane);
        if (lane < match) dst[out + lane] = byte;
        if (match > CUZARR_WARP) {
            warp_barrier(CUZARR_ALL_LANES);
            finish_match(dst + out, offset, match, lane);
        }
        out += match;
    }
    at = sequence.begin;
    return sequence.damage;
}
