// Encodes one piece of an LZ4 block by a block of threads.
//
// A block is cut into pieces, so that many multiprocessors work on it. Matches begin in their piece, or in its history:
// a part of the block before it, so small that positions fit 16 bits. What a piece cannot know is left to
// `encode_assemble`:
//
//     literals   those behind a piece's last match go to the first match of a later piece
//     lengths    a match that ends with its piece may go on in the next one, at the same offset, and in more behind that
//
// So a piece gives
//
//     lead     how many literals stand before its first match
//     tail     encoded bytes from that match's offset on, to the end of its last match; not what its length adds to the token,
//              when that match ends with the piece
//     trail    how many literals follow
//     head     what its first match is, when the piece begins with it
//     last     what its last match is, when the piece ends with it
//
//     bring the piece and its history to shared memory, and the history's positions to the table
//     for each step of positions, one a thread:
//         when a match fills the segment before: how far it goes on is seen at once, and those steps need nothing else
//         hash of 4 bytes -> the first position of this step that had it, and of the last step before that had it; inside of a
//         run of elements of up to 8 bytes, that run; the longest match, up to the end of the segment, is the position's
//         candidate. Positions inside of a run do not go into the table: its beginning is the better place
//         after some steps without a match, steps are left out
//     for each segment of 128 positions, one a thread:
//         take the candidates from its beginning on, but leave one out that a longer one follows by a byte or two
//     where matches follow each other, perhaps after a few literals, try the offset of the one before; join those that now have
//     the same
//     write the sequences where the sums of their sizes say
//
// Tables change by atomic maxima between barriers, so the same bytes give the same frame on every run.
//
// Prior art: liblz4 (BSD-2-Clause) for the hash, zlib for leaving out a match that a longer one follows.
#pragma once
#include "codec/batch/frames.cuh"
#include "codec/lz/find/lz_find.cuh"
#include "codec/lz/lz.cuh"

/// Threads of a block, and positions of a step: a power of 2.
#define CUZARR_LZ4_THREADS 512u
/// Bytes of a piece, and of its history, in which matches may begin, too: multiples of a step. In `simt` they are
/// smaller.
#define CUZARR_LZ4_PIECE_BYTES 16384u
#define CUZARR_LZ4_HISTORY_BYTES 8192u
/// A match ends with its segment, unless it is joined with the next one.
#define CUZARR_LZ4_SEGMENT_BYTES 128u
#define CUZARR_LZ4_TABLE_BITS 13u
#define CUZARR_LZ4_TABLE (1u << CUZARR_LZ4_TABLE_BITS)
/// Words of the piece and its history, and words that are read behind them.
#define CUZARR_LZ4_WINDOW_WORDS ((CUZARR_LZ4_PIECE_BYTES + CUZARR_LZ4_HISTORY_BYTES) / 4 + 4)
/// Number of words before the window that are read but not used.
#define CUZARR_LZ4_BEFORE_WORDS 4u
/// Shared memory of a block of threads: the window and the table. All GPUs since compute capability 7.5 have 64 KiB.
#define CUZARR_LZ4_SHARED_BYTES 57376u
static_assert(4 * (CUZARR_LZ4_BEFORE_WORDS + CUZARR_LZ4_WINDOW_WORDS + CUZARR_LZ4_TABLE) == CUZARR_LZ4_SHARED_BYTES, "the window and the table");
/// liblz4's rules for the end of a block: no match begins in the last 12 bytes, or reaches into the last 5.
#define CUZARR_LZ4_NO_BEGIN 12u
#define CUZARR_LZ4_NO_MATCH 5u
#define CUZARR_LZ4_LEAST_MATCH 4u
/// The value of a token's half that means that bytes of length follow.
#define CUZARR_LZ4_MORE 15u
/// Bytes of the elements whose repetition is a run; elements of half as many bytes count, too. Of a run, only the first
/// positions are remembered.
#define CUZARR_LZ4_RUN 8u
/// Number of steps without a match after which steps are left out.
#define CUZARR_LZ4_MISSES 4u
/// Number of words by which threads share results of steps.
#define CUZARR_LZ4_FOUND 5u
static_assert(CUZARR_LZ4_FOUND <= CUZARR_LZ4_THREADS / CUZARR_WARP, "they are where sums are later");
/// Up to this many literals of a sequence are copied by its thread alone.
#define CUZARR_LZ4_FEW_LITERALS 16u
/// Maximum number of literals across which a match that was cut at a segment's end is continued.
#define CUZARR_LZ4_MOST_GAP 8u
/// Minimum length of a match that may go on in the next piece: from this length on, its token stays the same.
#define CUZARR_LZ4_LEAST_LAST (CUZARR_LZ4_LEAST_MATCH + CUZARR_LZ4_MORE)

