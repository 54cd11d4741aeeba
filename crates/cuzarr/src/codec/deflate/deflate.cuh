// Decodes deflate streams (RFC 1951): one warp for each stream, with all lanes at once.
//
// Codes have no marks where they begin, but a decoder that starts anywhere falls into step with the true one after some
// ten to some hundred bits. So a warp decodes its stream in rounds of 32 segments:
//
//     each lane decodes its segment from its first bit, as if a symbol began there, and counts bytes and matches
//     until each lane begins where the lane before ended: those that do not, decode again from there; as soon as they are
//         where the first attempt was, too, at a mark in the segment, the rest of that is kept
//     sums over the lanes say where each one's bytes go
//     each lane decodes its segment once more: puts literals to their places, copies matches from before the round, and
//         puts the others, a quarter or so, into a queue
//     those are copied, 32 at a time: each lane one of those whose bytes are there
//
// Nothing is guessed in the end: lane 0 begins at a true symbol, and every other one where the one before ended.
//
// Prior art: self-synchronising Huffman decoding (Klein and Wiseman 2003; Weissenberger and Schmidt, ICPP 2018); rounds of
// copying what is ready (Sitaridi et al., Gompresso, ICPP 2016).
#pragma once
#include "codec/deflate/deflate_bits.cuh"
#include "codec/deflate/deflate_damage.cuh"
#include "codec/deflate/deflate_matches.cuh"
#include "codec/deflate/deflate_tables.cuh"
#include "codec/batch/frames.cuh"
#include "cuzarr/warp.cuh"

/// Number of words of the stream that a lane decodes in a round: odd, so that lanes read from different banks. After
/// CUZARR_DEFLATE_MARK_BITS bits, a lane checks whether it is in step.
#define CUZARR_DEFLATE_SEGMENT_WORDS 11u
#define CUZARR_DEFLATE_SEGMENT_BITS (CUZARR_DEFLATE_SEGMENT_WORDS * 32)
#define CUZARR_DEFLATE_MARK_BITS 192u
/// Words of a round; a symbol of 48 bits may begin with the last bit of the last segment.
#define CUZARR_DEFLATE_ROUND_WORDS (CUZARR_DEFLATE_SEGMENT_WORDS * CUZARR_WARP + 4)
/// Maximum number of matches in a round. A segment has at most half as many as its bits, and one more.
#define CUZARR_DEFLATE_MATCHES 640u

/// A lane's state that is no damage: it is at the end of the block.
#define CUZARR_DEFLATE_ENDED 0x100u

/// No place, or nothing.
#define CUZARR_DEFLATE_NONE 0xffffffffu

/// The tables of a block's codes, in shared memory.
struct DeflateCodes {
    u32 literals[CUZARR_DEFLATE_LITERAL_ENTRIES];
    u32 distances[CUZARR_DEFLATE_DISTANCE_ENTRIES];
};

/// A warp's shared memory.
struct DeflateShared : DeflateCodes {
    u64 matches[CUZARR_DEFLATE_MATCHES];
    u32 words[CUZARR_DEFLATE_ROUND_WORDS];  // of the stream: the round's
    /// The queue of matches is empty while a block's tables are made.
    CUZARR_DEVICE DeflateBuilding& building() { return *(DeflateBuilding*)matches; }
};

/// Loads the words from bit `origin` on, a multiple of 32, to shared memory.
template <class Shared>
CUZARR_DEVICE void deflate_stage(Shared& shared, const DeflateInput& input, u32 origin, u32 lane) {
    // All words are loaded at the same time.
#pragma unroll
    for (u32 i = 0; i < CUZARR_DEFLATE_ROUND_WORDS; i += CUZARR_WARP) {
        if (i + lane < CUZARR_DEFLATE_ROUND_WORDS) shared.words[i + lane] = deflate_word(input, origin / 32 + i + lane);
    }
    warp_barrier(CUZARR_ALL_LANES);
}

/// Returns the 32 bits that begin `at` bits behind the first loaded bit.
template <class Shared>
CUZARR_DEVICE u32 deflate_staged(const Shared& shared, u32 at) {
    const u32* words = shared.words + at / 32;
    return funnel_shift_right(words[0], words[1], at % 32);
}

