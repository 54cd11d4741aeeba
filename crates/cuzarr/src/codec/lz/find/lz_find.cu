// The match finder of encoders: one block of threads finds what a block of 32 KiB repeats.
//
//     bring the 16 KiB before it to shared memory, and its positions to the table
//     for each half of the block: bring it to shared memory, in place of what is 32 KiB before
//         for each step of 256 positions, one a thread:
//             hash of 4 bytes -> the first positions that had it in this step, and in the last two steps that had it
//             the longest match of those three, or the nearest of equally long ones, is the position's candidate;
//             inside of a run, which repeats 4 bytes or elements of 8, that run
//             a candidate of the next position that begins here already, or of the one before, where it is better
//             the step's positions go into the table; not those inside of a run, whose beginning is the better place
//         where a match reaches the end of a step: as many whole steps as it goes on for are covered by it, and not looked up
//     for each segment of 256 positions that no match covers, by two threads and more, a part each:
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
/// Bytes that are in shared memory at a time. They are loaded by halves.
#define CUZARR_FIND_WINDOW_BYTES 32768u
#define CUZARR_FIND_TILE_BYTES (CUZARR_FIND_WINDOW_BYTES / 2)
#define CUZARR_FIND_TABLE_BITS 14u
#define CUZARR_FIND_NEAR_BITS 9u
/// Maximum length of a candidate.
#define CUZARR_FIND_MOST_MATCH 128u
/// Bytes that a lane compares alone. Behind them, the whole warp compares for one lane after the other if at most
/// CUZARR_FIND_FEW lanes go on; otherwise each lane goes on alone.
#define CUZARR_FIND_ALONE 24u
#define CUZARR_FIND_FEW 6u
/// Bytes of the elements whose repetition is a run; elements of half as many bytes count, too. Of a run, only the first
/// positions are remembered.
#define CUZARR_FIND_RUN 8u
#define CUZARR_FIND_SEGMENT_BYTES 256u
#define CUZARR_FIND_SEGMENTS (CUZARR_FIND_BLOCK_BYTES / CUZARR_FIND_SEGMENT_BYTES)
/// Threads that share a segment if many segments are open. The next two are for few, and for very few.
#define CUZARR_FIND_PARTS 2u
#define CUZARR_FIND_MORE_PARTS 4u
#define CUZARR_FIND_MOST_PARTS 8u
/// Steps that are compared at once to tell how far a match goes on.
#define CUZARR_FIND_STEPS_AHEAD 32u
/// Shared memory of a block of threads: the window and the tables; later the costs and choices of all segments. All
/// GPUs since compute capability 8.6 have 99 KiB.
#define CUZARR_FIND_SHARED_BYTES 100368u

#define CUZARR_FIND_WINDOW_WORDS (CUZARR_FIND_WINDOW_BYTES / 4)
/// Number of words that are read behind a position, and so behind the end of the loaded bytes.
#define CUZARR_FIND_WORDS_BEHIND 3u
/// Number of the window's first words that are repeated behind its last ones.
#define CUZARR_FIND_AGAIN_WORDS 4u
#define CUZARR_FIND_TABLE_AT (CUZARR_FIND_WINDOW_WORDS + CUZARR_FIND_AGAIN_WORDS)
static_assert(
    4 * (CUZARR_FIND_TABLE_AT + (1u << CUZARR_FIND_TABLE_BITS) + (1u << CUZARR_FIND_NEAR_BITS)) == CUZARR_FIND_SHARED_BYTES,
    "the window and the tables");
static_assert((3 * CUZARR_FIND_SEGMENT_BYTES / CUZARR_FIND_PARTS + 2) * CUZARR_FIND_THREADS <= CUZARR_FIND_SHARED_BYTES, "costs and choices");
static_assert(CUZARR_FIND_SEGMENTS * CUZARR_FIND_PARTS <= CUZARR_FIND_THREADS, "a thread for each part");
static_assert(CUZARR_FIND_SEGMENT_BYTES == CUZARR_FIND_THREADS && 2 * CUZARR_FIND_MOST_MATCH == CUZARR_FIND_THREADS, "a step is a segment");