/// Maximum matches of a segment, and of a piece. They take the table's place, with their offsets.
#define CUZARR_LZ4_SEGMENT_MATCHES (CUZARR_LZ4_SEGMENT_BYTES / CUZARR_LZ4_LEAST_MATCH)
#define CUZARR_LZ4_MATCHES (CUZARR_LZ4_PIECE_BYTES / CUZARR_LZ4_LEAST_MATCH)
static_assert(2 * CUZARR_LZ4_MATCHES <= CUZARR_LZ4_TABLE, "matches by segment and one behind the other");

/// The result of a piece: 48 bytes.
struct Lz4Piece {
    u32 lead, tail, trail;
    u32 match;    // what the first token says of its match; CUZARR_LZ4_NO_SEQUENCE when the piece is all literals
    u32 head;     // bytes of the match that the piece begins with; 0 for none
    u32 last;     // bytes of the match that the piece ends with, whose length the tail does not tell; 0 for none
    u32 offsets;  // of its first match, and << 16 that of its last one
    u32 is_one;   // whether those are the same match
    // Written by `encode_joins`:
    u32 carry;    // literals of pieces before that belong to the first token
    u32 at;       // where the piece's bytes go, in the encoded block
    u32 length;   // of a match of pieces before, without the head: what it adds to its token stands first; 0 for none
    u32 goes_on;  // whether the head is a part of that match
};
#define CUZARR_LZ4_PIECE_ENTRY_BYTES 48u
static_assert(sizeof(Lz4Piece) == CUZARR_LZ4_PIECE_ENTRY_BYTES, "as the host counts them");

#define CUZARR_LZ4_NO_SEQUENCE 16u

/// Number of bytes that follow a token for `length`.
CUZARR_DEVICE u32 lz4_more_bytes(u32 length) {
    return length < CUZARR_LZ4_MORE ? 0 : (length - CUZARR_LZ4_MORE) / 255 + 1;
}

CUZARR_DEVICE u32 lz4_nibble(u32 length) { return length < CUZARR_LZ4_MORE ? length : CUZARR_LZ4_MORE; }

/// Writes every `step`th of these bytes, from the `first` on, and returns the number of all.
CUZARR_DEVICE u32 lz4_write_more(u8* to, u32 length, u32 first, u32 step) {
    u32 count = lz4_more_bytes(length);
    for (u32 i = first; i < count; i += step) to[i] = i + 1 < count ? 255 : (u8)((length - CUZARR_LZ4_MORE) % 255);
    return count;
}

CUZARR_DEVICE u32 lz4_hash(u32 word) { return word * 2654435761u >> (32 - CUZARR_LZ4_TABLE_BITS); }

/// Returns 4 bytes from any place of the window.
CUZARR_DEVICE u32 lz4_word(const u32* words, u32 at) {
    return funnel_shift_right(words[at / 4], words[at / 4 + 1], at % 4 * 8);
}

/// Number of equal bytes from `a` and `b` on, up to `most`. The first 4 are known to be equal.
CUZARR_DEVICE u32 lz4_common(const u32* words, u32 a, u32 b, u32 most) {
    u32 shift_a = a % 4 * 8, shift_b = b % 4 * 8, word_a = a / 4 + 1, word_b = b / 4 + 1;
    u32 low_a = words[word_a], low_b = words[word_b], done = CUZARR_LZ4_LEAST_MATCH;
    for (; done < most; done += 4) {
        u32 high_a = words[++word_a], high_b = words[++word_b];
        u32 differ = funnel_shift_right(low_a, high_a, shift_a) ^ funnel_shift_right(low_b, high_b, shift_b);
        if (differ) {
            done += count_trailing_zeros(differ) / 8;
            break;
        }
        low_a = high_a, low_b = high_b;
    }
    return done < most ? done : most;
}

