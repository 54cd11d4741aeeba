// LZ4 frames as numcodecs writes them: the decoded size (u32), then one block. A warp decodes a frame.
//
// Floor on an H200, for the hard parts of shuffled fields (7 bytes a sequence): a sequence waits for one load of the stream
// (L1, 35 cycles), three shuffles (75) and one load of the output (L2, 260), the last overlapped with the next parse:
// 250-350 cycles, 40 MB/s a warp; long matches and literals go at 512 bytes a round trip, 1 GB/s a warp. So
// 8192 frames of 64 KiB should give 150-250 GB/s, 512 of 1 MiB 40-60, 64 of 8 MiB 5-8: few large frames need another
// engine. Issue: about 110 instructions a sequence, 132 x 4 x 1.9 GHz / 110 x 7 bytes = 64 GB/s for data that is hard throughout.
#include "cuzarr/lz4.cuh"

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
        if (damage && lane == 0) report(statuses, (u32)index, damage, at);
    }
}
