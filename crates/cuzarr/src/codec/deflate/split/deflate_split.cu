// Large deflate streams, decoded by many warps: see deflate_split.cuh.
//
// Floor on an H200 for one frame of 8 MiB (160 blocks of 50 KB): finding 30 Mbit in 0.1 ms, measuring 21 rounds by 8 warps in
// 0.15 ms, chaining 160 regions in 0.06 ms, emitting in 0.1 ms, 16 groups and 16 windows in 0.1 ms each: 12 GB/s.
#include "codec/deflate/split/deflate_split.cuh"

/// Elements that a thread has on their way at a time: of the window, where a block has all of it, and elsewhere. The host reads
/// the first of two definitions.
#ifndef CUZARR_SIMT
#define CUZARR_DEFLATE_MANY 32u
#else
// 32 threads instead of 1024, as each is a fiber.
#define CUZARR_DEFLATE_MANY 1024u
#endif
#define CUZARR_DEFLATE_FEW 8u
/// Slots ahead of where a frame's regions are followed that are brought near, by four: a line of the cache has five.
#define CUZARR_DEFLATE_ASKED 512u
/// Attempts to fall into step after which a row is what is true of it. Three or four do, but where symbols repeat with a period
/// it may never come to that.
#define CUZARR_DEFLATE_ATTEMPTS 24u
/// Words of a slot.
#define CUZARR_DEFLATE_SLOT_WORDS (CUZARR_DEFLATE_SLOT_BITS / 32)

/// The tables of the fixed codes, where blocks find them later.
CUZARR_DEVICE void deflate_keep_fixed(const DeflateSplit& split) {
    u32* literals = split.tables + CUZARR_DEFLATE_FIXED * CUZARR_DEFLATE_KEPT_WORDS;
    u32* distances = literals + CUZARR_DEFLATE_KEPT_DISTANCES;
    for (u32 i = thread_index(); i < 1u << CUZARR_DEFLATE_LITERAL_BITS; i += thread_count()) literals[i] = deflate_fixed_literal(i);
    for (u32 i = thread_index(); i < 1u << CUZARR_DEFLATE_DISTANCE_BITS; i += thread_count()) distances[i] = deflate_fixed_distance(i);
}

/// Brings the tables that were kept of a block; all threads.
template <u32 kThreads>
CUZARR_DEVICE void deflate_bring_kept(DeflateShared& shared, const DeflateSplit& split, u32 table) {
    const u32* kept = split.tables + (u64)table * CUZARR_DEFLATE_KEPT_WORDS;
#pragma unroll 14
    for (u32 i = thread_index(); i < CUZARR_DEFLATE_LITERAL_ENTRIES; i += kThreads) shared.literals[i] = kept[i];
    kept += CUZARR_DEFLATE_KEPT_DISTANCES;
#pragma unroll 13
    for (u32 i = thread_index(); i < CUZARR_DEFLATE_DISTANCE_ENTRIES; i += kThreads) shared.distances[i] = kept[i];
}

CUZARR_KERNEL(deflate_find, const u8* src, const FrameTable* table, u32 count, u32 slots, DeflateSplit split) {
    CUZARR_SHARED(u8, quarters, 4096);
    for (u32 i = thread_index(); i < 4096; i += thread_count()) quarters[i] = deflate_quarter(i);
    if (block_index() == 0) deflate_keep_fixed(split);
    block_barrier();
    const Frame* frames = frames_of(table);
    u32 lane = thread_index() % CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    for (u32 slot = block_index() * warps + thread_index() / CUZARR_WARP; slot < slots; slot += block_count() * warps) {
        u32 index = frame_of_stream(frames, count, slot);
        const Frame& frame = frames[index];
        u32 number = slot - (u32)frame.first_stream;
        if (number + 1 >= frame.streams) continue;
        DeflateInput input = deflate_input(src + frame.src_offset, frame.src_bytes);
        for (u32 i = lane; i < CUZARR_DEFLATE_SLOT_WORDS; i += CUZARR_WARP) {
            u32 word = number * CUZARR_DEFLATE_SLOT_WORDS + i, w[4];
            if (word > input.whole) continue;
#pragma unroll
            for (u32 k = 0; k < 4; ++k) w[k] = deflate_word(input, word + k);
            u64 x = (u64)w[1] << 32 | w[0];
            // The type is 2; neither of both counts, of five bits, is 30 or 31.
            u64 many_literals = x >> 4 & x >> 5 & x >> 6 & x >> 7, many_distances = x >> 9 & x >> 10 & x >> 11 & x >> 12;
            u32 could = (u32)(~(x >> 1) & x >> 2 & ~many_literals & ~many_distances);
            for (; could; could &= could - 1) {
                u32 bit = count_trailing_zeros(could), position = word * 32 + bit;
                u32 v0 = funnel_shift_right(w[0], w[1], bit), v1 = funnel_shift_right(w[1], w[2], bit), v2 = funnel_shift_right(w[2], w[3], bit);
                if (position < input.begin || !deflate_could_begin(quarters, v0, v1, v2)) continue;
                u32 place = atomic_add(&split.counts->places, 1u);
                DeflatePlaceFound found = {index, position};
                if (place < split.most_places) split.places[place] = found;
            }
        }
    }
}