/// Counts the bytes and matches that a segment decodes to.
struct DeflateCounter {
    u32 bytes, matches;
    CUZARR_DEVICE bool take(bool literal, bool match, u32, u32 length, u32) {
        bytes += literal ? 1 : match ? length : 0, matches += match;
        return true;
    }
};

/// Writes literals to their places, and copies short matches from before the round. Other matches go into the queue,
/// with their place counted from the round's first byte. The bytes of a match are loaded while the next symbols are
/// decoded.
template <class Target>
struct DeflateWriter {
    const Target& target;
    u64* matches;
    u32 at, round, floor;
    typename Target::Eight eight;
    u32 eight_at, eight_count;

    CUZARR_DEVICE bool take(bool literal, bool repeats, u32 byte, u32 length, u32 distance) {
        if (literal) target.store(at++, (u8)byte);
        return !repeats || match(length, distance);
    }
    CUZARR_DEVICE void finish() {
        target.store_eight(eight_at, eight, eight_count);
        eight_count = 0;
    }
    CUZARR_DEVICE bool match(u32 length, u32 distance) {
        if (distance > at - floor) return false;
        u32 from = at - distance;
        bool now = length <= CUZARR_DEFLATE_ELEMENTS && from + length <= round && target.joined(from);
        *matches++ = now ? 0 : deflate_pack(at - round, length, distance);
        if (now) {
            finish();
            eight = target.load_eight(from), eight_at = at, eight_count = length;
        }
        at += length;
        return true;
    }
};

/// Decodes symbols of the round whose first word holds bit `origin`, until one ends at or behind `end`, in the lanes that are
/// `going`; all lanes call. Sets `state` to CUZARR_DEFLATE_ENDED behind the block's last symbol, or to damage.
template <class Shared, class Sink>
CUZARR_DEVICE void deflate_run(
    const Shared& shared, u32 origin, u32& position, u32 end, bool going, u32& state, Sink& sink
) {
    u32 at = position - origin, stop = end - origin;
    going = going && at < stop;
    while (warp_goes_on(going)) {
        if (going) {
            const u32* words = shared.words + at / 32;
            u32 low = words[0], middle = words[1], high = words[2];
            u32 bits = funnel_shift_right(low, middle, at % 32), behind = funnel_shift_right(middle, high, at % 32);
            u32 entry = deflate_look_up(shared.literals, CUZARR_DEFLATE_LITERAL_BITS, bits);
            u32 value = entry >> 8 & 0xffff, used = entry & 15, extra = entry >> 4 & 15;
            u32 length = value + (bits >> used & ((1u << extra) - 1));
            used += extra;
            // Every lane goes on as if it had a match: branches would cost more than they save.
            u32 rest = funnel_shift_right(bits, behind, used);
            u32 second = deflate_look_up(shared.distances, CUZARR_DEFLATE_DISTANCE_BITS, rest), word = second & 15;
            extra = second >> 4 & 15;
            u32 distance = (second >> 8 & 0xffff) + (rest >> word & ((1u << extra) - 1));
            bool literal = entry & CUZARR_DEFLATE_LITERAL, special = entry & CUZARR_DEFLATE_SPECIAL;
            bool match = !literal && !special, known = !(second & CUZARR_DEFLATE_SPECIAL);
            if (special) state = value == 256 ? CUZARR_DEFLATE_ENDED : CUZARR_NO_SYMBOL;
            if (match && !known) state = CUZARR_NO_SYMBOL;
            if (!sink.take(literal, match && known, value, length, distance)) state = CUZARR_BEFORE_START;
            used += match ? word + extra : 0;
            at += state == 0 || state == CUZARR_DEFLATE_ENDED ? used : 0;
            going = state == 0 && at < stop;
        }
    }
    position = origin + at;
}

/// The progress of a warp, the same in all lanes.
struct DeflateProgress {
    u32 position;  // in the encoded bits
    u32 at;        // in the decoded bytes
    u32 damage;
};

/// A lane's findings in its segment.
struct DeflateSegment {
    u32 start, exit, state;
    u32 bytes, matches;
};