/// The rank by which positions are compared. Later steps have larger ranks; within a step, the first position has the
/// largest. It is the better place to repeat, because repeated rows are found as a whole only from the beginning of a
/// run. The function is its own inverse.
CUZARR_DEVICE u32 lz4_rank(u32 at) { return at ^ (thread_count() - 1); }

/// The 4 bytes at a position, and whether they equal the 4 bytes before, and those CUZARR_LZ4_RUN bytes before.
struct Lz4Bytes {
    u32 word;
    bool is_four, is_run;
};

CUZARR_DEVICE Lz4Bytes lz4_bytes(const u32* words, u32 at) {
    const u32* here = words + at / 4;
    u32 word = funnel_shift_right(here[0], here[1], at * 8);
    bool is_run = at >= CUZARR_LZ4_RUN && funnel_shift_right(here[-2], here[-1], at * 8) == word;
    return {word, at >= CUZARR_LZ4_RUN / 2 && funnel_shift_right(here[-1], here[0], at * 8) == word, is_run};
}

/// Enters the positions before `end`, a multiple of 4, into the table, except those inside a run.
CUZARR_DEVICE void lz4_enter(const u32* words, u32* table, u32 end) {
    for (u32 word = thread_index(); 4 * word < end; word += thread_count()) {
        for (u32 at = 4 * word; at < 4 * word + 4; ++at) {
            const Lz4Bytes bytes = lz4_bytes(words, at);
            if (!bytes.is_four && !bytes.is_run) atomic_max(table + lz4_hash(bytes.word), lz4_rank(at));
        }
    }
}

/// Returns the candidate of a position inside a run, which is that run; 0 for other positions. All lanes of a warp
/// call, with successive positions: a match goes on as long as the positions behind it are inside the run, too.
CUZARR_DEVICE u32 lz4_run(const u32* words, u32 at, const Lz4Bytes& bytes, u32 most) {
    u32 fours = warp_ballot(CUZARR_ALL_LANES, bytes.is_four), runs = warp_ballot(CUZARR_ALL_LANES, bytes.is_run);
    if (!(fours | runs)) return 0;
    u32 lane = at % CUZARR_WARP, behind = 0;
    // Looks for the end of the run that the warp's last position is in.
    bool is_four = fours >> (CUZARR_WARP - 1);
    for (u32 votes = (fours | runs) >> (CUZARR_WARP - 1) ? ~0u : 0; votes == ~0u && behind < CUZARR_LZ4_SEGMENT_BYTES; behind += count_trailing_zeros(~votes)) {
        u32 place = at + CUZARR_WARP + behind, last = 4 * (CUZARR_LZ4_WINDOW_WORDS - 2);
        const Lz4Bytes next = lz4_bytes(words, place < last ? place : last);
        votes = warp_ballot(CUZARR_ALL_LANES, is_four ? next.is_four : next.is_run);
    }
    bool by_four = fours >> lane & 1;
    u32 own = (by_four ? fours : runs) >> lane, inside = count_trailing_zeros(~own);
    if (!(own & 1)) return 0;
    inside = inside < CUZARR_WARP - lane ? inside : CUZARR_WARP - lane + behind;
    u32 length = inside + CUZARR_LZ4_LEAST_MATCH - 1;
    length = length < most ? length : most;
    return length < CUZARR_LZ4_LEAST_MATCH ? 0 : (by_four ? CUZARR_LZ4_RUN / 2 : CUZARR_LZ4_RUN) | length << 16;
}

/// Where a piece lies in its window.
struct Lz4Bounds {
    u32 begin;      // of the piece: its history's bytes
    u32 size;
    u32 stop;       // no match begins there, or behind
    u32 match_end;  // no match ends behind
};

CUZARR_DEVICE Lz4Bounds lz4_bounds(u32 block_bytes, u32 begin, u32 history, u32 size) {
    u32 rest = block_bytes - begin;
    Lz4Bounds bounds = {history, size, 0, 0};
    if (rest <= CUZARR_LZ4_NO_BEGIN) return bounds;
    u32 end = rest - CUZARR_LZ4_NO_MATCH < size ? rest - CUZARR_LZ4_NO_MATCH : size;
    if (end < CUZARR_LZ4_LEAST_MATCH) return bounds;
    u32 stop = end - CUZARR_LZ4_LEAST_MATCH + 1, last = rest - CUZARR_LZ4_NO_BEGIN + 1;
    bounds.stop = history + (stop < last ? stop : last), bounds.match_end = history + end;
    return bounds;
}