/// A region begins at `start`. Headers take precedence over places inside blocks, as their numbers are smaller.
CUZARR_DEVICE void deflate_add_region(const DeflateSplit& split, const Frame& frame, u32 start) {
    u32 region = (u32)frame.first_stream + deflate_slot(start), before = atomic_min(&split.regions[region].start, start);
    if (before == CUZARR_DEFLATE_NONE) split.listed[atomic_add(&split.counts->regions, 1u)] = region;
}

CUZARR_KERNEL(deflate_verify, const u8* src, const FrameTable* table, u32 count, u32 slots, DeflateSplit split) {
    const Frame* frames = frames_of(table);
    u32 places = min_of(split.counts->places, split.most_places);
    // Places inside blocks first, which take longer; warps have either kind.
    u32 insides = (slots + split.inside_slots - 1) / split.inside_slots, of_warps = (insides + CUZARR_WARP - 1) / CUZARR_WARP * CUZARR_WARP;
    for (u32 i = block_index() * thread_count() + thread_index(); i < of_warps + places; i += block_count() * thread_count()) {
        if (i >= of_warps) {
            DeflatePlaceFound found = split.places[i - of_warps];
            const Frame& frame = frames[found.frame];
            DeflateInput input = deflate_input(src + frame.src_offset, frame.src_bytes);
            if (deflate_begins(input, found.position)) deflate_add_region(split, frame, found.position);
        } else if (i < insides) {
            u32 slot = i * split.inside_slots;
            const Frame& frame = frames[frame_of_stream(frames, count, slot)];
            u32 number = slot - (u32)frame.first_stream;
            if (number + 1 >= frame.streams) continue;
            DeflateInput input = deflate_input(src + frame.src_offset, frame.src_bytes);
            u32 place = deflate_inside(input, number * CUZARR_DEFLATE_SLOT_BITS);
            if (place != CUZARR_DEFLATE_NONE) deflate_add_region(split, frame, place | CUZARR_DEFLATE_INSIDE);
        }
    }
}

/// The first block of each frame, whatever it is.
CUZARR_KERNEL(deflate_begin, const u8* src, const FrameTable* table, u32 count, u32 container, DeflateSplit split) {
    const Frame* frames = frames_of(table);
    u32 lane = thread_index();
    for (u32 index = block_index(); index < count; index += block_count()) {
        const Frame& frame = frames[index];
        DeflatePlace place = {0, 0};
        const u8* encoded = src + frame.src_offset;
        deflate_header(encoded, frame.src_bytes, container, place, lane);
        if (place.damage || lane > 0) continue;
        u32 region = (u32)frame.first_stream + frame.streams - 1;
        split.regions[region].start = deflate_input(encoded, frame.src_bytes).begin + place.at * 8;
        split.listed[atomic_add(&split.counts->regions, 1u)] = region;
    }
}

/// The shared memory of a block of threads that measures; the words of a row of rounds come on top.
template <u32 kWarps>
struct DeflateMeasuring : DeflateShared {
    u32 words[CUZARR_DEFLATE_SEGMENT_WORDS * CUZARR_WARP * kWarps + 4];
    // For each warp: how its last lane ends, lanes that are wrong or ended, the last lane whose matches the queue holds, sums.
    u32 exits[kWarps], states[kWarps], wrong[kWarps], ended[kWarps], queued[kWarps], bytes[kWarps];
    u32 numbers[2];  // of entries and rounds that were taken
    u32 table;
    u32 counted;     // bytes of the region that were counted
    DeflateBlock block;
    DeflateProgress progress;
};

/// Opens the block at the position, for all threads of the block, or goes on inside one of the fixed codes; keeps its tables.
template <u32 kWarps>
CUZARR_DEVICE DeflateBlock deflate_open_shared(
    DeflateMeasuring<kWarps>& shared, const DeflateInput& input, const DeflateSplit& split, bool inside,
    DeflateProgress& progress, u32& table
) {
    u32 thread = thread_index();
    // Shared memory has been read.
    block_barrier();
    if (inside) {
        deflate_bring_kept<kWarps * CUZARR_WARP>(shared, split, CUZARR_DEFLATE_FIXED);
        if (thread == 0) shared.block = {1, false}, shared.progress = progress, shared.table = CUZARR_DEFLATE_FIXED;
    } else if (thread < CUZARR_WARP) {
        DeflateProgress first = progress;
        DeflateBlock block = deflate_open(shared, input, first, thread);
        if (thread == 0) {
            shared.block = block, shared.progress = first, shared.table = CUZARR_DEFLATE_NONE;
            if (block.kind == 1) shared.table = CUZARR_DEFLATE_FIXED;
            else if (block.kind == 2 && first.damage == 0) shared.table = 1 + atomic_add(&split.counts->tables, 1u);
        }
    }
    block_barrier();
    progress = shared.progress;
    table = shared.table < split.most_tables ? shared.table : CUZARR_DEFLATE_NONE;
    if (table != CUZARR_DEFLATE_NONE && table != CUZARR_DEFLATE_FIXED) {
        u32* kept = split.tables + (u64)table * CUZARR_DEFLATE_KEPT_WORDS;
        for (u32 i = thread; i < CUZARR_DEFLATE_LITERAL_ENTRIES; i += thread_count()) kept[i] = shared.literals[i];
        u32* distances = kept + CUZARR_DEFLATE_KEPT_DISTANCES;
        for (u32 i = thread; i < CUZARR_DEFLATE_DISTANCE_ENTRIES; i += thread_count()) distances[i] = shared.distances[i];
        if (thread == 0) kept[CUZARR_DEFLATE_KEPT_WORDS - 1] = progress.position;
    }
    return shared.block;
}

