// Finds the tokens of an LZ4 block by guessing where one begins, for blocks of short sequences, where wrong guesses are
// soon corrected. A guess is never trusted: a path of tokens counts only because it begins where the path before it
// ended.
//
// A block's bytes are cut into spans, and a span into a part for each lane of a warp.
//
//     guess   each lane walks from a little before its part, from one token to the next as if one began there. Such a walk soon meets
//             the real path. The lane notes the tokens of its part, a bit each, and where it leaves the part.
//     settle  the path through the span: from where it is entered, part by part. A lane that is entered where it noted no token walks
//             again from there, until it comes to one that it noted: the rest of its part was right.
//     mend    the same from span to span, as far as the span before leads to a token that was not noted
//     chase   the path through the block. A span that it enters where no token was noted is gone through as in lz4_tokens.cuh.
//
// So a lane only looks at tokens, not at every byte.
#pragma once
#include "codec/lz4/lz4_tokens.cuh"

/// Maximum bytes of a lane's part. A span of such parts has CUZARR_LZ4_SPAN bytes.
#define CUZARR_LZ4_PART (CUZARR_LZ4_SPAN / CUZARR_WARP)

/// Bytes of a block in shared memory, from some place on.
struct Lz4Staged {
    u8* bytes;
    u16* others;    // of each piece of 2^piece_log bytes: the first byte that is not 255, or CUZARR_LZ4_ALL_255
    u32 size;       // bytes that are there
    u32 piece_log;
};
#define CUZARR_LZ4_ALL_255 0xffffu

/// Notes where the bytes that are not 255 lie, by all of `count` threads, after a barrier.
CUZARR_DEVICE void lz4_note_others(const Lz4Staged& staged, u32 thread, u32 count) {
    for (u32 piece = thread; piece << staged.piece_log < staged.size; piece += count) {
        u32 at = piece << staged.piece_log, end = (piece + 1) << staged.piece_log;
        end = end < staged.size ? end : staged.size;
        while (at < end && staged.bytes[at] == 255) ++at;
        staged.others[piece] = (u16)(at < end ? at : CUZARR_LZ4_ALL_255);
    }
}

/// Returns the first byte from `at` on that is not 255, or the end of the staged bytes.
CUZARR_DEVICE u32 lz4_run_end(const Lz4Staged& staged, u32 at) {
    for (; at < staged.size && staged.bytes[at] == 255; ++at) {
        if ((at + 1) & ((1u << staged.piece_log) - 1)) continue;
        // Skips whole pieces of the run at a time.
        u32 piece = (at + 1) >> staged.piece_log;
        while (piece << staged.piece_log < staged.size && staged.others[piece] == CUZARR_LZ4_ALL_255) ++piece;
        return piece << staged.piece_log < staged.size ? staged.others[piece] : staged.size;
    }
    return at;
}

/// Parses the token at `at`. If the next one is not in the staged bytes, nothing else is known.
CUZARR_DEVICE Lz4Token lz4_token(const Lz4Staged& staged, u32 at) {
    Lz4Token token = {0, 0, 0, 0, CUZARR_LZ4_NOWHERE};
    u32 byte = staged.bytes[at++];
    token.literals = byte >> 4, token.match = (byte & 15) + 4;
    if (token.literals == 15) {
        u32 end = lz4_run_end(staged, at);
        if (end >= staged.size) return token;
        token.literals += 255 * (end - at) + staged.bytes[end];
        at = end + 1;
    }
    token.literals_at = at;
    at += token.literals;
    token.offset_at = at;
    at += 2;
    if (at >= staged.size) return token;
    if (token.match == 19) {
        u32 end = lz4_run_end(staged, at);
        if (end >= staged.size) return token;
        token.match += 255 * (end - at) + staged.bytes[end];
        at = end + 1;
        if (at >= staged.size) return token;
    }
    token.next = at;
    return token;
}

