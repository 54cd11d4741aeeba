// Large deflate streams, decoded by many warps: see deflate_split.cuh.
//
// Floor on an H200 for one frame of 8 MiB (160 blocks of 50 KB): finding 30 Mbit in 0.1 ms, measuring 12 rounds of a warp in
// 0.2 ms, chaining 160 regions in 0.06 ms, emitting in 0.1 ms, 16 groups and 16 windows in 0.1 ms each: 12 GB/s.
#include "cuzarr/deflate_split.cuh"

/// Elements that a thread has on their way at a time: many where a block is alone, few where there are others.
#define CUZARR_DEFLATE_MANY 32u
#define CUZARR_DEFLATE_FEW 8u
/// Words of a slot.
#define CUZARR_DEFLATE_SLOT_WORDS (CUZARR_DEFLATE_SLOT_BITS / 32)

CUZARR_KERNEL(deflate_find, const u8* src, const FrameTable* table, u32 count, u32 slots, DeflateSplit split) {
    CUZARR_SHARED(u8, quarters, 4096);
    for (u32 i = thread_index(); i < 4096; i += thread_count()) quarters[i] = deflate_quarter(i);
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
                u32 v0 = funnel_shift(w[0], w[1], bit), v1 = funnel_shift(w[1], w[2], bit), v2 = funnel_shift(w[2], w[3], bit);
                if (position < input.begin || !deflate_could_begin(quarters, v0, v1, v2)) continue;
                u32 place = atomic_add(&split.counts->places, 1u);
                DeflatePlaceFound found = {index, position};
                if (place < split.most_places) split.places[place] = found;
            }
        }
    }
}

