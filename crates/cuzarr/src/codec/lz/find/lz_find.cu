// The match finder of encoders: what a block of 32 KiB repeats, by one block of threads.
//
//     bring the 16 KiB before it to shared memory, and its positions to the table
//     for each half of the block: bring it to shared memory, in place of what is 32 KiB before
//         for each step of 256 positions, one a thread:
//             hash of 4 bytes -> the first positions that had it in this step, and in the last two steps that had it
//             the longest match of those three, or the nearest of equally long ones, is the position's candidate;
//             inside of a run, which repeats elements of up to 8 bytes, that run
//             the step's positions go into the table; not those inside of a run, whose beginning is the better place
//         where a match reaches the end of a step: as many whole steps as it goes on for are covered by it, and not looked up
//     for each segment of 256 positions that no match covers, one a thread:
//         from its end to its beginning: the cheapest way to the end, by a literal or by the candidate, or that cut by
//         up to 3 bytes
//     follow the cheapest ways; join matches that go on where one of the same offset ended
//
// Tables change by atomic minima and maxima between barriers, so the same bytes give the same sequences on every device.
// Every block looks into the input before it, so a chunk's blocks need not wait for each other. The costs are those of zstd's
// codes for arrays of numbers; a table that remembers two positions, and choosing by cost, find in 32 KiB what libzstd's
// level 3 finds in 2 MiB (docs/notes/encoders.md).
//
// Prior art: the tables of liblz4 and libzstd's fast strategies, and the optimal parsing of LZMA and libzstd's slow ones.
#include "codec/lz/find/lz_find.cuh"

/// Threads of a block, and positions of a step.
#define CUZARR_FIND_THREADS 256u
/// Bytes that are in shared memory at a time; a half of them comes at once.
#define CUZARR_FIND_WINDOW_BYTES 32768u
#define CUZARR_FIND_TILE_BYTES (CUZARR_FIND_WINDOW_BYTES / 2)
#define CUZARR_FIND_TABLE_BITS 14u
#define CUZARR_FIND_NEAR_BITS 9u
/// Candidates are no longer.
#define CUZARR_FIND_MOST_MATCH 128u
/// Bytes that a lane compares alone, where not so many of a warp go on that each does better alone.
#define CUZARR_FIND_ALONE 24u
#define CUZARR_FIND_FEW 6u
/// Bytes in whose runs only the first positions are remembered: of elements of up to so many bytes.
#define CUZARR_FIND_RUN 8u
#define CUZARR_FIND_SEGMENT_BYTES 256u
#define CUZARR_FIND_SEGMENTS (CUZARR_FIND_BLOCK_BYTES / CUZARR_FIND_SEGMENT_BYTES)
/// Steps that are compared at once to tell how far a match goes on.
#define CUZARR_FIND_STEPS_AHEAD 32u
/// Shared memory of a block of threads: the window, the tables; later the costs and choices of all segments. 99 KiB are what
/// all GPUs since compute capability 8.6 have.
#define CUZARR_FIND_SHARED_BYTES 100352u

#define CUZARR_FIND_WINDOW_WORDS (CUZARR_FIND_WINDOW_BYTES / 4)
/// Words that are read behind a position, and so behind the end of what was brought.
#define CUZARR_FIND_WORDS_BEHIND 3u
static_assert(
    4 * (CUZARR_FIND_WINDOW_WORDS + (1u << CUZARR_FIND_TABLE_BITS) + (1u << CUZARR_FIND_NEAR_BITS)) == CUZARR_FIND_SHARED_BYTES,
    "the window and the tables");
static_assert((3 * CUZARR_FIND_SEGMENT_BYTES + 2) * CUZARR_FIND_SEGMENTS <= CUZARR_FIND_SHARED_BYTES, "costs and choices");
static_assert(CUZARR_FIND_SEGMENT_BYTES == CUZARR_FIND_THREADS && 2 * CUZARR_FIND_MOST_MATCH == CUZARR_FIND_THREADS, "a step is a segment");

/// Costs in eighths of a bit.
#define CUZARR_FIND_LITERAL_COST 56u
#define CUZARR_FIND_MATCH_COST 56u
#define CUZARR_FIND_LONG_MATCH 35u
#define CUZARR_FIND_LONG_MATCH_COST 24u
/// How much of a match may be given up.
#define CUZARR_FIND_CUT 3u