/// Returns where the token behind the one at `at` begins; CUZARR_LZ4_NOWHERE if that is outside.
CUZARR_DEVICE u32 lz4_next(const Lz4Staged& staged, u32 at) {
    // Any byte behind the end leads behind the end, too.
    u32 byte = staged.bytes[at], further = staged.bytes[at + 1], skip = byte >> 4, begin = at + 1;
    at += 3 + skip;
    if (skip == 15) {
        at += 1 + further;
        if (further == 255) {
            u32 end = lz4_run_end(staged, begin);
            if (end >= staged.size) return CUZARR_LZ4_NOWHERE;
            at = end + 18 + 255 * (end - begin) + staged.bytes[end];
        }
    }
    if (at >= staged.size) return CUZARR_LZ4_NOWHERE;
    if ((byte & 15) == 15) {
        if (staged.bytes[at] == 255) at = lz4_run_end(staged, at);
        if (++at >= staged.size) return CUZARR_LZ4_NOWHERE;
    }
    return at;
}

/// Loads `size` bytes from `src` on. Before them stand a header or other bytes of the block; `left` bytes of the block
/// follow from `src` on. All of `count` threads call; the caller adds barriers.
CUZARR_DEVICE void lz4_stage(u8* bytes, const u8* src, u32 size, u32 left, u32 thread, u32 count) {
    for (u32 at = thread * 16; at < size; at += count * 16) {
        // The last word of load_16 may reach 3 bytes further than the 16.
        if (at + 19 <= left) *(uint4*)(bytes + at) = load_16(src + at);
        else for (u32 k = at; k < at + 16 && k < size; ++k) bytes[k] = src[k];
    }
}

/// A span while a warp finds its tokens.
struct Lz4Guess {
    Lz4Staged staged;  // from `lead` bytes before the span on
    u32* tokens;       // a bit for each of the span's bytes where a token begins: word i of a lane's part at i * 32 + lane
    u32 lead;
    u32 part_log;      // bytes of a part
};

#define CUZARR_LZ4_GUESS_SHARED(span, part_log)                                  \
    CUZARR_SHARED(u8, staged_bytes, CUZARR_LZ4_SPAN + CUZARR_LZ4_PART / 2 + 16);  \
    CUZARR_SHARED(u16, staged_others, CUZARR_WARP + 1);                           \
    CUZARR_SHARED(u32, span_tokens, CUZARR_LZ4_THREADS);                        \
    Lz4Guess span = {{staged_bytes, staged_others, 0, part_log}, span_tokens, 0, part_log}

/// The part of a span that a lane owns.
struct Lz4Part {
    u32 lane;
    u32 begin, end;  // in what is staged
};

CUZARR_DEVICE u32& lz4_tokens_of(const Lz4Guess& span, const Lz4Part& part, u32 at) {
    return span.tokens[(at - part.begin) / 32 * CUZARR_WARP + part.lane];
}
CUZARR_DEVICE bool lz4_is_token(const Lz4Guess& span, const Lz4Part& part, u32 at) {
    return lz4_tokens_of(span, part, at) >> (at - part.begin) % 32 & 1;
}

/// Notes the tokens from `at` on up to `end`, which is in the part. Returns the first token at or behind `end`.
CUZARR_DEVICE u32 lz4_mark(const Lz4Guess& span, const Lz4Part& part, u32 at, u32 end) {
    while (at < end) {
        lz4_tokens_of(span, part, at) |= 1u << (at - part.begin) % 32;
        at = lz4_next(span.staged, at);
    }
    return at;
}

/// Forgets the tokens before `at`, which may be the part's end.
CUZARR_DEVICE void lz4_forget(const Lz4Guess& span, const Lz4Part& part, u32 at) {
    u32 bits = at - part.begin, words = (1u << span.part_log) / 32;
    for (u32 word = 0; word < words; ++word) {
        u32 left = bits > word * 32 ? bits - word * 32 : 0;
        if (left) span.tokens[word * CUZARR_WARP + part.lane] &= left < 32 ? 0xffffffffu << left : 0;
    }
}