/// Costs in eighths of a bit.
#define CUZARR_FIND_LITERAL_COST 56u
#define CUZARR_FIND_MATCH_COST 56u
#define CUZARR_FIND_LONG_MATCH 35u
#define CUZARR_FIND_LONG_MATCH_COST 24u
/// Maximum number of bytes by which a match may be cut.
#define CUZARR_FIND_CUT 3u

/// Returns a pointer to word `index` of the window, which is circular. A few words may be read from there.
CUZARR_DEVICE const u32* window_words(const u32* words, u32 index) { return words + index % CUZARR_FIND_WINDOW_WORDS; }

/// Returns the 4 bytes at any position.
CUZARR_DEVICE u32 find_word(const u32* words, u32 at) {
    const u32* from = window_words(words, at / 4);
    return funnel_shift_right(from[0], from[1], at * 8);
}

CUZARR_DEVICE u32 find_hash(u32 word) { return word * 2654435761u >> (32 - CUZARR_FIND_TABLE_BITS); }

/// Number of the 8 bytes from `at` on that equal those of `low` and `high`, up to the first difference.
CUZARR_DEVICE u32 find_same(const u32* words, u32 at, u32 low, u32 high) {
    const u32* from = window_words(words, at / 4);
    u32 first = from[0], second = from[1], third = from[2];
    u32 differ = funnel_shift_right(first, second, at * 8) ^ low, differ_high = funnel_shift_right(second, third, at * 8) ^ high;
    return differ ? count_trailing_zeros(differ) / 8 : differ_high ? 4 + count_trailing_zeros(differ_high) / 8 : 8;
}

/// Number of equal bytes from `a` and `b` on, up to `most`. The first `done` are known to be equal. `done` and `most`
/// are multiples of 8.
CUZARR_DEVICE u32 find_common(const u32* words, u32 a, u32 b, u32 done, u32 most) {
    for (; done < most; done += 8) {
        const u32 *from_a = window_words(words, (a + done) / 4), *from_b = window_words(words, (b + done) / 4);
        u32 differ = funnel_shift_right(from_a[0], from_a[1], a * 8) ^ funnel_shift_right(from_b[0], from_b[1], b * 8);
        u32 differ_high = funnel_shift_right(from_a[1], from_a[2], a * 8) ^ funnel_shift_right(from_b[1], from_b[2], b * 8);
        if (differ) return done + count_trailing_zeros(differ) / 8;
        if (differ_high) return done + 4 + count_trailing_zeros(differ_high) / 8;
    }
    return most;
}

/// Like `find_common`, but a whole warp compares 128 bytes behind the first `done` at once. It does so for each lane
/// with `is_long`, one after the other.
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

/// How a match covers a segment: it begins there, or it continues the match of the segment before, if one covers that.
#define CUZARR_FIND_COVERED 1u
#define CUZARR_FIND_GOES_ON 2u

/// The cost of a match, without the cost of its length.
CUZARR_DEVICE u32 find_cost(u32 offset) {
    u32 log = 31 - count_leading_zeros(offset);
    return CUZARR_FIND_MATCH_COST + 8 * log + ((offset - (1u << log)) * 8 >> log);
}

/// The rank by which positions are compared. Later steps have larger ranks; within a step, the first position has the
/// largest. It is the better place to repeat, because repeated rows are found as a whole only from the beginning of a
/// run. The function is its own inverse.
CUZARR_DEVICE u32 find_rank(u32 at) { return at ^ (CUZARR_FIND_THREADS - 1); }

/// The shared memory while candidates are searched.
struct FindSpace {
    u32* words;  // the window
    u32* table;  // of a hash: its first position in the last step that had it, and the one that was it before, in the lower half
    u32* near;   // of a hash's upper bits: the step, counted down, and its first position in it
    u32* halves; // the candidates where the two halves of a step begin
    u32* ahead;  // of each warp: the first of its steps that a match does not go on for
};