/// A word of the window, which goes round.
CUZARR_DEVICE u32 window_word(const u32* words, u32 index) { return words[index % CUZARR_FIND_WINDOW_WORDS]; }

/// 4 bytes from any place.
CUZARR_DEVICE u32 find_word(const u32* words, u32 at) {
    return funnel_shift_right(window_word(words, at / 4), window_word(words, at / 4 + 1), at % 4 * 8);
}

CUZARR_DEVICE u32 find_hash(u32 word) { return word * 2654435761u >> (32 - CUZARR_FIND_TABLE_BITS); }

/// How many of the 8 bytes from `at` on are those of `low` and `high`.
CUZARR_DEVICE u32 find_same(const u32* words, u32 at, u32 low, u32 high) {
    u32 first = window_word(words, at / 4), second = window_word(words, at / 4 + 1), third = window_word(words, at / 4 + 2);
    u32 shift = at % 4 * 8;
    u32 differ = funnel_shift_right(first, second, shift) ^ low, differ_high = funnel_shift_right(second, third, shift) ^ high;
    return differ ? count_trailing_zeros(differ) / 8 : differ_high ? 4 + count_trailing_zeros(differ_high) / 8 : 8;
}

/// How many bytes from `a` and `b` on are the same, up to `most`, the first `done` of which are known to be; multiples of 8.
CUZARR_DEVICE u32 find_common(const u32* words, u32 a, u32 b, u32 done, u32 most) {
    u32 shift_a = a % 4 * 8, shift_b = b % 4 * 8;
    u32 word_a = (a + done) / 4, word_b = (b + done) / 4, low_a = window_word(words, word_a), low_b = window_word(words, word_b);
    for (; done < most; done += 8, word_a += 2, word_b += 2) {
        u32 middle_a = window_word(words, word_a + 1), high_a = window_word(words, word_a + 2);
        u32 middle_b = window_word(words, word_b + 1), high_b = window_word(words, word_b + 2);
        u32 differ = funnel_shift_right(low_a, middle_a, shift_a) ^ funnel_shift_right(low_b, middle_b, shift_b);
        u32 differ_high = funnel_shift_right(middle_a, high_a, shift_a) ^ funnel_shift_right(middle_b, high_b, shift_b);
        if (differ) return done + count_trailing_zeros(differ) / 8;
        if (differ_high) return done + 4 + count_trailing_zeros(differ_high) / 8;
        low_a = high_a, low_b = high_b;
    }
    return most;
}

/// Like `find_common`, by a whole warp: its lanes compare 128 bytes at once behind the first `done`, for one lane that has
/// `is_long` after the other.
CUZARR_DEVICE u32 find_common_long(const u32* words, u32 a, u32 b, u32 done, bool is_long, u32 lane) {
    u32 own = done;
    for (u32 lanes = warp_ballot(CUZARR_ALL_LANES, is_long); lanes; lanes &= lanes - 1) {
        u32 one = count_trailing_zeros(lanes), place = done + 4 * lane;
        u32 from = warp_shuffle(CUZARR_ALL_LANES, a, one) + place, to = warp_shuffle(CUZARR_ALL_LANES, b, one) + place;
        u32 differ = find_word(words, from) ^ find_word(words, to), ends = warp_ballot(CUZARR_ALL_LANES, differ != 0);
        u32 first = count_trailing_zeros(ends), same = warp_shuffle(CUZARR_ALL_LANES, count_trailing_zeros(differ) / 8, first % CUZARR_WARP);
        if (lane == one) own = done + 4 * first + (ends ? same : 0);
    }
    return own;
}

/// How a match covers a segment: it begins there, or it is that of the segment before if one covers that, too.
#define CUZARR_FIND_COVERED 1u
#define CUZARR_FIND_GOES_ON 2u

/// A match's cost, without what its length adds.
CUZARR_DEVICE u32 find_cost(u32 offset) {
    u32 log = 31 - count_leading_zeros(offset);
    return CUZARR_FIND_MATCH_COST + 8 * log + ((offset - (1u << log)) * 8 >> log);
}

