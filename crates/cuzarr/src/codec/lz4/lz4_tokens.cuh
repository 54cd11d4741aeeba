// Finds the tokens of an LZ4 block side by side, without guessing where one begins.
//
//     a span of the block's bytes is in shared memory, 32 bytes of it a thread's own
//     step    from every byte: where the next token would be, if one began here. From the thread's last byte to its first,
//             so that each takes over where the next one leads: out of the thread's bytes, or to a token that leaves the span
//     join    the same for the bytes of a whole warp
//     enter   from where the span is entered, warp by warp, then thread by thread: which of them hold tokens, and from where
//     walk    each thread along its own tokens, at most 11
//
// A token leaves the span if its next one is outside. The path of each entry has one such token, its last. All threads
// together read its lengths (a run of literals may take megabytes). So nothing depends on how far apart tokens are.
//
// Guessing would be cheaper where it is right, but walks that start inside long runs of literals do not find back to
// real tokens.
#pragma once
#include "codec/lz/lz.cuh"
#include "codec/lz/lz_sequences.cuh"
#include "cuzarr/status.cuh"
#include "cuzarr/warp.cuh"

/// Bytes of a span that a thread owns, and maximum number of threads.
#define CUZARR_LZ4_OWN 32u
#define CUZARR_LZ4_THREADS 256u
#define CUZARR_LZ4_SPAN (CUZARR_LZ4_OWN * CUZARR_LZ4_THREADS)
/// Bytes that a warp owns.
#define CUZARR_LZ4_WARP_BYTES (CUZARR_LZ4_OWN * CUZARR_WARP)
#define CUZARR_LZ4_NOWHERE 0xffffffffu
#define CUZARR_LZ4_LONGEST 0x7fffffffu

/// A span in shared memory. There is a gap behind each row of 32, so that threads at the same column of different rows
/// do not use the same bank.
struct Lz4Span {
    u8* bytes;
    u16* steps;   // out of the thread's bytes, or to the token inside of them that leaves the span
    u16* joined;  // the same for those of a warp
    u32* others;  // which of a thread's bytes are not 255, a bit each
    u8* filled;   // the first thread from this one on that has such a byte, or the last
    u32 size;     // bytes that are there
};

#define CUZARR_LZ4_SPAN_SHARED(span)                                                            \
    CUZARR_SHARED(u8, span_bytes, CUZARR_LZ4_SPAN + CUZARR_LZ4_THREADS * 4);                    \
    CUZARR_SHARED(u16, span_steps, CUZARR_LZ4_SPAN + CUZARR_LZ4_THREADS * 2);                   \
    CUZARR_SHARED(u16, span_joined, CUZARR_LZ4_SPAN + CUZARR_LZ4_THREADS * 2);                  \
    CUZARR_SHARED(u32, span_others, CUZARR_LZ4_THREADS);                                        \
    CUZARR_SHARED(u8, span_filled, CUZARR_LZ4_THREADS);                                         \
    Lz4Span span = {span_bytes, span_steps, span_joined, span_others, span_filled, 0}

CUZARR_DEVICE u32 lz4_byte(const Lz4Span& span, u32 at) { return span.bytes[at + at / 32 * 4]; }
CUZARR_DEVICE u16& lz4_step(const Lz4Span& span, u32 at) { return span.steps[at + at / 32 * 2]; }
CUZARR_DEVICE u16& lz4_joined(const Lz4Span& span, u32 at) { return span.joined[at + at / 32 * 2]; }

/// Returns the first byte from `at` on that is not 255, or the span's end.
CUZARR_DEVICE u32 lz4_run_end(const Lz4Span& span, u32 at) {
    u32 row = at / 32, bits = span.others[row] >> at % 32;
    if (bits == 0) {
        if ((row + 1) * 32 >= span.size) return span.size;
        row = span.filled[row + 1], at = row * 32, bits = span.others[row];
        if (bits == 0) return span.size;
    }
    at += lowest_bit(bits);
    return at < span.size ? at : span.size;
}

/// A token whose next one is in the span, too.
struct Lz4Token {
    u32 literals_at, literals;
    u32 offset_at, match;
    u32 next;  // CUZARR_LZ4_NOWHERE: outside, and nothing else is known
};