/// Loads positions [begin, end) to the window, 16 bytes for each thread if the memory is aligned, and zeros behind
/// them. Position 0 is at `from`; `begin` is a multiple of half the window.
CUZARR_DEVICE void find_bring(u32* words, const u8* from, u32 begin, u32 end) {
    u32 thread = thread_index(), threads = thread_count(), units = (u64)from % 16 ? begin / 16 : end / 16;
    for (u32 i = begin / 16 + thread; i < units; i += threads) {
        const uint4 unit = *(const uint4*)(from + 16 * i);
        u32 place = i % (CUZARR_FIND_WINDOW_WORDS / 4);
        ((uint4*)words)[place] = unit;
        if (place == 0) ((uint4*)words)[CUZARR_FIND_WINDOW_WORDS / 4] = unit;
    }
    for (u32 i = 4 * units + thread; i < (end + 3) / 4 + CUZARR_FIND_WORDS_BEHIND; i += threads) {
        u32 word = 0;
        for (u32 k = 0; k < 4; ++k) word |= (4 * i + k < end ? (u32)from[4 * i + k] : 0) << 8 * k;
        u32 place = i % CUZARR_FIND_WINDOW_WORDS;
        words[place] = word;
        if (place < CUZARR_FIND_AGAIN_WORDS) words[CUZARR_FIND_WINDOW_WORDS + place] = word;
    }
}

/// The 8 bytes at a position, and whether the first 4 of them equal the 4 bytes before, and those CUZARR_FIND_RUN bytes
/// before.
struct FindBytes {
    u32 low, high;
    bool is_four, is_run;
};

CUZARR_DEVICE FindBytes find_bytes(const u32* words, u32 at) {
    const u32* from = window_words(words, at / 4 - CUZARR_FIND_RUN / 4);
    u32 low = funnel_shift_right(from[2], from[3], at * 8), high = funnel_shift_right(from[3], from[4], at * 8);
    bool is_run = at >= CUZARR_FIND_RUN && funnel_shift_right(from[0], from[1], at * 8) == low;
    return {low, high, at >= CUZARR_FIND_RUN / 2 && funnel_shift_right(from[1], from[2], at * 8) == low, is_run};
}

/// Enters positions [begin, end) into the table. Of positions with one hash, the first one of the last step is kept.
CUZARR_DEVICE void find_enter(const FindSpace& space, u32 begin, u32 end) {
    for (u32 word = begin / 4 + thread_index(); 4 * word < end; word += thread_count()) {
        for (u32 at = 4 * word; at < 4 * word + 4; ++at) {
            const FindBytes bytes = find_bytes(space.words, at);
            bool is_one = at >= begin && at < end && !bytes.is_four && !bytes.is_run;
            if (is_one) atomic_max(space.table + find_hash(bytes.low), find_rank(at) << 16);
        }
    }
}

/// A candidate in the form that is stored; 0 if it is too short.
CUZARR_DEVICE u32 find_candidate(u32 offset, u32 length) { return length < CUZARR_FIND_LEAST_MATCH ? 0 : offset | length << 16; }

/// The key by which candidates are compared. A longer candidate is larger; of equally long ones, the nearer one.
CUZARR_DEVICE u32 find_key(u32 offset, u32 length) { return length << 16 | (offset ^ 0xffff); }
#define CUZARR_FIND_KEY_LENGTH (1u << 16)

CUZARR_DEVICE u32 find_most(u32 at, u32 size) { return size - at < CUZARR_FIND_MOST_MATCH ? size - at : CUZARR_FIND_MOST_MATCH; }

/// The shortest offset at which a run repeats, if the run repeats the 4 bytes `word`.
CUZARR_DEVICE u32 find_period(u32 word) {
    u32 half = word >> 16;
    if (half != (word & 0xffff)) return CUZARR_FIND_RUN / 2;
    return half >> 8 != (half & 0xff) ? CUZARR_FIND_RUN / 4 : 1;
}