/// Loads `bytes` bytes to the window, and zeros behind.
CUZARR_DEVICE void lz4_bring(u32* words, const u8* from, u32 bytes) {
    u32 units = (u64)from % 16 ? 0 : bytes / 16, whole = bytes / 4;
    for (u32 i = thread_index(); i < units; i += thread_count()) ((uint4*)words)[i] = ((const uint4*)from)[i];
    for (u32 i = 4 * units + thread_index(); i < whole + 4; i += thread_count()) {
        u32 word = 0;
        if (i < whole) {
            word = load_4<false>(from + 4 * i);
        } else if (i == whole) {
            for (u32 k = 0; k < bytes % 4; ++k) word |= (u32)from[4 * i + k] << 8 * k;
        }
        words[i] = word;
    }
}

/// Returns where the bytes from position `at` on stop to repeat those `offset` before: `end`, or before. `limit` is a
/// word of shared memory. All threads call; `at` is a multiple of 16.
CUZARR_DEVICE u32 lz4_repeats_to(const u32* words, u32 at, u32 offset, u32 end, u32* limit) {
    u32 shift = (at - offset) % 4 * 8;
    if (thread_index() == 0) *limit = end;
    block_barrier();
    for (u32 first = at; first < end; first += 16 * thread_count()) {
        u32 place = first + 16 * thread_index(), word = (place - offset) / 4, same = 16;
        if (place < end) {
            const uint4 here = *(const uint4*)(words + place / 4);
            const u32 own[4] = {here.x, here.y, here.z, here.w};
            for (u32 k = 4; k-- > 0;) {
                u32 differ = own[k] ^ funnel_shift_right(words[word + k], words[word + k + 1], shift);
                if (differ) same = 4 * k + count_trailing_zeros(differ) / 8;
            }
            if (same < 16 && place + same < end) atomic_min(limit, place + same);
        }
        block_barrier();
        u32 to = *limit;
        block_barrier();
        if (to < end) return to;
    }
    return end;
}

/// Writes the candidates of whole steps from `step` on that repeat at `offset`, up to position `end`. Returns the first
/// step behind them, which is `step` if there are none. Only the first position of a segment gets a candidate, because
/// its match is as long as the segment.
CUZARR_DEVICE u32 lz4_repeated(const Lz4Bounds& bounds, u32 step, u32 offset, u32 end, u32* candidates) {
    bool is_last = end == bounds.match_end;
    u32 to = end - bounds.begin, next = is_last ? bounds.size : to - (to - step) % thread_count();
    if (next == step) return step;
    u32 first = (step + CUZARR_LZ4_SEGMENT_BYTES - 1) / CUZARR_LZ4_SEGMENT_BYTES * CUZARR_LZ4_SEGMENT_BYTES;
    for (u32 place = first + thread_index() * CUZARR_LZ4_SEGMENT_BYTES; place < next; place += thread_count() * CUZARR_LZ4_SEGMENT_BYTES) {
        u32 length = to > place ? to - place : 0;
        length = length < CUZARR_LZ4_SEGMENT_BYTES ? length : CUZARR_LZ4_SEGMENT_BYTES;
        bool is_one = length >= CUZARR_LZ4_LEAST_MATCH && bounds.begin + place < bounds.stop;
        *(uint4*)(candidates + place) = uint4{is_one ? offset | length << 16 : 0, 0, 0, 0};
    }
    // Positions behind the last match of a block.
    u32 rest = to / CUZARR_LZ4_SEGMENT_BYTES * CUZARR_LZ4_SEGMENT_BYTES;
    rest = rest < first ? step : rest + 4;
    for (u32 place = rest + thread_index(); is_last && place < next; place += thread_count()) candidates[place] = 0;
    return next;
}

