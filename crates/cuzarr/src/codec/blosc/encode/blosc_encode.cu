// Makes Blosc-1 containers around streams that another encoder made.
//
//     blosc_encode_streams gives each stream its size, or 0 where its chunk is left out
//     blosc_encode_sizes   sums up where streams go in their container; a copy where that is shorter   a warp a chunk
//     encode_places        where containers lie, one behind the other                                  (encoded.cu)
//     blosc_encode_write   headers, and streams, or what they were made of where that is no larger     a warp a part
//
// Floor: memory, read and written once.
#include "codec/batch/encode/encoded.cuh"
#include "codec/blosc/blosc.cuh"
#include "codec/lz/lz.cuh"
#include "cuzarr/warp.cuh"

/// Bytes of a stream that a warp copies.
#define CUZARR_BLOSC_PART_BYTES 16384u

/// Streams of one size. `EncodedStreams` in codec/blosc/encode/cuda.rs.
struct BloscStreams {
    const u8* plain;              // what they are made of
    const u8* coded;
    const EncodedFrame* entries;
    u32 count;                    // of a chunk
    u32 size;
    u32 stride;                   // from one's plain bytes to the next one's
    u32 parts;                    // of a stream
};

/// The arguments of the kernels: `BloscTask` in codec/blosc/encode/cuda.rs.
struct BloscEncode {
    const u8* src;
    const u32* sizes;             // of chunks; 0: it is left out
    BloscStreams streams[2];      // those of whole blocks, and those of short last ones
    u32* places;                  // of a stream, in its container
    EncodedFrame* frames;
    u8* out;
    u64 stride;                   // from one chunk to the next
    u32 chunks;
    u32 chunk_bytes;
    u32 block_bytes;
    u32 splits;                   // streams of a whole block
    u32 header;                   // the container's first 4 bytes
    u32 reserved;
};
static_assert(sizeof(BloscStreams) == 40 && sizeof(BloscEncode) == 152, "as the host writes it");

CUZARR_DEVICE u32 blosc_blocks(const BloscEncode& task) { return (task.chunk_bytes + task.block_bytes - 1) / task.block_bytes; }

/// A stream of a chunk.
struct BloscStream {
    const u8* plain;
    const u8* coded;
    u32 size, coded_size;
};

CUZARR_DEVICE BloscStream blosc_stream(const BloscEncode& task, u32 chunk, u32 index) {
    const BloscStreams& streams = task.streams[index < task.streams[0].count ? 0 : 1];
    u64 number = index < task.streams[0].count ? (u64)chunk * streams.count + index : chunk;
    const EncodedFrame entry = streams.entries[number];
    return {streams.plain + number * streams.stride, streams.coded + entry.at, streams.size, entry.size};
}

CUZARR_DEVICE bool is_stored(const BloscStream& stream) { return stream.coded_size >= stream.size; }

CUZARR_KERNEL(blosc_encode_streams, const u32* sizes, u32* streams, u32 count, u32 per_chunk, u32 stream_bytes) {
    for (u32 i = block_index() * thread_count() + thread_index(); i < count; i += block_count() * thread_count()) {
        streams[i] = sizes[i / per_chunk] ? stream_bytes : 0;
    }
}

CUZARR_KERNEL(blosc_encode_sizes, const BloscEncode task) {
    u32 warps = thread_count() / CUZARR_WARP, lane = thread_index() % CUZARR_WARP;
    u32 streams = task.streams[0].count + task.streams[1].count;
    for (u32 chunk = block_index() * warps + thread_index() / CUZARR_WARP; chunk < task.chunks; chunk += block_count() * warps) {
        u32 at = CUZARR_BLOSC_HEADER + 4 * blosc_blocks(task);
        for (u32 first = 0; first < streams && task.sizes[chunk]; first += CUZARR_WARP) {
            u32 index = first + lane, own = 0;
            if (index < streams) {
                BloscStream stream = blosc_stream(task, chunk, index);
                own = is_stored(stream) ? stream.size : stream.coded_size;
            }
            u32 end = at + inclusive_sum(index < streams ? own + 4 : 0, lane);
            if (index < streams) task.places[(u64)chunk * streams + index] = end - own;
            at = warp_shuffle(CUZARR_ALL_LANES, end, CUZARR_WARP - 1);
        }
        u32 copied = CUZARR_BLOSC_HEADER + task.chunk_bytes;
        bool is_copied = at >= copied;
        if (lane == 0) task.frames[chunk] = {0, task.sizes[chunk] ? is_copied ? copied : at : 0, is_copied};
    }
}

CUZARR_DEVICE void store_u32(u8* to, u32 value, u32 lane) {
    if (lane < 4) to[lane] = (u8)(value >> 8 * lane);
}

CUZARR_DEVICE void write_header(u8* to, const BloscEncode& task, const EncodedFrame& frame, u32 lane) {
    store_u32(to, task.header | (frame.is_copied ? CUZARR_BLOSC_COPIED << 16 : 0), lane);
    store_u32(to + 4, task.chunk_bytes, lane);
    store_u32(to + 8, task.block_bytes, lane);
    store_u32(to + 12, frame.size, lane);
}

CUZARR_KERNEL(blosc_encode_write, const BloscEncode task) {
    u32 warps = thread_count() / CUZARR_WARP, lane = thread_index() % CUZARR_WARP;
    u32 streams = task.streams[0].count + task.streams[1].count, whole_parts = task.streams[0].count * task.streams[0].parts;
    u32 parts = whole_parts + task.streams[1].count * task.streams[1].parts;
    u64 count = (u64)task.chunks * parts, step = (u64)block_count() * warps;
    for (u64 item = (u64)block_index() * warps + thread_index() / CUZARR_WARP; item < count; item += step) {
        u32 chunk = (u32)(item / parts), part = (u32)(item % parts), index = part / task.streams[0].parts;
        index = part < whole_parts ? index : task.streams[0].count;
        part -= index * task.streams[0].parts;
        const EncodedFrame frame = task.frames[chunk];
        if (frame.size == 0) continue;
        u8* to = task.out + frame.at;
        if (index == 0 && part == 0) write_header(to, task, frame, lane);
        BloscStream stream = blosc_stream(task, chunk, index);
        const u8* from = is_stored(stream) ? stream.plain : stream.coded;
        u32 begin = part * CUZARR_BLOSC_PART_BYTES, size = is_stored(stream) ? stream.size : stream.coded_size;
        if (frame.is_copied) {
            u32 place = index * task.streams[0].size;
            from = task.src + chunk * task.stride + place, size = stream.size, to += CUZARR_BLOSC_HEADER + place;
        } else {
            u32 place = task.places[(u64)chunk * streams + index];
            if (part == 0) {
                store_u32(to + place - 4, size, lane);
                if (index % task.splits == 0) store_u32(to + CUZARR_BLOSC_HEADER + index / task.splits * 4, place - 4, lane);
            }
            to += place;
        }
        if (begin >= size) continue;
        copy_far(from + begin, to + begin, size - begin < CUZARR_BLOSC_PART_BYTES ? size - begin : CUZARR_BLOSC_PART_BYTES, lane);
    }
}