/// Returns the candidate of a position inside a run, which is that run, as a key; 0 for other positions. All lanes of a
/// warp call, with successive positions: a match goes on as long as the positions behind it are inside the run, too.
CUZARR_DEVICE u32 find_run(const u32* words, u32 at, const FindBytes& bytes, bool known, u32 size) {
    u32 fours = warp_ballot(CUZARR_ALL_LANES, known && bytes.is_four), runs = warp_ballot(CUZARR_ALL_LANES, known && bytes.is_run);
    if (!(fours | runs)) return 0;
    u32 lane = at % CUZARR_WARP, behind = 0;
    // Looks for the end of the run that the warp's last position is in.
    bool is_four = fours >> (CUZARR_WARP - 1);
    for (u32 votes = (fours | runs) >> (CUZARR_WARP - 1) ? ~0u : 0; votes == ~0u && behind < CUZARR_FIND_MOST_MATCH; behind += count_trailing_zeros(~votes)) {
        const FindBytes next = find_bytes(words, at + CUZARR_WARP + behind);
        votes = warp_ballot(CUZARR_ALL_LANES, is_four ? next.is_four : next.is_run);
    }
    bool by_four = fours >> lane & 1;
    u32 own = (by_four ? fours : runs) >> lane, inside = count_trailing_zeros(~own);
    if (!(own & 1)) return 0;
    inside = inside < CUZARR_WARP - lane ? inside : CUZARR_WARP - lane + behind;
    u32 length = inside + CUZARR_FIND_LEAST_MATCH - 1, most = find_most(at, size);
    return find_key(by_four ? find_period(bytes.low) : CUZARR_FIND_RUN, length < most ? length : most);
}

/// Returns the longest match of a position outside runs with three places, as a key; 0 if it is not `wanted`. The
/// position begins with `bytes`. Bytes before `oldest` are no longer in the window. All lanes of a warp call.
CUZARR_DEVICE u32 find_longest(const u32* words, u32 at, const FindBytes& bytes, const u32* from, bool wanted, u32 oldest, u32 size) {
    u32 most = wanted ? find_most(at, size) : 0, best = 0, same[3];
    for (u32 i = 0; i < 3; ++i) same[i] = find_same(words, from[i], bytes.low, bytes.high);
    for (u32 i = 0; i < 3; ++i) {
        u32 length = from[i] < at && from[i] >= oldest && best >> 16 < most ? same[i] : 0;
        if (length == 8) length = find_common(words, from[i], at, 8, CUZARR_FIND_ALONE);
        bool is_long = length == CUZARR_FIND_ALONE && length < most;
        if (count_ones(warp_ballot(CUZARR_ALL_LANES, is_long)) <= CUZARR_FIND_FEW) {
            u32 longer = find_common_long(words, from[i], at, CUZARR_FIND_ALONE, is_long, at % CUZARR_WARP);
            length = is_long ? longer : length;
        } else if (is_long) {
            length = find_common(words, from[i], at, CUZARR_FIND_ALONE, CUZARR_FIND_MOST_MATCH);
        }
        length = length < most ? length : most;
        u32 key = length ? find_key(at - from[i], length) : 0;
        best = key > best ? key : best;
    }
    return best;
}

/// Returns the best of a position's own candidate and its neighbours', as keys. The match of the next position may
/// begin here already. The match of the position before goes on here, even if the table has forgotten it. All lanes of
/// a warp call.
CUZARR_DEVICE u32 find_beside(const u32* words, u32 at, u32 word, u32 own, bool wanted, u32 oldest) {
    u32 lane = at % CUZARR_WARP, behind = warp_shuffle_down(CUZARR_ALL_LANES, own, 1), from = at - (~behind & 0xffff);
    bool begins = wanted && lane + 1 < CUZARR_WARP && (i32)(from - oldest) >= 0 &&
                  ((const u8*)words)[from % CUZARR_FIND_WINDOW_BYTES] == (word & 255);
    behind += behind < CUZARR_FIND_MOST_MATCH * CUZARR_FIND_KEY_LENGTH ? CUZARR_FIND_KEY_LENGTH : 0;
    own = begins && behind > own ? behind : own;
    u32 before = warp_shuffle_up(CUZARR_ALL_LANES, own, 1), rest = before - CUZARR_FIND_KEY_LENGTH;
    return wanted && lane && before >= CUZARR_FIND_KEY_LENGTH && rest > own ? rest : own;
}

