// Deflate streams (RFC 1951), decoded by one warp a stream, all lanes at once.
//
// Codes have no marks where they begin, but a decoder that starts anywhere falls into step with the true one after some
// ten to some hundred bits. So a warp decodes its stream in rounds of 32 segments:
//
//     each lane decodes its segment from its first bit, as if a symbol began there, and counts bytes and matches
//     until each lane begins where the lane before ended: those that do not, decode again from there; as soon as they are
//         where the first attempt was, too, at a mark in the segment, the rest of that is kept
//     sums over the lanes say where each one's bytes go
//     each lane decodes its segment once more, puts literals to their places, and matches into a queue
//     the matches are copied, 32 at a time: each lane one of those whose bytes are there
//
// Nothing is guessed in the end: lane 0 begins at a true symbol, and every other one where the one before ended.
//
// Prior art: self-synchronising Huffman decoding (Klein and Wiseman 2003; Weissenberger and Schmidt, ICPP 2018); rounds of
// copying what is ready (Sitaridi et al., Gompresso, ICPP 2016).
#pragma once
#include "cuzarr/deflate_tables.cuh"
#include "cuzarr/frames.cuh"

/// Bits that a lane decodes in a round, and those of them after which it looks whether it is in step.
#define CUZARR_DEFLATE_SEGMENT_BITS 512u
#define CUZARR_DEFLATE_MARK_BITS 160u
/// Matches that a round has at most. A segment has no more than its bits / 2 and one.
#define CUZARR_DEFLATE_MATCHES 512u
/// How far back a match reaches at most.
#define CUZARR_DEFLATE_WINDOW 32768u

/// The end of a block, where others have damage.
#define CUZARR_DEFLATE_ENDED 0x100u

/// What a warp has in shared memory.
struct DeflateShared {
    u64 matches[CUZARR_DEFLATE_MATCHES];  // while a block's tables are made: DeflateBuilding
    u16 literals[CUZARR_DEFLATE_LITERAL_ENTRIES + 2];
    u16 distances[CUZARR_DEFLATE_DISTANCE_ENTRIES + 2];
};

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

/// A place in the encoded bits. Zeros follow their end.
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

/// The next 32 bits.
CUZARR_DEVICE u32 deflate_peek(const DeflateBits& bits) { return funnel_shift(bits.low, bits.high, bits.position % 32); }

/// Passes over at most 32 bits.
CUZARR_DEVICE void deflate_skip(const DeflateInput& input, DeflateBits& bits, u32 count) {
    u32 before = bits.position / 32;
    bits.position += count;
    if (bits.position / 32 != before) {
        bits.low = bits.high, bits.high = bits.next;
        bits.next = deflate_word(input, before + 3);
    }
}

/// Counts what a segment decodes to.
struct DeflateCounter {
    u32 bytes, matches;
    CUZARR_DEVICE void literal(u32) { ++bytes; }
    CUZARR_DEVICE bool match(u32 length, u32) {
        bytes += length, ++matches;
        return true;
    }
};

/// Puts literals to their places, and matches into the queue: place from the round's first byte on, length, distance.
template <class Target>
struct DeflateWriter {
    const Target& target;
    u64* matches;
    u32 at, round, floor;
    CUZARR_DEVICE void literal(u32 byte) { target.store(at++, (u8)byte); }
    CUZARR_DEVICE bool match(u32 length, u32 distance) {
        if (distance > at - floor) return false;
        *matches++ = (u64)(distance << 9 | length) << 32 | (at - round);
        at += length;
        return true;
    }
};