/// A row of rounds, one for each warp.
struct DeflateRow {
    DeflateSegment segment;  // the thread's; nothing in threads behind the last
    u32 last;                // thread that counts
};

/// The lowest thread whose bit is set, 32 a word.
template <u32 kWarps>
CUZARR_DEVICE u32 deflate_first(const u32* votes) {
    u32 first = CUZARR_DEFLATE_NONE;
#pragma unroll
    for (u32 i = kWarps; i-- > 0;) first = votes[i] ? i * CUZARR_WARP + count_trailing_zeros(votes[i]) : first;
    return first;
}

/// Finds where each thread's segment begins, and what it makes; all threads. No symbol begins at `stop` or behind.
template <u32 kWarps>
CUZARR_DEVICE DeflateRow deflate_measure_row(
    DeflateMeasuring<kWarps>& shared, const DeflateInput& input, u32 position, u32 stop
) {
    u32 thread = thread_index(), lane = thread % CUZARR_WARP, warp = thread / CUZARR_WARP;
    u32 begin = position + thread * CUZARR_DEFLATE_SEGMENT_BITS, origin = position / 32 * 32;
    const u32 words = CUZARR_DEFLATE_SEGMENT_WORDS * CUZARR_WARP * kWarps + 4;
#pragma unroll
    for (u32 i = 0; i < words; i += kWarps * CUZARR_WARP) {
        if (i + thread < words) shared.words[i + thread] = deflate_word(input, origin / 32 + i + thread);
    }
    block_barrier();
    DeflateSegment mark = {0, 0, CUZARR_DEFLATE_ENDED, 0, 0};
    DeflateRow row = {{begin, 0, 0, 0, 0}, 0};
    u32 most = min_of((stop - position - 1) / CUZARR_DEFLATE_SEGMENT_BITS, thread_count() - 1);
    bool wanted = thread <= most;
    for (u32 attempt = 0;; ++attempt) {
        deflate_count(shared, input, origin, begin, wanted, row.segment, mark, stop);
        u32 exit = warp_shuffle_up(CUZARR_ALL_LANES, row.segment.exit, 1u);
        u32 state = warp_shuffle_up(CUZARR_ALL_LANES, row.segment.state, 1u);
        if (lane == CUZARR_WARP - 1) shared.exits[warp] = row.segment.exit, shared.states[warp] = row.segment.state;
        block_barrier();
        if (lane == 0 && warp > 0) exit = shared.exits[warp - 1], state = shared.states[warp - 1];
        wanted = thread > 0 && thread <= most && state == 0 && exit != row.segment.start;
        u32 wrong = warp_ballot(CUZARR_ALL_LANES, wanted), ended = warp_ballot(CUZARR_ALL_LANES, row.segment.state != 0);
        if (lane == 0) shared.wrong[warp] = wrong, shared.ended[warp] = ended;
        block_barrier();
        // Before the first that is wrong, all is true.
        u32 first_wrong = deflate_first<kWarps>(shared.wrong), first_ended = deflate_first<kWarps>(shared.ended);
        row.last = min_of(first_ended, most);
        if (first_wrong == CUZARR_DEFLATE_NONE || first_ended < first_wrong) break;
        if (attempt == CUZARR_DEFLATE_ATTEMPTS) {
            row.last = min_of(row.last, first_wrong - 1);
            break;
        }
        if (wanted) row.segment.start = exit;
    }
    // The queue of a warp holds only so many.
    u32 matches = inclusive_sum(thread <= row.last ? row.segment.matches : 0, lane);
    u32 too_many = warp_ballot(CUZARR_ALL_LANES, matches > CUZARR_DEFLATE_MATCHES);
    if (lane == 0) {
        shared.queued[warp] = too_many ? warp * CUZARR_WARP + count_trailing_zeros(too_many) - 1 : CUZARR_DEFLATE_NONE;
    }
    block_barrier();
#pragma unroll
    for (u32 i = 0; i < kWarps; ++i) row.last = min_of(row.last, shared.queued[i]);
    if (thread > row.last) row.segment.bytes = row.segment.matches = 0;
    u32 bytes = warp_shuffle(CUZARR_ALL_LANES, inclusive_sum(row.segment.bytes, lane), CUZARR_WARP - 1);
    if (lane == 0) shared.bytes[warp] = bytes;
    if (thread == row.last) shared.progress.position = row.segment.exit, shared.progress.damage = row.segment.state;
    block_barrier();
    return row;
}

