// The target of a deflate stream's bytes, and the copying of matches in it by one warp.
#pragma once
#include "codec/deflate/deflate_tables.cuh"
#include "cuzarr/warp.cuh"

/// Number of elements that are copied at a time: most matches are no longer.
#define CUZARR_DEFLATE_ELEMENTS 8u
/// Maximum distance of a match.
#define CUZARR_DEFLATE_WINDOW 32768u

/// Up to eight elements that were loaded together.
template <u32 kWords>
struct DeflateEight {
    u32 words[kWords];
};

/// Loads words from any address, by the aligned ones that hold them: touches up to 3 bytes before and behind.
template <u32 kWords>
CUZARR_DEVICE DeflateEight<kWords> deflate_load(const u8* from) {
    u32 skew = (u32)((u64)from & 3);
    const u32* aligned = (const u32*)(from - skew);
    u32 words[kWords + 1];
#pragma unroll
    for (u32 i = 0; i <= kWords; ++i) words[i] = aligned[i];
    DeflateEight<kWords> eight;
#pragma unroll
    for (u32 i = 0; i < kWords; ++i) eight.words[i] = funnel_shift_right(words[i], words[i + 1], skew * 8);
    return eight;
}

/// A target of `size` bytes in their final place.
struct DeflateBytes {
    typedef u8 Element;
    typedef DeflateEight<2> Eight;
    u8* bytes;
    u32 size;
    CUZARR_DEVICE Element load(u32 at) const { return bytes[at]; }
    CUZARR_DEVICE void store(u32 at, Element element) const { bytes[at] = element; }
    /// Whether eight elements can be loaded together: all bytes that are touched must exist.
    CUZARR_DEVICE bool joined(u32 from) const { return from + 12 <= size; }
    CUZARR_DEVICE Eight load_eight(u32 from) const { return deflate_load<2>(bytes + from); }
    CUZARR_DEVICE void store_eight(u32 at, const Eight& eight, u32 count) const {
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            if (i < count) bytes[at + i] = (u8)(eight.words[i / 4] >> i % 4 * 8);
        }
    }
    /// Repeats the first `period` elements.
    CUZARR_DEVICE static Eight repeat(const Eight& eight, u32 period) {
        u64 all = (u64)eight.words[1] << 32 | eight.words[0];
        all &= ~0ull >> (64 - 8 * period);
        for (u32 bits = 8 * period; bits < 64; bits *= 2) all |= all << bits;
        return {{(u32)all, (u32)(all >> 32)}};
    }
};

/// One match of the queue. Its length is 0 if there is none.
struct DeflateMatch {
    u32 at, length, distance;
};

CUZARR_DEVICE u64 deflate_pack(u32 place, u32 length, u32 distance) {
    return (u64)(distance << 9 | length) << 32 | place;
}

CUZARR_DEVICE DeflateMatch deflate_unpack(u64 packed, u32 round) {
    DeflateMatch match = {round + (u32)packed, (u32)(packed >> 32) & 511, (u32)(packed >> 41)};
    return match;
}

/// Copies one match by one lane, eight elements at a time.
template <class Target>
CUZARR_DEVICE void deflate_copy(const Target& target, const DeflateMatch& match) {
    // Elements that repeat with a period also repeat with every multiple of it. From the second eight on, a multiple of
    // at least eight is used.
    u32 far = match.distance;
    while (far < CUZARR_DEFLATE_ELEMENTS) far += match.distance;
    for (u32 done = 0; done < match.length; done += CUZARR_DEFLATE_ELEMENTS) {
        u32 from = match.at + done - (done ? far : match.distance), at = match.at + done;
        u32 count = min_of(match.length - done, CUZARR_DEFLATE_ELEMENTS);
        if (target.joined(from)) {
            typename Target::Eight eight = target.load_eight(from);
            if (done == 0 && match.distance < count) eight = Target::repeat(eight, match.distance);
            target.store_eight(at, eight, count);
        } else {
            for (u32 i = 0; i < count; ++i) target.store(at + i, target.load(from + i));
        }
    }
}

/// Copies a long match by all lanes.
template <class Target>
CUZARR_DEVICE void deflate_copy_long(const Target& target, const DeflateMatch& match, u32 owner, u32 lane) {
    u32 to = warp_shuffle(CUZARR_ALL_LANES, match.at, owner), length = warp_shuffle(CUZARR_ALL_LANES, match.length, owner);
    u32 back = warp_shuffle(CUZARR_ALL_LANES, match.distance, owner), place = lane % back, step = CUZARR_WARP % back;
    for (u32 i = lane; i < length; i += CUZARR_WARP) {
        target.store(to + i, target.load(to - back + place));
        place += step;
        if (place >= back) place -= back;
    }
}

/// Moves the queue's matches to its front, and returns their number.
CUZARR_DEVICE u32 deflate_compact(u64* queue, u32 count, u32 lane) {
    u32 kept = 0;
    for (u32 first = 0; first < count; first += CUZARR_WARP) {
        u64 match = first + lane < count ? queue[first + lane] : 0;
        u32 there = warp_ballot(CUZARR_ALL_LANES, match != 0);
        // Every lane has read its place before another one takes it.
        warp_barrier(CUZARR_ALL_LANES);
        if (match) queue[kept + votes_below(there, lane)] = match;
        kept += count_ones(there);
    }
    warp_barrier(CUZARR_ALL_LANES);
    return kept;
}

/// Copies the queue's matches, whose places count from `round`. All other bytes are in their places already.
///
/// Copies the matches of a batch in rounds. Each round copies the first match that is left, and all matches that read
/// only bytes before it. One lane copies a short match, and all lanes copy a long one.
template <class Target>
CUZARR_DEVICE void deflate_copy_all(u64* queue, u32 count, const Target& target, u32 round, u32 lane) {
    count = deflate_compact(queue, count, lane);
    for (u32 first = 0; first < count; first += CUZARR_WARP) {
        DeflateMatch match = deflate_unpack(first + lane < count ? queue[first + lane] : 0, round);
        // Where the bytes that the match needs end. If it overlaps itself, it needs only those before it.
        u32 needed = match.at - match.distance + min_of(match.length, match.distance);
        u32 pending = warp_ballot(CUZARR_ALL_LANES, match.length > 0);
        while (pending) {
            u32 leader = count_trailing_zeros(pending), final = warp_shuffle(CUZARR_ALL_LANES, match.at, leader);
            bool ready = (pending >> lane & 1) && (lane == leader || needed <= final);
            if (ready && match.length <= CUZARR_WARP) deflate_copy(target, match);
            u32 readies = warp_ballot(CUZARR_ALL_LANES, ready);
            u32 long_ones = warp_ballot(CUZARR_ALL_LANES, ready && match.length > CUZARR_WARP);
            for (; long_ones; long_ones &= long_ones - 1) {
                deflate_copy_long(target, match, count_trailing_zeros(long_ones), lane);
            }
            pending &= ~readies;
            warp_barrier(CUZARR_ALL_LANES);
        }
    }
}