CUZARR_KERNEL(deflate_verify, const u8* src, const FrameTable* table, DeflateSplit split) {
    const Frame* frames = frames_of(table);
    u32 places = min_of(split.counts->places, split.most_places);
    for (u32 i = block_index() * thread_count() + thread_index(); i < places; i += block_count() * thread_count()) {
        DeflatePlaceFound found = split.places[i];
        const Frame& frame = frames[found.frame];
        DeflateInput input = deflate_input(src + frame.src_offset, frame.src_bytes);
        if (!deflate_begins(input, found.position)) continue;
        u32 region = (u32)frame.first_stream + deflate_slot(found.position);
        u32 before = atomic_min(&split.regions[region].start, found.position);
        if (before == CUZARR_DEFLATE_NONE) split.listed[atomic_add(&split.counts->regions, 1u)] = region;
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

/// Puts an entry behind `last`, which ends where it begins when both are of one block. None when there is no room.
CUZARR_DEVICE u32 deflate_add_entry(const DeflateSplit& split, const DeflateEntry& entry, u32 last, u32 lane) {
    u32 number = deflate_take(&split.counts->entries, lane);
    if (number >= split.most_entries) return CUZARR_DEFLATE_NONE;
    if (lane == 0) {
        split.entries[number] = entry;
        if (last == CUZARR_DEFLATE_NONE) {
            split.regions[entry.region].first_entry = number;
        } else {
            split.entries[last].next = number;
            split.entries[last].stop = entry.position;
        }
    }
    return number;
}

/// Measures one region.
CUZARR_DEVICE void deflate_measure_region(
    DeflateShared& shared, const u8* src, const Frame& frame, DeflateState& state, const DeflateSplit& split, u32 region,
    u32 lane
) {
    DeflateInput input = deflate_input(src + frame.src_offset, frame.src_bytes);
    DeflateProgress progress = {split.regions[region].start, 0, 0, false};
    DeflateBytes nothing = {0, 0};
    u32 none = CUZARR_DEFLATE_NONE, last_entry = none, result = CUZARR_DEFLATE_BROKEN;
    for (;;) {
        // False regions must not cost more than the true ones.
        u32 header = progress.position, before = progress.at;
        if (volatile_load(&state.measured) > frame.dst_bytes / 256 + 4096) break;
        DeflateEntry entry = {region, header, none, none, progress.at, none};
        last_entry = deflate_add_entry(split, entry, last_entry, lane);
        if (last_entry == none) break;
        DeflateBlock block = deflate_open(shared, input, progress, lane);
        if (progress.damage) break;
        if (block.kind == 0) {
            deflate_stored(input, nothing, false, frame.dst_bytes, progress, lane);
        } else {
            for (;;) {
                u32 rounds = split.entry_rounds;
                deflate_symbols(shared, input, nothing, false, 0, frame.dst_bytes, none, rounds, progress, lane);
                if (progress.damage || progress.ended) break;
                DeflateEntry further = {region, header, progress.position, none, progress.at, none};
                last_entry = deflate_add_entry(split, further, last_entry, lane);
                if (last_entry == none) break;
            }
        }
        if (progress.damage || last_entry == none) break;
        if (lane == 0) atomic_add(&state.measured, (progress.at - before) / 1024 + 1);
        if (block.last) result = CUZARR_DEFLATE_FINAL;
        else if (deflate_region_at(split, frame, progress.position) != none) result = CUZARR_DEFLATE_LINKED;
        if (result != CUZARR_DEFLATE_BROKEN) break;
    }
    if (lane == 0) {
        DeflateRegion& measured = split.regions[region];
        measured.end = progress.position, measured.bytes = progress.at, measured.state = result;
    }
}

CUZARR_KERNEL(deflate_measure, const u8* src, const FrameTable* table, u32 count, DeflateSplit split) {
    CUZARR_SHARED(DeflateShared, shared, 1);
    u32 lane = thread_index();
    const Frame* frames = frames_of(table);
    for (;;) {
        u32 number = deflate_take(&split.counts->measured, lane);
        if (number >= split.counts->regions) return;
        u32 region = split.listed[number], index = frame_of_stream(frames, count, region);
        deflate_measure_region(*shared, src, frames[index], split.states[index], split, region, lane);
        warp_barrier(CUZARR_ALL_LANES);
    }
}

CUZARR_KERNEL(
    deflate_chain, const u8* src, const FrameTable* table, u32 count, u32 container, DeflateSplit split,
    DeflateTrailer* trailers
) {
    const Frame* frames = frames_of(table);
    u32 lane = thread_index();
    for (u32 index = block_index(); index < count; index += block_count()) {
        const Frame& frame = frames[index];
        u32 region = (u32)frame.first_stream + frame.streams - 1, at = 0, groups = 0, group_at = 0, end;
        bool final = false;
        for (; region != CUZARR_DEFLATE_NONE && !final; region = deflate_region_at(split, frame, end)) {
            DeflateRegion measured = split.regions[region];
            end = measured.end;
            if (measured.state != CUZARR_DEFLATE_LINKED && measured.state != CUZARR_DEFLATE_FINAL) break;
            if (measured.bytes > frame.dst_bytes - at) break;
            if (groups == 0 || at - group_at >= split.group_bytes) {
                group_at = at;
                DeflateGroup group = {region, at};
                if (lane == 0) split.groups[frame.block_bytes + groups] = group;
                ++groups;
            }
            if (lane == 0) split.regions[region].at = at;
            at += measured.bytes;
            final = measured.state == CUZARR_DEFLATE_FINAL;
            if (final) break;
        }
        if (!final || at != frame.dst_bytes) continue;
        const u8* encoded = src + frame.src_offset;
        DeflatePlace place = {(end - deflate_input(encoded, frame.src_bytes).begin + 7) / 8, 0};
        DeflateTrailer trailer = deflate_trailer(encoded, frame.src_bytes, container, 0, at, place);
        if (place.damage) continue;
        u32 rest = place.at;
        if (container == CUZARR_DEFLATE_GZIP) rest = deflate_pass_zeros(encoded, frame.src_bytes, rest, lane);
        if (container != CUZARR_DEFLATE_ZLIB && rest != frame.src_bytes) continue;
        if (lane == 0) {
            trailers[index] = trailer;
            split.states[index].groups = groups;
            split.states[index].split = 1;
        }
    }
}

CUZARR_KERNEL(deflate_emit, const u8* src, const FrameTable* table, u32 count, DeflateSplit split) {
    CUZARR_SHARED(DeflateShared, shared, 1);
    u32 lane = thread_index();
    const Frame* frames = frames_of(table);
    for (;;) {
        u32 number = deflate_take(&split.counts->emitted, lane);
        if (number >= min_of(split.counts->entries, split.most_entries)) return;
        DeflateEntry entry = split.entries[number];
        u32 index = frame_of_stream(frames, count, entry.region), at = split.regions[entry.region].at;
        const Frame& frame = frames[index];
        if (split.states[index].split == 0 || at == CUZARR_DEFLATE_NONE) continue;
        at += entry.at;
        DeflateInput input = deflate_input(src + frame.src_offset, frame.src_bytes);
        DeflateMarkers target = {split.elements + frame.work_offset, frame.dst_bytes, at};
        DeflateProgress progress = {entry.header, at, 0, false};
        DeflateBlock block = deflate_open(*shared, input, progress, lane);
        if (block.kind == 0) {
            deflate_stored(input, target, true, frame.dst_bytes, progress, lane);
        } else {
            if (entry.position != CUZARR_DEFLATE_NONE) progress.position = entry.position;
            u32 nowhere = CUZARR_DEFLATE_NOWHERE;
            deflate_symbols(*shared, input, target, true, 0, frame.dst_bytes, entry.stop, nowhere, progress, lane);
        }
        // A match before the stream's first byte: decoding in order will say where.
        if (progress.damage && lane == 0) volatile_store(&split.states[index].split, 0);
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

/// Makes markers of elements [begin, end) that refer to what is before them refer to what is before their group.
CUZARR_DEVICE void deflate_rebase(u16* elements, u32 group_at, u32 begin, u32 end) {
    for (u32 first = begin + thread_index(); first < end; first += thread_count() * CUZARR_DEFLATE_FEW) {
        u32 found[CUZARR_DEFLATE_FEW];
        deflate_elements<CUZARR_DEFLATE_FEW>(elements, first, end, found);
        // Loads without branches, so that all are on their way at once.
#pragma unroll
        for (u32 k = 0; k < CUZARR_DEFLATE_FEW; ++k) {
            u32 origin = deflate_origin(found[k], begin);
            bool inside = deflate_unknown(found[k]) && origin >= group_at;
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

CUZARR_KERNEL(deflate_group, const FrameTable* table, u32 count, DeflateSplit split) {
    const Frame* frames = frames_of(table);
    for (u32 number = block_index(); number < split.group_count; number += block_count()) {
        DeflateGroup group = split.groups[number];
        if (group.first_region == CUZARR_DEFLATE_NONE) continue;
        u32 index = frame_of_stream(frames, count, group.first_region);
        const Frame& frame = frames[index];
        if (split.states[index].split == 0) continue;
        u16* elements = split.elements + frame.work_offset;
        u32 group_end = deflate_group_end(split, frame, split.states[index], number - frame.block_bytes);
        u32 region = group.first_region;
        while (region != CUZARR_DEFLATE_NONE) {
            DeflateRegion measured = split.regions[region];
            if (measured.at >= group_end) break;
            DeflateEntry entry = split.entries[measured.first_entry], next = entry;
            for (bool more = true; more; entry = next) {
                more = entry.next != CUZARR_DEFLATE_NONE;
                if (more) next = split.entries[entry.next];
                u32 begin = measured.at + entry.at, end = measured.at + (more ? next.at : measured.bytes);
                deflate_rebase(elements, group.at, begin, end);
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
/// 32 KiB.
CUZARR_KERNEL(deflate_window, u8* dst, const FrameTable* table, u32 count, DeflateSplit split) {
    CUZARR_SHARED(u8, window, CUZARR_DEFLATE_WINDOW);
    const u32 mask = CUZARR_DEFLATE_WINDOW - 1, step = thread_count() * CUZARR_DEFLATE_MANY;
    const Frame* frames = frames_of(table);
    for (u32 index = block_index(); index < count; index += block_count()) {
        const Frame& frame = frames[index];
        DeflateState state = split.states[index];
        if (state.split == 0) continue;
        const u16* elements = split.elements + frame.work_offset;
        u8* bytes = dst + frame.dst_offset;
        for (u32 group = 0; group + 1 < state.groups; ++group) {
            u32 at = split.groups[frame.block_bytes + group].at, end = deflate_group_end(split, frame, state, group);
            for (u32 first = deflate_window_begin(at, end) + thread_index(); first < end; first += step) {
                u32 found[CUZARR_DEFLATE_MANY];
                deflate_elements<CUZARR_DEFLATE_MANY>(elements, first, end, found);
#pragma unroll
                for (u32 k = 0; k < CUZARR_DEFLATE_MANY; ++k) {
                    u32 i = first + k * thread_count(), known = window[deflate_origin(found[k], at) & mask];
                    if (i < end) bytes[i] = (u8)(deflate_unknown(found[k]) ? known : found[k]);
                }
            }
            block_barrier();
            for (u32 first = end - min_of(end, CUZARR_DEFLATE_WINDOW) + thread_index(); first < end; first += step) {
                u8 found[CUZARR_DEFLATE_MANY];
#pragma unroll
                for (u32 k = 0; k < CUZARR_DEFLATE_MANY; ++k) {
                    found[k] = bytes[min_of(first + k * thread_count(), end - 1)];
                }
#pragma unroll
                for (u32 k = 0; k < CUZARR_DEFLATE_MANY; ++k) {
                    u32 i = first + k * thread_count();
                    if (i < end) window[i & mask] = found[k];
                }
            }
            block_barrier();
        }
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
        u32 low = 0, high = state.groups;
        while (high - low > 1) {
            u32 middle = low + (high - low) / 2;
            if (split.groups[frame.block_bytes + middle].at <= begin) low = middle;
            else high = middle;
        }
        for (u32 group = low; group < state.groups && begin < end; ++group) {
            u32 at = split.groups[frame.block_bytes + group].at, group_end = deflate_group_end(split, frame, state, group);
            u32 stop = min_of(end, group_end);
            // No other group refers to the last one.
            u32 window = group + 1 < state.groups ? deflate_window_begin(at, group_end) : group_end;
            deflate_resolve(split.elements + frame.work_offset, dst + frame.dst_offset, at, begin, min_of(stop, window));
            begin = max_of(begin, stop);
        }
    }
}