/// Writes down `rounds` of a row, and entries for them behind `last`; without a row, one entry. Gives the last entry, none when
/// there is no room.
template <u32 kWarps>
CUZARR_DEVICE u32 deflate_append(
    DeflateMeasuring<kWarps>& shared, const DeflateSplit& split, DeflateEntry entry, const DeflateRow& row, u32 rounds,
    u32 position, u32 stop, u32 last
) {
    u32 thread = thread_index(), lane = thread % CUZARR_WARP, warp = thread / CUZARR_WARP;
    u32 count = max_of(1, (rounds + split.entry_rounds - 1) / split.entry_rounds);
    if (thread == 0) {
        shared.numbers[0] = atomic_add(&split.counts->entries, count);
        shared.numbers[1] = rounds ? atomic_add(&split.counts->rounds, rounds) : 0;
    }
    block_barrier();
    u32 first_entry = shared.numbers[0], first_round = shared.numbers[1];
    bool room = first_entry + count <= split.most_entries && first_round + rounds <= split.most_rounds;
    if (thread < count && first_entry + thread < split.most_entries) {
        u32 begin = thread * split.entry_rounds;
        for (u32 i = 0; i < begin; ++i) entry.at += shared.bytes[i];
        entry.first_round = rounds ? first_round + begin : CUZARR_DEFLATE_NONE;
        entry.rounds = room ? min_of(split.entry_rounds, rounds - begin) : 0;
        entry.next = thread + 1 < count ? first_entry + thread + 1 : CUZARR_DEFLATE_NONE;
        split.entries[first_entry + thread] = entry;
    }
    if (!room) return CUZARR_DEFLATE_NONE;
    if (thread == 0) {
        if (last == CUZARR_DEFLATE_NONE) split.regions[entry.region].first_entry = first_entry;
        else split.entries[last].next = first_entry;
    }
    if (warp < rounds) {
        u32 begin = position + thread * CUZARR_DEFLATE_SEGMENT_BITS;
        const DeflateSegment& segment = row.segment;
        u32 packed = (segment.start - begin) | segment.bytes << 6 | segment.matches << 22 | 0x80000000u;
        split.rounds[first_round + warp].segments[lane] = thread <= row.last ? packed : 0;
        if (lane == 0) split.rounds[first_round + warp].position = begin, split.rounds[first_round + warp].stop = stop;
    }
    return first_entry + count - 1;
}

/// Counts what was measured of a region, `at` bytes so far. False when that is too much: false regions must not cost more than the true ones.
template <u32 kWarps>
CUZARR_DEVICE bool deflate_spend(DeflateMeasuring<kWarps>& shared, const Frame& frame, DeflateState& state, u32 at) {
    block_barrier();
    if (thread_index() == 0) {
        shared.numbers[0] = atomic_add(&state.measured, (at - shared.counted) / 1024 + 1);
        shared.counted = at;
    }
    block_barrier();
    return shared.numbers[0] <= frame.dst_bytes / 256 + 4096;
}

