// The last passes of zstd decoding: where every block's bytes go, the input of the engine that copies, and the
// content's checksum.
//
// `zstd_place` scans the blocks of a unit for their lengths, and for their effect on the three repeat offsets. Then
// `zstd_finish` knows for each sequence where its bytes go, where its literals lie and how far back it repeats.
#include "codec/zstd/xxh64.cuh"
#include "codec/zstd/zstd.cuh"
#include "cuzarr/warp.cuh"

/// Places the blocks of a frame that begins at `at` of its unit, and moves `at` behind it. Returns false if the frame
/// is damaged.
CUZARR_DEVICE bool place_frame(const ZstdTask& task, const ZstdUnit& unit, const ZstdFrame& frame, u32& at, u32 lane) {
    Repeats carried = {1, 4, 8};
    u32 frame_at = at;
    for (u32 base = 0; base < frame.blocks; base += CUZARR_WARP) {
        bool mine = base + lane < frame.blocks;
        u32 index = frame.first_block + base + lane, bytes = 0, most = 0;
        Repeats repeats = zstd_unchanged();
        if (mine) {
            const ZstdBlock& block = task.blocks[index];
            const ZstdResult& result = task.results[index];
            bytes = block.literal_bytes, most = block.most_bytes;
            if (block.sequences) {
                bytes = result.out_bytes;
                repeats = {result.repeats_out[0], result.repeats_out[1], result.repeats_out[2]};
            }
        }
        u32 end = bytes;
        for (u32 step = 1; step < CUZARR_WARP; step *= 2) {
            u32 before_end = warp_shuffle_up(CUZARR_ALL_LANES, end, step);
            if (lane >= step) end += before_end;
        }
        repeats = compose(carried, scan_repeats(repeats, lane));
        // The repeat offsets that each block begins with: those that the block before left.
        Repeats begins = shuffle_repeats(repeats, lane ? lane - 1 : 0);
        if (lane == 0) begins = carried;
        // 32 blocks of at most 128 KiB, behind at most 2 GiB: no overflow.
        u32 over = warp_ballot(CUZARR_ALL_LANES, mine && (bytes > most || at + end > unit.dst_bytes));
        if (over) {
            u32 which = lowest_bit(over);
            if (lane == which) {
                zstd_report(task, task.blocks[index], bytes > most ? CUZARR_ZSTD_LARGE_BLOCK : CUZARR_TOO_LONG);
            }
            return false;
        }
        if (mine) {
            ZstdResult& result = task.results[index];
            result.out_at = at + end - bytes, result.frame_at = frame_at;
            result.repeats_in[0] = begins.first, result.repeats_in[1] = begins.second;
            result.repeats_in[2] = begins.third;
        }
        at += warp_shuffle(CUZARR_ALL_LANES, end, CUZARR_WARP - 1);
        carried = shuffle_repeats(repeats, CUZARR_WARP - 1);
    }
    if (frame.content_bytes != CUZARR_ZSTD_UNKNOWN && frame.content_bytes != at - frame_at) {
        if (lane == 0) report(task.statuses, frame.unit, CUZARR_OTHER_SIZE, frame.at);
        return false;
    }
    return true;
}

CUZARR_KERNEL(zstd_place, const ZstdTask task) {
    u32 lane = thread_index() % CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    for (u32 index = block_index() * warps + thread_index() / CUZARR_WARP; index < task.unit_count;
         index += block_count() * warps) {
        if (zstd_is_damaged(task, index)) continue;
        const ZstdUnit& unit = task.units[index];
        u32 at = 0, frame = 0;
        while (frame < unit.frames && place_frame(task, unit, task.frames[unit.first_frame + frame], at, lane)) ++frame;
        if (frame < unit.frames || lane != 0) continue;
        if (at < unit.dst_bytes) report(task.statuses, index, CUZARR_TOO_SHORT, unit.src_bytes);
        task.bundle_counts[index] = unit.bundles;
    }
}

