// Lists the headers inside Blosc containers, and of the zstd frames in them, for the host.
#include "codec/blosc/blosc.cuh"
#include "codec/zstd/zstd_headers.cuh"

/// Lists the streams of block `block`, and the headers inside them.
CUZARR_DEVICE void headers_of_streams(const HeaderWalk& walk, u32 block, u32 blocks, u32 flags, u32 type_bytes) {
    u32 decoded = walk.number(4, 4), most = walk.number(8, 4), begin = block * most;
    u32 size = decoded - begin < most ? decoded - begin : most;
    bool splits = !(flags & CUZARR_BLOSC_UNSPLIT) && size == most && type_bytes <= CUZARR_BLOSC_MOST_SPLITS &&
                  size / type_bytes >= CUZARR_BLOSC_LEAST_SPLIT;
    u32 count = splits ? type_bytes : 1, split_bytes = size / count, at = walk.number(CUZARR_BLOSC_HEADER + block * 4, 4);
    if (at < CUZARR_BLOSC_HEADER + blocks * 4 || at >= walk.size) return;
    for (u32 split = 0; split < count; ++split) {
        if (walk.size - at < 4 || !walk.take(at)) return;
        u32 bytes = walk.number(at, 4);
        at += 4;
        if (bytes > walk.size - at) return;
        if (flags >> 5 == CUZARR_BLOSC_ZSTD && bytes != split_bytes) headers_of_zstd(walk, at, at + bytes);
        at += bytes;
    }
}

/// Lists the headers of all frames. A warp takes a frame, and its lanes take blocks.
CUZARR_KERNEL(headers_blosc, const u8* src, const HeaderUnit* units, u32 count, HeaderList list) {
    u32 lane = thread_index() % CUZARR_WARP, warps = thread_count() / CUZARR_WARP;
    for (u32 unit = block_index() * warps + thread_index() / CUZARR_WARP; unit < count; unit += block_count() * warps) {
        HeaderUnit own = units[unit];
        HeaderWalk walk = {src + own.src_offset, own.src_offset, own.src_bytes, unit, list};
        if (lane == 0 && own.src_bytes > 0) walk.take(0);
        if (own.src_bytes < CUZARR_BLOSC_HEADER) continue;
        u32 flags = walk.frame[2], type_bytes = walk.frame[3] ? walk.frame[3] : 1;
        u32 decoded = walk.number(4, 4), most = walk.number(8, 4), room = (own.src_bytes - CUZARR_BLOSC_HEADER) / 4;
        if (flags & CUZARR_BLOSC_COPIED || decoded == 0 || most == 0) continue;
        u32 blocks = (decoded - 1) / most + 1;
        if (blocks > room) continue;
        for (u32 block = lane; block < blocks; block += CUZARR_WARP) {
            // One lane in four lists the places where four blocks begin.
            if (block % 4 == 0 && !walk.take(CUZARR_BLOSC_HEADER + block * 4)) break;
            headers_of_streams(walk, block, blocks, flags, type_bytes);
        }
    }
}
