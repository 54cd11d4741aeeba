// Lists the headers inside zstd frames for the host.
#include "codec/zstd/zstd_headers.cuh"

CUZARR_KERNEL(headers_zstd, const u8* src, const HeaderUnit* units, u32 count, HeaderList list) {
    for (u32 unit = block_index() * thread_count() + thread_index(); unit < count; unit += block_count() * thread_count()) {
        HeaderUnit own = units[unit];
        HeaderWalk walk = {src + own.src_offset, own.src_offset, own.src_bytes, unit, list};
        headers_of_zstd(walk, 0, own.src_bytes);
    }
}