/// Walks again from `at`, where no token was noted, until it meets a noted one; notes from there on stay. `exit` is
/// where the path leaves the part. It changes if the walk meets no noted token.
CUZARR_DEVICE void lz4_mark_again(const Lz4Guess& span, const Lz4Part& part, u32 at, u32& exit) {
    u32* words = span.tokens + part.lane;
    u32 count = (1u << span.part_log) / 32, number = 0, fresh = 0;
    for (;;) {
        u32 place = at - part.begin, bit = place % 32, own = at < part.end ? place / 32 : count;
        for (; number < own; ++number) words[number * CUZARR_WARP] = fresh, fresh = 0;
        if (own == count) break;
        u32 old = words[own * CUZARR_WARP];
        if (old >> bit & 1) {
            words[own * CUZARR_WARP] = fresh | (old & 0xffffffffu << bit);
            return;
        }
        fresh |= 1u << bit;
        at = lz4_next(span.staged, at);
    }
    exit = at;
}

/// Returns the parts on the path from part `root` on, one bit each. Each part leads to the part that holds its `exit`.
CUZARR_DEVICE u32 lz4_path(const Lz4Guess& span, u32 root, u32 exit, u32 lane) {
    u32 next = exit < span.staged.size ? (exit - span.lead) >> span.part_log : lane, path = 1u << lane | 1u << next;
    for (u32 step = 1; step < CUZARR_WARP; step *= 2) {
        path |= warp_shuffle(CUZARR_ALL_LANES, path, next);
        next = warp_shuffle(CUZARR_ALL_LANES, next, next);
    }
    return warp_shuffle(CUZARR_ALL_LANES, path, root);
}

/// Does `guess` and `settle` of this file's head, by one warp: notes the tokens on the path from `entry`, which lies in
/// the span, or from a guess of the entry if it is CUZARR_LZ4_NOWHERE. Returns the token that leaves the span.
CUZARR_DEVICE u32 lz4_settle(const Lz4Guess& span, u32 entry, u32 lane) {
    u32 part_bytes = 1u << span.part_log, root = entry == CUZARR_LZ4_NOWHERE ? 0 : (entry - span.lead) >> span.part_log;
    Lz4Part part = {lane, span.lead + lane * part_bytes, 0};
    part.end = part.begin + part_bytes < span.staged.size ? part.begin + part_bytes : span.staged.size;
    for (u32 word = lane; word < part_bytes; word += CUZARR_WARP) span.tokens[word] = 0;
    warp_barrier(CUZARR_ALL_LANES);
    u32 at = part.begin;
    if (lane == root && entry != CUZARR_LZ4_NOWHERE) {
        at = entry;
    } else if (at >= part_bytes / 2 && at < part.end) {
        for (at -= part_bytes / 2; at < part.begin;) at = lz4_next(span.staged, at);
        if (at == CUZARR_LZ4_NOWHERE) at = part.begin;
    }
    u32 exit = lz4_mark(span, part, at, part.end);
    for (;;) {
        u32 path = lz4_path(span, root, exit, lane), before = path & lanes_below(lane);
        u32 entered = warp_shuffle(CUZARR_ALL_LANES, exit, before ? highest_bit(before) : lane);
        bool is_on = path >> lane & 1, is_entered = is_on && lane != root;
        bool again = is_entered && !lz4_is_token(span, part, entered);
        if (warp_ballot(CUZARR_ALL_LANES, again) == 0) {
            if (is_entered) lz4_forget(span, part, entered);
            else if (!is_on) lz4_forget(span, part, part.begin + part_bytes);
            u32 leaving = part.begin;
            for (u32 word = 0; word < part_bytes / 32; ++word) {
                u32 bits = span.tokens[word * CUZARR_WARP + lane];
                if (bits) leaving = part.begin + word * 32 + highest_bit(bits);
            }
            return warp_shuffle(CUZARR_ALL_LANES, leaving, highest_bit(path));
        }
        if (again) lz4_mark_again(span, part, entered, exit);
        warp_barrier(CUZARR_ALL_LANES);
    }
}