/// Decodes the lane's segment of the round from `segment.start` on, in lanes that are `wanted`; all lanes call. `mark`
/// is the state of an earlier attempt at the mark. No symbol begins at or behind `stop`.
template <class Shared>
CUZARR_DEVICE void deflate_count(
    const Shared& shared, const DeflateInput& input, u32 origin, u32 begin, bool wanted, DeflateSegment& segment,
    DeflateSegment& mark, u32 stop
) {
    DeflateCounter counter = {0, 0};
    u32 position = segment.start;
    u32 state = segment.start >= input.end ? CUZARR_CUT_OFF : 0;
    u32 end = min_of(begin + CUZARR_DEFLATE_SEGMENT_BITS, stop), half = min_of(begin + CUZARR_DEFLATE_MARK_BITS, stop);
#pragma unroll 1
    for (u32 stage = 0; stage < 2; ++stage) {
        deflate_run(shared, origin, position, stage == 0 ? half : end, wanted && state == 0, state, counter);
        if (stage > 0 || !wanted) continue;
        if (state == 0 && mark.state == 0 && position == mark.exit) {
            segment.bytes += counter.bytes - mark.bytes, segment.matches += counter.matches - mark.matches;
            wanted = false;
        } else {
            mark.exit = position, mark.state = state;
        }
        mark.bytes = counter.bytes, mark.matches = counter.matches;
    }
    if (wanted) {
        segment.exit = position;
        segment.state = position > input.end ? CUZARR_CUT_OFF : state;
        segment.bytes = counter.bytes, segment.matches = counter.matches;
    }
}

/// Writes the bytes of a round. `segment` says where each lane begins, and its numbers of bytes and matches, which are
/// 0 for lanes behind the last one. Bytes from `at` on go to `target`. No match may refer to bytes before `floor`:
/// otherwise returns the lanes with such a match, and its place in `segment.start`.
template <class Target>
CUZARR_DEVICE u32 deflate_write(
    DeflateShared& shared, const Target& target, u32 origin, u32 end, bool going, u32 at, u32 floor, DeflateSegment& segment,
    u32 lane
) {
    u32 bytes = inclusive_sum(segment.bytes, lane), matches = inclusive_sum(segment.matches, lane);
    u64* queue = shared.matches + (matches - segment.matches);
    DeflateWriter<Target> writer = {target, queue, at + bytes - segment.bytes, at, floor, {}, 0, 0};
    u32 damage = 0, position = segment.start;
    // A lane that found the stream cut off before its first symbol has no bytes, and no place for any.
    deflate_run(shared, origin, position, end, going && segment.bytes > 0, damage, writer);
    writer.finish();
    if (damage == CUZARR_BEFORE_START) segment.start = position;
    u32 before_start = warp_ballot(CUZARR_ALL_LANES, damage == CUZARR_BEFORE_START);
    if (before_start) return before_start;
    warp_barrier(CUZARR_ALL_LANES);
    deflate_copy_all(shared.matches, warp_shuffle(CUZARR_ALL_LANES, matches, CUZARR_WARP - 1), target, at, lane);
    return 0;
}

