// LZ4 frames as numcodecs writes them: the decoded size (u32), then one block; or blocks alone. A warp decodes a frame.
//
// Floor on an H200, for the hard parts of shuffled fields (7 bytes a sequence): a sequence waits for one load of the stream
// (L1, 35 cycles), three shuffles (75) and one load of the output (L2, 260), the last overlapped with the next parse:
// 250-350 cycles, 40 MB/s a warp; long matches and literals go at 512 bytes a round trip, 1 GB/s a warp. So
// 8192 frames of 64 KiB should give 150-250 GB/s, 512 of 1 MiB 40-60, 64 of 8 MiB 5-8: few large frames need another
// engine. Issue: about 110 instructions a sequence, 132 x 4 x 1.9 GHz / 110 x 7 bytes = 64 GB/s for data that is hard throughout.
#include "codec/lz4/lz4.cuh"
#include "codec/lz4/lz4_tokens.cuh"

#define CUZARR_LZ4_HEADER 4u

/// `header`: bytes before each block that say its decoded size: 4 or none.
CUZARR_KERNEL(lz4_frames, const u8* src, u8* dst, const FrameTable* table, u32 count, u32 header, u64* statuses) {
    const Frame* frames = frames_of(table);
    u32 lane = thread_index() % CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    u64 step = (u64)block_count() * warps;
    for (u64 index = (u64)block_index() * warps + thread_index() / CUZARR_WARP; index < count; index += step) {
        const Frame& frame = frames[index];
        const u8* encoded = src + frame.src_offset;
        u32 damage = CUZARR_BAD_HEADER, at = 0;
        if (frame.src_bytes >= header) {
            damage = CUZARR_OTHER_SIZE;
            if (header == 0 || load_u32(encoded) == frame.dst_bytes) {
                u8* decoded = dst + frame.dst_offset;
                damage = lz4_block(encoded + header, frame.src_bytes - header, decoded, frame.dst_bytes, lane, at);
                at += header;
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
    u32 reserved[2];
};
static_assert(sizeof(Lz4Unit) == 48, "as blocks.rs writes them");

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

// Few units: a window of each one's spans at once, from where its path has come so far. First where each byte of a span leads,
// then along the real path, which may leave the window far behind; so again, until no unit can have spans left. Then what the
// spans on the path hold.

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
    u32 bytes = thread_count() * CUZARR_LZ4_OWN, end = (at + bytes - 1) / bytes * bytes;
    end = end < block.size ? end : block.size;
    while (at < end && block.src[at] == 255) ++at;
    if (at < end) return at;
    for (u32 span = at / bytes; at < block.size; ++span) {
        at += leads[span];
        if (leads[span] < bytes) break;
    }
    return at;
}

/// A length whose further bytes begin at `at`, in the span from `begin` on or behind it; moves `at` as lz4_far_length.
CUZARR_DEVICE u32 lz4_lone_length(const Lz4Block& block, const Lz4Span& span, u32 begin, const u32* leads, u32& at) {
    u32 end = at < block.size ? at : block.size;
    if (end - begin < span.size) end = begin + lz4_run_end(span, end - begin);
    if (end - begin >= span.size && end < block.size) end = lz4_lone_run_end(block, leads, end);
    u64 length = 15 + 255ull * (end - (at < block.size ? at : block.size)) + (end < block.size ? block.src[end] : 0);
    at = end + 1;
    return length < CUZARR_LZ4_LONGEST - 4 ? (u32)length : CUZARR_LZ4_LONGEST - 4;
}

/// Where the token behind the one at `at` begins; the block's end when there is none.
CUZARR_DEVICE u32 lz4_lone_next(const Lz4Block& block, const Lz4Span& span, u32 begin, const u32* leads, u32 at) {
    u32 byte = lz4_byte(span, at - begin), literals = byte >> 4;
    ++at;
    if (literals == 15) literals = lz4_lone_length(block, span, begin, leads, at);
    if (at > block.size || literals > block.size - at) return block.size;
    at += literals;
    if (block.size - at < 2) return block.size;
    at += 2;
    if ((byte & 15) == 15) lz4_lone_length(block, span, begin, leads, at);
    return at < block.size ? at : block.size;
}

/// Spans that are joined to a group, so that the path is followed group by group first.
#define CUZARR_LZ4_GROUP 16u
/// Most groups of a window.
#define CUZARR_LZ4_GROUPS 128u
/// Loads of a thread that are on their way at the same time.
#define CUZARR_LZ4_TOGETHER 8u

/// The part of a unit that is looked at.
struct Lz4Window {
    u32 begin, end;    // in the block; empty behind its end
    u64 first;         // of its bytes in exits and joined
};

CUZARR_DEVICE Lz4Window lz4_window(const Lz4Unit& unit, u32 index, u32 cursor, u32 spans, u32 span_bytes) {
    u32 begin = cursor / span_bytes * span_bytes, most = spans * span_bytes;
    if (cursor >= unit.src_bytes) return {unit.src_bytes, unit.src_bytes, 0};
    return {begin, unit.src_bytes - begin < most ? unit.src_bytes : begin + most, (u64)index * most};
}

/// exits[byte] = the first token behind its span when one begins at the byte. A span of a window for each block of threads.
CUZARR_KERNEL(lz4_map, const u8* src, const Lz4Unit* units, const u32* cursors, u32 spans, const u32* leads, u32* exits) {
    CUZARR_LZ4_SPAN_SHARED(span);
    u32 index = block_index() / spans, bytes = thread_count() * CUZARR_LZ4_OWN, offset = block_index() % spans * bytes;
    Lz4Unit unit = units[index];
    Lz4Block block = lz4_block_of(unit, src, (LzSequence*)0);
    Lz4Window window = lz4_window(unit, index, cursors[index], spans, bytes);
    if (offset >= window.end - window.begin) return;
    u32 begin = window.begin + offset;
    leads += unit.first_span, exits += window.first + offset;
    lz4_load(span, block.src + begin, block.size - begin);
    lz4_connect(span);
    for (u32 at = thread_index(); at < span.size; at += thread_count()) {
        if (lz4_step(span, at) == at) exits[at] = lz4_lone_next(block, span, begin, leads, begin + at);
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

/// exits, by groups: joined[byte] = the first token behind its group when one begins at the byte. A group of a window for each
/// block of threads, from its last span to its first.
CUZARR_WIDE_KERNEL(lz4_join, const Lz4Unit* units, const u32* cursors, u32 spans, u32 span_bytes, const u32* exits, u32* joined) {
    u32 groups = spans / CUZARR_LZ4_GROUP, index = block_index() / groups, most = CUZARR_LZ4_GROUP * span_bytes;
    Lz4Window window = lz4_window(units[index], index, cursors[index], spans, span_bytes);
    u32 begin = block_index() % groups * most, size = window.end - window.begin;
    if (begin >= size) return;
    u32 end = size - begin < most ? size : begin + most;
    exits += window.first, joined += window.first;
    for (u32 span_end = end; span_end > begin;) {
        u32 first = (span_end - 1) / span_bytes * span_bytes;
        for (u32 own = first + thread_index(); own < span_end; own += thread_count() * CUZARR_LZ4_TOGETHER) {
            u32 exit[CUZARR_LZ4_TOGETHER];
#pragma unroll
            for (u32 i = 0; i < CUZARR_LZ4_TOGETHER; ++i) {
                u32 at = own + i * thread_count();
                exit[i] = at < span_end ? exits[at] : 0xffffffffu;
            }
#pragma unroll
            for (u32 i = 0; i < CUZARR_LZ4_TOGETHER; ++i) {
                if (exit[i] - window.begin < end) exit[i] = joined[exit[i] - window.begin];
            }
#pragma unroll
            for (u32 i = 0; i < CUZARR_LZ4_TOGETHER; ++i) {
                u32 at = own + i * thread_count();
                if (at < span_end) joined[at] = exit[i];
            }
        }
        span_end = first;
        block_barrier();
    }
}

/// entries[span] = where the path enters it, CUZARR_LZ4_NOWHERE before; cursors[unit] = where it leaves the window. A unit for
/// each block of threads: one follows the path group by group, then each follows it through groups of its own.
CUZARR_KERNEL(
    lz4_chase, const u8* src, const Lz4Unit* units, u32* cursors, u32 spans, u32 span_bytes, const u32* exits, const u32* joined,
    u32* entries, u64* statuses
) {
    CUZARR_SHARED(u32, group_entries, CUZARR_LZ4_GROUPS);
    u32 index = block_index(), cursor = cursors[index], groups = spans / CUZARR_LZ4_GROUP, most = CUZARR_LZ4_GROUP * span_bytes;
    Lz4Unit unit = units[index];
    Lz4Window window = lz4_window(unit, index, cursor, spans, span_bytes);
    exits += window.first, joined += window.first, entries += unit.first_span;
    for (u32 group = thread_index(); group < groups; group += thread_count()) group_entries[group] = CUZARR_LZ4_NOWHERE;
    block_barrier();
    if (thread_index() == 0) {
        u32 at = cursor, damage = cursor == 0 ? lz4_header(unit, lz4_block_of(unit, src, (LzSequence*)0)) : CUZARR_INTACT;
        if (damage) {
            report(statuses, unit.status, damage, damage == CUZARR_OTHER_SIZE ? unit.place - CUZARR_LZ4_HEADER : unit.place);
            at = unit.src_bytes;
        }
        for (; at < window.end; at = joined[at - window.begin]) group_entries[(at - window.begin) / most] = at;
        cursors[index] = at;
    }
    block_barrier();
    for (u32 group = thread_index(); group < groups; group += thread_count()) {
        u32 begin = window.begin + group * most, at = group_entries[group];
        while (at < window.end && at - begin < most) {
            entries[at / span_bytes] = at;
            at = exits[at - window.begin];
        }
    }
}

/// More than any output is counted as this, so that sums have room.
#define CUZARR_LZ4_MOST_BYTES (1ull << 31)

CUZARR_DEVICE Lz4Total lz4_bounded(const Lz4Total& total) {
    return {total.bytes < CUZARR_LZ4_MOST_BYTES ? total.bytes : CUZARR_LZ4_MOST_BYTES, total.sequences, 0};
}

/// The sequences of the spans on the path: first their numbers, then, from the sums before each span, the sequences themselves.
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