/// Decodes symbols until one ends at or behind `end`. Returns 0, or CUZARR_DEFLATE_ENDED behind the block's last, or damage.
template <class Sink>
CUZARR_DEVICE u32 deflate_run(
    const DeflateShared& shared, const DeflateInput& input, DeflateBits& bits, u32 end, Sink& sink
) {
    while (bits.position < end) {
        u32 window = deflate_peek(bits);
        u32 entry = shared.literals[window & ((1u << CUZARR_DEFLATE_LITERAL_BITS) - 1)], used = entry & 15;
        if (used == 0) {
            u32 index = window >> CUZARR_DEFLATE_LITERAL_BITS & ((1u << (entry >> 13)) - 1);
            entry = shared.literals[(1u << CUZARR_DEFLATE_LITERAL_BITS) + (entry >> 4 & 511) + index];
            used = CUZARR_DEFLATE_LITERAL_BITS + (entry & 15);
        }
        u32 symbol = entry >> 4;
        if (symbol < 256) {
            sink.literal(symbol);
            deflate_skip(input, bits, used);
            continue;
        }
        if (symbol == 256) {
            deflate_skip(input, bits, used);
            return CUZARR_DEFLATE_ENDED;
        }
        if (symbol > 285) return CUZARR_NO_SYMBOL;
        u32 code = symbol - 257, extra = code < 8 || code == 28 ? 0 : code / 4 - 1;
        u32 length = 3 + (code < 8 ? code : code == 28 ? 255 : (4 + code % 4) << extra);
        length += window >> used & ((1u << extra) - 1);
        deflate_skip(input, bits, used + extra);
        window = deflate_peek(bits);
        entry = shared.distances[window & ((1u << CUZARR_DEFLATE_DISTANCE_BITS) - 1)], used = entry & 15;
        if (used == 0) {
            u32 index = window >> CUZARR_DEFLATE_DISTANCE_BITS & ((1u << (entry >> 13)) - 1);
            entry = shared.distances[(1u << CUZARR_DEFLATE_DISTANCE_BITS) + (entry >> 4 & 511) + index];
            used = CUZARR_DEFLATE_DISTANCE_BITS + (entry & 15);
        }
        code = entry >> 4;
        if (code > 29) return CUZARR_NO_SYMBOL;
        extra = code < 2 ? 0 : code / 2 - 1;
        u32 distance = 1 + (code < 2 ? code : (2 + code % 2) << extra);
        distance += window >> used & ((1u << extra) - 1);
        if (!sink.match(length, distance)) return CUZARR_BEFORE_START;
        deflate_skip(input, bits, used + extra);
    }
    return 0;
}

/// Bytes in their final place.
struct DeflateBytes {
    typedef u8 Element;
    u8* bytes;
    CUZARR_DEVICE Element load(u32 at) const { return bytes[at]; }
    CUZARR_DEVICE void store(u32 at, Element element) const { bytes[at] = element; }
};

/// Elements of 16 bits from `begin` on: a byte, or, with the highest bit, the place of an unknown byte in the 32 KiB before
/// `begin`.
struct DeflateMarkers {
    typedef u16 Element;
    u16* elements;
    u32 begin;
    CUZARR_DEVICE Element load(u32 at) const {
        return at >= begin ? elements[at] : (Element)(2 * CUZARR_DEFLATE_WINDOW + at - begin);
    }
    CUZARR_DEVICE void store(u32 at, Element element) const { elements[at] = element; }
};

/// Copies one match by one lane, four elements at a time: they are all before `at`, so none waits for another.
template <class Target>
CUZARR_DEVICE void deflate_copy(const Target& target, u32 at, u32 length, u32 distance) {
    u32 from = at - distance, place = 0;
    for (u32 done = 0; done < length; done += 4) {
        typename Target::Element four[4];
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            if (done + i < length) four[i] = target.load(from + place);
            place = place + 1 == distance ? 0 : place + 1;
        }
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            if (done + i < length) target.store(at + done + i, four[i]);
        }
    }
}

/// Copies the queue's matches, of which `round` is the origin. Literals are in their places.
template <class Target>
CUZARR_DEVICE void deflate_copy_all(const u64* matches, u32 count, const Target& target, u32 round, u32 lane) {
    for (u32 first = 0; first < count; first += CUZARR_WARP) {
        u64 match = first + lane < count ? matches[first + lane] : 0;
        u32 at = round + (u32)match, length = (u32)(match >> 32) & 511, distance = (u32)(match >> 41);
        // Where the bytes end that it needs: of a match that overlaps itself, those before it.
        u32 needed = at - distance + (length < distance ? length : distance);
        u32 pending = warp_ballot(CUZARR_ALL_LANES, length > 0);
        while (pending) {
            u32 leader = count_trailing_zeros(pending), final = warp_shuffle(CUZARR_ALL_LANES, at, leader);
            bool ready = (pending >> lane & 1) && (lane == leader || needed <= final);
            if (ready && length <= CUZARR_WARP) deflate_copy(target, at, length, distance);
            u32 long_ones = warp_ballot(CUZARR_ALL_LANES, ready && length > CUZARR_WARP);
            pending &= ~warp_ballot(CUZARR_ALL_LANES, ready);
            while (long_ones) {
                u32 owner = count_trailing_zeros(long_ones);
                long_ones &= long_ones - 1;
                u32 to = warp_shuffle(CUZARR_ALL_LANES, at, owner), bytes = warp_shuffle(CUZARR_ALL_LANES, length, owner);
                u32 back = warp_shuffle(CUZARR_ALL_LANES, distance, owner), place = lane % back, step = CUZARR_WARP % back;
                for (u32 i = lane; i < bytes; i += CUZARR_WARP) {
                    target.store(to + i, target.load(to - back + place));
                    place += step;
                    if (place >= back) place -= back;
                }
            }
            warp_barrier(CUZARR_ALL_LANES);
        }
    }
}