/// What positions are compared by: a later step's are larger, but of one step the first one is the largest. It is the better place
/// to repeat: where rows repeat, as a whole from the beginning of a run only. The same turns back.
CUZARR_DEVICE u32 find_rank(u32 at) { return at ^ (CUZARR_FIND_THREADS - 1); }

/// What shared memory holds while candidates are looked for.
struct FindSpace {
    u32* words;  // the window
    u32* table;  // of a hash: its first position in the last step that had it, and the one that was it before, in the lower half
    u32* near;   // of a hash's upper bits: the step, counted down, and its first position in it
    u32* halves; // the candidates where the two halves of a step begin
    u32* ahead;  // of each warp: the first of its steps that a match does not go on for
};

/// Brings positions [begin, end) to the window, 16 bytes a thread where the memory's place allows, and zeros behind. Position 0
/// is `from`; `begin` is a multiple of a half of the window.
CUZARR_DEVICE void find_bring(u32* words, const u8* from, u32 begin, u32 end) {
    u32 thread = thread_index(), threads = thread_count(), units = (u64)from % 16 ? begin / 16 : end / 16;
    for (u32 i = begin / 16 + thread; i < units; i += threads) {
        ((uint4*)words)[i % (CUZARR_FIND_WINDOW_WORDS / 4)] = *(const uint4*)(from + 16 * i);
    }
    for (u32 i = 4 * units + thread; i < (end + 3) / 4 + CUZARR_FIND_WORDS_BEHIND; i += threads) {
        u32 word = 0;
        for (u32 k = 0; k < 4; ++k) word |= (4 * i + k < end ? (u32)from[4 * i + k] : 0) << 8 * k;
        words[i % CUZARR_FIND_WINDOW_WORDS] = word;
    }
}

/// Whether the 4 bytes at a position are those a run's length before it.
CUZARR_DEVICE bool find_in_run(const u32* words, u32 at, u32 word) {
    return at >= CUZARR_FIND_RUN && find_word(words, at - CUZARR_FIND_RUN) == word;
}

/// Positions [begin, end) go into the table; of those with the same hash the first one of the last step that has some.
CUZARR_DEVICE void find_enter(const FindSpace& space, u32 begin, u32 end) {
    for (u32 word = begin / 4 + thread_index(); 4 * word < end; word += thread_count()) {
        u32 own = window_word(space.words, word), behind = window_word(space.words, word + 1);
        u32 before = window_word(space.words, word - CUZARR_FIND_RUN / 4), between = window_word(space.words, word - CUZARR_FIND_RUN / 4 + 1);
        for (u32 i = 0; i < 4; ++i) {
            u32 at = 4 * word + i, bytes = funnel_shift_right(own, behind, 8 * i);
            bool in_run = at >= CUZARR_FIND_RUN && funnel_shift_right(before, between, 8 * i) == bytes;
            if (at >= begin && at < end && !in_run) atomic_max(space.table + find_hash(bytes), find_rank(at) << 16);
        }
    }
}

/// A candidate, as it is handed on.
CUZARR_DEVICE u32 find_candidate(u32 offset, u32 length) { return length < CUZARR_FIND_LEAST_MATCH ? 0 : offset | length << 16; }

CUZARR_DEVICE u32 find_most(u32 at, u32 size) { return size - at < CUZARR_FIND_MOST_MATCH ? size - at : CUZARR_FIND_MOST_MATCH; }

/// The candidate of a position inside of a run, that run; 0 for others. All lanes of a warp call, with positions that follow
/// each other: a match goes on as long as the positions behind it are inside of the run as well.
CUZARR_DEVICE u32 find_run(const u32* words, u32 at, bool in_run, u32 size) {
    u32 runs = warp_ballot(CUZARR_ALL_LANES, in_run), lane = at % CUZARR_WARP;
    if (!runs) return 0;
    u32 inside = count_trailing_zeros(~(runs >> lane)), behind = 0;
    if (inside > CUZARR_WARP - lane) inside = CUZARR_WARP - lane;
    // The run that the warp's last position is in.
    for (u32 votes = runs >> (CUZARR_WARP - 1) ? ~0u : 0; votes == ~0u && behind < CUZARR_FIND_MOST_MATCH; behind += count_trailing_zeros(~votes)) {
        u32 place = at + CUZARR_WARP + behind;
        votes = warp_ballot(CUZARR_ALL_LANES, find_in_run(words, place, find_word(words, place)));
    }
    if (!in_run) return 0;
    u32 length = inside + (inside == CUZARR_WARP - lane ? behind : 0) + CUZARR_FIND_LEAST_MATCH - 1, most = find_most(at, size);
    return find_candidate(CUZARR_FIND_RUN, length < most ? length : most);
}

