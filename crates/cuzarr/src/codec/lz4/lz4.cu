// LZ4 frames as numcodecs writes them: the decoded size (u32), then one block. A warp decodes a frame.
//
// Floor on an H200, for the hard parts of shuffled fields (7 bytes a sequence): a sequence waits for one load of the stream
// (L1, 35 cycles), three shuffles (75) and one load of the output (L2, 260), the last overlapped with the next parse:
// 250-350 cycles, 40 MB/s a warp; long matches and literals go at 512 bytes a round trip, 1 GB/s a warp. So
// 8192 frames of 64 KiB should give 150-250 GB/s, 512 of 1 MiB 40-60, 64 of 8 MiB 5-8: few large frames need another
// engine. Issue: about 110 instructions a sequence, 132 x 4 x 1.9 GHz / 110 x 7 bytes = 64 GB/s for data that is hard throughout.
#include "cuzarr/lz4.cuh"
#include "cuzarr/lz4_tokens.cuh"

#define CUZARR_LZ4_HEADER 4u

CUZARR_KERNEL(lz4_frames, const u8* src, u8* dst, const FrameTable* table, u32 count, u64* statuses) {
    const Frame* frames = frames_of(table);
    u32 lane = thread_index() % CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    u64 step = (u64)block_count() * warps;
    for (u64 index = (u64)block_index() * warps + thread_index() / CUZARR_WARP; index < count; index += step) {
        const Frame& frame = frames[index];
        const u8* encoded = src + frame.src_offset;
        u32 damage = CUZARR_BAD_HEADER, at = 0;
        if (frame.src_bytes >= CUZARR_LZ4_HEADER) {
            damage = CUZARR_OTHER_SIZE;
            if (load_u32(encoded) == frame.dst_bytes) {
                const u8* block = encoded + CUZARR_LZ4_HEADER;
                u8* decoded = dst + frame.dst_offset;
                damage = lz4_block(block, frame.src_bytes - CUZARR_LZ4_HEADER, decoded, frame.dst_bytes, lane, at);
                at += CUZARR_LZ4_HEADER;
            }
        }
        if (damage && lane == 0) report(statuses, (u32)frame.first_stream, damage, at);
    }
}

/// A block of LZ4, to be decoded by the whole GPU: its sequences, for lz.cu. The table of `Blocks` in blocks.rs.
struct Lz4Unit {
    u64 src_offset;      // of the block
    u64 first_sequence;  // of its room for sequences: a third of its bytes, and 3
    u32 src_bytes;
    u32 dst_bytes;
    u32 status;          // which
    u32 place;           // of the block in what the status is about
    u32 header;          // bytes before the block that say the decoded size: 4 or none
    u32 first_span;      // of the spans of all units
    u32 first_group;     // of the groups of spans of all units
    u32 reserved;
};

CUZARR_DEVICE Lz4Block lz4_block_of(const Lz4Unit& unit, const u8* src, LzSequence* sequences) {
    return {src + unit.src_offset, unit.src_bytes, unit.dst_bytes, sequences + unit.first_sequence};
}

/// Whether the header says the size that metadata says, and there is a block.
CUZARR_DEVICE u32 lz4_header(const Lz4Unit& unit, const Lz4Block& block) {
    if (unit.header && load_u32(block.src - CUZARR_LZ4_HEADER) != block.out_size) return CUZARR_OTHER_SIZE;
    return block.size == 0 ? CUZARR_CUT_OFF : CUZARR_INTACT;
}