/// Decodes the symbols of a block whose tables are made, to its end. No match may refer to bytes before `floor`, and no
/// byte is written at or behind `limit`.
template <class Target>
CUZARR_DEVICE void deflate_symbols(
    DeflateShared& shared, const DeflateInput& input, const Target& target, u32 floor, u32 limit, DeflateProgress& progress,
    u32 lane
) {
    while (progress.damage == 0) {
        u32 begin = progress.position + lane * CUZARR_DEFLATE_SEGMENT_BITS, origin = progress.position / 32 * 32;
        deflate_stage(shared, input, origin, lane);
        DeflateSegment segment = {begin, 0, 0, 0, 0}, mark = {0, 0, CUZARR_DEFLATE_ENDED, 0, 0};
        u32 last;
        for (bool wanted = true;;) {
            deflate_count(shared, input, origin, begin, wanted, segment, mark, CUZARR_DEFLATE_NONE);
            u32 exit = warp_shuffle_up(CUZARR_ALL_LANES, segment.exit, 1u);
            u32 state = warp_shuffle_up(CUZARR_ALL_LANES, segment.state, 1u);
            wanted = lane > 0 && state == 0 && exit != segment.start;
            u32 wrong = warp_ballot(CUZARR_ALL_LANES, wanted), ended = warp_ballot(CUZARR_ALL_LANES, segment.state != 0);
            // Lanes before the first wrong one are right.
            u32 first_ended = count_trailing_zeros(ended);
            last = min_of(first_ended, CUZARR_WARP - 1);
            if (wrong == 0 || first_ended < count_trailing_zeros(wrong)) break;
            if (wanted) segment.start = exit;
        }
        u32 bytes = inclusive_sum(lane <= last ? segment.bytes : 0, lane);
        u32 matches = inclusive_sum(lane <= last ? segment.matches : 0, lane);
        u32 too_long = warp_ballot(CUZARR_ALL_LANES, bytes > limit - progress.at);
        if (too_long) {
            progress.position = warp_shuffle(CUZARR_ALL_LANES, segment.start, count_trailing_zeros(too_long));
            progress.damage = CUZARR_TOO_LONG;
            return;
        }
        u32 too_many = warp_ballot(CUZARR_ALL_LANES, matches > CUZARR_DEFLATE_MATCHES);
        if (too_many) last = count_trailing_zeros(too_many) - 1;
        if (lane > last) segment.bytes = segment.matches = 0;
        u32 end = begin + CUZARR_DEFLATE_SEGMENT_BITS;
        u32 before_start = deflate_write(shared, target, origin, end, lane <= last, progress.at, floor, segment, lane);
        if (before_start) {
            progress.position = warp_shuffle(CUZARR_ALL_LANES, segment.start, count_trailing_zeros(before_start));
            progress.damage = CUZARR_BEFORE_START;
            return;
        }
        // The words and the queue have been read.
        warp_barrier(CUZARR_ALL_LANES);
        progress.position = warp_shuffle(CUZARR_ALL_LANES, segment.exit, last);
        progress.at += warp_shuffle(CUZARR_ALL_LANES, bytes, last);
        progress.damage = warp_shuffle(CUZARR_ALL_LANES, segment.state, last);
    }
    if (progress.damage == CUZARR_DEFLATE_ENDED) progress.damage = 0;
}

/// Makes the tables of the fixed codes.
CUZARR_DEVICE void deflate_fixed(DeflateCodes& shared, u32 lane) {
    for (u32 i = lane; i < 1u << CUZARR_DEFLATE_LITERAL_BITS; i += CUZARR_WARP) shared.literals[i] = deflate_fixed_literal(i);
    for (u32 i = lane; i < 1u << CUZARR_DEFLATE_DISTANCE_BITS; i += CUZARR_WARP) shared.distances[i] = deflate_fixed_distance(i);
    warp_barrier(CUZARR_ALL_LANES);
}

/// Makes both tables of a block from the lengths of its codes. Returns false if the lengths are no codes.
template <class Shared>
CUZARR_DEVICE bool deflate_tables(Shared& shared, u32 lane) {
    DeflateBuilding& building = shared.building();
    bool codes = true;
#pragma unroll 1
    for (u32 distances = 0; distances < 2 && codes; ++distances) {
        codes = deflate_table(
            building, building.lengths + (distances ? CUZARR_DEFLATE_LITERALS : 0),
            distances ? CUZARR_DEFLATE_DISTANCES : CUZARR_DEFLATE_LITERALS,
            distances ? DeflateAlphabet::Distances : DeflateAlphabet::Literals,
            distances ? CUZARR_DEFLATE_DISTANCE_BITS : CUZARR_DEFLATE_LITERAL_BITS,
            distances ? shared.distances : shared.literals,
            distances ? CUZARR_DEFLATE_DISTANCE_ENTRIES : CUZARR_DEFLATE_LITERAL_ENTRIES, lane
        );
    }
    return codes;
}

/// Bits of a header that hold 32 symbols: words of at most 7 bits, with 7 further ones.
#define CUZARR_DEFLATE_TOLD_BITS (14 * CUZARR_WARP)