/// The candidate of another position, whose first 4 bytes are `word`, of three places; 0 where it is not `wanted`. All lanes of
/// a warp call. What is before `oldest` is no longer in the window.
CUZARR_DEVICE u32 find_longest(const u32* words, u32 at, u32 word, const u32* from, bool wanted, u32 oldest, u32 size) {
    u32 most = wanted ? find_most(at, size) : 0, high = find_word(words, at + 4), best = 0, offset = 0, same[3];
    for (u32 i = 0; i < 3; ++i) same[i] = find_same(words, from[i], word, high);
    for (u32 i = 0; i < 3; ++i) {
        u32 length = from[i] < at && from[i] >= oldest && best < most ? same[i] : 0;
        if (length == 8) length = find_common(words, from[i], at, 8, CUZARR_FIND_ALONE);
        bool is_long = length == CUZARR_FIND_ALONE && length < most;
        if (count_ones(warp_ballot(CUZARR_ALL_LANES, is_long)) <= CUZARR_FIND_FEW) {
            u32 longer = find_common_long(words, from[i], at, CUZARR_FIND_ALONE, is_long, at % CUZARR_WARP);
            length = is_long ? longer : length;
        } else if (is_long) {
            length = find_common(words, from[i], at, CUZARR_FIND_ALONE, CUZARR_FIND_MOST_MATCH);
        }
        length = length < most ? length : most;
        if (length > best) best = length, offset = at - from[i];
    }
    return find_candidate(offset, best);
}

/// For how many whole steps from `step` on, before `size`, bytes are those `offset` before them, as far as steps are compared at
/// once. All threads call.
CUZARR_DEVICE u32 find_steps_ahead(const FindSpace& space, u32 step, u32 offset, u32 size) {
    u32 lane = thread_index() % CUZARR_WARP, warp = thread_index() / CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    u32 left = (size - step) / thread_count(), steps = left < CUZARR_FIND_STEPS_AHEAD ? left : CUZARR_FIND_STEPS_AHEAD, own = warp;
    for (bool is_same = true; is_same && own < steps; own += is_same ? warps : 0) {
        u32 at = step + own * thread_count() + 4 * lane, differ = 0;
        for (u32 i = 0; i < thread_count(); i += 4 * CUZARR_WARP) {
            differ |= window_word(space.words, (at + i) / 4) ^ find_word(space.words, at + i - offset);
        }
        is_same = !warp_ballot(CUZARR_ALL_LANES, differ != 0);
    }
    if (lane == 0) space.ahead[warp] = own;
    block_barrier();
    for (u32 i = 0; i < warps; ++i) steps = space.ahead[i] < steps ? space.ahead[i] : steps;
    return steps;
}