/// A unit for each block of threads, span after span: for many units. What a run of literals passes over is not looked at.
CUZARR_KERNEL(lz4_walk, const u8* src, const Lz4Unit* units, LzSequence* sequences, u32* counts, u64* statuses) {
    CUZARR_LZ4_SPAN_SHARED(span);
    CUZARR_SHARED(Lz4Total, sums, CUZARR_LZ4_THREADS / CUZARR_WARP);
    CUZARR_SHARED(u32, found, 1);
    Lz4Unit unit = units[block_index()];
    Lz4Block block = lz4_block_of(unit, src, sequences);
    u32 thread = thread_index(), damage = lz4_header(unit, block);
    if (damage) {
        if (thread == 0) report(statuses, unit.status, damage, damage == CUZARR_OTHER_SIZE ? unit.place - CUZARR_LZ4_HEADER : unit.place);
        return;
    }
    u32 begin = 0;
    Lz4Total start = {0, 0, 0};
    while (begin < block.size) {
        lz4_load(span, block.src + begin, block.size - begin);
        lz4_connect(span);
        u32 own, leaving = lz4_enter(span, 0, own);
        Lz4Total all, before = lz4_scan(lz4_count(span, own, leaving), sums, all);
        lz4_emit(block, span, begin, own, leaving, lz4_sum(start, before), statuses, unit.status, unit.place);
        start = lz4_sum(start, all);
        u32 at = begin + leaving;
        Lz4Placed token = lz4_far_token(block, at, start.bytes, found, begin);
        if (thread == 0) lz4_emit_leaving(block, token, at, begin, start.sequences, statuses, unit.status, unit.place);
        start = lz4_sum(start, {(u64)token.literals + token.match, 1, 0});
    }
    if (thread == 0) counts[block_index()] = start.sequences;
}

// Few units: all spans at once. First where each byte of a span leads, then along the real path from span to span, then what
// the spans on it hold.

CUZARR_DEVICE u32 lz4_unit_of_span(const Lz4Unit* units, u32 count, u32 span) {
    return last_from(count, span, [=](u32 unit) { return (u64)units[unit].first_span; });
}

/// leads[span] = how many bytes of 255 it begins with.
CUZARR_KERNEL(lz4_leads, const u8* src, const Lz4Unit* units, u32 count, u32* leads) {
    CUZARR_SHARED(u32, found, 1);
    Lz4Unit unit = units[lz4_unit_of_span(units, count, block_index())];
    u32 bytes = thread_count() * CUZARR_LZ4_OWN, begin = (block_index() - unit.first_span) * bytes;
    u32 end = unit.src_bytes - begin < bytes ? unit.src_bytes : begin + bytes;
    u32 run_end = lz4_far_run_end(src + unit.src_offset, end, begin, found);
    if (thread_index() == 0) leads[block_index()] = run_end - begin;
}

/// The first byte from `at` on that is not 255, by one thread: to the end of its span by looking, then by what spans lead with.
CUZARR_DEVICE u32 lz4_lone_run_end(const Lz4Block& block, const u32* leads, u32 at) {
    u32 bytes = thread_count() * CUZARR_LZ4_OWN, end = at - at % bytes + bytes;
    end = end < block.size ? end : block.size;
    while (at < end && block.src[at] == 255) ++at;
    if (at < end) return at;
    for (u32 span = at / bytes; at < block.size; ++span) {
        at += leads[span];
        if (leads[span] < bytes) break;
    }
    return at;
}

CUZARR_DEVICE u32 lz4_lone_length(const Lz4Block& block, const u32* leads, u32& at) {
    u32 end = at < block.size ? lz4_lone_run_end(block, leads, at) : block.size;
    u64 length = 15 + 255ull * (end - (at < block.size ? at : block.size)) + (end < block.size ? block.src[end] : 0);
    at = end + 1;
    return length < CUZARR_LZ4_LONGEST - 4 ? (u32)length : CUZARR_LZ4_LONGEST - 4;
}

/// Where the token behind the one at `at` begins; the block's end when there is none.
CUZARR_DEVICE u32 lz4_lone_next(const Lz4Block& block, const u32* leads, u32 at) {
    u32 byte = block.src[at++], literals = byte >> 4;
    if (literals == 15) literals = lz4_lone_length(block, leads, at);
    if (at > block.size || literals > block.size - at) return block.size;
    at += literals;
    if (block.size - at < 2) return block.size;
    at += 2;
    if ((byte & 15) == 15) lz4_lone_length(block, leads, at);
    return at < block.size ? at : block.size;
}

