// LZ4 frames as numcodecs writes them: the decoded size (u32), then one block; or blocks alone. A warp decodes a frame.
//
// Floor on an H200, for the hard parts of shuffled fields (7 bytes a sequence): a sequence waits for one load of the stream
// (L1, 35 cycles), three shuffles (75) and one load of the output (L2, 260), the last overlapped with the next parse:
// 250-350 cycles, 40 MB/s a warp; long matches and literals go at 512 bytes a round trip, 1 GB/s a warp. So
// 8192 frames of 64 KiB should give 150-250 GB/s, 512 of 1 MiB 40-60, 64 of 8 MiB 5-8: few large frames need another
// engine. Issue: about 110 instructions a sequence, 132 x 4 x 1.9 GHz / 110 x 7 bytes = 64 GB/s for data that is hard throughout.
#include "codec/lz4/lz4.cuh"
#include "codec/lz4/lz4_guess.cuh"
#include "codec/lz4/lz4_tokens.cuh"

#define CUZARR_LZ4_HEADER 4u

/// Decodes frames, each by a warp. `header` is the number of bytes before each block that say its decoded size: 4 or
/// none.
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

/// An LZ4 block for which the whole GPU makes sequences, for lz.cu. An entry of the table of `Lz4Blocks` in blocks.rs.
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

/// Returns damage if the header does not say the size that metadata says, or if there is no block.
CUZARR_DEVICE u32 lz4_header(const Lz4Unit& unit, const Lz4Block& block) {
    if (unit.header && load_u32(block.src - CUZARR_LZ4_HEADER) != block.out_size) return CUZARR_OTHER_SIZE;
    return block.size == 0 ? CUZARR_CUT_OFF : CUZARR_INTACT;
}

/// Finds the sequences of many units: each block of threads takes one unit, span after span. Bytes inside a run of
/// literals are skipped.
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

// For few units, or short sequences: the tokens of all spans at once, from guesses that are corrected; then the
// sequences of the spans on the path.

/// Number of spans, for each lane, whose entries a warp checks together.
#define CUZARR_LZ4_AHEAD 4u

CUZARR_DEVICE u32 lz4_unit_of_span(const Lz4Unit* units, u32 count, u32 span) {
    return last_from(count, span, [=](u32 unit) { return (u64)units[unit].first_span; });
}

/// Finds the tokens of each span from a guess of where it is entered. With `mend`, starts where the span before leads
/// to instead, if no token was found there. A warp takes each span.
CUZARR_KERNEL_SIZED(
    CUZARR_WARP, 16, lz4_guess, const u8* src, const Lz4Unit* units, u32 count, u32 part_log, u32 mend, u32* tokens, Lz4Exit* exits
) {
    CUZARR_LZ4_GUESS_SHARED(span, part_log);
    u32 number = block_index(), span_bytes = CUZARR_WARP << part_log;
    Lz4Unit unit = units[lz4_unit_of_span(units, count, number)];
    u32 begin = (number - unit.first_span) * span_bytes, entry = begin ? CUZARR_LZ4_NOWHERE : 0;
    tokens += (u64)number * (span_bytes / 32);
    if (mend) {
        if (begin == 0) return;
        // This may change meanwhile: the path is followed after this kernel.
        entry = volatile_load(&exits[number - 1].next);
        if (entry < begin || entry - begin >= span_bytes || entry >= unit.src_bytes || lz4_is_noted(tokens, entry - begin)) return;
    }
    lz4_find(span, lz4_block_of(unit, src, (LzSequence*)0), begin, entry, tokens, exits + number, thread_index());
}

/// Corrects spans where the path of the span before does not lead to a token that was found: it mostly leads to one
/// soon. A thread takes each span.
CUZARR_KERNEL(lz4_mend, const u8* src, const Lz4Unit* units, u32 count, u32 spans, u32 part_log, u32* tokens, const Lz4Exit* exits) {
    u32 number = block_index() * thread_count() + thread_index(), span_bytes = CUZARR_WARP << part_log;
    if (number >= spans) return;
    Lz4Unit unit = units[lz4_unit_of_span(units, count, number)];
    if (number == unit.first_span) return;
    u32 begin = (number - unit.first_span) * span_bytes, left = unit.src_bytes - begin, size = left < span_bytes ? left : span_bytes;
    u32 entry = exits[number - 1].next - begin;
    tokens += (u64)number * (span_bytes / 32);
    if (entry >= size) return;
    src += unit.src_offset + begin;
    u32 meeting = lz4_meeting(src, size, entry, tokens);
    if (meeting > entry && meeting < size) lz4_note_path(src, size, entry, meeting, tokens);
}