/// Measures one region.
template <u32 kWarps>
CUZARR_DEVICE void deflate_measure_region(
    DeflateMeasuring<kWarps>& shared, const u8* src, const Frame& frame, DeflateState& state, const DeflateSplit& split,
    u32 region
) {
    DeflateInput input = deflate_input(src + frame.src_offset, frame.src_bytes);
    const u32 none = CUZARR_DEFLATE_NONE;
    DeflateRegion& measured = split.regions[region];
    u32 start = measured.start, last_entry = none, result = CUZARR_DEFLATE_BROKEN;
    DeflateProgress progress = {start & ~CUZARR_DEFLATE_INSIDE, 0, 0};
    DeflateBytes nothing = {0, 0};
    u32 thread = thread_index(), link = 0;
    if (thread == 0) shared.counted = 0;
    for (bool inside = start != progress.position;; inside = false) {
        u32 table;
        DeflateEntry entry = {region, progress.position, none, none, 0, progress.at, none};
        DeflateBlock block = deflate_open_shared(shared, input, split, inside, progress, table);
        if (progress.damage) break;
        if (block.kind == 0) {
            deflate_stored(input, nothing, false, frame.dst_bytes, progress, thread % CUZARR_WARP);
            DeflateRow row = {{0, 0, 0, 0, 0}, 0};
            if (progress.damage == 0) last_entry = deflate_append(shared, split, entry, row, 0, 0, none, last_entry);
        }
        while (block.kind > 0 && progress.damage == 0 && link == 0) {
            u32 stop = block.kind == 1 ? deflate_next_inside(split, frame, progress.position) : none, bytes = 0;
            DeflateRow row = deflate_measure_row(shared, input, progress.position, stop);
            entry.table = table, entry.at = progress.at;
            u32 rounds = row.last / CUZARR_WARP + 1;
            last_entry = deflate_append(shared, split, entry, row, rounds, progress.position, stop, last_entry);
#pragma unroll
            for (u32 i = 0; i < kWarps; ++i) bytes += shared.bytes[i];
            progress.position = shared.progress.position, progress.damage = shared.progress.damage;
            if (last_entry == none || bytes > frame.dst_bytes - progress.at) progress.damage = CUZARR_TOO_LONG;
            else progress.at += bytes;
            // The row's shared memory has been read.
            block_barrier();
            if (progress.position == stop && progress.damage == 0) link = CUZARR_DEFLATE_INSIDE;
            // Arrived behind the place: it was none, and may have led others astray.
            if (progress.position <= stop) continue;
            if (!deflate_spend(shared, frame, state, progress.at)) progress.damage = CUZARR_TOO_LONG;
        }
        if (progress.damage == CUZARR_DEFLATE_ENDED) progress.damage = 0;
        if (progress.damage || last_entry == none) break;
        if (inside && link == 0 && thread == 0) measured.block_end = progress.position, measured.block_bytes = progress.at;
        if (!deflate_spend(shared, frame, state, progress.at)) break;
        if (link) result = CUZARR_DEFLATE_LINKED | (block.last ? CUZARR_DEFLATE_LAST : 0);
        else if (block.last) result = CUZARR_DEFLATE_FINAL;
        else if (deflate_region_at(split, frame, progress.position) != none) result = CUZARR_DEFLATE_LINKED;
        if (result != CUZARR_DEFLATE_BROKEN) break;
    }
    if (thread == 0) {
        measured.end = progress.position | link, measured.bytes = progress.at, measured.state = result;
    }
}

template <u32 kWarps>
CUZARR_DEVICE void deflate_measure_all(const u8* src, const FrameTable* table, u32 count, const DeflateSplit& split) {
    CUZARR_SHARED(DeflateMeasuring<kWarps>, shared, 1);
    CUZARR_SHARED(u32, taken, 1);
    const Frame* frames = frames_of(table);
    for (;;) {
        block_barrier();
        if (thread_index() == 0) *taken = atomic_add(&split.counts->measured, 1u);
        block_barrier();
        u32 number = *taken;
        if (number >= split.counts->regions) return;
        u32 region = split.listed[number], index = frame_of_stream(frames, count, region);
        deflate_measure_region(*shared, src, frames[index], split.states[index], split, region);
    }
}

CUZARR_KERNEL_SIZED(128, 8, deflate_measure_4, const u8* src, const FrameTable* table, u32 count, DeflateSplit split) {
    deflate_measure_all<4>(src, table, count, split);
}

CUZARR_KERNEL_SIZED(256, 4, deflate_measure_8, const u8* src, const FrameTable* table, u32 count, DeflateSplit split) {
    deflate_measure_all<8>(src, table, count, split);
}

CUZARR_KERNEL(
    deflate_chain, const u8* src, const FrameTable* table, u32 count, u32 container, DeflateSplit split,
    DeflateTrailer* trailers
) {
    const Frame* frames = frames_of(table);
    u32 lane = thread_index();
    for (u32 index = block_index(); index < count; index += block_count()) {
        const Frame& frame = frames[index];
        u32 region = (u32)frame.first_stream + frame.streams - 1, at = 0, groups = 0, group_at = 0, end = 0, asked = 0;
        bool final = false, last = false;
        for (; region != CUZARR_DEFLATE_NONE && !final; region = deflate_region_at(split, frame, end)) {
            // Who comes next is not known yet, but about where.
            for (; asked < deflate_slot(end) + CUZARR_DEFLATE_ASKED && asked < frame.streams; asked += 4 * CUZARR_WARP) {
                u32 slot = asked + 4 * lane;
                if (slot < frame.streams) prefetch(split.regions + frame.first_stream + slot);
            }
            DeflateRegion measured = split.regions[region];
            // It began inside a block, which only those before it know to be the stream's last.
            bool inside = measured.start & CUZARR_DEFLATE_INSIDE, ends = measured.block_end != CUZARR_DEFLATE_NONE;
            if (inside && ends && last) {
                measured.end = measured.block_end, measured.bytes = measured.block_bytes, measured.state = CUZARR_DEFLATE_FINAL;
                if (lane == 0) split.regions[region] = measured;
            }
            end = measured.end;
            u32 how = measured.state & CUZARR_DEFLATE_HOW;
            if (how != CUZARR_DEFLATE_LINKED && how != CUZARR_DEFLATE_FINAL) break;
            if (!inside || ends) last = measured.state & CUZARR_DEFLATE_LAST;
            if (measured.bytes > frame.dst_bytes - at) break;
            if (groups == 0 || at - group_at >= split.group_bytes) {
                group_at = at;
                DeflateGroup group = {region, at};
                if (lane == 0) split.groups[frame.block_bytes + groups] = group;
                ++groups;
            }
            if (lane == 0) split.regions[region].at = at;
            at += measured.bytes;
            final = how == CUZARR_DEFLATE_FINAL;
            if (final) break;
        }
        if (!final || at != frame.dst_bytes) continue;
        const u8* encoded = src + frame.src_offset;
        DeflatePlace place = {(end - deflate_input(encoded, frame.src_bytes).begin + 7) / 8, 0};
        DeflateTrailer trailer = deflate_trailer(encoded, frame.src_bytes, container, 0, at, place);
        if (place.damage) continue;
        u32 rest = place.at;
        if (container == CUZARR_DEFLATE_GZIP) rest = deflate_pass_zeros(encoded, frame.src_bytes, rest, lane);
        if (container == CUZARR_DEFLATE_GZIP && rest != frame.src_bytes) continue;
        if (lane == 0) {
            trailers[index] = trailer;
            split.states[index].groups = groups;
            split.states[index].split = 1;
        }
    }
}