/// Finds the candidates of a piece's positions: offset | length << 16, or 0. `found` are CUZARR_LZ4_FOUND words.
CUZARR_DEVICE void lz4_candidates(const u32* words, u32* table, const Lz4Bounds& bounds, u32* found, u32* candidates) {
    // Words of `found`: whether steps with even and odd numbers had a match; the offset of a match that fills the last
    // segment; the number, plus 1, of the last step that does not go on with it; where it ends.
    u32 *follows = found + 2, *differs = found + 3, *limit = found + 4;
    if (thread_index() < CUZARR_LZ4_FOUND) found[thread_index()] = thread_index() < 2;
    // Number of the step, and of steps in a row without a match.
    u32 number = 0, misses = 0;
    // The thread of the last segment of a step.
    u32 last = thread_count() > CUZARR_LZ4_SEGMENT_BYTES ? thread_count() - CUZARR_LZ4_SEGMENT_BYTES : 0;
    lz4_enter(words, table, bounds.begin);
    block_barrier();
    for (u32 step = 0, next; step < bounds.size; step = next, ++number) {
        u32 place = step + thread_index(), at = bounds.begin + place;
        bool is_known = at < bounds.stop;
        const Lz4Bytes bytes = is_known ? lz4_bytes(words, at) : Lz4Bytes{0, false, false};
        u32 word = bytes.word, hash = lz4_hash(word), before = table[hash];
        bool is_looked_up = is_known && !bytes.is_four && !bytes.is_run;
        block_barrier();
        misses = found[(number + 1) % 2] ? 0 : misses + 1;
        // Whether the step goes on with the match before: if not, some thread says so.
        u32 offset = *follows;
        if (offset && is_known && word != lz4_word(words, at - offset)) *differs = number + 1;
        if (thread_index() == 0) found[number % 2] = 0;
        if (is_looked_up) atomic_max(table + hash, lz4_rank(at));
        block_barrier();
        if (offset && *differs != number + 1) {
            u32 end = lz4_repeats_to(words, bounds.begin + step, offset, bounds.match_end, limit);
            next = lz4_repeated(bounds, step, offset, end, candidates);
            if (next > step) {
                if (thread_index() == 0) found[number % 2] = 1;
                continue;
            }
        }
        u32 segment_end = (place | (CUZARR_LZ4_SEGMENT_BYTES - 1)) + 1 + bounds.begin;
        u32 most = (segment_end < bounds.match_end ? segment_end : bounds.match_end) - at, candidate = 0;
        // An empty entry means a position of the first step, which is compared like any other.
        const u32 places[2] = {lz4_rank(before), lz4_rank(table[hash])};
        for (u32 i = 0; i < 2; ++i) {
            u32 from = places[i];
            if (!is_looked_up || from >= at || most < CUZARR_LZ4_LEAST_MATCH || lz4_word(words, from) != word) continue;
            u32 length = lz4_common(words, from, at, most);
            if (length > candidate >> 16) candidate = (at - from) | length << 16;
        }
        candidate |= lz4_run(words, at, bytes, most);
        if (place < bounds.size) candidates[place] = candidate;
        if (thread_index() == last) {
            bool is_full = place % CUZARR_LZ4_SEGMENT_BYTES == 0 && candidate >> 16 == CUZARR_LZ4_SEGMENT_BYTES;
            // If steps are left out, the next step does not follow this segment.
            is_full = is_full && misses < CUZARR_LZ4_MISSES;
            *follows = is_full ? candidate & 0xffff : 0;
        }
        if (warp_ballot(CUZARR_ALL_LANES, candidate != 0) && place % CUZARR_WARP == 0) found[number % 2] = 1;
        // No match for a while: steps are left out, as in liblz4.
        next = step + (1 + misses / CUZARR_LZ4_MISSES) * thread_count();
        for (place += thread_count(); place < next && place < bounds.size; place += thread_count()) candidates[place] = 0;
    }
    block_barrier();
}

/// Chooses the matches of a segment, begin << 16 | length each, and returns their number. The matches of all segments
/// are interleaved in memory.
CUZARR_DEVICE u32 lz4_choose(const u32* candidates, u32 begin, u32 size, u32* matches, u32 segments) {
    u32 made = 0, end = begin + CUZARR_LZ4_SEGMENT_BYTES < size ? begin + CUZARR_LZ4_SEGMENT_BYTES : size;
    for (u32 at = begin; at < end;) {
        u32 length = candidates[at] >> 16;
        if (length == 0 && at % 4 == 0) {
            const uint4 four = *(const uint4*)(candidates + at);
            if (!(four.x | four.y | four.z | four.w)) {
                at += 4;
                continue;
            }
        }
        u32 next = at + 1 < end ? candidates[at + 1] >> 16 : 0, second = at + 2 < end ? candidates[at + 2] >> 16 : 0;
        if (length == 0 || next > length || second > length + 1) {
            ++at;
            continue;
        }
        matches[made++ * segments] = at << 16 | length;
        at += length;
    }
    return made;
}