/// Returns the first byte from `at` on that is not 255, or the block's end. A warp calls; each lane reads 16 bytes at a
/// time.
CUZARR_DEVICE u32 lz4_warp_run_end(const u8* src, u32 size, u32 at, u32 lane) {
    for (; at < size; at += CUZARR_WARP * 16) {
        u32 left = size - at, own = lane * 16, end = own + 16 < left ? own + 16 : left;
        if (own + 19 <= left) {
            uint4 four = load_16(src + at + own);
            if ((four.x & four.y & four.z & four.w) == 0xffffffffu) own = end;
        }
        while (own < end && src[at + own] == 255) ++own;
        u32 votes = warp_ballot(CUZARR_ALL_LANES, own < end);
        if (votes) return at + warp_shuffle(CUZARR_ALL_LANES, own, lowest_bit(votes));
        if (left <= CUZARR_WARP * 16) break;
    }
    return size;
}

/// Reads a length whose further bytes begin at `at`, by a warp. Moves `at` behind them; behind the block's end if they
/// are cut off.
CUZARR_DEVICE u32 lz4_warp_length(const u8* src, u32 size, u32& at, u32 lane) {
    u32 begin = at < size ? at : size, end = lz4_warp_run_end(src, size, begin, lane);
    u64 length = 15 + 255ull * (end - begin) + (end < size ? src[end] : 0);
    at = end + 1;
    return length < CUZARR_LZ4_LONGEST - 4 ? (u32)length : CUZARR_LZ4_LONGEST - 4;
}

/// A token that leaves a span: 16 bytes.
struct Lz4Exit {
    u32 at;        // of the token
    u32 next;      // of the next one: the block's end or behind it when this one is cut off, or is the last
    u32 literals;  // how many
    u32 match;     // bytes; 0 when it is cut off or the last
};
static_assert(sizeof(Lz4Exit) == 16, "as blocks.rs counts them");

/// Parses the token at `at` of the block, wherever it leads. A warp calls; each lane gets the same.
CUZARR_DEVICE Lz4Exit lz4_exit(const Lz4Block& block, u32 at, u32 lane) {
    u32 byte = block.src[at];
    Lz4Exit exit = {at++, block.size, byte >> 4, 0};
    if (exit.literals == 15) exit.literals = lz4_warp_length(block.src, block.size, at, lane);
    if (at > block.size || exit.literals > block.size - at) return exit;
    at += exit.literals;
    if (block.size - at < 2) return exit;
    at += 2;
    exit.match = (byte & 15) + 4;
    if (exit.match == 19) exit.match = 4 + lz4_warp_length(block.src, block.size, at, lane);
    exit.next = at;
    return exit;
}

/// Returns where the literals of such a token begin; behind the block's end if its length is cut off. The length gives
/// the number of its bytes.
CUZARR_DEVICE u32 lz4_literals_at(const Lz4Exit& exit) { return exit.at + 1 + (exit.literals < 15 ? 0 : (exit.literals - 15) / 255 + 1); }

/// Writes the sequence of a token that does not leave its span, which begins at `begin`. Reports damage.
CUZARR_DEVICE void lz4_emit_token(
    const Lz4Block& block, const Lz4Staged& staged, u32 begin, u32 at, const Lz4Token& token, u64 out, u32 number, u64* statuses, u32 unit,
    u32 place
) {
    u32 offset = staged.bytes[token.offset_at] | staged.bytes[token.offset_at + 1] << 8;
    Lz4Placed placed = {out, begin + token.literals_at, token.literals, offset, token.match};
    bool last;
    u32 damage = lz4_check(block, placed, staged.bytes[at], last);
    if (damage) report(statuses, unit, damage, place + begin + at);
    else lz4_write(block, placed, number);
}