/// Brings the tables that were kept of a block, or makes them again. False when that does not succeed.
CUZARR_DEVICE bool deflate_bring(
    DeflateShared& shared, const DeflateInput& input, const DeflateSplit& split, const DeflateEntry& entry, u32 lane
) {
    if (entry.table == CUZARR_DEFLATE_NONE) {
        DeflateProgress progress = {entry.header, 0, 0};
        deflate_open(shared, input, progress, lane);
        return progress.damage == 0;
    }
    deflate_bring_kept<CUZARR_WARP>(shared, split, entry.table);
    warp_barrier(CUZARR_ALL_LANES);
    return true;
}

/// The elements of an entry's rounds, from `at` on. False for a match before the stream's first byte.
CUZARR_DEVICE bool deflate_emit_rounds(
    DeflateShared& shared, const DeflateInput& input, const DeflateSplit& split, const DeflateEntry& entry,
    const DeflateMarkers& target, u32 at, u32 lane
) {
    if (!deflate_bring(shared, input, split, entry, lane)) return false;
    for (u32 i = 0; i < entry.rounds; ++i) {
        const DeflateRound& round = split.rounds[entry.first_round + i];
        u32 position = round.position, stop = round.stop, packed = round.segments[lane], origin = position / 32 * 32;
        u32 begin = position + lane * CUZARR_DEFLATE_SEGMENT_BITS;
        DeflateSegment segment = {begin + (packed & 63), 0, 0, packed >> 6 & 0xffff, packed >> 22 & 0xff};
        u32 bytes = warp_shuffle(CUZARR_ALL_LANES, inclusive_sum(segment.bytes, lane), CUZARR_WARP - 1);
        deflate_stage(shared, input, origin, lane);
        u32 end = min_of(begin + CUZARR_DEFLATE_SEGMENT_BITS, stop);
        if (deflate_write(shared, target, origin, end, packed >> 31, at, 0, segment, lane)) return false;
        at += bytes;
        // The words and the queue have been read.
        warp_barrier(CUZARR_ALL_LANES);
    }
    return true;
}

CUZARR_KERNEL(deflate_emit, const u8* src, const FrameTable* table, u32 count, DeflateSplit split) {
    CUZARR_SHARED(DeflateShared, shared, 1);
    u32 lane = thread_index();
    const Frame* frames = frames_of(table);
    for (;;) {
        u32 number = deflate_take(&split.counts->emitted, lane);
        if (number >= min_of(split.counts->entries, split.most_entries)) return;
        DeflateEntry entry = split.entries[number];
        u32 index = frame_of_stream(frames, count, entry.region);
        DeflateRegion region = split.regions[entry.region];
        const Frame& frame = frames[index];
        // Not reached, or behind the stream's end.
        if (split.states[index].split == 0 || region.at == CUZARR_DEFLATE_NONE || entry.at >= region.bytes) continue;
        u32 at = region.at + entry.at;
        DeflateInput input = deflate_input(src + frame.src_offset, frame.src_bytes);
        DeflateMarkers target = {split.elements + frame.work_offset, frame.dst_bytes, at};
        bool intact = true;
        if (entry.first_round == CUZARR_DEFLATE_NONE) {
            DeflateProgress progress = {entry.header + 3, at, 0};
            deflate_stored(input, target, true, frame.dst_bytes, progress, lane);
        } else {
            intact = deflate_emit_rounds(*shared, input, split, entry, target, at, lane);
        }
        // A match before the stream's first byte: decoding in order will say where.
        if (!intact && lane == 0) volatile_store(&split.states[index].split, 0);
        warp_barrier(CUZARR_ALL_LANES);
    }
}

