// Large deflate streams, decoded by many warps: see deflate_split.cuh.
//
// Floor on an H200 for one frame of 8 MiB (160 blocks of 50 KB): finding 30 Mbit in 0.1 ms, measuring 21 rounds by 8 warps in
// 0.15 ms, chaining 160 regions in 0.06 ms, emitting in 0.05 ms, and copying in 0.3 ms: 12 GB/s.
#include "codec/deflate/split/deflate_split.cuh"

/// Number of slots, ahead of where a frame's regions are followed, that are prefetched. A cache line holds
/// CUZARR_DEFLATE_ASKED_TOGETHER of them.
#define CUZARR_DEFLATE_ASKED 512u
#define CUZARR_DEFLATE_ASKED_TOGETHER 3u
/// Number of attempts to fall into step, after which only the right part of a row counts. Three or four are enough, but
/// where symbols repeat with a period, a decoder may never fall into step.
#define CUZARR_DEFLATE_ATTEMPTS 24u
/// Words of a slot.
#define CUZARR_DEFLATE_SLOT_WORDS (CUZARR_DEFLATE_SLOT_BITS / 32)

/// Stores the tables of the fixed codes, where blocks find them later.
CUZARR_DEVICE void deflate_keep_fixed(const DeflateSplit& split) {
    u32* literals = split.tables + CUZARR_DEFLATE_FIXED * CUZARR_DEFLATE_KEPT_WORDS;
    u32* distances = literals + CUZARR_DEFLATE_KEPT_DISTANCES;
    for (u32 i = thread_index(); i < 1u << CUZARR_DEFLATE_LITERAL_BITS; i += thread_count()) literals[i] = deflate_fixed_literal(i);
    for (u32 i = thread_index(); i < 1u << CUZARR_DEFLATE_DISTANCE_BITS; i += thread_count()) distances[i] = deflate_fixed_distance(i);
}

/// Loads the tables that were kept for a block, by all threads.
template <u32 kThreads>
CUZARR_DEVICE void deflate_bring_kept(DeflateCodes& shared, const DeflateSplit& split, u32 table) {
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
            // The type is 2; neither of the two counts, of five bits each, is 30 or 31.
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

/// Adds a region that begins at `start`. Headers take precedence over places inside blocks, because their numbers are
/// smaller.
CUZARR_DEVICE void deflate_add_region(const DeflateSplit& split, const Frame& frame, u32 start) {
    u32 region = (u32)frame.first_stream + deflate_slot(start), before = atomic_min(&split.regions[region].start, start);
    if (before == CUZARR_DEFLATE_NONE) split.listed[atomic_add(&split.counts->regions, 1u)] = region;
}

CUZARR_KERNEL(deflate_verify, const u8* src, const FrameTable* table, u32 count, u32 slots, DeflateSplit split) {
    const Frame* frames = frames_of(table);
    u32 places = min_of(split.counts->places, split.most_places);
    // Places inside blocks come first, because they take longer. A warp has only one kind.
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

/// Adds the first block of each frame as a region, whatever its kind.
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

/// Shared memory of a block of threads that only reads symbols: codes, and memory to make their tables in.
struct DeflateReading : DeflateCodes {
    DeflateBuilding made;
    CUZARR_DEVICE DeflateBuilding& building() { return made; }
};

/// The shared memory of a block of threads that measures, with the words of a row of rounds.
template <u32 kWarps>
struct DeflateMeasuring : DeflateReading {
    u32 words[CUZARR_DEFLATE_SEGMENT_WORDS * CUZARR_WARP * kWarps + 4];
    // For each warp: how its last lane ends, lanes that are wrong or ended, sums.
    u32 exits[kWarps], states[kWarps], wrong[kWarps], ended[kWarps], bytes[kWarps], matches[kWarps];
    u32 numbers[2];  // of entries and rounds that were taken
    u32 table;
    u32 counted;     // bytes of the region that were counted
    DeflateBlock block;
    DeflateProgress progress;
};

/// Opens the block at the position, or goes on inside one of the fixed codes, for all threads. Keeps the block's
/// tables.
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

/// Returns the lowest thread whose bit is set; each word has 32 bits.
template <u32 kWarps>
CUZARR_DEVICE u32 deflate_first(const u32* votes) {
    u32 first = CUZARR_DEFLATE_NONE;
#pragma unroll
    for (u32 i = kWarps; i-- > 0;) first = votes[i] ? i * CUZARR_WARP + count_trailing_zeros(votes[i]) : first;
    return first;
}

/// Finds where each thread's segment begins, and counts its bytes and matches, by all threads. No symbol begins at or
/// behind `stop`.
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
        // Threads before the first wrong one are right.
        u32 first_wrong = deflate_first<kWarps>(shared.wrong), first_ended = deflate_first<kWarps>(shared.ended);
        row.last = min_of(first_ended, most);
        if (first_wrong == CUZARR_DEFLATE_NONE || first_ended < first_wrong) break;
        if (attempt == CUZARR_DEFLATE_ATTEMPTS) {
            row.last = min_of(row.last, first_wrong - 1);
            break;
        }
        if (wanted) row.segment.start = exit;
    }
    if (thread > row.last) row.segment.bytes = row.segment.matches = 0;
    u32 bytes = inclusive_sum(row.segment.bytes, lane), matches = inclusive_sum(row.segment.matches, lane);
    if (lane == CUZARR_WARP - 1) shared.bytes[warp] = bytes, shared.matches[warp] = matches;
    if (thread == row.last) shared.progress.position = row.segment.exit, shared.progress.damage = row.segment.state;
    block_barrier();
    return row;
}