/// Candidates of positions [begin, size): offset | length << 16 for each; of segments that one match covers, of their first one.
/// `going` is the offset of the match that reaches `begin`, or 0; gives that of the one that reaches `size`.
CUZARR_DEVICE u32 find_candidates(const FindSpace& space, u32 begin, u32 size, u32 going, u32* candidates, u8* covered) {
    // What was before has made place, and what is read behind the end.
    u32 round = size + 4 * (CUZARR_FIND_WORDS_BEHIND + 1), oldest = round < CUZARR_FIND_WINDOW_BYTES ? 0 : round - CUZARR_FIND_WINDOW_BYTES;
    for (u32 step = begin; step < size; step += thread_count()) {
        if (going) {
            u32 first = step;
            for (u32 steps = ~0u; steps && step < size; step += steps * thread_count()) {
                steps = step >= oldest + going ? find_steps_ahead(space, step, going, size) : 0;
                if (thread_index() < steps) {
                    u32 segment = step + thread_index() * CUZARR_FIND_SEGMENT_BYTES;
                    candidates[segment] = find_candidate(going, CUZARR_FIND_MOST_MATCH), covered[segment / CUZARR_FIND_SEGMENT_BYTES] = CUZARR_FIND_GOES_ON;
                }
                block_barrier();
            }
            // What was covered repeats its last `going` bytes.
            find_enter(space, step - first > going ? step - going : first, step);
            block_barrier();
            if (step >= size) break;
        }
        u32 at = step + thread_index(), word = find_word(space.words, at), hash = find_hash(word), entry = space.table[hash];
        u32* near = space.near + (hash >> (CUZARR_FIND_TABLE_BITS - CUZARR_FIND_NEAR_BITS));
        bool known = at + CUZARR_FIND_LEAST_MATCH <= size, in_run = known && find_in_run(space.words, at, word);
        if (known) atomic_min(near, (0xffffu - step / thread_count()) << 16 | at);
        block_barrier();
        bool wanted = known && !in_run;
        if (wanted) atomic_max(space.table + hash, find_rank(at) << 16 | entry >> 16);
        // An empty entry is some position of the first step, which is looked at like any other.
        const u32 from[3] = {*near & 0xffff, find_rank(entry >> 16), find_rank(entry & 0xffff)};
        u32 candidate = find_longest(space.words, at, word, from, wanted, oldest, size);
        candidate |= find_run(space.words, at, in_run, size);
        if (at < size) candidates[at] = candidate;
        if (thread_index() % CUZARR_FIND_MOST_MATCH == 0) space.halves[thread_index() / CUZARR_FIND_MOST_MATCH] = candidate;
        block_barrier();
        u32 half = space.halves[1];
        going = 0;
        if (half >> 16 == CUZARR_FIND_MOST_MATCH) {
            going = half & 0xffff;
            if (thread_index() == 0) covered[step / CUZARR_FIND_SEGMENT_BYTES] = space.halves[0] == half ? CUZARR_FIND_COVERED : 0;
        }
    }
    return going;
}

/// Choices above this are literals: how many, less this.
#define CUZARR_FIND_LITERALS CUZARR_FIND_MOST_MATCH
#define CUZARR_FIND_MOST_LITERALS (255 - CUZARR_FIND_LITERALS)

/// What is cheapest from position `i` of `count` on, by a candidate, or `best` by a literal: the cost << 8, and the match cut by.
CUZARR_DEVICE u32 find_cheapest(u32 candidate, u32 best, u32 left, const u16* costs) {
    u32 length = candidate >> 16;
    length = length < left ? length : left;
    if (length < CUZARR_FIND_LEAST_MATCH) return best;
    u32 cost = find_cost(candidate & 0xffff);
    for (u32 cut = 0; cut <= CUZARR_FIND_CUT; ++cut) {
        // What is cut too short is as long as it may be, and has been looked at.
        u32 least = length < CUZARR_FIND_LEAST_MATCH + cut ? CUZARR_FIND_LEAST_MATCH : length - cut;
        u32 sum = costs[least * CUZARR_FIND_SEGMENTS] + cost + (least >= CUZARR_FIND_LONG_MATCH ? CUZARR_FIND_LONG_MATCH_COST : 0);
        u32 choice = sum << 8 | (CUZARR_FIND_MOST_MATCH - least);
        best = choice < best ? choice : best;
    }
    return best;
}

/// Chooses the cheapest way through a segment of `count` positions. Segments' costs and choices take turns in memory.
CUZARR_DEVICE void find_choose(const u32* candidates, u32 count, u16* costs, u8* choices) {
    const u32 stride = CUZARR_FIND_SEGMENTS;
    u32 cost = 0, literals = 0, groups = (count + 3) / 4;
    const uint4* from = (const uint4*)candidates;
    uint4 next = groups ? from[groups - 1] : uint4{0, 0, 0, 0};
    // Positions up to 3 behind the last one are literals, which all ways go through.
    costs[4 * groups * stride] = 0;
    for (u32 group = groups; group-- > 0;) {
        const u32 four[4] = {next.x, next.y, next.z, next.w};
        if (group) next = from[group - 1];
        for (u32 k = 4; k-- > 0;) {
            u32 i = 4 * group + k, left = i < count ? count - i : 0;
            const u32 literal = (cost + CUZARR_FIND_LITERAL_COST) << 8 | 255;
            u32 best = find_cheapest(four[k], literal, left, costs + i * stride);
            bool is_literal = best == literal;
            literals = is_literal ? literals < CUZARR_FIND_MOST_LITERALS ? literals + 1 : 1 : 0;
            cost = best >> 8;
            costs[i * stride] = (u16)cost;
            choices[i * stride] = (u8)(is_literal ? CUZARR_FIND_LITERALS + literals : CUZARR_FIND_MOST_MATCH - (best & 255));
        }
    }
}