CUZARR_DEVICE u32 inclusive_sum(u32 value, u32 lane) {
    for (u32 by = 1; by < CUZARR_WARP; by *= 2) {
        u32 other = warp_shuffle_up(CUZARR_ALL_LANES, value, by);
        if (lane >= by) value += other;
    }
    return value;
}

/// How far a warp has come: the same in all lanes.
struct DeflateProgress {
    u32 position;  // in the encoded bits
    u32 at;        // in the decoded bytes
    u32 damage;
};

/// What a lane found in its segment.
struct DeflateSegment {
    u32 start, exit, state;
    u32 bytes, matches;
};

/// Decodes the lane's segment of the round from `segment.start` on. `mark` is what an earlier attempt found at the mark.
CUZARR_DEVICE void deflate_count(
    const DeflateShared& shared, const DeflateInput& input, u32 begin, DeflateSegment& segment, DeflateSegment& mark
) {
    DeflateCounter counter = {0, 0};
    DeflateBits bits = deflate_seek(input, segment.start);
    u32 state = segment.start < input.end ? 0 : CUZARR_CUT_OFF;
    for (u32 stage = 0; stage < 2; ++stage) {
        u32 end = begin + (stage ? CUZARR_DEFLATE_SEGMENT_BITS : CUZARR_DEFLATE_MARK_BITS);
        if (state == 0) state = deflate_run(shared, input, bits, end, counter);
        if (stage > 0) break;
        if (state == 0 && mark.state == 0 && bits.position == mark.exit) {
            segment.bytes += counter.bytes - mark.bytes, segment.matches += counter.matches - mark.matches;
            mark.bytes = counter.bytes, mark.matches = counter.matches;
            return;
        }
        mark.exit = bits.position, mark.state = state, mark.bytes = counter.bytes, mark.matches = counter.matches;
    }
    if (bits.position > input.end) state = CUZARR_CUT_OFF;
    segment.exit = bits.position, segment.state = state;
    segment.bytes = counter.bytes, segment.matches = counter.matches;
}