/// Number of sequences that a thread takes at a time.
#define CUZARR_ZSTD_OWN 4u

/// Where a block's literals lie, in the form that the engine reads.
CUZARR_DEVICE u32 literals_place(const ZstdUnit& unit, const ZstdBlock& block) {
    if (block.literals_kind == CUZARR_ZSTD_RAW || (block.literals_kind == CUZARR_ZSTD_RLE && block.sequences == 0)) {
        return (u32)(block.src - unit.src) + block.literals_at;
    }
    return CUZARR_LZ_SCRATCH | (u32)(block.literals - unit.literals);
}

/// Loads the sequences that a thread takes from `first` on: every 32nd, so that the lanes of a warp read and write
/// neighbours.
CUZARR_DEVICE void load_own(const u64* sequences, u32 first, u32 count, u64 own[CUZARR_ZSTD_OWN]) {
#pragma unroll
    for (u32 i = 0; i < CUZARR_ZSTD_OWN; ++i) {
        u32 index = first + i * CUZARR_WARP;
        own[i] = index < count ? sequences[index] : 0;
    }
}

/// Replaces `bytes` and `used` by their sums over the block's sequences, up to and including each of the thread's own.
/// `at` and `literals` are the sums before, and then the sums behind. `sums` has two places for each warp.
CUZARR_DEVICE void sum_own(u32 bytes[CUZARR_ZSTD_OWN], u32 used[CUZARR_ZSTD_OWN], u32& at, u32& literals, u32* sums) {
    u32 lane = thread_index() % CUZARR_WARP, warp = thread_index() / CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    for (u32 step = 1; step < CUZARR_WARP; step *= 2) {
#pragma unroll
        for (u32 i = 0; i < CUZARR_ZSTD_OWN; ++i) {
            u32 more_bytes = warp_shuffle_up(CUZARR_ALL_LANES, bytes[i], step);
            u32 more_used = warp_shuffle_up(CUZARR_ALL_LANES, used[i], step);
            if (lane >= step) bytes[i] += more_bytes, used[i] += more_used;
        }
    }
    u32 row_bytes = 0, row_used = 0;
#pragma unroll
    for (u32 i = 0; i < CUZARR_ZSTD_OWN; ++i) {
        bytes[i] += row_bytes, used[i] += row_used;
        row_bytes = warp_shuffle(CUZARR_ALL_LANES, bytes[i], CUZARR_WARP - 1);
        row_used = warp_shuffle(CUZARR_ALL_LANES, used[i], CUZARR_WARP - 1);
    }
    if (lane == 0) sums[2 * warp] = row_bytes, sums[2 * warp + 1] = row_used;
    block_barrier();
    for (u32 i = 0; i < warps; ++i) {
        if (i == warp) {
#pragma unroll
            for (u32 k = 0; k < CUZARR_ZSTD_OWN; ++k) bytes[k] += at, used[k] += literals;
        }
        at += sums[2 * i], literals += sums[2 * i + 1];
    }
    block_barrier();
}

/// Returns a sequence of a block that has none: its literals, in two parts if they are many. Literals that are all
/// equal become one literal, and a match that repeats it.
CUZARR_DEVICE u64 only_brief(const ZstdBlock& block, u32 index) {
    u32 bytes = block.literal_bytes, first = bytes < CUZARR_LZ_BRIEF_LITERALS ? bytes : CUZARR_LZ_BRIEF_LITERALS;
    if (block.literals_kind == CUZARR_ZSTD_RLE) return index == 0 ? lz_brief(1, bytes - 1, 1) : 0;
    return index == 0 ? lz_brief(first, 0, 1) : index == 1 && bytes > first ? lz_brief(bytes - first, 0, 1) : 0;
}