CUZARR_DEVICE Lz4Token lz4_token(const Lz4Span& span, u32 at) {
    Lz4Token token = {0, 0, 0, 0, CUZARR_LZ4_NOWHERE};
    u32 byte = lz4_byte(span, at++);
    token.literals = byte >> 4, token.match = (byte & 15) + 4;
    if (token.literals == 15) {
        u32 end = at < span.size && lz4_byte(span, at) != 255 ? at : lz4_run_end(span, at < span.size ? at : span.size - 1);
        if (at >= span.size || end >= span.size) return token;
        token.literals += 255 * (end - at) + lz4_byte(span, end);
        at = end + 1;
    }
    token.literals_at = at;
    at += token.literals;
    token.offset_at = at;
    at += 2;
    if (at >= span.size) return token;
    if (token.match == 19) {
        u32 end = lz4_byte(span, at) != 255 ? at : lz4_run_end(span, at);
        if (end >= span.size) return token;
        token.match += 255 * (end - at) + lz4_byte(span, end);
        at = end + 1;
        if (at >= span.size) return token;
    }
    token.next = at;
    return token;
}

/// Returns only where the token behind the one at `at` begins.
CUZARR_DEVICE u32 lz4_next(const Lz4Span& span, u32 at) {
    u32 byte = lz4_byte(span, at++), skip = byte >> 4;
    if (skip == 15) {
        if (at >= span.size) return CUZARR_LZ4_NOWHERE;
        u32 further = lz4_byte(span, at);
        if (further == 255) {
            u32 end = lz4_run_end(span, at);
            if (end >= span.size) return CUZARR_LZ4_NOWHERE;
            further = 255 * (end - at) + lz4_byte(span, end);
            at = end;
        }
        skip += further + 1;
    }
    at += skip + 2;
    if (at >= span.size) return CUZARR_LZ4_NOWHERE;
    if ((byte & 15) == 15) {
        if (lz4_byte(span, at) == 255) at = lz4_run_end(span, at);
        ++at;
        if (at >= span.size) return CUZARR_LZ4_NOWHERE;
    }
    return at;
}

/// Loads a span from `src`, before which a header stands. All threads call.
CUZARR_DEVICE void lz4_load(Lz4Span& span, const u8* src, u32 size) {
    u32 most = thread_count() * CUZARR_LZ4_OWN, row = thread_index();
    span.size = size < most ? size : most;
    block_barrier();
    for (u32 at = thread_index() * 4; at < span.size; at += thread_count() * 4) {
        if (at + 8 <= size) *(u32*)(span.bytes + at + at / 32 * 4) = load_4<false>(src + at);
        else for (u32 k = at; k < at + 4 && k < span.size; ++k) span.bytes[k + k / 32 * 4] = src[k];
    }
    block_barrier();
    u32 others = 0;
    for (u32 column = 0; column < 32; ++column) {
        u32 at = row * 32 + column;
        if (at >= span.size || lz4_byte(span, at) != 255) others |= 1u << column;
    }
    span.others[row] = others;
    block_barrier();
    u32 filled = row;
    while (filled + 1 < thread_count() && span.others[filled] == 0) ++filled;
    span.filled[row] = (u8)filled;
    block_barrier();
}

/// Does `step` and `join` of this file's head.
CUZARR_DEVICE void lz4_connect(const Lz4Span& span) {
    u32 row = thread_index(), begin = row * 32, end = begin + 32;
    for (u32 at = end < span.size ? end : span.size; at-- > begin;) {
        u32 next = lz4_next(span, at);
        if (next == CUZARR_LZ4_NOWHERE) next = at;
        else if (next < end) next = lz4_step(span, next);
        lz4_step(span, at) = (u16)next;
    }
    warp_barrier(CUZARR_ALL_LANES);
    u32 lane = row % CUZARR_WARP, first = row - lane, warp_end = (first + CUZARR_WARP) * 32;
    for (u32 i = CUZARR_WARP; i-- > 0;) {
        u32 at = (first + i) * 32 + lane, row_end = (first + i + 1) * 32;
        if (at < span.size) {
            u32 next = lz4_step(span, at);
            if (next >= row_end && next < warp_end) next = lz4_joined(span, next);
            lz4_joined(span, at) = (u16)next;
        }
        warp_barrier(CUZARR_ALL_LANES);
    }
    block_barrier();
}