/// Notes the tokens of a span from `entry` on, without guessing, by all threads of a block.
CUZARR_DEVICE void lz4_pass(Lz4Span& span, const Lz4Block& block, u32 begin, u32 entry, u32* tokens, Lz4Exit* exit) {
    lz4_load(span, block.src + begin, block.size - begin);
    lz4_connect(span);
    u32 own, leaving = lz4_enter(span, entry, own), thread = thread_index(), bits = 0;
    for (u32 at = own; at < span.size && at / CUZARR_LZ4_OWN == thread; at = at == leaving ? span.size : lz4_next(span, at)) {
        bits |= 1u << at % CUZARR_LZ4_OWN;
    }
    tokens[thread] = bits;
    if (thread >= CUZARR_WARP) return;
    Lz4Exit found = lz4_exit(block, begin + leaving, thread);
    if (thread == 0) *exit = found;
}

/// Sets entries[span] to where the path enters it; it is CUZARR_LZ4_NOWHERE before. A block of threads takes each unit.
/// Its first warp follows the path over many spans at once, as long as each span leads to a token that was found in the
/// next one.
CUZARR_KERNEL(
    lz4_chase, const u8* src, const Lz4Unit* units, u32* tokens, Lz4Exit* exits, u32* entries, u64* statuses
) {
    CUZARR_LZ4_SPAN_SHARED(span);
    // The position that the path has reached, and the number of spans that it leads through from there on.
    CUZARR_SHARED(u32, way, 2);
    u32 thread = thread_index(), lane = thread % CUZARR_WARP, room = thread_count() * CUZARR_LZ4_OWN;
    Lz4Unit unit = units[block_index()];
    Lz4Block block = lz4_block_of(unit, src, (LzSequence*)0);
    u32 damage = lz4_header(unit, block);
    if (damage) {
        if (thread == 0) report(statuses, unit.status, damage, damage == CUZARR_OTHER_SIZE ? unit.place - CUZARR_LZ4_HEADER : unit.place);
        return;
    }
    u32 spans = (block.size - 1) / room + 1, at = 0;
    tokens += (u64)unit.first_span * thread_count(), exits += unit.first_span, entries += unit.first_span;
    while (at < block.size) {
        u32 first = at / room, begin = first * room, known = 0, entered[CUZARR_LZ4_AHEAD];
        if (thread < CUZARR_WARP) {
#pragma unroll
            for (u32 k = 0; k < CUZARR_LZ4_AHEAD; ++k) {
                u32 number = first + k * CUZARR_WARP + lane;
                entered[k] = number == first ? at : number < spans ? exits[number - 1].next : CUZARR_LZ4_NOWHERE;
            }
#pragma unroll
            for (u32 k = 0; k < CUZARR_LZ4_AHEAD; ++k) {
                u32 number = first + k * CUZARR_WARP + lane, entry = entered[k];
                bool is_token = entry < block.size && entry / room == number && lz4_is_noted(tokens, entry);
                u32 others = warp_ballot(CUZARR_ALL_LANES, !is_token);
                if (known == k * CUZARR_WARP) known += others ? lowest_bit(others) : CUZARR_WARP;
                if (number - first < known) entries[number] = entry;
            }
            if (known == 0) {
                u32 left = block.size - begin, size = left < room ? left : room;
                u32* its = tokens + begin / 32;
                u32 meeting = lz4_meeting(block.src + begin, size, at - begin, its);
                warp_barrier(CUZARR_ALL_LANES);
                if (meeting < size && lane == 0) lz4_note_path(block.src + begin, size, at - begin, meeting, its);
                if (meeting < size) known = 1;
                if (lane == 0) entries[first] = at;
            }
            if (lane == 0) way[0] = known ? exits[first + known - 1].next : at, way[1] = known;
        }
        block_barrier();
        known = way[1];
        if (known == 0) {
            lz4_pass(span, block, begin, at - begin, tokens + begin / 32, exits + first);
            if (thread == 0) way[0] = exits[first].next;
            block_barrier();
        }
        at = way[0];
        block_barrier();
    }
}

/// Larger numbers of bytes are counted as this, so that sums do not overflow.
#define CUZARR_LZ4_MOST_BYTES (1ull << 31)

CUZARR_DEVICE Lz4Total lz4_bounded(const Lz4Total& total) {
    return {total.bytes < CUZARR_LZ4_MOST_BYTES ? total.bytes : CUZARR_LZ4_MOST_BYTES, total.sequences, 0};
}