/// The matches of a piece.
struct Lz4Matches {
    const u32* list;     // begin << 16 | length, one behind the other
    const u16* offsets;
    u32* starts;         // a bit for each: whether it does not go on with the one before
    u32 count;
};

CUZARR_DEVICE u32 match_begin(const Lz4Matches& matches, u32 index) { return matches.list[index] >> 16; }
CUZARR_DEVICE u32 match_end(const Lz4Matches& matches, u32 index) {
    return (matches.list[index] >> 16) + (matches.list[index] & 0xffff);
}
/// Whether a match begins where the one before ends, with the same offset.
CUZARR_DEVICE bool match_goes_on(const Lz4Matches& matches, u32 index) {
    return index && match_end(matches, index - 1) == match_begin(matches, index) && matches.offsets[index - 1] == matches.offsets[index];
}

/// Sets the bits of `starts`. All threads call.
CUZARR_DEVICE void lz4_mark(const Lz4Matches& matches) {
    for (u32 first = 0; first < matches.count; first += thread_count()) {
        u32 index = first + thread_index(), starts = warp_ballot(CUZARR_ALL_LANES, index < matches.count && !match_goes_on(matches, index));
        if (index % CUZARR_WARP == 0 && index < matches.count) matches.starts[index / CUZARR_WARP] = starts;
    }
    block_barrier();
}
/// Returns the first match of the row of joined matches that this one is in.
CUZARR_DEVICE u32 match_first(const Lz4Matches& matches, u32 index) {
    u32 word = index / CUZARR_WARP, starts = matches.starts[word] & (lanes_below(index % CUZARR_WARP) | 1u << index % CUZARR_WARP);
    while (!starts) starts = matches.starts[--word];
    return word * CUZARR_WARP + highest_bit(starts);
}
/// Returns the match behind the row that this one is in.
CUZARR_DEVICE u32 match_next(const Lz4Matches& matches, u32 index) {
    u32 word = ++index / CUZARR_WARP, words = (matches.count + CUZARR_WARP - 1) / CUZARR_WARP;
    if (index >= matches.count) return matches.count;
    u32 starts = matches.starts[word] & ~lanes_below(index % CUZARR_WARP);
    while (!starts && ++word < words) starts = matches.starts[word];
    return starts ? word * CUZARR_WARP + lowest_bit(starts) : matches.count;
}

/// Lets matches begin earlier if the literals before them repeat at their offset, too. The table may have lost such a
/// position to another one with the same hash.
CUZARR_DEVICE void lz4_begin_earlier(const u8* window, u32 begin, const u16* offsets, u32* list, u32 count) {
    for (u32 index = thread_index(); index < count; index += thread_count()) {
        u32 match = list[index], from = match >> 16, before = index ? list[index - 1] : 0, least = (before >> 16) + (before & 0xffff);
        u32 offset = offsets[index], at = from;
        if (least + CUZARR_LZ4_MOST_GAP < at) least = at - CUZARR_LZ4_MOST_GAP;
        while (at > least && begin + at > offset && window[begin + at - 1] == window[begin + at - 1 - offset]) --at;
        if (at < from) list[index] = at << 16 | ((match & 0xffff) + from - at);
    }
    block_barrier();
}