/// Number of entries for `rounds` rounds; 1 for a stored block, which has none.
CUZARR_DEVICE u32 deflate_entries(const DeflateSplit& split, u32 rounds) {
    return max_of(1, (rounds + split.entry_rounds - 1) / split.entry_rounds);
}

/// Stores `rounds` of a row, and entries for them; without a row, one entry. Returns false if there is no room.
template <u32 kWarps>
CUZARR_DEVICE bool deflate_append(
    DeflateMeasuring<kWarps>& shared, const DeflateSplit& split, DeflateEntry entry, const DeflateRow& row, u32 rounds,
    u32 position, u32 stop
) {
    u32 thread = thread_index(), lane = thread % CUZARR_WARP, warp = thread / CUZARR_WARP, count = deflate_entries(split, rounds);
    if (thread == 0) {
        shared.numbers[0] = atomic_add(&split.counts->entries, count);
        shared.numbers[1] = rounds ? atomic_add(&split.counts->rounds, rounds) : 0;
    }
    block_barrier();
    u32 first_entry = shared.numbers[0], first_round = shared.numbers[1];
    bool room = first_entry + count <= split.most_entries && first_round + rounds <= split.most_rounds;
    if (thread < count && first_entry + thread < split.most_entries) {
        u32 begin = thread * split.entry_rounds;
        entry.sequences += thread;
        for (u32 i = 0; i < begin; ++i) entry.at += shared.bytes[i], entry.sequences += shared.matches[i];
        entry.first_round = rounds ? first_round + begin : CUZARR_DEFLATE_NONE;
        entry.rounds = room ? min_of(split.entry_rounds, rounds - begin) : 0;
        split.entries[first_entry + thread] = entry;
    }
    if (room && warp < rounds) {
        u32 begin = position + thread * CUZARR_DEFLATE_SEGMENT_BITS;
        const DeflateSegment& segment = row.segment;
        u32 packed = (segment.start - begin) | segment.bytes << 6 | segment.matches << 22 | 0x80000000u;
        split.rounds[first_round + warp].segments[lane] = thread <= row.last ? packed : 0;
        if (lane == 0) split.rounds[first_round + warp].position = begin, split.rounds[first_round + warp].stop = stop;
    }
    return room;
}