CUZARR_DEVICE u32 find_segment_bytes(u32 first, u32 size) {
    return size - first < CUZARR_FIND_SEGMENT_BYTES ? size - first : CUZARR_FIND_SEGMENT_BYTES;
}

/// How many segments behind one go on with its match: the ones behind a bit.
CUZARR_DEVICE u32 find_ones_behind(const u32* bits, u32 bit) {
    u32 at = bit + 1;
    while (at < CUZARR_FIND_SEGMENTS) {
        u32 ones = count_trailing_zeros(~(bits[at / CUZARR_WARP] >> at % CUZARR_WARP));
        at += ones;
        if (ones == 0 || at % CUZARR_WARP) break;
    }
    return at - bit - 1;
}

/// The matches of a segment's cheapest way: `each(position, length)`; gives how many.
template <class Each>
CUZARR_DEVICE u32 find_follow(const u8* choices, u32 count, Each each) {
    u32 matches = 0;
    for (u32 i = 0; i < count;) {
        u32 choice = choices[i * CUZARR_FIND_SEGMENTS];
        if (choice > CUZARR_FIND_LITERALS) {
            i += choice - CUZARR_FIND_LITERALS;
        } else {
            each(i, choice, matches++);
            i += choice;
        }
    }
    return matches;
}

/// Joins matches, and writes the block's sequences. `matches`: begin << 16 | length, without gaps in the array.
CUZARR_DEVICE LzFoundBlock find_join(const u32* matches, const u16* offsets, u32 count, u32 size, u32* sums, LzFound* found) {
    u32 made = 0, covered = 0;
    for (u32 first = 0; first < count; first += thread_count()) {
        u32 index = first + thread_index();
        u32 match = index < count ? matches[index] : 0, begin = match >> 16, length = match & 0xffff, end = 0, offset = 0;
        bool is_new = index < count;
        if (is_new) {
            offset = offsets[index];
            if (index) {
                u32 before = matches[index - 1];
                end = (before >> 16) + (before & 0xffff);
                is_new = end != begin || offsets[index - 1] != offset;
            }
        }
        u32 total, before = block_sum_before((is_new ? 1u << 16 : 0) | length, sums, &total);
        if (is_new) {
            u32 joined = length;
            for (u32 i = index + 1; i < count && matches[i] >> 16 == begin + joined && offsets[i] == offset; ++i) {
                joined += matches[i] & 0xffff;
            }
            u32 literals_before = end - (covered + (before & 0xffff));
            found[made + (before >> 16)] = {(u16)(begin - end), (u16)joined, (u16)offset, (u16)literals_before};
        }
        made += total >> 16, covered += total & 0xffff;
    }
    return {made, size - covered};
}