/// Gives matches the offset of the row of equal offsets before them, if they repeat as well with it, together with the
/// few literals behind a segment's end. So a run, or a repeated row, becomes one match. The first matches of a piece
/// try the offset of the next row, which may be that of the piece before. `words` is the window, in which the piece
/// begins at `begin`; the new offsets go to `offsets`.
///
/// `list` changes while other threads read it. They only see where a match ends, which stays, and whether few literals
/// are before it.
CUZARR_DEVICE void lz4_unite(const Lz4Matches& matches, const u32* words, u32 begin, u32* list, u16* offsets) {
    for (u32 index = thread_index(); index < matches.count; index += thread_count()) {
        u32 first = match_first(matches, index), offset = matches.offsets[index];
        u32 from = match_begin(matches, index), end = match_end(matches, index), other = 0, place = from;
        if (first) {
            u32 before = match_end(matches, first - 1), gap = match_begin(matches, first) - before;
            bool is_near = gap <= (before % CUZARR_LZ4_SEGMENT_BYTES ? 0 : CUZARR_LZ4_MOST_GAP);
            if (is_near) other = matches.offsets[first - 1], place = index == first ? before : from;
        } else {
            u32 next = match_next(matches, index);
            bool is_near = next < matches.count && match_end(matches, next - 1) == match_begin(matches, next);
            if (is_near && matches.offsets[next] <= begin + from) other = matches.offsets[next];
        }
        u32 at = begin + place;
        bool is_same = other && lz4_word(words, at - other) == lz4_word(words, at);
        if (is_same && lz4_common(words, at - other, at, end - place) == end - place) {
            offset = other;
            if (place != from) list[index] = place << 16 | (end - place);
        }
        offsets[index] = (u16)offset;
    }
}

/// Gives whole rows of equal offsets the offset of the match before, if all of a row repeats as well with it: a match
/// that `lz4_unite` made may go on there. A thread takes a match; `offsets` are those of `matches`, and `votes` has a
/// word for each warp. All threads call.
CUZARR_DEVICE void lz4_unite_rows(const Lz4Matches& matches, const u32* words, u32 begin, u16* offsets, u32* votes) {
    u32 index = thread_index(), first = 0, other = 0;
    bool is_same = false;
    if (index < matches.count) first = match_first(matches, index);
    if (first && match_end(matches, first - 1) == match_begin(matches, first)) {
        u32 at = begin + match_begin(matches, index), length = match_end(matches, index) + begin - at;
        other = matches.offsets[first - 1];
        is_same = lz4_word(words, at - other) == lz4_word(words, at) && lz4_common(words, at - other, at, length) == length;
    }
    u32 vote = warp_ballot(CUZARR_ALL_LANES, is_same);
    if (index % CUZARR_WARP == 0) votes[index / CUZARR_WARP] = vote;
    block_barrier();
    for (u32 i = is_same ? first : index, next = is_same ? match_next(matches, index) : 0; i < next && is_same;) {
        u32 count = CUZARR_WARP - i % CUZARR_WARP < next - i ? CUZARR_WARP - i % CUZARR_WARP : next - i;
        u32 wanted = (count < CUZARR_WARP ? (1u << count) - 1 : ~0u) << i % CUZARR_WARP;
        is_same = (votes[i / CUZARR_WARP] & wanted) == wanted;
        i += count;
    }
    block_barrier();
    if (is_same) offsets[index] = (u16)other;
    block_barrier();
}