/// Counts the bytes that were measured of a region, `at` so far. Returns false if they are too many: false regions must
/// not cost more than the true ones.
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
    u32 start = measured.start, sequences = 0, result = CUZARR_DEFLATE_BROKEN;
    DeflateProgress progress = {start & ~CUZARR_DEFLATE_INSIDE, 0, 0};
    DeflateBytes nothing = {0, 0};
    u32 thread = thread_index(), link = 0;
    bool room = true;
    if (thread == 0) shared.counted = 0;
    for (bool inside = start != progress.position;; inside = false) {
        u32 table;
        DeflateEntry entry = {region, progress.position, none, none, 0, progress.at, sequences};
        DeflateBlock block = deflate_open_shared(shared, input, split, inside, progress, table);
        if (progress.damage) break;
        if (block.kind == 0) {
            deflate_stored(input, nothing, false, frame.dst_bytes, progress, thread % CUZARR_WARP);
            DeflateRow row = {{0, 0, 0, 0, 0}, 0};
            if (progress.damage == 0) room = deflate_append(shared, split, entry, row, 0, 0, none), sequences += 1;
        }
        while (block.kind > 0 && progress.damage == 0 && link == 0) {
            u32 stop = block.kind == 1 ? deflate_next_inside(split, frame, progress.position) : none, bytes = 0;
            DeflateRow row = deflate_measure_row(shared, input, progress.position, stop);
            entry.table = table, entry.at = progress.at, entry.sequences = sequences;
            u32 rounds = row.last / CUZARR_WARP + 1;
            room = deflate_append(shared, split, entry, row, rounds, progress.position, stop);
            sequences += deflate_entries(split, rounds);
#pragma unroll
            for (u32 i = 0; i < kWarps; ++i) bytes += shared.bytes[i], sequences += shared.matches[i];
            progress.position = shared.progress.position, progress.damage = shared.progress.damage;
            if (!room || bytes > frame.dst_bytes - progress.at) progress.damage = CUZARR_TOO_LONG;
            else progress.at += bytes;
            // The row's shared memory has been read.
            block_barrier();
            if (progress.position == stop && progress.damage == 0) link = CUZARR_DEFLATE_INSIDE;
            // The decoder arrived behind the place, so the place was false, and may have misled others.
            if (progress.position <= stop) continue;
            if (!deflate_spend(shared, frame, state, progress.at)) progress.damage = CUZARR_TOO_LONG;
        }
        if (progress.damage == CUZARR_DEFLATE_ENDED) progress.damage = 0;
        if (progress.damage || !room) break;
        if (inside && link == 0 && thread == 0) {
            measured.block_end = progress.position, measured.block_bytes = progress.at, measured.block_sequences = sequences;
        }
        if (!deflate_spend(shared, frame, state, progress.at)) break;
        if (link) result = CUZARR_DEFLATE_LINKED | (block.last ? CUZARR_DEFLATE_LAST : 0);
        else if (block.last) result = CUZARR_DEFLATE_FINAL;
        else if (deflate_region_at(split, frame, progress.position) != none) result = CUZARR_DEFLATE_LINKED;
        if (result != CUZARR_DEFLATE_BROKEN) break;
    }
    if (thread == 0) {
        measured.end = progress.position | link, measured.bytes = progress.at, measured.sequences = sequences;
        measured.state = result;
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
        u32 region = (u32)frame.first_stream + frame.streams - 1, at = 0, sequences = 0, end = 0, asked = 0;
        bool final = false, last = false;
        for (; region != CUZARR_DEFLATE_NONE && !final; region = deflate_region_at(split, frame, end)) {
            // The next region is not known yet, but roughly where it is.
            const u32 together = CUZARR_DEFLATE_ASKED_TOGETHER;
            for (; asked < deflate_slot(end) + CUZARR_DEFLATE_ASKED && asked < frame.streams; asked += together * CUZARR_WARP) {
                u32 slot = asked + together * lane;
                if (slot < frame.streams) prefetch(split.regions + frame.first_stream + slot);
            }
            DeflateRegion measured = split.regions[region];
            // The region began inside a block. Only the regions before know whether that block is the stream's last.
            bool inside = measured.start & CUZARR_DEFLATE_INSIDE, ends = measured.block_end != CUZARR_DEFLATE_NONE;
            if (inside && ends && last) {
                measured.end = measured.block_end, measured.bytes = measured.block_bytes;
                measured.sequences = measured.block_sequences, measured.state = CUZARR_DEFLATE_FINAL;
                if (lane == 0) split.regions[region] = measured;
            }
            end = measured.end;
            u32 how = measured.state & CUZARR_DEFLATE_HOW;
            if (how != CUZARR_DEFLATE_LINKED && how != CUZARR_DEFLATE_FINAL) break;
            if (!inside || ends) last = measured.state & CUZARR_DEFLATE_LAST;
            if (measured.bytes > frame.dst_bytes - at || measured.sequences > frame.block_bytes - sequences) break;
            if (lane == 0) split.regions[region].at = at, split.regions[region].first_sequence = sequences;
            at += measured.bytes, sequences += measured.sequences;
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
            split.match_counts[index] = sequences;
            split.states[index].split = 1, split.skipped[index] = 0;
        }
    }
}

/// Shared memory of a warp that emits.
struct DeflateEmitting : DeflateReading {
    u32 words[CUZARR_DEFLATE_ROUND_WORDS];
};