/// Writes the sequence of a token that leaves a span, and the sentinel if it is the last one. One thread calls.
CUZARR_DEVICE void lz4_emit_exit(const Lz4Block& block, const Lz4Exit& exit, u64 out, u32 number, u64* statuses, u32 unit, u32 place) {
    Lz4Placed token = {out, lz4_literals_at(exit), exit.literals, 0, exit.match};
    u32 offset_at = token.literals_at + token.literals;
    if (exit.match) token.offset = (u32)block.src[offset_at] | (u32)block.src[offset_at + 1] << 8;
    bool last;
    u32 damage = lz4_check(block, token, block.src[exit.at], last);
    if (damage) {
        report(statuses, unit, damage, place + exit.at);
    } else {
        lz4_write(block, token, number);
        if (last) block.sequences[number + 1] = lz_sentinel(block.out_size);
        else if (exit.next >= block.size) report(statuses, unit, CUZARR_CUT_OFF, place + exit.next);
    }
}

/// Finds the tokens of the block's span from `begin` on: on the path from `entry`, or from a guess of the entry if it
/// is CUZARR_LZ4_NOWHERE. Notes them in `tokens`, one bit for each byte, and the token that leaves the span in `exit`.
/// One warp calls.
CUZARR_DEVICE void lz4_find(Lz4Guess& span, const Lz4Block& block, u32 begin, u32 entry, u32* tokens, Lz4Exit* exit, u32 lane) {
    u32 part_bytes = 1u << span.part_log, left = block.size - begin;
    span.lead = begin ? part_bytes / 2 : 0;
    Lz4Staged& staged = span.staged;
    staged.size = span.lead + (left < CUZARR_WARP * part_bytes ? left : CUZARR_WARP * part_bytes);
    warp_barrier(CUZARR_ALL_LANES);
    lz4_stage(staged.bytes, block.src + begin - span.lead, staged.size, left + span.lead, lane, CUZARR_WARP);
    warp_barrier(CUZARR_ALL_LANES);
    lz4_note_others(staged, lane, CUZARR_WARP);
    u32 leaving = lz4_settle(span, entry == CUZARR_LZ4_NOWHERE ? entry : entry - begin + span.lead, lane);
    for (u32 word = 0; word < part_bytes / 32; ++word) tokens[lane * (part_bytes / 32) + word] = span.tokens[word * CUZARR_WARP + lane];
    Lz4Exit found = lz4_exit(block, begin + leaving - span.lead, lane);
    if (lane == 0) *exit = found;
}

/// Number of bytes behind a span's entry in which a thread looks for a token that was found.
#define CUZARR_LZ4_NEAR 1024u

CUZARR_DEVICE bool lz4_is_noted(const u32* tokens, u32 at) { return tokens[at / 32] >> at % 32 & 1; }

/// Returns where the token behind the one at `at` begins, if the span's bytes are not staged. Long runs are left to a
/// warp.
CUZARR_DEVICE u32 lz4_near_next(const u8* src, u32 size, u32 at) {
    u32 byte = src[at], further = at + 1 < size ? src[at + 1] : 0, skip = byte >> 4;
    at += 3 + skip + (skip == 15 ? 1 + further : 0);
    if (skip == 15 && further == 255) return size;
    if ((byte & 15) == 15 && at < size && src[at++] == 255) return size;
    return at;
}

/// Returns where the path from `entry` of a span soon meets a token that was found; the span's size if it does not. The
/// span is `size` bytes from `src` on.
CUZARR_DEVICE u32 lz4_meeting(const u8* src, u32 size, u32 entry, const u32* tokens) {
    u32 limit = size - entry < CUZARR_LZ4_NEAR ? size : entry + CUZARR_LZ4_NEAR, at = entry;
    while (at < limit && !lz4_is_noted(tokens, at)) at = lz4_near_next(src, size, at);
    return at < limit ? at : size;
}

/// Notes the path from `entry` to where it meets that token, and forgets tokens that were found before. One thread
/// calls.
CUZARR_DEVICE void lz4_note_path(const u8* src, u32 size, u32 entry, u32 meeting, u32* tokens) {
    u32 fresh = 0, number = 0;
    for (u32 at = entry;; at = lz4_near_next(src, size, at)) {
        for (; number < at / 32; ++number) tokens[number] = fresh, fresh = 0;
        if (at == meeting) break;
        fresh |= 1u << at % 32;
    }
    tokens[number] = fresh | (tokens[number] & 0xffffffffu << meeting % 32);
}
