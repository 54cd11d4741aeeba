// zstd, last passes: where every block's bytes go, the copying, and the checksum of the content.
//
// `zstd_place` composes, over the blocks of a unit, how long they are and what they do to the three repeat offsets: both are
// scans. `zstd_copy` has one warp a unit, which takes 32 sequences at a time: their literals all at once, then their matches in
// rounds, in each round those whose source is finished. That serves batches of many units.
#include "cuzarr/lz.cuh"
#include "cuzarr/xxh64.cuh"
#include "cuzarr/zstd.cuh"

/// Lengths that a lane copies by itself.
#define CUZARR_ZSTD_SHORT 48u

/// What blocks do to the repeat offsets: each new one is a number, or one of the old ones less a number.
struct Repeats {
    u32 first, second, third;
};

CUZARR_DEVICE Repeats compose(const Repeats& before, const Repeats& after) {
    return {
        zstd_resolve(after.first, before.first, before.second, before.third),
        zstd_resolve(after.second, before.first, before.second, before.third),
        zstd_resolve(after.third, before.first, before.second, before.third),
    };
}

/// Places the blocks of a frame that begins at `at` of its unit; returns where it ends, or ~0 when it is damaged.
CUZARR_DEVICE u32 place_frame(const ZstdTask& task, const ZstdUnit& unit, const ZstdFrame& frame, u32 at, u32 lane) {
    Repeats carried = {1, 4, 8};
    u32 frame_at = at;
    for (u32 base = 0; base < frame.blocks; base += CUZARR_WARP) {
        bool mine = base + lane < frame.blocks;
        u32 index = frame.first_block + base + lane, bytes = 0;
        Repeats repeats = {CUZARR_ZSTD_SYMBOLIC, CUZARR_ZSTD_SYMBOLIC | 1u << 26, CUZARR_ZSTD_SYMBOLIC | 2u << 26};
        if (mine) {
            const ZstdBlock& block = task.blocks[index];
            const ZstdResult& result = task.results[index];
            bytes = block.literal_bytes;
            if (block.sequences) {
                bytes = result.out_bytes;
                repeats = {result.repeats_out[0], result.repeats_out[1], result.repeats_out[2]};
            }
        }
        u32 end = bytes;
        for (u32 step = 1; step < CUZARR_WARP; step *= 2) {
            u32 before_end = warp_shuffle_up(CUZARR_ALL_LANES, end, step);
            Repeats before = {
                warp_shuffle_up(CUZARR_ALL_LANES, repeats.first, step),
                warp_shuffle_up(CUZARR_ALL_LANES, repeats.second, step),
                warp_shuffle_up(CUZARR_ALL_LANES, repeats.third, step),
            };
            if (lane >= step) end += before_end, repeats = compose(before, repeats);
        }
        // What each block begins with: what the one before left.
        repeats = compose(carried, repeats);
        u32 from = lane ? lane - 1 : 0;
        Repeats begins = {
            warp_shuffle(CUZARR_ALL_LANES, repeats.first, from),
            warp_shuffle(CUZARR_ALL_LANES, repeats.second, from),
            warp_shuffle(CUZARR_ALL_LANES, repeats.third, from),
        };
        if (lane == 0) begins = carried;
        // 32 blocks of at most 128 KiB, behind at most 2 GiB: no overflow.
        u32 over = warp_ballot(CUZARR_ALL_LANES, mine && at + end > unit.dst_bytes);
        if (over) {
            u32 which = 31 - count_leading_zeros(over & (0 - over));
            if (lane == which) zstd_report(task, task.blocks[index], CUZARR_TOO_LONG);
            return ~0u;
        }
        if (mine) {
            ZstdResult& result = task.results[index];
            result.out_at = at + end - bytes, result.frame_at = frame_at;
            result.repeats_in[0] = begins.first, result.repeats_in[1] = begins.second;
            result.repeats_in[2] = begins.third;
        }
        at += warp_shuffle(CUZARR_ALL_LANES, end, CUZARR_WARP - 1);
        carried = {
            warp_shuffle(CUZARR_ALL_LANES, repeats.first, CUZARR_WARP - 1),
            warp_shuffle(CUZARR_ALL_LANES, repeats.second, CUZARR_WARP - 1),
            warp_shuffle(CUZARR_ALL_LANES, repeats.third, CUZARR_WARP - 1),
        };
    }
    if (frame.content_bytes != CUZARR_ZSTD_UNKNOWN && frame.content_bytes != at - frame_at) {
        if (lane == 0) report(task.statuses, frame.unit, CUZARR_OTHER_SIZE, frame.at);
        return ~0u;
    }
    return at;
}