/// Turns a block's sequences into those that the engine reads, by all threads, and makes the bundles that say where
/// they begin.
CUZARR_DEVICE void finish_block(const ZstdTask& task, const ZstdBlock& block, const ZstdResult& result, u32* sums) {
    const ZstdUnit& unit = task.units[block.unit];
    u64* sequences = task.sequences + block.first_sequence;
    LzBundle* bundles = task.bundles + block.first_sequence / CUZARR_LZ_BUNDLE;
    u32 literals = literals_place(unit, block), at = result.out_at, thread = thread_index();
    if (block.sequences == 0) {
        if (thread < CUZARR_LZ_BUNDLE) sequences[thread] = only_brief(block, thread);
        if (thread == 0) *bundles = {at, literals};
        return;
    }
    u32 count = block.sequences, frame_at = result.frame_at, tail = result.tail;
    u32 step = CUZARR_ZSTD_OWN * thread_count(), own_at = thread / CUZARR_WARP * CUZARR_WARP * CUZARR_ZSTD_OWN + thread % CUZARR_WARP;
    Repeats repeats = {result.repeats_in[0], result.repeats_in[1], result.repeats_in[2]};
    u64 next[CUZARR_ZSTD_OWN];
    load_own(sequences, own_at, count, next);
    for (u32 base = own_at; base - own_at < count; base += step) {
        u64 own[CUZARR_ZSTD_OWN];
        u32 bytes[CUZARR_ZSTD_OWN], used[CUZARR_ZSTD_OWN];
#pragma unroll
        for (u32 i = 0; i < CUZARR_ZSTD_OWN; ++i) {
            own[i] = next[i];
            bool mine = base + i * CUZARR_WARP < count;
            used[i] = zstd_literals(own[i]), bytes[i] = mine ? used[i] + zstd_match(own[i]) : 0;
        }
        load_own(sequences, base + step, count, next);
        sum_own(bytes, used, at, literals, sums);
#pragma unroll
        for (u32 i = 0; i < CUZARR_ZSTD_OWN; ++i) {
            u32 index = base + i * CUZARR_WARP;
            if (index >= count) continue;
            u32 run = zstd_literals(own[i]), match = bytes[i] - zstd_match(own[i]);
            u32 offset = zstd_resolve(zstd_offset(own[i]), repeats.first, repeats.second, repeats.third);
            if (offset == 0) zstd_report(task, block, CUZARR_ZERO_OFFSET);
            else if (offset > match - frame_at) zstd_report(task, block, CUZARR_BEFORE_START);
            sequences[index] = lz_brief(run, zstd_match(own[i]), offset);
            if (index % CUZARR_LZ_BUNDLE == 0) bundles[index / CUZARR_LZ_BUNDLE] = {match - run, used[i] - run};
        }
    }
    // The literals behind the last sequence, and zeros up to the end of the last bundle, which may hold nothing else.
    u32 last = count / CUZARR_LZ_BUNDLE * CUZARR_LZ_BUNDLE + thread;
    if (thread < CUZARR_LZ_BUNDLE && last >= count) sequences[last] = last == count && tail ? lz_brief(tail, 0, 1) : 0;
    if (count % CUZARR_LZ_BUNDLE == 0 && thread == 0) bundles[count / CUZARR_LZ_BUNDLE] = {at, literals};
}

/// Finishes all blocks. A block of threads takes a block of data.
CUZARR_KERNEL(zstd_finish, const ZstdTask task) {
    CUZARR_SHARED(u32, sums, 2 * 256 / CUZARR_WARP);
    CUZARR_SHARED(u32, damaged, 1);
    for (u32 index = block_index(); index < task.block_count; index += block_count()) {
        // One thread reads the status, so that all threads do the same: others may be reporting.
        if (thread_index() == 0) damaged[0] = task.statuses[task.blocks[index].unit] != 0;
        block_barrier();
        if (!damaged[0]) finish_block(task, task.blocks[index], task.results[index], sums);
        block_barrier();
    }
}

/// Compares the checksums of frames: the lower half of XXH64 of their content. One warp takes each frame.
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