/// Loads the tables that were kept for a block, or makes them again. Returns false if that fails.
CUZARR_DEVICE bool deflate_bring(
    DeflateEmitting& shared, const DeflateInput& input, const DeflateSplit& split, const DeflateEntry& entry, u32 lane
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

/// Writes a lane's literals to their places, and stores its matches.
struct DeflateLister {
    u8* bytes;
    u64* to;
    u32 at;  // where the next byte goes

    CUZARR_DEVICE bool take(bool literal, bool repeats, u32 byte, u32 length, u32 distance) {
        if (literal) bytes[at++] = (u8)byte;
        return !repeats || match(length, distance);
    }
    CUZARR_DEVICE bool match(u32 length, u32 distance) {
        if (distance > at) return false;
        *to++ = lz_match(at, length, distance);
        at += length;
        return true;
    }
};

/// Writes the literals of an entry's rounds to the frame's bytes from `at` on, and its matches from `to` on. Returns
/// false for a match before the stream's first byte.
CUZARR_DEVICE bool deflate_emit_rounds(
    DeflateEmitting& shared, const DeflateInput& input, const DeflateSplit& split, const DeflateEntry& entry, u8* bytes, u32 at,
    u64* to, u32 lane
) {
    if (!deflate_bring(shared, input, split, entry, lane)) return false;
    for (u32 i = 0; i < entry.rounds; ++i) {
        const DeflateRound& round = split.rounds[entry.first_round + i];
        u32 position = round.position, stop = round.stop, packed = round.segments[lane], origin = position / 32 * 32;
        u32 begin = position + lane * CUZARR_DEFLATE_SEGMENT_BITS, own_bytes = packed >> 6 & 0xffff, own_matches = packed >> 22 & 0xff;
        u32 end_bytes = inclusive_sum(own_bytes, lane), end_matches = inclusive_sum(own_matches, lane);
        DeflateLister lister = {bytes, to + (end_matches - own_matches), at + end_bytes - own_bytes};
        deflate_stage(shared, input, origin, lane);
        u32 damage = 0, from = begin + (packed & 63), end = min_of(begin + CUZARR_DEFLATE_SEGMENT_BITS, stop);
        // A lane that found the stream cut off before its first symbol has no bytes, and no place for any.
        deflate_run(shared, origin, from, end, packed >> 31 && own_bytes > 0, damage, lister);
        if (warp_ballot(CUZARR_ALL_LANES, damage == CUZARR_BEFORE_START)) return false;
        at += warp_shuffle(CUZARR_ALL_LANES, end_bytes, CUZARR_WARP - 1);
        to += warp_shuffle(CUZARR_ALL_LANES, end_matches, CUZARR_WARP - 1);
        // The words have been read.
        warp_barrier(CUZARR_ALL_LANES);
    }
    // A match of no bytes ends the entry.
    if (lane == 0) *to = lz_match(at, 0, 1);
    return true;
}

CUZARR_KERNEL(deflate_emit, const u8* src, u8* dst, const FrameTable* table, u32 count, DeflateSplit split) {
    CUZARR_SHARED(DeflateEmitting, shared, 1);
    u32 lane = thread_index();
    const Frame* frames = frames_of(table);
    for (;;) {
        u32 number = deflate_take(&split.counts->emitted, lane);
        if (number >= min_of(split.counts->entries, split.most_entries)) return;
        DeflateEntry entry = split.entries[number];
        u32 index = frame_of_stream(frames, count, entry.region);
        DeflateRegion region = split.regions[entry.region];
        const Frame& frame = frames[index];
        // The region was not reached, or lies behind the stream's end.
        if (split.states[index].split == 0 || region.at == CUZARR_DEFLATE_NONE || entry.sequences >= region.sequences) continue;
        u32 at = region.at + entry.at;
        u64* to = split.matches + frame.work_offset + region.first_sequence + entry.sequences;
        DeflateInput input = deflate_input(src + frame.src_offset, frame.src_bytes);
        u8* bytes = dst + frame.dst_offset;
        bool intact = true;
        if (entry.first_round == CUZARR_DEFLATE_NONE) {
            DeflateProgress progress = {entry.header + 3, at, 0};
            DeflateBytes target = {bytes, frame.dst_bytes};
            deflate_stored(input, target, true, frame.dst_bytes, progress, lane);
            if (lane == 0) *to = lz_match(progress.at, 0, 1);
        } else {
            intact = deflate_emit_rounds(*shared, input, split, entry, bytes, at, to, lane);
        }
        // A match reaches before the stream's first byte. Decoding in order will say where.
        if (!intact && lane == 0) volatile_store(&split.states[index].split, 0), volatile_store((u32*)&split.skipped[index], 1);
        warp_barrier(CUZARR_ALL_LANES);
    }
}