/// Reads `count` lengths from the position on. They are written in the code whose table is in the place of the
/// distances' table. Returns false if they cannot be read, with the place of the first bad symbol.
///
/// The length of a symbol at each bit is looked up side by side. Then a step from one symbol to the next is one lookup,
/// and the symbols' values are found side by side again.
template <class Shared>
CUZARR_DEVICE bool deflate_lengths(
    Shared& shared, const DeflateInput& input, u32 origin, u32 count, DeflateProgress& progress, u32 lane
) {
    DeflateBuilding& building = shared.building();
    u8* steps = (u8*)shared.literals;
    u32 place = progress.position - origin, last = 0;
    for (u32 i = lane; i < CUZARR_DEFLATE_LITERALS + CUZARR_DEFLATE_DISTANCES; i += CUZARR_WARP) building.sequence[i] = 0;
    for (u32 at = 0; at < count;) {
#pragma unroll
        for (u32 i = 0; i < CUZARR_DEFLATE_TOLD_BITS; i += CUZARR_WARP) {
            u32 entry = shared.distances[deflate_staged(shared, place + i + lane) & 127], symbol = entry >> 8;
            u32 extra = symbol < 16 ? 0 : symbol == 16 ? 2 : symbol == 17 ? 3 : 7;
            // A bit that begins no symbol leads nowhere.
            steps[i + lane] = (u8)(symbol > 18 ? 0 : (entry & 15) + extra);
        }
        warp_barrier(CUZARR_ALL_LANES);
        u32 own = 0, step = 0;
        for (u32 i = 0; i < CUZARR_WARP; ++i) {
            own = lane == i ? step : own;
            step += steps[step];
        }
        u32 window = deflate_staged(shared, place + own), entry = shared.distances[window & 127], symbol = entry >> 8;
        u32 used = entry & 15, extra = symbol == 16 ? 2 : symbol == 17 ? 3 : 7;
        u32 repeats = symbol < 16 ? 1 : (symbol == 18 ? 11 : 3) + (window >> used & ((1u << extra) - 1));
        u32 end = at + inclusive_sum(repeats, lane), begin = end - repeats;
        // Symbol 16 repeats the last one before it that is not 16.
        u32 others = warp_ballot(CUZARR_ALL_LANES, symbol != 16), value = symbol > 16 ? 0 : symbol;
        u32 before = others & lanes_below(lane), told = warp_shuffle(CUZARR_ALL_LANES, value, highest_bit(before | 1));
        if (symbol == 16) value = before ? told : last;
        bool there = begin < count;
        bool wrong = symbol > 18 || origin + place + own >= input.end || (symbol == 16 && begin == 0) || end > count;
        u32 wrongs = warp_ballot(CUZARR_ALL_LANES, there && wrong);
        if (wrongs) {
            progress.position = origin + place + warp_shuffle(CUZARR_ALL_LANES, own, count_trailing_zeros(wrongs));
            return false;
        }
        if (there && value) {
            for (u32 i = begin; i < end; ++i) building.sequence[i] = (u8)value;
        }
        u32 final = highest_bit(warp_ballot(CUZARR_ALL_LANES, there));
        at = warp_shuffle(CUZARR_ALL_LANES, end, final), last = warp_shuffle(CUZARR_ALL_LANES, value, final);
        place += warp_shuffle(CUZARR_ALL_LANES, own + used + (symbol < 16 ? 0 : extra), final);
        // The steps have been read.
        warp_barrier(CUZARR_ALL_LANES);
    }
    progress.position = origin + place;
    return true;
}

/// Reads the lengths of a dynamic block's codes, behind its three first bits.
template <class Shared>
CUZARR_DEVICE void deflate_dynamic(
    Shared& shared, const DeflateInput& input, DeflateProgress& progress, u32 lane
) {
    DeflateBuilding& building = shared.building();
    // A header has at most 14 + 19 * 3 + 316 * 14 bits.
    u32 origin = progress.position / 32 * 32, place = progress.position - origin;
    deflate_stage(shared, input, origin, lane);
    u32 head = deflate_staged(shared, place);
    u32 literals = 257 + (head & 31), distances = 1 + (head >> 5 & 31), lengths = 4 + (head >> 10 & 15);
    progress.damage = CUZARR_BAD_CODE;
    if (literals > 286 || distances > 30) return;
    if (lane < 24) building.lengths[lane] = 0;
    warp_barrier(CUZARR_ALL_LANES);
    if (lane < lengths) {
        // 16 17 18 0, then 8 7 9 6 and so on.
        u32 symbol = lane < 3 ? 16 + lane : lane == 3 ? 0 : lane % 2 ? 7 - (lane - 5) / 2 : 8 + (lane - 4) / 2;
        building.lengths[symbol] = (u8)(deflate_staged(shared, place + 14 + 3 * lane) & 7);
    }
    warp_barrier(CUZARR_ALL_LANES);
    // The table of this code is in the place of the distances', which come last.
    if (!deflate_table(building, building.lengths, 24, DeflateAlphabet::Lengths, 7, shared.distances, CUZARR_DEFLATE_DISTANCE_ENTRIES, lane)) return;
    progress.position = origin + place + 14 + 3 * lengths;
    u32 count = literals + distances;
    if (!deflate_lengths(shared, input, origin, count, progress, lane)) return;
    place = progress.position - origin;
    if (building.sequence[256] == 0) return;
    for (u32 symbol = lane; symbol < CUZARR_DEFLATE_LITERALS; symbol += CUZARR_WARP) {
        building.lengths[symbol] = symbol < literals ? building.sequence[symbol] : 0;
    }
    building.lengths[CUZARR_DEFLATE_LITERALS + lane] = lane < distances ? building.sequence[literals + lane] : 0;
    warp_barrier(CUZARR_ALL_LANES);
    progress.position = origin + place;
    progress.damage = progress.position > input.end ? CUZARR_CUT_OFF : 0;
}