/// Where in its frame a marker's byte comes from.
CUZARR_DEVICE u32 deflate_origin(u32 element, u32 begin) {
    return begin + (element & (CUZARR_DEFLATE_WINDOW - 1)) - CUZARR_DEFLATE_WINDOW;
}
CUZARR_DEVICE bool deflate_unknown(u32 element) { return element & CUZARR_DEFLATE_WINDOW; }

CUZARR_DEVICE u32 deflate_group_end(const DeflateSplit& split, const Frame& frame, const DeflateState& state, u32 group) {
    return group + 1 < state.groups ? split.groups[frame.block_bytes + group + 1].at : frame.dst_bytes;
}

/// Loads the thread's elements of [first, end), one in as many as there are threads; zeros behind the end.
template <u32 kCount>
CUZARR_DEVICE void deflate_elements(const u16* elements, u32 first, u32 end, u32* found) {
#pragma unroll
    for (u32 k = 0; k < kCount; ++k) {
        u32 i = first + k * thread_count();
        found[k] = i < end ? elements[i] : 0;
    }
}

/// Makes markers of elements [begin, end) that refer to what is before them refer to what is before their group. `found` holds
/// the first ones already.
CUZARR_DEVICE void deflate_rebase(u16* elements, u32 group_at, u32 begin, u32 end, u32* found) {
    for (u32 first = begin + thread_index(); first < end; first += thread_count() * CUZARR_DEFLATE_FEW) {
        if (first >= begin + thread_count()) deflate_elements<CUZARR_DEFLATE_FEW>(elements, first, end, found);
        // Loads without branches, so that all are on their way at once.
#pragma unroll
        for (u32 k = 0; k < CUZARR_DEFLATE_FEW; ++k) {
            u32 origin = deflate_origin(found[k], begin);
            // Elements behind the end are others', and count from elsewhere.
            bool inside = first + k * thread_count() < end && deflate_unknown(found[k]) && origin >= group_at;
            u32 element = elements[inside ? origin : first];
            u32 outside = origin + 2 * CUZARR_DEFLATE_WINDOW - group_at;
            found[k] = inside ? element : deflate_unknown(found[k]) ? outside : found[k];
        }
#pragma unroll
        for (u32 k = 0; k < CUZARR_DEFLATE_FEW; ++k) {
            u32 i = first + k * thread_count();
            if (i < end) elements[i] = (u16)found[k];
        }
    }
}

CUZARR_WIDE_KERNEL(deflate_group, const FrameTable* table, u32 count, DeflateSplit split) {
    const Frame* frames = frames_of(table);
    for (u32 number = block_index(); number < split.group_count; number += block_count()) {
        DeflateGroup group = split.groups[number];
        if (group.first_region == CUZARR_DEFLATE_NONE) continue;
        u32 index = frame_of_stream(frames, count, group.first_region);
        const Frame& frame = frames[index];
        if (split.states[index].split == 0) continue;
        u16* elements = split.elements + frame.work_offset;
        u32 group_end = deflate_group_end(split, frame, split.states[index], number - frame.block_bytes);
        u32 region = group.first_region, found[CUZARR_DEFLATE_FEW];
        deflate_elements<CUZARR_DEFLATE_FEW>(elements, group.at + thread_index(), group_end, found);
        while (region != CUZARR_DEFLATE_NONE) {
            DeflateRegion measured = split.regions[region];
            if (measured.at >= group_end) break;
            DeflateEntry entry = split.entries[measured.first_entry], next = entry, after;
            if (entry.next != CUZARR_DEFLATE_NONE) next = split.entries[entry.next];
            for (bool more = true; more; entry = next, next = after) {
                more = entry.next != CUZARR_DEFLATE_NONE && next.at < measured.bytes;
                after = next;
                if (more && next.next != CUZARR_DEFLATE_NONE) after = split.entries[next.next];
                u32 begin = measured.at + entry.at, end = measured.at + (more ? next.at : measured.bytes);
                deflate_rebase(elements, group.at, begin, end, found);
                // The next ones are on their way while others finish.
                deflate_elements<CUZARR_DEFLATE_FEW>(elements, end + thread_index(), group_end, found);
                block_barrier();
            }
            region = measured.state == CUZARR_DEFLATE_FINAL ? CUZARR_DEFLATE_NONE
                                                            : deflate_region_at(split, frame, measured.end);
        }
    }
}

/// Where the part of a group begins that later ones may refer to.
CUZARR_DEVICE u32 deflate_window_begin(u32 group_at, u32 group_end) {
    return group_end - min_of(group_end - group_at, CUZARR_DEFLATE_WINDOW);
}