/// Number of whole steps from `step` on, before `size`, whose bytes equal those `offset` before them. Counts at most
/// the steps that are compared at once. All threads call.
CUZARR_DEVICE u32 find_steps_ahead(const FindSpace& space, u32 step, u32 offset, u32 size) {
    u32 lane = thread_index() % CUZARR_WARP, warp = thread_index() / CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    u32 left = (size - step) / thread_count(), steps = left < CUZARR_FIND_STEPS_AHEAD ? left : CUZARR_FIND_STEPS_AHEAD, own = warp;
    for (bool is_same = true; is_same && own < steps; own += is_same ? warps : 0) {
        u32 at = step + own * thread_count() + 4 * lane, differ = 0;
        for (u32 i = 0; i < thread_count(); i += 4 * CUZARR_WARP) {
            differ |= *window_words(space.words, (at + i) / 4) ^ find_word(space.words, at + i - offset);
        }
        is_same = !warp_ballot(CUZARR_ALL_LANES, differ != 0);
    }
    if (lane == 0) space.ahead[warp] = own;
    block_barrier();
    for (u32 i = 0; i < warps; ++i) steps = space.ahead[i] < steps ? space.ahead[i] : steps;
    return steps;
}

/// Finds the candidates of positions [begin, size): offset | length << 16 for each. In a segment that one match covers,
/// only the first position gets one. `going` is the offset of the match that reaches `begin`, or 0. Returns the offset
/// of the match that reaches `size`, or 0. From `last` on, nothing is looked up.
CUZARR_DEVICE u32 find_candidates(const FindSpace& space, u32 begin, u32 size, u32 last, u32 going, u32* candidates, u8* covered) {
    // Older bytes have been overwritten by newer ones, and by those that are read behind the end.
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
            if (step >= last) break;
            // The covered steps repeat their last `going` bytes.
            find_enter(space, step - first > going ? step - going : first, step);
            block_barrier();
            if (step >= size) break;
        }
        u32 at = step + thread_index();
        const FindBytes bytes = find_bytes(space.words, at);
        u32 hash = find_hash(bytes.low), entry = space.table[hash];
        u32* near = space.near + (hash >> (CUZARR_FIND_TABLE_BITS - CUZARR_FIND_NEAR_BITS));
        bool known = at + CUZARR_FIND_LEAST_MATCH <= size, in_run = bytes.is_four || bytes.is_run;
        if (known) atomic_min(near, (0xffffu - step / thread_count()) << 16 | at);
        block_barrier();
        bool wanted = known && !in_run;
        if (wanted) atomic_max(space.table + hash, find_rank(at) << 16 | entry >> 16);
        // An empty entry means a position of the first step, which is compared like any other.
        const u32 from[3] = {*near & 0xffff, find_rank(entry >> 16), find_rank(entry & 0xffff)};
        u32 key = find_longest(space.words, at, bytes, from, wanted, oldest, size);
        key |= find_run(space.words, at, bytes, known, size);
        key = find_beside(space.words, at, bytes.low, key, wanted, oldest);
        u32 candidate = find_candidate(~key & 0xffff, key >> 16);
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

/// A choice above this stands for literals: as many as the choice minus this.
#define CUZARR_FIND_LITERALS CUZARR_FIND_MOST_MATCH
#define CUZARR_FIND_MOST_LITERALS (255 - CUZARR_FIND_LITERALS)