/// Reads a stored block, behind its first three bits, and copies it if `emit`.
template <class Target>
CUZARR_DEVICE void deflate_stored(
    const DeflateInput& input, const Target& target, bool emit, u32 limit, DeflateProgress& progress, u32 lane
) {
    u32 head_at = (progress.position + 7) / 8 * 8, data = head_at + 32;
    u32 head = deflate_peek(deflate_seek(input, head_at)), bytes = head & 0xffff;
    progress.damage = CUZARR_CUT_OFF;
    if (data > input.end) return;
    progress.damage = CUZARR_BAD_BLOCK;
    if ((head >> 16 ^ bytes) != 0xffff) return;
    progress.damage = CUZARR_CUT_OFF;
    if (bytes > (input.end - data) / 8) return;
    progress.damage = CUZARR_TOO_LONG;
    if (bytes > limit - progress.at) return;
    const u8* from = (const u8*)input.words + data / 8;
    if (emit) {
        for (u32 i = lane; i < bytes; i += CUZARR_WARP) target.store(progress.at + i, from[i]);
        warp_barrier(CUZARR_ALL_LANES);
    }
    progress.position = data + bytes * 8;
    progress.at += bytes;
    progress.damage = 0;
}

/// A block whose header was read.
struct DeflateBlock {
    u32 kind;   // 0: stored, and at the position behind the header's three bits; else: at its first symbol, tables made
    bool last;  // of the stream
};

/// Reads the header at the position, and makes the tables.
template <class Shared>
CUZARR_DEVICE DeflateBlock deflate_open(
    Shared& shared, const DeflateInput& input, DeflateProgress& progress, u32 lane
) {
    DeflateBlock block = {0, true};
    if (progress.position + 3 > input.end) {
        progress.damage = CUZARR_CUT_OFF;
        return block;
    }
    u32 head = deflate_peek(deflate_seek(input, progress.position));
    block.kind = head >> 1 & 3, block.last = head & 1;
    if (block.kind == 3) {
        progress.damage = CUZARR_BAD_BLOCK;
        return block;
    }
    progress.position += 3;
    // The last block's shared memory has been read.
    warp_barrier(CUZARR_ALL_LANES);
    if (block.kind == 1) deflate_fixed(shared, lane);
    if (block.kind != 2) return block;
    deflate_dynamic(shared, input, progress, lane);
    if (progress.damage == 0 && !deflate_tables(shared, lane)) progress.damage = CUZARR_BAD_CODE;
    return block;
}

/// Decodes the block that begins at the position. Returns whether it is the stream's last.
CUZARR_DEVICE bool deflate_block(
    DeflateShared& shared, const DeflateInput& input, const DeflateBytes& target, u32 floor, u32 limit,
    DeflateProgress& progress, u32 lane
) {
    DeflateBlock block = deflate_open(shared, input, progress, lane);
    if (progress.damage) return true;
    if (block.kind == 0) {
        deflate_stored(input, target, true, limit, progress, lane);
    } else {
        deflate_symbols(shared, input, target, floor, limit, progress, lane);
    }
    return block.last;
}