/// The last 32 KiB of every group but the last, in order: what one refers to is in shared memory, a byte at its place modulo
/// 32 KiB. A block for each frame, whose threads have a window together.
CUZARR_WIDE_KERNEL(deflate_window, u8* dst, const FrameTable* table, u32 count, DeflateSplit split) {
    CUZARR_SHARED(u8, window, CUZARR_DEFLATE_WINDOW);
    const u32 mask = CUZARR_DEFLATE_WINDOW - 1;
    const Frame* frames = frames_of(table);
    for (u32 index = block_index(); index < count; index += block_count()) {
        const Frame& frame = frames[index];
        DeflateState state = split.states[index];
        if (state.split == 0) continue;
        const u16* elements = split.elements + frame.work_offset;
        u8* bytes = dst + frame.dst_offset;
        u32 at = 0, end = deflate_group_end(split, frame, state, 0), found[CUZARR_DEFLATE_FEW];
        deflate_elements<CUZARR_DEFLATE_FEW>(elements, deflate_window_begin(at, end) + thread_index(), end, found);
        for (u32 group = 0; group + 1 < state.groups; ++group) {
            u32 next_end = deflate_group_end(split, frame, state, group + 1);
            u32 first = deflate_window_begin(at, end) + thread_index(), packed[CUZARR_DEFLATE_MANY / 4];
#pragma unroll
            for (u32 done = 0; done < CUZARR_DEFLATE_MANY; done += CUZARR_DEFLATE_FEW) {
                u32 from = first + done * thread_count(), next[CUZARR_DEFLATE_FEW];
                // The next elements are on their way: the last ones are the first of the next group.
                bool last = done + CUZARR_DEFLATE_FEW == CUZARR_DEFLATE_MANY;
                u32 next_first = last ? deflate_window_begin(end, next_end) + thread_index() : from + CUZARR_DEFLATE_FEW * thread_count();
                deflate_elements<CUZARR_DEFLATE_FEW>(elements, next_first, last ? next_end : end, next);
#pragma unroll
                for (u32 k = 0; k < CUZARR_DEFLATE_FEW; ++k) {
                    u32 i = from + k * thread_count(), known = window[deflate_origin(found[k], at) & mask];
                    u32 byte = (deflate_unknown(found[k]) ? known : found[k]) & 255, shift = k % 4 * 8;
                    u32& four = packed[(done + k) / 4];
                    four = k % 4 ? four | byte << shift : byte;
                    if (i < end) bytes[i] = (u8)byte;
                    found[k] = next[k];
                }
            }
            // All have been looked up.
            block_barrier();
#pragma unroll
            for (u32 k = 0; k < CUZARR_DEFLATE_MANY; ++k) {
                u32 i = first + k * thread_count();
                if (i < end) window[i & mask] = (u8)(packed[k / 4] >> k % 4 * 8);
            }
            block_barrier();
            at = end, end = next_end;
        }
        block_barrier();
    }
}

/// Elements [begin, end) of a group to bytes.
CUZARR_DEVICE void deflate_resolve(const u16* elements, u8* bytes, u32 group_at, u32 begin, u32 end) {
    for (u32 first = begin + thread_index(); first < end; first += thread_count() * CUZARR_DEFLATE_FEW) {
        u32 found[CUZARR_DEFLATE_FEW];
        deflate_elements<CUZARR_DEFLATE_FEW>(elements, first, end, found);
#pragma unroll
        for (u32 k = 0; k < CUZARR_DEFLATE_FEW; ++k) {
            bool unknown = deflate_unknown(found[k]);
            u32 byte = bytes[unknown ? deflate_origin(found[k], group_at) : first];
            found[k] = unknown ? byte : found[k];
        }
#pragma unroll
        for (u32 k = 0; k < CUZARR_DEFLATE_FEW; ++k) {
            u32 i = first + k * thread_count();
            if (i < end) bytes[i] = (u8)found[k];
        }
    }
}

CUZARR_KERNEL(deflate_finish, u8* dst, const FrameTable* table, u32 count, u32 tiles, DeflateSplit split) {
    const Frame* frames = frames_of(table);
    for (u32 tile = block_index(); tile < tiles; tile += block_count()) {
        u32 index = frame_of_tile(frames, count, tile);
        const Frame& frame = frames[index];
        DeflateState state = split.states[index];
        if (state.split == 0) continue;
        u32 begin = (tile - frame.first_tile) * CUZARR_DEFLATE_TILE, end = min_of(begin + CUZARR_DEFLATE_TILE, frame.dst_bytes);
        // The last group that begins at or before the tile.
        u32 first = last_from(state.groups, begin, [&](u32 group) { return split.groups[frame.block_bytes + group].at; });
        for (u32 group = first; group < state.groups && begin < end; ++group) {
            u32 at = split.groups[frame.block_bytes + group].at, group_end = deflate_group_end(split, frame, state, group);
            u32 stop = min_of(end, group_end);
            // No other group refers to the last one.
            u32 window = group + 1 < state.groups ? deflate_window_begin(at, group_end) : group_end;
            deflate_resolve(split.elements + frame.work_offset, dst + frame.dst_offset, at, begin, min_of(stop, window));
            begin = max_of(begin, stop);
        }
    }
}