/// Returns the cheaper of a match by `candidate`, which may be cut, and `best`, a choice of a literal. A choice is its
/// cost << 8 | CUZARR_FIND_MOST_MATCH - the match's length. `left` positions are left.
CUZARR_DEVICE u32 find_cheapest(u32 candidate, u32 best, u32 left, const u16* costs) {
    u32 length = candidate >> 16;
    length = length < left ? length : left;
    if (length < CUZARR_FIND_LEAST_MATCH) return best;
    u32 cost = find_cost(candidate & 0xffff);
    for (u32 cut = 0; cut <= CUZARR_FIND_CUT; ++cut) {
        // A cut never goes below the shortest match, which has been tried already.
        u32 least = length < CUZARR_FIND_LEAST_MATCH + cut ? CUZARR_FIND_LEAST_MATCH : length - cut;
        u32 sum = costs[least * CUZARR_FIND_THREADS] + cost + (least >= CUZARR_FIND_LONG_MATCH ? CUZARR_FIND_LONG_MATCH_COST : 0);
        u32 choice = sum << 8 | (CUZARR_FIND_MOST_MATCH - least);
        best = choice < best ? choice : best;
    }
    return best;
}

/// Chooses the cheapest way through `count` positions. The costs and choices of threads are interleaved in memory.
CUZARR_DEVICE void find_choose(const u32* candidates, u32 count, u16* costs, u8* choices) {
    const u32 stride = CUZARR_FIND_THREADS;
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

/// Number of segments behind segment `bit` that go on with its match: the set bits directly behind it.
CUZARR_DEVICE u32 find_ones_behind(const u32* bits, u32 bit) {
    u32 at = bit + 1;
    while (at < CUZARR_FIND_SEGMENTS) {
        u32 ones = count_trailing_zeros(~(bits[at / CUZARR_WARP] >> at % CUZARR_WARP));
        at += ones;
        if (ones == 0 || at % CUZARR_WARP) break;
    }
    return at - bit - 1;
}

/// Calls `each(position, length, number)` for the matches of a segment's cheapest way, and returns their number.
/// Successive threads hold the choices of its parts, `part` positions each.
template <class Each>
CUZARR_DEVICE u32 find_follow(const u8* choices, u32 count, u32 part, Each each) {
    u32 matches = 0;
    for (u32 first = 0; first < count; first += part, ++choices) {
        u32 end = count - first < part ? count - first : part;
        for (u32 i = 0; i < end;) {
            u32 choice = choices[i * CUZARR_FIND_THREADS];
            if (choice > CUZARR_FIND_LITERALS) {
                i += choice - CUZARR_FIND_LITERALS;
            } else {
                each(first + i, choice, matches++);
                i += choice;
            }
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

/// Finds the sequences of all blocks. `candidates` has room for one block of data for each block of threads. `taken`
/// counts the blocks of data that were begun, from 0.
CUZARR_KERNEL_SIZED(
    CUZARR_FIND_THREADS, 2, lz_find, const u8* src, LzBlocks blocks, u32* candidates, LzFound* found, LzFoundBlock* counts,
    u32* taken
) {
    CUZARR_SHARED_ASKED(u32, memory, CUZARR_FIND_SHARED_BYTES / 4);
    CUZARR_SHARED(u32, sums, CUZARR_FIND_THREADS / CUZARR_WARP);
    CUZARR_SHARED(u32, halves, 2);
    CUZARR_SHARED(u8, covered, CUZARR_FIND_SEGMENTS);
    CUZARR_SHARED(u32, joined, CUZARR_FIND_SEGMENTS / CUZARR_WARP);
    // The numbers of the segments that no match covers.
    CUZARR_SHARED(u8, open, CUZARR_FIND_SEGMENTS);
    FindSpace space = {memory, memory + CUZARR_FIND_TABLE_AT, memory + CUZARR_FIND_TABLE_AT + (1u << CUZARR_FIND_TABLE_BITS), halves, sums};
    u16* costs = (u16*)memory;
    u8* choices = (u8*)(costs + (CUZARR_FIND_SEGMENT_BYTES / CUZARR_FIND_PARTS + 1) * CUZARR_FIND_THREADS);
    // These replace the costs, once the choices are made.
    u32* matches = memory;
    u16* offsets = (u16*)(memory + CUZARR_FIND_BLOCK_BYTES / CUZARR_FIND_LEAST_MATCH);
    candidates += (u64)block_index() * CUZARR_FIND_BLOCK_BYTES;
    u32 thread = thread_index();
    for (;;) {
        // Blocks take different times, so a block of threads that is done takes the next one. The first blocks of all
        // chunks come first, because they take longest.
        if (thread == 0) sums[0] = atomic_add(taken, 1u);
        block_barrier();
        u32 turn = sums[0];
        block_barrier();
        if (turn >= block_count_of(blocks)) break;
        u32 chunk = turn % blocks.chunks, block = chunk * blocks.chunk_blocks + turn / blocks.chunks;
        if (!is_wanted(blocks, block)) continue;
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
            going = find_candidates(space, own, end, before + size, going, candidates - before, covered - before / CUZARR_FIND_SEGMENT_BYTES);
        }
        block_barrier();
        u32 segment = thread * CUZARR_FIND_SEGMENT_BYTES, opened, total;
        bool exists = thread < CUZARR_FIND_SEGMENTS && segment < size, is_open = exists && !covered[thread];
        // Segments that go on with the match of the segment before.
        u32 goes_on = warp_ballot(CUZARR_ALL_LANES, thread < CUZARR_FIND_SEGMENTS && thread && covered[thread] == CUZARR_FIND_GOES_ON && covered[thread - 1]);
        if (thread % CUZARR_WARP == 0 && thread < CUZARR_FIND_SEGMENTS) joined[thread / CUZARR_WARP] = goes_on;
        u32 place = block_sum_before(is_open, sums, &opened);
        if (is_open) open[place] = (u8)thread;
        block_barrier();
        // Where few are open, more threads share a segment, so that nobody waits for one warp.
        u32 parts = opened * CUZARR_FIND_MOST_PARTS <= CUZARR_FIND_THREADS ? CUZARR_FIND_MOST_PARTS : CUZARR_FIND_MORE_PARTS;
        parts = opened * parts <= CUZARR_FIND_THREADS ? parts : CUZARR_FIND_PARTS;
        u32 part = CUZARR_FIND_SEGMENT_BYTES / parts;
        if (thread < opened * parts) {
            u32 first = open[thread / parts] * CUZARR_FIND_SEGMENT_BYTES, begin = thread % parts * part;
            u32 bytes = find_segment_bytes(first, size), own = bytes <= begin ? 0 : bytes - begin < part ? bytes - begin : part;
            find_choose(candidates + first + begin, own, costs + thread, choices + thread);
        }
        block_barrier();
        const u8* chosen = choices + place * parts;
        u32 count = is_open ? find_segment_bytes(segment, size) : 0;
        bool begins = exists && !is_open && !(goes_on >> thread % CUZARR_WARP & 1);
        u32 own = begins ? 1 : find_follow(chosen, count, part, [](u32, u32, u32) {});
        // Behind its barriers, the costs are no longer used.
        u32 index = block_sum_before(own, sums, &total);
        if (begins) matches[index] = segment << 16 | (1 + find_ones_behind(joined, thread)) * CUZARR_FIND_SEGMENT_BYTES;
        find_follow(chosen, count, part, [&](u32 i, u32 length, u32 number) {
            matches[index + number] = (segment + i) << 16 | length;
        });
        block_barrier();
        for (u32 i = thread; i < total; i += thread_count()) offsets[i] = (u16)candidates[matches[i] >> 16];
        block_barrier();
        LzFoundBlock made = find_join(matches, offsets, total, size, sums, found + (u64)block * blocks.most_sequences);
        if (thread == 0) counts[block] = made;
    }
}