/// exits[byte] = the first token behind its span when one begins at the byte. A span for each block of threads.
CUZARR_KERNEL(lz4_map, const u8* src, const Lz4Unit* units, u32 count, const u32* leads, u32* exits) {
    CUZARR_LZ4_SPAN_SHARED(span);
    Lz4Unit unit = units[lz4_unit_of_span(units, count, block_index())];
    Lz4Block block = lz4_block_of(unit, src, (LzSequence*)0);
    u32 bytes = thread_count() * CUZARR_LZ4_OWN, begin = (block_index() - unit.first_span) * bytes;
    if (begin >= block.size) return;
    leads += unit.first_span, exits += (u64)block_index() * bytes;
    lz4_load(span, block.src + begin, block.size - begin);
    lz4_connect(span);
    for (u32 at = thread_index(); at < span.size; at += thread_count()) {
        if (lz4_step(span, at) == at) exits[at] = lz4_lone_next(block, leads, begin + at);
    }
    block_barrier();
    for (u32 at = thread_index(); at < span.size; at += thread_count()) {
        if (lz4_step(span, at) == at) continue;
        u32 root = lz4_joined(span, at);
        for (u32 warp_end = (at / CUZARR_LZ4_WARP_BYTES + 1) * CUZARR_LZ4_WARP_BYTES; root >= warp_end;) {
            warp_end = (root / CUZARR_LZ4_WARP_BYTES + 1) * CUZARR_LZ4_WARP_BYTES;
            root = lz4_joined(span, root);
        }
        exits[at] = exits[root];
    }
}

/// Spans that are joined to a group, so that the path is followed group by group first.
#define CUZARR_LZ4_GROUP 32u

/// exits, by groups: joined[byte] = the first token behind its group when one begins at the byte. A group for each block of
/// threads, from its last span to its first.
CUZARR_KERNEL(lz4_join, const Lz4Unit* units, u32 count, const u32* exits, u32* joined) {
    u32 index = last_from(count, block_index(), [=](u32 unit) { return (u64)units[unit].first_group; });
    Lz4Unit unit = units[index];
    u32 bytes = thread_count() * CUZARR_LZ4_OWN, begin = (block_index() - unit.first_group) * CUZARR_LZ4_GROUP * bytes;
    u32 end = unit.src_bytes - begin < CUZARR_LZ4_GROUP * bytes ? unit.src_bytes : begin + CUZARR_LZ4_GROUP * bytes;
    exits += (u64)unit.first_span * bytes, joined += (u64)unit.first_span * bytes;
    for (u32 span_end = end; span_end > begin;) {
        u32 first = (span_end - 1) / bytes * bytes;
        for (u32 at = first + thread_index(); at < span_end; at += thread_count()) {
            u32 exit = exits[at];
            joined[at] = exit < end ? joined[exit] : exit;
        }
        span_end = first;
        block_barrier();
    }
}

/// group_entries[group] = where the path enters it. One thread of a block for each unit. CUZARR_LZ4_NOWHERE before, as entries.
CUZARR_KERNEL(
    lz4_chase, const u8* src, const Lz4Unit* units, u32 count, u32 span_bytes, const u32* joined, u32* group_entries, u64* statuses
) {
    if (thread_index() != 0 || block_index() >= count) return;
    Lz4Unit unit = units[block_index()];
    Lz4Block block = lz4_block_of(unit, src, (LzSequence*)0);
    u32 damage = lz4_header(unit, block);
    if (damage) {
        report(statuses, unit.status, damage, damage == CUZARR_OTHER_SIZE ? unit.place - CUZARR_LZ4_HEADER : unit.place);
        return;
    }
    joined += (u64)unit.first_span * span_bytes;
    for (u32 at = 0; at < block.size; at = joined[at]) group_entries[unit.first_group + at / (CUZARR_LZ4_GROUP * span_bytes)] = at;
}

/// entries[span] = where the path enters it. A thread for each group.
CUZARR_KERNEL(
    lz4_follow, const Lz4Unit* units, u32 count, u32 groups, u32 span_bytes, const u32* exits, const u32* group_entries, u32* entries
) {
    u32 group = block_index() * thread_count() + thread_index();
    if (group >= groups || group_entries[group] == CUZARR_LZ4_NOWHERE) return;
    Lz4Unit unit = units[last_from(count, group, [=](u32 index) { return (u64)units[index].first_group; })];
    u64 end = (u64)(group - unit.first_group + 1) * CUZARR_LZ4_GROUP * span_bytes;
    end = end < unit.src_bytes ? end : unit.src_bytes;
    exits += (u64)unit.first_span * span_bytes, entries += unit.first_span;
    for (u32 at = group_entries[group]; at < end; at = exits[at]) entries[at / span_bytes] = at;
}