/// Returns the token that leaves the span on the path from `entry`. `own` becomes where the path enters the thread's
/// bytes, if it does.
CUZARR_DEVICE u32 lz4_enter(const Lz4Span& span, u32 entry, u32& own) {
    u32 thread = thread_index(), warp = thread / CUZARR_WARP, warp_entry = CUZARR_LZ4_NOWHERE, leaving;
    own = CUZARR_LZ4_NOWHERE;
    for (u32 at = entry;;) {
        u32 here = at / CUZARR_LZ4_WARP_BYTES, next = lz4_joined(span, at);
        if (here == warp) warp_entry = at;
        leaving = next;
        if (next < (here + 1) * CUZARR_LZ4_WARP_BYTES) break;
        at = next;
    }
    if (warp_entry == CUZARR_LZ4_NOWHERE) return leaving;
    for (u32 at = warp_entry;;) {
        u32 row = at / 32, next = lz4_step(span, at);
        if (row == thread) own = at;
        if (next < (row + 1) * 32 || next >= (warp + 1) * CUZARR_LZ4_WARP_BYTES) break;
        at = next;
    }
    return leaving;
}

/// A number of sequences, and the bytes that they make.
struct Lz4Total {
    u64 bytes;
    u32 sequences, reserved;
};
static_assert(sizeof(Lz4Total) == 16, "as blocks.rs counts them");

CUZARR_DEVICE Lz4Total lz4_sum(const Lz4Total& a, const Lz4Total& b) { return {a.bytes + b.bytes, a.sequences + b.sequences, 0}; }

/// Returns the sum over the threads before this one in the block; `all` gets the sum of all. `sums` has a place for
/// each warp. All threads call.
CUZARR_DEVICE Lz4Total lz4_scan(const Lz4Total& own, Lz4Total* sums, Lz4Total& all) {
    u32 lane = thread_index() % CUZARR_WARP, warp = thread_index() / CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    Lz4Total sum = own;
    for (u32 by = 1; by < CUZARR_WARP; by *= 2) {
        u64 bytes = warp_shuffle_up(CUZARR_ALL_LANES, sum.bytes, by);
        u32 sequences = warp_shuffle_up(CUZARR_ALL_LANES, sum.sequences, by);
        if (lane >= by) sum.bytes += bytes, sum.sequences += sequences;
    }
    block_barrier();
    if (lane == CUZARR_WARP - 1) sums[warp] = sum;
    block_barrier();
    Lz4Total before = {sum.bytes - own.bytes, sum.sequences - own.sequences, 0};
    all = {0, 0, 0};
    for (u32 i = 0; i < warps; ++i) {
        if (i < warp) before = lz4_sum(before, sums[i]);
        all = lz4_sum(all, sums[i]);
    }
    return before;
}

/// Returns the sum over the thread's own tokens, without the one that leaves the span.
CUZARR_DEVICE Lz4Total lz4_count(const Lz4Span& span, u32 own, u32 leaving) {
    u32 end = (thread_index() + 1) * 32;
    Lz4Total total = {0, 0, 0};
    for (u32 at = own; at < end && at != leaving; ++total.sequences) {
        Lz4Token token = lz4_token(span, at);
        total.bytes += token.literals + token.match;
        at = token.next;
    }
    return total;
}

/// A block, and where its sequences go.
struct Lz4Block {
    const u8* src;
    u32 size, out_size;
    LzSequence* sequences;
};

/// A token, with positions in the whole block. It follows the rules of `lz4_sequence` in lz4.cuh.
struct Lz4Placed {
    u64 out;
    u32 literals_at, literals, offset, match;
};

/// Returns the damage of a token, if any. `last` is set if it ends the block; it then has no match.
CUZARR_DEVICE u32 lz4_check(const Lz4Block& block, const Lz4Placed& token, u32 first_byte, bool& last) {
    last = false;
    if (token.literals_at > block.size || token.literals > block.size - token.literals_at) return CUZARR_CUT_OFF;
    if (token.out > block.out_size || token.literals > block.out_size - token.out) return CUZARR_TOO_LONG;
    u32 end = token.literals_at + token.literals, out_end = (u32)token.out + token.literals;
    if (out_end + 12 > block.out_size || end + 8 > block.size) {
        last = true;
        if (block.out_size == 0 && first_byte) return CUZARR_TOO_LONG;
        return end != block.size ? CUZARR_TRAILING : out_end != block.out_size ? CUZARR_TOO_SHORT : CUZARR_INTACT;
    }
    if (token.offset == 0) return CUZARR_ZERO_OFFSET;
    if (token.offset > out_end) return CUZARR_BEFORE_START;
    return token.match > block.out_size - out_end - 5 ? CUZARR_TOO_LONG : CUZARR_INTACT;
}