/// Writes the sequences of a piece, whose window is `bytes` and lies at `from`, to `tail`. All threads call.
CUZARR_DEVICE Lz4Piece lz4_write(const Lz4Matches& matches, const u8* bytes, const u8* from, u32 size, u8* tail, u32* sums) {
    u32 thread = thread_index(), lane = thread % CUZARR_WARP, written = 0, count = matches.count;
    Lz4Piece piece = {size, 0, size, CUZARR_LZ4_NO_SEQUENCE, 0, 0, 0, 0, 0, 0, 0, 0};
    for (u32 first = 0; first < matches.count; first += thread_count()) {
        u32 index = first + thread, begin = 0, length = 0, end = 0, offset = 0;
        bool is_new = index < count && match_first(matches, index) == index;
        if (is_new) {
            begin = match_begin(matches, index), offset = matches.offsets[index];
            length = match_end(matches, match_next(matches, index) - 1) - begin;
            if (index) end = match_end(matches, index - 1);
        }
        // `encode_assemble` writes the token and the literals before the first match of a piece, and the length of one that ends it.
        u32 literals = is_new && index ? begin - end : 0, more = length - CUZARR_LZ4_LEAST_MATCH, total;
        bool is_open = begin + length == size && length >= CUZARR_LZ4_LEAST_LAST;
        u32 more_bytes = is_open ? 0 : lz4_more_bytes(more);
        u32 own = is_new ? 2 + more_bytes + (index ? 1 + lz4_more_bytes(literals) + literals : 0) : 0;
        u8* to = tail + written + block_sum_before(own, sums, &total);
        written += total;
        if (is_new && index) {
            *to++ = (u8)(lz4_nibble(literals) << 4 | lz4_nibble(more));
            to += lz4_write_more(to, literals, 0, 1);
        }
        for (u32 many = warp_ballot(CUZARR_ALL_LANES, literals > CUZARR_LZ4_FEW_LITERALS); many; many &= many - 1) {
            u32 one = count_trailing_zeros(many);
            u8* place = (u8*)warp_shuffle(CUZARR_ALL_LANES, (u64)to, one);
            copy_far(
                from + warp_shuffle(CUZARR_ALL_LANES, end, one), place, warp_shuffle(CUZARR_ALL_LANES, literals, one), lane
            );
        }
        if (literals <= CUZARR_LZ4_FEW_LITERALS) {
            for (u32 i = 0; i < literals; ++i) to[i] = bytes[end + i];
        }
        if (is_new) {
            to += literals;
            to[0] = (u8)offset, to[1] = (u8)(offset >> 8);
            if (!is_open) lz4_write_more(to + 2, more, 0, 1);
            if (index == 0) piece.match = lz4_nibble(more), piece.lead = begin, piece.head = begin == 0 ? length : 0;
        }
    }
    piece.tail = written;
    if (count == 0) return piece;
    u32 last = match_first(matches, count - 1), end = match_end(matches, count - 1), length = end - match_begin(matches, last);
    piece.trail = size - end;
    piece.offsets = matches.offsets[0] | (u32)matches.offsets[count - 1] << 16;
    piece.last = piece.trail == 0 && length >= CUZARR_LZ4_LEAST_LAST ? length : 0;
    piece.is_one = last == 0;
    return piece;
}

/// Encodes bytes [begin, begin + size) of a block of `block_bytes` to `tail`. `memory` are the CUZARR_LZ4_SHARED_BYTES, `sums` a
/// word for each warp, CUZARR_LZ4_FOUND at least, `starts` a bit for each match, `candidates` a word for each byte of a piece. All threads
/// call; the first one's result counts.
CUZARR_DEVICE Lz4Piece lz4_encode_piece(
    const u8* block, u32 block_bytes, u32 begin, u32 history, u32 size, u32* memory, u32* sums, u32* starts, u32* candidates, u8* tail
) {
    u32 thread = thread_index(), threads = thread_count(), *window = memory + CUZARR_LZ4_BEFORE_WORDS, *table = window + CUZARR_LZ4_WINDOW_WORDS;
    const u8* from = block + begin - history;
    lz4_bring(window, from, history + size);
    for (u32 i = thread; i < CUZARR_LZ4_TABLE / 4; i += threads) ((uint4*)table)[i] = uint4{0, 0, 0, 0};
    block_barrier();
    lz4_candidates(window, table, lz4_bounds(block_bytes, begin, history, size), sums, candidates);
    // These take the table's place: matches by segment, then their offsets; matches one behind the other.
    u32 *by_segment = table, *list = table + CUZARR_LZ4_MATCHES, total;
    u32 segments = (size + CUZARR_LZ4_SEGMENT_BYTES - 1) / CUZARR_LZ4_SEGMENT_BYTES, own = 0;
    if (thread < segments) own = lz4_choose(candidates, thread * CUZARR_LZ4_SEGMENT_BYTES, size, by_segment + thread, segments);
    u32 before = block_sum_before(own, sums, &total);
    for (u32 i = 0; i < own; ++i) list[before + i] = by_segment[thread + i * segments];
    block_barrier();
    u16 *offsets = (u16*)by_segment, *united = offsets + CUZARR_LZ4_MATCHES;
    for (u32 i = thread; i < total; i += threads) offsets[i] = (u16)candidates[list[i] >> 16];
    block_barrier();
    Lz4Matches matches = {list, offsets, starts, total};
    lz4_begin_earlier((const u8*)window, history, offsets, list, total);
    lz4_mark(matches);
    lz4_unite(matches, window, history, list, united);
    block_barrier();
    matches.offsets = united;
    lz4_mark(matches);
    if (total <= threads) {
        lz4_unite_rows(matches, window, history, united, sums);
        lz4_mark(matches);
    }
    Lz4Piece piece = lz4_write(matches, (const u8*)window + history, block + begin, size, tail, sums);
    block_barrier();
    return piece;
}