/// More than any output is counted as this, so that sums have room.
#define CUZARR_LZ4_MOST_BYTES (1ull << 31)

CUZARR_DEVICE Lz4Total lz4_bounded(const Lz4Total& total) {
    return {total.bytes < CUZARR_LZ4_MOST_BYTES ? total.bytes : CUZARR_LZ4_MOST_BYTES, total.sequences, 0};
}

/// What the spans on the path hold: first how much, then, by what stands before each span, the sequences themselves.
template <bool Emit>
CUZARR_DEVICE void lz4_span(
    const u8* src, const Lz4Unit* units, u32 count, const u32* entries, Lz4Total* totals, LzSequence* sequences, u64* statuses
) {
    CUZARR_LZ4_SPAN_SHARED(span);
    CUZARR_SHARED(Lz4Total, sums, CUZARR_LZ4_THREADS / CUZARR_WARP);
    CUZARR_SHARED(u32, found, 1);
    u32 thread = thread_index(), entry = entries[block_index()];
    if (entry == CUZARR_LZ4_NOWHERE) {
        if (!Emit && thread == 0) totals[block_index()] = {0, 0, 0};
        return;
    }
    Lz4Unit unit = units[lz4_unit_of_span(units, count, block_index())];
    Lz4Block block = lz4_block_of(unit, src, sequences);
    u32 begin = (block_index() - unit.first_span) * thread_count() * CUZARR_LZ4_OWN;
    lz4_load(span, block.src + begin, block.size - begin);
    lz4_connect(span);
    u32 own, leaving = lz4_enter(span, entry - begin, own), next;
    Lz4Total start = {0, 0, 0}, all, before = lz4_scan(lz4_count(span, own, leaving), sums, all);
    if (Emit) start = totals[block_index()];
    Lz4Total end = lz4_sum(start, all);
    Lz4Placed token = lz4_far_token(block, begin + leaving, end.bytes, found, next);
    if (Emit) {
        lz4_emit(block, span, begin, own, leaving, lz4_sum(start, before), statuses, unit.status, unit.place);
        if (thread == 0) lz4_emit_leaving(block, token, begin + leaving, next, end.sequences, statuses, unit.status, unit.place);
    } else if (thread == 0) {
        totals[block_index()] = lz4_bounded(lz4_sum(end, {(u64)token.literals + token.match, 1, 0}));
    }
}

CUZARR_KERNEL(lz4_totals, const u8* src, const Lz4Unit* units, u32 count, const u32* entries, Lz4Total* totals) {
    lz4_span<false>(src, units, count, entries, totals, (LzSequence*)0, (u64*)0);
}

/// totals[span] becomes what stands before it in its unit. A unit for each block of threads.
CUZARR_KERNEL(lz4_place, const Lz4Unit* units, u32 span_bytes, Lz4Total* totals, u32* counts) {
    CUZARR_SHARED(Lz4Total, sums, CUZARR_LZ4_THREADS / CUZARR_WARP);
    Lz4Unit unit = units[block_index()];
    u32 spans = (unit.src_bytes + span_bytes - 1) / span_bytes;
    totals += unit.first_span;
    Lz4Total start = {0, 0, 0};
    for (u32 first = 0; first < spans; first += thread_count()) {
        u32 span = first + thread_index();
        Lz4Total own = {0, 0, 0}, all;
        if (span < spans) own = totals[span];
        Lz4Total before = lz4_scan(own, sums, all);
        if (span < spans) totals[span] = lz4_sum(start, before);
        start = lz4_bounded(lz4_sum(start, all));
    }
    if (thread_index() == 0) counts[block_index()] = start.sequences;
}

CUZARR_KERNEL(
    lz4_spans, const u8* src, const Lz4Unit* units, u32 count, const u32* entries, Lz4Total* totals, LzSequence* sequences, u64* statuses
) {
    lz4_span<true>(src, units, count, entries, totals, sequences, statuses);
}
