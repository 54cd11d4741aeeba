// Decodes Blosc-1 containers: one warp takes each stream that is stored, or small and of LZ4; then blocks are
// unshuffled. The host has read the headers (scan.rs). Larger streams, and those of other formats, are decoded by their
// own kernels.
//
//     blosc_streams    stream -> frame, block, split: the block's start from the frame's table, the split by walking over
//                      the sizes before it; stored bytes are copied, others decoded, into scratch when they are shuffled
//     blosc_join       what is wrong with a stream that other kernels decoded -> its frame
//     blosc_unshuffle  scratch -> place, by tiles of the output, block by block
#include "cuzarr/planes.cuh"
#include "codec/blosc/blosc.cuh"
#include "codec/lz4/lz4.cuh"

/// Bytes of a piece of a frame that stores its data uncompressed.
#define CUZARR_BLOSC_PIECE (32u << 10)
/// Bytes of output that a block of threads unshuffles at a time.
#define CUZARR_TILE (16u << 10)

/// Decodes stream `number` of a frame of streams. Returns the damage, with its place in the frame in `at`.
CUZARR_DEVICE u32 decode_stream(const u8* encoded, const Frame& frame, u32 number, u8* decoded, u32 lane, u32& at) {
    u32 whole_streams = frame.dst_bytes / frame.block_bytes * frame.splits;
    u32 blocks = (u32)(((u64)frame.dst_bytes + frame.block_bytes - 1) / frame.block_bytes);
    bool last = number >= whole_streams;
    u32 block = last ? blocks - 1 : number / frame.splits, split = last ? 0 : number % frame.splits;
    u64 block_at = (u64)block * frame.block_bytes;
    u32 size = last ? frame.dst_bytes - (u32)block_at : frame.block_bytes / frame.splits;
    u64 entry = CUZARR_BLOSC_HEADER + 4ull * block, table_end = CUZARR_BLOSC_HEADER + 4ull * blocks;
    // The host has checked that the table of starts is inside the frame.
    at = (u32)entry;
    u64 begin = load_u32(encoded + entry);
    if (begin < table_end) return CUZARR_OUTSIDE;
    u32 compressed = 0;
    for (u32 before = 0;; ++before) {
        if (begin + 4 > frame.src_bytes) return CUZARR_OUTSIDE;
        at = (u32)begin;
        compressed = load_u32(encoded + begin);
        begin += 4;
        if (compressed > frame.src_bytes - begin) return CUZARR_OUTSIDE;
        if (before == split) break;
        begin += compressed;
    }
    u8* to = decoded + block_at + (u64)split * size;
    if (compressed == size) {
        copy_far(encoded + begin, to, size, lane);
        return CUZARR_INTACT;
    }
    if (frame.kind == CUZARR_FRAME_STORED) return CUZARR_INTACT;
    u32 inside = 0;
    u32 damage = lz4_block(encoded + begin, compressed, to, size, lane, inside);
    at = (u32)begin + inside;
    return damage;
}

CUZARR_KERNEL(
    blosc_streams, const u8* src, u8* dst, u8* work, const FrameTable* table, u32 count, u64* statuses
) {
    const Frame* frames = frames_of(table);
    u32 lane = thread_index() % CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    u64 step = (u64)block_count() * warps, streams = table->streams;
    for (u64 stream = (u64)block_index() * warps + thread_index() / CUZARR_WARP; stream < streams; stream += step) {
        u32 index = frame_of_stream(frames, count, stream);
        const Frame& frame = frames[index];
        const u8* encoded = src + frame.src_offset;
        u8* decoded = frame.shuffling ? work + frame.work_offset : dst + frame.dst_offset;
        u32 number = (u32)(stream - frame.first_stream), at = 0, damage = CUZARR_INTACT;
        if (frame.kind == CUZARR_FRAME_COPIED) {
            u32 first = number * CUZARR_BLOSC_PIECE, rest = frame.dst_bytes - first;
            copy_far(encoded + CUZARR_BLOSC_HEADER + first, decoded + first, rest < CUZARR_BLOSC_PIECE ? rest : CUZARR_BLOSC_PIECE, lane);
        } else {
            damage = decode_stream(encoded, frame, number, decoded, lane, at);
        }
        if (damage && lane == 0) report(statuses, index, damage, at);
    }
}

/// The frame of a stream that other kernels decode, and where the stream begins in it.
struct BloscOwner {
    u32 frame, place;
};

/// Reports the damage of streams for their frames, at the same byte of those.
CUZARR_KERNEL(blosc_join, const u64* streams, const BloscOwner* owners, u32 count, u64* statuses) {
    u32 index = block_index() * thread_count() + thread_index();
    if (index >= count || streams[index] == 0) return;
    u32 at = 0xffffffffu - (u32)(streams[index] >> 8);
    report(statuses, owners[index].frame, (u32)streams[index] & 255, owners[index].place + at);
}