/// Decodes the symbols of a block whose tables are made, to its end. With `emit`, bytes go to `target`; none before `floor`
/// is referred to, none at or behind `limit` written. Without, they are counted only.
template <class Target>
CUZARR_DEVICE void deflate_symbols(
    DeflateShared& shared, const DeflateInput& input, const Target& target, bool emit, u32 floor, u32 limit,
    DeflateProgress& progress, u32 lane
) {
    while (progress.damage == 0) {
        u32 begin = progress.position + lane * CUZARR_DEFLATE_SEGMENT_BITS;
        DeflateSegment segment = {begin, 0, 0, 0, 0}, mark = {0, 0, CUZARR_DEFLATE_ENDED, 0, 0};
        deflate_count(shared, input, begin, segment, mark);
        u32 last;
        for (;;) {
            u32 exit = warp_shuffle_up(CUZARR_ALL_LANES, segment.exit, 1u);
            u32 state = warp_shuffle_up(CUZARR_ALL_LANES, segment.state, 1u);
            bool wrong = lane > 0 && state == 0 && exit != segment.start;
            u32 wrong_ones = warp_ballot(CUZARR_ALL_LANES, wrong);
            u32 ended = warp_ballot(CUZARR_ALL_LANES, segment.state != 0);
            // Before the first that is wrong, all is true.
            u32 first_wrong = count_trailing_zeros(wrong_ones), first_ended = count_trailing_zeros(ended);
            last = first_ended < CUZARR_WARP ? first_ended : CUZARR_WARP - 1;
            if (wrong_ones == 0 || first_ended < first_wrong) break;
            if (wrong) {
                segment.start = exit;
                deflate_count(shared, input, begin, segment, mark);
            }
        }
        u32 bytes = inclusive_sum(lane <= last ? segment.bytes : 0, lane);
        u32 matches = inclusive_sum(lane <= last ? segment.matches : 0, lane);
        u32 too_long = warp_ballot(CUZARR_ALL_LANES, bytes > limit - progress.at);
        if (too_long) {
            progress.position = warp_shuffle(CUZARR_ALL_LANES, segment.start, count_trailing_zeros(too_long));
            progress.damage = CUZARR_TOO_LONG;
            return;
        }
        if (emit) {
            u32 too_many = warp_ballot(CUZARR_ALL_LANES, matches > CUZARR_DEFLATE_MATCHES);
            if (too_many) last = count_trailing_zeros(too_many) - 1;
            u32 damage = 0;
            if (lane <= last) {
                u64* queue = shared.matches + (matches - segment.matches);
                DeflateWriter<Target> writer = {target, queue, progress.at + bytes - segment.bytes, progress.at, floor};
                DeflateBits bits = deflate_seek(input, segment.start);
                u32 end = begin + CUZARR_DEFLATE_SEGMENT_BITS;
                damage = deflate_run(shared, input, bits, end, writer);
                if (damage == CUZARR_BEFORE_START) segment.start = bits.position;
            }
            u32 before_start = warp_ballot(CUZARR_ALL_LANES, damage == CUZARR_BEFORE_START);
            if (before_start) {
                progress.position = warp_shuffle(CUZARR_ALL_LANES, segment.start, count_trailing_zeros(before_start));
                progress.damage = CUZARR_BEFORE_START;
                return;
            }
            warp_barrier(CUZARR_ALL_LANES);
            u32 queued = warp_shuffle(CUZARR_ALL_LANES, matches, last);
            deflate_copy_all(shared.matches, queued, target, progress.at, lane);
            warp_barrier(CUZARR_ALL_LANES);
        }
        progress.position = warp_shuffle(CUZARR_ALL_LANES, segment.exit, last);
        progress.at += warp_shuffle(CUZARR_ALL_LANES, bytes, last);
        progress.damage = warp_shuffle(CUZARR_ALL_LANES, segment.state, last);
    }
    if (progress.damage == CUZARR_DEFLATE_ENDED) progress.damage = 0;
}

/// Makes the tables of the fixed codes.
CUZARR_DEVICE void deflate_fixed(DeflateShared& shared, u32 lane) {
    DeflateBuilding& building = *(DeflateBuilding*)shared.matches;
    for (u32 symbol = lane; symbol < CUZARR_DEFLATE_LITERALS; symbol += CUZARR_WARP) {
        building.lengths[symbol] = symbol < 144 ? 8 : symbol < 256 ? 9 : symbol < 280 ? 7 : 8;
    }
    building.lengths[CUZARR_DEFLATE_LITERALS + lane] = 5;
    warp_barrier(CUZARR_ALL_LANES);
    deflate_table(building, building.lengths, CUZARR_DEFLATE_LITERALS, CUZARR_DEFLATE_LITERAL_BITS, shared.literals,
                  CUZARR_DEFLATE_LITERAL_ENTRIES, lane);
    deflate_table(building, building.lengths + CUZARR_DEFLATE_LITERALS, CUZARR_DEFLATE_DISTANCES,
                  CUZARR_DEFLATE_DISTANCE_BITS, shared.distances, CUZARR_DEFLATE_DISTANCE_ENTRIES, lane);
}