CUZARR_KERNEL(zstd_place, const ZstdTask task) {
    u32 lane = thread_index() % CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    for (u32 index = block_index() * warps + thread_index() / CUZARR_WARP; index < task.unit_count;
         index += block_count() * warps) {
        if (zstd_is_damaged(task, index)) continue;
        const ZstdUnit& unit = task.units[index];
        u32 at = 0;
        for (u32 i = 0; i < unit.frames && at != ~0u; ++i) {
            at = place_frame(task, unit, task.frames[unit.first_frame + i], at, lane);
        }
        if (at < unit.dst_bytes && lane == 0) report(task.statuses, index, CUZARR_TOO_SHORT, unit.src_bytes);
    }
}

/// A match of any length, by the whole warp: `count` bytes that repeat what lies `offset` before.
CUZARR_DEVICE void copy_match(u8* to, u32 offset, u32 count, u32 lane) {
    if (offset >= CUZARR_FAR_BYTES) return copy_far(to - offset, to, count, lane);
    u32 back = offset < CUZARR_WARP ? lane % offset : lane;
    if (lane < count) to[lane] = *(to - offset + back);
    warp_barrier(CUZARR_ALL_LANES);
    if (count > CUZARR_WARP) finish_match(to, offset, count, lane);
}

/// Copies up to 32 sequences, a lane each; `at` is where the lane's literals go, `literals` where they lie.
CUZARR_DEVICE void copy_sequences(u8* dst, const u8* literals, u32 run, u32 at, u32 match, u32 offset, u32 lane) {
    if (run <= CUZARR_ZSTD_SHORT) {
        for (u32 i = 0; i < run; ++i) dst[at + i] = literals[i];
    }
    u32 match_at = at + run;
    for (u32 rest = warp_ballot(CUZARR_ALL_LANES, run > CUZARR_ZSTD_SHORT); rest; rest &= rest - 1) {
        u32 which = 31 - count_leading_zeros(rest & (0 - rest));
        const u8* from = (const u8*)warp_shuffle(CUZARR_ALL_LANES, (u64)literals, which);
        u32 to = warp_shuffle(CUZARR_ALL_LANES, at, which), count = warp_shuffle(CUZARR_ALL_LANES, run, which);
        copy_far(from, dst + to, count, lane);
    }
    // A match may be copied when all matches before the end of its source are.
    u32 end = match_at - offset + (match < offset ? match : offset);
    for (u32 pending = warp_ballot(CUZARR_ALL_LANES, match != 0); pending;) {
        warp_barrier(CUZARR_ALL_LANES);
        u32 first = 31 - count_leading_zeros(pending & (0 - pending));
        u32 first_at = warp_shuffle(CUZARR_ALL_LANES, match_at, first);
        u32 first_match = warp_shuffle(CUZARR_ALL_LANES, match, first);
        if (first_match > CUZARR_ZSTD_SHORT) {
            copy_match(dst + first_at, warp_shuffle(CUZARR_ALL_LANES, offset, first), first_match, lane);
            pending &= pending - 1;
            continue;
        }
        bool ready = pending >> lane & 1 && match <= CUZARR_ZSTD_SHORT && (lane == first || end <= first_at);
        if (ready) {
            const u8* from = dst + match_at - offset;
            u8* to = dst + match_at;
            for (u32 i = 0; i < match; ++i) to[i] = from[i];
        }
        pending &= ~warp_ballot(CUZARR_ALL_LANES, ready);
    }
    warp_barrier(CUZARR_ALL_LANES);
}