/// Unshuffles bytes [begin, end) of a block one by one: those that no fast path takes. The first `elems` units are
/// shuffled by bytes; the bytes behind them are not shuffled.
CUZARR_DEVICE void unshuffle_bytes(const u8* from, u8* to, u32 elems, u32 unit, u32 begin, u32 end) {
    u64 shuffled = (u64)elems * unit;
    for (u32 i = begin + thread_index(); i < end; i += thread_count()) {
        to[i] = i < shuffled ? from[(u64)(i % unit) * elems + i / unit] : from[i];
    }
}

/// Unshuffles four elements at a time, from the first that begins at or behind `begin`. Returns where the remaining
/// bytes begin, or 0 if planes or target are not aligned.
CUZARR_DEVICE u32 unshuffle_words(const u8* from, u8* to, u32 elems, u32 unit, u32 begin, u32 end) {
    u32 group = 4 * unit, store = group < 16 ? group : 16;
    if ((unit != 2 && unit != 4 && unit != 8) || elems % 4 || (u64)from % 4 || (u64)to % store) return 0;
    u32 last = elems / 4, first = (begin + group - 1) / group, stop = (end + group - 1) / group;
    stop = stop < last ? stop : last;
    for (u32 i = first + thread_index(); i < stop; i += thread_count()) {
        u32 planes[8];
        const u32* plane = (const u32*)from + i;
        u32 stride = elems / 4;
#pragma unroll
        for (u32 k = 0; k < 8; ++k) {
            if (k < unit) planes[k] = plane[(u64)k * stride];
        }
        u8* target = to + (u64)i * group;
        if (unit == 2) {
            ((u32*)target)[0] = interleave_low(planes[0], planes[1]);
            ((u32*)target)[1] = interleave_high(planes[0], planes[1]);
        } else if (unit == 4) {
            transpose_bytes(planes);
            *(uint4*)target = uint4{planes[0], planes[1], planes[2], planes[3]};
        } else {
            transpose_bytes(planes), transpose_bytes(planes + 4);
            ((uint4*)target)[0] = uint4{planes[0], planes[4], planes[1], planes[5]};
            ((uint4*)target)[1] = uint4{planes[2], planes[6], planes[3], planes[7]};
        }
    }
    return last * group;
}

/// Unshuffles the bits of groups of 8 elements that begin in [begin, end). Blosc shuffles bits only if all groups are
/// whole.
CUZARR_DEVICE void bitunshuffle(const u8* from, u8* to, u32 groups, u32 unit, u32 begin, u32 end) {
    u32 group = 8 * unit, first = (begin + group - 1) / group, stop = (end + group - 1) / group;
    stop = stop < groups ? stop : groups;
    bool words = (u64)to % 8 == 0;
    for (u32 i = first + thread_index(); i < stop; i += thread_count()) {
        u8* target = to + (u64)i * group;
        if (words && unit == 1) bitunshuffle_group<1>(from + i, (u64*)target, groups);
        else if (words && unit == 2) bitunshuffle_group<2>(from + i, (u64*)target, groups);
        else if (words && unit == 4) bitunshuffle_group<4>(from + i, (u64*)target, groups);
        else if (words && unit == 8) bitunshuffle_group<8>(from + i, (u64*)target, groups);
        else bitunshuffle_group(from + i, target, groups, unit);
    }
}

/// Unshuffles bytes [begin, end) of one block of `size` bytes, or the elements and groups that begin there.
CUZARR_DEVICE void unshuffle_part(const u8* from, u8* to, u32 size, const Frame& frame, u32 begin, u32 end) {
    u32 unit = frame.type_bytes, elems = size / unit, done = 0;
    if (frame.shuffling == 1) {
        done = unshuffle_words(from, to, elems, unit, begin, end);
    } else if (elems % 8 == 0) {
        bitunshuffle(from, to, elems / 8, unit, begin, end);
        done = elems * unit;
        elems = 0;
    } else {
        elems = 0;
    }
    unshuffle_bytes(from, to, elems, unit, begin > done ? begin : done, end);
}

CUZARR_KERNEL(
    blosc_unshuffle, const u8* work, u8* dst, const FrameTable* table, u32 count, u32 tiles
) {
    const Frame* frames = frames_of(table);
    for (u32 tile = block_index(); tile < tiles; tile += block_count()) {
        const Frame& frame = frames[frame_of_tile(frames, count, tile)];
        if (frame.kind < CUZARR_FRAME_STREAMS || frame.shuffling == 0) continue;
        u64 begin = (u64)(tile - frame.first_tile) * CUZARR_TILE, end = begin + CUZARR_TILE;
        end = end < frame.dst_bytes ? end : frame.dst_bytes;
        for (u64 at = begin; at < end;) {
            u64 block = at / frame.block_bytes * frame.block_bytes, block_end = block + frame.block_bytes;
            block_end = block_end < frame.dst_bytes ? block_end : frame.dst_bytes;
            u64 stop = block_end < end ? block_end : end;
            const u8* from = work + frame.work_offset + block;
            u8* to = dst + frame.dst_offset + block;
            unshuffle_part(from, to, (u32)(block_end - block), frame, (u32)(at - block), (u32)(stop - block));
            at = stop;
        }
    }
}