/// Makes the sequences of the spans on the path: first their number; then, with `Emit` and the sums before each span,
/// the sequences themselves. A block of threads takes each span. It lists the span's tokens; each warp takes a share of
/// them, one token for each lane.
template <bool Emit>
CUZARR_DEVICE void lz4_span(
    const u8* src, const Lz4Unit* units, u32 count, const u32* entries, const u32* tokens, const Lz4Exit* exits, Lz4Total* totals,
    LzSequence* sequences, u64* statuses
) {
    CUZARR_SHARED(u8, bytes, CUZARR_LZ4_SPAN + 16);
    CUZARR_SHARED(u16, others, CUZARR_LZ4_THREADS);
    CUZARR_SHARED(u16, list, CUZARR_LZ4_SPAN / 3 + 1);
    CUZARR_SHARED(u32, listed, CUZARR_LZ4_THREADS / CUZARR_WARP);
    CUZARR_SHARED(u32, made, CUZARR_LZ4_THREADS / CUZARR_WARP);
    u32 thread = thread_index(), lane = thread % CUZARR_WARP, warp = thread / CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    u32 own = thread * CUZARR_LZ4_OWN, entry = entries[block_index()];
    if (entry == CUZARR_LZ4_NOWHERE) {
        if (!Emit && thread == 0) totals[block_index()] = {0, 0, 0};
        return;
    }
    Lz4Unit unit = units[lz4_unit_of_span(units, count, block_index())];
    Lz4Block block = lz4_block_of(unit, src, sequences);
    u32 span_bytes = thread_count() * CUZARR_LZ4_OWN, begin = (block_index() - unit.first_span) * span_bytes, left = block.size - begin;
    Lz4Staged staged = {bytes, others, left < span_bytes ? left : span_bytes, highest_bit(CUZARR_LZ4_OWN)};
    lz4_stage(bytes, block.src + begin, staged.size, left, thread, thread_count());
    u32 bits = tokens[(u64)block_index() * thread_count() + thread];
    // Tokens that were found before the entry are not on the path.
    if (entry - begin > own) bits &= entry - begin - own < 32 ? 0xffffffffu << (entry - begin - own) : 0;
    u32 place = inclusive_sum(count_ones(bits), lane);
    if (lane == CUZARR_WARP - 1) listed[warp] = place;
    block_barrier();
    lz4_note_others(staged, thread, thread_count());
    u32 all = 0;
    place -= count_ones(bits);
    for (u32 i = 0; i < warps; ++i) {
        if (i < warp) place += listed[i];
        all += listed[i];
    }
    for (; bits; bits &= bits - 1, ++place) list[place] = (u16)(own + lowest_bit(bits));
    block_barrier();
    // The last token leaves the span.
    u32 inside = all - 1, share = (inside + thread_count() - 1) / thread_count() * CUZARR_WARP, first = warp * share, sum = 0;
    u32 end = first + share < inside ? first + share : inside;
    for (u32 i = first + lane; i < end; i += CUZARR_WARP) {
        Lz4Token token = lz4_token(staged, list[i]);
        sum += token.literals + token.match;
    }
    sum = warp_sum(sum);
    if (lane == 0) made[warp] = sum;
    block_barrier();
    u64 out = Emit ? totals[block_index()].bytes : 0;
    if (!Emit && thread > 0) return;
    for (u32 i = 0; i < (Emit ? warp : warps); ++i) out += made[i];
    if (!Emit) {
        Lz4Exit exit = exits[block_index()];
        totals[block_index()] = lz4_bounded({out + exit.literals + exit.match, all, 0});
        return;
    }
    u32 number = totals[block_index()].sequences;
    for (u32 i = first; i < end; i += CUZARR_WARP) {
        bool is_one = i + lane < end;
        u32 at = is_one ? list[i + lane] : 0;
        Lz4Token token = {0, 0, 0, 0, 0};
        if (is_one) token = lz4_token(staged, at);
        u32 length = token.literals + token.match, up_to = inclusive_sum(length, lane);
        if (is_one) lz4_emit_token(block, staged, begin, at, token, out + (up_to - length), number + i + lane, statuses, unit.status, unit.place);
        out += warp_shuffle(CUZARR_ALL_LANES, up_to, CUZARR_WARP - 1);
    }
    // The last warp is at the end of all tokens.
    if (warp == warps - 1 && lane == 0) {
        lz4_emit_exit(block, exits[block_index()], out, number + inside, statuses, unit.status, unit.place);
    }
}

CUZARR_KERNEL(
    lz4_totals, const u8* src, const Lz4Unit* units, u32 count, const u32* entries, const u32* tokens, const Lz4Exit* exits, Lz4Total* totals
) {
    lz4_span<false>(src, units, count, entries, tokens, exits, totals, (LzSequence*)0, (u64*)0);
}

/// Replaces totals[span] by the sum of the spans before it in its unit. A block of threads takes each unit.
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
    lz4_spans, const u8* src, const Lz4Unit* units, u32 count, const u32* entries, const u32* tokens, const Lz4Exit* exits, Lz4Total* totals,
    LzSequence* sequences, u64* statuses
) {
    lz4_span<true>(src, units, count, entries, tokens, exits, totals, sequences, statuses);
}