/// Writes a block behind what its unit has so far; returns the damage.
CUZARR_DEVICE u32 copy_block(const ZstdTask& task, u8* dst, const ZstdBlock& block, const ZstdResult& result, u32 lane) {
    const u8* literals = task.literals + block.literals;
    const u64* sequences = task.sequences + block.first_sequence;
    u32 at = result.out_at, used = 0;
    for (u32 base = 0; base < block.sequences; base += CUZARR_WARP) {
        u32 run = 0, match = 0, offset = 1;
        if (base + lane < block.sequences) {
            u64 sequence = sequences[base + lane];
            run = zstd_literals(sequence), match = zstd_match(sequence);
            offset = zstd_resolve(
                zstd_offset(sequence), result.repeats_in[0], result.repeats_in[1], result.repeats_in[2]
            );
        }
        u32 run_end = run, end = run + match;
        for (u32 step = 1; step < CUZARR_WARP; step *= 2) {
            u32 run_before = warp_shuffle_up(CUZARR_ALL_LANES, run_end, step);
            u32 before = warp_shuffle_up(CUZARR_ALL_LANES, end, step);
            if (lane >= step) run_end += run_before, end += before;
        }
        u32 to = at + end - run - match;
        bool bad = offset == 0 || offset > to + run - result.frame_at;
        u32 votes = warp_ballot(CUZARR_ALL_LANES, bad);
        if (votes) {
            u32 which = 31 - count_leading_zeros(votes & (0 - votes));
            return warp_shuffle(CUZARR_ALL_LANES, offset, which) ? CUZARR_BEFORE_START : CUZARR_ZERO_OFFSET;
        }
        copy_sequences(dst, literals + used + run_end - run, run, to, match, offset, lane);
        used += warp_shuffle(CUZARR_ALL_LANES, run_end, CUZARR_WARP - 1);
        at += warp_shuffle(CUZARR_ALL_LANES, end, CUZARR_WARP - 1);
    }
    copy_far(literals + used, dst + at, block.literal_bytes - used, lane);
    warp_barrier(CUZARR_ALL_LANES);
    return CUZARR_INTACT;
}

CUZARR_KERNEL(zstd_copy, const ZstdTask task) {
    u32 lane = thread_index() % CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    for (u32 index = block_index() * warps + thread_index() / CUZARR_WARP; index < task.unit_count;
         index += block_count() * warps) {
        if (zstd_is_damaged(task, index)) continue;
        const ZstdUnit& unit = task.units[index];
        u8* dst = task.dst + unit.dst;
        u32 damage = CUZARR_INTACT;
        for (u32 f = 0; f < unit.frames && !damage; ++f) {
            const ZstdFrame& frame = task.frames[unit.first_frame + f];
            for (u32 b = 0; b < frame.blocks && !damage; ++b) {
                const ZstdBlock& block = task.blocks[frame.first_block + b];
                damage = copy_block(task, dst, block, task.results[frame.first_block + b], lane);
                if (damage && lane == 0) zstd_report(task, block, damage);
            }
        }
    }
}

/// A warp a frame that has a checksum: the lower half of XXH64 of its content.
CUZARR_KERNEL(zstd_checksum, const ZstdTask task) {
    u32 lane = thread_index() % CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    for (u32 index = block_index() * warps + thread_index() / CUZARR_WARP; index < task.frame_count;
         index += block_count() * warps) {
        const ZstdFrame& frame = task.frames[index];
        if (frame.checksum == CUZARR_ZSTD_UNKNOWN || zstd_is_damaged(task, frame.unit)) continue;
        const ZstdUnit& unit = task.units[frame.unit];
        const u8* content = task.dst + unit.dst;
        u32 size = 0;
        if (frame.blocks) {
            const ZstdResult& result = task.results[frame.first_block + frame.blocks - 1];
            const ZstdBlock& last = task.blocks[frame.first_block + frame.blocks - 1];
            content += result.frame_at;
            size = result.out_at - result.frame_at + (last.sequences ? result.out_bytes : last.literal_bytes);
        }
        u32 checksum = (u32)xxh64(content, size, lane);
        if (lane == 0 && checksum != (u32)load_word(task.src + frame.checksum, 4)) {
            report(task.statuses, frame.unit, CUZARR_WRONG_CHECKSUM, (u32)(frame.checksum - unit.src));
        }
    }
}