CUZARR_DEVICE void lz4_write(const Lz4Block& block, const Lz4Placed& token, u32 number) {
    block.sequences[number] = {(u32)token.out, token.literals_at, (u32)token.out + token.literals, token.offset};
}

/// Writes the thread's own sequences, behind the sequences and bytes of `before`. Reports damage.
CUZARR_DEVICE void lz4_emit(
    const Lz4Block& block, const Lz4Span& span, u32 begin, u32 own, u32 leaving, const Lz4Total& before, u64* statuses, u32 unit,
    u32 place
) {
    u32 end = (thread_index() + 1) * 32, number = before.sequences;
    u64 out = before.bytes;
    for (u32 at = own; at < end && at != leaving; ++number) {
        Lz4Token token = lz4_token(span, at);
        u32 offset = lz4_byte(span, token.offset_at) | lz4_byte(span, token.offset_at + 1) << 8;
        Lz4Placed placed = {out, begin + token.literals_at, token.literals, offset, token.match};
        bool last;
        u32 damage = lz4_check(block, placed, lz4_byte(span, at), last);
        if (damage) report(statuses, unit, damage, place + begin + at);
        else lz4_write(block, placed, number);
        out += token.literals + token.match;
        at = token.next;
    }
}

/// Returns the first byte from `at` on that is not 255, or the block's end. All threads call; each reads 16 bytes at a
/// time. `found` is shared.
CUZARR_DEVICE u32 lz4_far_run_end(const u8* src, u32 size, u32 at, u32* found) {
    for (;;) {
        block_barrier();
        if (thread_index() == 0) *found = 0;
        block_barrier();
        u32 own = at + thread_index() * 16, end = own + 16 < size ? own + 16 : size;
        while (own < end && src[own] == 255) ++own;
        if (own < end) atomic_max(found, ~own);
        block_barrier();
        u32 first = ~*found;
        if (first != CUZARR_LZ4_NOWHERE) return first;
        if (size - at <= thread_count() * 16) return size;
        at += thread_count() * 16;
    }
}

/// Reads a length whose further bytes begin at `at`. Moves `at` behind them; behind the block's end if they are cut
/// off.
CUZARR_DEVICE u32 lz4_far_length(const u8* src, u32 size, u32& at, u32* found) {
    u32 end = at < size ? lz4_far_run_end(src, size, at, found) : size;
    u64 length = 15 + 255ull * (end - (at < size ? at : size)) + (end < size ? src[end] : 0);
    at = end + 1;
    return length < CUZARR_LZ4_LONGEST - 4 ? (u32)length : CUZARR_LZ4_LONGEST - 4;
}

/// Parses the token at `at` of the block, wherever it leads. All threads call, and get the same. `next` is behind the
/// block's end if the token is cut off, or is the last one.
CUZARR_DEVICE Lz4Placed lz4_far_token(const Lz4Block& block, u32 at, u64 out, u32* found, u32& next) {
    u32 byte = block.src[at++];
    Lz4Placed token = {out, at, byte >> 4, 0, 0};
    if (token.literals == 15) token.literals = lz4_far_length(block.src, block.size, at, found);
    token.literals_at = at;
    next = block.size;
    if (at > block.size || token.literals > block.size - at) return token;
    at += token.literals;
    if (block.size - at < 2) return token;
    token.offset = (u32)block.src[at] | (u32)block.src[at + 1] << 8;
    at += 2;
    token.match = (byte & 15) + 4;
    if (token.match == 19) token.match = 4 + lz4_far_length(block.src, block.size, at, found);
    next = at;
    return token;
}

/// Writes the sequence of a token that leaves a span, and the sentinel if it is the last one. One thread calls.
CUZARR_DEVICE void lz4_emit_leaving(
    const Lz4Block& block, const Lz4Placed& token, u32 at, u32 next, u32 number, u64* statuses, u32 unit, u32 place
) {
    bool last;
    u32 damage = lz4_check(block, token, block.src[at], last);
    if (damage) {
        report(statuses, unit, damage, place + at);
    } else {
        lz4_write(block, token, number);
        if (last) block.sequences[number + 1] = lz_sentinel(block.out_size);
        else if (next >= block.size) report(statuses, unit, CUZARR_CUT_OFF, place + next);
    }
}