/// `candidates` has room for one block of each block of threads.
CUZARR_KERNEL_SIZED(
    CUZARR_FIND_THREADS, 2, lz_find, const u8* src, LzBlocks blocks, const u32* wanted, u32* candidates, LzFound* found, LzFoundBlock* counts
) {
    CUZARR_SHARED_ASKED(u32, memory, CUZARR_FIND_SHARED_BYTES / 4);
    CUZARR_SHARED(u32, sums, CUZARR_FIND_THREADS / CUZARR_WARP);
    CUZARR_SHARED(u32, halves, 2);
    CUZARR_SHARED(u8, covered, CUZARR_FIND_SEGMENTS);
    CUZARR_SHARED(u32, joined, CUZARR_FIND_SEGMENTS / CUZARR_WARP);
    // Of segments that no match covers, one behind the other: which they are.
    CUZARR_SHARED(u8, open, CUZARR_FIND_SEGMENTS);
    FindSpace space = {memory, memory + CUZARR_FIND_WINDOW_WORDS, memory + CUZARR_FIND_WINDOW_WORDS + (1u << CUZARR_FIND_TABLE_BITS), halves, sums};
    u16* costs = (u16*)memory;
    u8* choices = (u8*)(costs + (CUZARR_FIND_SEGMENT_BYTES + 1) * CUZARR_FIND_SEGMENTS);
    // In place of the costs, when the choices are made.
    u32* matches = memory;
    u16* offsets = (u16*)(memory + CUZARR_FIND_BLOCK_BYTES / CUZARR_FIND_LEAST_MATCH);
    candidates += (u64)block_index() * CUZARR_FIND_BLOCK_BYTES;
    u32 thread = thread_index();
    for (u32 first = 0; first < block_count_of(blocks); first += block_count()) {
        // Turned by one each time: where blocks of a chunk differ, as shuffled bytes do, everyone gets some of each kind.
        u32 block = first + (block_index() + first / block_count()) % block_count();
        if (block >= block_count_of(blocks)) continue;
        u32 chunk = block / blocks.chunk_blocks;
        if (!wanted[chunk]) continue;
        u32 begin = block_begin(blocks, block), size = block_bytes(blocks, block);
        u32 before = begin < CUZARR_FIND_TILE_BYTES ? begin : CUZARR_FIND_TILE_BYTES;
        const u8* from = src + chunk * blocks.stride + begin - before;
        for (u32 i = thread; i < (1u << CUZARR_FIND_TABLE_BITS) / 4; i += thread_count()) ((uint4*)space.table)[i] = uint4{0, 0, 0, 0};
        for (u32 i = thread; i < 1u << CUZARR_FIND_NEAR_BITS; i += thread_count()) space.near[i] = ~0u;
        find_bring(space.words, from, 0, before);
        if (thread < CUZARR_FIND_SEGMENTS) covered[thread] = 0;
        u32 going = 0;
        for (u32 tile = 0; tile < size; tile += CUZARR_FIND_TILE_BYTES) {
            u32 own = before + tile, end = size - tile < CUZARR_FIND_TILE_BYTES ? before + size : own + CUZARR_FIND_TILE_BYTES;
            block_barrier();
            find_bring(space.words, from, own, end);
            block_barrier();
            if (tile == 0) {
                find_enter(space, 0, before);
                block_barrier();
            }
            going = find_candidates(space, own, end, going, candidates - before, covered - before / CUZARR_FIND_SEGMENT_BYTES);
        }
        block_barrier();
        u32 segment = thread * CUZARR_FIND_SEGMENT_BYTES, opened, total;
        bool exists = thread < CUZARR_FIND_SEGMENTS && segment < size, is_open = exists && !covered[thread];
        // Segments whose match is that of the one before.
        u32 goes_on = warp_ballot(CUZARR_ALL_LANES, thread < CUZARR_FIND_SEGMENTS && thread && covered[thread] == CUZARR_FIND_GOES_ON && covered[thread - 1]);
        if (thread % CUZARR_WARP == 0 && thread < CUZARR_FIND_SEGMENTS) joined[thread / CUZARR_WARP] = goes_on;
        u32 place = block_sum_before(is_open, sums, &opened);
        if (is_open) open[place] = (u8)thread;
        block_barrier();
        if (thread < opened) {
            u32 first = open[thread] * CUZARR_FIND_SEGMENT_BYTES;
            find_choose(candidates + first, find_segment_bytes(first, size), costs + thread, choices + thread);
        }
        block_barrier();
        u32 count = is_open ? find_segment_bytes(segment, size) : 0;
        bool begins = exists && !is_open && !(goes_on >> thread % CUZARR_WARP & 1);
        u32 own = begins ? 1 : find_follow(choices + place, count, [](u32, u32, u32) {});
        // Its barriers let go of the costs.
        u32 index = block_sum_before(own, sums, &total);
        if (begins) matches[index] = segment << 16 | (1 + find_ones_behind(joined, thread)) * CUZARR_FIND_SEGMENT_BYTES;
        find_follow(choices + place, count, [&](u32 i, u32 length, u32 number) {
            matches[index + number] = (segment + i) << 16 | length;
        });
        block_barrier();
        for (u32 i = thread; i < total; i += thread_count()) offsets[i] = (u16)candidates[matches[i] >> 16];
        block_barrier();
        LzFoundBlock made = find_join(matches, offsets, total, size, sums, found + (u64)block * blocks.most_sequences);
        if (thread == 0) counts[block] = made;
        block_barrier();
    }
}