/// Reads the codes of a dynamic block, behind its three first bits, and makes their tables.
CUZARR_DEVICE void deflate_dynamic(
    DeflateShared& shared, const DeflateInput& input, DeflateProgress& progress, u32 lane
) {
    DeflateBuilding& building = *(DeflateBuilding*)shared.matches;
    u32 head = deflate_peek(deflate_seek(input, progress.position));
    u32 literals = 257 + (head & 31), distances = 1 + (head >> 5 & 31), lengths = 4 + (head >> 10 & 15);
    progress.damage = CUZARR_BAD_CODE;
    if (literals > 286 || distances > 30) return;
    if (lane < 24) building.lengths[lane] = 0;
    warp_barrier(CUZARR_ALL_LANES);
    if (lane < lengths) {
        // 16 17 18 0, then 8 7 9 6 and so on.
        u32 symbol = lane < 3 ? 16 + lane : lane == 3 ? 0 : lane % 2 ? 7 - (lane - 5) / 2 : 8 + (lane - 4) / 2;
        building.lengths[symbol] = (u8)(deflate_peek(deflate_seek(input, progress.position + 14 + 3 * lane)) & 7);
    }
    warp_barrier(CUZARR_ALL_LANES);
    // The table of this code is in the place of the distances', which come last.
    if (!deflate_table(building, building.lengths, 24, 7, shared.distances, CUZARR_DEFLATE_DISTANCE_ENTRIES, lane)) return;
    DeflateBits bits = deflate_seek(input, progress.position + 14 + 3 * lengths);
    u32 last = 0, count = literals + distances;
    for (u32 at = 0; at < count;) {
        u32 window = deflate_peek(bits), entry = shared.distances[window & 127], used = entry & 15, symbol = entry >> 4;
        progress.position = bits.position;
        if (symbol > 18 || bits.position >= input.end) return;
        u32 repeats = 1, value = symbol;
        if (symbol >= 16) {
            u32 extra = symbol == 16 ? 2 : symbol == 17 ? 3 : 7;
            repeats = (symbol == 18 ? 11 : 3) + (window >> used & ((1u << extra) - 1));
            value = symbol == 16 ? last : 0;
            if ((symbol == 16 && at == 0) || repeats > count - at) return;
            used += extra;
        }
        for (u32 i = lane; i < repeats; i += CUZARR_WARP) building.sequence[at + i] = (u8)value;
        last = value, at += repeats;
        deflate_skip(input, bits, used);
    }
    warp_barrier(CUZARR_ALL_LANES);
    if (building.sequence[256] == 0) return;
    for (u32 symbol = lane; symbol < CUZARR_DEFLATE_LITERALS; symbol += CUZARR_WARP) {
        building.lengths[symbol] = symbol < literals ? building.sequence[symbol] : 0;
    }
    building.lengths[CUZARR_DEFLATE_LITERALS + lane] = lane < distances ? building.sequence[literals + lane] : 0;
    warp_barrier(CUZARR_ALL_LANES);
    bool code = deflate_table(building, building.lengths, CUZARR_DEFLATE_LITERALS, CUZARR_DEFLATE_LITERAL_BITS,
                              shared.literals, CUZARR_DEFLATE_LITERAL_ENTRIES, lane);
    code = code && deflate_table(building, building.lengths + CUZARR_DEFLATE_LITERALS, CUZARR_DEFLATE_DISTANCES,
                                 CUZARR_DEFLATE_DISTANCE_BITS, shared.distances, CUZARR_DEFLATE_DISTANCE_ENTRIES, lane);
    if (!code) return;
    progress.position = bits.position;
    progress.damage = bits.position > input.end ? CUZARR_CUT_OFF : 0;
}

/// A stored block, behind its three first bits.
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

/// Decodes the block that begins at the position. Returns whether it is the stream's last.
template <class Target>
CUZARR_DEVICE bool deflate_block(
    DeflateShared& shared, const DeflateInput& input, const Target& target, bool emit, u32 floor, u32 limit,
    DeflateProgress& progress, u32 lane
) {
    if (progress.position + 3 > input.end) {
        progress.damage = CUZARR_CUT_OFF;
        return true;
    }
    u32 head = deflate_peek(deflate_seek(input, progress.position)), kind = head >> 1 & 3;
    if (kind == 3) {
        progress.damage = CUZARR_BAD_BLOCK;
        return true;
    }
    progress.position += 3;
    // What the last block left in shared memory has been read.
    warp_barrier(CUZARR_ALL_LANES);
    if (kind == 0) {
        deflate_stored(input, target, emit, limit, progress, lane);
    } else {
        if (kind == 1) deflate_fixed(shared, lane);
        else deflate_dynamic(shared, input, progress, lane);
        deflate_symbols(shared, input, target, emit, floor, limit, progress, lane);
    }
    return head & 1;
}
