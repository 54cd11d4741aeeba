// The table of frames that batches of decoders share: `FrameEntry` in crates/cuzarr/src/codec/batch/frames.rs.
//
// The table has one entry for each frame. The host makes it from bytes that it has, or a scan kernel from bytes on the
// device. One warp decodes a stream; streams are numbered over all frames. In front of the entries stands the number of
// all streams, so that the host can size grids and a scan needs no read-back.
#pragma once
#include "cuzarr/kernel.cuh"
#include "cuzarr/search.cuh"
#include "cuzarr/status.cuh"

/// The kind of a frame's contents. `kind` of an entry.
#define CUZARR_FRAME_DAMAGED 0u  // nothing that can be decoded: its status says why
#define CUZARR_FRAME_COPIED 1u   // its data as they are
#define CUZARR_FRAME_STREAMS 2u  // compressed streams
#define CUZARR_FRAME_STORED 3u   // streams, of which other kernels decode those that are not stored

/// One frame: 64 bytes.
struct Frame {
    u64 src_offset;    // where its encoded bytes begin
    u64 dst_offset;    // where its decoded bytes go
    u64 work_offset;   // where they lie in scratch before they are unshuffled
    u64 first_stream;
    u32 src_bytes;
    u32 dst_bytes;
    u32 block_bytes;   // decoded
    u32 streams;
    u32 splits;        // streams of a whole block
    u32 type_bytes;
    u32 first_tile;    // of the tiles of dst, numbered through
    u16 kind;
    u16 shuffling;     // 0 none, 1 bytes, 2 bits
};

/// The head of the table, in front of the entries.
struct FrameTable {
    u64 streams;
    u64 reserved[7];
};

static_assert(sizeof(Frame) == 64 && sizeof(FrameTable) == 64, "as frames.rs writes them");

CUZARR_DEVICE const Frame* frames_of(const FrameTable* table) { return (const Frame*)(table + 1); }

/// The last frame whose first stream is at or before `stream`. Frames without streams have the number of the next one's.
CUZARR_DEVICE u32 frame_of_stream(const Frame* frames, u32 count, u64 stream) {
    return last_from(count, stream, [=](u32 frame) { return frames[frame].first_stream; });
}

CUZARR_DEVICE u32 frame_of_tile(const Frame* frames, u32 count, u32 tile) {
    return last_from(count, tile, [=](u32 frame) { return (u64)frames[frame].first_tile; });
}
